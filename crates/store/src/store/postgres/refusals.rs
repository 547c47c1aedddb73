use super::failure::failed;
use super::reads::{NewestQuery, list, only, within_time};
use super::{PostgresStore, answered};
use crate::store::refusals::{REFUSALS, RefusalFilter, RefusalRow, decode};
use crate::store::tables::refusals;
use crate::store::{Cursor, Result};
use handoffd_domain::ids::{AgentId, Micros, TenantId};

pub(super) fn refusals(tenant: &TenantId, filter: &RefusalFilter) -> NewestQuery<'static> {
    let mut query = list(REFUSALS.list, "refusals", tenant);
    only(&mut query, "source", filter.source.as_ref().map(AgentId::as_str));
    only(&mut query, "target", filter.target.as_ref().map(AgentId::as_str));
    let task = filter.task_id.map(|id| id.to_string());
    only(&mut query, "task_id", task.as_deref());
    only(&mut query, "code", filter.code.as_deref());
    only(&mut query, "pointer", filter.pointer.as_deref());
    within_time(&mut query, filter.from, filter.until);
    NewestQuery::new(query, "refusal_id")
}

impl PostgresStore {
    pub(in crate::store) async fn list_refusals(
        &self,
        tenant: &TenantId,
        filter: &RefusalFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<RefusalRow>> {
        answered(async {
            let found = refusals(tenant, filter).fetch(&self.pool, after, limit).await?;
            found.iter().map(|row| decode(row)).collect()
        })
        .await
    }

    pub(in crate::store) async fn delete_refusals(
        &self,
        tenant: &TenantId,
        before: Micros,
    ) -> Result<u64> {
        answered(async {
            let done = sqlx::query(refusals::DELETE_OLD.postgres)
                .bind(tenant.as_str())
                .bind(before.0)
                .execute(&self.pool)
                .await
                .map_err(failed)?;
            Ok(done.rows_affected())
        })
        .await
    }
}
