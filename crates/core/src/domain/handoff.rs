//! A handoff's life: one pure, total transition function (specification §5).

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use super::latency::LatencyClock;
use super::money::Usd;
use super::ruling::Ruling;

/// Where a handoff stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HandoffStatus {
    /// Committed, not yet answered by the receiver.
    Pending,
    /// The receiver took it and holds its lease.
    Accepted,
    /// The receiver finished its part.
    Completed,
    /// The receiver said no.
    Rejected,
    /// No verdict in time, or the lease ran out.
    Expired,
    /// Could not be delivered, or the receiver failed.
    Failed,
    /// Kept from delivery until a person decides.
    DeadLettered,
    /// Withdrawn before its end.
    Canceled,
    /// Addressed to its own sender; recorded, never delivered.
    NoOp,
}

/// Why a handoff is completed that its receiver handed on: a code.
pub const HANDED_ON: &str = "HANDED_ON";

/// Reason code of a completed handoff whose task went back to the agent that asked for its return.
pub const RETURNED: &str = "RETURNED";

/// What can happen to a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandoffEvent {
    /// The receiver accepts.
    Accept,
    /// The receiver refuses.
    Reject,
    /// The receiver is done.
    Complete,
    /// The receiver gives up, or delivery attempts are exhausted.
    Fail,
    /// A deadline passed: the verdict's or the lease's.
    Expire,
    /// An operator or the sender withdraws it.
    Cancel,
    /// It failed, and nobody decided on it in time.
    DeadLetter,
    /// A person upheld the appeal.
    Release,
}

/// A transition that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a handoff that is {} cannot {}", from.as_str(), event.verb())]
pub struct IllegalTransition {
    /// Where the handoff stands.
    pub from: HandoffStatus,
    /// What was asked of it.
    pub event: HandoffEvent,
}

impl HandoffStatus {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Accepted,
        Self::Completed,
        Self::Rejected,
        Self::Expired,
        Self::Failed,
        Self::DeadLettered,
        Self::Canceled,
        Self::NoOp,
    ];

    /// As it stands on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Accepted => "ACCEPTED",
            Self::Completed => "COMPLETED",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
            Self::Failed => "FAILED",
            Self::DeadLettered => "DEAD_LETTERED",
            Self::Canceled => "CANCELED",
            Self::NoOp => "NO_OP",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Nothing more can happen to it, unless a person decides otherwise.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Accepted)
    }

    /// The transition table. A verdict that repeats itself changes nothing and is well; `Complete`
    /// on a pending handoff is an acceptance and its completion in one, because a receiver's
    /// callback may overtake its own answer to the delivery.
    pub const fn next(self, event: HandoffEvent) -> Result<Self, IllegalTransition> {
        use HandoffEvent as E;
        Ok(match (self, event) {
            (Self::Pending | Self::Accepted, E::Accept) => Self::Accepted,
            (Self::Pending | Self::Rejected, E::Reject) => Self::Rejected,
            (Self::Pending | Self::Accepted | Self::Completed, E::Complete) => Self::Completed,
            (Self::Pending | Self::Accepted | Self::Failed, E::Fail) => Self::Failed,
            (Self::Pending | Self::Accepted, E::Expire) => Self::Expired,
            (Self::Pending | Self::Accepted | Self::Canceled, E::Cancel) => Self::Canceled,
            (Self::Rejected | Self::Failed | Self::Expired, E::DeadLetter) => Self::DeadLettered,
            (Self::DeadLettered, E::Release) => Self::Pending,
            (from, event) => return Err(IllegalTransition { from, event }),
        })
    }
}

impl HandoffEvent {
    /// All events.
    pub const ALL: [Self; 8] = [
        Self::Accept,
        Self::Reject,
        Self::Complete,
        Self::Fail,
        Self::Expire,
        Self::Cancel,
        Self::DeadLetter,
        Self::Release,
    ];

    /// What only a person, or the time given to one, brings about: it leads out of an end.
    #[must_use]
    pub const fn is_decided(self) -> bool {
        matches!(self, Self::DeadLetter | Self::Release)
    }

    /// For messages and diagrams.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Accept => "be accepted",
            Self::Reject => "be rejected",
            Self::Complete => "be completed",
            Self::Fail => "fail",
            Self::Expire => "expire",
            Self::Cancel => "be canceled",
            Self::DeadLetter => "be kept as a dead letter",
            Self::Release => "be released",
        }
    }
}

/// How soon a handoff is wanted: of what waits for one receiver, the more urgent goes first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// Before the usual.
    High,
    /// The usual.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// Its place in [`Priority::ALL`], as stored.
    #[must_use]
    pub const fn rank(self) -> i32 {
        self as i32
    }

    /// Reads a rank back.
    #[must_use]
    pub fn of_rank(rank: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.rank() == rank)
    }
}

/// How a receiver gets its handoffs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// The broker posts to the receiver's URL.
    Webhook,
    /// The receiver asks for its inbox.
    Pull,
}

impl DeliveryMode {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Pull];

    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Pull => "pull",
        }
    }
}

/// What a message says it has cost so far (seed 000 §5.2 `costTracking`); `spent` is cumulative
/// over the task (ruling X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// `costSpentSoFarUSD`.
    pub spent: Usd,
    /// `costBudgetRemainingUSD`.
    pub remaining: Usd,
    /// `tokenSpent.prompt`, in tokens.
    pub prompt_tokens: u64,
    /// `tokenSpent.completion`, in tokens.
    pub completion_tokens: u64,
}

/// `tokenSpent`: tokens by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TokenSpent {
    /// Read.
    pub prompt: u64,
    /// Written.
    pub completion: u64,
}

/// Written as the message writes it.
impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let tokens = TokenSpent { prompt: self.prompt_tokens, completion: self.completion_tokens };
        let mut cost = to.serialize_struct("Cost", 3)?;
        cost.serialize_field("costSpentSoFarUSD", &self.spent)?;
        cost.serialize_field("costBudgetRemainingUSD", &self.remaining)?;
        cost.serialize_field("tokenSpent", &tokens)?;
        cost.end()
    }
}

/// The row of one handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: HandoffId,
    /// The task it moves.
    pub task_id: TaskId,
    /// The handoff before it on the task, as the sender says.
    pub parent_id: Option<HandoffId>,
    /// Who sends.
    pub source: AgentId,
    /// The sender's version (semver).
    pub source_version: String,
    /// The sender's run.
    pub source_execution: ExecutionId,
    /// Who receives, as the route resolved it.
    pub target: AgentId,
    /// The receiver's type.
    pub target_type: String,
    /// The receiver's version when it was chosen.
    pub target_version: String,
    /// How it is delivered.
    pub mode: DeliveryMode,
    /// Where it stands.
    pub status: HandoffStatus,
    /// The current fencing token; monotonic per task.
    pub fencing_token: i64,
    /// Attempts at delivery that were settled or claimed.
    pub attempts: i32,
    /// When the current wait (verdict or lease) ends.
    pub deadline_at: Option<Micros>,
    /// What it cost, cumulative.
    pub cost: Cost,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    /// The checkpoint that a rollback restores: its number within task and execution.
    pub checkpoint: Option<CheckpointRef>,
    /// The checkpoint's commitment, for the record of a rollback.
    pub checkpoint_commitment: Option<[u8; 32]>,
    /// The stored message.
    pub content_id: Option<ContentRef>,
    /// The message's commitment, for records of handoffs that carry the same message.
    pub commitment: Option<[u8; 32]>,
    /// The handoff in whose place this one stands, and under whose id personal data are kept.
    pub origin: Option<HandoffId>,
    /// What rules its end; none for the defaults.
    pub ruling: Option<Box<Ruling>>,
    /// What operators had added to the task's budget when it was committed.
    pub topped_up: Usd,
    /// Salt of `digest`; 16 bytes, empty once erased.
    pub digest_salt: Vec<u8>,
    /// Salted SHA-256 of the whole canonical message, to tell a replay from a conflict.
    pub digest: Vec<u8>,
    /// Why it ended badly: a code.
    pub reason: Option<String>,
    /// Trace context under which it was submitted.
    pub traceparent: String,
    /// The `tracestate` that came with it; empty for none.
    pub tracestate: String,
    /// The broker's own span under which it was committed, as a `traceparent`; empty where nothing is
    /// exported.
    pub span: String,
    /// When it was committed.
    pub created_at: Micros,
    /// When its latency clock started, and when its receiver could first take it.
    pub clock: LatencyClock,
    /// When the receiver accepted.
    pub accepted_at: Option<Micros>,
    /// When it ended.
    pub ended_at: Option<Micros>,
}

impl Handoff {
    /// The name under which its contract has its events told to auditors.
    #[must_use]
    pub fn audit_event(&self) -> Option<&str> {
        self.ruling.as_ref()?.edge.audit_event.as_deref()
    }
}

/// Names a stored content.
pub type ContentRef = super::ids::ContentId;

/// Names a checkpoint within its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointRef {
    /// The run whose state it is.
    pub execution_id: ExecutionId,
    /// 1 for the first checkpoint of that run, then counting up.
    pub seq: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_meets_every_event_as_the_table_says() {
        use HandoffEvent as E;
        use HandoffStatus as S;
        for from in S::ALL {
            for event in E::ALL {
                let expected = match (from, event) {
                    (S::Pending | S::Accepted, E::Accept) => Some(S::Accepted),
                    (S::Pending | S::Rejected, E::Reject) => Some(S::Rejected),
                    (S::Pending | S::Accepted | S::Completed, E::Complete) => Some(S::Completed),
                    (S::Pending | S::Accepted | S::Failed, E::Fail) => Some(S::Failed),
                    (S::Pending | S::Accepted, E::Expire) => Some(S::Expired),
                    (S::Pending | S::Accepted | S::Canceled, E::Cancel) => Some(S::Canceled),
                    (S::Rejected | S::Failed | S::Expired, E::DeadLetter) => Some(S::DeadLettered),
                    (S::DeadLettered, E::Release) => Some(S::Pending),
                    _ => None,
                };
                assert_eq!(from.next(event).ok(), expected, "{from:?} × {event:?}");
            }
        }
    }

    #[test]
    fn a_final_state_is_left_by_decision_only() {
        for from in HandoffStatus::ALL.into_iter().filter(|status| status.is_final()) {
            for event in HandoffEvent::ALL.into_iter().filter(|event| !event.is_decided()) {
                if let Ok(to) = from.next(event) {
                    assert_eq!(to, from);
                }
            }
        }
    }

    #[test]
    fn names_survive_the_store() {
        for status in HandoffStatus::ALL {
            assert_eq!(HandoffStatus::parse(status.as_str()), Some(status));
            assert_eq!(
                serde_json::to_value(status).unwrap(),
                serde_json::Value::from(status.as_str())
            );
        }
    }
}
