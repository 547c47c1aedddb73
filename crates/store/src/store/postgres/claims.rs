//! The outbox: claims, heartbeats, deadlines, depths.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgPool, PgRow};

use super::call::Call;
use super::failure::failed;
use super::pool::bound;
use super::rows;
use crate::store::query::Dialect;
use crate::store::rows::unreadable;
use crate::store::tables::brokers;
use crate::store::tables::receivers::{FORGET_BREAKERS, FORGET_BREAKERS_OF};
use crate::store::tables::{
    handoffs::{self, HANDOFF},
    outbox::{self, Freed},
    returns::{self, RETURN},
};
use crate::store::{
    AgentKey, ClaimRelease, DeliveryClaim, Depths, OutboxRow, ReceiverKey, Result, ReturnRow,
};
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::Micros;
use handoffd_evidence::commitment::{Codec, unpack};

/// Walks the receivers by their index, one step each, instead of reading a backlog whole.
const DUE_RECEIVERS: &str = "WITH RECURSIVE receivers AS ( \
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
     ORDER BY first.created_at, r.tenant, r.target LIMIT $3";

/// Receivers with claimable handoffs, the longest wait first.
pub(super) async fn list_due_receivers(
    pool: &PgPool,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<ReceiverKey>> {
    sqlx::query(DUE_RECEIVERS)
        .bind(mode.is_pushed())
        .bind(now.0)
        .bind(limit)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
        .collect()
}

/// The receivers, among the given ones, with claimable handoffs.
pub(super) async fn list_due_among(
    pool: &PgPool,
    receivers: &[ReceiverKey],
    now: Micros,
) -> Result<Vec<ReceiverKey>> {
    sqlx::query(
        "SELECT n.tenant, n.target FROM UNNEST($1::text[], $2::text[]) AS n(tenant, target) \
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
    )
    .bind(receivers.iter().map(|(tenant, _)| tenant.as_str()).collect::<Vec<_>>())
    .bind(receivers.iter().map(|(_, agent)| agent.as_str()).collect::<Vec<_>>())
    .bind(now.0)
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
    .collect()
}

/// A receiver's claimable handoffs.
pub(super) async fn list_waiting(
    pool: &PgPool,
    receiver: &ReceiverKey,
    now: Micros,
    limit: i64,
) -> Result<Vec<OutboxRow>> {
    let sql = outbox::waiting(Dialect::Postgres);
    let query = sqlx::query(AssertSqlSafe(sql)).bind(now.0).bind(receiver.0.as_str());
    let query = query.bind(receiver.1.as_str()).bind(limit);
    query.fetch_all(pool).await.map_err(failed)?.iter().map(|row| outbox::decode(row)).collect()
}

/// Pullable handoffs that have waited for long.
pub(super) async fn list_unpulled(
    pool: &PgPool,
    before: Micros,
    now: Micros,
    limit: i64,
) -> Result<Vec<OutboxRow>> {
    let sql = outbox::unpulled(Dialect::Postgres);
    let query = sqlx::query(AssertSqlSafe(sql)).bind(now.0).bind(before.0).bind(limit);
    query.fetch_all(pool).await.map_err(failed)?.iter().map(|row| outbox::decode(row)).collect()
}

/// Sets the delivery mode of an agent's waiting handoffs. The outbox rows are locked in key order, as in batches. A
/// batch that read a handoff before may write the old mode back to it: the outbox's mode counts.
pub(super) fn retarget((tenant, agent): &AgentKey, mode: DeliveryMode, at: Micros) -> Call {
    let sql = "WITH free AS MATERIALIZED ( \
           SELECT o.tenant, o.handoff_id FROM outbox AS o WHERE o.tenant = $2 AND o.target = $3 \
             AND (o.claimed_by IS NULL OR o.visible_at <= $4) \
           ORDER BY o.tenant, o.handoff_id FOR UPDATE OF o), \
         moved AS (UPDATE outbox AS o SET mode = $1, claimed_by = NULL, visible_at = 0 FROM free \
           WHERE o.tenant = free.tenant AND o.handoff_id = free.handoff_id \
           RETURNING o.tenant, o.handoff_id) \
         UPDATE handoffs AS h SET mode = $1 FROM moved \
         WHERE h.tenant = moved.tenant AND h.handoff_id = moved.handoff_id";
    Call::new(sql).bind(mode.as_str()).bind(tenant.as_str()).bind(agent.as_str()).bind(at.0)
}

/// One statement, so that a claim is whole or not at all. A row that another broker is claiming is
/// skipped; one that it claimed between this statement's snapshot and the lock is looked at again by
/// Postgres, and is no longer due. A claimed row stays in the outbox, so the next of its task is not
/// the first until it is settled. The rows are taken in the very order of `outbox_order`, and by
/// nothing else: a further sort key would have Postgres sort the whole backlog for each claim, as its
/// statistics usually stem from a time when the outbox was empty.
const CLAIM: &str = "WITH due AS MATERIALIZED ( \
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

/// Claims a receiver's due handoffs.
pub(super) async fn claim(
    pool: &PgPool,
    receiver: &ReceiverKey,
    mode: DeliveryMode,
    broker: &str,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<DeliveryClaim>> {
    let found = sqlx::query(CLAIM)
        .bind(receiver.0.as_str())
        .bind(receiver.1.as_str())
        .bind(now.0)
        .bind(limit)
        .bind(until.0)
        .bind(broker)
        .bind(mode.as_str())
        .fetch_all(pool)
        .await
        .map_err(failed)?;
    // A row that cannot be read must not keep its neighbours from delivery. It stays claimed; its
    // deadline, or a person who sees this line, ends it.
    Ok(found
        .iter()
        .filter_map(|row| {
            claimed(row)
                .inspect_err(|err| {
                    let handoff_id = rows::get::<&str>(row, "handoff_id").unwrap_or_default();
                    tracing::error!(handoff_id, %err, "a claimed handoff cannot be read");
                })
                .ok()
        })
        .collect())
}

fn claimed(row: &PgRow) -> Result<DeliveryClaim> {
    rows::addressed(row)?;
    let bytes: Option<&[u8]> = rows::get(row, "bytes")?;
    let body = match bytes {
        Some(bytes) => open(rows::codec(row)?, bytes)?,
        // Erased, and not only cold: open handoffs are held back from the archive.
        None => rows::erased(row)?,
    };
    let codecs: Option<Vec<String>> = sqlx::Row::try_get(row, "codecs").map_err(failed)?;
    let parts: Option<Vec<Vec<u8>>> = sqlx::Row::try_get(row, "parts").map_err(failed)?;
    let personal = codecs
        .unwrap_or_default()
        .iter()
        .zip(parts.unwrap_or_default())
        .map(|(codec, bytes)| {
            open(Codec::parse(codec).ok_or_else(|| unreadable("codec", codec))?, &bytes)
        })
        .collect::<Result<Vec<_>>>()?;
    let ruling = rows::ruling(row)?;
    let edge = ruling.as_ref().map(|ruling| &ruling.edge);
    let attempt = rows::get(row, "attempt")?;
    let why = rows::get::<Option<&str>>(row, "reason")?.is_some();
    Ok(DeliveryClaim {
        tenant: rows::parse(row, "tenant")?,
        handoff_id: rows::parse(row, "handoff_id")?,
        task_id: rows::parse(row, "task_id")?,
        target: rows::parse(row, "target")?,
        attempt,
        fencing_token: rows::get(row, "fencing_token")?,
        idempotent: rows::get(row, "idempotent")?,
        unsettled: DeliveryClaim::follows_unsettled(attempt, rows::get(row, "attempts")?, why),
        busy: rows::get(row, "busy")?,
        deadline_at: rows::get::<Option<i64>>(row, "deadline_at")?.map(Micros),
        to_person: ruling.as_ref().is_some_and(|ruling| ruling.is_to_person()),
        max_retries: edge.and_then(|edge| edge.max_retries),
        verdict_ms: edge.and_then(|edge| edge.timeout_ms),
        traceparent: rows::get(row, "traceparent")?,
        tracestate: rows::get(row, "tracestate")?,
        span: rows::get(row, "span")?,
        context: rows::context(row)?,
        compressed: rows::get::<Option<&str>>(row, "sent_id")?.is_some(),
        body: body.into(),
        personal,
    })
}

fn open(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>> {
    unpack(codec, bytes).map_err(|err| unreadable("bytes", err))
}

/// See [`crate::store::OutboxStore::claim_returns`]. Most polls find none: they are looked for before any is locked.
pub(super) async fn claim_returns(
    pool: &PgPool,
    (tenant, agent): &ReceiverKey,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<ReturnRow>> {
    let any = sqlx::query_scalar::<_, bool>(
        "SELECT EXISTS (SELECT 1 FROM returns \
         WHERE tenant = $1 AND agent_id = $2 AND visible_at <= $3)",
    );
    let any = any.bind(tenant.as_str()).bind(agent.as_str()).bind(now.0);
    if !any.fetch_one(pool).await.map_err(failed)? {
        return Ok(Vec::new());
    }
    let found = sqlx::query(AssertSqlSafe(format!(
        "WITH due AS MATERIALIZED (SELECT d.tenant AS t, d.handoff_id AS h FROM returns AS d \
           WHERE d.tenant = $1 AND d.agent_id = $2 AND d.visible_at <= $3 \
           ORDER BY d.returned_at, d.handoff_id LIMIT $4 FOR UPDATE SKIP LOCKED) \
         UPDATE returns SET visible_at = $5 FROM due WHERE tenant = t AND handoff_id = h \
         RETURNING {RETURN}"
    )))
    .bind(tenant.as_str())
    .bind(agent.as_str())
    .bind(now.0)
    .bind(limit.max(0))
    .bind(until.0)
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    let mut rows: Vec<ReturnRow> =
        found.iter().map(|row| returns::decode(row)).collect::<Result<_>>()?;
    rows.sort_by_key(|row| (row.returned_at, row.handoff_id));
    Ok(rows)
}

/// Writes a broker's heartbeat.
pub(super) async fn beat(pool: &PgPool, broker: &str, now: Micros) -> Result<()> {
    sqlx::query(
        "INSERT INTO brokers AS b (broker, seen_at, clock_offset_us) \
         VALUES ($1, $2, $2 - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ON CONFLICT (broker) \
         DO UPDATE SET seen_at = GREATEST(b.seen_at + 1, EXCLUDED.seen_at), \
           clock_offset_us = EXCLUDED.clock_offset_us",
    )
    .bind(broker)
    .bind(now.0)
    .execute(pool)
    .await
    .map_err(failed)
    .map(|_| ())
}

/// See [`crate::store::AdminStore::probe_write`]. `log` is `pool`, unless the log has its own database.
pub(super) async fn probe_write(
    pool: &PgPool,
    log: &PgPool,
    broker: &str,
    now: Micros,
) -> Result<()> {
    let mut tx = log.begin().await.map_err(failed)?;
    sqlx::query(
        "INSERT INTO audit.records (tenant, leaf_index, record_hash, kind, recorded_at, body) \
         VALUES ('', 9223372036854775807, '', 'PROBE', 0, '')",
    )
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    tx.rollback().await.map_err(failed)?;
    beat(pool, broker, now).await
}

/// See [`crate::store::OutboxStore::list_clock_offsets`].
pub(super) async fn list_clock_offsets(pool: &PgPool) -> Result<Vec<(String, i64)>> {
    sqlx::query(
        "SELECT broker, clock_offset_us FROM brokers WHERE clock_offset_us IS NOT NULL ORDER BY broker",
    )
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| Ok((rows::get(row, "broker")?, rows::get(row, "clock_offset_us")?)))
    .collect()
}

/// Brokers with claims of the dispatcher and without heartbeat.
pub(super) async fn list_strangers(pool: &PgPool) -> Result<Vec<String>> {
    sqlx::query(
        "SELECT DISTINCT o.claimed_by FROM outbox AS o \
         WHERE o.mode <> 'pull' AND o.claimed_by IS NOT NULL AND NOT EXISTS \
           (SELECT 1 FROM brokers AS b WHERE b.broker = o.claimed_by) ORDER BY o.claimed_by",
    )
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| rows::get(row, "claimed_by"))
    .collect()
}

fn free(which: Freed) -> AssertSqlSafe<String> {
    AssertSqlSafe(outbox::free(Dialect::Postgres, which))
}

/// See [`crate::store::OutboxStore::release`].
pub(super) async fn release(pool: &PgPool, whose: ClaimRelease<'_>) -> Result<u64> {
    let mut tx = pool.begin().await.map_err(failed)?;
    let query = match whose {
        ClaimRelease::Everyone => {
            let gone = bound(brokers::forget_all());
            gone.execute(&mut *tx).await.map_err(failed)?;
            sqlx::query(FORGET_BREAKERS).execute(&mut *tx).await.map_err(failed)?;
            sqlx::query(free(Freed::All))
        }
        ClaimRelease::Own(broker) => {
            let gone = bound(brokers::forget(broker));
            gone.execute(&mut *tx).await.map_err(failed)?;
            forget_breakers(&mut tx, broker).await?;
            sqlx::query(free(Freed::OfBroker)).bind(broker)
        }
        ClaimRelease::Silent(broker, seen) => {
            if !is_silent(&mut tx, broker, seen).await? {
                return Ok(0);
            }
            forget_breakers(&mut tx, broker).await?;
            sqlx::query(free(Freed::OfBroker)).bind(broker)
        }
        ClaimRelease::These(broker, held) => {
            let tenants: Vec<&str> = held.iter().map(|((tenant, _), _)| tenant.as_str()).collect();
            let ids: Vec<String> = held.iter().map(|((_, id), _)| id.to_string()).collect();
            let attempts: Vec<i32> = held.iter().map(|(_, attempt)| *attempt).collect();
            sqlx::query(free(Freed::These)).bind(broker).bind(tenants).bind(ids).bind(attempts)
        }
    };
    let released = query.execute(&mut *tx).await.map_err(failed)?.rows_affected();
    tx.commit().await.map_err(failed)?;
    Ok(released)
}

/// Deletes the breakers that a broker has for its receivers.
async fn forget_breakers(tx: &mut PgConnection, broker: &str) -> Result<()> {
    let forget = sqlx::query(FORGET_BREAKERS_OF).bind(broker);
    forget.execute(tx).await.map_err(failed).map(|_| ())
}

/// Deletes the heartbeat if it still has that value; returns whether it had. Of two brokers that find another silent,
/// only one continues.
async fn is_silent(tx: &mut PgConnection, broker: &str, seen: Option<Micros>) -> Result<bool> {
    if let Some(seen) = seen {
        let gone = bound(brokers::forget_seen(broker, seen));
        let gone = gone.execute(tx).await.map_err(failed)?;
        return Ok(gone.rows_affected() > 0);
    }
    let known = bound(brokers::find(broker));
    Ok(known.fetch_optional(tx).await.map_err(failed)?.is_none())
}

/// Open handoffs past their deadline, the longest overdue first.
pub(super) async fn list_overdue(pool: &PgPool, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
    sqlx::query(AssertSqlSafe(format!(
        "SELECT {HANDOFF} FROM handoffs WHERE deadline_at IS NOT NULL AND deadline_at <= $1 \
         AND status IN ('PENDING', 'ACCEPTED') \
         AND NOT (status = 'PENDING' AND EXISTS (SELECT 1 FROM paused_agents AS p \
           WHERE p.tenant = handoffs.tenant AND p.agent_id = handoffs.target)) \
         ORDER BY deadline_at, handoff_id LIMIT $2"
    )))
    .bind(now.0)
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| handoffs::decode(row))
    .collect()
}

/// Counts for metrics. Records are counted by the size of the logs.
pub(super) async fn depths(pool: &PgPool, log: &PgPool, idle_since: Micros) -> Result<Depths> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM outbox) AS outbox, \
           (SELECT min(created_at) FROM outbox) AS oldest, \
           (SELECT count(*) FROM dead_letters WHERE status = 'OPEN') AS dead_letters, \
           (SELECT count(*) FROM escalations WHERE status = 'OPEN') AS escalations, \
           (SELECT count(*) FROM waiting_tasks WHERE since <= $1) AS idle_tasks, \
           (SELECT count(*) FROM opinions_due) AS opinions",
    )
    .bind(idle_since.0)
    .fetch_one(pool)
    .await
    .map_err(failed)?;
    let records = sqlx::query_scalar("SELECT COALESCE(sum(size), 0)::bigint FROM audit.log_heads")
        .fetch_one(log)
        .await
        .map_err(failed)?;
    Ok(Depths {
        outbox: rows::get(&row, "outbox")?,
        oldest: rows::get::<Option<i64>>(&row, "oldest")?.map(Micros),
        dead_letters: rows::get(&row, "dead_letters")?,
        escalations: rows::get(&row, "escalations")?,
        idle_tasks: rows::get(&row, "idle_tasks")?,
        opinions: rows::get(&row, "opinions")?,
        records,
    })
}
