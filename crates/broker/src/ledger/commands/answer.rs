//! Answer a receiver's question.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::Decision;
use crate::ledger::questions::{mark, record, refuse_if_canceled};
use crate::ledger::reply::{HandoffReply, LedgerError};
use crate::ledger::returns::close_question;
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::HandoffEvent;
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_domain::question;
use handoffd_domain::question::Likeness;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// The answer to a receiver's question.
#[derive(Debug, Clone)]
pub struct Answer {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// Which question, from 1: the one whose schema the answer fits.
    pub number: u32,
    /// The agent that answers; none: a person.
    pub by: Option<AgentId>,
    /// The answer, as the record commits to it.
    pub content: RecordContent,
    /// The same in canonical form, to tell a repeat from another answer.
    pub whole: Vec<u8>,
    pub key: Option<String>,
}

impl Command for Answer {
    type Reply = HandoffReply;
    const NAME: &'static str = "answer";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// Answers the open question: the receiver works on, under a lease that begins anew, unless it waits for what it
    /// handed on.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let request = mark(&case.handoff, &self.whole, self.key.as_ref());
        let place = usize::try_from(self.number).ok().and_then(|number| number.checked_sub(1));
        let asked = place.and_then(|place| case.handoff.questions.get(place));
        let asked = asked.ok_or(LedgerError::NotFound("question"))?;
        if let Some(known) = &asked.answer {
            return match known.request.likeness(&request) {
                Likeness::Same => Ok(case.unchanged()),
                Likeness::Contradicts => Err(LedgerError::IdempotencyMismatch),
                Likeness::Other => {
                    let number = self.number;
                    Err(LedgerError::Conflict(format!("question {number} is answered")))
                }
            };
        }
        refuse_if_canceled(&case)?;
        case.handoff.status = case.handoff.status.next(HandoffEvent::Answer)?;
        let given = question::Answer {
            content: self.content.id,
            answered_at: call.at,
            by: self.by.clone(),
            request,
        };
        if let Some(asked) = place.and_then(|place| case.handoff.questions.get_mut(place)) {
            asked.answer = Some(given);
        }
        let funds = case.task.funds.as_deref();
        let waits = funds.is_some_and(|funds| funds.is_handed_on(case.handoff.id));
        case.handoff.deadline_at = (!waits).then(|| call.at.plus(context.rules.lease));
        // The holder waited, and was not silent: it has its intervals from here.
        case.hear(call.at, None);
        record(&mut case, RecordKind::InputProvided, self.number, &self.content);
        let (number, receiver) = (self.number, case.handoff.target.clone());
        case.publish(EventType::HandoffInputProvided, |mut event| {
            event.audience = Some(receiver);
            event.with("question", number)
        });
        case.changes.push(close_question(&case.handoff));
        Ok(case.close())
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        Some(reply)
    }
}
