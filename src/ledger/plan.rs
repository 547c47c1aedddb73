//! A batch in the making: what is known so far, and what will be written. A command decided later in
//! the batch sees what the ones before it changed.

use crate::domain::handoff::Handoff;
use crate::domain::task::Task;
use crate::evidence::record::Draft;
use crate::store::{
    AgentKey, AgentRow, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow, KeyRow,
    LastCheckpoint, OutboxRow, State, Writes,
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
    /// Add a checkpoint.
    Checkpoint(CheckpointRow),
    /// Remember a use of an `Idempotency-Key`.
    Idempotency(IdempotencyRow),
    /// Keep a dead letter.
    DeadLetter(DeadLetterRow),
    /// Have an agent so.
    Agent(AgentRow),
    /// Have no such agent.
    NoAgent(AgentKey),
    /// Have a key so.
    Key(KeyRow),
    /// Append a record.
    Record(Box<Draft>),
}

/// The batch so far.
#[derive(Debug, Default)]
pub struct Plan {
    /// What is known, with the changes so far applied.
    pub state: State,
    /// What will be written.
    pub writes: Writes,
}

impl Plan {
    /// Begins with what the store found.
    #[must_use]
    pub fn new(state: State) -> Self {
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
                let new = state.tasks.insert(key.clone(), task.clone()).is_none();
                let was_new = writes.tasks.get(&key).is_some_and(|(_, new)| *new);
                writes.tasks.insert(key, (task, new || was_new));
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
            Change::DeadLetter(row) => writes.dead_letters.push(row),
            Change::Agent(row) => {
                let key = (row.tenant.clone(), row.agent.agent_id.clone());
                state.agents.insert(key.clone(), row.clone());
                writes.agents.insert(key, Some(row));
            }
            Change::NoAgent(key) => {
                state.agents.remove(&key);
                writes.agents.insert(key, None);
            }
            Change::Key(row) => {
                let key = (row.tenant.clone(), row.key_id.clone());
                state.keys.insert(key.clone(), row.clone());
                writes.keys.insert(key, row);
            }
            Change::Record(draft) => writes.records.push(*draft),
        }
    }
}
