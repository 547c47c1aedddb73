//! Decisions on who is told of events.

use super::call::Call;
use handoffd_evidence::record::{RecordContent, RecordDraft, RecordKind};

pub(super) fn record(call: &Call, kind: RecordKind, content: &RecordContent) -> RecordDraft {
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
    draft.content = Some(content.clone());
    draft
}
