//! A server that asks for a certificate and a key, as hosted namespaces do.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use serde_json::json;

use super::*;
use handoffd_broker::egress::{self, ClientSettings, EgressPolicy};

type Issued = rcgen::CertifiedKey<rcgen::KeyPair>;

fn issued() -> Issued {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate")
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Serves one connection of whom `client` was issued to; the thread returns the request as it came.
fn server(own: &Issued, client: &Issued) -> (u16, thread::JoinHandle<String>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(client.cert.der().clone()).expect("a root");
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .expect("a verifier");
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a server");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let serving = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let (mut request, mut piece) = (Vec::new(), [0; 4096]);
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return String::from_utf8_lossy(&request).into_owned(),
                Ok(read) => request.extend_from_slice(&piece[..read]),
            }
        }
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"runId\":\"r\"}";
        let _ = stream.write_all(answer.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
        String::from_utf8_lossy(&request).into_owned()
    });
    (port, serving)
}

fn transport() -> TemporalTransport {
    let policy = EgressPolicy::parse("127.0.0.0/8,::1").expect("a policy");
    TemporalTransport::new(egress::client(policy, &ClientSettings::default()).expect("a client"))
}

fn endpoint(port: u16, root: &Issued, client: &Issued) -> Endpoint {
    let fields = |value: Value| Fields::from(value.as_object().cloned().expect("an object"));
    Endpoint {
        tenant: "default".parse().expect("a tenant"),
        agent_id: "b".parse().expect("an agent"),
        url: None,
        config: fields(json!({
            "address": format!("https://localhost:{port}"),
            "namespace": "orders.a1b2c",
            "caCertificate": pem("CERTIFICATE", root.cert.der()),
        })),
        credentials: fields(json!({
            "apiKey": "key-1",
            "clientCertificate": pem("CERTIFICATE", client.cert.der()),
            "clientKey": pem("PRIVATE KEY", &client.signing_key.serialize_der()),
        })),
    }
}

#[tokio::test]
async fn a_certificate_and_a_key_go_to_the_trusted_server_alone() {
    let (own, client) = (issued(), issued());
    let (port, serving) = server(&own, &client);
    let called = async |port, root: &Issued, client: &Issued| {
        let transport = transport();
        let endpoint = endpoint(port, root, client);
        let client = transport.client(&endpoint).await.expect("a client");
        client.call(Method::GET, &["workflows", "a b"], None, Duration::from_secs(20)).await
    };
    let answer = called(port, &own, &client).await.expect("an answer");
    assert_eq!(answer, json!({"runId": "r"}));
    let request = serving.join().expect("the server").to_ascii_lowercase();
    assert!(
        request.starts_with("get /api/v1/namespaces/orders.a1b2c/workflows/a%20b http/1.1\r\n")
    );
    assert!(request.contains("\r\nauthorization: bearer key-1\r\n"), "{request}");
    assert!(request.contains("\r\ntemporal-namespace: orders.a1b2c\r\n"), "{request}");

    let (port, serving) = server(&own, &client);
    let refused = called(port, &issued(), &client).await.expect_err("another root");
    let failure = refused.failure();
    assert_eq!((failure.class, failure.reached), (FailureClass::Tls, false));
    assert_eq!(serving.join().expect("the server"), "");

    let (port, serving) = server(&own, &client);
    assert!(called(port, &own, &issued()).await.is_err(), "another certificate");
    assert_eq!(serving.join().expect("the server"), "");
}
