//! Seals the values under the master key anew.

use super::db::Db;
use super::rows;
use crate::store::{Result, SealChange, Sealed, StoreError};
use handoffd_domain::ids::TenantId;

/// Answers read at once.
const PAGE: i64 = 1_000;

/// See [`crate::store::AdminStore::change_seals`].
pub(super) fn change(db: &Db, change: SealChange<'_>, facts: &[(&str, Vec<u8>)]) -> Result<u64> {
    let mut changed = 0;
    for (table, id, agents) in
        [("agents", "agent_id", true), ("subscriptions", "subscription_id", false)]
    {
        let sql = format!("SELECT tenant, {id} AS id, secrets FROM {table} ORDER BY tenant, {id}");
        let known: Vec<(TenantId, String, String)> = db.query(&sql).list(|row| {
            Ok((rows::parse(row, "tenant")?, rows::get(row, "id")?, rows::get(row, "secrets")?))
        })?;
        let sql = format!("UPDATE {table} SET secrets = ? WHERE tenant = ? AND {id} = ?");
        for (tenant, id, secrets) in &known {
            let place =
                if agents { Sealed::Agent(id, secrets) } else { Sealed::Subscription(id, secrets) };
            let next = text(change(tenant, place)?)?;
            changed += db
                .query(&sql)
                .bind(next.as_str())
                .bind(tenant.as_str())
                .bind(id.as_str())
                .execute()?;
        }
    }
    changed += answers(db, change)?;
    for (name, value) in facts {
        db.query(
            "INSERT INTO facts (name, value) VALUES (?, ?) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(*name)
        .bind(value.as_slice())
        .execute()?;
    }
    Ok(changed)
}

fn answers(db: &Db, change: SealChange<'_>) -> Result<u64> {
    let (mut changed, mut after) = (0, (String::new(), Vec::new()));
    loop {
        let page: Vec<(TenantId, Vec<u8>, Vec<u8>)> = db
            .query(
                "SELECT tenant, request_id, answer FROM request_keys \
                 WHERE (tenant, request_id) > (?, ?) AND answer IS NOT NULL \
                 ORDER BY tenant, request_id LIMIT ?",
            )
            .bind(after.0.as_str())
            .bind(after.1.as_slice())
            .bind(PAGE)
            .list(|row| {
                let answer = rows::get(row, "answer")?;
                Ok((rows::parse(row, "tenant")?, rows::get(row, "request_id")?, answer))
            })?;
        let Some((tenant, id, _)) = page.last() else { return Ok(changed) };
        after = (tenant.to_string(), id.clone());
        for (tenant, id, answer) in &page {
            let next = change(tenant, Sealed::Answer(id, answer))?;
            changed += db
                .query("UPDATE request_keys SET answer = ? WHERE tenant = ? AND request_id = ?")
                .bind(next.as_slice())
                .bind(tenant.as_str())
                .bind(id.as_slice())
                .execute()?;
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|err| StoreError::Refused(err.to_string()))
}
