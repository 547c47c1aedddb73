//! Messages by AMQP: verdicts on reply queues, and handoffs. Brokers that share a database consume the same queue,
//! so each message goes to one of them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::super::inbound::{Inbound, drain};
use super::super::servers::{SERVER, fields, named};
use super::connection::{Connection, REPLY_TO, short};
use handoffd_broker::config;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, Disposition, FailureClass, Sink};

/// Bounds the opening of a consumer, and a publish of an answer.
pub(super) const OPENING: Duration = Duration::from_secs(10);
/// Messages that the server sends ahead of their acknowledgement, and that are at work at once.
const AT_ONCE: u16 = 32;

/// The queues for answers and parked messages.
#[derive(Clone, Copy, Default)]
pub(super) struct Outlets<'a> {
    /// The queue of the problem documents of refused messages. A message's own `reply-to` is not followed: its sender
    /// would publish with the broker's rights.
    pub(super) answers: Option<&'a str>,
    /// The connection that answers and parked messages are published by.
    pub(super) by: Option<&'a Connection>,
    /// The queue of messages that can never be taken.
    pub(super) parked: Option<&'a str>,
}

impl Connection {
    /// Consumes a queue until `stopping`, or until the connection fails. Declares the queue where it does not exist.
    pub(super) async fn consume(
        &self,
        queue: &str,
        outlets: Outlets<'_>,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let (until, name) = (Instant::now() + OPENING, short(queue, REPLY_TO)?);
        // The consumer before this one may have ended because the queue was deleted.
        self.doubt(queue);
        self.ensure_queue(queue, until).await?;
        let opening = async {
            let channel = self.inner.create_channel().await?;
            channel.basic_qos(AT_ONCE, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            let consumer =
                channel.basic_consume(name, "".into(), options, FieldTable::default()).await?;
            lapin::Result::Ok((channel, consumer))
        };
        let (channel, consumer) = if let Ok(opened) = timeout_at(until, opening).await {
            opened.map_err(|error| broke(&error))?
        } else {
            let why = "the server did not open a consumer in time";
            return Err(AttemptFailure::unreached(FailureClass::Timeout, why).at(SERVER));
        };
        let received = consumer.map(|delivery| match delivery {
            Ok(delivery) => Ok(Received { delivery, outlets }),
            Err(error) => Err(broke(&error)),
        });
        let outcome = drain(received, sink, stopping, AT_ONCE.into()).await;
        // An unacknowledged message goes back to the queue.
        let _ = channel.close(200, "".into()).await;
        if outcome.is_ok() && !stopping.is_cancelled() {
            let why = "the server ended the consumer";
            return Err(AttemptFailure::unreached(FailureClass::Connect, why).at(SERVER));
        }
        outcome
    }
}

fn broke(error: &lapin::Error) -> AttemptFailure {
    let why = format!("the consumer's connection: {error}");
    AttemptFailure::unreached(FailureClass::Connect, why).at(SERVER)
}

/// A message of a queue.
struct Received<'a> {
    delivery: Delivery,
    outlets: Outlets<'a>,
}

#[async_trait]
impl Inbound for Received<'_> {
    fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&self.delivery.data)
    }

    async fn settle(self, disposition: Disposition) -> Result<(), AttemptFailure> {
        match disposition {
            Disposition::Refused(problem) => self.answer(&problem).await?,
            Disposition::Park(reason) => self.park(&reason).await?,
            Disposition::Done | Disposition::Later(_) => {}
        }
        let acknowledged = self.delivery.acker.ack(BasicAckOptions::default()).await;
        acknowledged.map(drop).map_err(|error| broke(&error))
    }
}

impl Received<'_> {
    /// Properties that tell which message this one is about.
    fn about(&self, kind: &str, content_type: &str) -> BasicProperties {
        let sent = &self.delivery.properties;
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_app_id("handoffd".into())
            .with_type(kind.into())
            .with_content_type(content_type.into());
        match sent.correlation_id().as_ref().or(sent.message_id().as_ref()) {
            Some(id) => properties.with_correlation_id(id.clone()),
            None => properties,
        }
    }

    async fn answer(&self, problem: &[u8]) -> Result<(), AttemptFailure> {
        let Some(queue) = self.outlets.answers else { return Ok(()) };
        let properties = self.about("refusal", "application/problem+json");
        self.publish(queue, properties, problem).await
    }

    async fn park(&self, reason: &str) -> Result<(), AttemptFailure> {
        let Some(queue) = self.outlets.parked else { return Ok(()) };
        // `CC` and `BCC` route a message to further queues, with the rights of its publisher; `x-` headers are the server's.
        let sent = self.delivery.properties.headers().clone().unwrap_or_default();
        let mut headers = FieldTable::default();
        for (name, value) in sent.inner() {
            let upper = name.as_str().to_ascii_uppercase();
            if upper != "CC" && upper != "BCC" && !upper.starts_with("X-") {
                headers.insert(name.clone(), value.clone());
            }
        }
        let reason = AMQPValue::LongString(LongString::from(reason));
        headers.insert(ShortString::from("Handoff-Parked-Reason"), reason);
        let properties = self.about("parked", "application/octet-stream").with_headers(headers);
        self.publish(queue, properties, &self.delivery.data).await
    }

    async fn publish(
        &self,
        queue: &str,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), AttemptFailure> {
        let Some(by) = self.outlets.by else { return Ok(()) };
        let until = Instant::now() + OPENING;
        by.ensure_queue(queue, until).await?;
        by.publish("", queue, properties, body, until).await
    }
}

/// Takes handoffs in, as `[transports.amqp.intake]` says.
pub(super) async fn take_in(
    policy: &EgressPolicy,
    settings: &config::AmqpTransport,
    sink: &dyn Sink,
    stopping: &CancellationToken,
) -> Result<(), AttemptFailure> {
    let intake = &settings.intake;
    if intake.server.is_empty() {
        return Ok(());
    }
    let config = fields(
        &[("server", intake.server.as_str()), ("vhost", intake.vhost.as_str())],
        &[("caCertificate", intake.ca_certificate_file.as_str())],
    )?;
    let credentials = fields(
        &[("username", intake.username.as_str()), ("password", intake.password.as_str())],
        &[
            ("clientCertificate", intake.client_certificate_file.as_str()),
            ("clientKey", intake.client_key_file.as_str()),
        ],
    )?;
    let consuming = Connection::dial(policy, &config, &credentials).await?;
    let publishing = Connection::dial(policy, &config, &credentials).await?;
    let (answers, parked) = (named(&intake.answers), named(&intake.parked));
    let outlets = Outlets { answers, by: Some(&publishing), parked };
    consuming.consume(&intake.queue, outlets, sink, stopping).await
}
