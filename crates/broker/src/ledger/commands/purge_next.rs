//! Take away the next page of contents that are past their time.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::draft;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::Purged;
use handoffd_domain::ids::ContentId;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::erasure::{ErasureCause, RetentionFacts, list};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{ErasureWrite, PurgeNeed, PurgePage};

/// The next page of data past its retention.
#[derive(Debug, Clone)]
pub struct PurgeNext {
    /// Start of the page, and age of its data.
    pub need: PurgeNeed,
    /// The id of the content that lists the erased data.
    pub content_id: ContentId,
    /// The salt of that content's commitment.
    pub salt: [u8; 16],
}

impl Command for PurgeNext {
    type Reply = Purged;
    const NAME: &'static str = "purge";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.purge(self.need);
    }

    /// Takes away the next page of contents that are past their time, and appends the record that lists them.
    /// If a legal hold was placed in this very batch, the page is looked at again: it was read before the
    /// hold.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let none = PurgePage { next: self.need.from, again: true, ..PurgePage::default() };
        let page = state.erasure.purges.get(&call.tenant).unwrap_or(&none);
        let seen = Purged {
            next: page.next,
            ends: page.ends && !page.again,
            held: page.held,
            first_held: page.first_held,
            data: 0,
            contents: 0,
            checkpoints: 0,
            cleaned: !page.again && !page.handoffs.is_empty(),
        };
        if page.again {
            return Ok((Vec::new(), Purged { next: self.need.from, ..seen }));
        }
        let counts = [page.data.len(), page.contents.len(), page.checkpoints.len()]
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        let mut ids: Vec<_> = page.contents.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        let erase = ErasureWrite {
            tenant: call.tenant.clone(),
            erasure: None,
            data: page.data.clone(),
            handoffs: page.handoffs.clone(),
            contents: ids,
            checkpoints: page.checkpoints.clone(),
            words: true,
            purged_at: Some(call.at),
            user_ref: None,
        };
        if counts == [0; 3] {
            // The record of an earlier page lists the contents that these handoffs had.
            let rows = (!erase.handoffs.is_empty()).then_some(Change::Erase(erase));
            return Ok((rows.into_iter().collect(), seen));
        }
        let before = self.need.before.rfc3339();
        let leaves: Vec<i64> = page.contents.iter().map(|(leaf, _)| *leaf).collect();
        let list = list(ErasureCause::Retention(&before), &page.data, &leaves, &page.checkpoints);
        let mut record = draft(call, RecordKind::Erased);
        record.reason = Some(RETENTION.to_owned());
        record.retention = Some(RetentionFacts {
            before,
            data: counts[0],
            contents: counts[1],
            checkpoints: counts[2],
        });
        record.content = Some(RecordContent {
            id: self.content_id,
            part: PackedContent::new(CommitmentSubject::Message, self.salt, &list),
        });
        let [data, contents, checkpoints] = counts;
        Ok((
            vec![Change::Erase(erase), Change::Record(Box::new(record))],
            Purged { data, contents, checkpoints, ..seen },
        ))
    }
}

/// Why a record's content went: its time was over.
const RETENTION: &str = "RETENTION";
