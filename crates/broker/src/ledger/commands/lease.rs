//! Give a fencing token to a pull receiver that claimed a handoff.

use std::time::Duration;

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::last_claim::{LAST_CLAIM_OFFERED, LAST_CLAIM_TAKEN, last_claim};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_store::store::{BatchState, OutboxRow};

/// A claim from an inbox.
#[derive(Debug, Clone)]
pub struct Lease {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted.
    pub attempt: i32,
    /// By when the receiver owes its verdict, where this is its first claim and its contract says nothing else.
    pub verdict_by: Micros,
}

/// A claim that got its token.
#[derive(Debug)]
pub struct Leased {
    /// The handoff with its token.
    pub handoff: Handoff,
    pub outbox: OutboxRow,
}

impl Command for Lease {
    type Reply = Option<Leased>;
    const NAME: &'static str = "lease";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// A claim from an inbox gets a token of its own, so that a claimant whose claim ran out is late.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let key = (call.tenant.clone(), self.handoff_id);
        let Some(row) = state.outbox.get(&key).filter(|row| row.attempt == self.attempt) else {
            return Ok((Vec::new(), None));
        };
        let over = case.handoff.deadline_at.is_some_and(|deadline| deadline <= call.at);
        if over && row.busy == LAST_CLAIM_TAKEN {
            // The sweeper ends it.
            return Ok((Vec::new(), None));
        }
        let mut row = row.clone();
        if case.handoff.deadline_at.is_some() && (over || row.busy == LAST_CLAIM_OFFERED) {
            // The last claim: it returned, and its time begins now.
            row.busy = LAST_CLAIM_TAKEN;
            case.handoff.deadline_at = Some(call.at.plus(last_claim(&case, context)));
            case.changes.push(Change::Outbox(row.clone()));
        }
        case.task.fence += 1;
        case.handoff.fencing_token = case.task.fence;
        case.handoff.attempts = row.attempt;
        // A handoff that was moved here from a webhook counts as offered by this claim at the latest.
        case.handoff.clock = context.offered(case.handoff.clock, call.at, row.mode);
        // The contract's time goes before the broker's own setting.
        let granted = case.handoff.ruling.as_ref().and_then(|ruling| ruling.edge.timeout_ms);
        case.owes_verdict(
            granted.map_or(self.verdict_by, |ms| call.at.plus(Duration::from_millis(ms))),
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
        Ok((changes, Some(Leased { handoff, outbox })))
    }
}
