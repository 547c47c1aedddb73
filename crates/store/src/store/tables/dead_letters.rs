//! `dead_letters`: handoffs that wait for a person, with the gate's findings.
//!
//! A row, and how it changes:
//!
//! - `dead_letters`: a handoff that waits for a person, with the gate's findings. Updated when decided.

use crate::store::HandoffKey;
use crate::store::driver::{by_each_driver, in_memory};
use crate::store::lists::{Cursor, DeadLetterFilter};
use crate::store::query::{Row, Statement, Texts, unreadable};
use crate::store::rows::{get, micros, micros_opt, parse, parse_opt, state};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, DeadLetterRow, Result, Store};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::ids::TenantId;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("dead_letters", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const DEAD_LETTER: &str = DEAD_LETTERS.list;

table! {
    DEAD_LETTERS: DeadLetterRow = "dead_letters" by 2 {
        "tenant" Text: |row| &row.tenant,
        "handoff_id" Text: |row| row.handoff_id,
        "task_id" Text: |row| row.task_id,
        "source" Text: |row| &row.source,
        "target" Text: |row| row.target.as_ref(),
        "reason" Text: |row| &row.reason,
        // Plain data, whose JSON cannot fail.
        "failures" Text: |row| serde_json::to_string(&row.failures).unwrap_or_default(),
        "status" Text: |row| row.status.as_str(),
        "created_at" Long: |row| row.created_at,
        "resolved_at" Long: |row| row.resolved_at,
        "resolved_by" Text: |row| row.resolved_by.as_deref(),
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<DeadLetterRow> {
    Ok(DeadLetterRow {
        tenant: parse(row, "tenant")?,
        handoff_id: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        source: parse(row, "source")?,
        target: parse_opt(row, "target")?,
        reason: get(row, "reason")?,
        failures: serde_json::from_str(get(row, "failures")?)
            .map_err(|err| unreadable("failures", err))?,
        status: state(row, "status", DeadLetterStatus::parse)?,
        created_at: micros(row, "created_at")?,
        resolved_at: micros_opt(row, "resolved_at")?,
        resolved_by: get(row, "resolved_by")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.dead_letters.insert((row.tenant.clone(), row.handoff_id), row);
    Ok(())
}

/// Erases the findings. Postgres locks the rows in key order, as batches do.
pub(in crate::store) const ERASE: Texts = Texts {
    sqlite: "UPDATE dead_letters SET failures = '[]' WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?))",
    postgres: "WITH named AS MATERIALIZED ( \
                     SELECT d.tenant, d.handoff_id FROM dead_letters AS d \
                     WHERE d.tenant = $1 AND d.handoff_id = ANY($2) \
                     ORDER BY d.tenant, d.handoff_id FOR UPDATE OF d) \
                   UPDATE dead_letters AS d SET failures = '[]' FROM named \
                   WHERE d.tenant = named.tenant AND d.handoff_id = named.handoff_id",
};

impl Store {
    /// Dead letters, newest first.
    pub async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        by_each_driver!(self, db => db.list_dead_letters(tenant, filter, after, limit))
    }

    pub async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>> {
        in_memory!(self, db => db.find_dead_letter(key));
        let text =
            format!("SELECT {DEAD_LETTER} FROM dead_letters WHERE tenant = $1 AND handoff_id = $2");
        self.find(Statement::new(text).bind(&key.0).bind(key.1), decode).await
    }
}
