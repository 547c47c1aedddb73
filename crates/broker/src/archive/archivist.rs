//! Moves contents of old records into segments, and writes segments anew without what was erased.
//!
//! Each step may be the last before a crash. A segment is put, then its manifest, both durable; then
//! one transaction says where the contents are now and lets go of their bytes: that is the moment when
//! they are cold. A segment that was put before a crash is in no row, so the next run removes it and
//! begins again. A segment without the erased contents is put, the rows move to it, and then the old
//! one goes; if it does not, the next run finds it in no row.
//!
//! One broker at a time, by a lease for each tenant whose owner is new with every run. A run that
//! stalled past its lease does no harm: its rows do not move, for the store looks at the owner in the
//! same transaction; and the files that it still deletes were in no row while it had the lease, under
//! a name that is never written twice.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::error::ArchiveError;
use super::objects::Objects;
use crate::metrics::ArchiveMetrics;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::segment::{
    ArchiveSegment, SegmentItem, folder, manifest_key, pack, segment_key,
};
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::cold::{ArchiveMark, ExclusiveLease, Frame, HotContent};
use handoffd_store::store::{ContentStorage, Store, StoreError};

/// Time between two renewals of the lease at most: longer than the write of one segment with all its retries.
const LEASE: Duration = Duration::from_mins(10);

/// Records read at once.
pub(super) const PAGE: i64 = 256;

/// Interval between checks of held contents: a handoff open for more than a month is rare, and one more day does not
/// matter.
const RESCAN: Duration = Duration::from_hours(24);

/// Attempts to write one segment while contents in it are being erased.
pub(super) const TRIES: usize = 3;

/// Time for which [`Archivist::forget`] waits for another run to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// Most contents.
    pub records: usize,
    /// Most bytes, as stored in the database.
    pub bytes: usize,
}

/// Counts of one run for one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveCounts {
    /// Contents moved to the cold tier (in a dry run: contents that would move).
    pub contents: u64,
    /// Their size in the database before, in bytes.
    pub bytes_before: u64,
    /// Size of the segments, in bytes.
    pub bytes: u64,
    pub segments: u64,
    /// Contents that are old enough, but may still be needed hot.
    pub held: u64,
    /// Erased contents removed from segments.
    pub forgotten: u64,
    /// Removed segments of interrupted runs.
    pub orphans: u64,
}

/// Moves contents of one store into the archive. Cheap to clone.
#[derive(Clone)]
pub struct Archivist {
    pub(super) store: Arc<Store>,
    pub(super) objects: Arc<Objects>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: ArchiveMetrics,
    pub(super) settings: ArchiveSettings,
}

impl std::fmt::Debug for Archivist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archivist").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// A content to be written into a segment.
#[derive(Debug, Clone)]
struct PendingContent {
    leaf_index: i64,
    commitment: String,
    content: HotContent,
}

/// The scope of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveRun {
    /// Only records made before this time.
    pub before: Micros,
    /// Whether to check held contents of earlier runs again.
    pub whole: bool,
}

impl Archivist {
    /// Whether the settings name an archive.
    #[must_use]
    pub fn has_archive(&self) -> bool {
        self.objects.exist()
    }

    /// Runs once for one tenant: removes segments of interrupted runs, removes erased contents, moves old
    /// contents.
    ///
    /// # Errors
    /// [`ArchiveError`]; completed steps stay, and the next run continues.
    pub async fn run(
        &self,
        tenant: &TenantId,
        run: ArchiveRun,
    ) -> Result<ArchiveCounts, ArchiveError> {
        let lease = new_lease(tenant);
        self.hold(tenant, &lease).await?;
        let mut moved = ArchiveCounts::default();
        let outcome = async {
            moved.orphans = self.remove_orphans(tenant, &lease).await?;
            moved.forgotten = self.forget_erased(tenant, &lease).await?;
            self.move_old(tenant, &lease, run, &mut moved).await
        }
        .await;
        self.release(&lease).await;
        outcome.map(|()| moved)
    }

    /// Counts what a run would move, without moving it.
    ///
    /// # Errors
    /// [`ArchiveError`] where the store fails.
    pub async fn preview(
        &self,
        tenant: &TenantId,
        before: Micros,
    ) -> Result<ArchiveCounts, ArchiveError> {
        let mut moved = ArchiveCounts::default();
        let (mut from, mut pending) = (0, SegmentBatch::default());
        // Several records may share a content.
        let mut counted = HashSet::new();
        while let Some(page) = self.page(tenant, &mut from, before, &mut moved).await? {
            for next in page.into_iter().filter(|next| counted.insert(next.content.id)) {
                moved.contents += 1;
                moved.bytes_before += next.content.size.unsigned_abs();
                if pending.is_full(self.settings, &next) {
                    moved.segments += 1;
                    pending = SegmentBatch::default();
                }
                pending.push(next);
            }
        }
        moved.segments += u64::from(!pending.items.is_empty());
        Ok(moved)
    }

    /// Removes erased data from the archive now: frames of erased contents, and segments of an interrupted run,
    /// since no row states their contents. An erasure first sets a content's salt and bytes to null, keeps its
    /// location (`store::cold`), commits, and then calls this. Returns the number of removed contents.
    ///
    /// # Errors
    /// [`ArchiveError`]: call again.
    pub async fn forget(&self, tenant: &TenantId) -> Result<u64, ArchiveError> {
        if !self.has_archive() && self.store.list_to_forget(tenant, 1).await?.is_empty() {
            return Ok(0);
        }
        let lease = new_lease(tenant);
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(err) = self.hold(tenant, &lease).await {
            let busy = matches!(err, ArchiveError::Busy(_));
            if !busy || tokio::time::Instant::now() > deadline {
                return Err(err);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let outcome = async {
            let forgotten = self.forget_erased(tenant, &lease).await?;
            self.remove_orphans(tenant, &lease).await?;
            Ok(forgotten)
        }
        .await;
        self.release(&lease).await;
        outcome
    }

    /// Takes or renews the lease.
    pub(super) async fn hold(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
    ) -> Result<(), ArchiveError> {
        let now = self.clock.now();
        if self.store.take_lease(lease, now, later(now, LEASE)).await? {
            Ok(())
        } else {
            Err(ArchiveError::Busy(tenant.to_string()))
        }
    }

    async fn release(&self, lease: &ExclusiveLease) {
        if let Err(err) = self.store.release_lease(lease).await {
            tracing::debug!(error = %err, "the archive's lease could not be released; it expires by itself");
        }
    }

    /// Removes segments without rows. Only segments listed before the lease was last confirmed are removed: their
    /// writer can no longer commit rows for them.
    async fn remove_orphans(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
    ) -> Result<u64, ArchiveError> {
        let Some(head) = self.store.find_head(tenant).await? else { return Ok(0) };
        let folder = folder(tenant, &head.log_id);
        let staged = self.objects.remove_staged(&folder).await?;
        let objects = self.objects.list(&folder).await?;
        let segments: BTreeSet<String> =
            objects.iter().filter_map(|object| segment_key(object)).collect();
        let segments: Vec<String> = segments.into_iter().collect();
        let mut orphans = Vec::new();
        for some in segments.chunks(1_000) {
            orphans.extend(self.store.list_unreferenced(tenant, some).await?);
        }
        if orphans.is_empty() {
            return Ok(staged);
        }
        self.hold(tenant, lease).await?;
        for orphan in &orphans {
            tracing::info!(segment = orphan, "removing segments of an interrupted run");
            self.remove(orphan).await?;
        }
        Ok(staged + orphans.len() as u64)
    }

    /// Removes a segment and its manifest. Names are never reused, so a late call is harmless.
    pub(super) async fn remove(&self, segment: &str) -> Result<(), ArchiveError> {
        self.objects.delete(segment).await?;
        fault::at(Step::SegmentRemoved);
        self.objects.delete(&manifest_key(segment)).await
    }

    async fn move_old(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        run: ArchiveRun,
        moved: &mut ArchiveCounts,
    ) -> Result<(), ArchiveError> {
        let mark = self.store.find_archive_mark(tenant).await?;
        let now = self.clock.now();
        let whole = run.whole || now >= mark.rescan_at;
        let mut from = if whole { mark.done_below } else { mark.scanned_to };
        let mut first_held =
            (!whole && mark.done_below < mark.scanned_to).then_some(mark.done_below);
        let mut batch = SegmentBatch::default();
        loop {
            let held = moved.held;
            let start = from;
            let Some(page) = self.page(tenant, &mut from, run.before, moved).await? else { break };
            if moved.held > held {
                first_held.get_or_insert(start);
            }
            for next in page {
                if batch.is_full(self.settings, &next) {
                    self.archive(tenant, lease, std::mem::take(&mut batch), moved).await?;
                }
                batch.push(next);
            }
        }
        self.archive(tenant, lease, batch, moved).await?;
        let mark = ArchiveMark {
            done_below: first_held.unwrap_or(from),
            scanned_to: mark.scanned_to.max(from),
            rescan_at: if whole { later(now, RESCAN) } else { mark.rescan_at },
        };
        if whole {
            self.metrics.held.set(i64::try_from(moved.held).unwrap_or(i64::MAX));
        }
        self.store.keep_archive_mark(tenant, mark).await?;
        Ok(())
    }

    /// The contents of the next records that may move; `None` at the first record that is too recent. Advances
    /// `from` past the records read, and counts held contents.
    async fn page(
        &self,
        tenant: &TenantId,
        from: &mut i64,
        before: Micros,
        moved: &mut ArchiveCounts,
    ) -> Result<Option<Vec<PendingContent>>, ArchiveError> {
        let records = self.store.list_archivable(tenant, *from, PAGE).await?;
        let mut found = Vec::new();
        let old = records.iter().take_while(|record| record.recorded_at < before).count();
        if old == 0 {
            return Ok(None);
        }
        for record in records.into_iter().take(old) {
            *from = record.leaf_index + 1;
            match record.content {
                Some(content) if content.held => moved.held += 1,
                Some(content) => found.push(PendingContent {
                    leaf_index: record.leaf_index,
                    commitment: commitment(&record.body),
                    content,
                }),
                None => {}
            }
        }
        Ok(Some(found))
    }

    /// Moves contents to the cold tier.
    async fn archive(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        batch: SegmentBatch,
        moved: &mut ArchiveCounts,
    ) -> Result<(), ArchiveError> {
        if batch.items.is_empty() {
            return Ok(());
        }
        for _ in 0..TRIES {
            self.hold(tenant, lease).await?;
            let (items, before) = self.load(tenant, &batch).await?;
            let Some(segment) = self.put(tenant, &items).await? else { return Ok(()) };
            let frames = frames(&segment, &items);
            if self.store.settle_cold(tenant, lease, segment.key(), &frames).await? {
                fault::at(Step::RowsCold);
                moved.contents += items.len() as u64;
                moved.bytes_before += before;
                moved.bytes += segment.bytes.len() as u64;
                moved.segments += 1;
                self.metrics.contents.inc_by(items.len() as u64);
                self.metrics.segments.inc();
                self.metrics.bytes.inc_by(segment.bytes.len() as u64);
                return Ok(());
            }
            // One of them was erased meanwhile: it must not stay in the archive.
            self.remove(segment.key()).await?;
        }
        Err(changing("a segment in the making"))
    }

    /// Packs hot contents on a separate thread; returns also their stored size in bytes.
    async fn load(
        &self,
        tenant: &TenantId,
        batch: &SegmentBatch,
    ) -> Result<(Vec<SegmentItem>, u64), ArchiveError> {
        let ids: Vec<_> = batch.items.iter().map(|pending| pending.content.id).collect();
        let found = self.store.list_contents(tenant, &ids).await?;
        let mut found: HashMap<String, ContentStorage> =
            found.into_iter().map(|content| (content.id, content.kept)).collect();
        let batch = batch.items.clone();
        let packed = tokio::task::spawn_blocking(move || {
            let (mut items, mut before) = (Vec::with_capacity(batch.len()), 0);
            for pending in batch {
                let Some(ContentStorage::Hot(_, codec, bytes)) =
                    found.remove(&pending.content.id.to_string())
                else {
                    continue;
                };
                before += bytes.len() as u64;
                // A content that does not unpack was tampered with: it stays where the verifier finds it.
                let Ok(frame) = pack(codec, &bytes) else { continue };
                items.push(SegmentItem {
                    id: pending.content.id,
                    leaf_index: pending.leaf_index,
                    commitment: pending.commitment,
                    frame,
                });
            }
            (items, before)
        });
        packed.await.map_err(|err| ArchiveError::Away(err.to_string()))
    }

    /// Writes a segment and its manifest; `None` for an empty batch.
    pub(super) async fn put(
        &self,
        tenant: &TenantId,
        items: &[SegmentItem],
    ) -> Result<Option<ArchiveSegment>, ArchiveError> {
        let Some(head) = self.store.find_head(tenant).await? else {
            return Err(StoreError::Refused(format!("tenant {tenant} has no log")).into());
        };
        let Some(segment) = ArchiveSegment::join(tenant, &head.log_id, clock::random(), items)
        else {
            return Ok(None);
        };
        self.objects.put(segment.key(), Bytes::copy_from_slice(&segment.bytes)).await?;
        fault::at(Step::SegmentPut);
        let manifest = Bytes::from(segment.manifest.to_vec());
        self.objects.put(&manifest_key(segment.key()), manifest).await?;
        fault::at(Step::ManifestPut);
        Ok(Some(segment))
    }
}

fn new_lease(tenant: &TenantId) -> ExclusiveLease {
    ExclusiveLease { name: format!("archive/{tenant}"), owner: clock::random_id().to_string() }
}

/// Contents of one segment.
#[derive(Debug, Clone, Default)]
struct SegmentBatch {
    items: Vec<PendingContent>,
    bytes: u64,
}

impl SegmentBatch {
    fn is_full(&self, settings: ArchiveSettings, next: &PendingContent) -> bool {
        !self.items.is_empty()
            && (self.items.len() >= settings.records
                || self.bytes + next.content.size.unsigned_abs() > settings.bytes as u64)
    }

    fn push(&mut self, next: PendingContent) {
        self.bytes += next.content.size.unsigned_abs();
        self.items.push(next);
    }
}

pub(super) fn frames(segment: &ArchiveSegment, items: &[SegmentItem]) -> Vec<Frame> {
    items
        .iter()
        .zip(&segment.manifest.contents)
        .map(|(item, entry)| Frame { id: item.id, offset: entry.offset, length: entry.length })
        .collect()
}

/// The commitment in a record's body.
pub(super) fn commitment(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.get("messageCommitment").and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn changing(what: &str) -> ArchiveError {
    StoreError::Conflict(format!("{what} kept changing while it was written")).into()
}

fn later(at: Micros, by: Duration) -> Micros {
    Micros(at.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}
