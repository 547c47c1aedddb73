//! Finish an erasure whose files are scrubbed.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::{draft, facts, page_of};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{ErasureReply, LedgerError};
use handoffd_domain::ids::ErasureId;
use handoffd_evidence::erasure::ErasureFacts;
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::ErasureStatus;

/// An erasure to finish.
#[derive(Debug, Clone)]
pub struct FinishErasure {
    pub id: ErasureId,
}

impl Command for FinishErasure {
    type Reply = ErasureReply;
    const NAME: &'static str = "finish_erasure";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.erasure(self.id);
    }

    /// Ends an erasure whose files are clean; ending it again changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let mut row = page_of(state, call, self.id)?.row.clone();
        match row.status {
            ErasureStatus::Completed => Ok((Vec::new(), ErasureReply { row, repeated: true })),
            ErasureStatus::Running => {
                Err(LedgerError::Conflict("this erasure has still data to erase".to_owned()))
            }
            ErasureStatus::Scrubbing => {
                row.status = ErasureStatus::Completed;
                row.updated_at = call.at;
                row.completed_at = Some(call.at);
                let mut record = draft(call, RecordKind::ErasureCompleted);
                record.reason = Some(row.reason.clone());
                record.erasure = Some(ErasureFacts {
                    held: Some(row.held),
                    requested_at: Some(row.requested_at.rfc3339()),
                    ..facts(&row, (row.data, row.contents, row.checkpoints))
                });
                Ok((
                    vec![Change::Erasure(row.clone()), Change::Record(Box::new(record))],
                    ErasureReply { row, repeated: false },
                ))
            }
        }
    }
}
