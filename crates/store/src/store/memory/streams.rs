use super::MemoryStore;
use super::tables::Tables;
use crate::store::streams::{LineSettle, StoredChunk, StreamLine};
use crate::store::{ContentStorage, HandoffKey, Result};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::Micros;

impl Tables {
    fn list_chunks(&self, key: &HandoffKey, after: i64, limit: i64) -> Vec<StoredChunk> {
        let own =
            self.chunks.range((key.clone(), after.saturating_add(1))..=(key.clone(), i64::MAX));
        let stored = |row: &crate::store::streams::ChunkRow| StoredChunk {
            content: row.content.map(|id| {
                self.contents.get(&(key.0.clone(), id)).map_or(ContentStorage::Erased, |part| {
                    ContentStorage::Hot(part.salt.clone(), part.codec, part.bytes.to_vec())
                })
            }),
            row: row.clone(),
        };
        own.take(usize::try_from(limit).unwrap_or(0)).map(|(_, row)| stored(row)).collect()
    }

    fn list_idle_streams(&self, now: Micros, limit: i64) -> Vec<Handoff> {
        let due = |one: &Handoff| one.stream.as_ref().and_then(|stream| stream.due_at);
        let late = self.handoffs.values().filter(|one| {
            !one.status.is_final() && due(one).is_some_and(|deadline| deadline <= now)
        });
        let mut rows: Vec<_> = late.cloned().collect();
        rows.sort_by_key(|one| (due(one), one.id));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        rows
    }

    fn list_due_lines(&self, now: Micros, limit: i64) -> Vec<HandoffKey> {
        let due = self.stream_lines.iter().filter(|(key, line)| {
            line.is_free(now)
                && !self.outbox.contains_key(*key)
                && !self.list_chunks(key, line.line.sent, 1).is_empty()
        });
        due.map(|(key, _)| key.clone()).take(usize::try_from(limit).unwrap_or(0)).collect()
    }

    fn settle_line(&mut self, key: &HandoffKey, broker: &str, settle: LineSettle) -> bool {
        let Some(known) = self.stream_lines.get_mut(key) else { return false };
        if known.broker.as_deref() != Some(broker) {
            return false;
        }
        match settle {
            LineSettle::Sent { line, next_at, lease_until } => {
                (known.line, known.next_at, known.lease_until) = (line, next_at, lease_until);
            }
            LineSettle::Done => {
                self.stream_lines.remove(key);
            }
        }
        true
    }
}

impl MemoryStore {
    pub(in crate::store) async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredChunk>> {
        self.ask("list_chunks", |tables| Ok(tables.list_chunks(key, after, limit))).await
    }

    pub(in crate::store) async fn list_idle_streams(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        self.ask("list_idle_streams", |tables| Ok(tables.list_idle_streams(now, limit))).await
    }

    pub(in crate::store) async fn list_due_lines(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<HandoffKey>> {
        self.ask("list_due_lines", |tables| Ok(tables.list_due_lines(now, limit))).await
    }

    pub(in crate::store) async fn claim_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        now: Micros,
        until: Micros,
    ) -> Result<Option<StreamLine>> {
        self.ask("claim_line", |tables| {
            let free = tables.stream_lines.get_mut(key).filter(|line| line.is_free(now));
            Ok(free.map(|line| {
                (line.broker, line.lease_until) = (Some(broker.to_owned()), until);
                line.line
            }))
        })
        .await
    }

    pub(in crate::store) async fn settle_line(
        &self,
        key: &HandoffKey,
        broker: &str,
        settle: LineSettle,
    ) -> Result<bool> {
        self.ask("settle_line", |tables| Ok(tables.settle_line(key, broker, settle))).await
    }
}
