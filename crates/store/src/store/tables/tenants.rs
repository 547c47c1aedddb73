//! `tenants`: the tenants.
//!
//! A row, and how it changes:
//!
//! - `tenants`: a tenant. Never.

use crate::store::Result;
use crate::store::query::{Database, Statement, Texts};
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

/// Postgres: locks tenants.
pub(in crate::store) const LOCK: &str =
    "SELECT tenant FROM tenants WHERE tenant = ANY($1) ORDER BY tenant FOR UPDATE";

/// Tenants that a table names. Postgres reads those of the log apart.
pub(in crate::store) const NAMED: Texts = Texts {
    sqlite: "SELECT tenant FROM tenants UNION SELECT tenant FROM audit_log_heads \
         UNION SELECT tenant FROM audit_records UNION SELECT tenant FROM handoffs ORDER BY tenant",
    postgres: "SELECT tenant FROM tenants UNION SELECT tenant FROM handoffs",
};
