//! Calls to remote agents through the egress guard: the card, kept for a while, and the protocol's operations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonwebtoken::jwk::JwkSet;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};
use url::Url;

use super::card::{self, CardFault, CardSignature, RemoteCard, VERSION};
use super::signature::{registered_keys, verify};
use super::task::{RemoteTask, find, next_page};
use super::wire::{Operation, RemoteRefusal, answer};
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::egress::exchange::{denied, failure_of, read_body};
use handoffd_broker::egress::json_service::JsonService;
use handoffd_broker::transport::answer::parse_retry_after;
use handoffd_broker::transport::{AttemptFailure, FailureClass};
use handoffd_broker::web_keys::key_set;
use handoffd_domain::ids::TenantId;
use handoffd_store::clock::{Clock, SystemClock};

/// How long a card is kept. An agent whose card changes meanwhile is read again once a call fails.
const CARD_AGE: Duration = Duration::from_mins(5);
/// Most cards that are kept.
const MAX_CARDS: usize = 10_000;
/// Most pages of a context's tasks that are read for one task, and the longest time of it: bounds for an agent whose list never
/// ends.
const LIST_PAGES: usize = 1_000;
const LIST_MAX: Duration = Duration::from_secs(30);

/// A remote agent as it is registered.
#[derive(Clone)]
pub struct RemoteAgent {
    /// The tenant that registered the agent.
    pub tenant: TenantId,
    /// Address of the agent or of its card.
    pub url: String,
    /// The header that carries the credential, and its value.
    pub credential: Option<(HeaderName, HeaderValue)>,
    pub card_keys: CardKeys,
    /// The longest time of one call, from its connection to the end of its answer.
    pub timeout: Duration,
}

/// The keys under which a signature of an agent's card has to hold.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CardKeys {
    /// No signature is asked for.
    Any,
    /// A JSON Web Key Set, as the registration has it.
    Given(String),
    /// The address of one.
    At(String),
}

impl std::fmt::Debug for RemoteAgent {
    /// Omits the URL and the credential: neither belongs in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteAgent").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallFault {
    /// No answer of the protocol came.
    Failed(AttemptFailure),
    /// The agent asks to be called later.
    Busy(Option<Duration>),
    /// The endpoint is permanently gone.
    Gone,
    /// The agent's card cannot be used.
    Card(CardFault),
    /// The agent answered with an error of the protocol.
    Refused(RemoteRefusal),
}

impl CallFault {
    /// Whether the agent does not know the task.
    #[must_use]
    pub fn is_no_task(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_no_task())
    }

    /// The agent does not offer the operation at all. Frameworks answer an unknown path with an error of their own.
    fn is_no_operation(&self) -> bool {
        match self {
            Self::Refused(refusal) => {
                let missing = ["UNSUPPORTED_OPERATION", "METHOD_NOT_FOUND", "HTTP_501"];
                !refusal.internal || missing.contains(&refusal.reason.as_str())
            }
            Self::Failed(failure) => {
                failure.class == FailureClass::Status
                    && matches!(failure.status, Some(404 | 405 | 501))
            }
            Self::Busy(_) | Self::Gone | Self::Card(_) => false,
        }
    }

    /// One sentence without an address or a part of a body.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Failed(failure) => failure.detail.clone(),
            Self::Busy(_) => "the agent asks to be called later".to_owned(),
            Self::Gone => "the agent's address is gone".to_owned(),
            Self::Card(fault) => fault.to_string(),
            Self::Refused(refusal) => format!("the agent refuses: {}", refusal.reason),
        }
    }
}

/// The key of a cached card: an agent may show another card to another caller.
#[derive(PartialEq, Eq, Hash)]
struct CardKey {
    url: String,
    tenant: TenantId,
    /// SHA-256 over the credential's header and value; `None` for an agent without a credential.
    credential: Option<[u8; 32]>,
    /// A card that was kept before keys were registered was not held against them.
    keys: CardKeys,
}

impl CardKey {
    fn new(agent: &RemoteAgent, at: &Url) -> Self {
        let credential = agent.credential.as_ref().map(|(name, value)| {
            let digest = Sha256::new().chain_update(name.as_str()).chain_update([0]);
            digest.chain_update(value.as_bytes()).finalize().into()
        });
        Self {
            url: at.as_str().to_owned(),
            tenant: agent.tenant.clone(),
            credential,
            keys: agent.card_keys.clone(),
        }
    }
}

struct KeptCard {
    card: Arc<RemoteCard>,
    since: Instant,
}

/// Calls remote agents. Clones share connections and cards.
#[derive(Clone)]
pub struct AgentClient {
    http: GuardedClient,
    cards: Arc<Mutex<HashMap<CardKey, KeptCard>>>,
}

impl AgentClient {
    #[must_use]
    pub fn new(http: GuardedClient) -> Self {
        Self { http, cards: Arc::default() }
    }

    /// Whether an agent may be registered with this address.
    ///
    /// # Errors
    /// The egress guard's reason.
    pub fn permits(&self, url: &str) -> Result<(), String> {
        self.http.policy().check_url(url).map(drop).map_err(|denied| denied.to_string())
    }

    /// The agent's card; read again where it is older than `CARD_AGE`.
    ///
    /// # Errors
    /// [`CallFault`]: it cannot be read, or nothing of it can be used.
    pub async fn card(&self, agent: &RemoteAgent) -> Result<Arc<RemoteCard>, CallFault> {
        let registered = self
            .http
            .policy()
            .check_url(&agent.url)
            .map_err(|why| CallFault::Failed(denied(why)))?;
        let at = card::card_url(&registered);
        let key = CardKey::new(agent, &at);
        if let Some(kept) = self.kept().get(&key)
            && kept.since.elapsed() < CARD_AGE
        {
            return Ok(Arc::clone(&kept.card));
        }
        let (status, body) = self.exchange(agent, Method::GET, at.as_str(), None).await?;
        let card: Option<Value> = serde_json::from_slice(&body).ok().filter(|_| status == 200);
        let card = card.ok_or_else(|| {
            let detail = format!("the agent card cannot be read: answered {status}");
            // Nothing of the handoff has left yet.
            let failure = AttemptFailure::unreached(FailureClass::Protocol, detail);
            CallFault::Failed(AttemptFailure { status: Some(status), ..failure })
        })?;
        let mut read = self.read(&card, &at)?;
        if let Some(keys) = self.keys_of(agent).await? {
            verify(&card, &keys).map_err(CallFault::Card)?;
            read.signature = CardSignature::Verified;
        }
        let card = Arc::new(read);
        let mut kept = self.kept();
        if kept.len() >= MAX_CARDS {
            kept.retain(|_, card| card.since.elapsed() < CARD_AGE);
        }
        kept.insert(key, KeptCard { card: Arc::clone(&card), since: Instant::now() });
        Ok(card)
    }

    fn read(&self, card: &Value, at: &Url) -> Result<RemoteCard, CallFault> {
        let card = card::read(card, at).map_err(CallFault::Card)?;
        // The card's own addresses pass the guard as registered ones do.
        self.http.policy().check_url(&card.url).map_err(|why| CallFault::Failed(denied(why)))?;
        Ok(card)
    }

    /// The keys that a signature of the agent's card has to hold under; `None` where the registration names none. The agent's
    /// credential does not go to their address.
    async fn keys_of(&self, agent: &RemoteAgent) -> Result<Option<JwkSet>, CallFault> {
        let unread = |why: String, pointer| {
            let why = format!("the keys for the agent card cannot be read: {why}");
            let failure = AttemptFailure::unreached(FailureClass::Protocol, why);
            CallFault::Failed(failure.at(pointer))
        };
        match &agent.card_keys {
            CardKeys::Any => Ok(None),
            CardKeys::Given(text) => registered_keys(text).map(Some).ok_or_else(|| {
                unread("this is not a key set".to_owned(), "/delivery/config/cardKeys")
            }),
            CardKeys::At(url) => {
                let service = JsonService::new(self.http.clone(), url, "");
                let read = timeout(agent.timeout, service.get()).await;
                let read = read.map_err(|_| "no answer in time".to_owned()).and_then(|read| read);
                let keys = read.and_then(|set| key_set(&set));
                keys.map(Some).map_err(|why| unread(why, "/delivery/config/cardKeysUrl"))
            }
        }
    }

    /// Forgets the agent's card, so that the next call reads it anew.
    fn forget(&self, agent: &RemoteAgent) {
        if let Ok(url) = Url::parse(&agent.url) {
            self.kept().remove(&CardKey::new(agent, &card::card_url(&url)));
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<CardKey, KeptCard>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls an operation.
    ///
    /// # Errors
    /// [`CallFault`].
    pub async fn call(
        &self,
        agent: &RemoteAgent,
        operation: &Operation<'_>,
    ) -> Result<Value, CallFault> {
        let card = self.card(agent).await?;
        let request = operation.request(&card);
        let method = if request.post { Method::POST } else { Method::GET };
        let body = request.body.as_ref().map(|body| (request.content_type, body));
        let (status, body) = self.exchange(agent, method, &request.url, body).await?;
        match answer(card.binding, status, &body) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(refusal)) => {
                if refusal.reason == "METHOD_NOT_FOUND" || refusal.reason == "VERSION_NOT_SUPPORTED"
                {
                    self.forget(agent);
                }
                Err(CallFault::Refused(refusal))
            }
            Err(not_of_protocol) => {
                self.forget(agent);
                let detail = format!("answered {status}, and {not_of_protocol}");
                let class = match status {
                    200..=299 => FailureClass::Protocol,
                    _ => FailureClass::Status,
                };
                Err(CallFault::Failed(AttemptFailure::reached(class, Some(status), detail)))
            }
        }
    }

    /// The task of a context that took the message of this id, without its artifacts. `None` also where the agent cannot list
    /// tasks.
    ///
    /// # Errors
    /// [`CallFault`]: whether there is such a task is not known.
    pub async fn find_task(
        &self,
        agent: &RemoteAgent,
        context: &str,
        message_id: &str,
    ) -> Result<Option<RemoteTask>, CallFault> {
        let read = timeout(LIST_MAX, self.find_in_pages(agent, context, message_id)).await;
        read.unwrap_or_else(|_| {
            let why = "the tasks of the context cannot be listed in time";
            Err(CallFault::Failed(AttemptFailure::reached(FailureClass::Timeout, None, why)))
        })
    }

    async fn find_in_pages(
        &self,
        agent: &RemoteAgent,
        context: &str,
        message_id: &str,
    ) -> Result<Option<RemoteTask>, CallFault> {
        let mut token: Option<String> = None;
        for _ in 0..LIST_PAGES {
            let page = Operation::List { context, page: token.as_deref() };
            let list = match self.call(agent, &page).await {
                Ok(list) => list,
                Err(fault) if fault.is_no_operation() => return Ok(None),
                Err(fault) => return Err(fault),
            };
            if let Some(task) = find(&list, message_id) {
                return Ok(Some(task));
            }
            match next_page(&list) {
                // An agent that knows no pages may name the same one again.
                Some(next) if token.as_deref() != Some(next) => token = Some(next.to_owned()),
                _ => return Ok(None),
            }
        }
        let why = "the agent lists more tasks of the context than the broker reads";
        Err(CallFault::Failed(AttemptFailure::reached(FailureClass::Protocol, Some(200), why)))
    }

    /// One request with the agent's credential, and its answer up to the size limit.
    async fn exchange(
        &self,
        agent: &RemoteAgent,
        method: Method,
        url: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<(u16, Vec<u8>), CallFault> {
        let started = Instant::now();
        let mut request = self
            .http
            .request(method, url)
            .map_err(|why| CallFault::Failed(denied(why)))?
            .header(ACCEPT, "application/a2a+json, application/json")
            .header("a2a-version", VERSION);
        if let Some((name, value)) = &agent.credential {
            request = request.header(name, value);
        }
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind).body(body.to_string());
        }
        let late = || {
            let why = "no answer in time";
            CallFault::Failed(AttemptFailure::reached(FailureClass::Timeout, None, why))
        };
        let sent = timeout(agent.timeout, request.send()).await.map_err(|_| late())?;
        let response = sent.map_err(|error| CallFault::Failed(failure_of(&error)))?;
        let status = response.status().as_u16();
        match status {
            300..=399 => {
                let detail = format!("answered {status}; redirects are not followed");
                let failure = AttemptFailure::reached(FailureClass::Redirect, Some(status), detail);
                return Err(CallFault::Failed(failure));
            }
            401 | 403 => {
                let detail = format!("answered {status}: the agent refuses the credentials");
                let failure =
                    AttemptFailure::reached(FailureClass::Unauthorized, Some(status), detail);
                return Err(CallFault::Failed(failure.at("/delivery/credentials")));
            }
            410 => return Err(CallFault::Gone),
            429 | 503 => {
                let after =
                    response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let now = SystemClock::default().now().seconds();
                return Err(CallFault::Busy(after.and_then(|value| parse_retry_after(value, now))));
            }
            _ => {}
        }
        let left = agent.timeout.saturating_sub(started.elapsed());
        let body = timeout(left, read_body(response)).await.map_err(|_| late())?;
        Ok((status, body.map_err(CallFault::Failed)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(tenant: &str, credential: Option<(&'static str, &'static str)>) -> RemoteAgent {
        RemoteAgent {
            tenant: tenant.parse().unwrap(),
            url: "https://a.example/".to_owned(),
            credential: credential.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            }),
            card_keys: CardKeys::Any,
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_card_is_kept_for_its_tenant_and_credential_alone() {
        let at = Url::parse("https://a.example/.well-known/agent-card.json").unwrap();
        let key = |tenant, credential| CardKey::new(&agent(tenant, credential), &at);
        let bearer = Some(("authorization", "Bearer x"));
        assert!(key("acme", bearer) == key("acme", bearer));
        for other in [
            key("other", bearer),
            key("acme", None),
            key("acme", Some(("authorization", "Bearer y"))),
            key("acme", Some(("x-api-key", "Bearer x"))),
        ] {
            assert!(key("acme", bearer) != other);
        }
        let checked = RemoteAgent {
            card_keys: CardKeys::At("https://a.example/keys".to_owned()),
            ..agent("acme", bearer)
        };
        assert!(key("acme", bearer) != CardKey::new(&checked, &at), "it was not held against keys");
    }

    #[test]
    fn an_agent_that_cannot_list_differs_from_one_that_fails() {
        let refused = |reason: &str, internal| {
            let reason = reason.to_owned();
            CallFault::Refused(RemoteRefusal { reason, message: String::new(), internal })
        };
        let status = |status| {
            CallFault::Failed(AttemptFailure::reached(FailureClass::Status, Some(status), "x"))
        };
        for none in [
            refused("METHOD_NOT_FOUND", false),
            refused("UNSUPPORTED_OPERATION", true),
            status(404),
            status(405),
            status(501),
        ] {
            assert!(none.is_no_operation(), "{none:?}");
        }
        for later in [refused("INTERNAL", true), status(500), CallFault::Busy(None)] {
            assert!(!later.is_no_operation(), "{later:?}");
        }
    }
}
