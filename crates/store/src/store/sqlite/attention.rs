//! How SQLite counts what waits, for the cases that walk every plan.

use super::SqliteStore;
use crate::store::Result;
use crate::store::attention::{
    AGAIN, DEAD_LETTERS, ESCALATIONS, IDLE, MAX_COUNTED, MAX_GROUPS, QUESTIONS, QUEUES, STILL,
};
use crate::store::rows::get;
use handoffd_domain::ids::TenantId;

impl SqliteStore {
    /// The steps in which SQLite counts what waits, as `EXPLAIN QUERY PLAN` names them, statement by statement.
    pub(in crate::store) async fn explain_waits(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<Vec<String>>> {
        self.read(|db| {
            let explain = |sql: &&str| {
                let sql = format!("EXPLAIN QUERY PLAN {}", sql.replace('$', "?"));
                let query = db.query(&sql).bind(tenant.as_str()).bind(MAX_COUNTED).bind(MAX_GROUPS);
                query.list(|row| get(row, "detail"))
            };
            [ESCALATIONS, DEAD_LETTERS, QUEUES, AGAIN, IDLE, STILL, QUESTIONS]
                .iter()
                .map(explain)
                .collect()
        })
        .await
    }
}
