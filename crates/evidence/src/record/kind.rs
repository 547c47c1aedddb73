//! The events that records describe.

use serde::{Deserialize, Serialize};

/// The event a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RecordKind {
    /// A handoff was committed: one a boundary (ruling X12).
    Handoff,
    /// The gate refused a submission of an authenticated sender.
    Refused,
    /// A handoff to oneself.
    NoOp,
    /// A refused handoff was kept for a person.
    DeadLettered,
    /// The message was compressed for its receiver; the content is the message that it gets.
    Compressed,
    /// A chunk was added to a handoff's stream; the content is the chunk.
    Chunk,
    /// A stream was closed; the content is the assembled message, which is the handoff's from then on.
    StreamClosed,
    /// An external classifier was asked about a committed message; the record says what it answered.
    SecondOpinion,
    /// The receiver accepted the handoff.
    Accepted,
    /// Another worker of the receiver took the handoff over: its holder was silent, and has a stale token now.
    TakenOver,
    /// The receiver rejected the handoff.
    Rejected,
    /// The receiver asked the handoff's sender; the content is the question.
    InputRequested,
    /// The question was answered; the content is the answer.
    InputProvided,
    /// The receiver completed the handoff.
    Completed,
    /// The receiver failed, or the broker gave delivery up.
    Failed,
    /// A deadline passed without a verdict.
    Expired,
    /// The task went back to the agent that asked for its return.
    Returned,
    /// A group of handoffs was decided, or withdrawn with its task.
    GroupEnded,
    /// The sender's checkpoint became current again.
    RolledBack,
    /// A checkpoint was stored.
    Checkpoint,
    /// The task was completed.
    TaskCompleted,
    /// The task was cancelled.
    TaskCanceled,
    /// The handoff was cancelled before its end.
    Canceled,
    /// The handoff waits for a person's decision.
    Escalated,
    /// A person decided, or the time for a decision passed.
    EscalationResolved,
    /// A person released a dead letter for delivery.
    Released,
    /// A person discarded a dead letter.
    Discarded,
    /// The gate refused a dead letter again at its release.
    ReleaseRefused,
    /// An operator added to the task's budget.
    BudgetChanged,
    /// An earlier checkpoint was made the task's current one.
    CheckpointRestored,
    /// An agent was registered.
    AgentCreated,
    /// An agent was changed.
    AgentUpdated,
    /// An agent was removed.
    AgentDeleted,
    /// An agent's endpoint was disabled: it answered 410, or failed too often in a row.
    EndpointDisabled,
    /// An agent's endpoint fails and will be disabled if that continues.
    EndpointFailing,
    /// An agent's endpoint answers again.
    EndpointRecovered,
    /// A secret or key of an agent was rotated.
    SecretRotated,
    /// A version of a contract was added.
    ContractPut,
    /// A version of a payload schema was registered.
    PayloadSchemaPut,
    /// An API key was created.
    KeyCreated,
    /// A key was revoked.
    KeyRevoked,
    /// Later tree heads are signed with another key.
    TreeKeyChanged,
    /// Secrets are sealed under another master key.
    MasterKeyChanged,
    /// An event subscription was created.
    SubscriptionCreated,
    /// An event subscription was changed.
    SubscriptionUpdated,
    /// An event subscription was removed.
    SubscriptionDeleted,
    /// The broker stopped publishing to a subscription.
    SubscriptionDisabled,
    /// A subscription was set back to an earlier event.
    SubscriptionReplayed,
    /// A data subject's erasure was requested.
    ErasureRequested,
    /// Contents were removed in this commit: a page of an erasure or of a purge. The record's own content lists
    /// them.
    Erased,
    ErasureCompleted,
    /// A legal hold was placed: the data it names may not be erased.
    LegalHoldPlaced,
    /// A legal hold was released.
    LegalHoldReleased,
    /// Rows without a committed state were found, and are committed to as they stood: written by an earlier version.
    StateAdopted,
}

impl RecordKind {
    /// The name in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handoff => "HANDOFF",
            Self::Refused => "REFUSED",
            Self::NoOp => "NO_OP",
            Self::DeadLettered => "DEAD_LETTERED",
            Self::Compressed => "COMPRESSED",
            Self::Chunk => "CHUNK",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::SecondOpinion => "SECOND_OPINION",
            Self::Accepted => "ACCEPTED",
            Self::TakenOver => "TAKEN_OVER",
            Self::Rejected => "REJECTED",
            Self::InputRequested => "INPUT_REQUESTED",
            Self::InputProvided => "INPUT_PROVIDED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Expired => "EXPIRED",
            Self::Returned => "RETURNED",
            Self::GroupEnded => "GROUP_ENDED",
            Self::RolledBack => "ROLLED_BACK",
            Self::Checkpoint => "CHECKPOINT",
            Self::TaskCompleted => "TASK_COMPLETED",
            Self::TaskCanceled => "TASK_CANCELED",
            Self::Canceled => "CANCELED",
            Self::Escalated => "ESCALATED",
            Self::EscalationResolved => "ESCALATION_RESOLVED",
            Self::Released => "RELEASED",
            Self::Discarded => "DISCARDED",
            Self::ReleaseRefused => "RELEASE_REFUSED",
            Self::BudgetChanged => "BUDGET_CHANGED",
            Self::CheckpointRestored => "CHECKPOINT_RESTORED",
            Self::AgentCreated => "AGENT_CREATED",
            Self::AgentUpdated => "AGENT_UPDATED",
            Self::AgentDeleted => "AGENT_DELETED",
            Self::EndpointDisabled => "ENDPOINT_DISABLED",
            Self::EndpointFailing => "ENDPOINT_FAILING",
            Self::EndpointRecovered => "ENDPOINT_RECOVERED",
            Self::SecretRotated => "SECRET_ROTATED",
            Self::ContractPut => "CONTRACT_PUT",
            Self::PayloadSchemaPut => "PAYLOAD_SCHEMA_PUT",
            Self::KeyCreated => "KEY_CREATED",
            Self::KeyRevoked => "KEY_REVOKED",
            Self::TreeKeyChanged => "TREE_KEY_CHANGED",
            Self::MasterKeyChanged => "MASTER_KEY_CHANGED",
            Self::SubscriptionCreated => "SUBSCRIPTION_CREATED",
            Self::SubscriptionUpdated => "SUBSCRIPTION_UPDATED",
            Self::SubscriptionDeleted => "SUBSCRIPTION_DELETED",
            Self::SubscriptionDisabled => "SUBSCRIPTION_DISABLED",
            Self::SubscriptionReplayed => "SUBSCRIPTION_REPLAYED",
            Self::ErasureRequested => "ERASURE_REQUESTED",
            Self::Erased => "ERASED",
            Self::ErasureCompleted => "ERASURE_COMPLETED",
            Self::LegalHoldPlaced => "LEGAL_HOLD_PLACED",
            Self::LegalHoldReleased => "LEGAL_HOLD_RELEASED",
            Self::StateAdopted => "STATE_ADOPTED",
        }
    }
}

impl RecordKind {
    /// The kinds about objects whose state steers the broker: what an administrator did, and what of it an endpoint made
    /// the broker do.
    pub const ABOUT_STATE: [Self; 20] = [
        Self::AgentCreated,
        Self::AgentUpdated,
        Self::AgentDeleted,
        Self::EndpointDisabled,
        Self::EndpointFailing,
        Self::EndpointRecovered,
        Self::SecretRotated,
        Self::ContractPut,
        Self::PayloadSchemaPut,
        Self::KeyCreated,
        Self::KeyRevoked,
        Self::SubscriptionCreated,
        Self::SubscriptionUpdated,
        Self::SubscriptionDeleted,
        Self::SubscriptionDisabled,
        Self::SubscriptionReplayed,
        Self::LegalHoldPlaced,
        Self::LegalHoldReleased,
        Self::BudgetChanged,
        Self::StateAdopted,
    ];

    /// Whether retention removes the content of such a record. Contents on the broker's set-up, on rules that a
    /// later reader needs (contracts, payload schemas), and on erasures and holds stay.
    #[must_use]
    pub const fn is_purged(self) -> bool {
        match self {
            Self::Handoff
            | Self::Refused
            | Self::NoOp
            | Self::DeadLettered
            | Self::Compressed
            | Self::Chunk
            | Self::StreamClosed
            | Self::SecondOpinion
            | Self::Accepted
            | Self::TakenOver
            | Self::Rejected
            | Self::InputRequested
            | Self::InputProvided
            | Self::Completed
            | Self::Failed
            | Self::Expired
            | Self::Returned
            | Self::GroupEnded
            | Self::RolledBack
            | Self::Checkpoint
            | Self::TaskCompleted
            | Self::TaskCanceled
            | Self::Canceled
            | Self::Escalated
            | Self::EscalationResolved
            | Self::Released
            | Self::Discarded
            | Self::ReleaseRefused
            | Self::BudgetChanged
            | Self::CheckpointRestored => true,
            Self::AgentCreated
            | Self::AgentUpdated
            | Self::AgentDeleted
            | Self::EndpointDisabled
            | Self::EndpointFailing
            | Self::EndpointRecovered
            | Self::SecretRotated
            | Self::ContractPut
            | Self::PayloadSchemaPut
            | Self::KeyCreated
            | Self::KeyRevoked
            | Self::TreeKeyChanged
            | Self::MasterKeyChanged
            | Self::SubscriptionCreated
            | Self::SubscriptionUpdated
            | Self::SubscriptionDeleted
            | Self::SubscriptionDisabled
            | Self::SubscriptionReplayed
            | Self::ErasureRequested
            | Self::Erased
            | Self::ErasureCompleted
            | Self::LegalHoldPlaced
            | Self::LegalHoldReleased
            | Self::StateAdopted => false,
        }
    }
}

/// Whether a trace names such a record without its content: messages and chunks are on the handoff's own pages.
#[must_use]
pub fn is_shown_elsewhere(kind: &str) -> bool {
    matches!(kind, "HANDOFF" | "CHUNK" | "STREAM_CLOSED")
}
