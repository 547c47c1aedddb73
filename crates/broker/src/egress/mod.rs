//! The egress guard: the only way by which the broker and its transports call out.
//!
//! The address of an agent comes from its registration, so without a guard every tenant could reach the broker's own
//! network (server-side request forgery). The guard judges names after resolution, in the resolver itself: the
//! addresses that passed are the addresses that are connected to, so a name that changes its answer between check and
//! use gains nothing. URLs with a literal address never reach a resolver and are judged before;
//! [`GuardedClient::request`] does both, and returns no request without them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};
use zeroize::Zeroizing;

use crate::transport::{AttemptFailure, FailureClass};
use addresses::{embedded_v4, special_range};

mod addresses;
pub mod exchange;
pub mod json_service;

/// Value of the `User-Agent` header.
pub const USER_AGENT: &str = concat!("handoffd/", env!("CARGO_PKG_VERSION"));

/// The callable addresses: ordinary public ones, and the networks that the operator allows.
#[derive(Debug, Clone, Default)]
pub struct EgressPolicy {
    allowed: Vec<IpNet>,
}

/// An entry of `HANDOFFD_EGRESS_ALLOW` that is neither an address nor a CIDR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is neither a CIDR such as 10.0.0.0/8 or fd00::/8 nor an IP address")]
pub struct CidrError {
    /// The entry as written.
    pub entry: String,
}

/// Why a target is refused. The text names no address that the caller did not supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EgressDenied {
    /// The address lies in a refused range.
    #[error("{range} addresses are refused unless HANDOFFD_EGRESS_ALLOW names them")]
    Address {
        /// The refused address, in canonical form. For the operator's log, not for a tenant.
        address: IpAddr,
        /// The range's name, such as `loopback`.
        range: &'static str,
    },
    /// The text is not an absolute URL.
    #[error("not an absolute URL: {0}")]
    Syntax(url::ParseError),
    /// The scheme is neither `http` nor `https`.
    #[error("only http and https URLs can be called")]
    Scheme,
    /// The URL carries a user name or password.
    #[error("a URL with a user name or password is refused")]
    Userinfo,
    /// The port is 0.
    #[error("port 0 cannot be called")]
    Port,
}

impl EgressPolicy {
    /// A policy that allows these networks although they are special.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed: allowed.into_iter().map(unmapped).collect() }
    }

    /// Reads `HANDOFFD_EGRESS_ALLOW`: CIDRs or single addresses, separated by commas or spaces.
    ///
    /// # Errors
    /// [`CidrError`] with the first entry that is neither a network nor an address.
    pub fn parse(list: &str) -> Result<Self, CidrError> {
        Self::from_entries(list.split([',', ' ', '\t', '\n']))
    }

    /// Reads one CIDR or address per entry; empty entries are skipped.
    ///
    /// # Errors
    /// [`CidrError`] with the first entry that is neither a network nor an address.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, CidrError> {
        entries
            .into_iter()
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(|entry| {
                entry
                    .parse::<IpNet>()
                    .or_else(|_| entry.parse::<IpAddr>().map(IpNet::from))
                    .map_err(|_| CidrError { entry: entry.to_owned() })
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self::new)
    }

    /// Decides on a connection to this address.
    ///
    /// An allowed network also covers IPv6 addresses that embed only addresses of that network (NAT64, 6to4, Teredo).
    ///
    /// # Errors
    /// [`EgressDenied::Address`] for an address in a special range that no allowed network covers.
    pub fn permits(&self, ip: IpAddr) -> Result<(), EgressDenied> {
        let address = ip.to_canonical();
        let Some(range) = special_range(address) else {
            return Ok(());
        };
        let embedded = match address {
            IpAddr::V6(v6) => embedded_v4(v6),
            IpAddr::V4(_) => Vec::new(),
        };
        let carried_allowed = !embedded.is_empty()
            && embedded
                .into_iter()
                .map(IpAddr::V4)
                .all(|inner| special_range(inner).is_none() || self.allows(inner));
        if carried_allowed || self.allows(address) {
            Ok(())
        } else {
            Err(EgressDenied::Address { address, range })
        }
    }

    /// Parses a URL and checks all that can be checked before resolution.
    ///
    /// Registration uses the same check for an early answer. A name that passes here is judged by its addresses when
    /// it is called.
    ///
    /// # Errors
    /// [`EgressDenied`]: the text is not an absolute URL, has another scheme, a user name, a password or port 0, or names
    /// a refused address.
    pub fn check_url(&self, text: &str) -> Result<Url, EgressDenied> {
        let url = Url::parse(text).map_err(EgressDenied::Syntax)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EgressDenied::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressDenied::Userinfo);
        }
        if url.port() == Some(0) {
            return Err(EgressDenied::Port);
        }
        // The parser has already turned 0x7f.1, 2130706433 and the like into addresses.
        match url.host() {
            Some(Host::Ipv4(v4)) => self.permits(v4.into())?,
            Some(Host::Ipv6(v6)) => self.permits(v6.into())?,
            Some(Host::Domain(_)) => {}
            None => return Err(EgressDenied::Syntax(url::ParseError::EmptyHost)),
        }
        Ok(url)
    }

    /// Resolves a server's name to the addresses that may be connected to, at least one. For clients that do not speak
    /// HTTP: they connect to these addresses and to no others.
    ///
    /// # Errors
    /// The name does not resolve, or every address is refused.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, AttemptFailure> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((host, port)).await.map_err(|_| {
            AttemptFailure::unreached(FailureClass::Dns, "the server's name does not resolve")
        })?;
        let (mut kept, mut denied) = (Vec::new(), None);
        for address in found {
            match self.permits(address.ip()) {
                Ok(()) => kept.push(address),
                Err(why) => denied = Some(why),
            }
        }
        match denied {
            Some(why) if kept.is_empty() => {
                Err(AttemptFailure::unreached(FailureClass::Egress, why.to_string()))
            }
            _ if kept.is_empty() => Err(AttemptFailure::unreached(
                FailureClass::Dns,
                "the server's name has no addresses",
            )),
            _ => Ok(kept),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&address))
    }
}

/// An IPv6 network of mapped addresses becomes the IPv4 network that it denotes.
fn unmapped(network: IpNet) -> IpNet {
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.network().to_ipv4_mapped()
        && let Some(prefix) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = Ipv4Net::new(v4, prefix)
    {
        return v4.into();
    }
    network.trunc()
}

/// A resolver that drops every address that the policy refuses.
struct GuardedResolver {
    policy: Arc<EgressPolicy>,
    inner: Arc<dyn Resolve>,
}

impl std::fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedResolver").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.policy);
        let lookup = self.inner.resolve(name);
        Box::pin(async move {
            let (mut kept, mut denied) = (Vec::new(), None);
            for address in lookup.await? {
                match policy.permits(address.ip()) {
                    Ok(()) => kept.push(address),
                    Err(why) => denied = Some(why),
                }
            }
            match (kept.is_empty(), denied) {
                (false, _) => Ok(Box::new(kept.into_iter()) as Addrs),
                (true, Some(why)) => Err(why.into()),
                (true, None) => Err("the name has no addresses".into()),
            }
        })
    }
}

/// The operating system's resolver.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port is the connector's to fill in.
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Timeouts and sizes of the connection pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSettings {
    /// Bounds resolution, TCP and TLS together. Must stay below the attempts' timeouts: only a connection that fails
    /// by this timeout is known not to have reached the receiver.
    pub connect_timeout: Duration,
    /// Lifetime of an idle connection.
    pub pool_idle_timeout: Duration,
    /// Largest number of idle connections per receiver.
    pub pool_max_idle_per_host: usize,
}

impl Default for ClientSettings {
    /// 5 s to connect; idle connections for 30 s (shorter than most servers' own limit, so that servers rarely close a
    /// connection in use), 16 per receiver.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            pool_idle_timeout: Duration::from_secs(30),
            pool_max_idle_per_host: 128,
        }
    }
}

/// An HTTP client that calls only what its policy permits. Clones share a pool.
///
/// The client uses no proxies (a proxy would resolve names outside of the guard), follows no redirects and does not
/// retry. TLS certificates are checked against the system's roots or, where a system has none (bare containers),
/// against Mozilla's compiled-in roots.
#[derive(Debug, Clone)]
pub struct GuardedClient {
    http: reqwest::Client,
    policy: Arc<EgressPolicy>,
    settings: ClientSettings,
    resolver: Arc<GuardedResolver>,
}

/// Certificates of a connection, as PEM documents.
#[derive(Default)]
pub struct TlsCertificates<'a> {
    /// The client's certificate, with those that it was issued under, and its key.
    pub identity: Option<(&'a str, &'a str)>,
    /// Roots that are trusted instead of the system's.
    pub roots: Option<&'a str>,
}

/// Which of the [`TlsCertificates`] cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsCertificateError {
    #[error("the certificate and its key are no PEM documents that belong together")]
    Identity,
    #[error("the roots are no PEM certificates")]
    Roots,
}

/// Builds the guarded client.
///
/// # Errors
/// [`reqwest::Error`] where TLS can be set up neither with the system's roots nor with the compiled-in ones.
pub fn client(
    policy: EgressPolicy,
    settings: &ClientSettings,
) -> Result<GuardedClient, reqwest::Error> {
    client_with_resolver(policy, settings, Arc::new(SystemResolver))
}

pub(crate) fn client_with_resolver(
    policy: EgressPolicy,
    settings: &ClientSettings,
    inner: Arc<dyn Resolve>,
) -> Result<GuardedClient, reqwest::Error> {
    // A second installation fails and leaves the first in place, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let policy = Arc::new(policy);
    let resolver = Arc::new(GuardedResolver { policy: Arc::clone(&policy), inner });
    let builder = || builder(settings, &resolver);
    let http = builder()
        .build()
        .or_else(|_| builder().tls_backend_preconfigured(compiled_in_roots()).build())?;
    Ok(GuardedClient { http, policy, settings: *settings, resolver })
}

fn builder(settings: &ClientSettings, resolver: &Arc<GuardedResolver>) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .dns_resolver(Arc::clone(resolver))
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(settings.pool_idle_timeout)
        .pool_max_idle_per_host(settings.pool_max_idle_per_host)
        .tcp_nodelay(true)
        .user_agent(USER_AGENT)
}

fn compiled_in_roots() -> rustls::ClientConfig {
    let roots = webpki_roots::TLS_SERVER_ROOTS.to_vec();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore { roots })
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

impl GuardedClient {
    /// Starts a request after [`EgressPolicy::check_url`] passed its URL.
    ///
    /// # Errors
    /// As [`EgressPolicy::check_url`].
    pub fn request(
        &self,
        method: reqwest::Method,
        url: &str,
    ) -> Result<reqwest::RequestBuilder, EgressDenied> {
        let url = self.policy.check_url(url)?;
        Ok(self.http.request(method, url))
    }

    /// A client under the same policy with certificates and a pool of its own.
    ///
    /// # Errors
    /// [`TlsCertificateError`].
    pub fn with_certificates(
        &self,
        certificates: &TlsCertificates<'_>,
    ) -> Result<Self, TlsCertificateError> {
        let mut made = builder(&self.settings, &self.resolver);
        if let Some(roots) = certificates.roots {
            let roots = reqwest::Certificate::from_pem_bundle(roots.as_bytes())
                .ok()
                .filter(|roots| !roots.is_empty())
                .ok_or(TlsCertificateError::Roots)?;
            made = made.tls_certs_only(roots);
        }
        if let Some((certificate, key)) = certificates.identity {
            let pem = Zeroizing::new(format!("{certificate}\n{key}"));
            let identity = reqwest::Identity::from_pem(pem.as_bytes());
            made = made.identity(identity.map_err(|_| TlsCertificateError::Identity)?);
        }
        let broken = if certificates.identity.is_some() {
            TlsCertificateError::Identity
        } else {
            TlsCertificateError::Roots
        };
        Ok(Self { http: made.build().map_err(|_| broken)?, ..self.clone() })
    }

    /// The policy in force, for early checks of registered URLs.
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
