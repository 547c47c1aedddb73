//! Decisions on second opinions that are asked for after the commit.

use super::command::{Command, LedgerError, RecordOpinion, Reply, Submit};
use super::draft::{draft_of, publish};
use super::plan::{Change, Decision};
use handoffd_core::domain::event::{Alert, Event, EventType};
use handoffd_core::evidence::record::{ClassifierFacts, RecordKind, SafetyFacts};
use handoffd_store::store::BatchState;

/// The row by which the classifier is asked, where the handoff's record says that it will be.
pub(super) fn due(command: &Command, submit: &Submit) -> Option<Change> {
    let pending = submit.safety.as_ref().is_some_and(SafetyFacts::is_pending);
    let key = || (command.tenant.clone(), submit.handoff.id);
    pending.then(|| Change::Opinion(key(), command.at))
}

/// Records what the classifier said, once: the row goes with the record. It moves neither handoff nor task.
pub(super) fn record(state: &BatchState, command: &Command, opinion: &RecordOpinion) -> Decision {
    let key = (command.tenant.clone(), opinion.handoff_id);
    if state.opinions.get(&key) != Some(&opinion.attempt) {
        return Ok((Vec::new(), Reply::Superseded));
    }
    let handoff = state
        .handoffs
        .get(&key)
        .filter(|handoff| handoff.task_id == opinion.task_id)
        .ok_or(LedgerError::NotFound("handoff"))?;
    let mut draft = draft_of(command, RecordKind::SecondOpinion, handoff);
    draft.opinion = Some(opinion.facts.clone());
    draft.reason = opinion.reason.map(str::to_owned);
    let mut changes = vec![Change::Record(Box::new(draft))];
    if opinion.facts.verdict == ClassifierFacts::UNSAFE {
        let alert = Event::of_handoff(EventType::AlertRaised, handoff, command.at)
            .with("alert", Alert::SecondOpinionUnsafe.as_str())
            .with("by", opinion.facts.by.as_str());
        changes.push(publish(match opinion.facts.label.as_deref() {
            Some(label) => alert.with("label", label),
            None => alert,
        }));
    }
    changes.push(Change::NoOpinion(key));
    Ok((changes, Reply::Recorded))
}
