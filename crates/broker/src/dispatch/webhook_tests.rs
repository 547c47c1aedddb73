//! Attempts against real receivers on port 0.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap as Received, StatusCode, Uri};
use axum::routing::any;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::egress::exchange::ANSWER_MAX_BYTES;
use crate::egress::{self, ClientSettings, EgressPolicy};
use crate::transport::AnswerFields;
use crate::transport::standard_webhooks::{TOLERANCE, verify};

const LOOPBACK: &str = "127.0.0.0/8,::1/128";
const AT: i64 = 1_614_265_330;
const GENEROUS: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

fn secret() -> WebhookSecret {
    WebhookSecret::from_bytes(&[9; 32]).expect("a secret")
}

fn client(allowed: &str) -> WebhookClient {
    let policy = EgressPolicy::parse(allowed).expect("a policy");
    WebhookClient::new(egress::client(policy, &ClientSettings::default()).expect("a client"))
}

fn resolving_by(inner: impl Resolve + 'static, allowed: &str) -> WebhookClient {
    let policy = EgressPolicy::parse(allowed).expect("a policy");
    let settings = ClientSettings {
        connect_timeout: SHORT,
        pool_max_idle_per_host: 0,
        ..ClientSettings::default()
    };
    let client = egress::client_with_resolver(policy, &settings, Arc::new(inner));
    WebhookClient::new(client.expect("a client"))
}

fn request(url: impl Into<String>) -> WebhookRequest {
    WebhookRequest {
        encoded: None,
        url: url.into(),
        body: Bytes::from_static(br#"{"handoffId":"h-1"}"#),
        id: "msg_1".to_owned(),
        timestamp_s: AT,
        secrets: vec![secret()],
        headers: HandoffHeaders::default(),
        timeout: GENEROUS,
        verdict: VerdictClock::FromFirstByte(GENEROUS),
    }
}

async fn outcome(client: &WebhookClient, request: WebhookRequest) -> AttemptOutcome {
    client.send(request).await.outcome
}

async fn failure(client: &WebhookClient, request: WebhookRequest) -> AttemptFailure {
    match client.send(request).await.outcome {
        AttemptOutcome::Failed(failure) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

async fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

/// Serves a router and returns its base URL.
async fn serve(router: Router) -> String {
    let (listener, address) = bound().await;
    tokio::spawn(async move {
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).await
    });
    format!("http://{address}")
}

/// A server that answers every connection with fixed bytes after a request, then closes or stays silent.
async fn raw(answer: Vec<u8>, close: bool) -> String {
    let (listener, address) = bound().await;
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(&answer).await;
            if !close {
                silent.push(stream);
            }
        }
    });
    format!("http://{address}/")
}

fn answering(status: u16, headers: &'static [(&str, &str)], body: &'static str) -> Router {
    Router::new().fallback(any(move || async move {
        let status = StatusCode::from_u16(status).expect("a status");
        let headers: Received = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        (status, headers, body)
    }))
}

/// Status, headers and body of an answer, and the expected outcome.
type AnswerCase = (u16, &'static [(&'static str, &'static str)], &'static str, AttemptOutcome);

#[tokio::test]
async fn the_answer_table_holds_over_the_wire() {
    let client = client(LOOPBACK);
    let accepted = AttemptOutcome::Accepted(AnswerFields::default());
    let rejected = AttemptOutcome::Rejected {
        reason: Some("NO_SKILL".to_owned()),
        fields: AnswerFields {
            details: Some(json!({"missing":["law"]})),
            ..AnswerFields::default()
        },
    };
    let busy =
        |secs| AttemptOutcome::Busy { retry_after: Some(Duration::from_secs(secs)), reached: true };
    let no = r#"{"status":"REJECTED","reason":"NO_SKILL","details":{"missing":["law"]}}"#;
    let rows: [AnswerCase; 10] = [
        (200, &[], r#"{"status":"ACCEPTED"}"#, accepted.clone()),
        (200, &[], r#"{"accepted":true}"#, accepted.clone()),
        (200, &[], "", accepted.clone()),
        (204, &[], "", accepted),
        (200, &[], no, rejected.clone()),
        (409, &[], no, rejected.clone()),
        (422, &[], no, rejected),
        (202, &[], "", AttemptOutcome::Received),
        (410, &[], "", AttemptOutcome::Gone),
        (429, &[("retry-after", "7")], "", busy(7)),
    ];
    for (status, headers, body, expected) in rows {
        let url = serve(answering(status, headers, body)).await;
        assert_eq!(outcome(&client, request(url)).await, expected, "{status} {body}");
    }
    // Ten seconds after the attempt's own time, as a date.
    let date = &[("retry-after", "Thu, 25 Feb 2021 15:02:20 GMT")];
    let url = serve(answering(503, date, "")).await;
    assert!(matches!(
        outcome(&client, request(url)).await,
        AttemptOutcome::Busy { retry_after: Some(wait), .. } if wait <= Duration::from_secs(10)
            && wait >= Duration::from_secs(5)
    ));
    let url = serve(answering(200, &[], "<h1>It works!</h1>")).await;
    let failed = failure(&client, request(url)).await;
    assert_eq!((failed.class, failed.reached), (FailureClass::Protocol, true));
    let url = serve(answering(500, &[], "")).await;
    let failed = failure(&client, request(url)).await;
    assert_eq!((failed.class, failed.status), (FailureClass::Status, Some(500)));
}

#[tokio::test]
async fn the_request_is_signed_and_labelled() {
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let router =
        Router::new().fallback(any(move |uri: Uri, headers: Received, body: Bytes| async move {
            *keep.lock().expect("lock") = Some((uri, headers, body));
            StatusCode::NO_CONTENT
        }));
    let url = serve(router).await;
    let mut sent = request(format!("{url}/hook?tenant=1#part"));
    let second = WebhookSecret::from_bytes(&[8; 24]).expect("a secret");
    sent.secrets.push(second.clone());
    sent.headers = HandoffHeaders {
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        tracestate: Some("vendor=1".to_owned()),
        handoff_id: Some("h-1".to_owned()),
        task_id: Some("t-1".to_owned()),
        attempt: Some(2),
        fencing_token: Some(41),
        chunk: None,
        test: false,
        authorization: Some("Bearer for-you".to_owned()),
        notification_token: Some("told-you".to_owned()),
    };
    let answer = outcome(&client(LOOPBACK), sent).await;
    assert_eq!(answer, AttemptOutcome::Accepted(AnswerFields::default()));
    let (uri, headers, body) = seen.lock().expect("lock").take().expect("a request");
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert_eq!(uri, "/hook?tenant=1");
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("user-agent"), egress::USER_AGENT);
    assert_eq!(header("webhook-id"), "msg_1");
    assert_eq!(header("authorization"), "Bearer for-you");
    assert_eq!(header("x-a2a-notification-token"), "told-you");
    assert_eq!(header("handoff-id"), "h-1");
    assert_eq!(header("handoff-task-id"), "t-1");
    assert_eq!(header("handoff-attempt"), "2");
    assert_eq!(header("handoff-fencing-token"), "41");
    assert_eq!(header("tracestate"), "vendor=1");
    assert!(header("traceparent").starts_with("00-0af7"));
    for secret in [secret(), second] {
        let checked = verify(
            &[secret],
            header("webhook-id"),
            header("webhook-timestamp"),
            header("webhook-signature"),
            &body,
            AT,
            TOLERANCE,
        );
        assert_eq!(checked, Ok(()));
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_its_target_is_not_contacted() {
    let hits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&hits);
    let target = serve(Router::new().fallback(any(move || async move {
        count.fetch_add(1, Ordering::SeqCst);
    })))
    .await;
    for status in [301, 302, 303, 307, 308] {
        let location = target.clone();
        let router = Router::new().fallback(any(move || async move {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, [("location", location)])
        }));
        let failed = failure(&client(LOOPBACK), request(serve(router).await)).await;
        assert_eq!(failed.class, FailureClass::Redirect);
        assert_eq!(failed.status, Some(status));
        assert!(failed.reached);
    }
    assert_eq!(hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn f2_4_the_verdict_has_its_time_from_the_first_byte_on() {
    let silent = Router::new().fallback(any(async || {
        tokio::time::sleep(GENEROUS).await;
        StatusCode::OK
    }));
    let (url, client) = (serve(silent).await, client(LOOPBACK));
    for clock in [VerdictClock::FromFirstByte(SHORT), VerdictClock::Running(SHORT)] {
        let sent = WebhookRequest { verdict: clock, ..request(&url) };
        let Posted { outcome, timing, .. } = client.send(sent).await;
        let AttemptOutcome::Failed(failure) = outcome else { panic!("no failure: {outcome:?}") };
        assert_eq!((failure.class, failure.reached), (FailureClass::Timeout, true));
        assert!(timing.overdue && timing.elapsed < GENEROUS / 2, "{timing:?}");
        assert!(timing.sent.is_some_and(|sent| sent <= timing.elapsed));
    }
    // The attempt's own time ends before the verdict's: a failed attempt, not a late verdict.
    let sent = WebhookRequest { timeout: SHORT, ..request(&url) };
    let Posted { timing, .. } = client.send(sent).await;
    assert!(!timing.overdue && timing.sent.is_some());
    // Nothing left for a receiver that is not there: its clock did not start.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let Posted { timing, .. } = client.send(request(format!("http://{nobody}/"))).await;
    assert!(!timing.overdue && timing.sent.is_none(), "{timing:?}");
}

#[tokio::test]
async fn silence_is_a_timeout_that_may_have_reached_the_receiver() {
    let url = serve(Router::new().fallback(any(std::future::pending::<()>))).await;
    let mut sent = request(url);
    sent.timeout = SHORT;
    let Posted { outcome: ended, timing, .. } = client(LOOPBACK).send(sent).await;
    let AttemptOutcome::Failed(failed) = ended else {
        panic!("no failure: {ended:?}");
    };
    assert_eq!((failed.class, failed.reached, failed.status), (FailureClass::Timeout, true, None));
    assert!(timing.elapsed >= SHORT);

    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec();
    let mut sent = request(raw(head, false).await);
    sent.timeout = SHORT;
    let failed = failure(&client(LOOPBACK), sent).await;
    assert_eq!(
        (failed.class, failed.reached, failed.status),
        (FailureClass::Timeout, true, Some(200))
    );
}

#[tokio::test]
async fn a_body_that_does_not_matter_is_not_waited_for() {
    let head = b"HTTP/1.1 503 Busy\r\ncontent-length: 10\r\n\r\n".to_vec();
    let url = raw(head, false).await;
    assert_eq!(
        outcome(&client(LOOPBACK), request(url)).await,
        AttemptOutcome::Busy { retry_after: None, reached: true }
    );
}

#[tokio::test]
async fn failures_before_the_request_left_are_known_as_such() {
    let (listener, address) = bound().await;
    drop(listener);
    for scheme in ["http", "https"] {
        let failed = failure(&client(LOOPBACK), request(format!("{scheme}://{address}"))).await;
        assert_eq!((failed.class, failed.reached), (FailureClass::Connect, false));
        assert!(failed.detail.contains("refused"), "{}", failed.detail);
    }
    let plain = serve(answering(204, &[], "")).await;
    let url = plain.replace("http://", "https://");
    let failed = failure(&client(LOOPBACK), request(url)).await;
    assert_eq!((failed.class, failed.reached), (FailureClass::Tls, false));
}

/// A resolver that fails, never answers, or returns one address after the other.
enum ScriptedResolver {
    Fails,
    Hangs,
    Gives(Mutex<Vec<IpAddr>>),
}

impl Resolve for ScriptedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        match self {
            Self::Fails => Box::pin(async { Err("no such name".into()) }),
            Self::Hangs => Box::pin(std::future::pending()),
            Self::Gives(left) => {
                let next = left.lock().expect("lock").pop().expect("one more");
                let found = std::iter::once(SocketAddr::new(next, 0));
                Box::pin(async move { Ok(Box::new(found) as Addrs) })
            }
        }
    }
}

#[tokio::test]
async fn resolution_that_fails_or_hangs_never_reached_the_receiver() {
    let failed =
        failure(&resolving_by(ScriptedResolver::Fails, ""), request("http://agent.example/")).await;
    assert_eq!((failed.class, failed.reached), (FailureClass::Dns, false));
    let failed =
        failure(&resolving_by(ScriptedResolver::Hangs, ""), request("https://agent.example/"))
            .await;
    assert_eq!((failed.class, failed.reached), (FailureClass::Timeout, false));
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_judged_at_every_connection() {
    let hits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&hits);
    let router = Router::new().fallback(any(move || async move {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = vec![IpAddr::from([127, 0, 0, 2]), IpAddr::from(Ipv4Addr::LOCALHOST)];
    let client = resolving_by(ScriptedResolver::Gives(Mutex::new(script)), "127.0.0.1/32");
    let url = format!("http://agent.example:{port}/");
    let first = outcome(&client, request(&url)).await;
    assert_eq!(first, AttemptOutcome::Accepted(AnswerFields::default()));
    let failed = failure(&client, request(&url)).await;
    assert_eq!((failed.class, failed.reached), (FailureClass::Egress, false));
    assert_eq!(hits.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn loopback_is_refused_unless_allowed_by_name_and_by_number() {
    let url = serve(answering(204, &[], "")).await;
    let port = url.rsplit(':').next().expect("a port");
    for host in
        ["localhost", "127.0.0.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"]
    {
        let url = format!("http://{host}:{port}/");
        let failed = failure(&client(""), request(&url)).await;
        assert_eq!((failed.class, failed.reached), (FailureClass::Egress, false), "{host}");
        assert_eq!(
            outcome(&client(LOOPBACK), request(&url)).await,
            AttemptOutcome::Accepted(AnswerFields::default()),
            "{host}"
        );
    }
    for url in ["http://169.254.169.254/", "http://u:p@example.com/", "gopher://x/", ""] {
        let failed = failure(&client(LOOPBACK), request(url)).await;
        assert_eq!((failed.class, failed.reached), (FailureClass::Egress, false));
    }
}

#[tokio::test]
async fn oversized_and_broken_answers_fail() {
    let large = "x".repeat(ANSWER_MAX_BYTES + 1);
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{large}", large.len());
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"status\":\"ACCEPTED\"}".to_owned();
    let rows = [
        (announced, FailureClass::BodyTooLarge, Some(200)),
        (chunked, FailureClass::BodyTooLarge, Some(200)),
        (cut, FailureClass::Protocol, Some(200)),
        (String::new(), FailureClass::Protocol, None),
        ("SSH-2.0-x\r\n".to_owned(), FailureClass::Protocol, None),
    ];
    for (answer, class, status) in rows {
        let url = raw(answer.into_bytes(), true).await;
        let failed = failure(&client(LOOPBACK), request(url)).await;
        assert_eq!((failed.class, failed.reached, failed.status), (class, true, status));
    }
    let exact = format!(r#"{{"status":"ACCEPTED","pad":"{}"}}"#, "x".repeat(ANSWER_MAX_BYTES - 30));
    let url = serve(Router::new().fallback(any(move || async move { exact }))).await;
    assert_eq!(
        outcome(&client(LOOPBACK), request(url)).await,
        AttemptOutcome::Accepted(AnswerFields::default())
    );
}

#[tokio::test]
async fn illegal_headers_and_missing_secrets_are_outcomes() {
    let client = client(LOOPBACK);
    let mut bad_id = request("http://127.0.0.1:9/");
    bad_id.id = "a\r\nx: y".to_owned();
    let mut bad_trace = request("http://127.0.0.1:9/");
    bad_trace.headers.traceparent = Some("00-\u{0}".to_owned());
    let mut unsigned = request("http://127.0.0.1:9/");
    unsigned.secrets.clear();
    for sent in [bad_id, bad_trace, unsigned] {
        let failed = failure(&client, sent).await;
        assert_eq!((failed.class, failed.reached), (FailureClass::Request, false));
    }
}

#[tokio::test]
async fn connections_are_kept_and_used_again() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&peers);
    let router =
        Router::new().fallback(any(move |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move {
            let mut peers = seen.lock().expect("lock");
            peers.push(peer);
            if peers.len() % 2 == 0 {
                (StatusCode::SERVICE_UNAVAILABLE, "later")
            } else {
                (StatusCode::OK, r#"{"accepted":true}"#)
            }
        }));
    let url = serve(router).await;
    let client = client(LOOPBACK);
    for _ in 0..4 {
        outcome(&client, request(&url)).await;
    }
    let mut peers = peers.lock().expect("lock").clone();
    assert_eq!(peers.len(), 4);
    peers.dedup();
    assert_eq!(peers.len(), 1, "one connection for all");
}

#[test]
fn requests_show_no_content() {
    let sent = request("https://agent.example/secret-path?token=1");
    let text = format!("{sent:?}");
    assert!(!text.contains("handoffId") && !text.contains("secret-path"));
}
