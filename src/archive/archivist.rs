//! Moves contents of old records into segments, and writes segments anew without what was erased.
//!
//! Each step may be the last before a crash. A segment is put, then its manifest, both durable; then
//! one transaction says where the contents are now and lets go of their bytes: that is the moment when
//! they are cold. What was put before a crash is in no row, so the next run removes it and begins
//! again. A segment without what was erased is put, the rows move to it, and then the old one goes; if
//! it does not, the next run finds it in no row.
//!
//! One broker at a time, by a lease for each tenant whose owner is new with every run. A run that
//! stalled past its lease does no harm: its rows do not move, for the store looks at the owner in the
//! same transaction; and what it still deletes was in no row while it had the lease, under a name that
//! nobody writes twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::objects::{ArchiveError, Objects};
use crate::clock::{self, Clock};
use crate::domain::ids::{Micros, TenantId};
use crate::evidence::segment::{Item, Segment, folder, manifest_key, pack, segment_key};
use crate::fault::{self, Step};
use crate::metrics::ArchiveMetrics;
use crate::store::cold::{ArchiveMark, Frame, HotContent, Lease};
use crate::store::{Kept, Store, StoreError};

/// How long a run may go on between two signs of life: longer than a segment takes to put with all
/// its tries.
const LEASE: Duration = Duration::from_mins(10);

/// Records looked at together.
pub(super) const PAGE: i64 = 256;

/// How often what was held back is looked at again: a handoff that is open for more than a month is
/// rare, and one more day does not matter.
const RESCAN: Duration = Duration::from_hours(24);

/// Tries of one segment, where contents in it are erased while it is written.
pub(super) const TRIES: usize = 3;

/// How long [`Archivist::forget`] waits for another run to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How large segments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Contents at most.
    pub records: usize,
    /// Bytes at most, as stored in the database.
    pub bytes: usize,
}

/// What a run did for one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Contents that are cold now (in a dry run: would be).
    pub contents: u64,
    /// Their bytes in the database, before.
    pub bytes_before: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Segments written.
    pub segments: u64,
    /// Contents that are old enough, and may still be needed hot.
    pub held: u64,
    /// Erased contents whose frames are gone now.
    pub forgotten: u64,
    /// Segments that an interrupted run left, and which are gone now.
    pub orphans: u64,
}

/// Runs the cold tier over one store. Cheap to clone.
#[derive(Clone)]
pub struct Archivist {
    pub(super) store: Arc<dyn Store>,
    pub(super) objects: Arc<Objects>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: ArchiveMetrics,
    pub(super) settings: Settings,
}

impl std::fmt::Debug for Archivist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archivist").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// A content on its way into a segment.
#[derive(Debug, Clone)]
struct Pending {
    leaf_index: i64,
    commitment: String,
    content: HotContent,
}

/// How far to look, and what to do with what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Records made before go.
    pub before: Micros,
    /// Also looks at what earlier runs held back.
    pub whole: bool,
}

impl Archivist {
    /// Whether there is an archive to move anything to.
    #[must_use]
    pub fn has_archive(&self) -> bool {
        self.objects.exist()
    }

    /// One run for one tenant: removes what interrupted runs left, forgets what was erased, moves
    /// what is old enough.
    ///
    /// # Errors
    /// [`ArchiveError`]; what was done until then stays, and the next run goes on from there.
    pub async fn run(&self, tenant: &TenantId, run: Run) -> Result<Moved, ArchiveError> {
        let lease = new_lease(tenant);
        self.hold(tenant, &lease).await?;
        let mut moved = Moved::default();
        let outcome = async {
            moved.orphans = self.remove_orphans(tenant, &lease).await?;
            moved.forgotten = self.forget_erased(tenant, &lease).await?;
            self.move_old(tenant, &lease, run, &mut moved).await
        }
        .await;
        self.release(&lease).await;
        outcome.map(|()| moved)
    }

    /// What a run would move, without moving it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn preview(&self, tenant: &TenantId, before: Micros) -> Result<Moved, ArchiveError> {
        let mut moved = Moved::default();
        let (mut from, mut pending) = (0, Batch::default());
        while let Some(page) = self.page(tenant, &mut from, before, &mut moved).await? {
            for next in page {
                moved.contents += 1;
                moved.bytes_before += next.content.size.unsigned_abs();
                if pending.is_full(self.settings, &next) {
                    moved.segments += 1;
                    pending = Batch::default();
                }
                pending.push(next);
            }
        }
        moved.segments += u64::from(!pending.items.is_empty());
        Ok(moved)
    }

    /// Removes what was erased from the archive, now: frames of erased contents, and segments that a
    /// run left which was cut off, as these are in no row that could say what is in them. Whoever erases
    /// a content sets its salt and bytes null and leaves its place (`store::cold`), in a transaction of
    /// its own, and then calls this. Returns how many contents were forgotten.
    ///
    /// # Errors
    /// [`ArchiveError`]: to be called again.
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
    pub(super) async fn hold(&self, tenant: &TenantId, lease: &Lease) -> Result<(), ArchiveError> {
        let now = self.clock.now();
        if self.store.take_lease(lease, now, later(now, LEASE)).await? {
            Ok(())
        } else {
            Err(ArchiveError::Busy(tenant.to_string()))
        }
    }

    async fn release(&self, lease: &Lease) {
        if let Err(err) = self.store.release_lease(lease).await {
            tracing::debug!(error = %err, "the archive's lease ends by time");
        }
    }

    /// Removes segments that are in no row. Only what was listed before the lease is seen to be held
    /// still: whoever put that can no longer say that contents are in it.
    async fn remove_orphans(&self, tenant: &TenantId, lease: &Lease) -> Result<u64, ArchiveError> {
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
            tracing::info!(segment = orphan, "removes what an interrupted run left in the archive");
            self.remove(orphan).await?;
        }
        Ok(staged + orphans.len() as u64)
    }

    /// Removes a segment and its manifest; names are never used again, so this may come late.
    pub(super) async fn remove(&self, segment: &str) -> Result<(), ArchiveError> {
        self.objects.delete(segment).await?;
        fault::at(Step::SegmentRemoved);
        self.objects.delete(&manifest_key(segment)).await
    }

    async fn move_old(
        &self,
        tenant: &TenantId,
        lease: &Lease,
        run: Run,
        moved: &mut Moved,
    ) -> Result<(), ArchiveError> {
        let mark = self.store.find_archive_mark(tenant).await?;
        let now = self.clock.now();
        let whole = run.whole || now >= mark.rescan_at;
        let mut from = if whole { mark.done_below } else { mark.scanned_to };
        let mut first_held =
            (!whole && mark.done_below < mark.scanned_to).then_some(mark.done_below);
        let mut batch = Batch::default();
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

    /// The contents of the next records that may go; none at the first record that is not old enough.
    /// Moves `from` behind what was looked at, and counts what is held back.
    async fn page(
        &self,
        tenant: &TenantId,
        from: &mut i64,
        before: Micros,
        moved: &mut Moved,
    ) -> Result<Option<Vec<Pending>>, ArchiveError> {
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
                Some(content) => found.push(Pending {
                    leaf_index: record.leaf_index,
                    commitment: commitment(&record.body),
                    content,
                }),
                None => {}
            }
        }
        Ok(Some(found))
    }

    /// Makes contents cold.
    async fn archive(
        &self,
        tenant: &TenantId,
        lease: &Lease,
        batch: Batch,
        moved: &mut Moved,
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

    /// Packs what is still hot, on a thread of its own; returns also its bytes as stored.
    async fn load(
        &self,
        tenant: &TenantId,
        batch: &Batch,
    ) -> Result<(Vec<Item>, u64), ArchiveError> {
        let ids: Vec<_> = batch.items.iter().map(|pending| pending.content.id).collect();
        let found = self.store.list_contents(tenant, &ids).await?;
        let mut found: HashMap<String, Kept> =
            found.into_iter().map(|content| (content.id, content.kept)).collect();
        let batch = batch.items.clone();
        let packed = tokio::task::spawn_blocking(move || {
            let (mut items, mut before) = (Vec::with_capacity(batch.len()), 0);
            for pending in batch {
                let Some(Kept::Hot(_, codec, bytes)) =
                    found.remove(&pending.content.id.to_string())
                else {
                    continue;
                };
                before += bytes.len() as u64;
                // What does not unpack was tampered with: it stays where the verifier finds it.
                let Ok(frame) = pack(codec, &bytes) else { continue };
                items.push(Item {
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

    /// Puts a segment and its manifest; none where there is nothing to put.
    pub(super) async fn put(
        &self,
        tenant: &TenantId,
        items: &[Item],
    ) -> Result<Option<Segment>, ArchiveError> {
        let Some(head) = self.store.find_head(tenant).await? else {
            return Err(StoreError::Refused(format!("tenant {tenant} has no log")).into());
        };
        let Some(segment) = Segment::join(tenant, &head.log_id, clock::random(), items) else {
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

fn new_lease(tenant: &TenantId) -> Lease {
    Lease { name: format!("archive/{tenant}"), owner: clock::random_id().to_string() }
}

/// Contents for one segment.
#[derive(Debug, Clone, Default)]
struct Batch {
    items: Vec<Pending>,
    bytes: u64,
}

impl Batch {
    fn is_full(&self, settings: Settings, next: &Pending) -> bool {
        !self.items.is_empty()
            && (self.items.len() >= settings.records
                || self.bytes + next.content.size.unsigned_abs() > settings.bytes as u64)
    }

    fn push(&mut self, next: Pending) {
        self.bytes += next.content.size.unsigned_abs();
        self.items.push(next);
    }
}

pub(super) fn frames(segment: &Segment, items: &[Item]) -> Vec<Frame> {
    items
        .iter()
        .zip(&segment.manifest.contents)
        .map(|(item, entry)| Frame { id: item.id, offset: entry.offset, length: entry.length })
        .collect()
}

/// What a record commits its content by.
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
