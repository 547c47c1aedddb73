//! AMQP 0-9-1: deliveries that a RabbitMQ server confirmed, with queues that are missing and full, and servers that stop
//! and block.

use std::collections::BTreeSet;
use std::time::Duration;

use handoffd::clock::{Clock, SystemClock, random_id};
use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ExchangeDeclareOptions,
    ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Kind, run, until, within};
use crate::message::Message;
use crate::queues::{RabbitNode, amqp_url, python};

const QUICK: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");

/// A queue of the case's own, and a channel to it.
struct Queue {
    server: String,
    name: String,
    channel: Channel,
    _connection: Connection,
}

impl Queue {
    /// On the server that cases share; the queue is not declared.
    async fn new() -> Self {
        Self::on(&amqp_url()).await
    }

    async fn on(url: &str) -> Self {
        let connecting = Connection::connect(url, ConnectionProperties::default());
        let connection = within("a connection", connecting).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let server = url::Url::parse(url).unwrap();
        let server = format!("amqp://{}:{}", server.host_str().unwrap(), server.port().unwrap());
        let name = format!("handoffd.{}", random_id().simple());
        Self { server, name, channel, _connection: connection }
    }

    async fn declare(&self, arguments: &[(&'static str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        // It goes with its last consumer at the latest.
        table.insert("x-expires".into(), AMQPValue::LongInt(600_000));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(self.name.as_str().into(), options, table).await.unwrap();
    }

    /// The next message, acknowledged.
    async fn receive(&self) -> Delivery {
        self.receive_from(&self.name).await
    }

    async fn receive_from(&self, queue: &str) -> Delivery {
        within("a message", async {
            loop {
                let got = self.channel.basic_get(queue.into(), BasicGetOptions::default());
                if let Some(message) = got.await.unwrap() {
                    message.delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
                    return message.delivery;
                }
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        })
        .await
    }

    /// Publishes to a queue of the server.
    async fn publish(&self, queue: &str, body: &Value) {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let (options, id) = (BasicPublishOptions::default(), random_id().to_string());
        let properties = BasicProperties::default().with_message_id(id.into());
        let published = self.channel.basic_publish(
            "".into(),
            queue.into(),
            options,
            text.as_bytes(),
            properties,
        );
        published.await.unwrap().await.unwrap();
    }

    async fn is_empty(&self) -> bool {
        let got = self.channel.basic_get(self.name.as_str().into(), BasicGetOptions::default());
        got.await.unwrap().is_none()
    }

    async fn delete(&self) {
        for more in ["", ".verdicts", ".in", ".refused", ".parked"] {
            let name = format!("{}{more}", self.name);
            let gone = self.channel.queue_delete(name.into(), QueueDeleteOptions::default());
            gone.await.unwrap();
        }
    }
}

fn header(message: &Delivery, name: &str) -> String {
    let headers = message.properties.headers().as_ref().expect("headers");
    match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => String::new(),
    }
}

fn token(message: &Delivery) -> i64 {
    header(message, "Handoff-Fencing-Token").parse().unwrap()
}

fn check_signature(message: &Delivery, secret: &str) {
    let mut headers = axum::http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, header(message, name).parse().unwrap());
    }
    standardwebhooks::Webhook::new(secret).unwrap().verify(&message.data, &headers).unwrap();
}

/// A signed verdict on a handoff that was received.
fn verdict(by: &Agent, on: &Delivery, word: &str, more: &[(&str, Value)]) -> Value {
    let mut verdict = json!({
        "handoffId": header(on, "Handoff-Id"),
        "fencingToken": token(on),
        "verdict": word,
        "timestamp": SystemClock::default().now().rfc3339(),
    });
    for (key, value) in more {
        verdict[*key] = value.clone();
    }
    let canonical = CanonicalObject::from_value(&verdict).unwrap();
    verdict["signature"] = json!(signature::sign(&canonical, by.signing_secret.as_bytes()));
    verdict
}

/// `a`, and `b`, which consumes the queue and answers on another.
async fn pair_with_replies(broker: &Broker, queue: &Queue) -> (Agent, Agent, String) {
    let replies = format!("{}.verdicts", queue.name);
    let delivery = json!({
        "mode": "amqp",
        "config": { "server": queue.server, "routingKey": queue.name, "replyTo": replies },
        "credentials": { "username": "guest", "password": "guest" },
    });
    let a = broker.pull("a", &["b"]).await;
    let b = broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
    (a, b, replies)
}

/// `a`, and `b`, which consumes the queue.
async fn pair(broker: &Broker, queue: &Queue, password: &str) -> (Agent, Agent) {
    let delivery = json!({
        "mode": "amqp",
        "timeoutMs": 2000,
        "config": { "server": queue.server, "routingKey": queue.name },
        "credentials": { "username": "guest", "password": password },
    });
    let a = broker.pull("a", &["b"]).await;
    let b = broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
    (a, b)
}

/// The answer of `POST /agents/b/delivery/test`: whether it went well, and its whole text.
async fn tested(broker: &Broker) -> (bool, String) {
    let answer = broker.admin.post("/agents/b/delivery/test", &json!({})).await;
    let said = answer.expect(200).body;
    (said["delivered"] == true, said.to_string())
}

both! {
    async fn a_queue_gets_the_handoff_and_its_consumer_accepts(broker: Broker) {
        let queue = Queue::new().await;
        queue.declare(&[]).await;
        let (a, b) = pair(broker, &queue, "guest").await;
        let message = Message::initial("a", "b");
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        a.api.submit_with(&message, &[("traceparent", trace)]).await.expect(202);
        let got = queue.receive().await;
        check_signature(&got, &b.webhook_secret);
        let body: Value = serde_json::from_slice(&got.data).unwrap();
        assert_eq!((&body["handoffId"], &body["taskId"]), (&message["handoffId"], &message["taskId"]));
        let properties = &got.properties;
        let text = |text: &Option<lapin::types::ShortString>| text.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(text(properties.message_id()), format!("{}.1", message.id()));
        assert_eq!(text(properties.correlation_id()), message.id());
        assert_eq!(text(properties.content_type()), "application/json");
        assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
        assert_eq!(header(&got, "Handoff-Id"), message.id());
        assert_eq!(header(&got, "Handoff-Attempt"), "1");
        assert!(header(&got, "traceparent").contains("4bf92f3577b34da6a3ce929d0e0e4736"));
        b.say(&message, "accept", token(&got), json!({})).await.expect(200);
        b.say(&message, "complete", token(&got), json!({ "result": { "done": true } })).await.expect(200);
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        assert!(queue.is_empty().await, "one message, once");
        queue.delete().await;
    }

    async fn an_exchange_routes_by_key(broker: Broker) {
        let queue = Queue::new().await;
        queue.declare(&[]).await;
        let exchange = format!("{}.x", queue.name);
        let channel = &queue.channel;
        let options = ExchangeDeclareOptions::default();
        channel.exchange_declare(exchange.as_str().into(), lapin::ExchangeKind::Topic, options, FieldTable::default()).await.unwrap();
        channel.queue_bind(queue.name.as_str().into(), exchange.as_str().into(), "to.b.*".into(), QueueBindOptions::default(), FieldTable::default()).await.unwrap();
        let delivery = json!({
            "mode": "amqp",
            "config": { "server": queue.server, "exchange": exchange, "routingKey": "to.{agentId}.{taskId}" },
            "credentials": { "username": "guest", "password": "guest" },
        });
        let a = broker.pull("a", &["b"]).await;
        broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let got = queue.receive().await;
        assert_eq!(got.routing_key.as_str(), format!("to.b.{}", message.task()));
        channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
        queue.delete().await;
    }
}

both! {
    with [QUICK]
    async fn a_handoff_waits_for_its_queue(broker: Broker) {
        let queue = Queue::new().await;
        let (a, _b) = pair(broker, &queue, "guest").await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("no queue is bound") && said.contains("NO_ROUTE"), "{said}");
        assert!(said.contains("/delivery/config/routingKey"), "{said}");
        queue.declare(&[]).await;
        assert_eq!(header(&queue.receive().await, "Handoff-Id"), message.id());
        broker.handoff_becomes(&message, "PENDING").await;
        queue.delete().await;
    }

    async fn a_full_queue_takes_the_handoff_once_it_has_room(broker: Broker) {
        let queue = Queue::new().await;
        let reject = AMQPValue::LongString(LongString::from("reject-publish"));
        queue.declare(&[("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", reject)]).await;
        let (a, _b) = pair(broker, &queue, "guest").await;
        let (one, two) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&one).await.expect(202);
        until("the queue is full", async || {
            let (ok, said) = tested(broker).await;
            if !ok && said.contains("the queue is full") { Ok(()) } else { Err(said) }
        })
        .await;
        a.submit(&two).await.expect(202);
        let mut ids = BTreeSet::new();
        while ids.len() < 2 {
            let got = queue.receive().await;
            if header(&got, "Handoff-Test").is_empty() {
                assert!(ids.insert(header(&got, "Handoff-Id")), "no handoff twice");
            }
        }
        assert!(ids.contains(&one.id()) && ids.contains(&two.id()));
        queue.delete().await;
    }

    async fn refused_credentials_are_named_and_new_ones_help(broker: Broker) {
        let queue = Queue::new().await;
        queue.declare(&[]).await;
        let (a, _b) = pair(broker, &queue, "wrong").await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("/delivery/credentials") && said.contains("ACCESS_REFUSED"), "{said}");
        let mut delivery = broker.admin.get("/agents/b").await.expect(200).body["delivery"].clone();
        delivery["credentials"] = json!({ "username": "guest", "password": "guest" });
        broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
        assert_eq!(header(&queue.receive().await, "Handoff-Id"), message.id());
        let (ok, said) = tested(broker).await;
        assert!(ok && said.contains("confirmed"), "{said}");
        queue.delete().await;
    }

    async fn a_server_that_stops_and_blocks_loses_nothing(broker: Broker) {
        let node = RabbitNode::start().await;
        let url = format!("amqp://guest:guest@127.0.0.1:{}", node.port);
        let queue = Queue::on(&url).await;
        queue.declare(&[]).await;
        let (a, _b) = pair(broker, &queue, "guest").await;
        let mut sent = BTreeSet::new();
        let submit = async |sent: &mut BTreeSet<String>| {
            for _ in 0..5 {
                let message = Message::initial("a", "b");
                a.submit(&message).await.expect(202);
                sent.insert(message.id());
            }
        };
        submit(&mut sent).await;
        node.down().await;
        submit(&mut sent).await;
        node.up().await;
        let queue = Queue { name: queue.name.clone(), ..Queue::on(&url).await };
        // A server that is short of memory reads nothing more from who publishes.
        node.control(&["set_vm_memory_high_watermark", "0.00001"]).await;
        submit(&mut sent).await;
        let (ok, said) = tested(broker).await;
        assert!(!ok && said.contains("blocks publishers"), "{said}");
        node.control(&["set_vm_memory_high_watermark", "0.4"]).await;
        let mut got = BTreeSet::new();
        while got != sent {
            let message = queue.receive().await;
            if header(&message, "Handoff-Test").is_empty() {
                got.insert(header(&message, "Handoff-Id"));
            }
            assert!(got.is_subset(&sent));
        }
    }
}

both! {
    async fn verdicts_come_back_by_a_queue(broker: Broker) {
        let queue = Queue::new().await;
        queue.declare(&[]).await;
        let (a, b, replies) = pair_with_replies(broker, &queue).await;
        let (one, two) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&one).await.expect(202);
        let got = queue.receive().await;
        assert_eq!(got.properties.reply_to().as_ref().unwrap().as_str(), replies);
        // Another's signature, and no verdict at all: both change nothing.
        queue.publish(&replies, &verdict(&a, &got, "complete", &[])).await;
        queue.publish(&replies, &json!("not a verdict")).await;
        let accept = verdict(&b, &got, "accept", &[]);
        queue.publish(&replies, &accept).await;
        queue.publish(&replies, &accept).await;
        let done = json!({ "total": 12 });
        queue.publish(&replies, &verdict(&b, &got, "complete", &[("result", done)])).await;
        broker.handoff_becomes(&one, "COMPLETED").await;
        assert_eq!(broker.kinds(&one).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        a.submit(&two).await.expect(202);
        let got = queue.receive().await;
        let reason = json!("MISSING_CAPABILITY");
        queue.publish(&replies, &verdict(&b, &got, "reject", &[("reason", reason)])).await;
        assert_eq!(broker.handoff_becomes(&two, "REJECTED").await["reason"], "MISSING_CAPABILITY");
        // The broker goes, a verdict comes, the broker is back.
        let three = Message::initial("a", "b");
        a.submit(&three).await.expect(202);
        let got = queue.receive().await;
        let admin = broker.restart().await;
        queue.publish(&replies, &verdict(&b, &got, "accept", &[])).await;
        until("the restarted broker hears the verdict", async || {
            let found = admin.get(&three.path()).await.expect(200).body;
            if found["status"] == "ACCEPTED" { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        queue.delete().await;
    }
}

/// Handoffs in: the broker's settings name the queues.
async fn intake(kind: Kind) {
    let queue = Queue::new().await;
    let name = |more: &str| format!("{}{more}", queue.name);
    let (input, refused, parked) = (name(".in"), name(".refused"), name(".parked"));
    let settings = [
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__SERVER", queue.server.as_str()),
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__USERNAME", "guest"),
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__PASSWORD", "guest"),
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__QUEUE", input.as_str()),
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__ANSWERS", refused.as_str()),
        ("HANDOFFD_TRANSPORTS__AMQP__INTAKE__PARKED", parked.as_str()),
    ];
    for name in [&input, &refused, &parked] {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let name = name.as_str().into();
        queue.channel.queue_declare(name, options, FieldTable::default()).await.unwrap();
    }
    run(kind, &settings, async |broker| {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b").signed(&a.signing_secret);
        queue.publish(&input, &message).await;
        queue.publish(&input, &message).await;
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let forged = Message::initial("a", "b").signed(&b.signing_secret);
        queue.publish(&input, &forged).await;
        // Headers by which RabbitMQ would route it to further queues.
        let mut headers = FieldTable::default();
        let further = AMQPValue::LongString(LongString::from("handoffd.nowhere"));
        headers.insert("CC".into(), AMQPValue::FieldArray(vec![further].into()));
        headers.insert("Sender".into(), AMQPValue::LongString(LongString::from("a")));
        let poison = queue.channel.basic_publish(
            "".into(),
            input.as_str().into(),
            BasicPublishOptions::default(),
            b"no message",
            BasicProperties::default().with_headers(headers),
        );
        poison.await.unwrap().await.unwrap();
        let problem: Value =
            serde_json::from_slice(&queue.receive_from(&refused).await.data).unwrap();
        assert_eq!(
            (&problem["code"], &problem["instance"]),
            (&json!("SIGNATURE_INVALID"), &json!(forged.path()))
        );
        let poison = queue.receive_from(&parked).await;
        assert_eq!(poison.data, b"no message");
        assert!(!header(&poison, "Handoff-Parked-Reason").is_empty());
        assert_eq!((header(&poison, "Sender"), header(&poison, "CC")), ("a".into(), String::new()));
        let kinds = broker.kinds(&message).await;
        assert_eq!(kinds, ["HANDOFF", "ACCEPTED"], "once, although it came twice");
    })
    .await;
    queue.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_come_in_by_a_queue_sqlite() {
    intake(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_come_in_by_a_queue_postgres() {
    intake(Kind::Postgres).await;
}

/// The receiver of docs/transports/amqp.md, in the language of most receivers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_in_python_accepts_and_completes() {
    let Some(python) = python(&["pika"]).await else { return };
    run(Kind::Sqlite, &[], async |broker| {
        let queue = Queue::new().await;
        let (a, b, _) = pair_with_replies(broker, &queue).await;
        let mut receiver = tokio::process::Command::new(python);
        receiver
            .args(["amqp_receiver.py", &amqp_url(), &queue.name, "3"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/transports"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HANDOFF_WEBHOOK_SECRET", &b.webhook_secret)
            .env("HANDOFF_SIGNING_SECRET", &b.signing_secret)
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true);
        let receiver = receiver.spawn().unwrap();
        until("the receiver declares its queue", async || match tested(broker).await {
            (true, _) => Ok(()),
            (false, said) => Err(said),
        })
        .await;
        let messages: Vec<Message> = (0..3).map(|_| Message::initial("a", "b")).collect();
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        let done = within("the receiver's end", receiver.wait_with_output()).await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        for message in &messages {
            broker.handoff_becomes(message, "COMPLETED").await;
            assert_eq!(broker.kinds(message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        }
        assert!(queue.is_empty().await);
        queue.delete().await;
    })
    .await;
}
