use async_trait::async_trait;

use super::db::{Db, Row};
use super::{SqliteStore, rows};
use crate::store::Result;
use crate::store::attention::{
    AttentionStore, DEAD_LETTERS, ESCALATIONS, IDLE, MAX_COUNTED, MAX_GROUPS, QUEUES, WaitCounts,
};
use handoffd_core::domain::ids::{Micros, TenantId};

/// The groups of a statement whose second parameter is `bound`.
fn groups<T>(
    db: &Db,
    sql: &str,
    tenant: &TenantId,
    bound: i64,
    read: fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let sql = sql.replace('$', "?");
    db.query(&sql).bind(tenant.as_str()).bind(bound).bind(MAX_GROUPS).list(read)
}

#[cfg(feature = "simulation")]
impl SqliteStore {
    /// The steps in which SQLite counts what waits, as `EXPLAIN QUERY PLAN` names them, statement by statement.
    ///
    /// # Errors
    /// As any read.
    pub async fn explain_waits(&self, tenant: &TenantId) -> Result<Vec<Vec<String>>> {
        self.read(|db| {
            let explain = |sql: &&str| {
                let sql = format!("EXPLAIN QUERY PLAN {sql}");
                groups(db, &sql, tenant, MAX_COUNTED, |row| row.get("detail"))
            };
            [ESCALATIONS, DEAD_LETTERS, QUEUES, IDLE].iter().map(explain).collect()
        })
        .await
    }
}

#[async_trait]
impl AttentionStore for SqliteStore {
    async fn count_waits(&self, tenant: &TenantId, now: Micros) -> Result<WaitCounts> {
        self.read(|db| {
            Ok(WaitCounts {
                escalations: groups(db, ESCALATIONS, tenant, MAX_COUNTED, rows::open_escalations)?,
                dead_letters: groups(db, DEAD_LETTERS, tenant, MAX_COUNTED, rows::open_letters)?,
                queues: groups(db, QUEUES, tenant, now.0, rows::waiting_deliveries)?,
                idle: groups(db, IDLE, tenant, MAX_COUNTED, rows::idle_tasks)?,
            })
        })
        .await
    }
}
