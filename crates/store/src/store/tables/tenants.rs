//! `tenants`: the tenants.
//!
//! A row, and how it changes:
//!
//! - `tenants`: a tenant. Never.

use crate::store::Result;
use crate::store::query::{Database, Statement};
use crate::store::rows::parse;
use crate::store::table::Rights;
use handoffd_domain::ids::{Micros, TenantId};

/// Rights of the serving role. `FOR UPDATE` asks for the right to update some column: a row is locked, and never changed.
pub(super) const RIGHTS: Rights = &[("tenants", "SELECT, INSERT, UPDATE (created_at)")];

/// See [`crate::store::DirectoryStore::list_tenants`].
pub(in crate::store) async fn list<D: Database>(db: &D) -> Result<Vec<TenantId>> {
    let tenants = Statement::new("SELECT tenant FROM tenants ORDER BY tenant");
    db.list(tenants, |row| parse(row, "tenant")).await
}

/// Adds a tenant, unless it exists.
pub(in crate::store) fn add(tenant: &TenantId, at: Micros) -> Statement<'_> {
    let add = Statement::new(
        "INSERT INTO tenants (tenant, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    );
    add.bind(tenant).bind(at)
}
