//! Rules of other modules that read an agent's registration: its window, its region, its specialities, its supervisor.
//!
//! They are methods of the rules' types and live here, so that the verifier, which reads records and knows no agents, compiles
//! those types without this module.

use serde_json::Value;

use super::Agent;
use crate::ids::AgentId;
use crate::policy::{EdgePolicy, Recovery};
use crate::residency::{Crossing, CrossingParty, ResidencyRules};
use crate::ruling::OtherEdge;
use crate::strategy::{ROUTING_DOOR, RouterChoice, RoutingStrategy};
use crate::window::{ContextLimit, ContextRule, ContextSettings};

/// The pointer to the speciality for which the receiver was chosen.
pub(crate) const SPECIALTY: &str = "/extensions/jazz/specialistType";

impl ContextLimit {
    /// The limit of a receiver; the contract goes before its agent, and both before the settings.
    #[must_use]
    pub fn of(agent: &Agent, rule: Option<&ContextRule>, settings: &ContextSettings) -> Self {
        let rule = rule.copied().unwrap_or_default();
        let window = agent.context_window_tokens;
        let share = window.map(|window| {
            let tokens = u128::from(window) * u128::from(settings.share) / 1_000_000;
            u64::try_from(tokens).unwrap_or(u64::MAX)
        });
        Self {
            window,
            tokens: rule.tokens.or(share),
            policy: rule.policy.or(agent.context_policy).unwrap_or(settings.policy),
            tokenizer: agent.tokenizer.unwrap_or_default(),
        }
    }
}

impl ResidencyRules {
    /// The crossings of a handoff between two agents.
    #[must_use]
    pub fn crossings(&self, source: Option<&Agent>, target: Option<&Agent>) -> Vec<Crossing> {
        if self.region.is_none() {
            return Vec::new();
        }
        let of = |party, agent: Option<&Agent>| {
            agent.and_then(|one| self.crossing(party, one.region, one.transfer_basis.as_deref()))
        };
        [of(CrossingParty::Sender, source), of(CrossingParty::Receiver, target)]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl EdgePolicy {
    /// The supervisor to whom it leads: the source's, else the target's. `None` where it leads to none.
    #[must_use]
    pub fn supervisor(&self, source: Option<&Agent>, target: &Agent) -> Option<AgentId> {
        let ways = [&self.on_reject, &self.on_timeout, &self.on_error];
        if !ways.contains(&&Recovery::Supervisor) {
            return None;
        }
        let own = source.and_then(|source| source.supervisor_id.clone());
        own.or_else(|| target.supervisor_id.clone())
    }
}

impl OtherEdge {
    /// The rules of the edge from `source` to `target`.
    #[must_use]
    pub fn of(policy: &EdgePolicy, source: &Agent, target: &Agent) -> Self {
        Self { edge: policy.clone(), supervisor: policy.supervisor(Some(source), target) }
    }
}

impl RouterChoice {
    /// The choice of a submission's receiver. Only the message of [`ROUTING_DOOR`] counts: the door writes the members itself.
    #[must_use]
    pub fn of_submission(door: Option<&str>, message: &Value, receiver: &Agent) -> Option<Self> {
        let strategy =
            RoutingStrategy::of_message(message).filter(|_| door == Some(ROUTING_DOOR))?;
        let named = message.pointer(SPECIALTY).and_then(Value::as_str);
        let own =
            |name: &&str| receiver.can(name) || receiver.domains.iter().any(|tag| tag == name);
        Some(Self { strategy, specialty: named.filter(own).map(str::to_owned) })
    }
}
