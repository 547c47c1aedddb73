//! The outbox: due handoffs, claims, and claims of dead brokers.

use std::collections::HashMap;

use super::batch::json;
use super::db::Db;
use super::log::unpacked;
use super::rows;
use crate::store::query::Dialect;
use crate::store::query::Row;
use crate::store::tables::brokers;
use crate::store::tables::receivers::{FORGET_BREAKERS, FORGET_BREAKERS_OF};
use crate::store::tables::{
    outbox::{self, Freed},
    returns::{self, RETURN},
};
use crate::store::{ClaimRelease, DeliveryClaim, OutboxRow, ReceiverKey, Result, ReturnRow};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};

/// From receiver to receiver by the index, and of each the first row that is due: the time grows with
/// the receivers and not with what waits, or a backlog would slow the dispatcher down and grow by that.
pub(super) const DUE_RECEIVERS: &str = "WITH RECURSIVE tenants (tenant) AS ( \
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
     ORDER BY first.created_at, r.tenant, r.target LIMIT ?";

/// See [`crate::store::OutboxStore::list_due_receivers`].
pub(super) fn list_due_receivers(
    db: &Db,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<ReceiverKey>> {
    db.query(DUE_RECEIVERS)
        .bind(mode.is_pushed())
        .bind(now.0)
        .bind(limit.max(0))
        .list(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
}

/// See [`crate::store::OutboxStore::list_due_among`].
pub(super) fn list_due_among(
    db: &Db,
    receivers: &[ReceiverKey],
    now: Micros,
) -> Result<Vec<ReceiverKey>> {
    db.query(
        "WITH wanted (t, a) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) \
         SELECT t AS tenant, a AS target FROM wanted WHERE NOT EXISTS \
           (SELECT 1 FROM paused_agents AS p WHERE p.tenant = t AND p.agent_id = a) AND EXISTS \
           (SELECT 1 FROM outbox AS o WHERE o.tenant = t AND o.target = a AND o.visible_at <= ?2 \
              AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
                AND before.task_id = o.task_id AND before.seq < o.seq)) \
         OR EXISTS (SELECT 1 FROM returns AS r \
           WHERE r.tenant = t AND r.agent_id = a AND r.visible_at <= ?2)",
    )
    .bind(json(&receivers)?)
    .bind(now.0)
    .list(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
}

/// See [`crate::store::OutboxStore::list_waiting`].
pub(super) fn list_waiting(
    db: &Db,
    receiver: &ReceiverKey,
    now: Micros,
    limit: i64,
) -> Result<Vec<OutboxRow>> {
    let query = db.query(&outbox::waiting(Dialect::Sqlite)).bind(receiver.0.as_str());
    let query = query.bind(receiver.1.as_str()).bind(now.0).bind(limit.max(0));
    query.list(outbox::decode)
}

/// See [`crate::store::OutboxStore::list_unpulled`].
pub(super) fn list_unpulled(
    db: &Db,
    before: Micros,
    now: Micros,
    limit: i64,
) -> Result<Vec<OutboxRow>> {
    let query =
        db.query(&outbox::unpulled(Dialect::Sqlite)).bind(before.0).bind(now.0).bind(limit.max(0));
    query.list(outbox::decode)
}

/// See [`crate::store::OutboxStore::claim`]. A handoff waits for those before it on its task, for any
/// receiver.
pub(super) fn claim(
    db: &Db,
    receiver: &ReceiverKey,
    mode: DeliveryMode,
    broker: &str,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<DeliveryClaim>> {
    let (tenant, target) = receiver;
    let mut ids = Vec::new();
    let mut claims: Vec<DeliveryClaim> = Vec::new();
    db.query("SELECT o.tenant, o.handoff_id, o.task_id, o.target, o.attempt, \
           o.busy, h.deadline_at, h.fencing_token, h.idempotent, h.attempts, h.reason, h.policy, h.traceparent, h.tracestate, h.span, h.context, h.sent_id, h.target AS addressee, c.codec, c.bytes, c.salt, c.segment \
         FROM outbox AS o \
         JOIN handoffs AS h ON h.tenant = o.tenant AND h.handoff_id = o.handoff_id \
         LEFT JOIN contents AS c ON c.tenant = h.tenant AND c.content_id = coalesce(h.sent_id, h.content_id) \
         WHERE o.tenant = ? AND o.target = ? AND o.visible_at <= ? AND NOT EXISTS \
           (SELECT 1 FROM paused_agents AS p WHERE p.tenant = o.tenant AND p.agent_id = o.target) \
           AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.tenant = o.tenant \
              AND before.task_id = o.task_id AND before.seq < o.seq) \
         ORDER BY o.priority, o.created_at, o.seq, o.handoff_id LIMIT ?")
    .bind(tenant.as_str())
    .bind(target.as_str())
    .bind(now.0)
    .bind(limit.max(0))
    .each(|row| {
        let id: &str = row.get("handoff_id")?;
        // A row that cannot be read must not keep its neighbours from delivery. It stays claimed; its
        // deadline, or a person who sees this line, ends it.
        match claimed(row) {
            Ok(claim) => claims.push(claim),
            Err(err) => tracing::error!(handoff_id = id, %err, "a claimed handoff cannot be read"),
        }
        ids.push(id.to_owned());
        Ok(())
    })?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids = json(&ids)?;
    let mut personal = load_personal(db, tenant, &ids)?;
    for claim in &mut claims {
        claim.personal = personal.remove(&claim.handoff_id).unwrap_or_default();
    }
    db.query(
        "UPDATE outbox SET visible_at = ?, claimed_by = ?, attempt = attempt + 1, \
           mode = CASE WHEN (mode <> 'pull') = ? THEN mode ELSE ? END \
         WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))",
    )
    .bind(until.0)
    .bind(broker)
    .bind(mode.is_pushed())
    .bind(mode.as_str())
    .bind(tenant.as_str())
    .bind(ids)
    .execute()?;
    Ok(claims)
}

fn claimed(row: &dyn Row) -> Result<DeliveryClaim> {
    rows::addressed(row)?;
    // Erased since: the attempt goes on, with nothing to show. Cold contents are not erased, and
    // must not go out empty: open handoffs are held back from the archive, so this is a fault.
    let body = match rows::get::<Option<&[u8]>>(row, "bytes")? {
        Some(bytes) => unpacked(rows::codec(row)?, bytes)?,
        None => rows::erased(row)?,
    };
    let ruling = rows::ruling(row)?;
    let edge = ruling.as_ref().map(|ruling| &ruling.edge);
    let attempt = rows::get::<i32>(row, "attempt")? + 1;
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
        personal: Vec::new(),
    })
}

/// The stored personal data of handoffs. Joined from the list of ids and not by `IN`: only an equality lets SQLite
/// use the partial index.
fn load_personal(
    db: &Db,
    tenant: &TenantId,
    ids: &str,
) -> Result<HashMap<HandoffId, Vec<Vec<u8>>>> {
    let mut personal: HashMap<_, Vec<_>> = HashMap::new();
    db.query(
        "SELECT h.handoff_id, p.codec, p.bytes FROM json_each(?1) AS wanted \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = wanted.value \
         CROSS JOIN personal_data AS p ON p.tenant = ?2 \
           AND p.handoff_id = coalesce(h.origin, h.handoff_id) \
         WHERE p.bytes IS NOT NULL ORDER BY p.leaf_index, p.ordinal",
    )
    .bind(ids)
    .bind(tenant.as_str())
    .each(|row| {
        let bytes = unpacked(rows::codec(row)?, rows::get(row, "bytes")?)?;
        personal.entry(rows::parse(row, "handoff_id")?).or_default().push(bytes);
        Ok(())
    })?;
    Ok(personal)
}

/// Whether an agent's inbox has a return that no poll has.
pub(super) fn has_returns(db: &Db, (tenant, agent): &ReceiverKey, now: Micros) -> Result<bool> {
    db.query("SELECT 1 FROM returns WHERE tenant = ? AND agent_id = ? AND visible_at <= ? LIMIT 1")
        .bind(tenant.as_str())
        .bind(agent.as_str())
        .bind(now.0)
        .exists()
}

/// See [`crate::store::OutboxStore::claim_returns`].
pub(super) fn claim_returns(
    db: &Db,
    (tenant, agent): &ReceiverKey,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<ReturnRow>> {
    let sql = format!(
        "SELECT {RETURN} FROM returns WHERE tenant = ? AND agent_id = ? AND visible_at <= ? \
         ORDER BY returned_at, handoff_id LIMIT ?"
    );
    let query = db.query(&sql).bind(tenant.as_str()).bind(agent.as_str());
    let found: Vec<_> = query.bind(now.0).bind(limit.max(0)).list(returns::decode)?;
    if !found.is_empty() {
        let ids: Vec<_> = found.iter().map(|row: &ReturnRow| row.handoff_id.to_string()).collect();
        let taken = db.query(
            "UPDATE returns SET visible_at = ? \
             WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))",
        );
        taken.bind(until.0).bind(tenant.as_str()).bind(json(&ids)?).execute()?;
    }
    Ok(found)
}

/// See [`crate::store::OutboxStore::beat`].
pub(super) fn beat(db: &Db, broker: &str, now: Micros) -> Result<()> {
    db.query(
        "INSERT INTO brokers (broker, seen_at) VALUES (?, ?) \
         ON CONFLICT (broker) DO UPDATE SET seen_at = max(seen_at + 1, excluded.seen_at)",
    )
    .bind(broker)
    .bind(now.0)
    .execute()?;
    Ok(())
}

/// See [`crate::store::OutboxStore::list_strangers`].
pub(super) fn list_strangers(db: &Db) -> Result<Vec<String>> {
    db.query(
        "SELECT DISTINCT claimed_by FROM outbox WHERE mode <> 'pull' AND claimed_by IS NOT NULL \
           AND claimed_by NOT IN (SELECT broker FROM brokers) ORDER BY claimed_by",
    )
    .list(|row| rows::get(row, "claimed_by"))
}

/// See [`crate::store::OutboxStore::release`].
pub(super) fn release(db: &Db, whose: ClaimRelease<'_>) -> Result<u64> {
    let free = match whose {
        ClaimRelease::Everyone => {
            db.statement(&brokers::forget_all()).execute()?;
            db.query(FORGET_BREAKERS).execute()?;
            db.query(&outbox::free(Dialect::Sqlite, Freed::All))
        }
        ClaimRelease::Own(broker) => {
            db.statement(&brokers::forget(broker)).execute()?;
            forget_breakers(db, broker)?;
            db.query(&outbox::free(Dialect::Sqlite, Freed::OfBroker)).bind(broker)
        }
        ClaimRelease::Silent(broker, seen) => {
            if !is_silent(db, broker, seen)? {
                return Ok(0);
            }
            forget_breakers(db, broker)?;
            db.query(&outbox::free(Dialect::Sqlite, Freed::OfBroker)).bind(broker)
        }
        ClaimRelease::These(broker, held) => {
            let held: Vec<_> = held.iter().map(|((tenant, id), n)| (tenant, id, n)).collect();
            db.query(&outbox::free(Dialect::Sqlite, Freed::These)).bind(broker).bind(json(&held)?)
        }
    };
    free.execute()
}

/// Deletes the breakers that a broker has for its receivers.
fn forget_breakers(db: &Db, broker: &str) -> Result<()> {
    db.query(&FORGET_BREAKERS_OF.replace('$', "?")).bind(broker).execute().map(|_| ())
}

/// Deletes the heartbeat if it still has that value; returns whether it had.
fn is_silent(db: &Db, broker: &str, seen: Option<Micros>) -> Result<bool> {
    if let Some(seen) = seen {
        return Ok(db.statement(&brokers::forget_seen(broker, seen)).execute()? > 0);
    }
    Ok(!db.statement(&brokers::find(broker)).exists()?)
}
