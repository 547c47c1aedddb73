//! `task_edges`: passages, repeats without progress and figures of one edge of one task.
//!
//! A row, and how it changes:
//!
//! - `task_edges`: one edge of one task: passages, repeats without progress, figures. Updated.

use crate::store::TaskKey;
use crate::store::driver::in_memory;
use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::money::Usd;
use handoffd_domain::progress::Edge;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("task_edges", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const EDGE: &str = EDGES.list;

table! {
    EDGES: Edge = "task_edges" by 4 {
        "tenant" Text: |edge| &edge.tenant,
        "task_id" Text: |edge| edge.task_id,
        "source" Text: |edge| &edge.source,
        "target" Text: |edge| &edge.target,
        "passages" Long: |edge| edge.passages,
        "repeats" Long: |edge| edge.repeats,
        "completed_count" Long: |edge| edge.completed,
        // Counted with the task since migration 0015.
        "failures" Long: |_edge| 0_i64,
        "spent_nanos" Long: |edge| edge.spent.0,
        "remaining_nanos" Long: |edge| edge.remaining.0,
        "topped_up_nanos" Long: |edge| edge.topped_up.0,
        "updated_at" Long: |edge| edge.updated_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<Edge> {
    Ok(Edge {
        tenant: parse(row, "tenant")?,
        task_id: parse(row, "task_id")?,
        source: parse(row, "source")?,
        target: parse(row, "target")?,
        passages: get(row, "passages")?,
        repeats: get(row, "repeats")?,
        completed: get(row, "completed_count")?,
        spent: Usd(get(row, "spent_nanos")?),
        remaining: Usd(get(row, "remaining_nanos")?),
        topped_up: Usd(get(row, "topped_up_nanos")?),
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let edge = decode(row)?;
    let key = (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
    state.edges.insert(key, edge);
    Ok(())
}

impl Store {
    pub async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>> {
        in_memory!(self, db => db.list_edges(key));
        let text = format!(
            "SELECT {EDGE} FROM task_edges WHERE tenant = $1 AND task_id = $2 ORDER BY source, target"
        );
        self.list(Statement::new(text).bind(&key.0).bind(key.1), decode).await
    }
}
