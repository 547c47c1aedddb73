//! What a batch must see, what was found, and what it changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::cap::{Cap, CapKey, Scope};
use crate::domain::escalation::Escalation;
use crate::domain::event::Event;
use crate::domain::funds::Reserve;
use crate::domain::handoff::{DeliveryMode, Handoff};
use crate::domain::ids::{AgentId, HandoffId, Micros, TenantId};
use crate::domain::lineage::reached;
use crate::domain::progress::Edge;
use crate::domain::task::{Task, TaskStatus};
use crate::evidence::record::Draft;
use crate::store::erasure::{
    Erase, ErasureKey, ErasureNeeds, ErasureRow, ErasureState, HoldKey, HoldRow,
};
use crate::store::{
    AgentKey, AgentRow, CheckpointRow, DeadLetterRow, EdgeKey, EscalationKey, HandoffKey,
    IdempotencyKey, IdempotencyRow, KeyRow, OutboxRow, RefusedTaskKey, RefusedTaskRow, ReturnRow,
    RunKey, TaskKey, contracts, events, schemas,
};

/// What a batch of commands must see before it can be planned.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Tasks, locked. One that is escalated comes with its open escalation.
    pub tasks: BTreeSet<TaskKey>,
    /// Handoffs with their outbox rows; guarded by their task's lock. The agents that one falls back
    /// to come with it, unlocked.
    pub handoffs: BTreeSet<HandoffKey>,
    /// Handoffs that are accepted: that by which the sender of one holds the task comes with it.
    pub accepted: BTreeSet<(TaskKey, HandoffId)>,
    /// Who hands on which task, and what it names as the handoff that it follows. Unless that is one of the
    /// task that reached the sender, those that did are needed.
    pub lineage: BTreeSet<(TaskKey, AgentId, Option<HandoffId>)>,
    /// Tasks whose edges are needed; guarded by the task's lock.
    pub edges: BTreeSet<TaskKey>,
    /// Tasks whose open handoffs (with their outbox rows) and open escalation are needed; guarded by
    /// the task's lock.
    pub open: BTreeSet<TaskKey>,
    /// Dead letters; guarded by their task's lock.
    pub dead_letters: BTreeSet<HandoffKey>,
    /// The last checkpoint of a run.
    pub runs: BTreeSet<RunKey>,
    /// What an `Idempotency-Key` was used for.
    pub idempotency: BTreeSet<IdempotencyKey>,
    /// Agents, locked.
    pub agents: BTreeSet<AgentKey>,
    /// Keys by id, locked.
    pub keys: BTreeSet<(TenantId, String)>,
    /// Subscriptions, locked.
    pub subscriptions: BTreeSet<events::SubscriptionKey>,
    /// Versions of contracts.
    pub contracts: BTreeSet<contracts::ContractKey>,
    /// Payload schemas, in all their versions.
    pub payload_schemas: BTreeSet<schemas::PayloadSchemaKey>,
    /// Refused submissions on tasks that do not exist, locked.
    pub refused_tasks: BTreeSet<RefusedTaskKey>,
    /// What dedupe keys were seen with, locked.
    pub repeats: BTreeSet<contracts::RepeatKey>,
    /// Tenants whose caps are needed, with agents that get or spend something: theirs, the tenant's, and
    /// those of whoever has money on a task that is found; locked, last of all.
    pub caps: BTreeMap<TenantId, BTreeSet<AgentId>>,
    /// Caps that are needed besides, locked.
    pub cap_scopes: BTreeSet<Scope>,
    /// Data subjects, erasures, legal holds.
    pub erasure: ErasureNeeds,
}

impl Needs {
    /// Tasks that may have edges: one that was looked for and does not exist has none.
    pub(in crate::store) fn edges_beside<'a>(&'a self, state: &State) -> Vec<&'a TaskKey> {
        let missing = |key: &TaskKey| self.tasks.contains(key) && !state.tasks.contains_key(key);
        self.edges.iter().filter(|key| !missing(key)).collect()
    }

    /// The handoffs that are asked for by name, and those under which the senders of accepted ones hold
    /// their tasks, which are loaded before.
    #[must_use]
    pub fn handoffs_beside(&self, state: &State) -> BTreeSet<HandoffKey> {
        let incoming = self.accepted.iter().filter_map(|(task, handoff)| {
            let funds = state.tasks.get(task)?.funds.as_deref()?;
            // Under which the sender of this one holds the task, and who waits for its return.
            let beside = [funds.incoming(*handoff), funds.above(*handoff)];
            Some(beside.into_iter().flatten().map(|id| (task.0.clone(), id)))
        });
        let incoming = incoming.flatten();
        self.handoffs.iter().cloned().chain(incoming).collect()
    }

    /// Whose received handoffs of which task must be looked for, once tasks and handoffs are loaded: nothing
    /// reached anyone on a task that begins, and a parent that fits needs no others beside it.
    #[must_use]
    pub fn lineage_beside(&self, state: &State) -> Vec<(&TaskKey, &AgentId)> {
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

impl State {
    /// Tasks that wait for a person, and whose open escalation was not asked for: it comes with them.
    pub(in crate::store) fn escalated_beside<'a>(&'a self, needs: &Needs) -> Vec<&'a TaskKey> {
        let waits = |(key, task): &(&TaskKey, &Task)| {
            task.status == TaskStatus::Escalated && !needs.open.contains(*key)
        };
        self.tasks.iter().filter(waits).map(|(key, _)| key).collect()
    }
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
    /// Edges of tasks.
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Open escalations.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    /// Dead letters.
    pub dead_letters: BTreeMap<HandoffKey, DeadLetterRow>,
    /// Agents that exist.
    pub agents: BTreeMap<AgentKey, AgentRow>,
    /// Keys that exist.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// Subscriptions that exist.
    pub subscriptions: BTreeMap<events::SubscriptionKey, events::SubscriptionRow>,
    /// Versions of contracts that exist.
    pub contracts: BTreeMap<contracts::ContractKey, contracts::ContractRow>,
    /// Versions of payload schemas that exist.
    pub payload_schemas: BTreeMap<schemas::PayloadSchemaVersion, schemas::PayloadSchemaRow>,
    /// Refused submissions on tasks that do not exist.
    pub refused_tasks: BTreeMap<RefusedTaskKey, RefusedTaskRow>,
    /// What dedupe keys were seen with.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    /// Caps that exist.
    pub caps: BTreeMap<CapKey, Cap>,
    /// Whose caps were looked for.
    pub cap_scopes: BTreeSet<Scope>,
    /// Data subjects, erasures, legal holds.
    pub erasure: ErasureState,
}

impl State {
    /// The agents to which handoffs here may fall back, and that are not here yet.
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

    /// Whose caps a batch must see, once everything else is here: a reserve that counts against a cap says
    /// so itself, also where nobody asks for its tenant's caps.
    #[must_use]
    pub fn charged(&self, needs: &Needs) -> BTreeSet<Scope> {
        let reserves: Vec<(&TenantId, &Reserve)> = self
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

/// What a batch changes. New rows are inserted (a collision is a
/// [`Conflict`](super::StoreError::Conflict)), known ones updated.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Tasks by key; `true` where the row is new.
    pub tasks: BTreeMap<TaskKey, (Task, bool)>,
    /// Tasks of these whose books of money are as they are kept: that column is left alone.
    pub same_books: BTreeSet<TaskKey>,
    /// Handoffs by key; `true` where the row is new.
    pub handoffs: BTreeMap<HandoffKey, (Handoff, bool)>,
    /// Outbox rows by handoff: `Some` to have it so, `None` to have it gone.
    pub outbox: BTreeMap<HandoffKey, Option<OutboxRow>>,
    /// Returns in inboxes, by the completed handoff: `Some` to have it so, `None` to have it gone.
    pub returns: BTreeMap<HandoffKey, Option<ReturnRow>>,
    /// New checkpoints.
    pub checkpoints: Vec<CheckpointRow>,
    /// New uses of an `Idempotency-Key`.
    pub idempotency: Vec<IdempotencyRow>,
    /// Dead letters: new, or decided on.
    pub dead_letters: Vec<DeadLetterRow>,
    /// Edges of tasks as they are now.
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Escalations: new, or decided on.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    /// Agents by key; `None` removes.
    pub agents: BTreeMap<AgentKey, Option<AgentRow>>,
    /// Keys by id: new, or changed.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// How what waits for an agent is delivered from now on, at once: a pause between attempts was the
    /// old endpoint's. What is claimed at that time is left alone.
    pub retargets: BTreeMap<AgentKey, (DeliveryMode, Micros)>,
    /// Legal holds by id: new, or changed.
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// Erasures by id: new, or changed.
    pub erasures: BTreeMap<ErasureKey, ErasureRow>,
    /// What goes, each with the record of it in `records`.
    pub erased: Vec<Erase>,
    /// Records to append, in order.
    pub records: Vec<Draft>,
    /// Events, each with the index of its record among `records`.
    pub events: Vec<(usize, Event)>,
    /// Subscriptions by key; `None` removes.
    pub subscriptions: BTreeMap<events::SubscriptionKey, Option<events::SubscriptionRow>>,
    /// New versions of contracts.
    pub contracts: Vec<contracts::ContractRow>,
    /// New versions of payload schemas.
    pub payload_schemas: Vec<schemas::PayloadSchemaRow>,
    /// Refused submissions on tasks that do not exist: new, or changed.
    pub refused_tasks: BTreeMap<RefusedTaskKey, RefusedTaskRow>,
    /// What dedupe keys were seen with: new, or changed.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    /// Caps by key: new, or changed; `None` removes.
    pub caps: BTreeMap<CapKey, Option<Cap>>,
    /// What becomes of subscribers' cursors, in order.
    pub cursors: Vec<events::CursorWrite>,
}
