//! `leases`: duties that one broker does at a time.
//!
//! A row, and how it changes:
//!
//! - `leases`: the broker that does a duty which one broker does at a time. Updated.

use crate::store::cold::ExclusiveLease;
use crate::store::driver::by_driver;
use crate::store::query::{Statement, Texts};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::Micros;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("leases", "SELECT, INSERT, UPDATE, DELETE")];

/// See [`crate::store::Store::release_lease`].
pub(in crate::store) fn release(lease: &ExclusiveLease) -> Statement<'_> {
    let release = Statement::new("DELETE FROM leases WHERE name = $1 AND owner = $2");
    release.bind(&lease.name).bind(&lease.owner)
}

/// See [`crate::store::Store::take_lease`].
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

impl Store {
    /// Takes or renews a lease; `false` where another owner holds it.
    pub async fn take_lease(
        &self,
        lease: &ExclusiveLease,
        now: Micros,
        until: Micros,
    ) -> Result<bool> {
        by_driver!(self, db => db.take_lease(lease, now, until))
    }

    /// Releases a lease if `owner` still holds it.
    pub async fn release_lease(&self, lease: &ExclusiveLease) -> Result<()> {
        by_driver!(self, db => db.release_lease(lease))
    }
}
