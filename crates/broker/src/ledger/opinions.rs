//! Decisions on second opinions that are asked for after the commit.

use super::call::Call;
use super::plan::Change;
use super::submission::Submit;
use handoffd_evidence::record::SafetyFacts;

/// The row by which the classifier is asked, where the handoff's record says that it will be.
pub(super) fn due(call: &Call, submit: &Submit) -> Option<Change> {
    let pending = submit.safety.as_ref().is_some_and(SafetyFacts::is_pending);
    let key = || (call.tenant.clone(), submit.handoff.id);
    pending.then(|| Change::Opinion(key(), call.at))
}
