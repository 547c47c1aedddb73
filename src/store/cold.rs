//! What the cold tier needs of a store: which contents may go, where they went, and who may move
//! them. The store knows places and never an object store; `archive` is the room that moves bytes.
//!
//! Every change of a place is written under a lease whose owner is checked in the same transaction,
//! whole or not at all: what was overtaken, erased or moved meanwhile makes the caller look again.

use async_trait::async_trait;

use super::{Result, StoredContent};
use crate::domain::ids::{ContentId, Micros, TenantId};
use crate::evidence::commitment::Codec;

/// What is left of a content in this store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Salt, and the bytes in that codec.
    Hot(Vec<u8>, Codec, Vec<u8>),
    /// The salt is here, the bytes are in the cold tier.
    Cold(Cold),
    /// The bytes should be in the cold tier and could not be had. No store says this; the reader of
    /// the cold tier does.
    Unavailable(ColdFault),
    /// Erased at a person's request: nothing.
    Erased,
    /// Past its time (`retention.delete_after_days`): nothing.
    Purged,
}

impl Kept {
    /// Salt, codec and bytes, where they are at hand.
    #[must_use]
    pub fn hot(&self) -> Option<(&[u8], Codec, &[u8])> {
        match self {
            Self::Hot(salt, codec, bytes) => Some((salt, *codec, bytes)),
            _ => None,
        }
    }

    /// From the columns of a row: no salt is an erased content, whatever else is left of it.
    pub(super) fn from_columns(
        salt: Option<Vec<u8>>,
        codec: Codec,
        bytes: Option<Vec<u8>>,
        place: Option<Place>,
        purged: bool,
    ) -> Self {
        match (salt, bytes, place) {
            (Some(salt), Some(bytes), _) => Self::Hot(salt, codec, bytes),
            (Some(salt), None, Some(place)) => Self::Cold(Cold { salt, place }),
            _ if purged => Self::Purged,
            _ => Self::Erased,
        }
    }
}

/// A content whose bytes are in the cold tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cold {
    /// Its salt, which never leaves the database.
    pub salt: Vec<u8>,
    /// Where its bytes are.
    pub place: Place,
}

/// A place in the cold tier: one zstd frame of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The segment's key.
    pub segment: String,
    /// Where its frame begins, in bytes.
    pub offset: u64,
    /// How long its frame is, in bytes.
    pub length: u64,
}

/// Why a cold content could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdFault {
    /// The archive answers, and the segment is not there.
    Missing,
    /// The segment is there, and its bytes are not what was put.
    Damaged,
    /// The archive does not answer: later it may.
    Away,
}

impl ColdFault {
    /// The fault's stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "cold-missing",
            Self::Damaged => "cold-damaged",
            Self::Away => "cold-away",
        }
    }
}

/// A record as the archive looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archivable {
    /// Its place in the log.
    pub leaf_index: i64,
    /// When it was made.
    pub recorded_at: Micros,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its content, where that is hot.
    pub content: Option<HotContent>,
}

/// A content that may go, now or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotContent {
    /// Its name.
    pub id: ContentId,
    /// Its bytes as stored.
    pub size: i64,
    /// Somebody may still act on it: its handoff is open, or waits for a person.
    pub held: bool,
}

/// A content's frame in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Whose bytes.
    pub id: ContentId,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

/// The contents whose place is in one segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inhabitants {
    /// Those to keep.
    pub live: Vec<Frame>,
    /// Those that were erased since, and whose frames must go.
    pub erased: Vec<ContentId>,
}

/// The right to do what only one broker may do at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Of what.
    pub name: String,
    /// Whose: unlike any other's, past or present.
    pub owner: String,
}

/// How far a tenant's log was gone through; see migration 0004.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveMark {
    /// Everything below is done.
    pub done_below: i64,
    /// Up to here only what was held back is still to do.
    pub scanned_to: i64,
    /// When to look at that again.
    pub rescan_at: Micros,
}

/// How far a tenant's log was gone through for what is past its time; see migration 0017.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgeMark {
    /// How far, as for the archive.
    pub scan: ArchiveMark,
    /// A run took something, or was about to, and segments and files may still hold it.
    pub unclean: bool,
}

/// The cold tier's share of the store.
#[async_trait]
pub trait ColdStore: Send + Sync {
    /// Takes or renews a lease; false where another has it.
    async fn take_lease(&self, lease: &Lease, now: Micros, until: Micros) -> Result<bool>;
    /// Gives a lease back, where it is still its owner's.
    async fn release_lease(&self, lease: &Lease) -> Result<()>;

    /// The mark of a tenant; where there is none, its beginning.
    async fn find_archive_mark(&self, tenant: &TenantId) -> Result<ArchiveMark>;
    /// Keeps the mark of a tenant.
    async fn keep_archive_mark(&self, tenant: &TenantId, mark: ArchiveMark) -> Result<()>;

    /// How far a tenant's log was purged; where nothing says so, its beginning.
    async fn find_purge_mark(&self, tenant: &TenantId) -> Result<PurgeMark>;
    /// Keeps how far a tenant's log was purged.
    async fn keep_purge_mark(&self, tenant: &TenantId, mark: PurgeMark) -> Result<()>;

    /// Every record of `limit` places from a leaf index on, in log order.
    async fn list_archivable(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Archivable>>;
    /// Contents by their ids; those that do not exist are left out.
    async fn list_contents(
        &self,
        tenant: &TenantId,
        ids: &[ContentId],
    ) -> Result<Vec<StoredContent>>;
    /// Says that the bytes of these hot contents are in a segment now, and lets go of them here. All
    /// of them or none: false where the lease is lost, or one of them is no longer hot.
    async fn settle_cold(
        &self,
        tenant: &TenantId,
        lease: &Lease,
        segment: &str,
        frames: &[Frame],
    ) -> Result<bool>;

    /// Segments that hold frames of erased contents.
    async fn list_to_forget(&self, tenant: &TenantId, limit: i64) -> Result<Vec<String>>;
    /// What is in a segment.
    async fn list_inhabitants(&self, tenant: &TenantId, segment: &str) -> Result<Inhabitants>;
    /// Moves everything that is in a segment to where it stands now, and lets go of the places of
    /// erased contents. All or nothing: false where the lease is lost, or what is in the segment is
    /// not what `frames` say.
    async fn move_segment(
        &self,
        tenant: &TenantId,
        lease: &Lease,
        from: &str,
        to: &str,
        frames: &[Frame],
    ) -> Result<bool>;
    /// Those of the segments in which nothing is, as far as this store knows.
    async fn list_unreferenced(
        &self,
        tenant: &TenantId,
        segments: &[String],
    ) -> Result<Vec<String>>;
}
