//! How the write path's connections reach the server: the same settings as the pool's, TLS included.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::{Result, StoreError};

/// The settings of the pool's connections for the write path: whatever the URL, the environment and the password
/// file say, and their TLS.
///
/// # Errors
/// [`StoreError::Refused`] where a certificate or a key cannot be read.
pub(super) fn configure(connect: &PgConnectOptions) -> Result<(Config, MakeRustlsConnect)> {
    let parts = UrlParts::of(connect);
    let mut config = Config::new();
    match connect.get_socket() {
        Some(folder) => config.host_path(folder),
        None => config.host(connect.get_host().trim_matches(['[', ']'])),
    };
    config.port(connect.get_port()).user(connect.get_username()).application_name("handoffd");
    config.dbname(connect.get_database().unwrap_or_else(|| connect.get_username()));
    if let Some(password) = &parts.password {
        config.password(password);
    }
    if let Some(options) = connect.get_options() {
        config.options(options);
    }
    let mode = connect.get_ssl_mode();
    config.ssl_mode(match mode {
        PgSslMode::Allow | PgSslMode::Disable => SslMode::Disable,
        PgSslMode::Prefer => SslMode::Prefer,
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => SslMode::Require,
    });
    // The pool's driver does none, and a pooler that ends TLS for the server has another certificate.
    config.channel_binding(ChannelBinding::Disable);
    let tls = tls(mode, &parts).map_err(|why| {
        // Paths and reasons; never a key.
        StoreError::Refused(format!("TLS to the database cannot be set up: {why}"))
    })?;
    Ok((config, MakeRustlsConnect::new(tls)))
}

/// The parts that the options do not show.
#[derive(Default)]
struct UrlParts {
    password: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl UrlParts {
    fn of(connect: &PgConnectOptions) -> Self {
        // Written by the driver without escapes, and of no use here.
        let url = connect.clone().host("host").username("user").to_url_lossy();
        let mut parts = Self::default();
        if let Some(password) = url.password() {
            let pair = format!("password={password}");
            let decoded = url::form_urlencoded::parse(pair.as_bytes()).next();
            parts.password = decoded.map(|(_, password)| password.into_owned());
        }
        for (key, value) in url.query_pairs() {
            match &*key {
                "sslrootcert" => parts.root = Some(value.into_owned()),
                "sslcert" => parts.certificate = Some(value.into_owned()),
                "sslkey" => parts.key = Some(value.into_owned()),
                _ => {}
            }
        }
        parts
    }
}

/// A PEM text, or the path of one.
fn pem(value: &str) -> std::result::Result<Vec<u8>, String> {
    if value.trim().starts_with("-----BEGIN") {
        return Ok(value.as_bytes().to_vec());
    }
    std::fs::read(value).map_err(|err| format!("{value}: {err}"))
}

fn certificates(value: &str) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let pem = pem(value)?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    all.map_err(|err| format!("a certificate cannot be read: {err}"))
}

fn tls(mode: PgSslMode, parts: &UrlParts) -> std::result::Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = ServerVerifier::new(mode, parts.root.as_deref(), &provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| err.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match (&parts.certificate, &parts.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_slice(&pem(key)?)
                .map_err(|err| format!("the client's key cannot be read: {err}"))?;
            config
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(|err| err.to_string())
        }
        (None, None) => Ok(config.with_no_client_auth()),
        _ => Err("sslcert and sslkey belong together".to_owned()),
    }
}

/// Verifies a server's certificate as `sslmode` says.
#[derive(Debug)]
struct ServerVerifier {
    provider: Arc<CryptoProvider>,
    /// Of `verify-ca` and `verify-full`.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Of `verify-full`.
    name: bool,
}

impl ServerVerifier {
    fn new(
        mode: PgSslMode,
        root: Option<&str>,
        provider: &Arc<CryptoProvider>,
    ) -> std::result::Result<Self, String> {
        let name = matches!(mode, PgSslMode::VerifyFull);
        if !name && !matches!(mode, PgSslMode::VerifyCa) {
            return Ok(Self { provider: Arc::clone(provider), chain: None, name });
        }
        let mut roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect::<RootCertStore>();
        for certificate in root.map(certificates).transpose()?.into_iter().flatten() {
            roots.add(certificate).map_err(|err| err.to_string())?;
        }
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|err| err.to_string())?;
        Ok(Self { provider: Arc::clone(provider), chain: Some(chain), name })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> PgConnectOptions {
        url.parse().expect("a URL")
    }

    #[test]
    fn every_setting_of_the_pool_reaches_the_write_path() {
        let url = "postgres://u%40ser:p%2Fa+s%25s@db.example:6543/ledger?sslmode=require\
                   &options=-c%20lock_timeout%3D5s";
        let (config, _) = configure(&settings(url)).expect("settings");
        assert_eq!(config.get_user(), Some("u@ser"));
        assert_eq!(config.get_password(), Some(&b"p/a+s%s"[..]));
        assert_eq!(config.get_dbname(), Some("ledger"));
        assert_eq!(config.get_ports(), [6543]);
        assert_eq!(config.get_options(), Some("-c lock_timeout=5s"));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        let socket = "postgres:///ledger?host=/run/postgresql&user=me&password=x&sslmode=disable";
        let (config, _) = configure(&settings(socket)).expect("settings");
        let folder = std::path::PathBuf::from("/run/postgresql");
        assert_eq!(config.get_hosts(), [tokio_postgres::config::Host::Unix(folder)]);
        let (config, _) = configure(&settings("postgres://u@[::1]:1/d")).expect("settings");
        assert_eq!(config.get_hosts(), [tokio_postgres::config::Host::Tcp("::1".to_owned())]);
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_refused() {
        for query in ["sslmode=verify-full&sslrootcert=absent.pem", "sslcert=absent.pem&sslkey=k"] {
            let url = format!("postgres://u@h/d?{query}");
            let refused = configure(&settings(&url)).err();
            assert!(matches!(refused, Some(StoreError::Refused(_))), "{query}: {refused:?}");
        }
        let refused = configure(&settings("postgres://u@h/d?sslcert=only.pem")).err();
        assert!(refused.is_some_and(|err| err.to_string().contains("belong together")));
    }
}
