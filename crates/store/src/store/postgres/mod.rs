//! The Postgres side of the store: several brokers may share one database.
//!
//! A batch is one READ COMMITTED transaction. Its rows are locked first, in key order, so that batches cannot deadlock; the
//! log's heads are locked last, and so for the shortest time. Ids are compared bytewise (`COLLATE "C"`), as in Rust.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPool;

use crate::store::erasure::{ScrubOutcome, SubjectDatum};
use crate::store::rows::{self, WhichRecords};
use crate::store::{
    BatchState, CheckpointRow, ClaimRelease, Cursor, DeadLetterFilter, DeadLetterRow,
    DeliveryClaim, EscalationFilter, HandoffFilter, HandoffKey, Needs, OutboxRow, ReceiverKey,
    RecordWindow, Result, ReturnRow, RunKey, StoreError, StoredRecord, TaskFilter, TreeKeyRow,
    Wakeups, Writes,
};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, Micros, TaskId, TenantId};
use handoffd_domain::task::Task;
use handoffd_evidence::append::AppendedRecords;
use handoffd_evidence::erasure::DataSlot;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, SealedRecord};

mod absent;
mod admin;
mod apart;
mod append;
#[cfg(feature = "simulation")]
mod attention;
mod batch;
mod call;
mod caps;
mod claims;
mod cold;
mod connect;
mod contracts;
mod erasure;
mod events;
mod failure;
mod joined;
mod log;
mod migrations;
mod open;
#[cfg(feature = "simulation")]
mod plans;
mod pool;
mod probes;
mod reads;
mod recovery;
mod refusals;
mod roles;
mod seals;
mod servers;
mod session;
mod statistics;
mod tls;
mod transact;
mod wakeups;
mod writes;

use apart::SeparateLog;
use connect::PoolHealth;
use servers::{Follower, Servers};
use session::Sessions;
use statistics::Statistics;

pub use open::PostgresOptions;

/// The longest batch: a server that is cut off never answers, and the system would wait for a quarter of an hour.
const BATCH_TIMEOUT: Duration = Duration::from_secs(40);

/// The longest wait for the answer to a statement, for the same reason: longer than the server lets it run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);

/// Longest wait for a ping: its caller will not wait for a stuck statement.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits for an answer up to [`ANSWER_TIMEOUT`].
async fn answered<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    within(ANSWER_TIMEOUT, asked).await
}

/// Waits for a batch up to [`BATCH_TIMEOUT`].
async fn batched<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    within(BATCH_TIMEOUT, asked).await
}

async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(StoreError::Unavailable("the server does not answer".to_owned())))
}

#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: PgPool,
    /// Connections of batches.
    sessions: Arc<Sessions>,
    servers: Arc<Servers>,
    /// They end with the last copy of the store.
    _followers: Arc<[Follower]>,
    /// Pool of the log: `pool`, unless the log has its own database.
    log: PgPool,
    /// The separate log database, if any.
    apart: Option<SeparateLog>,
    doubt: PoolHealth,
    statistics: Arc<Statistics>,
}

impl PostgresStore {
    /// The connections of the log's database for batches.
    fn log_sessions(&self) -> &Arc<Sessions> {
        self.apart.as_ref().map_or(&self.sessions, |apart| &apart.sessions)
    }
}

/// The operations of [`Store`](crate::store::Store) that Postgres carries out in its own way.
impl PostgresStore {
    pub(in crate::store) async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords> {
        let done = batched(Box::pin(transact::transact(self, needs, plan))).await;
        if matches!(done, Err(StoreError::Unavailable(_))) {
            self.doubt.raise();
        }
        done
    }

    pub(in crate::store) async fn count_open(
        &self,
        tenant: &TenantId,
    ) -> Result<HashMap<AgentId, i64>> {
        answered(reads::count_open(&self.pool, tenant)).await
    }

    pub(in crate::store) async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        answered(reads::list_handoffs(&self.pool, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        answered(reads::list_tasks(&self.pool, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        answered(reads::list_dead_letters(&self.pool, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        answered(recovery::list_escalations(&self.pool, tenant, filter, after, limit)).await
    }

    pub(in crate::store) async fn list_checkpoints_at(
        &self,
        at: &[(RunKey, i64)],
    ) -> Result<Vec<CheckpointRow>> {
        answered(reads::list_checkpoints_at(&self.pool, at)).await
    }

    pub(in crate::store) async fn list_overdue(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        answered(claims::list_overdue(&self.pool, now, limit)).await
    }

    pub(in crate::store) async fn catch_up_trees(&self) -> Result<()> {
        Box::pin(answered(append::catch_up_all(self.log_sessions()))).await
    }

    pub(in crate::store) async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>> {
        answered(log::list_tree_keys(&self.log)).await
    }

    pub(in crate::store) async fn settle_tree_key(
        &self,
        public: &Hash,
        at: Micros,
        rotate: bool,
    ) -> Result<bool> {
        answered(log::settle_tree_key(&self.log, public, at, rotate)).await
    }

    pub(in crate::store) async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        answered(log::list_hashes(&self.log, tenant, level, from, limit)).await
    }

    pub(in crate::store) async fn find_receipt(
        &self,
        key: &HandoffKey,
    ) -> Result<Option<SealedRecord>> {
        answered(log::find_receipt(self, key)).await
    }

    pub(in crate::store) async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        answered(log::find_last_commit(&self.log, key, task)).await
    }

    pub(in crate::store) async fn find_opinion(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        answered(log::find_opinion(&self.log, key, task)).await
    }

    pub(in crate::store) async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        answered(log::list_records(self, tenant, task.into(), from, limit, contents)).await
    }

    pub(in crate::store) async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::AboutState;
        answered(log::list_records(self, tenant, which, from, limit, true)).await
    }

    pub(in crate::store) async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::NewestOfTask(task, window);
        answered(log::list_records(self, tenant, which, window.at_least, limit, true)).await
    }

    pub(in crate::store) async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        answered(log::list_task_records(self, tenant, tasks, from, limit)).await
    }

    pub(in crate::store) async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        answered(log::find_head(&self.log, tenant)).await
    }

    pub(in crate::store) async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        answered(log::find_log(&self.log, log_id)).await
    }

    pub(in crate::store) async fn settle_log(&self, tenant: &TenantId) -> Result<()> {
        match &self.apart {
            Some(apart) => answered(apart.settled(tenant)).await,
            None => Ok(()),
        }
    }

    pub(in crate::store) async fn settle_in_doubt(
        &self,
        seen: &mut BTreeSet<String>,
    ) -> Result<u64> {
        match &self.apart {
            Some(apart) => answered(apart.settle_in_doubt(seen)).await,
            None => Ok(0),
        }
    }

    pub(in crate::store) async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        answered(log::list_unrecorded(self, tenant)).await
    }

    pub(in crate::store) async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        answered(claims::list_due_receivers(&self.pool, mode, now, limit)).await
    }

    pub(in crate::store) async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        answered(claims::list_due_among(&self.pool, receivers, now)).await
    }

    pub(in crate::store) async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        answered(claims::list_waiting(&self.pool, receiver, now, limit)).await
    }

    pub(in crate::store) async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        answered(claims::list_unpulled(&self.pool, before, now, limit)).await
    }

    pub(in crate::store) async fn notify(&self) -> Result<()> {
        answered(wakeups::notify(&self.pool)).await
    }

    pub(in crate::store) async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        answered(wakeups::listen(self.servers.current().clone())).await
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
        answered(claims::claim(&self.pool, receiver, mode, broker, now, until, limit)).await
    }

    pub(in crate::store) async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        answered(claims::claim_returns(&self.pool, receiver, now, until, limit)).await
    }

    pub(in crate::store) async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        answered(claims::beat(&self.pool, broker, now)).await
    }

    pub(in crate::store) async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        answered(claims::list_clock_offsets(&self.pool)).await
    }

    pub(in crate::store) async fn list_strangers(&self) -> Result<Vec<String>> {
        answered(claims::list_strangers(&self.pool)).await
    }

    pub(in crate::store) async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        answered(claims::release(&self.pool, whose)).await
    }

    pub(in crate::store) async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>> {
        answered(erasure::list_held(self, tenant, subject_id, after, limit)).await
    }

    pub(in crate::store) async fn scrub(&self) -> Result<ScrubOutcome> {
        erasure::scrub(self.servers.current()).await
    }

    pub(in crate::store) async fn ensure_tenant(
        &self,
        tenant: &TenantId,
        log_id: &str,
        at: Micros,
    ) -> Result<()> {
        answered(log::ensure_tenant(&self.pool, &self.log, tenant, log_id, at)).await
    }

    pub(in crate::store) async fn list_named_tenants(&self) -> Result<Vec<TenantId>> {
        answered(log::list_named_tenants(&self.pool, &self.log)).await
    }
}
