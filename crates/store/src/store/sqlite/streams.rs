use async_trait::async_trait;

use super::batch::RowBatch;
use super::db::{Db, Query};
use super::{SqliteStore, rows};
use crate::store::rows::{CHUNK, CHUNK_KEPT, HANDOFF};
use crate::store::streams::{ChunkRow, LineSettle, StoredChunk, StreamLine, StreamStore};
use crate::store::{HandoffKey, Result, Writes};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::Micros;
use handoffd_core::domain::stream::StreamStatus;

/// Writes a batch's changes.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let chunks: Vec<_> = writes.chunks.iter().collect();
    RowBatch::insert("chunks", CHUNK).run(db, &chunks, bind_chunk)?;
    let lines: Vec<_> = writes.stream_lines.iter().collect();
    RowBatch::insert("stream_lines", "tenant, handoff_id").run(db, &lines, bind_line).map(|_| ())
}

fn bind_chunk<'c>(query: Query<'c>, row: &ChunkRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.seq)
        .bind(row.content.map(|id| id.to_string()))
        .bind(row.commitment.as_ref().map(<[u8; 32]>::as_slice))
        .bind(row.ends.map(StreamStatus::as_str))
        .bind(row.reason.as_deref())
        .bind(row.created_at.0)
}

fn bind_line<'c>(query: Query<'c>, key: &HandoffKey) -> Query<'c> {
    query.bind(key.0.as_str()).bind(key.1.to_string())
}

#[async_trait]
impl StreamStore for SqliteStore {
    async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredChunk>> {
        let sql = format!(
            "SELECT {CHUNK_KEPT} FROM chunks AS k \
             LEFT JOIN contents AS c ON c.tenant = k.tenant AND c.content_id = k.content_id \
             WHERE k.tenant = ?1 AND k.handoff_id = ?2 AND k.seq > ?3 ORDER BY k.seq LIMIT ?4"
        );
        self.read(|db| {
            let query = db.query(&sql).bind(key.0.as_str()).bind(key.1.to_string());
            query.bind(after).bind(limit.max(0)).list(rows::stored_chunk)
        })
        .await
    }

    async fn list_idle_streams(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        let sql = format!(
            "SELECT {HANDOFF} FROM handoffs WHERE stream_due IS NOT NULL AND stream_due <= ? \
             AND status IN ('PENDING', 'ACCEPTED') ORDER BY stream_due, handoff_id LIMIT ?"
        );
        self.read(|db| db.query(&sql).bind(now.0).bind(limit.max(0)).list(rows::handoff)).await
    }

    async fn list_due_lines(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        let sql = "SELECT l.tenant, l.handoff_id FROM stream_lines AS l \
             WHERE NOT (l.lease_until > ?1 AND l.lease_until <= ?1 + 120000000) \
               AND NOT (l.next_at > ?1 AND l.next_at <= ?1 + 7200000000) \
               AND EXISTS (SELECT 1 FROM chunks AS k WHERE k.tenant = l.tenant \
                 AND k.handoff_id = l.handoff_id AND k.seq > l.sent) \
               AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.tenant = l.tenant \
                 AND o.handoff_id = l.handoff_id) \
             ORDER BY l.next_at, l.handoff_id LIMIT ?2";
        self.read(|db| db.query(sql).bind(now.0).bind(limit.max(0)).list(rows::handoff_key)).await
    }

    async fn claim_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<StreamLine>> {
        let sql = "UPDATE stream_lines SET broker = ?1, lease_until = ?2 \
             WHERE tenant = ?3 AND handoff_id = ?4 \
               AND NOT (lease_until > ?5 AND lease_until <= ?5 + 120000000) \
               AND NOT (next_at > ?5 AND next_at <= ?5 + 7200000000) RETURNING sent, failures";
        self.write(|db| {
            let query = db.query(sql).bind(broker).bind(until.0).bind(key.0.as_str());
            query.bind(key.1.to_string()).bind(now.0).find(rows::stream_line)
        })
        .await
    }

    async fn settle_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        settle: LineSettle,
    ) -> Result<bool> {
        self.write(|db| {
            let touched = match settle {
                LineSettle::Sent { line, next_at, lease_until } => db
                    .query(
                        "UPDATE stream_lines SET sent = ?1, failures = ?2, next_at = ?3, lease_until = ?4 \
                         WHERE tenant = ?5 AND handoff_id = ?6 AND broker = ?7",
                    )
                    .bind(line.sent)
                    .bind(i64::from(line.failures))
                    .bind(next_at.0)
                    .bind(lease_until.0),
                LineSettle::Done => db.query(
                    "DELETE FROM stream_lines WHERE tenant = ? AND handoff_id = ? AND broker = ?",
                ),
            };
            let query = touched.bind(key.0.as_str()).bind(key.1.to_string()).bind(broker);
            query.execute().map(|rows| rows > 0)
        })
        .await
    }
}
