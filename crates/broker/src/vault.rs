//! Secrets: API keys are random and stored hashed; signing and webhook secrets are stored encrypted under a master
//! key that never enters the database.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::{Micros, TenantId};
use handoffd_core::domain::personal::user_ref;
use handoffd_store::clock;

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

    /// What was sealed under this master key, sealed under another.
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

    /// The reference to a person: it stands in URLs and in an index in the place of the id, which nobody can make of it.
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

/// A sealed secret with its expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SealedSecret {
    /// Base64 of nonce and ciphertext.
    sealed: String,
    /// End of validity in microseconds since the epoch; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    until: Option<i64>,
}

/// The kind of an agent's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretKind {
    /// The agent signs its messages with this secret.
    Signing,
    /// The broker signs its deliveries with this secret.
    Webhook,
}

/// Values of headers that a subscriber's endpoint asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointCredentials {
    /// Of `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub authorization: Option<String>,
    /// Of `X-A2A-Notification-Token`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<String>,
}

impl EndpointCredentials {
    /// The names of those that are set.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let all = [("authorization", &self.authorization), ("token", &self.token)];
        all.into_iter().filter_map(|(name, value)| value.is_some().then_some(name)).collect()
    }
}

/// The secrets of one agent or subscription in stored form: JSON, each sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSecrets {
    signing: Vec<SealedSecret>,
    webhook: Vec<SealedSecret>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    credentials: Option<SealedSecret>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    delivery: Option<SealedDelivery>,
    /// A salted commitment to the plaintexts, which records repeat: a new master key leaves it as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    committed: Option<String>,
}

/// The plaintexts of an agent's or subscription's secrets, as a commitment covers them. One of them at least is 256 random
/// bits, so that the commitment tells nothing of the others.
#[derive(Serialize)]
struct Plaintexts {
    signing: Vec<(String, Option<i64>)>,
    webhook: Vec<(String, Option<i64>)>,
    credentials: Option<String>,
    delivery: Option<(String, String)>,
}

/// The sealed credentials of an agent's transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SealedDelivery {
    /// The transport that they are for.
    mode: DeliveryMode,
    /// Base64 of nonce and ciphertext of a JSON object.
    sealed: String,
    /// Its members' names.
    names: Vec<String>,
}

/// Most valid secrets of a kind: the current and the previous one.
const MAX_VALID: usize = 2;

impl AgentSecrets {
    /// Parses the stored form; an unreadable text holds no secrets.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn list(&mut self, kind: SecretKind) -> &mut Vec<SealedSecret> {
        match kind {
            SecretKind::Signing => &mut self.signing,
            SecretKind::Webhook => &mut self.webhook,
        }
    }

    /// The same secrets, sealed under another master key.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn resealed(
        &self,
        (vault, next): (&Vault, &Vault),
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
    ) -> Result<Self, VaultError> {
        let text = |place: &str, sealed: &str| -> Result<String, VaultError> {
            let sealed = STANDARD.decode(sealed).map_err(|_| VaultError::DoesNotOpen)?;
            Ok(STANDARD.encode(vault.reseal(next, place, &sealed)?))
        };
        let secret = |place: String, known: &SealedSecret| -> Result<SealedSecret, VaultError> {
            Ok(SealedSecret { sealed: text(&place, &known.sealed)?, until: known.until })
        };
        let list = |kind, known: &[SealedSecret]| -> Result<Vec<SealedSecret>, VaultError> {
            known.iter().map(|one| secret(place(tenant, owner, kind), one)).collect()
        };
        let credentials = self.credentials.as_ref();
        let delivery = self.delivery.as_ref().map(|known| -> Result<_, VaultError> {
            let sealed = text(&delivery_place(tenant, owner, known.mode), &known.sealed)?;
            Ok(SealedDelivery { sealed, ..known.clone() })
        });
        Ok(Self {
            signing: list(SecretKind::Signing, &self.signing)?,
            webhook: list(SecretKind::Webhook, &self.webhook)?,
            credentials: credentials
                .map(|known| secret(credentials_place(tenant, owner), known))
                .transpose()?,
            delivery: delivery.transpose()?,
            committed: self.committed.clone(),
        })
    }

    /// Keeps what an endpoint asks for, sealed, in the place of what was kept before.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn keep_credentials(
        &mut self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        credentials: &EndpointCredentials,
    ) -> Result<(), VaultError> {
        let text = Zeroizing::new(serde_json::to_vec(credentials).unwrap_or_default());
        let sealed = vault.seal(&credentials_place(tenant, owner), &text)?;
        self.credentials = Some(SealedSecret { sealed: STANDARD.encode(sealed), until: None });
        self.commit(vault, tenant, owner);
        Ok(())
    }

    /// Opens all secrets.
    fn plaintexts(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let open = |place: &str, sealed: &str| {
            let sealed = STANDARD.decode(sealed).map_err(|_| VaultError::DoesNotOpen)?;
            let text = vault.open(place, &sealed)?;
            String::from_utf8(text.to_vec()).map_err(|_| VaultError::DoesNotOpen)
        };
        let list = |kind, secrets: &[SealedSecret]| {
            let place = place(tenant, owner, kind);
            let opened = secrets.iter().map(|one| Ok((open(&place, &one.sealed)?, one.until)));
            opened.collect::<Result<Vec<_>, VaultError>>()
        };
        let delivery = |kept: &SealedDelivery| {
            let text = open(&delivery_place(tenant, owner, kept.mode), &kept.sealed)?;
            Ok((kept.mode.as_str().to_owned(), text))
        };
        let credentials = self.credentials.as_ref();
        let texts = Plaintexts {
            signing: list(SecretKind::Signing, &self.signing)?,
            webhook: list(SecretKind::Webhook, &self.webhook)?,
            credentials: credentials
                .map(|kept| open(&credentials_place(tenant, owner), &kept.sealed))
                .transpose()?,
            delivery: self.delivery.as_ref().map(delivery).transpose()?,
        };
        Ok(Zeroizing::new(serde_json::to_vec(&texts).unwrap_or_default()))
    }

    /// Commits to the secrets as they are now. What does not open has no commitment.
    fn commit(&mut self, vault: &Vault, tenant: &TenantId, owner: &impl std::fmt::Display) {
        self.committed = self.commitment(vault, tenant, owner).ok();
    }

    /// A new commitment to the secrets, in hex: a salt, a dot, a hash.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn commitment(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
    ) -> Result<String, VaultError> {
        let texts = self.plaintexts(vault, tenant, owner)?;
        Ok(committed(&clock::random::<16>(), &texts))
    }

    /// Whether these secrets open a commitment.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn opens(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        commitment: &str,
    ) -> Result<bool, VaultError> {
        let texts = self.plaintexts(vault, tenant, owner)?;
        let salt = commitment.split_once('.').and_then(|(salt, _)| hex::decode(salt).ok());
        Ok(salt.is_some_and(|salt| committed(&salt, &texts) == commitment))
    }

    /// The commitment that stands beside the secrets.
    #[must_use]
    pub fn committed(&self) -> Option<&str> {
        self.committed.as_deref()
    }

    /// The names of the secrets in which another stored form differs.
    #[must_use]
    pub fn changed(&self, other: &Self) -> Vec<&'static str> {
        let members = [
            ("signingSecret", self.signing != other.signing),
            ("webhookSecret", self.webhook != other.webhook),
            ("credentials", self.credentials != other.credentials),
            ("deliveryCredentials", self.delivery != other.delivery),
        ];
        members.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }

    /// Values of headers that an endpoint asks for; empty where none is kept.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn credentials(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
    ) -> Result<EndpointCredentials, VaultError> {
        let Some(kept) = &self.credentials else { return Ok(EndpointCredentials::default()) };
        let sealed = STANDARD.decode(&kept.sealed).map_err(|_| VaultError::DoesNotOpen)?;
        let text = vault.open(&credentials_place(tenant, owner), &sealed)?;
        serde_json::from_slice(&text).map_err(|_| VaultError::DoesNotOpen)
    }

    /// Keeps the credentials of an agent's transport, sealed, in the place of those before.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn keep_delivery(
        &mut self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        mode: DeliveryMode,
        credentials: &Map<String, Value>,
    ) -> Result<(), VaultError> {
        self.delivery = None;
        if credentials.is_empty() {
            self.commit(vault, tenant, owner);
            return Ok(());
        }
        let text = Zeroizing::new(serde_json::to_vec(credentials).unwrap_or_default());
        let sealed = vault.seal(&delivery_place(tenant, owner, mode), &text)?;
        let mut names: Vec<String> = credentials.keys().cloned().collect();
        names.sort();
        self.delivery = Some(SealedDelivery { mode, sealed: STANDARD.encode(sealed), names });
        self.commit(vault, tenant, owner);
        Ok(())
    }

    /// Drops the credentials of every other transport.
    pub fn keep_delivery_of(
        &mut self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        mode: DeliveryMode,
    ) {
        if self.delivery.take_if(|kept| kept.mode != mode).is_some() {
            self.commit(vault, tenant, owner);
        }
    }

    /// The names of the credentials that are sealed for a transport, in order.
    #[must_use]
    pub fn delivery_names(&self, mode: DeliveryMode) -> &[String] {
        self.delivery.as_ref().filter(|kept| kept.mode == mode).map_or(&[], |kept| &kept.names)
    }

    /// The credentials of a transport; empty where none are kept for it.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn delivery(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        mode: DeliveryMode,
    ) -> Result<Map<String, Value>, VaultError> {
        let Some(kept) = self.delivery.as_ref().filter(|kept| kept.mode == mode) else {
            return Ok(Map::new());
        };
        let sealed = STANDARD.decode(&kept.sealed).map_err(|_| VaultError::DoesNotOpen)?;
        let text = vault.open(&delivery_place(tenant, owner, mode), &sealed)?;
        serde_json::from_slice(&text).map_err(|_| VaultError::DoesNotOpen)
    }

    /// Creates a new current secret; the previous one stays valid until `until`. Returns the new secret's text,
    /// which is shown once.
    ///
    /// # Errors
    /// As [`Vault::seal`].
    pub fn rotate(
        &mut self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        kind: SecretKind,
        until: Micros,
    ) -> Result<Zeroizing<String>, VaultError> {
        let text = Zeroizing::new(match kind {
            SecretKind::Signing => format!("hss_{}", URL_SAFE_NO_PAD.encode(clock::random::<32>())),
            SecretKind::Webhook => format!("whsec_{}", STANDARD.encode(clock::random::<32>())),
        });
        let sealed = vault.seal(&place(tenant, owner, kind), text.as_bytes())?;
        let list = self.list(kind);
        for old in list.iter_mut() {
            old.until = Some(old.until.map_or(until.0, |known| known.min(until.0)));
        }
        list.insert(0, SealedSecret { sealed: STANDARD.encode(sealed), until: None });
        list.truncate(MAX_VALID);
        self.commit(vault, tenant, owner);
        Ok(text)
    }

    /// The valid secrets, current first.
    ///
    /// # Errors
    /// [`VaultError::DoesNotOpen`].
    pub fn open(
        &self,
        vault: &Vault,
        tenant: &TenantId,
        owner: &impl std::fmt::Display,
        kind: SecretKind,
        now: Micros,
    ) -> Result<Vec<Zeroizing<Vec<u8>>>, VaultError> {
        let list = match kind {
            SecretKind::Signing => &self.signing,
            SecretKind::Webhook => &self.webhook,
        };
        list.iter()
            .filter(|secret| secret.until.is_none_or(|until| now.0 < until))
            .map(|secret| {
                let sealed =
                    STANDARD.decode(&secret.sealed).map_err(|_| VaultError::DoesNotOpen)?;
                vault.open(&place(tenant, owner, kind), &sealed)
            })
            .collect()
    }
}

/// Tag of the commitment to secrets.
const SECRETS: &[u8] = b"handoffd/commitment/v1/secrets\0";

fn committed(salt: &[u8], texts: &[u8]) -> String {
    let hash = Sha256::new_with_prefix(SECRETS)
        .chain_update((salt.len() as u64).to_be_bytes())
        .chain_update(salt)
        .chain_update(texts)
        .finalize();
    format!("{}.{}", hex::encode(salt), hex::encode(hash))
}

fn place(tenant: &TenantId, owner: &impl std::fmt::Display, kind: SecretKind) -> String {
    format!("{tenant}/{owner}/{kind:?}")
}

fn delivery_place(tenant: &TenantId, owner: &impl std::fmt::Display, mode: DeliveryMode) -> String {
    format!("{tenant}/{owner}/Delivery/{}", mode.as_str())
}

fn credentials_place(tenant: &TenantId, owner: &impl std::fmt::Display) -> String {
    format!("{tenant}/{owner}/Credentials")
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
    use super::*;

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

    #[test]
    fn credentials_open_for_their_owner_alone_and_are_not_kept_in_the_clear() {
        let vault = vault();
        let (tenant, mut secrets) = ("acme".parse().unwrap(), AgentSecrets::default());
        let nothing = EndpointCredentials::default();
        assert_eq!(secrets.credentials(&vault, &tenant, &"s/1"), Ok(nothing));
        let said =
            EndpointCredentials { authorization: Some("Bearer x1y2".to_owned()), token: None };
        secrets.keep_credentials(&vault, &tenant, &"s/1", &said).unwrap();
        let text = secrets.to_text();
        assert!(!text.contains("x1y2"), "{text}");
        let kept = AgentSecrets::parse(&text);
        assert_eq!(kept.credentials(&vault, &tenant, &"s/1"), Ok(said));
        assert!(kept.credentials(&vault, &tenant, &"s/2").is_err());
    }

    #[test]
    fn credentials_of_a_transport_are_sealed_and_end_with_it() {
        let vault = vault();
        let (tenant, mut secrets) = ("acme".parse().unwrap(), AgentSecrets::default());
        let (redis, nats) = (DeliveryMode::Redis, DeliveryMode::Nats);
        let said = serde_json::json!({"username": "u7", "password": "x1y2"});
        let said = said.as_object().unwrap();
        secrets.keep_delivery(&vault, &tenant, &"a", redis, said).unwrap();
        assert!(!secrets.to_text().contains("x1y2"), "{}", secrets.to_text());
        let mut kept = AgentSecrets::parse(&secrets.to_text());
        assert_eq!(kept.delivery(&vault, &tenant, &"a", redis).as_ref(), Ok(said));
        assert_eq!(kept.delivery_names(redis), ["password", "username"]);
        assert_eq!(kept.delivery(&vault, &tenant, &"a", nats), Ok(Map::new()));
        assert!(kept.delivery(&vault, &tenant, &"b", redis).is_err());
        kept.keep_delivery_of(&vault, &tenant, &"a", redis);
        assert_eq!(kept.delivery_names(redis).len(), 2);
        kept.keep_delivery_of(&vault, &tenant, &"a", nats);
        assert!(kept.delivery_names(redis).is_empty());
    }

    #[test]
    fn two_secrets_are_valid_while_one_is_rotated_out() {
        let vault = vault();
        let (tenant, agent) = ("t".parse().unwrap(), "a");
        let mut secrets = AgentSecrets::default();
        let kind = SecretKind::Signing;
        let first = secrets.rotate(&vault, &tenant, &agent, kind, Micros(0)).unwrap();
        let second = secrets.rotate(&vault, &tenant, &agent, kind, Micros(100)).unwrap();
        let secrets = AgentSecrets::parse(&secrets.to_text());
        let at = |now| {
            secrets
                .open(&vault, &tenant, &agent, kind, Micros(now))
                .unwrap()
                .iter()
                .map(|secret| String::from_utf8(secret.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(at(99), [second.to_string(), first.to_string()]);
        assert_eq!(at(100), [second.to_string()]);
    }
}
