//! The verifier's own evaluation of inclusion proofs.

use crate::merkle::{Hash, node_hash};

/// The root to which a path leads (RFC 9162 §2.1.3.2); `None` where its length does not fit index and size.
pub(super) fn root_of(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut node, mut last, mut hash) = (index, size - 1, leaf);
    for step in path {
        if last == 0 {
            return None;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(step, &hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, step);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}
