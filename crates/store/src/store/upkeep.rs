//! The database itself, apart from its rows: migrations, roles, connections, upkeep, and notifications between brokers.

#![allow(clippy::missing_errors_doc, reason = "each operation fails as `StoreError` says")]

use super::driver::{Driver, by_driver, by_each_driver};
use super::erasure::ScrubOutcome;
use super::lists::Depths;
use super::{Result, SchemaState, SealChange, Store, Wakeups};
use handoffd_domain::ids::Micros;

impl Store {
    /// This store's open connections: in use, idle.
    pub fn connections(&self) -> (u32, u32) {
        match &self.driver {
            Driver::Sqlite(db) => db.connections(),
            Driver::Postgres(db) => db.connections(),
            #[cfg(feature = "simulation")]
            Driver::Memory(_) => (0, 0),
        }
    }

    /// Closes all connections in order.
    pub async fn close(&self) {
        match &self.driver {
            Driver::Sqlite(db) => db.close().await,
            Driver::Postgres(db) => db.close().await,
            #[cfg(feature = "simulation")]
            Driver::Memory(_) => {}
        }
    }

    /// Looks at the migrations applied, the log's triggers and who has rights on the log. Changes nothing.
    pub async fn inspect(&self) -> Result<SchemaState> {
        by_each_driver!(self, db => db.inspect())
    }

    /// Applies the migrations under a lock; returns the number of new ones.
    pub async fn migrate(&self) -> Result<usize> {
        by_each_driver!(self, db => db.migrate())
    }

    /// Creates or updates a database role that may serve, and in the log only insert and read. Refused by
    /// databases without roles, and for a role with further rights by other ways.
    pub async fn grant_serving(&self, role: &str) -> Result<()> {
        by_each_driver!(self, db => db.grant_serving(role))
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<()> {
        by_each_driver!(self, db => db.ping())
    }

    /// Writes as a batch does: a record in the log, which is rolled back, and a row that is committed and synchronised.
    /// An error means that the database takes no batch now. `broker` and `now` are those of a heartbeat.
    pub async fn probe_write(&self, broker: &str, now: Micros) -> Result<()> {
        by_each_driver!(self, db => db.probe_write(broker, now))
    }

    /// Replaces everything that is sealed under the master key, and sets facts, in one transaction; returns the number of
    /// values that were replaced.
    pub async fn change_seals(
        &self,
        change: SealChange<'_>,
        facts: &[(&str, Vec<u8>)],
    ) -> Result<u64> {
        by_each_driver!(self, db => db.change_seals(change, facts))
    }

    /// Counts for metrics; `idle_since` is when a task must have begun to wait to count as idle.
    pub async fn depths(&self, idle_since: Micros) -> Result<Depths> {
        by_each_driver!(self, db => db.depths(idle_since))
    }

    /// Has the database analyse tables that outgrew its statistics, so that it drops plans made for empty tables,
    /// and decides whether plans may be cached. Returns whether this is useful here, and should be called every
    /// second.
    pub async fn tend(&self) -> Result<bool> {
        by_each_driver!(self, db => db.tend())
    }

    /// Removes erased data from the database's files, as far as this database can. May take long, and may be
    /// repeated.
    pub async fn scrub(&self) -> Result<ScrubOutcome> {
        by_driver!(self, db => db.scrub())
    }

    /// Notifies the other brokers of new outbox rows.
    pub async fn notify(&self) -> Result<()> {
        by_each_driver!(self, db => db.notify())
    }

    /// Subscribes to the other brokers' notifications.
    pub async fn listen(&self) -> Result<Box<dyn Wakeups>> {
        by_each_driver!(self, db => db.listen())
    }
}
