//! The narrow waist: all stored data behind one trait with two implementations, SQLite and Postgres.
//!
//! Writes are batches. [`BatchStore::transact`] opens one transaction, loads and locks the rows that a batch of
//! commands needs, has the ledger plan, writes the plan with a few statements, seals the records under the log's head
//! (locked last), and commits. Reads are named queries.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;

use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{CheckpointRef, DeliveryMode, Handoff};
use handoffd_domain::ids::{
    AgentId, ContentId, ErasureId, EscalationId, ExecutionId, HandoffId, Micros, TaskId, TenantId,
};
use handoffd_domain::progress::Edge;
use handoffd_domain::task::Task;
use handoffd_evidence::append::AppendedRecords;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, SealedRecord};

use erasure::{ErasureKey, ErasureRow, HoldKey, HoldRow, ScrubOutcome, SubjectDatum};

pub use batch::{BatchState, LastCheckpoint, Needs, RunState, Writes};
pub use cold::{ColdStore, ContentStorage};
pub use lists::{
    CheckpointCursor, Cursor, DeadLetterFilter, Depths, EscalationFilter, HandoffFilter, TaskFilter,
};
pub use row_types::{
    AgentRow, CheckpointPlace, CheckpointRow, ClaimKey, ClaimRelease, DeadLetterRow, DeliveryClaim,
    IdempotencyRow, KeyRow, OutboxRow, ReceiverKey, RecordWindow, RefusedTaskRow, ReturnRow, Role,
    SaltedContent, StoredContent, StoredPersonal, StoredRecord, TreeKeyRow,
};

pub use table::NewRow;
pub use tables::*;

mod absent;
mod batch;
mod budget_column;
pub mod cold;
pub mod erasure;
pub mod events;
mod lists;
#[cfg(feature = "simulation")]
pub mod memory;
mod migrations;
#[cfg(feature = "simulation")]
pub mod plans;
pub mod postgres;
mod purge;
mod query;
mod row_types;
mod rows;
pub mod sqlite;
pub mod states;
mod table;
mod tables;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, or is too busy: nothing was written, retry.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another writer committed first: load and plan again.
    #[error("the store saw a concurrent write: {0}")]
    Conflict(String),
    /// The database or the request holds data that the store rejects. A retry does not help.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The database does not let the broker work: a right or a table is missing, a trigger or a constraint raises, the
    /// log is cut or the file damaged. Nothing was written, and the sender is not at fault: an operator mends it.
    #[error("the store does not let the broker work: {0}")]
    Denied(String),
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

pub type TaskKey = (TenantId, TaskId);
pub type HandoffKey = (TenantId, HandoffId);
pub type AgentKey = (TenantId, AgentId);
/// Key of one run's checkpoints on one task.
pub type RunKey = (TenantId, TaskId, ExecutionId);
/// Key of an agent's use of an `Idempotency-Key`.
pub type IdempotencyKey = (TenantId, AgentId, String);

/// Key of a task's edge: from sender to receiver.
pub type EdgeKey = (TenantId, TaskId, AgentId, AgentId);
/// Key of a refused task id with the agent that submitted on it.
pub type RefusedTaskKey = (TenantId, TaskId, AgentId);
pub type EscalationKey = (TenantId, EscalationId);

/// Open handoffs of one receiver that are counted at most.
pub const MOST_OPEN: i64 = 256;

/// Receives notifications of other brokers' commits.
#[async_trait]
pub trait Wakeups: Send {
    /// Returns after a notification, or after an interruption that may have lost one.
    ///
    /// # Errors
    /// [`StoreError`] where the subscription is broken: listen again.
    async fn next(&mut self) -> Result<()>;
}

/// Commits batches. All times come from the caller's clock.
#[async_trait]
pub trait BatchStore: Send + Sync {
    /// Runs one batch in one transaction, as in the module's docs. `plan` may be called again with a fresh state
    /// after a conflict. Returns the sealed records, in the order of [`Writes::records`], and the growth of the
    /// trees, once durable.
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords>;
}

/// Reads of tasks, handoffs and what belongs to them. All times come from the caller's clock.
#[async_trait]
pub trait HandoffStore: Send + Sync {
    /// Open handoffs by receiver, counted up to [`MOST_OPEN`] for each: a difference above that is not a reason to
    /// prefer one of two receivers, and counting costs a look at each handoff.
    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>>;
    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>>;
    /// Handoffs, newest first.
    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>>;
    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>>;
    /// Tasks, newest first.
    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>>;
    /// A content as stored; `archive::Contents` also fetches and unpacks it.
    async fn find_content(&self, tenant: &TenantId, id: ContentId)
    -> Result<Option<StoredContent>>;
    /// A checkpoint by number; the run's last one where `seq` is `None`. Of one agent where given.
    async fn find_checkpoint(
        &self,
        run: &RunKey,
        agent: Option<&AgentId>,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>>;
    /// Dead letters, newest first.
    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>>;
    async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>>;
    async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>>;
    /// Escalations, newest first.
    async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>>;
    /// Open escalations past their deadline, of all tenants.
    async fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Result<Vec<Escalation>>;
    /// Checkpoints by run and number, in no order; a missing one is left out.
    async fn list_checkpoints_at(&self, at: &[(RunKey, i64)]) -> Result<Vec<CheckpointRow>>;
    /// Checkpoints of a task, newest first, of one agent where given.
    async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>>;
    /// The places and commitments of a task's checkpoints behind `after`, in the order of run and number. A page reads its own
    /// rows alone, and no contents.
    async fn list_checkpoint_places(
        &self,
        key: &TaskKey,
        after: Option<CheckpointRef>,
        limit: i64,
    ) -> Result<Vec<CheckpointPlace>>;
    /// The personal data committed with a handoff, unpacked, in order, without erased data.
    async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>>;
    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>>;
    /// Open handoffs past their deadline.
    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>>;
    /// Deletes refused task ids without a refusal since `before`; returns the number of rows.
    async fn forget_refused_tasks(&self, before: Micros) -> Result<u64>;
}

/// Reads and upkeep of the audit log and its trees. All times come from the caller's clock.
#[async_trait]
pub trait LogStore: Send + Sync {
    /// Adds the missing records to trees of logs last written by a version without trees.
    async fn catch_up_trees(&self) -> Result<()>;
    /// Present and former public keys for tree heads, oldest first.
    async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>>;
    /// Makes `public` the key for tree heads if there is none yet, or if `rotate` is set, which retires the
    /// others. Returns whether `public` is in use.
    async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool>;
    /// The record that committed a handoff (or created its dead letter), with its log's id.
    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<SealedRecord>>;
    /// The last record that committed a handoff's message: as a whole, released, or at the close of its stream. `task` is
    /// the handoff's.
    async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>>;
    /// The record of a handoff's second opinion, where one was asked for after the commit. `task` is the handoff's.
    async fn find_opinion(&self, key: &HandoffKey, task: TaskId) -> Result<Option<SealedRecord>>;
    /// Records from a leaf index on, in log order, of one task if given; with contents if `contents` is set.
    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>>;
    /// A task's records in a window, newest first, with contents.
    async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>>;
    /// Records of these tasks from a leaf index on, in log order, without contents.
    async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>>;
    /// Records about the state of objects ([`ABOUT_STATE`](handoffd_evidence::record::RecordKind::ABOUT_STATE)) from a leaf index on, in log order, with contents.
    async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>>;
    /// The log's head: id, size, hash, the tree's right edge.
    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>>;
    /// The tenant of a log id; reads the head of every log.
    async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>>;
    /// Hashes of a log's tree at a tile level (0: the leaves; each further level is eight above), from an index
    /// on.
    async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>>;
    /// Waits until the log has every record of committed operations. With one database that is always so. With a
    /// separate log database it takes a moment, or until the half-done batch of a stopped broker is resolved.
    async fn settle_log(&self, tenant: &TenantId) -> Result<()>;
    /// With a separate log database: resolves batches that brokers left between the two databases, as far as they
    /// are in `seen`, and sets `seen` to the current ones. Returns the number resolved. Safe at any time: a slow
    /// batch is waited for.
    async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64>;
    /// Handoffs without a record, at most ten. An intact database has none.
    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>>;
}

/// The outbox: waiting handoffs, claims, heartbeats and notifications between brokers. All times come from the caller's clock.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Receivers with claimable handoffs that are pulled, or that the dispatcher delivers, as the mode is: the pushed
    /// modes count as one.
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>>;
    /// The receivers, among the given ones, with claimable handoffs of any mode.
    async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>>;
    /// Deliveries of a task that wait, in their order.
    async fn list_queued(&self, task: &TaskKey, limit: i64) -> Result<Vec<OutboxRow>>;
    /// A receiver's claimable handoffs, without a claim.
    async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// Pullable handoffs committed before `before`, oldest first, except on escalated tasks; reads the whole
    /// outbox.
    async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// Notifies the other brokers of new outbox rows.
    async fn notify(&self) -> Result<()>;
    /// Subscribes to the other brokers' notifications.
    async fn listen(&self) -> Result<Box<dyn Wakeups>>;
    /// Claims up to `limit` handoffs of one receiver, by priority, then oldest first, each the first of its task:
    /// sets this broker and `until` on them and counts the attempt. From then on they are pulled or
    /// pushed as `mode` is, whatever mode they were committed with; one pushed mode does not replace another.
    async fn claim(
        &self,
        receiver: &ReceiverKey,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<DeliveryClaim>>;
    /// Takes up to `limit` returns out of an agent's inbox, the oldest first, until `until`: the agent gets them
    /// again unless it acted on their tasks by then.
    async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>>;
    /// Says that this broker lives: its heartbeat has another value than before.
    async fn beat(&self, broker: &str, now: Micros) -> Result<()>;
    /// Brokers with the values of their heartbeats. A value comes from the other broker's clock, so only its
    /// change between two reads is meaningful.
    async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>>;
    /// Brokers with the microseconds by which their clocks were ahead of the database's at their last heartbeats. None
    /// where one broker serves.
    async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        Ok(Vec::new())
    }
    /// Brokers with webhook claims and without heartbeat; reads the whole outbox.
    async fn list_strangers(&self) -> Result<Vec<String>>;
    /// A broker's webhook claims with their attempts; reads the whole outbox.
    async fn list_claims(&self, broker: &str) -> Result<Vec<ClaimKey>>;
    /// Makes webhook claims claimable at once, independent of clocks; returns their number. Claims on pulled
    /// handoffs belong to the receiver, which may be alive: they only expire by time.
    async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64>;
}

/// Data subjects, erasures and legal holds. All times come from the caller's clock.
#[async_trait]
pub trait ErasureStore: Send + Sync {
    /// A data subject's stored data after a slot, in log order.
    async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<handoffd_evidence::erasure::DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>>;
    async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>>;
    /// A subject's erasures by its keyed hash, oldest first; at most a thousand.
    async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>>;
    /// Erasures by id, whose order is that of time, the newest first; those before `before` if given.
    async fn list_newest_erasures(
        &self,
        tenant: &TenantId,
        before: Option<ErasureId>,
        limit: i64,
    ) -> Result<Vec<ErasureRow>>;
    /// Unfinished erasures of all tenants without progress since `cutoff`.
    async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>>;
    /// A legal hold by key.
    async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>>;
    /// Legal holds after an id, in order of ids; of one subject if given.
    async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>>;
    /// Removes erased data from the database's files, as far as this database can. May take long, and may be
    /// repeated.
    async fn scrub(&self) -> Result<ScrubOutcome>;
}

/// Tenants, agents and API keys. All times come from the caller's clock.
#[async_trait]
pub trait DirectoryStore: Send + Sync {
    /// Creates a tenant's log, with `log_id`, unless it exists.
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()>;
    async fn list_tenants(&self) -> Result<Vec<TenantId>>;
    /// All tenants that a table of tenants, log heads, records or handoffs names, by name: those that a verification has to
    /// look at. Reads whole tables.
    async fn list_named_tenants(&self) -> Result<Vec<TenantId>>;
    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>>;
    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>>;
    /// Notes that a key is used, unless a use of the last minute is noted already.
    async fn note_key_use(&self, hash: &[u8], now: Micros) -> Result<()> {
        let _ = (hash, now);
        Ok(())
    }
    /// When each key of a tenant was last used, by the keys' ids; keys that never were are left out.
    async fn list_key_uses(&self, tenant: &TenantId) -> Result<HashMap<String, Micros>> {
        let _ = tenant;
        Ok(HashMap::new())
    }
    /// All agents of a tenant, by id.
    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>>;
    /// Number of changes of a tenant's agents by any broker.
    async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64>;
    /// Agents changed after that number of changes, by id, with their current row; `None` for a deleted one.
    /// Later changes may be included.
    async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>>;
}

/// The findings of a look at the database's schema, apart from its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaState {
    /// Migrations of this binary that the database does not have: an earlier release made it.
    pub pending: usize,
    /// Each guard of the log that is missing, off or changed, and each role with a right to change the log, as a sentence.
    pub unguarded: Vec<String>,
}

/// A value that is sealed under the master key, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed<'a> {
    /// The secrets of an agent, as text.
    Agent(&'a str, &'a str),
    /// The secrets of a subscription, as text.
    Subscription(&'a str, &'a str),
    /// The answer to a request under an `Idempotency-Key`, by the request's id.
    Answer(&'a [u8], &'a [u8]),
}

/// Seals a value anew: whose it is, of which tenant, and the value as it is.
pub type SealChange<'a> =
    &'a (dyn for<'b> Fn(&'b TenantId, Sealed<'b>) -> Result<Vec<u8>> + Send + Sync);

/// The database itself: migrations, roles, connections, upkeep. All times come from the caller's clock.
#[async_trait]
pub trait AdminStore: Send + Sync {
    /// Looks at the migrations applied, the log's triggers and who has rights on the log. Changes nothing.
    async fn inspect(&self) -> Result<SchemaState>;
    /// Applies the migrations under a lock; returns the number of new ones.
    async fn migrate(&self) -> Result<usize>;
    /// Creates or updates a database role that may serve, and in the log only insert and read. Refused by
    /// databases without roles, and for a role with further rights by other ways.
    async fn grant_serving(&self, role: &str) -> Result<()>;
    /// This store's open connections: in use, idle.
    fn connections(&self) -> (u32, u32);
    /// Checks that the database answers.
    async fn ping(&self) -> Result<()>;
    /// Writes as a batch does: a record in the log, which is rolled back, and a row that is committed and synchronised.
    /// An error means that the database takes no batch now. `broker` and `now` are those of a heartbeat.
    async fn probe_write(&self, broker: &str, now: Micros) -> Result<()>;
    /// Closes all connections in order.
    async fn close(&self);
    /// A database-wide fact, set once: keeps the first value and returns it.
    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>>;
    /// A database-wide fact, where it was set.
    async fn find_fact(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Replaces everything that is sealed under the master key, and sets facts, in one transaction; returns the number of
    /// values that were replaced.
    async fn change_seals(&self, change: SealChange<'_>, facts: &[(&str, Vec<u8>)]) -> Result<u64>;
    /// Counts for metrics; `idle_since` is when a task must have begun to wait to count as idle.
    async fn depths(&self, idle_since: Micros) -> Result<Depths>;
    /// Has the database analyse tables that outgrew its statistics, so that it drops plans made for empty tables,
    /// and decides whether plans may be cached. Returns whether this is useful here, and should be called every
    /// second.
    async fn tend(&self) -> Result<bool> {
        Ok(false)
    }
}

/// All stored data, by use. A function names the traits of the data it uses.
pub trait Store:
    BatchStore
    + HandoffStore
    + LogStore
    + OutboxStore
    + ErasureStore
    + DirectoryStore
    + AdminStore
    + events::EventStore
    + ColdStore
    + tables::TableStores
    + attention::AttentionStore
    + reach::ReachStore
{
}

impl<T> Store for T where
    T: BatchStore
        + HandoffStore
        + LogStore
        + OutboxStore
        + ErasureStore
        + DirectoryStore
        + AdminStore
        + events::EventStore
        + ColdStore
        + tables::TableStores
        + attention::AttentionStore
        + reach::ReachStore
{
}
