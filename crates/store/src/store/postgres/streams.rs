use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::batch::{CHUNKS, STREAM_LINES, bind};
use super::call::Call;
use super::failure::failed;
use super::joined::{JoinedStatement, WriteMode};
use super::{PostgresStore, answered, rows};
use crate::store::rows::{CHUNK_KEPT, HANDOFF};
use crate::store::streams::{ChunkRow, LineSettle, StoredChunk, StreamLine, StreamStore};
use crate::store::{HandoffKey, Result, Writes};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::Micros;
use handoffd_core::domain::stream::StreamStatus;

/// Writes a batch's changes.
pub(super) fn write(joined: &mut JoinedStatement, writes: &Writes) {
    let chunks: Vec<&ChunkRow> = writes.chunks.iter().collect();
    let columns = |bound: Call, rows: &[&ChunkRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.seq,
            row.content.map(|id| id.to_string()),
            row.commitment.as_ref().map(<[u8; 32]>::as_slice),
            row.ends.map(StreamStatus::as_str),
            row.reason.as_deref(),
            row.created_at.0,
        )
    };
    joined.put(&CHUNKS, WriteMode::Insert, &chunks, |_| 0, columns);
    let lines: Vec<&HandoffKey> = writes.stream_lines.iter().collect();
    let columns = |bound: Call, rows: &[&HandoffKey]| {
        bind!(bound, rows, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&STREAM_LINES, WriteMode::Insert, &lines, |_| 0, columns);
}

#[async_trait]
impl StreamStore for PostgresStore {
    async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredChunk>> {
        answered(async {
            let sql = format!(
                "SELECT {CHUNK_KEPT} FROM chunks AS k \
                 LEFT JOIN contents AS c ON c.tenant = k.tenant AND c.content_id = k.content_id \
                 WHERE k.tenant = $1 AND k.handoff_id = $2 AND k.seq > $3 ORDER BY k.seq LIMIT $4"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(key.0.as_str())
                .bind(key.1.to_string())
                .bind(after)
                .bind(limit.max(0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::stored_chunk)
                .collect()
        })
        .await
    }

    async fn list_idle_streams(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        answered(async {
            let sql = format!(
                "SELECT {HANDOFF} FROM handoffs WHERE stream_due IS NOT NULL AND stream_due <= $1 \
                 AND status IN ('PENDING', 'ACCEPTED') ORDER BY stream_due, handoff_id LIMIT $2"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(now.0)
                .bind(limit.max(0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::handoff)
                .collect()
        })
        .await
    }

    async fn list_due_lines(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        answered(async {
            let sql = "SELECT l.tenant, l.handoff_id FROM stream_lines AS l \
                 WHERE NOT (l.lease_until > $1 AND l.lease_until <= $1 + 120000000) \
                   AND NOT (l.next_at > $1 AND l.next_at <= $1 + 7200000000) \
                   AND EXISTS (SELECT 1 FROM chunks AS k WHERE k.tenant = l.tenant \
                     AND k.handoff_id = l.handoff_id AND k.seq > l.sent) \
                   AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.tenant = l.tenant \
                     AND o.handoff_id = l.handoff_id) \
                 ORDER BY l.next_at, l.handoff_id LIMIT $2";
            sqlx::query(sql)
                .bind(now.0)
                .bind(limit.max(0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::handoff_key)
                .collect()
        })
        .await
    }

    async fn claim_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<StreamLine>> {
        answered(async {
            let sql = "UPDATE stream_lines SET broker = $1, lease_until = $2 \
                 WHERE tenant = $3 AND handoff_id = $4 \
                   AND NOT (lease_until > $5 AND lease_until <= $5 + 120000000) \
                   AND NOT (next_at > $5 AND next_at <= $5 + 7200000000) RETURNING sent, failures";
            sqlx::query(sql)
                .bind(broker)
                .bind(until.0)
                .bind(key.0.as_str())
                .bind(key.1.to_string())
                .bind(now.0)
                .fetch_optional(&self.pool)
                .await
                .map_err(failed)?
                .as_ref()
                .map(rows::stream_line)
                .transpose()
        })
        .await
    }

    async fn settle_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        settle: LineSettle,
    ) -> Result<bool> {
        answered(async {
            let query = match settle {
                LineSettle::Sent { line, next_at, lease_until } => sqlx::query(
                    "UPDATE stream_lines SET sent = $1, failures = $2, next_at = $3, lease_until = $4 \
                     WHERE tenant = $5 AND handoff_id = $6 AND broker = $7",
                )
                .bind(line.sent)
                .bind(line.failures)
                .bind(next_at.0)
                .bind(lease_until.0),
                LineSettle::Done => sqlx::query(
                    "DELETE FROM stream_lines WHERE tenant = $1 AND handoff_id = $2 AND broker = $3",
                ),
            };
            let query = query.bind(key.0.as_str()).bind(key.1.to_string()).bind(broker);
            let done = query.execute(&self.pool).await.map_err(failed)?;
            Ok(done.rows_affected() > 0)
        })
        .await
    }
}
