//! `contents`: the contents of commitments.
//!
//! A row, and how it changes:
//!
//! - `contents`: the content of a commitment: salt, and zstd or raw bytes. Erased: both are null. Ended by retention:
//!   `purged_at`. Archived: the bytes are null, and `segment`, `seg_offset`, `seg_length` name their place. Moved; erased.

use crate::store::query::{Database, Statement};
use crate::store::rows::content_kept;
use crate::store::table::Rights;
use crate::store::{Result, StoredContent};
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

/// See [`crate::store::HandoffStore::find_content`].
pub(in crate::store) async fn find<D: Database>(
    db: &D,
    tenant: &TenantId,
    id: ContentId,
) -> Result<Option<StoredContent>> {
    let text =
        format!("SELECT {KEPT} FROM contents AS c WHERE c.tenant = $1 AND c.content_id = $2");
    let kept = db.find(Statement::new(text).bind(tenant).bind(id), content_kept).await?;
    Ok(kept.map(|kept| StoredContent { id: id.to_string(), kept }))
}

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
