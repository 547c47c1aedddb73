//! `outbox`: handoffs that wait for delivery.
//!
//! A row, and how it changes:
//!
//! - `outbox`: a handoff that waits for delivery: `seq` within its task, `visible_at`, `attempt`, `busy` (attempts that
//!   the receiver put off), `claimed_by`. Deleted when settled.

use crate::store::driver::{by_each_driver, in_memory};
use crate::store::query::{Dialect, Row, Statement, Texts, unreadable};
use crate::store::row_types::{ClaimRelease, DeliveryClaim, ReceiverKey};
use crate::store::rows::handoff_key;
use crate::store::rows::{get, micros, mode, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, OutboxRow, Result, Store};
use crate::store::{ClaimKey, TaskKey};
use handoffd_domain::handoff::{DeliveryMode, Priority};
use handoffd_domain::ids::Micros;

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

/// See [`crate::store::Store::list_waiting`]. Postgres has the time first.
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

/// See [`crate::store::Store::list_unpulled`]. Postgres has the time of the claim first.
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

/// See [`crate::store::Store::release`]. Postgres frees them in key order, as batches lock them: a row that a batch
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

/// See [`crate::store::Store::list_due_receivers`].
///
/// SQLite: From receiver to receiver by the index, and of each the first row that is due: the time grows with
/// the receivers and not with what waits, or a backlog would slow the dispatcher down and grow by that.
///
/// Postgres: Walks the receivers by their index, one step each, instead of reading a backlog whole.
pub(in crate::store) const DUE_RECEIVERS: Texts = Texts {
    sqlite: "WITH RECURSIVE tenants (tenant) AS ( \
       SELECT min(tenant) FROM outbox \
     UNION ALL \
       SELECT (SELECT n.tenant FROM outbox AS n WHERE n.tenant > t.tenant \
         ORDER BY n.tenant LIMIT 1) FROM tenants AS t WHERE t.tenant IS NOT NULL), \
     receivers (tenant, target) AS ( \
       SELECT t.tenant, '' FROM tenants AS t WHERE t.tenant IS NOT NULL \
     UNION ALL \
       SELECT r.tenant, (SELECT n.target FROM outbox AS n WHERE n.tenant = r.tenant \
         AND n.target > r.target ORDER BY n.target LIMIT 1) \
         FROM receivers AS r WHERE r.target IS NOT NULL) \
     SELECT r.tenant, r.target FROM receivers AS r CROSS JOIN outbox AS first \
       ON first.tenant = r.tenant AND first.handoff_id = (SELECT o.handoff_id FROM outbox AS o \
         WHERE o.tenant = r.tenant AND o.target = r.target AND (o.mode <> 'pull') = ? AND o.visible_at <= ? \
           AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
             AND before.task_id = o.task_id AND before.seq < o.seq) \
         ORDER BY o.priority, o.created_at LIMIT 1) \
     WHERE NOT EXISTS (SELECT 1 FROM paused_agents AS p \
       WHERE p.tenant = r.tenant AND p.agent_id = r.target) \
     ORDER BY first.created_at, r.tenant, r.target LIMIT ?",
    postgres: "WITH RECURSIVE receivers AS ( \
       (SELECT tenant, target FROM outbox ORDER BY tenant, target LIMIT 1) \
       UNION ALL \
       SELECT n.tenant, n.target FROM receivers AS r CROSS JOIN LATERAL ( \
         SELECT o.tenant, o.target FROM outbox AS o \
         WHERE (o.tenant, o.target) > (r.tenant, r.target) \
         ORDER BY o.tenant, o.target LIMIT 1) AS n) \
     SELECT r.tenant, r.target FROM receivers AS r CROSS JOIN LATERAL ( \
       SELECT o.priority, o.created_at FROM outbox AS o \
       WHERE o.tenant = r.tenant AND o.target = r.target AND (o.mode <> 'pull') = $1 AND o.visible_at <= $2 \
         AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.tenant = o.tenant \
           AND e.task_id = o.task_id AND e.seq < o.seq) \
       ORDER BY o.priority, o.created_at LIMIT 1) AS first \
     WHERE NOT EXISTS (SELECT 1 FROM paused_agents AS p \
       WHERE p.tenant = r.tenant AND p.agent_id = r.target) \
     ORDER BY first.created_at, r.tenant, r.target LIMIT $3",
};

/// See [`crate::store::Store::list_due_among`].
pub(in crate::store) const DUE_AMONG: Texts = Texts {
    sqlite: "WITH wanted (t, a) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) \
         SELECT t AS tenant, a AS target FROM wanted WHERE NOT EXISTS \
           (SELECT 1 FROM paused_agents AS p WHERE p.tenant = t AND p.agent_id = a) AND EXISTS \
           (SELECT 1 FROM outbox AS o WHERE o.tenant = t AND o.target = a AND o.visible_at <= ?2 \
              AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
                AND before.task_id = o.task_id AND before.seq < o.seq)) \
         OR EXISTS (SELECT 1 FROM returns AS r \
           WHERE r.tenant = t AND r.agent_id = a AND r.visible_at <= ?2)",
    postgres: "SELECT n.tenant, n.target FROM UNNEST($1::text[], $2::text[]) AS n(tenant, target) \
         CROSS JOIN LATERAL (SELECT 1 FROM outbox AS o \
           WHERE o.tenant = n.tenant AND o.target = n.target AND o.visible_at <= $3 \
             AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.tenant = o.tenant \
               AND e.task_id = o.task_id AND e.seq < o.seq) \
           ORDER BY o.priority, o.created_at LIMIT 1) AS first \
         WHERE NOT EXISTS (SELECT 1 FROM paused_agents AS p \
           WHERE p.tenant = n.tenant AND p.agent_id = n.target) \
         UNION \
         SELECT r.tenant, r.agent_id FROM UNNEST($1::text[], $2::text[]) AS n(tenant, target) \
         JOIN returns AS r ON r.tenant = n.tenant AND r.agent_id = n.target AND r.visible_at <= $3",
};

/// SQLite: the rows to claim, and what goes to their receiver.
pub(in crate::store) const CLAIMABLE: &str = "SELECT o.tenant, o.handoff_id, o.task_id, o.target, o.attempt, \
           o.busy, h.deadline_at, h.fencing_token, h.idempotent, h.attempts, h.reason, h.policy, h.traceparent, h.tracestate, h.span, h.context, h.sent_id, h.target AS addressee, c.codec, c.bytes, c.salt, c.segment \
         FROM outbox AS o \
         JOIN handoffs AS h ON h.tenant = o.tenant AND h.handoff_id = o.handoff_id \
         LEFT JOIN contents AS c ON c.tenant = h.tenant AND c.content_id = coalesce(h.sent_id, h.content_id) \
         WHERE o.tenant = ? AND o.target = ? AND o.visible_at <= ? AND NOT EXISTS \
           (SELECT 1 FROM paused_agents AS p WHERE p.tenant = o.tenant AND p.agent_id = o.target) \
           AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
              AND before.task_id = o.task_id AND before.seq < o.seq) \
         ORDER BY o.priority, o.created_at, o.seq, o.handoff_id LIMIT ?";

/// SQLite: claims those rows.
pub(in crate::store) const CLAIM_THESE: &str = "UPDATE outbox SET visible_at = ?, claimed_by = ?, attempt = attempt + 1, \
           mode = CASE WHEN (mode <> 'pull') = ? THEN mode ELSE ? END \
         WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";

/// Postgres: claims rows, and finds what goes to their receiver.
///
/// One statement, so that a claim is whole or not at all. A row that another broker is claiming is
/// skipped; one that it claimed between this statement's snapshot and the lock is looked at again by
/// Postgres, and is no longer due. A claimed row stays in the outbox, so the next of its task is not
/// the first until it is settled. The rows are taken in the very order of `outbox_order`, and by
/// nothing else: a further sort key would have Postgres sort the whole backlog for each claim, as its
/// statistics usually stem from a time when the outbox was empty.
pub(in crate::store) const CLAIM: &str = "WITH due AS MATERIALIZED ( \
       SELECT o.tenant, o.handoff_id FROM outbox AS o \
       WHERE o.tenant = $1 AND o.target = $2 AND o.visible_at <= $3 \
         AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.tenant = o.tenant \
           AND e.task_id = o.task_id AND e.seq < o.seq) \
         AND NOT EXISTS (SELECT 1 FROM paused_agents AS p WHERE p.tenant = $1 AND p.agent_id = $2) \
       ORDER BY o.priority, o.created_at LIMIT $4 FOR UPDATE OF o SKIP LOCKED), \
     claimed AS ( \
       UPDATE outbox AS o SET visible_at = $5, claimed_by = $6, \
         mode = CASE WHEN (o.mode <> 'pull') = ($7 <> 'pull') THEN o.mode ELSE $7 END, \
         attempt = o.attempt + 1 \
       FROM due WHERE o.tenant = due.tenant AND o.handoff_id = due.handoff_id \
       RETURNING o.tenant, o.handoff_id, o.task_id, o.seq, o.target, o.priority, o.attempt, o.busy, \
         o.created_at) \
     SELECT c.tenant, c.handoff_id, c.task_id, c.target, c.attempt, \
       c.busy, h.deadline_at, h.fencing_token, h.idempotent, h.attempts, h.reason, h.policy, h.traceparent, h.tracestate, h.span, h.context, h.sent_id, h.target AS addressee, k.codec, k.bytes, k.salt, k.segment, p.codecs, p.parts \
     FROM claimed AS c \
     JOIN handoffs AS h ON h.tenant = c.tenant AND h.handoff_id = c.handoff_id \
     LEFT JOIN contents AS k ON k.tenant = h.tenant AND k.content_id = COALESCE(h.sent_id, h.content_id) \
     CROSS JOIN LATERAL ( \
       SELECT array_agg(d.codec ORDER BY d.leaf_index, d.ordinal) AS codecs, \
         array_agg(d.bytes ORDER BY d.leaf_index, d.ordinal) AS parts \
       FROM personal_data AS d WHERE d.tenant = c.tenant \
           AND d.handoff_id = COALESCE(h.origin, h.handoff_id) \
         AND d.bytes IS NOT NULL) AS p \
     ORDER BY c.priority, c.created_at, c.seq";

/// See [`crate::store::Store::list_strangers`].
pub(in crate::store) const STRANGERS: Texts = Texts {
    sqlite: "SELECT DISTINCT claimed_by FROM outbox WHERE mode <> 'pull' AND claimed_by IS NOT NULL \
           AND claimed_by NOT IN (SELECT broker FROM brokers) ORDER BY claimed_by",
    postgres: "SELECT DISTINCT o.claimed_by FROM outbox AS o \
         WHERE o.mode <> 'pull' AND o.claimed_by IS NOT NULL AND NOT EXISTS \
           (SELECT 1 FROM brokers AS b WHERE b.broker = o.claimed_by) ORDER BY o.claimed_by",
};

/// SQLite: sets the mode of the handoffs of an agent's waiting rows, before that of the rows. They are found by the outbox,
/// of which the agent's rows alone are read: left alone, SQLite reads those of the whole tenant.
pub(in crate::store) const RETARGET_HANDOFFS: &str = "UPDATE handoffs SET mode = ?1 WHERE tenant = ?2 AND target = ?3 AND status = 'PENDING' \
         AND handoff_id IN (SELECT o.handoff_id FROM outbox AS o INDEXED BY outbox_order \
           WHERE o.tenant = ?2 AND o.target = ?3 AND (o.claimed_by IS NULL OR o.visible_at <= ?4))";

/// SQLite: sets the mode of an agent's waiting rows.
pub(in crate::store) const RETARGET_ROWS: &str = "UPDATE outbox INDEXED BY outbox_order SET mode = ?1, claimed_by = NULL, visible_at = 0 \
         WHERE tenant = ?2 AND target = ?3 AND (claimed_by IS NULL OR visible_at <= ?4)";

/// Postgres: sets the mode of an agent's waiting rows, which are locked in key order, as in batches, and of their handoffs.
pub(in crate::store) const RETARGET: &str = "WITH free AS MATERIALIZED ( \
           SELECT o.tenant, o.handoff_id FROM outbox AS o WHERE o.tenant = $2 AND o.target = $3 \
             AND (o.claimed_by IS NULL OR o.visible_at <= $4) \
           ORDER BY o.tenant, o.handoff_id FOR UPDATE OF o), \
         moved AS (UPDATE outbox AS o SET mode = $1, claimed_by = NULL, visible_at = 0 FROM free \
           WHERE o.tenant = free.tenant AND o.handoff_id = free.handoff_id \
           RETURNING o.tenant, o.handoff_id) \
         UPDATE handoffs AS h SET mode = $1 FROM moved \
         WHERE h.tenant = moved.tenant AND h.handoff_id = moved.handoff_id";

/// Counts for metrics. Postgres counts the records apart.
pub(in crate::store) const DEPTHS: Texts = Texts {
    sqlite: "SELECT (SELECT count(*) FROM outbox) AS outbox, \
           (SELECT min(created_at) FROM outbox) AS oldest, \
           (SELECT count(*) FROM dead_letters WHERE status = 'OPEN') AS dead_letters, \
           (SELECT count(*) FROM escalations WHERE status = 'OPEN') AS escalations, \
           (SELECT count(*) FROM waiting_tasks WHERE since <= ?) AS idle_tasks, \
           (SELECT count(*) FROM opinions_due) AS opinions, \
           (SELECT coalesce(sum(size), 0) FROM audit_log_heads) AS records",
    postgres: "SELECT (SELECT count(*) FROM outbox) AS outbox, \
           (SELECT min(created_at) FROM outbox) AS oldest, \
           (SELECT count(*) FROM dead_letters WHERE status = 'OPEN') AS dead_letters, \
           (SELECT count(*) FROM escalations WHERE status = 'OPEN') AS escalations, \
           (SELECT count(*) FROM waiting_tasks WHERE since <= $1) AS idle_tasks, \
           (SELECT count(*) FROM opinions_due) AS opinions",
};

impl Store {
    /// Receivers with claimable handoffs that are pulled, or that the dispatcher delivers, as the mode is: the pushed
    /// modes count as one.
    pub async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<ReceiverKey>> {
        by_each_driver!(self, db => db.list_due_receivers(mode, now, limit))
    }

    /// The receivers, among the given ones, with claimable handoffs of any mode.
    pub async fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Result<Vec<ReceiverKey>> {
        by_each_driver!(self, db => db.list_due_among(receivers, now))
    }

    /// Deliveries of a task that wait, in their order.
    pub async fn list_queued(&self, task: &TaskKey, limit: i64) -> Result<Vec<OutboxRow>> {
        in_memory!(self, db => db.list_queued(task, limit));
        let text = format!(
            "SELECT {OUTBOX} FROM outbox AS o WHERE o.tenant = $1 AND o.task_id = $2 ORDER BY o.seq LIMIT $3"
        );
        let queued = Statement::new(text).bind(&task.0).bind(task.1).bind(limit.max(0));
        self.list(queued, decode).await
    }

    /// A receiver's claimable handoffs, without a claim.
    pub async fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        by_each_driver!(self, db => db.list_waiting(receiver, now, limit))
    }

    /// Pullable handoffs committed before `before`, oldest first, except on escalated tasks; reads the whole
    /// outbox.
    pub async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>> {
        by_each_driver!(self, db => db.list_unpulled(before, now, limit))
    }

    /// Claims up to `limit` handoffs of one receiver, by priority, then oldest first, each the first of its task:
    /// sets this broker and `until` on them and counts the attempt. From then on they are pulled or
    /// pushed as `mode` is, whatever mode they were committed with; one pushed mode does not replace another.
    pub async fn claim(
        &self,
        receiver: &ReceiverKey,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<DeliveryClaim>> {
        by_each_driver!(self, db => db.claim(receiver, mode, broker, now, until, limit))
    }

    /// Brokers with webhook claims and without heartbeat; reads the whole outbox.
    pub async fn list_strangers(&self) -> Result<Vec<String>> {
        by_each_driver!(self, db => db.list_strangers())
    }

    /// A broker's webhook claims with their attempts; reads the whole outbox.
    pub async fn list_claims(&self, broker: &str) -> Result<Vec<ClaimKey>> {
        in_memory!(self, db => db.list_claims(broker));
        let claims = Statement::new(
            "SELECT tenant, handoff_id, attempt FROM outbox \
             WHERE mode <> 'pull' AND claimed_by = $1 ORDER BY tenant, handoff_id",
        );
        let claim = |row: &dyn Row| Ok((handoff_key(row)?, get(row, "attempt")?));
        self.list(claims.bind(broker), claim).await
    }

    /// Makes webhook claims claimable at once, independent of clocks; returns their number. Claims on pulled
    /// handoffs belong to the receiver, which may be alive: they only expire by time.
    pub async fn release(&self, whose: ClaimRelease<'_>) -> Result<u64> {
        by_each_driver!(self, db => db.release(whose))
    }
}
