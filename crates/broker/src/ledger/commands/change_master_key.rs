//! Record that secrets are sealed under another master key from here on.

use crate::ledger::agents;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::Decision;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// Another key that seals secrets.
#[derive(Debug, Clone)]
pub struct ChangeMasterKey {
    /// Both keys' names.
    pub content: RecordContent,
}

impl Command for ChangeMasterKey {
    type Reply = ();
    const NAME: &'static str = "change_master_key";

    fn needs(&self, _rows: &mut Rows<'_>) {}

    fn decide(
        &self,
        _state: &BatchState,
        call: &Call,
        _context: &Context,
    ) -> Decision<Self::Reply> {
        Ok((agents::change_of_keys(call, RecordKind::MasterKeyChanged, &self.content), ()))
    }
}
