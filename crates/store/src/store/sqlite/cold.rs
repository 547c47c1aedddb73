//! The cold tier's queries; see [`crate::store::cold`].

use crate::store::query::{Dialect, Row};
use crate::store::tables::{audit, contents, leases, marks};
use std::collections::BTreeSet;

use super::batch::json;
use super::connection::Ended;
use super::db::Db;
use super::{SqliteStore, rows};
use crate::store::cold::{
    Archivable, ExclusiveLease, Frame, HotContent, PurgeMark, SegmentContents,
};
use crate::store::{Result, StoredContent};
use handoffd_domain::ids::{ContentId, Micros, TenantId};

impl SqliteStore {
    pub(in crate::store) async fn take_lease(
        &self,
        lease: &ExclusiveLease,
        now: Micros,
        until: Micros,
    ) -> Result<bool> {
        self.write(|db| {
            Ok(db
                .query(leases::TAKE.sqlite)
                .bind(&lease.name)
                .bind(&lease.owner)
                .bind(until.0)
                .bind(now.0)
                .execute()?
                == 1)
        })
        .await
    }

    pub(in crate::store) async fn release_lease(&self, lease: &ExclusiveLease) -> Result<()> {
        self.write(|db| db.statement(&leases::release(lease)).execute().map(drop)).await
    }

    pub(in crate::store) async fn keep_purge_mark(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        mark: PurgeMark,
    ) -> Result<bool> {
        self.under(lease, |db| {
            db.statement(&marks::keep_purge(tenant, mark)).execute().map(|_| true)
        })
        .await
    }

    pub(in crate::store) async fn list_archivable(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Archivable>> {
        self.read(|db| {
            db.query(audit::ARCHIVABLE.sqlite)
                .bind(tenant.as_str())
                .bind(from)
                .bind(limit.max(0))
                .list(archivable)
        })
        .await
    }

    pub(in crate::store) async fn list_contents(
        &self,
        tenant: &TenantId,
        ids: &[ContentId],
    ) -> Result<Vec<StoredContent>> {
        self.read(|db| {
            db.query(&contents::of_ids(Dialect::Sqlite))
                .bind(json(&ids)?)
                .bind(tenant.as_str())
                .list(|row| {
                    Ok(StoredContent {
                        id: rows::get(row, "content_id")?,
                        kept: rows::content_kept(row)?,
                    })
                })
        })
        .await
    }

    pub(in crate::store) async fn settle_cold(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        segment: &str,
        frames: &[Frame],
    ) -> Result<bool> {
        self.under(lease, |db| {
            let sql = "bytes IS NOT NULL AND salt IS NOT NULL";
            Ok(place(db, tenant, segment, frames, sql, None)? == frames.len())
        })
        .await
    }

    pub(in crate::store) async fn list_to_forget(
        &self,
        tenant: &TenantId,
        limit: i64,
    ) -> Result<Vec<String>> {
        self.read(|db| {
            db.query(contents::TO_FORGET.sqlite)
                .bind(tenant.as_str())
                .bind(limit.max(0))
                .list(|row| rows::get(row, "segment"))
        })
        .await
    }

    pub(in crate::store) async fn list_inhabitants(
        &self,
        tenant: &TenantId,
        segment: &str,
    ) -> Result<SegmentContents> {
        let mut inhabitants = SegmentContents::default();
        let read = |row: &dyn Row| {
            let id = rows::parse(row, "content_id")?;
            if row.get("erased")? {
                inhabitants.erased.push(id);
            } else {
                let offset = rows::unsigned(row, "seg_offset")?;
                let length = rows::unsigned(row, "seg_length")?;
                inhabitants.live.push(Frame { id, offset, length });
            }
            Ok(())
        };
        self.read(|db| db.statement(&contents::of_segment(tenant, segment)).each(read)).await?;
        Ok(inhabitants)
    }

    pub(in crate::store) async fn move_segment(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        from: &str,
        to: &str,
        frames: &[Frame],
    ) -> Result<bool> {
        self.under(lease, |db| {
            let sql = "salt IS NOT NULL AND segment = ?4";
            let moved = place(db, tenant, to, frames, sql, Some(from))?;
            let left = clear(db, tenant, from)?;
            Ok(moved == frames.len() && left == 0)
        })
        .await
    }

    pub(in crate::store) async fn list_unreferenced(
        &self,
        tenant: &TenantId,
        segments: &[String],
    ) -> Result<Vec<String>> {
        let ids = json(&segments)?;
        let known: BTreeSet<String> = self
            .read(|db| {
                db.query(contents::REFERENCED.sqlite)
                    .bind(ids.as_str())
                    .bind(tenant.as_str())
                    .list(|row| rows::get(row, "value"))
            })
            .await?;
        Ok(segments.iter().filter(|segment| !known.contains(*segment)).cloned().collect())
    }
}

impl SqliteStore {
    /// Writes while the owner holds the lease: a write transaction keeps other owners out. Returns whether it was
    /// held, and everything was written as `write` wants it; else nothing is.
    async fn under(
        &self,
        lease: &ExclusiveLease,
        write: impl FnOnce(&Db) -> Result<bool>,
    ) -> Result<bool> {
        self.transaction(|db| {
            let held =
                db.query(leases::HOLDS.sqlite).bind(&lease.name).bind(&lease.owner).exists()?;
            let done = held && write(db)?;
            Ok(Ended { value: done, keep: done, records: 0 })
        })
        .await
    }
}

fn archivable(row: &dyn Row) -> Result<Archivable> {
    let content = match rows::parse_opt(row, "hot")? {
        Some(id) => Some(HotContent {
            id,
            size: rows::get(row, "size")?,
            held: rows::get::<Option<bool>>(row, "held")?.unwrap_or(false),
        }),
        None => None,
    };
    Ok(Archivable {
        leaf_index: rows::get(row, "leaf_index")?,
        recorded_at: Micros(rows::get(row, "recorded_at")?),
        body: rows::get(row, "body")?,
        content,
    })
}

/// Moves unchanged contents to a segment; returns their number.
fn place(
    db: &Db,
    tenant: &TenantId,
    segment: &str,
    frames: &[Frame],
    standing: &str,
    from: Option<&str>,
) -> Result<usize> {
    let frames: Vec<_> =
        frames.iter().map(|frame| (frame.id.to_string(), frame.offset, frame.length)).collect();
    let sql = contents::place(Dialect::Sqlite, standing);
    let query = db.query(&sql).bind(segment).bind(json(&frames)?);
    let query = query.bind(tenant.as_str());
    let query = if let Some(from) = from { query.bind(from) } else { query };
    Ok(usize::try_from(query.execute()?).unwrap_or(usize::MAX))
}

/// Drops the locations of erased contents in a segment; returns the number of other contents left there.
fn clear(db: &Db, tenant: &TenantId, segment: &str) -> Result<i64> {
    db.statement(&contents::drop_places(tenant, segment)).execute()?;
    db.statement(&contents::count(tenant, segment)).one(|row| row.get("n"))
}
