//! Put a receiver's question to the sender of its handoff.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::questions::{mark, record, refuse_if_canceled};
use crate::ledger::reply::{HandoffReply, LedgerError};
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::question::{Likeness, MAX_QUESTIONS, Question, RequestMark};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::{BatchState, ReturnRow};

/// A question of a receiver to the sender of its handoff.
#[derive(Debug, Clone)]
pub struct Ask {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The fencing token that the receiver states.
    pub fencing_token: i64,
    /// Question and schema, as the record commits to them.
    pub content: RecordContent,
    /// The same in canonical form, to tell a repeat from another question.
    pub whole: Vec<u8>,
    pub key: Option<String>,
    /// When the handoff expires without an answer.
    pub answer_by: Micros,
}

impl Command for Ask {
    type Reply = HandoffReply;
    const NAME: &'static str = "ask";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// Puts a question to the sender: the lease stops, and the time for the answer runs. One question is open at most; the
    /// same request again changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        if self.fencing_token != case.handoff.fencing_token
            || case.handoff.status == HandoffStatus::Expired
        {
            return Err(LedgerError::StaleLease);
        }
        let request = mark(&case.handoff, &self.whole, self.key.as_ref());
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
        let answer_by = self.answer_by;
        let (content, asked_at) = (self.content.id, call.at);
        case.handoff.questions.push(Question {
            content,
            asked_at,
            answer_by,
            request,
            answer: None,
        });
        case.handoff.deadline_at = Some(answer_by);
        let number = u32::try_from(case.handoff.questions.len()).unwrap_or(u32::MAX);
        record(&mut case, RecordKind::InputRequested, number, &self.content);
        case.publish(EventType::HandoffInputRequired, |event| {
            event.with("question", number).with("answerBy", answer_by.rfc3339())
        });
        let item = ReturnRow {
            tenant: call.tenant.clone(),
            handoff_id: case.handoff.id,
            task_id: case.handoff.task_id,
            agent: case.handoff.source.clone(),
            returned_at: call.at,
            // At once, whatever another broker's clock says.
            visible_at: Micros(0),
            question: Some(number),
        };
        case.changes.push(Change::Return(item));
        Ok(case.close())
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        Some(reply)
    }
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
