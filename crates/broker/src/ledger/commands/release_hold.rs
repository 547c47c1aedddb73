//! Release a legal hold.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::draft;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{HoldReply, LedgerError};
use handoffd_evidence::erasure::HoldFacts;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::HoldRow;

/// A legal hold to release.
#[derive(Debug, Clone)]
pub struct ReleaseHold {
    pub id: String,
    /// The reason in the person's words.
    pub content: RecordContent,
}

impl Command for ReleaseHold {
    type Reply = HoldReply;
    const NAME: &'static str = "release_hold";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.hold(self.id.clone());
    }

    /// Releases a legal hold; releasing it again changes nothing. It no longer names whom it held.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.id.clone());
        let placed = state.erasure.holds.get(&key).ok_or(LedgerError::NotFound("legal hold"))?;
        if placed.released_at.is_some() {
            return Ok((Vec::new(), HoldReply { row: placed.clone(), repeated: true }));
        }
        let row = HoldRow { released_at: Some(call.at), subject_id: None, ..placed.clone() };
        let mut record = draft(call, RecordKind::LegalHoldReleased);
        record.task_id = row.task_id;
        record.content = Some(self.content.clone());
        record.hold = Some(HoldFacts { id: row.id.clone(), subject_commitment: None });
        Ok((
            vec![Change::Hold(row.clone()), Change::Record(Box::new(record))],
            HoldReply { row, repeated: false },
        ))
    }
}
