//! Reads for recovery: edges, escalations, the history of checkpoints.

use sqlx::postgres::PgPool;

use super::failure::failed;
use super::reads::{NewestQuery, list, only};
use crate::store::tables::{
    checkpoints::{self, CHECKPOINT},
    escalations::{self, ESCALATION},
};
use crate::store::{CheckpointCursor, CheckpointRow, Cursor, EscalationFilter, Result, TaskKey};
use handoffd_domain::escalation::{Escalation, EscalationStatus};
use handoffd_domain::ids::{AgentId, TenantId};

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
