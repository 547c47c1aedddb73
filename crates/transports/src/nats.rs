//! Delivery by NATS JetStream: a publish that a stream acknowledges.
//!
//! An acknowledgement of the stream is the only success; a subject that no stream keeps is a failed attempt, although
//! plain NATS would take the message. `Nats-Msg-Id` lets the stream drop a repeat of one attempt.

use std::sync::Arc;

use async_nats::HeaderMap;
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::servers::{self, SERVER, Scheme};
use crate::connections::Connections;
use crate::descriptions::fields::not_its_own;
use crate::descriptions::nats::DESCRIPTION;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{
    Attempt, AttemptFailure, ConnectionKey, Endpoint, FailureClass, Publication, Sink, Transport,
};

use connection::{Connection, Stored};
use handoffd_broker::config;
use handoffd_domain::transport::{FieldError, TransportDescription};

mod connection;
mod consume;

const SCHEMES: &[Scheme] = &[
    Scheme { name: "nats", port: 4222, tls: false },
    Scheme { name: "tls", port: 4222, tls: true },
];

const SUBJECT: &str = "/delivery/config/subject";

/// Publishes to JetStream. Agents with the same servers and credentials share a connection.
pub struct NatsTransport {
    policy: EgressPolicy,
    settings: config::NatsTransport,
    connections: Connections<Arc<Connection>>,
}

impl NatsTransport {
    #[must_use]
    pub fn new(policy: EgressPolicy, settings: config::NatsTransport) -> Self {
        Self { policy, settings, connections: Connections::default() }
    }

    /// Publishes an attempt, and says how the server keeps it.
    async fn send(&self, attempt: Attempt) -> Result<Stored, AttemptFailure> {
        let until = Instant::now() + attempt.timeout;
        let payload = attempt.sent_body();
        let Attempt { endpoint, envelope, body, .. } = attempt;
        let subject = fill(
            endpoint.config.text("subject").unwrap_or_default(),
            endpoint.agent_id.as_str(),
            &envelope.task_id.to_string(),
        );
        let mut headers = HeaderMap::new();
        for (name, value) in envelope.headers(&body) {
            headers.insert(name, &*value);
        }
        headers.insert(async_nats::header::NATS_MESSAGE_ID, envelope.deduplication_id());
        if let Some(stream) = endpoint.config.text("stream") {
            headers.insert(async_nats::header::NATS_EXPECTED_STREAM, stream);
        }
        let connection = self.connection(&endpoint, until).await?;
        let sent = connection.publish(subject, headers, payload, until).await;
        if sent.as_ref().is_err_and(|failure| failure.class == FailureClass::Timeout) {
            // The server is slow, or the connection is dead without notice: the next attempt dials again.
            self.connections.forget(key(&endpoint));
        }
        sent
    }

    async fn connection(
        &self,
        endpoint: &Endpoint,
        until: Instant,
    ) -> Result<Arc<Connection>, AttemptFailure> {
        let open = async {
            let connection = self.open(endpoint).await?;
            if connection.usable() {
                return Ok(connection);
            }
            self.connections.forget(key(endpoint));
            self.open(endpoint).await
        };
        timeout_at(until, open).await.unwrap_or_else(|_| {
            let why = "no connection to the server in time";
            Err(AttemptFailure::unreached(FailureClass::Timeout, why).at(SERVER))
        })
    }

    /// The shared connection, which may have ended, or a new one.
    async fn open(&self, endpoint: &Endpoint) -> Result<Arc<Connection>, AttemptFailure> {
        let dial = || {
            let Endpoint { config, credentials, .. } = endpoint.clone();
            let policy = self.policy.clone();
            async move { Connection::dial(&policy, &config, &credentials).await }
        };
        let (connection, _) = self.connections.get(key(endpoint), dial).await?;
        Ok(connection)
    }
}

#[async_trait]
impl Transport for NatsTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        if let Some(list) = text("server")
            && let Err(why) = servers::parse(list, SCHEMES)
        {
            errors.push((SERVER.to_owned(), why));
        }
        if let Some(template) = text("subject")
            && let Some(unknown) = unknown_placeholder(template)
        {
            let why = format!(
                "must use no placeholder but {{agentId}} and {{taskId}}; {unknown} is none"
            );
            errors.push((SUBJECT.to_owned(), why));
        }
        errors.extend(not_its_own(config, "subject"));
        errors.extend(check_credentials(set));
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
            Ok(_) => Publication::acknowledged(),
            Err(failure) => failure.into(),
        }
    }

    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        let Stored { stream, sequence } = self.send(attempt).await?;
        Ok(format!("the stream {stream} keeps the test as its message {sequence}"))
    }

    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        endpoint.config.text("replyTo").map(str::to_owned)
    }

    fn own_fields(&self) -> &'static [&'static str] {
        &["subject", "stream"]
    }

    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let until = Instant::now() + consume::OPENING;
        let connection = self.connection(endpoint, until).await?;
        let durable = consume::durable_name(&self.settings.consumer, channel);
        connection.consume(channel, &durable, consume::Outlets::default(), sink, stopping).await
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
        &endpoint.config.identity(&["server", "caCertificate"]),
        &endpoint.credentials.identity(&credentials),
    ])
}

/// Exactly one way to log in, and whole.
fn check_credentials(set: &[String]) -> Vec<FieldError> {
    let has = |key: &str| set.iter().any(|name| name == key);
    let at = |key: &str, why: &str| (format!("/delivery/credentials/{key}"), why.to_owned());
    let mut errors = Vec::new();
    for (one, other) in [("username", "password"), ("clientCertificate", "clientKey")] {
        for (given, missing) in [(one, other), (other, one)] {
            if has(given) && !has(missing) {
                errors.push(at(missing, &format!("is required beside {given}")));
            }
        }
    }
    let ways: Vec<&str> = ["username", "token", "nkeySeed", "userCredentials"]
        .into_iter()
        .filter(|way| has(way))
        .collect();
    if let [first, second, ..] = ways[..] {
        errors
            .push(at(second, &format!("is another way to log in than {first}; give one of them")));
    }
    errors
}

/// The first placeholder of a template that has no value.
fn unknown_placeholder(template: &str) -> Option<&str> {
    let mut rest = template;
    while let Some(open) = rest.find(['{', '}']) {
        let tail = &rest[open..];
        let known = ["{agentId}", "{taskId}"].into_iter().find(|known| tail.starts_with(known));
        match known {
            Some(known) => rest = &tail[known.len()..],
            None => return Some(&tail[..tail.find('}').map_or(tail.len(), |close| close + 1)]),
        }
    }
    None
}

/// A subject of a template. Agent ids may hold dots, which would begin another token of the subject.
fn fill(template: &str, agent_id: &str, task_id: &str) -> String {
    template.replace("{agentId}", &agent_id.replace('.', "_")).replace("{taskId}", task_id)
}

#[cfg(test)]
mod tests {
    use handoffd_domain::transport::Credentials;
    use serde_json::json;

    use super::*;

    fn transport() -> NatsTransport {
        NatsTransport::new(EgressPolicy::default(), config::NatsTransport::default())
    }

    fn errors(config: Value, set: &[&str]) -> Vec<String> {
        let Value::Object(config) = config else { panic!("no object") };
        let set: Vec<String> = set.iter().map(|&name| name.to_owned()).collect();
        let by = transport();
        let mut errors = by.describe().check_config(&config).err().unwrap_or_default();
        errors.extend(by.check(&config, &set));
        errors.into_iter().map(|(at, why)| format!("{at} {why}")).collect()
    }

    #[test]
    fn subjects_are_filled_token_by_token() {
        assert_eq!(fill("h.{agentId}.{taskId}", "a.b@c", "t"), "h.a_b@c.t");
        assert_eq!(unknown_placeholder("h.{agentId}.{taskId}"), None);
        assert_eq!(unknown_placeholder("h.{agent}.x"), Some("{agent}"));
        assert_eq!(unknown_placeholder("h.{agentId"), Some("{agentId"));
        assert_eq!(unknown_placeholder("h.}"), Some("}"));
    }

    #[test]
    fn a_whole_configuration_passes() {
        let config = json!({
            "server": "tls://a:4222,tls://b", "subject": "handoffs.{agentId}", "stream": "HANDOFFS",
            "replyTo": "verdicts.legal",
        });
        for set in [&[][..], &["username", "password"], &["token"], &["nkeySeed"]] {
            assert_eq!(errors(config.clone(), set), [""; 0], "{set:?}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let config = |key: &str, value: &str| {
            let mut config = json!({"server": "nats://a", "subject": "h"});
            config[key] = value.into();
            config
        };
        for (config, set, wanted) in [
            (config("server", "a:4222"), &[][..], "/delivery/config/server must begin with"),
            (config("subject", "a b"), &[], "/delivery/config/subject must match"),
            (config("subject", "a.*"), &[], "/delivery/config/subject must match"),
            (config("subject", "a..b"), &[], "/delivery/config/subject must match"),
            (config("subject", "h.{tenant}"), &[], "{tenant} is none"),
            (config("replyTo", "h"), &[], "another channel than subject"),
            (config("replyTo", "v.>"), &[], "/delivery/config/replyTo must match"),
            (config("subject", "h"), &["username"], "/delivery/credentials/password is required"),
            (config("subject", "h"), &["clientKey"], "/delivery/credentials/clientCertificate"),
            (
                config("subject", "h"),
                &["token", "nkeySeed"],
                "nkeySeed is another way to log in than token",
            ),
        ] {
            let errors = errors(config, set);
            assert!(errors.len() == 1 && errors[0].contains(wanted), "{wanted}: {errors:?}");
        }
    }

    #[test]
    fn credentials_have_their_forms() {
        let check = |key: &str, value: &str| {
            let given = Credentials(json!({ key: value }).as_object().cloned().unwrap());
            DESCRIPTION.check_credentials(Some(&given.0), &[])
        };
        let seed = nkeys_seed();
        assert_eq!(check("nkeySeed", &seed), Ok(()));
        assert!(check("nkeySeed", &seed.replacen('U', "A", 1)).is_err());
        assert!(check("userCredentials", "no creds file").is_err());
        assert_eq!(check("userCredentials", "-----BEGIN NATS USER JWT-----\n…"), Ok(()));
    }

    /// The form of a user's seed.
    fn nkeys_seed() -> String {
        format!("SU{}", "A".repeat(56))
    }
}
