//! Erase the next page of an erasure.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::{allowed, draft, facts, page_of};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::ErasureReply;
use handoffd_domain::ids::{ContentId, ErasureId};
use handoffd_domain::personal::user_ref;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::erasure::{DataSlot, ErasureCause, ErasureScope, list};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{ErasureStatus, ErasureWrite, PageNeed};

/// The next page of an erasure.
#[derive(Debug, Clone)]
pub struct EraseNext {
    pub id: ErasureId,
    /// Size and end of the page.
    pub page: PageNeed,
    /// The id of the content that lists the erased data.
    pub content_id: ContentId,
    /// The salt of that content's commitment.
    pub salt: [u8; 16],
}

impl Command for EraseNext {
    type Reply = ErasureReply;
    const NAME: &'static str = "erase";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.erasure_page(self.id, self.page);
    }

    /// Erases the next page. When there is none the rows hold nothing more: the subject's id goes too, and
    /// the files are next.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let page = page_of(state, call, self.id)?;
        let mut row = page.row.clone();
        if row.status != ErasureStatus::Running {
            return Ok((Vec::new(), ErasureReply { row, repeated: true }));
        }
        allowed(&page.holds)?;
        row.updated_at = call.at;
        if page.data.is_empty() && page.contents.is_empty() && page.checkpoints.is_empty() {
            row.status = ErasureStatus::Scrubbing;
            row.subject_id = None;
            // The reference to the person goes with the last of its data.
            let person = ErasureWrite {
                tenant: call.tenant.clone(),
                erasure: Some(row.id),
                data: Vec::new(),
                handoffs: Vec::new(),
                contents: Vec::new(),
                checkpoints: Vec::new(),
                words: false,
                purged_at: None,
                user_ref: Some(user_ref(&row.subject_key)),
            };
            let changes = vec![Change::Erasure(row.clone()), Change::Erase(person)];
            return Ok((changes, ErasureReply { row, repeated: false }));
        }
        let slots: Vec<DataSlot> = page.data.iter().map(|(slot, _)| *slot).collect();
        let leaves: Vec<i64> = page.contents.iter().map(|(leaf, _)| *leaf).collect();
        let mut handoffs: Vec<_> = page.data.iter().filter_map(|(_, handoff)| *handoff).collect();
        handoffs.extend(&page.stand_ins);
        handoffs.sort_unstable();
        handoffs.dedup();
        let counts = [slots.len(), leaves.len(), page.checkpoints.len()]
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        row.data += counts[0];
        row.contents += counts[1];
        row.checkpoints += counts[2];
        let mut record = draft(call, RecordKind::Erased);
        record.reason = Some(row.reason.clone());
        record.erasure = Some(facts(&row, counts.into()));
        let list = list(ErasureCause::Erasure(row.id), &slots, &leaves, &page.checkpoints);
        record.content = Some(RecordContent {
            id: self.content_id,
            part: PackedContent::new(CommitmentSubject::Message, self.salt, &list),
        });
        let erase = ErasureWrite {
            tenant: call.tenant.clone(),
            erasure: Some(row.id),
            data: slots,
            handoffs,
            contents: page.contents.iter().map(|(_, id)| *id).collect(),
            checkpoints: page.checkpoints.clone(),
            words: row.scope == ErasureScope::Messages,
            purged_at: None,
            user_ref: None,
        };
        Ok((
            vec![
                Change::Erasure(row.clone()),
                Change::Erase(erase),
                Change::Record(Box::new(record)),
            ],
            ErasureReply { row, repeated: false },
        ))
    }
}
