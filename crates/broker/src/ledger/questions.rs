//! Decisions on what a receiver asks the sender of its handoff, and on the answers (specification §10.3).

use super::case::Case;
use super::draft::draft_of;
use super::plan::Change;
use super::reply::LedgerError;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::question::RequestMark;
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::commitment::{CommitmentSubject, commit};
use handoffd_evidence::record::{RecordContent, RecordKind};

pub(super) fn mark(handoff: &Handoff, whole: &[u8], key: Option<&String>) -> RequestMark {
    let digest = match &handoff.digest_salt[..] {
        [] => String::new(),
        salt => hex::encode(commit(CommitmentSubject::Submission, salt, whole)),
    };
    RequestMark { digest, key: key.cloned() }
}

pub(super) fn refuse_if_canceled(case: &Case<'_>) -> Result<(), LedgerError> {
    if case.task.status == TaskStatus::Canceled && !case.handoff.status.is_final() {
        return Err(LedgerError::Conflict(
            "the task was canceled: what is not finished by the deadline is withdrawn".to_owned(),
        ));
    }
    Ok(())
}

pub(super) fn record(case: &mut Case<'_>, kind: RecordKind, number: u32, content: &RecordContent) {
    let mut draft = draft_of(case.call, kind, &case.handoff);
    draft.content = Some(content.clone());
    draft.question = Some(number);
    case.changes.push(Change::Record(Box::new(draft)));
}
