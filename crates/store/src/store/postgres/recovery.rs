//! Reads for recovery: edges, escalations, the history of checkpoints.

use sqlx::postgres::PgPool;

use super::reads::{NewestQuery, list, only};
use crate::store::tables::escalations::{self, ESCALATION};
use crate::store::{Cursor, EscalationFilter, Result};
use handoffd_domain::escalation::{Escalation, EscalationStatus};
use handoffd_domain::ids::TenantId;

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
