//! Decisions on what becomes of a handoff: verdicts, attempts, deadlines, and the rollback.

use super::command::{
    Command, CompleteTask, Expire, Lease, LedgerError, Outcome, Reply, Settle, Verdict, Word,
};
use super::decide::Decision;
use super::plan::Change;
use super::submit::draft_of;
use crate::domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use crate::domain::ids::{HandoffId, Micros, TaskId};
use crate::domain::task::{Task, TaskEvent};
use crate::evidence::record::{Actor, Content, Draft, RecordKind};
use crate::store::State;

/// The longest reason kept with a handoff, in characters; what was said in full is its record's
/// content.
const MAX_REASON: usize = 500;

/// A handoff with its task, as they are and as they will be.
struct Case<'a> {
    state: &'a State,
    command: &'a Command,
    task: Task,
    handoff: Handoff,
    was: HandoffStatus,
    rolled_back: bool,
    freed: bool,
    changes: Vec<Change>,
}

impl<'a> Case<'a> {
    fn open(
        state: &'a State,
        command: &'a Command,
        task_id: TaskId,
        handoff_id: HandoffId,
    ) -> Result<Self, LedgerError> {
        let handoff = state
            .handoffs
            .get(&(command.tenant.clone(), handoff_id))
            .filter(|handoff| handoff.task_id == task_id)
            .ok_or(LedgerError::NotFound("handoff"))?;
        let task = state
            .tasks
            .get(&(command.tenant.clone(), task_id))
            .ok_or(LedgerError::NotFound("task"))?;
        Ok(Self {
            state,
            command,
            task: task.clone(),
            handoff: handoff.clone(),
            was: handoff.status,
            rolled_back: false,
            freed: false,
            changes: Vec::new(),
        })
    }

    fn record(&mut self, kind: RecordKind, reason: Option<String>, content: Option<&Content>) {
        let mut draft = draft_of(self.command, kind, &self.handoff);
        draft.reason = reason;
        draft.content = content.cloned();
        if kind == RecordKind::RolledBack {
            // Whoever said no, putting things back is the broker's doing.
            draft.actor = Actor::broker();
        }
        self.changes.push(Change::Record(Box::new(draft)));
    }

    /// It no longer waits for delivery.
    fn leave_outbox(&mut self) {
        let key = (self.command.tenant.clone(), self.handoff.id);
        if let Some(row) = self.state.outbox.get(&key) {
            self.handoff.attempts = row.attempt;
            self.changes.push(Change::NoOutbox(key));
            self.freed = true;
            self.task.undelivered = (self.task.undelivered - 1).max(0);
        }
    }

    fn accept(
        &mut self,
        lease_until: Micros,
        content: Option<&Content>,
    ) -> Result<(), LedgerError> {
        self.handoff.status = self.handoff.status.next(HandoffEvent::Accept)?;
        self.handoff.accepted_at = Some(self.command.at);
        self.handoff.deadline_at = Some(lease_until);
        self.handoff.reason = None;
        self.task.status = self.task.status.next(TaskEvent::Accept)?;
        self.task.holder = self.handoff.target.clone();
        self.task.failures = 0;
        self.leave_outbox();
        self.record(RecordKind::Accepted, None, content);
        Ok(())
    }

    /// Whether the task stands where this handoff brought it: nothing was handed on since (the last
    /// fencing token is its own), and nobody else has the task. An old lease that runs out, or the
    /// rejection of one of several, must not undo what others have gone on with.
    fn is_current(&self) -> bool {
        let holder = match self.was {
            HandoffStatus::Accepted => &self.handoff.target,
            _ => &self.handoff.source,
        };
        !self.task.status.is_final()
            && self.handoff.fencing_token == self.task.fence
            && self.task.holder == *holder
    }

    /// Ends the handoff badly and, where it is the task's current one, gives the task back to its
    /// sender (specification §5, `source`).
    fn undo(
        &mut self,
        event: HandoffEvent,
        kind: RecordKind,
        reason: &str,
        content: Option<&Content>,
    ) -> Result<(), LedgerError> {
        self.handoff.status = self.handoff.status.next(event)?;
        self.handoff.ended_at = Some(self.command.at);
        self.handoff.deadline_at = None;
        // Postgres takes no NUL in a text, and no reason needs one.
        self.handoff.reason =
            Some(reason.chars().filter(|c| *c != '\0').take(MAX_REASON).collect());
        let current = self.is_current();
        self.leave_outbox();
        self.record(kind, Some(as_code(reason, kind)), content);
        self.task.failures += 1;
        if !current {
            return Ok(());
        }
        self.rolled_back = true;
        self.task.status = self.task.status.next(TaskEvent::RollBack)?;
        self.task.holder = self.handoff.source.clone();
        self.task.checkpoint = self.handoff.checkpoint;
        // Whoever still holds the old token is late from here on.
        self.task.fence += 1;
        self.record(RecordKind::RolledBack, Some(as_code(reason, kind)), None);
        Ok(())
    }

    fn close(mut self) -> (Vec<Change>, Reply) {
        self.task.updated_at = self.command.at;
        let more = self.freed && self.task.undelivered > 0;
        self.changes.push(Change::Task(self.task));
        let repeated = self.handoff.status == self.was;
        self.changes.push(Change::Handoff(self.handoff.clone()));
        let rolled_back = self.rolled_back;
        (self.changes, Reply::Handoff { handoff: self.handoff, repeated, rolled_back, more })
    }

    fn unchanged(self) -> (Vec<Change>, Reply) {
        let reply = Reply::Handoff {
            handoff: self.handoff,
            repeated: true,
            rolled_back: false,
            more: false,
        };
        (Vec::new(), reply)
    }
}

/// A reason as it may stand in a record: a code stays, free text becomes the kind's own code (a
/// record cannot be erased, so nobody's words go there).
fn as_code(reason: &str, kind: RecordKind) -> String {
    let is_code = (2..=64).contains(&reason.len())
        && reason.starts_with(|c: char| c.is_ascii_uppercase())
        && reason.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if is_code { reason.to_owned() } else { format!("{}_BY_RECEIVER", kind.as_str()) }
}

/// A receiver's word by callback.
pub(super) fn verdict(state: &State, command: &Command, verdict: &Verdict) -> Decision {
    let mut case = Case::open(state, command, verdict.task_id, verdict.handoff_id)?;
    if verdict.fencing_token != case.handoff.fencing_token
        || case.handoff.status == HandoffStatus::Expired
    {
        return Err(LedgerError::StaleLease);
    }
    let content = verdict.content.as_ref();
    let event = match verdict.word {
        Word::Accept => HandoffEvent::Accept,
        Word::Reject(_) => HandoffEvent::Reject,
        Word::Complete => HandoffEvent::Complete,
        Word::Fail(_) => HandoffEvent::Fail,
        Word::Heartbeat => {
            if case.handoff.status != HandoffStatus::Accepted {
                return Err(LedgerError::Conflict(format!(
                    "a handoff that is {} has no lease to extend",
                    case.handoff.status.as_str()
                )));
            }
            case.handoff.deadline_at = Some(verdict.lease_until);
            return Ok(case.close());
        }
    };
    if case.handoff.status.next(event)? == case.handoff.status {
        return Ok(case.unchanged());
    }
    match &verdict.word {
        Word::Accept => case.accept(verdict.lease_until, content)?,
        Word::Reject(reason) => {
            case.undo(HandoffEvent::Reject, RecordKind::Rejected, reason, content)?;
        }
        Word::Fail(reason) => {
            case.undo(HandoffEvent::Fail, RecordKind::Failed, reason, content)?;
        }
        Word::Complete => {
            if case.handoff.status == HandoffStatus::Pending {
                case.accept(verdict.lease_until, None)?;
            }
            case.handoff.status = case.handoff.status.next(HandoffEvent::Complete)?;
            case.handoff.ended_at = Some(command.at);
            case.handoff.deadline_at = None;
            case.record(RecordKind::Completed, None, content);
        }
        Word::Heartbeat => {}
    }
    Ok(case.close())
}

/// The end of an attempt at delivery.
pub(super) fn settle(state: &State, command: &Command, settle: &Settle) -> Decision {
    let mut case = Case::open(state, command, settle.task_id, settle.handoff_id)?;
    let key = (command.tenant.clone(), settle.handoff_id);
    let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == settle.attempt) else {
        return Ok((Vec::new(), Reply::Superseded));
    };
    if case.handoff.status != HandoffStatus::Pending {
        // A callback overtook the answer; what it said stands.
        case.leave_outbox();
        return Ok(case.close());
    }
    let content = settle.content.as_ref();
    match &settle.outcome {
        Outcome::Accepted => case.accept(settle.lease_until, content)?,
        Outcome::Rejected(reason) => {
            case.undo(HandoffEvent::Reject, RecordKind::Rejected, reason, content)?;
        }
        Outcome::Received { verdict_by } => {
            case.leave_outbox();
            case.handoff.deadline_at = Some(*verdict_by);
        }
        Outcome::Retry { at, why } => {
            let mut row = row.clone();
            row.visible_at = *at;
            row.claimed_by = None;
            case.handoff.attempts = row.attempt;
            case.handoff.reason = Some(why.clone());
            case.changes.push(Change::Outbox(row));
        }
        Outcome::GivenUp { why } => {
            case.undo(HandoffEvent::Fail, RecordKind::Failed, why, content)?;
        }
    }
    Ok(case.close())
}

/// A claim from an inbox gets a token of its own, so that a claimant whose claim ran out is late.
pub(super) fn lease(state: &State, command: &Command, lease: &Lease) -> Decision {
    let mut case = Case::open(state, command, lease.task_id, lease.handoff_id)?;
    let key = (command.tenant.clone(), lease.handoff_id);
    let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == lease.attempt) else {
        return Ok((Vec::new(), Reply::Superseded));
    };
    case.task.fence += 1;
    case.handoff.fencing_token = case.task.fence;
    case.handoff.attempts = row.attempt;
    let outbox = row.clone();
    let (changes, _) = case.close();
    let handoff = changes
        .iter()
        .find_map(|change| match change {
            Change::Handoff(handoff) => Some(handoff.clone()),
            _ => None,
        })
        .ok_or(LedgerError::NotFound("handoff"))?;
    Ok((changes, Reply::Leased { handoff, outbox }))
}

/// A deadline that may have passed: the verdict's or the lease's.
pub(super) fn expire(state: &State, command: &Command, expire: &Expire) -> Decision {
    let mut case = Case::open(state, command, expire.task_id, expire.handoff_id)?;
    let due = case.handoff.deadline_at.is_some_and(|deadline| deadline <= command.at);
    if case.handoff.status.is_final() || !due {
        return Ok(case.unchanged());
    }
    let reason = if case.handoff.status == HandoffStatus::Accepted {
        "LEASE_EXPIRED"
    } else {
        "VERDICT_TIMEOUT"
    };
    case.undo(HandoffEvent::Expire, RecordKind::Expired, reason, None)?;
    Ok(case.close())
}

/// A task is done: its holder says so, or an operator.
pub(super) fn complete_task(state: &State, command: &Command, complete: &CompleteTask) -> Decision {
    let mut task = state
        .tasks
        .get(&(command.tenant.clone(), complete.task_id))
        .cloned()
        .ok_or(LedgerError::NotFound("task"))?;
    if complete.by.as_ref().is_some_and(|agent| *agent != task.holder) {
        return Err(LedgerError::Forbidden("only the task's current holder may complete it"));
    }
    let next = task.status.next(TaskEvent::Complete)?;
    if next == task.status {
        return Ok((Vec::new(), Reply::Task(task)));
    }
    task.status = next;
    task.updated_at = command.at;
    let mut draft = Draft::new(
        command.tenant.clone(),
        RecordKind::TaskCompleted,
        command.at,
        command.actor.clone(),
    );
    draft.task_id = Some(task.id);
    draft.status = Some(next.as_str());
    draft.content = Some(complete.content.clone());
    Ok((vec![Change::Task(task.clone()), Change::Record(Box::new(draft))], Reply::Task(task)))
}
