//! Payload schemas as kept, and the queries on them.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::{Micros, TenantId};

/// Names a payload schema in all its versions.
pub type PayloadSchemaKey = (TenantId, String);
/// Names one version of a payload schema.
pub type PayloadSchemaVersion = (TenantId, String, String);

/// One version of a payload schema. Never changed, never removed: contracts name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadSchemaRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: String,
    /// Its semver version.
    pub version: String,
    /// How many versions of it were there before. Unique: of two that are registered at once, having seen
    /// the same ones, the second conflicts and is held against the first.
    pub ordinal: i64,
    /// Its canonical document (RFC 8785).
    pub doc: String,
    /// SHA-256 of `doc`.
    pub sha256: [u8; 32],
    /// What senders have to do to move to it, in words.
    pub migration: Option<String>,
    /// The key of the person who registered it.
    pub created_by: String,
    /// When it was registered.
    pub created_at: Micros,
}

impl PayloadSchemaRow {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> PayloadSchemaVersion {
        (self.tenant.clone(), self.id.clone(), self.version.clone())
    }
}

/// The queries on payload schemas.
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
