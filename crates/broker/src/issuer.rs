//! Callers by tokens of an OAuth issuer, at the MCP door (docs/doors/mcp.md#oauth; RFC 9068, RFC 8725). The issuer's keys
//! come through the egress guard and are kept for a while.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::config;
use crate::directory::{Directory, Principal};
use crate::egress::GuardedClient;
use crate::egress::json_service::JsonService;
use crate::web_keys::{ALGORITHMS, key_set, unfit};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_store::store::Role;

/// How long keys are used without being read again.
const KEYS_AGE: Duration = Duration::from_mins(10);
/// Shortest time between two reads of the keys: a token with an unknown key id costs one read at most.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// Bounds one read of the keys.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Keys that are tried for one token.
const MAX_KEYS: usize = 16;
/// Longest token, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// Why a token names no caller. Says nothing of the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("the token is not a signed JWT of a supported algorithm")]
    Malformed,
    #[error("the issuer publishes no key of the token's key id")]
    UnknownKey,
    /// None of the issuer's keys fits the token.
    #[error("no key of the issuer fits the token's algorithm: {0}")]
    UnfitKey(&'static str),
    #[error("the token's signature does not hold")]
    Signature,
    /// A claim, and what is wrong with it.
    #[error("the token's `{0}` {1}")]
    Claim(&'static str, &'static str),
    #[error("the token lacks the scope {0}")]
    Scope(String),
    #[error("the token names no agent of this broker")]
    UnknownAgent,
    /// Neither the token's fault nor the caller's.
    #[error("the issuer's keys cannot be read; try again")]
    KeysAway,
    #[error("the store cannot be reached; try again")]
    StoreAway,
}

struct KeptKeys {
    keys: JwkSet,
    /// When a read was tried last.
    tried: Instant,
    /// When the keys were read.
    read: Instant,
}

/// An issuer whose tokens name agents.
pub struct Issuer {
    service: JsonService,
    settings: config::OAuth,
    audience: String,
    tenant: TenantId,
    kept: Mutex<Option<KeptKeys>>,
    /// One read at a time.
    reading: tokio::sync::Mutex<()>,
}

impl Issuer {
    /// The issuer of the settings; `None` where they name none. `audience` is the door's own address.
    #[must_use]
    pub fn new(client: GuardedClient, settings: &config::OAuth, audience: &str) -> Option<Self> {
        let tenant = settings.tenant.parse().ok()?;
        let own =
            [settings.audience.as_str(), audience].into_iter().find(|text| !text.is_empty())?;
        (!settings.issuer.is_empty()).then(|| Self {
            service: JsonService::new(client, &settings.jwks_url, ""),
            audience: own.to_owned(),
            settings: settings.clone(),
            tenant,
            kept: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        })
    }

    /// Whether a key has the form of a token: an API key has no dots.
    #[must_use]
    pub fn is_token(key: &str) -> bool {
        key.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The agent that a token names.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub async fn caller(
        &self,
        token: &str,
        directory: &Directory,
    ) -> Result<Principal, TokenFault> {
        let claims = self.claims(token).await?;
        self.check_scope(&claims)?;
        let named = claims.get(&self.settings.agent_claim).and_then(Value::as_str);
        let id: AgentId = named.and_then(|id| id.parse().ok()).ok_or(TokenFault::UnknownAgent)?;
        let agents = directory.agents(&self.tenant).await.map_err(|_| TokenFault::StoreAway)?;
        if agents.row(&id).is_none() {
            return Err(TokenFault::UnknownAgent);
        }
        Ok(Principal {
            tenant: self.tenant.clone(),
            role: Role::Agent,
            agent: Some(id),
            key_id: String::new(),
        })
    }

    async fn claims(&self, token: &str) -> Result<Map<String, Value>, TokenFault> {
        if token.len() > MAX_TOKEN {
            return Err(TokenFault::Malformed);
        }
        let header = decode_header(token).map_err(|_| TokenFault::Malformed)?;
        // Before any key is looked at: a public key is not a secret for an HMAC.
        if !ALGORITHMS.contains(&header.alg) || names_critical(token) {
            return Err(TokenFault::Malformed);
        }
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.settings.leeway_s;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let mut fault = TokenFault::Signature;
        for key in self.keys(header.kid.as_deref(), header.alg).await? {
            let Ok(key) = DecodingKey::from_jwk(&key) else {
                fault = TokenFault::UnfitKey("it cannot be read");
                continue;
            };
            match decode::<Map<String, Value>>(token, &key, &validation) {
                Ok(decoded) => {
                    check_types(&decoded.claims)?;
                    return Ok(decoded.claims);
                }
                // Keys of one id may be several, while they are rotated.
                Err(err) => match fault_of(&err) {
                    TokenFault::Signature => fault = TokenFault::Signature,
                    other => return Err(other),
                },
            }
        }
        Err(fault)
    }

    fn check_scope(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let wanted = self.settings.scope.as_str();
        let granted = claims.get("scope").and_then(Value::as_str).unwrap_or_default();
        if wanted.is_empty() || granted.split(' ').any(|scope| scope == wanted) {
            return Ok(());
        }
        Err(TokenFault::Scope(wanted.to_owned()))
    }

    /// The issuer's keys that fit a token of this key id and algorithm. An unknown id has the keys read again, though not often.
    async fn keys(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Vec<Jwk>, TokenFault> {
        if let Ok(keys) = self.kept_keys(kid, algorithm, KEYS_AGE) {
            return Ok(keys);
        }
        let _one = self.reading.lock().await;
        if let Ok(keys) = self.kept_keys(kid, algorithm, KEYS_AGE) {
            return Ok(keys);
        }
        let tried = self.kept().as_ref().map(|kept| kept.tried);
        if tried.is_none_or(|at| at.elapsed() >= READ_AGAIN) {
            self.read().await;
        }
        // Keys that could not be read again count on: the issuer may be away for a while.
        self.kept_keys(kid, algorithm, Duration::MAX)
    }

    fn kept_keys(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        age: Duration,
    ) -> Result<Vec<Jwk>, TokenFault> {
        let kept = self.kept();
        let kept = kept.as_ref().filter(|kept| kept.read.elapsed() < age);
        let keys = kept.map(|kept| kept.keys.keys.as_slice()).filter(|keys| !keys.is_empty());
        let keys = keys.ok_or(TokenFault::KeysAway)?;
        let named = |key: &&Jwk| kid.is_none() || key.common.key_id.as_deref() == kid;
        let (mut fitting, mut fault) = (Vec::new(), TokenFault::UnknownKey);
        for key in keys.iter().filter(named) {
            match unfit(key, algorithm) {
                None if fitting.len() < MAX_KEYS => fitting.push(key.clone()),
                None => {}
                Some(why) => fault = TokenFault::UnfitKey(why),
            }
        }
        if fitting.is_empty() { Err(fault) } else { Ok(fitting) }
    }

    async fn read(&self) {
        let asked = tokio::time::timeout(READ_TIMEOUT, self.service.get()).await;
        let now = Instant::now();
        let read = asked.map_err(|_| "no answer in time".to_owned()).and_then(|answer| answer);
        let read = read.and_then(|value| key_set(&value));
        let mut kept = self.kept();
        match read {
            Ok(keys) => *kept = Some(KeptKeys { keys, tried: now, read: now }),
            Err(why) => {
                tracing::warn!(why, "the OAuth issuer's keys cannot be read");
                match &mut *kept {
                    Some(kept) => kept.tried = now,
                    none => {
                        let keys = JwkSet { keys: Vec::new() };
                        *none = Some(KeptKeys { keys, tried: now, read: now });
                    }
                }
            }
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<KeptKeys>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fault of a token for which a key was tried.
fn fault_of(err: &jsonwebtoken::errors::Error) -> TokenFault {
    use jsonwebtoken::errors::ErrorKind;

    match err.kind() {
        ErrorKind::InvalidSignature | ErrorKind::Crypto(_) | ErrorKind::InvalidKeyFormat => {
            TokenFault::Signature
        }
        ErrorKind::ExpiredSignature => TokenFault::Claim("exp", "is over"),
        ErrorKind::ImmatureSignature => TokenFault::Claim("nbf", "is still to come"),
        ErrorKind::InvalidIssuer => TokenFault::Claim("iss", "is another issuer"),
        ErrorKind::InvalidAudience => TokenFault::Claim("aud", "does not name this broker"),
        ErrorKind::MissingRequiredClaim(name) => {
            let name = ["exp", "iss", "aud"].into_iter().find(|one| one == name);
            TokenFault::Claim(name.unwrap_or("claims"), "is missing, or of a wrong type")
        }
        _ => TokenFault::Malformed,
    }
}

/// Below 2⁶⁴: the library holds times in 64 bits, and passes over a larger number as it does over a text.
const MOST_SECONDS: f64 = 1.8e19;

/// Checks the types of the registered claims (RFC 7519 §4.1). The library passes over one of a type that it does not expect, and an
/// issuer that is a list with the right name in it.
fn check_types(claims: &Map<String, Value>) -> Result<(), TokenFault> {
    let is_audience = |value: &Value| match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(Value::is_string),
        one => one.is_string(),
    };
    let is_time =
        |value: &Value| value.as_f64().is_some_and(|time| (0.0..MOST_SECONDS).contains(&time));
    for (name, why, fits) in [
        ("iss", "is not a text", &Value::is_string as &dyn Fn(&Value) -> bool),
        ("sub", "is not a text", &Value::is_string),
        ("jti", "is not a text", &Value::is_string),
        ("scope", "is not a text", &Value::is_string),
        ("aud", "is neither a text nor a list of texts", &is_audience),
        ("exp", "is not a time in seconds", &is_time),
        ("nbf", "is not a time in seconds", &is_time),
        ("iat", "is not a time in seconds", &is_time),
    ] {
        if claims.get(name).is_some_and(|value| !fits(value)) {
            return Err(TokenFault::Claim(name, why));
        }
    }
    Ok(())
}

/// Whether a token's header names extensions that a reader must understand (RFC 7515 §4.1.11): none is understood here.
fn names_critical(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).ok();
    let header: Option<Value> = header.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    header.is_none_or(|header| header.get("crit").is_some())
}
