//! `brokers`: the brokers' last signs of life.
//!
//! A row, and how it changes:
//!
//! - `brokers`: a broker's last sign of life. Updated.

use crate::store::driver::{by_each_driver, in_memory};
use crate::store::query::{Row, Statement, Texts};
use crate::store::rows::{get, micros};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::Micros;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("brokers", "SELECT, INSERT, UPDATE, DELETE")];

/// Deletes all heartbeats.
pub(in crate::store) fn forget_all() -> Statement<'static> {
    Statement::new("DELETE FROM brokers")
}

/// Deletes a broker's heartbeat.
pub(in crate::store) fn forget(broker: &str) -> Statement<'_> {
    Statement::new("DELETE FROM brokers WHERE broker = $1").bind(broker)
}

/// Deletes a broker's heartbeat if it still has that value.
pub(in crate::store) fn forget_seen(broker: &str, seen: Micros) -> Statement<'_> {
    Statement::new("DELETE FROM brokers WHERE broker = $1 AND seen_at = $2").bind(broker).bind(seen)
}

/// Finds a broker's heartbeat.
pub(in crate::store) fn find(broker: &str) -> Statement<'_> {
    Statement::new("SELECT 1 FROM brokers WHERE broker = $1").bind(broker)
}

/// See [`crate::store::Store::beat`].
pub(in crate::store) const BEAT: Texts = Texts {
    sqlite: "INSERT INTO brokers (broker, seen_at) VALUES (?, ?) \
         ON CONFLICT (broker) DO UPDATE SET seen_at = max(seen_at + 1, excluded.seen_at)",
    postgres: "INSERT INTO brokers AS b (broker, seen_at, clock_offset_us) \
         VALUES ($1, $2, $2 - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ON CONFLICT (broker) \
         DO UPDATE SET seen_at = GREATEST(b.seen_at + 1, EXCLUDED.seen_at), \
           clock_offset_us = EXCLUDED.clock_offset_us",
};

/// See [`crate::store::Store::list_clock_offsets`].
pub(in crate::store) const CLOCK_OFFSETS: &str =
    "SELECT broker, clock_offset_us FROM brokers WHERE clock_offset_us IS NOT NULL ORDER BY broker";

impl Store {
    /// Says that this broker lives: its heartbeat has another value than before.
    pub async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        by_each_driver!(self, db => db.beat(broker, now))
    }

    /// Brokers with the values of their heartbeats. A value comes from the other broker's clock, so only its
    /// change between two reads is meaningful.
    pub async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>> {
        in_memory!(self, db => db.list_heartbeats());
        let heartbeats = Statement::new("SELECT broker, seen_at FROM brokers ORDER BY broker");
        let heartbeat = |row: &dyn Row| Ok((get(row, "broker")?, micros(row, "seen_at")?));
        self.list(heartbeats, heartbeat).await
    }

    /// Brokers with the microseconds by which their clocks were ahead of the database's at their last heartbeats. None
    /// where one broker serves.
    pub async fn list_clock_offsets(&self) -> Result<Vec<(String, i64)>> {
        by_each_driver!(self, db => db.list_clock_offsets())
    }
}
