//! A batch in the making: what is known so far, and what will be written. A command decided later in
//! the batch sees what the ones before it changed.

use handoffd_core::domain::cap::{Cap, CapKey};
use handoffd_core::domain::escalation::Escalation;
use handoffd_core::domain::event::Event;
use handoffd_core::domain::handoff::{DeliveryMode, Handoff};
use handoffd_core::domain::ids::Micros;
use handoffd_core::domain::progress::Edge;
use handoffd_core::domain::task::Task;
use handoffd_core::evidence::record::RecordDraft;
use handoffd_store::store::contracts::{ContractRow, RepeatRow};
use handoffd_store::store::erasure::{ErasureRow, ErasureState, ErasureWrite, HoldRow};
use handoffd_store::store::events::{
    CursorChange, CursorKey, CursorWrite, SubscriptionKey, SubscriptionRow,
};
use handoffd_store::store::schemas::PayloadSchemaRow;
use handoffd_store::store::{
    AgentKey, AgentRow, BatchState, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow,
    KeyRow, LastCheckpoint, OutboxRow, RefusedTaskRow, ReturnRow, Writes,
};

/// One thing to change.
#[derive(Debug, Clone)]
pub enum Change {
    /// Have a task so.
    Task(Task),
    /// Have a handoff so.
    Handoff(Handoff),
    /// Have an outbox row so.
    Outbox(OutboxRow),
    /// Have no outbox row.
    NoOutbox(HandoffKey),
    /// Have a return in the inbox of the agent that asked for it.
    Return(ReturnRow),
    /// Have no such return in an inbox.
    NoReturn(HandoffKey),
    /// Add a checkpoint.
    Checkpoint(CheckpointRow),
    /// Remember a use of an `Idempotency-Key`.
    Idempotency(IdempotencyRow),
    /// Keep a dead letter so.
    DeadLetter(DeadLetterRow),
    /// Have an edge of a task so.
    Edge(Edge),
    /// Have an escalation so.
    Escalation(Escalation),
    /// Have refused submissions on a task that does not exist counted so.
    RefusedTask(RefusedTaskRow),
    /// Have an agent so.
    Agent(AgentRow),
    /// Have no such agent.
    NoAgent(AgentKey),
    /// Deliver what waits for an agent this way from now on, but for what is claimed at that time.
    Retarget(AgentKey, DeliveryMode, Micros),
    /// Have a key so.
    Key(KeyRow),
    /// Have a cap so.
    Cap(Box<Cap>),
    /// Have no such cap.
    NoCap(CapKey),
    /// Add a version of a contract.
    Contract(ContractRow),
    /// Add a version of a payload schema.
    PayloadSchema(PayloadSchemaRow),
    /// Remember what a dedupe key was seen with.
    Repeat(RepeatRow),
    /// Have a legal hold so.
    Hold(HoldRow),
    /// Have an erasure so.
    Erasure(ErasureRow),
    /// Have that gone; the record of it is another change of the same command.
    Erase(ErasureWrite),
    /// Append a record.
    Record(Box<RecordDraft>),
    /// Tell of it: committed with the record before it, which it belongs to. A command that tells of
    /// something makes a record first.
    Event(Box<Event>),
    /// Have a subscription so.
    Subscription(Box<SubscriptionRow>),
    /// Have no such subscription.
    NoSubscription(SubscriptionKey),
    /// Have a subscriber told so; after a record, too.
    Cursor(CursorKey, CursorChange),
}

/// The batch so far.
#[derive(Debug, Default)]
pub struct Plan {
    /// What is known, with the changes so far applied.
    pub state: BatchState,
    /// What will be written.
    pub writes: Writes,
}

impl Plan {
    /// Begins with what the store found.
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
            Change::Task(task) => {
                let key = (task.tenant.clone(), task.id);
                let known = state.tasks.insert(key.clone(), task.clone());
                let written = writes.tasks.get(&key);
                let was_new = written.is_some_and(|(_, new)| *new);
                let left = written.is_none() || writes.same_books.contains(&key);
                if left && known.as_ref().is_some_and(|known| known.funds == task.funds) {
                    writes.same_books.insert(key.clone());
                } else {
                    writes.same_books.remove(&key);
                }
                writes.tasks.insert(key, (task, known.is_none() || was_new));
            }
            Change::Handoff(handoff) => {
                let key = (handoff.tenant.clone(), handoff.id);
                let new = state.handoffs.insert(key.clone(), handoff.clone()).is_none();
                let was_new = writes.handoffs.get(&key).is_some_and(|(_, new)| *new);
                writes.handoffs.insert(key, (handoff, new || was_new));
            }
            Change::Outbox(row) => {
                let key = (row.tenant.clone(), row.handoff_id);
                state.outbox.insert(key.clone(), row.clone());
                writes.outbox.insert(key, Some(row));
            }
            Change::NoOutbox(key) => {
                state.outbox.remove(&key);
                writes.outbox.insert(key, None);
            }
            Change::Return(row) => {
                writes.returns.insert((row.tenant.clone(), row.handoff_id), Some(row));
            }
            Change::NoReturn(key) => {
                writes.returns.insert(key, None);
            }
            Change::Checkpoint(row) => {
                let run = (row.tenant.clone(), row.task_id, row.at.execution_id);
                let last = LastCheckpoint {
                    seq: row.at.seq,
                    commitment: row.part.commitment,
                    agent: row.agent.clone(),
                };
                state.runs.insert(run, last);
                writes.checkpoints.push(row);
            }
            Change::Idempotency(row) => {
                let key = (row.tenant.clone(), row.agent.clone(), row.key.clone());
                state.idempotency.insert(key, row.clone());
                writes.idempotency.push(row);
            }
            Change::DeadLetter(row) => {
                let key = (row.tenant.clone(), row.handoff_id);
                // One row is written once a batch: the last word counts.
                writes
                    .dead_letters
                    .retain(|known| (&known.tenant, known.handoff_id) != (&key.0, key.1));
                state.dead_letters.insert(key, row.clone());
                writes.dead_letters.push(row);
            }
            Change::Edge(edge) => {
                let key =
                    (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
                state.edges.insert(key.clone(), edge.clone());
                writes.edges.insert(key, edge);
            }
            Change::Escalation(row) => {
                let key = (row.tenant.clone(), row.id);
                state.escalations.insert(key.clone(), row.clone());
                writes.escalations.insert(key, row);
            }
            Change::RefusedTask(row) => {
                state.refused_tasks.insert(row.key(), row.clone());
                writes.refused_tasks.insert(row.key(), row);
            }
            Change::Agent(row) => {
                let key = (row.tenant.clone(), row.agent.agent_id.clone());
                state.agents.insert(key.clone(), row.clone());
                writes.agents.insert(key, Some(row));
            }
            Change::NoAgent(key) => {
                state.agents.remove(&key);
                writes.agents.insert(key, None);
            }
            Change::Retarget(agent, mode, at) => {
                writes.retargets.insert(agent, (mode, at));
            }
            Change::Key(row) => {
                let key = (row.tenant.clone(), row.key_id.clone());
                state.keys.insert(key.clone(), row.clone());
                writes.keys.insert(key, row);
            }
            Change::Cap(cap) => {
                state.caps.insert(cap.key(), (*cap).clone());
                writes.caps.insert(cap.key(), Some(*cap));
            }
            Change::NoCap(key) => {
                state.caps.remove(&key);
                writes.caps.insert(key, None);
            }
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
                state.repeats.insert(key.clone(), row.clone());
                writes.repeats.insert(key, row);
            }
            Change::Hold(row) => {
                hold(&mut state.erasure, &row);
                if let Some(page) = state.erasure.purges.get_mut(&row.tenant) {
                    page.again = true;
                }
                writes.holds.insert((row.tenant.clone(), row.id.clone()), row);
            }
            Change::Erasure(row) => {
                if let Some(page) = state.erasure.pages.get_mut(&(row.tenant.clone(), row.id)) {
                    page.row = row.clone();
                }
                for (subject, known) in &mut state.erasure.subjects {
                    if subject.tenant == row.tenant && subject.key == row.subject_key {
                        known.latest = Some(row.clone());
                    }
                }
                writes.erasures.insert((row.tenant.clone(), row.id), row);
            }
            Change::Erase(erase) => {
                // What a page showed is gone; a second command on the same page finds nothing.
                for ((tenant, _), page) in &mut state.erasure.pages {
                    if *tenant == erase.tenant {
                        page.data.retain(|(slot, _)| !erase.data.contains(slot));
                        page.contents.retain(|(_, id)| !erase.contents.contains(id));
                        page.checkpoints.retain(|at| !erase.checkpoints.contains(at));
                    }
                }
                if let Some(page) = state.erasure.purges.get_mut(&erase.tenant) {
                    page.again = true;
                }
                writes.erased.push(erase);
            }
            Change::Record(draft) => writes.records.push(*draft),
            Change::Event(event) => {
                writes.events.push((writes.records.len().saturating_sub(1), *event));
            }
            Change::Subscription(row) => {
                let key = (row.tenant.clone(), row.id);
                state.subscriptions.insert(key.clone(), (*row).clone());
                writes.subscriptions.insert(key, Some(*row));
            }
            Change::NoSubscription(key) => {
                state.subscriptions.remove(&key);
                writes.subscriptions.insert(key, None);
            }
            Change::Cursor(key, change) => {
                let record = writes.records.len().saturating_sub(1);
                writes.cursors.push(CursorWrite { key, change, record });
            }
        }
    }
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
