//! `outbox`: handoffs that wait for delivery.
//!
//! A row, and how it changes:
//!
//! - `outbox`: a handoff that waits for delivery: `seq` within its task, `visible_at`, `attempt`, `busy` (attempts that
//!   the receiver put off), `claimed_by`. Deleted when settled.

use crate::store::query::{Database, Row, Statement, unreadable};
use crate::store::rows::handoff_key;
use crate::store::rows::{get, micros, mode, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, OutboxRow, Result};
use crate::store::{ClaimKey, TaskKey};
use handoffd_domain::handoff::Priority;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("outbox", "SELECT, INSERT, UPDATE, DELETE")];

/// The columns, as a statement lists them.
pub(in crate::store) const OUTBOX: &str = OUTBOXES.list;

table! {
    OUTBOXES: OutboxRow = "outbox" by 2 {
        "tenant" Text: |row| &row.tenant,
        "handoff_id" Text: |row| row.handoff_id,
        "task_id" Text: |row| row.task_id,
        "seq" Long: |row| row.seq,
        "target" Text: |row| &row.target,
        "mode" Text: |row| row.mode.as_str(),
        "priority" Int: |row| row.priority.rank(),
        "visible_at" Long: |row| row.visible_at,
        "attempt" Int: |row| row.attempt,
        "busy" Int: |row| row.busy,
        "claimed_by" Text: |row| row.claimed_by.as_deref(),
        "created_at" Long: |row| row.created_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<OutboxRow> {
    Ok(OutboxRow {
        tenant: parse(row, "tenant")?,
        handoff_id: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        seq: get(row, "seq")?,
        target: parse(row, "target")?,
        mode: mode(row)?,
        priority: priority(row)?,
        visible_at: micros(row, "visible_at")?,
        attempt: get(row, "attempt")?,
        busy: get(row, "busy")?,
        claimed_by: get(row, "claimed_by")?,
        created_at: micros(row, "created_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
    Ok(())
}

fn priority(row: &dyn Row) -> Result<Priority> {
    let rank = get::<i32>(row, "priority")?;
    Priority::of_rank(rank).ok_or_else(|| unreadable("priority", rank))
}

/// See [`crate::store::OutboxStore::list_queued`].
pub(in crate::store) async fn list_queued<D: Database>(
    db: &D,
    task: &TaskKey,
    limit: i64,
) -> Result<Vec<OutboxRow>> {
    let text = format!(
        "SELECT {OUTBOX} FROM outbox AS o WHERE o.tenant = $1 AND o.task_id = $2 ORDER BY o.seq LIMIT $3"
    );
    let queued = Statement::new(text).bind(&task.0).bind(task.1).bind(limit.max(0));
    db.list(queued, decode).await
}

/// See [`crate::store::OutboxStore::list_claims`].
pub(in crate::store) async fn list_claims<D: Database>(
    db: &D,
    broker: &str,
) -> Result<Vec<ClaimKey>> {
    let claims = Statement::new(
        "SELECT tenant, handoff_id, attempt FROM outbox \
         WHERE mode <> 'pull' AND claimed_by = $1 ORDER BY tenant, handoff_id",
    );
    let claim = |row: &dyn Row| Ok((handoff_key(row)?, get(row, "attempt")?));
    db.list(claims.bind(broker), claim).await
}
