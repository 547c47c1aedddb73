//! The Merkle tree over a log's records: RFC 6962 §2.1 hashing, inclusion and consistency proofs.
//!
//! A leaf's hash is the record's `recordHash`. The stored part of the tree is small: the hashes of
//! the leaves (they are in the records), every eighth level above them (the levels at which C2SP
//! tlog-tiles cuts the tree into tiles), and the [`Frontier`]. Everything else is computed from these
//! when a proof is asked for. Sizes and indexes are counts of leaves.

use sha2::{Digest, Sha256};

/// A hash of the tree: 32 bytes.
pub type Hash = [u8; 32];

/// Levels of one tile: a tile is a subtree of 2^8 hashes (C2SP tlog-tiles).
pub const TILE_HEIGHT: u32 = 8;

/// Hashes of a full tile.
pub const TILE_WIDTH: u64 = 1 << TILE_HEIGHT;

/// The hash of an inner node: SHA-256(0x01 ‖ left ‖ right).
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1u8]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of an empty tree: SHA-256 of no bytes.
#[must_use]
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// The right edge of a tree: the roots of its complete subtrees, largest first. Sufficient to append and to compute
/// the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// Number of leaves.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The root over all leaves.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty_root() };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }

    /// Appends a leaf. `made` receives every inner node that becomes complete: its level (1 is above the leaves),
    /// its index within the level, its hash.
    pub fn push(&mut self, leaf: Hash, mut made: impl FnMut(u32, u64, Hash)) {
        let mut hash = leaf;
        let mut level = 0;
        // Each trailing one of the size is a complete subtree that the new one makes a pair with.
        while self.size >> level & 1 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            hash = node_hash(&left, &hash);
            level += 1;
            made(level, self.size >> level, hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// Serialized form: the size (8 bytes, big-endian), then the peaks.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.size.to_be_bytes().to_vec();
        bytes.extend(self.peaks.iter().flatten());
        bytes
    }

    /// Parses the output of [`Frontier::to_bytes`]; `None` for anything else.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (size, peaks) = bytes.split_first_chunk::<8>()?;
        let size = u64::from_be_bytes(*size);
        let (peaks, rest) = peaks.as_chunks::<32>();
        (rest.is_empty() && peaks.len() as u32 == size.count_ones())
            .then(|| Self { size, peaks: peaks.to_vec() })
    }

    /// The peak at `level` and `index`; `None` if that node is not a peak.
    fn peak(&self, level: u32, index: u64) -> Option<Hash> {
        if self.size >> level & 1 == 0 || index != (self.size >> level) - 1 {
            return None;
        }
        // Peaks stand from the largest to the smallest: as many before it as there are higher ones.
        self.peaks.get((self.size >> level >> 1).count_ones() as usize).copied()
    }
}

/// A source of the roots of complete subtrees.
pub trait Nodes {
    /// The root of the complete subtree at `level` (0 is a leaf) and `index` within the level; `None` where it is
    /// unknown.
    fn node(&self, level: u32, index: u64) -> Option<Hash>;
}

/// The root of the leaves `start..end`, where `start` is a multiple of the power of two that spans
/// them: MTH of RFC 6962 §2.1.
fn range_root(nodes: &impl Nodes, start: u64, end: u64) -> Option<Hash> {
    let count = end - start;
    if count.is_power_of_two() {
        let level = count.trailing_zeros();
        return nodes.node(level, start >> level);
    }
    let middle = start + split(count);
    Some(node_hash(&range_root(nodes, start, middle)?, &range_root(nodes, middle, end)?))
}

/// The largest power of two below `count`, which is over 1.
const fn split(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// The root of a tree of `size` leaves; `None` where a node is unknown.
pub fn root(nodes: &impl Nodes, size: u64) -> Option<Hash> {
    if size == 0 { Some(empty_root()) } else { range_root(nodes, 0, size) }
}

/// The path from leaf `index` to the root of a tree of `size` leaves, from the leaf up (RFC 6962 §2.1.1). `None`
/// where the index is out of range or a node is unknown.
pub fn inclusion(nodes: &impl Nodes, index: u64, size: u64) -> Option<Vec<Hash>> {
    if index >= size {
        return None;
    }
    let (mut start, mut end) = (0, size);
    let mut path = Vec::new();
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            path.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(range_root(nodes, start, middle)?);
            start = middle;
        }
    }
    path.reverse();
    Some(path)
}

/// Proof that the tree of `old` leaves is a prefix of the tree of `new` leaves (RFC 6962 §2.1.2). `None` where `old`
/// is 0 or over `new`, or a node is unknown.
pub fn consistency(nodes: &impl Nodes, old: u64, new: u64) -> Option<Vec<Hash>> {
    if old == 0 || old > new {
        return None;
    }
    let (mut start, mut end, mut whole) = (0, new, true);
    let mut path = Vec::new();
    while old != end {
        let middle = start + split(end - start);
        if old <= middle {
            path.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(range_root(nodes, start, middle)?);
            (start, whole) = (middle, false);
        }
    }
    if !whole {
        path.push(range_root(nodes, start, end)?);
    }
    path.reverse();
    Some(path)
}

/// The reason for which a proof fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The size or the index is out of range.
    #[error("the size or index is out of range")]
    Range,
    /// The number of hashes is wrong.
    #[error("the proof's length does not match the sizes")]
    Length,
    /// The computed root differs.
    #[error("the proof leads to another root")]
    Root,
}

/// Checks an inclusion proof (RFC 9162 §2.1.3.2).
///
/// # Errors
/// [`ProofError`].
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::Range);
    }
    let (mut at, mut last, mut hash) = (index, size - 1, *leaf);
    for step in proof {
        if last == 0 {
            return Err(ProofError::Length);
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(step, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, step);
        }
        at >>= 1;
        last >>= 1;
    }
    if last != 0 {
        return Err(ProofError::Length);
    }
    if hash == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// Checks a consistency proof (RFC 9162 §2.1.4.2).
///
/// # Errors
/// [`ProofError`]; a first size of 0 is out of range, for an empty tree is the beginning of any.
pub fn verify_consistency(
    old: u64,
    new: u64,
    proof: &[Hash],
    old_root: &Hash,
    new_root: &Hash,
) -> Result<(), ProofError> {
    if old == 0 || old > new {
        return Err(ProofError::Range);
    }
    if old == new {
        return match (proof.is_empty(), old_root == new_root) {
            (false, _) => Err(ProofError::Length),
            (true, false) => Err(ProofError::Root),
            (true, true) => Ok(()),
        };
    }
    let mut steps = proof.iter();
    // A power of two is a complete subtree: its root is the old root itself and not sent.
    let first =
        if old.is_power_of_two() { *old_root } else { *steps.next().ok_or(ProofError::Length)? };
    let (mut at, mut last) = (old - 1, new - 1);
    while at & 1 == 1 {
        at >>= 1;
        last >>= 1;
    }
    let (mut from_old, mut from_new) = (first, first);
    for step in steps {
        if last == 0 {
            return Err(ProofError::Length);
        }
        if at & 1 == 1 || at == last {
            from_old = node_hash(step, &from_old);
            from_new = node_hash(step, &from_new);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            from_new = node_hash(&from_new, step);
        }
        at >>= 1;
        last >>= 1;
    }
    if last != 0 {
        return Err(ProofError::Length);
    }
    if from_old == *old_root && from_new == *new_root { Ok(()) } else { Err(ProofError::Root) }
}

/// The leaves and nodes a transaction added to a tree: enough to prove each new leaf without reading the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeGrowth {
    before: Frontier,
    after: Frontier,
    /// Complete new nodes by level, in order; the first is at index `before.size >> level`.
    made: Vec<Vec<Hash>>,
}

impl TreeGrowth {
    /// Begins at an existing tree.
    #[must_use]
    pub fn of(before: Frontier) -> Self {
        Self { after: before.clone(), before, made: Vec::new() }
    }

    /// Appends a leaf and keeps the nodes it completes.
    pub fn push(&mut self, leaf: Hash) {
        let Self { after, made, .. } = self;
        let mut keep = |level: u32, hash| {
            let level = level as usize;
            if made.len() <= level {
                made.resize_with(level + 1, Vec::new);
            }
            made[level].push(hash);
        };
        keep(0, leaf);
        after.push(leaf, |level, _, hash| keep(level, hash));
    }

    /// The tree before the first appended leaf.
    #[must_use]
    pub const fn before(&self) -> &Frontier {
        &self.before
    }

    /// The tree after the last appended leaf.
    #[must_use]
    pub const fn after(&self) -> &Frontier {
        &self.after
    }

    /// The new nodes to store: `(tile level, index, hash)` for every eighth level above the leaves.
    pub fn kept_nodes(&self) -> impl Iterator<Item = (u32, u64, &Hash)> {
        self.made.iter().zip(0u32..).skip(1).filter(|(_, level)| level % TILE_HEIGHT == 0).flat_map(
            |(hashes, level)| {
                let first = self.before.size >> level;
                hashes
                    .iter()
                    .zip(first..)
                    .map(move |(hash, index)| (level / TILE_HEIGHT, index, hash))
            },
        )
    }
}

impl Nodes for TreeGrowth {
    fn node(&self, level: u32, index: u64) -> Option<Hash> {
        let first = self.before.size >> level;
        match index.checked_sub(first) {
            Some(place) => {
                self.made.get(level as usize)?.get(usize::try_from(place).ok()?).copied()
            }
            // Wholly old. A proof of a new leaf needs no other old nodes than the old peaks.
            None => self.before.peak(level, index),
        }
    }
}

#[cfg(test)]
mod tests;
