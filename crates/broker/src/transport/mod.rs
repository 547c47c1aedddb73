//! The contract between the broker and a transport, the way by which an attempt leaves the broker.
//!
//! A transport publishes one attempt ([`Transport::publish`]), describes and tests itself, and where it can, hears
//! verdicts and takes handoffs in. Everything else (slots, order per task, circuit breaker, retries, retry budget,
//! metrics, alerts) is the dispatcher's and the same for all. This room has all that a transport needs: the attempt with
//! its [`Envelope`], the outcomes, the answer table of HTTP ([`answer`]), the sinks for messages that come in. The
//! egress guard is [`crate::egress`]. The transports are handed in by the composition root: this crate has the
//! webhook's, because events, callbacks and streams go by the same client, and none of a queue.
//!
//! A transport promises:
//!
//! 1. It ends an attempt within its timeout, and dropping the future abandons the attempt.
//! 2. `reached` of a failure is `false` only where no byte of the message can have left: a handoff that is not
//!    idempotent is sent again only then.
//! 3. [`AttemptOutcome::Received`] means that the server keeps the message. A server that is away, slow or full is
//!    [`AttemptOutcome::Away`], which uses up no attempt; a message that cannot be sent is [`AttemptOutcome::Failed`].
//! 4. It connects only to addresses that the egress guard permits.
//! 5. A failure's `detail` has no part of a body, no secret and no URL. `field` names the setting to change.
//! 6. It acknowledges what comes in after the [`Sink`] has decided, and leaves unacknowledged what the sink cannot take
//!    now.
//! 7. It decides nothing about a handoff: it knows no ledger, and reads no state but what the attempt brings.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::vault::{AgentSecrets, SecretKind, Vault, VaultError};
use handoffd_domain::canonical;
use handoffd_domain::content_coding::Coding;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::transport::{FieldError, TransportDescription};
use handoffd_store::store::AgentRow;
use standard_webhooks::WebhookSecret;

pub mod answer;
pub mod catalog;
pub mod envelope;
mod fields;
mod inbound;
pub mod standard_webhooks;

pub use answer::{AnswerFields, AttemptFailure, AttemptOutcome, FailureClass, RawAnswer};
pub use catalog::{DeliveryTest, DeliveryTypes, Transports};
pub use envelope::Envelope;
pub use fields::{ConnectionKey, Fields};
pub use inbound::{Disposition, Sink, UnfinishedHandoff};

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

    /// The first certificate or key of a registration that no connection could use, once the other rules hold. `given` has
    /// the credentials that the registration states.
    fn check_certificates(
        &self,
        config: &Map<String, Value>,
        given: Option<&Map<String, Value>>,
    ) -> Option<FieldError> {
        let _ = (config, given);
        None
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
    #[must_use]
    pub fn exceeds(&self, limit: usize) -> bool {
        let headers = self.envelope.headers(&self.body);
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        self.sent_body().len() + headers > limit
    }
}

/// The receiver's time for its verdict, as seen by one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictClock {
    /// An earlier attempt reached the receiver: this time is left.
    Running(Duration),
    /// The time starts with the first byte of this request that leaves.
    FromFirstByte(Duration),
    /// A person decides, under a separate deadline.
    Stopped,
}

/// A body in a content coding.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub coding: Coding,
    pub bytes: Bytes,
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
