use super::SqliteStore;
use super::reads::NewestQuery;
use crate::store::refusals::{REFUSALS, RefusalFilter, RefusalRow, decode};
use crate::store::tables::refusals;
use crate::store::{Cursor, Result};
use handoffd_domain::ids::{Micros, TenantId};

pub(super) fn refusals(tenant: &TenantId, filter: &RefusalFilter) -> NewestQuery {
    let RefusalFilter { source, target, task_id, code, pointer, from, until } = filter;
    let mut list = NewestQuery::new(REFUSALS.list, "refusals AS x", "refusal_id", tenant);
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list.filter("x.code = {}", code.clone());
    list.filter("x.pointer = {}", pointer.clone());
    list.time("x.created_at >= ", *from);
    list.time("x.created_at < ", *until);
    list
}

impl SqliteStore {
    pub(in crate::store) async fn list_refusals(
        &self,
        tenant: &TenantId,
        filter: &RefusalFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<RefusalRow>> {
        self.read(|db| refusals(tenant, filter).fetch(db, after, limit, decode)).await
    }

    pub(in crate::store) async fn delete_refusals(
        &self,
        tenant: &TenantId,
        before: Micros,
    ) -> Result<u64> {
        let sql = refusals::DELETE_OLD.sqlite;
        self.write(|db| db.query(sql).bind(tenant.as_str()).bind(before.0).execute()).await
    }
}
