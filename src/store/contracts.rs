//! Contracts as kept, and the queries on them.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::{HandoffId, Micros, TenantId};

/// Names one version of a contract.
pub type ContractKey = (TenantId, String, String);
/// Names what a contract's dedupe key was seen with.
pub type RepeatKey = (TenantId, String);

/// One version of a contract. Never changed, never removed: records name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: String,
    /// Its semver version.
    pub version: String,
    /// Its canonical document (RFC 8785).
    pub doc: String,
    /// SHA-256 of `doc`.
    pub sha256: [u8; 32],
    /// The source as named.
    pub source: String,
    /// The target as named.
    pub target: String,
    /// When it was put.
    pub created_at: Micros,
}

impl ContractRow {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> ContractKey {
        (self.tenant.clone(), self.id.clone(), self.version.clone())
    }
}

/// What a contract's dedupe key was last seen with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// The contract and a hash of the value.
    pub key: String,
    /// The handoff that it made.
    pub handoff_id: HandoffId,
    /// When.
    pub seen_at: Micros,
}

/// The queries on contracts.
#[async_trait]
pub trait ContractStore: Send + Sync {
    /// How many versions of contracts a tenant has. As rows are only added, another number means that
    /// there is something new.
    async fn count_contracts(&self, tenant: &TenantId) -> Result<i64>;
    /// All versions of all contracts of a tenant, by id and version; those that were put at that time or
    /// later, by the clocks of whoever put them.
    async fn list_contracts(
        &self,
        tenant: &TenantId,
        since: Option<Micros>,
    ) -> Result<Vec<ContractRow>>;
}
