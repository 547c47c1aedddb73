//! Queries on payload schemas.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::batch::{Bound, PAYLOAD_SCHEMAS, Sql, bind};
use super::call::Call;
use super::failure::failed;
use super::transact::Loaded;
use super::{PostgresStore, answered, rows};
use crate::store::rows::PAYLOAD_SCHEMA;
use crate::store::schemas::{PayloadSchemaRow, PayloadSchemaStore};
use crate::store::{Needs, Result, Writes};
use handoffd_core::domain::ids::TenantId;

static LOAD: Sql = Sql::new(|| PAYLOAD_SCHEMAS.select_of(Bound::Arrays, "", "schema_id"));
static INSERT: Sql = Sql::new(|| PAYLOAD_SCHEMAS.insert(1, Bound::Arrays));

/// The load of a batch's rows, without locks: rows never change, and of two brokers adding a version to the same ones
/// the second conflicts by its ordinal.
pub(super) fn loads(needs: &Needs) -> Option<(Loaded, Call)> {
    let call = Call::new(LOAD.as_str());
    let call = bind!(call, needs.payload_schemas, |key| key.0.as_str(), key.1.as_str());
    (!needs.payload_schemas.is_empty()).then_some((Loaded::PayloadSchemas, call))
}

/// Writes a batch's changes.
pub(super) fn calls(writes: &Writes) -> Option<Call> {
    let call = bind!(
        Call::new(INSERT.as_str()),
        writes.payload_schemas,
        |row| row.tenant.as_str(),
        row.id.as_str(),
        row.version.as_str(),
        row.ordinal,
        row.doc.as_str(),
        row.sha256.as_slice(),
        row.migration.as_deref(),
        row.created_by.as_str(),
        row.created_at.0,
    );
    (!writes.payload_schemas.is_empty()).then_some(call)
}

#[async_trait]
impl PayloadSchemaStore for PostgresStore {
    async fn list_payload_schemas(
        &self,
        tenant: &TenantId,
        id: Option<&str>,
    ) -> Result<Vec<PayloadSchemaRow>> {
        answered(async {
            let sql = format!(
                "SELECT {PAYLOAD_SCHEMA} FROM payload_schemas \
                 WHERE tenant = $1 AND ($2::text IS NULL OR schema_id = $2) \
                 ORDER BY schema_id, ordinal"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.as_str())
                .bind(id)
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::payload_schema)
                .collect()
        })
        .await
    }
}
