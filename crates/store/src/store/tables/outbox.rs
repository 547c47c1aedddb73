//! `outbox`: handoffs that wait for delivery.
//!
//! A row, and how it changes:
//!
//! - `outbox`: a handoff that waits for delivery: `seq` within its task, `visible_at`, `attempt`, `busy` (attempts that
//!   the receiver put off), `claimed_by`. Deleted when settled.

use crate::store::query::{Database, Dialect, Row, Statement, unreadable};
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

/// Condition: the first row of its task, and unclaimed at a time.
const fn free_first(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => {
            "o.visible_at <= ? AND NOT EXISTS (SELECT 1 FROM outbox AS before \
             WHERE before.tenant = o.tenant AND before.task_id = o.task_id AND before.seq < o.seq)"
        }
        Dialect::Postgres => {
            "o.visible_at <= $1 AND NOT EXISTS (SELECT 1 FROM outbox AS e \
             WHERE e.tenant = o.tenant AND e.task_id = o.task_id AND e.seq < o.seq)"
        }
    }
}

/// See [`crate::store::OutboxStore::list_waiting`]. Postgres has the time first.
pub(in crate::store) fn waiting(dialect: Dialect) -> String {
    let (tenant, target, limit) = match dialect {
        Dialect::Sqlite => ("?", "?", "?"),
        Dialect::Postgres => ("$2", "$3", "$4"),
    };
    let free_first = free_first(dialect);
    format!(
        "SELECT {OUTBOX} FROM outbox AS o WHERE o.tenant = {tenant} AND o.target = {target} \
         AND {free_first} ORDER BY o.priority, o.created_at LIMIT {limit}"
    )
}

/// See [`crate::store::OutboxStore::list_unpulled`]. Postgres has the time of the claim first.
pub(in crate::store) fn unpulled(dialect: Dialect) -> String {
    let (before, limit, x) = match dialect {
        Dialect::Sqlite => ("?", "?", "e"),
        Dialect::Postgres => ("$2", "$3", "x"),
    };
    let free_first = free_first(dialect);
    format!(
        "SELECT {OUTBOX} FROM outbox AS o WHERE o.mode = 'pull' AND o.created_at < {before} \
         AND {free_first} AND NOT EXISTS (SELECT 1 FROM paused_agents AS p \
           WHERE p.tenant = o.tenant AND p.agent_id = o.target) \
         AND NOT EXISTS (SELECT 1 FROM escalations AS {x} \
           WHERE {x}.tenant = o.tenant AND {x}.task_id = o.task_id AND {x}.status = 'OPEN') \
         ORDER BY o.created_at LIMIT {limit}"
    )
}

/// Which claims of the dispatcher are made free.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Freed {
    All,
    OfBroker,
    /// Of a broker, by their handoffs and attempts.
    These,
}

/// See [`crate::store::OutboxStore::release`]. Postgres frees them in key order, as batches lock them: a row that a batch
/// settles meanwhile is waited for and checked again.
pub(in crate::store) fn free(dialect: Dialect, which: Freed) -> String {
    match dialect {
        Dialect::Sqlite => {
            let which = match which {
                Freed::All => "claimed_by IS NOT NULL",
                Freed::OfBroker => "claimed_by = ?",
                Freed::These => {
                    "claimed_by = ? AND (tenant, handoff_id, attempt) IN \
                     (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))"
                }
            };
            format!(
                "UPDATE outbox SET visible_at = 0, claimed_by = NULL WHERE mode <> 'pull' AND {which}"
            )
        }
        Dialect::Postgres => {
            let which = match which {
                Freed::All => "o.claimed_by IS NOT NULL",
                Freed::OfBroker => "o.claimed_by = $1",
                Freed::These => {
                    "o.claimed_by = $1 AND (o.tenant, o.handoff_id, o.attempt) IN \
                     (SELECT * FROM UNNEST($2::text[], $3::text[], $4::integer[]))"
                }
            };
            format!(
                "WITH held AS MATERIALIZED ( \
                   SELECT o.tenant, o.handoff_id FROM outbox AS o \
                   WHERE o.mode <> 'pull' AND {which} \
                   ORDER BY o.tenant, o.handoff_id FOR UPDATE OF o) \
                 UPDATE outbox AS o SET visible_at = 0, claimed_by = NULL \
                 FROM held WHERE o.tenant = held.tenant AND o.handoff_id = held.handoff_id"
            )
        }
    }
}
