//! Decisions on dead letters: an appeal upheld, refused again, or the end of it.

use super::caps;
use super::command::{Command, Discard, KeepDeadLetter, LedgerError, Release, ReleaseGroup, Reply};
use super::context::Context;
use super::contracts;
use super::crossing::{CrossingOrigin, HandoffCrossing, resent};
use super::draft::draft_of;
use super::groups;
use super::plan::{Change, Decision};
use super::streams;
use super::submit::{ask_person, guard};
use super::tasks::person;
use handoffd_core::domain::dead_letter::DeadLetterStatus;
use handoffd_core::domain::failure::{Failure, primary};
use handoffd_core::domain::funds::Funds;
use handoffd_core::domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_core::domain::ids::{HandoffId, TaskId};
use handoffd_core::domain::latency::LatencyClock;
use handoffd_core::domain::task::{Task, TaskEvent};
use handoffd_core::evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::{BatchState, DeadLetterRow};

/// A dead letter that still waits, with its handoff and task.
fn open<'a>(
    state: &'a BatchState,
    command: &Command,
    task_id: TaskId,
    id: HandoffId,
) -> Result<(&'a DeadLetterRow, &'a Handoff, &'a Task), LedgerError> {
    let key = (command.tenant.clone(), id);
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
        state.tasks.get(&(command.tenant.clone(), task_id)).ok_or(LedgerError::NotFound("task"))?;
    Ok((row, handoff, task))
}

/// An appeal was upheld: the fresh gate run found nothing that was not waived by name, so the handoff
/// is delivered after all.
pub(super) fn release(
    state: &BatchState,
    command: &Command,
    context: &Context,
    release: &Release,
) -> Decision {
    let (row, handoff, task) = open(state, command, release.task_id, release.handoff_id)?;
    streams::must_have_closed(handoff)?;
    let mut handoff = rerouted(handoff, release)?;
    let mut task = task.clone();
    task.status = task.status.next(TaskEvent::Submit)?;
    let progress = task.course.progress(&release.subtasks);
    let failures = guard(state, command, context, &handoff, progress);
    let refused: Vec<Failure> =
        failures.into_iter().filter(|failure| !release.waived.contains(failure)).collect();
    if !refused.is_empty() {
        return Ok(refuse_again(
            command,
            row,
            &handoff,
            (&release.waived, refused),
            &release.content,
        ));
    }
    groups::may_hand_on(&task)?;
    streams::parent_must_be_whole(state, command, (handoff.parent_id, &handoff.source))?;
    let seen =
        contracts::refuse_repeat(state, command, (release.repeat.as_ref(), false), handoff.id)?;
    if task.handoffs == 0 {
        let (cost, reserve) = (&handoff.cost, context.rules.reserve);
        let declared = release.declared_budget;
        let funds = Funds::open(&handoff.source, cost, declared, task.topped_up, reserve);
        task.funds.get_or_insert(Box::new(funds));
    }
    if let Some(over) = caps::check(state, command, context, (&task, None), &handoff) {
        return Ok(refuse_again(
            command,
            row,
            &handoff,
            (&release.waived, vec![over.failure()]),
            &release.content,
        ));
    }
    // The review is nobody's latency.
    handoff.clock = LatencyClock::starting(command.at);
    (handoff.reason, handoff.ended_at, handoff.accepted_at) = (None, None, None);
    handoff.context = release.context;
    let mut decision = draft_of(command, RecordKind::Released, &handoff);
    decision.content = Some(release.content.clone());
    decision.reason = Some(row.reason.clone());
    // The boundary is crossed now: its record is like any other's.
    let mut crossed = resent(command, &handoff, release.residency.clone());
    crossed.reason = Some(RecordKind::Released.as_str().to_owned());
    crossed.safety.clone_from(&release.safety);
    let row = decided(command, row, DeadLetterStatus::Released);
    let origin = CrossingOrigin::Message { subtasks: &release.subtasks };
    let priority = release.priority;
    let crossing = HandoffCrossing { state, command, context, origin, priority, seq: None };
    let mut changes = vec![Change::Record(Box::new(decision))];
    // What a person waived is granted.
    changes.extend(crossing.cross(&mut task, &mut handoff, crossed));
    changes.extend(seen);
    changes.extend(ask_person(command, context, &mut task, &handoff)?);
    changes.extend([Change::Task(task), Change::DeadLetter(row.clone())]);
    Ok((changes, Reply::DeadLetter { row, handoff, refused: Vec::new() }))
}

/// An appeal about a message to several receivers was upheld: its group is committed as at a submission, all branches or
/// none. The dead letter's own handoff stays one; the group's branches are handoffs of their own.
pub(super) fn release_group(
    state: &BatchState,
    command: &Command,
    context: &Context,
    release: &ReleaseGroup,
) -> Decision {
    let ReleaseGroup { group, waived, content, .. } = release;
    let (row, handoff, task) = open(state, command, release.task_id, release.handoff_id)?;
    let mut task = task.clone();
    let committed =
        groups::release(state, command, context, (&mut task, handoff), (group, waived))?;
    let changes = match committed {
        Ok(changes) => changes,
        Err(refused) => {
            return Ok(refuse_again(command, row, handoff, (waived, refused), content));
        }
    };
    let mut decision = draft_of(command, RecordKind::Released, handoff);
    decision.content = Some(content.clone());
    decision.reason = Some(row.reason.clone());
    let row = decided(command, row, DeadLetterStatus::Released);
    let mut all = vec![Change::Record(Box::new(decision))];
    all.extend(changes);
    all.extend([Change::Task(task), Change::DeadLetter(row.clone())]);
    let handoff = handoff.clone();
    Ok((all, Reply::DeadLetter { row, handoff, refused: Vec::new() }))
}

/// The handoff of a dead letter, open again, with the receiver and the rules of the fresh gate run.
fn rerouted(handoff: &Handoff, release: &Release) -> Result<Handoff, LedgerError> {
    Ok(Handoff {
        status: handoff.status.next(HandoffEvent::Release)?,
        target: release.target.agent_id.clone(),
        target_type: release.target.agent_type.clone(),
        target_version: release.target.agent_version.to_string(),
        mode: release.target.delivery.mode,
        idempotent: release.idempotent,
        ruling: release.ruling.clone(),
        // Its message is compressed anew, for this receiver, and goes out whole; what another asked is over.
        sent_id: None,
        questions: Vec::new(),
        ..handoff.clone()
    })
}

/// A dead letter after a person's decision.
fn decided(command: &Command, row: &DeadLetterRow, status: DeadLetterStatus) -> DeadLetterRow {
    let (resolved_at, resolved_by) = (Some(command.at), Some(person(command)));
    DeadLetterRow { status, resolved_at, resolved_by, ..row.clone() }
}

/// The gate refuses it again: it is kept with what was found now, so that this can be named too.
pub(super) fn keep(state: &BatchState, command: &Command, keep: &KeepDeadLetter) -> Decision {
    let (row, handoff, _) = open(state, command, keep.task_id, keep.handoff_id)?;
    let findings = (&keep.waived[..], keep.refused.clone());
    Ok(refuse_again(command, row, handoff, findings, &keep.content))
}

fn refuse_again(
    command: &Command,
    row: &DeadLetterRow,
    handoff: &Handoff,
    (waived, refused): (&[Failure], Vec<Failure>),
    content: &RecordContent,
) -> (Vec<Change>, Reply) {
    let mut row = row.clone();
    row.failures = waived.iter().chain(&refused).cloned().collect();
    let mut handoff = handoff.clone();
    handoff.status = HandoffStatus::DeadLettered;
    let mut draft = draft_of(command, RecordKind::ReleaseRefused, &handoff);
    draft.reason = primary(&refused).map(|code| code.as_str().to_owned());
    draft.content = Some(content.clone());
    let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
    (changes, Reply::DeadLetter { row, handoff, refused })
}

/// It will not be delivered.
pub(super) fn discard(state: &BatchState, command: &Command, discard: &Discard) -> Decision {
    let (row, handoff, _) = open(state, command, discard.task_id, discard.handoff_id)?;
    let row = decided(command, row, DeadLetterStatus::Discarded);
    let mut draft = draft_of(command, RecordKind::Discarded, handoff);
    draft.reason = Some(row.reason.clone());
    draft.content = Some(discard.content.clone());
    let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
    Ok((changes, Reply::DeadLetter { row, handoff: handoff.clone(), refused: Vec::new() }))
}
