//! Decisions on contracts: which versions there are, and what their dedupe keys drop.

use std::time::Duration;

use super::call::Call;
use super::plan::Change;
use super::reply::LedgerError;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};
use handoffd_domain::policy::EdgePolicy;
use handoffd_evidence::record::RulingContract;
use handoffd_store::store::BatchState;
use handoffd_store::store::contracts::{RepeatKey, RepeatRow};

/// The key that identifies a repeat of a handoff, by its contract's dedupe key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The contract, and a hash of the value.
    pub key: String,
    /// For how long the same value is a repeat.
    pub window: Duration,
    /// A use that no longer counts, by its handoff and its time: what it was for has ended badly.
    pub over: Option<(HandoffId, Micros)>,
    /// A use that counts, by its handoff and its time: the sender gets its handoff as the answer, and the submission's
    /// `Idempotency-Key` is kept.
    pub answered: Option<(HandoffId, Micros)>,
}

/// The name of an edge's contract in a record.
pub(super) fn named(policy: &EdgePolicy) -> Option<RulingContract> {
    policy
        .contract
        .as_ref()
        .map(|named| RulingContract { id: named.id.clone(), version: named.version.clone() })
}

/// The key under which a repeat is looked up.
pub(super) fn repeat_key(tenant: &TenantId, repeat: Option<&Repeat>) -> Option<RepeatKey> {
    repeat.map(|repeat| (tenant.clone(), repeat.key.clone()))
}

/// Drops a handoff whose dedupe key was seen with the same value within the window (ruling X20: after
/// `handoffId` and `Idempotency-Key` have had their say). A use that the caller found to be over does not count; one
/// that was renewed since, by the release of a dead letter, does. `kept` says that the submission's `Idempotency-Key` is stored
/// without its handoff: the value answered it before, and does so again after the window.
///
/// # Errors
/// [`LedgerError::Repeat`], with the handoff that was first.
pub(super) fn refuse_repeat(
    state: &BatchState,
    call: &Call,
    (repeat, kept): (Option<&Repeat>, bool),
    handoff_id: HandoffId,
) -> Result<Option<Change>, LedgerError> {
    let (Some(repeat), Some(key)) = (repeat, repeat_key(&call.tenant, repeat)) else {
        return Ok(None);
    };
    // A handoff that was committed before it became a dead letter is not a repeat of itself.
    if let Some(seen) = state.repeats.get(&key)
        && seen.handoff_id != handoff_id
        && (kept || call.at.since(seen.seen_at) < repeat.window)
        && repeat.over != Some((seen.handoff_id, seen.seen_at))
    {
        let (first, seen_at) = (seen.handoff_id, seen.seen_at);
        return Err(LedgerError::Repeat { first, seen_at });
    }
    Ok(Some(Change::Repeat(RepeatRow { tenant: key.0, key: key.1, handoff_id, seen_at: call.at })))
}
