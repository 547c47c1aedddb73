//! `/contracts`: the documents about edges (specification §4.4).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Caller, Open, Operator};
use super::extract::{Id, Params, Text};
use super::open;
use super::problem::{BadBody, Busy, Problem, WarningView};
use super::sorted::Sorted;
use handoffd_broker::administration::contracts::is_in_view;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::level::Level;
use handoffd_gate::contract::lint::{self, LintReport};
use handoffd_gate::contract::{Deprecation, report};

/// A contract, as docs/contracts.md describes it: `id`, `version`, and its clauses.
#[derive(Serialize, ToSchema)]
pub struct ContractDocument {}

/// A contract as shown: its document, and beside it what the broker knows of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContractView {
    /// The document's other members.
    #[serde(flatten)]
    #[schema(ignore)]
    pub document: Map<String, Value>,
    /// The contract's id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The broker's facts about it.
    pub meta: ContractMeta,
    /// The parts that are accepted and do not hold in full; only in the answer that put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<WarningView>>,
}

/// The broker's facts about a contract.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContractMeta {
    /// SHA-256 over the document's canonical form (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// When it was put, RFC 3339.
    pub created_at: String,
    /// It is on its way out.
    pub deprecated: bool,
    /// All versions that there are; only on the contract's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
    /// How far it conforms, null below L1; only in the answer that put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::ContractLevel>)]
    pub level: Option<Option<&'static str>>,
    /// The clauses that it lacks for the next level; only in the answer that put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<String>>,
    /// The linter's findings; only in the answer that put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Vec<LintFinding>>,
}

/// One page with all contracts that the caller may see.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContractsView {
    /// Each in its highest version, by id.
    pub items: Vec<ContractView>,
}

/// The linter's answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct LintView {
    /// One a contract, in the order in which they were sent.
    pub contracts: Vec<LintedContract>,
}

/// The linter's answer on one contract.
#[derive(Debug, Serialize, ToSchema)]
pub struct LintedContract {
    /// The contract's id.
    #[schema(required)]
    pub id: Option<String>,
    /// Its place in the request: `/contracts/0`, or empty if one was sent alone.
    pub file: String,
    /// How far it conforms, null below L1.
    #[schema(required, value_type = Option<open::ContractLevel>)]
    pub level: Option<&'static str>,
    /// The clauses that it lacks for the next level.
    pub missing: Vec<String>,
    /// The linter's findings.
    pub findings: Vec<LintFinding>,
    /// The parts of the contract that would be accepted and not hold in full; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

/// One finding of the linter.
#[derive(Debug, Serialize, ToSchema)]
pub struct LintFinding {
    /// Name of the rule that the contract breaks.
    pub rule: &'static str,
    /// How much it weighs.
    #[schema(value_type = open::Severity)]
    pub severity: &'static str,
    /// The line, from 1.
    #[schema(value_type = usize)]
    pub line: u64,
    /// The column, from 1.
    #[schema(value_type = usize)]
    pub column: u64,
    /// The fault, in a sentence for people.
    pub message: String,
}

impl From<&LintReport> for LintedContract {
    fn from(report: &LintReport) -> Self {
        Self {
            id: report.id.clone(),
            file: report.file.clone(),
            level: report.level.map(Level::as_str),
            missing: report.missing.clone(),
            findings: report.findings.iter().map(LintFinding::from).collect(),
            warnings: report::warnings(report).iter().map(WarningView::from).collect(),
        }
    }
}

impl From<&lint::LintFinding> for LintFinding {
    fn from(finding: &lint::LintFinding) -> Self {
        Self {
            rule: finding.rule.name,
            severity: finding.rule.severity.as_str(),
            line: finding.place.line,
            column: finding.place.column,
            message: finding.message.clone(),
        }
    }
}

/// The input of the linter: one contract, or several.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum LintBody {
    /// Several contracts, and the registry to hold them against.
    Many(LintManyBody),
    /// One contract.
    One(ContractDocument),
}

/// Contracts to lint.
#[derive(Serialize, ToSchema)]
pub struct LintManyBody {
    /// The contracts, a thousand at most.
    pub contracts: Vec<ContractOrText>,
    /// A registry of agents; the tenant's own unless sent along.
    pub registry: Option<LintRegistryBody>,
}

/// A contract, or its text in JSON or YAML.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ContractOrText {
    /// The contract.
    Document(ContractDocument),
    /// The contract's text, YAML or JSON.
    Text(String),
}

/// A registry of agents, as docs/contracts.md describes it.
#[derive(Serialize, ToSchema)]
pub struct LintRegistryBody {}

impl ContractView {
    /// A contract's view: its document, with the broker's facts as `meta`.
    fn of(ready: &CompiledContract, versions: Option<Vec<String>>) -> Self {
        let contract = ready.contract();
        let mut document: Map<String, Value> =
            serde_json::from_str(ready.doc()).unwrap_or_default();
        // The view has these as members of its own.
        for name in ["id", "version", "meta"] {
            document.remove(name);
        }
        Self {
            document,
            id: contract.id.clone(),
            version: contract.version().to_string(),
            meta: ContractMeta {
                sha256: ready.sha256().to_owned(),
                created_at: ready.created_at().rfc3339(),
                deprecated: contract.deprecation.is_some(),
                versions,
                level: None,
                missing: None,
                findings: None,
            },
            warnings: None,
        }
    }
}

/// Put a version of a contract. Versions are kept: the same again changes nothing, another content
/// needs another version.
#[utoipa::path(
    put, path = "/contracts/{contractId}", tag = "contracts", operation_id = "putContract",
    params(("contractId" = String, Path, description = "The contract's id, kebab-case")),
    request_body(content = ContractDocument, description = "The contract (docs/contracts.md), as `application/json` or `application/yaml`", content_type = "application/json"),
    responses(
        (status = 200, description = "It was there already", body = ContractView),
        (status = 201, description = "The contract, with `meta` and the linter's `level`, `missing` and `findings` in it, and `warnings`: what is taken and does not hold in full", body = ContractView),
        (status = 403, description = "Not an operator"),
        (status = 409, description = "This version has another content"),
        BadBody,
        (status = 422, description = "A clause cannot be enforced"),
        Busy,
    )
)]
pub(super) async fn put(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<String>,
    Text(text): Text,
) -> Result<(StatusCode, Sorted<ContractView>), Problem> {
    let stored = api.administration().put_contract(&principal, id, text).await?;
    let mut shown = ContractView::of(&stored.contract, None);
    if let Some(report) = stored.reports.first() {
        let LintedContract { level, missing, findings, .. } = report.into();
        shown.meta.level = Some(level);
        shown.meta.missing = Some(missing);
        shown.meta.findings = Some(findings);
    }
    let warnings: Vec<_> = stored.warnings.iter().map(WarningView::from).collect();
    shown.warnings = Some(warnings).filter(|all| !all.is_empty());
    let code = if stored.added { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, Sorted(shown)))
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only contracts with this source.
    source: Option<String>,
    /// Only contracts with this target.
    target: Option<String>,
}

/// List contracts, each in its highest version, by id; an agent sees those that speak of it.
#[utoipa::path(
    get, path = "/contracts", tag = "contracts", operation_id = "listContracts",
    params(ListParams),
    responses(
        (status = 200, description = "The contracts", body = ContractsView),
        (status = 400, description = "A malformed parameter"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Params(params): Params<ListParams>,
) -> Result<Sorted<ContractsView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let catalog = api.intake.directory.contracts(&principal.tenant).await?;
    let items = catalog
        .iter()
        .filter(|ready| is_in_view(&principal, &agents, ready))
        .filter(|ready| {
            let contract = ready.contract();
            params.source.as_ref().is_none_or(|source| *source == contract.source)
                && params.target.as_ref().is_none_or(|target| *target == contract.target)
        })
        .map(|ready| ContractView::of(ready, None))
        .collect();
    Ok(Sorted(ContractsView { items }))
}

/// Query of a version.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetParams {
    /// A semver version; the highest unless said.
    version: Option<String>,
}

/// Read a contract.
#[utoipa::path(
    get, path = "/contracts/{contractId}", tag = "contracts", operation_id = "getContract",
    params(("contractId" = String, Path, description = "The contract's id"), GetParams),
    responses(
        (status = 200, description = "The contract, with `meta`: hash, time, all versions", body = ContractView),
        (status = 400, description = "A malformed parameter"),
        (status = 404, description = "No such contract or version"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<String>,
    Params(params): Params<GetParams>,
) -> Result<Sorted<ContractView>, Problem> {
    let version = params
        .version
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|_| Problem::invalid("version must be a semantic version"))?;
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let catalog = api.intake.directory.contracts(&principal.tenant).await?;
    let ready = catalog
        .find(&id, version.as_ref())
        .filter(|ready| is_in_view(&principal, &agents, ready))
        .ok_or_else(|| Problem::not_found("contract"))?;
    let versions = catalog.versions(&id).map(|ready| ready.contract().version().to_string());
    Ok(Sorted(ContractView::of(ready, Some(versions.collect()))))
}

/// Lint contracts against this tenant's agents, or a registry sent along; writes nothing.
#[utoipa::path(
    post, path = "/contracts/lint", tag = "contracts", operation_id = "lintContracts",
    request_body(content = LintBody, description = "One contract, or `{contracts: [contract, or its text], registry?}`, as JSON or YAML", content_type = "application/json"),
    responses(
        (status = 200, description = "The linter's findings", body = LintView),
        (status = 403, description = "An agent's key"),
        BadBody,
        (status = 422, description = "Not what can be linted"),
    )
)]
pub(super) async fn lint_all(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Text(text): Text,
) -> Result<Sorted<LintView>, Problem> {
    let reports = api.administration().lint_contracts(&principal, text).await?;
    Ok(Sorted(LintView { contracts: reports.iter().map(LintedContract::from).collect() }))
}

/// Tells a sender that the contract of its edge is on its way out: `Deprecation` (RFC 9745), `Sunset`
/// (RFC 8594), and where to go.
pub fn tell_deprecation(headers: &mut HeaderMap, deprecation: &Deprecation, put_at: i64) {
    let mut set = |name: &'static str, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    set("deprecation", format!("@{}", deprecation.since.unwrap_or(put_at)));
    if let Some(sunset) = deprecation.sunset.and_then(|at| u64::try_from(at).ok()) {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(sunset);
        set("sunset", httpdate::fmt_http_date(at));
    }
    if let Some(next) = &deprecation.replacement_id {
        set("link", format!("</contracts/{next}>; rel=\"successor-version\""));
    }
}
