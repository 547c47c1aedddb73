//! Record that the gate refuses a dead letter again.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::dead_letters::{open, refuse_again};
use crate::ledger::needs::Rows;
use crate::ledger::plan::Decision;
use crate::ledger::reply::DeadLetterReply;
use handoffd_domain::failure::Failure;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_evidence::record::RecordContent;
use handoffd_store::store::BatchState;

/// A dead letter that a fresh gate run refuses again.
#[derive(Debug, Clone)]
pub struct KeepDeadLetter {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// Findings that were not waived.
    pub refused: Vec<Failure>,
    /// The appeal: reason, waived and open findings.
    pub content: RecordContent,
}

impl Command for KeepDeadLetter {
    type Reply = DeadLetterReply;
    const NAME: &'static str = "keep_dead_letter";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
        rows.dead_letter(self.handoff_id);
    }

    /// The gate refuses it again: it is kept with what was found now, so that this can be named too.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let (row, handoff, _) = open(state, call, self.task_id, self.handoff_id)?;
        let findings = (&self.waived[..], self.refused.clone());
        Ok(refuse_again(call, row, handoff, findings, &self.content))
    }
}
