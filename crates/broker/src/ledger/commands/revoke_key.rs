//! Revoke a key.

use crate::ledger::agents::about;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::{BatchState, KeyRow};

/// A key to revoke.
#[derive(Debug, Clone)]
pub struct RevokeKey {
    pub key_id: String,
}

impl Command for RevokeKey {
    type Reply = KeyRow;
    const NAME: &'static str = "revoke_key";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.key(self.key_id.clone());
    }

    /// Revokes a key; revoking it again changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let mut row = state
            .keys
            .get(&(call.tenant.clone(), self.key_id.clone()))
            .cloned()
            .ok_or(LedgerError::NotFound("key"))?;
        if row.expires_at.is_some_and(|at| at <= call.at) {
            return Ok((Vec::new(), row));
        }
        row.expires_at = Some(call.at);
        let record = about(call, RecordKind::KeyRevoked, row.agent.as_ref());
        Ok((vec![Change::Key(row.clone()), record], row))
    }
}
