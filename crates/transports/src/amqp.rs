//! Delivery by AMQP 0-9-1 (RabbitMQ): a persistent, mandatory publish that the server confirms.
//!
//! A confirmation is the only success: a message that the server returns because no queue is bound is a failed attempt.
//! Each attempt has a channel of its own while it runs, because a server closes a channel with its first error, and
//! with it every publish that waits there.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::servers::{self, SERVER, Scheme};
use crate::connections::Connections;
use crate::descriptions::amqp::DESCRIPTION;
use crate::descriptions::fields::not_its_own;
use connection::Connection;
use handoffd_broker::config;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{
    Attempt, AttemptFailure, ConnectionKey, Endpoint, Envelope, FailureClass, Publication, Sink,
    Transport,
};
use handoffd_domain::transport::{FieldError, TransportDescription};

mod connection;
mod consume;

const SCHEMES: &[Scheme] = &[
    Scheme { name: "amqp", port: 5672, tls: false },
    Scheme { name: "amqps", port: 5671, tls: true },
];

/// Longest name of the protocol, in bytes.
const MAX_NAME: usize = 255;

const ROUTING_KEY: &str = "/delivery/config/routingKey";

/// Publishes to AMQP servers. Agents with the same servers and credentials share a connection for publishing, and one
/// for reply queues: a server that is short of memory stops reading from connections that publish.
pub struct AmqpTransport {
    policy: EgressPolicy,
    settings: config::AmqpTransport,
    publishing: Connections<Arc<Connection>>,
    listening: Connections<Arc<Connection>>,
}

impl AmqpTransport {
    #[must_use]
    pub fn new(policy: EgressPolicy, settings: config::AmqpTransport) -> Self {
        let (publishing, listening) = (Connections::default(), Connections::default());
        Self { policy, settings, publishing, listening }
    }

    async fn send(&self, attempt: Attempt) -> Result<(), AttemptFailure> {
        let until = Instant::now() + attempt.timeout;
        let payload = attempt.sent_body();
        let Attempt { endpoint, envelope, body, .. } = attempt;
        let template = endpoint.config.text("routingKey").unwrap_or_default();
        let routing_key = template
            .replace("{agentId}", endpoint.agent_id.as_str())
            .replace("{taskId}", &envelope.task_id.to_string());
        let exchange = endpoint.config.text("exchange").unwrap_or_default();
        let properties = properties(&envelope, &body);
        let connection = self.connection(&self.publishing, &endpoint, until).await?;
        if let Some(queue) = endpoint.config.text("replyTo") {
            connection.ensure_queue(queue, until).await?;
        }
        let sent = connection.publish(exchange, &routing_key, properties, &payload, until).await;
        if sent.as_ref().is_err_and(|failure| failure.class == FailureClass::Timeout) {
            // The server is slow, or the connection is dead without notice: the next attempt dials again.
            self.publishing.forget(key(&endpoint));
        }
        sent
    }

    /// The connection of an endpoint in one of the two sets.
    async fn connection(
        &self,
        connections: &Connections<Arc<Connection>>,
        endpoint: &Endpoint,
        until: Instant,
    ) -> Result<Arc<Connection>, AttemptFailure> {
        let open = async {
            let connection = self.open(connections, endpoint).await?;
            if connection.usable() {
                return Ok(connection);
            }
            connections.forget(key(endpoint));
            self.open(connections, endpoint).await
        };
        timeout_at(until, open).await.unwrap_or_else(|_| {
            let why = "no connection to the server in time";
            Err(AttemptFailure::unreached(FailureClass::Timeout, why).at(SERVER))
        })
    }

    /// The shared connection, which may have ended, or a new one.
    async fn open(
        &self,
        connections: &Connections<Arc<Connection>>,
        endpoint: &Endpoint,
    ) -> Result<Arc<Connection>, AttemptFailure> {
        let dial = || {
            let Endpoint { config, credentials, .. } = endpoint.clone();
            let policy = self.policy.clone();
            async move { Connection::dial(&policy, &config, &credentials).await }
        };
        let (connection, _) = connections.get(key(endpoint), dial).await?;
        Ok(connection)
    }
}

#[async_trait]
impl Transport for AmqpTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(list) = config.get("server").and_then(Value::as_str) {
            match servers::parse(list, SCHEMES) {
                Err(why) => errors.push((SERVER.to_owned(), why)),
                Ok(servers) => errors.extend(check_credentials(set, servers[0].tls)),
            }
        }
        if config.get("exchange").and_then(Value::as_str).is_none_or(str::is_empty) {
            errors.extend(not_its_own(config, "routingKey"));
        }
        for key in ["vhost", "exchange", "routingKey", "replyTo"] {
            let text = config.get(key).and_then(Value::as_str).unwrap_or_default();
            if text.len() > MAX_NAME {
                let why = format!("must be at most {MAX_NAME} bytes long");
                errors.push((format!("/delivery/config/{key}"), why));
            }
        }
        errors
    }

    fn check_certificates(
        &self,
        config: &Map<String, Value>,
        given: Option<&Map<String, Value>>,
    ) -> Option<FieldError> {
        servers::unusable_certificate(config, given)
    }

    async fn publish(&self, attempt: Attempt) -> Publication {
        match self.send(attempt).await {
            Ok(()) => Publication::acknowledged(),
            Err(failure) => failure.into(),
        }
    }

    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        self.send(attempt).await?;
        Ok("the server confirmed the test, and a queue has it".to_owned())
    }

    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        endpoint.config.text("replyTo").map(str::to_owned)
    }

    fn own_fields(&self) -> &'static [&'static str] {
        &["exchange", "routingKey"]
    }

    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let until = Instant::now() + consume::OPENING;
        let connection = self.connection(&self.listening, endpoint, until).await?;
        connection.consume(channel, consume::Outlets::default(), sink, stopping).await
    }

    async fn take_in(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        consume::take_in(&self.policy, &self.settings, sink, stopping).await
    }
}

/// The key by which agents share a connection.
fn key(endpoint: &Endpoint) -> ConnectionKey {
    let credentials: Vec<&str> =
        DESCRIPTION.credential_fields.iter().map(|field| field.key).collect();
    ConnectionKey::of(&[
        &endpoint.config.identity(&["server", "vhost", "caCertificate"]),
        &endpoint.credentials.identity(&credentials),
    ])
}

fn check_credentials(set: &[String], tls: bool) -> Vec<FieldError> {
    let has = |key: &str| set.iter().any(|name| name == key);
    let at = |key: &str, why: String| (format!("/delivery/credentials/{key}"), why);
    let mut errors = Vec::new();
    for (one, other) in [("username", "password"), ("clientCertificate", "clientKey")] {
        for (given, missing) in [(one, other), (other, one)] {
            if has(given) && !has(missing) {
                errors.push(at(missing, format!("is required beside {given}")));
            }
        }
    }
    if has("clientCertificate") && !tls {
        let why = "is shown over TLS alone: use amqps:// in delivery.config.server";
        errors.push(at("clientCertificate", why.to_owned()));
    }
    if !has("username") && !has("clientCertificate") && errors.is_empty() {
        let why = "is required, with a password: an AMQP server admits no client without a user";
        errors.push(at("username", why.to_owned()));
    }
    errors
}

/// The envelope as AMQP's own properties, and as headers.
fn properties(envelope: &Envelope, body: &[u8]) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in envelope.headers(body) {
        headers.insert(name.into(), AMQPValue::LongString(LongString::from(&*value)));
    }
    let mut properties = BasicProperties::default()
        // Persistent.
        .with_delivery_mode(2)
        .with_app_id("handoffd".into())
        .with_type("handoff".into())
        .with_content_type("application/json".into())
        .with_message_id(ShortString::from(envelope.deduplication_id()))
        .with_correlation_id(ShortString::from(envelope.handoff_id.to_string()))
        .with_timestamp(u64::try_from(envelope.timestamp_s).unwrap_or(0))
        .with_headers(headers);
    if let Some(coding) = envelope.coding {
        properties = properties.with_content_encoding(coding.into());
    }
    if let Some(queue) =
        envelope.reply_to.as_deref().and_then(|name| ShortString::try_new(name).ok())
    {
        properties = properties.with_reply_to(queue);
    }
    properties
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(config: Value, set: &[&str]) -> Vec<String> {
        let Value::Object(config) = config else { panic!("no object") };
        let set: Vec<String> = set.iter().map(|&name| name.to_owned()).collect();
        let by = AmqpTransport::new(EgressPolicy::default(), config::AmqpTransport::default());
        let mut errors = by.describe().check_config(&config).err().unwrap_or_default();
        errors.extend(by.check(&config, &set));
        errors.into_iter().map(|(at, why)| format!("{at} {why}")).collect()
    }

    #[test]
    fn a_whole_configuration_passes() {
        let user = &["username", "password"][..];
        let plain = json!({"server": "amqp://a:5672", "routingKey": "handoffs.{agentId}"});
        assert_eq!(errors(plain, user), [""; 0]);
        let tls = json!({
            "server": "amqps://a,amqps://b", "vhost": "bank", "exchange": "handoffs",
            "routingKey": "legal", "replyTo": "verdicts.legal",
        });
        assert_eq!(errors(tls.clone(), user), [""; 0]);
        assert_eq!(errors(tls, &["clientCertificate", "clientKey"]), [""; 0]);
    }

    #[test]
    fn each_mistake_is_named() {
        let config = |key: &str, value: &str| {
            let mut config = json!({"server": "amqp://a", "routingKey": "q"});
            config[key] = value.into();
            config
        };
        let user = &["username", "password"][..];
        for (config, set, wanted) in [
            (config("server", "nats://a"), user, "/delivery/config/server must begin with amqp://"),
            (config("server", "amqp://u:p@a"), user, "those are credentials"),
            (
                config("exchange", &"x".repeat(256)),
                user,
                "/delivery/config/exchange must be at most 255 bytes",
            ),
            (config("replyTo", "q"), user, "another channel than routingKey"),
            (config("routingKey", "q"), &[], "/delivery/credentials/username is required"),
            (
                config("routingKey", "q"),
                &["password"],
                "/delivery/credentials/username is required",
            ),
            (
                config("routingKey", "q"),
                &["clientCertificate", "clientKey"],
                "/delivery/credentials/clientCertificate is shown over TLS alone",
            ),
        ] {
            let errors = errors(config, set);
            assert!(errors.len() == 1 && errors[0].contains(wanted), "{wanted}: {errors:?}");
        }
    }
}
