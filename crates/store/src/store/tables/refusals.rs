//! `refusals`: messages that the gate and the ledger refused, by ids, codes and places.
//!
//! A row, and how it changes:
//!
//! - `refusals`: a refused message: ids, codes and places. Inserted; deleted when old.

use crate::store::driver::by_driver;
use serde::{Deserialize, Serialize};

use crate::store::query::{Row, Texts, unreadable};
use crate::store::rows::{get, micros, parse, parse_opt};
use crate::store::table::{Rights, table};
use crate::store::{Cursor, NewRow, Result, Store};
use handoffd_domain::ids::{AgentId, ContentId, HandoffId, Micros, TaskId, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("refusals", "SELECT, INSERT, DELETE")];

/// A place that a refused message failed at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub stage: String,
    pub code: String,
    pub pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A refused message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalRow {
    pub tenant: TenantId,
    /// That of the content of its record.
    pub id: ContentId,
    pub created_at: Micros,
    /// Who submitted it; `None` for a person.
    pub source: Option<AgentId>,
    pub target: Option<AgentId>,
    /// As the message says.
    pub task_id: Option<TaskId>,
    /// As the message says.
    pub handoff_id: Option<HandoffId>,
    /// The reason, and where it was found first.
    pub code: String,
    pub pointer: String,
    pub findings: Vec<Finding>,
}

table! {
    REFUSALS: RefusalRow = "refusals" by 2 {
        "tenant" Text: |row| &row.tenant,
        "refusal_id" Text: |row| row.id,
        "created_at" Long: |row| row.created_at,
        "source" Text: |row| row.source.as_ref(),
        "target" Text: |row| row.target.as_ref(),
        "task_id" Text: |row| row.task_id,
        "handoff_id" Text: |row| row.handoff_id,
        "code" Text: |row| &row.code,
        "pointer" Text: |row| &row.pointer,
        // Plain data, whose JSON cannot fail.
        "findings" Text: |row| serde_json::to_string(&row.findings).unwrap_or_default(),
    }
}

/// A refusal for a batch to insert.
#[must_use]
pub fn insert(row: &RefusalRow) -> NewRow {
    REFUSALS.new_row(row)
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<RefusalRow> {
    Ok(RefusalRow {
        tenant: parse(row, "tenant")?,
        id: parse(row, "refusal_id")?,
        created_at: micros(row, "created_at")?,
        source: parse_opt(row, "source")?,
        target: parse_opt(row, "target")?,
        task_id: parse_opt(row, "task_id")?,
        handoff_id: parse_opt(row, "handoff_id")?,
        code: get(row, "code")?,
        pointer: get(row, "pointer")?,
        findings: serde_json::from_str(get(row, "findings")?)
            .map_err(|err| unreadable("findings", err))?,
    })
}

#[derive(Debug, Clone, Default)]
pub struct RefusalFilter {
    /// Only refusals of this sender's messages.
    pub source: Option<AgentId>,
    /// Only refusals of messages to this agent.
    pub target: Option<AgentId>,
    /// Only refusals of messages on this task.
    pub task_id: Option<TaskId>,
    /// Only refusals for this reason.
    pub code: Option<String>,
    /// Only refusals whose reason was found at this place.
    pub pointer: Option<String>,
    /// Only refusals at or after this time.
    pub from: Option<Micros>,
    /// Only refusals before this time.
    pub until: Option<Micros>,
}

/// See [`crate::store::Store::delete_refusals`].
pub(in crate::store) const DELETE_OLD: Texts = Texts {
    sqlite: "DELETE FROM refusals WHERE (tenant, refusal_id) IN (SELECT tenant, refusal_id \
             FROM refusals WHERE tenant = ? AND created_at < ? ORDER BY created_at LIMIT 1000)",
    postgres: "DELETE FROM refusals WHERE tenant = $1 AND refusal_id IN (SELECT refusal_id \
                 FROM refusals WHERE tenant = $1 AND created_at < $2 ORDER BY created_at LIMIT 1000)",
};

impl Store {
    /// Refusals, newest first.
    pub async fn list_refusals(
        &self,
        tenant: &TenantId,
        filter: &RefusalFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<RefusalRow>> {
        by_driver!(self, db => db.list_refusals(tenant, filter, after, limit))
    }

    /// Deletes a bounded number of a tenant's refusals from before a time; returns their number.
    pub async fn delete_refusals(&self, tenant: &TenantId, before: Micros) -> Result<u64> {
        by_driver!(self, db => db.delete_refusals(tenant, before))
    }
}
