//! The transports: the ways by which an attempt leaves the broker.
//!
//! A transport is one file here with its settings and one page in `docs/transports/`. It publishes one attempt,
//! describes and tests itself, and where it can, hears verdicts and takes handoffs in. Everything else (slots, order
//! per task, circuit breaker, retries, retry budget, metrics, alerts) is the dispatcher's and the same for all. A
//! transport knows neither the store nor the ledger.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::answer::{AttemptFailure, AttemptOutcome, FailureClass, RawAnswer};
use super::standard_webhooks::WebhookSecret;
use super::webhook::VerdictClock;
use crate::vault::{AgentSecrets, SecretKind, Vault, VaultError};
use handoffd_core::domain::canonical;
use handoffd_core::domain::ids::{AgentId, Micros, TenantId};
use handoffd_core::domain::transport::{FieldError, TransportDescription};
use handoffd_store::store::AgentRow;

pub mod a2a;
pub mod amqp;
pub mod catalog;
pub mod connections;
pub mod envelope;
pub mod http;
pub mod inbound;
pub mod listeners;
pub mod nats;
pub mod redis;
pub mod servers;
pub mod sqs;
pub mod temporal;
pub mod text;
pub mod trial;
pub mod webhook;

pub use super::webhook::Encoded;
pub use crate::transport::{Disposition, Sink, UnfinishedHandoff, take_all};
pub use catalog::Transports;
pub use envelope::Envelope;

/// A way by which attempts leave the broker. One value serves all agents of its mode; connections are its own.
#[async_trait]
pub trait Transport: Send + Sync {
    /// The document of its settings and credentials.
    fn describe(&self) -> &'static TransportDescription;

    /// Rules between fields, which the description cannot express. `set` holds the names of the credentials that are
    /// given or sealed.
    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let _ = (config, set);
        Vec::new()
    }

    /// Rules that depend on whose agent it is, once [`Transport::check`] finds nothing.
    fn check_tenant(
        &self,
        tenant: &TenantId,
        config: &Map<String, Value>,
        set: &[String],
    ) -> Vec<FieldError> {
        let _ = (tenant, config, set);
        Vec::new()
    }

    /// Whether the message is too large for the agent's queue, so that a claim check goes in its place.
    fn is_too_large(&self, attempt: &Attempt) -> bool {
        self.describe().max_message_bytes.is_some_and(|limit| attempt.exceeds(limit))
    }

    /// Makes one attempt and ends within its timeout. Dropping the future abandons the attempt, which the receiver
    /// may have got.
    async fn publish(&self, attempt: Attempt) -> Publication;

    /// Names and values of the headers that an attempt sets, for operators; the signature is empty.
    fn headers(&self, envelope: &Envelope) -> Vec<(String, String)> {
        let headers = envelope.headers(&[]);
        headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned())).collect()
    }

    /// Sends a marked test as [`Transport::publish`] sends a handoff (`attempt.envelope.test` is set). The sentence
    /// says what was checked and done.
    ///
    /// # Errors
    /// The failure, with the field that is wrong and the server's answer.
    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        match self.publish(attempt).await.outcome {
            AttemptOutcome::Accepted(_) => Ok("the receiver accepted the test".to_owned()),
            AttemptOutcome::Rejected { .. } => Ok("the receiver rejected the test".to_owned()),
            AttemptOutcome::Received => Ok("the transport acknowledged the test".to_owned()),
            AttemptOutcome::Busy { .. } => Err(AttemptFailure::reached(
                FailureClass::Status,
                None,
                "the receiver is alive, and busy",
            )),
            AttemptOutcome::Gone => Err(AttemptFailure::reached(
                FailureClass::Status,
                Some(410),
                "the endpoint says that it is gone",
            )),
            AttemptOutcome::Away(failure) | AttemptOutcome::Failed(failure) => Err(failure),
        }
    }

    /// The name of the reply channel on which this agent's verdicts come, where its config names one.
    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        let _ = endpoint;
        None
    }

    /// The fields of `config` that say nothing of the reply channel's place: agents that differ in these alone share a
    /// listener.
    fn own_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether each agent has a reply channel of its own, whatever its config.
    fn answers_by_agent(&self) -> bool {
        false
    }

    /// Hears one reply channel until `stopping`, or until the connection fails. `sink` decides on each message; the
    /// transport acknowledges after that, and leaves what it does not acknowledge to be delivered again.
    ///
    /// # Errors
    /// The failure; the caller pauses and calls again.
    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let _ = (endpoint, channel, sink, stopping);
        Ok(())
    }

    /// Takes handoffs in as its settings say (`transports.<mode>.intake`) until `stopping`, or until the connection
    /// fails. Acknowledged, answered or parked as `sink` decides. `Ok` where the settings name no intake.
    ///
    /// # Errors
    /// The failure; the caller pauses and calls again.
    async fn take_in(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let _ = (sink, stopping);
        Ok(())
    }
}

/// An agent's destination: what its registration says, with the sealed credentials opened and defaults filled in.
#[derive(Clone)]
pub struct Endpoint {
    pub tenant: TenantId,
    pub agent_id: AgentId,
    /// `delivery.url`, where the mode has one.
    pub url: Option<String>,
    /// `delivery.config`, checked against the description.
    pub config: Fields,
    /// `delivery.credentials`.
    pub credentials: Fields,
}

impl Endpoint {
    /// The destination of an agent's handoffs.
    ///
    /// # Errors
    /// The sealed credentials do not open.
    pub fn of(row: &AgentRow, by: &dyn Transport, vault: &Vault) -> Result<Self, VaultError> {
        let delivery = &row.agent.delivery;
        let credentials = AgentSecrets::parse(&row.secrets).delivery(
            vault,
            &row.tenant,
            &row.agent.agent_id,
            delivery.mode,
        )?;
        Ok(Self {
            tenant: row.tenant.clone(),
            agent_id: row.agent.agent_id.clone(),
            url: delivery.url.clone(),
            config: by.describe().complete(&delivery.config).into(),
            credentials: credentials.into(),
        })
    }
}

/// The secrets that sign what is sent to an agent, the current one first; `None` where one does not open.
#[must_use]
pub fn signing_secrets(row: &AgentRow, vault: &Vault, now: Micros) -> Option<Vec<WebhookSecret>> {
    let opened = AgentSecrets::parse(&row.secrets)
        .open(vault, &row.tenant, &row.agent.agent_id, SecretKind::Webhook, now)
        .ok()?;
    opened.iter().map(|text| WebhookSecret::parse(std::str::from_utf8(text).ok()?).ok()).collect()
}

/// One attempt at one handoff.
pub struct Attempt {
    pub endpoint: Endpoint,
    pub envelope: Envelope,
    /// The message in the receiver's form, as signed.
    pub body: Bytes,
    /// The same body in a content coding, where the receiver takes one and the body is large.
    pub encoded: Option<Encoded>,
    /// Bounds the whole attempt.
    pub timeout: Duration,
    /// The remaining time for the verdict; it matters to transports that answer with one.
    pub verdict: VerdictClock,
}

impl Attempt {
    /// The sent body: in its content coding, or a document that replaces it.
    #[must_use]
    pub fn sent_body(&self) -> Bytes {
        match (&self.envelope.claim_check, &self.encoded) {
            (Some(link), _) => canonical::to_vec(&json!({
                "handoffId": self.envelope.handoff_id,
                "taskId": self.envelope.task_id,
                "claimCheck": link,
                "bytes": self.body.len(),
            }))
            .into(),
            (None, Some(encoded)) => encoded.bytes.clone(),
            (None, None) => self.body.clone(),
        }
    }

    /// Whether the message with its headers is larger than a transport takes.
    pub(in crate::dispatch) fn exceeds(&self, limit: usize) -> bool {
        let headers = self.envelope.headers(&self.body);
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        self.sent_body().len() + headers > limit
    }
}

/// The outcome of an attempt.
#[derive(Debug)]
pub struct Publication {
    pub outcome: AttemptOutcome,
    /// From the start to the moment at which the receiver could have the handoff; `None`: the dispatcher takes the end
    /// of the attempt, if the outcome reached the receiver.
    pub sent: Option<Duration>,
    /// Whether the deadline of the verdict ended the attempt.
    pub overdue: bool,
    /// The receiver's answer, where one came by HTTP.
    pub answer: Option<RawAnswer>,
}

impl Publication {
    /// The transport acknowledged that it keeps the message: the verdict's time runs.
    #[must_use]
    pub const fn acknowledged() -> Self {
        Self::of(AttemptOutcome::Received)
    }

    /// The transport is away, slow or refuses everything: the handoff waits without using up its attempts.
    #[must_use]
    pub const fn away(failure: AttemptFailure) -> Self {
        Self::of(AttemptOutcome::Away(failure))
    }

    /// This message cannot be sent, or its receiver failed: the attempt counts.
    #[must_use]
    pub const fn failed(failure: AttemptFailure) -> Self {
        Self::of(AttemptOutcome::Failed(failure))
    }

    #[must_use]
    pub const fn of(outcome: AttemptOutcome) -> Self {
        Self { outcome, sent: None, overdue: false, answer: None }
    }
}

/// A message that cannot be built, and a server that the egress guard refuses, are failures; everything else is a
/// server that is away.
impl From<AttemptFailure> for Publication {
    fn from(failure: AttemptFailure) -> Self {
        match failure.class {
            FailureClass::Request | FailureClass::Egress => Self::failed(failure),
            _ => Self::away(failure),
        }
    }
}

/// The reply channel of an agent is where its handoffs go: the broker would consume its own messages.
fn not_its_own(config: &Map<String, Value>, own: &str) -> Option<FieldError> {
    let same = config.get("replyTo").is_some_and(|reply| Some(reply) == config.get(own));
    let at = "/delivery/config/replyTo".to_owned();
    same.then(|| {
        (at, format!("must be another channel than {own}, which has the agent's handoffs"))
    })
}

/// Values of a description's fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields(Map<String, Value>);

impl std::fmt::Debug for Fields {
    /// Names alone: values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(values: Map<String, Value>) -> Self {
        Self(values)
    }
}

impl Fields {
    /// A text, URL, choice or PEM document.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// The values by their keys.
    #[must_use]
    pub fn map(&self) -> &Map<String, Value> {
        &self.0
    }

    #[must_use]
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.0.get(key)?.as_i64()
    }

    /// A boolean; `false` where it is not given.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// All but the fields of these keys.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        Self(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// A text that is equal for equal values of all fields.
    #[must_use]
    pub fn whole(&self) -> Zeroizing<String> {
        Zeroizing::new(serde_json::to_string(&self.0).unwrap_or_default())
    }

    /// A text by which connections are told apart: equal for equal values of these keys.
    #[must_use]
    pub fn identity(&self, keys: &[&str]) -> Zeroizing<String> {
        let values: Vec<_> = keys.iter().map(|key| self.0.get(*key)).collect();
        Zeroizing::new(serde_json::to_string(&values).unwrap_or_default())
    }
}
