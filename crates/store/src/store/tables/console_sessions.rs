//! `console_sessions`: logins of people by a key.
//!
//! A row, and how it changes:
//!
//! - `console_sessions`: a login at the console: hash of its token, key, time of the last request. Updated; deleted at
//!   its end.

use super::api_keys::{self, KEY};
use crate::store::query::{Dialect, Row, Statement};
use crate::store::rows::{get, hash32, micros, parse, state};
use crate::store::table::{Rights, table};
use crate::store::{Cursor, KeyRow, Result, Role, Store};
use handoffd_domain::ids::{Micros, SessionId, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights =
    &[("console_sessions", "SELECT, INSERT, UPDATE (last_seen_at), DELETE")];

/// A session of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub tenant: TenantId,
    pub id: SessionId,
    /// SHA-256 of the token in the cookie.
    pub token_hash: [u8; 32],
    /// Public name of the key of the login.
    pub key_id: String,
    /// The key's role at the login. The key's present role decides on access.
    pub role: Role,
    pub created_at: Micros,
    /// The last request, to the minute.
    pub last_seen_at: Micros,
    pub expires_at: Micros,
    /// The name that the browser gives itself, 120 characters at most.
    pub user_agent: Option<String>,
}

table! {
    SESSIONS: SessionRow = "console_sessions" by 2 {
        "tenant" Text: |row| &row.tenant,
        "session_id" Text: |row| row.id.to_string(),
        "token_hash" Bytes: |row| &row.token_hash,
        "key_id" Text: |row| &row.key_id,
        "role" Text: |row| row.role.as_str(),
        "created_at" Long: |row| row.created_at,
        "last_seen_at" Long: |row| row.last_seen_at,
        "expires_at" Long: |row| row.expires_at,
        "user_agent" Text: |row| row.user_agent.as_deref(),
    }
}

fn decode(row: &dyn Row) -> Result<SessionRow> {
    Ok(SessionRow {
        tenant: parse(row, "tenant")?,
        id: parse(row, "session_id")?,
        token_hash: hash32(row, "token_hash")?,
        key_id: get(row, "key_id")?,
        role: state(row, "role", Role::parse)?,
        created_at: micros(row, "created_at")?,
        last_seen_at: micros(row, "last_seen_at")?,
        expires_at: micros(row, "expires_at")?,
        user_agent: get(row, "user_agent")?,
    })
}

/// A page of a tenant's sessions, newest first.
fn page<'a>(tenant: &'a TenantId, after: Option<&Cursor>, limit: i64) -> Statement<'a> {
    let (behind, place) = match after {
        Some(_) => (" AND (created_at, session_id) < ($2, $3)", 4),
        None => ("", 2),
    };
    let text = format!(
        "SELECT {} FROM console_sessions WHERE tenant = $1{behind} \
         ORDER BY created_at DESC, session_id DESC LIMIT ${place}",
        SESSIONS.list,
    );
    let statement = Statement::new(text).bind(tenant);
    let statement = match after {
        Some((at, id)) => statement.bind(*at).bind(id.clone()),
        None => statement,
    };
    statement.bind(limit.max(0))
}

impl Store {
    pub async fn insert_session(&self, row: &SessionRow) -> Result<()> {
        let text = format!(
            "INSERT INTO console_sessions ({}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            SESSIONS.list,
        );
        let insert = Statement::new(text)
            .bind(&row.tenant)
            .bind(row.id.to_string())
            .bind(&row.token_hash)
            .bind(&row.key_id)
            .bind(row.role.as_str())
            .bind(row.created_at)
            .bind(row.last_seen_at)
            .bind(row.expires_at)
            .bind(row.user_agent.as_deref());
        self.change(insert).await.map(|_| ())
    }

    /// The session with this hash of a token, ended by time or not.
    pub async fn find_session(&self, token_hash: &[u8; 32]) -> Result<Option<SessionRow>> {
        let text = format!("SELECT {} FROM console_sessions WHERE token_hash = $1", SESSIONS.list);
        self.find(Statement::new(text).bind(token_hash), decode).await
    }

    /// A tenant's key by its public name, revoked and expired ones too.
    pub async fn find_key_by_id(&self, tenant: &TenantId, key_id: &str) -> Result<Option<KeyRow>> {
        let text = format!("SELECT {KEY} FROM api_keys WHERE tenant = $1 AND key_id = $2");
        self.find(Statement::new(text).bind(tenant).bind(key_id), api_keys::decode).await
    }

    /// Notes a request of a session.
    pub async fn touch_session(&self, tenant: &TenantId, id: SessionId, now: Micros) -> Result<()> {
        let touch = Statement::new(
            "UPDATE console_sessions SET last_seen_at = $1 \
             WHERE tenant = $2 AND session_id = $3 AND last_seen_at < $1",
        );
        self.change(touch.bind(now).bind(tenant).bind(id.to_string())).await.map(|_| ())
    }

    /// The tenant's sessions, newest first.
    pub async fn list_sessions(
        &self,
        tenant: &TenantId,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<SessionRow>> {
        self.list(page(tenant, after, limit), decode).await
    }

    /// Deletes a session; whether it was there.
    pub async fn delete_session(&self, tenant: &TenantId, id: SessionId) -> Result<bool> {
        let delete =
            Statement::new("DELETE FROM console_sessions WHERE tenant = $1 AND session_id = $2");
        Ok(self.change(delete.bind(tenant).bind(id.to_string())).await? > 0)
    }

    /// Deletes the sessions of a key except for the newest `keep`; returns their number.
    pub async fn delete_sessions_of(
        &self,
        tenant: &TenantId,
        key_id: &str,
        keep: i64,
    ) -> Result<u64> {
        // SQLite takes an offset only behind a limit.
        let rest = match self.dialect() {
            Dialect::Sqlite => "LIMIT -1 OFFSET $3",
            Dialect::Postgres => "OFFSET $3",
        };
        let text = format!(
            "DELETE FROM console_sessions WHERE tenant = $1 AND session_id IN \
             (SELECT session_id FROM console_sessions WHERE tenant = $1 AND key_id = $2 \
              ORDER BY created_at DESC {rest})"
        );
        self.change(Statement::new(text).bind(tenant).bind(key_id).bind(keep)).await
    }

    /// Deletes sessions that have expired by `now`, or were last seen before `idle_since`; returns their number.
    pub async fn forget_sessions(&self, now: Micros, idle_since: Micros) -> Result<u64> {
        let forget = Statement::new(
            "DELETE FROM console_sessions WHERE expires_at <= $1 OR last_seen_at < $2",
        );
        self.change(forget.bind(now).bind(idle_since)).await
    }
}
