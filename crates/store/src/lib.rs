//! The store of handoffd: Postgres and SQLite behind one interface, with the clock and the named steps of fault tests.

pub mod clock;
pub mod fault;
pub mod store;
