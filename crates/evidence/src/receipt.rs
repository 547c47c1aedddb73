//! Receipts: proof for a sender, verifiable by anyone, that its handoff is in the log.

use std::sync::Arc;

use super::append::LoggedRecord;
use super::merkle::{self, Hash};
pub use super::notary::Notary;
use super::record::SealedRecord;

/// Proof that a log contains a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub log_id: String,
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// The record's hash: the leaf.
    pub record_hash: Hash,
    /// A signed note over a tree that contains the record.
    pub tree_head: Arc<str>,
    /// The path from the leaf to that tree's root.
    pub inclusion_proof: Vec<Hash>,
}

impl Receipt {
    /// The receipt of a record just appended, under the tree head of its transaction. `None` where the tree lacks
    /// a node of the path.
    #[must_use]
    pub fn fresh(placed: &LoggedRecord, notary: &Notary) -> Option<Self> {
        let LoggedRecord { sealed, grown } = placed;
        let index = u64::try_from(sealed.leaf_index).ok()?;
        let proof = merkle::inclusion(&grown.growth, index, grown.growth.after().size())?;
        Some(Self::new(sealed, grown.tree_head(notary), proof))
    }

    /// The receipt of a record under a tree head.
    #[must_use]
    pub fn new(sealed: &SealedRecord, tree_head: Arc<str>, inclusion_proof: Vec<Hash>) -> Self {
        Self {
            log_id: sealed.log_id.clone(),
            leaf_index: sealed.leaf_index,
            record_hash: sealed.hash,
            tree_head,
            inclusion_proof,
        }
    }
}
