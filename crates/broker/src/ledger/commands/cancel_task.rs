//! Withdraw a task.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::returns;
use crate::ledger::tasks::{close_escalation, draft_of, task_of, withdraw_open};
use handoffd_domain::escalation::EscalationOutcome;
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::ids::{AgentId, Micros, TaskId};
use handoffd_domain::task::{Task, TaskEvent};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// A task to withdraw.
#[derive(Debug, Clone)]
pub struct CancelTask {
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// Until when who works on it may still finish.
    pub grace_until: Micros,
    /// The reason in the person's words.
    pub content: RecordContent,
}

impl Command for CancelTask {
    type Reply = Task;
    const NAME: &'static str = "cancel_task";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.whole_task(self.task_id);
    }

    /// Withdraws a task: its holder, who began it, or an operator. Handoffs that wait are withdrawn at
    /// once; a receiver that works on one may still finish until the grace is over.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut task = task_of(state, call, self.task_id)?;
        if let Some(agent) = &self.by
            && task.holder != *agent
            && task.opened_by.as_ref() != Some(agent)
        {
            return Err(LedgerError::Forbidden(
                "only the task's holder or the agent that began it may cancel it",
            ));
        }
        let next = task.status.next(TaskEvent::Cancel)?;
        let first = task.status != next;
        if let Some(agent) = &self.by
            && task.opened_by.as_ref() != Some(agent)
        {
            returns::may_end(state, call, &task, agent)?;
        }
        task.status = next;
        let mut changes = withdraw_open(state, call, context, &mut task, self.grace_until)?;
        changes.extend(returns::take_out(call, &mut task, None));
        if !first && changes.is_empty() {
            return Ok((Vec::new(), task));
        }
        changes.extend(close_escalation(state, call, &task, EscalationOutcome::Cancel));
        if first {
            let draft = draft_of(call, RecordKind::TaskCanceled, &task, Some(&self.content));
            changes.push(Change::Record(Box::new(draft)));
            changes.push(publish(Event::of_task(EventType::TaskCanceled, &task, call.at)));
        }
        task.updated_at = call.at;
        changes.push(Change::Task(task.clone()));
        Ok((changes, task))
    }
}
