//! `tenants`: the tenants.

use crate::store::Result;
use crate::store::query::{Database, Statement};
use crate::store::rows::parse;
use handoffd_core::domain::ids::TenantId;

/// See [`crate::store::DirectoryStore::list_tenants`].
pub(in crate::store) async fn list<D: Database>(db: &D) -> Result<Vec<TenantId>> {
    let tenants = Statement::new("SELECT tenant FROM tenants ORDER BY tenant");
    db.list(tenants, |row| parse(row, "tenant")).await
}
