//! Keep the compressed message that the receiver gets.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::draft_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{LedgerError, Noted};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::window::CompressionFacts;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// A message that was compressed before an attempt.
#[derive(Debug, Clone)]
pub struct Compress {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted.
    pub attempt: i32,
    /// The compressed message.
    pub content: RecordContent,
    /// Sizes and means of the compression.
    pub facts: CompressionFacts,
}

impl Command for Compress {
    type Reply = Noted;
    const NAME: &'static str = "compress";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// The compressed message becomes what the receiver gets. Only the current attempt's claimant decides that, and only
    /// once: what was sent does not change.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.handoff_id);
        let handoff = state
            .handoffs
            .get(&key)
            .filter(|handoff| handoff.task_id == self.task_id)
            .ok_or(LedgerError::NotFound("handoff"))?;
        if handoff.sent_id == Some(self.content.id) {
            // It was committed, and the answer was lost.
            return Ok((Vec::new(), Noted::Recorded));
        }
        let current = state.outbox.get(&key).is_some_and(|row| row.attempt == self.attempt);
        if !current || handoff.status != HandoffStatus::Pending || handoff.sent_id.is_some() {
            return Ok((Vec::new(), Noted::Superseded));
        }
        let mut handoff = handoff.clone();
        handoff.sent_id = Some(self.content.id);
        let mut draft = draft_of(call, RecordKind::Compressed, &handoff);
        draft.content = Some(self.content.clone());
        draft.compression = Some(self.facts.clone());
        let changes = vec![Change::Handoff(handoff), Change::Record(Box::new(draft))];
        Ok((changes, Noted::Recorded))
    }
}
