//! Decisions on a task as a whole: done, withdrawn, topped up, put back to an earlier checkpoint.

use super::call::Call;
use super::case::Case;
use super::context::Context;
use super::groups;
use super::loaded::open_of;
use super::plan::Change;
use super::reply::LedgerError;
use handoffd_domain::escalation::{EscalationOutcome, EscalationStatus};
use handoffd_domain::group::GroupStatus;
use handoffd_domain::ids::{Micros, TaskId};
use handoffd_domain::task::Task;
use handoffd_evidence::record::{RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;

pub(super) fn task_of(state: &BatchState, call: &Call, id: TaskId) -> Result<Task, LedgerError> {
    state.tasks.get(&(call.tenant.clone(), id)).cloned().ok_or(LedgerError::NotFound("task"))
}

/// A record that speaks of a task.
pub(super) fn draft_of(
    call: &Call,
    kind: RecordKind,
    task: &Task,
    content: Option<&RecordContent>,
) -> RecordDraft {
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
    draft.task_id = Some(task.id);
    draft.status = Some(task.status.as_str());
    draft.content = content.cloned();
    draft
}

/// A finished task has nothing open: what its holder still held is finished too, and what else is open on
/// it is withdrawn.
pub(super) fn finish_open(
    state: &BatchState,
    call: &Call,
    context: &Context,
    task: &mut Task,
) -> Result<Vec<Change>, LedgerError> {
    let mut changes = groups::end(call, task, GroupStatus::Canceled, Some("TASK_COMPLETED"));
    for id in open_of(state, call, task.id) {
        let handoff = &state.handoffs[&(call.tenant.clone(), id)];
        let mut case = Case::of(state, call, context, task.clone(), handoff.clone());
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

/// Withdraws what is open of a task; an accepted handoff at the end of the grace.
pub(super) fn withdraw_open(
    state: &BatchState,
    call: &Call,
    context: &Context,
    task: &mut Task,
    grace_until: Micros,
) -> Result<Vec<Change>, LedgerError> {
    let mut changes = groups::end(call, task, GroupStatus::Canceled, Some("TASK_CANCELED"));
    for id in open_of(state, call, task.id) {
        let handoff = &state.handoffs[&(call.tenant.clone(), id)];
        let mut case = Case::of(state, call, context, task.clone(), handoff.clone());
        if handoff.status.is_held() && grace_until > call.at {
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

/// A task that has ended asks no person any more.
pub(super) fn close_escalation(
    state: &BatchState,
    call: &Call,
    task: &Task,
    outcome: EscalationOutcome,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in state.escalations.values() {
        if row.tenant != call.tenant || row.task_id != task.id || !row.is_open() {
            continue;
        }
        let mut row = row.clone();
        row.status = EscalationStatus::Resolved;
        row.resolved_at = Some(call.at);
        row.resolved_by = Some(call.person());
        row.resolution = Some(outcome);
        let mut draft = draft_of(call, RecordKind::EscalationResolved, task, None);
        draft.handoff_id = row.handoff_id;
        // A status beside a handoff's id is the handoff's.
        draft.status = draft.status.filter(|_| row.handoff_id.is_none());
        draft.reason = Some(outcome.as_str().to_owned());
        changes.push(Change::Escalation(row));
        changes.push(Change::Record(Box::new(draft)));
    }
    changes
}
