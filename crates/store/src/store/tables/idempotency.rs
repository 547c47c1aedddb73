//! `idempotency_keys`: uses of an `Idempotency-Key` by agents.
//!
//! A row, and how it changes:
//!
//! - `idempotency_keys`: the handoff for which an `Idempotency-Key` was used. Inserted only.

use crate::store::query::Row;
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, IdempotencyRow, Result};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("idempotency_keys", "SELECT, INSERT")];

table! {
    USES: IdempotencyRow = "idempotency_keys" by 3 {
        "tenant" Text: |row| &row.tenant,
        "agent_id" Text: |row| &row.agent,
        "idempotency_key" Text: |row| &row.key,
        "handoff_id" Text: |row| row.handoff_id,
        "created_at" Long: |row| row.created_at,
    }
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = IdempotencyRow {
        tenant: parse(row, "tenant")?,
        agent: parse(row, "agent_id")?,
        key: get(row, "idempotency_key")?,
        handoff_id: parse(row, "handoff_id")?,
        created_at: micros(row, "created_at")?,
    };
    let key = (row.tenant.clone(), row.agent.clone(), row.key.clone());
    state.idempotency.insert(key, row);
    Ok(())
}
