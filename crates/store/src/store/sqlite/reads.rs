//! Named reads of rows.

use std::collections::HashMap;

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, QueryBuilder, Sqlite};

use super::connection::failure;
use super::rows;
use crate::store::rows::{AGENT, CHECKPOINT, DEAD_LETTER, HANDOFF, KEY, TASK};
use crate::store::{
    AgentRow, CheckpointRow, Cursor, DeadLetterFilter, DeadLetterRow, Depths, HandoffFilter,
    HandoffKey, KeyRow, Result, RunKey, TaskFilter, TaskKey,
};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::{AgentId, Micros, TenantId};
use handoffd_core::domain::task::Task;

/// See [`crate::store::Store::ping`].
pub(super) async fn ping(pool: &SqlitePool) -> Result<()> {
    // Reads the file's header and not just the connection.
    sqlx::query("SELECT count(*) FROM sqlite_schema")
        .fetch_one(pool)
        .await
        .map(|_| ())
        .map_err(failure)
}

/// See [`crate::store::Store::settle_fact`].
pub(super) async fn settle_fact(
    conn: &mut SqliteConnection,
    name: &str,
    value: &[u8],
) -> Result<Vec<u8>> {
    sqlx::query("INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING")
        .bind(name)
        .bind(value)
        .execute(&mut *conn)
        .await
        .map_err(failure)?;
    let row = sqlx::query("SELECT value FROM facts WHERE name = ?")
        .bind(name)
        .fetch_one(conn)
        .await
        .map_err(failure)?;
    rows::get(&row, "value")
}

/// See [`crate::store::Store::list_tenants`].
pub(super) async fn list_tenants(pool: &SqlitePool) -> Result<Vec<TenantId>> {
    sqlx::query("SELECT tenant FROM tenants ORDER BY tenant")
        .fetch_all(pool)
        .await
        .map_err(failure)?
        .iter()
        .map(|row| rows::parse(row, "tenant"))
        .collect()
}

/// See [`crate::store::Store::find_key`].
pub(super) async fn find_key(pool: &SqlitePool, hash: &[u8]) -> Result<Option<KeyRow>> {
    sqlx::query(AssertSqlSafe(format!("SELECT {KEY} FROM api_keys WHERE key_hash = ?")))
        .bind(hash)
        .fetch_optional(pool)
        .await
        .map_err(failure)?
        .map(|row| rows::key(&row))
        .transpose()
}

/// See [`crate::store::Store::list_keys`].
pub(super) async fn list_keys(pool: &SqlitePool, tenant: &TenantId) -> Result<Vec<KeyRow>> {
    let sql = format!("SELECT {KEY} FROM api_keys WHERE tenant = ? ORDER BY created_at, key_id");
    of_tenant(pool, sql, tenant).await?.iter().map(rows::key).collect()
}

/// See [`crate::store::Store::list_agents`].
pub(super) async fn list_agents(pool: &SqlitePool, tenant: &TenantId) -> Result<Vec<AgentRow>> {
    let sql = format!("SELECT {AGENT} FROM agents WHERE tenant = ? ORDER BY agent_id");
    of_tenant(pool, sql, tenant).await?.iter().map(rows::agent).collect()
}

/// See [`crate::store::Store::count_agent_changes`].
pub(super) async fn count_agent_changes(pool: &SqlitePool, tenant: &TenantId) -> Result<i64> {
    let sql = "SELECT revision FROM agent_changes WHERE tenant = ? AND agent_id = ''";
    let found = sqlx::query_scalar(sql).bind(tenant.as_str()).fetch_optional(pool).await;
    Ok(found.map_err(failure)?.unwrap_or(0))
}

/// See [`crate::store::Store::list_changed_agents`].
pub(super) async fn list_changed_agents(
    pool: &SqlitePool,
    tenant: &TenantId,
    after: i64,
) -> Result<Vec<(AgentId, Option<AgentRow>)>> {
    sqlx::query(
        "SELECT c.tenant, c.agent_id, a.doc, a.secrets, a.created_at, a.updated_at \
         FROM agent_changes AS c LEFT JOIN agents AS a USING (tenant, agent_id) \
         WHERE c.tenant = ? AND c.revision > ? AND c.agent_id <> '' ORDER BY c.agent_id",
    )
    .bind(tenant.as_str())
    .bind(after)
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(rows::changed_agent)
    .collect()
}

/// See [`crate::store::Store::count_open`].
pub(super) async fn count_open(
    pool: &SqlitePool,
    tenant: &TenantId,
) -> Result<HashMap<AgentId, i64>> {
    let sql = "SELECT target, count(*) AS open FROM handoffs \
               WHERE tenant = ? AND status IN ('PENDING', 'ACCEPTED') GROUP BY target";
    of_tenant(pool, sql.to_owned(), tenant)
        .await?
        .iter()
        .map(|row| Ok((rows::parse(row, "target")?, rows::get(row, "open")?)))
        .collect()
}

async fn of_tenant(pool: &SqlitePool, sql: String, tenant: &TenantId) -> Result<Vec<SqliteRow>> {
    sqlx::query(AssertSqlSafe(sql)).bind(tenant.as_str()).fetch_all(pool).await.map_err(failure)
}

/// A row by tenant and id.
pub(super) async fn find(
    pool: &SqlitePool,
    sql: String,
    tenant: &TenantId,
    id: String,
) -> Result<Option<SqliteRow>> {
    sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(id)
        .fetch_optional(pool)
        .await
        .map_err(failure)
}

/// See [`crate::store::Store::find_handoff`].
pub(super) async fn find_handoff(pool: &SqlitePool, key: &HandoffKey) -> Result<Option<Handoff>> {
    let sql = format!("SELECT {HANDOFF} FROM handoffs WHERE tenant = ? AND handoff_id = ?");
    let row = find(pool, sql, &key.0, key.1.to_string()).await?;
    row.map(|row| rows::handoff(&row)).transpose()
}

/// See [`crate::store::Store::find_task`].
pub(super) async fn find_task(pool: &SqlitePool, key: &TaskKey) -> Result<Option<Task>> {
    let sql = format!("SELECT {TASK} FROM tasks WHERE tenant = ? AND task_id = ?");
    let row = find(pool, sql, &key.0, key.1.to_string()).await?;
    row.map(|row| rows::task(&row)).transpose()
}

/// See [`crate::store::Store::find_dead_letter`].
pub(super) async fn find_dead_letter(
    pool: &SqlitePool,
    key: &HandoffKey,
) -> Result<Option<DeadLetterRow>> {
    let sql = format!("SELECT {DEAD_LETTER} FROM dead_letters WHERE tenant = ? AND handoff_id = ?");
    let row = find(pool, sql, &key.0, key.1.to_string()).await?;
    row.map(|row| rows::dead_letter(&row)).transpose()
}

/// See [`crate::store::Store::find_checkpoint`].
pub(super) async fn find_checkpoint(
    pool: &SqlitePool,
    run: &RunKey,
    seq: Option<i64>,
) -> Result<Option<CheckpointRow>> {
    let which = if seq.is_some() { " AND seq = ?" } else { "" };
    let sql = format!(
        "SELECT {CHECKPOINT} FROM checkpoints \
         WHERE tenant = ? AND task_id = ? AND execution_id = ?{which} ORDER BY seq DESC LIMIT 1"
    );
    let query = sqlx::query(AssertSqlSafe(sql))
        .bind(run.0.as_str())
        .bind(run.1.to_string())
        .bind(run.2.to_string());
    let query = if seq.is_some() { query.bind(seq) } else { query };
    let row = query.fetch_optional(pool).await.map_err(failure)?;
    row.map(|row| rows::checkpoint(&row)).transpose()
}

/// See [`crate::store::HandoffStore::list_checkpoints_at`].
pub(super) async fn list_checkpoints_at(
    pool: &SqlitePool,
    at: &[(RunKey, i64)],
) -> Result<Vec<CheckpointRow>> {
    let keys: Vec<_> = at.iter().map(|(run, seq)| (&run.0, run.1, run.2, seq)).collect();
    let sql = format!(
        "WITH wanted (t, i, e, n) AS (SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 \
           FROM json_each(?)) \
         SELECT {CHECKPOINT} FROM wanted CROSS JOIN checkpoints \
           ON tenant = t AND task_id = i AND execution_id = e AND seq = n"
    );
    let found = sqlx::query(AssertSqlSafe(sql))
        .bind(super::batch::json(&keys)?)
        .fetch_all(pool)
        .await
        .map_err(failure)?;
    found.iter().map(rows::checkpoint).collect()
}

/// A list of a tenant's rows, newest first, to which filters are added; the table is called `x`.
pub(super) struct NewestQuery(QueryBuilder<Sqlite>);

impl NewestQuery {
    pub(super) fn new(columns: &str, table: &str, tenant: &TenantId) -> Self {
        let mut query =
            QueryBuilder::new(format!("SELECT {columns} FROM {table} WHERE x.tenant = "));
        query.push_bind(tenant.as_str().to_owned());
        Self(query)
    }

    /// Adds a condition `sql`, in which each `{}` is the value.
    pub(super) fn filter(&mut self, sql: &str, value: Option<String>) {
        let Some(value) = value else { return };
        self.0.push(" AND ");
        for (n, piece) in sql.split("{}").enumerate() {
            if n > 0 {
                self.0.push_bind(value.clone());
            }
            self.0.push(piece);
        }
    }

    /// Adds a comparison of a column with a time.
    fn time(&mut self, sql: &str, at: Option<Micros>) {
        if let Some(at) = at {
            self.0.push(" AND ").push(sql).push_bind(at.0);
        }
    }

    pub(super) async fn fetch(
        mut self,
        pool: &SqlitePool,
        id: &str,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<SqliteRow>> {
        if let Some((at, last)) = after {
            self.0.push(format!(" AND (x.created_at, x.{id}) < ("));
            self.0.push_bind(at.0).push(", ").push_bind(last.clone()).push(")");
        }
        self.0.push(format!(" ORDER BY x.created_at DESC, x.{id} DESC LIMIT "));
        self.0.push_bind(limit.max(0));
        self.0.build().fetch_all(pool).await.map_err(failure)
    }
}

/// See [`crate::store::Store::list_handoffs`].
pub(super) async fn list_handoffs(
    pool: &SqlitePool,
    tenant: &TenantId,
    filter: &HandoffFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Handoff>> {
    let HandoffFilter { task_id, status, source, target, party } = filter;
    // Left alone, SQLite walks all of the tenant's handoffs to save itself sorting a task's few.
    let table =
        if task_id.is_some() { "handoffs AS x INDEXED BY handoffs_task" } else { "handoffs AS x" };
    let mut list = NewestQuery::new(HANDOFF, table, tenant);
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list.filter("x.status = {}", status.map(|status| status.as_str().to_owned()));
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.filter("(x.source = {} OR x.target = {})", party.as_ref().map(ToString::to_string));
    list.fetch(pool, "handoff_id", after, limit).await?.iter().map(rows::handoff).collect()
}

/// See [`crate::store::Store::list_tasks`]. An agent has a part in a task that it holds, and in one
/// with a handoff from or to it.
pub(super) async fn list_tasks(
    pool: &SqlitePool,
    tenant: &TenantId,
    filter: &TaskFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Task>> {
    let TaskFilter { status, party } = filter;
    let mut list = NewestQuery::new(TASK, "tasks AS x", tenant);
    list.filter("x.status = {}", status.map(|status| status.as_str().to_owned()));
    list.filter(
        "(x.holder = {} OR EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = x.tenant \
         AND h.task_id = x.task_id AND (h.source = {} OR h.target = {})))",
        party.as_ref().map(ToString::to_string),
    );
    list.fetch(pool, "task_id", after, limit).await?.iter().map(rows::task).collect()
}

/// See [`crate::store::Store::list_dead_letters`].
pub(super) async fn list_dead_letters(
    pool: &SqlitePool,
    tenant: &TenantId,
    filter: &DeadLetterFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<DeadLetterRow>> {
    let DeadLetterFilter { status, reason, source, target, from, until } = filter;
    let mut list = NewestQuery::new(DEAD_LETTER, "dead_letters AS x", tenant);
    list.filter("x.status = {}", status.map(|status| status.as_str().to_owned()));
    list.filter("x.reason = {}", reason.clone());
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.time("x.created_at >= ", *from);
    list.time("x.created_at < ", *until);
    list.fetch(pool, "handoff_id", after, limit).await?.iter().map(rows::dead_letter).collect()
}

/// See [`crate::store::Store::list_overdue`].
pub(super) async fn list_overdue(
    pool: &SqlitePool,
    now: Micros,
    limit: i64,
) -> Result<Vec<Handoff>> {
    let sql = format!(
        "SELECT {HANDOFF} FROM handoffs \
         WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'ACCEPTED') AND deadline_at <= ? \
         ORDER BY deadline_at, handoff_id LIMIT ?"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(now.0)
        .bind(limit.max(0))
        .fetch_all(pool)
        .await
        .map_err(failure)?
        .iter()
        .map(rows::handoff)
        .collect()
}

/// See [`crate::store::Store::depths`].
pub(super) async fn depths(pool: &SqlitePool) -> Result<Depths> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM outbox) AS outbox, \
           (SELECT min(created_at) FROM outbox) AS oldest, \
           (SELECT count(*) FROM dead_letters WHERE status = 'OPEN') AS dead_letters, \
           (SELECT count(*) FROM escalations WHERE status = 'OPEN') AS escalations, \
           (SELECT coalesce(sum(size), 0) FROM audit_log_heads) AS records",
    )
    .fetch_one(pool)
    .await
    .map_err(failure)?;
    Ok(Depths {
        outbox: rows::get(&row, "outbox")?,
        oldest: rows::get::<Option<i64>>(&row, "oldest")?.map(Micros),
        dead_letters: rows::get(&row, "dead_letters")?,
        escalations: rows::get(&row, "escalations")?,
        records: rows::get(&row, "records")?,
    })
}
