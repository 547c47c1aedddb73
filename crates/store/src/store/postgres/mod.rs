//! The Postgres side of the store: several brokers may share one database.
//!
//! A batch is one READ COMMITTED transaction. Its rows are locked first, in key order, so that batches cannot deadlock; the
//! log's heads are locked last, and so for the shortest time. Ids are compared bytewise (`COLLATE "C"`), as in Rust.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgPool;

use crate::store::erasure::{ErasureKey, ErasureRow, HoldKey, HoldRow, ScrubOutcome, SubjectDatum};
use crate::store::rows::{self, WhichRecords};
use crate::store::tables::{
    agents, api_keys, brokers, checkpoints, contents, dead_letters, edges, erasures, escalations,
    handoffs, holds, outbox, personal_data, refused_tasks, tasks, tenants,
};
use crate::store::{
    AgentRow, BatchState, BatchStore, CheckpointCursor, CheckpointPlace, CheckpointRow, ClaimKey,
    ClaimRelease, Cursor, DeadLetterFilter, DeadLetterRow, DeliveryClaim, DirectoryStore,
    ErasureStore, EscalationFilter, EscalationKey, HandoffFilter, HandoffKey, HandoffStore, KeyRow,
    LogStore, Needs, OutboxRow, OutboxStore, ReceiverKey, RecordWindow, Result, ReturnRow, RunKey,
    StoreError, StoredContent, StoredRecord, TaskFilter, TaskKey, TreeKeyRow, Wakeups, Writes,
};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{CheckpointRef, DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, ContentId, ErasureId, Micros, TaskId, TenantId};
use handoffd_domain::progress::Edge;
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

#[async_trait]
impl BatchStore for PostgresStore {
    async fn transact(
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
}

#[async_trait]
impl HandoffStore for PostgresStore {
    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
        answered(reads::count_open(&self.pool, tenant)).await
    }

    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        answered(handoffs::find(self, key)).await
    }

    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        answered(reads::list_handoffs(&self.pool, tenant, filter, after, limit)).await
    }

    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        answered(tasks::find(self, key)).await
    }

    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        answered(reads::list_tasks(&self.pool, tenant, filter, after, limit)).await
    }

    async fn find_content(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<StoredContent>> {
        answered(contents::find(self, tenant, id)).await
    }

    async fn find_checkpoint(
        &self,
        run: &RunKey,
        agent: Option<&AgentId>,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        answered(checkpoints::find(self, run, agent, seq)).await
    }

    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        answered(reads::list_dead_letters(&self.pool, tenant, filter, after, limit)).await
    }

    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>> {
        answered(dead_letters::find(self, key)).await
    }

    async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>> {
        answered(edges::list(self, key)).await
    }

    async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>> {
        answered(escalations::find(self, key)).await
    }

    async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        answered(recovery::list_escalations(&self.pool, tenant, filter, after, limit)).await
    }

    async fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Result<Vec<Escalation>> {
        answered(escalations::list_overdue(self, now, limit)).await
    }

    async fn list_checkpoints_at(&self, at: &[(RunKey, i64)]) -> Result<Vec<CheckpointRow>> {
        answered(reads::list_checkpoints_at(&self.pool, at)).await
    }

    async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>> {
        answered(checkpoints::list(self, key, agent, after, limit)).await
    }

    async fn list_checkpoint_places(
        &self,
        key: &TaskKey,
        after: Option<CheckpointRef>,
        limit: i64,
    ) -> Result<Vec<CheckpointPlace>> {
        answered(checkpoints::places(self, key, after, limit)).await
    }

    async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>> {
        answered(personal_data::list(self, key)).await
    }

    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        answered(claims::list_overdue(&self.pool, now, limit)).await
    }

    async fn forget_refused_tasks(&self, before: Micros) -> Result<u64> {
        answered(refused_tasks::forget(self, before)).await
    }
}

#[async_trait]
impl LogStore for PostgresStore {
    async fn catch_up_trees(&self) -> Result<()> {
        Box::pin(answered(append::catch_up_all(self.log_sessions()))).await
    }

    async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>> {
        answered(log::list_tree_keys(&self.log)).await
    }

    async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool> {
        answered(log::settle_tree_key(&self.log, public, at, rotate)).await
    }

    async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        answered(log::list_hashes(&self.log, tenant, level, from, limit)).await
    }

    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<SealedRecord>> {
        answered(log::find_receipt(self, key)).await
    }

    async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        answered(log::find_last_commit(&self.log, key, task)).await
    }

    async fn find_opinion(&self, key: &HandoffKey, task: TaskId) -> Result<Option<SealedRecord>> {
        answered(log::find_opinion(&self.log, key, task)).await
    }

    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        answered(log::list_records(self, tenant, task.into(), from, limit, contents)).await
    }

    async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::AboutState;
        answered(log::list_records(self, tenant, which, from, limit, true)).await
    }

    async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let which = WhichRecords::NewestOfTask(task, window);
        answered(log::list_records(self, tenant, which, window.at_least, limit, true)).await
    }

    async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        answered(log::list_task_records(self, tenant, tasks, from, limit)).await
    }

    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        answered(log::find_head(&self.log, tenant)).await
    }

    async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        answered(log::find_log(&self.log, log_id)).await
    }

    async fn settle_log(&self, tenant: &TenantId) -> Result<()> {
        match &self.apart {
            Some(apart) => answered(apart.settled(tenant)).await,
            None => Ok(()),
        }
    }

    async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64> {
        match &self.apart {
            Some(apart) => answered(apart.settle_in_doubt(seen)).await,
            None => Ok(0),
        }
    }

    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        answered(log::list_unrecorded(self, tenant)).await
    }
}

#[async_trait]
impl OutboxStore for PostgresStore {
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        answered(claims::list_due_receivers(&self.pool, mode, now, limit)).await
    }

    async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        answered(claims::list_due_among(&self.pool, receivers, now)).await
    }

    async fn list_queued(&self, task: &TaskKey, limit: i64) -> Result<Vec<OutboxRow>> {
        answered(outbox::list_queued(self, task, limit)).await
    }

    async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        answered(claims::list_waiting(&self.pool, receiver, now, limit)).await
    }

    async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        answered(claims::list_unpulled(&self.pool, before, now, limit)).await
    }

    async fn notify(&self) -> Result<()> {
        answered(wakeups::notify(&self.pool)).await
    }

    async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        answered(wakeups::listen(self.servers.current().clone())).await
    }

    async fn claim(
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

    async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        answered(claims::claim_returns(&self.pool, receiver, now, until, limit)).await
    }

    async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        answered(claims::beat(&self.pool, broker, now)).await
    }

    async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>> {
        answered(brokers::list(self)).await
    }

    async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        answered(claims::list_clock_offsets(&self.pool)).await
    }

    async fn list_strangers(&self) -> Result<Vec<String>> {
        answered(claims::list_strangers(&self.pool)).await
    }

    async fn list_claims(&self, broker: &str) -> Result<Vec<ClaimKey>> {
        answered(outbox::list_claims(self, broker)).await
    }

    async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        answered(claims::release(&self.pool, whose)).await
    }
}

#[async_trait]
impl ErasureStore for PostgresStore {
    async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>> {
        answered(erasure::list_held(self, tenant, subject_id, after, limit)).await
    }

    async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>> {
        answered(erasures::find(self, key)).await
    }

    async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>> {
        answered(erasures::list(self, tenant, subject_key)).await
    }

    async fn list_newest_erasures(
        &self,
        tenant: &TenantId,
        before: Option<ErasureId>,
        limit: i64,
    ) -> Result<Vec<ErasureRow>> {
        answered(erasures::list_newest(self, tenant, before, limit)).await
    }

    async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>> {
        answered(erasures::list_unfinished(self, cutoff)).await
    }

    async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>> {
        answered(holds::find(self, key)).await
    }

    async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>> {
        answered(holds::list(self, tenant, subject_key, after, limit)).await
    }

    async fn scrub(&self) -> Result<ScrubOutcome> {
        erasure::scrub(self.servers.current()).await
    }
}

#[async_trait]
impl DirectoryStore for PostgresStore {
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
        answered(log::ensure_tenant(&self.pool, &self.log, tenant, log_id, at)).await
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        answered(tenants::list(self)).await
    }

    async fn list_named_tenants(&self) -> Result<Vec<TenantId>> {
        answered(log::list_named_tenants(&self.pool, &self.log)).await
    }

    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        answered(api_keys::find(self, hash)).await
    }

    async fn note_key_use(&self, hash: &[u8], now: Micros) -> Result<()> {
        answered(api_keys::note_use(self, hash, now)).await
    }

    async fn list_key_uses(&self, tenant: &TenantId) -> Result<HashMap<String, Micros>> {
        answered(api_keys::list_uses(self, tenant)).await
    }

    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        answered(api_keys::list(self, tenant)).await
    }

    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        answered(agents::list(self, tenant)).await
    }

    async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64> {
        answered(agents::count_changes(self, tenant)).await
    }

    async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>> {
        answered(agents::list_changed(self, tenant, after)).await
    }
}
