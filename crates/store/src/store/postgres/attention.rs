//! How Postgres counts what waits, for the cases that walk every plan.

use sqlx::AssertSqlSafe;

use super::PostgresStore;
use super::failure::failed;
use crate::store::Result;
use crate::store::attention::{
    AGAIN, DEAD_LETTERS, ESCALATIONS, IDLE, MAX_COUNTED, MAX_GROUPS, QUESTIONS, QUEUES, STILL,
};
use handoffd_domain::ids::TenantId;

impl PostgresStore {
    /// The plans by which Postgres counts what waits where it prefers an index, statement by statement.
    pub(in crate::store) async fn explain_waits(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<Vec<String>>> {
        let mut tx = self.pool.begin().await.map_err(failed)?;
        sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let mut plans = Vec::new();
        for sql in [ESCALATIONS, DEAD_LETTERS, QUEUES, AGAIN, IDLE, STILL, QUESTIONS] {
            let query = sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN {sql}")));
            let query = query.bind(tenant.as_str()).bind(MAX_COUNTED).bind(MAX_GROUPS);
            plans.push(query.fetch_all(&mut *tx).await.map_err(failed)?);
        }
        Ok(plans)
    }
}
