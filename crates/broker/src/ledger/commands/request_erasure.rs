//! Ask for a data subject's erasure.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::erasure::{allowed, draft, facts};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{ErasureReply, LedgerError};
use handoffd_domain::ids::ErasureId;
use handoffd_evidence::erasure::ErasureScope;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{ErasureRow, ErasureStatus, SubjectRef};

#[derive(Debug, Clone)]
pub struct RequestErasure {
    pub subject: SubjectRef,
    /// The id of a new erasure; a running one keeps its own.
    pub id: ErasureId,
    /// Commitment to the subject's id, under that erasure.
    pub commitment: [u8; 32],
    pub scope: ErasureScope,
    /// The reason, a code.
    pub reason: String,
    /// The request in the person's words.
    pub content: RecordContent,
}

impl Command for RequestErasure {
    type Reply = ErasureReply;
    const NAME: &'static str = "request_erasure";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.subject(self.subject.clone());
    }

    /// Begins an erasure. One that is under way, or that left nothing to erase, is the answer to the
    /// request that comes after it.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let none = handoffd_store::store::erasure::SubjectState::default();
        let known = state.erasure.subjects.get(&self.subject).unwrap_or(&none);
        let mut widened = false;
        if let Some(latest) = &known.latest
            && (latest.status == ErasureStatus::Running || known.held == 0)
        {
            let wider =
                (latest.scope, self.scope) == (ErasureScope::PersonalData, ErasureScope::Messages);
            if !wider {
                return Ok((Vec::new(), ErasureReply { row: latest.clone(), repeated: true }));
            }
            if latest.status == ErasureStatus::Running {
                let why = "an erasure of the scope personal-data is under way for this person: ask again once it has ended";
                return Err(LedgerError::Conflict(why.to_owned()));
            }
            if !known.traced {
                let why = "this person was erased with the scope personal-data by a version before 0.4: nothing tells any more which messages the data came with";
                return Err(LedgerError::Conflict(why.to_owned()));
            }
            widened = true;
        }
        if known.held == 0 && !widened {
            return Err(LedgerError::NotFound("data subject"));
        }
        allowed(&known.holds)?;
        let row = ErasureRow {
            tenant: call.tenant.clone(),
            id: self.id,
            subject_key: self.subject.key,
            subject_id: Some(self.subject.id.clone()),
            commitment: self.commitment,
            scope: self.scope,
            reason: self.reason.clone(),
            status: ErasureStatus::Running,
            held: known.held,
            data: 0,
            contents: 0,
            checkpoints: 0,
            leaf_index: None,
            requested_at: call.at,
            updated_at: call.at,
            completed_at: None,
        };
        let mut record = draft(call, RecordKind::ErasureRequested);
        record.reason = Some(self.reason.clone());
        record.content = Some(self.content.clone());
        record.erasure = Some(facts(&row, (0, 0, 0)));
        Ok((
            vec![Change::Erasure(row.clone()), Change::Record(Box::new(record))],
            ErasureReply { row, repeated: false },
        ))
    }
}
