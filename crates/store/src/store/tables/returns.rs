//! `returns`: tasks that came back, and receivers' questions, in the inbox of the agent that handed the task on.
//!
//! A row, and how it changes:
//!
//! - `returns`: a task that came back, or a receiver's question, in the inbox of the agent that handed the task on.
//!   Updated; deleted when acted on.

use crate::store::driver::by_each_driver;
use crate::store::query::{Dialect, Row, Texts};
use crate::store::row_types::ReceiverKey;
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{Result, ReturnRow, Store};
use handoffd_domain::ids::Micros;

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

/// Whether an agent's inbox has a return that no poll has.
pub(in crate::store) const ANY_DUE: Texts = Texts {
    sqlite: "SELECT 1 FROM returns WHERE tenant = ? AND agent_id = ? AND visible_at <= ? LIMIT 1",
    postgres: "SELECT EXISTS (SELECT 1 FROM returns \
         WHERE tenant = $1 AND agent_id = $2 AND visible_at <= $3)",
};

/// Postgres: takes returns out of an inbox. SQLite: finds them, and takes them by [`CLAIM_THESE`].
pub(in crate::store) fn claim(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT {RETURN} FROM returns WHERE tenant = ? AND agent_id = ? AND visible_at <= ? \
         ORDER BY returned_at, handoff_id LIMIT ?"
        ),
        Dialect::Postgres => format!(
            "WITH due AS MATERIALIZED (SELECT d.tenant AS t, d.handoff_id AS h FROM returns AS d \
           WHERE d.tenant = $1 AND d.agent_id = $2 AND d.visible_at <= $3 \
           ORDER BY d.returned_at, d.handoff_id LIMIT $4 FOR UPDATE SKIP LOCKED) \
         UPDATE returns SET visible_at = $5 FROM due WHERE tenant = t AND handoff_id = h \
         RETURNING {RETURN}"
        ),
    }
}

/// SQLite: takes returns out of an inbox.
pub(in crate::store) const CLAIM_THESE: &str = "UPDATE returns SET visible_at = ? \
             WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";

impl Store {
    /// Takes up to `limit` returns out of an agent's inbox, the oldest first, until `until`: the agent gets them
    /// again unless it acted on their tasks by then.
    pub async fn claim_returns(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<ReturnRow>> {
        by_each_driver!(self, db => db.claim_returns(receiver, now, until, limit))
    }
}
