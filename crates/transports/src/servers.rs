//! Servers of queues: their addresses as settings write them, resolved under the egress rules, and TLS to them.
//!
//! The address that passed the egress rules is the address that is dialled, as for webhooks. Client libraries that
//! dial by name would resolve it a second time, so they are given addresses, and the certificate is checked for the
//! name (see [`client_config_for`]).

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::{Map, Value};

use super::descriptions::fields as shared;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, FailureClass, Fields};
use handoffd_domain::transport::FieldError;

/// Pointer of the setting that all failures of an address name.
pub const SERVER: &str = "/delivery/config/server";
/// Pointer of the setting that failures of a client certificate name.
const CERTIFICATE: &str = "/delivery/credentials/clientCertificate";

/// A scheme of server URLs.
#[derive(Debug, Clone, Copy)]
pub struct Scheme {
    pub name: &'static str,
    pub port: u16,
    /// Whether the connection begins with TLS, or changes to it before anything secret is sent.
    pub tls: bool,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    pub tls: bool,
}

/// Reads server URLs, separated by commas: `nats://one:4222,nats://two:4222`. All have one scheme.
///
/// # Errors
/// What is wrong, as the end of a sentence that begins with the setting's name.
pub fn parse(list: &str, schemes: &[Scheme]) -> Result<Vec<Server>, String> {
    let servers = list
        .split(',')
        .map(|url| parse_one(url.trim(), schemes))
        .collect::<Result<Vec<Server>, String>>()?;
    if servers.iter().any(|server| server.tls != servers[0].tls) {
        return Err("must use TLS for all servers or for none".to_owned());
    }
    Ok(servers)
}

/// The servers that an agent's `config` names.
///
/// # Errors
/// `server` is malformed; no connection was tried.
pub fn of(config: &Fields, schemes: &[Scheme]) -> Result<Vec<Server>, AttemptFailure> {
    parse(config.text("server").unwrap_or_default(), schemes).map_err(|why| {
        let why = format!("the server's address {why}");
        AttemptFailure::unreached(FailureClass::Request, why).at(SERVER)
    })
}

fn parse_one(text: &str, schemes: &[Scheme]) -> Result<Server, String> {
    let names = || schemes.iter().map(|scheme| scheme.name).collect::<Vec<_>>().join(":// or ");
    let url = url::Url::parse(text)
        .map_err(|why| format!("must be URLs such as {}://host: {why}", schemes[0].name))?;
    let scheme = schemes
        .iter()
        .find(|scheme| scheme.name == url.scheme())
        .ok_or_else(|| format!("must begin with {}://", names()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user name or password; those are credentials".to_owned());
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("must end after host and port".to_owned());
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("must name a host")?;
    // Schemes that the URL standard does not know keep the case and the brackets of a host.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    match url.port() {
        Some(0) => Err("must not use port 0".to_owned()),
        port => Ok(Server { host, port: port.unwrap_or(scheme.port), tls: scheme.tls }),
    }
}

/// The addresses of a server that the egress rules permit.
///
/// # Errors
/// As [`EgressPolicy::resolve`].
pub async fn resolve(
    policy: &EgressPolicy,
    server: &Server,
) -> Result<Vec<SocketAddr>, AttemptFailure> {
    policy.resolve(&server.host, server.port).await.map_err(|failure| failure.at(SERVER))
}

/// The trusted and the own certificates of a TLS connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsSettings<'a> {
    /// PEM certificates that are trusted instead of the system's.
    pub ca: Option<&'a str>,
    /// PEM certificate chain and key that the client shows.
    pub identity: Option<(&'a str, &'a str)>,
}

/// A TLS configuration whose server name the caller gives when it connects.
///
/// # Errors
/// [`FailureClass::Request`] for a PEM document that holds nothing of its kind, or a key that does not fit.
pub fn client_config(settings: TlsSettings<'_>) -> Result<ClientConfig, AttemptFailure> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| AttemptFailure::unreached(FailureClass::Tls, error.to_string()))?
        .with_root_certificates(roots(settings.ca)?);
    match settings.identity {
        Some(identity) => {
            let (chain, key) = identity_of(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unfitting(&error))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// A TLS configuration that checks the certificate for `host`, whatever address the connection is made to.
///
/// # Errors
/// As [`client_config`], and for a `host` that no certificate can name.
pub fn client_config_for(
    host: &str,
    settings: TlsSettings<'_>,
) -> Result<ClientConfig, AttemptFailure> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        AttemptFailure::unreached(FailureClass::Request, format!("the server's name: {error}"))
            .at(SERVER)
    })?;
    let inner = WebPkiServerVerifier::builder_with_provider(roots(settings.ca)?.into(), provider())
        .build()
        .map_err(|error| AttemptFailure::unreached(FailureClass::Tls, error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| AttemptFailure::unreached(FailureClass::Tls, error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NamedServer { name, inner }));
    match settings.identity {
        Some(identity) => {
            let (chain, key) = identity_of(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unfitting(&error))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unfitting(error: &rustls::Error) -> AttemptFailure {
    let why = format!("the client certificate and its key: {error}");
    AttemptFailure::unreached(FailureClass::Unauthorized, why).at(CERTIFICATE)
}

/// The certificates in `ca`, or the system's, or where a system has none (bare containers) the compiled-in ones.
fn roots(ca: Option<&str>) -> Result<RootCertStore, AttemptFailure> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = ca {
        let unusable = |why: String| {
            AttemptFailure::unreached(FailureClass::Tls, why).at("/delivery/config/caCertificate")
        };
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate
                .map_err(|error| unusable(format!("the CA certificate is unreadable: {error}")))?;
            roots
                .add(certificate)
                .map_err(|error| unusable(format!("the CA certificate is unusable: {error}")))?;
        }
        if roots.is_empty() {
            return Err(unusable("the PEM document holds no certificate".to_owned()));
        }
        return Ok(roots);
    }
    Ok(SYSTEM_ROOTS.clone())
}

/// The certificates that are trusted unless settings name others, read once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        // As in a bare container.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
});

fn identity_of(
    (chain, key): (&str, &str),
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AttemptFailure> {
    let unusable =
        |at, why: String| AttemptFailure::unreached(FailureClass::Unauthorized, why).at(at);
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(CERTIFICATE, format!("is unreadable: {error}")))?;
    if chain.is_empty() {
        return Err(unusable(CERTIFICATE, "holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| {
        unusable("/delivery/credentials/clientKey", format!("holds no private key: {error}"))
    })?;
    Ok((chain, key))
}

/// Reads the certificates and the key of a registration as a connection would. Returns the first that no connection could use.
#[must_use]
pub fn unusable_certificate(
    config: &Map<String, Value>,
    given: Option<&Map<String, Value>>,
) -> Option<FieldError> {
    let credential = |name: &str| given?.get(name)?.as_str();
    let ca = config.get(shared::CA_CERTIFICATE.key).and_then(Value::as_str);
    let identity = credential(shared::CLIENT_CERTIFICATE.key);
    let identity = identity.zip(credential(shared::CLIENT_KEY.key));
    if ca.is_none() && identity.is_none() {
        return None;
    }
    let failure = client_config(TlsSettings { ca, identity }).err()?;
    Some((failure.field?.to_owned(), failure.detail))
}

/// Checks a certificate for one name, whatever name the connection was made to.
#[derive(Debug)]
struct NamedServer {
    name: ServerName<'static>,
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NamedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// A setting that is not empty.
#[must_use]
pub fn named(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Settings of the broker as the fields that a connection is made by: texts as they are, and texts that stand in files.
/// Empty ones are left out.
///
/// # Errors
/// A file that cannot be read.
pub fn fields(texts: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Fields, AttemptFailure> {
    let mut fields = Map::new();
    for (key, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        fields.insert((*key).to_owned(), (*text).into());
    }
    for (key, path) in files.iter().filter(|(_, path)| !path.is_empty()) {
        let text = std::fs::read_to_string(path).map_err(|error| {
            AttemptFailure::unreached(FailureClass::Request, format!("{path}: {error}"))
        })?;
        fields.insert((*key).to_owned(), text.into());
    }
    Ok(fields.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: &[Scheme] = &[
        Scheme { name: "nats", port: 4222, tls: false },
        Scheme { name: "tls", port: 4222, tls: true },
    ];

    #[test]
    fn servers_are_read_with_their_defaults() {
        let one = |host: &str, port, tls| Server { host: host.to_owned(), port, tls };
        assert_eq!(parse("nats://a", SCHEMES), Ok(vec![one("a", 4222, false)]));
        assert_eq!(
            parse("tls://A.example:1, tls://[::1]:2/", SCHEMES),
            Ok(vec![one("a.example", 1, true), one("::1", 2, true)])
        );
    }

    #[test]
    fn what_is_no_server_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "must be URLs such as nats://host"),
            ("a:4222", "must begin with nats:// or tls://"),
            ("http://a", "must begin with nats:// or tls://"),
            ("nats://u:p@a", "those are credentials"),
            ("nats://a/b", "must end after host and port"),
            ("nats://a?b", "must end after host and port"),
            ("nats://", "must name a host"),
            ("nats://a:0", "must not use port 0"),
            ("nats://a,tls://b", "for all servers or for none"),
        ] {
            let error = parse(text, SCHEMES).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn refused_addresses_are_not_dialled() {
        let server = Server { host: "127.0.0.1".to_owned(), port: 1, tls: false };
        let failure = resolve(&EgressPolicy::default(), &server).await.unwrap_err();
        assert_eq!((failure.class, failure.reached), (FailureClass::Egress, false));
        let policy = EgressPolicy::parse("127.0.0.0/8").unwrap();
        assert_eq!(resolve(&policy, &server).await.unwrap(), ["127.0.0.1:1".parse().unwrap()]);
    }

    #[test]
    fn a_pem_document_of_another_kind_is_named() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let failure = client_config(TlsSettings { ca: Some(&key), identity: None }).unwrap_err();
        assert_eq!(failure.field, Some("/delivery/config/caCertificate"));
        let failure = client_config(TlsSettings { ca: None, identity: Some((&key, &key)) });
        assert_eq!(failure.unwrap_err().field, Some(CERTIFICATE));
    }
}
