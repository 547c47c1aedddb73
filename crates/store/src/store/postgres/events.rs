//! Queries on events, subscriptions and cursors.

use sqlx::postgres::PgPool;

use super::batch::{Bound, EVENT_DELIVERIES, EVENTS, SUBSCRIPTIONS, Sql, bind};
use super::call::Call;
use super::failure::failed;
use super::joined::{JoinedStatement, WriteMode};
use super::pool::bound;
use super::{PostgresStore, answered, rows};
use crate::store::events::{
    CursorChange, CursorKey, CursorSettle, CursorWrite, DELIVERY_LOG, EventDeliveryRow, EventRow,
    EventScope, SubscriptionRow, numbered,
};
use crate::store::tables::{
    audit, cursors,
    events::{self, Selection},
};
use crate::store::{Result, Writes};
use handoffd_domain::event::{Event, Position, Subscriber};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_evidence::record::SealedRecord;

static SUBSCRIPTIONS_UPSERT: Sql = Sql::new(|| SUBSCRIPTIONS.upsert(1, Bound::Arrays));
static SUBSCRIPTIONS_DELETE: Sql = Sql::new(|| SUBSCRIPTIONS.delete(1, Bound::Arrays));
static DELIVERIES_UPSERT: Sql = Sql::new(|| EVENT_DELIVERIES.upsert(1, Bound::Arrays));

/// How many records of a task one query searches for their events.
const PLACES: i64 = 512;

/// The most events that one deletion reads.
const DELETED_AT_ONCE: i64 = 2_000;

/// Writes a batch's events: after its records, because events have the places of records, and under the lock of the log's
/// heads, so that places have the order of the commits.
pub(super) fn write(
    joined: &mut JoinedStatement,
    writes: &Writes,
    sealed: &[SealedRecord],
) -> Result<()> {
    let events = numbered(&writes.events, sealed)?;
    let data: Vec<_> = events.iter().map(|row| (row, json(&row.0.data))).collect();
    let columns = |bound: Call, rows: &[(&(&Event, &SealedRecord, i32), String)]| {
        bind!(
            bound,
            rows,
            |row| row.0.0.tenant.as_str(),
            row.0.1.leaf_index,
            row.0.2,
            Event::id(row.0.0.at, &row.0.1.hash, row.0.2).to_string(),
            row.0.0.kind.as_str(),
            row.0.0.at.0,
            row.0.0.task_id.map(|id| id.to_string()),
            row.0.0.handoff_id.map(|id| id.to_string()),
            row.0.0.source.as_ref().map(AgentId::as_str),
            row.0.0.target.as_ref().map(AgentId::as_str),
            row.0.0.audience.as_ref().map(AgentId::as_str),
            row.1.as_str(),
        )
    };
    joined.put(&EVENTS, WriteMode::Insert, &data, |(_, data)| data.len(), columns);
    Ok(())
}

/// Writes subscriptions and cursors; a cursor may name the places of the batch's records.
pub(super) fn reader_calls(writes: &Writes, sealed: &[SealedRecord]) -> Result<Vec<Call>> {
    let mut calls = subscriptions(writes);
    for write in &writes.cursors {
        calls.extend(cursor(write, sealed)?);
    }
    Ok(calls)
}

/// Serializes plain data, which cannot fail.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn subscriptions(writes: &Writes) -> Vec<Call> {
    let mut calls = Vec::new();
    let kept: Vec<&SubscriptionRow> = writes.subscriptions.values().flatten().collect();
    if !kept.is_empty() {
        calls.push(bind!(
            Call::new(SUBSCRIPTIONS_UPSERT.as_str()),
            kept,
            |row| row.tenant.as_str(),
            row.id.to_string(),
            json(&row.subscription),
            row.secrets.as_str(),
            row.created_at.0,
            row.updated_at.0,
        ));
    }
    let gone: Vec<_> =
        writes.subscriptions.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    if !gone.is_empty() {
        let call = Call::new(SUBSCRIPTIONS_DELETE.as_str());
        calls.push(bind!(call, gone, |key| key.0.as_str(), key.1.to_string()));
    }
    calls
}

fn cursor(write: &CursorWrite, sealed: &[SealedRecord]) -> Result<Vec<Call>> {
    let (tenant, subscriber) = (write.key.0.as_str(), write.key.1.to_string());
    let call = match &write.change {
        CursorChange::Start(from) => {
            let at = write.start(*from, sealed)?;
            let audience = match &write.key.1 {
                Subscriber::Agent(agent) => Some(agent.as_str()),
                Subscriber::Subscription(_) => None,
            };
            Call::new(cursors::START.postgres)
                .bind(tenant)
                .bind(subscriber)
                .bind(audience)
                .bind(at.leaf_index)
                .bind(at.ordinal)
        }
        CursorChange::Rewind(at) => Call::of(cursors::rewind(&write.key, *at)),
        CursorChange::Active(active) => Call::of(cursors::activate(&write.key, *active)),
        CursorChange::Remove => return Ok(cursors::remove(&write.key).map(Call::of).into()),
    };
    Ok(vec![call])
}

async fn settle(
    pool: &PgPool,
    key: &CursorKey,
    broker: &str,
    settle: &CursorSettle,
    log: &[EventDeliveryRow],
) -> Result<bool> {
    let subscriber = key.1.to_string();
    let mut tx = pool.begin().await.map_err(failed)?;
    let moved = bound(cursors::settle(key, broker, settle, log.len()))
        .execute(&mut *tx)
        .await
        .map_err(failed)?
        .rows_affected();
    if moved == 0 {
        tx.rollback().await.map_err(failed)?;
        return Ok(false);
    }
    let rows: Vec<_> = log.iter().map(|row| (key.0.as_str(), subscriber.as_str(), row)).collect();
    if !rows.is_empty() {
        let query = bind!(
            sqlx::query(DELIVERIES_UPSERT.as_str()),
            rows,
            |at| at.0,
            at.1,
            i32::try_from(at.2.number.rem_euclid(DELIVERY_LOG)).unwrap_or_default(),
            at.2.number,
            at.2.position.leaf_index,
            at.2.position.ordinal,
            at.2.event_id.as_str(),
            at.2.kind.as_str(),
            at.2.at.0,
            at.2.attempt,
            at.2.outcome.as_str(),
            at.2.status,
            at.2.detail.as_deref(),
            at.2.duration_us,
        );
        query.execute(&mut *tx).await.map_err(failed)?;
    }
    tx.commit().await.map_err(failed)?;
    Ok(true)
}

async fn list(
    store: &PostgresStore,
    tenant: &TenantId,
    scope: EventScope<'_>,
    after: Position,
    limit: i64,
) -> Result<Vec<EventRow>> {
    let task = match scope {
        EventScope::Task(task) => task,
        EventScope::All => return page(store, tenant, Selection::All, after, limit).await,
        EventScope::Audience(agent) => {
            return page(store, tenant, Selection::Audience(agent), after, limit).await;
        }
    };
    // The task's records have an index by task; their places lead to the events.
    let (mut found, mut from) = (Vec::new(), after.leaf_index);
    while limit > found.len() as i64 {
        let places: Vec<i64> = sqlx::query_scalar(audit::PLACES)
            .bind(tenant.as_str())
            .bind(task.to_string())
            .bind(from)
            .bind(PLACES)
            .fetch_all(&store.log)
            .await
            .map_err(failed)?;
        let Some(last) = places.last() else { break };
        from = last + 1;
        let left = limit - found.len() as i64;
        found.extend(page(store, tenant, Selection::At(&places), after, left).await?);
    }
    Ok(found)
}

async fn page(
    store: &PostgresStore,
    tenant: &TenantId,
    among: Selection<'_>,
    after: Position,
    limit: i64,
) -> Result<Vec<EventRow>> {
    bound(events::page(tenant, among, after, limit))
        .fetch_all(&store.pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| rows::event(row))
        .collect()
}

impl PostgresStore {
    pub(in crate::store) async fn list_events(
        &self,
        tenant: &TenantId,
        scope: EventScope<'_>,
        after: Position,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        answered(list(self, tenant, scope, after, limit)).await
    }

    pub(in crate::store) async fn delete_events(
        &self,
        tenant: &TenantId,
        cutoff: Micros,
    ) -> Result<u64> {
        answered(async {
            sqlx::query(events::DELETE.postgres)
                .bind(tenant.as_str())
                .bind(DELETED_AT_ONCE)
                .bind(cutoff.0)
                .execute(&self.pool)
                .await
                .map_err(failed)
                .map(|done| done.rows_affected())
        })
        .await
    }

    pub(in crate::store) async fn has_cursors(&self) -> Result<bool> {
        answered(async {
            sqlx::query_scalar(cursors::ANY.postgres).fetch_one(&self.pool).await.map_err(failed)
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
        answered(async { settle(&self.pool, key, broker, settled, log).await }).await
    }
}
