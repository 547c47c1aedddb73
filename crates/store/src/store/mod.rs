//! The narrow waist: all stored data behind one [`Store`], whose driver is SQLite or Postgres.
//!
//! Writes are batches. [`Store::transact`] opens one transaction, loads and locks the rows that a batch of
//! commands needs, has the ledger plan, writes the plan with a few statements, seals the records under the log's head
//! (locked last), and commits. Reads are named queries.

use async_trait::async_trait;

use handoffd_domain::ids::{AgentId, EscalationId, ExecutionId, HandoffId, TaskId, TenantId};
use handoffd_evidence::append::AppendedRecords;

pub use batch::{BatchState, LastCheckpoint, Needs, RunState, Writes};
pub use cold::ContentStorage;
pub use lists::{
    CheckpointCursor, Cursor, DeadLetterFilter, Depths, EscalationFilter, HandoffFilter, TaskFilter,
};
pub use row_types::{
    AgentRow, CheckpointPlace, CheckpointRow, ClaimKey, ClaimRelease, DeadLetterRow, DeliveryClaim,
    IdempotencyRow, KeyRow, OutboxRow, ReceiverKey, RecordWindow, RefusedTaskRow, ReturnRow, Role,
    SaltedContent, StoredContent, StoredPersonal, StoredRecord, TreeKeyRow,
};

use driver::{Driver, by_each_driver};
use postgres::PostgresStore;
use sqlite::SqliteStore;

pub use table::NewRow;
pub use tables::*;

mod batch;
mod budget_column;
pub mod cold;
mod driver;
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
mod upkeep;

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

/// All stored data, on the database that it was opened on. An operation is in the file of the table that it is about; those on
/// no table are in `upkeep.rs`. All times come from the caller's clock.
pub struct Store {
    driver: Driver,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl From<SqliteStore> for Store {
    fn from(store: SqliteStore) -> Self {
        Self { driver: Driver::Sqlite(store) }
    }
}

impl From<PostgresStore> for Store {
    fn from(store: PostgresStore) -> Self {
        Self { driver: Driver::Postgres(store) }
    }
}

#[cfg(feature = "simulation")]
impl From<memory::MemoryStore> for Store {
    fn from(store: memory::MemoryStore) -> Self {
        Self { driver: Driver::Memory(store) }
    }
}

impl Store {
    /// Runs one batch in one transaction, as in the module's docs. `plan` may be called again with a fresh state
    /// after a conflict. Returns the sealed records, in the order of [`Writes::records`], and the growth of the
    /// trees, once durable.
    ///
    /// # Errors
    /// [`StoreError`], with nothing written unless the answer was lost.
    pub async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords> {
        by_each_driver!(self, db => db.transact(needs, plan))
    }
}
