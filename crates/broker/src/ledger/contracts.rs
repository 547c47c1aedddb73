//! Decisions on contracts: which versions there are, and what their dedupe keys drop.

use super::command::{Command, LedgerError, PutContract, Repeat, Reply};
use super::plan::{Change, Decision};
use handoffd_core::domain::ids::HandoffId;
use handoffd_core::domain::policy::EdgePolicy;
use handoffd_core::evidence::record::{RecordDraft, RecordKind, RulingContract};
use handoffd_store::store::BatchState;
use handoffd_store::store::contracts::{RepeatKey, RepeatRow};

/// Adds a version of a contract. The same again is answered and changes nothing; a version with
/// another content would be another contract under the same name.
pub(super) fn put(state: &BatchState, command: &Command, put: &PutContract) -> Decision {
    let row = &put.row;
    if let Some(known) = state.contracts.get(&row.key()) {
        if known.sha256 == row.sha256 {
            return Ok((Vec::new(), Reply::Contract { row: known.clone(), added: false }));
        }
        return Err(LedgerError::Conflict(format!(
            "contract {} has a version {} with another content: give it a new version",
            row.id, row.version
        )));
    }
    let mut draft = RecordDraft::new(
        command.tenant.clone(),
        RecordKind::ContractPut,
        command.at,
        command.actor.clone(),
    );
    draft.contract = Some(RulingContract { id: row.id.clone(), version: row.version.clone() });
    draft.content = Some(put.content.clone());
    Ok((
        vec![Change::Contract(row.clone()), Change::Record(Box::new(draft))],
        Reply::Contract { row: row.clone(), added: true },
    ))
}

/// What a record names the contract of an edge by.
pub(super) fn named(policy: &EdgePolicy) -> Option<RulingContract> {
    policy
        .contract
        .as_ref()
        .map(|named| RulingContract { id: named.id.clone(), version: named.version.clone() })
}

/// The key under which a repeat is looked up.
pub(super) fn repeat_key(command: &Command, repeat: Option<&Repeat>) -> Option<RepeatKey> {
    repeat.map(|repeat| (command.tenant.clone(), repeat.key.clone()))
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
    command: &Command,
    (repeat, kept): (Option<&Repeat>, bool),
    handoff_id: HandoffId,
) -> Result<Option<Change>, LedgerError> {
    let (Some(repeat), Some(key)) = (repeat, repeat_key(command, repeat)) else {
        return Ok(None);
    };
    // A handoff that was committed before it became a dead letter is no repeat of itself.
    if let Some(seen) = state.repeats.get(&key)
        && seen.handoff_id != handoff_id
        && (kept || command.at.since(seen.seen_at) < repeat.window)
        && repeat.over != Some((seen.handoff_id, seen.seen_at))
    {
        let (first, seen_at) = (seen.handoff_id, seen.seen_at);
        return Err(LedgerError::Repeat { first, seen_at });
    }
    Ok(Some(Change::Repeat(RepeatRow {
        tenant: key.0,
        key: key.1,
        handoff_id,
        seen_at: command.at,
    })))
}
