//! Apply a passed deadline.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::failure::expired;
use crate::ledger::last_claim::{LAST_CLAIM_OFFERED, last_claim};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::HandoffReply;
use crate::ledger::streams;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::question::ANSWER_TIMEOUT;
use handoffd_domain::ruling::Trigger;
use handoffd_domain::task::TaskStatus;
use handoffd_store::store::{BatchState, OutboxRow};

/// A deadline that passed.
#[derive(Debug, Clone)]
pub struct Expire {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
}

impl Command for Expire {
    type Reply = HandoffReply;
    const NAME: &'static str = "expire";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.handoff(self.task_id, self.handoff_id);
        rows.whole_task(self.task_id);
    }

    /// A deadline that may have passed: the verdict's or the lease's.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let due = case.handoff.deadline_at.is_some_and(|deadline| deadline <= call.at);
        let stream_due = case.handoff.stream.as_ref().and_then(|stream| stream.due_at);
        let idle = stream_due.is_some_and(|deadline| deadline <= call.at);
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
            case.handoff.deadline_at = Some(call.at.plus(last_claim(&case, context)));
            case.changes.push(Change::Outbox(row));
            let (changes, mut reply) = case.close();
            // Its receiver's polls are woken.
            reply.more = true;
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

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        Some(reply)
    }
}

/// The inbox's row, offered for one more claim, if no verdict answered the last one and it returns only now, or
/// returned a moment ago: the answer to one poll may have been lost. `None` if the handoff had that already, or lay in
/// the inbox unclaimed for as long as it would get.
fn offered_again(case: &Case<'_>, context: &Context) -> Option<OutboxRow> {
    let at = case.call.at;
    let key = (case.call.tenant.clone(), case.handoff.id);
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
