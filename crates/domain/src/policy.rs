//! The rules on one edge, source → target, at run time: deadlines, retries, recovery, the loop guard.
//! Plain data, resolved from the edge's contract (specification §4.4, §5) or, if the edge has none,
//! the defaults; stored with the handoff, so that the rules of its submission hold to its end.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ids::AgentId;
use super::window::ContextRule;

/// The agent that gets control when a handoff cannot complete cleanly (seed 002 §3.6).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recovery {
    /// Back to the sender and its checkpoint: a rollback.
    #[default]
    Source,
    /// To the sender's supervisor.
    Supervisor,
    /// To a person: an escalation.
    Human,
    Agent(AgentId),
}

impl Recovery {
    /// The agent to which it leads, where that is one.
    #[must_use]
    pub fn leads_to(&self, supervisor: Option<&AgentId>) -> Option<AgentId> {
        match self {
            Self::Supervisor => supervisor.cloned(),
            Self::Agent(id) => Some(id.clone()),
            Self::Source | Self::Human => None,
        }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Supervisor => f.write_str("supervisor"),
            Self::Human => f.write_str("human"),
            Self::Agent(id) => id.fmt(f),
        }
    }
}

impl FromStr for Recovery {
    type Err = String;

    /// `source`, `supervisor`, `human`, or the id of an agent.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "source" => Ok(Self::Source),
            "supervisor" => Ok(Self::Supervisor),
            "human" => Ok(Self::Human),
            name => name.parse().map(Self::Agent).map_err(|_| {
                format!("'{name}' is neither source, supervisor, human nor the id of an agent")
            }),
        }
    }
}

impl Serialize for Recovery {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Recovery {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The contract that a policy was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContractRef {
    /// Its id, kebab-case.
    pub id: String,
    pub version: String,
}

/// Repeats to drop (seed 002 §4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dedupe {
    /// The dotted name whose value tells repeats, looked up as every name of a contract is. Empty in
    /// what 0.1.0 stored, which had the pointer alone.
    #[serde(default)]
    pub name: String,
    /// RFC 6901 JSON pointer into the message, where the value should be.
    pub pointer: String,
    /// For how long, in milliseconds.
    pub window_ms: u64,
}

/// A contract's own guard against circles (seed 002 §3.6), on top of the broker's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum LoopGuard {
    /// A set of visited agents: the target must not have had the task before.
    Visited,
    /// A counter: the edge may be taken this often on one task.
    Counter {
        /// The most passages.
        max: u32,
    },
}

/// A moment of a handoff that a contract's metric counts (seed 002 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Its commit.
    Emitted,
    Accepted,
    /// The receiver accepts: how long that took is observed.
    Latency,
    /// The receiver, or the gate on the contract's behalf, rejects.
    Rejected,
    Completed,
    Failed,
    /// A deadline passes.
    Expired,
}

impl Moment {
    /// The moment that a metric's name counts, by its last part; `None`: no such moment.
    #[must_use]
    pub fn of_metric(name: &str) -> Option<Self> {
        let last = name.rsplit(['.', ':']).next().unwrap_or_default();
        let last =
            last.strip_suffix("_total").or_else(|| last.strip_suffix("_count")).unwrap_or(last);
        Some(match last {
            "emitted" | "occurred" | "submitted" | "sent" | "total" | "count" => Self::Emitted,
            "accepted" => Self::Accepted,
            "latency" | "latency_ms" | "latency_seconds" | "duration" | "duration_ms"
            | "duration_seconds" => Self::Latency,
            "rejected" => Self::Rejected,
            "completed" => Self::Completed,
            "failed" | "errors" => Self::Failed,
            "expired" | "timeout" | "timeouts" => Self::Expired,
            _ => return None,
        })
    }
}

/// How people are asked on an edge (seed 002 §4.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HumanTarget {
    /// The target is a person: each handoff is an escalation from the start.
    pub target: bool,
    /// How the person is reached; a name that operators know.
    pub channel: Option<String>,
    /// How long to wait for the person, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The synthetic identity that resumes if the person does not answer.
    pub resume_as: Option<AgentId>,
}

/// The rules of one edge. The default is for an edge without a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EdgePolicy {
    /// The contract that it comes from; `None`: no contract.
    pub contract: Option<ContractRef>,
    /// How long the receiver has for its verdict, in milliseconds; `None`: the broker's setting.
    pub timeout_ms: Option<u64>,
    /// Attempts after the first, at most; `None`: the broker's setting.
    pub max_retries: Option<u32>,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    pub on_reject: Recovery,
    /// No verdict in time.
    pub on_timeout: Recovery,
    /// Delivery exhausted, the receiver failed, or its lease ran out.
    pub on_error: Recovery,
    /// Which repeats to drop.
    pub dedupe: Option<Dedupe>,
    /// The contract's own loop guard.
    pub loop_guard: Option<LoopGuard>,
    /// How people are asked, and whether the target is one.
    pub human: Option<HumanTarget>,
    /// Refuse a handoff without a checkpoint of its own.
    pub require_checkpoint: bool,
    /// The effect of orders inside data; `None`: the receiver's or the broker's setting rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orders: Option<Orders>,
    /// The name under which emit, accept, reject and complete are told to auditors.
    pub audit_event: Option<String>,
    /// The contract's metrics, counted as its edge's handoffs move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// The contract's rule about the size of its messages.
    #[serde(skip_serializing_if = "ContextRule::is_default")]
    pub context: ContextRule,
}

impl Default for EdgePolicy {
    fn default() -> Self {
        Self {
            contract: None,
            timeout_ms: None,
            max_retries: None,
            idempotent: true,
            on_reject: Recovery::Source,
            on_timeout: Recovery::Source,
            on_error: Recovery::Source,
            dedupe: None,
            loop_guard: None,
            human: None,
            require_checkpoint: false,
            orders: None,
            audit_event: None,
            metrics: Vec::new(),
            context: ContextRule::default(),
        }
    }
}

/// The treatment of a place that reads like an order to an assistant inside a tool's output or data. Ordered by strictness.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Orders {
    /// The place does not count.
    Allow,
    /// The handoff passes; the record, the answer's `warnings` and the prompt name the place.
    #[default]
    Mark,
    /// The handoff is refused and becomes a dead letter.
    Refuse,
}

impl Orders {
    /// The value of a spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "allow" => Some(Self::Allow),
            "mark" => Some(Self::Mark),
            "refuse" => Some(Self::Refuse),
            _ => None,
        }
    }
}

/// Rule name of the external classifier's findings, in a safety exception's `rules` and in a failure.
pub const CLASSIFIER: &str = "classifier";

/// The policy for a message that claims another version of its sender than the registered one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionClaims {
    /// Passes, with a warning.
    #[default]
    Warn,
    Enforce,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_contract_means_source_recovery_and_retries_as_configured() {
        let policy = EdgePolicy::default();
        assert_eq!(policy.on_error, Recovery::Source);
        assert!(policy.idempotent && policy.max_retries.is_none());
        assert_eq!(serde_json::from_str::<EdgePolicy>("{}").unwrap(), policy);
    }

    #[test]
    fn a_policy_survives_the_store() {
        let policy = EdgePolicy {
            contract: Some(ContractRef { id: "a-to-b".to_owned(), version: "1.2.0".to_owned() }),
            on_reject: Recovery::Supervisor,
            on_timeout: "fallback-agent".parse().unwrap(),
            loop_guard: Some(LoopGuard::Counter { max: 2 }),
            dedupe: Some(Dedupe {
                name: "provenance.order_id".to_owned(),
                pointer: "/provenance/order_id".to_owned(),
                window_ms: 60_000,
            }),
            human: Some(HumanTarget { channel: Some("desk".to_owned()), ..HumanTarget::default() }),
            ..EdgePolicy::default()
        };
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<EdgePolicy>(&text).unwrap(), policy);
    }

    #[test]
    fn a_recovery_is_a_known_word_or_an_agent() {
        assert_eq!("human".parse::<Recovery>().unwrap(), Recovery::Human);
        assert!(matches!("agent-b".parse::<Recovery>().unwrap(), Recovery::Agent(_)));
        assert!("not an id".parse::<Recovery>().is_err());
    }
}
