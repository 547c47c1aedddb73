//! The tables, their loading for a batch, and their changes by a batch.

use std::collections::BTreeMap;

use crate::store::streams::ChunkRow;
use crate::store::{
    AgentKey, AgentRow, BatchState, CheckpointRow, DeadLetterRow, EdgeKey, EscalationKey,
    HandoffKey, IdempotencyKey, IdempotencyRow, KeyRow, LastCheckpoint, Needs, OutboxRow,
    RefusedTaskKey, RefusedTaskRow, Result, ReturnRow, RunKey, StoreError, TaskKey, Writes,
};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, ContentId, Micros, TenantId};
use handoffd_domain::lineage::reached;
use handoffd_domain::progress::Edge;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::append::AppendedRecords;
use handoffd_evidence::commitment::PackedContent;

use super::absent;
use super::kept::{DueOpinion, MemoryLine, MemoryLog};

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) tasks: BTreeMap<TaskKey, Task>,
    pub(super) handoffs: BTreeMap<HandoffKey, Handoff>,
    pub(super) outbox: BTreeMap<HandoffKey, OutboxRow>,
    pub(super) returns: BTreeMap<HandoffKey, ReturnRow>,
    pub(super) chunks: BTreeMap<(HandoffKey, i64), ChunkRow>,
    pub(super) stream_lines: BTreeMap<HandoffKey, MemoryLine>,
    pub(super) opinions: BTreeMap<HandoffKey, DueOpinion>,
    pub(super) checkpoints: BTreeMap<(RunKey, i64), CheckpointRow>,
    pub(super) idempotency: BTreeMap<IdempotencyKey, IdempotencyRow>,
    pub(super) edges: BTreeMap<EdgeKey, Edge>,
    pub(super) refused_tasks: BTreeMap<RefusedTaskKey, RefusedTaskRow>,
    pub(super) escalations: BTreeMap<EscalationKey, Escalation>,
    pub(super) dead_letters: BTreeMap<HandoffKey, DeadLetterRow>,
    pub(super) agents: BTreeMap<AgentKey, AgentRow>,
    /// Number of the last change of each agent, including deleted ones.
    pub(super) agent_changes: BTreeMap<AgentKey, i64>,
    pub(super) keys: BTreeMap<(TenantId, String), KeyRow>,
    pub(super) contents: BTreeMap<(TenantId, ContentId), PackedContent>,
    pub(super) logs: BTreeMap<TenantId, MemoryLog>,
    pub(super) facts: BTreeMap<String, Vec<u8>>,
    pub(super) brokers: BTreeMap<String, Micros>,
}

/// The rows of `table` under the given keys.
fn pick<K: Ord + Clone, V: Clone>(
    table: &BTreeMap<K, V>,
    wanted: impl IntoIterator<Item = K>,
) -> BTreeMap<K, V> {
    wanted.into_iter().filter_map(|key| Some((key.clone(), table.get(&key)?.clone()))).collect()
}

/// The key of a number of a stream.
fn number_of(row: &ChunkRow) -> (HandoffKey, i64) {
    ((row.tenant.clone(), row.handoff_id), row.seq)
}

fn collision() -> StoreError {
    StoreError::Conflict("a new row is there already".to_owned())
}

impl Tables {
    pub(super) fn edges_of<'a>(&'a self, key: &'a TaskKey) -> impl Iterator<Item = &'a Edge> {
        self.edges.values().filter(|edge| edge.tenant == key.0 && edge.task_id == key.1)
    }

    /// Loads the rows that a batch needs.
    pub(super) fn load(&self, needs: &Needs) -> BatchState {
        let mut state = BatchState {
            tasks: pick(&self.tasks, needs.tasks.iter().cloned()),
            outbox: pick(&self.outbox, needs.handoffs.iter().cloned()),
            idempotency: pick(&self.idempotency, needs.idempotency.iter().cloned()),
            dead_letters: pick(&self.dead_letters, needs.dead_letters.iter().cloned()),
            agents: pick(&self.agents, needs.agents.iter().cloned()),
            keys: pick(&self.keys, needs.keys.iter().cloned()),
            refused_tasks: pick(&self.refused_tasks, needs.refused_tasks.iter().cloned()),
            ..BatchState::default()
        };
        state.handoffs = pick(&self.handoffs, needs.handoffs_beside(&state));
        state.outbox.extend(pick(&self.outbox, needs.handoffs_beside(&state)));
        let received: Vec<_> = needs
            .lineage_beside(&state)
            .into_iter()
            .flat_map(|((tenant, task), agent)| {
                self.handoffs.iter().filter(move |(_, one)| {
                    one.tenant == *tenant && one.task_id == *task && reached(one, agent)
                })
            })
            .map(|(key, one)| (key.clone(), one.clone()))
            .collect();
        state.handoffs.extend(received);
        let claimed = pick(&self.opinions, needs.opinions.iter().cloned());
        state.opinions = claimed.into_iter().map(|(key, row)| (key, row.attempts)).collect();
        for (run, agent) in &needs.runs {
            let lasts = [
                self.find_checkpoint(run, None, None),
                self.find_checkpoint(run, Some(agent), None),
            ];
            for row in lasts.into_iter().flatten() {
                let last = LastCheckpoint { seq: row.at.seq, commitment: row.part.commitment };
                state.runs.entry(run.clone()).or_default().add(row.agent, last);
            }
        }
        for task in &needs.edges {
            state.edges.extend(self.edges_of(task).map(|edge| {
                let Edge { tenant, task_id, source, target, .. } = edge;
                ((tenant.clone(), *task_id, source.clone(), target.clone()), edge.clone())
            }));
        }
        for (tenant, id) in &needs.open {
            let handoffs = self.handoffs.iter().filter(|(_, handoff)| {
                handoff.tenant == *tenant && handoff.task_id == *id && !handoff.status.is_final()
            });
            state.handoffs.extend(handoffs.map(|(key, handoff)| (key.clone(), handoff.clone())));
            let waiting =
                self.outbox.iter().filter(|(_, row)| row.tenant == *tenant && row.task_id == *id);
            state.outbox.extend(waiting.map(|(key, row)| (key.clone(), row.clone())));
            let asked = self
                .escalations
                .iter()
                .filter(|(_, row)| row.tenant == *tenant && row.task_id == *id && row.is_open());
            state.escalations.extend(asked.map(|(key, row)| (key.clone(), row.clone())));
        }
        let waits = |task: &&Task| task.status == TaskStatus::Escalated;
        let waiting: Vec<TaskKey> =
            state.tasks.values().filter(waits).map(|task| (task.tenant.clone(), task.id)).collect();
        let asked = self.escalations.iter().filter(|(_, row)| {
            row.is_open() && waiting.contains(&(row.tenant.clone(), row.task_id))
        });
        state.escalations.extend(asked.map(|(key, row)| (key.clone(), row.clone())));
        let fallbacks = state.fallbacks();
        state.agents.extend(pick(&self.agents, fallbacks));
        state
    }

    /// Number of changes of a tenant's agents.
    pub(super) fn count_agent_changes(&self, tenant: &TenantId) -> i64 {
        let changes = self.agent_changes.iter().filter(|(key, _)| key.0 == *tenant);
        changes.map(|(_, number)| *number).max().unwrap_or(0)
    }

    /// The agents changed after that number of changes.
    pub(super) fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Vec<(AgentId, Option<AgentRow>)> {
        let changes = self.agent_changes.iter();
        changes
            .filter(|(key, number)| key.0 == *tenant && **number > after)
            .map(|(key, _)| (key.1.clone(), self.agents.get(key).cloned()))
            .collect()
    }

    /// Applies a batch as a whole or not at all: all conflicts are checked first.
    pub(super) fn apply(&mut self, writes: &Writes) -> Result<AppendedRecords> {
        let Writes {
            tasks,
            same_budget,
            handoffs,
            outbox,
            returns,
            chunks,
            stream_lines,
            checkpoints,
            idempotency,
            dead_letters,
            edges,
            escalations,
            agents,
            keys,
            retargets,
            holds,
            erasures,
            erased,
            records,
            events,
            subscriptions,
            contracts,
            payload_schemas,
            refused_tasks,
            repeats,
            caps,
            cursors,
            opinions,
            rows: _,
            attempts: _,
        } = writes;
        let kept_elsewhere = holds.is_empty()
            && erasures.is_empty()
            && erased.is_empty()
            && subscriptions.is_empty()
            && contracts.is_empty()
            && payload_schemas.is_empty()
            && repeats.is_empty()
            && caps.is_empty()
            && cursors.is_empty();
        if !kept_elsewhere {
            return absent();
        }
        may_be_written(&self.tasks, tasks)?;
        may_be_written(&self.handoffs, handoffs)?;
        let run = |row: &CheckpointRow| (row.tenant.clone(), row.task_id, row.at.execution_id);
        let taken =
            checkpoints.iter().any(|row| self.checkpoints.contains_key(&(run(row), row.at.seq)));
        let use_of =
            |row: &IdempotencyRow| (row.tenant.clone(), row.agent.clone(), row.key.clone());
        if taken || idempotency.iter().any(|row| self.idempotency.contains_key(&use_of(row))) {
            return Err(collision());
        }
        self.are_new(writes)?;
        if events.iter().any(|(record, _)| *record >= records.len()) {
            return Err(StoreError::Denied("an event without a record".to_owned()));
        }
        let appended = self.append(records)?;

        for (key, (task, _)) in tasks {
            let mut task = task.clone();
            if let Some(known) = same_budget.contains(key).then(|| self.tasks.remove(key)).flatten()
            {
                task.funds = known.funds;
            }
            self.tasks.insert(key.clone(), task);
        }
        for (key, (handoff, _)) in handoffs {
            let mut handoff = handoff.clone();
            if let Some(born) = self.handoffs.remove(key) {
                keep_born(&mut handoff, born);
            }
            self.handoffs.insert(key.clone(), handoff);
        }
        have(&mut self.outbox, outbox);
        have(&mut self.returns, returns);
        self.chunks.extend(chunks.iter().map(|row| (number_of(row), row.clone())));
        self.stream_lines.extend(stream_lines.iter().map(|key| (key.clone(), MemoryLine::new())));
        have(&mut self.opinions, &unasked(opinions));
        let rows = checkpoints.iter().map(|row| ((run(row), row.at.seq), row.clone()));
        self.checkpoints.extend(rows);
        self.idempotency.extend(idempotency.iter().map(|row| (use_of(row), row.clone())));
        let rows =
            dead_letters.iter().map(|row| ((row.tenant.clone(), row.handoff_id), row.clone()));
        self.dead_letters.extend(rows);
        self.edges.extend(edges.clone());
        self.escalations.extend(escalations.clone());
        self.refused_tasks.extend(refused_tasks.clone());
        have(&mut self.agents, agents);
        for key in agents.keys() {
            let number = self.count_agent_changes(&key.0) + 1;
            self.agent_changes.insert(key.clone(), number);
        }
        self.keys.extend(keys.clone());
        for (agent, (mode, at)) in retargets {
            self.retarget(agent, *mode, *at);
        }
        Ok(appended)
    }

    /// Checks that the hashes of keys, the numbers and lines of streams, and opinions, are new.
    fn are_new(&self, writes: &Writes) -> Result<()> {
        let Writes { keys, chunks, stream_lines, opinions, .. } = writes;
        let twin = |(key, row): (&(TenantId, String), &KeyRow)| {
            let mut others = self.keys.iter().chain(keys);
            others.any(|(other, known)| other != key && known.hash == row.hash)
        };
        let taken = keys.iter().any(twin)
            || chunks.iter().any(|row| self.chunks.contains_key(&number_of(row)))
            || stream_lines.iter().any(|key| self.stream_lines.contains_key(key))
            || opinions.iter().any(|(key, due)| due.is_some() && self.opinions.contains_key(key));
        if taken { Err(collision()) } else { Ok(()) }
    }

    /// Sets the delivery mode of an agent's waiting outbox rows.
    fn retarget(&mut self, (tenant, agent): &AgentKey, mode: DeliveryMode, at: Micros) {
        let free = self.outbox.iter_mut().filter(|(_, row)| {
            row.tenant == *tenant
                && row.target == *agent
                && (row.claimed_by.is_none() || row.visible_at <= at)
        });
        for (key, row) in free {
            (row.mode, row.claimed_by, row.visible_at) = (mode, None, Micros(0));
            let pending = self.handoffs.get_mut(key);
            if let Some(handoff) = pending.filter(|one| one.status == HandoffStatus::Pending) {
                handoff.mode = mode;
            }
        }
    }
}

/// Keeps the members that a handoff has from its commit on.
fn keep_born(handoff: &mut Handoff, born: Handoff) {
    (handoff.digest_salt, handoff.digest) = (born.digest_salt, born.digest);
    handoff.origin = born.origin;
    handoff.tracestate = born.tracestate;
    handoff.conversation_id = born.conversation_id;
    handoff.user_ref = born.user_ref;
}

/// Checks that new rows do not exist and known rows do.
fn may_be_written<K: Ord, V>(table: &BTreeMap<K, V>, rows: &BTreeMap<K, (V, bool)>) -> Result<()> {
    for (key, (_, new)) in rows {
        match (table.contains_key(key), new) {
            (true, true) => return Err(collision()),
            (false, false) => {
                return Err(StoreError::Denied("a row to be updated does not exist".to_owned()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opinions without a claim, by when they are due.
fn unasked(due: &BTreeMap<HandoffKey, Option<Micros>>) -> BTreeMap<HandoffKey, Option<DueOpinion>> {
    let row = |at: Micros| DueOpinion { attempts: 0, next_at: at };
    due.iter().map(|(key, due)| (key.clone(), due.map(row))).collect()
}

/// Upserts `Some`, deletes `None`.
fn have<K: Ord + Clone, V: Clone>(table: &mut BTreeMap<K, V>, rows: &BTreeMap<K, Option<V>>) {
    for (key, row) in rows {
        match row {
            Some(row) => table.insert(key.clone(), row.clone()),
            None => table.remove(key),
        };
    }
}
