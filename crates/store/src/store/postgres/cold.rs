//! The cold tier's queries; see [`crate::store::cold`].

use crate::store::query::Dialect;
use crate::store::tables::{audit, contents, leases, marks};
use std::collections::{BTreeMap, BTreeSet};

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgRow};

use super::batch::column;
use super::failure::failed;
use super::log::kept_contents;
use super::pool::bound;
use super::{PostgresStore, answered, batched, rows};
use crate::store::cold::{
    Archivable, ExclusiveLease, Frame, HotContent, PurgeMark, SegmentContents,
};
use crate::store::{Result, StoredContent};
use handoffd_domain::ids::{ContentId, Micros, TenantId};

impl PostgresStore {
    pub(in crate::store) async fn take_lease(
        &self,
        lease: &ExclusiveLease,
        now: Micros,
        until: Micros,
    ) -> Result<bool> {
        answered(async {
            sqlx::query(leases::TAKE.postgres)
                .bind(&lease.name)
                .bind(&lease.owner)
                .bind(until.0)
                .bind(now.0)
                .execute(&self.pool)
                .await
                .map_err(failed)
                .map(|done| done.rows_affected() == 1)
        })
        .await
    }

    pub(in crate::store) async fn release_lease(&self, lease: &ExclusiveLease) -> Result<()> {
        answered(async {
            let released = bound(leases::release(lease)).execute(&self.pool).await;
            released.map_err(failed).map(drop)
        })
        .await
    }

    pub(in crate::store) async fn keep_purge_mark(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        mark: PurgeMark,
    ) -> Result<bool> {
        batched(async {
            let mut tx = self.pool.begin().await.map_err(failed)?;
            if !holds(&mut tx, lease).await? {
                return Ok(false);
            }
            bound(marks::keep_purge(tenant, mark)).execute(&mut *tx).await.map_err(failed)?;
            tx.commit().await.map_err(failed)?;
            Ok(true)
        })
        .await
    }

    pub(in crate::store) async fn list_archivable(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Archivable>> {
        answered(async {
            let found = sqlx::query(audit::ARCHIVABLE.postgres)
                .bind(tenant.as_str())
                .bind(from)
                .bind(limit.max(0))
                .fetch_all(&self.log)
                .await
                .map_err(failed)?;
            let hot = sqlx::query(contents::HOT)
                .bind(tenant.as_str())
                .bind(column::<i64>(&found, "leaf_index")?)
                .bind(column::<Option<String>>(&found, "content_id")?)
                .bind(column::<Option<String>>(&found, "task_id")?)
                .bind(column::<Option<String>>(&found, "handoff_id")?)
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?;
            let mut hot = hot.iter().map(hot_content).collect::<Result<BTreeMap<_, _>>>()?;
            found
                .iter()
                .map(|row| {
                    let leaf_index = rows::get(row, "leaf_index")?;
                    Ok(Archivable {
                        leaf_index,
                        recorded_at: Micros(rows::get(row, "recorded_at")?),
                        body: rows::get(row, "body")?,
                        content: hot.remove(&leaf_index),
                    })
                })
                .collect()
        })
        .await
    }

    pub(in crate::store) async fn list_contents(
        &self,
        tenant: &TenantId,
        ids: &[ContentId],
    ) -> Result<Vec<StoredContent>> {
        answered(async {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            let found = kept_contents(&self.pool, tenant, &ids).await?;
            Ok(found.into_values().collect())
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
        batched(async {
            let mut tx = self.pool.begin().await.map_err(failed)?;
            if !holds(&mut tx, lease).await? {
                return Ok(false);
            }
            let standing = "c.bytes IS NOT NULL AND c.salt IS NOT NULL";
            if place(&mut tx, tenant, segment, frames, standing, None).await? != frames.len() {
                return Ok(false);
            }
            tx.commit().await.map_err(failed)?;
            Ok(true)
        })
        .await
    }

    pub(in crate::store) async fn list_to_forget(
        &self,
        tenant: &TenantId,
        limit: i64,
    ) -> Result<Vec<String>> {
        answered(async {
            sqlx::query(contents::TO_FORGET.postgres)
                .bind(tenant.as_str())
                .bind(limit.max(0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(|row| rows::get(row, "segment"))
                .collect()
        })
        .await
    }

    pub(in crate::store) async fn list_inhabitants(
        &self,
        tenant: &TenantId,
        segment: &str,
    ) -> Result<SegmentContents> {
        answered(async {
            let contents = bound(contents::of_segment(tenant, segment));
            let contents = contents.fetch_all(&self.pool).await.map_err(failed)?;
            let mut inhabitants = SegmentContents::default();
            for row in &contents {
                let id = rows::parse(row, "content_id")?;
                if rows::get(row, "erased")? {
                    inhabitants.erased.push(id);
                } else {
                    let offset = rows::unsigned(row, "seg_offset")?;
                    let length = rows::unsigned(row, "seg_length")?;
                    inhabitants.live.push(Frame { id, offset, length });
                }
            }
            Ok(inhabitants)
        })
        .await
    }

    pub(in crate::store) async fn move_segment(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        from: &str,
        to: &str,
        frames: &[Frame],
    ) -> Result<bool> {
        batched(async {
            let mut tx = self.pool.begin().await.map_err(failed)?;
            if !holds(&mut tx, lease).await? {
                return Ok(false);
            }
            let standing = "c.salt IS NOT NULL AND c.segment = $6";
            let moved = place(&mut tx, tenant, to, frames, standing, Some(from)).await?;
            let left = clear(&mut tx, tenant, from).await?;
            if moved != frames.len() || left != 0 {
                return Ok(false);
            }
            tx.commit().await.map_err(failed)?;
            Ok(true)
        })
        .await
    }

    pub(in crate::store) async fn list_unreferenced(
        &self,
        tenant: &TenantId,
        segments: &[String],
    ) -> Result<Vec<String>> {
        answered(async {
            let known: BTreeSet<String> = sqlx::query(contents::REFERENCED.postgres)
                .bind(segments)
                .bind(tenant.as_str())
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(|row| rows::get(row, "name"))
                .collect::<Result<_>>()?;
            Ok(segments.iter().filter(|segment| !known.contains(*segment)).cloned().collect())
        })
        .await
    }
}

fn hot_content(row: &PgRow) -> Result<(i64, HotContent)> {
    let content = HotContent {
        id: rows::parse(row, "content_id")?,
        size: rows::get(row, "size")?,
        held: rows::get::<Option<bool>>(row, "held")?.unwrap_or(false),
    };
    Ok((rows::get(row, "leaf_index")?, content))
}

/// Whether the owner still holds the lease; locked, so that it cannot change before the commit.
async fn holds(conn: &mut PgConnection, lease: &ExclusiveLease) -> Result<bool> {
    let found = sqlx::query(leases::HOLDS.postgres)
        .bind(&lease.name)
        .bind(&lease.owner)
        .fetch_optional(conn)
        .await
        .map_err(failed)?;
    Ok(found.is_some())
}

/// Moves unchanged contents to a segment; returns their number.
async fn place(
    conn: &mut PgConnection,
    tenant: &TenantId,
    segment: &str,
    frames: &[Frame],
    standing: &str,
    from: Option<&str>,
) -> Result<usize> {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let ids: Vec<_> = frames.iter().map(|frame| frame.id.to_string()).collect();
    let offsets: Vec<_> = frames.iter().map(|frame| signed(frame.offset)).collect();
    let lengths: Vec<_> = frames.iter().map(|frame| signed(frame.length)).collect();
    let sql = contents::place(Dialect::Postgres, standing);
    let query = sqlx::query(AssertSqlSafe(sql)).bind(segment);
    let query = query.bind(ids).bind(offsets).bind(lengths).bind(tenant.as_str());
    let query = if let Some(from) = from { query.bind(from) } else { query };
    let done = query.execute(conn).await.map_err(failed)?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}

/// Drops the locations of erased contents in a segment; returns the number of other contents left there.
async fn clear(conn: &mut PgConnection, tenant: &TenantId, segment: &str) -> Result<i64> {
    let drop = bound(contents::drop_places(tenant, segment));
    drop.execute(&mut *conn).await.map_err(failed)?;
    let left = bound(contents::count(tenant, segment)).fetch_one(conn).await.map_err(failed)?;
    rows::get(&left, "n")
}
