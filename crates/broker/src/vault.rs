//! Secrets: API keys are random and stored hashed; signing and webhook secrets are stored encrypted under a master
//! key that never enters the database.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use handoffd_domain::ids::TenantId;
use handoffd_domain::personal::user_ref;
use handoffd_store::clock;

mod secrets;

pub use secrets::{AgentSecrets, EndpointCredentials, SecretKind};

/// Failures of secret handling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The master key is not 32 bytes in base64.
    #[error(
        "the master key must be 32 bytes in base64 (44 characters); make one with: openssl rand -base64 32"
    )]
    BadMasterKey,
    /// The secret was sealed under another master key, or is damaged.
    #[error("a secret does not open: it was sealed under another master key, or is damaged")]
    DoesNotOpen,
}

/// The master key with its derived key.
#[derive(Clone)]
pub struct Vault {
    cipher: XChaCha20Poly1305,
    /// Key of keyed hashes, derived so that hashing and encryption never share a key.
    pseudonyms: Zeroizing<[u8; 32]>,
    /// Key of claim checks.
    claims: Zeroizing<[u8; 32]>,
    /// Key of the ids of runs that a door derives.
    runs: Zeroizing<[u8; 32]>,
    /// Seals what others keep for the broker: tokens that they give back.
    tokens: XChaCha20Poly1305,
    /// Names this master key among others.
    id: [u8; 4],
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault(…)")
    }
}

const NONCE_LEN: usize = 24;

/// Derivation label of the key for keyed hashes.
const PSEUDONYMS: &[u8] = b"handoffd/pseudonyms/v1\0";

/// Derivation label of the key of claim checks.
const CLAIMS: &[u8] = b"handoffd/claims/v1\0";

/// Derivation label of the key of derived run ids.
const RUNS: &[u8] = b"handoffd/runs/v1\0";

/// Derivation label of the key of tokens.
const TOKENS: &[u8] = b"handoffd/tokens/v1\0";

/// Derivation label of a master key's name.
const NAME: &[u8] = b"handoffd/master-key/v1\0";

/// Place of the derived keys, where they are sealed under a later master key.
const DERIVED: &str = "derived-keys";

/// Plaintext of the check value.
const CHECK: &[u8] = b"handoffd master key check";

impl Vault {
    /// Parses a master key in base64.
    ///
    /// # Errors
    /// [`VaultError::BadMasterKey`].
    pub fn from_base64(text: &str) -> Result<Self, VaultError> {
        let bytes =
            Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| VaultError::BadMasterKey)?);
        let cipher =
            XChaCha20Poly1305::new_from_slice(&bytes).map_err(|_| VaultError::BadMasterKey)?;
        let derived = |label: &[u8]| -> Zeroizing<[u8; 32]> {
            Zeroizing::new(Sha256::new_with_prefix(label).chain_update(&*bytes).finalize().into())
        };
        let claims = derived(CLAIMS);
        Ok(Self {
            cipher,
            pseudonyms: derived(PSEUDONYMS),
            tokens: token_cipher(&claims)?,
            claims,
            runs: derived(RUNS),
            id: {
                let name = derived(NAME);
                [name[0], name[1], name[2], name[3]]
            },
        })
    }

    /// The name of this master key: 8 hexadecimal digits that tell nothing of it.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(self.id)
    }

    /// The derived keys, sealed: what was hashed under them is found under another master key, too.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn seal_derived(&self, next: &Self) -> Result<Vec<u8>, VaultError> {
        let keys = [&*self.pseudonyms, &*self.claims, &*self.runs].map(<[u8; 32]>::as_slice);
        next.seal(DERIVED, &Zeroizing::new(keys.concat()))
    }

    /// This vault with the derived keys that were sealed for it.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn with_derived(self, sealed: &[u8]) -> Result<Self, VaultError> {
        let opened = self.open(DERIVED, sealed)?;
        let (keys, rest) = opened.as_chunks::<32>();
        let ([pseudonyms, claims, runs], []) = (keys, rest) else {
            return Err(VaultError::DoesNotOpen);
        };
        let [pseudonyms, claims, runs] = [pseudonyms, claims, runs].map(|key| Zeroizing::new(*key));
        let tokens = token_cipher(&claims)?;
        Ok(Self { pseudonyms, claims, runs, tokens, ..self })
    }

    /// Seals a token that others keep and give back; it opens under a later master key, too.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn seal_token(&self, place: &str, said: &[u8]) -> Result<Vec<u8>, VaultError> {
        seal(&self.tokens, place, said)
    }

    /// Opens a token, also one that a version up to 0.3.0 sealed under this master key.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn open_token(&self, place: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        open(&self.tokens, place, sealed).or_else(|_| self.open(place, sealed))
    }

    /// A value sealed under this master key, sealed under another.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn reseal(&self, next: &Self, place: &str, sealed: &[u8]) -> Result<Vec<u8>, VaultError> {
        next.seal(place, &self.open(place, sealed)?)
    }

    /// A keyed hash of a data subject's id or a salt. Deterministic; guesses cannot be verified without the master key.
    fn keyed(&self, parts: &[&[u8]]) -> [u8; 32] {
        keyed(&self.pseudonyms, parts)
    }

    /// The tag of a claim check.
    #[must_use]
    pub fn claim_tag(&self, said: &[u8]) -> [u8; 32] {
        keyed(&self.claims, &[said])
    }

    /// The random part of the id of a run that an agent's request at a door begins. The same request has the same id, and
    /// no other agent can name it.
    #[must_use]
    pub fn run_id(&self, tenant: &TenantId, door: &str, agent: &str, request: &str) -> [u8; 16] {
        let parts = [tenant.as_str(), door, agent, request].map(str::as_bytes);
        let mut id = [0; 16];
        id.copy_from_slice(&keyed(&self.runs, &parts)[..16]);
        id
    }

    /// The keyed hash of parts of a request under an `Idempotency-Key`.
    #[must_use]
    pub fn request_tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.keyed(&[&[&b"request"[..]], parts].concat())
    }

    /// The keyed hash of a data subject's id, by which rows are found after the id is deleted.
    #[must_use]
    pub fn subject_key(&self, tenant: &TenantId, subject_id: &str) -> [u8; 32] {
        self.keyed(&[b"subject", tenant.as_str().as_bytes(), subject_id.as_bytes()])
    }

    /// The reference to a person: it replaces the id in URLs and in an index, and the id cannot be computed from it.
    #[must_use]
    pub fn user_ref(&self, tenant: &TenantId, user_id: &str) -> String {
        user_ref(&self.subject_key(tenant, user_id))
    }

    /// The salt of a commitment to a data subject's id for one erasure or hold. Derived from the id and never
    /// stored.
    #[must_use]
    pub fn subject_salt(&self, tenant: &TenantId, occasion: &str, subject_id: &str) -> [u8; 16] {
        let parts: [&[u8]; 4] =
            [b"salt", tenant.as_str().as_bytes(), occasion.as_bytes(), subject_id.as_bytes()];
        let mut salt = [0; 16];
        salt.copy_from_slice(&self.keyed(&parts)[..16]);
        salt
    }

    /// A random master key in base64.
    #[must_use]
    pub fn new_master_key() -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(clock::random::<32>()))
    }

    /// Seals a secret; `place` is authenticated and must be equal at opening.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`] if the cipher refuses, which it does for no input of this size.
    pub fn seal(&self, place: &str, secret: &[u8]) -> Result<Vec<u8>, VaultError> {
        seal(&self.cipher, place, secret)
    }

    /// Opens a secret sealed by [`Vault::seal`].
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn open(&self, place: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        open(&self.cipher, place, sealed)
    }

    /// A value for the database that reveals a broker with another master key.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn check_value(&self) -> Result<Vec<u8>, VaultError> {
        self.seal("check", CHECK)
    }

    /// Whether a stored check value was made with this master key.
    #[must_use]
    pub fn accepts(&self, check_value: &[u8]) -> bool {
        self.open("check", check_value).is_ok_and(|text| **text == *CHECK)
    }
}

fn token_cipher(claims: &[u8; 32]) -> Result<XChaCha20Poly1305, VaultError> {
    let key: Zeroizing<[u8; 32]> =
        Zeroizing::new(Sha256::new_with_prefix(TOKENS).chain_update(claims).finalize().into());
    XChaCha20Poly1305::new_from_slice(&*key).map_err(|_| VaultError::BadMasterKey)
}

fn seal(cipher: &XChaCha20Poly1305, place: &str, secret: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce: [u8; NONCE_LEN] = clock::random();
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: secret, aad: place.as_bytes() })
        .map_err(|_| VaultError::DoesNotOpen)?;
    Ok([&nonce[..], &sealed].concat())
}

fn open(
    cipher: &XChaCha20Poly1305,
    place: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or(VaultError::DoesNotOpen)?;
    let nonce: [u8; NONCE_LEN] = nonce.try_into().map_err(|_| VaultError::DoesNotOpen)?;
    cipher
        .decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: place.as_bytes() })
        .map(Zeroizing::new)
        .map_err(|_| VaultError::DoesNotOpen)
}

/// HMAC-SHA-256 over parts, each with its length.
fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // An HMAC takes a key of any length.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        return [0; 32];
    };
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// A random API key: `hd_` and 256 random bits in base64url. Shown once.
#[must_use]
pub fn new_api_key() -> Zeroizing<String> {
    Zeroizing::new(format!("hd_{}", URL_SAFE_NO_PAD.encode(clock::random::<32>())))
}

/// The stored hash of an API key: SHA-256, since a random key needs no slow hash.
#[must_use]
pub fn hash_api_key(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use handoffd_domain::handoff::DeliveryMode;
    use handoffd_domain::ids::Micros;

    /// Finding O10 of 0.3.0: what was sealed and hashed under one master key is opened and found under the next.
    #[test]
    fn another_master_key_opens_and_finds_what_the_first_one_did() {
        let (tenant, now) = ("acme".parse::<TenantId>().unwrap(), Micros(1));
        let (old, new) = (vault(), vault());
        let mut secrets = AgentSecrets::default();
        let text = secrets.rotate(&old, &tenant, &"a", SecretKind::Webhook, now).unwrap();
        let asked = EndpointCredentials { token: Some("t".to_owned()), ..Default::default() };
        secrets.keep_credentials(&old, &tenant, &"a", &asked).unwrap();
        let mut delivery = Map::new();
        delivery.insert("password".to_owned(), "p".into());
        secrets.keep_delivery(&old, &tenant, &"a", DeliveryMode::Redis, &delivery).unwrap();
        let token = old.seal_token("callback", b"t/h").unwrap();

        let next = secrets.resealed((&old, &new), &tenant, &"a").unwrap();
        let derived = old.seal_derived(&new).unwrap();
        assert!(next.open(&old, &tenant, &"a", SecretKind::Webhook, now).is_err());
        let new = new.with_derived(&derived).unwrap();
        let opened = next.open(&new, &tenant, &"a", SecretKind::Webhook, now).unwrap();
        assert_eq!(**opened[0], *text.as_bytes());
        assert_eq!(next.credentials(&new, &tenant, &"a").unwrap(), asked);
        assert_eq!(next.delivery(&new, &tenant, &"a", DeliveryMode::Redis).unwrap(), delivery);
        assert_eq!(**new.open_token("callback", &token).unwrap(), *b"t/h");
        assert_eq!(new.user_ref(&tenant, "jana"), old.user_ref(&tenant, "jana"));
        assert_eq!(new.claim_tag(b"x"), old.claim_tag(b"x"));
        assert_ne!(new.id(), old.id());
        assert!(vault().with_derived(&derived).is_err());
    }

    fn vault() -> Vault {
        Vault::from_base64(&Vault::new_master_key()).unwrap()
    }

    #[test]
    fn a_runs_id_is_the_same_for_the_same_request_and_hangs_on_the_master_key() {
        let (vault, tenant) = (vault(), "t".parse().unwrap());
        let id = vault.run_id(&tenant, "mcp", "a", "1");
        assert_eq!(id, vault.run_id(&tenant, "mcp", "a", "1"));
        for other in [
            vault.run_id(&tenant, "a2a", "a", "1"),
            vault.run_id(&tenant, "mcp", "b", "1"),
            vault.run_id(&tenant, "mcp", "a", "2"),
            vault.run_id(&"u".parse().unwrap(), "mcp", "a", "1"),
            self::vault().run_id(&tenant, "mcp", "a", "1"),
        ] {
            assert_ne!(other, id);
        }
    }

    #[test]
    fn a_secret_opens_only_where_it_was_sealed() {
        let vault = vault();
        let sealed = vault.seal("a/b", b"secret").unwrap();
        assert_eq!(**vault.open("a/b", &sealed).unwrap(), *b"secret");
        assert!(vault.open("a/c", &sealed).is_err());
        assert!(self::vault().open("a/b", &sealed).is_err());
        assert!(vault.open("a/b", &sealed[..10]).is_err());
    }

    #[test]
    fn another_master_key_is_found_out() {
        let check = vault().check_value().unwrap();
        assert!(!vault().accepts(&check));
        assert!(Vault::from_base64("c2hvcnQ=").is_err());
    }
}
