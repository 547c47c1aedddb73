use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::failure::failed;
use super::{PostgresStore, answered, rows};
use crate::store::Result;
use crate::store::requests::{RequestRow, RequestStore};
use crate::store::rows::REQUEST;
use handoffd_core::domain::ids::{Micros, TenantId};

#[async_trait]
impl RequestStore for PostgresStore {
    async fn begin_request(&self, row: &RequestRow) -> Result<Option<RequestRow>> {
        answered(async {
            let new = sqlx::query(
                "INSERT INTO request_keys (tenant, request_id, asked, created_at) \
                 VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            )
            .bind(row.tenant.as_str())
            .bind(&row.id[..])
            .bind(&row.asked[..])
            .bind(row.created_at.0)
            .execute(&self.pool)
            .await
            .map_err(failed)?;
            if new.rows_affected() > 0 {
                return Ok(None);
            }
            // A statement of its own, so that it sees what another broker committed.
            let known =
                format!("SELECT {REQUEST} FROM request_keys WHERE tenant = $1 AND request_id = $2");
            sqlx::query(AssertSqlSafe(known))
                .bind(row.tenant.as_str())
                .bind(&row.id[..])
                .fetch_optional(&self.pool)
                .await
                .map_err(failed)?
                .as_ref()
                .map(rows::request)
                .transpose()
        })
        .await
    }

    async fn answer_request(&self, tenant: &TenantId, id: &[u8; 32], answer: &[u8]) -> Result<()> {
        answered(async {
            sqlx::query("UPDATE request_keys SET answer = $1 WHERE tenant = $2 AND request_id = $3")
                .bind(answer)
                .bind(tenant.as_str())
                .bind(&id[..])
                .execute(&self.pool)
                .await
                .map_err(failed)
                .map(|_| ())
        })
        .await
    }

    async fn forget_request(&self, tenant: &TenantId, id: &[u8; 32]) -> Result<()> {
        answered(async {
            sqlx::query("DELETE FROM request_keys WHERE tenant = $1 AND request_id = $2")
                .bind(tenant.as_str())
                .bind(&id[..])
                .execute(&self.pool)
                .await
                .map_err(failed)
                .map(|_| ())
        })
        .await
    }

    async fn forget_requests(&self, before: Micros) -> Result<u64> {
        answered(async {
            let done = sqlx::query("DELETE FROM request_keys WHERE created_at < $1")
                .bind(before.0)
                .execute(&self.pool)
                .await
                .map_err(failed)?;
            Ok(done.rows_affected())
        })
        .await
    }
}
