//! The migrations of this binary by number, name and text, in order, as `build.rs` found them. A database keeps the checksum of
//! each one that it has, so a released text never changes.
//!
//! The log's own database has `POSTGRES_AUDIT`: a change of the schema `audit` in `POSTGRES` is repeated there.

/// Migrations by number, name and text, in order.
pub(super) type MigrationSet = &'static [(i64, &'static str, &'static str)];

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
