//! API keys of a tenant.

use zeroize::Zeroizing;

use super::Administration;
use crate::directory::Principal;
use crate::intake::Refusal;
use crate::intake::refused::misfit;
use crate::ledger::commands::{CreateKey, Queued, RevokeKey};
use crate::vault::{hash_api_key, new_api_key};
use handoffd_domain::failure::{Code, Failure};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_store::clock;
use handoffd_store::store::{KeyRow, Role};

/// Most characters of a key's label.
const MAX_LABEL: usize = 200;

/// A key to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub role: Role,
    /// The agent to which it is bound.
    pub agent: Option<AgentId>,
    /// A name for people.
    pub label: String,
    /// When it stops working.
    pub expires_at: Option<Micros>,
}

/// The row of a new key, and the key.
#[must_use]
pub fn new_key(tenant: TenantId, wish: NewKey, now: Micros) -> (KeyRow, Zeroizing<String>) {
    let NewKey { role, agent, label, expires_at } = wish;
    let key = new_api_key();
    let row = KeyRow {
        tenant,
        key_id: format!("key_{}", clock::time_ordered_id(now).simple()),
        hash: hash_api_key(&key),
        role,
        agent,
        label,
        created_at: now,
        expires_at,
    };
    (row, key)
}

impl Administration<'_> {
    /// Makes a key. `expires_at` is the text of the request, RFC 3339.
    ///
    /// # Errors
    /// The label is too long, the agent does not fit the role, or the time is past.
    pub async fn create_key(
        &self,
        principal: &Principal,
        (role, agent): (Role, Option<AgentId>),
        label: String,
        expires_at: Option<&str>,
    ) -> Result<(KeyRow, Zeroizing<String>), Refusal> {
        fits(&label, role, agent.as_ref())?;
        if let Some(id) = &agent {
            let agents = self.intake.directory.agents(&principal.tenant).await?;
            agents.row(id).ok_or_else(|| misfit("/agentId", "no such agent"))?;
        }
        let now = self.now();
        let expires_at = expires_at.map(|text| expiry(text, now)).transpose()?;
        let wish = NewKey { role, agent, label, expires_at };
        let (row, key) = new_key(principal.tenant.clone(), wish, now);
        Ok((self.change_key(principal, CreateKey { row }).await?, key))
    }

    /// Revokes a key, and ends the console sessions that it began.
    ///
    /// # Errors
    /// It is the caller's own key, or no such key exists.
    pub async fn revoke_key(
        &self,
        principal: &Principal,
        key_id: String,
    ) -> Result<KeyRow, Refusal> {
        if key_id == principal.key_id {
            let why = "a key cannot revoke itself: use another admin key, so that one remains";
            return Err(Refusal::because(Code::Conflict, why));
        }
        let row = self.change_key(principal, RevokeKey { key_id }).await?;
        // A session asks for its key at each request: a row that is left opens nothing.
        match self.sessions.end_all(&row.tenant, &row.key_id).await {
            Ok(0) => {}
            Ok(ended) => {
                tracing::info!(tenant = %row.tenant, key_id = row.key_id, ended, "console sessions of a revoked key ended");
            }
            Err(err) => {
                tracing::warn!(error = %err, "sessions of a revoked key could not be deleted");
            }
        }
        Ok(row)
    }

    pub(super) async fn change_key(
        &self,
        principal: &Principal,
        command: impl Queued<Reply = KeyRow>,
    ) -> Result<KeyRow, Refusal> {
        let row = self.carry_out(principal, self.now(), command).await?;
        self.intake.directory.key_changed(&row).await;
        Ok(row)
    }
}

/// Checks the label of a key, and that a key of role `agent` names one, and no other key does.
fn fits(label: &str, role: Role, agent: Option<&AgentId>) -> Result<(), Failure> {
    if label.chars().count() > MAX_LABEL || label.contains('\0') {
        return Err(misfit("/label", "must be 200 characters at most, without NUL"));
    }
    match (role, agent) {
        (Role::Agent, None) => Err(misfit("/agentId", "an agent's key needs its agent")),
        (Role::Agent, Some(_)) | (_, None) => Ok(()),
        (_, Some(_)) => Err(misfit("/agentId", "only an agent's key is bound to one")),
    }
}

/// The end of a key's time, which is to come.
fn expiry(text: &str, now: Micros) -> Result<Micros, Failure> {
    let at = Micros::parse_rfc3339(text).filter(|at| *at > now);
    let why = "must be a time to come, such as 2026-11-21T06:18:41Z";
    at.ok_or_else(|| misfit("/expiresAt", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_fits_its_role_and_its_agent() {
        let (short, long) = ("a".repeat(MAX_LABEL), "a".repeat(MAX_LABEL + 1));
        let rows = [
            (short.as_str(), Role::Admin, None, None),
            (&long, Role::Admin, None, Some("/label")),
            ("a\0", Role::Admin, None, Some("/label")),
            ("", Role::Agent, Some("reviewer"), None),
            ("", Role::Agent, None, Some("/agentId")),
            ("", Role::Auditor, Some("reviewer"), Some("/agentId")),
            ("", Role::OperatorMetadata, None, None),
        ];
        for (label, role, agent, pointer) in rows {
            let agent: Option<AgentId> = agent.map(|id| id.parse().unwrap());
            let failure = fits(label, role, agent.as_ref()).err();
            let at = failure.as_ref().map(|failure| failure.pointer.as_str());
            assert_eq!(at, pointer, "{role:?} {agent:?}");
        }
    }

    #[test]
    fn a_key_ends_at_a_time_to_come() {
        let now = Micros::parse_rfc3339("2026-11-21T06:18:41Z").unwrap();
        assert_eq!(expiry("2026-11-21T06:18:42Z", now).unwrap(), Micros(now.0 + 1_000_000));
        for text in ["2026-11-21T06:18:41Z", "2025-11-21T06:18:41Z", "tomorrow", ""] {
            assert_eq!(expiry(text, now).unwrap_err().pointer, "/expiresAt", "{text}");
        }
    }

    #[test]
    fn the_row_of_a_key_has_its_hash() {
        let tenant: TenantId = "t".parse().unwrap();
        let label = "for a test".to_owned();
        let wish = NewKey { role: Role::Auditor, agent: None, label, expires_at: None };
        let (row, key) = new_key(tenant.clone(), wish.clone(), Micros(7));
        assert_eq!((row.hash, row.created_at), (hash_api_key(&key), Micros(7)));
        assert!(row.key_id.starts_with("key_") && key.starts_with("hd_"));
        let (_, other) = new_key(tenant, wish, Micros(7));
        assert_ne!(key, other);
    }
}
