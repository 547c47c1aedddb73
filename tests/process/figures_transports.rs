//! Figures and no tests, for docs/performance.md: the time of a handoff by each transport to its verdict, alone, at 100 a second
//! and at half of what saturates it, and the handoffs a second by it, beside a loop that only publishes.
//! `HANDOFFD_TEST_BINARY=target/release/handoffd cargo test --test process -- --ignored figures_of_the_transports --nocapture`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use handoffd::clock::random_id;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, RedisResult};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::crash::clouds::{Sqs, Temporal, call, reading_sqs};
use crate::crash::queues::{
    RedisServer, amqp_delivery, connect, entry_of, signed, stream_delivery,
};
use crate::figures::Figures;
use crate::python::Program;
use crate::queues::{NatsServer, amqp_url};
use crate::receiver::Delivery;
use crate::site::Site;
use crate::world::{Takes, World, client, message};

/// The last two need PyPI.
static KINDS: [&str; 6] = ["webhook", "redis", "nats", "amqp", "sqs", "temporal"];
/// Handoffs one after the other by each transport.
const ROUNDS: usize = 100;
/// Senders of a crowd, and crowds by each transport.
const SENDERS: usize = 32;
const CROWDS: usize = 3;
/// How long a rate is held, and the rate that the objectives are for.
const HELD: Duration = Duration::from_secs(20);
const RATE: f64 = 100.0;

/// Handoffs of a crowd: servers for tests take few a second.
fn crowd_of(kind: &str) -> usize {
    if matches!(kind, "sqs" | "temporal") { 200 } else { 1000 }
}

const SQS_QUEUES: [&str; 3] = ["to.fifo", "verdicts.fifo", "bare.fifo"];

/// Accepts each handoff by callback, and ends.
const WORKER: &str = r#"
import asyncio, os, urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

@activity.defn
def accept(headers: dict) -> None:
    request = urllib.request.Request(
        f"{os.environ['HANDOFFD_URL']}/handoffs/{headers['Handoff-Id']}/accept", b"{}",
        {"Authorization": "Bearer " + os.environ["HANDOFFD_API_KEY"], "Content-Type": "application/json",
         "Handoff-Fencing-Token": headers["Handoff-Fencing-Token"]})
    urllib.request.urlopen(request, timeout=10).close()

@workflow.defn(name="Handoff")
class Handoff:
    def __init__(self) -> None:
        self.waiting = []

    @workflow.signal(name="handoff")
    def handoff(self, signal: dict) -> None:
        self.waiting.append(signal)

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: bool(self.waiting))
        while self.waiting:
            headers = self.waiting.pop(0)["headers"]
            await workflow.execute_activity(accept, headers, start_to_close_timeout=timedelta(seconds=30))

async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL"])
    with ThreadPoolExecutor(32) as threads:
        await Worker(client, task_queue="handoffs", workflows=[Handoff], activities=[accept], activity_executor=threads).run()

# The workflows' sandbox reads this file once more.
if __name__ == "__main__":
    asyncio.run(main())
"#;
/// The most that anything here may take.
const WITHIN: Duration = Duration::from_mins(2);

/// One message to a transport, without a broker, until the server has it.
type Publish = Box<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>;

/// A receiver by webhook that accepts at once; its URL.
async fn hook() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/handoffs", listener.local_addr().unwrap());
    let take = async || axum::Json(json!({ "status": "ACCEPTED" }));
    let app = axum::Router::new().route("/handoffs", axum::routing::post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Reads a stream of Redis, and accepts each entry on the reply stream.
async fn by_redis(port: u16, secret: String) {
    let (mut reads, writes) = (connect(port).await.unwrap(), connect(port).await.unwrap());
    let options = StreamReadOptions::default().block(100).count(64);
    let mut last = "0".to_owned();
    loop {
        let read: RedisResult<Option<StreamReadReply>> =
            reads.xread_options(&["to:redis"], &[&last], &options).await;
        let Ok(read) = read else { return };
        for entry in read.into_iter().flat_map(|read| read.keys).flat_map(|key| key.ids) {
            let (delivery, reply_to) = entry_of(&entry.map);
            let (said, mut writes) = (signed("accept", &delivery, &secret), writes.clone());
            tokio::spawn(async move {
                let _: String = writes.xadd(&reply_to, "*", &[("body", said)]).await.unwrap();
            });
            last = entry.id;
        }
    }
}

/// Consumes a stream of JetStream, and accepts each message on the reply subject.
async fn by_nats(on: jetstream::Context, secret: String) {
    let config = pull::Config {
        ack_policy: AckPolicy::None,
        filter_subject: "to.nats".to_owned(),
        ..pull::Config::default()
    };
    let stream = on.get_stream("TO").await.unwrap();
    let consumer = stream.create_consumer(config).await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    while let Some(Ok(message)) = messages.next().await {
        let delivery = stream_delivery(message.headers.as_ref().unwrap());
        let said = signed("accept", &delivery, &secret);
        // The next one does not wait for the server's answer.
        tokio::spawn(on.publish("verdicts.nats", said.into()).await.unwrap().into_future());
    }
}

/// Consumes a queue of RabbitMQ, and accepts each message on the reply queue.
async fn by_amqp(queue: String, secret: String) {
    let channel = channel().await;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let table = FieldTable::default();
    let consumer = channel.basic_consume(queue.as_str().into(), "".into(), options, table).await;
    let mut messages = consumer.unwrap();
    while let Some(Ok(message)) = messages.next().await {
        let delivery: Delivery = amqp_delivery(&message.properties);
        let said = signed("accept", &delivery, &secret);
        let (channel, verdicts) = (channel.clone(), format!("{queue}.verdicts"));
        tokio::spawn(async move { publish_amqp(&channel, &verdicts, said).await });
    }
}

/// A channel on which the server confirms what is published.
async fn channel() -> Channel {
    let properties = ConnectionProperties::default();
    let connection = Connection::connect(&amqp_url(), properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    // The connection lives as long as the case.
    std::mem::forget(connection);
    channel
}

async fn publish_amqp(channel: &Channel, queue: &str, body: String) {
    let options = BasicPublishOptions::default();
    let properties = BasicProperties::default().with_delivery_mode(2);
    let published =
        channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties).await;
    assert!(published.unwrap().await.unwrap().is_ack());
}

async fn declare(channel: &Channel, queue: &str) {
    let mut table = FieldTable::default();
    table.insert("x-expires".into(), AMQPValue::LongInt(600_000));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, table).await.unwrap();
}

async fn make_stream(on: &jetstream::Context, name: &str, subjects: &str) {
    let config = jetstream::stream::Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        ..jetstream::stream::Config::default()
    };
    on.create_stream(config).await.unwrap();
}

/// Receives from a queue of SQS, and accepts each message on the reply queue.
async fn by_sqs(port: u16, secret: String) {
    let http = client();
    let take = move |delivery: Delivery, attributes: Value| {
        let (http, said) = (http.clone(), signed("accept", &delivery, &secret));
        let queue = attributes["Handoff-Reply-To"]["StringValue"].clone();
        tokio::spawn(async move { send_sqs(&http, port, queue, said).await });
    };
    reading_sqs(port, SQS_QUEUES[0], take).await;
}

async fn send_sqs(http: &Client, port: u16, queue: Value, body: String) {
    let id = random_id().to_string();
    let input = json!({
        "QueueUrl": queue, "MessageBody": body, "MessageGroupId": id, "MessageDeduplicationId": id,
    });
    call(http, port, "SendMessage", input).await.expect("SQS takes it");
}

/// The sender.
#[derive(Clone)]
struct Sender {
    http: Client,
    url: String,
    key: String,
}

impl Sender {
    /// Submits one handoff; with `wait` its status after the verdict, or after 30 s.
    async fn submit(&self, kind: &str, wait: bool) -> String {
        let one = message(&random_id().to_string(), None, kind);
        let ask = self.http.post(&self.url).bearer_auth(&self.key).json(&one);
        let ask = if wait { ask.header("prefer", "wait=30") } else { ask };
        let answer = ask.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{status} {text}");
        let page: Value = serde_json::from_str(&text).unwrap();
        page["status"].as_str().unwrap().to_owned()
    }

    /// Submits so many a second, whatever comes of those before: the times from when each was due to its acceptance, and how
    /// many had none in 30 s.
    async fn at_rate(&self, kind: &'static str, rate: f64) -> (Vec<Duration>, usize) {
        let (mut sent, begun) = (JoinSet::new(), Instant::now());
        for n in 0..(rate * HELD.as_secs_f64()) as u32 {
            let due = begun + Duration::from_secs_f64(f64::from(n) / rate);
            tokio::time::sleep_until(due).await;
            let sender = self.clone();
            sent.spawn(async move {
                let status = sender.submit(kind, true).await;
                (status == "ACCEPTED").then(|| due.elapsed())
            });
        }
        let all = sent.join_all().await;
        let took: Vec<_> = all.iter().flatten().copied().collect();
        let without = all.len() - took.len();
        (took, without)
    }
}

/// So many things done by the senders of a crowd, as a rate.
async fn crowd<F: Future<Output = ()>>(
    count: usize,
    one: impl Fn() -> F,
    all: impl Future<Output = ()>,
) -> f64 {
    let begun = Instant::now();
    stream::iter(0..count).for_each_concurrent(SENDERS, |_| one()).await;
    all.await;
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Handoffs that were accepted by a transport, by the broker's own count.
async fn accepted(broker: &Broker, kind: &str) -> u64 {
    broker.counter("handoff_latency_seconds_count", &format!("transport=\"{kind}\"")).await as u64
}

async fn are_accepted(broker: &Broker, kind: &str, count: u64) {
    let deadline = Instant::now() + WITHIN;
    while accepted(broker, kind).await < count {
        assert!(Instant::now() < deadline, "not all by {kind} are accepted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Handoffs by each transport in turn, whose receivers accept at once: one after the other, in crowds beside a loop that only
/// publishes, at 100 a second, and at half of the crowds' rate.
pub async fn figures_of_the_transports(site: Arc<Site>) {
    // The crowds alone and without the clouds' stand-ins, to compare two settings in turn.
    let crowds_alone = std::env::var_os("HANDOFFD_TEST_CROWDS_ALONE").is_some();
    let wait = std::env::var("HANDOFFD_TEST_REPLY_WAIT_MS").ok();
    let settings = wait.as_deref().map(|wait| ("HANDOFFD_TRANSPORTS__REPLY_WAIT_MS", wait));
    let broker = Broker::start(&site, settings.as_slice()).await;
    let (redis, nats) = (RedisServer::start().await, NatsServer::start("").await);
    let (sqs, temporal) = if crowds_alone {
        (None, None)
    } else {
        tokio::join!(Sqs::start(&SQS_QUEUES), Temporal::start())
    };
    let clouds = sqs.as_ref().zip(temporal.as_ref());
    let queue = format!("handoffd.figures.{}", random_id().simple());
    let url = hook().await;
    let on = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    make_stream(&on, "TO", "to.>").await;
    make_stream(&on, "VERDICTS", "verdicts.>").await;
    let amqp = channel().await;
    for name in [queue.clone(), format!("{queue}.verdicts"), format!("{queue}.bare")] {
        declare(&amqp, &name).await;
    }
    let server = format!("redis://127.0.0.1:{}", redis.port);
    let by = |mode: &str, config: Value, credentials: Value| {
        Takes::Delivery(json!({
            "mode": mode, "maxInFlight": 64, "config": config, "credentials": credentials,
        }))
    };
    let guest = json!({ "username": "guest", "password": "guest" });
    let to_redis = json!({ "server": server, "stream": "to:redis", "replyTo": "verdicts" });
    let to_nats = json!({ "server": nats.url(), "subject": "to.nats", "replyTo": "verdicts.nats" });
    let address = url::Url::parse(&amqp_url()).unwrap();
    let address =
        format!("amqp://{}:{}", address.host_str().unwrap(), address.port().unwrap_or(5672));
    let to_amqp =
        json!({ "server": address, "routingKey": queue, "replyTo": format!("{queue}.verdicts") });
    let mut receivers = vec![
        ("webhook", Takes::Webhook(url.clone(), 64)),
        ("redis", by("redis", to_redis, json!({}))),
        ("nats", by("nats", to_nats, json!({}))),
        ("amqp", by("amqp", to_amqp, guest)),
    ];
    if let Some((sqs, temporal)) = clouds {
        let [to, verdicts, _] = SQS_QUEUES.map(|name| sqs.url(name));
        let to_sqs = json!({ "queueUrl": to, "replyTo": verdicts, "region": "eu-west-1" });
        let keys = json!({ "accessKeyId": "test", "secretAccessKey": "test" });
        let to_temporal = json!({
            "address": temporal.url(), "workflowType": "Handoff", "taskQueue": "handoffs",
        });
        receivers.push(("sqs", by("sqs", to_sqs, keys)));
        receivers.push(("temporal", by("temporal", to_temporal, json!({}))));
    }
    let kinds = &KINDS[..receivers.len()];
    let world = World::new(&broker, receivers).await;
    let secret = |kind: &str| world.signing_secrets[kind].clone();
    tokio::spawn(by_redis(redis.port, secret("redis")));
    tokio::spawn(by_nats(on.clone(), secret("nats")));
    tokio::spawn(by_amqp(queue.clone(), secret("amqp")));
    let mut worker = None;
    if let Some((sqs, temporal)) = clouds {
        tokio::spawn(by_sqs(sqs.port, secret("sqs")));
        let environment = [
            ("TEMPORAL", temporal.address()),
            ("HANDOFFD_URL", broker.base.clone()),
            ("HANDOFFD_API_KEY", world.receivers["temporal"].clone()),
        ];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        worker = Some(Program::python(WORKER, &environment).await);
    }
    let url_of = format!("{}/handoffs", broker.base);
    let sender = Sender { http: client(), url: url_of, key: world.sender_key.clone() };

    let mut took = BTreeMap::<&str, Vec<Duration>>::new();
    // The first of each opens connections.
    for round in 0..=ROUNDS {
        for &kind in kinds {
            let begun = Instant::now();
            let status = sender.submit(kind, true).await;
            let said = || worker.as_ref().map(Program::said).unwrap_or_default();
            assert_eq!(status, "ACCEPTED", "{kind}: {}", said());
            if round > 0 {
                took.entry(kind).or_default().push(begun.elapsed());
            }
        }
    }
    for (kind, took) in took {
        eprintln!("{:?}: {kind}, alone, to the verdict: {}", site.side, Figures(took).told());
    }

    let bare: BTreeMap<&str, Publish> = bare(&redis, on, amqp, queue, url, clouds).await;
    let body = message(&random_id().to_string(), None, "webhook").to_string();
    let mut rates = BTreeMap::<(&str, &str), Vec<f64>>::new();
    let mut costs = BTreeMap::<&str, Vec<f64>>::new();
    for _ in 0..CROWDS {
        for &kind in kinds {
            let count = crowd_of(kind);
            let all = accepted(&broker, kind).await + count as u64;
            let one = || async {
                sender.submit(kind, false).await;
            };
            let before = broker.processor_ms();
            let rate = crowd(count, one, are_accepted(&broker, kind, all)).await;
            rates.entry((kind, "handoffs/s until the last is accepted")).or_default().push(rate);
            let spent = (broker.processor_ms() - before) / count as f64;
            costs.entry(kind).or_default().push(spent);
            let rate = crowd(count, || bare[kind](body.clone()), async {}).await;
            rates.entry((kind, "messages/s only published")).or_default().push(rate);
        }
    }
    for (kind, mut costs) in costs {
        let of = async |outcome: &str| {
            let labels = format!("outcome=\"{outcome}\",transport=\"{kind}\"");
            broker.counter("handoff_delivery_attempts_total", &labels).await
        };
        let (early, late) = (of("accepted").await, of("received").await);
        eprintln!("{:?}: {kind}, verdicts with the delivery: {early}, after it: {late}", site.side);
        costs.sort_by(f64::total_cmp);
        let median = costs[costs.len() / 2];
        eprintln!("{:?}: {kind}, processor ms of the broker a handoff: {median:.2}", site.side);
    }
    let mut saturation = BTreeMap::new();
    for ((kind, what), mut rates) in rates {
        rates.sort_by(f64::total_cmp);
        let [least, most] = [0, rates.len() - 1].map(|at| rates[at]);
        let median = rates[rates.len() / 2];
        // The handoffs' rate comes first.
        saturation.entry(kind).or_insert(median);
        eprintln!("{:?}: {kind}, {what}: {median:.0} ({least:.0} to {most:.0})", site.side);
    }

    for &kind in kinds.iter().filter(|_| !crowds_alone) {
        for (what, rate) in [("", RATE), (" (half)", saturation[kind] / 2.0)] {
            if rate > saturation[kind] {
                eprintln!("{:?}: {kind}, {rate:.0}/s is more than it takes", site.side);
                continue;
            }
            let over = async |limit: &str| {
                let labels = format!("limit=\"{limit}\",transport=\"{kind}\"");
                broker.counter("handoff_latency_over_total", &labels).await
            };
            let before = [over("p99").await, over("max").await];
            let (took, without) = sender.at_rate(kind, rate).await;
            let after = [over("p99").await, over("max").await];
            eprintln!(
                "{:?}: {kind}, {rate:.0}/s{what}, to the verdict: {}; {} over the p99 objective, {} over the longest time, {without} without a verdict",
                site.side,
                Figures(took).told(),
                after[0] - before[0],
                after[1] - before[1],
            );
        }
    }
    broker.stop().await;
    site.verify().await;
}

/// A loop's step for each transport that only publishes.
async fn bare(
    redis: &RedisServer,
    on: jetstream::Context,
    amqp: Channel,
    queue: String,
    url: String,
    clouds: Option<(&Sqs, &Temporal)>,
) -> BTreeMap<&'static str, Publish> {
    let (connection, http) = (connect(redis.port).await.unwrap(), client());
    let to_webhook: Publish = Box::new(move |body| {
        let ask = http.post(&url).body(body);
        Box::pin(async move { assert!(ask.send().await.unwrap().status().is_success()) })
    });
    let to_redis: Publish = Box::new(move |body| {
        let mut connection = connection.clone();
        Box::pin(async move {
            let _: String = connection.xadd("bare", "*", &[("body", body)]).await.unwrap();
        })
    });
    let to_nats: Publish = Box::new(move |body| {
        let on = on.clone();
        Box::pin(async move {
            on.publish("to.bare", body.into()).await.unwrap().await.unwrap();
        })
    });
    let to_amqp: Publish = Box::new(move |body| {
        let (amqp, queue) = (amqp.clone(), format!("{queue}.bare"));
        Box::pin(async move { publish_amqp(&amqp, &queue, body).await })
    });
    let mut all = BTreeMap::from([
        ("webhook", to_webhook),
        ("redis", to_redis),
        ("nats", to_nats),
        ("amqp", to_amqp),
    ]);
    if let Some((sqs, temporal)) = clouds {
        let (http, port, queue) = (client(), sqs.port, json!(sqs.url(SQS_QUEUES[2])));
        let to_sqs: Publish = Box::new(move |body| {
            let (http, queue) = (http.clone(), queue.clone());
            Box::pin(async move { send_sqs(&http, port, queue, body).await })
        });
        let (http, url) = (client(), temporal.url());
        let to_temporal: Publish = Box::new(move |body| {
            let id = random_id();
            let path = format!("api/v1/namespaces/default/workflows/{id}/signal-with-start/bare");
            // No client polls this queue: only the server's part is measured.
            let ask = http.post(format!("{url}/{path}")).json(&json!({
                "workflowType": { "name": "Bare" }, "taskQueue": { "name": "bare" },
                "requestId": id.to_string(), "signalInput": [body],
            }));
            Box::pin(async move { assert!(ask.send().await.unwrap().status().is_success()) })
        });
        all.extend([("sqs", to_sqs), ("temporal", to_temporal)]);
    }
    all
}
