//! Contracts (seed 002): the static document about one edge, source → target. Pure: from a text to a
//! [`Contract`] with what is wrong with it, to the rules that it makes ([`Contract::policy`]), to the
//! findings of a linter, to the compiled form that the gate holds a message against.

use std::collections::BTreeMap;
use std::fmt;

use semver::Version;
use serde_json::Value;

pub mod answer;
pub mod catalog;
pub mod conformance;
pub mod cost;
pub mod document;
pub mod enforce;
pub mod evolution;
pub mod history;
pub mod level;
pub mod lint;
pub mod payload;
pub mod predicate;
mod read;
pub mod registry;
pub mod report;
pub mod schema;
pub mod shelf;
mod spelling;
pub mod versions;
pub mod whole;

use handoffd_domain::ids::AgentId;
use handoffd_domain::policy::{
    ContractRef, Dedupe, EdgePolicy, HumanTarget, LoopGuard, Orders, Recovery,
};
use handoffd_domain::window::ContextRule;
pub use read::{BUILTIN_TOOLS, ContractDefect, DefectKind, read};

/// The version of a contract that states none.
pub const UNVERSIONED: Version = Version::new(0, 0, 0);

/// A contract as in its document; an absent clause is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contract {
    /// Kebab-case, unique in the system (§3.1).
    pub id: String,
    /// Semantic version (§4.2).
    pub version: Option<Version>,
    /// An agent's id or type (§3.2).
    pub source: String,
    /// An agent's id or type (§3.2).
    pub target: String,
    /// Condition under which the source hands off (§3.3).
    pub trigger: TriggerClause,
    /// Data that the source sends (§3.4).
    pub payload: PayloadClause,
    /// Conditions that hold before the target starts (§3.5).
    pub acceptance: AcceptanceClause,
    /// Recovery of a handoff that fails (§3.6).
    pub recovery: RecoveryClause,
    /// Trace and metrics (§4.1).
    pub observability: Option<Observability>,
    /// Treatment of repeats (§4.3).
    pub idempotency: Option<Idempotency>,
    /// Human target and its channel (§4.4); `None` where the contract is silent.
    pub human: Option<HumanClause>,
    /// Announced end of the contract (§4.2).
    pub deprecation: Option<Deprecation>,
    /// Review entries (§6, L3).
    pub reviews: Vec<Review>,
    /// Whether a handoff without a checkpoint of its own is refused (specification §2.3).
    pub require_checkpoint: bool,
    /// The effect of orders inside data; `None`: the receiver's or the broker's setting rules.
    pub orders: Option<Orders>,
    /// PayloadClause schemas registered with the contract, by the name that `payload.schema` uses.
    pub schemas: BTreeMap<String, Value>,
}

/// Condition under which the source hands off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TriggerClause {
    /// Intent in natural language.
    pub intent: Option<String>,
    /// Predicate over the state.
    pub predicate: Option<String>,
    /// Name of the tool whose call hands off.
    pub tool_call: Option<String>,
}

/// Data that the source sends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PayloadClause {
    /// Reference to the payload schema.
    pub schema: Option<SchemaRef>,
    /// Dotted names of required fields; `None` where the schema decides.
    pub required: Option<Vec<String>>,
    /// Strategy for the conversation history.
    pub history_strategy: Option<HistoryStrategy>,
    /// Reason for the full history, where a document has no comments.
    pub history_justification: Option<String>,
    /// Largest number of verbatim turns; `None` for the strategy's default.
    pub history_turns: Option<u64>,
    /// Largest size of the history in bytes; `None` for the strategy's default.
    pub history_bytes: Option<u64>,
    /// Rule about the tokens of a message, in the place of the receiver's window.
    pub context: ContextRule,
}

/// Location of a payload schema.
#[derive(Debug, Clone, PartialEq)]
pub enum SchemaRef {
    /// A path, a name or a URL.
    Named(String),
    /// The contract embeds the schema.
    Inline(Value),
}

/// Amount of the conversation that a message carries, from least to most (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryStrategy {
    /// A reference to the conversation only.
    Pointer,
    Summary,
    /// The last k turns.
    LastK,
    Full,
}

impl HistoryStrategy {
    /// All strategies, from least to most.
    pub const ALL: [Self; 4] = [Self::Pointer, Self::Summary, Self::LastK, Self::Full];

    /// The name in documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pointer => "pointer",
            Self::Summary => "summary",
            Self::LastK => "last_k",
            Self::Full => "full",
        }
    }

    /// Parses the name of a strategy.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Review {
    pub name: String,
    /// Time of the review, in seconds since the epoch.
    pub at: Option<i64>,
    /// SHA-256 of the payload schema that was reviewed, in hexadecimal.
    pub sha256: Option<String>,
}

/// Conditions that hold before the target starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptanceClause {
    /// Dotted names of fields that must not be null.
    pub required_fields: Option<Vec<String>>,
    /// Scope that must contain the task.
    pub domain_match: Option<String>,
    /// The permission that the target needs.
    pub permission_check: Option<String>,
}

/// Recovery of a handoff that does not complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryClause {
    /// Recovery after a refused acceptance.
    pub on_reject: Option<Recovery>,
    /// Recovery after a missing verdict.
    pub on_timeout: Option<Recovery>,
    /// Recovery after a failure of the receiver.
    pub on_error: Option<Recovery>,
    /// Time for the verdict, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Number of attempts after the first.
    pub max_retries: Option<u32>,
    pub loop_guard: Option<LoopGuardClause>,
}

/// A loop guard as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopGuardClause {
    /// Dotted name of the sender's counter or list; empty for a bare number.
    pub reference: String,
    /// The rule that the broker enforces.
    pub rule: LoopGuard,
}

/// Trace and metrics of the edge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observability {
    /// The payload's key that carries the trace id.
    pub trace_id_field: Option<String>,
    /// Name of the audit event.
    pub audit_event: Option<String>,
    /// Names of counters and histograms.
    pub metrics: Vec<String>,
}

/// Treatment of repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idempotency {
    /// Whether a repeat has the same outcome.
    pub idempotent: Option<bool>,
    /// Dotted name of the field that identifies repeats.
    pub dedupe_key: Option<String>,
    /// Lifetime of a dedupe key, in milliseconds.
    pub replay_window_ms: Option<u64>,
}

/// A target that may be a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HumanClause {
    /// `human_target`.
    pub target: bool,
    /// Channel to the person, and the agent that resumes.
    pub how: HumanTarget,
}

/// The announced end of a contract.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deprecation {
    /// Start of the deprecation, in seconds since the epoch.
    pub since: Option<i64>,
    /// End of validity, in seconds since the epoch.
    pub sunset: Option<i64>,
    /// Id of the replacing contract.
    pub replacement_id: Option<String>,
}

impl Contract {
    /// Its version; [`UNVERSIONED`] where it states none.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version.clone().unwrap_or(UNVERSIONED)
    }

    /// The contract's reference in records.
    #[must_use]
    pub fn reference(&self) -> ContractRef {
        ContractRef { id: self.id.clone(), version: self.version().to_string() }
    }

    /// The rules that the contract sets for its edge at run time. A contract that is not idempotent never allows a retry, even
    /// if `max_retries` is set (§4.3).
    #[must_use]
    pub fn policy(&self) -> EdgePolicy {
        let recovery = &self.recovery;
        let idempotency = self.idempotency.clone().unwrap_or_default();
        let idempotent = idempotency.idempotent.unwrap_or(true);
        let or_source = |stated: &Option<Recovery>| stated.clone().unwrap_or_default();
        EdgePolicy {
            contract: Some(self.reference()),
            timeout_ms: recovery.timeout_ms,
            max_retries: Some(if idempotent { recovery.max_retries.unwrap_or(0) } else { 0 }),
            idempotent,
            on_reject: or_source(&recovery.on_reject),
            on_timeout: or_source(&recovery.on_timeout),
            on_error: or_source(&recovery.on_error),
            dedupe: idempotency.dedupe_key.zip(idempotency.replay_window_ms).map(
                |(name, window_ms)| Dedupe { pointer: payload::pointer_of(&name), name, window_ms },
            ),
            loop_guard: recovery.loop_guard.as_ref().map(|guard| guard.rule.clone()),
            human: self
                .human
                .as_ref()
                .map(|human| HumanTarget { target: human.target, ..human.how.clone() }),
            require_checkpoint: self.require_checkpoint,
            orders: self.orders,
            audit_event: self.observability.as_ref().and_then(|seen| seen.audit_event.clone()),
            metrics: self.observability.as_ref().map_or_else(Vec::new, |seen| seen.metrics.clone()),
            context: self.payload.context,
        }
    }

    /// Whether it is past its sunset at a time in seconds since the epoch.
    #[must_use]
    pub fn has_ended(&self, at: i64) -> bool {
        self.deprecation.as_ref().and_then(|word| word.sunset).is_some_and(|sunset| sunset <= at)
    }

    /// Whether a message must have that part of the payload (§3.4): it is listed as required, or the
    /// schema requires it.
    #[must_use]
    pub fn requires(&self, part: &str) -> bool {
        let first = |name: &String| {
            let name = name.strip_prefix("payload.").unwrap_or(name);
            payload::snake(name.split('.').next().unwrap_or_default()) == part
        };
        let listed = self.payload.required.iter().chain(&self.acceptance.required_fields);
        listed.flatten().any(first)
            || self.local_schema().is_some_and(|schema| schema::required(schema).iter().any(first))
    }

    /// The document of its payload schema, where the contract brings it along.
    #[must_use]
    pub fn local_schema(&self) -> Option<&Value> {
        match self.payload.schema.as_ref()? {
            SchemaRef::Inline(schema) => Some(schema),
            SchemaRef::Named(name) => {
                let plain = |text: &str| text.trim_start_matches("./").to_owned();
                self.schemas.get(name).or_else(|| {
                    self.schemas
                        .iter()
                        .find(|(known, _)| plain(known) == plain(name))
                        .map(|(_, schema)| schema)
                })
            }
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.version())
    }
}

/// A synthetic identity, as an agent's id.
fn agent_id(text: &str) -> Option<AgentId> {
    text.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contract::document::Document;

    /// Seed 002 §8, as it was before a web page took its indentation.
    pub(crate) const WORKED_EXAMPLE: &str =
        include_str!("../../../../tests/contracts/triage-to-refunds.yaml");

    #[test]
    fn c42_the_worked_example_makes_the_rules_it_states() {
        let document = Document::parse(WORKED_EXAMPLE).unwrap();
        let (contract, faults) = read(&document);
        assert_eq!(faults, []);
        let policy = contract.policy();
        assert_eq!(policy.on_reject, Recovery::Supervisor);
        assert_eq!(policy.on_error, Recovery::Source);
        assert_eq!(policy.timeout_ms, Some(30_000));
        assert_eq!(policy.max_retries, Some(0));
        assert_eq!(policy.loop_guard, Some(LoopGuard::Visited));
        let dedupe = policy.dedupe.unwrap();
        assert_eq!((dedupe.pointer.as_str(), dedupe.window_ms), ("/provenance/order_id", 60_000));
        assert!(
            policy.human.is_some_and(|human| !human.target),
            "no person is asked from the start"
        );
        assert_eq!(policy.contract.unwrap().version, "1.2.0");
    }

    #[test]
    fn c29_what_is_not_idempotent_is_never_retried() {
        let text = WORKED_EXAMPLE
            .replace("idempotent: true", "idempotent: false")
            .replace("max_retries: 0", "max_retries: 5");
        let (contract, _) = read(&Document::parse(&text).unwrap());
        assert_eq!(contract.policy().max_retries, Some(0));
        assert!(!contract.policy().idempotent);
    }
}
