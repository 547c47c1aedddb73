//! `escalations`: questions that wait for a person.
//!
//! A row, and how it changes:
//!
//! - `escalations`: a question that waits for a person. Updated when decided.

use crate::store::EscalationKey;
use crate::store::driver::{by_each_driver, in_memory};
use crate::store::lists::{Cursor, EscalationFilter};
use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros, micros_opt, parse, parse_opt, state, state_opt};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::escalation::{Escalation, EscalationOutcome, EscalationStatus};
use handoffd_domain::ids::{Micros, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("escalations", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const ESCALATION: &str = ESCALATIONS.list;

table! {
    ESCALATIONS: Escalation = "escalations" by 2 {
        "tenant" Text: |row| &row.tenant,
        "escalation_id" Text: |row| row.id,
        "task_id" Text: |row| row.task_id,
        "handoff_id" Text: |row| row.handoff_id,
        "source" Text: |row| &row.source,
        "target" Text: |row| &row.target,
        "reason" Text: |row| &row.reason,
        "channel" Text: |row| row.channel.as_deref(),
        "resume_as" Text: |row| row.resume_as.as_ref(),
        "status" Text: |row| row.status.as_str(),
        "created_at" Long: |row| row.created_at,
        "timeout_at" Long: |row| row.timeout_at,
        "resolved_at" Long: |row| row.resolved_at,
        "resolved_by" Text: |row| row.resolved_by.as_deref(),
        "resolution" Text: |row| row.resolution.map(EscalationOutcome::as_str),
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<Escalation> {
    Ok(Escalation {
        tenant: parse(row, "tenant")?,
        id: parse(row, "escalation_id")?,
        task_id: parse(row, "task_id")?,
        handoff_id: parse_opt(row, "handoff_id")?,
        source: parse(row, "source")?,
        target: parse(row, "target")?,
        reason: get(row, "reason")?,
        channel: get(row, "channel")?,
        resume_as: parse_opt(row, "resume_as")?,
        status: state(row, "status", EscalationStatus::parse)?,
        created_at: micros(row, "created_at")?,
        timeout_at: micros(row, "timeout_at")?,
        resolved_at: micros_opt(row, "resolved_at")?,
        resolved_by: get(row, "resolved_by")?,
        resolution: state_opt(row, "resolution", EscalationOutcome::parse)?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.escalations.insert((row.tenant.clone(), row.id), row);
    Ok(())
}

impl Store {
    pub async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>> {
        in_memory!(self, db => db.find_escalation(key));
        let text = format!(
            "SELECT {ESCALATION} FROM escalations WHERE tenant = $1 AND escalation_id = $2"
        );
        self.find(Statement::new(text).bind(&key.0).bind(key.1), decode).await
    }

    /// Escalations, newest first.
    pub async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        by_each_driver!(self, db => db.list_escalations(tenant, filter, after, limit))
    }

    /// Open escalations past their deadline, of all tenants.
    pub async fn list_overdue_escalations(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Escalation>> {
        in_memory!(self, db => db.list_overdue_escalations(now, limit));
        let text = format!(
            "SELECT {ESCALATION} FROM escalations WHERE status = 'OPEN' AND timeout_at <= $1 \
             ORDER BY timeout_at, escalation_id LIMIT $2"
        );
        self.list(Statement::new(text).bind(now).bind(limit.max(0)), decode).await
    }
}
