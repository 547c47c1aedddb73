//! `payload_schemas`: versions of payload schemas.
//!
//! A row, and how it changes:
//!
//! - `payload_schemas`: one version of a payload schema: canonical document, hash, the key that registered it, its
//!   place among the versions. Inserted only.

use crate::store::query::{Dialect, Row, Statement};
use crate::store::rows::{get, hash32, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::ids::{Micros, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("payload_schemas", "SELECT, INSERT")];

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

table! {
    PAYLOAD_SCHEMAS: PayloadSchemaRow = "payload_schemas" by 3 {
        "tenant" Text: |row| &row.tenant,
        "schema_id" Text: |row| &row.id,
        "version" Text: |row| &row.version,
        "ordinal" Long: |row| row.ordinal,
        "doc" Text: |row| &row.doc,
        "sha256" Bytes: |row| &row.sha256,
        "migration" Text: |row| row.migration.as_deref(),
        "created_by" Text: |row| &row.created_by,
        "created_at" Long: |row| row.created_at,
    }
}

fn decode(row: &dyn Row) -> Result<PayloadSchemaRow> {
    Ok(PayloadSchemaRow {
        tenant: parse(row, "tenant")?,
        id: get(row, "schema_id")?,
        version: get(row, "version")?,
        ordinal: get(row, "ordinal")?,
        doc: get(row, "doc")?,
        sha256: hash32(row, "sha256")?,
        migration: get(row, "migration")?,
        created_by: get(row, "created_by")?,
        created_at: micros(row, "created_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.payload_schemas.insert(row.key(), row);
    Ok(())
}

impl Store {
    /// All versions of a tenant's payload schemas, or of the one with this id, by id and in the order in
    /// which they were registered.
    pub async fn list_payload_schemas(
        &self,
        tenant: &TenantId,
        id: Option<&str>,
    ) -> Result<Vec<PayloadSchemaRow>> {
        let given = match self.dialect() {
            Dialect::Sqlite => "$2",
            Dialect::Postgres => "$2::text",
        };
        let text = format!(
            "SELECT {} FROM payload_schemas WHERE tenant = $1 \
             AND ({given} IS NULL OR schema_id = $2) ORDER BY schema_id, ordinal",
            PAYLOAD_SCHEMAS.list
        );
        self.list(Statement::new(text).bind(tenant).bind(id), decode).await
    }
}
