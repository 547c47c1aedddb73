use async_trait::async_trait;
#[cfg(feature = "simulation")]
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use super::failure::failed;
use super::{PostgresStore, answered, rows};
use crate::store::Result;
use crate::store::attention::{
    AttentionStore, DEAD_LETTERS, ESCALATIONS, IDLE, MAX_COUNTED, MAX_GROUPS, QUEUES, WaitCounts,
};
use handoffd_core::domain::ids::{Micros, TenantId};

impl PostgresStore {
    /// The groups of a statement whose second parameter is `bound`.
    async fn groups<T>(
        &self,
        sql: &'static str,
        tenant: &TenantId,
        bound: i64,
        read: fn(&PgRow) -> Result<T>,
    ) -> Result<Vec<T>> {
        let query = sqlx::query(sql).bind(tenant.as_str()).bind(bound).bind(MAX_GROUPS);
        query.fetch_all(&self.pool).await.map_err(failed)?.iter().map(read).collect()
    }
}

#[cfg(feature = "simulation")]
impl PostgresStore {
    /// The plans by which Postgres counts what waits where it prefers an index, statement by statement.
    ///
    /// # Errors
    /// As any read.
    pub async fn explain_waits(&self, tenant: &TenantId) -> Result<Vec<Vec<String>>> {
        let mut tx = self.pool.begin().await.map_err(failed)?;
        sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let mut plans = Vec::new();
        for sql in [ESCALATIONS, DEAD_LETTERS, QUEUES, IDLE] {
            let query = sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN {sql}")));
            let query = query.bind(tenant.as_str()).bind(MAX_COUNTED).bind(MAX_GROUPS);
            plans.push(query.fetch_all(&mut *tx).await.map_err(failed)?);
        }
        Ok(plans)
    }
}

#[async_trait]
impl AttentionStore for PostgresStore {
    async fn count_waits(&self, tenant: &TenantId, now: Micros) -> Result<WaitCounts> {
        answered(async {
            let most = MAX_COUNTED;
            Ok(WaitCounts {
                escalations: self.groups(ESCALATIONS, tenant, most, rows::open_escalations).await?,
                dead_letters: self.groups(DEAD_LETTERS, tenant, most, rows::open_letters).await?,
                queues: self.groups(QUEUES, tenant, now.0, rows::waiting_deliveries).await?,
                idle: self.groups(IDLE, tenant, most, rows::idle_tasks).await?,
            })
        })
        .await
    }
}
