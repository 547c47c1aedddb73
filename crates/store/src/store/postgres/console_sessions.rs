use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::failure::failed;
use super::reads::{NewestQuery, list};
use super::{PostgresStore, answered, rows};
use crate::store::console_sessions::{SessionRow, SessionStore};
use crate::store::rows::{KEY, SESSION};
use crate::store::{Cursor, KeyRow, Result};
use handoffd_core::domain::ids::{Micros, SessionId, TenantId};

pub(super) fn sessions(tenant: &TenantId) -> NewestQuery<'static> {
    NewestQuery::new(list(SESSION, "console_sessions", tenant), "session_id")
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn insert_session(&self, row: &SessionRow) -> Result<()> {
        answered(async {
            let sql = format!(
                "INSERT INTO console_sessions ({SESSION}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(row.tenant.as_str())
                .bind(row.id.to_string())
                .bind(&row.token_hash[..])
                .bind(row.key_id.as_str())
                .bind(row.role.as_str())
                .bind(row.created_at.0)
                .bind(row.last_seen_at.0)
                .bind(row.expires_at.0)
                .bind(row.user_agent.as_deref())
                .execute(&self.pool)
                .await
                .map_err(failed)
                .map(|_| ())
        })
        .await
    }

    async fn find_session(&self, token_hash: &[u8; 32]) -> Result<Option<SessionRow>> {
        answered(async {
            let sql = format!("SELECT {SESSION} FROM console_sessions WHERE token_hash = $1");
            sqlx::query(AssertSqlSafe(sql))
                .bind(&token_hash[..])
                .fetch_optional(&self.pool)
                .await
                .map_err(failed)?
                .as_ref()
                .map(rows::session)
                .transpose()
        })
        .await
    }

    async fn find_key_by_id(&self, tenant: &TenantId, key_id: &str) -> Result<Option<KeyRow>> {
        answered(async {
            let sql = format!("SELECT {KEY} FROM api_keys WHERE tenant = $1 AND key_id = $2");
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.as_str())
                .bind(key_id)
                .fetch_optional(&self.pool)
                .await
                .map_err(failed)?
                .as_ref()
                .map(rows::key)
                .transpose()
        })
        .await
    }

    async fn touch_session(&self, tenant: &TenantId, id: SessionId, now: Micros) -> Result<()> {
        answered(async {
            sqlx::query(
                "UPDATE console_sessions SET last_seen_at = $1 \
                 WHERE tenant = $2 AND session_id = $3 AND last_seen_at < $1",
            )
            .bind(now.0)
            .bind(tenant.as_str())
            .bind(id.to_string())
            .execute(&self.pool)
            .await
            .map_err(failed)
            .map(|_| ())
        })
        .await
    }

    async fn list_sessions(
        &self,
        tenant: &TenantId,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<SessionRow>> {
        answered(async {
            let page = sessions(tenant).fetch(&self.pool, after, limit).await?;
            page.iter().map(rows::session).collect()
        })
        .await
    }

    async fn delete_session(&self, tenant: &TenantId, id: SessionId) -> Result<bool> {
        answered(async {
            let done =
                sqlx::query("DELETE FROM console_sessions WHERE tenant = $1 AND session_id = $2")
                    .bind(tenant.as_str())
                    .bind(id.to_string())
                    .execute(&self.pool)
                    .await
                    .map_err(failed)?;
            Ok(done.rows_affected() > 0)
        })
        .await
    }

    async fn delete_sessions_of(&self, tenant: &TenantId, key_id: &str, keep: i64) -> Result<u64> {
        answered(async {
            let done = sqlx::query(
                "DELETE FROM console_sessions WHERE tenant = $1 AND session_id IN \
                 (SELECT session_id FROM console_sessions WHERE tenant = $1 AND key_id = $2 \
                  ORDER BY created_at DESC OFFSET $3)",
            )
            .bind(tenant.as_str())
            .bind(key_id)
            .bind(keep)
            .execute(&self.pool)
            .await
            .map_err(failed)?;
            Ok(done.rows_affected())
        })
        .await
    }

    async fn forget_sessions(&self, now: Micros, idle_since: Micros) -> Result<u64> {
        answered(async {
            let done = sqlx::query(
                "DELETE FROM console_sessions WHERE expires_at <= $1 OR last_seen_at < $2",
            )
            .bind(now.0)
            .bind(idle_since.0)
            .execute(&self.pool)
            .await
            .map_err(failed)?;
            Ok(done.rows_affected())
        })
        .await
    }
}
