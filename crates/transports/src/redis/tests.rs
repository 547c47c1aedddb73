use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use handoffd_broker::transport::standard_webhooks::WebhookSecret;
use handoffd_broker::transport::{AttemptOutcome, Envelope, Fields, VerdictClock};
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_store::clock;

fn object(value: serde_json::Value) -> Map<String, Value> {
    let serde_json::Value::Object(members) = value else { panic!("an object") };
    members
}

fn transport(allowed: &str) -> RedisTransport {
    let _ = rustls::crypto::ring::default_provider().install_default();
    RedisTransport::new(EgressPolicy::parse(allowed).unwrap(), None)
}

fn attempt(server: &str) -> Attempt {
    let config = object(json!({"server": server, "stream": "s"}));
    Attempt {
        endpoint: Endpoint {
            tenant: "t".parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            url: None,
            config: config.into(),
            credentials: Fields::default(),
        },
        envelope: Envelope {
            handoff_id: HandoffId(clock::random_id()),
            task_id: TaskId(clock::random_id()),
            attempt: 3,
            fencing_token: 9,
            traceparent: None,
            tracestate: None,
            reply_to: None,
            timestamp_s: 1,
            secrets: vec![WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()],
            claim_check: None,
            coding: None,
            test: false,
        },
        body: "{}".into(),
        encoded: None,
        timeout: Duration::from_millis(300),
        verdict: VerdictClock::Stopped,
    }
}

fn away(publication: Publication) -> AttemptFailure {
    match publication.outcome {
        AttemptOutcome::Away(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rules_between_fields_name_the_field() {
    let transport = transport("");
    for (config, set, pointer) in [
        (json!({"server": "redis://h", "stream": "s"}), &[][..], None),
        (json!({"server": "rediss://h", "stream": "s", "caCertificate": "x"}), &[], None),
        (
            json!({"server": "redis://h", "stream": "s", "caCertificate": "x"}),
            &[],
            Some("/delivery/config/caCertificate"),
        ),
        (
            json!({"server": "redis://h", "stream": "s", "replyTo": "s"}),
            &[],
            Some("/delivery/config/replyTo"),
        ),
        (
            json!({"server": "redis://h", "stream": "s"}),
            &["username"],
            Some("/delivery/credentials/username"),
        ),
        (
            json!({"server": "rediss://h", "stream": "s"}),
            &["clientKey"],
            Some("/delivery/credentials/clientKey"),
        ),
    ] {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let errors = transport.check(&object(config.clone()), &set);
        let pointers: Vec<_> = errors.iter().map(|(pointer, _)| pointer.as_str()).collect();
        assert_eq!(pointers, pointer.into_iter().collect::<Vec<_>>(), "{config}");
    }
}

#[tokio::test]
async fn a_refused_address_is_a_failure_and_a_dead_server_is_away() {
    let publication = transport("").publish(attempt("redis://127.0.0.1:1")).await;
    let AttemptOutcome::Failed(failure) = publication.outcome else {
        panic!("{:?}", publication.outcome)
    };
    assert_eq!((failure.class, failure.reached), (FailureClass::Egress, false));
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = dead.local_addr().unwrap();
    drop(dead);
    let transport = transport("127.0.0.0/8");
    let failure = away(transport.publish(attempt(&format!("redis://{address}"))).await);
    assert_eq!((failure.class, failure.reached), (FailureClass::Connect, false), "{failure:?}");
    assert_eq!(failure.field, Some("/delivery/config/server"));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_away_within_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let started = Instant::now();
    let transport = transport("127.0.0.0/8");
    let failure = away(transport.publish(attempt(&format!("redis://{address}"))).await);
    assert_eq!((failure.class, failure.reached), (FailureClass::Timeout, false), "{failure:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_server_whose_reply_has_no_end_is_left() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let liar = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = liar.local_addr().unwrap();
    let sends = tokio::spawn(async move {
        let (mut stream, _) = liar.accept().await.unwrap();
        let mut command = [0; 1024];
        let filler = vec![b'x'; 65_536];
        let mut sent = 0;
        assert!(stream.read(&mut command).await.unwrap() > 0);
        stream.write_all(b"$500000000\r\n").await.unwrap();
        while stream.write_all(&filler).await.is_ok() && sent < 500_000_000 {
            sent += 65_536;
        }
        sent
    });
    let transport = transport("127.0.0.0/8");
    let attempt =
        Attempt { timeout: Duration::from_secs(30), ..attempt(&format!("redis://{address}")) };
    let failure = away(transport.publish(attempt).await);
    assert_eq!((failure.class, failure.reached), (FailureClass::Protocol, false), "{failure:?}");
    assert!(failure.answered.unwrap().contains("larger than 1048576 bytes"));
    // The sockets' buffers take some bytes more.
    let sent = sends.await.unwrap();
    assert!(sent < 50_000_000, "{sent} bytes were taken");
}
