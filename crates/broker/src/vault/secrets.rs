//! The secrets of one agent or subscription: sealed under the master key, rotated, and committed to.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{Vault, VaultError};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_store::clock;

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

    /// Keeps the credentials for an endpoint, sealed; they replace the earlier ones.
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

    /// Commits to the secrets as they are now. A secret that does not open has no commitment.
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

    /// The commitment that is stored beside the secrets.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn vault() -> Vault {
        Vault::from_base64(&Vault::new_master_key()).unwrap()
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
