//! Record that the gate refused a chunk.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::draft_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::streams::facts;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// A chunk that the gate refused.
#[derive(Debug, Clone)]
pub struct RefuseChunk {
    pub task_id: TaskId,
    /// The handoff in pieces.
    pub handoff_id: HandoffId,
    /// The primary reason, a code.
    pub reason: String,
    /// The failures.
    pub content: RecordContent,
}

impl Command for RefuseChunk {
    type Reply = ();
    const NAME: &'static str = "refuse_chunk";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
    }

    /// Records that the gate refused a chunk; the stream stays as it is.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.handoff_id);
        let handoff = state.handoffs.get(&key).ok_or(LedgerError::NotFound("handoff"))?;
        let mut draft = draft_of(call, RecordKind::Refused, handoff);
        draft.reason = Some(self.reason.clone());
        draft.content = Some(self.content.clone());
        draft.stream = facts(handoff);
        Ok((vec![Change::Record(Box::new(draft))], ()))
    }
}
