//! One more claim for a handoff of an inbox whose verdict is due: the answer to one poll may have been lost.

use std::time::Duration;

use super::case::Case;
use super::context::Context;

/// In [`OutboxRow::busy`] of an inbox's row, where no receiver is busy: the verdict's time is over and the handoff is
/// offered for one more claim.
pub(super) const LAST_CLAIM_OFFERED: i32 = -1;

/// That claim was taken.
pub(super) const LAST_CLAIM_TAKEN: i32 = -2;

/// How long a handoff whose verdict is due waits for one more claim, and how long that claim lasts: as long as any
/// claim, and at most a third of the verdict's time, so that a contract's short time stays short.
pub(super) fn last_claim(case: &Case<'_>, context: &Context) -> Duration {
    let granted = case.handoff.ruling.as_ref().and_then(|ruling| ruling.edge.timeout_ms);
    let verdict = granted.map_or(context.rules.verdict, Duration::from_millis);
    context.rules.claim.min(verdict / 3)
}
