//! The data a batch loads, the state found, and the changes it writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::erasure::{
    ErasureKey, ErasureNeeds, ErasureRow, ErasureState, ErasureWrite, HoldKey, HoldRow,
};
use crate::store::{
    AgentKey, AgentRow, CheckpointRow, DeadLetterRow, EdgeKey, EscalationKey, HandoffKey,
    IdempotencyKey, IdempotencyRow, KeyRow, NewRow, OutboxRow, RefusedTaskKey, RefusedTaskRow,
    ReturnRow, RunKey, TaskKey, attempts, contracts, events, schemas, streams,
};
use handoffd_domain::cap::{Cap, CapKey, CapScope};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::event::Event;
use handoffd_domain::funds::Reservation;
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TenantId};
use handoffd_domain::lineage::reached;
use handoffd_domain::progress::Edge;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::record::RecordDraft;

/// The rows that a batch of commands must load before it can be planned.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Tasks, locked. An escalated task is loaded with its open escalation.
    pub tasks: BTreeSet<TaskKey>,
    /// Handoffs with their outbox rows; guarded by their task's lock. Their fallback agents are loaded too,
    /// unlocked.
    pub handoffs: BTreeSet<HandoffKey>,
    /// Accepted handoffs: for each, the handoff under which its sender holds the task is loaded too.
    pub accepted: BTreeSet<(TaskKey, HandoffId)>,
    /// Task, sender, and the parent handoff that the sender names. Unless that parent is one of the task's
    /// handoffs to the sender, all those handoffs are loaded.
    pub lineage: BTreeSet<(TaskKey, AgentId, Option<HandoffId>)>,
    /// Tasks whose edges are loaded; guarded by the task's lock.
    pub edges: BTreeSet<TaskKey>,
    /// Tasks whose open handoffs (with outbox rows) and open escalation are loaded; guarded by the task's lock.
    pub open: BTreeSet<TaskKey>,
    /// Dead letters; guarded by their task's lock.
    pub dead_letters: BTreeSet<HandoffKey>,
    /// Runs whose last checkpoint is loaded, and the agent whose own last one is loaded too.
    pub runs: BTreeSet<(RunKey, AgentId)>,
    /// Uses of an `Idempotency-Key`.
    pub idempotency: BTreeSet<IdempotencyKey>,
    /// Agents, locked.
    pub agents: BTreeSet<AgentKey>,
    /// Keys by id, locked.
    pub keys: BTreeSet<(TenantId, String)>,
    /// Subscriptions, locked.
    pub subscriptions: BTreeSet<events::SubscriptionKey>,
    pub contracts: BTreeSet<contracts::ContractKey>,
    /// Payload schemas, in all their versions.
    pub payload_schemas: BTreeSet<schemas::PayloadSchemaKey>,
    /// Refused submissions on tasks that do not exist, locked.
    pub refused_tasks: BTreeSet<RefusedTaskKey>,
    /// Last uses of dedupe keys, locked.
    pub repeats: BTreeSet<contracts::RepeatKey>,
    /// Tenants whose caps are loaded, with agents that receive or spend: the agents' caps, the tenant's, and
    /// those of every agent with money on a loaded task. Locked last of all.
    pub caps: BTreeMap<TenantId, BTreeSet<AgentId>>,
    /// Further caps, locked.
    pub cap_scopes: BTreeSet<CapScope>,
    /// Second opinions that are recorded; their rows are locked.
    pub opinions: BTreeSet<HandoffKey>,
    /// Needs for data subjects, erasures and legal holds.
    pub erasure: ErasureNeeds,
}

impl Needs {
    /// Tasks that may have edges: a task that was not found has none.
    pub(in crate::store) fn edges_beside<'a>(&'a self, state: &BatchState) -> Vec<&'a TaskKey> {
        let missing = |key: &TaskKey| self.tasks.contains(key) && !state.tasks.contains_key(key);
        self.edges.iter().filter(|key| !missing(key)).collect()
    }

    /// The requested handoffs, and those under which the senders of accepted handoffs hold their tasks. If a person is
    /// asked, the task's other open handoffs too: an acceptance that ends this starts their leases anew.
    #[must_use]
    pub fn handoffs_beside(&self, state: &BatchState) -> BTreeSet<HandoffKey> {
        let incoming = self.accepted.iter().filter_map(|(task, handoff)| {
            let funds = state.tasks.get(task)?.funds.as_deref()?;
            // Under which the sender of this one holds the task, and who waits for its return.
            // An acceptance and completion in one ends the first, and resumes the one above it.
            let first = funds.incoming(*handoff).or_else(|| funds.above(*handoff));
            let beside = [first, first.and_then(|id| funds.above(id))];
            Some(beside.into_iter().flatten().map(|id| (task.0.clone(), id)))
        });
        let incoming = incoming.flatten();
        let suspended = self.accepted.iter().filter_map(|(key, _)| {
            let task = state.tasks.get(key)?;
            let funds = task.funds.as_deref().filter(|_| task.status == TaskStatus::Escalated)?;
            Some(funds.open_handoffs().map(|id| (key.0.clone(), id)))
        });
        let suspended = suspended.flatten();
        let branches = self.branches_beside(state);
        self.handoffs.iter().cloned().chain(incoming).chain(suspended).chain(branches).collect()
    }

    /// The open branches of groups that the accepted handoffs would end, if all of them were completed.
    fn branches_beside(&self, state: &BatchState) -> Vec<HandoffKey> {
        let mut completed: BTreeMap<&TaskKey, Vec<HandoffId>> = BTreeMap::new();
        for (task, handoff) in &self.accepted {
            completed.entry(task).or_default().push(*handoff);
        }
        let group = |task: &TaskKey| state.tasks.get(task)?.course.open_group();
        let ended = completed.iter().filter_map(|(task, ids)| Some((task, group(task)?, ids)));
        let keys = ended.flat_map(|(task, group, ids)| {
            group.withdrawn_by(ids).into_iter().map(|id| (task.0.clone(), id))
        });
        keys.collect()
    }

    /// Agent and task pairs whose received handoffs must still be loaded after tasks and handoffs. A new task has
    /// none, and a valid parent needs no others.
    #[must_use]
    pub fn lineage_beside(&self, state: &BatchState) -> Vec<(&TaskKey, &AgentId)> {
        let open = |(task, agent, parent): &&(TaskKey, AgentId, Option<HandoffId>)| {
            let begun = state.tasks.get(task).is_some_and(|task| task.handoffs > 0);
            let fits = parent
                .and_then(|id| state.handoffs.get(&(task.0.clone(), id)))
                .is_some_and(|parent| parent.task_id == task.1 && reached(parent, agent));
            begun && !fits
        };
        self.lineage.iter().filter(open).map(|(task, agent, _)| (task, agent)).collect()
    }
}

impl BatchState {
    /// Escalated tasks whose open escalation was not requested: the escalation is loaded with them.
    pub(in crate::store) fn escalated_beside<'a>(&'a self, needs: &Needs) -> Vec<&'a TaskKey> {
        let waits = |(key, task): &(&TaskKey, &Task)| {
            task.status == TaskStatus::Escalated && !needs.open.contains(*key)
        };
        self.tasks.iter().filter(waits).map(|(key, _)| key).collect()
    }
}

/// The rows found for a batch.
#[derive(Debug, Clone, Default)]
pub struct BatchState {
    pub tasks: BTreeMap<TaskKey, Task>,
    pub handoffs: BTreeMap<HandoffKey, Handoff>,
    /// Outbox rows that exist, by handoff.
    pub outbox: BTreeMap<HandoffKey, OutboxRow>,
    pub runs: BTreeMap<RunKey, RunState>,
    /// Uses of an `Idempotency-Key`.
    pub idempotency: BTreeMap<IdempotencyKey, IdempotencyRow>,
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Open escalations.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    pub dead_letters: BTreeMap<HandoffKey, DeadLetterRow>,
    pub agents: BTreeMap<AgentKey, AgentRow>,
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    pub subscriptions: BTreeMap<events::SubscriptionKey, events::SubscriptionRow>,
    /// Versions of contracts that exist.
    pub contracts: BTreeMap<contracts::ContractKey, contracts::ContractRow>,
    /// Versions of payload schemas that exist.
    pub payload_schemas: BTreeMap<schemas::PayloadSchemaVersion, schemas::PayloadSchemaRow>,
    /// Refused submissions on tasks that do not exist.
    pub refused_tasks: BTreeMap<RefusedTaskKey, RefusedTaskRow>,
    /// Last uses of dedupe keys.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    pub caps: BTreeMap<CapKey, Cap>,
    /// The cap scopes that were searched.
    pub cap_scopes: BTreeSet<CapScope>,
    /// Attempts at the second opinions that are due.
    pub opinions: BTreeMap<HandoffKey, i32>,
    /// State of data subjects, erasures and legal holds.
    pub erasure: ErasureState,
}

impl BatchState {
    /// Fallback agents of the loaded handoffs that are not loaded yet.
    #[must_use]
    pub fn fallbacks(&self) -> BTreeSet<AgentKey> {
        self.handoffs
            .values()
            .filter_map(|handoff| handoff.ruling.as_ref().map(|ruling| (&handoff.tenant, ruling)))
            .flat_map(|(tenant, ruling)| {
                ruling.fallbacks().into_iter().map(|id| (tenant.clone(), id))
            })
            .filter(|key| !self.agents.contains_key(key))
            .collect()
    }

    /// The cap scopes a batch must load, computed after everything else is loaded: a reservation names its caps,
    /// so they are included even where no command needs that tenant's caps.
    #[must_use]
    pub fn charged(&self, needs: &Needs) -> BTreeSet<CapScope> {
        let reserves: Vec<(&TenantId, &Reservation)> = self
            .tasks
            .values()
            .filter_map(|task| Some((&task.tenant, task.funds.as_deref()?)))
            .flat_map(|(tenant, funds)| funds.reserves.iter().map(move |one| (tenant, one)))
            .collect();
        let mut tenants: BTreeSet<&TenantId> = needs.caps.keys().collect();
        let marked = reserves.iter().filter(|(_, one)| !one.marks.is_empty());
        tenants.extend(marked.map(|(tenant, _)| *tenant));
        let mut scopes = needs.cap_scopes.clone();
        for tenant in tenants {
            let asked = needs.caps.get(tenant).into_iter().flatten();
            let parties = self.handoffs.values().filter(|one| one.tenant == *tenant);
            let held = reserves.iter().filter(|(own, _)| *own == tenant);
            let agents = asked
                .chain(held.map(|(_, one)| &one.holder))
                .chain(parties.flat_map(|one| [&one.source, &one.target]))
                .chain(self.agents.keys().filter(|key| key.0 == *tenant).map(|key| &key.1));
            scopes.insert((tenant.clone(), None));
            scopes.extend(agents.map(|agent| (tenant.clone(), Some(agent.clone()))));
        }
        scopes
    }
}

/// An agent's last checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCheckpoint {
    pub seq: i64,
    /// The commitment in records.
    pub commitment: [u8; 32],
}

/// The rows stored under a run's id on a task. Agents that use the same id have a run each, so a guessed id binds
/// no other agent. They share the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunState {
    /// The highest number in use.
    highest: i64,
    /// The last checkpoint of each agent that was asked for.
    lasts: BTreeMap<AgentId, LastCheckpoint>,
}

impl RunState {
    /// Takes a checkpoint in; an agent's highest number is its last one.
    pub fn add(&mut self, agent: AgentId, checkpoint: LastCheckpoint) {
        self.highest = self.highest.max(checkpoint.seq);
        let last = self.lasts.entry(agent).or_insert(checkpoint);
        if last.seq < checkpoint.seq {
            *last = checkpoint;
        }
    }

    /// The agent's own last checkpoint.
    #[must_use]
    pub fn last(&self, agent: &AgentId) -> Option<&LastCheckpoint> {
        self.lasts.get(agent)
    }

    /// The number of the next checkpoint.
    #[must_use]
    pub const fn next(&self) -> i64 {
        self.highest + 1
    }
}

/// The changes of a batch. New rows are inserted (a collision is a [`Conflict`](super::StoreError::Conflict)), known
/// rows updated.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Tasks by key; `true` where the row is new.
    pub tasks: BTreeMap<TaskKey, (Task, bool)>,
    /// Tasks of this batch whose budget is unchanged: that column is not written.
    pub same_budget: BTreeSet<TaskKey>,
    /// Handoffs by key; `true` where the row is new.
    pub handoffs: BTreeMap<HandoffKey, (Handoff, bool)>,
    /// Outbox rows by handoff: `Some` upserts, `None` deletes.
    pub outbox: BTreeMap<HandoffKey, Option<OutboxRow>>,
    /// Returns in inboxes, by the completed handoff: `Some` to have it so, `None` to have it gone.
    pub returns: BTreeMap<HandoffKey, Option<ReturnRow>>,
    /// New numbers of streams.
    pub chunks: Vec<streams::ChunkRow>,
    /// New streams that go out by webhook.
    pub stream_lines: Vec<HandoffKey>,
    pub checkpoints: Vec<CheckpointRow>,
    /// New uses of an `Idempotency-Key`.
    pub idempotency: Vec<IdempotencyRow>,
    /// Dead letters: new, or resolved.
    pub dead_letters: Vec<DeadLetterRow>,
    /// Edges of tasks after the batch.
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Escalations: new, or resolved.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    /// Agents by key; `None` deletes.
    pub agents: BTreeMap<AgentKey, Option<AgentRow>>,
    /// Keys by id: new, or changed.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// New delivery mode for an agent's unclaimed outbox rows, visible at the given time: a pause between
    /// attempts belonged to the old endpoint. Claimed rows are unchanged.
    pub retargets: BTreeMap<AgentKey, (DeliveryMode, Micros)>,
    /// Legal holds by id: new, or changed.
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// Erasures by id: new, or changed.
    pub erasures: BTreeMap<ErasureKey, ErasureRow>,
    /// Data to erase, each with its record in `records`.
    pub erased: Vec<ErasureWrite>,
    /// Records to append, in order.
    pub records: Vec<RecordDraft>,
    /// Events, each with the index of its record among `records`.
    pub events: Vec<(usize, Event)>,
    /// Subscriptions by key; `None` deletes.
    pub subscriptions: BTreeMap<events::SubscriptionKey, Option<events::SubscriptionRow>>,
    /// New versions of contracts.
    pub contracts: Vec<contracts::ContractRow>,
    /// New versions of payload schemas.
    pub payload_schemas: Vec<schemas::PayloadSchemaRow>,
    /// Refused submissions on tasks that do not exist: new, or changed.
    pub refused_tasks: BTreeMap<RefusedTaskKey, RefusedTaskRow>,
    /// Last uses of dedupe keys: new, or changed.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    /// Caps by key: new, or changed; `None` deletes.
    pub caps: BTreeMap<CapKey, Option<Cap>>,
    /// Changes of subscribers' cursors, in order.
    pub cursors: Vec<events::CursorWrite>,
    /// Second opinions by handoff: `Some` inserts one that is due from then on, `None` deletes.
    pub opinions: BTreeMap<HandoffKey, Option<Micros>>,
    /// New rows of tables that no batch reads.
    pub rows: Vec<NewRow>,
    /// Attempts at handoffs, by the handoff and the place in its ring.
    pub attempts: BTreeMap<(HandoffKey, i32), attempts::AttemptRow>,
}
