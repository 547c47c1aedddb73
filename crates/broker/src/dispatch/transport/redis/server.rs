//! A Redis server as an agent or the settings name it, and what its errors mean.

use std::net::SocketAddr;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::AsyncDNSResolver;
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisFuture, ServerErrorKind, TlsCertificates,
};
use tokio::time::{Instant, timeout_at};
use url::Url;
use zeroize::Zeroizing;

use super::super::connections::ConnectionKey;
use super::super::{Endpoint, Fields};
use crate::dispatch::answer::{AttemptFailure, FailureClass};
use crate::dispatch::egress::EgressPolicy;

/// Time to connect, where the caller's own time is longer.
const CONNECT: Duration = Duration::from_secs(5);

/// A server, with what is needed to log in.
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
        let wrong = |why: &str| {
            AttemptFailure::unreached(FailureClass::Request, why).at("/delivery/config/server")
        };
        let text = config.text("server").ok_or_else(|| wrong("there is no server"))?;
        let url = Url::parse(text).map_err(|_| wrong("the server is no URL"))?;
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

    fn client(&self) -> Result<Client, RedisError> {
        let (host, port) = (self.host.clone(), self.port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        // The broker logs in by itself: the client would hide what the server answers.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = address.into_connection_info()?.set_redis_settings(bare);
        if !self.tls {
            return Client::open(info);
        }
        let client_tls = self.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
            client_cert: certificate.clone().into_bytes(),
            client_key: key.as_bytes().to_vec(),
        });
        let root_cert = self.ca.clone().map(String::into_bytes);
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
    }

    /// Connects to an address that the egress guard passed, and logs in.
    pub(super) async fn connect(
        &self,
        policy: &EgressPolicy,
        deadline: Instant,
    ) -> Result<MultiplexedConnection, AttemptFailure> {
        let deadline = deadline.min(Instant::now() + CONNECT);
        let at = "/delivery/config/server";
        let late = || {
            let why = "no connection to the server in time";
            AttemptFailure::unreached(FailureClass::Timeout, why).at(at)
        };
        let addresses = timeout_at(deadline, policy.resolve(&self.host, self.port))
            .await
            .map_err(|_| late())?
            .map_err(|failure| failure.at(at))?;
        let client = self.client().map_err(|error| {
            let certificate = if self.client.is_some() {
                "/delivery/credentials/clientCertificate"
            } else {
                "/delivery/config/caCertificate"
            };
            AttemptFailure::unreached(FailureClass::Tls, "the TLS settings cannot be used")
                .at(certificate)
                .answered(&error.to_string())
        })?;
        // Each command has a deadline of its own.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_dns_resolver(Resolved(addresses));
        let connecting = async {
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            self.log_in(&mut connection).await?;
            Ok(connection)
        };
        timeout_at(deadline, connecting)
            .await
            .map_err(|_| late())?
            .map_err(|error: RedisError| failure_of(&error, false))
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

/// The addresses that the egress guard passed.
struct Resolved(Vec<SocketAddr>);

impl AsyncDNSResolver for Resolved {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Box<_>) })
    }
}

/// What an error means. `sent`: the command may have been carried out, unless the server itself says otherwise.
pub(super) fn failure_of(error: &RedisError, sent: bool) -> AttemptFailure {
    const SERVER: &str = "/delivery/config/server";
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
        (ErrorKind::Io, _) => {
            let tls = answer.contains("certificate") || answer.contains("tls");
            let class = if tls { FailureClass::Tls } else { FailureClass::Connect };
            let why = if tls { "the TLS handshake failed" } else { "no connection to the server" };
            let field = if tls { "/delivery/config/caCertificate" } else { SERVER };
            if sent {
                let why = "the connection broke before the server acknowledged";
                AttemptFailure::reached(FailureClass::Protocol, None, why).at(SERVER)
            } else {
                said(class, why, field)
            }
        }
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
