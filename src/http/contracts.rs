//! `/contracts`: the documents about edges (specification §4.4).

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Caller, Open, Operator};
use super::extract::{Id, OWN_THREAD, Params, Text, heavy};
use super::open;
use super::problem::{BadBody, Busy, Problem, WarningView};
use handoffd_broker::directory::{Agents, Principal};
use handoffd_broker::ledger::command::content;
use handoffd_broker::ledger::commands::{PutContract, PutContractReply};
use handoffd_core::contract::catalog::Catalog;
use handoffd_core::contract::document::{Document, DocumentError};
use handoffd_core::contract::enforce::CompiledContract;
use handoffd_core::contract::level::Level;
use handoffd_core::contract::lint::{LintContext, LintReport, LintSubject, SchemaFile, lint};
use handoffd_core::contract::registry::Registry;
use handoffd_core::contract::shelf::SchemaName;
use handoffd_core::contract::{
    Contract, ContractDefect, DefectKind, Deprecation, SchemaRef, read, report, whole,
};
use handoffd_core::domain::canonical;
use handoffd_core::domain::failure::{Code, Failure, Stage, escaped};
use handoffd_core::domain::warning::{Warning, WarningCode};
use handoffd_store::store::contracts::ContractRow;

/// The most contracts that one call lints.
const MAX_LINTED: usize = 1_000;

/// A contract, as docs/contracts.md describes it: `id`, `version`, and its clauses.
#[derive(Serialize, ToSchema)]
pub struct ContractDocument {}

/// A contract as shown: its document, and beside it what the broker knows of it.
#[derive(ToSchema)]
pub struct ContractView {
    /// The contract's id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// What the broker knows of it.
    pub meta: ContractMeta,
    /// What is taken and does not hold in full; only in the answer that put it.
    pub warnings: Option<Vec<WarningView>>,
}

/// What the broker knows of a contract.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ContractMeta {
    /// SHA-256 over the document's canonical form (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// When it was put, RFC 3339.
    pub created_at: String,
    /// It is on its way out.
    pub deprecated: bool,
    /// All versions that there are; only on the contract's own page.
    pub versions: Option<Vec<String>>,
    /// How far it conforms, null below L1; only in the answer that put it.
    #[schema(value_type = Option<open::ContractLevel>)]
    pub level: Option<String>,
    /// What it lacks for the next level; only in the answer that put it.
    pub missing: Option<Vec<String>>,
    /// What the linter found; only in the answer that put it.
    pub findings: Option<Vec<LintFinding>>,
}

/// One page with all contracts that the caller may see.
#[derive(ToSchema)]
pub struct ContractsView {
    /// Each in its highest version, by id.
    pub items: Vec<ContractView>,
}

/// What the linter says.
#[derive(ToSchema)]
pub struct LintView {
    /// One a contract, in the order in which they were sent.
    pub contracts: Vec<LintedContract>,
}

/// What the linter says of one contract.
#[derive(ToSchema)]
pub struct LintedContract {
    /// The contract's id.
    #[schema(required)]
    pub id: Option<String>,
    /// Where it stands in the request: `/contracts/0`, or empty where one was sent alone.
    pub file: String,
    /// How far it conforms, null below L1.
    #[schema(required, value_type = Option<open::ContractLevel>)]
    pub level: Option<String>,
    /// What it lacks for the next level.
    pub missing: Vec<String>,
    /// The linter's findings.
    pub findings: Vec<LintFinding>,
    /// What of the contract would be taken and not hold in full; absent where there is nothing.
    pub warnings: Option<Vec<WarningView>>,
}

/// One finding of the linter.
#[derive(ToSchema)]
pub struct LintFinding {
    /// Name of the rule that the contract breaks.
    pub rule: String,
    /// How much it weighs.
    #[schema(value_type = open::Severity)]
    pub severity: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong, in a sentence for people.
    pub message: String,
}

/// What to lint: one contract, or several.
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

fn unreadable(err: &DocumentError) -> Problem {
    let at = err.place;
    let message = format!("line {}, column {}: {}", at.line, at.column, err.message);
    Problem::malformed(Failure::new(Stage::Schema, Code::SchemaInvalid, "", message))
}

fn wrong(pointer: &str, message: String) -> Failure {
    Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message)
}

/// A contract's view: its document, with the broker's facts as `meta`.
fn view(ready: &CompiledContract, versions: Option<Vec<String>>) -> Value {
    let mut shown: Value = serde_json::from_str(ready.doc()).unwrap_or_default();
    let contract = ready.contract();
    shown["version"] = json!(contract.version().to_string());
    let mut meta = json!({
        "sha256": ready.sha256(),
        "createdAt": ready.created_at().rfc3339(),
        "deprecated": contract.deprecation.is_some(),
    });
    if let Some(versions) = versions {
        meta["versions"] = json!(versions);
    }
    shown["meta"] = meta;
    shown
}

/// Whether the caller may see a contract: an agent sees those that name it or its type.
fn concerns(principal: &Principal, agents: &Agents, ready: &CompiledContract) -> bool {
    let Some(id) = principal.reader().limit() else { return true };
    let contract = ready.contract();
    agents.roster.find(id).is_some_and(|agent| {
        [&contract.source, &contract.target]
            .into_iter()
            .any(|name| name == agent.agent_id.as_str() || *name == agent.agent_type)
    })
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
) -> Result<(StatusCode, axum::Json<Value>), Problem> {
    let there = api.intake.directory.contracts(&principal.tenant).await?;
    let named = id.clone();
    // To read a contract compiles its schemas.
    let stored = Arc::clone(&there);
    let (document, mut contract, faults) =
        heavy(OWN_THREAD, move || as_put(&text, &named, &stored)).await??;
    let mut failures: Vec<Failure> = faults
        .iter()
        .filter(|fault| fault.kind == DefectKind::Invalid)
        .map(|fault| wrong(&fault.pointer, fault.message.clone()))
        .collect();
    if failures.is_empty() && contract.id != id {
        failures
            .push(wrong("/id", format!("the path names `{id}`, the document `{}`", contract.id)));
    }
    if !failures.is_empty() {
        return Err(Problem::refusal(failures, false));
    }
    if contract.registered_schema().is_some() {
        api.intake.directory.shelf(&principal.tenant).await?.complete(&mut contract);
    }
    let doc = canonical::to_vec(document.value());
    let now = api.now();
    // What was taken by an earlier version of the broker stays taken: only what is new is refused.
    let there = there.find(&id, Some(&contract.version())).is_some();
    if !there && let Some(failure) = unresolved(&contract) {
        return Err(Problem::refusal(vec![failure], false));
    }
    let row = ContractRow {
        tenant: principal.tenant.clone(),
        id,
        version: contract.version().to_string(),
        sha256: Sha256::digest(&doc).into(),
        doc: String::from_utf8_lossy(&doc).into_owned(),
        source: contract.source.clone(),
        target: contract.target.clone(),
        created_at: now,
    };
    let put = PutContract { row, content: content(&doc, now) };
    let reply = api.carry_out(&principal, now, put).await;
    // Also after an error: an unanswered commit may have got through.
    api.intake.directory.contracts_changed(&principal.tenant).await;
    let PutContractReply { row, added } = reply?;
    let judged = judge(&api, &principal, vec![(row.id.clone(), document)], None).await?;
    let ready = CompiledContract::new(contract, row.doc, hex::encode(row.sha256), row.created_at);
    let mut shown = view(&ready, None);
    if let Some(judged) = report::json(&judged)["contracts"].get(0) {
        for name in ["level", "missing", "findings"] {
            shown["meta"][name] = judged[name].clone();
        }
    }
    let mut warnings: Vec<Warning> = judged.iter().flat_map(report::warnings).collect();
    warnings.extend(below_minimum(&api, &principal, &ready));
    if !warnings.is_empty() {
        shown["warnings"] = json!(warnings.iter().map(WarningView::from).collect::<Vec<_>>());
    }
    Ok((if added { StatusCode::CREATED } else { StatusCode::OK }, axum::Json(shown)))
}

/// A contract's text as a document under the id of its path, read. The comment that justifies `full` becomes a member, as
/// the linter reads it; a version that is stored without it stays the same.
fn as_put(
    text: &str,
    named: &str,
    there: &Catalog,
) -> Result<(Document, Contract, Vec<ContractDefect>), Problem> {
    let document = Document::parse(text).map_err(|err| unreadable(&err))?;
    let under_id = |mut value: Value| {
        if let Some(object) = value.as_object_mut() {
            object.entry("id").or_insert_with(|| json!(named));
        }
        Document::from_value(value)
    };
    let plain = under_id(document.value().clone());
    let Some(justified) = whole::justified(&document, "").map(under_id) else {
        let (contract, faults) = read(&plain);
        return Ok((plain, contract, faults));
    };
    let (contract, faults) = read(&justified);
    let stored = there.find(named, Some(&contract.version()));
    let same = |ready: &CompiledContract| {
        ready.doc().as_bytes() == canonical::to_vec(plain.value()).as_slice()
    };
    Ok(if stored.is_some_and(|ready| same(ready)) {
        let (contract, faults) = read(&plain);
        (plain, contract, faults)
    } else {
        (justified, contract, faults)
    })
}

/// A payload schema that the broker cannot hold a message against.
pub(super) fn unresolved(contract: &Contract) -> Option<Failure> {
    let Some(SchemaRef::Named(name)) = &contract.payload.schema else { return None };
    if contract.local_schema().is_some() {
        return None;
    }
    let why = match contract.registered_schema() {
        Some(name) => {
            format!("`{name}` is not registered: PUT /schemas/payloads/{{id}}/{{version}}")
        }
        None => format!(
            "the broker does not have `{name}`: bring the schema along under `schemas` (`handoffd contracts put` does that for a file beside the contract), write it in its place, or register it and name it `registry:ID@VERSION`"
        ),
    };
    Some(wrong("/payload/schema", why))
}

/// A contract that would not rule: where its own edge asks for more than it reaches. A role's edge is asked
/// about under the role's name, which no exception by agent fits.
fn below_minimum(api: &Api, principal: &Principal, ready: &CompiledContract) -> Option<Warning> {
    let contract = ready.contract();
    let (source, target) = (contract.source.parse().ok()?, contract.target.parse().ok()?);
    let terms =
        api.intake.gate.requirement.terms(&principal.tenant, &source, &target, api.now(), false);
    let minimum = terms.minimum_level?;
    (ready.level() < Some(minimum)).then(|| {
        let reached = ready.level().map_or("below L1", Level::as_str);
        let why = format!(
            "the contract is {reached}, and its edge asks for {}: every handoff along it is refused",
            minimum.as_str()
        );
        Warning::new(WarningCode::BelowMinimumLevel, "", why)
    })
}

async fn judge(
    api: &Api,
    principal: &Principal,
    documents: Vec<(String, Document)>,
    registry: Option<Registry>,
) -> Result<Vec<LintReport>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let catalog = api.intake.directory.contracts(&principal.tenant).await?;
    let registry = registry.unwrap_or_else(|| Registry::of(agents.roster.iter()));
    let shelf = api.intake.directory.shelf(&principal.tenant).await?;
    let now = api.now().seconds();
    heavy(OWN_THREAD, move || {
        let in_force: Vec<&Contract> = catalog.iter().map(|ready| ready.contract()).collect();
        let versions: Vec<&Contract> = catalog.all().map(|ready| ready.contract()).collect();
        let subjects: Vec<LintSubject> = documents
            .into_iter()
            .map(|(file, document)| {
                let named = document.value().pointer("/payload/schema").and_then(Value::as_str);
                let schema = match named.and_then(SchemaName::parse) {
                    None => SchemaFile::NotLooked,
                    Some(name) => name
                        .ok()
                        .and_then(|name| shelf.find(&name))
                        .map_or(SchemaFile::Missing, SchemaFile::of),
                };
                LintSubject { file, document: Ok(document), schema }
            })
            .collect();
        let around = LintContext {
            registry: Some(&registry),
            in_force: &in_force,
            versions: &versions,
            now: Some(now),
        };
        lint(&subjects, around)
    })
    .await
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
) -> Result<axum::Json<Value>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let catalog = api.intake.directory.contracts(&principal.tenant).await?;
    let items: Vec<Value> = catalog
        .iter()
        .filter(|ready| concerns(&principal, &agents, ready))
        .filter(|ready| {
            let contract = ready.contract();
            params.source.as_ref().is_none_or(|source| *source == contract.source)
                && params.target.as_ref().is_none_or(|target| *target == contract.target)
        })
        .map(|ready| view(ready, None))
        .collect();
    Ok(axum::Json(json!({ "items": items })))
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
) -> Result<axum::Json<Value>, Problem> {
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
        .filter(|ready| concerns(&principal, &agents, ready))
        .ok_or_else(|| Problem::not_found("contract"))?;
    let versions = catalog.versions(&id).map(|ready| ready.contract().version().to_string());
    Ok(axum::Json(view(ready, Some(versions.collect()))))
}

/// Lint contracts against this tenant's agents, or a registry sent along; writes nothing.
#[utoipa::path(
    post, path = "/contracts/lint", tag = "contracts", operation_id = "lintContracts",
    request_body(content = LintBody, description = "One contract, or `{contracts: [contract, or its text], registry?}`, as JSON or YAML", content_type = "application/json"),
    responses(
        (status = 200, description = "What the linter says", body = LintView),
        (status = 403, description = "An agent's key"),
        BadBody,
        (status = 422, description = "Not what can be linted"),
    )
)]
pub(super) async fn lint_all(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Text(text): Text,
) -> Result<axum::Json<Value>, Problem> {
    let refuse = |pointer: &str, why: String| Problem::refusal(vec![wrong(pointer, why)], false);
    let parsed = heavy(OWN_THREAD, move || Document::parse_large(&text)).await?;
    let sent = parsed.map_err(|err| unreadable(&err))?;
    let Some(contracts) = sent.value().get("contracts") else {
        let reports = judge(&api, &principal, vec![(String::new(), sent)], None).await?;
        return Ok(axum::Json(report::json(&reports)));
    };
    let members = sent.value().as_object().into_iter().flat_map(|members| members.keys());
    if let Some(name) =
        members.into_iter().find(|name| !["contracts", "registry"].contains(&name.as_str()))
    {
        let why = "is no member of this body: contracts and registry are".to_owned();
        return Err(refuse(&format!("/{}", escaped(name)), why));
    }
    let listed =
        contracts.as_array().filter(|listed| listed.len() <= MAX_LINTED).ok_or_else(|| {
            refuse("/contracts", format!("`contracts` must be a list of at most {MAX_LINTED}"))
        })?;
    let registry = match sent.value().get("registry").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            Some(Registry::deserialize(value).map_err(|err| refuse("/registry", err.to_string()))?)
        }
    };
    let listed = listed.clone();
    let parsed = heavy(OWN_THREAD, move || {
        let document = |(at, one): (usize, &Value)| {
            let file = format!("/contracts/{at}");
            let justified = whole::justified(&sent, &file);
            let document = match one.as_str() {
                Some(text) => Document::parse(text).map_err(|err| {
                    let DocumentError { place, message } = err;
                    refuse(
                        &file,
                        format!("line {}, column {}: {message}", place.line, place.column),
                    )
                })?,
                None => Document::from_value(justified.unwrap_or_else(|| one.clone())),
            };
            Ok::<_, Problem>((file, document))
        };
        listed.iter().enumerate().map(document).collect::<Result<Vec<_>, _>>()
    });
    let documents = parsed.await??;
    let reports = judge(&api, &principal, documents, registry).await?;
    Ok(axum::Json(report::json(&reports)))
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
