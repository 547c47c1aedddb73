//! Commit to rows that no record commits to.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use handoffd_evidence::record::{AdoptionFacts, RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;

/// States of objects to commit to as they were found.
#[derive(Debug, Clone)]
pub struct AdoptStates {
    /// The log's size when the rows were read.
    pub as_of: i64,
    /// How many objects, and their states: one record each.
    pub pages: Vec<(u64, RecordContent)>,
}

impl Command for AdoptStates {
    type Reply = ();
    const NAME: &'static str = "adopt_states";

    fn needs(&self, _rows: &mut Rows<'_>) {}

    /// Commits to rows as they were found, which no record commits to.
    fn decide(
        &self,
        _state: &BatchState,
        call: &Call,
        _context: &Context,
    ) -> Decision<Self::Reply> {
        let records = self.pages.iter().map(|(objects, content)| {
            let (tenant, actor) = (call.tenant.clone(), call.actor.clone());
            let mut draft = RecordDraft::new(tenant, RecordKind::StateAdopted, call.at, actor);
            draft.adoption = Some(AdoptionFacts { objects: *objects, as_of: self.as_of });
            draft.content = Some(content.clone());
            Change::Record(Box::new(draft))
        });
        Ok((records.collect(), ()))
    }
}
