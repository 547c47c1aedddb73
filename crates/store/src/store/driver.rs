//! The drivers behind the one store, and the statements that each carries out by itself.

use super::Result;
use super::Store;
#[cfg(feature = "simulation")]
use super::memory::MemoryStore;
use super::postgres::PostgresStore;
use super::query::{Decode, Dialect, Statement};
use super::sqlite::SqliteStore;

/// The database that a store works on.
pub(super) enum Driver {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    #[cfg(feature = "simulation")]
    Memory(MemoryStore),
}

/// Has the store's database carry out an operation in its own way. In a box: else the future of each caller has the room of the
/// larger of the drivers' futures.
macro_rules! by_driver {
    ($store:expr, $db:ident => $call:expr) => {
        match &$store.driver {
            $crate::store::Driver::Sqlite($db) => Box::pin($call).await,
            $crate::store::Driver::Postgres($db) => Box::pin($call).await,
            #[cfg(feature = "simulation")]
            $crate::store::Driver::Memory(_) => $crate::store::memory::absent(),
        }
    };
}
pub(super) use by_driver;

/// As `by_driver`, of an operation that the simulation's store has, too.
macro_rules! by_each_driver {
    ($store:expr, $db:ident => $call:expr) => {
        match &$store.driver {
            $crate::store::Driver::Sqlite($db) => Box::pin($call).await,
            $crate::store::Driver::Postgres($db) => Box::pin($call).await,
            #[cfg(feature = "simulation")]
            $crate::store::Driver::Memory($db) => Box::pin($call).await,
        }
    };
}
pub(super) use by_each_driver;

/// Begins an operation of one text that the simulation's store carries out without SQL.
macro_rules! in_memory {
    ($store:expr, $db:ident => $call:expr) => {
        #[cfg(feature = "simulation")]
        if let $crate::store::Driver::Memory($db) = &$store.driver {
            return Box::pin($call).await;
        }
    };
}
pub(super) use in_memory;

impl Store {
    /// Which texts the database takes.
    pub(super) const fn dialect(&self) -> Dialect {
        match &self.driver {
            Driver::Sqlite(_) => Dialect::Sqlite,
            Driver::Postgres(_) => Dialect::Postgres,
            // It refuses each statement, whichever dialect that has.
            #[cfg(feature = "simulation")]
            Driver::Memory(_) => Dialect::Sqlite,
        }
    }

    /// Reads all rows that a statement finds.
    pub(super) async fn list<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Vec<T>> {
        by_driver!(self, db => db.list(statement, decode))
    }

    /// Reads the first row, if there is one.
    pub(super) async fn find<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        by_driver!(self, db => db.find(statement, decode))
    }

    /// Changes rows; returns their number.
    pub(super) async fn change(&self, statement: Statement<'_>) -> Result<u64> {
        by_driver!(self, db => db.change(statement))
    }

    /// Changes one row at most, and reads what `RETURNING` says of it.
    pub(super) async fn change_one<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        by_driver!(self, db => db.change_one(statement, decode))
    }

    /// Inserts a row that `ON CONFLICT DO NOTHING` may keep out; reads the row that did.
    pub(super) async fn insert_or_find<T: Send>(
        &self,
        insert: Statement<'_>,
        find: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        by_driver!(self, db => db.insert_or_find(insert, find, decode))
    }
}
