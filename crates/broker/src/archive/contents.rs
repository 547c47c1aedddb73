//! Reading contents wherever they are: from the store, or through it from the archive.
//!
//! Segments are read in blocks that a small cache keeps, and readers of the same block share one
//! request. A reader may come just as a segment is written anew without what was erased: then the
//! object is gone, and the store knows the new place; so what is missing is looked up once more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use moka::future::Cache;

use super::error::ArchiveError;
use super::objects::Objects;
use handoffd_domain::ids::{ContentId, TaskId, TenantId};
use handoffd_evidence::commitment::{Codec, unpack};
use handoffd_store::store::cold::{ArchiveLocation, ColdContent, ColdError};
use handoffd_store::store::streams::{ChunkRow, StoredChunk};
use handoffd_store::store::{
    ContentStorage, HandoffKey, RecordWindow, Result, Store, StoreError, StoredContent,
    StoredRecord,
};

/// Bytes read from a segment at once: some sixty contents of usual size, which a task's trace often needs together.
const BLOCK: u64 = 256 * 1024;

/// Time for which a block is cached: long enough for one trace, short enough that erased data soon leaves memory.
const BLOCK_TTL: Duration = Duration::from_mins(1);

/// Concurrent reads for one page.
const AT_ONCE: usize = 8;

/// Longest frame accepted: no content is larger (`evidence::commitment`).
const MAX_FRAME: u64 = 64 * 1024 * 1024;

/// The result of reading a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentState {
    /// The canonical bytes.
    Whole(Vec<u8>),
    /// The content was erased, or does not exist.
    Gone,
    /// The content was purged (`retention.delete_after_days`).
    Purged,
    /// The archive could not return the content.
    Unavailable(ColdError),
}

/// Reads contents of records, hot or cold. Cheap to clone.
#[derive(Clone)]
pub struct Contents {
    store: Arc<Store>,
    objects: Arc<Objects>,
    blocks: Cache<(Arc<str>, u64), Bytes>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").field("objects", &self.objects).finish_non_exhaustive()
    }
}

impl Contents {
    pub(super) fn new(store: Arc<Store>, objects: Arc<Objects>, cache_bytes: usize) -> Self {
        let blocks = Cache::builder()
            .max_capacity(cache_bytes as u64)
            .weigher(|_, bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX))
            .time_to_live(BLOCK_TTL)
            .build();
        Self { store, objects, blocks }
    }

    /// Reads and unpacks one content.
    ///
    /// # Errors
    /// [`StoreError`] where the store fails; an archive failure is [`ContentState::Unavailable`].
    pub async fn find(&self, tenant: &TenantId, id: ContentId) -> Result<ContentState> {
        let Some(found) = self.store.find_content(tenant, id).await? else {
            return Ok(ContentState::Gone);
        };
        state_of(self.resolve(tenant, found).await?)
    }

    /// Reads chunks of a handoff's stream behind a number, in order; the broker's own end of a stream has no content.
    ///
    /// # Errors
    /// [`StoreError`] where the store fails.
    pub async fn list_chunks(
        &self,
        key: &HandoffKey,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(ChunkRow, Option<ContentState>)>> {
        let mut chunks = Vec::new();
        for StoredChunk { row, content } in self.store.list_chunks(key, after, limit).await? {
            let state = match (row.content, content) {
                (Some(id), Some(kept)) => {
                    let stored = StoredContent { id: id.to_string(), kept };
                    Some(state_of(self.resolve(&key.0, stored).await?)?)
                }
                _ => None,
            };
            chunks.push((row, state));
        }
        Ok(chunks)
    }

    /// Reads one content as JSON for people: `None` where it is gone, `{"unavailable":"cold"}` where the archive
    /// could not return it.
    ///
    /// # Errors
    /// [`StoreError`] where the store fails.
    pub async fn find_json(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<serde_json::Value>> {
        Ok(match self.find(tenant, id).await? {
            ContentState::Whole(bytes) => serde_json::from_slice(&bytes).ok(),
            ContentState::Gone | ContentState::Purged => None,
            ContentState::Unavailable(_) => Some(unavailable()),
        })
    }

    /// [`list_records`](Store::list_records) with cold contents fetched: [`ContentStorage::Cold`] never occurs, and a failed
    /// read is [`ContentStorage::Unavailable`].
    ///
    /// # Errors
    /// [`StoreError`] where the store fails.
    pub async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let records = self.store.list_records(tenant, task, from, limit, true).await?;
        self.fetch(tenant, records).await
    }

    /// [`list_newest_records`](Store::list_newest_records) with cold contents fetched.
    ///
    /// # Errors
    /// [`StoreError`] where the store fails.
    pub async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let records = self.store.list_newest_records(tenant, task, window, limit).await?;
        self.fetch(tenant, records).await
    }

    /// [`list_state_records`](Store::list_state_records) with cold contents fetched.
    ///
    /// # Errors
    /// [`StoreError`] where the store fails.
    pub async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let records = self.store.list_state_records(tenant, from, limit).await?;
        self.fetch(tenant, records).await
    }

    /// Fetches the cold contents of records.
    async fn fetch(
        &self,
        tenant: &TenantId,
        mut records: Vec<StoredRecord>,
    ) -> Result<Vec<StoredRecord>> {
        let cold: Vec<(usize, StoredContent)> = records
            .iter()
            .enumerate()
            .filter_map(|(place, record)| Some((place, record.content.clone()?)))
            .filter(|(_, content)| matches!(content.kept, ContentStorage::Cold(_)))
            .collect();
        let mut reads =
            futures_util::stream::iter(cold.into_iter().map(|(place, content)| async move {
                self.resolve(tenant, content).await.map(|content| (place, content))
            }))
            .buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            let (place, content) = read?;
            records[place].content = Some(content);
        }
        drop(reads);
        Ok(records)
    }

    /// Fetches a cold content.
    async fn resolve(&self, tenant: &TenantId, content: StoredContent) -> Result<StoredContent> {
        let ContentStorage::Cold(ColdContent { salt, place }) = content.kept else {
            return Ok(content);
        };
        let fault = match self.frame(&place).await {
            Ok(bytes) => {
                return Ok(StoredContent {
                    kept: ContentStorage::Hot(salt, Codec::Zstd, bytes),
                    ..content
                });
            }
            Err(fault) => fault,
        };
        // Moved or erased while it was read?
        if fault == ColdError::Missing
            && let Ok(id) = content.id.parse()
        {
            match self.store.find_content(tenant, id).await?.map(|now| now.kept) {
                Some(ContentStorage::Cold(now)) if now.place != place => {
                    let kept = match self.frame(&now.place).await {
                        Ok(bytes) => ContentStorage::Hot(now.salt, Codec::Zstd, bytes),
                        Err(fault) => ContentStorage::Unavailable(fault),
                    };
                    return Ok(StoredContent { kept, ..content });
                }
                Some(
                    kept @ (ContentStorage::Erased
                    | ContentStorage::Purged
                    | ContentStorage::Hot(..)),
                ) => {
                    return Ok(StoredContent { kept, ..content });
                }
                _ => {}
            }
        }
        tracing::warn!(
            segment = place.segment,
            fault = fault.as_str(),
            "a cold content cannot be read"
        );
        Ok(StoredContent { kept: ContentStorage::Unavailable(fault), ..content })
    }

    /// Reads a frame and checks that it unpacks. On failure the read is repeated without the cache, so that a
    /// repaired segment is seen at once.
    async fn frame(&self, place: &ArchiveLocation) -> std::result::Result<Vec<u8>, ColdError> {
        match self.read(place).await {
            Ok(bytes) if unpack(Codec::Zstd, &bytes).is_ok() => return Ok(bytes),
            Ok(_) | Err(ColdError::Damaged) => {}
            Err(fault) => return Err(fault),
        }
        for block in blocks(place) {
            self.blocks.invalidate(&(Arc::from(place.segment.as_str()), block)).await;
        }
        let bytes = self.read(place).await?;
        if unpack(Codec::Zstd, &bytes).is_ok() { Ok(bytes) } else { Err(ColdError::Damaged) }
    }

    async fn read(&self, place: &ArchiveLocation) -> std::result::Result<Vec<u8>, ColdError> {
        if place.length > MAX_FRAME || place.offset.checked_add(place.length).is_none() {
            return Err(ColdError::Damaged);
        }
        let segment: Arc<str> = Arc::from(place.segment.as_str());
        let mut bytes = Vec::with_capacity(usize::try_from(place.length).unwrap_or(0));
        for block in blocks(place) {
            let start = block * BLOCK;
            let read = self.block(&segment, block).await?;
            let from = usize::try_from(place.offset.saturating_sub(start)).unwrap_or(usize::MAX);
            let to = usize::try_from(place.offset + place.length - start)
                .unwrap_or(usize::MAX)
                .min(usize::try_from(BLOCK).unwrap_or(usize::MAX));
            bytes.extend_from_slice(read.get(from..to).ok_or(ColdError::Damaged)?);
        }
        Ok(bytes)
    }

    async fn block(&self, segment: &Arc<str>, block: u64) -> std::result::Result<Bytes, ColdError> {
        let from = block * BLOCK;
        self.blocks
            .try_get_with((Arc::clone(segment), block), async {
                self.objects.range(segment, from, from + BLOCK).await
            })
            .await
            .map_err(|err: Arc<ArchiveError>| {
                tracing::debug!(error = %err, "a block of a segment cannot be read");
                err.fault()
            })
    }
}

/// Unpacks a content that was fetched.
fn state_of(content: StoredContent) -> Result<ContentState> {
    match content.kept {
        ContentStorage::Hot(_, codec, bytes) => {
            unpack(codec, &bytes).map(ContentState::Whole).map_err(|_| {
                StoreError::Refused(
                    "a stored content is not in the form that its codec names".to_owned(),
                )
            })
        }
        ContentStorage::Unavailable(fault) => Ok(ContentState::Unavailable(fault)),
        ContentStorage::Erased | ContentStorage::Cold(_) => Ok(ContentState::Gone),
        ContentStorage::Purged => Ok(ContentState::Purged),
    }
}

fn blocks(place: &ArchiveLocation) -> std::ops::Range<u64> {
    place.offset / BLOCK..(place.offset + place.length).div_ceil(BLOCK)
}

/// A record's content; `None` where it was erased or cannot be unpacked.
#[must_use]
pub fn opened(record: &StoredRecord) -> Option<serde_json::Value> {
    let kept = &record.content.as_ref()?.kept;
    if matches!(kept, ContentStorage::Unavailable(_)) {
        return Some(unavailable());
    }
    let (_, codec, bytes) = kept.hot()?;
    serde_json::from_slice(&unpack(codec, bytes).ok()?).ok()
}

/// The JSON in place of a content that the archive could not return.
#[must_use]
pub fn unavailable() -> serde_json::Value {
    serde_json::json!({ "unavailable": "cold" })
}
