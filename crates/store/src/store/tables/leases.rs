//! `leases`: duties that one broker does at a time.
//!
//! A row, and how it changes:
//!
//! - `leases`: the broker that does a duty which one broker does at a time. Updated.

use crate::store::cold::ExclusiveLease;
use crate::store::query::Statement;
use crate::store::table::Rights;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("leases", "SELECT, INSERT, UPDATE, DELETE")];

/// See [`crate::store::ColdStore::release_lease`].
pub(in crate::store) fn release(lease: &ExclusiveLease) -> Statement<'_> {
    let release = Statement::new("DELETE FROM leases WHERE name = $1 AND owner = $2");
    release.bind(&lease.name).bind(&lease.owner)
}
