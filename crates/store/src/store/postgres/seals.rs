//! Seals the values under the master key anew.

use sqlx::postgres::{PgPool, PgRow, PgTransaction};

use super::failure::failed;
use super::pool::bound;
use super::rows;
use crate::store::query::Statement;
use crate::store::tables::{agents, facts, requests, subscriptions};
use crate::store::{Result, SealChange, Sealed, StoreError};
use handoffd_domain::ids::TenantId;

/// Answers read at once.
const PAGE: i64 = 1_000;

/// See [`crate::store::Store::change_seals`].
pub(super) async fn change(
    pool: &PgPool,
    change: SealChange<'_>,
    facts: &[(&str, Vec<u8>)],
) -> Result<u64> {
    let mut tx = pool.begin().await.map_err(failed)?;
    let mut changed = 0;
    for (id, secrets, tenant) in secrets(&mut tx, agents::SECRETS.postgres).await? {
        let next = text(change(&tenant, Sealed::Agent(&id, &secrets))?)?;
        changed += execute(&mut tx, agents::set_secrets(&tenant, id, next)).await?;
    }
    for (id, secrets, tenant) in secrets(&mut tx, subscriptions::SECRETS.postgres).await? {
        let next = text(change(&tenant, Sealed::Subscription(&id, &secrets))?)?;
        changed += execute(&mut tx, subscriptions::set_secrets(&tenant, id, next)).await?;
    }
    changed += answers(&mut tx, change).await?;
    for (name, value) in facts {
        execute(&mut tx, facts::replace(name, value)).await?;
    }
    tx.commit().await.map_err(failed)?;
    Ok(changed)
}

async fn execute(tx: &mut PgTransaction<'_>, statement: Statement<'_>) -> Result<u64> {
    let done = bound(statement).execute(&mut **tx).await.map_err(failed)?;
    Ok(done.rows_affected())
}

/// The ids, secrets and tenants that a statement finds and locks.
async fn secrets(
    tx: &mut PgTransaction<'_>,
    sql: &'static str,
) -> Result<Vec<(String, String, TenantId)>> {
    let secrets = sqlx::query(sql).fetch_all(&mut **tx).await.map_err(failed)?;
    let one = |row: &PgRow| {
        Ok((rows::get(row, "id")?, rows::get(row, "secrets")?, rows::parse(row, "tenant")?))
    };
    secrets.iter().map(one).collect()
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|err| StoreError::Refused(err.to_string()))
}

async fn answers(tx: &mut PgTransaction<'_>, change: SealChange<'_>) -> Result<u64> {
    let (mut changed, mut after) = (0, (String::new(), Vec::<u8>::new()));
    loop {
        let page = bound(requests::answers(after, PAGE));
        let page = page.fetch_all(&mut **tx).await.map_err(failed)?;
        let Some(last) = page.last() else { return Ok(changed) };
        after = (rows::get(last, "tenant")?, rows::get(last, "request_id")?);
        for row in &page {
            let tenant: TenantId = rows::parse(row, "tenant")?;
            let (id, answer): (Vec<u8>, Vec<u8>) =
                (rows::get(row, "request_id")?, rows::get(row, "answer")?);
            let next = change(&tenant, Sealed::Answer(&id, &answer))?;
            changed += execute(tx, requests::answer(&tenant, &id, &next)).await?;
        }
    }
}
