//! The in-memory store for tests: the simulation opens tens of thousands of them. Stored data behaves as in the other
//! two stores, and `tests/store/` runs the same suite on it. Data that no task, handoff or record needs
//! (subscriptions, contracts, caps, erasures, the cold tier) is refused instead of lost.
//!
//! A batch is one critical section: it is loaded, planned, checked and applied under one lock, so it is
//! serialisable, and applied as a whole or not at all. A [`StoreLine`] in front makes it slow, lost or late.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::{
    AgentRow, BatchState, CheckpointCursor, CheckpointPlace, CheckpointRow, ClaimKey, ClaimRelease,
    Cursor, DeadLetterFilter, DeadLetterRow, DeliveryClaim, Depths, EscalationFilter,
    EscalationKey, HandoffFilter, HandoffKey, KeyRow, Needs, OutboxRow, ReceiverKey, RecordWindow,
    Result, ReturnRow, RunKey, SealChange, StoreError, StoredContent, StoredRecord, TaskFilter,
    TaskKey, Wakeups, Writes,
};
use async_trait::async_trait;
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{CheckpointRef, DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, ContentId, Micros, TaskId, TenantId};
use handoffd_domain::progress::Edge;
use handoffd_domain::task::Task;
use handoffd_evidence::append::AppendedRecords;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, RecordKind, SealedRecord};
use tokio::sync::broadcast;

mod absent;
mod kept;
mod log;
mod opinions;
mod outbox;
mod reads;
mod streams;
mod tables;

use tables::Tables;

/// The connection between a broker and the store. The simulation's one fails; the default one does not.
#[async_trait]
pub trait StoreLine: Send + Sync {
    /// Called before a request; with an error the request does not reach the store.
    async fn asked(&self, _what: &'static str) -> Result<()> {
        Ok(())
    }
    /// Whether this batch conflicts with a concurrent writer.
    fn collides(&self) -> bool {
        false
    }
    /// Called after an effect, under the store's lock.
    fn done(&self, _what: StoreEffect<'_>) {}
    /// Called before the answer; with an error the answer is lost.
    async fn answered(&self, _what: &'static str) -> Result<()> {
        Ok(())
    }
}

/// An effect of a store visible to others.
#[derive(Debug, Clone, Copy)]
pub enum StoreEffect<'a> {
    /// A batch was written.
    Wrote(&'a Writes),
    /// A broker claimed handoffs.
    Claimed(&'a str, &'a [DeliveryClaim], Micros),
    /// Claims were released; the handoffs they were on.
    Released(ClaimRelease<'a>, &'a [HandoffKey]),
    /// A broker wrote its heartbeat.
    Beat(&'a str),
}

/// A connection without failures.
struct SoundLine;

impl StoreLine for SoundLine {}

/// A store whose data ends with its process. Handles share the tables; each has its own line.
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    told: broadcast::Sender<()>,
    line: Arc<dyn StoreLine>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { tables: Arc::default(), told: broadcast::Sender::new(1), line: Arc::new(SoundLine) }
    }
}

impl MemoryStore {
    /// A handle on the same store over a line without failures.
    #[must_use]
    pub fn sound(&self) -> Self {
        self.over(Arc::new(SoundLine))
    }

    /// A handle on the same store over another line.
    #[must_use]
    pub fn over(&self, line: Arc<dyn StoreLine>) -> Self {
        Self { tables: Arc::clone(&self.tables), told: self.told.clone(), line }
    }

    /// Runs `act` as one critical section, between the line's two calls.
    async fn ask<T>(
        &self,
        what: &'static str,
        act: impl FnOnce(&mut Tables) -> Result<T> + Send,
    ) -> Result<T> {
        self.line.asked(what).await?;
        // A plan that panics has changed nothing.
        let answer = act(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner));
        self.line.answered(what).await?;
        answer
    }
}

/// The refusal of a query that this store does not implement.
pub(super) fn absent<T>() -> Result<T> {
    Err(StoreError::Refused("not kept in memory".to_owned()))
}

struct MemoryWakeups(broadcast::Receiver<()>);

#[async_trait]
impl Wakeups for MemoryWakeups {
    async fn next(&mut self) -> Result<()> {
        match self.0.recv().await {
            Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
            Err(broadcast::error::RecvError::Closed) => {
                Err(StoreError::Unavailable("the store is gone".to_owned()))
            }
        }
    }
}

impl MemoryStore {
    pub(in crate::store) async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
    ) -> Result<AppendedRecords> {
        self.ask("transact", |tables| {
            let writes = plan(tables.load(needs));
            if self.line.collides() {
                return Err(StoreError::Conflict("another writer was first".to_owned()));
            }
            let appended = tables.apply(&writes)?;
            self.line.done(StoreEffect::Wrote(&writes));
            Ok(appended)
        })
        .await
    }

    pub(in crate::store) async fn count_open(
        &self,
        tenant: &TenantId,
    ) -> Result<HashMap<AgentId, i64>> {
        self.ask("count_open", |tables| Ok(tables.count_open(tenant))).await
    }

    pub(in crate::store) async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        self.ask("find_handoff", |tables| Ok(tables.handoffs.get(key).cloned())).await
    }

    pub(in crate::store) async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        self.ask("list_handoffs", |tables| Ok(tables.list_handoffs(tenant, filter, after, limit)))
            .await
    }

    pub(in crate::store) async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        self.ask("find_task", |tables| Ok(tables.tasks.get(key).cloned())).await
    }

    pub(in crate::store) async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        self.ask("list_tasks", |tables| Ok(tables.list_tasks(tenant, filter, after, limit))).await
    }

    pub(in crate::store) async fn find_content(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<StoredContent>> {
        self.ask("find_content", |tables| Ok(tables.find_content(tenant, id))).await
    }

    pub(in crate::store) async fn find_checkpoint(
        &self,
        run: &RunKey,
        agent: Option<&AgentId>,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        self.ask("find_checkpoint", |tables| Ok(tables.find_checkpoint(run, agent, seq))).await
    }

    pub(in crate::store) async fn list_checkpoints_at(
        &self,
        at: &[(RunKey, i64)],
    ) -> Result<Vec<CheckpointRow>> {
        self.ask("list_checkpoints_at", |tables| {
            let found =
                at.iter().filter_map(|(run, seq)| tables.find_checkpoint(run, None, Some(*seq)));
            Ok(found.collect())
        })
        .await
    }

    pub(in crate::store) async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        self.ask("list_dead_letters", |tables| {
            Ok(tables.list_dead_letters(tenant, filter, after, limit))
        })
        .await
    }

    pub(in crate::store) async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>> {
        self.ask("list_edges", |tables| Ok(tables.edges_of(key).cloned().collect())).await
    }

    pub(in crate::store) async fn find_escalation(
        &self,
        key: &EscalationKey,
    ) -> Result<Option<Escalation>> {
        self.ask("find_escalation", |tables| Ok(tables.escalations.get(key).cloned())).await
    }

    pub(in crate::store) async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        self.ask("list_escalations", |tables| {
            Ok(tables.list_escalations(tenant, filter, after, limit))
        })
        .await
    }

    pub(in crate::store) async fn list_overdue_escalations(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        self.ask("list_overdue_escalations", |tables| {
            Ok(tables.list_overdue_escalations(now, limit))
        })
        .await
    }

    pub(in crate::store) async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>> {
        self.ask("list_checkpoints", |tables| Ok(tables.list_checkpoints(key, agent, after, limit)))
            .await
    }

    pub(in crate::store) async fn list_checkpoint_places(
        &self,
        key: &TaskKey,
        after: Option<CheckpointRef>,
        limit: i64,
    ) -> Result<Vec<CheckpointPlace>> {
        self.ask("list_checkpoint_places", |tables| {
            Ok(tables.list_checkpoint_places(key, after, limit))
        })
        .await
    }

    pub(in crate::store) async fn list_personal_data(
        &self,
        key: &HandoffKey,
    ) -> Result<Vec<Vec<u8>>> {
        self.ask("list_personal_data", |tables| tables.personal_of(&key.0, key.1)).await
    }

    pub(in crate::store) async fn find_dead_letter(
        &self,
        key: &HandoffKey,
    ) -> Result<Option<DeadLetterRow>> {
        self.ask("find_dead_letter", |tables| Ok(tables.dead_letters.get(key).cloned())).await
    }

    pub(in crate::store) async fn list_overdue(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        self.ask("list_overdue", |tables| Ok(tables.list_overdue(now, limit))).await
    }

    pub(in crate::store) async fn forget_refused_tasks(&self, before: Micros) -> Result<u64> {
        self.ask("forget_refused_tasks", |tables| Ok(tables.forget_refused_tasks(before))).await
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

    pub(in crate::store) async fn catch_up_trees(&self) -> Result<()> {
        Ok(())
    }

    pub(in crate::store) async fn find_receipt(
        &self,
        key: &HandoffKey,
    ) -> Result<Option<SealedRecord>> {
        self.ask("find_receipt", |tables| Ok(tables.find_receipt(key))).await
    }

    pub(in crate::store) async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        self.ask("find_last_commit", |tables| Ok(tables.find_last_commit(key, task))).await
    }

    pub(in crate::store) async fn find_opinion(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        self.ask("find_opinion", |tables| Ok(tables.find_opinion(key, task))).await
    }

    pub(in crate::store) async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        self.ask("list_records", |tables| {
            let of = |own, _| task.is_none() || own == task;
            Ok(tables.list_records(tenant, of, from, limit, contents))
        })
        .await
    }

    pub(in crate::store) async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        self.ask("list_state_records", |tables| {
            let of = |_, kind| RecordKind::ABOUT_STATE.contains(&kind);
            Ok(tables.list_records(tenant, of, from, limit, true))
        })
        .await
    }

    pub(in crate::store) async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        self.ask("list_newest_records", |tables| {
            let of = |own, _| own == Some(task);
            let most = i64::MAX;
            let mut records = tables.list_records(tenant, of, window.at_least, most, true);
            records.retain(|record| window.has(record));
            records.reverse();
            records.truncate(usize::try_from(limit).unwrap_or(0));
            Ok(records)
        })
        .await
    }

    pub(in crate::store) async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        self.ask("list_task_records", |tables| {
            let of = |own: Option<TaskId>, _| own.is_some_and(|own| tasks.contains(&own));
            Ok(tables.list_records(tenant, of, from, limit, false))
        })
        .await
    }

    pub(in crate::store) async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        self.ask("find_head", |tables| Ok(tables.logs.get(tenant).map(|log| log.head.clone())))
            .await
    }

    pub(in crate::store) async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        self.ask("find_log", |tables| {
            let found = tables.logs.iter().find(|(_, log)| log.head.log_id == log_id);
            Ok(found.map(|(tenant, _)| tenant.clone()))
        })
        .await
    }

    pub(in crate::store) async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        self.ask("list_hashes", |tables| Ok(tables.list_hashes(tenant, level, from, limit))).await
    }

    pub(in crate::store) async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        self.ask("list_unrecorded", |tables| Ok(tables.list_unrecorded(tenant))).await
    }

    pub(in crate::store) async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        self.ask("list_due_receivers", |tables| Ok(tables.list_due_receivers(mode, now, limit)))
            .await
    }

    pub(in crate::store) async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        self.ask("list_due_among", |tables| Ok(tables.list_due_among(receivers, now))).await
    }

    pub(in crate::store) async fn list_queued(
        &self,
        task: &TaskKey,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        self.ask("list_queued", |tables| Ok(tables.list_queued(task, limit))).await
    }

    pub(in crate::store) async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        self.ask("list_waiting", |tables| Ok(tables.list_waiting(receiver, now, limit))).await
    }

    pub(in crate::store) async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        self.ask("list_unpulled", |tables| Ok(tables.list_unpulled(before, now, limit))).await
    }

    pub(in crate::store) async fn notify(&self) -> Result<()> {
        self.ask("notify", |_| {
            // The channel may have no listener.
            let _ = self.told.send(());
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        let hearing = |_: &mut Tables| Ok(MemoryWakeups(self.told.subscribe()));
        Ok(Box::new(self.ask("listen", hearing).await?))
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
        self.ask("claim", |tables| {
            let claims = tables.claim(receiver, mode, broker, now, until, limit)?;
            self.line.done(StoreEffect::Claimed(broker, &claims, until));
            Ok(claims)
        })
        .await
    }

    pub(in crate::store) async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        self.ask("claim_returns", |tables| Ok(tables.claim_returns(receiver, now, until, limit)))
            .await
    }

    pub(in crate::store) async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        self.ask("beat", |tables| {
            tables.beat(broker, now);
            self.line.done(StoreEffect::Beat(broker));
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>> {
        self.ask("list_heartbeats", |tables| {
            Ok(tables.brokers.iter().map(|(name, at)| (name.clone(), *at)).collect())
        })
        .await
    }

    pub(in crate::store) async fn list_strangers(&self) -> Result<Vec<String>> {
        self.ask("list_strangers", |tables| Ok(tables.list_strangers())).await
    }

    pub(in crate::store) async fn list_claims(&self, broker: &str) -> Result<Vec<ClaimKey>> {
        self.ask("list_claims", |tables| Ok(tables.list_claims(broker))).await
    }

    pub(in crate::store) async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        self.ask("release", |tables| {
            let freed = tables.release(whose);
            self.line.done(StoreEffect::Released(whose, &freed));
            Ok(freed.len() as u64)
        })
        .await
    }

    pub(in crate::store) async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        Ok(Vec::new())
    }

    pub(in crate::store) async fn ensure_tenant(
        &self,
        tenant: &TenantId,
        log_id: &str,
        _at: Micros,
    ) -> Result<()> {
        self.ask("ensure_tenant", |tables| {
            tables.ensure_tenant(tenant, log_id);
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        self.ask("list_tenants", |tables| Ok(tables.logs.keys().cloned().collect())).await
    }

    pub(in crate::store) async fn list_named_tenants(&self) -> Result<Vec<TenantId>> {
        self.list_tenants().await
    }

    pub(in crate::store) async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        self.ask("find_key", |tables| {
            Ok(tables.keys.values().find(|row| row.hash == hash).cloned())
        })
        .await
    }

    pub(in crate::store) async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        self.ask("list_keys", |tables| Ok(tables.list_keys(tenant))).await
    }

    pub(in crate::store) async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        self.ask("list_agents", |tables| {
            Ok(tables.agents.values().filter(|row| row.tenant == *tenant).cloned().collect())
        })
        .await
    }

    pub(in crate::store) async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64> {
        self.ask("count_agent_changes", |tables| Ok(tables.count_agent_changes(tenant))).await
    }

    pub(in crate::store) async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>> {
        self.ask("list_changed_agents", |tables| Ok(tables.list_changed_agents(tenant, after)))
            .await
    }

    pub(in crate::store) async fn note_key_use(&self, hash: &[u8], now: Micros) -> Result<()> {
        let _ = (hash, now);
        Ok(())
    }

    pub(in crate::store) async fn list_key_uses(
        &self,
        tenant: &TenantId,
    ) -> Result<HashMap<String, Micros>> {
        let _ = tenant;
        Ok(HashMap::new())
    }

    pub(in crate::store) async fn inspect(&self) -> Result<crate::store::SchemaState> {
        Ok(crate::store::SchemaState::default())
    }

    pub(in crate::store) async fn migrate(&self) -> Result<usize> {
        Ok(0)
    }

    pub(in crate::store) async fn grant_serving(&self, _role: &str) -> Result<()> {
        Err(StoreError::Refused("memory has no roles".to_owned()))
    }

    pub(in crate::store) async fn ping(&self) -> Result<()> {
        Ok(())
    }

    pub(in crate::store) async fn probe_write(&self, _broker: &str, _now: Micros) -> Result<()> {
        self.ask("probe_write", |_| Ok(())).await
    }

    pub(in crate::store) async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        self.ask("settle_fact", |tables| {
            Ok(tables.facts.entry(name.to_owned()).or_insert_with(|| value.to_vec()).clone())
        })
        .await
    }

    pub(in crate::store) async fn find_fact(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.ask("find_fact", |tables| Ok(tables.facts.get(name).cloned())).await
    }

    pub(in crate::store) async fn change_seals(
        &self,
        _change: SealChange<'_>,
        _facts: &[(&str, Vec<u8>)],
    ) -> Result<u64> {
        Err(StoreError::Refused("the store of tests keeps no master key".to_owned()))
    }

    pub(in crate::store) async fn depths(&self, _idle_since: Micros) -> Result<Depths> {
        self.ask("depths", |tables| Ok(tables.depths())).await
    }

    pub(in crate::store) async fn tend(&self) -> Result<bool> {
        Ok(false)
    }
}
