//! Row types.

use crate::store::HandoffKey;
use crate::store::cold::ContentStorage;
use bytes::Bytes;
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::dead_letter::DeadLetterStatus;
use handoffd_core::domain::failure::Failure;
use handoffd_core::domain::handoff::{CheckpointRef, DeliveryMode, Priority};
use handoffd_core::domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_core::domain::trace_context::{TraceContext, TraceParent};
use handoffd_core::evidence::commitment::{Codec, PackedContent};

/// A handoff that waits for delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The handoff's id.
    pub handoff_id: HandoffId,
    /// The handoff's task.
    pub task_id: TaskId,
    /// Number of the handoff within its task; lower ones are delivered first.
    pub seq: i64,
    /// The receiver.
    pub target: AgentId,
    /// Delivery mode.
    pub mode: DeliveryMode,
    /// Priority among the rows of one receiver.
    pub priority: Priority,
    /// Earliest time of a claim.
    pub visible_at: Micros,
    /// Attempts begun, including the current one.
    pub attempt: i32,
    /// Attempts that the receiver deferred; they do not count as attempts.
    pub busy: i32,
    /// The broker that holds the claim.
    pub claimed_by: Option<String>,
    /// When the handoff was committed.
    pub created_at: Micros,
}

/// A claimed handoff with the data for one delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The handoff's id.
    pub handoff_id: HandoffId,
    /// The handoff's task.
    pub task_id: TaskId,
    /// The receiver.
    pub target: AgentId,
    /// This attempt's number, from 1.
    pub attempt: i32,
    /// Attempts before this one that the receiver deferred.
    pub busy: i32,
    /// The receiver's deadline for a verdict, where an earlier attempt reached it.
    pub deadline_at: Option<Micros>,
    /// Whether a person decides: the handoff then has no deadline for a verdict.
    pub to_person: bool,
    /// The fencing token to send.
    pub fencing_token: i64,
    /// Whether a retry is allowed after bytes were sent.
    pub idempotent: bool,
    /// Whether the previous attempt has no known outcome (its broker died, or was considered dead): it may have
    /// reached the receiver.
    pub unsettled: bool,
    /// Most retries, where the contract limits them.
    pub max_retries: Option<u32>,
    /// Time for a verdict in milliseconds, where the contract sets it.
    pub verdict_ms: Option<u64>,
    /// Trace context of the submission.
    pub traceparent: String,
    /// The submission's `tracestate`; empty if absent.
    pub tracestate: String,
    /// The broker's span at the commit, as a `traceparent`; empty where no span was exported.
    pub span: String,
    /// The canonical message without checkpoint and personal data.
    pub body: Bytes,
    /// Personal data by subject, canonical; sent to entitled receivers only.
    pub personal: Vec<Vec<u8>>,
}

impl Claim {
    /// Parent of the delivery's span: the broker's own span if there is one, else the sender's.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let came = TraceContext::of_message(&self.traceparent, Some(&self.tracestate))?;
        let parent = match TraceParent::parse(&self.span) {
            Some(own) => own.of_trace(&came.parent),
            None => came.parent,
        };
        Some(TraceContext { parent, ..came })
    }

    /// Whether the attempt before `attempt` has no known outcome. The outbox counts an attempt at its claim, the
    /// handoff at its settlement. A settlement for retry states a reason (`why`), which distinguishes it from a
    /// first attempt claimed with its commit.
    #[must_use]
    pub const fn follows_unsettled(attempt: i32, settled: i32, why: bool) -> bool {
        let before = attempt - 1;
        before > 0 && (before > settled || !why)
    }

    /// The message to send; it includes personal data for an entitled receiver.
    #[must_use]
    pub fn delivered(&self, entitled: bool) -> Bytes {
        if !entitled || self.personal.is_empty() {
            return self.body.clone();
        }
        handoffd_core::domain::personal::whole(&self.body, &self.personal).into()
    }
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The checkpoint's task.
    pub task_id: TaskId,
    /// Run and number of the checkpoint.
    pub at: CheckpointRef,
    /// The agent that saved the state.
    pub agent: AgentId,
    /// The packed state.
    pub part: PackedContent,
    /// Time of creation.
    pub created_at: Micros,
}

/// A use of an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The agent that used the key.
    pub agent: AgentId,
    /// The key as sent.
    pub key: String,
    /// The handoff created with it.
    pub handoff_id: HandoffId,
    /// Time of creation.
    pub created_at: Micros,
}

/// A task id that does not exist, and an agent whose submissions on it were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTaskRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The task id as sent.
    pub task_id: TaskId,
    /// The refused agent.
    pub agent: AgentId,
    /// Number of refusals.
    pub refusals: i64,
    /// Time of the last refusal.
    pub updated_at: Micros,
}

impl RefusedTaskRow {
    /// The row's key.
    #[must_use]
    pub fn key(&self) -> super::RefusedTaskKey {
        (self.tenant.clone(), self.task_id, self.agent.clone())
    }
}

/// A task that came back by a completed handoff, for the inbox of the agent that asked for its return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnRow {
    /// The organisation of both.
    pub tenant: TenantId,
    /// The completed handoff.
    pub handoff_id: HandoffId,
    /// The task that came back.
    pub task_id: TaskId,
    /// The agent that asked, and has the task again.
    pub agent: AgentId,
    /// When the handoff was completed.
    pub returned_at: Micros,
    /// A poll of the inbox has it until then; zero: none has.
    pub visible_at: Micros,
}

/// A handoff kept from delivery until a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The handoff's id, which is the dead letter's id.
    pub handoff_id: HandoffId,
    /// The handoff's task.
    pub task_id: TaskId,
    /// The sender.
    pub source: AgentId,
    /// The receiver as addressed.
    pub target: Option<AgentId>,
    /// Code of the primary reason.
    pub reason: String,
    /// All failures found by the gate.
    pub failures: Vec<Failure>,
    /// The decision, or that it waits.
    pub status: DeadLetterStatus,
    /// Time of creation.
    pub created_at: Micros,
    /// Time of the decision.
    pub resolved_at: Option<Micros>,
    /// Id of the deciding key.
    pub resolved_by: Option<String>,
}

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The agent's registration.
    pub agent: Agent,
    /// The agent's secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    /// Time of registration.
    pub created_at: Micros,
    /// Time of the last change.
    pub updated_at: Micros,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Bound to one agent: sends and answers for it.
    Agent,
    /// Runs the tenant: agents, allowlists, dead letters.
    Operator,
    /// Reads evidence, changes nothing.
    Auditor,
    /// All that, and keys.
    Admin,
}

impl Role {
    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    /// Parses a stored role.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Agent, Self::Operator, Self::Auditor, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The owning tenant.
    pub tenant: TenantId,
    /// The key's public id.
    pub key_id: String,
    /// SHA-256 of the key, which is 256 random bits and needs no slow hash.
    pub hash: Vec<u8>,
    /// The key's role.
    pub role: Role,
    /// The agent, for role `agent`.
    pub agent: Option<AgentId>,
    /// Free text for people.
    pub label: String,
    /// Time of creation.
    pub created_at: Micros,
    /// Time from which the key is invalid.
    pub expires_at: Option<Micros>,
}

/// A claim: the handoff and the number of the attempt.
pub type ClaimKey = (HandoffKey, i32);

/// Selection of claims to release.
#[derive(Debug, Clone, Copy)]
pub enum ClaimRelease<'a> {
    /// All claims: no other broker serves this store.
    Everyone,
    /// Claims of a broker that stops. Its heartbeat is deleted too.
    Own(&'a str),
    /// Claims of a silent broker, if its heartbeat still has this value (`None`: no heartbeat). The heartbeat is
    /// deleted too.
    Silent(&'a str, Option<Micros>),
    /// Listed claims of a broker, as far as they are current.
    These(&'a str, &'a [ClaimKey]),
}

/// A present or former public key for tree heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeKeyRow {
    /// Ed25519, 32 bytes.
    pub public: [u8; 32],
    /// Start of use.
    pub created_at: Micros,
    /// End of use; earlier signatures stay valid.
    pub retired_at: Option<Micros>,
}

/// A receiver: one agent of one tenant.
pub type ReceiverKey = (TenantId, AgentId);

/// A record with its columns, for readers and the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// The hash column.
    pub hash: Vec<u8>,
    /// The kind column.
    pub kind: String,
    /// The task column.
    pub task_id: Option<String>,
    /// The handoff column.
    pub handoff_id: Option<String>,
    /// The time column.
    pub recorded_at: Micros,
    /// The hashed bytes.
    pub body: Vec<u8>,
    /// The record's content, where it has one.
    pub content: Option<StoredContent>,
    /// Personal data, in the order of the record's commitments.
    pub personal: Vec<StoredPersonal>,
}

/// A content: hot, cold or erased. `archive::Contents` fetches cold ones; a store only returns their location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// The content's id.
    pub id: String,
    /// Salt and packed bytes, or their location.
    pub kept: ContentStorage,
}

/// Salt, codec and packed bytes.
pub type SaltedContent = (Vec<u8>, Codec, Vec<u8>);

/// One data subject's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPersonal {
    /// Ordinal among the record's commitments.
    pub ordinal: i64,
    /// The data subject.
    pub subject_id: String,
    /// Salt and packed bytes; `None` where erased.
    pub kept: Option<SaltedContent>,
}
