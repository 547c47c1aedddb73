//! Drafts of records that name a handoff, and events as changes.

use super::call::Call;
use super::contracts;
use super::plan::Change;
use handoffd_domain::event::Event;
use handoffd_domain::handoff::HandoffTerms;
use handoffd_evidence::record::{RecordDraft, RecordKind};

/// The change that publishes an event with its batch.
pub(super) fn publish(event: Event) -> Change {
    Change::Event(Box::new(event))
}

/// A draft that speaks of a handoff.
pub(super) fn draft_of<'a>(
    call: &Call,
    kind: RecordKind,
    handoff: impl Into<HandoffTerms<'a>>,
) -> RecordDraft {
    let handoff = handoff.into();
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
    draft.task_id = Some(handoff.task_id);
    draft.handoff_id = Some(handoff.id);
    draft.parent_handoff_id = handoff.parent_id;
    draft.status = Some(handoff.status.as_str());
    if let Some(ruling) = handoff.ruling {
        draft.group = ruling.branch.map(Into::into);
        draft.contract = contracts::named(&ruling.edge);
        draft.audit_event.clone_from(&ruling.edge.audit_event);
    }
    draft
}
