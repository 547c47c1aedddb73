//! Declare a task done.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::loaded::open_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::returns;
use crate::ledger::streams;
use crate::ledger::tasks::{close_escalation, draft_of, finish_open, task_of};
use handoffd_domain::escalation::EscalationOutcome;
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::ids::{AgentId, TaskId};
use handoffd_domain::task::{Task, TaskEvent};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// A task declared done.
#[derive(Debug, Clone)]
pub struct CompleteTask {
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// The output.
    pub content: RecordContent,
}

impl Command for CompleteTask {
    type Reply = Task;
    const NAME: &'static str = "complete_task";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.whole_task(self.task_id);
    }

    /// A task is done: its holder says so, or an operator.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut task = task_of(state, call, self.task_id)?;
        if self.by.as_ref().is_some_and(|agent| !may_complete(&task, agent)) {
            return Err(LedgerError::Forbidden(
                "only the task's current holder may complete it, or, once the holder's own handoff is completed and nothing of the task is open, the agent that gave it the task",
            ));
        }
        let next = task.status.next(TaskEvent::Complete)?;
        if next == task.status {
            let mut changes = returns::take_out(call, &mut task, None);
            if !changes.is_empty() {
                changes.push(Change::Task(task.clone()));
            }
            return Ok((changes, task));
        }
        if let Some(agent) = &self.by {
            returns::may_end(state, call, &task, agent)?;
            for id in open_of(state, call, task.id) {
                streams::must_be_whole(&state.handoffs[&(call.tenant.clone(), id)])?;
            }
        }
        task.status = next;
        let mut changes = finish_open(state, call, context, &mut task)?;
        changes.extend(returns::take_out(call, &mut task, None));
        changes.extend(close_escalation(state, call, &task, EscalationOutcome::Complete));
        changes.push(Change::Record(Box::new(draft_of(
            call,
            RecordKind::TaskCompleted,
            &task,
            Some(&self.content),
        ))));
        changes.push(publish(Event::of_task(EventType::TaskCompleted, &task, call.at)));
        task.updated_at = call.at;
        changes.push(Change::Task(task.clone()));
        Ok((changes, task))
    }
}

/// Whether an agent may say that a task is done: its holder, or, where the holder is done with its part and
/// nothing of the task is open, who gave the holder the task.
fn may_complete(task: &Task, agent: &AgentId) -> bool {
    let giver = || task.funds.as_deref()?.done_for(&task.holder);
    task.holder == *agent || giver() == Some(agent)
}
