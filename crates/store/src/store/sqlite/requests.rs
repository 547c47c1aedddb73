use async_trait::async_trait;

use super::{SqliteStore, rows};
use crate::store::Result;
use crate::store::requests::{RequestRow, RequestStore};
use crate::store::rows::REQUEST;
use handoffd_core::domain::ids::{Micros, TenantId};

#[async_trait]
impl RequestStore for SqliteStore {
    async fn begin_request(&self, row: &RequestRow) -> Result<Option<RequestRow>> {
        let known =
            format!("SELECT {REQUEST} FROM request_keys WHERE tenant = ? AND request_id = ?");
        self.write(|db| {
            let new = db
                .query(
                    "INSERT INTO request_keys (tenant, request_id, asked, created_at) \
                     VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                )
                .bind(row.tenant.as_str())
                .bind(&row.id[..])
                .bind(&row.asked[..])
                .bind(row.created_at.0)
                .execute()?;
            if new > 0 {
                return Ok(None);
            }
            db.query(&known).bind(row.tenant.as_str()).bind(&row.id[..]).find(rows::request)
        })
        .await
    }

    async fn answer_request(&self, tenant: &TenantId, id: &[u8; 32], answer: &[u8]) -> Result<()> {
        let sql = "UPDATE request_keys SET answer = ? WHERE tenant = ? AND request_id = ?";
        self.write(|db| {
            db.query(sql).bind(answer).bind(tenant.as_str()).bind(&id[..]).execute().map(|_| ())
        })
        .await
    }

    async fn forget_request(&self, tenant: &TenantId, id: &[u8; 32]) -> Result<()> {
        let sql = "DELETE FROM request_keys WHERE tenant = ? AND request_id = ?";
        self.write(|db| db.query(sql).bind(tenant.as_str()).bind(&id[..]).execute().map(|_| ()))
            .await
    }

    async fn forget_requests(&self, before: Micros) -> Result<u64> {
        let sql = "DELETE FROM request_keys WHERE created_at < ?";
        self.write(|db| db.query(sql).bind(before.0).execute()).await
    }
}
