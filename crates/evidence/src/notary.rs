//! The signer of tree heads.

use super::merkle::{Frontier, Hash};
use super::note::{PublicKey, Signer, TreeHead};

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
