//! Contract rows and their queries.

use async_trait::async_trait;

use super::Result;
use handoffd_core::domain::ids::{HandoffId, Micros, TenantId};

/// Key of a contract version: tenant, id, version.
pub type ContractKey = (TenantId, String, String);
/// Key of a dedupe value: tenant, and contract with a hash of the value.
pub type RepeatKey = (TenantId, String);

/// A contract version. Rows are never changed or deleted, as records name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractRow {
    pub tenant: TenantId,
    pub id: String,
    /// The contract's semver version.
    pub version: String,
    /// The canonical document (RFC 8785).
    pub doc: String,
    /// SHA-256 of `doc`.
    pub sha256: [u8; 32],
    /// The source as written in the contract.
    pub source: String,
    /// The target as written in the contract.
    pub target: String,
    pub created_at: Micros,
}

impl ContractRow {
    #[must_use]
    pub fn key(&self) -> ContractKey {
        (self.tenant.clone(), self.id.clone(), self.version.clone())
    }
}

/// The last use of a contract's dedupe value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatRow {
    pub tenant: TenantId,
    /// The contract and a hash of the value.
    pub key: String,
    /// The handoff created with it.
    pub handoff_id: HandoffId,
    pub seen_at: Micros,
}

#[async_trait]
pub trait ContractStore: Send + Sync {
    /// Number of contract versions of a tenant. Rows are only added, so a changed number means new versions.
    async fn count_contracts(&self, tenant: &TenantId) -> Result<i64>;
    /// All contract versions of a tenant, by id and version; only those registered at or after the given time by
    /// the writers' clocks.
    async fn list_contracts(
        &self,
        tenant: &TenantId,
        since: Option<Micros>,
    ) -> Result<Vec<ContractRow>>;
}
