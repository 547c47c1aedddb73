//! Delivery to an agent that speaks A2A 1.0 and knows nothing of the broker: the handoff as a message, the answer's task as
//! the acceptance. The A2A door follows the task (`doors/a2a/out`), which gets each task from here, and finds those of a
//! broker that died by their records.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::card::CardSignature;
use super::client::{AgentClient, CallFault, CardKeys, RemoteAgent};
use super::message::{Callback, Outgoing};
use super::signature::registered_keys;
use super::task::{RemoteState, RemoteTask, Sent};
use super::wire::Operation;
use crate::descriptions::a2a::DESCRIPTION;
use handoffd_broker::judged;
use handoffd_broker::transport::{
    AnswerFields, Attempt, AttemptFailure, AttemptOutcome, Endpoint, Envelope, FailureClass,
    Publication, Transport, VerdictClock,
};
use handoffd_broker::vault::Vault;
use handoffd_domain::credential;
use handoffd_domain::ids::{HandoffId, TenantId};
use handoffd_domain::transport::{FieldError, TransportDescription};
use handoffd_gate::Gate;
use handoffd_gate::prompt::{self, Origin, PromptExtent, TURNS};
use handoffd_store::clock;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{HandoffKey, Store, StoreError};

/// The header of an API key unless the agent's config names one.
const API_KEY_HEADER: &str = "x-api-key";
/// Headers that the request has already, or that mean something to HTTP, to a proxy, to a browser's server or to a trace.
const TAKEN_HEADERS: [&str; 30] = [
    "alt-used",
    "authorization",
    "baggage",
    "cache-control",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "early-data",
    "expect",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "last-event-id",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "referer",
    "set-cookie",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
/// Beginnings of such headers.
const TAKEN_FAMILIES: [&str; 11] = [
    "a2a-",
    "accept",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "via",
    "webhook-",
    "x-a2a-",
    "x-forwarded-",
    "x-handoffd-",
];

/// Whether no credential may go in a header.
fn is_taken(header: &str) -> bool {
    let name = header.to_ascii_lowercase();
    TAKEN_HEADERS.contains(&name.as_str())
        || TAKEN_FAMILIES.iter().any(|family| name.starts_with(family))
}
/// How long a task that is only submitted may turn into a refusal before it counts as accepted.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// The rest of an attempt's time after the last read.
const SPARE: Duration = Duration::from_millis(50);
/// Pauses between looks meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// The content of a callback's sealed token.
const CALLBACK: &str = "a2a-callback";
/// The path of callbacks below the broker's public URL.
pub const CALLBACK_PATH: &str = "/callbacks/a2a";

/// A task that was made at a remote agent, for the part of the broker that follows it.
#[derive(Debug)]
pub struct NewTask {
    pub handoff: HandoffKey,
    /// `None`: the message may have reached the agent, and no usable answer came.
    pub remote: Option<RemoteRef>,
}

/// A remote task, as an acceptance's record names it.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteRef {
    Task {
        id: String,
        context: String,
    },
    /// The agent answered with a message: the whole result.
    Message(Value),
    /// The agent answered with a message that is in no record: the safety rules or the credential patterns match it.
    Withheld,
}

impl RemoteRef {
    /// The `metadata` of the acceptance.
    fn metadata(&self) -> Value {
        json!({ "a2a": match self {
            Self::Task { id, context } => json!({ "taskId": id, "contextId": context }),
            Self::Message(message) => json!({ "message": message }),
            Self::Withheld => json!({ "withheld": true }),
        } })
    }

    /// Reads the content of an acceptance back.
    #[must_use]
    pub fn read(content: &Value) -> Option<Self> {
        let own = content.pointer("/metadata/a2a")?;
        if let Some(message) = own.get("message") {
            return Some(Self::Message(message.clone()));
        }
        if own.get("withheld").is_some() {
            return Some(Self::Withheld);
        }
        let text = |name: &str| own.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self::Task { id: text("taskId")?, context: text("contextId").unwrap_or_default() })
    }
}

impl From<&RemoteTask> for RemoteRef {
    fn from(task: &RemoteTask) -> Self {
        Self::Task { id: task.id.clone(), context: task.context.clone() }
    }
}

/// Seals the purpose of a callback, so that only the agent that got the token can wake the broker; `None` if the vault
/// cannot seal.
#[must_use]
pub fn callback_token(vault: &Vault, handoff: &HandoffKey) -> Option<String> {
    let (tenant, id) = handoff;
    let sealed = vault.seal_token(CALLBACK, format!("{tenant}\n{id}").as_bytes()).ok()?;
    Some(URL_SAFE_NO_PAD.encode(sealed))
}

/// The handoff of a callback's token; `None` for a token of anyone else's making.
#[must_use]
pub fn open_callback(vault: &Vault, token: &str) -> Option<HandoffKey> {
    let sealed = URL_SAFE_NO_PAD.decode(token).ok()?;
    let opened = vault.open_token(CALLBACK, &sealed).ok()?;
    let (tenant, id) = std::str::from_utf8(&opened).ok()?.split_once('\n')?;
    Some((tenant.parse::<TenantId>().ok()?, id.parse::<HandoffId>().ok()?))
}

/// The remote agent of a destination; `None` where its address or a credential is none.
#[must_use]
pub fn remote_agent(endpoint: &Endpoint, timeout: Duration) -> Option<RemoteAgent> {
    let secret = |name: HeaderName, text: String| {
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let credentials = &endpoint.credentials;
    let credential = match (credentials.text("bearerToken"), credentials.text("apiKey")) {
        (Some(token), _) => Some(secret(AUTHORIZATION, format!("Bearer {token}"))?),
        (None, Some(key)) => {
            let name = endpoint.config.text("apiKeyHeader").unwrap_or(API_KEY_HEADER);
            if is_taken(name) {
                return None;
            }
            Some(secret(HeaderName::try_from(name).ok()?, key.to_owned())?)
        }
        (None, None) => None,
    };
    let config = |name: &str| endpoint.config.text(name).map(str::to_owned);
    let card_keys = match (config("cardKeys"), config("cardKeysUrl")) {
        (Some(keys), _) => CardKeys::Given(keys),
        (None, Some(url)) => CardKeys::At(url),
        (None, None) => CardKeys::Any,
    };
    let (url, tenant) = (config("url")?, endpoint.tenant.clone());
    Some(RemoteAgent { tenant, url, credential, card_keys, timeout })
}

/// Sends handoffs to A2A agents.
pub struct A2aTransport {
    client: AgentClient,
    gate: Arc<Gate>,
    store: Arc<Store>,
    vault: Vault,
    /// The address by which agents reach the broker; empty: they cannot.
    public_url: String,
    tasks: mpsc::UnboundedSender<NewTask>,
}

impl A2aTransport {
    /// A transport that tells of each new task by `tasks`.
    #[must_use]
    pub fn new(
        client: AgentClient,
        gate: Arc<Gate>,
        store: Arc<Store>,
        vault: Vault,
        public_url: &str,
        tasks: mpsc::UnboundedSender<NewTask>,
    ) -> Self {
        let public_url = public_url.trim_end_matches('/').to_owned();
        Self { client, gate, store, vault, public_url, tasks }
    }

    fn callback(&self, handoff: &HandoffKey) -> Option<Callback> {
        if self.public_url.is_empty() {
            return None;
        }
        let url = format!("{}{CALLBACK_PATH}/{}", self.public_url, handoff.1);
        Some(Callback { url, token: callback_token(&self.vault, handoff)? })
    }

    /// Sends the message, or finds the task that an earlier attempt made.
    async fn offer(
        &self,
        agent: &RemoteAgent,
        attempt: &Attempt,
        opinion: Option<String>,
    ) -> Result<Sent, CallFault> {
        let envelope = &attempt.envelope;
        let (id, task_id) = (envelope.handoff_id.to_string(), envelope.task_id.to_string());
        let card = self.client.card(agent).await?;
        if envelope.attempt > 1
            && let Some(task) = self.earlier(agent, &id, &task_id).await?
        {
            return Ok(Sent::Task(task));
        }
        let (message, block) = self.block(attempt, opinion).await?;
        if message.pointer("/stream/open").and_then(Value::as_bool) == Some(true) {
            let why = "an A2A agent takes no handoff in pieces: it would get the first one alone";
            return Err(CallFault::Failed(AttemptFailure::unreached(FailureClass::Request, why)));
        }
        let callback = self.callback(&(attempt.endpoint.tenant.clone(), envelope.handoff_id));
        let request = Outgoing {
            handoff_id: &id,
            task_id: &task_id,
            message: &message,
            prompt: &block,
            traceparent: envelope.traceparent.as_deref(),
            callback: callback.as_ref(),
        }
        .request(&card);
        let answer = self.client.call(agent, &Operation::Send(&request)).await?;
        fault::at(Step::SendAnswered);
        Sent::read(&answer).ok_or_else(|| {
            let why = "the answer to the message is neither a task nor a message";
            CallFault::Failed(AttemptFailure::reached(FailureClass::Protocol, Some(200), why))
        })
    }

    /// The task of this message, where an earlier attempt reached the agent. An agent that cannot list tasks has none; one that
    /// fails to answer is asked again at the next attempt, and this attempt sends no message.
    async fn earlier(
        &self,
        agent: &RemoteAgent,
        id: &str,
        task_id: &str,
    ) -> Result<Option<RemoteTask>, CallFault> {
        let found = self.client.find_task(agent, task_id, id).await;
        found.map_err(|fault| match fault {
            CallFault::Failed(failure) => {
                CallFault::Failed(AttemptFailure { reached: false, ..failure })
            }
            CallFault::Refused(refusal) => CallFault::Failed(AttemptFailure::unreached(
                FailureClass::Status,
                format!("the agent cannot tell of an earlier attempt: {}", refusal.reason),
            )),
            other => other,
        })
    }

    /// Gives a submitted task a moment: an agent that refuses does so at once. The task is known already, so that nothing here
    /// fails the attempt.
    async fn first_word(
        &self,
        agent: &RemoteAgent,
        mut task: RemoteTask,
        until: Instant,
    ) -> RemoteTask {
        while task.state == RemoteState::Submitted && Instant::now() < until {
            sleep(LOOK).await;
            let get = Operation::Get { id: &task.id };
            let Ok(Ok(read)) = timeout_at(until, self.client.call(agent, &get)).await else {
                break;
            };
            let Some(read) = RemoteTask::read(&read).filter(|read| read.id == task.id) else {
                break;
            };
            task = read;
        }
        task
    }

    /// The label under which the classifier called the message unsafe, where it did.
    async fn opinion(&self, attempt: &Attempt) -> Result<Option<String>, StoreError> {
        let key = (attempt.endpoint.tenant.clone(), attempt.envelope.handoff_id);
        match self.store.find_handoff(&key).await? {
            Some(handoff) => judged::unsafe_label(&self.store, &handoff).await,
            None => Ok(None),
        }
    }

    /// The message, and its guarded block.
    async fn block(
        &self,
        attempt: &Attempt,
        opinion: Option<String>,
    ) -> Result<(Value, String), CallFault> {
        let (body, gate) = (attempt.body.clone(), Arc::clone(&self.gate));
        let (handoff_id, task_id) =
            (attempt.envelope.handoff_id.to_string(), attempt.envelope.task_id.to_string());
        let rendering = tokio::task::spawn_blocking(move || {
            let message: Value = serde_json::from_slice(&body).ok()?;
            let text = |pointer: &str| {
                message.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let origin = Origin {
                handoff_id,
                task_id,
                agent_id: text("/fromAgent/agentId"),
                agent_version: text("/fromAgent/agentVersion"),
            };
            let report = gate.scanner.report(&message, &[], &mut |_, _| {});
            let marks: Vec<_> = report.findings.into_iter().chain(report.marks).collect();
            let compressed = message["historyStrategy"] == "compressed";
            let (marks, opinion) = (&*marks, opinion.as_deref());
            let extent = PromptExtent { compressed, marks, opinion, ..PromptExtent::turns(TURNS) };
            let nonce = hex::encode(clock::random::<16>());
            let block = prompt::context(&message, &origin, &nonce, &extent).text;
            Some((message, block))
        });
        rendering.await.ok().flatten().ok_or_else(|| {
            let why = "the message cannot be shown";
            CallFault::Failed(AttemptFailure::unreached(FailureClass::Request, why))
        })
    }

    /// Whether a message of the agent may stand in a record before the API judges it as the handoff's result.
    async fn is_clean(&self, message: &Value) -> bool {
        let (said, gate) = (json!({ "result": message }), Arc::clone(&self.gate));
        let scan = tokio::task::spawn_blocking(move || {
            let report = gate.scanner.report(&said, &[], &mut |_, _| {});
            report.findings.is_empty()
                && report.marks.is_empty()
                && credential::sightings("", &said).is_empty()
        });
        scan.await.unwrap_or(false)
    }

    /// Tells the follower of a handoff's remote task. No follower runs after the broker stops; the next broker looks for it.
    fn tell(&self, attempt: &Attempt, remote: Option<RemoteRef>) {
        if !attempt.envelope.test {
            let handoff = (attempt.endpoint.tenant.clone(), attempt.envelope.handoff_id);
            let _ = self.tasks.send(NewTask { handoff, remote });
        }
    }

    /// The effect of the agent's answer on the handoff.
    async fn outcome(&self, attempt: &Attempt, sent: Result<Sent, CallFault>) -> AttemptOutcome {
        let remote = match sent {
            Ok(Sent::Message(message)) => RemoteRef::Message(message),
            Ok(Sent::Task(task)) if task.state == RemoteState::Rejected => {
                return AttemptOutcome::Rejected {
                    reason: Some(task.reason().unwrap_or_else(|| "REJECTED".to_owned())),
                    fields: AnswerFields {
                        details: task.words(),
                        metadata: Some(RemoteRef::from(&task).metadata()),
                        unreadable: task.unreadable.clone(),
                    },
                };
            }
            Ok(Sent::Task(task)) => RemoteRef::from(&task),
            Err(fault) => {
                let outcome = fault_outcome(fault);
                if matches!(&outcome, AttemptOutcome::Failed(failure) if failure.reached) {
                    self.tell(attempt, None);
                }
                return outcome;
            }
        };
        let metadata = match &remote {
            RemoteRef::Message(message) if !self.is_clean(message).await => {
                RemoteRef::Withheld.metadata()
            }
            remote => remote.metadata(),
        };
        // The follower here has the message itself, and says it by the API, which judges it by the tenant's policies.
        self.tell(attempt, Some(remote));
        AttemptOutcome::Accepted(AnswerFields {
            metadata: Some(metadata),
            ..AnswerFields::default()
        })
    }
}

fn fault_outcome(fault: CallFault) -> AttemptOutcome {
    match fault {
        CallFault::Failed(failure) => AttemptOutcome::Failed(failure),
        CallFault::Busy(retry_after) => AttemptOutcome::Busy { retry_after, reached: true },
        CallFault::Gone => AttemptOutcome::Gone,
        CallFault::Card(fault) => AttemptOutcome::Failed(
            AttemptFailure::unreached(FailureClass::Protocol, fault.to_string())
                .at("/delivery/config/url"),
        ),
        CallFault::Refused(refusal) if refusal.internal => {
            AttemptOutcome::Failed(AttemptFailure::reached(
                FailureClass::Status,
                None,
                format!("the agent failed: {}", refusal.reason),
            ))
        }
        CallFault::Refused(refusal) => AttemptOutcome::Rejected {
            fields: AnswerFields {
                details: (!refusal.message.is_empty()).then(|| refusal.message.into()),
                ..AnswerFields::default()
            },
            reason: Some(refusal.reason),
        },
    }
}

#[async_trait]
impl Transport for A2aTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let text = |name: &str| config.get(name).and_then(Value::as_str);
        for name in ["url", "cardKeysUrl"] {
            if let Some(url) = text(name)
                && let Err(denied) = self.client.permits(url)
            {
                errors.push((format!("/delivery/config/{name}"), denied));
            }
        }
        if text("cardKeys").is_some_and(|keys| registered_keys(keys).is_none()) {
            let why =
                "is not a JSON Web Key Set with a key that signs (RSA, P-256, P-384, Ed25519)";
            errors.push(("/delivery/config/cardKeys".to_owned(), why.to_owned()));
        }
        if text("cardKeys").is_some() && text("cardKeysUrl").is_some() {
            let why = "give cardKeys or cardKeysUrl, not both";
            errors.push(("/delivery/config/cardKeysUrl".to_owned(), why.to_owned()));
        }
        let header = text("apiKeyHeader");
        if header.is_some_and(is_taken) {
            let why = "is a header that the request has already, or that means something to HTTP";
            errors.push(("/delivery/config/apiKeyHeader".to_owned(), why.to_owned()));
        }
        if ["bearerToken", "apiKey"].iter().all(|name| set.iter().any(|given| given == name)) {
            let why = "give a bearerToken or an apiKey, not both";
            errors.push(("/delivery/credentials".to_owned(), why.to_owned()));
        }
        errors
    }

    async fn publish(&self, attempt: Attempt) -> Publication {
        let started = Instant::now();
        let Some(agent) = remote_agent(&attempt.endpoint, attempt.timeout) else {
            let why = "the address or a credential cannot be sent";
            let failure = AttemptFailure::unreached(FailureClass::Request, why);
            return Publication::failed(failure.at("/delivery/config/url"));
        };
        let limit = started + attempt.timeout;
        let verdict = match attempt.verdict {
            VerdictClock::Running(left) => Some(started + left),
            VerdictClock::FromFirstByte(_) | VerdictClock::Stopped => None,
        };
        let until = verdict.map_or(limit, |verdict| verdict.min(limit));
        let Ok(Ok(opinion)) = timeout_at(until, self.opinion(&attempt)).await else {
            let why = "the store does not tell what the classifier says of the message";
            let failure = AttemptFailure::unreached(FailureClass::Connect, why);
            return Publication::of(AttemptOutcome::Away(failure));
        };
        if let Ok(mut sent) = timeout_at(until, self.offer(&agent, &attempt, opinion)).await {
            if let Ok(Sent::Task(task)) = &mut sent
                && task.state == RemoteState::Submitted
            {
                let last =
                    (Instant::now() + FIRST_WORD).min(until.checked_sub(SPARE).unwrap_or(until));
                *task = self.first_word(&agent, task.clone(), last).await;
            }
            Publication::of(self.outcome(&attempt, sent).await)
        } else {
            self.tell(&attempt, None);
            let why = "no answer in time";
            let failure = AttemptFailure::reached(FailureClass::Timeout, None, why);
            let overdue = verdict.is_some_and(|verdict| verdict <= until);
            Publication { overdue, ..Publication::failed(failure) }
        }
    }

    /// Its other headers are A2A's own.
    fn headers(&self, envelope: &Envelope) -> Vec<(String, String)> {
        let trace = envelope.traceparent.clone();
        trace.into_iter().map(|value| ("traceparent".to_owned(), value)).collect()
    }

    /// Reads the card and asks for tasks of a context that does not exist: nothing is carried out.
    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        let agent = remote_agent(&attempt.endpoint, attempt.timeout).ok_or_else(|| {
            AttemptFailure::unreached(
                FailureClass::Request,
                "the address or a credential cannot be sent",
            )
            .at("/delivery/config/url")
        })?;
        let failed = |fault: CallFault| match fault_outcome(fault.clone()) {
            AttemptOutcome::Failed(failure) => failure,
            _ => AttemptFailure::reached(FailureClass::Refused, None, fault.detail()),
        };
        let card = self.client.card(&agent).await.map_err(failed)?;
        let signature = match card.signature {
            CardSignature::Verified => "its signature holds",
            CardSignature::Unchecked => "its signature is not checked: no keys are registered",
            CardSignature::Absent => "it is not signed",
        };
        let context = attempt.envelope.task_id.to_string();
        match self.client.call(&agent, &Operation::List { context: &context, page: None }).await {
            Ok(_) => Ok(format!(
                "the agent card was read ({signature}), and the agent answers; no message was sent"
            )),
            Err(CallFault::Refused(refusal)) if !refusal.internal => Ok(format!(
                "the agent card was read ({signature}), and the agent answers {}; no message was sent",
                refusal.reason
            )),
            Err(fault) => Err(failed(fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_token_opens_for_its_handoff_alone() {
        let vault = Vault::from_base64(&Vault::new_master_key()).unwrap();
        let key: HandoffKey = ("acme".parse().unwrap(), HandoffId(clock::random_id()));
        let token = callback_token(&vault, &key).unwrap();
        assert_eq!(open_callback(&vault, &token), Some(key));
        let other = Vault::from_base64(&Vault::new_master_key()).unwrap();
        for (vault, token) in
            [(&other, token.as_str()), (&vault, ""), (&vault, "eA"), (&vault, "%%")]
        {
            assert_eq!(open_callback(vault, token), None, "{token}");
        }
    }

    #[test]
    fn no_credential_goes_in_a_header_that_means_something_else() {
        for name in [
            "Upgrade",
            "cookie",
            "Proxy-Authorization",
            "Sec-WebSocket-Key",
            "TE",
            "Via",
            "Content-MD5",
            "Accept-Charset",
            "X-Forwarded-For",
            "If-Match",
            "A2A-Version",
            "Authorization",
            "Host",
            "Expect",
            "Last-Event-ID",
            "Idempotency-Key",
            "webhook-signature",
            "X-Handoffd-Request",
        ] {
            assert!(is_taken(name), "{name}");
        }
        for name in ["X-API-Key", "Ocp-Apim-Subscription-Key", "apikey", "X-Auth-Token", "Api-Key"]
        {
            assert!(!is_taken(name), "{name}");
        }
    }

    #[test]
    fn a_remote_task_is_read_back_from_the_acceptance() {
        for remote in [
            RemoteRef::Task { id: "t".to_owned(), context: "c".to_owned() },
            RemoteRef::Message(json!({ "a": 1 })),
            RemoteRef::Withheld,
        ] {
            let content = json!({ "metadata": remote.metadata(), "details": null });
            assert_eq!(RemoteRef::read(&content), Some(remote));
        }
        assert_eq!(RemoteRef::read(&json!({ "metadata": { "a2a": { "taskId": 7 } } })), None);
    }
}
