//! Never deliver a dead letter.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::dead_letters::{decided, open};
use crate::ledger::draft::draft_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::DeadLetterReply;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// The end of a dead letter.
#[derive(Debug, Clone)]
pub struct Discard {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// The reason in the person's words.
    pub content: RecordContent,
}

impl Command for Discard {
    type Reply = DeadLetterReply;
    const NAME: &'static str = "discard";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
        rows.dead_letter(self.handoff_id);
    }

    /// It will not be delivered.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let (row, handoff, _) = open(state, call, self.task_id, self.handoff_id)?;
        let row = decided(call, row, DeadLetterStatus::Discarded);
        let mut draft = draft_of(call, RecordKind::Discarded, handoff);
        draft.reason = Some(row.reason.clone());
        draft.content = Some(self.content.clone());
        let changes = vec![Change::DeadLetter(row.clone()), Change::Record(Box::new(draft))];
        Ok((changes, DeadLetterReply { row, handoff: handoff.clone(), refused: Vec::new() }))
    }
}
