//! Reads for recovery: edges, escalations, the history of checkpoints.

use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, QueryBuilder, Sqlite};

use super::connection::failure;
use super::reads::{NewestQuery, find};
use super::rows;
use crate::store::rows::{CHECKPOINT, EDGE, ESCALATION, unreadable};
use crate::store::{
    CheckpointCursor, CheckpointRow, Cursor, EscalationFilter, EscalationKey, HandoffKey, Result,
    TaskKey,
};
use handoffd_core::domain::escalation::Escalation;
use handoffd_core::domain::ids::{AgentId, Micros, TenantId};
use handoffd_core::domain::progress::Edge;
use handoffd_core::evidence::commitment::unpack;

/// See [`crate::store::Store::list_edges`].
pub(super) async fn list_edges(pool: &SqlitePool, key: &TaskKey) -> Result<Vec<Edge>> {
    sqlx::query(AssertSqlSafe(format!(
        "SELECT {EDGE} FROM task_edges WHERE tenant = ? AND task_id = ? ORDER BY source, target"
    )))
    .bind(key.0.as_str())
    .bind(key.1.to_string())
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(rows::edge)
    .collect()
}

/// See [`crate::store::Store::find_escalation`].
pub(super) async fn find_escalation(
    pool: &SqlitePool,
    key: &EscalationKey,
) -> Result<Option<Escalation>> {
    let sql =
        format!("SELECT {ESCALATION} FROM escalations WHERE tenant = ? AND escalation_id = ?");
    let row = find(pool, sql, &key.0, key.1.to_string()).await?;
    row.map(|row| rows::escalation(&row)).transpose()
}

/// See [`crate::store::Store::list_escalations`].
pub(super) async fn list_escalations(
    pool: &SqlitePool,
    tenant: &TenantId,
    filter: &EscalationFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Escalation>> {
    let EscalationFilter { status, task_id } = filter;
    let mut list = NewestQuery::new(ESCALATION, "escalations AS x", tenant);
    list.filter("x.status = {}", status.map(|status| status.as_str().to_owned()));
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list.fetch(pool, "escalation_id", after, limit).await?.iter().map(rows::escalation).collect()
}

/// See [`crate::store::Store::list_overdue_escalations`].
pub(super) async fn list_overdue(
    pool: &SqlitePool,
    now: Micros,
    limit: i64,
) -> Result<Vec<Escalation>> {
    sqlx::query(AssertSqlSafe(format!(
        "SELECT {ESCALATION} FROM escalations WHERE status = 'OPEN' AND timeout_at <= ? \
         ORDER BY timeout_at, escalation_id LIMIT ?"
    )))
    .bind(now.0)
    .bind(limit.max(0))
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(rows::escalation)
    .collect()
}

/// See [`crate::store::Store::list_checkpoints`].
pub(super) async fn list_checkpoints(
    pool: &SqlitePool,
    key: &TaskKey,
    agent: Option<&AgentId>,
    after: Option<&CheckpointCursor>,
    limit: i64,
) -> Result<Vec<CheckpointRow>> {
    let mut query = QueryBuilder::<Sqlite>::new(format!(
        "SELECT {CHECKPOINT} FROM checkpoints WHERE tenant = "
    ));
    query.push_bind(key.0.as_str().to_owned());
    query.push(" AND task_id = ").push_bind(key.1.to_string());
    if let Some(agent) = agent {
        query.push(" AND agent_id = ").push_bind(agent.as_str().to_owned());
    }
    if let Some((at, run, seq)) = after {
        query.push(" AND (created_at, execution_id, seq) < (").push_bind(at.0);
        query.push(", ").push_bind(run.to_string());
        query.push(", ").push_bind(*seq).push(")");
    }
    query.push(" ORDER BY created_at DESC, execution_id DESC, seq DESC LIMIT ");
    query.push_bind(limit.max(0));
    let found = query.build().fetch_all(pool).await.map_err(failure)?;
    found.iter().map(rows::checkpoint).collect()
}

/// See [`crate::store::Store::list_personal_data`].
pub(super) async fn list_personal_data(
    pool: &SqlitePool,
    key: &HandoffKey,
) -> Result<Vec<Vec<u8>>> {
    sqlx::query(
        "SELECT codec, bytes FROM personal_data \
         WHERE tenant = ? AND handoff_id = ? AND bytes IS NOT NULL ORDER BY leaf_index, ordinal",
    )
    .bind(key.0.as_str())
    .bind(key.1.to_string())
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(|row| {
        unpack(rows::codec(row)?, rows::get(row, "bytes")?).map_err(|err| unreadable("bytes", err))
    })
    .collect()
}
