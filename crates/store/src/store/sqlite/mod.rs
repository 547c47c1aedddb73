//! The SQLite side: one file, one writer, one serving broker.
//!
//! Everything that writes goes through one connection under a lock, so that a batch waits for the
//! batch before it and never for SQLite's own locks; reads have a small pool of their own and,
//! thanks to the write-ahead log, wait for nobody. A third connection copies that log into the file.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;
use tokio::sync::Mutex;

use crate::store::erasure::{ErasureKey, ErasureRow, HoldKey, HoldRow, ScrubOutcome, SubjectDatum};
use crate::store::{
    AdminStore, AgentRow, BatchState, BatchStore, CheckpointCursor, CheckpointRow, Claim, ClaimKey,
    ClaimRelease, Cursor, DeadLetterFilter, DeadLetterRow, Depths, DirectoryStore, ErasureStore,
    EscalationFilter, EscalationKey, HandoffFilter, HandoffKey, HandoffStore, KeyRow, LogStore,
    Needs, OutboxRow, OutboxStore, ReceiverKey, Result, ReturnRow, RunKey, StoredContent,
    StoredRecord, TaskFilter, TaskKey, TreeKeyRow, Wakeups, Writes,
};
use handoffd_core::domain::escalation::Escalation;
use handoffd_core::domain::handoff::{DeliveryMode, Handoff};
use handoffd_core::domain::ids::{AgentId, ContentId, Micros, TaskId, TenantId};
use handoffd_core::domain::progress::Edge;
use handoffd_core::domain::task::Task;
use handoffd_core::evidence::append::AppendedRecords;
use handoffd_core::evidence::erasure::DataSlot;
use handoffd_core::evidence::merkle::Hash;
use handoffd_core::evidence::record::{LogHead, SealedRecord};

mod append;
mod batch;
mod caps;
mod claims;
mod cold;
mod connection;
mod contracts;
mod erasure;
mod events;
mod log;
mod migrations;
mod reads;
mod recovery;
mod schemas;
mod transact;
mod wal;
mod writes;

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;

pub use connection::SqliteOptions;

/// Rows to values.
mod rows {
    crate::store::rows::decoders!(sqlx::sqlite::SqliteRow);
}

/// A store in one SQLite file.
pub struct SqliteStore {
    writer: Arc<Mutex<connection::Writer>>,
    wal: Option<wal::Wal>,
    readers: SqlitePool,
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

#[async_trait]
impl BatchStore for SqliteStore {
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords> {
        let mut tx = self.begin().await?;
        match transact::run(&mut tx.conn, needs, plan).await {
            Ok(Some(sealed)) => {
                tx.records = sealed.records.len();
                tx.settle(Ok(sealed)).await
            }
            Ok(None) => {
                tx.abandon().await;
                Ok(AppendedRecords::default())
            }
            Err(err) => tx.settle(Err(err)).await,
        }
    }
}

#[async_trait]
impl HandoffStore for SqliteStore {
    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
        reads::count_open(&self.readers, tenant).await
    }

    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        reads::find_handoff(&self.readers, key).await
    }

    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        reads::list_handoffs(&self.readers, tenant, filter, after, limit).await
    }

    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        reads::find_task(&self.readers, key).await
    }

    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        reads::list_tasks(&self.readers, tenant, filter, after, limit).await
    }

    async fn find_content(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<StoredContent>> {
        log::find_content(&self.readers, tenant, id).await
    }

    async fn find_checkpoint(
        &self,
        run: &RunKey,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        reads::find_checkpoint(&self.readers, run, seq).await
    }

    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        reads::list_dead_letters(&self.readers, tenant, filter, after, limit).await
    }

    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>> {
        reads::find_dead_letter(&self.readers, key).await
    }

    async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>> {
        recovery::list_edges(&self.readers, key).await
    }

    async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>> {
        recovery::find_escalation(&self.readers, key).await
    }

    async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        recovery::list_escalations(&self.readers, tenant, filter, after, limit).await
    }

    async fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Result<Vec<Escalation>> {
        recovery::list_overdue(&self.readers, now, limit).await
    }

    async fn list_checkpoints_at(&self, at: &[(RunKey, i64)]) -> Result<Vec<CheckpointRow>> {
        reads::list_checkpoints_at(&self.readers, at).await
    }

    async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>> {
        recovery::list_checkpoints(&self.readers, key, agent, after, limit).await
    }

    async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>> {
        recovery::list_personal_data(&self.readers, key).await
    }

    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        reads::list_overdue(&self.readers, now, limit).await
    }

    async fn forget_refused_tasks(&self, before: Micros) -> Result<u64> {
        let mut tx = self.begin().await?;
        let outcome = claims::forget_refused_tasks(&mut tx.conn, before).await;
        tx.settle(outcome).await
    }
}

#[async_trait]
impl LogStore for SqliteStore {
    async fn catch_up_trees(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        let outcome = append::catch_up_all(&mut tx.conn).await;
        tx.settle(outcome).await
    }

    async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>> {
        log::list_tree_keys(&self.readers).await
    }

    async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool> {
        let mut tx = self.begin().await?;
        let outcome = log::settle_tree_key(&mut tx.conn, public, at, rotate).await;
        tx.settle(outcome).await
    }

    async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        log::list_hashes(&self.readers, tenant, level, from, limit).await
    }

    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<SealedRecord>> {
        log::find_receipt(&self.readers, key).await
    }

    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        log::list_records(&self.readers, tenant, task, from, limit, contents).await
    }

    async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        log::list_task_records(&self.readers, tenant, tasks, from, limit).await
    }

    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        log::find_head(&self.readers, tenant).await
    }

    async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        log::find_log(&self.readers, log_id).await
    }

    async fn settle_log(&self, _tenant: &TenantId) -> Result<()> {
        Ok(())
    }

    async fn settle_in_doubt(&self, _seen: &mut BTreeSet<String>) -> Result<u64> {
        Ok(0)
    }

    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        log::list_unrecorded(&self.readers, tenant).await
    }
}

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        claims::list_due_receivers(&self.readers, mode, now, limit).await
    }

    async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        claims::list_due_among(&self.readers, receivers, now).await
    }

    async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        claims::list_waiting(&self.readers, receiver, now, limit).await
    }

    async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        claims::list_unpulled(&self.readers, before, now, limit).await
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }

    async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        Ok(Box::new(SqliteWakeups))
    }

    async fn claim(
        &self,
        receiver: &ReceiverKey,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>> {
        let mut tx = self.begin().await?;
        let outcome = claims::claim(&mut tx.conn, receiver, mode, broker, now, until, limit).await;
        tx.settle(outcome).await
    }

    async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        // Most polls find none, and need not wait for the writer.
        if !claims::has_returns(&self.readers, receiver, now).await? {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let outcome = claims::claim_returns(&mut tx.conn, receiver, now, until, limit).await;
        tx.settle(outcome).await
    }

    async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        let mut tx = self.begin().await?;
        let outcome = claims::beat(&mut tx.conn, broker, now).await;
        tx.settle(outcome).await
    }

    async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>> {
        claims::list_heartbeats(&self.readers).await
    }

    async fn list_strangers(&self) -> Result<Vec<String>> {
        claims::list_strangers(&self.readers).await
    }

    async fn list_claims(&self, broker: &str) -> Result<Vec<ClaimKey>> {
        claims::list_claims(&self.readers, broker).await
    }

    async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let outcome = claims::release(&mut tx.conn, whose).await;
        tx.settle(outcome).await
    }
}

#[async_trait]
impl ErasureStore for SqliteStore {
    async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>> {
        erasure::list_held(&self.readers, tenant, subject_id, after, limit).await
    }

    async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>> {
        erasure::find_erasure(&self.readers, key).await
    }

    async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>> {
        erasure::list_erasures(&self.readers, tenant, subject_key).await
    }

    async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>> {
        erasure::list_unfinished(&self.readers, cutoff).await
    }

    async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>> {
        erasure::find_hold(&self.readers, key).await
    }

    async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>> {
        erasure::list_holds(&self.readers, tenant, subject_key, after, limit).await
    }

    async fn scrub(&self) -> Result<ScrubOutcome> {
        self.scrub_files().await
    }
}

#[async_trait]
impl DirectoryStore for SqliteStore {
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
        let mut tx = self.begin().await?;
        let outcome = log::ensure_tenant(&mut tx.conn, tenant, log_id, at).await;
        tx.settle(outcome).await
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        reads::list_tenants(&self.readers).await
    }

    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        reads::find_key(&self.readers, hash).await
    }

    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        reads::list_keys(&self.readers, tenant).await
    }

    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        reads::list_agents(&self.readers, tenant).await
    }

    async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64> {
        reads::count_agent_changes(&self.readers, tenant).await
    }

    async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>> {
        reads::list_changed_agents(&self.readers, tenant, after).await
    }
}

#[async_trait]
impl AdminStore for SqliteStore {
    async fn migrate(&self) -> Result<usize> {
        let mut tx = self.begin().await?;
        let outcome = migrations::run(&mut tx.conn).await;
        tx.settle(outcome).await
    }

    async fn grant_serving(&self, _role: &str) -> Result<()> {
        Err(crate::store::StoreError::Refused("SQLite has no roles".to_owned()))
    }

    fn connections(&self) -> (u32, u32) {
        let idle = u32::try_from(self.readers.num_idle()).unwrap_or(u32::MAX);
        (self.readers.size().saturating_sub(idle), idle)
    }

    async fn ping(&self) -> Result<()> {
        reads::ping(&self.readers).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        let mut tx = self.begin().await?;
        let outcome = reads::settle_fact(&mut tx.conn, name, value).await;
        tx.settle(outcome).await
    }

    async fn depths(&self) -> Result<Depths> {
        reads::depths(&self.readers).await
    }
}
