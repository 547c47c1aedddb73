//! Delivery by Redis Streams: XADD to the agent's stream. The server's reply to XADD is the acknowledgement; how much
//! it is worth after a crash of the server depends on the server's persistence (docs/transports/redis.md).

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, RedisError};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::servers;
use crate::connections::Connections;
use crate::descriptions::fields::not_its_own;
use crate::descriptions::redis::DESCRIPTION;
use handoffd_broker::config;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{
    Attempt, AttemptFailure, Endpoint, FailureClass, Publication, Sink, Transport,
};
use handoffd_domain::transport::{FieldError, TransportDescription};

mod bounded;
mod consumer;
mod server;

pub use consumer::RedisIntake;
use server::{Server, failure_of};

/// Member of an entry that holds the message.
pub const BODY: &str = "body";

/// A connection without use for longer than this is asked for a sign of life before a message goes out on it: whether a
/// message reached a server that has gone would be unknown.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Largest reply to what is sent while attempts are made: ids and errors.
const LARGEST_REPLY: usize = 1 << 20;

/// Appends attempts to streams.
pub struct RedisTransport {
    policy: EgressPolicy,
    connections: Connections<MultiplexedConnection>,
    intake: Option<RedisIntake>,
}

impl RedisTransport {
    #[must_use]
    pub fn new(policy: EgressPolicy, intake: Option<RedisIntake>) -> Self {
        Self { policy, connections: Connections::default(), intake }
    }

    /// A transport with the intake that the settings name.
    ///
    /// # Errors
    /// A file of the settings cannot be read.
    pub fn of(policy: EgressPolicy, settings: &config::RedisTransport) -> Result<Self, String> {
        Ok(Self::new(policy, RedisIntake::of(&settings.intake)?))
    }

    /// An open connection, fresh or found to be alive.
    async fn connection(
        &self,
        server: &Server,
        deadline: Instant,
    ) -> Result<MultiplexedConnection, AttemptFailure> {
        let connect = || {
            let (server, policy) = (server.clone(), self.policy.clone());
            async move { server.connect(&policy, deadline, LARGEST_REPLY).await }
        };
        let (mut connection, idle) = self.connections.get(server.key(), connect).await?;
        if idle < PING_AFTER {
            return Ok(connection);
        }
        let ping = ::redis::cmd("PING");
        let alive = timeout_at(deadline, ping.query_async::<()>(&mut connection)).await;
        if matches!(alive, Ok(Ok(()))) {
            return Ok(connection);
        }
        self.connections.forget(server.key());
        Ok(self.connections.get(server.key(), connect).await?.0)
    }

    /// Runs a command whose effect is unknown where no reply comes.
    async fn run(&self, endpoint: &Endpoint, command: Cmd, timeout: Duration) -> Publication {
        let deadline = Instant::now() + timeout;
        let server = match Server::of(endpoint) {
            Ok(server) => server,
            Err(failure) => return Publication::from(failure),
        };
        let mut connection = match self.connection(&server, deadline).await {
            Ok(connection) => connection,
            Err(failure) => return Publication::from(failure),
        };
        match timeout_at(deadline, command.query_async::<String>(&mut connection)).await {
            Ok(Ok(_)) => Publication::acknowledged(),
            Ok(Err(error)) => {
                if broken(&error) {
                    self.connections.forget(server.key());
                }
                failure_of(&error, true).into()
            }
            Err(_) => {
                self.connections.forget(server.key());
                let why = "the server did not acknowledge in time";
                AttemptFailure::reached(FailureClass::Timeout, None, why)
                    .at("/delivery/config/server")
                    .into()
            }
        }
    }
}

/// Whether a connection is of no further use. A refused login is one, too: the next connection may log in.
fn broken(error: &RedisError) -> bool {
    // A server that was demoted answers until the connection is closed; the name leads to its successor.
    let demoted = matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "NOAUTH"));
    demoted || error.is_unrecoverable_error() || error.is_io_error()
}

#[async_trait]
impl Transport for RedisTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = |key: &str| set.iter().any(|name| name == key);
        let tls = config["server"].as_str().is_some_and(|url| url.starts_with("rediss://"));
        if config.contains_key("caCertificate") && !tls {
            let why = "is for TLS; the server is named with redis://";
            errors.push(("/delivery/config/caCertificate".to_owned(), why.to_owned()));
        }
        for (key, needs) in [
            ("username", "password"),
            ("clientCertificate", "clientKey"),
            ("clientKey", "clientCertificate"),
        ] {
            if given(key) && !given(needs) {
                let why = format!("needs {needs} with it");
                errors.push((format!("/delivery/credentials/{key}"), why));
            }
        }
        if given("clientCertificate") && !tls {
            let why = "is for TLS; the server is named with redis://";
            errors.push(("/delivery/credentials/clientCertificate".to_owned(), why.to_owned()));
        }
        errors.extend(not_its_own(config, "stream"));
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
        let Some(stream) = attempt.endpoint.config.text("stream") else {
            let failure = AttemptFailure::unreached(FailureClass::Request, "no stream is set");
            return Publication::failed(failure.at("/delivery/config/stream"));
        };
        let mut command = ::redis::cmd("XADD");
        command.arg(stream);
        if let Some(length) = attempt.endpoint.config.integer("maxLength") {
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*");
        for (name, value) in attempt.envelope.headers(&attempt.body) {
            command.arg(name).arg(value.as_ref());
        }
        command.arg(BODY).arg(attempt.sent_body().as_ref());
        self.run(&attempt.endpoint, command, attempt.timeout).await
    }

    fn own_fields(&self) -> &'static [&'static str] {
        &["stream", "maxLength"]
    }

    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        endpoint.config.text("replyTo").map(str::to_owned)
    }

    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let server = Server::of(endpoint)?;
        consumer::Consumer::new(&server, channel).run(&self.policy, sink, stopping).await
    }

    async fn take_in(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        match &self.intake {
            Some(intake) => intake.run(&self.policy, sink, stopping).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "redis/tests.rs"]
mod tests;
