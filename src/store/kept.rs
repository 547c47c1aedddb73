//! What is kept, row by row.

use crate::domain::agent::Agent;
use crate::domain::failure::Failure;
use crate::domain::handoff::{CheckpointRef, DeliveryMode, Priority};
use crate::domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::trace_context::{TraceContext, TraceParent};
use crate::evidence::commitment::{Codec, Part};
use crate::store::HandoffKey;
use crate::store::cold::Kept;

/// A handoff that still has to reach its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// Its place among the task's handoffs; lower ones go first.
    pub seq: i64,
    /// Who receives.
    pub target: AgentId,
    /// How.
    pub mode: DeliveryMode,
    /// Of what waits for a receiver, the more urgent goes first.
    pub priority: Priority,
    /// Nobody may claim it before.
    pub visible_at: Micros,
    /// Attempts begun, counting the current one.
    pub attempt: i32,
    /// Of these, those that the receiver put off: they are no attempts.
    pub busy: i32,
    /// The broker that holds the claim.
    pub claimed_by: Option<String>,
    /// When the handoff was committed.
    pub created_at: Micros,
}

/// A claimed handoff: what the dispatcher needs for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its organisation.
    pub tenant: TenantId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// Who receives.
    pub target: AgentId,
    /// This attempt's number, from 1.
    pub attempt: i32,
    /// Attempts before this one that the receiver put off.
    pub busy: i32,
    /// By when the receiver owes its verdict, where an attempt before this one reached it.
    pub deadline_at: Option<Micros>,
    /// A person decides, in a time of its own: no clock runs for the verdict.
    pub to_person: bool,
    /// The fencing token to deliver.
    pub fencing_token: i64,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    /// The attempt before has no known end (its broker died, or was taken for dead): it may have reached
    /// the receiver.
    pub unsettled: bool,
    /// Attempts after the first, at most, where its contract says so.
    pub max_retries: Option<u32>,
    /// How long the receiver has for its verdict, in milliseconds, where its contract says so.
    pub verdict_ms: Option<u64>,
    /// Trace context of the submission.
    pub traceparent: String,
    /// The `tracestate` that came with it; empty for none.
    pub tracestate: String,
    /// The broker's own span under which it was committed, as a `traceparent`; empty where nothing was
    /// exported.
    pub span: String,
    /// The canonical message without checkpoint and personal data.
    pub body: Vec<u8>,
    /// Personal data by subject, canonical; given to entitled receivers only.
    pub personal: Vec<Vec<u8>>,
}

impl Claim {
    /// Where its delivery goes on in a trace: under the broker's own span where there is one, else under
    /// the sender's.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let came = TraceContext::of_message(&self.traceparent, Some(&self.tracestate))?;
        let parent = match TraceParent::parse(&self.span) {
            Some(own) => own.of_trace(&came.parent),
            None => came.parent,
        };
        Some(TraceContext { parent, ..came })
    }

    /// Whether the attempt before `attempt` has no known end, from what is kept. The outbox counts an
    /// attempt when it is claimed, the handoff when it is settled; and what is settled to be tried
    /// again says why, which tells it from a first attempt that was claimed with its commit.
    #[must_use]
    pub const fn follows_unsettled(attempt: i32, settled: i32, why: bool) -> bool {
        let before = attempt - 1;
        before > 0 && (before > settled || !why)
    }

    /// The message as delivered: whole for a receiver that is entitled to personal data.
    #[must_use]
    pub fn delivered(&self, entitled: bool) -> Vec<u8> {
        let personal = if entitled { &self.personal[..] } else { &[] };
        crate::domain::personal::whole(&self.body, personal)
    }
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// On which task.
    pub task_id: TaskId,
    /// Which of the task's.
    pub at: CheckpointRef,
    /// Whose state.
    pub agent: AgentId,
    /// The state.
    pub part: Part,
    /// When.
    pub created_at: Micros,
}

/// A use of an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Whose key.
    pub agent: AgentId,
    /// The key.
    pub key: String,
    /// The handoff it made.
    pub handoff_id: HandoffId,
    /// When.
    pub created_at: Micros,
}

/// A task that does not exist, on which an agent's submissions were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTaskRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// The task as named.
    pub task_id: TaskId,
    /// Whose submissions.
    pub agent: AgentId,
    /// How many.
    pub refusals: i64,
    /// When the last one was refused.
    pub updated_at: Micros,
}

impl RefusedTaskRow {
    /// Its key.
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
    /// Its organisation.
    pub tenant: TenantId,
    /// The handoff; a dead letter has its id.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// From whom.
    pub source: AgentId,
    /// To whom, as addressed.
    pub target: Option<AgentId>,
    /// The primary reason.
    pub reason: String,
    /// Everything that the gate found.
    pub failures: Vec<Failure>,
    /// `OPEN`, later `RELEASED` or `DISCARDED`.
    pub status: String,
    /// When.
    pub created_at: Micros,
    /// When it was decided on.
    pub resolved_at: Option<Micros>,
    /// By whom: a key's id.
    pub resolved_by: Option<String>,
}

/// An agent as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// What it is.
    pub agent: Agent,
    /// Its secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    /// When it was registered.
    pub created_at: Micros,
    /// When it was changed last.
    pub updated_at: Micros,
}

/// What a key may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
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
    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    /// Reads a role back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Agent, Self::Operator, Self::Auditor, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// An API key as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Public name of the key.
    pub key_id: String,
    /// SHA-256 of the key; the key itself is 256 random bits and needs no slow hash.
    pub hash: Vec<u8>,
    /// What it may do.
    pub role: Role,
    /// The agent it is bound to.
    pub agent: Option<AgentId>,
    /// For people.
    pub label: String,
    /// When it was made.
    pub created_at: Micros,
    /// From when on it no longer works.
    pub expires_at: Option<Micros>,
}

/// A claim: the handoff, and the attempt that it counted.
pub type Held = (HandoffKey, i32);

/// Whose claims to release.
#[derive(Debug, Clone, Copy)]
pub enum Release<'a> {
    /// Everyone's: nobody else serves this store.
    Everyone,
    /// A broker's own, as it stops. Its heartbeat goes too.
    Own(&'a str),
    /// A silent broker's, if its heartbeat still has this value (`None`: it has no heartbeat). The
    /// heartbeat goes too.
    Silent(&'a str, Option<Micros>),
    /// These of a broker's own, as far as they still stand so.
    These(&'a str, &'a [Held]),
}

/// A public key that signs tree heads, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeKeyRow {
    /// Ed25519, 32 bytes.
    pub public: [u8; 32],
    /// Since when.
    pub created_at: Micros,
    /// Until when; what it signed stays signed.
    pub retired_at: Option<Micros>,
}

/// Who may claim: one agent of one tenant.
pub type Receiver = (TenantId, AgentId);

/// A record as kept, with its columns, for readers and the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place.
    pub leaf_index: i64,
    /// The hash as kept.
    pub hash: Vec<u8>,
    /// The kind as kept in its column.
    pub kind: String,
    /// The task as kept in its column.
    pub task_id: Option<String>,
    /// The handoff as kept in its column.
    pub handoff_id: Option<String>,
    /// The time as kept in its column.
    pub recorded_at: Micros,
    /// The bytes hashed.
    pub body: Vec<u8>,
    /// Its content, where it has one.
    pub content: Option<StoredContent>,
    /// Personal data, in the order of the record's commitments.
    pub personal: Vec<StoredPersonal>,
}

/// A content as kept: hot, cold or erased. Read through `archive::Contents`, which fetches cold
/// ones; a store alone only says where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// Its name.
    pub id: String,
    /// Its salt and packed bytes, or what is left of them.
    pub kept: Kept,
}

/// Salt, coding and packed bytes.
pub type KeptContent = (Vec<u8>, Codec, Vec<u8>);

/// A subject's data as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPersonal {
    /// Its place in the record's commitments.
    pub ordinal: i64,
    /// Whose.
    pub subject_id: String,
    /// Its salt and packed bytes.
    pub kept: Option<KeptContent>,
}
