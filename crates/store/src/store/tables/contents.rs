//! `contents`: the contents of commitments.
//!
//! A row, and how it changes:
//!
//! - `contents`: the content of a commitment: salt, and zstd or raw bytes. Erased: both are null. Ended by retention:
//!   `purged_at`. Archived: the bytes are null, and `segment`, `seg_offset`, `seg_length` name their place. Moved; erased.

use crate::store::cold::{ExclusiveLease, Frame, SegmentContents};
use crate::store::driver::{by_driver, in_memory};
use crate::store::query::{Dialect, Statement, Texts};
use crate::store::rows::content_kept;
use crate::store::table::Rights;
use crate::store::{Result, Store, StoredContent};
use handoffd_domain::ids::{ContentId, TenantId};

/// Rights of the serving role. Records commit to a row: it is erased or moved to the archive, and otherwise as it was
/// written.
pub(super) const RIGHTS: Rights = &[(
    "contents",
    "SELECT, INSERT, UPDATE (salt, codec, bytes, segment, seg_offset, seg_length, purged_at)",
)];

/// Columns of a content besides its id, of a table called `c`.
pub(in crate::store) const KEPT: &str =
    "c.salt, c.codec, c.bytes, c.segment, c.seg_offset, c.seg_length, c.purged_at";

/// The contents of a segment, by their places.
pub(in crate::store) fn of_segment<'a>(tenant: &'a TenantId, segment: &'a str) -> Statement<'a> {
    let contents = Statement::new(
        "SELECT content_id, salt IS NULL AS erased, seg_offset, seg_length FROM contents \
         WHERE tenant = $1 AND segment = $2 ORDER BY seg_offset",
    );
    contents.bind(tenant).bind(segment)
}

/// Drops the places of erased contents in a segment.
pub(in crate::store) fn drop_places<'a>(tenant: &'a TenantId, segment: &'a str) -> Statement<'a> {
    let drop = Statement::new(
        "UPDATE contents SET segment = NULL, seg_offset = NULL, seg_length = NULL \
         WHERE tenant = $1 AND segment = $2 AND salt IS NULL",
    );
    drop.bind(tenant).bind(segment)
}

/// The number `n` of the contents of a segment.
pub(in crate::store) fn count<'a>(tenant: &'a TenantId, segment: &'a str) -> Statement<'a> {
    let count =
        Statement::new("SELECT count(*) AS n FROM contents WHERE tenant = $1 AND segment = $2");
    count.bind(tenant).bind(segment)
}

/// Postgres: the contents of records that are neither erased nor archived, and whether each must stay.
pub(in crate::store) const HOT: &str = "SELECT r.leaf_index, c.content_id, length(c.bytes)::bigint AS size, \
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
             WHERE c.salt IS NOT NULL AND c.bytes IS NOT NULL";

/// Contents by their ids.
pub(in crate::store) fn of_ids(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT c.content_id, {KEPT} FROM json_each(?) AS wanted \
             CROSS JOIN contents AS c ON c.tenant = ? AND c.content_id = wanted.value"
        ),
        Dialect::Postgres => format!(
            "SELECT c.content_id, {KEPT} FROM contents AS c WHERE c.tenant = $1 AND c.content_id = ANY($2)"
        ),
    }
}

/// See [`crate::store::Store::list_to_forget`].
pub(in crate::store) const TO_FORGET: Texts = Texts {
    sqlite: "SELECT DISTINCT segment FROM contents INDEXED BY contents_forgotten \
             WHERE tenant = ? AND salt IS NULL AND segment IS NOT NULL ORDER BY segment LIMIT ?",
    postgres: "SELECT DISTINCT segment FROM contents \
             WHERE tenant = $1 AND salt IS NULL AND segment IS NOT NULL ORDER BY segment LIMIT $2",
};

/// Which of these segments have a content.
pub(in crate::store) const REFERENCED: Texts = Texts {
    sqlite: "SELECT value FROM json_each(?) WHERE EXISTS \
               (SELECT 1 FROM contents WHERE tenant = ? AND segment = value)",
    postgres: "SELECT s.name FROM UNNEST($1::text[]) AS s(name) WHERE EXISTS \
               (SELECT 1 FROM contents AS c WHERE c.tenant = $2 AND c.segment = s.name)",
};

/// Moves contents to a segment, as far as a condition finds them.
pub(in crate::store) fn place(dialect: Dialect, standing: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "UPDATE contents SET bytes = NULL, codec = 'zstd', segment = ?1, \
           seg_offset = f.value ->> 1, seg_length = f.value ->> 2 FROM json_each(?2) AS f \
         WHERE tenant = ?3 AND content_id = f.value ->> 0 AND {standing}"
        ),
        Dialect::Postgres => format!(
            "UPDATE contents AS c SET bytes = NULL, codec = 'zstd', segment = $1, \
           seg_offset = f.seg_offset, seg_length = f.seg_length \
         FROM UNNEST($2::text[], $3::bigint[], $4::bigint[]) AS f(id, seg_offset, seg_length) \
         WHERE c.tenant = $5 AND c.content_id = f.id AND {standing}"
        ),
    }
}

/// Postgres: which of these contents of records are not erased.
pub(in crate::store) const NOT_ERASED_AT: &str = "SELECT n.leaf_index, c.content_id FROM UNNEST($2::bigint[], $3::text[]) \
           AS n(leaf_index, content_id) \
         JOIN contents AS c ON c.tenant = $1 AND c.content_id = n.content_id \
         WHERE c.salt IS NOT NULL ORDER BY n.leaf_index";

/// Postgres: which of these contents are not erased.
pub(in crate::store) const NOT_ERASED: &str = "SELECT content_id FROM contents \
         WHERE tenant = $1 AND content_id = ANY($2) AND salt IS NOT NULL";

/// SQLite: erases contents.
pub(in crate::store) fn erase_these(purged_at: &str) -> String {
    format!(
        "UPDATE contents SET salt = NULL, bytes = NULL, purged_at = {purged_at} \
         WHERE tenant = ? AND content_id IN (SELECT value FROM json_each(?))"
    )
}

/// Postgres: erases contents.
pub(in crate::store) const ERASE: &str = "UPDATE contents SET salt = NULL, bytes = NULL, purged_at = $3 \
             WHERE tenant = $1 AND content_id = ANY($2)";

impl Store {
    /// Contents by id; unknown ids are skipped.
    pub async fn list_contents(
        &self,
        tenant: &TenantId,
        ids: &[ContentId],
    ) -> Result<Vec<StoredContent>> {
        by_driver!(self, db => db.list_contents(tenant, ids))
    }

    /// Records the segment locations of hot contents and deletes their bytes, all or none: `false` where the
    /// lease is lost, or one of them has no bytes in the database.
    pub async fn settle_cold(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        segment: &str,
        frames: &[Frame],
    ) -> Result<bool> {
        by_driver!(self, db => db.settle_cold(tenant, lease, segment, frames))
    }

    /// Segments with frames of erased contents.
    pub async fn list_to_forget(&self, tenant: &TenantId, limit: i64) -> Result<Vec<String>> {
        by_driver!(self, db => db.list_to_forget(tenant, limit))
    }

    /// The contents located in a segment.
    pub async fn list_inhabitants(
        &self,
        tenant: &TenantId,
        segment: &str,
    ) -> Result<SegmentContents> {
        by_driver!(self, db => db.list_inhabitants(tenant, segment))
    }

    /// Moves the contents of a segment to new locations and drops the locations of erased contents, all or none:
    /// `false` where the lease is lost, or the segment's contents differ from `frames`.
    pub async fn move_segment(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        from: &str,
        to: &str,
        frames: &[Frame],
    ) -> Result<bool> {
        by_driver!(self, db => db.move_segment(tenant, lease, from, to, frames))
    }

    /// Segments, among the given ones, in which no content is located.
    pub async fn list_unreferenced(
        &self,
        tenant: &TenantId,
        segments: &[String],
    ) -> Result<Vec<String>> {
        by_driver!(self, db => db.list_unreferenced(tenant, segments))
    }

    /// A content as stored; `archive::Contents` also fetches and unpacks it.
    pub async fn find_content(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<StoredContent>> {
        in_memory!(self, db => db.find_content(tenant, id));
        let text =
            format!("SELECT {KEPT} FROM contents AS c WHERE c.tenant = $1 AND c.content_id = $2");
        let storage = self.find(Statement::new(text).bind(tenant).bind(id), content_kept).await?;
        Ok(storage.map(|kept| StoredContent { id: id.to_string(), kept }))
    }
}
