//! `leases`: duties that one broker does at a time.
//!
//! A row, and how it changes:
//!
//! - `leases`: the broker that does a duty which one broker does at a time. Updated.

use crate::store::cold::ExclusiveLease;
use crate::store::query::{Statement, Texts};
use crate::store::table::Rights;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("leases", "SELECT, INSERT, UPDATE, DELETE")];

/// See [`crate::store::ColdStore::release_lease`].
pub(in crate::store) fn release(lease: &ExclusiveLease) -> Statement<'_> {
    let release = Statement::new("DELETE FROM leases WHERE name = $1 AND owner = $2");
    release.bind(&lease.name).bind(&lease.owner)
}

/// See [`crate::store::ColdStore::take_lease`].
pub(in crate::store) const TAKE: Texts = Texts {
    sqlite: "INSERT INTO leases (name, owner, held_until) VALUES (?, ?, ?) \
             ON CONFLICT (name) DO UPDATE \
             SET owner = excluded.owner, held_until = excluded.held_until \
             WHERE leases.owner = excluded.owner OR leases.held_until <= ?",
    postgres: "INSERT INTO leases AS l (name, owner, held_until) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE \
             SET owner = EXCLUDED.owner, held_until = EXCLUDED.held_until \
             WHERE l.owner = EXCLUDED.owner OR l.held_until <= $4",
};

/// Whether the owner holds the lease. Postgres locks it, so that it cannot change before the commit.
pub(in crate::store) const HOLDS: Texts = Texts {
    sqlite: "SELECT 1 FROM leases WHERE name = ? AND owner = ?",
    postgres: "SELECT 1 FROM leases WHERE name = $1 AND owner = $2 FOR UPDATE",
};
