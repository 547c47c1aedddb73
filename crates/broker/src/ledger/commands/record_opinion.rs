//! Record the external classifier's opinion of a committed message.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::{draft_of, publish};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{LedgerError, Noted};
use handoffd_domain::event::{Alert, Event, EventType};
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_evidence::record::{ClassifierFacts, RecordKind};
use handoffd_store::store::BatchState;

/// The external classifier's opinion of a committed message.
#[derive(Debug, Clone)]
pub struct RecordOpinion {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted; if the row has another, this one is no longer the current one.
    pub attempt: i32,
    pub facts: ClassifierFacts,
    /// The reason for a missing answer: a code.
    pub reason: Option<&'static str>,
}

impl Command for RecordOpinion {
    type Reply = Noted;
    const NAME: &'static str = "record_opinion";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
        rows.opinion(self.handoff_id);
    }

    /// Records what the classifier said, once: the row goes with the record. It moves neither handoff nor task.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.handoff_id);
        if state.opinions.get(&key) != Some(&self.attempt) {
            return Ok((Vec::new(), Noted::Superseded));
        }
        let handoff = state
            .handoffs
            .get(&key)
            .filter(|handoff| handoff.task_id == self.task_id)
            .ok_or(LedgerError::NotFound("handoff"))?;
        let mut draft = draft_of(call, RecordKind::SecondOpinion, handoff);
        draft.opinion = Some(self.facts.clone());
        draft.reason = self.reason.map(str::to_owned);
        let mut changes = vec![Change::Record(Box::new(draft))];
        if self.facts.verdict == ClassifierFacts::UNSAFE {
            let alert = Event::of_handoff(EventType::AlertRaised, handoff, call.at)
                .with("alert", Alert::SecondOpinionUnsafe.as_str())
                .with("by", self.facts.by.as_str());
            changes.push(publish(match self.facts.label.as_deref() {
                Some(label) => alert.with("label", label),
                None => alert,
            }));
        }
        changes.push(Change::NoOpinion(key));
        Ok((changes, Noted::Recorded))
    }
}
