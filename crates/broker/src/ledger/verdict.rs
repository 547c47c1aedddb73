//! Decisions on what becomes of a handoff: verdicts, attempts, deadlines.

use std::time::Duration;

use super::case::Case;
use super::command::{
    Command, Compress, Expire, Lease, LedgerError, Outcome, Reply, Settle, TakeOver, Verdict,
    VerdictKind,
};
use super::context::Context;
use super::draft::draft_of;
use super::failing::HandoffFailure;
use super::groups;
use super::plan::{Change, Decision};
use super::returns;
use super::streams;
use handoffd_core::domain::handoff::{HANDED_ON, Handoff, HandoffEvent, HandoffStatus};
use handoffd_core::domain::ids::Micros;
use handoffd_core::domain::lease::{HolderPulse, Silence};
use handoffd_core::domain::question::ANSWER_TIMEOUT;
use handoffd_core::domain::ruling::Trigger;
use handoffd_core::domain::task::TaskStatus;
use handoffd_core::evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::attempts::AttemptRow;
use handoffd_store::store::{BatchState, OutboxRow};

/// A receiver's word by callback.
pub(super) fn verdict(
    state: &BatchState,
    command: &Command,
    context: &Context,
    verdict: &Verdict,
) -> Decision {
    let mut case = Case::open(state, command, context, verdict.task_id, verdict.handoff_id)?;
    if verdict.fencing_token != case.handoff.fencing_token
        || case.handoff.status == HandoffStatus::Expired
    {
        return Err(LedgerError::StaleLease);
    }
    let content = verdict.content.as_ref();
    let event = match verdict.kind {
        VerdictKind::Accept => HandoffEvent::Accept,
        VerdictKind::Reject(_) => HandoffEvent::Reject,
        VerdictKind::Complete => HandoffEvent::Complete,
        VerdictKind::Fail(_) => HandoffEvent::Fail,
        VerdictKind::Heartbeat => {
            if !case.handoff.status.is_held() {
                return Err(LedgerError::Conflict(format!(
                    "a handoff that is {} has no lease to extend",
                    case.handoff.status.as_str()
                )));
            }
            if case.task.status == TaskStatus::Canceled {
                return Err(LedgerError::Conflict(
                    "the task was canceled: what is not finished by the deadline is withdrawn"
                        .to_owned(),
                ));
            }
            if case.handoff.deadline_at.is_none()
                || case.handoff.status == HandoffStatus::InputRequired
            {
                // It handed on, or asked, and waits: there is no lease that runs.
                return Ok(case.unchanged());
            }
            // A heartbeat may arrive late, or again, by a queue: it never shortens the lease.
            case.handoff.deadline_at = case.handoff.deadline_at.max(Some(verdict.lease_until));
            case.hear(verdict.said_at, verdict.interval_ms);
            return Ok(case.close());
        }
    };
    if case.handoff.status.next(event)? == case.handoff.status {
        let says_more = content.is_some() || verdict.spent.is_some();
        if verdict.kind == VerdictKind::Complete
            && says_more
            && case.handoff.reason.as_deref() == Some(HANDED_ON)
        {
            case.complete_after(content, verdict.spent);
            return Ok(case.close());
        }
        if verdict.kind == VerdictKind::Accept && verdict.interval_ms.is_some() {
            // It said yes before, without an interval or with another one.
            case.hear(verdict.said_at, verdict.interval_ms);
            return Ok(case.close());
        }
        return Ok(case.unchanged());
    }
    if matches!(verdict.kind, VerdictKind::Complete | VerdictKind::Fail(_)) {
        groups::may_end(&case.task, &case.handoff)?;
    }
    match &verdict.kind {
        VerdictKind::Accept => {
            case.accept(verdict.lease_until, content)?;
            case.hear(verdict.said_at, verdict.interval_ms);
        }
        VerdictKind::Reject(reason) => {
            case.undo(&rejected(reason, content))?;
        }
        VerdictKind::Fail(reason) => {
            case.undo(&HandoffFailure { spent: verdict.spent, ..failed(reason, content) })?;
        }
        VerdictKind::Complete => {
            if case.handoff.status == HandoffStatus::Pending {
                case.accept(verdict.lease_until, None)?;
            }
            streams::must_be_whole(&case.handoff)?;
            returns::may_complete(&case.task, &case.handoff)?;
            case.complete(content, verdict.spent)?;
        }
        VerdictKind::Heartbeat => {}
    }
    Ok(case.close())
}

/// The end of an attempt at delivery.
pub(super) fn settle(
    state: &BatchState,
    command: &Command,
    context: &Context,
    settle: &Settle,
) -> Decision {
    let mut case = Case::open(state, command, context, settle.task_id, settle.handoff_id)?;
    let key = (command.tenant.clone(), settle.handoff_id);
    let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == settle.attempt) else {
        let overtaken = case.handoff.clock.offered_at.is_none()
            && case.handoff.accepted_at.is_some()
            && case.handoff.attempts == settle.attempt;
        // The handoff's last attempt is kept, though a callback or another broker ended it.
        let last = settle.row.as_deref().filter(|row| row.attempt == case.handoff.attempts);
        let last = last.map(|row| keep(row, &case.handoff));
        let (mut changes, reply) = match settle.begun_at.filter(|_| overtaken) {
            Some(at) => case.note_offer(at),
            None => (Vec::new(), Reply::Superseded),
        };
        changes.extend(last);
        return Ok((changes, reply));
    };
    if let Some(row) = settle.row.as_deref() {
        case.changes.push(keep(row, &case.handoff));
    }
    if let Some(at) = settle.begun_at {
        case.handoff.clock.offer(at);
    }
    if case.handoff.status != HandoffStatus::Pending {
        // A callback overtook the answer; what it said stands.
        case.leave_outbox();
        return Ok(case.close());
    }
    let content = settle.content.as_ref();
    match &settle.outcome {
        Outcome::Accepted => case.accept(settle.lease_until, content)?,
        Outcome::Rejected(reason) => {
            case.undo(&rejected(reason, content))?;
        }
        Outcome::Received { verdict_by } => {
            case.leave_outbox();
            case.owes_verdict(*verdict_by);
        }
        Outcome::Retry { at, why, busy, verdict_by } => {
            let mut row = row.clone();
            row.visible_at = *at;
            row.claimed_by = None;
            row.busy += i32::from(*busy);
            if let Some(by) = verdict_by {
                case.owes_verdict(*by);
            }
            case.handoff.attempts = row.attempt;
            case.handoff.reason = Some(why.clone());
            case.changes.push(Change::Outbox(row));
        }
        Outcome::Moved { mode } => {
            let mut row = row.clone();
            row.visible_at = Micros(0);
            row.claimed_by = None;
            row.mode = *mode;
            // What it counted of a webhook's busy answers means another thing in an inbox.
            row.busy = 0;
            case.handoff.mode = *mode;
            case.handoff.clock = context.offered(case.handoff.clock, command.at, *mode);
            case.changes.push(Change::Outbox(row));
        }
        Outcome::Held => {
            let mut row = row.clone();
            row.visible_at = Micros(0);
            row.claimed_by = None;
            // It was no attempt.
            row.attempt -= 1;
            case.changes.push(Change::Outbox(row));
        }
        Outcome::GivenUp { why } => {
            case.undo(&failed(why, content))?;
        }
        Outcome::Expired => case.undo(&expired("VERDICT_TIMEOUT", Trigger::Timeout))?,
        Outcome::Unclaimed => case.undo(&expired("INBOX_TIMEOUT", Trigger::Timeout))?,
    }
    Ok(case.close())
}

/// Keeps an attempt; of a handoff that was erased meanwhile, without the words of others.
fn keep(row: &AttemptRow, handoff: &Handoff) -> Change {
    let mut row = row.clone();
    if handoff.is_erased() {
        row.erase();
    }
    Change::Attempt(Box::new(row))
}

/// The compressed message becomes what the receiver gets. Only the current attempt's claimant decides that, and only
/// once: what was sent does not change.
pub(super) fn compress(state: &BatchState, command: &Command, compress: &Compress) -> Decision {
    let key = (command.tenant.clone(), compress.handoff_id);
    let handoff = state
        .handoffs
        .get(&key)
        .filter(|handoff| handoff.task_id == compress.task_id)
        .ok_or(LedgerError::NotFound("handoff"))?;
    if handoff.sent_id == Some(compress.content.id) {
        // It was committed, and the answer was lost.
        return Ok((Vec::new(), Reply::Recorded));
    }
    let current = state.outbox.get(&key).is_some_and(|row| row.attempt == compress.attempt);
    if !current || handoff.status != HandoffStatus::Pending || handoff.sent_id.is_some() {
        return Ok((Vec::new(), Reply::Superseded));
    }
    let mut handoff = handoff.clone();
    handoff.sent_id = Some(compress.content.id);
    let mut draft = draft_of(command, RecordKind::Compressed, &handoff);
    draft.content = Some(compress.content.clone());
    draft.compression = Some(compress.facts.clone());
    let changes = vec![Change::Handoff(handoff), Change::Record(Box::new(draft))];
    Ok((changes, Reply::Recorded))
}

/// A claim from an inbox gets a token of its own, so that a claimant whose claim ran out is late.
pub(super) fn lease(
    state: &BatchState,
    command: &Command,
    context: &Context,
    lease: &Lease,
) -> Decision {
    let mut case = Case::open(state, command, context, lease.task_id, lease.handoff_id)?;
    let key = (command.tenant.clone(), lease.handoff_id);
    let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == lease.attempt) else {
        return Ok((Vec::new(), Reply::Superseded));
    };
    let over = case.handoff.deadline_at.is_some_and(|deadline| deadline <= command.at);
    if over && row.busy == LAST_CLAIM_TAKEN {
        // The sweeper ends it.
        return Ok((Vec::new(), Reply::Superseded));
    }
    let mut row = row.clone();
    if case.handoff.deadline_at.is_some() && (over || row.busy == LAST_CLAIM_OFFERED) {
        // The last claim: it returned, and its time begins now.
        row.busy = LAST_CLAIM_TAKEN;
        case.handoff.deadline_at = Some(command.at.plus(last_claim(&case, context)));
        case.changes.push(Change::Outbox(row.clone()));
    }
    case.task.fence += 1;
    case.handoff.fencing_token = case.task.fence;
    case.handoff.attempts = row.attempt;
    // What was moved here from a webhook is offered by this claim at the latest.
    case.handoff.clock = context.offered(case.handoff.clock, command.at, row.mode);
    // What the contract grants goes before the broker's own setting.
    let granted = case.handoff.ruling.as_ref().and_then(|ruling| ruling.edge.timeout_ms);
    case.owes_verdict(
        granted.map_or(lease.verdict_by, |ms| command.at.plus(Duration::from_millis(ms))),
    );
    let outbox = row;
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

/// Another worker of the receiver takes the handoff over. The holder's token is stale from then on. Of several workers that
/// ask at once the first one gets it: its word is the holder's, and the holder is not silent.
pub(super) fn take_over(
    state: &BatchState,
    command: &Command,
    context: &Context,
    take: &TakeOver,
) -> Decision {
    let mut case = Case::open(state, command, context, take.task_id, take.handoff_id)?;
    let refused = |why: String| Err(LedgerError::Conflict(why));
    if case.handoff.status != HandoffStatus::Accepted {
        let status = case.handoff.status.as_str();
        return refused(format!("a handoff that is {status} has no lease to take over"));
    }
    if case.task.status == TaskStatus::Canceled {
        return refused(
            "the task was canceled: its holder may finish it, and nobody else".to_owned(),
        );
    }
    if case.handoff.deadline_at.is_none() {
        return refused("the holder handed on and waits: there is no lease that runs".to_owned());
    }
    match HolderPulse::silence(case.handoff.pulse.as_ref(), case.handoff.deadline_at, command.at) {
        Silence::Over => {}
        Silence::Until(due) => {
            return refused(format!(
                "the holder was heard of: unless it is again, its lease can be taken over at {}",
                due.rfc3339()
            ));
        }
        Silence::Unknown => {
            return refused(
                "the holder did not say how often it will be heard of (heartbeatIntervalMs): its lease can end, and not be taken over"
                    .to_owned(),
            );
        }
    }
    case.task.fence += 1;
    case.handoff.fencing_token = case.task.fence;
    case.handoff.deadline_at = Some(take.lease_until);
    case.handoff.pulse = None;
    case.hear(command.at, take.interval_ms);
    case.record(RecordKind::TakenOver, None, None);
    Ok(case.close())
}

/// In [`OutboxRow::busy`] of an inbox's row, where no receiver is busy: the verdict's time is over and the handoff is
/// offered for one more claim.
const LAST_CLAIM_OFFERED: i32 = -1;
/// That claim was taken.
const LAST_CLAIM_TAKEN: i32 = -2;

/// How long a handoff whose verdict is due waits for one more claim, and how long that claim lasts: as long as any
/// claim, and at most a third of the verdict's time, so that a contract's short time stays short.
fn last_claim(case: &Case<'_>, context: &Context) -> Duration {
    let granted = case.handoff.ruling.as_ref().and_then(|ruling| ruling.edge.timeout_ms);
    let verdict = granted.map_or(context.rules.verdict, Duration::from_millis);
    context.rules.claim.min(verdict / 3)
}

/// The inbox's row, offered for one more claim, where nobody answered the last one and it returns only now, or returned
/// a moment ago: the answer to one poll may have been lost. `None` where the handoff had that already, or lay in the
/// inbox unclaimed for as long as it would get.
fn offered_again(case: &Case<'_>, context: &Context) -> Option<OutboxRow> {
    let at = case.command.at;
    let key = (case.command.tenant.clone(), case.handoff.id);
    let row = case.state.outbox.get(&key).filter(|row| !row.mode.is_pushed())?;
    let claimed = case.was == HandoffStatus::Pending && row.claimed_by.is_some() && row.busy >= 0;
    let returned = row.visible_at.min(at);
    (claimed && at < returned.plus(last_claim(case, context))).then(|| OutboxRow {
        visible_at: at,
        claimed_by: None,
        busy: LAST_CLAIM_OFFERED,
        ..row.clone()
    })
}

/// A deadline that may have passed: the verdict's or the lease's.
pub(super) fn expire(
    state: &BatchState,
    command: &Command,
    context: &Context,
    expire: &Expire,
) -> Decision {
    let mut case = Case::open(state, command, context, expire.task_id, expire.handoff_id)?;
    let due = case.handoff.deadline_at.is_some_and(|deadline| deadline <= command.at);
    let stream_due = case.handoff.stream.as_ref().and_then(|stream| stream.due_at);
    let idle = stream_due.is_some_and(|deadline| deadline <= command.at);
    if case.handoff.status.is_final() || !(due || idle) {
        return Ok(case.unchanged());
    }
    if case.task.status == TaskStatus::Canceled {
        // The grace is over.
        case.withdraw("TASK_CANCELED")?;
        return Ok(case.close());
    }
    if idle && !due {
        case.undo(&streams::idle())?;
        return Ok(case.close());
    }
    if let Some(row) = offered_again(&case, context) {
        case.handoff.deadline_at = Some(command.at.plus(last_claim(&case, context)));
        case.changes.push(Change::Outbox(row));
        let (changes, mut reply) = case.close();
        if let Reply::Handoff { more, .. } = &mut reply {
            // Its receiver's polls are woken.
            *more = true;
        }
        return Ok((changes, reply));
    }
    let (trigger, reason) = match case.handoff.status {
        HandoffStatus::Accepted => (Trigger::Error, "LEASE_EXPIRED"),
        HandoffStatus::InputRequired => (Trigger::Error, ANSWER_TIMEOUT),
        _ => (Trigger::Timeout, "VERDICT_TIMEOUT"),
    };
    case.undo(&expired(reason, trigger))?;
    Ok(case.close())
}

/// No word in time.
pub(super) const fn expired(reason: &str, trigger: Trigger) -> HandoffFailure<'_> {
    HandoffFailure {
        event: HandoffEvent::Expire,
        kind: RecordKind::Expired,
        trigger,
        reason,
        content: None,
        spent: None,
    }
}

/// The receiver, or the broker for it, says no.
pub(super) const fn rejected<'a>(
    reason: &'a str,
    content: Option<&'a RecordContent>,
) -> HandoffFailure<'a> {
    HandoffFailure {
        event: HandoffEvent::Reject,
        kind: RecordKind::Rejected,
        trigger: Trigger::Reject,
        reason,
        content,
        spent: None,
    }
}

const fn failed<'a>(reason: &'a str, content: Option<&'a RecordContent>) -> HandoffFailure<'a> {
    HandoffFailure {
        event: HandoffEvent::Fail,
        kind: RecordKind::Failed,
        trigger: Trigger::Error,
        reason,
        content,
        spent: None,
    }
}
