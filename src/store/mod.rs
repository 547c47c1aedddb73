//! The narrow waist: everything that is kept, behind one trait with two sides, SQLite and Postgres.
//!
//! Writes are batches. [`Store::transact`] opens one transaction, loads and locks what a batch of
//! commands needs, lets the ledger plan, writes the plan with a few statements, seals the records
//! under the log's head (locked last), and commits. Reads are named queries.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;

use crate::domain::escalation::Escalation;
use crate::domain::handoff::{DeliveryMode, Handoff};
use crate::domain::ids::{
    AgentId, ContentId, EscalationId, ExecutionId, HandoffId, Micros, TaskId, TenantId,
};
use crate::domain::progress::Edge;
use crate::domain::task::Task;
use crate::evidence::append::Appended;
use crate::evidence::merkle::Hash;
use crate::evidence::record::{LogHead, Sealed};

use erasure::{ErasureKey, ErasureRow, HeldDatum, HoldKey, HoldRow, Scrubbed};

pub use batch::{LastCheckpoint, Needs, State, Writes};
pub use cold::{ColdStore, Kept};
pub use kept::{
    AgentRow, CheckpointRow, Claim, DeadLetterRow, Held, IdempotencyRow, KeptContent, KeyRow,
    OutboxRow, Receiver, RefusedTaskRow, Release, ReturnRow, Role, StoredContent, StoredPersonal,
    StoredRecord, TreeKeyRow,
};
pub use lists::{
    CheckpointCursor, Cursor, DeadLetterFilter, Depths, EscalationFilter, HandoffFilter, TaskFilter,
};

mod batch;
mod books;
pub mod caps;
pub mod cold;
pub mod contracts;
pub mod erasure;
pub mod events;
mod kept;
mod lists;
#[cfg(test)]
pub mod memory;
pub mod postgres;
mod purge;
mod rows;
pub mod schemas;
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

/// Names an edge of a task: from whom, to whom.
pub type EdgeKey = (TenantId, TaskId, AgentId, AgentId);
/// Names a task that does not exist, and an agent whose submissions on it were refused.
pub type RefusedTaskKey = (TenantId, TaskId, AgentId);
/// Names an escalation.
pub type EscalationKey = (TenantId, EscalationId);
/// Hears of other brokers' commits.
#[async_trait]
pub trait Wakeups: Send {
    /// Returns when something was said, or may have been while nobody could hear it.
    ///
    /// # Errors
    /// When nothing can be heard: listen anew.
    async fn next(&mut self) -> Result<()>;
}

/// Everything that is kept. All times come from the caller's clock.
#[async_trait]
pub trait Store:
    events::EventStore
    + ColdStore
    + contracts::ContractStore
    + schemas::PayloadSchemaStore
    + caps::CapStore
{
    /// One batch, one transaction: see the module's docs. `plan` may be called again after a
    /// conflict, with a fresh state. Returns what was sealed, in the order of [`Writes::records`],
    /// and how the trees grew, once it is durable.
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(State) -> Writes + Send),
    ) -> Result<Appended>;

    /// Applies the migrations, under a lock; returns how many were new.
    async fn migrate(&self) -> Result<usize>;
    /// Makes a role of the database that may serve, and in the log insert and read and no more; gives it
    /// its rights anew where it is there. Refused where there are no roles, and where the role could do
    /// more by other ways.
    async fn grant_serving(&self, role: &str) -> Result<()>;
    /// Connections in use and idle, of those that this store has open.
    fn connections(&self) -> (u32, u32);
    /// Answers at all.
    async fn ping(&self) -> Result<()>;
    /// Closes connections in order.
    async fn close(&self);
    /// Makes a tenant's log if there is none. `log_id` is used for a new one.
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()>;
    /// All tenants.
    async fn list_tenants(&self) -> Result<Vec<TenantId>>;
    /// Gives every log's tree the records that it lacks: those that a version without a tree wrote.
    async fn catch_up_trees(&self) -> Result<()>;
    /// Public keys that sign or signed tree heads, oldest first.
    async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>>;
    /// Makes `public` the key that signs tree heads if there is none yet, or if `rotate` says so: the
    /// others are retired then. Returns whether it is in use.
    async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool>;
    /// A fact about this database, set once: keeps the first value, returns what is kept.
    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>>;

    /// A key by its hash.
    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>>;
    /// The keys of a tenant.
    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>>;
    /// All agents of a tenant, by id.
    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>>;
    /// How often a tenant's agents changed so far, in any way, by whomever.
    async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64>;
    /// The agents that changed after so many changes, by id, each as it is now; `None` where it is gone.
    /// Some may have changed since they were counted.
    async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>>;
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
    /// A content as kept; `archive::Contents` also fetches and unpacks it.
    async fn find_content(&self, tenant: &TenantId, id: ContentId)
    -> Result<Option<StoredContent>>;
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
    /// The log's head: id, size, hash, the tree's right edge.
    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>>;
    /// Whose log has this id; reads the head of every log.
    async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>>;
    /// Hashes of a log's tree at a tile level (0: the leaves; each further level stands eight above the
    /// one before), from an index on.
    async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>>;
    /// Waits until the log has whatever the operations show as committed. Where both are one database that
    /// is always so; where the log has its own, it comes a moment later, or once a batch that a broker
    /// left half done is ended.
    async fn settle_log(&self, tenant: &TenantId) -> Result<()>;
    /// Where the log is in a database of its own: ends the batches that a broker left between the two, as
    /// far as they are in `seen`, and leaves there which stand now; returns how many it ended. Safe at any
    /// time: a batch that is only slow is waited for.
    async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64>;
    /// Handoffs that no record speaks of; there should be none. At most ten.
    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>>;
    /// Dead letters, newest first.
    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>>;
    /// The edges of a task.
    async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>>;
    /// One escalation.
    async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>>;
    /// Escalations, newest first.
    async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>>;
    /// Open escalations that nobody decided on in time, of all tenants.
    async fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Result<Vec<Escalation>>;
    /// Checkpoints of a task, newest first, of one agent where given.
    async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>>;
    /// The personal data that a handoff was committed with, unpacked, in order; what is erased is
    /// left out.
    async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>>;
    /// One dead letter.
    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>>;

    /// What is held on a data subject, in log order, after a place.
    async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<crate::evidence::erasure::Slot>,
        limit: i64,
    ) -> Result<Vec<HeldDatum>>;
    /// One erasure.
    async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>>;
    /// The erasures of a subject, by its keyed hash, oldest first; at most a thousand.
    async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>>;
    /// Erasures of any tenant that are not done and did not go on since `cutoff`.
    async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>>;
    /// One legal hold.
    async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>>;
    /// Legal holds by id, after one; of one subject where given.
    async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>>;
    /// Cleans the database's files of what was erased, as far as this side can; takes its time, and
    /// may be repeated.
    async fn scrub(&self) -> Result<Scrubbed>;

    /// Receivers of a delivery mode with something claimable.
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Receiver>>;
    /// Which of these receivers have something claimable, whatever its mode.
    async fn list_due_among(&self, receivers: &[Receiver], now: Micros) -> Result<Vec<Receiver>>;
    /// What one receiver could claim, unclaimed.
    async fn list_waiting(
        &self,
        receiver: &Receiver,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// What could be pulled, and was committed before `before`, the oldest first; reads the whole outbox. What
    /// is on a task that waits for a person is left out.
    async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// Tells the other brokers that something may wait for who waits there.
    async fn notify(&self) -> Result<()>;
    /// To hear what the other brokers tell.
    async fn listen(&self) -> Result<Box<dyn Wakeups>>;
    /// Claims up to `limit` handoffs of one receiver, the most urgent first, then the oldest, each the
    /// first of its task:
    /// marks them as this broker's until `until` and counts the attempt. Whatever mode the receiver had
    /// when they were committed, from here on they are delivered by `mode`.
    async fn claim(
        &self,
        receiver: &Receiver,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>>;
    /// Takes up to `limit` returns out of an agent's inbox, the oldest first, until `until`: the agent gets them
    /// again unless it acted on their tasks by then.
    async fn claim_returns(
        &self,
        receiver: &Receiver,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>>;
    /// Says that this broker lives: its heartbeat has another value than before.
    async fn beat(&self, broker: &str, now: Micros) -> Result<()>;
    /// Brokers and the values of their heartbeats. A value says only whether it is another than at the
    /// last look: it comes from the other broker's clock.
    async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>>;
    /// Brokers that hold webhook claims and have no heartbeat; reads the whole outbox.
    async fn list_strangers(&self) -> Result<Vec<String>>;
    /// The webhook claims that a broker holds, with the attempt of each; reads the whole outbox.
    async fn list_claims(&self, broker: &str) -> Result<Vec<Held>>;
    /// Makes webhook claims claimable at once, whatever anybody's clock says; returns how many. Claims on
    /// pulled handoffs are the receiver's, which may live on: they come back by time alone.
    async fn release(&self, whose: Release<'_>) -> Result<u64>;
    /// Open handoffs whose deadline has passed.
    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>>;
    /// Forgets refused submissions on tasks that never came to be, the last of which is older than `before`;
    /// returns how many tasks and agents.
    async fn forget_refused_tasks(&self, before: Micros) -> Result<u64>;
    /// Counts.
    async fn depths(&self) -> Result<Depths>;
    /// Has the database look at tables that have grown far beyond what it knows of them, so that it does not go on
    /// with plans made for empty ones, and finds out whether plans may be kept. Whether that is of use here, and
    /// to be asked for every second.
    async fn tend(&self) -> Result<bool> {
        Ok(false)
    }
}
