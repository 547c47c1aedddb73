//! The cold tier's queries; see [`crate::store::cold`].

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgRow};

use super::batch::column;
use super::failure::failed;
use super::log::kept_contents;
use super::pool::bound;
use super::{PostgresStore, answered, batched, rows};
use crate::store::cold::{
    Archivable, ArchiveMark, ColdStore, ExclusiveLease, Frame, HotContent, PurgeMark,
    SegmentContents,
};
use crate::store::tables::{contents, leases, marks};
use crate::store::{Result, StoredContent};
use handoffd_domain::ids::{ContentId, Micros, TenantId};

#[async_trait]
impl ColdStore for PostgresStore {
    async fn take_lease(&self, lease: &ExclusiveLease, now: Micros, until: Micros) -> Result<bool> {
        answered(async {
            sqlx::query(
                "INSERT INTO leases AS l (name, owner, held_until) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE \
             SET owner = EXCLUDED.owner, held_until = EXCLUDED.held_until \
             WHERE l.owner = EXCLUDED.owner OR l.held_until <= $4",
            )
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

    async fn release_lease(&self, lease: &ExclusiveLease) -> Result<()> {
        answered(async {
            let released = bound(leases::release(lease)).execute(&self.pool).await;
            released.map_err(failed).map(drop)
        })
        .await
    }

    async fn find_archive_mark(&self, tenant: &TenantId) -> Result<ArchiveMark> {
        answered(marks::find_archive(self, tenant)).await
    }

    async fn keep_archive_mark(&self, tenant: &TenantId, mark: ArchiveMark) -> Result<()> {
        answered(marks::keep_archive(self, tenant, mark)).await
    }

    async fn find_purge_mark(&self, tenant: &TenantId) -> Result<PurgeMark> {
        answered(marks::find_purge(self, tenant)).await
    }

    async fn keep_purge_mark(
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

    async fn list_archivable(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Archivable>> {
        answered(async {
            let found = sqlx::query(
                "SELECT leaf_index, recorded_at, body, content_id, task_id, handoff_id \
             FROM audit.records WHERE tenant = $1 AND leaf_index >= $2 AND leaf_index < $2 + $3 \
             ORDER BY leaf_index",
            )
            .bind(tenant.as_str())
            .bind(from)
            .bind(limit.max(0))
            .fetch_all(&self.log)
            .await
            .map_err(failed)?;
            let hot = sqlx::query(
                "SELECT r.leaf_index, c.content_id, length(c.bytes)::bigint AS size, \
               c.content_id IN (SELECT h.content_id FROM handoffs AS h \
                 WHERE h.tenant = $1 AND h.status IN ('PENDING', 'ACCEPTED') \
                   AND h.content_id IS NOT NULL) \
               OR c.content_id IN (SELECT h.sent_id FROM handoffs AS h \
                 WHERE h.tenant = $1 AND h.status IN ('PENDING', 'ACCEPTED') \
                   AND h.sent_id IS NOT NULL) \
               OR EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = $1 \
                 AND h.handoff_id = r.handoff_id AND h.status IN ('PENDING', 'ACCEPTED')) \
               OR EXISTS (SELECT 1 FROM returns AS b WHERE b.tenant = $1 \
                 AND b.handoff_id = r.handoff_id) \
               OR EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.tenant = $1 \
                 AND d.handoff_id = r.handoff_id AND d.status = 'OPEN') \
               OR EXISTS (SELECT 1 FROM tasks AS t WHERE t.tenant = $1 \
                 AND t.task_id = r.task_id AND t.status = 'ESCALATED') AS held \
             FROM UNNEST($2::bigint[], $3::text[], $4::text[], $5::text[]) \
               AS r(leaf_index, content_id, task_id, handoff_id) \
             JOIN contents AS c ON c.tenant = $1 AND c.content_id = r.content_id \
             WHERE c.salt IS NOT NULL AND c.bytes IS NOT NULL",
            )
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

    async fn list_contents(
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

    async fn settle_cold(
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

    async fn list_to_forget(&self, tenant: &TenantId, limit: i64) -> Result<Vec<String>> {
        answered(async {
            sqlx::query(
                "SELECT DISTINCT segment FROM contents \
             WHERE tenant = $1 AND salt IS NULL AND segment IS NOT NULL ORDER BY segment LIMIT $2",
            )
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

    async fn list_inhabitants(&self, tenant: &TenantId, segment: &str) -> Result<SegmentContents> {
        answered(async {
            let found = bound(contents::of_segment(tenant, segment));
            let found = found.fetch_all(&self.pool).await.map_err(failed)?;
            let mut inhabitants = SegmentContents::default();
            for row in &found {
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

    async fn move_segment(
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

    async fn list_unreferenced(
        &self,
        tenant: &TenantId,
        segments: &[String],
    ) -> Result<Vec<String>> {
        answered(async {
            let known: BTreeSet<String> = sqlx::query(
                "SELECT s.name FROM UNNEST($1::text[]) AS s(name) WHERE EXISTS \
               (SELECT 1 FROM contents AS c WHERE c.tenant = $2 AND c.segment = s.name)",
            )
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
    let found = sqlx::query("SELECT 1 FROM leases WHERE name = $1 AND owner = $2 FOR UPDATE")
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
    let sql = format!(
        "UPDATE contents AS c SET bytes = NULL, codec = 'zstd', segment = $1, \
           seg_offset = f.seg_offset, seg_length = f.seg_length \
         FROM UNNEST($2::text[], $3::bigint[], $4::bigint[]) AS f(id, seg_offset, seg_length) \
         WHERE c.tenant = $5 AND c.content_id = f.id AND {standing}"
    );
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
