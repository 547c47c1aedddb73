//! Give an accepted handoff to another worker of its receiver, whose holder is silent.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::Decision;
use crate::ledger::reply::{HandoffReply, LedgerError};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::lease::{HolderPulse, Silence};
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::BatchState;

/// A takeover by another worker of the receiver.
#[derive(Debug, Clone, Copy)]
pub struct TakeOver {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// How often the new holder will be heard of, in milliseconds; `None`: its lease cannot be taken over.
    pub interval_ms: Option<u64>,
    /// The end of the new holder's lease.
    pub lease_until: Micros,
}

impl Command for TakeOver {
    type Reply = HandoffReply;
    const NAME: &'static str = "take_over";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// Another worker of the receiver takes the handoff over. The holder's token is stale from then on. Of several workers that
    /// ask at once the first one gets it: its word is the holder's, and the holder is not silent.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let refused = |why: String| Err(LedgerError::Conflict(why));
        if case.handoff.status != HandoffStatus::Accepted {
            let status = case.handoff.status.as_str();
            return refused(format!("a handoff that is {status} has no lease to take over"));
        }
        if case.task.status == TaskStatus::Canceled {
            return refused("the task was canceled: only its holder may finish it".to_owned());
        }
        if case.handoff.deadline_at.is_none() {
            return refused("the holder handed on and waits: no lease is running".to_owned());
        }
        match HolderPulse::silence(case.handoff.pulse.as_ref(), case.handoff.deadline_at, call.at) {
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
        case.handoff.deadline_at = Some(self.lease_until);
        case.handoff.pulse = None;
        case.hear(call.at, self.interval_ms);
        case.record(RecordKind::TakenOver, None, None);
        Ok(case.close())
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        Some(reply)
    }
}
