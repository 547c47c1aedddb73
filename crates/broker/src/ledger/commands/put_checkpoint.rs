//! Store a checkpoint.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::submission::run_by;
use handoffd_domain::handoff::{CheckpointRef, HandoffStatus};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_evidence::commitment::PackedContent;
use handoffd_evidence::record::{RecordDraft, RecordKind};
use handoffd_store::store::{BatchState, CheckpointRow};

/// A checkpoint to store.
#[derive(Debug, Clone)]
pub struct PutCheckpoint {
    pub task_id: TaskId,
    pub execution_id: ExecutionId,
    pub agent: AgentId,
    /// Whether the agent, where it does not hold the task, sent or received a handoff on it.
    pub has_part: bool,
    /// The handoff under which its worker saves, with the token that must be current.
    pub fence: Option<(HandoffId, i64)>,
    /// The state.
    pub part: PackedContent,
}

impl Command for PutCheckpoint {
    type Reply = CheckpointRow;
    const NAME: &'static str = "put_checkpoint";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.task(self.task_id);
        rows.run(self.task_id, self.execution_id, &self.agent);
        if let Some((handoff_id, _)) = self.fence {
            rows.handoff(self.task_id, handoff_id);
        }
    }

    /// Stores a checkpoint ahead of a handoff: for an agent that has a part in the task, or before there is one.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let task = state.tasks.get(&(call.tenant.clone(), self.task_id));
        if task.is_some_and(|task| !self.has_part && task.holder != self.agent) {
            return Err(LedgerError::NotFound("task"));
        }
        if let Some((handoff_id, token)) = self.fence {
            let held = state
                .handoffs
                .get(&(call.tenant.clone(), handoff_id))
                .filter(|handoff| handoff.task_id == self.task_id && handoff.target == self.agent)
                .ok_or(LedgerError::NotFound("handoff"))?;
            if held.fencing_token != token || held.status == HandoffStatus::Expired {
                return Err(LedgerError::StaleLease);
            }
        }
        let run = run_by(state, call, (self.task_id, self.execution_id), &self.agent);
        let row = CheckpointRow {
            tenant: call.tenant.clone(),
            task_id: self.task_id,
            at: CheckpointRef { execution_id: self.execution_id, seq: run.next },
            agent: self.agent.clone(),
            part: self.part.clone(),
            created_at: call.at,
        };
        let mut draft = RecordDraft::new(
            call.tenant.clone(),
            RecordKind::Checkpoint,
            call.at,
            call.actor.clone(),
        );
        draft.task_id = Some(self.task_id);
        draft.checkpoint_commitment = Some(self.part.commitment);
        Ok((vec![Change::Checkpoint(row.clone()), Change::Record(Box::new(draft))], row))
    }
}
