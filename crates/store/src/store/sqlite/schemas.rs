//! Queries on payload schemas.

use async_trait::async_trait;

use super::batch::RowBatch;
use super::db::{Db, Query};
use super::transact::fetch_pairs;
use super::{SqliteStore, rows};
use crate::store::rows::PAYLOAD_SCHEMA;
use crate::store::schemas::{PayloadSchemaRow, PayloadSchemaStore};
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::ids::TenantId;

/// Loads a batch's rows.
pub(super) fn load(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let (table, wanted) = ("payload_schemas", &needs.payload_schemas);
    fetch_pairs(db, table, PAYLOAD_SCHEMA, "schema_id", wanted, |row| {
        let row = rows::payload_schema(row)?;
        state.payload_schemas.insert(row.key(), row);
        Ok(())
    })
}

/// Writes a batch's changes.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let schemas: Vec<_> = writes.payload_schemas.iter().collect();
    RowBatch::insert("payload_schemas", PAYLOAD_SCHEMA).run(db, &schemas, bind).map(|_| ())
}

fn bind<'c>(query: Query<'c>, row: &PayloadSchemaRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.id.as_str())
        .bind(row.version.as_str())
        .bind(row.ordinal)
        .bind(row.doc.as_str())
        .bind(row.sha256.as_slice())
        .bind(row.migration.as_deref())
        .bind(row.created_by.as_str())
        .bind(row.created_at.0)
}

#[async_trait]
impl PayloadSchemaStore for SqliteStore {
    async fn list_payload_schemas(
        &self,
        tenant: &TenantId,
        id: Option<&str>,
    ) -> Result<Vec<PayloadSchemaRow>> {
        let sql = format!(
            "SELECT {PAYLOAD_SCHEMA} FROM payload_schemas \
             WHERE tenant = ?1 AND (?2 IS NULL OR schema_id = ?2) ORDER BY schema_id, ordinal"
        );
        self.read(|db| db.query(&sql).bind(tenant.as_str()).bind(id).list(rows::payload_schema))
            .await
    }
}
