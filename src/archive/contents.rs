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

use super::objects::{ArchiveError, Objects};
use crate::domain::ids::{ContentId, TaskId, TenantId};
use crate::evidence::commitment::{Codec, unpack};
use crate::store::cold::{Cold, ColdFault, Place};
use crate::store::{Kept, Result, Store, StoreError, StoredContent, StoredRecord};

/// Bytes read from a segment at once: some sixty contents of usual size, which a task's trace often
/// needs together.
const BLOCK: u64 = 256 * 1024;

/// How long a block may be kept: long enough for a trace, short enough that what was erased is soon
/// out of memory too.
const BLOCK_TTL: Duration = Duration::from_mins(1);

/// Reads of one page under way at once.
const AT_ONCE: usize = 8;

/// The longest frame that is believed: no content is larger (`evidence::commitment`).
const MAX_FRAME: u64 = 64 * 1024 * 1024;

/// What became of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its canonical bytes.
    Whole(Vec<u8>),
    /// It was erased, or never was.
    Gone,
    /// It was past its time (`retention.delete_after_days`).
    Purged,
    /// It is in the archive, which did not give it.
    Unavailable(ColdFault),
}

/// Contents of records, hot or cold. Cheap to clone.
#[derive(Clone)]
pub struct Contents {
    store: Arc<dyn Store>,
    objects: Arc<Objects>,
    blocks: Cache<(Arc<str>, u64), Bytes>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").field("objects", &self.objects).finish_non_exhaustive()
    }
}

impl Contents {
    pub(super) fn new(store: Arc<dyn Store>, objects: Arc<Objects>, cache_bytes: usize) -> Self {
        let blocks = Cache::builder()
            .max_capacity(cache_bytes as u64)
            .weigher(|_, bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX))
            .time_to_live(BLOCK_TTL)
            .build();
        Self { store, objects, blocks }
    }

    /// One content, unpacked.
    ///
    /// # Errors
    /// When the store fails; an archive that fails is [`Found::Unavailable`].
    pub async fn find(&self, tenant: &TenantId, id: ContentId) -> Result<Found> {
        let Some(found) = self.store.find_content(tenant, id).await? else {
            return Ok(Found::Gone);
        };
        match self.resolve(tenant, found).await?.kept {
            Kept::Hot(_, codec, bytes) => unpack(codec, &bytes).map(Found::Whole).map_err(|_| {
                StoreError::Refused(
                    "a stored content is not in the form that its codec names".to_owned(),
                )
            }),
            Kept::Unavailable(fault) => Ok(Found::Unavailable(fault)),
            Kept::Erased | Kept::Cold(_) => Ok(Found::Gone),
            Kept::Purged => Ok(Found::Purged),
        }
    }

    /// One content as JSON for a reader: none where it is gone, `{"unavailable":"cold"}` where the
    /// archive did not give it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_json(
        &self,
        tenant: &TenantId,
        id: ContentId,
    ) -> Result<Option<serde_json::Value>> {
        Ok(match self.find(tenant, id).await? {
            Found::Whole(bytes) => serde_json::from_slice(&bytes).ok(),
            Found::Gone | Found::Purged => None,
            Found::Unavailable(_) => Some(unavailable()),
        })
    }

    /// Records with their contents, cold ones fetched: see [`Store::list_records`]. None is
    /// [`Kept::Cold`]; what the archive did not give is [`Kept::Unavailable`].
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        let mut records = self.store.list_records(tenant, task, from, limit, true).await?;
        let cold: Vec<(usize, StoredContent)> = records
            .iter()
            .enumerate()
            .filter_map(|(place, record)| Some((place, record.content.clone()?)))
            .filter(|(_, content)| matches!(content.kept, Kept::Cold(_)))
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

    /// Fetches a content where it is cold.
    async fn resolve(&self, tenant: &TenantId, content: StoredContent) -> Result<StoredContent> {
        let Kept::Cold(Cold { salt, place }) = content.kept else { return Ok(content) };
        let fault = match self.frame(&place).await {
            Ok(bytes) => {
                return Ok(StoredContent { kept: Kept::Hot(salt, Codec::Zstd, bytes), ..content });
            }
            Err(fault) => fault,
        };
        // Moved or erased while it was read?
        if fault == ColdFault::Missing
            && let Ok(id) = content.id.parse()
        {
            match self.store.find_content(tenant, id).await?.map(|now| now.kept) {
                Some(Kept::Cold(now)) if now.place != place => {
                    let kept = match self.frame(&now.place).await {
                        Ok(bytes) => Kept::Hot(now.salt, Codec::Zstd, bytes),
                        Err(fault) => Kept::Unavailable(fault),
                    };
                    return Ok(StoredContent { kept, ..content });
                }
                Some(kept @ (Kept::Erased | Kept::Purged | Kept::Hot(..))) => {
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
        Ok(StoredContent { kept: Kept::Unavailable(fault), ..content })
    }

    /// A frame that unpacks. What does not is read once more past the cache: a segment that was
    /// mended shows at once.
    async fn frame(&self, place: &Place) -> std::result::Result<Vec<u8>, ColdFault> {
        match self.read(place).await {
            Ok(bytes) if unpack(Codec::Zstd, &bytes).is_ok() => return Ok(bytes),
            Ok(_) | Err(ColdFault::Damaged) => {}
            Err(fault) => return Err(fault),
        }
        for block in blocks(place) {
            self.blocks.invalidate(&(Arc::from(place.segment.as_str()), block)).await;
        }
        let bytes = self.read(place).await?;
        if unpack(Codec::Zstd, &bytes).is_ok() { Ok(bytes) } else { Err(ColdFault::Damaged) }
    }

    async fn read(&self, place: &Place) -> std::result::Result<Vec<u8>, ColdFault> {
        if place.length > MAX_FRAME || place.offset.checked_add(place.length).is_none() {
            return Err(ColdFault::Damaged);
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
            bytes.extend_from_slice(read.get(from..to).ok_or(ColdFault::Damaged)?);
        }
        Ok(bytes)
    }

    async fn block(&self, segment: &Arc<str>, block: u64) -> std::result::Result<Bytes, ColdFault> {
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

fn blocks(place: &Place) -> std::ops::Range<u64> {
    place.offset / BLOCK..(place.offset + place.length).div_ceil(BLOCK)
}

/// What stands in the place of a content that the archive did not give.
#[must_use]
pub fn unavailable() -> serde_json::Value {
    serde_json::json!({ "unavailable": "cold" })
}
