//! Handoffs in pieces: the chunks of a stream, and how far a webhook receiver was sent them.

use async_trait::async_trait;

use super::{ContentStorage, HandoffKey, Result};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::{ContentId, HandoffId, Micros, TenantId};
use handoffd_core::domain::stream::StreamStatus;

/// One number of a stream: a chunk of its sender, or the broker's end of it, which has no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow {
    pub tenant: TenantId,
    /// The handoff in pieces.
    pub handoff_id: HandoffId,
    /// The number, from 1 without gaps.
    pub seq: i64,
    /// The chunk, as its record commits to it.
    pub content: Option<ContentId>,
    /// The commitment in the record.
    pub commitment: Option<[u8; 32]>,
    /// How the stream ends here; never [`StreamStatus::Open`].
    pub ends: Option<StreamStatus>,
    /// Why it was aborted: a code.
    pub reason: Option<String>,
    /// Time of the commit.
    pub created_at: Micros,
}

/// A chunk with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChunk {
    pub row: ChunkRow,
    /// Its content as stored.
    pub content: Option<ContentStorage>,
}

/// How far a webhook receiver was sent the chunks of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLine {
    /// The last number that the receiver took; 0 for none.
    pub sent: i64,
    /// Failed attempts at the next one.
    pub failures: i32,
}

/// A change of a stream's line by the broker that holds its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSettle {
    /// So far it was sent.
    Sent {
        /// The line after it.
        line: StreamLine,
        /// Earliest time of the next attempt.
        next_at: Micros,
        /// The end of the lease; a time that has passed gives it back.
        lease_until: Micros,
    },
    /// The receiver was sent the end, or needs none.
    Done,
}

/// Streams. All times come from the caller's clock.
#[async_trait]
pub trait StreamStore: Send + Sync {
    /// Chunks of a handoff behind a number, in order, with their contents as stored.
    async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredChunk>>;
    /// Open handoffs whose stream has had no chunk in time.
    async fn list_idle_streams(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>>;
    /// Streams with chunks that their webhook receiver was not sent, whose own delivery is settled, and that no
    /// broker serves.
    async fn list_due_lines(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>>;
    /// Takes the lease of a stream's line; `None` where another broker holds it, it pauses, or it is done.
    async fn claim_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<StreamLine>>;
    /// Writes a line; `false` where another broker holds the lease.
    async fn settle_line(&self, key: &HandoffKey, broker: &str, settle: LineSettle)
    -> Result<bool>;
}

/// How the stream ends, as stored.
pub(super) fn parse_end(text: &str) -> Option<StreamStatus> {
    [StreamStatus::Closed, StreamStatus::Aborted].into_iter().find(|one| one.as_str() == text)
}
