use async_trait::async_trait;

use super::reads::NewestQuery;
use super::{SqliteStore, rows};
use crate::store::console_sessions::{SessionRow, SessionStore};
use crate::store::rows::{KEY, SESSION};
use crate::store::{Cursor, KeyRow, Result};
use handoffd_core::domain::ids::{Micros, SessionId, TenantId};

pub(super) fn sessions(tenant: &TenantId) -> NewestQuery {
    NewestQuery::new(SESSION, "console_sessions AS x", "session_id", tenant)
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn insert_session(&self, row: &SessionRow) -> Result<()> {
        let sql =
            format!("INSERT INTO console_sessions ({SESSION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
        self.write(|db| {
            db.query(&sql)
                .bind(row.tenant.as_str())
                .bind(row.id.to_string())
                .bind(&row.token_hash[..])
                .bind(row.key_id.as_str())
                .bind(row.role.as_str())
                .bind(row.created_at.0)
                .bind(row.last_seen_at.0)
                .bind(row.expires_at.0)
                .bind(row.user_agent.as_deref())
                .execute()
                .map(|_| ())
        })
        .await
    }

    async fn find_session(&self, token_hash: &[u8; 32]) -> Result<Option<SessionRow>> {
        let sql = format!("SELECT {SESSION} FROM console_sessions WHERE token_hash = ?");
        self.read(|db| db.query(&sql).bind(&token_hash[..]).find(rows::session)).await
    }

    async fn find_key_by_id(&self, tenant: &TenantId, key_id: &str) -> Result<Option<KeyRow>> {
        let sql = format!("SELECT {KEY} FROM api_keys WHERE tenant = ? AND key_id = ?");
        self.read(|db| db.query(&sql).bind(tenant.as_str()).bind(key_id).find(rows::key)).await
    }

    async fn touch_session(&self, tenant: &TenantId, id: SessionId, now: Micros) -> Result<()> {
        let sql = "UPDATE console_sessions SET last_seen_at = ?1 \
             WHERE tenant = ?2 AND session_id = ?3 AND last_seen_at < ?1";
        let id = id.to_string();
        self.write(|db| {
            let query = db.query(sql).bind(now.0).bind(tenant.as_str()).bind(id.as_str());
            query.execute().map(|_| ())
        })
        .await
    }

    async fn list_sessions(
        &self,
        tenant: &TenantId,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<SessionRow>> {
        self.read(|db| sessions(tenant).fetch(db, after, limit, rows::session)).await
    }

    async fn delete_session(&self, tenant: &TenantId, id: SessionId) -> Result<bool> {
        let sql = "DELETE FROM console_sessions WHERE tenant = ? AND session_id = ?";
        let id = id.to_string();
        let deleted = self
            .write(|db| db.query(sql).bind(tenant.as_str()).bind(id.as_str()).execute())
            .await?;
        Ok(deleted > 0)
    }

    async fn delete_sessions_of(&self, tenant: &TenantId, key_id: &str, keep: i64) -> Result<u64> {
        let sql = "DELETE FROM console_sessions WHERE (tenant, session_id) IN \
             (SELECT tenant, session_id FROM console_sessions WHERE tenant = ? AND key_id = ? \
              ORDER BY created_at DESC LIMIT -1 OFFSET ?)";
        self.write(|db| db.query(sql).bind(tenant.as_str()).bind(key_id).bind(keep).execute()).await
    }

    async fn forget_sessions(&self, now: Micros, idle_since: Micros) -> Result<u64> {
        let sql = "DELETE FROM console_sessions WHERE expires_at <= ? OR last_seen_at < ?";
        self.write(|db| db.query(sql).bind(now.0).bind(idle_since.0).execute()).await
    }
}
