//! `facts`: what is set once for a database, such as the check value of the master key.
//!
//! A row, and how it changes:
//!
//! - `facts`: a fact that is set once, such as the check value of the master key. Never.

use crate::store::driver::{by_each_driver, in_memory};
use crate::store::query::{Statement, Texts};
use crate::store::table::Rights;
use crate::store::{Result, Store};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("facts", "SELECT, INSERT")];

/// Finds a fact's `value`.
pub(in crate::store) fn named(name: &str) -> Statement<'_> {
    Statement::new("SELECT value FROM facts WHERE name = $1").bind(name)
}

/// Sets a fact anew.
pub(in crate::store) fn replace<'a>(name: &'a str, value: &'a [u8]) -> Statement<'a> {
    let replace = Statement::new(
        "INSERT INTO facts (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    );
    replace.bind(name).bind(value)
}

/// SQLite: writes as much as a small batch, and each time other bytes: SQLite does not write unchanged pages.
pub(in crate::store) const WRITE_PROBE: &str = "INSERT INTO facts (name, value) VALUES ('write-probe', randomblob(16384)) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// Adds a fact, unless it is set.
pub(in crate::store) const ADD: Texts = Texts {
    sqlite: "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
    postgres: "INSERT INTO facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
};

impl Store {
    /// A database-wide fact, set once: keeps the first value and returns it.
    pub async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        by_each_driver!(self, db => db.settle_fact(name, value))
    }

    /// A database-wide fact, where it was set.
    pub async fn find_fact(&self, name: &str) -> Result<Option<Vec<u8>>> {
        in_memory!(self, db => db.find_fact(name));
        self.find(named(name), |row| row.get("value")).await
    }
}
