//! The contract stage (specification §2.2 stage 7): which contract rules the edge, whether it is one that
//! may, and what it says of the message. Where none does, nothing is said, unless this edge of this tenant
//! must have one.

use std::sync::Arc;

use crate::contract::catalog::{Asked, Catalog, NotInForce, Pinned};
use crate::contract::enforce::{Edge, Ready};
use crate::contract::level::Level;
use crate::domain::agent::Agent;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::ids::{AgentId, Micros, TenantId};
use crate::domain::message::Message;
use crate::domain::warning::{Warning, WarningCode};

/// What is asked of the contracts of edges.
#[derive(Debug, Clone, Default)]
pub struct Requirement {
    /// Which edges must have one.
    pub required: ByEdge<bool>,
    /// The level that one must reach to rule; `None`: any.
    pub minimum_level: ByEdge<Option<Level>>,
    /// Whether a sender may ask for a version that is not in force.
    pub accept_pinned: ByEdge<bool>,
}

/// A rule that may differ by edge.
#[derive(Debug, Clone, Default)]
pub struct ByEdge<T> {
    /// Where nothing else is said.
    pub default: T,
    /// The last that fits an edge decides.
    pub exceptions: Vec<(Edges, T)>,
}

/// Edges. What is not named is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Edges {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// From this sender.
    pub agent: Option<AgentId>,
    /// To this receiver.
    pub to: Option<AgentId>,
    /// From when on nothing is said of them any more.
    pub until: Option<Micros>,
}

impl<T: Copy> ByEdge<T> {
    /// What rules an edge of a tenant at that time.
    #[must_use]
    pub fn of(&self, tenant: &TenantId, source: &AgentId, target: &AgentId, at: Micros) -> T {
        let fits = |(edges, _): &&(Edges, T)| {
            edges.until.is_none_or(|until| at < until)
                && edges.tenant.as_ref().is_none_or(|own| own == tenant)
                && edges.agent.as_ref().is_none_or(|own| own == source)
                && edges.to.as_ref().is_none_or(|own| own == target)
        };
        self.exceptions.iter().rev().find(fits).map_or(self.default, |(_, rule)| *rule)
    }
}

/// What is asked of the contract of one edge, now.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// It must have one.
    pub required: bool,
    /// The level that it must reach.
    pub minimum_level: Option<Level>,
    /// What becomes of a version that is not in force.
    pub pinned: Pinned,
    /// Now.
    pub at: Micros,
}

impl Requirement {
    /// What is asked of an edge. `again`: the message was judged before, by what was in force then.
    #[must_use]
    pub fn terms(
        &self,
        tenant: &TenantId,
        source: &AgentId,
        target: &AgentId,
        at: Micros,
        again: bool,
    ) -> Terms {
        Terms {
            required: self.required.of(tenant, source, target, at),
            minimum_level: self.minimum_level.of(tenant, source, target, at),
            pinned: match self.accept_pinned.of(tenant, source, target, at) {
                true => Pinned::Accepted,
                false if again => Pinned::Ignored,
                false => Pinned::Refused,
            },
            at,
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Found {
    /// The contract that rules.
    pub ruling: Option<Arc<Ready>>,
    /// In what the message breaks it.
    pub failures: Vec<Failure>,
    /// What of it does not hold in full.
    pub warnings: Vec<Warning>,
}

/// Holds a message against the contract of its edge.
#[must_use]
pub fn check(
    message: &Message,
    source: &Agent,
    target: &Agent,
    catalog: &Catalog,
    terms: Terms,
) -> Found {
    let named = message.envelope().contract_id.as_deref();
    let violation =
        |pointer: &str, why| Failure::new(Stage::Contract, Code::ContractViolation, pointer, why);
    let mut found = Found::default();
    if named.is_some_and(|named| !catalog.knows(named)) {
        found.warnings.push(Warning::new(
            WarningCode::ContractUnknown,
            "/contractId",
            "this broker has no contract of that name; the contract of the edge rules, where there is one",
        ));
    }
    match catalog.ruling(source, target, Asked { named, pinned: terms.pinned, at: terms.at }) {
        Ok(Some(ready)) => {
            found.failures.extend(below(ready, terms.minimum_level));
            found.failures.extend(ready.check(message.value(), Edge { source, target }));
            found.warnings.extend(ready.warnings(message.value()));
            found.ruling = Some(Arc::clone(ready));
        }
        Ok(None) if terms.required => found.failures.push(violation(
            "/toAgent",
            format!(
                "No contract rules {} → {}, and this edge must have one: PUT /contracts/{{id}}.",
                source.agent_id, target.agent_id
            ),
        )),
        Ok(None) => {}
        Err(NotInForce { clause, why }) => {
            let pointer = if named.is_some() { "/contractId" } else { "/toAgent" };
            found.failures.push(violation(pointer, format!("Clause `{clause}`: {why}.")));
        }
    }
    found
}

/// A contract that does not go as far as its edge asks.
fn below(ready: &Ready, minimum: Option<Level>) -> Option<Failure> {
    let minimum = minimum?;
    let level = ready.level();
    (level < Some(minimum)).then(|| {
        let reached = level.map_or("below L1", Level::as_str);
        let why = format!(
            "Contract {}, clause `level`: it is {reached}, and this edge asks for {}: lint it, and put what it lacks",
            ready.contract(),
            minimum.as_str()
        );
        Failure::new(Stage::Contract, Code::ContractViolation, "/toAgent", why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_exception_that_fits_decides_until_it_ends() {
        let name = |text: &str| text.parse::<AgentId>().unwrap();
        let of = |tenant: &str| Edges { tenant: Some(tenant.parse().unwrap()), ..Edges::default() };
        let rule = ByEdge {
            default: false,
            exceptions: vec![
                (of("bank"), true),
                (Edges { agent: Some(name("pilot")), ..of("bank") }, false),
                (Edges { to: Some(name("vault")), until: Some(Micros(10)), ..of("shop") }, true),
            ],
        };
        let must = |tenant: &str, from: &str, to: &str, at: i64| {
            rule.of(&tenant.parse().unwrap(), &name(from), &name(to), Micros(at))
        };
        assert!(must("bank", "a", "b", 0));
        assert!(!must("bank", "pilot", "b", 0), "a later exception goes before");
        assert!(!must("shop", "a", "b", 0), "another tenant");
        assert!(must("shop", "a", "vault", 9));
        assert!(!must("shop", "a", "vault", 10), "it has ended");
    }
}
