//! A batch during its decisions: the rows as they are so far, and the writes. A command decided later in
//! the batch sees the changes of the commands before it.

use std::collections::BTreeMap;

use super::reply::LedgerError;
use handoffd_domain::cap::{Cap, CapKey};
use handoffd_domain::escalation::Escalation;
use handoffd_domain::event::Event;
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::Micros;
use handoffd_domain::progress::Edge;
use handoffd_domain::task::Task;
use handoffd_evidence::record::RecordDraft;
use handoffd_store::store::attempts::AttemptRow;
use handoffd_store::store::contracts::{ContractRow, RepeatRow};
use handoffd_store::store::erasure::{ErasureRow, ErasureState, ErasureWrite, HoldRow};
use handoffd_store::store::events::{
    CursorChange, CursorKey, CursorWrite, SubscriptionKey, SubscriptionRow,
};
use handoffd_store::store::schemas::PayloadSchemaRow;
use handoffd_store::store::streams::ChunkRow;
use handoffd_store::store::{
    AgentKey, AgentRow, BatchState, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow,
    KeyRow, LastCheckpoint, NewRow, OutboxRow, RefusedTaskRow, ReturnRow, Writes,
};

/// A decision: the changes, and the reply once they are durable.
pub type Decision<R> = Result<Decided<R>, LedgerError>;

/// Changes with their reply.
pub type Decided<R> = (Vec<Change>, R);

/// One change of a row, record or event.
#[derive(Debug, Clone)]
pub enum Change {
    /// Insert or replace a task.
    Task(Task),
    /// Insert or replace a handoff.
    Handoff(Handoff),
    /// Insert or replace an outbox row.
    Outbox(OutboxRow),
    /// Delete an outbox row.
    NoOutbox(HandoffKey),
    /// Insert a return into the inbox of the agent that asked for it.
    Return(ReturnRow),
    /// Delete a return from an inbox.
    NoReturn(HandoffKey),
    /// Add a number to a stream.
    Chunk(ChunkRow),
    /// Send a stream's chunks to a webhook receiver.
    StreamLine(HandoffKey),
    /// Ask the external classifier about a handoff's message, from that time on.
    Opinion(HandoffKey, Micros),
    /// Ask no more: the opinion is recorded.
    NoOpinion(HandoffKey),
    /// Keep an attempt at a handoff, in the place of the oldest that its ring has.
    Attempt(Box<AttemptRow>),
    Checkpoint(CheckpointRow),
    /// Remember a use of an `Idempotency-Key`.
    Idempotency(IdempotencyRow),
    /// Insert or replace a dead letter.
    DeadLetter(DeadLetterRow),
    /// Insert or replace an edge of a task.
    Edge(Edge),
    /// Insert or replace an escalation.
    Escalation(Escalation),
    /// Insert or replace the count of refused submissions on a task that does not exist.
    RefusedTask(RefusedTaskRow),
    /// Insert or replace an agent.
    Agent(AgentRow),
    NoAgent(AgentKey),
    /// Deliver an agent's unclaimed handoffs in this mode from that time on; claimed rows keep theirs.
    Retarget(AgentKey, DeliveryMode, Micros),
    /// Insert or replace a key.
    Key(KeyRow),
    /// Insert or replace a cap.
    Cap(Box<Cap>),
    NoCap(CapKey),
    /// Add a version of a contract.
    Contract(ContractRow),
    /// Add a version of a payload schema.
    PayloadSchema(PayloadSchemaRow),
    /// Insert or replace the last use of a dedupe key.
    Repeat(RepeatRow),
    /// Insert or replace a legal hold.
    Hold(HoldRow),
    /// Insert or replace an erasure.
    Erasure(ErasureRow),
    /// Erase data. The same command records it in another change, but for words that stand in rows alone.
    Erase(ErasureWrite),
    /// Insert a row into a table that no command reads.
    Row(NewRow),
    Record(Box<RecordDraft>),
    /// Publish an event. It belongs to the record before it, so a command records first.
    Event(Box<Event>),
    /// Insert or replace a subscription.
    Subscription(Box<SubscriptionRow>),
    NoSubscription(SubscriptionKey),
    /// Change a subscriber's cursor; it follows a record, as an event does.
    Cursor(CursorKey, CursorChange),
}

/// A batch during its decisions.
#[derive(Debug, Default)]
pub struct Plan {
    /// The loaded rows with the changes so far.
    pub state: BatchState,
    /// The rows, records and events to write.
    pub writes: Writes,
}

impl Plan {
    /// A batch over the rows that the store loaded.
    #[must_use]
    pub fn new(state: BatchState) -> Self {
        Self { state, writes: Writes::default() }
    }

    /// Applies the changes of one command.
    pub fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.apply_one(change);
        }
    }

    fn apply_one(&mut self, change: Change) {
        let Self { state, writes } = self;
        match change {
            Change::Task(task) => self.put_task(task),
            Change::Handoff(handoff) => self.put_handoff(handoff),
            Change::Outbox(row) => {
                let key = (row.tenant.clone(), row.handoff_id);
                put(&mut state.outbox, &mut writes.outbox, key, row);
            }
            Change::NoOutbox(key) => delete(&mut state.outbox, &mut writes.outbox, key),
            Change::Return(row) => {
                writes.returns.insert((row.tenant.clone(), row.handoff_id), Some(row));
            }
            Change::NoReturn(key) => {
                writes.returns.insert(key, None);
            }
            Change::Chunk(row) => writes.chunks.push(row),
            Change::StreamLine(key) => writes.stream_lines.push(key),
            Change::Opinion(key, at) => {
                state.opinions.insert(key.clone(), 0);
                writes.opinions.insert(key, Some(at));
            }
            Change::NoOpinion(key) => {
                state.opinions.remove(&key);
                writes.opinions.insert(key, None);
            }
            Change::Attempt(row) => {
                let key = (row.tenant.clone(), row.handoff_id);
                writes.attempts.insert((key, row.slot()), *row);
            }
            Change::Checkpoint(row) => self.add_checkpoint(row),
            Change::Idempotency(row) => {
                let key = (row.tenant.clone(), row.agent.clone(), row.key.clone());
                state.idempotency.insert(key, row.clone());
                writes.idempotency.push(row);
            }
            Change::DeadLetter(row) => self.put_dead_letter(row),
            Change::Edge(edge) => {
                let Edge { tenant, task_id, source, target, .. } = &edge;
                let key = (tenant.clone(), *task_id, source.clone(), target.clone());
                put(&mut state.edges, &mut writes.edges, key, edge);
            }
            Change::Escalation(row) => {
                let key = (row.tenant.clone(), row.id);
                put(&mut state.escalations, &mut writes.escalations, key, row);
            }
            Change::RefusedTask(row) => {
                put(&mut state.refused_tasks, &mut writes.refused_tasks, row.key(), row);
            }
            Change::Agent(row) => {
                let key = (row.tenant.clone(), row.agent.agent_id.clone());
                put(&mut state.agents, &mut writes.agents, key, row);
            }
            Change::NoAgent(key) => delete(&mut state.agents, &mut writes.agents, key),
            Change::Retarget(agent, mode, at) => {
                writes.retargets.insert(agent, (mode, at));
            }
            Change::Key(row) => {
                let key = (row.tenant.clone(), row.key_id.clone());
                put(&mut state.keys, &mut writes.keys, key, row);
            }
            Change::Cap(cap) => put(&mut state.caps, &mut writes.caps, cap.key(), *cap),
            Change::NoCap(key) => delete(&mut state.caps, &mut writes.caps, key),
            Change::Contract(row) => {
                state.contracts.insert(row.key(), row.clone());
                writes.contracts.push(row);
            }
            Change::PayloadSchema(row) => {
                state.payload_schemas.insert(row.key(), row.clone());
                writes.payload_schemas.push(row);
            }
            Change::Repeat(row) => {
                let key = (row.tenant.clone(), row.key.clone());
                put(&mut state.repeats, &mut writes.repeats, key, row);
            }
            Change::Hold(row) => self.put_hold(row),
            Change::Erasure(row) => self.put_erasure(row),
            Change::Erase(erase) => self.erase(erase),
            Change::Row(row) => writes.rows.push(row),
            Change::Record(draft) => writes.records.push(*draft),
            Change::Event(event) => {
                writes.events.push((writes.records.len().saturating_sub(1), *event));
            }
            Change::Subscription(row) => {
                let key = (row.tenant.clone(), row.id);
                put(&mut state.subscriptions, &mut writes.subscriptions, key, *row);
            }
            Change::NoSubscription(key) => {
                delete(&mut state.subscriptions, &mut writes.subscriptions, key);
            }
            Change::Cursor(key, change) => {
                let record = writes.records.len().saturating_sub(1);
                writes.cursors.push(CursorWrite { key, change, record });
            }
        }
    }

    /// A task's budget is written only where it differs from the stored one.
    fn put_task(&mut self, task: Task) {
        let Self { state, writes } = self;
        let key = (task.tenant.clone(), task.id);
        let known = state.tasks.insert(key.clone(), task.clone());
        let written = writes.tasks.get(&key);
        let was_new = written.is_some_and(|(_, new)| *new);
        let left = written.is_none() || writes.same_budget.contains(&key);
        if left && known.as_ref().is_some_and(|known| known.funds == task.funds) {
            writes.same_budget.insert(key.clone());
        } else {
            writes.same_budget.remove(&key);
        }
        writes.tasks.insert(key, (task, known.is_none() || was_new));
    }

    fn put_handoff(&mut self, handoff: Handoff) {
        let key = (handoff.tenant.clone(), handoff.id);
        let new = self.state.handoffs.insert(key.clone(), handoff.clone()).is_none();
        let was_new = self.writes.handoffs.get(&key).is_some_and(|(_, new)| *new);
        self.writes.handoffs.insert(key, (handoff, new || was_new));
    }

    fn add_checkpoint(&mut self, row: CheckpointRow) {
        let run = (row.tenant.clone(), row.task_id, row.at.execution_id);
        let last = LastCheckpoint { seq: row.at.seq, commitment: row.part.commitment };
        self.state.runs.entry(run).or_default().add(row.agent.clone(), last);
        self.writes.checkpoints.push(row);
    }

    /// A batch writes a row once: the last change counts.
    fn put_dead_letter(&mut self, row: DeadLetterRow) {
        let key = (row.tenant.clone(), row.handoff_id);
        let letters = &mut self.writes.dead_letters;
        letters.retain(|known| (&known.tenant, known.handoff_id) != (&key.0, key.1));
        self.state.dead_letters.insert(key, row.clone());
        letters.push(row);
    }

    fn put_hold(&mut self, row: HoldRow) {
        hold(&mut self.state.erasure, &row);
        if let Some(page) = self.state.erasure.purges.get_mut(&row.tenant) {
            page.again = true;
        }
        self.writes.holds.insert((row.tenant.clone(), row.id.clone()), row);
    }

    fn put_erasure(&mut self, row: ErasureRow) {
        let erasure = &mut self.state.erasure;
        if let Some(page) = erasure.pages.get_mut(&(row.tenant.clone(), row.id)) {
            page.row = row.clone();
        }
        for (subject, known) in &mut erasure.subjects {
            if subject.tenant == row.tenant && subject.key == row.subject_key {
                known.latest = Some(row.clone());
            }
        }
        self.writes.erasures.insert((row.tenant.clone(), row.id), row);
    }

    /// Takes the erased data out of the loaded pages: a second command on the same page finds nothing. The rows of this
    /// batch lose it, too; one that began to stand in for an erased handoff in this batch is in no page.
    fn erase(&mut self, erase: ErasureWrite) {
        let gone = |handoff: &Handoff| {
            let named = |id| erase.handoffs.contains(&id);
            handoff.tenant == erase.tenant
                && (named(handoff.id) || handoff.origin.is_some_and(named))
        };
        let written = self.writes.handoffs.values_mut().map(|(handoff, _)| handoff);
        for handoff in self.state.handoffs.values_mut().chain(written).filter(|one| gone(one)) {
            handoff.erase(erase.words);
        }
        let erasure = &mut self.state.erasure;
        for ((tenant, _), page) in &mut erasure.pages {
            if *tenant == erase.tenant {
                page.data.retain(|(slot, _)| !erase.data.contains(slot));
                page.contents.retain(|(_, id)| !erase.contents.contains(id));
                page.checkpoints.retain(|at| !erase.checkpoints.contains(at));
            }
        }
        if let Some(page) = erasure.purges.get_mut(&erase.tenant) {
            page.again = true;
        }
        self.writes.erased.push(erase);
    }
}

/// Inserts or replaces a row in the state and in the writes.
fn put<K, V, W>(known: &mut BTreeMap<K, V>, written: &mut BTreeMap<K, W>, key: K, row: V)
where
    K: Ord + Clone,
    V: Clone,
    W: From<V>,
{
    known.insert(key.clone(), row.clone());
    written.insert(key, row.into());
}

/// Removes a row from the state and deletes it in the writes.
fn delete<K: Ord, V>(known: &mut BTreeMap<K, V>, written: &mut BTreeMap<K, Option<V>>, key: K) {
    known.remove(&key);
    written.insert(key, None);
}

/// A hold that this batch places or releases counts for what is decided later in the batch. Whether a
/// subject has data on a held task is not known here: an erasure's next page looks again.
fn hold(state: &mut ErasureState, row: &HoldRow) {
    let active = row.released_at.is_none();
    let have = |holds: &mut Vec<HoldRow>, concerned: bool| {
        holds.retain(|known| known.id != row.id);
        if active && concerned {
            holds.push(row.clone());
        }
    };
    for (subject, known) in &mut state.subjects {
        let own = subject.tenant == row.tenant && row.subject_key == Some(subject.key);
        if subject.tenant == row.tenant {
            have(&mut known.holds, own);
        }
    }
    for ((tenant, _), page) in &mut state.pages {
        let own = row.subject_key.is_none_or(|key| key == page.row.subject_key);
        if *tenant == row.tenant {
            have(&mut page.holds, own);
        }
    }
    state.holds.insert((row.tenant.clone(), row.id.clone()), row.clone());
}
