//! Decisions on what a receiver asks the sender of its handoff, and on the answers (specification §10.3).

use super::case::Case;
use super::command::{Answer, Ask, Command, LedgerError};
use super::context::Context;
use super::draft::draft_of;
use super::plan::{Change, Decision};
use handoffd_core::domain::event::EventType;
use handoffd_core::domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_core::domain::ids::Micros;
use handoffd_core::domain::question::{self, Likeness, MAX_QUESTIONS, Question, RequestMark};
use handoffd_core::domain::task::TaskStatus;
use handoffd_core::evidence::commitment::{CommitmentSubject, commit};
use handoffd_core::evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::{BatchState, ReturnRow};

/// Puts a question to the sender: the lease stops, and the time for the answer runs. One question is open at most; the
/// same request again changes nothing.
pub(super) fn ask(state: &BatchState, command: &Command, context: &Context, ask: &Ask) -> Decision {
    let mut case = Case::open(state, command, context, ask.task_id, ask.handoff_id)?;
    if ask.fencing_token != case.handoff.fencing_token
        || case.handoff.status == HandoffStatus::Expired
    {
        return Err(LedgerError::StaleLease);
    }
    let request = mark(&case.handoff, &ask.whole, ask.key.as_ref());
    if is_repeated(&case.handoff, &request)? {
        return Ok(case.unchanged());
    }
    refuse_if_canceled(&case)?;
    if let Some(open) = case.handoff.open_question() {
        return Err(LedgerError::Conflict(format!(
            "question {open} is open: it is answered first"
        )));
    }
    case.handoff.status = case.handoff.status.next(HandoffEvent::Ask)?;
    if case.handoff.questions.len() >= MAX_QUESTIONS {
        return Err(LedgerError::Conflict(format!(
            "a handoff may ask {MAX_QUESTIONS} questions at most"
        )));
    }
    let answer_by = ask.answer_by;
    let (content, asked_at) = (ask.content.id, command.at);
    case.handoff.questions.push(Question { content, asked_at, answer_by, request, answer: None });
    case.handoff.deadline_at = Some(answer_by);
    let number = u32::try_from(case.handoff.questions.len()).unwrap_or(u32::MAX);
    record(&mut case, RecordKind::InputRequested, number, &ask.content);
    case.publish(EventType::HandoffInputRequired, |event| {
        event.with("question", number).with("answerBy", answer_by.rfc3339())
    });
    let item = ReturnRow {
        tenant: command.tenant.clone(),
        handoff_id: case.handoff.id,
        task_id: case.handoff.task_id,
        agent: case.handoff.source.clone(),
        returned_at: command.at,
        // At once, whatever another broker's clock says.
        visible_at: Micros(0),
        question: Some(number),
    };
    case.changes.push(Change::Return(item));
    Ok(case.close())
}

/// Answers the open question: the receiver works on, under a lease that begins anew, unless it waits for what it
/// handed on.
pub(super) fn answer(
    state: &BatchState,
    command: &Command,
    context: &Context,
    answer: &Answer,
) -> Decision {
    let mut case = Case::open(state, command, context, answer.task_id, answer.handoff_id)?;
    let request = mark(&case.handoff, &answer.whole, answer.key.as_ref());
    let place = usize::try_from(answer.number).ok().and_then(|number| number.checked_sub(1));
    let asked = place.and_then(|place| case.handoff.questions.get(place));
    let asked = asked.ok_or(LedgerError::NotFound("question"))?;
    if let Some(known) = &asked.answer {
        return match known.request.likeness(&request) {
            Likeness::Same => Ok(case.unchanged()),
            Likeness::Contradicts => Err(LedgerError::IdempotencyMismatch),
            Likeness::Other => {
                let number = answer.number;
                Err(LedgerError::Conflict(format!("question {number} is answered")))
            }
        };
    }
    refuse_if_canceled(&case)?;
    case.handoff.status = case.handoff.status.next(HandoffEvent::Answer)?;
    let given = question::Answer {
        content: answer.content.id,
        answered_at: command.at,
        by: answer.by.clone(),
        request,
    };
    if let Some(asked) = place.and_then(|place| case.handoff.questions.get_mut(place)) {
        asked.answer = Some(given);
    }
    let funds = case.task.funds.as_deref();
    let waits = funds.is_some_and(|funds| funds.is_handed_on(case.handoff.id));
    case.handoff.deadline_at = (!waits).then(|| command.at.plus(context.rules.lease));
    // The holder waited, and was not silent: it has its intervals from here.
    case.hear(command.at, None);
    record(&mut case, RecordKind::InputProvided, answer.number, &answer.content);
    let (number, receiver) = (answer.number, case.handoff.target.clone());
    case.publish(EventType::HandoffInputProvided, |mut event| {
        event.audience = Some(receiver);
        event.with("question", number)
    });
    case.changes.push(close(&case.handoff));
    Ok(case.close())
}

/// Takes a question out of the sender's inbox.
pub(super) fn close(handoff: &Handoff) -> Change {
    Change::NoReturn((handoff.tenant.clone(), handoff.id))
}

/// Whether the request was carried out before: by its key, or, without one, by its body while its question is open.
fn is_repeated(handoff: &Handoff, request: &RequestMark) -> Result<bool, LedgerError> {
    for asked in &handoff.questions {
        let is_open = asked.answer.is_none() && handoff.status == HandoffStatus::InputRequired;
        match asked.request.likeness(request) {
            Likeness::Same if request.key.is_some() || is_open => return Ok(true),
            Likeness::Contradicts => return Err(LedgerError::IdempotencyMismatch),
            Likeness::Same | Likeness::Other => {}
        }
    }
    Ok(false)
}

fn mark(handoff: &Handoff, whole: &[u8], key: Option<&String>) -> RequestMark {
    let digest = match &handoff.digest_salt[..] {
        [] => String::new(),
        salt => hex::encode(commit(CommitmentSubject::Submission, salt, whole)),
    };
    RequestMark { digest, key: key.cloned() }
}

fn refuse_if_canceled(case: &Case<'_>) -> Result<(), LedgerError> {
    if case.task.status == TaskStatus::Canceled && !case.handoff.status.is_final() {
        return Err(LedgerError::Conflict(
            "the task was canceled: what is not finished by the deadline is withdrawn".to_owned(),
        ));
    }
    Ok(())
}

fn record(case: &mut Case<'_>, kind: RecordKind, number: u32, content: &RecordContent) {
    let mut draft = draft_of(case.command, kind, &case.handoff);
    draft.content = Some(content.clone());
    draft.question = Some(number);
    case.changes.push(Change::Record(Box::new(draft)));
}
