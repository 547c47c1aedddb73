//! What the planner knows of tables that have just been made: nothing, until the server's own autovacuum comes
//! by, which is once a minute. Until then it may read all of a tenant's handoffs to find one, as an index
//! that begins with the tenant seems as good as another, and keeps to that plan for the connection's life.

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::failure::failed;
use crate::store::Result;

/// Tables that grow with every handoff, as far as their owner is who asks and nobody has looked at them yet.
const NEW: &str = "SELECT oid::regclass::text, pg_relation_size(oid) FROM pg_class \
     WHERE oid IN ('tasks'::regclass, 'handoffs'::regclass, 'task_edges'::regclass, 'contents'::regclass, \
       'checkpoints'::regclass, 'events'::regclass) \
     AND reltuples < 0 AND pg_has_role(relowner, 'USAGE')";

/// Bytes from which on a look at a table tells something: some hundred rows.
const GROWN: i64 = 64 * 1024;

/// See [`crate::store::Store::analyze_new`].
pub(super) async fn analyze_new(pool: &PgPool) -> Result<bool> {
    let new: Vec<(String, i64)> = sqlx::query_as(NEW).fetch_all(pool).await.map_err(failed)?;
    for (table, _) in new.iter().filter(|(_, bytes)| *bytes >= GROWN) {
        let sql = AssertSqlSafe(format!("ANALYZE {table}"));
        sqlx::raw_sql(sql).execute(pool).await.map_err(failed)?;
    }
    Ok(new.is_empty())
}
