//! Contracts: a version is put, and contracts are linted against the tenant's agents (specification §4.4).

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Administration, OWN_THREAD};
use crate::directory::{Agents, Principal};
use crate::intake::refused::misfit;
use crate::intake::{Refusal, heavy};
use crate::ledger::command::content;
use crate::ledger::commands::{PutContract, PutContractReply};
use handoffd_domain::canonical;
use handoffd_domain::failure::Failure;
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::level::Level;
use handoffd_gate::contract::lint::{LintContext, LintReport, LintSubject, SchemaFile, lint};
use handoffd_gate::contract::registry::Registry;
use handoffd_gate::contract::shelf::SchemaName;
use handoffd_gate::contract::{Contract, ContractDefect, DefectKind, SchemaRef, report};
use handoffd_store::store::contracts::ContractRow;

mod sent;

/// A version of a contract after it was put.
#[derive(Debug)]
pub struct StoredContract {
    pub contract: CompiledContract,
    /// Whether this call added it.
    pub added: bool,
    /// The linter's report on it.
    pub reports: Vec<LintReport>,
    /// Clauses that are stored and do not hold in full.
    pub warnings: Vec<Warning>,
}

impl Administration<'_> {
    /// Puts a version of a contract. Versions are kept: the same again changes nothing.
    ///
    /// # Errors
    /// The text cannot be read, a clause cannot be enforced, or this version has another content.
    pub async fn put_contract(
        &self,
        principal: &Principal,
        id: String,
        text: String,
    ) -> Result<StoredContract, Refusal> {
        let catalog = self.intake.directory.contracts(&principal.tenant).await?;
        let (named, stored) = (id.clone(), Arc::clone(&catalog));
        // To read a contract compiles its schemas.
        let read = heavy(OWN_THREAD, move || sent::one(&text, &named, &stored));
        let (document, mut contract, defects) = read.await??;
        let invalid = invalid(&id, &contract, &defects);
        if !invalid.is_empty() {
            return Err(Refusal::Findings(invalid));
        }
        if contract.registered_schema().is_some() {
            self.intake.directory.shelf(&principal.tenant).await?.complete(&mut contract);
        }
        // A version that an earlier broker stored stays stored: only a new one is refused.
        let is_stored = catalog.find(&id, Some(&contract.version())).is_some();
        if !is_stored && let Some(failure) = unresolved(&contract) {
            return Err(failure.into());
        }
        let (doc, now) = (canonical::to_vec(document.value()), self.now());
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
        let reply = self.carry_out(principal, now, put).await;
        // Also after an error: an unanswered commit may have got through.
        self.intake.directory.contracts_changed(&principal.tenant).await;
        let PutContractReply { row, added } = reply?;
        let reports = self.judge(principal, vec![(row.id.clone(), document)], None).await?;
        let sha256 = hex::encode(row.sha256);
        let contract = CompiledContract::new(contract, row.doc, sha256, row.created_at);
        let mut warnings: Vec<Warning> = reports.iter().flat_map(report::warnings).collect();
        warnings.extend(self.below_minimum(principal, &contract));
        Ok(StoredContract { contract, added, reports, warnings })
    }

    /// Lints one contract, or several with a registry of agents in place of the tenant's. Writes nothing.
    ///
    /// # Errors
    /// The text cannot be read, or is not what can be linted.
    pub async fn lint_contracts(
        &self,
        principal: &Principal,
        text: String,
    ) -> Result<Vec<LintReport>, Refusal> {
        let sent = heavy(OWN_THREAD, move || sent::many(&text)).await??;
        self.judge(principal, sent.documents, sent.registry).await
    }

    async fn judge(
        &self,
        principal: &Principal,
        documents: Vec<(String, Document)>,
        registry: Option<Registry>,
    ) -> Result<Vec<LintReport>, Refusal> {
        let directory = &self.intake.directory;
        let agents = directory.agents(&principal.tenant).await?;
        let catalog = directory.contracts(&principal.tenant).await?;
        let registry = registry.unwrap_or_else(|| Registry::of(agents.roster.iter()));
        let shelf = directory.shelf(&principal.tenant).await?;
        let now = self.now().seconds();
        let reports = heavy(OWN_THREAD, move || {
            let in_force: Vec<&Contract> = catalog.iter().map(|ready| ready.contract()).collect();
            let versions: Vec<&Contract> = catalog.all().map(|ready| ready.contract()).collect();
            let subject = |(file, document): (String, Document)| {
                let named = document.value().pointer("/payload/schema").and_then(Value::as_str);
                let schema = match named.and_then(SchemaName::parse) {
                    None => SchemaFile::NotLooked,
                    Some(name) => name
                        .ok()
                        .and_then(|name| shelf.find(&name))
                        .map_or(SchemaFile::Missing, SchemaFile::of),
                };
                LintSubject { file, document: Ok(document), schema }
            };
            let subjects: Vec<LintSubject> = documents.into_iter().map(subject).collect();
            let around = LintContext {
                registry: Some(&registry),
                in_force: &in_force,
                versions: &versions,
                now: Some(now),
            };
            lint(&subjects, around)
        });
        Ok(reports.await?)
    }

    /// Warns of a contract that would not rule: its own edge asks for a higher level. The requirement of a role's edge is read
    /// under the role's name, which no exception by agent fits.
    fn below_minimum(&self, principal: &Principal, ready: &CompiledContract) -> Option<Warning> {
        let contract = ready.contract();
        let (source, target) = (contract.source.parse().ok()?, contract.target.parse().ok()?);
        let requirement = &self.intake.gate.requirement;
        let terms = requirement.terms(&principal.tenant, &source, &target, self.now(), false);
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
}

/// Whether a contract is in view of the caller: an agent sees those that name it or its type.
#[must_use]
pub fn is_in_view(principal: &Principal, agents: &Agents, ready: &CompiledContract) -> bool {
    let Some(id) = principal.reader().limit() else { return true };
    let contract = ready.contract();
    agents.roster.find(id).is_some_and(|agent| {
        [&contract.source, &contract.target]
            .into_iter()
            .any(|name| name == agent.agent_id.as_str() || *name == agent.agent_type)
    })
}

/// The clauses that cannot be read, or an id that is not the one of the path.
fn invalid(id: &str, contract: &Contract, defects: &[ContractDefect]) -> Vec<Failure> {
    let invalid = defects.iter().filter(|defect| defect.kind == DefectKind::Invalid);
    let failures: Vec<Failure> =
        invalid.map(|defect| misfit(&defect.pointer, defect.message.clone())).collect();
    if failures.is_empty() && contract.id != id {
        let why = format!("the path names `{id}`, the document `{}`", contract.id);
        return vec![misfit("/id", why)];
    }
    failures
}

/// A payload schema that the broker cannot hold a message against.
#[must_use]
pub fn unresolved(contract: &Contract) -> Option<Failure> {
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
    Some(misfit("/payload/schema", why))
}
