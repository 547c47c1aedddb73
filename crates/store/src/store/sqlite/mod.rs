//! The SQLite side: one file, one writer, one serving broker.
//!
//! Everything that writes goes through one connection under a lock, so that a batch waits for the
//! batch before it and never for SQLite's own locks; reads have a small pool of their own and,
//! thanks to the write-ahead log, never wait. A third connection copies that log into the file.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::store::erasure::{ScrubOutcome, SubjectDatum};
use crate::store::migrations::SQLITE;
use crate::store::rows::{self, WhichRecords};
use crate::store::{
    BatchState, CheckpointRow, ClaimRelease, Cursor, DeadLetterFilter, DeadLetterRow,
    DeliveryClaim, Depths, EscalationFilter, HandoffFilter, HandoffKey, Needs, OutboxRow,
    ReceiverKey, RecordWindow, Result, ReturnRow, RunKey, SealChange, StoredRecord, TaskFilter,
    TreeKeyRow, Wakeups, Writes,
};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, Micros, TaskId, TenantId};
use handoffd_domain::task::Task;
use handoffd_evidence::append::AppendedRecords;
use handoffd_evidence::erasure::DataSlot;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, SealedRecord};

mod append;
#[cfg(feature = "simulation")]
mod attention;
mod batch;
mod claims;
mod cold;
mod connection;
mod db;
mod erasure;
mod events;
mod file;
mod log;
mod migrations;
#[cfg(feature = "simulation")]
mod plans;
mod reads;
mod recovery;
mod refusals;
mod seals;
mod single;
mod transact;
mod wal;
mod writes;

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;

pub use connection::{SqliteOptions, private_folder};

/// A store in one SQLite file.
pub struct SqliteStore {
    writer: Arc<Mutex<file::Writer>>,
    wal: Option<wal::Wal>,
    readers: connection::Readers,
    /// Held while this store serves; see [`SqliteOptions::exclusive`].
    lock: std::sync::Mutex<Option<std::fs::File>>,
}

impl SqliteStore {
    /// Opens the file that `url` names: `sqlite:path` or `sqlite://path`, taken literally.
    ///
    /// # Errors
    /// `Refused` when the URL names no file (an in-memory database would be lost, and is not
    /// supported), or when another broker serves the file; `Unavailable` when the file cannot be
    /// opened.
    pub async fn open(url: &str, options: SqliteOptions) -> Result<Self> {
        connection::open(url, &options).await
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

/// Wakeups without events: no other broker serves the file.
struct SqliteWakeups;

#[async_trait]
impl Wakeups for SqliteWakeups {
    async fn next(&mut self) -> Result<()> {
        std::future::pending().await
    }
}

/// The operations of [`Store`](crate::store::Store) that SQLite carries out in its own way.
impl SqliteStore {
    pub(in crate::store) async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords> {
        self.transaction(|db| transact::run(db, needs, plan)).await
    }

    pub(in crate::store) async fn count_open(
        &self,
        tenant: &TenantId,
    ) -> Result<HashMap<AgentId, i64>> {
        self.read(|db| reads::count_open(db, tenant)).await
    }

    pub(in crate::store) async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        self.read(|db| reads::list_handoffs(db, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        self.read(|db| reads::list_tasks(db, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        self.read(|db| reads::list_dead_letters(db, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        self.read(|db| recovery::list_escalations(db, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_checkpoints_at(
        &self,
        at: &[(RunKey, i64)],
    ) -> Result<Vec<CheckpointRow>> {
        self.read(|db| reads::list_checkpoints_at(db, at)).await
    }

    pub(in crate::store) async fn list_overdue(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        self.read(|db| reads::list_overdue(db, now, limit)).await
    }

    pub(in crate::store) async fn catch_up_trees(&self) -> Result<()> {
        self.write(append::catch_up_all).await
    }

    pub(in crate::store) async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>> {
        self.read(log::list_tree_keys).await
    }

    pub(in crate::store) async fn settle_tree_key(
        &self,
        public: &Hash,
        at: Micros,
        rotate: bool,
    ) -> Result<bool> {
        self.write(|db| log::settle_tree_key(db, public, at, rotate)).await
    }

    pub(in crate::store) async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        self.read(|db| log::list_hashes(db, tenant, level, from, limit)).await
    }

    pub(in crate::store) async fn find_receipt(
        &self,
        key: &HandoffKey,
    ) -> Result<Option<SealedRecord>> {
        self.read(|db| log::find_receipt(db, key)).await
    }

    pub(in crate::store) async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        self.read(|db| log::find_last_commit(db, key, task)).await
    }

    pub(in crate::store) async fn find_opinion(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        self.read(|db| log::find_opinion(db, key, task)).await
    }

    pub(in crate::store) async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        self.read(|db| log::list_records(db, tenant, task.into(), from, limit, contents)).await
    }

    pub(in crate::store) async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::AboutState;
        self.read(|db| log::list_records(db, tenant, which, from, limit, true)).await
    }

    pub(in crate::store) async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::NewestOfTask(task, window);
        self.read(|db| log::list_records(db, tenant, which, window.at_least, limit, true)).await
    }

    pub(in crate::store) async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        self.read(|db| log::list_task_records(db, tenant, tasks, from, limit)).await
    }

    pub(in crate::store) async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        self.read(|db| log::find_head(db, tenant)).await
    }

    pub(in crate::store) async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        self.read(|db| log::find_log(db, log_id)).await
    }

    pub(in crate::store) async fn settle_log(&self, _tenant: &TenantId) -> Result<()> {
        Ok(())
    }

    pub(in crate::store) async fn settle_in_doubt(
        &self,
        _seen: &mut BTreeSet<String>,
    ) -> Result<u64> {
        Ok(0)
    }

    pub(in crate::store) async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        self.read(|db| log::list_unrecorded(db, tenant)).await
    }

    pub(in crate::store) async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        self.read(|db| claims::list_due_receivers(db, mode, now, limit)).await
    }

    pub(in crate::store) async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        self.read(|db| claims::list_due_among(db, receivers, now)).await
    }

    pub(in crate::store) async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        self.read(|db| claims::list_waiting(db, receiver, now, limit)).await
    }

    pub(in crate::store) async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        self.read(|db| claims::list_unpulled(db, before, now, limit)).await
    }

    pub(in crate::store) async fn notify(&self) -> Result<()> {
        Ok(())
    }

    pub(in crate::store) async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        Ok(Box::new(SqliteWakeups))
    }

    pub(in crate::store) async fn claim(
        &self,
        receiver: &ReceiverKey,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<DeliveryClaim>> {
        self.write(|db| claims::claim(db, receiver, mode, broker, now, until, limit)).await
    }

    pub(in crate::store) async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        // Most polls find none, and need not wait for the writer.
        if !self.read(|db| claims::has_returns(db, receiver, now)).await? {
            return Ok(Vec::new());
        }
        self.write(|db| claims::claim_returns(db, receiver, now, until, limit)).await
    }

    pub(in crate::store) async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        self.write(|db| claims::beat(db, broker, now)).await
    }

    pub(in crate::store) async fn list_strangers(&self) -> Result<Vec<String>> {
        self.read(claims::list_strangers).await
    }

    pub(in crate::store) async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        self.write(|db| claims::release(db, whose)).await
    }

    pub(in crate::store) async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        Ok(Vec::new())
    }

    pub(in crate::store) async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>> {
        self.read(|db| erasure::list_held(db, tenant, subject_id, after, limit)).await
    }

    pub(in crate::store) async fn scrub(&self) -> Result<ScrubOutcome> {
        self.scrub_files().await
    }

    pub(in crate::store) async fn ensure_tenant(
        &self,
        tenant: &TenantId,
        log_id: &str,
        at: Micros,
    ) -> Result<()> {
        self.write(|db| log::ensure_tenant(db, tenant, log_id, at)).await
    }

    pub(in crate::store) async fn list_named_tenants(&self) -> Result<Vec<TenantId>> {
        self.read(reads::list_named_tenants).await
    }

    pub(in crate::store) async fn inspect(&self) -> Result<crate::store::SchemaState> {
        self.read(migrations::inspect).await
    }

    pub(in crate::store) async fn migrate(&self) -> Result<usize> {
        self.write(|db| migrations::run(db, SQLITE)).await
    }

    pub(in crate::store) async fn grant_serving(&self, _role: &str) -> Result<()> {
        Err(crate::store::StoreError::Refused("SQLite has no roles".to_owned()))
    }

    pub(in crate::store) fn connections(&self) -> (u32, u32) {
        self.readers.count()
    }

    pub(in crate::store) async fn ping(&self) -> Result<()> {
        self.read(file::ping).await
    }

    pub(in crate::store) async fn probe_write(&self, _broker: &str, _now: Micros) -> Result<()> {
        self.write(reads::probe_write).await
    }

    pub(in crate::store) async fn close(&self) {
        self.shut().await;
    }

    pub(in crate::store) async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        self.write(|db| reads::settle_fact(db, name, value)).await
    }

    pub(in crate::store) async fn change_seals(
        &self,
        change: SealChange<'_>,
        facts: &[(&str, Vec<u8>)],
    ) -> Result<u64> {
        self.write(|db| seals::change(db, change, facts)).await
    }

    pub(in crate::store) async fn depths(&self, idle_since: Micros) -> Result<Depths> {
        self.read(|db| reads::depths(db, idle_since)).await
    }

    pub(in crate::store) async fn tend(&self) -> Result<bool> {
        Ok(false)
    }
}
