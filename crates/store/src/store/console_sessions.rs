//! Sessions of the console: logins of people by a key.

use async_trait::async_trait;

use super::{Cursor, KeyRow, Result, Role};
use handoffd_core::domain::ids::{Micros, SessionId, TenantId};

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

/// Sessions. All times come from the caller's clock.
#[async_trait]
pub trait SessionStore: Send + Sync {
    async fn insert_session(&self, row: &SessionRow) -> Result<()>;
    /// The session with this hash of a token, ended by time or not.
    async fn find_session(&self, token_hash: &[u8; 32]) -> Result<Option<SessionRow>>;
    /// A tenant's key by its public name, revoked and expired ones too.
    async fn find_key_by_id(&self, tenant: &TenantId, key_id: &str) -> Result<Option<KeyRow>>;
    /// Notes a request of a session.
    async fn touch_session(&self, tenant: &TenantId, id: SessionId, now: Micros) -> Result<()>;
    /// The tenant's sessions, newest first.
    async fn list_sessions(
        &self,
        tenant: &TenantId,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<SessionRow>>;
    /// Deletes a session; whether it was there.
    async fn delete_session(&self, tenant: &TenantId, id: SessionId) -> Result<bool>;
    /// Deletes the sessions of a key except for the newest `keep`; returns their number.
    async fn delete_sessions_of(&self, tenant: &TenantId, key_id: &str, keep: i64) -> Result<u64>;
    /// Deletes sessions that have expired by `now`, or were last seen before `idle_since`; returns their number.
    async fn forget_sessions(&self, now: Micros, idle_since: Micros) -> Result<u64>;
}
