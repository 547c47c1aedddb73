//! Decisions on dead letters: an appeal upheld, refused again, or the end of it.

use super::caps;
use super::case::edges_of;
use super::command::{Command, Discard, LedgerError, Release, Reply};
use super::context::Context;
use super::decide::Decision;
use super::plan::Change;
use super::returns;
use super::submit::{draft_of, draw, guard, suspend_lease, tell};
use super::tasks::person;
use handoffd_core::domain::event::{Event, EventType};
use handoffd_core::domain::failure::{Failure, primary};
use handoffd_core::domain::funds::Funds;
use handoffd_core::domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_core::domain::ids::{HandoffId, Micros, TaskId};
use handoffd_core::domain::latency::LatencyClock;
use handoffd_core::domain::progress::{Hop, passed};
use handoffd_core::domain::task::{Task, TaskEvent};
use handoffd_core::evidence::record::{Actor, RecordKind, RecordParty};
use handoffd_store::store::{BatchState, DeadLetterRow, OutboxRow};

/// A dead letter that still waits, with its handoff and task.
fn open<'a>(
    state: &'a BatchState,
    command: &Command,
    task_id: TaskId,
    id: HandoffId,
) -> Result<(&'a DeadLetterRow, &'a Handoff, &'a Task), LedgerError> {
    let key = (command.tenant.clone(), id);
    let row = state.dead_letters.get(&key).ok_or(LedgerError::NotFound("dead letter"))?;
    if row.status != "OPEN" {
        return Err(LedgerError::Conflict(format!("this dead letter was {}", row.status)));
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
    let mut handoff = handoff.clone();
    let mut task = task.clone();
    task.status = task.status.next(TaskEvent::Submit)?;
    handoff.status = handoff.status.next(HandoffEvent::Release)?;
    handoff.target = release.target.agent_id.clone();
    handoff.target_type.clone_from(&release.target.agent_type);
    handoff.target_version = release.target.agent_version.to_string();
    handoff.mode = release.target.delivery.mode;
    let progress = task.course.progress(&release.subtasks);
    let found = guard(state, command, context, &handoff, progress);
    let refused: Vec<Failure> =
        found.into_iter().filter(|failure| !release.waived.contains(failure)).collect();
    if !refused.is_empty() {
        return Ok(refuse_again(command, row, &handoff, release, refused));
    }
    if task.handoffs == 0 {
        let (cost, reserve) = (&handoff.cost, context.rules.reserve);
        let funds = Funds::open(&handoff.source, cost, None, task.topped_up, reserve);
        task.funds.get_or_insert(Box::new(funds));
    }
    if let Some(over) = caps::check(state, command, context, (&task, None), &handoff) {
        return Ok(refuse_again(command, row, &handoff, release, vec![over.failure()]));
    }
    // What a person waived is granted.
    draw(&mut task, &handoff);
    task.fence += 1;
    task.handoffs += 1;
    task.undelivered += 1;
    task.spent = task.spent.max(handoff.cost.spent);
    task.remaining = handoff.cost.remaining;
    task.updated_at = command.at;
    handoff.fencing_token = task.fence;
    handoff.attempts = 0;
    handoff.reason = None;
    handoff.ended_at = None;
    handoff.accepted_at = None;
    // The review is nobody's latency.
    let restarted = LatencyClock::starting(command.at);
    handoff.clock = context.offered(restarted, command.at, handoff.mode);
    handoff.topped_up = task.topped_up;
    handoff.ruling.clone_from(&release.ruling);
    returns::inherit(state, command, &mut handoff);
    let seen = returns::take_out(command, &mut task, Some(&handoff.source));
    task.course.see(&release.subtasks);
    let edges = edges_of(state, command, task.id);
    let hop = Hop { source: &handoff.source, target: &handoff.target, completed: progress };
    let edge = passed(&edges, hop, &task, &handoff.cost, command.at);

    let mut released = draft_of(command, RecordKind::Released, &handoff);
    released.content = Some(release.content.clone());
    released.reason = Some(row.reason.clone());
    // The boundary is crossed now: its record is like any other's.
    let mut crossed = draft_of(command, RecordKind::Handoff, &handoff);
    crossed.actor = Actor::broker();
    crossed.reason = Some(RecordKind::Released.as_str().to_owned());
    crossed.from = Some(RecordParty {
        agent_id: Some(handoff.source.clone()),
        agent_type: None,
        agent_version: Some(handoff.source_version.clone()),
        execution_id: Some(handoff.source_execution),
        registered_version: None,
    });
    crossed.to = Some(RecordParty {
        agent_id: Some(handoff.target.clone()),
        agent_type: Some(handoff.target_type.clone()),
        agent_version: Some(handoff.target_version.clone()),
        execution_id: None,
        registered_version: None,
    });
    crossed.residency.clone_from(&release.residency);
    crossed.cost = Some(handoff.cost);
    crossed.spent = task.funds.as_ref().and_then(|funds| funds.before(handoff.id));
    crossed.shared = handoff.content_id.zip(handoff.commitment);
    crossed.checkpoint_commitment = handoff.checkpoint_commitment;
    let mut row = row.clone();
    "RELEASED".clone_into(&mut row.status);
    row.resolved_at = Some(command.at);
    row.resolved_by = Some(person(command));
    let suspended = suspend_lease(state, command, &task, handoff.id);
    let mut changes = vec![
        Change::Edge(edge),
        Change::Outbox(OutboxRow {
            tenant: command.tenant.clone(),
            handoff_id: handoff.id,
            task_id: handoff.task_id,
            seq: task.handoffs,
            target: handoff.target.clone(),
            mode: handoff.mode,
            priority: release.priority,
            visible_at: Micros(0),
            attempt: 0,
            busy: 0,
            claimed_by: None,
            created_at: command.at,
        }),
        Change::Task(task),
        Change::Handoff(handoff.clone()),
        Change::DeadLetter(row.clone()),
        Change::Record(Box::new(released)),
        Change::Record(Box::new(crossed)),
        tell(Event::of_handoff(EventType::HandoffOccurred, &handoff, command.at)),
    ];
    changes.extend(suspended);
    changes.extend(seen);
    Ok((changes, Reply::DeadLetter { row, handoff, refused: Vec::new() }))
}

/// The gate refuses it again: it is kept with what was found now, so that this can be named too.
pub(super) fn keep(state: &BatchState, command: &Command, release: &Release) -> Decision {
    let (row, handoff, _) = open(state, command, release.task_id, release.handoff_id)?;
    Ok(refuse_again(command, row, handoff, release, release.refused.clone()))
}

fn refuse_again(
    command: &Command,
    row: &DeadLetterRow,
    handoff: &Handoff,
    release: &Release,
    refused: Vec<Failure>,
) -> (Vec<Change>, Reply) {
    let mut row = row.clone();
    row.failures = release.waived.iter().chain(&refused).cloned().collect();
    let mut handoff = handoff.clone();
    handoff.status = HandoffStatus::DeadLettered;
    let mut draft = draft_of(command, RecordKind::ReleaseRefused, &handoff);
    draft.reason = primary(&refused).map(|code| code.as_str().to_owned());
    draft.content = Some(release.content.clone());
    let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
    (changes, Reply::DeadLetter { row, handoff, refused })
}

/// It will not be delivered.
pub(super) fn discard(state: &BatchState, command: &Command, discard: &Discard) -> Decision {
    let (row, handoff, _) = open(state, command, discard.task_id, discard.handoff_id)?;
    let mut row = row.clone();
    "DISCARDED".clone_into(&mut row.status);
    row.resolved_at = Some(command.at);
    row.resolved_by = Some(person(command));
    let mut draft = draft_of(command, RecordKind::Discarded, handoff);
    draft.reason = Some(row.reason.clone());
    draft.content = Some(discard.content.clone());
    let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
    Ok((changes, Reply::DeadLetter { row, handoff: handoff.clone(), refused: Vec::new() }))
}
