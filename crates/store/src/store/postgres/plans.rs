use sqlx::{AssertSqlSafe, Execute, Row};

use super::failure::failed;
use super::{PostgresStore, reads, recovery, refusals};
use crate::store::Result;
use crate::store::plans::ListFilter;
use handoffd_domain::ids::TenantId;

impl PostgresStore {
    /// The plan by which Postgres carries out the first page of a list where it prefers an index to reading a table whole or
    /// in parts, as on a large one.
    pub(in crate::store) async fn explain_list(
        &self,
        tenant: &TenantId,
        list: &ListFilter,
    ) -> Result<Vec<String>> {
        let list = match list {
            ListFilter::Handoffs(filter) => reads::handoffs(tenant, filter),
            ListFilter::Tasks(filter) => reads::tasks(tenant, filter),
            ListFilter::DeadLetters(filter) => reads::dead_letters(tenant, filter),
            ListFilter::Escalations(filter) => recovery::escalations(tenant, filter),
            ListFilter::Refusals(filter) => refusals::refusals(tenant, filter),
        };
        let mut statement = list.page(None, 50);
        let mut query = statement.build();
        let values = query.take_arguments().map_err(sqlx::Error::Encode).map_err(failed)?;
        let text = format!("EXPLAIN {}", query.sql().as_str());
        let mut tx = self.pool.begin().await.map_err(failed)?;
        sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let rows = sqlx::query_with(AssertSqlSafe(text), values.unwrap_or_default())
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        tx.rollback().await.map_err(failed)?;
        rows.iter().map(|row| row.try_get(0).map_err(failed)).collect()
    }
}
