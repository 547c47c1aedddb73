use super::{SqliteStore, reads, recovery, refusals};
use crate::store::Result;
use crate::store::plans::ListFilter;
use handoffd_domain::ids::TenantId;

impl SqliteStore {
    /// The steps in which SQLite carries out the first page of a list, as `EXPLAIN QUERY PLAN` names them.
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
        let statement = list.page(None, 50).before("EXPLAIN QUERY PLAN ");
        self.read(|db| statement.build(db).list(|row| row.get("detail"))).await
    }
}
