//! The rules of a handoff's end, settled when it is submitted and kept with it: its recovery is the
//! agreed one, even if the settings change in the meantime.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::group::BranchPlace;
use super::ids::AgentId;
use super::policy::{EdgePolicy, Recovery};
use super::strategy::RoutingStrategy;

/// Causes of a handoff's failure (specification §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// The receiver said no.
    Reject,
    /// No verdict in time.
    Timeout,
    /// Attempts exhausted, the receiver failed, or its lease ran out.
    Error,
}

/// Whether a handoff is the one that its sender submitted, or one that replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Its own: a sender submitted it.
    #[default]
    Own,
    /// An attempt at the next of the sender's preferred agents.
    Preferred,
    /// A recovery already; when it fails too, the task goes back to the sender.
    Recovery,
}

/// The rules of an edge that a handoff may take after it failed on another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OtherEdge {
    pub edge: EdgePolicy,
    /// The sender's supervisor, else that edge's receiver's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<AgentId>,
}

/// The rules of one handoff.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ruling {
    /// The edge's contract, or the defaults.
    #[serde(skip_serializing_if = "is_default")]
    pub edge: EdgePolicy,
    /// The sender's supervisor, else the receiver's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<AgentId>,
    /// The sender's preferred agents that were not tried yet, in order (seed 001).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<AgentId>,
    /// The rules of the other edges that it may take, by receiver, as they were judged at submission. On an edge
    /// that is not here, `edge` goes on to rule.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<AgentId, OtherEdge>,
    /// Agents that were not registered when it was submitted: the message was judged for no edge to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<AgentId>,
    /// The handoff that it replaces, if any.
    #[serde(skip_serializing_if = "is_default")]
    pub standing: Standing,
    /// How its sender addressed it, where not by an agent's id: `type:<agentType>` or `capability:<name>`. Its
    /// failures count under that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressed: Option<String>,
    /// The agent that gets the task back when the receiver completes the handoff: its sender (`returnTo`), or the
    /// agent that asked for the task's return before and whose receiver handed the task on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns_to: Option<AgentId>,
    /// The rounds that the receiver may take (`maxIterations`), where the message says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u64>,
    /// How a door chose the receiver, where its sender named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RoutingStrategy>,
    /// For what it chose it: a capability, specialization or tag of the receiver's registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub specialty: Option<String>,
    /// Its place in a group, if its message went to many; also of a handoff that replaces a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchPlace>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The recovery of a failed handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Back to the sender's checkpoint.
    RollBack {
        /// A list of preferred agents came to its end.
        exhausted: bool,
    },
    /// Another agent gets it.
    Readdress(AgentId, Box<Ruling>),
    /// A person decides.
    Escalate,
}

impl Ruling {
    /// Rules nothing but the defaults: need not be kept.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// To a person, and to no stand-in.
    #[must_use]
    pub fn is_to_person(&self) -> bool {
        self.standing == Standing::Own && self.edge.human.as_ref().is_some_and(|human| human.target)
    }

    /// Who takes over from a person that does not answer: the identity that the contract names, else the agent
    /// that takes over at a timeout.
    #[must_use]
    pub fn resumes_as(&self) -> Option<AgentId> {
        let named = self.edge.human.as_ref().and_then(|human| human.resume_as.clone());
        named.or_else(|| self.recovers_to(&self.edge.on_timeout))
    }

    /// The same for a handoff that replaces it, which is addressed by its agent's id and follows the contract of
    /// its own edge.
    #[must_use]
    pub fn stand_in(&self, standing: Standing, target: &AgentId) -> Self {
        let mut ruling = Self { preferred: Vec::new(), standing, addressed: None, ..self.clone() };
        if let Some(OtherEdge { edge, supervisor }) = self.others.get(target) {
            (ruling.edge, ruling.supervisor) = (edge.clone(), supervisor.clone());
        }
        ruling
    }

    /// The rules of the edge to that agent.
    #[must_use]
    pub fn edge_to(&self, target: &AgentId) -> &EdgePolicy {
        self.others.get(target).map_or(&self.edge, |other| &other.edge)
    }

    /// As stored: JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Every agent that may take the handoff over: these must be known when it fails.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<AgentId> {
        let named = [&self.edge.on_reject, &self.edge.on_timeout, &self.edge.on_error];
        let named = named.into_iter().filter_map(|recovery| self.recovers_to(recovery));
        let resume = self.edge.human.as_ref().and_then(|human| human.resume_as.clone());
        self.preferred.iter().cloned().chain(named).chain(resume).collect()
    }

    fn recovers_to(&self, recovery: &Recovery) -> Option<AgentId> {
        recovery.leads_to(self.supervisor.as_ref())
    }

    /// The next step. `live` tells whether an agent can take a handoff now; `untouched` that the
    /// receiver never accepted, so that one of the preferred agents may be asked instead.
    #[must_use]
    pub fn next(&self, trigger: Trigger, untouched: bool, live: impl Fn(&AgentId) -> bool) -> Next {
        let asked = trigger == Trigger::Reject || (untouched && self.edge.idempotent);
        let mut left = self.preferred.iter();
        if asked && let Some(next) = left.find(|id| live(id)) {
            let ruling = self.stand_in(Standing::Preferred, next);
            let ruling = Self { preferred: left.cloned().collect(), ..ruling };
            return Next::Readdress(next.clone(), Box::new(ruling));
        }
        let exhausted =
            asked && (self.standing == Standing::Preferred || !self.preferred.is_empty());
        let recovery = match trigger {
            Trigger::Reject => &self.edge.on_reject,
            Trigger::Timeout => &self.edge.on_timeout,
            Trigger::Error => &self.edge.on_error,
        };
        if self.standing == Standing::Recovery {
            return Next::RollBack { exhausted };
        }
        if *recovery == Recovery::Human {
            return Next::Escalate;
        }
        match self.recovers_to(recovery).filter(|id| live(id)) {
            Some(id) => {
                let ruling = self.stand_in(Standing::Recovery, &id);
                Next::Readdress(id, Box::new(ruling))
            }
            None => Next::RollBack { exhausted },
        }
    }
}
