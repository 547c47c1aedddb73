//! The store's part of the cold tier: contents that may be archived, their location, and the lease to move them. The
//! store knows locations and never an object store; `archive` moves the bytes.
//!
//! Every change of a location is written under a lease whose owner is checked in the same transaction, as a whole
//! or not at all. After a change that was overtaken by an erasure or another move, the caller reads again.

use handoffd_domain::ids::{ContentId, Micros};
use handoffd_evidence::commitment::Codec;

/// The stored form of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentStorage {
    /// Salt, codec and bytes in the database.
    Hot(Vec<u8>, Codec, Vec<u8>),
    /// The salt is in the database, the bytes are in the cold tier.
    Cold(ColdContent),
    /// The bytes should be in the cold tier but could not be read. Returned by the cold tier's reader, never by a
    /// store.
    Unavailable(ColdError),
    /// No data: erased at a person's request.
    Erased,
    /// No data: purged (`retention.delete_after_days`).
    Purged,
}

impl ContentStorage {
    /// Salt, codec and bytes of a hot content.
    #[must_use]
    pub fn hot(&self) -> Option<(&[u8], Codec, &[u8])> {
        match self {
            Self::Hot(salt, codec, bytes) => Some((salt, *codec, bytes)),
            _ => None,
        }
    }

    /// Maps the columns of a row. A row without a salt is an erased content, whatever other columns hold.
    pub(super) fn from_columns(
        salt: Option<Vec<u8>>,
        codec: Codec,
        bytes: Option<Vec<u8>>,
        place: Option<ArchiveLocation>,
        purged: bool,
    ) -> Self {
        match (salt, bytes, place) {
            (Some(salt), Some(bytes), _) => Self::Hot(salt, codec, bytes),
            (Some(salt), None, Some(place)) => Self::Cold(ColdContent { salt, place }),
            _ if purged => Self::Purged,
            _ => Self::Erased,
        }
    }
}

/// A content with its bytes in the cold tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdContent {
    /// The salt, which never leaves the database.
    pub salt: Vec<u8>,
    /// Location of the bytes.
    pub place: ArchiveLocation,
}

/// A location in the cold tier: one zstd frame of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveLocation {
    /// Object key of the segment.
    pub segment: String,
    /// Offset of the frame in the segment, in bytes.
    pub offset: u64,
    /// Length of the frame, in bytes.
    pub length: u64,
}

/// Reasons for which a cold content cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdError {
    /// The archive answers; the segment does not exist.
    Missing,
    /// The segment exists; its bytes differ from those written.
    Damaged,
    /// The archive does not answer. Retry later.
    Away,
}

impl ColdError {
    /// The error's stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "cold-missing",
            Self::Damaged => "cold-damaged",
            Self::Away => "cold-away",
        }
    }
}

/// A record as seen by the archiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archivable {
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// Time of the record.
    pub recorded_at: Micros,
    /// Bytes of the record.
    pub body: Vec<u8>,
    /// The record's content, if hot.
    pub content: Option<HotContent>,
}

/// A hot content, archivable now or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotContent {
    pub id: ContentId,
    /// Stored size in bytes.
    pub size: i64,
    /// Whether the content may still be needed: its handoff is open, or waits for a person.
    pub held: bool,
}

/// A content's frame in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub id: ContentId,
    /// Offset of the frame in the segment, in bytes.
    pub offset: u64,
    /// Length of the frame, in bytes.
    pub length: u64,
}

/// The contents located in one segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentContents {
    /// Frames to keep.
    pub live: Vec<Frame>,
    /// Contents erased since; their frames must be removed.
    pub erased: Vec<ContentId>,
}

/// A lease on work that one broker does at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveLease {
    /// Name of the leased work.
    pub name: String,
    /// The owner's id, unique for every run.
    pub owner: String,
}

/// Progress of archiving a tenant's log; see migration 0004.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveMark {
    /// Everything below this leaf index is done.
    pub done_below: i64,
    /// Below this leaf index only held contents remain.
    pub scanned_to: i64,
    /// Next time to check the held contents.
    pub rescan_at: Micros,
}

/// Progress of purging a tenant's log; see migration 0017.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgeMark {
    /// Progress through the log, as for the archive.
    pub scan: ArchiveMark,
    /// Whether a run removed data, or was about to, that segments and files may still contain.
    pub unclean: bool,
}
