//! The outbox: claims, heartbeats, deadlines, depths.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgPool, PgRow};

use super::call::Call;
use super::failure::failed;
use super::pool::bound;
use super::rows;
use crate::store::query::Dialect;
use crate::store::rows::unreadable;
use crate::store::tables::{
    audit, brokers, handoffs,
    outbox::{self, Freed},
    receivers::{FORGET_BREAKERS, FORGET_BREAKERS_OF},
    returns,
};
use crate::store::{
    AgentKey, ClaimRelease, DeliveryClaim, Depths, OutboxRow, ReceiverKey, Result, ReturnRow,
};
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::Micros;
use handoffd_evidence::commitment::{Codec, unpack};

/// Receivers with claimable handoffs, the longest wait first.
pub(super) async fn list_due_receivers(
    pool: &PgPool,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<ReceiverKey>> {
    sqlx::query(outbox::DUE_RECEIVERS.postgres)
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
    sqlx::query(outbox::DUE_AMONG.postgres)
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
    let sql = outbox::RETARGET;
    Call::new(sql).bind(mode.as_str()).bind(tenant.as_str()).bind(agent.as_str()).bind(at.0)
}

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
    let found = sqlx::query(outbox::CLAIM)
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

/// See [`crate::store::Store::claim_returns`]. Most polls find none: they are looked for before any is locked.
pub(super) async fn claim_returns(
    pool: &PgPool,
    (tenant, agent): &ReceiverKey,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<ReturnRow>> {
    let any = sqlx::query_scalar::<_, bool>(returns::ANY_DUE.postgres);
    let any = any.bind(tenant.as_str()).bind(agent.as_str()).bind(now.0);
    if !any.fetch_one(pool).await.map_err(failed)? {
        return Ok(Vec::new());
    }
    let found = sqlx::query(AssertSqlSafe(returns::claim(Dialect::Postgres)))
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
    sqlx::query(brokers::BEAT.postgres)
        .bind(broker)
        .bind(now.0)
        .execute(pool)
        .await
        .map_err(failed)
        .map(|_| ())
}

/// See [`crate::store::Store::probe_write`]. `log` is `pool`, unless the log has its own database.
pub(super) async fn probe_write(
    pool: &PgPool,
    log: &PgPool,
    broker: &str,
    now: Micros,
) -> Result<()> {
    let mut tx = log.begin().await.map_err(failed)?;
    sqlx::query(audit::PROBE.postgres).execute(&mut *tx).await.map_err(failed)?;
    tx.rollback().await.map_err(failed)?;
    beat(pool, broker, now).await
}

/// See [`crate::store::Store::list_clock_offsets`].
pub(super) async fn list_clock_offsets(pool: &PgPool) -> Result<Vec<(String, i64)>> {
    sqlx::query(brokers::CLOCK_OFFSETS)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| Ok((rows::get(row, "broker")?, rows::get(row, "clock_offset_us")?)))
        .collect()
}

/// Brokers with claims of the dispatcher and without heartbeat.
pub(super) async fn list_strangers(pool: &PgPool) -> Result<Vec<String>> {
    sqlx::query(outbox::STRANGERS.postgres)
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

/// See [`crate::store::Store::release`].
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
    sqlx::query(AssertSqlSafe(handoffs::overdue(Dialect::Postgres)))
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
    let row = sqlx::query(outbox::DEPTHS.postgres)
        .bind(idle_since.0)
        .fetch_one(pool)
        .await
        .map_err(failed)?;
    let records = sqlx::query_scalar(audit::COUNT).fetch_one(log).await.map_err(failed)?;
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
