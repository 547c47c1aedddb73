//! Rewrites segments without erased contents. Rows with a location and without a salt name these contents, so an
//! erasure commits without the archive, and an interrupted run is resumed.

use std::collections::HashMap;

use super::archivist::{Archivist, PAGE, TRIES, changing, commitment, frames};
use super::error::ArchiveError;
use handoffd_domain::ids::{ContentId, TenantId};
use handoffd_evidence::segment::{SegmentItem, SegmentManifest, manifest_key, slice};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::cold::{ExclusiveLease, Frame};

/// Most segments rewritten in one run; the next run continues.
const AT_ONCE: i64 = 10_000;

impl Archivist {
    pub(super) async fn forget_erased(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
    ) -> Result<u64, ArchiveError> {
        let mut forgotten = 0;
        for segment in self.store.list_to_forget(tenant, AT_ONCE).await? {
            self.hold(tenant, lease).await?;
            forgotten += self.rewrite(tenant, lease, &segment).await?;
        }
        Ok(forgotten)
    }

    /// Rewrites a segment without its erased contents. Frames of a damaged segment are copied unchanged: damage
    /// must not prevent an erasure.
    async fn rewrite(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        segment: &str,
    ) -> Result<u64, ArchiveError> {
        for _ in 0..TRIES {
            let inside = self.store.list_inhabitants(tenant, segment).await?;
            let items = match self.objects.get(segment).await {
                Ok(bytes) => self.items(tenant, segment, &bytes, &inside.live).await?,
                // Lost: the places stay, so that it is tried again should the segment come back.
                Err(ArchiveError::Missing(_)) if self.holds_others(segment).await? => {
                    tracing::warn!(segment, "a segment with erased contents is missing");
                    return Ok(0);
                }
                // A disk that is not mounted shows an empty folder, and still has the contents.
                Err(ArchiveError::Missing(_)) => {
                    return Err(ArchiveError::Away(format!(
                        "it holds nothing of this log, and should hold {segment}"
                    )));
                }
                Err(err) => return Err(err),
            };
            let (to, frames) = match self.put(tenant, &items).await? {
                Some(put) => (put.key().to_owned(), frames(&put, &items)),
                None => (String::new(), Vec::new()),
            };
            if self.store.move_segment(tenant, lease, segment, &to, &frames).await? {
                fault::at(Step::ForgetMoved);
                self.remove(segment).await?;
                self.metrics.forgotten.inc_by(inside.erased.len() as u64);
                return Ok(inside.erased.len() as u64);
            }
            if !to.is_empty() {
                self.remove(&to).await?;
            }
            self.hold(tenant, lease).await?;
        }
        Err(changing(segment))
    }

    /// Whether the archive holds anything of a segment's log.
    async fn holds_others(&self, segment: &str) -> Result<bool, ArchiveError> {
        let folder = segment.rsplit_once('/').map_or("", |(folder, _)| folder);
        Ok(!self.objects.list(folder).await?.is_empty())
    }

    /// The frames of a segment to keep, with their metadata from the manifest, or else from the log.
    async fn items(
        &self,
        tenant: &TenantId,
        segment: &str,
        bytes: &[u8],
        live: &[Frame],
    ) -> Result<Vec<SegmentItem>, ArchiveError> {
        let manifest = match self.objects.get(&manifest_key(segment)).await {
            Ok(bytes) => SegmentManifest::parse(&bytes).ok(),
            Err(ArchiveError::Missing(_)) => None,
            Err(err) => return Err(err),
        };
        let mut known: HashMap<ContentId, (i64, String)> = HashMap::new();
        for entry in manifest.iter().flat_map(|manifest| &manifest.contents) {
            if let Ok(id) = entry.content_id.parse() {
                known.insert(id, (entry.leaf_index, entry.commitment.clone()));
            }
        }
        if !live.iter().all(|frame| known.contains_key(&frame.id)) {
            known = self.leaves(tenant, segment).await?;
        }
        let mut items: Vec<_> = live
            .iter()
            .filter_map(|frame| {
                let (leaf_index, commitment) = known.get(&frame.id)?.clone();
                // A frame beyond the end was lost before: it stays lost, as an empty one.
                let frame_bytes = slice(bytes, frame.offset, frame.length).unwrap_or_default();
                Some(SegmentItem {
                    id: frame.id,
                    leaf_index,
                    commitment,
                    frame: frame_bytes.to_vec(),
                })
            })
            .collect();
        items.sort_by_key(|item| item.leaf_index);
        Ok(items)
    }

    /// The contents of the records in a segment's range, from the log.
    async fn leaves(
        &self,
        tenant: &TenantId,
        segment: &str,
    ) -> Result<HashMap<ContentId, (i64, String)>, ArchiveError> {
        let name = segment.rsplit('/').next().unwrap_or(segment);
        let mut span = name.splitn(3, '-').filter_map(|part| part.parse::<i64>().ok());
        let (Some(first), Some(last)) = (span.next(), span.next()) else {
            return Err(ArchiveError::Damaged(segment.to_owned()));
        };
        let (mut known, mut from) = (HashMap::new(), first);
        while from <= last {
            let page = self.store.list_records(tenant, None, from, PAGE, true).await?;
            let Some(end) = page.last() else { break };
            from = end.leaf_index + 1;
            for record in page {
                if let Some(Ok(id)) = record.content.map(|content| content.id.parse()) {
                    known.insert(id, (record.leaf_index, commitment(&record.body)));
                }
            }
        }
        Ok(known)
    }
}
