//! Tree tiles: the tiles a proof needs, the proof computed from them, and their path names by C2SP tlog-tiles.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::merkle::{Hash, Nodes, TILE_HEIGHT, TILE_WIDTH, node_hash};

/// A tile: its level (0 holds the leaves' hashes) and its index within the level.
pub type TileId = (u32, u64);

/// The tile that holds a node or its descendants, and the index of the node's first hash in the tile.
fn tile_of(level: u32, index: u64) -> (TileId, u64) {
    let first = index << (level % TILE_HEIGHT);
    ((level / TILE_HEIGHT, first / TILE_WIDTH), first % TILE_WIDTH)
}

/// The tiles whose nodes `proof` reads.
#[must_use]
pub fn wanted<T>(proof: impl FnOnce(&TileRequests) -> T) -> BTreeSet<TileId> {
    let wanted = TileRequests(RefCell::default());
    // The result is computed from zeros and is useless; only the requested tiles matter.
    let _ = proof(&wanted);
    wanted.0.into_inner()
}

/// Records the tiles that a proof computation reads.
#[derive(Debug, Default)]
pub struct TileRequests(RefCell<BTreeSet<TileId>>);

impl Nodes for TileRequests {
    fn node(&self, level: u32, index: u64) -> Option<Hash> {
        self.0.borrow_mut().insert(tile_of(level, index).0);
        Some([0; 32])
    }
}

/// Tiles as read; the tile at the right edge may have fewer hashes than a full one.
#[derive(Debug, Default)]
pub struct Tiles(BTreeMap<TileId, Vec<Hash>>);

impl Tiles {
    /// Adds a tile with its hashes from index 0.
    pub fn insert(&mut self, id: TileId, hashes: Vec<Hash>) {
        self.0.insert(id, hashes);
    }
}

impl Nodes for Tiles {
    fn node(&self, level: u32, index: u64) -> Option<Hash> {
        let (id, first) = tile_of(level, index);
        let (first, count) = (usize::try_from(first).ok()?, 1 << (level % TILE_HEIGHT));
        let mut hashes = self.0.get(&id)?.get(first..first + count)?.to_vec();
        while hashes.len() > 1 {
            hashes = hashes.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
        }
        hashes.first().copied()
    }
}

/// A requested tile: hashes of a level, or records, the first `width` of the tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TilePath {
    /// The level of hashes; `None` for an entry bundle (records).
    pub level: Option<u32>,
    /// The tile's index within its level.
    pub index: u64,
    /// 256, or 1 to 255 for a partial tile.
    pub width: u64,
}

impl TilePath {
    /// Parses the part after `tile/`: `<L>/<N>[.p/<W>]` or `entries/<N>[.p/<W>]` (C2SP tlog-tiles). `None` for
    /// anything else: each tile has exactly one name.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let (kind, place) = path.split_once('/')?;
        let level = match kind {
            "entries" => None,
            level => Some(decimal(level).filter(|level| *level <= 63)?),
        };
        let (place, width) = match place.rsplit_once(".p/") {
            Some((place, width)) => {
                (place, decimal(width).filter(|width| (1..TILE_WIDTH).contains(width))?)
            }
            None => (place, TILE_WIDTH),
        };
        let level = level.and_then(|level| u32::try_from(level).ok());
        Some(Self { level, index: grouped(place)?, width })
    }

    /// The index of the first requested hash or record within its level.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.index.checked_mul(TILE_WIDTH)
    }

    /// Whether the tile is full, and so worth caching. A partial tile never changes either, but is rarely
    /// requested twice.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.width == TILE_WIDTH
    }
}

/// Parses a decimal number without leading zeros.
fn decimal(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// Parses a number in groups of three digits, each but the last prefixed by `x`: 1234067 is `x001/x234/067`.
fn grouped(text: &str) -> Option<u64> {
    let (before, last) = match text.rsplit_once('/') {
        Some((before, last)) => (before.split('/').collect(), last),
        None => (Vec::new(), text),
    };
    if before.first() == Some(&"x000") {
        return None;
    }
    let groups = before.into_iter().map(|group| group.strip_prefix('x')).chain([Some(last)]);
    groups.into_iter().try_fold(0_u64, |number, group| {
        let digits = group
            .filter(|group| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit()))?;
        number.checked_mul(1000)?.checked_add(digits.parse().ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::super::merkle::{Frontier, consistency, inclusion, root, verify_inclusion};
    use super::*;
    use sha2::{Digest, Sha256};

    /// A tree whose tiles are kept as the store keeps them: the leaves, and every eighth level.
    fn kept(size: u64) -> (BTreeMap<u32, Vec<Hash>>, Frontier) {
        let (mut levels, mut frontier) = (BTreeMap::<u32, Vec<Hash>>::new(), Frontier::default());
        for n in 0..size {
            let leaf: Hash = Sha256::digest(n.to_be_bytes()).into();
            levels.entry(0).or_default().push(leaf);
            frontier.push(leaf, |level, _, hash| {
                if level % TILE_HEIGHT == 0 {
                    levels.entry(level / TILE_HEIGHT).or_default().push(hash);
                }
            });
        }
        (levels, frontier)
    }

    fn read(levels: &BTreeMap<u32, Vec<Hash>>, ids: BTreeSet<TileId>) -> Tiles {
        let mut tiles = Tiles::default();
        for (level, index) in ids {
            let hashes = levels.get(&level).into_iter().flatten();
            let skip = usize::try_from(index * TILE_WIDTH).unwrap();
            tiles.insert((level, index), hashes.skip(skip).take(256).copied().collect());
        }
        tiles
    }

    #[test]
    fn proofs_from_the_tiles_that_they_ask_for_hold_over_several_levels() {
        let (levels, frontier) = kept(70_000);
        let sizes = [1, 255, 256, 257, 65_535, 65_536, 65_537, 70_000];
        for size in sizes {
            let ids = wanted(|nodes| root(nodes, size));
            let top = root(&read(&levels, ids), size).unwrap();
            if size == 70_000 {
                assert_eq!(top, frontier.root());
            }
            for index in [0, size / 2, size - 1] {
                let ids = wanted(|nodes| inclusion(nodes, index, size));
                assert!(ids.len() <= 6, "{ids:?}");
                let proof = inclusion(&read(&levels, ids), index, size).unwrap();
                let leaf = levels[&0][usize::try_from(index).unwrap()];
                verify_inclusion(&leaf, index, size, &proof, &top).unwrap();
            }
            for old in sizes.into_iter().filter(|old| *old <= size) {
                let ids = wanted(|nodes| consistency(nodes, old, size));
                assert!(consistency(&read(&levels, ids), old, size).is_some());
            }
        }
    }

    #[test]
    fn a_missing_tile_makes_no_proof() {
        let (levels, _) = kept(600);
        let mut ids = wanted(|nodes| inclusion(nodes, 3, 600));
        ids.pop_first();
        assert_eq!(inclusion(&read(&levels, ids), 3, 600), None);
    }

    #[test]
    fn a_path_names_one_tile_in_one_way() {
        let of = |level, index, width| Some(TilePath { level, index, width });
        for (path, meant) in [
            ("0/000", of(Some(0), 0, 256)),
            ("63/255", of(Some(63), 255, 256)),
            ("1/x001/x234/067", of(Some(1), 1_234_067, 256)),
            ("0/x001/x234/067.p/8", of(Some(0), 1_234_067, 8)),
            ("entries/000.p/255", of(None, 0, 255)),
            ("entries/x001/000", of(None, 1000, 256)),
        ] {
            assert_eq!(TilePath::parse(path), meant, "{path}");
        }
        for bad in [
            "",
            "0",
            "0/",
            "0/0",
            "0/00",
            "0/0000",
            "00/000",
            "01/000",
            "64/000",
            "-1/000",
            "+1/000",
            "0/x000/001",
            "0/001/002",
            "0/x001",
            "0/x001/x002",
            "0/x1/002",
            "0/000.p",
            "0/000.p/",
            "0/000.p/0",
            "0/000.p/256",
            "0/000.p/08",
            "0/000.p/+8",
            "0/000/.p/8",
            "entries",
            "data/000",
            "0/000.p/1/2",
            "0//000",
            "/0/000",
            "0/000/",
            "0/x999/x999/x999/x999/x999/x999/x999/999",
        ] {
            assert_eq!(TilePath::parse(bad), None, "{bad}");
        }
    }
}
