//! Place a legal hold.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::draft;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{HoldReply, LedgerError};
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::erasure::HoldFacts;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::HoldRow;

/// A legal hold to place.
#[derive(Debug, Clone)]
pub struct PlaceHold {
    pub row: HoldRow,
    /// Commitment to the subject's id, where it holds a subject.
    pub commitment: Option<[u8; 32]>,
    /// The reason in the person's words.
    pub content: RecordContent,
}

impl Command for PlaceHold {
    type Reply = HoldReply;
    const NAME: &'static str = "place_hold";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.hold(self.row.id.clone());
    }

    /// Places a legal hold; placing the same again changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let row = &self.row;
        if let Some(placed) = state.erasure.holds.get(&(call.tenant.clone(), row.id.clone())) {
            let same = placed.released_at.is_none()
                && (placed.subject_key, placed.task_id, &placed.reason)
                    == (row.subject_key, row.task_id, &row.reason);
            return if same {
                Ok((Vec::new(), HoldReply { row: placed.clone(), repeated: true }))
            } else {
                Err(LedgerError::Conflict(format!(
                    "legal hold {} exists, for something else",
                    row.id
                )))
            };
        }
        let mut record = draft(call, RecordKind::LegalHoldPlaced);
        record.task_id = row.task_id;
        record.content = Some(self.content.clone());
        record.hold = Some(HoldFacts {
            id: row.id.clone(),
            subject_commitment: self.commitment.map(|commitment| hash_text(&commitment)),
        });
        Ok((
            vec![Change::Hold(row.clone()), Change::Record(Box::new(record))],
            HoldReply { row: row.clone(), repeated: false },
        ))
    }
}
