//! A connection to an AMQP server, and what its answers mean.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use lapin::types::{FieldTable, ShortString};
use lapin::uri::{
    AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism,
};
use lapin::{BasicProperties, Channel, Confirmation, ConnectionProperties, ErrorKind};
use tokio::time::{Instant, sleep, timeout_at};

use super::super::servers::{self, SERVER, Server, TlsSettings};
use super::{ROUTING_KEY, SCHEMES};
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, FailureClass, Fields};

/// Bounds TCP, TLS and login at one address.
const CONNECT: Duration = Duration::from_secs(5);
/// The server counts as gone after this time without a sign of life.
const HEARTBEAT_S: u16 = 20;
/// Channels that stay open for the next attempts.
const SPARE_CHANNELS: usize = 32;
/// How often a publish that waits looks whether the server blocks it.
const BLOCKED_EVERY: Duration = Duration::from_millis(200);
/// Pointer that refused credentials name.
const CREDENTIALS: &str = "/delivery/credentials";
const EXCHANGE: &str = "/delivery/config/exchange";
const VHOST: &str = "/delivery/config/vhost";
pub(super) const REPLY_TO: &str = "/delivery/config/replyTo";

/// A connection. It is not mended: a new one is dialled, under the egress rules.
pub(super) struct Connection {
    pub(super) inner: lapin::Connection,
    /// Open channels in confirm mode on which nothing is under way.
    spare: Mutex<Vec<Channel>>,
    /// Reply queues that exist.
    queues: Mutex<HashSet<String>>,
}

impl Connection {
    /// Whether attempts may begin on it.
    pub(super) fn usable(&self) -> bool {
        self.inner.status().connected()
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
            let addresses = servers::resolve(policy, server).await.unwrap_or_else(|failure| {
                last = Some(failure);
                Vec::new()
            });
            for address in addresses {
                match dial_one(server, address, config, credentials).await {
                    Ok(inner) => {
                        let (spare, queues) = (Mutex::default(), Mutex::default());
                        return Ok(Arc::new(Self { inner, spare, queues }));
                    }
                    Err(failure) => last = Some(failure),
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            AttemptFailure::unreached(FailureClass::Request, "no server is set").at(SERVER)
        }))
    }

    /// Publishes, and waits for the server's confirmation.
    pub(super) async fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        properties: BasicProperties,
        payload: &[u8],
        until: Instant,
    ) -> Result<(), AttemptFailure> {
        let (exchange, routing_key) =
            (short(exchange, EXCHANGE)?, short(routing_key, ROUTING_KEY)?);
        if self.inner.status().blocked() {
            return Err(blocked(false));
        }
        let channel = match timeout_at(until, self.channel()).await {
            Ok(channel) => channel?,
            Err(_) => return Err(late(false)),
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let publishing = channel.basic_publish(exchange, routing_key, options, payload, properties);
        let confirm = match timeout_at(until, publishing).await {
            Ok(Ok(confirm)) => confirm,
            Ok(Err(error)) => return Err(unsent(&error, false)),
            // Parts of the message may have left.
            Err(_) => return Err(late(true)),
        };
        tokio::select! {
            biased;
            confirmed = confirm => {
                let outcome = match confirmed {
                    Ok(confirmation) => read(confirmation),
                    Err(error) => Err(unsent(&error, true)),
                };
                self.keep(channel);
                outcome
            }
            () = self.is_blocked() => Err(blocked(true)),
            () = tokio::time::sleep_until(until) => Err(late(true)),
        }
    }

    /// Declares a durable queue, unless one of this name exists, whatever its kind.
    pub(super) async fn ensure_queue(
        &self,
        queue: &str,
        until: Instant,
    ) -> Result<(), AttemptFailure> {
        let known = |queues: &Mutex<HashSet<String>>| {
            queues.lock().unwrap_or_else(PoisonError::into_inner).contains(queue)
        };
        if known(&self.queues) {
            return Ok(());
        }
        match timeout_at(until, self.declare(short(queue, REPLY_TO)?)).await {
            Ok(Ok(())) => {
                let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
                queues.insert(queue.to_owned());
                Ok(())
            }
            Ok(Err(error)) => {
                let failure = unsent(&error, false);
                Err(if error.is_amqp_soft_error() { failure.at(REPLY_TO) } else { failure })
            }
            Err(_) => Err(late(false)),
        }
    }

    /// Forgets that a queue exists: the next [`Self::ensure_queue`] asks the server.
    pub(super) fn doubt(&self, queue: &str) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).remove(queue);
    }

    async fn declare(&self, queue: ShortString) -> lapin::Result<()> {
        // A passive declaration of a missing queue closes its channel.
        let channel = self.inner.create_channel().await?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let found = channel.queue_declare(queue.clone(), options, FieldTable::default()).await;
        match found {
            Ok(_) => channel.close(200, "".into()).await,
            Err(error) if soft(&error) == Some(&AMQPSoftError::NOTFOUND) => {
                let channel = self.inner.create_channel().await?;
                let options =
                    QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(queue, options, FieldTable::default()).await?;
                channel.close(200, "".into()).await
            }
            Err(error) => Err(error),
        }
    }

    /// A channel in confirm mode without other users.
    async fn channel(&self) -> Result<Channel, AttemptFailure> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(channel) = spare() {
            if channel.status().connected() {
                return Ok(channel);
            }
        }
        let channel = self.inner.create_channel().await.map_err(|error| unsent(&error, false))?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .map_err(|error| unsent(&error, false))?;
        Ok(channel)
    }

    /// Keeps a channel whose last publish is confirmed.
    fn keep(&self, channel: Channel) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if channel.status().connected() && spare.len() < SPARE_CHANNELS {
            spare.push(channel);
        }
    }

    /// Ends once the server blocks what publishes.
    async fn is_blocked(&self) {
        while !self.inner.status().blocked() {
            sleep(BLOCKED_EVERY).await;
        }
    }
}

/// A name as the protocol carries it: 255 bytes at most.
pub(super) fn short(name: &str, at: &'static str) -> Result<ShortString, AttemptFailure> {
    ShortString::try_new(name).map_err(|_| {
        AttemptFailure::unreached(FailureClass::Request, "is longer than 255 bytes").at(at)
    })
}

async fn dial_one(
    server: &Server,
    address: SocketAddr,
    config: &Fields,
    credentials: &Fields,
) -> Result<lapin::Connection, AttemptFailure> {
    let identity = credentials.text("clientCertificate").zip(credentials.text("clientKey"));
    let user = credentials.text("username").zip(credentials.text("password"));
    let tls = if server.tls {
        let settings = TlsSettings { ca: config.text("caCertificate"), identity };
        Some(RustlsConnector::from(Arc::new(servers::client_config(settings)?)))
    } else {
        None
    };
    let mechanism = if user.is_none() && identity.is_some() {
        SASLMechanism::External
    } else {
        SASLMechanism::Plain
    };
    let (username, password) = user.unwrap_or_default();
    let vhost = short(config.text("vhost").unwrap_or("/"), VHOST)?.to_string();
    let uri = AMQPUri {
        scheme: if server.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username: username.into(), password: password.into() },
            host: server.host.clone(),
            port: server.port,
        },
        vhost,
        query: AMQPQueryString {
            heartbeat: Some(HEARTBEAT_S),
            auth_mechanism: Some(mechanism),
            ..AMQPQueryString::default()
        },
    };
    let properties = ConnectionProperties::default().with_connection_name("handoffd".into());
    let runtime = lapin::runtime::default_runtime().map_err(|error| refused_dial(&error))?;
    let host = server.host.clone();
    let connecting = lapin::Connection::connector(
        uri,
        runtime,
        async move |_, runtime| {
            // The checked address, not the name: it would be resolved a second time.
            let stream = AsyncTcpStream::connect(&runtime, address).await?;
            Ok(match &tls {
                Some(tls) => stream.into_rustls(tls, &host).await?,
                None => stream,
            })
        },
        properties,
    );
    match tokio::time::timeout(CONNECT, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(refused_dial(&error)),
        Err(_) => {
            let why = "no AMQP server answered in time";
            Err(AttemptFailure::unreached(FailureClass::Timeout, why).at(SERVER))
        }
    }
}

fn late(reached: bool) -> AttemptFailure {
    let why = "the server did not confirm the message in time";
    let failure = AttemptFailure::unreached(FailureClass::Timeout, why);
    AttemptFailure { reached, ..failure }.at(SERVER)
}

fn blocked(reached: bool) -> AttemptFailure {
    let why = "the server blocks publishers: it is short of memory or disk";
    let failure = AttemptFailure::unreached(FailureClass::Refused, why);
    AttemptFailure { reached, ..failure }.at(SERVER)
}

fn soft(error: &lapin::Error) -> Option<&AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

/// Whether TLS failed shows only in the error's source.
fn is_tls(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::IOError(error) => {
            error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
        }
        _ => false,
    }
}

fn refused_dial(error: &lapin::Error) -> AttemptFailure {
    let (class, why, at) = match error.kind() {
        ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                (FailureClass::Unauthorized, "the server refuses the credentials", CREDENTIALS)
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                (FailureClass::Unauthorized, "the server refuses the virtual host", VHOST)
            }
            _ => (FailureClass::Connect, "the server refuses the connection", SERVER),
        },
        ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
            (FailureClass::Protocol, "the server does not speak AMQP 0-9-1", SERVER)
        }
        _ if is_tls(error) => (FailureClass::Tls, "no TLS with the server", SERVER),
        _ => (FailureClass::Connect, "no connection to the server", SERVER),
    };
    AttemptFailure::unreached(class, why).at(at).answered(&error.to_string())
}

/// A confirmation. A server that returns a message also confirms it.
fn read(confirmation: Confirmation) -> Result<(), AttemptFailure> {
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(returned)) => Err(unroutable(&returned)),
        Confirmation::Nack(_) => {
            Err(AttemptFailure::unreached(FailureClass::Refused, "the queue is full")
                .at(ROUTING_KEY)
                .answered("basic.nack"))
        }
        Confirmation::NotRequested => Err(late(true)),
    }
}

fn unroutable(returned: &BasicReturnMessage) -> AttemptFailure {
    let answer = format!("{} {}", returned.reply_code, returned.reply_text);
    AttemptFailure::unreached(FailureClass::Missing, "no queue is bound")
        .at(ROUTING_KEY)
        .answered(&answer)
}

/// An error of a publish or a declaration. The server did not keep a message that it answers with an error; if the
/// connection ends without an answer, `reached` tells whether the message may have left.
fn unsent(error: &lapin::Error, reached: bool) -> AttemptFailure {
    let answered =
        |class, why, at| AttemptFailure::unreached(class, why).at(at).answered(&error.to_string());
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                answered(FailureClass::Missing, "the exchange does not exist", EXCHANGE)
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                answered(FailureClass::Unauthorized, "the user may not do this", CREDENTIALS)
            }
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if too_large(refusal) => {
                answered(
                    FailureClass::Request,
                    "the message is larger than the server takes (max_message_size)",
                    SERVER,
                )
            }
            AMQPErrorKind::Soft(_) => {
                answered(FailureClass::Refused, "the server refuses the message", ROUTING_KEY)
            }
            AMQPErrorKind::Hard(_) => ended(error, reached),
        },
        ErrorKind::ChannelsLimitReached => answered(
            FailureClass::Refused,
            "the connection has as many channels as the server allows",
            SERVER,
        ),
        _ => ended(error, reached),
    }
}

fn too_large(refusal: &AMQPError) -> bool {
    refusal.get_message().as_str().contains("larger than")
}

fn ended(error: &lapin::Error, reached: bool) -> AttemptFailure {
    let why = if reached {
        "the connection ended before the server confirmed the message"
    } else {
        "the connection to the server ended"
    };
    let failure = AttemptFailure::unreached(FailureClass::Connect, why);
    AttemptFailure { reached, ..failure }.at(SERVER).answered(&error.to_string())
}
