use crate::store::HandoffKey;
use crate::store::cold::ContentStorage;
use bytes::Bytes;
use handoffd_domain::agent::Agent;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::Failure;
use handoffd_domain::group;
use handoffd_domain::handoff::{CheckpointRef, DeliveryMode, Priority};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::personal;
use handoffd_domain::trace_context::{TraceContext, TraceParent};
use handoffd_domain::window::{ContextAction, ContextFacts};
use handoffd_evidence::commitment::{Codec, PackedContent};
use handoffd_evidence::record::ActorRole;

/// A handoff that waits for delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    pub tenant: TenantId,
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// Number of the handoff within its task; lower ones are delivered first.
    pub seq: i64,
    pub target: AgentId,
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
pub struct DeliveryClaim {
    pub tenant: TenantId,
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
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
    /// The message against the receiver's context window, as measured at its commit.
    pub context: Option<ContextFacts>,
    /// Whether `body` is the compressed message.
    pub compressed: bool,
    /// The canonical message without checkpoint and personal data.
    pub body: Bytes,
    /// Personal data by subject, canonical; sent to entitled receivers only.
    pub personal: Vec<Vec<u8>>,
}

impl DeliveryClaim {
    /// Whether the message is to be compressed before this attempt.
    #[must_use]
    pub fn is_to_compress(&self) -> bool {
        let action = self.context.map(|facts| facts.action);
        !self.compressed && action == Some(ContextAction::Compress) && !self.body.is_empty()
    }

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

    /// The message to send; it includes personal data for an entitled receiver, and names a branch as its own.
    #[must_use]
    pub fn delivered(&self, entitled: bool) -> Bytes {
        let body = if !entitled || self.personal.is_empty() {
            self.body.clone()
        } else {
            personal::whole(&self.body, &self.personal, self.compressed).into()
        };
        group::as_branch(body, self.handoff_id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    pub tenant: TenantId,
    pub task_id: TaskId,
    /// Run and number of the checkpoint.
    pub at: CheckpointRef,
    /// The agent that saved the state.
    pub agent: AgentId,
    /// The packed state.
    pub part: PackedContent,
    pub created_at: Micros,
}

/// The place of a checkpoint within its task, and the commitment to its state.
pub type CheckpointPlace = (CheckpointRef, [u8; 32]);

/// A use of an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    pub tenant: TenantId,
    /// The agent that used the key.
    pub agent: AgentId,
    /// The key as sent.
    pub key: String,
    /// The handoff created with it.
    pub handoff_id: HandoffId,
    pub created_at: Micros,
}

/// A task id that does not exist, and an agent whose submissions on it were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTaskRow {
    pub tenant: TenantId,
    /// The task id as sent.
    pub task_id: TaskId,
    pub agent: AgentId,
    pub refusals: i64,
    /// Time of the last refusal.
    pub updated_at: Micros,
}

impl RefusedTaskRow {
    #[must_use]
    pub fn key(&self) -> super::RefusedTaskKey {
        (self.tenant.clone(), self.task_id, self.agent.clone())
    }
}

/// A return in the inbox of the agent that handed a task on: the task, which came back by a completed handoff, or a
/// question of its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnRow {
    /// The organisation of both.
    pub tenant: TenantId,
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// The agent that asked for the return, or is asked.
    pub agent: AgentId,
    /// When the handoff was completed, or the question was asked.
    pub returned_at: Micros,
    /// A poll of the inbox has it until then; zero: none has.
    pub visible_at: Micros,
    /// The number of the open question; none for a task that came back.
    pub question: Option<u32>,
}

/// A handoff kept from delivery until a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRow {
    pub tenant: TenantId,
    /// The handoff's id, which is the dead letter's id.
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    pub source: AgentId,
    /// The receiver as addressed.
    pub target: Option<AgentId>,
    /// Code of the primary reason.
    pub reason: String,
    /// All failures found by the gate.
    pub failures: Vec<Failure>,
    /// The decision, or that it waits.
    pub status: DeadLetterStatus,
    pub created_at: Micros,
    /// Time of the decision.
    pub resolved_at: Option<Micros>,
    /// Id of the deciding key.
    pub resolved_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    pub tenant: TenantId,
    pub agent: Agent,
    /// The agent's secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    pub created_at: Micros,
    /// Time of the last change.
    pub updated_at: Micros,
}

/// The rights of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Bound to one agent: sends and answers for it.
    Agent,
    /// Runs the tenant: agents, allowlists, dead letters.
    Operator,
    /// Runs the tenant without reading contents: sees that something happened, and not what was said.
    OperatorMetadata,
    /// Reads evidence, changes nothing.
    Auditor,
    /// All that, and keys.
    Admin,
}

impl Role {
    /// All roles, in the order in which they are listed.
    pub const ALL: [Self; 5] =
        [Self::Agent, Self::Operator, Self::OperatorMetadata, Self::Auditor, Self::Admin];

    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::OperatorMetadata => "operator-metadata",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl From<Role> for ActorRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Agent => Self::Agent,
            Role::Operator => Self::Operator,
            Role::OperatorMetadata => Self::OperatorMetadata,
            Role::Auditor => Self::Auditor,
            Role::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub tenant: TenantId,
    /// The key's public id.
    pub key_id: String,
    /// SHA-256 of the key, which is 256 random bits and needs no slow hash.
    pub hash: Vec<u8>,
    pub role: Role,
    /// The agent, for role `agent`.
    pub agent: Option<AgentId>,
    /// Free text for people.
    pub label: String,
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

/// Which of a task's records to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordWindow {
    /// The first leaf index that counts: those before it are of earlier times.
    pub at_least: i64,
    /// The first leaf index that does not.
    pub before: i64,
    /// Recorded at this time or later.
    pub from: Micros,
    /// Recorded before this time.
    pub until: Micros,
}

impl RecordWindow {
    /// Whether a record is in the window.
    #[must_use]
    pub fn has(&self, record: &StoredRecord) -> bool {
        (self.at_least..self.before).contains(&record.leaf_index)
            && (self.from..self.until).contains(&record.recorded_at)
    }
}

/// A record with its columns, for readers and the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
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
    pub subject_id: String,
    /// Salt and packed bytes; `None` where erased.
    pub kept: Option<SaltedContent>,
}
