//! Decisions on a task as a whole: done, withdrawn, topped up, put back to an earlier checkpoint.

use super::case::{Case, open_of};
use super::command::{
    CancelTask, Command, CompleteTask, LedgerError, Reply, RestoreCheckpoint, TopUp,
};
use super::context::Context;
use super::draft::publish;
use super::groups;
use super::plan::{Change, Decision};
use super::returns;
use super::streams;
use handoffd_core::domain::escalation::{EscalationOutcome, EscalationStatus};
use handoffd_core::domain::event::{Event, EventType};
use handoffd_core::domain::group::GroupStatus;
use handoffd_core::domain::ids::{AgentId, Micros, TaskId};
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_core::evidence::record::{RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;

fn task_of(state: &BatchState, command: &Command, id: TaskId) -> Result<Task, LedgerError> {
    state.tasks.get(&(command.tenant.clone(), id)).cloned().ok_or(LedgerError::NotFound("task"))
}

/// A record that speaks of a task.
fn draft_of(
    command: &Command,
    kind: RecordKind,
    task: &Task,
    content: Option<&RecordContent>,
) -> RecordDraft {
    let mut draft =
        RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.task_id = Some(task.id);
    draft.status = Some(task.status.as_str());
    draft.content = content.cloned();
    draft
}

/// A task is done: its holder says so, or an operator.
pub(super) fn complete(
    state: &BatchState,
    command: &Command,
    context: &Context,
    complete: &CompleteTask,
) -> Decision {
    let mut task = task_of(state, command, complete.task_id)?;
    if complete.by.as_ref().is_some_and(|agent| !may_complete(&task, agent)) {
        return Err(LedgerError::Forbidden(
            "only the task's current holder may complete it, or, once the holder's own handoff is completed and nothing of the task is open, the agent that gave it the task",
        ));
    }
    let next = task.status.next(TaskEvent::Complete)?;
    if next == task.status {
        let mut changes = returns::take_out(command, &mut task, None);
        if !changes.is_empty() {
            changes.push(Change::Task(task.clone()));
        }
        return Ok((changes, Reply::Task(task)));
    }
    if let Some(agent) = &complete.by {
        returns::may_end(state, command, &task, agent)?;
        for id in open_of(state, command, task.id) {
            streams::must_be_whole(&state.handoffs[&(command.tenant.clone(), id)])?;
        }
    }
    task.status = next;
    let mut changes = finish_open(state, command, context, &mut task)?;
    changes.extend(returns::take_out(command, &mut task, None));
    changes.extend(close_escalation(state, command, &task, EscalationOutcome::Complete));
    changes.push(Change::Record(Box::new(draft_of(
        command,
        RecordKind::TaskCompleted,
        &task,
        Some(&complete.content),
    ))));
    changes.push(publish(Event::of_task(EventType::TaskCompleted, &task, command.at)));
    task.updated_at = command.at;
    changes.push(Change::Task(task.clone()));
    Ok((changes, Reply::Task(task)))
}

/// Whether an agent may say that a task is done: its holder, or, where the holder is done with its part and
/// nothing of the task is open, who gave the holder the task.
fn may_complete(task: &Task, agent: &AgentId) -> bool {
    let giver = || task.funds.as_deref()?.done_for(&task.holder);
    task.holder == *agent || giver() == Some(agent)
}

/// A finished task has nothing open: what its holder still held is finished too, and what else is open on
/// it is withdrawn.
pub(super) fn finish_open(
    state: &BatchState,
    command: &Command,
    context: &Context,
    task: &mut Task,
) -> Result<Vec<Change>, LedgerError> {
    let mut changes = groups::end(command, task, GroupStatus::Canceled, Some("TASK_COMPLETED"));
    for id in open_of(state, command, task.id) {
        let handoff = &state.handoffs[&(command.tenant.clone(), id)];
        let mut case = Case::of(state, command, context, task.clone(), handoff.clone());
        let held = handoff.status.is_held() && handoff.target == task.holder;
        if held && !handoff.is_streaming() {
            case.complete(None, None)?;
        } else {
            case.withdraw("TASK_COMPLETED")?;
        }
        let (more, after) = case.finish();
        changes.extend(more);
        *task = after;
    }
    Ok(changes)
}

/// Withdraws a task: its holder, who began it, or an operator. What waits is withdrawn at once; who
/// works on it may still finish until the grace is over.
pub(super) fn cancel(
    state: &BatchState,
    command: &Command,
    context: &Context,
    cancel: &CancelTask,
) -> Decision {
    let mut task = task_of(state, command, cancel.task_id)?;
    if let Some(agent) = &cancel.by
        && task.holder != *agent
        && task.opened_by.as_ref() != Some(agent)
    {
        return Err(LedgerError::Forbidden(
            "only the task's holder or the agent that began it may cancel it",
        ));
    }
    let next = task.status.next(TaskEvent::Cancel)?;
    let first = task.status != next;
    if let Some(agent) = &cancel.by
        && task.opened_by.as_ref() != Some(agent)
    {
        returns::may_end(state, command, &task, agent)?;
    }
    task.status = next;
    let mut changes = withdraw_open(state, command, context, &mut task, cancel.grace_until)?;
    changes.extend(returns::take_out(command, &mut task, None));
    if !first && changes.is_empty() {
        return Ok((Vec::new(), Reply::Task(task)));
    }
    changes.extend(close_escalation(state, command, &task, EscalationOutcome::Cancel));
    if first {
        let draft = draft_of(command, RecordKind::TaskCanceled, &task, Some(&cancel.content));
        changes.push(Change::Record(Box::new(draft)));
        changes.push(publish(Event::of_task(EventType::TaskCanceled, &task, command.at)));
    }
    task.updated_at = command.at;
    changes.push(Change::Task(task.clone()));
    Ok((changes, Reply::Task(task)))
}

/// Withdraws what is open of a task; an accepted handoff at the end of the grace.
pub(super) fn withdraw_open(
    state: &BatchState,
    command: &Command,
    context: &Context,
    task: &mut Task,
    grace_until: Micros,
) -> Result<Vec<Change>, LedgerError> {
    let mut changes = groups::end(command, task, GroupStatus::Canceled, Some("TASK_CANCELED"));
    for id in open_of(state, command, task.id) {
        let handoff = &state.handoffs[&(command.tenant.clone(), id)];
        let mut case = Case::of(state, command, context, task.clone(), handoff.clone());
        if handoff.status.is_held() && grace_until > command.at {
            let until = handoff.deadline_at.map_or(grace_until, |at| at.min(grace_until));
            if handoff.deadline_at == Some(until) {
                continue;
            }
            case.handoff.deadline_at = Some(until);
        } else {
            case.withdraw("TASK_CANCELED")?;
        }
        let (more, after) = case.finish();
        changes.extend(more);
        *task = after;
    }
    Ok(changes)
}

/// A task that has ended asks nobody any more.
fn close_escalation(
    state: &BatchState,
    command: &Command,
    task: &Task,
    outcome: EscalationOutcome,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in state.escalations.values() {
        if row.tenant != command.tenant || row.task_id != task.id || !row.is_open() {
            continue;
        }
        let mut row = row.clone();
        row.status = EscalationStatus::Resolved;
        row.resolved_at = Some(command.at);
        row.resolved_by = Some(person(command));
        row.resolution = Some(outcome);
        let mut draft = draft_of(command, RecordKind::EscalationResolved, task, None);
        draft.handoff_id = row.handoff_id;
        // A status beside a handoff's id is the handoff's.
        draft.status = draft.status.filter(|_| row.handoff_id.is_none());
        draft.reason = Some(outcome.as_str().to_owned());
        changes.push(Change::Escalation(row));
        changes.push(Change::Record(Box::new(draft)));
    }
    changes
}

/// By whom, for rows that people read: the key, else the agent, else the role.
pub(super) fn person(command: &Command) -> String {
    let actor = &command.actor;
    actor
        .key_id
        .clone()
        .or_else(|| actor.agent_id.as_ref().map(AgentId::to_string))
        .unwrap_or_else(|| actor.role.as_str().to_owned())
}

/// Adds to a task's budget.
pub(super) fn top_up(state: &BatchState, command: &Command, top_up: &TopUp) -> Decision {
    let mut task = task_of(state, command, top_up.task_id)?;
    if task.status.is_final() {
        return Err(LedgerError::Conflict("the task has ended".to_owned()));
    }
    let most = Usd(i64::MAX);
    if task.topped_up.plus(top_up.add) == most || task.remaining.plus(top_up.add) == most {
        let why = "the task's budget would be more than an amount can say".to_owned();
        return Err(LedgerError::Invalid("/addUSD".to_owned(), why));
    }
    task.topped_up = task.topped_up.plus(top_up.add);
    task.remaining = task.remaining.plus(top_up.add);
    if let Some(funds) = &mut task.funds {
        funds.top_up(top_up.add);
    }
    task.updated_at = command.at;
    let draft = draft_of(command, RecordKind::BudgetChanged, &task, Some(&top_up.content));
    let event = Event::of_task(EventType::TaskBudgetChanged, &task, command.at)
        .with("addedUSD", top_up.add.as_f64())
        .with("remainingUSD", task.left().as_f64());
    let changes = vec![Change::Task(task.clone()), Change::Record(Box::new(draft)), publish(event)];
    Ok((changes, Reply::Task(task)))
}

/// Makes an earlier checkpoint the task's current one. What a rollback restores is not touched: each
/// handoff keeps the checkpoint that it came with.
pub(super) fn restore(
    state: &BatchState,
    command: &Command,
    restore: &RestoreCheckpoint,
) -> Decision {
    let mut task = task_of(state, command, restore.task_id)?;
    if task.status.is_final() {
        return Err(LedgerError::Conflict("the task has ended".to_owned()));
    }
    if task.status == TaskStatus::HandingOff {
        return Err(LedgerError::Conflict(
            "a handoff of this task is on its way; its own checkpoint is what counts".to_owned(),
        ));
    }
    if restore.by.as_ref().is_some_and(|agent| *agent != task.holder) {
        return Err(LedgerError::Forbidden("only the task's current holder may restore it"));
    }
    if task.checkpoint == Some(restore.at) {
        return Ok((Vec::new(), Reply::Task(task)));
    }
    task.checkpoint = Some(restore.at);
    task.updated_at = command.at;
    let mut draft = draft_of(command, RecordKind::CheckpointRestored, &task, None);
    draft.checkpoint_commitment = Some(restore.commitment);
    let changes = vec![Change::Task(task.clone()), Change::Record(Box::new(draft))];
    Ok((changes, Reply::Task(task)))
}
