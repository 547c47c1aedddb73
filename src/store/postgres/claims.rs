//! Who delivers what: claims on the outbox, brokers' signs of life, deadlines, depths.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgRow};

use super::failure::failed;
use super::rows;
use crate::domain::handoff::{DeliveryMode, Handoff};
use crate::domain::ids::Micros;
use crate::evidence::commitment::{Codec, unpack};
use crate::store::rows::{HANDOFF, unreadable};
use crate::store::{Claim, Depths, Receiver, Result};

/// Walks the receivers by their index, one step each, instead of reading a backlog whole.
const DUE_RECEIVERS: &str = "WITH RECURSIVE receivers AS ( \
       (SELECT tenant, target FROM outbox ORDER BY tenant, target LIMIT 1) \
       UNION ALL \
       SELECT n.tenant, n.target FROM receivers AS r CROSS JOIN LATERAL ( \
         SELECT o.tenant, o.target FROM outbox AS o \
         WHERE (o.tenant, o.target) > (r.tenant, r.target) \
         ORDER BY o.tenant, o.target LIMIT 1) AS n) \
     SELECT r.tenant, r.target FROM receivers AS r CROSS JOIN LATERAL ( \
       SELECT o.created_at FROM outbox AS o \
       WHERE o.tenant = r.tenant AND o.target = r.target AND o.mode = $1 AND o.visible_at <= $2 \
         AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.tenant = o.tenant \
           AND e.task_id = o.task_id AND e.seq < o.seq) \
       ORDER BY o.created_at LIMIT 1) AS first \
     ORDER BY first.created_at, r.tenant, r.target LIMIT $3";

/// Receivers with something claimable, the one that waits longest first.
pub(super) async fn list_due_receivers(
    pool: &PgPool,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<Receiver>> {
    sqlx::query(DUE_RECEIVERS)
        .bind(mode.as_str())
        .bind(now.0)
        .bind(limit)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
        .collect()
}

/// One statement, so that a claim is whole or not at all. A row that another broker is claiming is
/// skipped; one that it claimed between this statement's snapshot and the lock is looked at again by
/// Postgres, and is no longer due. A claimed row stays in the outbox, so the next of its task is not
/// the first until it is settled. The rows are taken in the very order of `outbox_receiver`, and by
/// nothing else: a further sort key would have Postgres sort the whole backlog for each claim, as its
/// statistics usually stem from a time when the outbox was empty.
const CLAIM: &str = "WITH due AS MATERIALIZED ( \
       SELECT o.tenant, o.handoff_id FROM outbox AS o \
       WHERE o.tenant = $1 AND o.target = $2 AND o.visible_at <= $3 \
         AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.tenant = o.tenant \
           AND e.task_id = o.task_id AND e.seq < o.seq) \
       ORDER BY o.created_at LIMIT $4 FOR UPDATE OF o SKIP LOCKED), \
     claimed AS ( \
       UPDATE outbox AS o SET visible_at = $5, claimed_by = $6, attempt = o.attempt + 1 \
       FROM due WHERE o.tenant = due.tenant AND o.handoff_id = due.handoff_id \
       RETURNING o.tenant, o.handoff_id, o.task_id, o.seq, o.target, o.attempt, o.created_at) \
     SELECT c.tenant, c.handoff_id, c.task_id, c.target, c.attempt, c.created_at, \
       h.fencing_token, h.idempotent, h.traceparent, k.codec, k.bytes, p.codecs, p.parts \
     FROM claimed AS c \
     JOIN handoffs AS h ON h.tenant = c.tenant AND h.handoff_id = c.handoff_id \
     LEFT JOIN contents AS k ON k.tenant = h.tenant AND k.content_id = h.content_id \
     CROSS JOIN LATERAL ( \
       SELECT array_agg(d.codec ORDER BY d.leaf_index, d.ordinal) AS codecs, \
         array_agg(d.bytes ORDER BY d.leaf_index, d.ordinal) AS parts \
       FROM personal_data AS d WHERE d.tenant = c.tenant AND d.handoff_id = c.handoff_id \
         AND d.bytes IS NOT NULL) AS p \
     ORDER BY c.created_at, c.seq";

/// Claims what is due of one receiver.
pub(super) async fn claim(
    pool: &PgPool,
    receiver: &Receiver,
    broker: &str,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<Claim>> {
    let found = sqlx::query(CLAIM)
        .bind(receiver.0.as_str())
        .bind(receiver.1.as_str())
        .bind(now.0)
        .bind(limit)
        .bind(until.0)
        .bind(broker)
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

fn claimed(row: &PgRow) -> Result<Claim> {
    let bytes: Option<&[u8]> = rows::get(row, "bytes")?;
    let body = match bytes {
        Some(bytes) => open(rows::codec(row)?, bytes)?,
        None => Vec::new(),
    };
    let codecs: Option<Vec<String>> = rows::get(row, "codecs")?;
    let parts: Option<Vec<Vec<u8>>> = rows::get(row, "parts")?;
    let personal = codecs
        .unwrap_or_default()
        .iter()
        .zip(parts.unwrap_or_default())
        .map(|(codec, bytes)| {
            open(Codec::parse(codec).ok_or_else(|| unreadable("codec", codec))?, &bytes)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Claim {
        tenant: rows::parse(row, "tenant")?,
        handoff_id: rows::parse(row, "handoff_id")?,
        task_id: rows::parse(row, "task_id")?,
        target: rows::parse(row, "target")?,
        attempt: rows::get(row, "attempt")?,
        fencing_token: rows::get(row, "fencing_token")?,
        idempotent: rows::get(row, "idempotent")?,
        traceparent: rows::get(row, "traceparent")?,
        created_at: Micros(rows::get(row, "created_at")?),
        body,
        personal,
    })
}

fn open(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>> {
    unpack(codec, bytes).map_err(|err| unreadable("bytes", err))
}

/// Says that a broker lives.
pub(super) async fn beat(pool: &PgPool, broker: &str, now: Micros) -> Result<()> {
    sqlx::query(
        "INSERT INTO brokers AS b (broker, seen_at) VALUES ($1, $2) ON CONFLICT (broker) \
         DO UPDATE SET seen_at = GREATEST(b.seen_at, EXCLUDED.seen_at)",
    )
    .bind(broker)
    .bind(now.0)
    .execute(pool)
    .await
    .map_err(failed)
    .map(|_| ())
}

/// Frees what dead brokers hold. Webhook claims only: a pull claim is the receiver's, wherever the
/// broker that handed it out has gone. Locks in key order, as batches do.
pub(super) async fn release_dead(pool: &PgPool, cutoff: Micros, now: Micros) -> Result<u64> {
    let mut tx = pool.begin().await.map_err(failed)?;
    let released = sqlx::query(
        "WITH held AS MATERIALIZED ( \
           SELECT o.tenant, o.handoff_id FROM outbox AS o \
           WHERE o.mode = 'webhook' AND o.claimed_by IS NOT NULL AND NOT EXISTS ( \
             SELECT 1 FROM brokers AS b WHERE b.broker = o.claimed_by AND b.seen_at >= $1) \
           ORDER BY o.tenant, o.handoff_id FOR UPDATE OF o) \
         UPDATE outbox AS o SET visible_at = LEAST(o.visible_at, $2), claimed_by = NULL \
         FROM held WHERE o.tenant = held.tenant AND o.handoff_id = held.handoff_id",
    )
    .bind(cutoff.0)
    .bind(now.0)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    sqlx::query("DELETE FROM brokers WHERE seen_at < $1")
        .bind(cutoff.0)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(released.rows_affected())
}

/// Frees what this broker holds, webhook claims only, as above; and says that it is gone.
pub(super) async fn release_own(pool: &PgPool, broker: &str, now: Micros) -> Result<u64> {
    let mut tx = pool.begin().await.map_err(failed)?;
    let released = sqlx::query(
        "WITH held AS MATERIALIZED ( \
           SELECT o.tenant, o.handoff_id FROM outbox AS o \
           WHERE o.mode = 'webhook' AND o.claimed_by = $1 \
           ORDER BY o.tenant, o.handoff_id FOR UPDATE OF o) \
         UPDATE outbox AS o SET visible_at = LEAST(o.visible_at, $2), claimed_by = NULL \
         FROM held WHERE o.tenant = held.tenant AND o.handoff_id = held.handoff_id",
    )
    .bind(broker)
    .bind(now.0)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    sqlx::query("DELETE FROM brokers WHERE broker = $1")
        .bind(broker)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(released.rows_affected())
}

/// Open handoffs whose deadline has passed, the longest first.
pub(super) async fn list_overdue(pool: &PgPool, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
    sqlx::query(AssertSqlSafe(format!(
        "SELECT {HANDOFF} FROM handoffs WHERE deadline_at IS NOT NULL AND deadline_at <= $1 \
         AND status IN ('PENDING', 'ACCEPTED') ORDER BY deadline_at, handoff_id LIMIT $2"
    )))
    .bind(now.0)
    .bind(limit)
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(rows::handoff)
    .collect()
}

/// Counts. Records are counted by their heads, not one by one.
pub(super) async fn depths(pool: &PgPool) -> Result<Depths> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM outbox) AS outbox, \
           (SELECT min(created_at) FROM outbox) AS oldest, \
           (SELECT count(*) FROM dead_letters WHERE status = 'OPEN') AS dead_letters, \
           (SELECT COALESCE(sum(size), 0)::bigint FROM audit.log_heads) AS records",
    )
    .fetch_one(pool)
    .await
    .map_err(failed)?;
    Ok(Depths {
        outbox: rows::get(&row, "outbox")?,
        oldest: rows::get::<Option<i64>>(&row, "oldest")?.map(Micros),
        dead_letters: rows::get(&row, "dead_letters")?,
        records: rows::get(&row, "records")?,
    })
}
