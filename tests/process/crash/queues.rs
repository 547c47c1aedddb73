//! Handoffs that go by Redis, NATS, RabbitMQ, SQS and Temporal, while brokers die, the network to a queue is cut, and the servers
//! (all but the shared RabbitMQ) are killed. The laws are those of every round; a handoff that its queue had and whose receiver
//! stayed silent ends as `EXPIRED`, and what Redis, RabbitMQ and Temporal have confirmed is read in the end.

use std::collections::{BTreeMap, HashMap};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream;
use handoffd::clock::{Clock, SystemClock, random_id};
use handoffd::fault::Step;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_gate::signature;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use redis::{AsyncCommands, RedisResult};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::Case;
use super::clouds::{Sqs, Temporal, queue_url, reading_sqs, reading_temporal};
use super::hands::{Done, Hands};
use super::laws::Ends;
use super::rig::{Rig, below, one_of};
use crate::broker::PATIENCE;
use crate::proxy::Proxy;
use crate::queues::{NatsServer, amqp_url, free_port};
use crate::receiver::{Delivery, Seen};
use crate::site::{Side, Site};
use crate::world::{Takes, World, until};

/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing: between them the two sides come to each step.
const ROUNDS: usize = 4;

/// Steps that a broker passes for handoffs that go by a queue.
const STEPS: [Step; 8] = [
    Step::SendBegin,
    Step::SettleBegin,
    Step::CommitWritten,
    Step::ClaimDone,
    Step::SettleDone,
    Step::CommitSealed,
    Step::CommitDone,
    Step::CommitBegin,
];

/// Pause before a receiver asks its queue again.
const AGAIN: Duration = Duration::from_millis(20);

pub async fn killed_while_queues_are_cut_and_killed_breaks_no_law(site: Arc<Site>) {
    // Short, so that what a killed server lost ends soon; longer than a server takes to come back.
    let settings =
        [("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "10000"), ("HANDOFFD_DELIVERY__POLL_MS", "100")];
    let offset = if site.side == Side::Sqlite { 0 } else { ROUNDS };
    let rig = Rig::start(site, &settings, 1).await;
    let (seen, done) = (Arc::<Seen>::default(), Arc::<Done>::default());
    let queues = Queues::start().await;
    let world = queues.populate(&rig, &seen, &done).await;
    let steps = STEPS.iter().cycle().skip(offset).take(STEPS.len()).copied().collect();
    let case = Case::of(rig, (Arc::clone(&world), done), (steps, ends()), Some(queues));
    case.run(ROUNDS).await;
    // A queue whose server is whole keeps what it confirmed, also where its receiver was too late.
    let durable: Vec<String> = {
        let all = world.acknowledged.lock().unwrap();
        let kept = all.iter().filter(|(_, said)| !["nats", "sqs"].contains(&&*said.target));
        kept.map(|(id, _)| id.clone()).collect()
    };
    until(PATIENCE, "what lasting servers confirmed is read", async || {
        let seen = seen.handoffs();
        durable.iter().filter(|id| !seen.contains(*id)).count()
    })
    .await;
}

/// How a receiver's handoffs may end.
fn ends() -> BTreeMap<&'static str, Ends> {
    use HandoffStatus as S;
    let hands = Ends {
        statuses: &[S::Completed, S::Expired],
        carried_out: true,
        pulls: false,
        unseen: true,
        queued: true,
    };
    // A verdict on a reply channel has no answer: its receiver does not learn whether it came in time.
    let replies = Ends { carried_out: false, ..hands };
    BTreeMap::from([
        ("redis", hands),
        ("nats", hands),
        ("amqp", hands),
        ("sqs", hands),
        ("temporal", hands),
        ("replies", replies),
    ])
}

/// The servers, with a network before each.
pub struct Queues {
    redis: RedisServer,
    nats: NatsServer,
    /// The queue of this case on the shared node.
    amqp_queue: String,
    before_redis: Proxy,
    before_nats: Proxy,
    before_amqp: Proxy,
    /// Present if PyPI can be reached.
    clouds: Option<Clouds>,
}

/// Servers that come from PyPI, with a network before each.
struct Clouds {
    sqs: Sqs,
    temporal: Temporal,
    before_sqs: Proxy,
    before_temporal: Proxy,
}

impl Clouds {
    async fn start() -> Option<Self> {
        let (sqs, temporal) = tokio::join!(Sqs::start(&[SQS_QUEUE]), Temporal::start());
        let (sqs, temporal) = (sqs?, temporal?);
        let before_sqs = Proxy::before(format!("127.0.0.1:{}", sqs.port)).await;
        let before_temporal = Proxy::before(format!("127.0.0.1:{}", temporal.http)).await;
        Some(Self { sqs, temporal, before_sqs, before_temporal })
    }

    /// The receivers' deliveries, by their ids.
    fn deliveries(&self) -> [(&'static str, Value); 2] {
        let queue = queue_url(&self.before_sqs.address.to_string(), SQS_QUEUE);
        let sqs = json!({
            "mode": "sqs", "timeoutMs": 2000,
            "config": { "queueUrl": queue, "region": "eu-west-1" },
            "credentials": { "accessKeyId": "test", "secretAccessKey": "test" },
        });
        let address = format!("http://{}", self.before_temporal.address);
        let temporal = json!({
            "mode": "temporal", "timeoutMs": 3000,
            "config": { "address": address, "workflowType": "Handoff", "taskQueue": "handoffs" },
        });
        [("sqs", sqs), ("temporal", temporal)]
    }
}

const SQS_QUEUE: &str = "to-sqs.fifo";

/// The troubles of a queue.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Cut,
    Stall,
    Kill,
}

impl Queues {
    async fn start() -> Self {
        let (redis, nats) = (RedisServer::start().await, NatsServer::start("").await);
        let amqp = url::Url::parse(&amqp_url()).unwrap();
        let amqp = format!("{}:{}", amqp.host_str().unwrap(), amqp.port().unwrap_or(5672));
        let before_redis = Proxy::before(format!("127.0.0.1:{}", redis.port)).await;
        let before_nats = Proxy::before(format!("127.0.0.1:{}", nats.port)).await;
        let before_amqp = Proxy::before(amqp).await;
        let amqp_queue = format!("handoffd.crash.{}", random_id().simple());
        let clouds = Clouds::start().await;
        Self { redis, nats, amqp_queue, before_redis, before_nats, before_amqp, clouds }
    }

    /// Registers the sender and a receiver for each queue, and begins to receive.
    async fn populate(&self, rig: &Rig, seen: &Arc<Seen>, done: &Arc<Done>) -> Arc<World> {
        let delivery = |mode: &str, config: Value, more: Value| {
            let mut delivery = json!({ "mode": mode, "timeoutMs": 1000, "config": config });
            delivery.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Takes::Delivery(delivery)
        };
        let redis = format!("redis://{}", self.before_redis.address);
        let nats = format!("nats://{}", self.before_nats.address);
        let amqp = format!("amqp://{}", self.before_amqp.address);
        let guest = json!({ "credentials": { "username": "guest", "password": "guest" } });
        let by_amqp = json!({ "server": amqp, "routingKey": self.amqp_queue });
        let replies = json!({ "server": redis, "stream": "to:replies", "replyTo": "verdicts" });
        let mut receivers = vec![
            (
                "redis",
                delivery("redis", json!({ "server": redis, "stream": "to:redis" }), json!({})),
            ),
            ("replies", delivery("redis", replies, json!({}))),
            ("nats", delivery("nats", json!({ "server": nats, "subject": "to.nats" }), json!({}))),
            ("amqp", delivery("amqp", by_amqp, guest)),
        ];
        for (id, delivery) in self.clouds.iter().flat_map(Clouds::deliveries) {
            receivers.push((id, Takes::Delivery(delivery)));
        }
        let mut world = World::new(rig.fleet.first(), receivers).await;
        world.seen = Arc::clone(seen);
        let hands = |id: &str| {
            let bases = rig.fleet.bases.iter().map(tokio::sync::watch::Sender::subscribe).collect();
            let hands = Hands::new(id, bases, seen, done);
            hands.give_key(&world.receivers[id]);
            hands
        };
        let by_redis = hands("redis");
        tokio::spawn(self.redis.reading("to:redis", move |delivery, _| by_redis.take(delivery)));
        let (server, secret) = (self.redis.port, world.signing_secrets["replies"].clone());
        let noted = Arc::clone(seen);
        tokio::spawn(self.redis.reading("to:replies", move |delivery, reply_to| {
            noted.add(delivery.clone());
            tokio::spawn(reply(server, reply_to, delivery, secret.clone()));
        }));
        make_stream(&self.nats.url()).await;
        tokio::spawn(reading_nats(self.nats.url(), hands("nats")));
        tokio::spawn(reading_amqp(self.amqp_queue.clone(), hands("amqp")));
        if let Some(Clouds { sqs, temporal, .. }) = &self.clouds {
            let by_sqs = hands("sqs");
            let take = move |delivery, _| by_sqs.take(delivery);
            tokio::spawn(reading_sqs(sqs.port, SQS_QUEUE, take));
            tokio::spawn(reading_temporal(temporal.http, hands("temporal")));
        }
        Arc::new(world)
    }

    /// One of the queues has one trouble, and is whole again when this returns.
    pub async fn trouble(&mut self) {
        tokio::time::sleep(Duration::from_secs_f64(below(0.5))).await;
        let pause = Duration::from_secs_f64(0.1 + below(1.5));
        let mut proxies = vec![&self.before_redis, &self.before_nats, &self.before_amqp];
        if let Some(Clouds { before_sqs, before_temporal, .. }) = &self.clouds {
            proxies.extend([before_sqs, before_temporal]);
        }
        let which = one_of(&[0, 1, 2, 3, 4]) % proxies.len();
        // The node of RabbitMQ is shared: only the way to it is taken away.
        let troubles = [Trouble::Cut, Trouble::Stall, Trouble::Kill];
        match one_of(if which == 2 { &troubles[..2] } else { &troubles }) {
            Trouble::Cut => {
                proxies[which].cut();
                tokio::time::sleep(pause).await;
                proxies[which].mend();
            }
            Trouble::Stall => {
                proxies[which].stall();
                tokio::time::sleep(pause).await;
                proxies[which].mend();
            }
            Trouble::Kill if which == 0 => {
                self.redis.kill().await;
                tokio::time::sleep(pause).await;
                self.redis.go().await;
            }
            Trouble::Kill if which == 1 => {
                self.nats.down().await;
                tokio::time::sleep(pause).await;
                self.nats.up().await;
            }
            Trouble::Kill => {
                let Some(Clouds { sqs, temporal, .. }) = &mut self.clouds else { return };
                if which == 3 {
                    sqs.kill().await;
                    tokio::time::sleep(pause).await;
                    sqs.go(pause).await;
                } else {
                    temporal.kill().await;
                    tokio::time::sleep(pause).await;
                    temporal.go().await;
                }
            }
        }
    }
}

/// A Redis server that writes each entry to its disk before it answers.
pub struct RedisServer {
    pub port: u16,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl RedisServer {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { port: free_port().await, folder, child: None };
        server.go().await;
        server
    }

    async fn go(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.arg("--dir").arg(self.folder.path()).kill_on_drop(true);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(child.expect("redis-server, which this case runs"));
        until(PATIENCE, "Redis answers", async || {
            let asked = async {
                let mut connection = connect(self.port).await?;
                redis::cmd("PING").query_async::<String>(&mut connection).await
            };
            usize::from(asked.await.is_err())
        })
        .await;
    }

    async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
    }

    /// Reads each entry of a stream once, and passes it on with its reply channel; it reads as long as the case lives.
    fn reading(
        &self,
        stream: &'static str,
        mut take: impl FnMut(Delivery, String) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let port = self.port;
        async move {
            let mut last = "0".to_owned();
            let mut connection = None;
            loop {
                let Ok(ref mut open) = (match connection.take() {
                    Some(open) => Ok(open),
                    None => connect(port).await,
                }) else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let read: RedisResult<StreamReadReply> = open.xread(&[stream], &[&last]).await;
                let Ok(read) = read else { continue };
                connection = Some(open.clone());
                let entries: Vec<_> = read.keys.into_iter().flat_map(|key| key.ids).collect();
                if entries.is_empty() {
                    tokio::time::sleep(AGAIN).await;
                }
                for entry in entries {
                    let (delivery, reply_to) = entry_of(&entry.map);
                    take(delivery, reply_to);
                    last = entry.id;
                }
            }
        }
    }
}

pub async fn connect(port: u16) -> RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    client.get_multiplexed_async_connection().await
}

/// A delivery by its headers.
fn delivery(header: impl Fn(&str) -> String) -> Delivery {
    Delivery {
        handoff: header("Handoff-Id"),
        attempt: header("Handoff-Attempt").parse().unwrap(),
        token: header("Handoff-Fencing-Token").parse().unwrap(),
    }
}

/// A message of JetStream.
pub fn stream_delivery(headers: &async_nats::HeaderMap) -> Delivery {
    delivery(|name| {
        let value = headers.get(name);
        value.map(|value| value.as_str().to_owned()).unwrap_or_default()
    })
}

/// A message of RabbitMQ.
pub fn amqp_delivery(properties: &BasicProperties) -> Delivery {
    let headers = properties.headers().clone().unwrap_or_default();
    delivery(|name| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => String::new(),
    })
}

/// An entry of a stream, with the reply channel that it names.
pub fn entry_of(fields: &HashMap<String, redis::Value>) -> (Delivery, String) {
    let header = |name: &str| {
        let text = |value| redis::from_redis_value_ref::<String>(value).unwrap();
        fields.get(name).map(text).unwrap_or_default()
    };
    (delivery(header), header("Handoff-Reply-To"))
}

/// Writes the acceptance and the end of a handoff to the reply stream, each until Redis has it.
async fn reply(port: u16, to: String, delivery: Delivery, secret: String) {
    for verdict in ["accept", "complete"] {
        let said = signed(verdict, &delivery, &secret);
        loop {
            let written: RedisResult<String> = async {
                let mut connection = connect(port).await?;
                connection.xadd(&to, "*", &[("body", &said)]).await
            }
            .await;
            if written.is_ok() {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// A verdict as it goes on a reply channel, signed.
pub fn signed(verdict: &str, delivery: &Delivery, secret: &str) -> String {
    let mut said = json!({
        "handoffId": delivery.handoff,
        "fencingToken": delivery.token,
        "verdict": verdict,
        "timestamp": SystemClock::default().now().rfc3339(),
    });
    let canonical = CanonicalObject::from_value(&said).unwrap();
    said["signature"] = json!(signature::sign(&canonical, secret.as_bytes()));
    said.to_string()
}

async fn make_stream(server: &str) {
    let client = ConnectOptions::new().connect(server).await.unwrap();
    let config = jetstream::stream::Config {
        name: "TO".to_owned(),
        subjects: vec!["to.>".to_owned()],
        ..jetstream::stream::Config::default()
    };
    jetstream::new(client).create_stream(config).await.unwrap();
}

/// Reads the stream by its numbers, from the first one after each break: a server that was killed may use a number again.
/// The server drops repeats of an attempt by its id, so an attempt that is here already is the same message.
async fn reading_nats(server: String, hands: Hands) {
    let mut known = std::collections::BTreeSet::new();
    loop {
        let broken = async {
            let client = ConnectOptions::new().connect(&server).await.map_err(drop)?;
            let stream = jetstream::new(client).get_stream("TO").await.map_err(drop)?;
            let mut next = 1;
            loop {
                let last = stream.get_info().await.map_err(drop)?.state.last_sequence;
                if last + 1 < next {
                    return Err::<(), ()>(());
                }
                while next <= last {
                    let message = stream.get_raw_message(next).await.map_err(drop)?;
                    let delivery = stream_delivery(&message.headers);
                    if known.insert(delivery.clone()) {
                        hands.take(delivery);
                    }
                    next += 1;
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        let _ = broken.await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Declares the queue and consumes it, at the server itself.
async fn reading_amqp(queue: String, hands: Hands) {
    let properties = ConnectionProperties::default();
    let connection = Connection::connect(&amqp_url(), properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut table = FieldTable::default();
    // It goes when no client has used it for ten minutes.
    table.insert("x-expires".into(), AMQPValue::LongInt(600_000));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.as_str().into(), options, table).await.unwrap();
    loop {
        let got = channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await;
        let Some(message) = got.unwrap() else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        hands.take(amqp_delivery(&message.properties));
        message.delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
    }
}
