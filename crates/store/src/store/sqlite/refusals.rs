use async_trait::async_trait;

use super::batch::RowBatch;
use super::db::Db;
use super::reads::NewestQuery;
use super::writes::texts;
use super::{SqliteStore, rows};
use crate::store::refusals::{RefusalFilter, RefusalRow, RefusalStore};
use crate::store::rows::REFUSAL;
use crate::store::{Cursor, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};

/// Writes a batch's refusals, which are always new.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let texts = texts(writes.refusals.iter().map(|row| &row.findings))?;
    let refusals: Vec<_> = writes.refusals.iter().zip(texts.iter().map(String::as_str)).collect();
    RowBatch::insert("refusals", REFUSAL).run(db, &refusals, |query, (row, findings)| {
        query
            .bind(row.tenant.as_str())
            .bind(row.id.to_string())
            .bind(row.created_at.0)
            .bind(row.source.as_ref().map(handoffd_core::domain::ids::AgentId::as_str))
            .bind(row.target.as_ref().map(handoffd_core::domain::ids::AgentId::as_str))
            .bind(row.task_id.map(|id| id.to_string()))
            .bind(row.handoff_id.map(|id| id.to_string()))
            .bind(row.code.as_str())
            .bind(row.pointer.as_str())
            .bind(findings)
    })?;
    Ok(())
}

pub(super) fn refusals(tenant: &TenantId, filter: &RefusalFilter) -> NewestQuery {
    let RefusalFilter { source, target, task_id, code, pointer, from, until } = filter;
    let mut list = NewestQuery::new(REFUSAL, "refusals AS x", "refusal_id", tenant);
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list.filter("x.code = {}", code.clone());
    list.filter("x.pointer = {}", pointer.clone());
    list.time("x.created_at >= ", *from);
    list.time("x.created_at < ", *until);
    list
}

#[async_trait]
impl RefusalStore for SqliteStore {
    async fn list_refusals(
        &self,
        tenant: &TenantId,
        filter: &RefusalFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<RefusalRow>> {
        self.read(|db| refusals(tenant, filter).fetch(db, after, limit, rows::refusal)).await
    }

    async fn delete_refusals(&self, tenant: &TenantId, before: Micros) -> Result<u64> {
        let sql = "DELETE FROM refusals WHERE (tenant, refusal_id) IN (SELECT tenant, refusal_id \
             FROM refusals WHERE tenant = ? AND created_at < ? ORDER BY created_at LIMIT 1000)";
        self.write(|db| db.query(sql).bind(tenant.as_str()).bind(before.0).execute()).await
    }
}
