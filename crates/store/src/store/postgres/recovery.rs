//! Reads for recovery: edges, escalations, the history of checkpoints.

use sqlx::postgres::PgPool;

use super::failure::failed;
use super::reads::{NewestQuery, list, only};
use super::rows;
use crate::store::rows::unreadable;
use crate::store::tables::{
    checkpoints::{self, CHECKPOINT},
    escalations::{self, ESCALATION},
};
use crate::store::{
    CheckpointCursor, CheckpointPlace, CheckpointRow, Cursor, EscalationFilter, HandoffKey, Result,
    TaskKey,
};
use handoffd_core::domain::escalation::{Escalation, EscalationStatus};
use handoffd_core::domain::handoff::CheckpointRef;
use handoffd_core::domain::ids::{AgentId, TenantId};
use handoffd_core::evidence::commitment::unpack;

/// Escalations, newest first.
pub(super) async fn list_escalations(
    pool: &PgPool,
    tenant: &TenantId,
    filter: &EscalationFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Escalation>> {
    let found = escalations(tenant, filter).fetch(pool, after, limit).await?;
    found.iter().map(|row| escalations::decode(row)).collect()
}

pub(super) fn escalations(tenant: &TenantId, filter: &EscalationFilter) -> NewestQuery<'static> {
    let mut query = list(ESCALATION, "escalations", tenant);
    if let Some(status) = filter.status.map(EscalationStatus::as_str) {
        // In the text: an index of one status serves a statement that says which it reads.
        query.push(" AND status = '").push(status).push("'");
    }
    let task = filter.task_id.map(|id| id.to_string());
    only(&mut query, "task_id", task.as_deref());
    NewestQuery::new(query, "escalation_id")
}

/// Checkpoints of a task, newest first.
pub(super) async fn list_checkpoints(
    pool: &PgPool,
    key: &TaskKey,
    agent: Option<&AgentId>,
    after: Option<&CheckpointCursor>,
    limit: i64,
) -> Result<Vec<CheckpointRow>> {
    let mut query = list(CHECKPOINT, "checkpoints", &key.0);
    query.push(" AND task_id = ").push_bind(key.1.to_string());
    only(&mut query, "agent_id", agent.map(AgentId::as_str));
    if let Some((at, run, seq)) = after {
        query.push(" AND (created_at, execution_id, seq) < (").push_bind(at.0);
        query.push(", ").push_bind(run.to_string());
        query.push(", ").push_bind(*seq).push(")");
    }
    query.push(" ORDER BY created_at DESC, execution_id DESC, seq DESC LIMIT ").push_bind(limit);
    let found = query.build().fetch_all(pool).await.map_err(failed)?;
    found.iter().map(|row| checkpoints::decode(row)).collect()
}

/// A page of the places of a task's checkpoints, by run and number.
pub(super) async fn list_checkpoint_places(
    pool: &PgPool,
    key: &TaskKey,
    after: Option<CheckpointRef>,
    limit: i64,
) -> Result<Vec<CheckpointPlace>> {
    let mut query = list("execution_id, seq, commitment", "checkpoints", &key.0);
    query.push(" AND task_id = ").push_bind(key.1.to_string());
    if let Some(CheckpointRef { execution_id, seq }) = after {
        query.push(" AND (execution_id, seq) > (").push_bind(execution_id.to_string());
        query.push(", ").push_bind(seq).push(")");
    }
    query.push(" ORDER BY execution_id, seq LIMIT ").push_bind(limit);
    let page = query.build().fetch_all(pool).await.map_err(failed)?;
    page.iter().map(|row| checkpoints::place(row)).collect()
}

/// The personal data committed with a handoff.
pub(super) async fn list_personal_data(pool: &PgPool, key: &HandoffKey) -> Result<Vec<Vec<u8>>> {
    sqlx::query(
        "SELECT codec, bytes FROM personal_data WHERE tenant = $1 AND handoff_id = $2 \
         AND bytes IS NOT NULL ORDER BY leaf_index, ordinal",
    )
    .bind(key.0.as_str())
    .bind(key.1.to_string())
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| {
        unpack(rows::codec(row)?, rows::get(row, "bytes")?).map_err(|err| unreadable("bytes", err))
    })
    .collect()
}
