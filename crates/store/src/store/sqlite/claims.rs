//! The outbox: due handoffs, claims, and claims of dead brokers.

use std::collections::HashMap;

use super::batch::json;
use super::db::Db;
use super::log::unpacked;
use super::rows;
use crate::store::query::{Dialect, Row};
use crate::store::tables::{
    brokers,
    outbox::{self, Freed},
    personal_data,
    receivers::{FORGET_BREAKERS, FORGET_BREAKERS_OF},
    returns,
};
use crate::store::{ClaimRelease, DeliveryClaim, OutboxRow, ReceiverKey, Result, ReturnRow};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};

/// See [`crate::store::Store::list_due_receivers`].
pub(super) fn list_due_receivers(
    db: &Db,
    mode: DeliveryMode,
    now: Micros,
    limit: i64,
) -> Result<Vec<ReceiverKey>> {
    db.query(outbox::DUE_RECEIVERS.sqlite)
        .bind(mode.is_pushed())
        .bind(now.0)
        .bind(limit.max(0))
        .list(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
}

/// See [`crate::store::Store::list_due_among`].
pub(super) fn list_due_among(
    db: &Db,
    receivers: &[ReceiverKey],
    now: Micros,
) -> Result<Vec<ReceiverKey>> {
    db.query(outbox::DUE_AMONG.sqlite)
        .bind(json(&receivers)?)
        .bind(now.0)
        .list(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "target")?)))
}

/// See [`crate::store::Store::list_waiting`].
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

/// See [`crate::store::Store::list_unpulled`].
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

/// See [`crate::store::Store::claim`]. A handoff waits for those before it on its task, for any
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
    db.query(outbox::CLAIMABLE)
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
                Err(err) => {
                    tracing::error!(handoff_id = id, %err, "a claimed handoff cannot be read");
                }
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
    db.query(outbox::CLAIM_THESE)
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
    db.query(personal_data::OF_HANDOFFS).bind(ids).bind(tenant.as_str()).each(|row| {
        let bytes = unpacked(rows::codec(row)?, rows::get(row, "bytes")?)?;
        personal.entry(rows::parse(row, "handoff_id")?).or_default().push(bytes);
        Ok(())
    })?;
    Ok(personal)
}

/// Whether an agent's inbox has a return that no poll has.
pub(super) fn has_returns(db: &Db, (tenant, agent): &ReceiverKey, now: Micros) -> Result<bool> {
    db.query(returns::ANY_DUE.sqlite)
        .bind(tenant.as_str())
        .bind(agent.as_str())
        .bind(now.0)
        .exists()
}

/// See [`crate::store::Store::claim_returns`].
pub(super) fn claim_returns(
    db: &Db,
    (tenant, agent): &ReceiverKey,
    now: Micros,
    until: Micros,
    limit: i64,
) -> Result<Vec<ReturnRow>> {
    let sql = returns::claim(Dialect::Sqlite);
    let query = db.query(&sql).bind(tenant.as_str()).bind(agent.as_str());
    let found: Vec<_> = query.bind(now.0).bind(limit.max(0)).list(returns::decode)?;
    if !found.is_empty() {
        let ids: Vec<_> = found.iter().map(|row: &ReturnRow| row.handoff_id.to_string()).collect();
        let taken = db.query(returns::CLAIM_THESE);
        taken.bind(until.0).bind(tenant.as_str()).bind(json(&ids)?).execute()?;
    }
    Ok(found)
}

/// See [`crate::store::Store::beat`].
pub(super) fn beat(db: &Db, broker: &str, now: Micros) -> Result<()> {
    db.query(brokers::BEAT.sqlite).bind(broker).bind(now.0).execute()?;
    Ok(())
}

/// See [`crate::store::Store::list_strangers`].
pub(super) fn list_strangers(db: &Db) -> Result<Vec<String>> {
    db.query(outbox::STRANGERS.sqlite).list(|row| rows::get(row, "claimed_by"))
}

/// See [`crate::store::Store::release`].
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
