//! Decisions on agents and keys: who may do what is evidence too.

use super::call::Call;
use super::plan::Change;
use handoffd_domain::ids::AgentId;
use handoffd_evidence::record::{RecordContent, RecordDraft, RecordKind, RecordParty};

pub(super) fn about(call: &Call, kind: RecordKind, agent: Option<&AgentId>) -> Change {
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
    draft.to = agent.map(|id| RecordParty {
        agent_id: Some(id.clone()),
        agent_type: None,
        agent_version: None,
        execution_id: None,
        registered_version: None,
    });
    Change::Record(Box::new(draft))
}

/// Records that tree heads are signed with another key from here on, or that secrets are sealed under another. The record is
/// covered by heads of both keys that sign: who trusts the old one learns the new one from it.
pub(super) fn change_of_keys(
    call: &Call,
    kind: RecordKind,
    content: &RecordContent,
) -> Vec<Change> {
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
    draft.content = Some(content.clone());
    vec![Change::Record(Box::new(draft))]
}
