//! A connection to NATS servers, and what its answers mean.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap};
use async_nats::{ServerError, jetstream};
use bytes::Bytes;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout_at};

use super::super::servers::{self, SERVER, Server, TlsSettings};
use super::{SCHEMES, SUBJECT};
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, FailureClass, Fields};

/// Bounds TCP, TLS and login at one address.
const CONNECT: Duration = Duration::from_secs(5);
/// Pointer that refused credentials name.
const CREDENTIALS: &str = "/delivery/credentials";
/// Pointer of the setting that a stream's refusal names.
const STREAM: &str = "/delivery/config/stream";

/// How the stream keeps a message.
pub(super) struct Stored {
    pub(super) stream: String,
    pub(super) sequence: u64,
}

/// A connection; its library mends it once, then a new one is dialled under the egress rules.
pub(super) struct Connection {
    client: Client,
    pub(super) jetstream: Context,
    /// Errors that the server sends beside the protocol's answers, such as a refused subject.
    refusals: broadcast::Sender<String>,
}

impl Connection {
    /// Whether attempts may begin on it.
    pub(super) fn usable(&self) -> bool {
        self.client.connection_state() == State::Connected
    }
}

impl Connection {
    /// Connects to the first server that lets the broker in.
    pub(super) async fn dial(
        policy: &EgressPolicy,
        config: &Fields,
        credentials: &Fields,
    ) -> Result<Arc<Self>, AttemptFailure> {
        let servers = servers::of(config, SCHEMES)?;
        let mut last = None;
        for server in &servers {
            match Self::dial_one(policy, server, config, credentials).await {
                Ok(connection) => return Ok(Arc::new(connection)),
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.unwrap_or_else(|| {
            AttemptFailure::unreached(FailureClass::Request, "no server is set").at(SERVER)
        }))
    }

    async fn dial_one(
        policy: &EgressPolicy,
        server: &Server,
        config: &Fields,
        credentials: &Fields,
    ) -> Result<Self, AttemptFailure> {
        let mut last = None;
        for address in servers::resolve(policy, server).await? {
            let (refusals, _) = broadcast::channel(16);
            let heard = refusals.clone();
            let options = options(server, config, credentials)?.event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(text)) = event {
                    let _ = heard.send(text);
                }
                std::future::ready(())
            });
            match options.connect(format!("nats://{address}")).await {
                Ok(client) => {
                    let jetstream = ContextBuilder::new().timeout(CONNECT).build(client.clone());
                    return Ok(Self { client, jetstream, refusals });
                }
                Err(error) => last = Some(refused_dial(&error)),
            }
        }
        Err(last.unwrap_or_else(|| {
            AttemptFailure::unreached(FailureClass::Dns, "the server's name has no addresses")
        }))
    }

    /// Publishes, and waits for a stream's acknowledgement.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
        until: Instant,
    ) -> Result<Stored, AttemptFailure> {
        let mut refusals = self.refusals.subscribe();
        let mut context = self.jetstream.clone();
        context.set_timeout(until.saturating_duration_since(Instant::now()));
        let message = PublishMessage::build().payload(payload).headers(headers);
        let publishing = context.send_publish(subject.clone(), message);
        let acknowledgement = match timeout_at(until, publishing).await {
            Ok(Ok(acknowledgement)) => acknowledgement,
            Ok(Err(error)) => return Err(unsent(&error)),
            Err(_) => return Err(in_time(false)),
        };
        tokio::select! {
            biased;
            acknowledged = acknowledgement.into_future() => match acknowledged {
                Ok(stored) => Ok(Stored { stream: stored.stream, sequence: stored.sequence }),
                Err(error) => Err(unacknowledged(&error)),
            },
            text = refusal_of(&mut refusals, &subject) => {
                let why = "the user may not publish to the subject";
                let failure = AttemptFailure::unreached(FailureClass::Unauthorized, why);
                Err(failure.at(SUBJECT).answered(&text))
            }
        }
    }
}

/// The server's refusal of a publish to this subject, once it comes.
async fn refusal_of(refusals: &mut broadcast::Receiver<String>, subject: &str) -> String {
    let quoted = format!("\"{subject}\"");
    loop {
        match refusals.recv().await {
            Ok(text) if text.contains("Permissions Violation") && text.contains(&quoted) => {
                return text;
            }
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn options(
    server: &Server,
    config: &Fields,
    credentials: &Fields,
) -> Result<ConnectOptions, AttemptFailure> {
    let identity = credentials.text("clientCertificate").zip(credentials.text("clientKey"));
    let tls = TlsSettings { ca: config.text("caCertificate"), identity };
    let mut options = ConnectOptions::new()
        .name("handoffd")
        // Addresses that a server announces have not passed the egress rules.
        .ignore_discovered_servers()
        .max_reconnects(1)
        .connection_timeout(CONNECT)
        .ping_interval(Duration::from_secs(20))
        .require_tls(server.tls)
        // A server may ask for TLS although the address does not.
        .tls_client_config(servers::client_config_for(&server.host, tls)?);
    if let Some((user, password)) = credentials.text("username").zip(credentials.text("password")) {
        options = options.user_and_password(user.to_owned(), password.to_owned());
    } else if let Some(token) = credentials.text("token") {
        options = options.token(token.to_owned());
    } else if let Some(seed) = credentials.text("nkeySeed") {
        options = options.nkey(seed.to_owned());
    } else if let Some(file) = credentials.text("userCredentials") {
        options = options.credentials(file).map_err(|error| {
            let why = format!("the content of the .creds file: {error}");
            AttemptFailure::unreached(FailureClass::Unauthorized, why)
                .at("/delivery/credentials/userCredentials")
        })?;
    }
    Ok(options)
}

/// Whether TLS failed shows only in the error's source.
fn is_tls(error: &ConnectError) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if cause.is::<rustls::Error>()
            || inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
        {
            return true;
        }
        source = cause.source();
    }
    error.kind() == ConnectErrorKind::Tls
}

fn refused_dial(error: &ConnectError) -> AttemptFailure {
    let (class, why, at) = match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            (FailureClass::Unauthorized, "the server refuses the credentials", CREDENTIALS)
        }
        ConnectErrorKind::TimedOut => {
            (FailureClass::Timeout, "no NATS server answered in time", SERVER)
        }
        ConnectErrorKind::Dns => (FailureClass::Dns, "the server's name does not resolve", SERVER),
        _ if is_tls(error) => (FailureClass::Tls, "no TLS with the server", SERVER),
        _ => (FailureClass::Connect, "no connection to the server", SERVER),
    };
    AttemptFailure::unreached(class, why).at(at).answered(&error.to_string())
}

fn in_time(reached: bool) -> AttemptFailure {
    let why = "no stream acknowledged the message in time";
    let failure = AttemptFailure::unreached(FailureClass::Timeout, why);
    AttemptFailure { reached, ..failure }.at(SERVER)
}

/// An error before the message was handed to the connection.
fn unsent(error: &PublishError) -> AttemptFailure {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => AttemptFailure::unreached(
            FailureClass::Request,
            "the message is larger than the server takes (max_payload)",
        )
        .at(SERVER)
        .answered(&error.to_string()),
        PublishErrorKind::MaxAckPending | PublishErrorKind::TimedOut => in_time(false),
        _ if error.to_string().contains("invalid subject") => {
            AttemptFailure::unreached(FailureClass::Request, "the subject is not one of NATS")
                .at(SUBJECT)
        }
        _ => AttemptFailure::unreached(FailureClass::Connect, "the connection to the server ended")
            .at(SERVER)
            .answered(&error.to_string()),
    }
}

/// An error after the message was handed to the connection.
fn unacknowledged(error: &PublishError) -> AttemptFailure {
    let refusal = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    if let Some(refusal) = refusal {
        return refused(refusal);
    }
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            AttemptFailure::unreached(FailureClass::Missing, "no stream keeps the subject")
                .at(SUBJECT)
                .answered("no responders")
        }
        PublishErrorKind::TimedOut => in_time(true),
        PublishErrorKind::BrokenPipe => AttemptFailure::reached(
            FailureClass::Connect,
            None,
            "the connection ended before a stream acknowledged the message",
        )
        .at(SERVER),
        // A plain subscriber answered, for example.
        _ => AttemptFailure::reached(
            FailureClass::Protocol,
            None,
            "what answered for the subject is not a stream",
        )
        .at(SUBJECT)
        .answered(&error.to_string()),
    }
}

/// JetStream does not keep a message that it refuses.
fn refused(refusal: &jetstream::Error) -> AttemptFailure {
    let failure = |class, why, at| {
        AttemptFailure::unreached(class, why).at(at).answered(&refusal.to_string())
    };
    match refusal.error_code() {
        ErrorCode::STREAM_NOT_MATCH => failure(
            FailureClass::Missing,
            "another stream than the configured one keeps the subject",
            STREAM,
        ),
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => failure(
            FailureClass::Request,
            "the message is larger than the stream takes (max_msg_size)",
            SUBJECT,
        ),
        ErrorCode::STREAM_SEALED => failure(FailureClass::Refused, "the stream is sealed", SUBJECT),
        // A limit of the stream: messages, bytes, or messages of the subject.
        ErrorCode::STREAM_STORE_FAILED => {
            failure(FailureClass::Refused, "the stream is full", SUBJECT)
        }
        // 503: storage, memory or account limits; the stream has no leader; the server starts.
        _ if refusal.code() == 503 => {
            failure(FailureClass::Refused, "the server takes no messages at present", SERVER)
        }
        _ => failure(FailureClass::Refused, "the stream refuses the message", SUBJECT),
    }
}
