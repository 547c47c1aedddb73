//! The contract stage (specification §2.2 stage 7): finds the contract that rules the edge, checks that it may rule it, and
//! applies it to the message. An edge without a contract passes, unless the tenant requires a contract for that edge.

use std::sync::Arc;

use crate::contract::catalog::{Catalog, PinnedVersionRule, RulingError, RulingRequest};
use crate::contract::enforce::{CompiledContract, HandoffEdge};
use crate::contract::level::Level;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::message::Message;
use handoffd_domain::warning::{Warning, WarningCode};

/// The operator's requirements on the contracts of edges.
#[derive(Debug, Clone, Default)]
pub struct ContractRequirement {
    /// The edges that must have a contract.
    pub required: EdgeRule<bool>,
    /// The level that a ruling contract must reach; `None` for any.
    pub minimum_level: EdgeRule<Option<Level>>,
    /// Whether a sender may name a version that is not in force.
    pub accept_pinned: EdgeRule<bool>,
}

/// A setting with exceptions by edge.
#[derive(Debug, Clone, Default)]
pub struct EdgeRule<T> {
    /// The value without a matching exception.
    pub default: T,
    /// Exceptions; the last match decides.
    pub exceptions: Vec<(EdgeFilter, T)>,
}

/// A filter of edges; an absent field matches every edge.
#[derive(Debug, Clone, Default)]
pub struct EdgeFilter {
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    /// End of the exception.
    pub until: Option<Micros>,
}

impl<T: Copy> EdgeRule<T> {
    /// The value for an edge of a tenant at a time.
    #[must_use]
    pub fn of(&self, tenant: &TenantId, source: &AgentId, target: &AgentId, at: Micros) -> T {
        let fits = |(edges, _): &&(EdgeFilter, T)| {
            edges.until.is_none_or(|until| at < until)
                && edges.tenant.as_ref().is_none_or(|own| own == tenant)
                && edges.agent.as_ref().is_none_or(|own| own == source)
                && edges.to.as_ref().is_none_or(|own| own == target)
        };
        self.exceptions.iter().rev().find(fits).map_or(self.default, |(_, rule)| *rule)
    }
}

/// The requirements on one edge at one time.
#[derive(Debug, Clone, Copy)]
pub struct ContractTerms {
    /// Whether the edge must have a contract.
    pub required: bool,
    /// The level that the contract must reach.
    pub minimum_level: Option<Level>,
    /// The rule for a version that is not in force.
    pub pinned: PinnedVersionRule,
    /// The time of the check.
    pub at: Micros,
}

impl ContractRequirement {
    /// The question for an edge. `again`: the message was judged before, by the rules of that time.
    #[must_use]
    pub fn terms(
        &self,
        tenant: &TenantId,
        source: &AgentId,
        target: &AgentId,
        at: Micros,
        again: bool,
    ) -> ContractTerms {
        ContractTerms {
            required: self.required.of(tenant, source, target, at),
            minimum_level: self.minimum_level.of(tenant, source, target, at),
            pinned: match self.accept_pinned.of(tenant, source, target, at) {
                true => PinnedVersionRule::Accepted,
                false if again => PinnedVersionRule::Ignored,
                false => PinnedVersionRule::Refused,
            },
            at,
        }
    }
}

/// The result of the contract stage.
#[derive(Debug, Default)]
pub struct ContractCheck {
    pub ruling: Option<Arc<CompiledContract>>,
    pub failures: Vec<Failure>,
    /// Clauses that do not hold in full.
    pub warnings: Vec<Warning>,
}

/// Holds a message against the contract of its edge.
#[must_use]
pub fn check(
    message: &Message,
    source: &Agent,
    target: &Agent,
    catalog: &Catalog,
    terms: ContractTerms,
) -> ContractCheck {
    let named = message.envelope().contract_id.as_deref();
    let mut found = held(message, (source, target), named, catalog, terms);
    if named.is_some_and(|named| !catalog.knows(named)) {
        found.warnings.push(Warning::new(
            WarningCode::ContractUnknown,
            "/contractId",
            "this broker has no contract of that name; the contract of the edge rules, where there is one",
        ));
    }
    found
}

/// The same for an edge that the message takes when it fails on another: `contractId` counts where that contract
/// speaks of this edge.
#[must_use]
pub fn check_beside(
    message: &Message,
    source: &Agent,
    target: &Agent,
    catalog: &Catalog,
    terms: ContractTerms,
) -> ContractCheck {
    let named = message.envelope().contract_id.as_deref();
    let named = named.filter(|named| catalog.declares(named, source, target));
    held(message, (source, target), named, catalog, terms)
}

fn held(
    message: &Message,
    (source, target): (&Agent, &Agent),
    named: Option<&str>,
    catalog: &Catalog,
    terms: ContractTerms,
) -> ContractCheck {
    let violation =
        |pointer: &str, why| Failure::new(Stage::Contract, Code::ContractViolation, pointer, why);
    let mut found = ContractCheck::default();
    match catalog.ruling(
        source,
        target,
        RulingRequest { named, pinned: terms.pinned, at: terms.at },
    ) {
        Ok(Some(ready)) => {
            found.failures.extend(below(ready, terms.minimum_level));
            found.failures.extend(ready.check(message.value(), HandoffEdge { source, target }));
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
        Err(RulingError { clause, why }) => {
            let pointer = if named.is_some() { "/contractId" } else { "/toAgent" };
            found
                .failures
                .push(violation(pointer, format!("Clause `{clause}`: {why}.")).of_rule(clause));
        }
    }
    found
}

/// A contract that does not go as far as its edge asks.
fn below(ready: &CompiledContract, minimum: Option<Level>) -> Option<Failure> {
    let minimum = minimum?;
    let level = ready.level();
    (level < Some(minimum)).then(|| {
        let reached = level.map_or("below L1", Level::as_str);
        let why = format!(
            "Contract {}, clause `level`: it is {reached}, and this edge asks for {}: lint it, and put what it lacks",
            ready.contract(),
            minimum.as_str()
        );
        Failure::new(Stage::Contract, Code::ContractViolation, "/toAgent", why).of_rule("level")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_exception_that_fits_decides_until_it_ends() {
        let name = |text: &str| text.parse::<AgentId>().unwrap();
        let of = |tenant: &str| EdgeFilter {
            tenant: Some(tenant.parse().unwrap()),
            ..EdgeFilter::default()
        };
        let rule = EdgeRule {
            default: false,
            exceptions: vec![
                (of("bank"), true),
                (EdgeFilter { agent: Some(name("pilot")), ..of("bank") }, false),
                (
                    EdgeFilter { to: Some(name("vault")), until: Some(Micros(10)), ..of("shop") },
                    true,
                ),
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
