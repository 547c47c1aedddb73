//! Reads for recovery: edges, escalations, the history of checkpoints.

use super::db::{Db, Pieces};
use super::reads::NewestQuery;
use crate::store::tables::{
    checkpoints::{self, CHECKPOINT},
    escalations::{self, ESCALATION},
};
use crate::store::{CheckpointCursor, CheckpointRow, Cursor, EscalationFilter, Result, TaskKey};
use handoffd_domain::escalation::{Escalation, EscalationStatus};
use handoffd_domain::ids::{AgentId, TenantId};

/// See [`crate::store::HandoffStore::list_escalations`].
pub(super) fn list_escalations(
    db: &Db,
    tenant: &TenantId,
    filter: &EscalationFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Escalation>> {
    escalations(tenant, filter).fetch(db, after, limit, escalations::decode)
}

pub(super) fn escalations(tenant: &TenantId, filter: &EscalationFilter) -> NewestQuery {
    let EscalationFilter { status, task_id } = filter;
    let mut list = NewestQuery::new(ESCALATION, "escalations AS x", "escalation_id", tenant);
    if let Some(status) = status {
        // In the text: an index of one status serves a statement that says which it reads.
        list.term(&format!("x.status = '{}'", status.as_str()));
        if *status != EscalationStatus::Open {
            list.term("x.status <> 'OPEN'");
        }
    }
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list
}

/// See [`crate::store::HandoffStore::list_checkpoints`].
pub(super) fn list_checkpoints(
    db: &Db,
    key: &TaskKey,
    agent: Option<&AgentId>,
    after: Option<&CheckpointCursor>,
    limit: i64,
) -> Result<Vec<CheckpointRow>> {
    let mut query = Pieces::new(format!("SELECT {CHECKPOINT} FROM checkpoints WHERE tenant = "));
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
    query.build(db).list(checkpoints::decode)
}
