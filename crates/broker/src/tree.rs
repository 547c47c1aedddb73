//! A log's Merkle tree as read from the store: tiles, proofs, receipts. Sizes and indexes are counts of records.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use handoffd_domain::ids::{Micros, TenantId};
use handoffd_domain::waits::LateHead;
use handoffd_evidence::merkle::{self, Hash, TILE_WIDTH};
use handoffd_evidence::receipt::{Notary, Receipt};
use handoffd_evidence::record::SealedRecord;
use handoffd_evidence::tiles::{TilePath, TileRequests, Tiles, wanted};
use handoffd_store::store::{Result, Store};

/// The path from a record to the root of the tree of `size` records; `None` where the index is out of range or the
/// log is shorter.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn inclusion(
    store: &Store,
    tenant: &TenantId,
    index: u64,
    size: u64,
) -> Result<Option<Vec<Hash>>> {
    if index >= size {
        return Ok(None);
    }
    let tiles = read(store, tenant, |nodes| {
        merkle::inclusion(nodes, index, size);
    });
    Ok(merkle::inclusion(&tiles.await?, index, size))
}

/// [`inclusion`] for many records at once, with shared reads.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn inclusions(
    store: &Store,
    tenant: &TenantId,
    indexes: &[u64],
    size: u64,
) -> Result<Option<Vec<Vec<Hash>>>> {
    let tiles = read(store, tenant, |nodes| {
        for index in indexes {
            merkle::inclusion(nodes, *index, size);
        }
    });
    let tiles = tiles.await?;
    Ok(indexes.iter().map(|index| merkle::inclusion(&tiles, *index, size)).collect())
}

/// Proof that the first `old` records are a prefix of the first `new`; `None` where `old` is 0 or over `new`, or the
/// log is shorter.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn consistency(
    store: &Store,
    tenant: &TenantId,
    old: u64,
    new: u64,
) -> Result<Option<Vec<Hash>>> {
    if old == 0 || old > new {
        return Ok(None);
    }
    let tiles = read(store, tenant, |nodes| {
        merkle::consistency(nodes, old, new);
    });
    Ok(merkle::consistency(&tiles.await?, old, new))
}

/// The root of the tree of the first `size` records; `None` where the log is shorter.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn root(store: &Store, tenant: &TenantId, size: u64) -> Result<Option<Hash>> {
    let tiles = read(store, tenant, |nodes| {
        merkle::root(nodes, size);
    });
    Ok(merkle::root(&tiles.await?, size))
}

/// The receipt of a record over the tree of its own transaction, so that it is always the same. (Over the latest
/// tree, if a version without a tree wrote the record.)
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn receipt(
    store: &Store,
    notary: &Notary,
    tenant: &TenantId,
    sealed: &SealedRecord,
) -> Result<Option<Receipt>> {
    let Ok(index) = u64::try_from(sealed.leaf_index) else { return Ok(None) };
    let size = match u64::try_from(sealed.tree_size) {
        Ok(size) if size > 0 => size,
        _ => store.find_head(tenant).await?.map_or(0, |head| head.tree.size()),
    };
    let proof = inclusion(store, tenant, index, size).await?;
    let root = root(store, tenant, size).await?;
    Ok(proof.zip(root).map(|(proof, root)| {
        let note = notary.sign(&sealed.log_id, size, root);
        Receipt::new(sealed, note.into(), proof)
    }))
}

/// The bytes of a tile: hashes of a level one after the other, or an entry bundle with each record after its length
/// in two bytes, big-endian (C2SP tlog-tiles). `None` where the log is shorter, or a record exceeds the format's
/// limit of 65 535 bytes.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn tile(store: &Store, tenant: &TenantId, path: &TilePath) -> Result<Option<Vec<u8>>> {
    let first = path.first().and_then(|first| i64::try_from(first).ok());
    let (Some(first), width) = (first, path.width as i64) else { return Ok(None) };
    let Some(level) = path.level else {
        let records = store.list_records(tenant, None, first, width, false).await?;
        let whole = records.len() as u64 == path.width;
        return Ok(bundle(records.iter().map(|record| &record.body[..])).filter(|_| whole));
    };
    let hashes = store.list_hashes(tenant, i64::from(level), first, width).await?;
    Ok((hashes.len() as u64 == path.width).then(|| hashes.concat()))
}

fn bundle<'a>(records: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend(u16::try_from(record.len()).ok()?.to_be_bytes());
        bytes.extend(record);
    }
    Some(bytes)
}

/// Number of records searched by [`find_leaf`]. Leaves have no index by hash: it would cost every commit a random
/// write, for a question that a receipt answers already.
pub const FIND_LEAF: u64 = 1 << 16;

/// The leaf index of a record by its hash, among the newest [`FIND_LEAF`] of the first `size`.
///
/// # Errors
/// [`handoffd_store::store::StoreError`] where the store cannot be read.
pub async fn find_leaf(
    store: &Store,
    tenant: &TenantId,
    hash: &Hash,
    size: u64,
) -> Result<Option<u64>> {
    const STEP: u64 = 4096;
    let lowest = size.saturating_sub(FIND_LEAF);
    let mut end = size;
    while end > lowest {
        let start = end.saturating_sub(STEP).max(lowest);
        let from = i64::try_from(start).unwrap_or(i64::MAX);
        let hashes = store.list_hashes(tenant, 0, from, (end - start) as i64).await?;
        if let Some(place) = hashes.iter().position(|known| known == hash) {
            return Ok(Some(start + place as u64));
        }
        end = start;
    }
    Ok(None)
}

/// How far each place outside the database has each log, as this broker knows.
#[derive(Debug, Default)]
pub struct PublishedHeads(RwLock<HashMap<String, BTreeMap<usize, PlaceHead>>>);

/// The part of a log that a place has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceHead {
    /// Kind of the place.
    pub kind: &'static str,
    /// Records in the last head that it took; 0 without one.
    pub size: u64,
    /// When the place last had all of the log; where it never had, when this broker first tried.
    pub at: Micros,
}

/// Intervals of publishing after which a place without the last tree head is late: more than one attempt failed.
pub const LATE_AFTER_INTERVALS: u32 = 3;

impl PlaceHead {
    /// Whether the place has lacked records of a log of this size for more than `allowed`.
    #[must_use]
    pub fn is_late(&self, size: u64, now: Micros, allowed: Duration) -> bool {
        self.size < size && now.since(self.at) > allowed
    }
}

impl PublishedHeads {
    /// Notes that a place has this much of a log, all there was.
    pub fn published(
        &self,
        log: &str,
        (place, kind): (usize, &'static str),
        size: u64,
        at: Micros,
    ) {
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        logs.entry(log.to_owned()).or_default().insert(place, PlaceHead { kind, size, at });
    }

    /// Notes that a place did not take a tree head.
    pub fn failed(&self, log: &str, (place, kind): (usize, &'static str), at: Micros) {
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let heads = logs.entry(log.to_owned()).or_default();
        heads.entry(place).or_insert(PlaceHead { kind, size: 0, at });
    }

    /// The parts of a log that places have, in the order of the setting.
    #[must_use]
    pub fn list(&self, log: &str) -> Vec<PlaceHead> {
        let logs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        logs.get(log).map(|heads| heads.values().copied().collect()).unwrap_or_default()
    }

    /// The place that has lacked records of a log of this size for longest, where that is more than `allowed`.
    #[must_use]
    pub fn late(&self, log: &str, size: u64, now: Micros, allowed: Duration) -> Option<LateHead> {
        let logs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let lacking = logs.get(log)?.values().filter(|head| head.is_late(size, now, allowed));
        let PlaceHead { kind, size: published, at: since } = *lacking.min_by_key(|head| head.at)?;
        Some(LateHead { place: kind, published, size, since })
    }
}

/// The newest cosigned tree head of each log, with its cosignatures.
#[derive(Debug, Default)]
pub struct CosignedHeads(RwLock<HashMap<String, CosignedHead>>);

#[derive(Debug)]
struct CosignedHead {
    size: u64,
    note: String,
    /// Signature lines by the witness' name.
    lines: BTreeMap<String, String>,
}

impl CosignedHeads {
    /// Adds a witness' signature line to a head; ignored for a head older than the newest.
    pub fn add(&self, log_id: &str, size: u64, note: &str, witness: &str, line: &str) {
        let mut heads = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let head = heads.entry(log_id.to_owned()).or_insert_with(|| CosignedHead {
            size,
            note: note.to_owned(),
            lines: BTreeMap::new(),
        });
        if size < head.size {
            return;
        }
        if note != head.note {
            *head = CosignedHead { size, note: note.to_owned(), lines: BTreeMap::new() };
        }
        head.lines.insert(witness.to_owned(), line.to_owned());
    }

    /// The size of the newest note, and the names of the witnesses that cosigned it.
    #[must_use]
    pub fn signers(&self, log_id: &str) -> Option<(u64, Vec<String>)> {
        let heads = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let head = heads.get(log_id)?;
        Some((head.size, head.lines.keys().cloned().collect()))
    }

    /// The newest note with all its cosignatures.
    #[must_use]
    pub fn find(&self, log_id: &str) -> Option<String> {
        let heads = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let head = heads.get(log_id)?;
        let lines = head.lines.values().map(|line| format!("{line}\n"));
        Some(std::iter::once(head.note.clone()).chain(lines).collect())
    }
}

async fn read(
    store: &Store,
    tenant: &TenantId,
    proof: impl FnOnce(&TileRequests),
) -> Result<Tiles> {
    let mut tiles = Tiles::default();
    for (level, index) in wanted(proof) {
        let from = i64::try_from(index * TILE_WIDTH).unwrap_or(i64::MAX);
        let hashes = store.list_hashes(tenant, i64::from(level), from, TILE_WIDTH as i64).await?;
        tiles.insert((level, index), hashes);
    }
    Ok(tiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    #[test]
    fn a_place_is_late_where_it_lacks_records_for_longer_than_allowed() {
        let heads = PublishedHeads::default();
        let late = |size, minutes| {
            heads.late("log", size, Micros(minutes * MINUTE), Duration::from_mins(3))
        };
        assert_eq!(late(5, 100), None, "nothing was tried yet");
        heads.published("log", (0, "file"), 5, Micros(0));
        assert_eq!(late(5, 100), None, "it has all");
        assert_eq!(late(6, 3), None, "it gets the rest with the next run");
        let expected = LateHead { place: "file", published: 5, size: 6, since: Micros(0) };
        assert_eq!(late(6, 4), Some(expected));
        heads.failed("log", (1, "https"), Micros(MINUTE));
        heads.failed("log", (1, "https"), Micros(2 * MINUTE));
        heads.published("log", (0, "file"), 6, Micros(3 * MINUTE));
        let expected = LateHead { place: "https", published: 0, size: 6, since: Micros(MINUTE) };
        assert_eq!(late(6, 5), Some(expected), "since its first failure");
        heads.published("log", (1, "https"), 6, Micros(5 * MINUTE));
        assert_eq!(late(6, 50), None);
    }
}
