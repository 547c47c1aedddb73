//! TLS certificates are checked: a receiver with an untrusted certificate gets no byte of a request.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::egress::{self, ClientSettings, EgressPolicy};

/// A TLS server with a self-signed certificate for `localhost`. The thread returns the bytes of the request that it
/// could read.
fn self_signed() -> (u16, thread::JoinHandle<Vec<u8>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a server");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
        let mut read = Vec::new();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let _ = stream.read_to_end(&mut read);
        read
    });
    (port, server)
}

#[tokio::test]
async fn an_unknown_issuer_is_refused_before_anything_is_said() {
    for host in ["localhost", "127.0.0.1"] {
        let (port, server) = self_signed();
        let policy = EgressPolicy::parse("127.0.0.0/8").expect("a policy");
        let client = egress::client(policy, &ClientSettings::default()).expect("a client");
        let request = WebhookRequest {
            encoded: None,
            url: format!("https://{host}:{port}/"),
            body: Bytes::from_static(b"{}"),
            id: "msg_1".to_owned(),
            timestamp_s: 0,
            secrets: vec![WebhookSecret::from_bytes(&[1; 24]).expect("a secret")],
            headers: HandoffHeaders::default(),
            timeout: Duration::from_secs(20),
            verdict: VerdictClock::Stopped,
        };
        let outcome = WebhookClient::new(client).send(request).await.outcome;
        let AttemptOutcome::Failed(failed) = outcome else {
            panic!("no failure: {outcome:?}");
        };
        assert_eq!((failed.class, failed.reached), (FailureClass::Tls, false));
        assert!(failed.detail.contains("UnknownIssuer"), "{}", failed.detail);
        assert_eq!(server.join().expect("the server"), b"");
    }
}
