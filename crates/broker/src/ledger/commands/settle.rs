//! Apply the outcome of a delivery attempt.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command, Freed};
use crate::ledger::context::Context;
use crate::ledger::failure::{expired, failed, rejected};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decided, Decision};
use crate::ledger::reply::HandoffReply;
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::ruling::Trigger;
use handoffd_evidence::record::RecordContent;
use handoffd_store::store::BatchState;
use handoffd_store::store::attempts::AttemptRow;

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Settle {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt's number; if the outbox has another, this attempt is no longer the current one.
    pub attempt: i32,
    /// When its request was begun; none where there was none.
    pub begun_at: Option<Micros>,
    pub outcome: Outcome,
    /// The receiver's answer.
    pub content: Option<RecordContent>,
    /// The end of the lease that an acceptance grants.
    pub lease_until: Micros,
    /// The row of the attempt, where one is kept.
    pub row: Option<Box<AttemptRow>>,
}

/// The outcome of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver accepted in its answer.
    Accepted,
    /// The receiver rejected in its answer.
    Rejected(String),
    /// The receiver has the handoff and owes a verdict.
    Received { verdict_by: Micros },
    /// The broker tries again.
    Retry {
        /// Earliest time of the next attempt.
        at: Micros,
        /// The reason, a short text.
        why: String,
        /// The receiver put it off until then: this was no attempt.
        busy: bool,
        /// By when the receiver owes its verdict, where this or an earlier attempt reached it.
        verdict_by: Option<Micros>,
    },
    /// The verdict clock ran out.
    Expired,
    /// The receiver did not claim the handoff from its inbox in time.
    Unclaimed,
    /// The receiver no longer takes its handoffs this way: back to the outbox, for that way.
    Moved { mode: DeliveryMode },
    /// The receiver is paused: back to the outbox until it runs again; this was no attempt.
    Held,
    /// The broker does not try again.
    GivenUp {
        /// The reason, a short text.
        why: String,
    },
}

impl Command for Settle {
    type Reply = Option<HandoffReply>;
    const NAME: &'static str = "settle";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.handoff(self.task_id, self.handoff_id);
        rows.edges(self.task_id);
        match self.outcome {
            Outcome::Accepted => rows.accepted(self.task_id, self.handoff_id),
            Outcome::Rejected(_)
            | Outcome::GivenUp { .. }
            | Outcome::Expired
            | Outcome::Unclaimed => rows.open(self.task_id),
            Outcome::Received { .. }
            | Outcome::Retry { .. }
            | Outcome::Moved { .. }
            | Outcome::Held => {}
        }
    }

    /// The end of an attempt at delivery.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let key = (call.tenant.clone(), self.handoff_id);
        let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == self.attempt) else {
            let overtaken = case.handoff.clock.offered_at.is_none()
                && case.handoff.accepted_at.is_some()
                && case.handoff.attempts == self.attempt;
            // The handoff's last attempt is kept, though a callback or another broker ended it.
            let last = self.row.as_deref().filter(|row| row.attempt == case.handoff.attempts);
            let last = last.map(|row| keep(row, &case.handoff));
            let (mut changes, reply) = match self.begun_at.filter(|_| overtaken) {
                Some(at) => some(case.note_offer(at)),
                None => (Vec::new(), None),
            };
            changes.extend(last);
            return Ok((changes, reply));
        };
        if let Some(row) = self.row.as_deref() {
            case.changes.push(keep(row, &case.handoff));
        }
        if let Some(at) = self.begun_at {
            case.handoff.clock.offer(at);
        }
        if case.handoff.status != HandoffStatus::Pending {
            // A callback overtook the answer; the callback's verdict stays.
            case.leave_outbox();
            return Ok(some(case.close()));
        }
        let content = self.content.as_ref();
        match &self.outcome {
            Outcome::Accepted => case.accept(self.lease_until, content)?,
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
                // Its count of a webhook's busy answers has another meaning in an inbox.
                row.busy = 0;
                case.handoff.mode = *mode;
                case.handoff.clock = context.offered(case.handoff.clock, call.at, *mode);
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
        Ok(some(case.close()))
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        reply.as_ref()
    }

    fn frees(&self, _reply: Option<&Self::Reply>) -> Option<Freed> {
        matches!(self.outcome, Outcome::Moved { .. }).then_some(Freed::Inbox)
    }
}

/// Keeps an attempt; of a handoff that was erased meanwhile, without the words of others.
fn keep(row: &AttemptRow, handoff: &Handoff) -> Change {
    let mut row = row.clone();
    if handoff.is_erased() {
        row.erase();
    }
    Change::Attempt(Box::new(row))
}

fn some((changes, reply): Decided<HandoffReply>) -> Decided<Option<HandoffReply>> {
    (changes, Some(reply))
}
