//! NATS JetStream: deliveries that a stream acknowledged, with servers that stop, come back empty, refuse and are full.

use std::process::Output;

use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Message as Received};
use futures_util::StreamExt;
use serde_json::{Value, json};

use handoffd::clock::{Clock, SystemClock};
use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;

use crate::harness::{Agent, Broker, Kind, run, until, within};
use crate::message::Message;
use crate::queues::{NatsServer, python};

const QUICK: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");

/// A connection to a server, without a user.
async fn jetstream(server: &NatsServer) -> jetstream::Context {
    let client = within("a connection", ConnectOptions::new().connect(server.url())).await.unwrap();
    jetstream::new(client)
}

/// Makes the stream `HANDOFFS` of `handoffs.>`, which keeps a message until it is acknowledged.
async fn make_stream(on: &jetstream::Context, config: Config) {
    let config = Config {
        name: "HANDOFFS".to_owned(),
        subjects: vec!["handoffs.>".to_owned()],
        retention: RetentionPolicy::WorkQueue,
        ..config
    };
    on.create_stream(config).await.unwrap();
}

/// The next message of a subject, acknowledged.
async fn receive(on: &jetstream::Context, subject: &str) -> Received {
    let message = next(on, subject).await;
    message.double_ack().await.unwrap();
    message
}

/// The next message of a subject, not acknowledged.
async fn next(on: &jetstream::Context, subject: &str) -> Received {
    let stream = on.get_stream("HANDOFFS").await.unwrap();
    let config = pull::Config {
        durable_name: Some("receiver".to_owned()),
        filter_subject: subject.to_owned(),
        ack_policy: AckPolicy::Explicit,
        ..pull::Config::default()
    };
    let consumer = stream.get_or_create_consumer("receiver", config).await.unwrap();
    within("a message", async {
        loop {
            let mut batch = consumer.fetch().max_messages(1).messages().await.unwrap();
            if let Some(message) = batch.next().await {
                return message.unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

fn header(message: &Received, name: &str) -> String {
    let headers = message.headers.as_ref().expect("headers");
    headers.get(name).map(|value| value.as_str().to_owned()).unwrap_or_default()
}

/// How many messages the stream of handoffs holds.
async fn held(on: &jetstream::Context) -> u64 {
    count(on, "HANDOFFS").await
}

/// `a`, and `b`, which consumes `handoffs.b`.
async fn pair(broker: &Broker, server: &NatsServer, more: Value) -> (Agent, Agent) {
    let mut delivery = json!({
        "mode": "nats",
        "timeoutMs": 1000,
        "config": { "server": server.url(), "subject": "handoffs.{agentId}" },
    });
    merge(&mut delivery, more);
    let a = broker.pull("a", &["b"]).await;
    let b = broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
    (a, b)
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// A signed verdict on a handoff that was received.
fn verdict(by: &Agent, on: &Received, word: &str, more: Value) -> Value {
    let mut verdict = json!({
        "handoffId": header(on, "Handoff-Id"),
        "fencingToken": header(on, "Handoff-Fencing-Token").parse::<i64>().unwrap(),
        "verdict": word,
        "timestamp": SystemClock::default().now().rfc3339(),
    });
    merge(&mut verdict, more);
    let canonical = CanonicalObject::from_value(&verdict).unwrap();
    verdict["signature"] = json!(signature::sign(&canonical, by.signing_secret.as_bytes()));
    verdict
}

/// Publishes to a stream, and waits until it has the message.
async fn publish(on: &jetstream::Context, subject: &str, body: &Value) {
    let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    on.publish(subject.to_owned(), text.into()).await.unwrap().await.unwrap();
}

/// Makes a stream of one subject.
async fn stream_of(
    on: &jetstream::Context,
    name: &str,
    subjects: &[&str],
    retention: RetentionPolicy,
) {
    let subjects = subjects.iter().map(|&subject| subject.to_owned()).collect();
    let config = Config { name: name.to_owned(), subjects, retention, ..Config::default() };
    on.create_stream(config).await.unwrap();
}

/// How many messages a stream holds.
async fn count(on: &jetstream::Context, stream: &str) -> u64 {
    on.get_stream(stream).await.unwrap().info().await.unwrap().state.messages
}

/// The signature that every delivery carries covers the body.
fn check_signature(message: &Received, secret: &str) {
    verify(message, &message.payload, secret);
}

fn verify(message: &Received, body: &[u8], secret: &str) {
    let mut headers = axum::http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, header(message, name).parse().unwrap());
    }
    standardwebhooks::Webhook::new(secret).unwrap().verify(body, &headers).unwrap();
}

/// The answer of `POST /agents/b/delivery/test`: whether it went well, and its whole text.
async fn tested(broker: &Broker) -> (bool, String) {
    let answer = broker.admin.post("/agents/b/delivery/test", &json!({})).await;
    let said = answer.expect(200).body;
    (said["delivered"] == true, said.to_string())
}

both! {
    async fn a_stream_gets_the_handoff_and_its_consumer_accepts(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        let (a, b) = pair(broker, &server, json!({})).await;
        let message = Message::initial("a", "b");
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        a.api.submit_with(&message, &[("traceparent", trace)]).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        check_signature(&got, &b.webhook_secret);
        let body: Value = serde_json::from_slice(&got.payload).unwrap();
        assert_eq!((&body["handoffId"], &body["taskId"]), (&message["handoffId"], &message["taskId"]));
        assert_eq!(header(&got, "Nats-Msg-Id"), format!("{}.1", message.id()));
        assert_eq!(header(&got, "Handoff-Id"), message.id());
        assert_eq!(header(&got, "Handoff-Task-Id"), message.task());
        assert_eq!(header(&got, "Handoff-Attempt"), "1");
        assert!(header(&got, "traceparent").contains("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(broker.handoff_becomes(&message, "PENDING").await["attempts"], 1);
        let token = header(&got, "Handoff-Fencing-Token").parse().unwrap();
        b.say(&message, "accept", token, json!({})).await.expect(200);
        b.say(&message, "complete", token, json!({ "result": { "done": true } })).await.expect(200);
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        assert_eq!(held(&queue).await, 0, "one message, once");
    }

    async fn a_body_that_is_too_large_goes_as_a_claim_check(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        let (a, b) = pair(broker, &server, json!({})).await;
        let large = json!({ "blob": "word ".repeat(250_000) });
        let message = Message::initial("a", "b").set("/currentState", large);
        a.submit(&message).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        let stands_for: Value = serde_json::from_slice(&got.payload).unwrap();
        assert_eq!(stands_for["handoffId"], message["handoffId"]);
        let link = header(&got, "Handoff-Claim-Check");
        let url = format!("{}{link}", broker.admin.base);
        let body = broker.admin.http.get(url).send().await.unwrap().bytes().await.unwrap();
        verify(&got, &body, &b.webhook_secret);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["currentState"], message["currentState"]);
    }

    async fn handoffs_of_a_task_come_in_order(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        let (a, b) = pair(broker, &server, json!({})).await;
        let mut message = Message::initial("a", "b");
        // The third rejection asks a person.
        for _ in 0..3 {
            a.submit(&message).await.expect(202);
            let got = receive(&queue, "handoffs.b").await;
            assert_eq!(header(&got, "Handoff-Id"), message.id());
            let token = header(&got, "Handoff-Fencing-Token").parse().unwrap();
            b.say(&message, "reject", token, json!({ "reason": "NOT_NOW" })).await.expect(200);
            message = message.again();
        }
    }
}

both! {
    with [QUICK]
    async fn nothing_is_lost_while_the_server_is_away(broker: Broker) {
        let server = NatsServer::start("").await;
        make_stream(&jetstream(&server).await, Config::default()).await;
        let (a, b) = pair(broker, &server, json!({})).await;
        let first = Message::initial("a", "b");
        a.submit(&first).await.expect(202);
        receive(&jetstream(&server).await, "handoffs.b").await;
        server.down().await;
        let messages: Vec<Message> = (0..10).map(|_| Message::initial("a", "b")).collect();
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        until("attempts find the server away", async || {
            let away = broker.admin.metrics().await;
            let count = away.lines().filter(|line| line.contains("away") && line.contains("nats")).count();
            if count > 0 { Ok(()) } else { Err(away) }
        })
        .await;
        let away = async || {
            let page = broker.admin.get("/attention?agentId=b").await.expect(200).body;
            let items = page["items"].as_array().unwrap().clone();
            items.into_iter().filter(|one| one["kind"] == "TRANSPORT_AWAY").collect::<Vec<_>>()
        };
        until("the transport needs attention", async || {
            let items = away().await;
            let [item] = items.as_slice() else { return Err(format!("{items:?}")) };
            assert_eq!((&item["agentId"], &item["lastError"]), (&json!("b"), &json!("TRANSPORT_AWAY")));
            let sentence = item["sentence"].as_str().unwrap();
            assert!(sentence.starts_with("The transport nats has been away for "), "{sentence}");
            if item["count"] == json!(10) { Ok(()) } else { Err(item.to_string()) }
        })
        .await;
        server.up().await;
        let queue = jetstream(&server).await;
        let mut ids = std::collections::BTreeSet::new();
        for _ in &messages {
            let got = receive(&queue, "handoffs.b").await;
            assert!(ids.insert(header(&got, "Handoff-Id")), "no handoff twice");
            let path = format!("/handoffs/{}/accept", header(&got, "Handoff-Id"));
            let token: i64 = header(&got, "Handoff-Fencing-Token").parse().unwrap();
            b.api.post(&path, &json!({ "fencingToken": token })).await.expect(200);
        }
        for message in &messages {
            broker.handoff_becomes(message, "ACCEPTED").await;
        }
        assert_eq!(held(&queue).await, 0);
        until("the transport is well", async || {
            let items = away().await;
            if items.is_empty() { Ok(()) } else { Err(format!("{items:?}")) }
        })
        .await;
    }

    async fn a_server_that_comes_back_empty_gets_the_handoffs_once_it_has_a_stream(broker: Broker) {
        let server = NatsServer::start("").await;
        let (a, _b) = pair(broker, &server, json!({})).await;
        server.down().await;
        server.wipe();
        server.up().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("/delivery/config/subject") && said.contains("no stream"), "{said}");
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        assert_eq!(header(&receive(&queue, "handoffs.b").await, "Handoff-Id"), message.id());
    }

    async fn a_full_stream_takes_the_handoff_once_it_has_room(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        let room_for_one = Config { max_messages: 1, discard: DiscardPolicy::New, ..Config::default() };
        make_stream(&queue, room_for_one).await;
        let (a, _b) = pair(broker, &server, json!({})).await;
        let (one, two) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&one).await.expect(202);
        until("the first is held", async || if held(&queue).await == 1 { Ok(()) } else { Err(String::new()) }).await;
        a.submit(&two).await.expect(202);
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("the stream is full") && said.contains("maximum messages exceeded"), "{said}");
        assert_eq!(header(&receive(&queue, "handoffs.b").await, "Handoff-Id"), one.id());
        assert_eq!(header(&receive(&queue, "handoffs.b").await, "Handoff-Id"), two.id());
        let found = broker.handoff_becomes(&two, "PENDING").await;
        assert_eq!(found["status"], "PENDING", "{found}");
    }

    async fn refused_credentials_are_named_and_new_ones_help(broker: Broker) {
        let users = r#"authorization { users: [ {user: "broker", password: "right"} ] }"#;
        let server = NatsServer::start(users).await;
        let login = ConnectOptions::with_user_and_password("broker".to_owned(), "right".to_owned());
        let queue = jetstream::new(login.connect(server.url()).await.unwrap());
        make_stream(&queue, Config::default()).await;
        let wrong = json!({ "credentials": { "username": "broker", "password": "wrong" } });
        let (a, _b) = pair(broker, &server, wrong).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("/delivery/credentials") && said.contains("authorization violation"), "{said}");
        assert!(!said.contains("wrong"), "{said}");
        let shown = broker.admin.get("/agents/b").await.expect(200).body;
        assert_eq!(shown["delivery"]["credentialsSet"], json!(["password", "username"]), "{shown}");
        let mut delivery = shown["delivery"].clone();
        delivery["credentials"] = json!({ "username": "broker", "password": "right" });
        broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
        assert_eq!(header(&receive(&queue, "handoffs.b").await, "Handoff-Id"), message.id());
        let (ok, said) = tested(broker).await;
        assert!(ok && said.contains("HANDOFFS"), "{said}");
    }
}

const REPLIES: &str = "verdicts.b";

both! {
    async fn verdicts_come_back_by_a_subject(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        stream_of(&queue, "VERDICTS", &["verdicts.>"], RetentionPolicy::WorkQueue).await;
        let (a, b) = pair(broker, &server, json!({ "config": { "replyTo": REPLIES } })).await;
        let (one, two) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&one).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        assert_eq!(header(&got, "Handoff-Reply-To"), REPLIES);
        // Another's signature, and no verdict at all: both change nothing.
        publish(&queue, REPLIES, &verdict(&a, &got, "complete", json!({}))).await;
        publish(&queue, REPLIES, &json!("not a verdict")).await;
        let accept = verdict(&b, &got, "accept", json!({}));
        publish(&queue, REPLIES, &accept).await;
        publish(&queue, REPLIES, &accept).await;
        let done = json!({ "result": { "total": 12 } });
        publish(&queue, REPLIES, &verdict(&b, &got, "complete", done)).await;
        broker.handoff_becomes(&one, "COMPLETED").await;
        assert_eq!(broker.kinds(&one).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        a.submit(&two).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        publish(&queue, REPLIES, &verdict(&b, &got, "reject", json!({ "reason": "MISSING_CAPABILITY" }))).await;
        assert_eq!(broker.handoff_becomes(&two, "REJECTED").await["reason"], "MISSING_CAPABILITY");
        until("every reply is acknowledged", async || {
            match count(&queue, "VERDICTS").await { 0 => Ok(()), left => Err(format!("{left} left")) }
        })
        .await;
    }

    async fn a_verdict_waits_for_a_broker_that_restarts(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        stream_of(&queue, "VERDICTS", &["verdicts.>"], RetentionPolicy::Limits).await;
        let (a, b) = pair(broker, &server, json!({ "config": { "replyTo": REPLIES } })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        let admin = broker.restart().await;
        publish(&queue, REPLIES, &verdict(&b, &got, "accept", json!({}))).await;
        until("the restarted broker hears the verdict", async || {
            let found = admin.get(&message.path()).await.expect(200).body;
            if found["status"] == "ACCEPTED" { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }
}

/// Several brokers share one Postgres.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_brokers_share_the_verdicts() {
    run(Kind::Postgres, &[], async |broker| {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        stream_of(&queue, "VERDICTS", &["verdicts.>"], RetentionPolicy::WorkQueue).await;
        let (a, b) = pair(broker, &server, json!({ "config": { "replyTo": REPLIES } })).await;
        let (_, second) = broker.second().await;
        let messages: Vec<Message> = (0..20).map(|_| Message::initial("a", "b")).collect();
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        for _ in &messages {
            let got = receive(&queue, "handoffs.b").await;
            publish(&queue, REPLIES, &verdict(&b, &got, "accept", json!({}))).await;
        }
        for message in &messages {
            broker.handoff_becomes(message, "ACCEPTED").await;
            assert_eq!(broker.kinds(message).await, ["HANDOFF", "ACCEPTED"]);
        }
        within("an orderly stop", second.stop()).await;
    })
    .await;
}

/// Handoffs in: the broker's settings name the server, so that each case starts its own.
async fn intake(kind: Kind) {
    let server = NatsServer::start("").await;
    let queue = jetstream(&server).await;
    stream_of(&queue, "IN", &["handoffd.in"], RetentionPolicy::WorkQueue).await;
    stream_of(&queue, "OUT", &["handoffd.refused", "handoffd.parked"], RetentionPolicy::Limits)
        .await;
    let url = server.url();
    let settings = [("HANDOFFD_TRANSPORTS__NATS__INTAKE__SERVER", url.as_str())];
    Box::pin(run(kind, &settings, async |broker| {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b").signed(&a.signing_secret);
        publish(&queue, "handoffd.in", &message).await;
        publish(&queue, "handoffd.in", &message).await;
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let forged = Message::initial("a", "b").signed(&b.signing_secret);
        publish(&queue, "handoffd.in", &forged).await;
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Expected-Stream", "IN");
        headers.insert("Sender", "a");
        let poison = queue.publish_with_headers("handoffd.in", headers, "no message".into());
        poison.await.unwrap().await.unwrap();
        until("everything is taken", async || {
            let (left, out) = (count(&queue, "IN").await, count(&queue, "OUT").await);
            if (left, out) == (0, 2) { Ok(()) } else { Err(format!("{left} left, {out} answered")) }
        })
        .await;
        let out = queue.get_stream("OUT").await.unwrap();
        let refused = out.get_last_raw_message_by_subject("handoffd.refused").await.unwrap();
        let problem: Value = serde_json::from_slice(&refused.payload).unwrap();
        assert_eq!(
            (&problem["code"], &problem["instance"]),
            (&json!("SIGNATURE_INVALID"), &json!(forged.path()))
        );
        let parked = out.get_last_raw_message_by_subject("handoffd.parked").await.unwrap();
        assert_eq!(parked.payload, "no message");
        assert!(parked.headers.get("Handoff-Parked-Reason").is_some());
        assert_eq!(parked.headers.get("Sender").unwrap().as_str(), "a");
        let kinds = broker.kinds(&message).await;
        assert_eq!(kinds, ["HANDOFF", "ACCEPTED"], "once, although it came twice");
        server.down().await;
        server.up().await;
        let after = Message::initial("a", "b").signed(&a.signing_secret);
        publish(&jetstream(&server).await, "handoffd.in", &after).await;
        // Messages that the server gave to the broken connection come again after the acknowledgement's time.
        let mut items = Vec::new();
        for _ in 0..4 {
            items = b.claim(1).await;
            if !items.is_empty() {
                break;
            }
        }
        let left = count(&jetstream(&server).await, "IN").await;
        let metrics = broker.admin.metrics().await;
        let taken: Vec<&str> =
            metrics.lines().filter(|line| line.contains("queue_submissions")).collect();
        assert_eq!(items.len(), 1, "the intake goes on: {left} left, {taken:?}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_come_in_by_a_subject_sqlite() {
    Box::pin(intake(Kind::Sqlite)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_come_in_by_a_subject_postgres() {
    Box::pin(intake(Kind::Postgres)).await;
}

/// The receiver of docs/transports/nats.md, in the language of most receivers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_in_python_accepts_and_completes() {
    let Some(python) = python(&["nats-py"]).await else { return };
    run(Kind::Sqlite, &[], async |broker| {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        stream_of(&queue, "VERDICTS", &["verdicts.>"], RetentionPolicy::WorkQueue).await;
        let (a, b) = pair(broker, &server, json!({ "config": { "replyTo": REPLIES } })).await;
        assert!(tested(broker).await.0);
        let messages: Vec<Message> = (0..3).map(|_| Message::initial("a", "b")).collect();
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        let mut receiver = tokio::process::Command::new(python);
        receiver
            .arg("nats_receiver.py")
            .args([&server.url(), "HANDOFFS", "handoffs.b", "3"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/transports"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HANDOFF_WEBHOOK_SECRET", &b.webhook_secret)
            .env("HANDOFF_SIGNING_SECRET", &b.signing_secret);
        let Output { status, stderr, .. } =
            within("the receiver's end", receiver.output()).await.unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        for message in &messages {
            broker.handoff_becomes(message, "COMPLETED").await;
            assert_eq!(broker.kinds(message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        }
        assert_eq!(held(&queue).await, 0);
    })
    .await;
}

/// A certificate authority's certificate and, signed by it, a certificate of `localhost` and one of a client, each with
/// its key, as PEM.
pub struct Certificates {
    pub ca: String,
    pub server: (String, String),
    pub client: (String, String),
    /// As `server`, and long expired.
    pub expired: (String, String),
}

pub fn certificates() -> Certificates {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose subject is its issuer for one that signed itself.
    ca.distinguished_name.push(DnType::CommonName, "an authority");
    let certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let signed = |name: &str, until: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    Certificates {
        ca: certificate.pem(),
        server: signed("localhost", 2090),
        client: signed("broker", 2090),
        expired: signed("localhost", 2020),
    }
}

both! {
    async fn a_first_server_that_is_silent_hides_no_second(broker: Broker) {
        let server = NatsServer::start("").await;
        let queue = jetstream(&server).await;
        make_stream(&queue, Config::default()).await;
        // Accepts connections and says nothing.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let list = format!("nats://{},{}", silent.local_addr().unwrap(), server.url());
        let (a, _) = pair(broker, &server, json!({ "config": { "server": list } })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let got = receive(&queue, "handoffs.b").await;
        assert_eq!(header(&got, "Handoff-Id"), message.id());
    }

    async fn certificates_that_cannot_serve_are_refused_with_the_registration(broker: Broker) {
        let (pems, others) = (certificates(), certificates());
        let (chain, key) = &pems.client;
        let junk = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n";
        let whole = json!({ "clientCertificate": chain, "clientKey": key });
        for (mode, server, channel) in [
            ("nats", "tls://localhost", "subject"),
            ("redis", "rediss://localhost", "stream"),
            ("amqp", "amqps://localhost", "routingKey"),
        ] {
            let spec = |ca: &str, credentials: Value| {
                let mut config = json!({ "server": server, "caCertificate": ca });
                config[channel] = json!("handoffs.b");
                let mut credentials = credentials;
                if mode == "amqp" {
                    merge(&mut credentials, json!({ "username": "u", "password": "p" }));
                }
                let delivery = json!({ "mode": mode, "config": config, "credentials": credentials });
                json!({ "agentId": mode, "delivery": delivery })
            };
            let of_another = json!({ "clientCertificate": chain, "clientKey": others.client.1 });
            let no_chain = json!({ "clientCertificate": key, "clientKey": key });
            let no_key = json!({ "clientCertificate": chain, "clientKey": chain });
            for (ca, credentials, pointer) in [
                (junk, whole.clone(), "/delivery/config/caCertificate"),
                (key.as_str(), whole.clone(), "/delivery/config/caCertificate"),
                (&pems.ca, of_another, "/delivery/credentials/clientCertificate"),
                (&pems.ca, no_chain, "/delivery/credentials/clientCertificate"),
                (&pems.ca, no_key, "/delivery/credentials/clientKey"),
            ] {
                let problem = broker.admin.post("/agents", &spec(ca, credentials)).await.expect(422);
                assert!(problem.text.contains(pointer), "{mode}, {pointer}: {}", problem.text);
                assert!(!problem.text.contains("PRIVATE KEY"), "{}", problem.text);
            }
            broker.admin.post("/agents", &spec(&pems.ca, whole.clone())).await.expect(201);
        }
    }
}

/// Every way to log in, over TLS that checks both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_to_log_in_works_over_tls() {
    let pems = certificates();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{:?}", path.display().to_string())
    };
    let tls = format!(
        "tls {{ cert_file: {}, key_file: {}, ca_file: {}, verify: true }}",
        file("server.pem", &pems.server.0),
        file("server.key", &pems.server.1),
        file("ca.pem", &pems.ca)
    );
    let user = nkeys::KeyPair::new_user();
    let (public, seed) = (user.public_key(), user.seed().unwrap());
    let client = json!({ "clientCertificate": pems.client.0, "clientKey": pems.client.1 });
    run(Kind::Sqlite, &[], async |broker| {
        for (login, credentials) in [
            (String::new(), json!({})),
            (
                r#"authorization { users: [ {user: "u", password: "p"} ] }"#.to_owned(),
                json!({ "username": "u", "password": "p" }),
            ),
            (r#"authorization { token: "t0ken" }"#.to_owned(), json!({ "token": "t0ken" })),
            (
                format!("authorization {{ users: [ {{ nkey: {public} }} ] }}"),
                json!({ "nkeySeed": seed }),
            ),
        ] {
            let server = NatsServer::start(&format!("{tls}\n{login}")).await;
            let mut credentials = credentials;
            merge(&mut credentials, client.clone());
            let delivery = |ca: &str, credentials: &Value| {
                json!({
                    "mode": "nats",
                    "config": {
                        "server": format!("tls://localhost:{}", server.port),
                        "subject": "handoffs.b",
                        "caCertificate": ca,
                    },
                    "credentials": credentials,
                })
            };
            let spec = json!({ "agentId": "b", "delivery": delivery(&pems.ca, &credentials) });
            broker.agent(spec).await;
            // Let in: the one thing that is missing is a stream.
            let (ok, said) = tested(broker).await;
            assert!(!ok && said.contains("no stream keeps the subject"), "{login}: {said}");
            // Another authority, and no certificate of the client: neither connects.
            let other = delivery(&certificates().ca, &credentials);
            broker.admin.patch("/agents/b", &json!({ "delivery": other })).await.expect(200);
            let (ok, said) = tested(broker).await;
            assert!(
                !ok && said.contains("\"tls\"") && said.contains("/delivery/config/server"),
                "{said}"
            );
            let anonymous = delivery(&pems.ca, &json!({}));
            broker.admin.patch("/agents/b", &json!({ "delivery": anonymous })).await.expect(200);
            assert!(!tested(broker).await.0);
            broker.admin.delete("/agents/b").await.expect(204);
        }
    })
    .await;
}

/// The address of a queue server is subject to the same rules as that of a webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_egress_rules_hold_for_queue_servers() {
    run(Kind::Sqlite, &[("HANDOFFD_EGRESS_ALLOW", "")], async |broker| {
        let server = NatsServer::start("").await;
        make_stream(&jetstream(&server).await, Config::default()).await;
        let (a, _b) = pair(broker, &server, json!({})).await;
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("egress") && said.contains("HANDOFFD_EGRESS_ALLOW"), "{said}");
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "FAILED").await;
    })
    .await;
}
