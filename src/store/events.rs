//! Events and subscribers as kept, and the queries on them.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{Result, StoreError};
use crate::domain::event::{Event, Position, Subscriber, Subscription};
use crate::domain::ids::{AgentId, ContentId, Micros, SubscriptionId, TaskId, TenantId};
use crate::evidence::record::Sealed;

/// Names a subscription.
pub type SubscriptionKey = (TenantId, SubscriptionId);
/// Names a subscriber's cursor.
pub type CursorKey = (TenantId, Subscriber);

/// How many attempts of one subscriber are remembered: older ones are overwritten.
pub const DELIVERY_LOG: i64 = 1_000;

/// A subscription as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: SubscriptionId,
    /// What it is.
    pub subscription: Subscription,
    /// Its secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    /// When it was made.
    pub created_at: Micros,
    /// When it was changed last.
    pub updated_at: Micros,
}

/// What a batch does to a subscriber's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorChange {
    /// Tell it from the record that was planned last before this on; makes it active.
    Start,
    /// Tell it from behind this place on. Whoever tells it now loses the lease: a settle of its own could
    /// otherwise overwrite the place, or keep others away until the lease runs out.
    Rewind(Position),
    /// Tell it, or do not for now; its place is kept.
    Active(bool),
    /// It is no subscriber any longer.
    Remove,
}

/// A change of a cursor in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorWrite {
    /// Whose.
    pub key: CursorKey,
    /// What.
    pub change: CursorChange,
    /// The record it belongs to: its index among the batch's records.
    pub record: usize,
}

impl CursorWrite {
    /// Where a cursor that starts with this batch stands: behind the record it belongs to.
    ///
    /// # Errors
    /// When the plan has no such record.
    pub(super) fn start(&self, sealed: &[Sealed]) -> Result<Position> {
        sealed
            .get(self.record)
            .map(|record| Position::behind(record.leaf_index))
            .ok_or_else(|| StoreError::Refused("a cursor without a record".to_owned()))
    }
}

/// A batch's events with their records and their numbers within each.
///
/// # Errors
/// When the plan has no such record.
pub(super) fn numbered<'a>(
    events: &'a [(usize, Event)],
    sealed: &'a [Sealed],
) -> Result<Vec<(&'a Event, &'a Sealed, i32)>> {
    let mut next: HashMap<usize, i32> = HashMap::new();
    events
        .iter()
        .map(|(record, event)| {
            let ordinal = next.entry(*record).or_default();
            let at = *ordinal;
            *ordinal += 1;
            let record = sealed
                .get(*record)
                .ok_or_else(|| StoreError::Refused("an event without a record".to_owned()))?;
            Ok((event, record, at))
        })
        .collect()
}

/// An event as kept, with what is read beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Its id.
    pub id: uuid::Uuid,
    /// Its place.
    pub position: Position,
    /// What happened.
    pub event: Event,
    /// The handoff's own reason as its receiver worded it, where the handoff has one.
    pub words: Option<String>,
    /// The handoff's message.
    pub content_id: Option<ContentId>,
}

/// Which events of a tenant to read.
#[derive(Debug, Clone, Copy)]
pub enum EventScope<'a> {
    /// All.
    All,
    /// Those of one task.
    Task(TaskId),
    /// Those addressed to one agent.
    Audience(&'a AgentId),
}

/// How far a subscriber has been told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Who.
    pub subscriber: Subscriber,
    /// The last event that it was told of, or passed over.
    pub position: Position,
    /// It is told at all.
    pub active: bool,
    /// The broker that tells it now.
    pub broker: Option<String>,
    /// Until when it is that broker's.
    pub lease_until: Micros,
    /// Not to be told before.
    pub next_at: Micros,
    /// Failed attempts in a row.
    pub failures: i32,
    /// Since when every attempt failed.
    pub failing_since: Option<Micros>,
    /// Attempts ever made.
    pub attempts: i64,
}

/// What came of telling a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorSettle {
    /// From where; if the cursor stands elsewhere by now (a replay), nothing is written.
    pub from: Position,
    /// To where.
    pub to: Position,
    /// Not to be told before.
    pub next_at: Micros,
    /// Failed attempts in a row.
    pub failures: i32,
    /// Since when every attempt failed.
    pub failing_since: Option<Micros>,
    /// The lease then runs until; a past time gives it back.
    pub lease_until: Micros,
}

/// One attempt at telling a subscriber of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDeliveryRow {
    /// The subscriber's attempts, counted.
    pub number: i64,
    /// The event's place.
    pub position: Position,
    /// The event's id.
    pub event_id: String,
    /// The event's type.
    pub kind: String,
    /// When.
    pub at: Micros,
    /// Of this event, from 1.
    pub attempt: i32,
    /// `delivered`, `retry`, `set_aside` or `gone`.
    pub outcome: String,
    /// The status of the answer, where there was one.
    pub status: Option<i32>,
    /// What went wrong, in the broker's own words.
    pub detail: Option<String>,
    /// How long it took, in microseconds.
    pub duration_us: i64,
}

/// Reading events, and keeping count of who was told. All times come from the caller's clock.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Events behind a place, in order.
    async fn list_events(
        &self,
        tenant: &TenantId,
        scope: EventScope<'_>,
        after: Position,
        limit: i64,
    ) -> Result<Vec<EventRow>>;
    /// Deletes a tenant's oldest events, as far as they are from before `cutoff`: a bounded number
    /// at once. Returns how many.
    async fn delete_events(&self, tenant: &TenantId, cutoff: Micros) -> Result<u64>;

    /// One subscription.
    async fn find_subscription(&self, key: &SubscriptionKey) -> Result<Option<SubscriptionRow>>;
    /// A tenant's subscriptions, oldest first.
    async fn list_subscriptions(&self, tenant: &TenantId) -> Result<Vec<SubscriptionRow>>;

    /// A subscriber's cursor.
    async fn find_cursor(&self, key: &CursorKey) -> Result<Option<CursorRow>>;
    /// Active cursors that nobody serves (a lease that ends more than two minutes from now, or a
    /// pause of more than two hours, was written by a clock that is wrong, and does not count), whose time has come and behind which there are events.
    async fn list_due_cursors(&self, now: Micros, limit: i64) -> Result<Vec<CursorKey>>;
    /// Takes a cursor's lease, if nobody else has it and it may be told now.
    async fn claim_cursor(
        &self,
        key: &CursorKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<CursorRow>>;
    /// Extends all leases of a broker; returns how many.
    async fn renew_cursors(&self, broker: &str, now: Micros, until: Micros) -> Result<u64>;
    /// Moves a cursor and remembers the attempts, in one transaction; `false` and nothing written
    /// where the lease is another's or the cursor was moved meanwhile.
    async fn settle_cursor(
        &self,
        key: &CursorKey,
        broker: &str,
        settle: &CursorSettle,
        log: &[EventDeliveryRow],
    ) -> Result<bool>;
    /// The last attempts of a subscriber, newest first.
    async fn list_event_deliveries(
        &self,
        key: &CursorKey,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<EventDeliveryRow>>;
}
