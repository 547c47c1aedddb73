//! `api_keys`: keys, by their hashes.
//!
//! A row, and how it changes:
//!
//! - `api_keys`: a key, by its hash. Updated.

use crate::store::query::{Database, Row, Statement};
use crate::store::rows::{get, micros, micros_opt, parse, parse_opt, state};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, KeyRow, Result, Role};
use handoffd_domain::ids::{Micros, TenantId};
use std::collections::HashMap;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("api_keys", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const KEY: &str = KEYS.list;

table! {
    KEYS: KeyRow = "api_keys" by 2 {
        "tenant" Text: |row| &row.tenant,
        "key_id" Text: |row| &row.key_id,
        "key_hash" Bytes: |row| row.hash.as_slice(),
        "role" Text: |row| row.role.as_str(),
        "agent_id" Text: |row| row.agent.as_ref(),
        "label" Text: |row| &row.label,
        "created_at" Long: |row| row.created_at,
        "expires_at" Long: |row| row.expires_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<KeyRow> {
    Ok(KeyRow {
        tenant: parse(row, "tenant")?,
        key_id: get(row, "key_id")?,
        hash: get(row, "key_hash")?,
        role: state(row, "role", Role::parse)?,
        agent: parse_opt(row, "agent_id")?,
        label: get(row, "label")?,
        created_at: micros(row, "created_at")?,
        expires_at: micros_opt(row, "expires_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.keys.insert((row.tenant.clone(), row.key_id.clone()), row);
    Ok(())
}

/// See [`crate::store::DirectoryStore::find_key`].
pub(in crate::store) async fn find<D: Database>(db: &D, hash: &[u8]) -> Result<Option<KeyRow>> {
    let text = format!("SELECT {KEY} FROM api_keys WHERE key_hash = $1");
    db.find(Statement::new(text).bind(hash), decode).await
}

/// A tenant's keys, oldest first.
pub(in crate::store) async fn list<D: Database>(db: &D, tenant: &TenantId) -> Result<Vec<KeyRow>> {
    let text = format!("SELECT {KEY} FROM api_keys WHERE tenant = $1 ORDER BY created_at, key_id");
    db.list(Statement::new(text).bind(tenant), decode).await
}

/// See [`crate::store::DirectoryStore::note_key_use`].
pub(in crate::store) async fn note_use<D: Database>(
    db: &D,
    hash: &[u8],
    now: Micros,
) -> Result<()> {
    let note = Statement::new(
        "UPDATE api_keys SET last_used_at = $1 \
         WHERE key_hash = $2 AND COALESCE(last_used_at, 0) < $1 - 60000000",
    );
    db.change(note.bind(now).bind(hash)).await.map(|_| ())
}

/// See [`crate::store::DirectoryStore::list_key_uses`].
pub(in crate::store) async fn list_uses<D: Database>(
    db: &D,
    tenant: &TenantId,
) -> Result<HashMap<String, Micros>> {
    let uses = Statement::new(
        "SELECT key_id, last_used_at FROM api_keys WHERE tenant = $1 AND last_used_at IS NOT NULL",
    );
    let found = db
        .list(uses.bind(tenant), |row| Ok((get(row, "key_id")?, micros(row, "last_used_at")?)))
        .await?;
    Ok(found.into_iter().collect())
}
