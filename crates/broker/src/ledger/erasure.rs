//! Decisions on erasure and legal hold. An erasure goes in pages: each takes data away and appends the
//! record that lists it, in one commit, so that at no moment anything is gone that no record explains.

use super::call::Call;
use super::reply::LedgerError;
use handoffd_domain::ids::ErasureId;
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::erasure::ErasureFacts;
use handoffd_evidence::record::{RecordDraft, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{ErasurePage, ErasureRow, HoldRow};

pub(super) fn draft(call: &Call, kind: RecordKind) -> RecordDraft {
    RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone())
}

pub(super) fn allowed(holds: &[HoldRow]) -> Result<(), LedgerError> {
    match holds.first() {
        Some(hold) => Err(LedgerError::Held { id: hold.id.clone(), reason: hold.reason.clone() }),
        None => Ok(()),
    }
}

pub(super) fn facts(
    row: &ErasureRow,
    (data, contents, checkpoints): (i64, i64, i64),
) -> ErasureFacts {
    ErasureFacts {
        id: row.id,
        scope: row.scope,
        subject_commitment: hash_text(&row.commitment),
        data,
        contents,
        checkpoints,
        held: None,
        requested_at: None,
    }
}

pub(super) fn page_of<'a>(
    state: &'a BatchState,
    call: &Call,
    id: ErasureId,
) -> Result<&'a ErasurePage, LedgerError> {
    let key = (call.tenant.clone(), id);
    state.erasure.pages.get(&key).ok_or(LedgerError::NotFound("erasure"))
}
