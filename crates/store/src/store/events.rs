//! Rows of events and subscribers, and their queries.

use std::collections::HashMap;

use super::{Result, StoreError};
use handoffd_domain::event::{Event, Position, Subscriber, Subscription};
use handoffd_domain::ids::{AgentId, ContentId, Micros, SubscriptionId, TaskId, TenantId};
use handoffd_evidence::record::SealedRecord;

pub type SubscriptionKey = (TenantId, SubscriptionId);
/// Key of a subscriber's cursor.
pub type CursorKey = (TenantId, Subscriber);

/// Deliveries remembered for each subscriber: older ones are overwritten.
pub const DELIVERY_LOG: i64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRow {
    pub tenant: TenantId,
    pub id: SubscriptionId,
    pub subscription: Subscription,
    /// The subscription's secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    pub created_at: Micros,
    /// Time of the last change.
    pub updated_at: Micros,
}

/// A batch's change to a subscriber's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorChange {
    /// Activates the cursor and starts it: at this position, or at the last record planned before this change.
    Start(Option<Position>),
    /// Moves the cursor to this position. The current lease is revoked: a settlement under it could overwrite the
    /// position, or keep other brokers away until it expires.
    Rewind(Position),
    /// Activates or pauses the cursor; the position stays.
    Active(bool),
    Remove,
}

/// A cursor change in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorWrite {
    pub key: CursorKey,
    /// The change to apply.
    pub change: CursorChange,
    /// Index of its record among the batch's records.
    pub record: usize,
}

impl CursorWrite {
    /// The position of a cursor that starts with this batch: `from`, but not after the batch's record, or after that.
    ///
    /// # Errors
    /// [`StoreError`] where the plan has no such record.
    pub(super) fn start(
        &self,
        from: Option<Position>,
        sealed: &[SealedRecord],
    ) -> Result<Position> {
        sealed
            .get(self.record)
            .map(|record| Position::behind(record.leaf_index))
            .map(|now| from.map_or(now, |from| from.min(now)))
            .ok_or_else(|| StoreError::Refused("a cursor without a record".to_owned()))
    }
}

/// A batch's events with their records and their ordinals within each.
///
/// # Errors
/// [`StoreError`] where the plan has no such record.
pub(super) fn numbered<'a>(
    events: &'a [(usize, Event)],
    sealed: &'a [SealedRecord],
) -> Result<Vec<(&'a Event, &'a SealedRecord, i32)>> {
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

/// An event row with joined data.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    pub id: uuid::Uuid,
    pub position: Position,
    pub event: Event,
    /// The receiver's reason text, where the handoff has one.
    pub words: Option<String>,
    /// The content id of the handoff's message.
    pub content_id: Option<ContentId>,
}

/// Selection of a tenant's events.
#[derive(Debug, Clone, Copy)]
pub enum EventScope<'a> {
    All,
    Task(TaskId),
    /// Events addressed to one agent.
    Audience(&'a AgentId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorRow {
    pub tenant: TenantId,
    pub subscriber: Subscriber,
    /// Position of the last event published or skipped.
    pub position: Position,
    /// Whether events are published to the subscriber.
    pub active: bool,
    /// The broker that holds the lease.
    pub broker: Option<String>,
    /// End of the lease.
    pub lease_until: Micros,
    /// Earliest time of the next attempt.
    pub next_at: Micros,
    /// Failed attempts in a row.
    pub failures: i32,
    /// Time of the first of the failed attempts in a row.
    pub failing_since: Option<Micros>,
    /// Attempts in total.
    pub attempts: i64,
}

/// The outcome of publishing to a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorSettle {
    /// The position before; if the cursor is elsewhere (after a replay), nothing is written.
    pub from: Position,
    /// The position after.
    pub to: Position,
    /// Earliest time of the next attempt.
    pub next_at: Micros,
    /// Failed attempts in a row.
    pub failures: i32,
    /// Time of the first of the failed attempts in a row.
    pub failing_since: Option<Micros>,
    /// New end of the lease; a past time releases it.
    pub lease_until: Micros,
}

/// The outcome of one attempt to publish an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventDeliveryOutcome {
    /// The subscriber has the event.
    Delivered,
    /// The broker tries again later.
    Retry,
    /// The subscriber refused the event too often; the next event follows.
    SetAside,
    /// The endpoint is gone: the subscription ends.
    Gone,
}

impl EventDeliveryOutcome {
    pub const ALL: [Self; 4] = [Self::Delivered, Self::Retry, Self::SetAside, Self::Gone];

    /// The outcome on the wire, in the store and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry => "retry",
            Self::SetAside => "set_aside",
            Self::Gone => "gone",
        }
    }

    /// Reads an outcome back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// One attempt to publish an event to a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDeliveryRow {
    /// Number of the attempt, counted by subscriber.
    pub number: i64,
    pub position: Position,
    pub event_id: String,
    pub kind: String,
    /// Time of the attempt.
    pub at: Micros,
    /// Number of the attempt for this event, from 1.
    pub attempt: i32,
    /// The outcome of the attempt.
    pub outcome: EventDeliveryOutcome,
    /// HTTP status of the answer, if any.
    pub status: Option<i32>,
    /// The failure in the broker's own words.
    pub detail: Option<String>,
    /// Duration in microseconds.
    pub duration_us: i64,
}
