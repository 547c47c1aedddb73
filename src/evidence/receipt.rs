//! Receipts: what a sender keeps to prove later, to anyone, that its handoff is in the log.

use std::sync::Arc;

use super::append::Placed;
use super::merkle::{self, Frontier, Hash};
use super::note::{PublicKey, Signer, TreeHead};
use super::record::Sealed;

/// Signs the tree heads of all logs of a database, each under its own origin.
#[derive(Debug)]
pub struct Notary {
    signer: Signer,
    prefix: String,
}

impl Notary {
    /// `prefix` begins each log's origin: `<prefix>/<log id>`.
    #[must_use]
    pub const fn new(signer: Signer, prefix: String) -> Self {
        Self { signer, prefix }
    }

    /// What names a log to the world: the first line of its tree heads, and its keys' name.
    #[must_use]
    pub fn origin(&self, log_id: &str) -> String {
        format!("{}/{log_id}", self.prefix)
    }

    /// The tree head of a log, as a signed note. Empty where the origin cannot name a key, which the
    /// settings' check rules out.
    #[must_use]
    pub fn tree_head(&self, log_id: &str, tree: &Frontier) -> String {
        self.sign(log_id, tree.size(), tree.root())
    }

    /// [`Notary::tree_head`] of a size and a root.
    #[must_use]
    pub fn sign(&self, log_id: &str, size: u64, root: Hash) -> String {
        let head = TreeHead { origin: self.origin(log_id), size, root };
        self.signer.sign(&head).unwrap_or_default()
    }

    /// A public key under a log's origin; the one in use where `key` is `None`.
    #[must_use]
    pub fn public(&self, log_id: &str, key: Option<&[u8; 32]>) -> Option<PublicKey> {
        let own = self.signer.public_bytes();
        PublicKey::new(&self.origin(log_id), key.unwrap_or(&own))
    }

    /// The bytes of the public key in use.
    #[must_use]
    pub fn public_bytes(&self) -> [u8; 32] {
        self.signer.public_bytes()
    }
}

/// Proof that a record is in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The log.
    pub log_id: String,
    /// The record's place.
    pub leaf_index: i64,
    /// The record's hash: the leaf.
    pub record_hash: Hash,
    /// A signed note over a tree that holds it.
    pub tree_head: Arc<str>,
    /// From the leaf to that tree's root.
    pub inclusion_proof: Vec<Hash>,
}

impl Receipt {
    /// The receipt of a record that was just appended, under the tree head of its transaction.
    #[must_use]
    pub fn fresh(placed: &Placed, notary: &Notary) -> Option<Self> {
        let Placed { sealed, grown } = placed;
        let index = u64::try_from(sealed.leaf_index).ok()?;
        let proof = merkle::inclusion(&grown.growth, index, grown.growth.after().size())?;
        Some(Self::new(sealed, grown.tree_head(notary), proof))
    }

    /// The receipt of a record under a tree head.
    #[must_use]
    pub fn new(sealed: &Sealed, tree_head: Arc<str>, inclusion_proof: Vec<Hash>) -> Self {
        Self {
            log_id: sealed.log_id.clone(),
            leaf_index: sealed.leaf_index,
            record_hash: sealed.hash,
            tree_head,
            inclusion_proof,
        }
    }
}
