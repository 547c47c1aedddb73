//! Apply a receiver's verdict on a handoff.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::failure::{HandoffFailure, failed, rejected};
use crate::ledger::groups;
use crate::ledger::needs::Rows;
use crate::ledger::plan::Decision;
use crate::ledger::reply::{HandoffReply, LedgerError};
use crate::ledger::returns;
use crate::ledger::streams;
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::{HANDED_ON, HandoffEvent, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::record::RecordContent;
use handoffd_store::store::BatchState;

/// A receiver's verdict on a handoff.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    pub kind: VerdictKind,
    /// The fencing token that the receiver states.
    pub fencing_token: i64,
    /// The receiver's request body.
    pub content: Option<RecordContent>,
    /// The spending up to now, cumulative, if the verdict states it at the end.
    pub spent: Option<Spending>,
    /// When it was said: a heartbeat may have waited in a queue.
    pub said_at: Micros,
    /// How often its holder will be heard of from now on, in milliseconds; `None`: as it said before.
    pub interval_ms: Option<u64>,
    /// The end of the lease that the verdict grants.
    pub lease_until: Micros,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictKind {
    /// The receiver takes the task.
    Accept,
    /// The receiver rejects the handoff; with a short reason.
    Reject(String),
    /// The receiver is done.
    Complete,
    /// The receiver gave up; with a short reason.
    Fail(String),
    /// The receiver still works: its lease is extended.
    Heartbeat,
}

impl Command for Verdict {
    type Reply = HandoffReply;
    const NAME: &'static str = "verdict";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.handoff(self.task_id, self.handoff_id);
        rows.edges(self.task_id);
        match self.kind {
            VerdictKind::Accept | VerdictKind::Complete => {
                rows.accepted(self.task_id, self.handoff_id);
            }
            // A failure reads the task's open handoffs too: they decide the state of the task.
            VerdictKind::Reject(_) | VerdictKind::Fail(_) => rows.open(self.task_id),
            VerdictKind::Heartbeat => {}
        }
    }

    /// A receiver's word by callback.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        if self.fencing_token != case.handoff.fencing_token
            || case.handoff.status == HandoffStatus::Expired
        {
            return Err(LedgerError::StaleLease);
        }
        let content = self.content.as_ref();
        let event = match self.kind {
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
                    // The receiver handed the task on or asked a question, and waits, so no lease runs.
                    return Ok(case.unchanged());
                }
                // A heartbeat may arrive late, or again, by a queue: it never shortens the lease.
                case.handoff.deadline_at = case.handoff.deadline_at.max(Some(self.lease_until));
                case.hear(self.said_at, self.interval_ms);
                return Ok(case.close());
            }
        };
        if case.handoff.status.next(event)? == case.handoff.status {
            let says_more = content.is_some() || self.spent.is_some();
            if self.kind == VerdictKind::Complete
                && says_more
                && case.handoff.reason.as_deref() == Some(HANDED_ON)
            {
                case.complete_after(content, self.spent);
                return Ok(case.close());
            }
            if self.kind == VerdictKind::Accept && self.interval_ms.is_some() {
                // It said yes before, without an interval or with another one.
                case.hear(self.said_at, self.interval_ms);
                return Ok(case.close());
            }
            return Ok(case.unchanged());
        }
        if matches!(self.kind, VerdictKind::Complete | VerdictKind::Fail(_)) {
            groups::may_end(&case.task, &case.handoff)?;
        }
        match &self.kind {
            VerdictKind::Accept => {
                case.accept(self.lease_until, content)?;
                case.hear(self.said_at, self.interval_ms);
            }
            VerdictKind::Reject(reason) => {
                case.undo(&rejected(reason, content))?;
            }
            VerdictKind::Fail(reason) => {
                case.undo(&HandoffFailure { spent: self.spent, ..failed(reason, content) })?;
            }
            VerdictKind::Complete => {
                if case.handoff.status == HandoffStatus::Pending {
                    case.accept(self.lease_until, None)?;
                }
                streams::must_be_whole(&case.handoff)?;
                returns::may_complete(&case.task, &case.handoff)?;
                case.complete(content, self.spent)?;
            }
            VerdictKind::Heartbeat => {}
        }
        Ok(case.close())
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        Some(reply)
    }
}
