//! Rules that a what-if tries: the present rules, with a candidate contract, payload schema, safety rules or policies.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::contracts::unresolved;
use super::{Administration, OWN_THREAD};
use crate::config::{SafetyException, SafetyMode};
use crate::directory::Principal;
use crate::intake::policies::{exception, mode};
use crate::intake::refused::misfit;
use crate::intake::what_if::Regime;
use crate::intake::{Refusal, heavy};
use handoffd_domain::canonical;
use handoffd_domain::failure::{Code, Failure};
use handoffd_domain::ids::Micros;
use handoffd_domain::policy::Orders;
use handoffd_gate::Gate;
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::shelf::SchemaRegistry;
use handoffd_gate::contract::{Contract, DefectKind, read, schema};
use handoffd_gate::safety::Scanner;
use handoffd_gate::safety::policy::Policies;
use handoffd_gate::safety::rules::Rules;

/// The candidate. For an absent member the present rules apply.
#[derive(Debug, Default)]
pub struct Candidate {
    pub contract: Option<Value>,
    /// The id of a payload schema, and the schema.
    pub schema: Option<(String, Value)>,
    pub safety: Option<SafetyCandidate>,
    /// Whether each edge needs a contract.
    pub require_contract: Option<bool>,
}

/// Safety rules and policies to try.
#[derive(Debug, Default)]
pub struct SafetyCandidate {
    pub mode: Option<SafetyMode>,
    pub orders: Option<Orders>,
    pub exceptions: Option<Vec<SafetyException>>,
    pub rules: Option<Value>,
}

impl Administration<'_> {
    /// The present rules with the candidate among them.
    ///
    /// # Errors
    /// The candidate is empty, or the broker would refuse it.
    pub async fn candidate_regime(
        &self,
        principal: &Principal,
        candidate: Candidate,
    ) -> Result<Regime, Refusal> {
        let Candidate { contract, schema, safety, require_contract } = candidate;
        if contract.is_none() && schema.is_none() && safety.is_none() && require_contract.is_none()
        {
            let why = "say what would be put: contract, schema, safety or requireContract";
            return Err(misfit("/candidate", why).into());
        }
        let mut regime = self.intake.regime(&principal.tenant).await?;
        if safety.is_some() || require_contract.is_some() {
            let safety = safety.unwrap_or_default();
            regime.gate = Arc::new(gate(&regime.gate, safety, require_contract).await?);
        }
        if let Some(document) = contract {
            let shelf = self.intake.directory.shelf(&principal.tenant).await?;
            let brought = schema.as_ref().map(|(id, _)| id.as_str());
            let now = self.now();
            let ready = contract_of(&regime.contracts, document, &shelf, brought, now)?;
            regime.contracts = Arc::new(regime.contracts.with([Arc::new(ready)]));
        }
        if let Some((id, document)) = schema {
            let compiled =
                heavy(OWN_THREAD, move || (schema::compile(&document).map(|_| ()), document));
            let (compiled, document) = compiled.await?;
            compiled.map_err(|why| misfit("/candidate/schema/schema", why))?;
            let contracts = regime.contracts.with_schema(&id, &document).ok_or_else(|| {
                let why = format!("no contract names `registry:{id}@…`");
                misfit("/candidate/schema/schemaId", why)
            })?;
            regime.contracts = Arc::new(contracts);
        }
        Ok(regime)
    }
}

/// A gate with other safety rules or policies, or another value of `require_contract`.
async fn gate(
    present: &Gate,
    safety: SafetyCandidate,
    require_contract: Option<bool>,
) -> Result<Gate, Refusal> {
    let SafetyCandidate { mode: default, orders, exceptions, rules } = safety;
    let policies = Policies {
        default: default.map_or(present.policies.default, mode),
        orders: orders.unwrap_or(present.policies.orders),
        exceptions: exceptions.map_or_else(
            || present.policies.exceptions.clone(),
            |all| all.iter().map(exception).collect(),
        ),
    };
    let mut requirement = present.requirement.clone();
    let required = &mut requirement.required;
    required.default = require_contract.unwrap_or(required.default);
    let mut gate = Gate { policies, requirement, ..present.clone() };
    // Compiling rules takes some milliseconds.
    let made = tokio::task::spawn_blocking(move || {
        if let Some(rules) = rules {
            gate.scanner = Scanner::with_rules(Rules::load(&rules.to_string())?);
        }
        Ok::<_, handoffd_gate::safety::rules::RulesError>(gate)
    });
    let gate = made
        .await
        .map_err(|_| Refusal::because(Code::Internal, "the candidate could not be compiled"))?
        .map_err(|err| misfit("/candidate/safety/rules", err.to_string()))?;
    if let Some(name) = gate.policies.unknown(gate.scanner.rules()) {
        let why = format!("no rule and no family is named `{name}`");
        return Err(misfit("/candidate/safety/exceptions", why).into());
    }
    Ok(gate)
}

/// The contract as the broker would store it. `brought` is the id of the payload schema in the same candidate.
fn contract_of(
    catalog: &Catalog,
    document: Value,
    shelf: &SchemaRegistry,
    brought: Option<&str>,
    now: Micros,
) -> Result<CompiledContract, Refusal> {
    let document = Document::from_value(document);
    let (mut contract, defects) = read(&document);
    let invalid = defects.iter().filter(|defect| defect.kind == DefectKind::Invalid);
    let invalid: Vec<Failure> =
        invalid.map(|defect| at(&defect.pointer, defect.message.clone())).collect();
    if !invalid.is_empty() {
        return Err(Refusal::Findings(invalid));
    }
    if let Some(name) = contract.registered_schema()
        && !shelf.has(&name)
        && brought != Some(name.id.as_str())
    {
        return Err(at("/payload/schema", format!("`{name}` is not registered")).into());
    }
    shelf.complete(&mut contract);
    if contract.registered_schema().is_none()
        && let Some(failure) = unresolved(&contract)
    {
        return Err(at(&failure.pointer, failure.message).into());
    }
    let doc = canonical::to_vec(document.value());
    let sha256 = hex::encode(Sha256::digest(&doc));
    would_rule(catalog, &contract, &sha256)?;
    let doc = String::from_utf8_lossy(&doc).into_owned();
    Ok(CompiledContract::new(contract, doc, sha256, now))
}

/// Refuses a contract if a stored version would apply instead.
fn would_rule(catalog: &Catalog, contract: &Contract, sha256: &str) -> Result<(), Failure> {
    let Some(stored) = catalog.find(&contract.id, None) else { return Ok(()) };
    let (version, present) = (contract.version(), stored.contract().version());
    if present > version || (present == version && stored.sha256() != sha256) {
        let why = format!("version {present} is there and would rule: give it a higher one");
        return Err(at("/version", why));
    }
    Ok(())
}

/// The failure for an invalid member of the candidate contract.
fn at(pointer: &str, why: impl Into<String>) -> Failure {
    misfit(&format!("/candidate/contract{pointer}"), why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(document: Value) -> CompiledContract {
        let empty = (Catalog::default(), SchemaRegistry::default());
        contract_of(&empty.0, document, &empty.1, None, Micros(0)).unwrap()
    }

    fn contract(version: &str, description: &str) -> Value {
        json!({
            "id": "a-to-b", "version": version, "source": "a", "target": "b",
            "description": description,
        })
    }

    #[test]
    fn a_candidate_contract_would_rule_or_is_refused_at_its_version() {
        let catalog = Catalog::default().with([Arc::new(stored(contract("1.1.0", "now")))]);
        let rows = [
            ("1.2.0", "next", None),
            ("1.1.0", "now", None),
            ("1.1.0", "other words", Some("/candidate/contract/version")),
            ("1.0.0", "now", Some("/candidate/contract/version")),
        ];
        for (version, description, pointer) in rows {
            let document = contract(version, description);
            let shelf = SchemaRegistry::default();
            let ready = contract_of(&catalog, document, &shelf, None, Micros(0));
            let refused = ready.err().map(|refusal| match refusal {
                Refusal::Findings(failures) => failures[0].pointer.clone(),
                other => panic!("{other:?}"),
            });
            assert_eq!(refused.as_deref(), pointer, "{version} {description}");
        }
    }

    #[test]
    fn a_payload_schema_is_registered_or_comes_with_its_contract() {
        let mut document = contract("1.0.0", "with a schema");
        document["payload"] = json!({ "schema": "registry:order@1.0.0" });
        let (catalog, shelf) = (Catalog::default(), SchemaRegistry::default());
        let judged = |brought| contract_of(&catalog, document.clone(), &shelf, brought, Micros(0));
        assert!(judged(Some("order")).is_ok());
        let Err(Refusal::Findings(failures)) = judged(Some("ticket")) else {
            panic!("a schema that is not registered is refused")
        };
        assert_eq!(failures[0].pointer, "/candidate/contract/payload/schema");
    }
}
