//! `chunks` and `stream_lines`: the chunks of a stream, and how far a webhook receiver was sent them.
//!
//! A row, and how it changes:
//!
//! - `chunks`: one number of a handoff's stream: a chunk, or the broker's end of the stream. Inserted only.
//! - `stream_lines`: the last chunk that a webhook receiver was sent, and the broker that holds the line, with its time
//!   limit. Updated; deleted with the end.

use crate::store::driver::in_memory;

use crate::store::query::{Row, Statement};
use crate::store::rows::{
    content_kept, get, handoff_key, hash32_opt, micros, parse, parse_opt, state_opt,
};
use crate::store::table::{Rights, table};
use crate::store::tables::handoffs;
use crate::store::tables::handoffs::HANDOFF;
use crate::store::{ContentStorage, HandoffKey, Result, Store};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TenantId};
use handoffd_domain::stream::StreamStatus;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights =
    &[("chunks", "SELECT, INSERT"), ("stream_lines", "SELECT, INSERT, UPDATE, DELETE")];

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
    /// Chunks were sent up to this line.
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

table! {
    CHUNKS: ChunkRow = "chunks" by 3 {
        "tenant" Text: |row| &row.tenant,
        "handoff_id" Text: |row| row.handoff_id,
        "seq" Long: |row| row.seq,
        "content_id" Text: |row| row.content,
        "commitment" Bytes: |row| row.commitment.as_ref(),
        "ends" Text: |row| row.ends.map(StreamStatus::as_str),
        "reason" Text: |row| row.reason.as_deref(),
        "created_at" Long: |row| row.created_at,
    }
}

table! {
    /// A new line; its other columns have defaults.
    STREAM_LINES: HandoffKey = "stream_lines" by 2 {
        "tenant" Text: |key| &key.0,
        "handoff_id" Text: |key| key.1,
    }
}

/// How the stream ends, as stored.
fn parse_end(text: &str) -> Option<StreamStatus> {
    [StreamStatus::Closed, StreamStatus::Aborted].into_iter().find(|one| one.as_str() == text)
}

/// A chunk with its content as stored.
fn decode(row: &dyn Row) -> Result<StoredChunk> {
    let content = parse_opt(row, "content_id")?;
    let kept = match (content, get::<Option<&str>>(row, "codec")?) {
        (Some(_), Some(_)) => Some(content_kept(row)?),
        (Some(_), None) => Some(ContentStorage::Erased),
        (None, _) => None,
    };
    Ok(StoredChunk {
        row: ChunkRow {
            tenant: parse(row, "tenant")?,
            handoff_id: parse(row, "handoff_id")?,
            seq: get(row, "seq")?,
            content,
            commitment: hash32_opt(row, "commitment")?,
            ends: state_opt(row, "ends", parse_end)?,
            reason: get(row, "reason")?,
            created_at: micros(row, "created_at")?,
        },
        content: kept,
    })
}

fn line(row: &dyn Row) -> Result<StreamLine> {
    Ok(StreamLine { sent: get(row, "sent")?, failures: get(row, "failures")? })
}

impl Store {
    /// Chunks of a handoff behind a number, in order, with their contents as stored.
    pub async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredChunk>> {
        in_memory!(self, db => db.list_chunks(key, after, limit));
        let chunks = Statement::new(
            "SELECT k.tenant, k.handoff_id, k.seq, k.content_id, k.commitment, k.ends, k.reason, \
               k.created_at, c.salt, c.codec, c.bytes, c.segment, c.seg_offset, c.seg_length, \
               c.purged_at FROM chunks AS k \
             LEFT JOIN contents AS c ON c.tenant = k.tenant AND c.content_id = k.content_id \
             WHERE k.tenant = $1 AND k.handoff_id = $2 AND k.seq > $3 ORDER BY k.seq LIMIT $4",
        );
        let chunks = chunks.bind(&key.0).bind(key.1).bind(after).bind(limit.max(0));
        self.list(chunks, decode).await
    }

    /// Open handoffs whose stream has had no chunk in time.
    pub async fn list_idle_streams(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        in_memory!(self, db => db.list_idle_streams(now, limit));
        let text = format!(
            "SELECT {HANDOFF} FROM handoffs WHERE stream_due IS NOT NULL AND stream_due <= $1 \
             AND status IN ('PENDING', 'ACCEPTED') ORDER BY stream_due, handoff_id LIMIT $2"
        );
        self.list(Statement::new(text).bind(now).bind(limit.max(0)), handoffs::decode).await
    }

    /// Streams with chunks that their webhook receiver was not sent, whose own delivery is settled, and that no
    /// broker serves.
    pub async fn list_due_lines(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        in_memory!(self, db => db.list_due_lines(now, limit));
        let due = Statement::new(
            "SELECT l.tenant, l.handoff_id FROM stream_lines AS l \
             WHERE NOT (l.lease_until > $1 AND l.lease_until <= $1 + 120000000) \
               AND NOT (l.next_at > $1 AND l.next_at <= $1 + 7200000000) \
               AND EXISTS (SELECT 1 FROM chunks AS k WHERE k.tenant = l.tenant \
                 AND k.handoff_id = l.handoff_id AND k.seq > l.sent) \
               AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.tenant = l.tenant \
                 AND o.handoff_id = l.handoff_id) \
             ORDER BY l.next_at, l.handoff_id LIMIT $2",
        );
        self.list(due.bind(now).bind(limit.max(0)), handoff_key).await
    }

    /// Takes the lease of a stream's line; `None` where another broker holds it, it pauses, or it is done.
    pub async fn claim_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<StreamLine>> {
        in_memory!(self, db => db.claim_line(key, broker, now, until));
        let claim = Statement::new(
            "UPDATE stream_lines SET broker = $1, lease_until = $2 \
             WHERE tenant = $3 AND handoff_id = $4 \
               AND NOT (lease_until > $5 AND lease_until <= $5 + 120000000) \
               AND NOT (next_at > $5 AND next_at <= $5 + 7200000000) RETURNING sent, failures",
        );
        let claim = claim.bind(broker).bind(until).bind(&key.0).bind(key.1).bind(now);
        self.change_one(claim, line).await
    }

    /// Writes a line; `false` where another broker holds the lease.
    pub async fn settle_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        settle: LineSettle,
    ) -> Result<bool> {
        in_memory!(self, db => db.settle_line(key, broker, settle));
        let change = match settle {
            LineSettle::Sent { line, next_at, lease_until } => Statement::new(
                "UPDATE stream_lines SET sent = $1, failures = $2, next_at = $3, lease_until = $4 \
                 WHERE tenant = $5 AND handoff_id = $6 AND broker = $7",
            )
            .bind(line.sent)
            .bind(line.failures)
            .bind(next_at)
            .bind(lease_until),
            LineSettle::Done => Statement::new(
                "DELETE FROM stream_lines WHERE tenant = $1 AND handoff_id = $2 AND broker = $3",
            ),
        };
        Ok(self.change(change.bind(&key.0).bind(key.1).bind(broker)).await? > 0)
    }
}
