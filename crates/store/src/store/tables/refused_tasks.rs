//! `refused_tasks`: an agent's refused submissions on a task that does not exist.
//!
//! A row, and how it changes:
//!
//! - `refused_tasks`: an agent's refused submissions on a task that does not exist. Updated; deleted a day after the
//!   last.

use crate::store::driver::in_memory;
use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, RefusedTaskRow, Result, Store};
use handoffd_domain::ids::Micros;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("refused_tasks", "SELECT, INSERT, UPDATE, DELETE")];

table! {
    REFUSED_TASKS: RefusedTaskRow = "refused_tasks" by 3 {
        "tenant" Text: |row| &row.tenant,
        "task_id" Text: |row| row.task_id,
        "agent_id" Text: |row| &row.agent,
        "refusals" Long: |row| row.refusals,
        "updated_at" Long: |row| row.updated_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<RefusedTaskRow> {
    Ok(RefusedTaskRow {
        tenant: parse(row, "tenant")?,
        task_id: parse(row, "task_id")?,
        agent: parse(row, "agent_id")?,
        refusals: get(row, "refusals")?,
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.refused_tasks.insert(row.key(), row);
    Ok(())
}

impl Store {
    /// Deletes refused task ids without a refusal since `before`; returns the number of rows.
    pub async fn forget_refused_tasks(&self, before: Micros) -> Result<u64> {
        in_memory!(self, db => db.forget_refused_tasks(before));
        self.change(Statement::new("DELETE FROM refused_tasks WHERE updated_at < $1").bind(before))
            .await
    }
}
