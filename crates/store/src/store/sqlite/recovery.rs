//! Reads for recovery: edges, escalations, the history of checkpoints.

use super::db::Db;
use super::reads::NewestQuery;
use crate::store::tables::escalations::{self, ESCALATION};
use crate::store::{Cursor, EscalationFilter, Result};
use handoffd_domain::escalation::{Escalation, EscalationStatus};
use handoffd_domain::ids::TenantId;

/// See [`crate::store::Store::list_escalations`].
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
