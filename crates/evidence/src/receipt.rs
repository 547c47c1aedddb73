//! Receipts: proof for a sender, verifiable by anyone, that its handoff is in the log.

use std::sync::Arc;

use super::append::LoggedRecord;
use super::merkle::{self, Frontier, Hash};
use super::note::{PublicKey, Signer, TreeHead};
use super::record::SealedRecord;

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

    /// The log's public name: the first line of its tree heads, and the name of its keys.
    #[must_use]
    pub fn origin(&self, log_id: &str) -> String {
        format!("{}/{log_id}", self.prefix)
    }

    /// The tree head of a log, as a signed note. Empty where the origin is not a valid key name; the settings'
    /// check excludes that.
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

    /// A public key under a log's origin; the current key where `key` is `None`.
    #[must_use]
    pub fn public(&self, log_id: &str, key: Option<&[u8; 32]>) -> Option<PublicKey> {
        let own = self.signer.public_bytes();
        PublicKey::new(&self.origin(log_id), key.unwrap_or(&own))
    }

    /// The signature over a JWS signing input; see [`Signer::sign_jws`].
    #[must_use]
    pub fn sign_jws(&self, input: &str) -> Option<[u8; 64]> {
        self.signer.sign_jws(input)
    }

    /// The 32 bytes of the current public key.
    #[must_use]
    pub fn public_bytes(&self) -> [u8; 32] {
        self.signer.public_bytes()
    }
}

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
