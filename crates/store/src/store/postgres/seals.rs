//! Seals the values under the master key anew.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgTransaction};

use super::failure::failed;
use super::rows;
use crate::store::{Result, SealChange, Sealed, StoreError};
use handoffd_domain::ids::TenantId;

/// Answers read at once.
const PAGE: i64 = 1_000;

/// See [`crate::store::AdminStore::change_seals`].
pub(super) async fn change(
    pool: &PgPool,
    change: SealChange<'_>,
    facts: &[(&str, Vec<u8>)],
) -> Result<u64> {
    let mut tx = pool.begin().await.map_err(failed)?;
    let mut changed = 0;
    for (table, id, agents) in
        [("agents", "agent_id", true), ("subscriptions", "subscription_id", false)]
    {
        let sql = format!(
            "SELECT tenant, {id} AS id, secrets FROM {table} ORDER BY tenant, {id} FOR UPDATE"
        );
        let known = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *tx).await.map_err(failed)?;
        let sql = format!("UPDATE {table} SET secrets = $1 WHERE tenant = $2 AND {id} = $3");
        for row in &known {
            let tenant: TenantId = rows::parse(row, "tenant")?;
            let (id, secrets): (String, String) =
                (rows::get(row, "id")?, rows::get(row, "secrets")?);
            let place = if agents {
                Sealed::Agent(&id, &secrets)
            } else {
                Sealed::Subscription(&id, &secrets)
            };
            let next = String::from_utf8(change(&tenant, place)?)
                .map_err(|err| StoreError::Refused(err.to_string()))?;
            let done = sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(next)
                .bind(tenant.as_str())
                .bind(id.as_str())
                .execute(&mut *tx)
                .await
                .map_err(failed)?;
            changed += done.rows_affected();
        }
    }
    changed += answers(&mut tx, change).await?;
    for (name, value) in facts {
        sqlx::query(
            "INSERT INTO facts (name, value) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(*name)
        .bind(value.as_slice())
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    }
    tx.commit().await.map_err(failed)?;
    Ok(changed)
}

async fn answers(tx: &mut PgTransaction<'_>, change: SealChange<'_>) -> Result<u64> {
    let (mut changed, mut after) = (0, (String::new(), Vec::<u8>::new()));
    loop {
        let page = sqlx::query(
            "SELECT tenant, request_id, answer FROM request_keys \
             WHERE (tenant, request_id) > ($1, $2) AND answer IS NOT NULL \
             ORDER BY tenant, request_id LIMIT $3",
        )
        .bind(after.0.as_str())
        .bind(after.1.as_slice())
        .bind(PAGE)
        .fetch_all(&mut **tx)
        .await
        .map_err(failed)?;
        if page.is_empty() {
            return Ok(changed);
        }
        for row in &page {
            let tenant: TenantId = rows::parse(row, "tenant")?;
            let (id, answer): (Vec<u8>, Vec<u8>) =
                (rows::get(row, "request_id")?, rows::get(row, "answer")?);
            let next = change(&tenant, Sealed::Answer(&id, &answer))?;
            let done = sqlx::query(
                "UPDATE request_keys SET answer = $1 WHERE tenant = $2 AND request_id = $3",
            )
            .bind(next)
            .bind(tenant.as_str())
            .bind(id.as_slice())
            .execute(&mut **tx)
            .await
            .map_err(failed)?;
            changed += done.rows_affected();
            after = (tenant.to_string(), id);
        }
    }
}
