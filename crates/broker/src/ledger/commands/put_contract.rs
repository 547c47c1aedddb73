//! Add a version of a contract.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_evidence::record::{RecordContent, RecordDraft, RecordKind, RulingContract};
use handoffd_store::store::BatchState;
use handoffd_store::store::contracts::ContractRow;

/// A version of a contract to add.
#[derive(Debug, Clone)]
pub struct PutContract {
    /// The row as it will be.
    pub row: ContractRow,
    /// Its document.
    pub content: RecordContent,
}

/// A version of a contract.
#[derive(Debug)]
pub struct PutContractReply {
    pub row: ContractRow,
    /// It was not there before.
    pub added: bool,
}

impl Command for PutContract {
    type Reply = PutContractReply;
    const NAME: &'static str = "put_contract";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.contract(self.row.key());
    }

    /// Adds a version of a contract. The same again is answered and changes nothing; a version with
    /// another content would be another contract under the same name.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let row = &self.row;
        if let Some(present) = state.contracts.get(&row.key()) {
            if present.sha256 == row.sha256 {
                return Ok((Vec::new(), PutContractReply { row: present.clone(), added: false }));
            }
            return Err(LedgerError::Conflict(format!(
                "contract {} has a version {} with another content: give it a new version",
                row.id, row.version
            )));
        }
        let mut draft = RecordDraft::new(
            call.tenant.clone(),
            RecordKind::ContractPut,
            call.at,
            call.actor.clone(),
        );
        draft.contract = Some(RulingContract { id: row.id.clone(), version: row.version.clone() });
        draft.content = Some(self.content.clone());
        Ok((
            vec![Change::Contract(row.clone()), Change::Record(Box::new(draft))],
            PutContractReply { row: row.clone(), added: true },
        ))
    }
}
