//! `event_cursors` and `event_deliveries`: how far a subscriber was told of events, and its last attempts.
//!
//! A row, and how it changes:
//!
//! - `event_cursors`: the last event that a subscriber was told, and the broker that holds the line, with its time
//!   limit. Updated.
//! - `event_deliveries`: a ring of a subscriber's last 1 000 attempts. Overwritten.

use crate::store::driver::by_driver;
use crate::store::events::{
    CursorKey, CursorRow, CursorSettle, EventDeliveryOutcome, EventDeliveryRow,
};
use crate::store::query::{Row, Statement, Texts};
use crate::store::rows::{get, micros, micros_opt, parse, position, state};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::event::Position;
use handoffd_domain::ids::Micros;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[
    ("event_cursors", "SELECT, INSERT, UPDATE, DELETE"),
    ("event_deliveries", "SELECT, INSERT, UPDATE, DELETE"),
];

/// Columns of a cursor.
const CURSOR: &str = "tenant, subscriber, leaf_index, ordinal, active, broker, lease_until, next_at, failures, failing_since, attempts";

/// Columns of an attempt to publish an event.
pub(in crate::store) const EVENT_DELIVERY: &str = "tenant, subscriber, slot, number, leaf_index, ordinal, event_id, type, at, attempt, outcome, status, detail, duration_us";

fn decode(row: &dyn Row) -> Result<CursorRow> {
    Ok(CursorRow {
        tenant: parse(row, "tenant")?,
        subscriber: parse(row, "subscriber")?,
        position: position(row)?,
        active: get(row, "active")?,
        broker: get(row, "broker")?,
        lease_until: micros(row, "lease_until")?,
        next_at: micros(row, "next_at")?,
        failures: get(row, "failures")?,
        failing_since: micros_opt(row, "failing_since")?,
        attempts: get(row, "attempts")?,
    })
}

fn delivery(row: &dyn Row) -> Result<EventDeliveryRow> {
    Ok(EventDeliveryRow {
        number: get(row, "number")?,
        position: position(row)?,
        event_id: get(row, "event_id")?,
        kind: get(row, "type")?,
        at: micros(row, "at")?,
        attempt: get(row, "attempt")?,
        outcome: state(row, "outcome", EventDeliveryOutcome::parse)?,
        status: get(row, "status")?,
        detail: get(row, "detail")?,
        duration_us: get(row, "duration_us")?,
    })
}

/// Moves a cursor back, and ends what it waited for.
pub(in crate::store) fn rewind(key: &CursorKey, at: Position) -> Statement<'static> {
    let rewind = Statement::new(
        "UPDATE event_cursors SET leaf_index = $3, ordinal = $4, next_at = 0, broker = NULL, \
           lease_until = 0, failures = 0, failing_since = NULL WHERE tenant = $1 AND subscriber = $2",
    );
    of(rewind, key).bind(at.leaf_index).bind(at.ordinal)
}

/// Lets a cursor go on, or stops it.
pub(in crate::store) fn activate(key: &CursorKey, active: bool) -> Statement<'static> {
    let activate = Statement::new(
        "UPDATE event_cursors SET active = $3, next_at = 0, failures = 0, \
           failing_since = NULL WHERE tenant = $1 AND subscriber = $2",
    );
    of(activate, key).bind(active)
}

/// Deletes a cursor with its attempts.
pub(in crate::store) fn remove(key: &CursorKey) -> [Statement<'static>; 2] {
    [
        "DELETE FROM event_deliveries WHERE tenant = $1 AND subscriber = $2",
        "DELETE FROM event_cursors WHERE tenant = $1 AND subscriber = $2",
    ]
    .map(|text| of(Statement::new(text), key))
}

/// Moves a cursor on after `attempts`; it changes no row where another broker has the line.
pub(in crate::store) fn settle(
    key: &CursorKey,
    broker: &str,
    settle: &CursorSettle,
    attempts: usize,
) -> Statement<'static> {
    let moved = Statement::new(
        "UPDATE event_cursors SET leaf_index = $6, ordinal = $7, next_at = $8, failures = $9, \
           failing_since = $10, lease_until = $11, attempts = attempts + $12 \
         WHERE tenant = $1 AND subscriber = $2 AND broker = $3 AND leaf_index = $4 AND ordinal = $5",
    );
    of(moved, key)
        .bind(broker.to_owned())
        .bind(settle.from.leaf_index)
        .bind(settle.from.ordinal)
        .bind(settle.to.leaf_index)
        .bind(settle.to.ordinal)
        .bind(settle.next_at)
        .bind(settle.failures)
        .bind(settle.failing_since)
        .bind(settle.lease_until)
        .bind(i64::try_from(attempts).unwrap_or(i64::MAX))
}

fn of(statement: Statement<'static>, key: &CursorKey) -> Statement<'static> {
    statement.bind(key.0.to_string()).bind(key.1.to_string())
}

/// Starts a cursor, or starts it anew.
pub(in crate::store) const START: Texts = Texts {
    sqlite: "INSERT INTO event_cursors (tenant, subscriber, audience, leaf_index, \
                   ordinal, \
                   active, broker, lease_until, next_at, failures, failing_since, attempts) \
                 VALUES (?, ?, ?, ?, ?, TRUE, NULL, 0, 0, 0, NULL, 0) \
                 ON CONFLICT (tenant, subscriber) DO UPDATE SET active = TRUE, \
                   leaf_index = excluded.leaf_index, ordinal = excluded.ordinal, next_at = 0, \
                   broker = NULL, lease_until = 0, failures = 0, failing_since = NULL",
    postgres: "INSERT INTO event_cursors AS c (tenant, subscriber, audience, leaf_index, \
                   ordinal, active, broker, lease_until, next_at, failures, failing_since, attempts) \
                 VALUES ($1, $2, $3, $4, $5, true, NULL, 0, 0, 0, NULL, 0) \
                 ON CONFLICT (tenant, subscriber) DO UPDATE SET active = true, \
                   leaf_index = EXCLUDED.leaf_index, ordinal = EXCLUDED.ordinal, next_at = 0, \
                   broker = NULL, lease_until = 0, failures = 0, failing_since = NULL",
};

/// See [`crate::store::Store::has_cursors`].
pub(in crate::store) const ANY: Texts = Texts {
    sqlite: "SELECT 1 FROM event_cursors WHERE active LIMIT 1",
    postgres: "SELECT EXISTS (SELECT 1 FROM event_cursors WHERE active)",
};

impl Store {
    pub async fn find_cursor(&self, key: &CursorKey) -> Result<Option<CursorRow>> {
        let text =
            format!("SELECT {CURSOR} FROM event_cursors WHERE tenant = $1 AND subscriber = $2");
        self.find(Statement::new(text).bind(&key.0).bind(key.1.to_string()), decode).await
    }

    /// Active cursors that are due, unleased, and have events after their position. A lease ending more than two
    /// minutes from now, or a pause of more than two hours, was written by a wrong clock and is ignored.
    pub async fn list_due_cursors(&self, now: Micros, limit: i64) -> Result<Vec<CursorKey>> {
        let due = Statement::new(
            "SELECT c.tenant, c.subscriber FROM event_cursors AS c \
             WHERE c.active AND NOT (c.lease_until > $1 AND c.lease_until <= $1 + 120000000) \
               AND NOT (c.next_at > $1 AND c.next_at <= $1 + 7200000000) AND CASE \
               WHEN c.audience IS NULL THEN EXISTS (SELECT 1 FROM events AS e \
                 WHERE e.tenant = c.tenant \
                   AND (e.leaf_index, e.ordinal) > (c.leaf_index, c.ordinal)) \
               ELSE EXISTS (SELECT 1 FROM events AS e \
                 WHERE e.tenant = c.tenant AND e.audience = c.audience \
                   AND (e.leaf_index, e.ordinal) > (c.leaf_index, c.ordinal)) END \
             ORDER BY c.next_at, c.tenant, c.subscriber LIMIT $2",
        );
        let key = |row: &dyn Row| Ok((parse(row, "tenant")?, parse(row, "subscriber")?));
        self.list(due.bind(now).bind(limit), key).await
    }

    /// Whether any tenant has an active cursor.
    pub async fn has_cursors(&self) -> Result<bool> {
        by_driver!(self, db => db.has_cursors())
    }

    /// Takes a cursor's lease if it is free and due.
    pub async fn claim_cursor(
        &self,
        key: &CursorKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<CursorRow>> {
        let text = format!(
            "UPDATE event_cursors SET broker = $1, lease_until = $2 \
             WHERE tenant = $3 AND subscriber = $4 AND active \
               AND NOT (lease_until > $5 AND lease_until <= $5 + 120000000) \
               AND NOT (next_at > $5 AND next_at <= $5 + 7200000000) RETURNING {CURSOR}"
        );
        let claim = Statement::new(text).bind(broker).bind(until);
        self.change_one(claim.bind(&key.0).bind(key.1.to_string()).bind(now), decode).await
    }

    /// Extends all leases of a broker; returns their number.
    pub async fn renew_cursors(&self, broker: &str, now: Micros, until: Micros) -> Result<u64> {
        let renew = Statement::new(
            "UPDATE event_cursors SET lease_until = $1 WHERE broker = $2 AND lease_until > $3",
        );
        self.change(renew.bind(until).bind(broker).bind(now)).await
    }

    /// Moves a cursor and stores the attempts in one transaction; `false`, with nothing written, where the lease
    /// was lost or the cursor was moved meanwhile.
    pub async fn settle_cursor(
        &self,
        key: &CursorKey,
        broker: &str,
        settle: &CursorSettle,
        log: &[EventDeliveryRow],
    ) -> Result<bool> {
        by_driver!(self, db => db.settle_cursor(key, broker, settle, log))
    }

    /// The last attempts of a subscriber, newest first.
    pub async fn list_event_deliveries(
        &self,
        key: &CursorKey,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<EventDeliveryRow>> {
        let text = format!(
            "SELECT {EVENT_DELIVERY} FROM event_deliveries \
             WHERE tenant = $1 AND subscriber = $2 AND number < $3 ORDER BY number DESC LIMIT $4"
        );
        let list = Statement::new(text).bind(&key.0).bind(key.1.to_string());
        self.list(list.bind(before.unwrap_or(i64::MAX)).bind(limit), delivery).await
    }
}
