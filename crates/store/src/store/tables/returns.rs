//! `returns`: tasks that came back, and receivers' questions, in the inbox of the agent that handed the task on.
//!
//! A row, and how it changes:
//!
//! - `returns`: a task that came back, or a receiver's question, in the inbox of the agent that handed the task on.
//!   Updated; deleted when acted on.

use crate::store::query::Row;
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{Result, ReturnRow};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("returns", "SELECT, INSERT, UPDATE, DELETE")];

/// The columns, as a statement lists them.
pub(in crate::store) const RETURN: &str = RETURNS.list;

table! {
    RETURNS: ReturnRow = "returns" by 2 {
        "tenant" Text: |row| &row.tenant,
        "handoff_id" Text: |row| row.handoff_id,
        "task_id" Text: |row| row.task_id,
        "agent_id" Text: |row| &row.agent,
        "returned_at" Long: |row| row.returned_at,
        "visible_at" Long: |row| row.visible_at,
        "question" Long: |row| row.question.map(i64::from),
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<ReturnRow> {
    Ok(ReturnRow {
        tenant: parse(row, "tenant")?,
        handoff_id: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        agent: parse(row, "agent_id")?,
        returned_at: micros(row, "returned_at")?,
        visible_at: micros(row, "visible_at")?,
        question: get::<Option<i64>>(row, "question")?
            .and_then(|number| u32::try_from(number).ok()),
    })
}
