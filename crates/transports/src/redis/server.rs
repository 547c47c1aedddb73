//! A Redis server as an agent or the settings name it, and what its errors mean.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind};
use futures_util::future::select_ok;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;
use zeroize::Zeroizing;

use super::super::servers::{self, TlsSettings};
use super::bounded::{Bounded, TOO_LARGE};
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, ConnectionKey, Endpoint, FailureClass, Fields};

const SERVER: &str = servers::SERVER;
const CA: &str = "/delivery/config/caCertificate";
const CERTIFICATE: &str = "/delivery/credentials/clientCertificate";

/// Time to connect, where the caller's own time is longer.
const CONNECT: Duration = Duration::from_secs(5);

/// A server, with what is needed to log in.
#[derive(Clone)]
pub(super) struct Server {
    host: String,
    port: u16,
    database: i64,
    tls: bool,
    ca: Option<String>,
    username: Option<String>,
    password: Option<Zeroizing<String>>,
    client: Option<(String, Zeroizing<String>)>,
    key: ConnectionKey,
}

impl Server {
    pub(super) fn of(endpoint: &Endpoint) -> Result<Self, AttemptFailure> {
        Self::from_fields(&endpoint.config, &endpoint.credentials)
    }

    pub(super) fn from_fields(config: &Fields, login: &Fields) -> Result<Self, AttemptFailure> {
        let wrong = |why: &str| AttemptFailure::unreached(FailureClass::Request, why).at(SERVER);
        let text = config.text("server").ok_or_else(|| wrong("no server is set"))?;
        let url = Url::parse(text).map_err(|_| wrong("the server is not a URL"))?;
        let host = url.host_str().ok_or_else(|| wrong("the server's URL has no host"))?;
        let path = url.path().trim_matches('/');
        let database = if path.is_empty() { Ok(0) } else { path.parse() };
        let key = ConnectionKey::of(&[
            &config.identity(&["server", "caCertificate"]),
            &login.identity(&["username", "password", "clientCertificate", "clientKey"]),
        ]);
        let secret = |key: &str| login.text(key).map(|text| Zeroizing::new(text.to_owned()));
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(6379),
            database: database.map_err(|_| wrong("the path must be the database's number"))?,
            tls: url.scheme() == "rediss",
            ca: config.text("caCertificate").map(str::to_owned),
            username: login.text("username").map(str::to_owned),
            password: secret("password"),
            client: login.text("clientCertificate").map(str::to_owned).zip(secret("clientKey")),
            key,
        })
    }

    pub(super) const fn key(&self) -> ConnectionKey {
        self.key
    }

    /// Connects to an address that the egress guard passed, and logs in. A reply of more than `largest` bytes ends the
    /// connection.
    pub(super) async fn connect(
        &self,
        policy: &EgressPolicy,
        deadline: Instant,
        largest: usize,
    ) -> Result<MultiplexedConnection, AttemptFailure> {
        let deadline = deadline.min(Instant::now() + CONNECT);
        let late = || {
            let why = "no connection to the server in time";
            AttemptFailure::unreached(FailureClass::Timeout, why).at(SERVER)
        };
        let connecting = async {
            let addresses = policy.resolve(&self.host, self.port).await;
            let stream = dial(&addresses.map_err(|failure| failure.at(SERVER))?).await?;
            if self.tls {
                self.open(self.encrypt(stream).await?, largest).await
            } else {
                self.open(stream, largest).await
            }
        };
        timeout_at(deadline, connecting).await.map_err(|_| late())?
    }

    async fn encrypt(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, AttemptFailure> {
        let identity = self.client.as_ref();
        let identity = identity.map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        let config = servers::client_config(TlsSettings { ca: self.ca.as_deref(), identity })?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| {
            let why = format!("the server's name: {error}");
            AttemptFailure::unreached(FailureClass::Request, why).at(SERVER)
        })?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| {
            use rustls::{CertificateError, Error};
            let field = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
                Some(Error::AlertReceived(_)) => CERTIFICATE,
                // An authority of the same name with another key.
                Some(Error::InvalidCertificate(
                    CertificateError::BadSignature | CertificateError::UnknownIssuer,
                )) => CA,
                _ => SERVER,
            };
            AttemptFailure::unreached(FailureClass::Tls, "the TLS handshake failed")
                .at(field)
                .answered(&error.to_string())
        })
    }

    async fn open(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        largest: usize,
    ) -> Result<MultiplexedConnection, AttemptFailure> {
        // The broker logs in by itself: the client would hide what the server answers.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        // Each command has a deadline of its own.
        let settings =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let stream = Bounded::new(stream, largest);
        let read = stream.read_failure();
        let opening = async {
            let (mut connection, driver) =
                MultiplexedConnection::new_with_config(&bare, stream, settings).await?;
            // It ends with the last clone of the connection.
            tokio::spawn(driver);
            self.log_in(&mut connection).await?;
            Ok(connection)
        };
        opening.await.map_err(|error: RedisError| {
            let cause = read.error().filter(|_| error.is_io_error()).map(RedisError::from);
            failure_of(cause.as_ref().unwrap_or(&error), false)
        })
    }

    async fn log_in(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        if let Some(password) = &self.password {
            let mut login = ::redis::cmd("AUTH");
            if let Some(username) = &self.username {
                login.arg(username);
            }
            login.arg(password.as_str()).query_async::<()>(connection).await?;
        }
        if self.database != 0 {
            ::redis::cmd("SELECT").arg(self.database).query_async::<()>(connection).await?;
        }
        // Something else than Redis, or a server that hangs, is found out before a message goes there.
        ::redis::cmd("PING").query_async::<()>(connection).await
    }
}

/// Opens a connection to the address that answers first.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, AttemptFailure> {
    let failed = |said: &str| {
        let why = "no connection to the server";
        AttemptFailure::unreached(FailureClass::Connect, why).at(SERVER).answered(said)
    };
    if addresses.is_empty() {
        return Err(failed("the name has no address"));
    }
    let dials = addresses.iter().map(|address| Box::pin(TcpStream::connect(*address)));
    let (stream, _) = select_ok(dials).await.map_err(|error| failed(&error.to_string()))?;
    // Without it a command waits for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Whether a message says that the peer refused a certificate: TLS 1.3 tells the client after the handshake.
fn is_tls_alert(text: &str) -> bool {
    text.contains("received fatal alert")
}

/// The meaning of an error. `sent`: the command may have been carried out, unless the server itself says otherwise.
pub(super) fn failure_of(error: &RedisError, sent: bool) -> AttemptFailure {
    const LOGIN: &str = "/delivery/credentials/password";
    let answer = error.to_string();
    let said =
        |class, why: &str, field| AttemptFailure::unreached(class, why).at(field).answered(&answer);
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            said(FailureClass::Unauthorized, "the server refuses the credentials", LOGIN)
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) | (_, Some("NOPERM")) => {
            let why = "the server does not permit this to the user";
            said(FailureClass::Unauthorized, why, "/delivery/credentials/username")
        }
        (_, Some("WRONGTYPE")) => {
            let why = "the key holds something other than a stream";
            said(FailureClass::Missing, why, "/delivery/config/stream")
        }
        (_, Some("OOM")) => said(FailureClass::Refused, "the server's memory is full", SERVER),
        (ErrorKind::Server(_) | ErrorKind::Extension, code) => {
            let why = format!("the server refuses with {}", code.unwrap_or("an error"));
            said(FailureClass::Refused, &why, SERVER)
        }
        (ErrorKind::Io, _) if sent => {
            let why = "the connection broke before the server acknowledged";
            AttemptFailure::reached(FailureClass::Protocol, None, why).at(SERVER)
        }
        (ErrorKind::Io, _) if is_tls_alert(&answer) => {
            said(FailureClass::Tls, "the server ended the TLS connection", CERTIFICATE)
        }
        (ErrorKind::Io, _) if answer.contains(TOO_LARGE) => {
            said(FailureClass::Protocol, "the server's reply is too large", SERVER)
        }
        (ErrorKind::Io, _) => said(FailureClass::Connect, "no connection to the server", SERVER),
        _ if sent => AttemptFailure::reached(
            FailureClass::Protocol,
            None,
            "the server's reply cannot be read",
        )
        .at(SERVER)
        .answered(&answer),
        _ => said(FailureClass::Protocol, "the server does not answer as Redis does", SERVER),
    }
}
