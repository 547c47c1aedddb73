//! Make an earlier checkpoint the current one.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::tasks::{draft_of, task_of};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{AgentId, TaskId};
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::BatchState;

/// A checkpoint to make current; it exists, as checkpoints are never changed.
#[derive(Debug, Clone)]
pub struct RestoreCheckpoint {
    pub task_id: TaskId,
    pub at: CheckpointRef,
    /// The commitment that names it in records.
    pub commitment: [u8; 32],
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
}

impl Command for RestoreCheckpoint {
    type Reply = Task;
    const NAME: &'static str = "restore_checkpoint";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.task(self.task_id);
    }

    /// Makes an earlier checkpoint the task's current one. A rollback still restores the same: each
    /// handoff keeps the checkpoint that it came with.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let mut task = task_of(state, call, self.task_id)?;
        if task.status.is_final() {
            return Err(LedgerError::Conflict("the task has ended".to_owned()));
        }
        if task.status == TaskStatus::HandingOff {
            return Err(LedgerError::Conflict(
                "a handoff of this task is on its way; its own checkpoint is what counts"
                    .to_owned(),
            ));
        }
        if self.by.as_ref().is_some_and(|agent| *agent != task.holder) {
            return Err(LedgerError::Forbidden("only the task's current holder may restore it"));
        }
        if task.checkpoint == Some(self.at) {
            return Ok((Vec::new(), task));
        }
        task.checkpoint = Some(self.at);
        task.updated_at = call.at;
        let mut draft = draft_of(call, RecordKind::CheckpointRestored, &task, None);
        draft.checkpoint_commitment = Some(self.commitment);
        let changes = vec![Change::Task(task.clone()), Change::Record(Box::new(draft))];
        Ok((changes, task))
    }
}
