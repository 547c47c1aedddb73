//! Queries on events, subscriptions and cursors.

use super::batch::{RowBatch, json};
use super::db::{Db, Query};
use super::{SqliteStore, rows};
use crate::store::events::{
    CursorChange, CursorKey, CursorSettle, CursorWrite, DELIVERY_LOG, EventDeliveryRow, EventRow,
    EventScope, SubscriptionKey, SubscriptionRow, numbered,
};
use crate::store::tables::{
    cursors::{self, EVENT_DELIVERY},
    events::{self, Selection},
    subscriptions,
};
use crate::store::{Result, Writes};
use handoffd_domain::event::{Event, Position, Subscriber};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_evidence::record::SealedRecord;

const EVENT_COLUMNS: &str = "tenant, leaf_index, ordinal, event_id, type, at, task_id, handoff_id, source, target, audience, data";

/// Most events read in one deletion.
const DELETED_AT_ONCE: i64 = 2_000;

/// Writes a batch's events, subscriptions and cursors; after its records, for it names their places.
pub(super) fn write(db: &Db, writes: &Writes, sealed: &[SealedRecord]) -> Result<()> {
    let events = numbered(&writes.events, sealed)?;
    let texts = events.iter().map(|at| json(&at.0.data)).collect::<Result<Vec<_>>>()?;
    let rows: Vec<_> = events
        .iter()
        .zip(&texts)
        .map(|((event, sealed, ordinal), data)| (*event, *sealed, *ordinal, data.as_str()))
        .collect();
    RowBatch::insert("events", EVENT_COLUMNS).run(db, &rows, bind_event)?;
    for (key, row) in &writes.subscriptions {
        write_subscription(db, key, row.as_ref())?;
    }
    for write in &writes.cursors {
        write_cursor(db, write, sealed)?;
    }
    Ok(())
}

fn bind_event<'c>(query: Query<'c>, row: (&Event, &SealedRecord, i32, &str)) -> Query<'c> {
    let (event, sealed, ordinal, data) = row;
    query
        .bind(event.tenant.as_str())
        .bind(sealed.leaf_index)
        .bind(ordinal)
        .bind(Event::id(event.at, &sealed.hash, ordinal).to_string())
        .bind(event.kind.as_str())
        .bind(event.at.0)
        .bind(event.task_id.map(|id| id.to_string()))
        .bind(event.handoff_id.map(|id| id.to_string()))
        .bind(event.source.as_ref().map(AgentId::as_str))
        .bind(event.target.as_ref().map(AgentId::as_str))
        .bind(event.audience.as_ref().map(AgentId::as_str))
        .bind(data)
}

fn write_subscription(db: &Db, key: &SubscriptionKey, row: Option<&SubscriptionRow>) -> Result<()> {
    let Some(row) = row else {
        return db
            .query(subscriptions::REMOVE)
            .bind(key.0.as_str())
            .bind(key.1.to_string())
            .execute()
            .map(drop);
    };
    let sql = subscriptions::upsert();
    db.query(&sql)
        .bind(row.tenant.as_str())
        .bind(row.id.to_string())
        .bind(json(&row.subscription)?)
        .bind(row.secrets.as_str())
        .bind(row.created_at.0)
        .bind(row.updated_at.0)
        .execute()
        .map(drop)
}

fn write_cursor(db: &Db, write: &CursorWrite, sealed: &[SealedRecord]) -> Result<()> {
    let (tenant, subscriber) = (write.key.0.as_str(), write.key.1.to_string());
    let query = match &write.change {
        CursorChange::Start(from) => {
            let at = write.start(*from, sealed)?;
            let audience = match &write.key.1 {
                Subscriber::Agent(agent) => Some(agent.to_string()),
                Subscriber::Subscription(_) => None,
            };
            db.query(cursors::START.sqlite)
                .bind(tenant)
                .bind(subscriber)
                .bind(audience)
                .bind(at.leaf_index)
                .bind(at.ordinal)
        }
        CursorChange::Rewind(at) => db.statement(&cursors::rewind(&write.key, *at)),
        CursorChange::Active(active) => db.statement(&cursors::activate(&write.key, *active)),
        CursorChange::Remove => {
            let [attempts, cursor] = cursors::remove(&write.key);
            db.statement(&attempts).execute()?;
            db.statement(&cursor)
        }
    };
    query.execute().map(drop)
}

fn settle(
    db: &Db,
    key: &CursorKey,
    broker: &str,
    settle: &CursorSettle,
    log: &[EventDeliveryRow],
) -> Result<bool> {
    let subscriber = key.1.to_string();
    let moved = db.statement(&cursors::settle(key, broker, settle, log.len())).execute()?;
    if moved == 0 {
        return Ok(false);
    }
    let rows: Vec<_> = log.iter().map(|row| (key.0.as_str(), subscriber.as_str(), row)).collect();
    RowBatch::upsert("event_deliveries", EVENT_DELIVERY, &["tenant", "subscriber", "slot"]).run(
        db,
        &rows,
        bind_delivery,
    )?;
    Ok(true)
}

fn bind_delivery<'c>(query: Query<'c>, row: (&str, &str, &EventDeliveryRow)) -> Query<'c> {
    let (tenant, subscriber, row) = row;
    query
        .bind(tenant)
        .bind(subscriber)
        .bind(row.number.rem_euclid(DELIVERY_LOG))
        .bind(row.number)
        .bind(row.position.leaf_index)
        .bind(row.position.ordinal)
        .bind(row.event_id.as_str())
        .bind(row.kind.as_str())
        .bind(row.at.0)
        .bind(row.attempt)
        .bind(row.outcome.as_str())
        .bind(row.status)
        .bind(row.detail.as_deref())
        .bind(row.duration_us)
}

fn list(
    db: &Db,
    tenant: &TenantId,
    scope: EventScope<'_>,
    after: Position,
    limit: i64,
) -> Result<Vec<EventRow>> {
    let among = match scope {
        EventScope::Task(task) => Selection::OfTask(task),
        EventScope::All => Selection::All,
        EventScope::Audience(agent) => Selection::Audience(agent),
    };
    db.statement(&events::page(tenant, among, after, limit)).list(rows::event)
}

impl SqliteStore {
    pub(in crate::store) async fn list_events(
        &self,
        tenant: &TenantId,
        scope: EventScope<'_>,
        after: Position,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        self.read(|db| list(db, tenant, scope, after, limit)).await
    }

    pub(in crate::store) async fn delete_events(
        &self,
        tenant: &TenantId,
        cutoff: Micros,
    ) -> Result<u64> {
        self.write(|db| {
            db.query(events::DELETE.sqlite)
                .bind(tenant.as_str())
                .bind(DELETED_AT_ONCE)
                .bind(cutoff.0)
                .execute()
        })
        .await
    }

    pub(in crate::store) async fn has_cursors(&self) -> Result<bool> {
        self.read(|db| {
            let found = db.query(cursors::ANY.sqlite).find(|_| Ok(()))?;
            Ok(found.is_some())
        })
        .await
    }

    pub(in crate::store) async fn settle_cursor(
        &self,
        key: &CursorKey,
        broker: &str,
        settled: &CursorSettle,
        log: &[EventDeliveryRow],
    ) -> Result<bool> {
        self.write(|db| settle(db, key, broker, settled, log)).await
    }
}
