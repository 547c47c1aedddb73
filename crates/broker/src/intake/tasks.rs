//! Words on a task: its output, and checkpoints stored ahead of a handoff.

use serde_json::{Map, Value};

use super::refused::{Refusal, misfit};
use super::{Intake, actor, heavy};
use crate::directory::Principal;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{CompleteTask, PutCheckpoint, RestoreCheckpoint};
use crate::reader::has_part;
use handoffd_domain::canonical;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{CheckpointRef, HandoffStatus};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_store::clock;
use handoffd_store::store::{CheckpointRow, HandoffFilter};

/// A checkpoint as a request brings it.
#[derive(Debug)]
pub struct SavedState {
    pub task_id: TaskId,
    pub execution_id: ExecutionId,
    /// The agent whose run it is: the caller's.
    pub agent: AgentId,
    /// The handoff under which a worker saves, and the token by which it holds that.
    pub fence: Option<(HandoffId, i64)>,
    /// The state itself.
    pub state: Value,
    /// Bytes of the request's body.
    pub size: usize,
}

impl Intake {
    /// Declares a task done. `members` is the body, with the task's output.
    ///
    /// # Errors
    /// The caller sees no such task, the output has a credential where none may pass, or the ledger refuses.
    pub async fn complete_task(
        &self,
        principal: &Principal,
        task_id: TaskId,
        mut members: Map<String, Value>,
    ) -> Result<(Task, Vec<Warning>), Refusal> {
        let before = principal.reader().find_task(&self.store, task_id).await?;
        let before = before.ok_or(Refusal::NotFound("task"))?;
        let mut warnings = self.redact_words(&mut members)?;
        if before.status == TaskStatus::Completed && !members.is_empty() {
            let why = "the task is COMPLETED already: these words are not kept";
            warnings.push(Warning::new(WarningCode::WithoutEffect, "", why));
        }
        let now = self.clock.now();
        let complete = CompleteTask {
            task_id,
            by: principal.reader().limit().cloned(),
            content: content(&canonical::to_vec(&Value::Object(members)), now),
        };
        let call = Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) };
        let task = self.ledger.handle(call, complete).await?;
        Ok((task, warnings))
    }

    /// Stores a checkpoint ahead of a handoff. The task need not exist yet.
    ///
    /// # Errors
    /// The state is not an object, is too large, or has a credential where none may pass; the agent has no part in the task; the task
    /// has ended; or the ledger refuses.
    pub async fn save_checkpoint(
        &self,
        principal: &Principal,
        saved: SavedState,
    ) -> Result<(CheckpointRow, Vec<Warning>), Refusal> {
        let SavedState { task_id, execution_id, agent, fence, mut state, size } = saved;
        let warnings = self.judge_credentials(&state)?;
        self.redaction.redact_checkpoint(&mut state);
        if !state.is_object() {
            return Err(misfit("", "a checkpoint is a JSON object").into());
        }
        // Once an agent had a part it always has one. The ledger looks at a task that begins in the meantime.
        let has_part = self.may_save(principal, task_id, &agent).await?;
        let canonical = heavy(size, move || canonical::to_vec(&state)).await?;
        let limit = self.limits.checkpoint_bytes;
        if canonical.len() > limit {
            let why = format!("the checkpoint has {} bytes; {limit} are allowed", canonical.len());
            return Err(Refusal::because(Code::PayloadTooLarge, why));
        }
        let part = heavy(size, move || {
            PackedContent::new(CommitmentSubject::Checkpoint, clock::random(), &canonical)
        });
        let part = part.await?;
        let put = PutCheckpoint { task_id, execution_id, agent, has_part, fence, part };
        let at = self.clock.now();
        let call = Call { tenant: principal.tenant.clone(), at, actor: actor(principal) };
        let row = self.ledger.handle(call, put).await?;
        Ok((row, warnings))
    }

    /// Makes a stored checkpoint the task's current one. An agent restores a checkpoint of its own.
    ///
    /// # Errors
    /// The caller sees no such task or checkpoint, or the ledger refuses.
    pub async fn restore_checkpoint(
        &self,
        principal: &Principal,
        task_id: TaskId,
        at: CheckpointRef,
    ) -> Result<Task, Refusal> {
        let reader = principal.reader();
        let task = reader.find_task(&self.store, task_id).await?;
        task.ok_or(Refusal::NotFound("task"))?;
        let by = reader.limit();
        let run = (principal.tenant.clone(), task_id, at.execution_id);
        let row = self.store.find_checkpoint(&run, by, Some(at.seq)).await?;
        let row = row.ok_or(Refusal::NotFound("checkpoint"))?;
        let (by, commitment) = (by.cloned(), row.part.commitment);
        let restore = RestoreCheckpoint { task_id, at, commitment, by };
        let now = self.clock.now();
        let call = Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) };
        Ok(self.ledger.handle(call, restore).await?)
    }

    /// Whether the agent has a part in the task; false before the task exists.
    async fn may_save(
        &self,
        principal: &Principal,
        id: TaskId,
        agent: &AgentId,
    ) -> Result<bool, Refusal> {
        let Some(task) = self.store.find_task(&(principal.tenant.clone(), id)).await? else {
            return Ok(false);
        };
        if !has_part(&self.store, &task, agent).await? {
            return Err(Refusal::NotFound("task"));
        }
        if task.status.is_final() && !self.is_in_grace(&task, agent).await? {
            return Err(Refusal::because(Code::Conflict, "the task has ended"));
        }
        Ok(true)
    }

    /// Whether the task was canceled and the agent may still finish what it accepted on it (docs/recovery.md): a handoff is
    /// withdrawn at the end of the grace.
    async fn is_in_grace(&self, task: &Task, agent: &AgentId) -> Result<bool, Refusal> {
        if task.status != TaskStatus::Canceled {
            return Ok(false);
        }
        let filter = HandoffFilter {
            task_id: Some(task.id),
            status: Some(HandoffStatus::Accepted),
            target: Some(agent.clone()),
            ..HandoffFilter::default()
        };
        Ok(!self.store.list_handoffs(&task.tenant, &filter, None, 1).await?.is_empty())
    }
}
