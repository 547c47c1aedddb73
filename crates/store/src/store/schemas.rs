//! Payload schema rows and their queries.

use async_trait::async_trait;

use super::Result;
use handoffd_core::domain::ids::{Micros, TenantId};

/// Key of a payload schema with all its versions.
pub type PayloadSchemaKey = (TenantId, String);
/// Key of a payload schema version.
pub type PayloadSchemaVersion = (TenantId, String, String);

/// A payload schema version. Rows are never changed or deleted, as contracts name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadSchemaRow {
    pub tenant: TenantId,
    pub id: String,
    /// The schema's semver version.
    pub version: String,
    /// Number of earlier versions. Unique: of two brokers that register a version at once after the same ones,
    /// the second conflicts and is compared with the first.
    pub ordinal: i64,
    /// The canonical document (RFC 8785).
    pub doc: String,
    /// SHA-256 of `doc`.
    pub sha256: [u8; 32],
    /// Migration notes for senders.
    pub migration: Option<String>,
    /// Id of the registering key.
    pub created_by: String,
    pub created_at: Micros,
}

impl PayloadSchemaRow {
    #[must_use]
    pub fn key(&self) -> PayloadSchemaVersion {
        (self.tenant.clone(), self.id.clone(), self.version.clone())
    }
}

/// Queries on payload schemas.
#[async_trait]
pub trait PayloadSchemaStore: Send + Sync {
    /// All versions of a tenant's payload schemas, or of the one with this id, by id and in the order in
    /// which they were registered.
    async fn list_payload_schemas(
        &self,
        tenant: &TenantId,
        id: Option<&str>,
    ) -> Result<Vec<PayloadSchemaRow>>;
}
