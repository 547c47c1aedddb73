//! Create a key.

use crate::ledger::agents::about;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::{BatchState, KeyRow};

/// A key to create.
#[derive(Debug, Clone)]
pub struct CreateKey {
    pub row: KeyRow,
}

impl Command for CreateKey {
    type Reply = KeyRow;
    const NAME: &'static str = "create_key";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.key(self.row.key_id.clone());
    }

    fn decide(
        &self,
        _state: &BatchState,
        call: &Call,
        _context: &Context,
    ) -> Decision<Self::Reply> {
        let record = about(call, RecordKind::KeyCreated, self.row.agent.as_ref());
        Ok((vec![Change::Key(self.row.clone()), record], self.row.clone()))
    }
}
