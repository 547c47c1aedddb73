//! `archive_marks` and `purge_marks`: the places up to which the archive, or the retention, has gone through a log.
//!
//! A row, and how it changes:
//!
//! - `archive_marks`, `purge_marks`: the place up to which the archive, or the retention, has gone through a log.
//!   Updated.

use crate::store::cold::{ArchiveMark, ExclusiveLease, PurgeMark};
use crate::store::driver::by_driver;
use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::TenantId;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights =
    &[("archive_marks", "SELECT, INSERT, UPDATE"), ("purge_marks", "SELECT, INSERT, UPDATE")];

fn decode(row: &dyn Row) -> Result<ArchiveMark> {
    Ok(ArchiveMark {
        done_below: get(row, "done_below")?,
        scanned_to: get(row, "scanned_to")?,
        rescan_at: micros(row, "rescan_at")?,
    })
}

/// Writes a purge's mark, under its lease.
pub(in crate::store) fn keep_purge(tenant: &TenantId, mark: PurgeMark) -> Statement<'static> {
    Statement::new(
        "INSERT INTO purge_marks (tenant, done_below, scanned_to, rescan_at, unclean) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant) DO UPDATE \
         SET done_below = EXCLUDED.done_below, scanned_to = EXCLUDED.scanned_to, \
             rescan_at = EXCLUDED.rescan_at, unclean = EXCLUDED.unclean",
    )
    .bind(tenant.to_string())
    .bind(mark.scan.done_below)
    .bind(mark.scan.scanned_to)
    .bind(mark.scan.rescan_at)
    .bind(mark.unclean)
}

impl Store {
    /// A tenant's archive mark; the initial one where none is stored.
    pub async fn find_archive_mark(&self, tenant: &TenantId) -> Result<ArchiveMark> {
        let mark = Statement::new(
            "SELECT done_below, scanned_to, rescan_at FROM archive_marks WHERE tenant = $1",
        );
        Ok(self.find(mark.bind(tenant), decode).await?.unwrap_or_default())
    }

    /// Stores a tenant's archive mark.
    pub async fn keep_archive_mark(&self, tenant: &TenantId, mark: ArchiveMark) -> Result<()> {
        let keep = Statement::new(
            "INSERT INTO archive_marks (tenant, done_below, scanned_to, rescan_at) \
             VALUES ($1, $2, $3, $4) ON CONFLICT (tenant) DO UPDATE \
             SET done_below = EXCLUDED.done_below, scanned_to = EXCLUDED.scanned_to, \
                 rescan_at = EXCLUDED.rescan_at",
        );
        let keep = keep.bind(tenant).bind(mark.done_below).bind(mark.scanned_to);
        self.change(keep.bind(mark.rescan_at)).await.map(|_| ())
    }

    /// A tenant's purge mark; the initial one where none is stored.
    pub async fn find_purge_mark(&self, tenant: &TenantId) -> Result<PurgeMark> {
        let mark = Statement::new(
            "SELECT done_below, scanned_to, rescan_at, unclean FROM purge_marks WHERE tenant = $1",
        );
        let purge =
            |row: &dyn Row| Ok(PurgeMark { scan: decode(row)?, unclean: get(row, "unclean")? });
        Ok(self.find(mark.bind(tenant), purge).await?.unwrap_or_default())
    }

    /// Stores a tenant's purge mark for the holder of a lease; `false`, and nothing stored, where it is not held any more.
    pub async fn keep_purge_mark(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        mark: PurgeMark,
    ) -> Result<bool> {
        by_driver!(self, db => db.keep_purge_mark(tenant, lease, mark))
    }
}
