//! Sessions of the console: logins of people by a key. A session is a row that all brokers share; its cookie holds a random
//! token of which the row has the hash.

mod attempts;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use self::attempts::LoginAttempts;
use crate::config::Console;
use crate::directory::{Directory, Principal};
use handoffd_domain::ids::{Micros, SessionId, TenantId};
use handoffd_store::clock::{self, Clock};
use handoffd_store::store::console_sessions::SessionRow;
use handoffd_store::store::{Store, StoreError};

/// Most sessions of one key. A further login ends the oldest one.
const MAX_SESSIONS_OF_KEY: i64 = 100;

/// Longest name of a browser that is kept, in characters.
const MAX_USER_AGENT: usize = 120;

/// Longest time between two notes of the last request, in microseconds (a minute).
const TOUCH_EVERY_US: i64 = 60_000_000;

/// Attempts in a minute with one prefix of a key: more than a person makes.
const ATTEMPTS_BY_PREFIX: u32 = 10;

/// Reasons for which a login is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No such key, or it has expired or was revoked.
    #[error("the key is not valid")]
    UnknownKey,
    /// An agent's key: the console is for people.
    #[error("an agent's key opens no console")]
    AgentKey,
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

/// A session that has just begun.
pub struct NewSession {
    pub id: SessionId,
    pub principal: Principal,
    /// The token for the cookie, base64url. Nothing else has it.
    pub token: Zeroizing<String>,
    /// Seconds until the session ends, whatever its use.
    pub seconds: i64,
}

/// A session that is open now.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: SessionId,
    /// The caller, with the role that the key has now.
    pub principal: Principal,
    /// The token that each form of this session carries: 64 hexadecimal digits.
    pub csrf: String,
    /// The last request of the person that was noted.
    last_seen_at: Micros,
}

/// Begins, finds and ends sessions.
pub struct ConsoleSessions {
    store: Arc<Store>,
    directory: Arc<Directory>,
    clock: Arc<dyn Clock>,
    /// Bounds attempts to log in; its user counts.
    pub attempts: LoginAttempts,
    lifetime_us: i64,
    idle_us: i64,
}

impl ConsoleSessions {
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        directory: Arc<Directory>,
        clock: Arc<dyn Clock>,
        settings: &Console,
    ) -> Self {
        let attempts = LoginAttempts::new(settings.logins_per_minute, ATTEMPTS_BY_PREFIX);
        let lifetime_us = i64::from(settings.session_hours) * 3_600_000_000;
        let idle_us = idle_us(settings);
        Self { store, directory, clock, attempts, lifetime_us, idle_us }
    }

    /// Begins a session by a key. Keys are compared by their hashes, so that the time tells nothing of them.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn begin(
        &self,
        key: &str,
        user_agent: Option<&str>,
    ) -> Result<NewSession, LoginError> {
        let principal = self.directory.authenticate(key).await?.ok_or(LoginError::UnknownKey)?;
        if principal.rights().is_agent() {
            return Err(LoginError::AgentKey);
        }
        let token = clock::random::<32>();
        let now = self.clock.now();
        let id = SessionId(clock::random_id());
        let row = SessionRow {
            tenant: principal.tenant.clone(),
            id,
            token_hash: Sha256::digest(token).into(),
            key_id: principal.key_id.clone(),
            role: principal.role,
            created_at: now,
            last_seen_at: now,
            expires_at: Micros(now.0.saturating_add(self.lifetime_us)),
            user_agent: user_agent.map(|name| name.chars().take(MAX_USER_AGENT).collect()),
        };
        self.store.insert_session(&row).await.map_err(Arc::new)?;
        let (tenant, key_id) = (&principal.tenant, &principal.key_id);
        let ended = self.store.delete_sessions_of(tenant, key_id, MAX_SESSIONS_OF_KEY).await;
        ended.map_err(Arc::new)?;
        let token = Zeroizing::new(URL_SAFE_NO_PAD.encode(token));
        Ok(NewSession { id, principal, token, seconds: self.lifetime_us / 1_000_000 })
    }

    /// The open session of a cookie's token; `None` where it has ended or its key is not valid any more.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn resume(&self, token: &str) -> Result<Option<Session>, Arc<StoreError>> {
        let Some(token) = decoded(token) else { return Ok(None) };
        let hash: [u8; 32] = Sha256::digest(token).into();
        let row = self.store.find_session(&hash).await.map_err(Arc::new)?;
        let now = self.clock.now();
        let Some(row) = row.filter(|row| self.is_open(row, now)) else { return Ok(None) };
        let Some(principal) = self.principal(&row).await? else { return Ok(None) };
        let last_seen_at = row.last_seen_at;
        Ok(Some(Session { id: row.id, principal, csrf: csrf(&token), last_seen_at }))
    }

    fn is_open(&self, row: &SessionRow, now: Micros) -> bool {
        now < row.expires_at && now.0.saturating_sub(row.last_seen_at.0) < self.idle_us
    }

    /// The caller by the key of a session as the store has it now.
    async fn principal(&self, row: &SessionRow) -> Result<Option<Principal>, Arc<StoreError>> {
        let key = self.store.find_key_by_id(&row.tenant, &row.key_id).await.map_err(Arc::new)?;
        let Some(key) = key else { return Ok(None) };
        let principal = self.directory.principal_of(key).await?;
        Ok(principal.filter(|principal| !principal.rights().is_agent()))
    }

    /// Notes a request of the person without delaying it, at most once a minute. A session without such a note ends by
    /// idleness.
    pub fn note_use(&self, session: &Session) {
        let now = self.clock.now();
        let interval = TOUCH_EVERY_US.min(self.idle_us / 4);
        if now.0.saturating_sub(session.last_seen_at.0) < interval {
            return;
        }
        let (store, tenant) = (Arc::clone(&self.store), session.principal.tenant.clone());
        let id = session.id;
        tokio::spawn(async move {
            if let Err(err) = store.touch_session(&tenant, id, now).await {
                tracing::debug!(error = %err, "a request of a session could not be noted");
            }
        });
    }

    /// Ends a session; whether it was there.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn end(&self, tenant: &TenantId, id: SessionId) -> Result<bool, StoreError> {
        self.store.delete_session(tenant, id).await
    }

    /// Ends all sessions of a key; returns their number.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn end_all(&self, tenant: &TenantId, key_id: &str) -> Result<u64, StoreError> {
        self.store.delete_sessions_of(tenant, key_id, 0).await
    }
}

/// The time without a request after which a session ends, in microseconds.
#[must_use]
pub fn idle_us(settings: &Console) -> i64 {
    i64::from(settings.idle_minutes) * 60_000_000
}

/// The token of a cookie; `None` where the text is not one.
fn decoded(token: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()
}

/// The token of a session's forms. It follows from the session's token, so that all brokers agree without sharing a secret.
fn csrf(token: &[u8; 32]) -> String {
    // An HMAC takes a key of any length.
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(token);
    mac.map(|mac| hex::encode(mac.chain_update(b"csrf").finalize().into_bytes()))
        .unwrap_or_default()
}

/// Whether a form carries its session's token. The time of the comparison tells nothing of the token.
#[must_use]
pub fn is_token_of_forms(expected: &str, given: &str) -> bool {
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_forms_follows_from_the_session_and_does_not_show_it() {
        let (first, second) = (csrf(&[1; 32]), csrf(&[2; 32]));
        assert_eq!(first, csrf(&[1; 32]));
        assert_eq!(first.len(), 64);
        assert_ne!(first, second);
        assert!(is_token_of_forms(&first, &csrf(&[1; 32])));
        assert!(!is_token_of_forms(&first, &second) && !is_token_of_forms(&first, ""));
        assert_ne!(first, hex::encode(Sha256::digest([1_u8; 32])), "not what the row has");
    }

    #[test]
    fn only_the_encoding_of_32_bytes_is_a_token() {
        assert_eq!(decoded(&URL_SAFE_NO_PAD.encode([7; 32])), Some([7; 32]));
        for text in ["", "short", "a b", &URL_SAFE_NO_PAD.encode([7; 33]), &"ü".repeat(43)] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
