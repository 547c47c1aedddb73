//! Messages by NATS: verdicts on reply subjects, and handoffs. Brokers that share a database share the durable
//! consumers, so each message goes to one of them.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{AckKind, Message};
use async_nats::{HeaderMap, header};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::inbound::{Inbound, drain};
use super::super::servers::{SERVER, fields, named};
use super::connection::Connection;
use handoffd_broker::config;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, Disposition, FailureClass, Sink};

/// Bounds the opening of a consumer, and a publish of an answer.
pub(super) const OPENING: Duration = Duration::from_secs(10);
/// After this time without an acknowledgement the server delivers a message again; longer work holds it.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Messages that one pull asks for, and that are at work at once.
const AT_ONCE: usize = 32;
/// The server's sign of life while no message comes.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The header by which an answer names the message that it answers.
const IN_REPLY_TO: &str = "Handoff-In-Reply-To";

/// The subjects for answers and parked messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlets<'a> {
    /// Takes the problem documents of refused messages.
    pub(super) answers: Option<&'a str>,
    /// Takes messages that can never be taken.
    pub(super) parked: Option<&'a str>,
}

/// The name of the durable consumer of a subject, one for all brokers with the same `transports.nats.consumer`.
pub(super) fn durable_name(prefix: &str, subject: &str) -> String {
    format!("{prefix}-{}", &hex::encode(Sha256::digest(subject))[..16])
}

impl Connection {
    /// Consumes a subject until `stopping`, or until the connection fails.
    pub(super) async fn consume(
        &self,
        subject: &str,
        durable: &str,
        outlets: Outlets<'_>,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        for outlet in [outlets.answers, outlets.parked].into_iter().flatten() {
            self.stream_of(outlet).await?;
        }
        let stream = self.stream_of(subject).await?;
        let config = pull::Config {
            durable_name: Some(durable.to_owned()),
            description: Some("handoffd".to_owned()),
            filter_subject: subject.to_owned(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            ..pull::Config::default()
        };
        let stream =
            self.jetstream.get_stream_no_info(&stream).await.map_err(|error| broke(&error))?;
        let consumer =
            stream.get_or_create_consumer(durable, config).await.map_err(|error| broke(&error))?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(AT_ONCE)
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| broke(&error))?;
        let received = messages.map(|message| match message {
            Ok(message) => Ok(Received { message, outlets, by: self }),
            Err(error) => Err(broke(&error)),
        });
        drain(received, sink, stopping, AT_ONCE).await?;
        // A connection that is not restored ends the messages.
        if stopping.is_cancelled() {
            return Ok(());
        }
        let why = "the consumer's connection was closed".to_owned();
        Err(AttemptFailure::unreached(FailureClass::Connect, why).at(SERVER))
    }

    /// The stream that keeps a subject.
    async fn stream_of(&self, subject: &str) -> Result<String, AttemptFailure> {
        use async_nats::jetstream::context::GetStreamByNameErrorKind as Kind;
        self.jetstream.stream_by_subject(subject).await.map_err(|error| match error.kind() {
            Kind::NotFound => {
                let why = format!("no stream keeps the subject {subject}");
                AttemptFailure::unreached(FailureClass::Missing, why)
            }
            _ => broke(&error),
        })
    }
}

fn broke(error: &(dyn std::error::Error + 'static)) -> AttemptFailure {
    let why = format!("the consumer's connection: {error}");
    AttemptFailure::unreached(FailureClass::Connect, why).at(SERVER)
}

/// A message of a stream.
struct Received<'a> {
    message: Message,
    outlets: Outlets<'a>,
    by: &'a Connection,
}

#[async_trait]
impl Inbound for Received<'_> {
    fn body(&self) -> Bytes {
        self.message.payload.clone()
    }

    async fn settle(self, disposition: Disposition) -> Result<(), AttemptFailure> {
        match disposition {
            Disposition::Refused(problem) => {
                if let Some(subject) = self.outlets.answers {
                    let mut headers = HeaderMap::new();
                    headers.insert(header::NATS_MESSAGE_ID, self.id("answer"));
                    headers.insert("Content-Type", "application/problem+json");
                    if let Some(id) = self.sender_id() {
                        headers.insert(IN_REPLY_TO, id);
                    }
                    self.publish(subject, headers, problem).await?;
                }
            }
            Disposition::Park(reason) => {
                if let Some(subject) = self.outlets.parked {
                    let mut headers = self.senders_headers();
                    headers.insert(header::NATS_MESSAGE_ID, self.id("parked"));
                    headers.insert("Handoff-Parked-Reason", reason.replace(['\r', '\n'], " "));
                    self.publish(subject, headers, self.message.payload.clone()).await?;
                }
            }
            Disposition::Done | Disposition::Later(_) => {}
        }
        self.message.ack().await.map_err(|error| broke(&*error))
    }

    async fn hold(&self) {
        // A server that does not hear it delivers the message again, which changes nothing.
        let _ = self.message.ack_with(AckKind::Progress).await;
    }
}

impl Received<'_> {
    /// The sender's headers, without those that tell a server what to do with a message: they were meant for the first stream.
    fn senders_headers(&self) -> HeaderMap {
        let mut kept = HeaderMap::new();
        for (name, values) in self.message.headers.iter().flat_map(HeaderMap::iter) {
            let text: &str = name.as_ref();
            let told = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"));
            for value in values.iter().filter(|_| !told) {
                kept.append(name.clone(), value.clone());
            }
        }
        kept
    }

    /// An id by which the server drops repeated answers to this message.
    fn id(&self, what: &str) -> String {
        match self.message.info() {
            Ok(info) => format!("{}.{}.{what}", info.stream, info.stream_sequence),
            Err(_) => format!("{}.{what}", hex::encode(Sha256::digest(&self.message.payload))),
        }
    }

    /// The id that the sender gave the message.
    fn sender_id(&self) -> Option<String> {
        let headers = self.message.headers.as_ref()?;
        Some(headers.get(header::NATS_MESSAGE_ID)?.as_str().to_owned())
    }

    async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), AttemptFailure> {
        let until = Instant::now() + OPENING;
        let sent = self.by.publish(subject.to_owned(), headers, payload, until).await;
        sent.map(drop)
    }
}

/// Takes handoffs in, as `[transports.nats.intake]` says.
pub(super) async fn take_in(
    policy: &EgressPolicy,
    settings: &config::NatsTransport,
    sink: &dyn Sink,
    stopping: &CancellationToken,
) -> Result<(), AttemptFailure> {
    let intake = &settings.intake;
    if intake.server.is_empty() {
        return Ok(());
    }
    let config = fields(
        &[("server", intake.server.as_str())],
        &[("caCertificate", intake.ca_certificate_file.as_str())],
    )?;
    let credentials = fields(
        &[
            ("username", intake.username.as_str()),
            ("password", intake.password.as_str()),
            ("token", intake.token.as_str()),
            ("nkeySeed", intake.nkey_seed.as_str()),
        ],
        &[
            ("userCredentials", intake.credentials_file.as_str()),
            ("clientCertificate", intake.client_certificate_file.as_str()),
            ("clientKey", intake.client_key_file.as_str()),
        ],
    )?;
    let connection = Connection::dial(policy, &config, &credentials).await?;
    let outlets = Outlets { answers: named(&intake.answers), parked: named(&intake.parked) };
    let durable = durable_name(&settings.consumer, &intake.subject);
    connection.consume(&intake.subject, &durable, outlets, sink, stopping).await
}
