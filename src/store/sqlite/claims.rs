//! The outbox from the dispatcher's side: what is due, claims, and what dead brokers left behind.

use std::collections::HashMap;

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::batch::json;
use super::connection::failure;
use super::log::unpacked;
use super::rows;
use crate::domain::handoff::DeliveryMode;
use crate::domain::ids::{HandoffId, Micros, TenantId};
use crate::store::{Claim, Receiver, Result};

/// See [`crate::store::Store::list_due_receivers`].
pub(super) async fn list_due_receivers(
    pool: &SqlitePool,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<Receiver>> {
    sqlx::query(
        "SELECT o.tenant, o.target FROM outbox AS o \
         WHERE o.mode = ? AND o.visible_at <= ? AND NOT EXISTS \
           (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
              AND before.task_id = o.task_id AND before.seq < o.seq) \
         GROUP BY o.tenant, o.target ORDER BY min(o.created_at), o.tenant, o.target LIMIT ?",
    )
    .bind(mode.as_str())
    .bind(now.0)
    .bind(limit.max(0))
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
    .collect()
}

/// See [`crate::store::Store::claim`]. A handoff waits for those before it on its task, whoever
/// receives them.
pub(super) async fn claim(
    conn: &mut SqliteConnection,
    receiver: &Receiver,
    broker: &str,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<Claim>> {
    let (tenant, target) = receiver;
    let found = sqlx::query(
        "SELECT o.tenant, o.handoff_id, o.task_id, o.target, o.attempt, o.created_at, \
           h.fencing_token, h.idempotent, h.traceparent, c.codec, c.bytes \
         FROM outbox AS o \
         JOIN handoffs AS h ON h.tenant = o.tenant AND h.handoff_id = o.handoff_id \
         LEFT JOIN contents AS c ON c.tenant = h.tenant AND c.content_id = h.content_id \
         WHERE o.tenant = ? AND o.target = ? AND o.visible_at <= ? AND NOT EXISTS \
           (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
              AND before.task_id = o.task_id AND before.seq < o.seq) \
         ORDER BY o.created_at, o.seq, o.handoff_id LIMIT ?",
    )
    .bind(tenant.as_str())
    .bind(target.as_str())
    .bind(now.0)
    .bind(limit.max(0))
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let ids =
        found.iter().map(|row| rows::get(row, "handoff_id")).collect::<Result<Vec<&str>>>()?;
    let ids = json(&ids)?;
    // A row that cannot be read must not keep its neighbours from delivery. It stays claimed; its
    // deadline, or a person who sees this line, ends it.
    let mut claims: Vec<Claim> = found
        .iter()
        .filter_map(|row| {
            claimed(row)
                .inspect_err(|err| {
                    let handoff_id = rows::get::<&str>(row, "handoff_id").unwrap_or_default();
                    tracing::error!(handoff_id, %err, "a claimed handoff cannot be read");
                })
                .ok()
        })
        .collect();
    let mut personal = load_personal(conn, tenant, &ids).await?;
    for claim in &mut claims {
        claim.personal = personal.remove(&claim.handoff_id).unwrap_or_default();
    }
    sqlx::query(
        "UPDATE outbox SET visible_at = ?, claimed_by = ?, attempt = attempt + 1 \
         WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))",
    )
    .bind(until.0)
    .bind(broker)
    .bind(tenant.as_str())
    .bind(ids)
    .execute(conn)
    .await
    .map_err(failure)?;
    Ok(claims)
}

fn claimed(row: &SqliteRow) -> Result<Claim> {
    // Erased since: the attempt goes on, with nothing to show.
    let body = match rows::get::<Option<&[u8]>>(row, "bytes")? {
        Some(bytes) => unpacked(rows::codec(row)?, bytes)?,
        None => Vec::new(),
    };
    Ok(Claim {
        tenant: rows::parse(row, "tenant")?,
        handoff_id: rows::parse(row, "handoff_id")?,
        task_id: rows::parse(row, "task_id")?,
        target: rows::parse(row, "target")?,
        attempt: rows::get::<i32>(row, "attempt")? + 1,
        fencing_token: rows::get(row, "fencing_token")?,
        idempotent: rows::get(row, "idempotent")?,
        traceparent: rows::get(row, "traceparent")?,
        created_at: Micros(rows::get(row, "created_at")?),
        body,
        personal: Vec::new(),
    })
}

/// What is kept of the personal data that the handoffs were committed with. Joined from the list of
/// ids and not by `IN`: only an equality lets SQLite use the partial index.
async fn load_personal(
    conn: &mut SqliteConnection,
    tenant: &TenantId,
    ids: &str,
) -> Result<HashMap<HandoffId, Vec<Vec<u8>>>> {
    let found = sqlx::query(
        "SELECT p.handoff_id, p.codec, p.bytes FROM json_each(?) AS wanted \
         CROSS JOIN personal_data AS p ON p.tenant = ? AND p.handoff_id = wanted.value \
         JOIN audit_records AS r ON r.tenant = p.tenant AND r.leaf_index = p.leaf_index \
         WHERE p.bytes IS NOT NULL AND r.kind = 'HANDOFF' \
         ORDER BY p.leaf_index, p.ordinal",
    )
    .bind(ids)
    .bind(tenant.as_str())
    .fetch_all(conn)
    .await
    .map_err(failure)?;
    let mut personal: HashMap<_, Vec<_>> = HashMap::new();
    for row in &found {
        let bytes = unpacked(rows::codec(row)?, rows::get(row, "bytes")?)?;
        personal.entry(rows::parse(row, "handoff_id")?).or_default().push(bytes);
    }
    Ok(personal)
}

/// See [`crate::store::Store::beat`].
pub(super) async fn beat(conn: &mut SqliteConnection, broker: &str, now: Micros) -> Result<()> {
    sqlx::query(
        "INSERT INTO brokers (broker, seen_at) VALUES (?, ?) \
         ON CONFLICT (broker) DO UPDATE SET seen_at = excluded.seen_at",
    )
    .bind(broker)
    .bind(now.0)
    .execute(conn)
    .await
    .map_err(failure)?;
    Ok(())
}

/// See [`crate::store::Store::release_dead`]. Claims on pulled handoffs are the receiver's, which
/// may live on: they come back by time alone.
pub(super) async fn release_dead(
    conn: &mut SqliteConnection,
    cutoff: Micros,
    now: Micros,
) -> Result<u64> {
    let released = sqlx::query(
        "UPDATE outbox SET visible_at = min(visible_at, ?), claimed_by = NULL \
         WHERE mode = 'webhook' AND claimed_by IS NOT NULL \
           AND claimed_by NOT IN (SELECT broker FROM brokers WHERE seen_at >= ?)",
    )
    .bind(now.0)
    .bind(cutoff.0)
    .execute(&mut *conn)
    .await
    .map_err(failure)?
    .rows_affected();
    sqlx::query("DELETE FROM brokers WHERE seen_at < ?")
        .bind(cutoff.0)
        .execute(conn)
        .await
        .map_err(failure)?;
    Ok(released)
}

/// See [`crate::store::Store::release_own`].
pub(super) async fn release_own(
    conn: &mut SqliteConnection,
    broker: &str,
    now: Micros,
) -> Result<u64> {
    let released = sqlx::query(
        "UPDATE outbox SET visible_at = min(visible_at, ?), claimed_by = NULL \
         WHERE mode = 'webhook' AND claimed_by = ?",
    )
    .bind(now.0)
    .bind(broker)
    .execute(&mut *conn)
    .await
    .map_err(failure)?
    .rows_affected();
    sqlx::query("DELETE FROM brokers WHERE broker = ?")
        .bind(broker)
        .execute(conn)
        .await
        .map_err(failure)?;
    Ok(released)
}
