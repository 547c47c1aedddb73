//! `api_keys`: keys, by their hashes.
//!
//! A row, and how it changes:
//!
//! - `api_keys`: a key, by its hash. Updated.

use crate::store::driver::in_memory;
use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros, micros_opt, parse, parse_opt, state};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, KeyRow, Result, Role, Store};
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

impl Store {
    pub async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        in_memory!(self, db => db.find_key(hash));
        let text = format!("SELECT {KEY} FROM api_keys WHERE key_hash = $1");
        self.find(Statement::new(text).bind(hash), decode).await
    }

    pub async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        in_memory!(self, db => db.list_keys(tenant));
        let text =
            format!("SELECT {KEY} FROM api_keys WHERE tenant = $1 ORDER BY created_at, key_id");
        self.list(Statement::new(text).bind(tenant), decode).await
    }

    /// Notes that a key is used, unless a use of the last minute is noted already.
    pub async fn note_key_use(&self, hash: &[u8], now: Micros) -> Result<()> {
        in_memory!(self, db => db.note_key_use(hash, now));
        let note = Statement::new(
            "UPDATE api_keys SET last_used_at = $1 \
             WHERE key_hash = $2 AND COALESCE(last_used_at, 0) < $1 - 60000000",
        );
        self.change(note.bind(now).bind(hash)).await.map(|_| ())
    }

    /// When each key of a tenant was last used, by the keys' ids; keys that never were are left out.
    pub async fn list_key_uses(&self, tenant: &TenantId) -> Result<HashMap<String, Micros>> {
        in_memory!(self, db => db.list_key_uses(tenant));
        let uses = Statement::new(
            "SELECT key_id, last_used_at FROM api_keys WHERE tenant = $1 AND last_used_at IS NOT NULL",
        );
        let found = self
            .list(uses.bind(tenant), |row| Ok((get(row, "key_id")?, micros(row, "last_used_at")?)))
            .await?;
        Ok(found.into_iter().collect())
    }
}
