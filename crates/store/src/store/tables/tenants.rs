//! `tenants`: the tenants.
//!
//! A row, and how it changes:
//!
//! - `tenants`: a tenant. Never.

use crate::store::driver::{by_each_driver, in_memory};
use crate::store::query::{Statement, Texts};
use crate::store::rows::parse;
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::{Micros, TenantId};

/// Rights of the serving role. `FOR UPDATE` asks for the right to update some column: a row is locked, and never changed.
pub(super) const RIGHTS: Rights = &[("tenants", "SELECT, INSERT, UPDATE (created_at)")];

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

impl Store {
    /// Creates a tenant's log, with `log_id`, unless it exists.
    pub async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
        by_each_driver!(self, db => db.ensure_tenant(tenant, log_id, at))
    }

    pub async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        in_memory!(self, db => db.list_tenants());
        let tenants = Statement::new("SELECT tenant FROM tenants ORDER BY tenant");
        self.list(tenants, |row| parse(row, "tenant")).await
    }

    /// All tenants that a table of tenants, log heads, records or handoffs names, by name: those that a verification has to
    /// look at. Reads whole tables.
    pub async fn list_named_tenants(&self) -> Result<Vec<TenantId>> {
        by_each_driver!(self, db => db.list_named_tenants())
    }
}
