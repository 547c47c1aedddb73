//! The verifier's own Merkle tree (RFC 6962 §2.1), grown leaf by leaf, and the tree heads it must match.

use super::super::merkle::{Hash, empty_root, node_hash};

/// A tree head kept outside the database, its signature checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedHead {
    /// Number of records.
    pub size: u64,
    /// The root over these records.
    pub root: Hash,
}

/// Complete subtrees by level, and the number of leaves.
#[derive(Debug, Default)]
pub(super) struct VerifiedTree {
    size: u64,
    /// The complete subtree at each level that has no right sibling yet.
    waiting: Vec<Option<Hash>>,
    made: Vec<(u32, u64, Hash)>,
}

impl VerifiedTree {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn push(&mut self, leaf: Hash) {
        let (mut hash, mut level) = (leaf, 0);
        loop {
            if self.waiting.len() <= level {
                self.waiting.push(None);
            }
            if level > 0 && level % 8 == 0 {
                self.made.push((level as u32 / 8, self.size >> level, hash));
            }
            match self.waiting[level].take() {
                None => {
                    self.waiting[level] = Some(hash);
                    break;
                }
                Some(left) => hash = node_hash(&left, &hash),
            }
            level += 1;
        }
        self.size += 1;
    }

    pub(super) fn root(&self) -> Hash {
        let mut root: Option<Hash> = None;
        for left in self.waiting.iter().flatten() {
            root = Some(root.map_or(*left, |right| node_hash(left, &right)));
        }
        root.unwrap_or_else(empty_root)
    }

    /// The stored form: the size, then the complete subtrees, largest first.
    pub(super) fn edge(&self) -> Vec<u8> {
        let mut bytes = self.size.to_be_bytes().to_vec();
        bytes.extend(self.waiting.iter().rev().flatten().flatten());
        bytes
    }

    pub(super) fn take_nodes(&mut self) -> Vec<(u32, u64, Hash)> {
        std::mem::take(&mut self.made)
    }
}
