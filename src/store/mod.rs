//! The narrow waist: everything that is kept, behind one trait with two sides, SQLite and Postgres.
//!
//! Writes are batches. [`Store::transact`] opens one transaction, loads and locks what a batch of
//! commands needs, lets the ledger plan, writes the plan with a few statements, seals the records
//! under the log's head (locked last), and commits. Reads are named queries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;

use crate::domain::agent::Agent;
use crate::domain::failure::Failure;
use crate::domain::handoff::{CheckpointRef, DeliveryMode, Handoff, HandoffStatus};
use crate::domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::task::{Task, TaskStatus};
use crate::evidence::commitment::{Codec, Part};
use crate::evidence::record::{Draft, Sealed};

pub mod postgres;
mod rows;
pub mod sqlite;

/// What can go wrong with a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or is too busy: nothing was written, try again.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another writer was first: load and plan anew.
    #[error("the store saw a concurrent write: {0}")]
    Conflict(String),
    /// It holds or was given something that it cannot take.
    #[error("the store refused: {0}")]
    Refused(String),
}

/// A store's answer.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Names a task.
pub type TaskKey = (TenantId, TaskId);
/// Names a handoff.
pub type HandoffKey = (TenantId, HandoffId);
/// Names an agent.
pub type AgentKey = (TenantId, AgentId);
/// Names the checkpoints of one run on one task.
pub type RunKey = (TenantId, TaskId, ExecutionId);
/// Names an `Idempotency-Key` of one agent.
pub type IdempotencyKey = (TenantId, AgentId, String);

/// What a batch of commands must see before it can be planned.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Tasks, locked.
    pub tasks: BTreeSet<TaskKey>,
    /// Handoffs with their outbox rows; guarded by their task's lock.
    pub handoffs: BTreeSet<HandoffKey>,
    /// The last checkpoint of a run.
    pub runs: BTreeSet<RunKey>,
    /// What an `Idempotency-Key` was used for.
    pub idempotency: BTreeSet<IdempotencyKey>,
    /// Agents, locked.
    pub agents: BTreeSet<AgentKey>,
    /// Keys by id, locked.
    pub keys: BTreeSet<(TenantId, String)>,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Tasks that exist.
    pub tasks: BTreeMap<TaskKey, Task>,
    /// Handoffs that exist.
    pub handoffs: BTreeMap<HandoffKey, Handoff>,
    /// Outbox rows that exist, by handoff.
    pub outbox: BTreeMap<HandoffKey, OutboxRow>,
    /// The last checkpoint of a run.
    pub runs: BTreeMap<RunKey, LastCheckpoint>,
    /// Uses of an `Idempotency-Key`.
    pub idempotency: BTreeMap<IdempotencyKey, IdempotencyRow>,
    /// Agents that exist.
    pub agents: BTreeMap<AgentKey, AgentRow>,
    /// Keys that exist.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
}

/// What is known of a run's last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Its number.
    pub seq: i64,
    /// What records name it by.
    pub commitment: [u8; 32],
    /// Whose run it is.
    pub agent: AgentId,
}

/// What a batch changes. New rows are inserted (a collision is a [`StoreError::Conflict`]), known
/// ones updated.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Tasks by key; `true` where the row is new.
    pub tasks: BTreeMap<TaskKey, (Task, bool)>,
    /// Handoffs by key; `true` where the row is new.
    pub handoffs: BTreeMap<HandoffKey, (Handoff, bool)>,
    /// Outbox rows by handoff: `Some` to have it so, `None` to have it gone.
    pub outbox: BTreeMap<HandoffKey, Option<OutboxRow>>,
    /// New checkpoints.
    pub checkpoints: Vec<CheckpointRow>,
    /// New uses of an `Idempotency-Key`.
    pub idempotency: Vec<IdempotencyRow>,
    /// New dead letters.
    pub dead_letters: Vec<DeadLetterRow>,
    /// Agents by key; `None` removes.
    pub agents: BTreeMap<AgentKey, Option<AgentRow>>,
    /// Keys by id: new, or changed.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// Records to append, in order.
    pub records: Vec<Draft>,
}

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
    /// Nobody may claim it before.
    pub visible_at: Micros,
    /// Attempts begun, counting the current one.
    pub attempt: i32,
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
    /// The fencing token to deliver.
    pub fencing_token: i64,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    /// Trace context of the submission.
    pub traceparent: String,
    /// When the handoff was committed.
    pub created_at: Micros,
    /// The canonical message without checkpoint and personal data.
    pub body: Vec<u8>,
    /// Personal data by subject, canonical; given to entitled receivers only.
    pub personal: Vec<Vec<u8>>,
}

impl Claim {
    /// The message as delivered: with personal data for a receiver that is entitled to it.
    #[must_use]
    pub fn delivered(&self, entitled: bool) -> Vec<u8> {
        let Some(open) = self
            .body
            .strip_suffix(b"}")
            .filter(|open| entitled && !self.personal.is_empty() && open.len() > 1)
        else {
            return self.body.clone();
        };
        [open, b",\"personalDataPayload\":{\"subjects\":[", &self.personal.join(&b','), b"]}}"]
            .concat()
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

/// A content as kept; salt and bytes are gone once it is erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// Its name.
    pub id: String,
    /// Its salt and packed bytes.
    pub kept: Option<(Vec<u8>, Codec, Vec<u8>)>,
}

/// A subject's data as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPersonal {
    /// Its place in the record's commitments.
    pub ordinal: i64,
    /// Whose.
    pub subject_id: String,
    /// Its salt and packed bytes.
    pub kept: Option<(Vec<u8>, Codec, Vec<u8>)>,
}

/// A place in a list ordered by creation, newest first: `(created_at, id)` of the last row seen.
pub type Cursor = (Micros, String);

/// Which handoffs to list.
#[derive(Debug, Clone, Default)]
pub struct HandoffFilter {
    /// On this task.
    pub task_id: Option<TaskId>,
    /// In this state.
    pub status: Option<HandoffStatus>,
    /// From this agent.
    pub source: Option<AgentId>,
    /// To this agent.
    pub target: Option<AgentId>,
    /// That this agent sends or receives.
    pub party: Option<AgentId>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// In this state.
    pub status: Option<TaskStatus>,
    /// That this agent has a part in.
    pub party: Option<AgentId>,
}

/// Counts for the metrics page and for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the outbox.
    pub outbox: i64,
    /// When the oldest of them was committed.
    pub oldest: Option<Micros>,
    /// Open dead letters.
    pub dead_letters: i64,
    /// Records over all tenants.
    pub records: i64,
}

/// Everything that is kept. All times come from the caller's clock.
#[async_trait]
pub trait Store: Send + Sync {
    /// One batch, one transaction: see the module's docs. `plan` may be called again after a
    /// conflict, with a fresh state. Returns what was sealed, in the order of [`Writes::records`],
    /// once it is durable.
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(State) -> Writes + Send),
    ) -> Result<Vec<Sealed>>;

    /// Applies the migrations, under a lock; returns how many were new.
    async fn migrate(&self) -> Result<usize>;
    /// Answers at all.
    async fn ping(&self) -> Result<()>;
    /// Closes connections in order.
    async fn close(&self);
    /// Makes a tenant's log if there is none. `log_id` is used for a new one.
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()>;
    /// All tenants.
    async fn list_tenants(&self) -> Result<Vec<TenantId>>;
    /// A fact about this database, set once: keeps the first value, returns what is kept.
    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>>;

    /// A key by its hash.
    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>>;
    /// The keys of a tenant.
    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>>;
    /// All agents of a tenant, by id.
    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>>;
    /// How many handoffs each receiver has open; reads every open handoff's index entry.
    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>>;

    /// One handoff.
    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>>;
    /// Handoffs, newest first.
    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>>;
    /// One task.
    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>>;
    /// Tasks, newest first.
    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>>;
    /// The stored message of a handoff, unpacked.
    async fn find_content(&self, tenant: &TenantId, id: ContentId) -> Result<Option<Vec<u8>>>;
    /// One checkpoint; the run's last where `seq` is `None`.
    async fn find_checkpoint(
        &self,
        run: &RunKey,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>>;
    /// The record that committed a handoff (or kept it as a dead letter), and its log's id.
    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<Sealed>>;
    /// Records from a leaf index on, in log order, with content where `contents` says so; of one
    /// task where given.
    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>>;
    /// The log's head: id, size, hash.
    async fn find_head(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<crate::evidence::record::LogHead>>;
    /// Handoffs that no record speaks of; there should be none. At most ten.
    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>>;
    /// Dead letters, newest first.
    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        status: Option<&str>,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>>;
    /// One dead letter.
    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>>;

    /// Receivers of a delivery mode with something claimable.
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Receiver>>;
    /// Claims up to `limit` handoffs of one receiver, oldest first, each the first of its task:
    /// marks them as this broker's until `until` and counts the attempt.
    async fn claim(
        &self,
        receiver: &Receiver,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>>;
    /// Says that this broker lives.
    async fn beat(&self, broker: &str, now: Micros) -> Result<()>;
    /// Makes the claims of brokers not seen since `cutoff` claimable at once; returns how many.
    async fn release_dead(&self, cutoff: Micros, now: Micros) -> Result<u64>;
    /// Hands back this broker's own claims (graceful stop); returns how many.
    async fn release_own(&self, broker: &str, now: Micros) -> Result<u64>;
    /// Open handoffs whose deadline has passed.
    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>>;
    /// Counts.
    async fn depths(&self) -> Result<Depths>;
}
