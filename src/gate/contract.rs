//! The contract stage (specification §2.2 stage 7): which contract rules the edge, and what it says of
//! the message. Where none does, nothing is said, unless this edge of this tenant must have one.

use std::sync::Arc;

use crate::contract::catalog::Catalog;
use crate::contract::enforce::{Edge, Ready};
use crate::domain::agent::Agent;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::ids::{AgentId, Micros, TenantId};
use crate::domain::message::Message;

/// Which edges must have a contract.
#[derive(Debug, Clone, Default)]
pub struct Requirement {
    /// Where nothing else is said.
    pub default: bool,
    /// The last that fits an edge decides.
    pub exceptions: Vec<Exception>,
}

/// A rule about edges. What is not named is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Exception {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// From this sender.
    pub agent: Option<AgentId>,
    /// To this receiver.
    pub to: Option<AgentId>,
    /// Whether such an edge must have a contract.
    pub required: bool,
    /// From when on it no longer holds.
    pub until: Option<Micros>,
}

impl Requirement {
    /// Whether an edge of a tenant must have a contract at that time.
    #[must_use]
    pub fn holds(&self, tenant: &TenantId, source: &AgentId, target: &AgentId, at: Micros) -> bool {
        let fits = |one: &&Exception| {
            one.until.is_none_or(|until| at < until)
                && one.tenant.as_ref().is_none_or(|own| own == tenant)
                && one.agent.as_ref().is_none_or(|own| own == source)
                && one.to.as_ref().is_none_or(|own| own == target)
        };
        self.exceptions.iter().rev().find(fits).map_or(self.default, |one| one.required)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Found {
    /// The contract that rules.
    pub ruling: Option<Arc<Ready>>,
    /// In what the message breaks it.
    pub failures: Vec<Failure>,
}

/// Holds a message against the contract of its edge.
#[must_use]
pub fn check(
    message: &Message,
    source: &Agent,
    target: &Agent,
    catalog: &Catalog,
    required: bool,
) -> Found {
    let named = message.envelope().contract_id.as_deref();
    let violation =
        |pointer, why| vec![Failure::new(Stage::Contract, Code::ContractViolation, pointer, why)];
    match catalog.ruling(source, target, named) {
        Ok(Some(ready)) => Found {
            ruling: Some(Arc::clone(ready)),
            failures: ready.check(message.value(), Edge { source, target }),
        },
        Ok(None) if required => Found {
            ruling: None,
            failures: violation(
                "/toAgent",
                format!(
                    "No contract rules {} → {}, and this edge must have one: PUT /contracts/{{id}}.",
                    source.agent_id, target.agent_id
                ),
            ),
        },
        Ok(None) => Found::default(),
        Err(why) => Found {
            ruling: None,
            failures: violation("/contractId", format!("Clause `contractId`: {why}.")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_exception_that_fits_decides_until_it_ends() {
        let name = |text: &str| text.parse::<AgentId>().unwrap();
        let of = |tenant: &str| Exception {
            tenant: Some(tenant.parse().unwrap()),
            required: true,
            ..Exception::default()
        };
        let requirement = Requirement {
            default: false,
            exceptions: vec![
                of("bank"),
                Exception { agent: Some(name("pilot")), required: false, ..of("bank") },
                Exception { to: Some(name("vault")), until: Some(Micros(10)), ..of("shop") },
            ],
        };
        let must = |tenant: &str, from: &str, to: &str, at: i64| {
            requirement.holds(&tenant.parse().unwrap(), &name(from), &name(to), Micros(at))
        };
        assert!(must("bank", "a", "b", 0));
        assert!(!must("bank", "pilot", "b", 0), "a later exception goes before");
        assert!(!must("shop", "a", "b", 0), "another tenant");
        assert!(must("shop", "a", "vault", 9));
        assert!(!must("shop", "a", "vault", 10), "it has ended");
    }
}
