//! Seals the values under the master key anew.

use super::db::Db;
use super::rows;
use crate::store::tables::{agents, facts, requests, subscriptions};
use crate::store::{Result, SealChange, Sealed, StoreError};
use handoffd_domain::ids::TenantId;

/// Answers read at once.
const PAGE: i64 = 1_000;

/// See [`crate::store::Store::change_seals`].
pub(super) fn change(db: &Db, change: SealChange<'_>, facts: &[(&str, Vec<u8>)]) -> Result<u64> {
    let mut changed = 0;
    for (id, secrets, tenant) in secrets(db, agents::SECRETS.sqlite)? {
        let next = text(change(&tenant, Sealed::Agent(&id, &secrets))?)?;
        changed += db.statement(&agents::set_secrets(&tenant, id, next)).execute()?;
    }
    for (id, secrets, tenant) in secrets(db, subscriptions::SECRETS.sqlite)? {
        let next = text(change(&tenant, Sealed::Subscription(&id, &secrets))?)?;
        changed += db.statement(&subscriptions::set_secrets(&tenant, id, next)).execute()?;
    }
    changed += answers(db, change)?;
    for (name, value) in facts {
        db.statement(&facts::replace(name, value)).execute()?;
    }
    Ok(changed)
}

/// The ids, secrets and tenants that a statement finds.
fn secrets(db: &Db, sql: &str) -> Result<Vec<(String, String, TenantId)>> {
    db.query(sql).list(|row| {
        Ok((rows::get(row, "id")?, rows::get(row, "secrets")?, rows::parse(row, "tenant")?))
    })
}

fn answers(db: &Db, change: SealChange<'_>) -> Result<u64> {
    let (mut changed, mut after) = (0, (String::new(), Vec::new()));
    loop {
        let page: Vec<(TenantId, Vec<u8>, Vec<u8>)> =
            db.statement(&requests::answers(after, PAGE)).list(|row| {
                let answer = rows::get(row, "answer")?;
                Ok((rows::parse(row, "tenant")?, rows::get(row, "request_id")?, answer))
            })?;
        let Some((tenant, id, _)) = page.last() else { return Ok(changed) };
        after = (tenant.to_string(), id.clone());
        for (tenant, id, answer) in &page {
            let next = change(tenant, Sealed::Answer(id, answer))?;
            changed += db.statement(&requests::answer(tenant, id, &next)).execute()?;
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|err| StoreError::Refused(err.to_string()))
}
