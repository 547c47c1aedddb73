//! Decisions on dead letters: an appeal upheld, refused again, or the end of it.

use super::call::Call;
use super::draft::draft_of;
use super::plan::Change;
use super::reply::{DeadLetterReply, LedgerError};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::{Failure, primary};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::task::Task;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::{BatchState, DeadLetterRow};

/// A dead letter that still waits, with its handoff and task.
pub(super) fn open<'a>(
    state: &'a BatchState,
    call: &Call,
    task_id: TaskId,
    id: HandoffId,
) -> Result<(&'a DeadLetterRow, &'a Handoff, &'a Task), LedgerError> {
    let key = (call.tenant.clone(), id);
    let row = state.dead_letters.get(&key).ok_or(LedgerError::NotFound("dead letter"))?;
    if row.status != DeadLetterStatus::Open {
        return Err(LedgerError::Conflict(format!("this dead letter was {}", row.status.as_str())));
    }
    let handoff = state
        .handoffs
        .get(&key)
        .filter(|handoff| handoff.task_id == task_id)
        .ok_or(LedgerError::NotFound("handoff"))?;
    let task =
        state.tasks.get(&(call.tenant.clone(), task_id)).ok_or(LedgerError::NotFound("task"))?;
    Ok((row, handoff, task))
}

/// A dead letter after a person's decision.
pub(super) fn decided(call: &Call, row: &DeadLetterRow, status: DeadLetterStatus) -> DeadLetterRow {
    let (resolved_at, resolved_by) = (Some(call.at), Some(call.person()));
    DeadLetterRow { status, resolved_at, resolved_by, ..row.clone() }
}

pub(super) fn refuse_again(
    call: &Call,
    row: &DeadLetterRow,
    handoff: &Handoff,
    (waived, refused): (&[Failure], Vec<Failure>),
    content: &RecordContent,
) -> (Vec<Change>, DeadLetterReply) {
    let mut row = row.clone();
    row.failures = waived.iter().chain(&refused).cloned().collect();
    let mut handoff = handoff.clone();
    handoff.status = HandoffStatus::DeadLettered;
    let mut draft = draft_of(call, RecordKind::ReleaseRefused, &handoff);
    draft.reason = primary(&refused).map(|code| code.as_str().to_owned());
    draft.content = Some(content.clone());
    let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
    (changes, DeadLetterReply { row, handoff, refused })
}
