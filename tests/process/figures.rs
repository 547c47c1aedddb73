//! Figures and no tests, for docs/performance.md: a group beside as many handoffs, and what a chunk takes to its receiver.
//! `HANDOFFD_TEST_BINARY=target/release/handoffd cargo test --test process -- --ignored figures_ --nocapture --test-threads 1`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use handoffd::clock::random_id;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::pace::percentile;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, client, message, until};

/// Receivers of a group.
const RECEIVERS: usize = 10;
/// Groups, and rounds of single handoffs, in turn.
const ROUNDS: usize = 30;
/// Chunks of a stream, and streams of each kind of receiver.
const CHUNKS: i64 = 100;
const STREAMS: usize = 3;
/// The most that anything here may take.
const WITHIN: Duration = Duration::from_mins(2);

/// The times of a step.
pub struct Figures(pub Vec<Duration>);

impl Figures {
    pub fn told(mut self) -> String {
        self.0.sort();
        let of = |percent| percentile(&self.0, percent).as_secs_f64() * 1e3;
        format!("p50 {:.2} ms, p99 {:.2} ms of {}", of(50), of(99), self.0.len())
    }
}

async fn post(http: &Client, url: &str, key: &str, body: &Value) -> Value {
    let answer = http.post(url).bearer_auth(key).json(body).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{url}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

/// A group of ten, with one commit, beside ten handoffs of a task each that are sent one after the other; to the 202 of
/// the last, and until each receiver has taken its own.
pub async fn figures_of_a_group_beside_as_many_handoffs(site: Arc<Site>) {
    let broker = Broker::start(&site, &[]).await;
    let seen = Arc::new(Seen::default());
    let names: Vec<String> = (0..RECEIVERS).map(|n| format!("r{n}")).collect();
    let mut receivers = Vec::new();
    for name in &names {
        let url = accepting(Arc::clone(&seen), Duration::ZERO).await;
        receivers.push((name.as_str(), Takes::Webhook(url, 16)));
    }
    let mut world = World::new(&broker, receivers).await;
    world.seen = seen;
    let (http, url) = (client(), format!("{}/handoffs", broker.base));
    let mut took = BTreeMap::<(&str, &str), Vec<Duration>>::new();
    // The first of each opens connections.
    for round in 0..=ROUNDS {
        for kind in ["group", "in turn"] {
            let before = world.seen.handoffs().len();
            let begun = Instant::now();
            if kind == "group" {
                let mut one = message(&random_id().to_string(), None, &names[0]);
                one["schemaVersion"] = json!("2.2");
                one["costTracking"]["costBudgetRemainingUSD"] = json!(0.01);
                one["receiverList"] = json!(names);
                post(&http, &url, &world.sender_key, &one).await;
            } else {
                for name in &names {
                    let one = message(&random_id().to_string(), None, name);
                    post(&http, &url, &world.sender_key, &one).await;
                }
            }
            let committed = begun.elapsed();
            let deadline = begun + WITHIN;
            while world.seen.handoffs().len() < before + RECEIVERS {
                assert!(Instant::now() < deadline, "not all of them arrive");
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            if round > 0 {
                let arrived = begun.elapsed();
                took.entry((kind, "to the last 202")).or_default().push(committed);
                took.entry((kind, "to the last receiver")).or_default().push(arrived);
            }
        }
    }
    for ((kind, what), took) in took {
        let told = Figures(took).told();
        eprintln!("{:?}: {RECEIVERS} receivers, {kind}, {what}: {told}", site.side);
    }
    broker.stop().await;
    site.verify().await;
}

/// When each chunk reached its receiver.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<BTreeMap<i64, Instant>>>);

impl Arrivals {
    fn note(&self, seq: i64) {
        self.0.lock().unwrap().entry(seq).or_insert_with(Instant::now);
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

async fn take(State(arrivals): State<Arrivals>, headers: HeaderMap) -> axum::Json<Value> {
    if let Some(seq) = headers.get("handoff-chunk") {
        arrivals.note(seq.to_str().unwrap().parse().unwrap());
    }
    axum::Json(json!({ "status": "ACCEPTED" }))
}

/// A receiver by webhook that accepts at once; its URL.
async fn hook(arrivals: Arrivals) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/handoffs", listener.local_addr().unwrap());
    let app =
        axum::Router::new().route("/handoffs", axum::routing::post(take)).with_state(arrivals);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Reads a stream with long polls until its last chunk.
async fn pull(base: String, key: String, handoff: String, arrivals: Arrivals) {
    let (http, mut from) = (client(), 1);
    while from <= CHUNKS {
        let url = format!("{base}/handoffs/{handoff}/chunks?from={from}&wait=30");
        let page: Value =
            http.get(url).bearer_auth(&key).send().await.unwrap().json().await.unwrap();
        for item in page["items"].as_array().unwrap() {
            arrivals.note(item["seq"].as_i64().unwrap());
        }
        from = page["next"].as_i64().unwrap();
    }
}

/// A stream of a hundred chunks, each sent once the one before it was acknowledged: from the acknowledgement of a chunk to its
/// receiver, by webhook and by long poll.
pub async fn figures_of_a_chunk_to_its_receiver(site: Arc<Site>) {
    let broker = Broker::start(&site, &[]).await;
    let arrivals: Vec<Arrivals> = (0..2 * STREAMS).map(|_| Arrivals::default()).collect();
    let names: Vec<String> = (0..2 * STREAMS).map(|n| format!("r{n}")).collect();
    let mut receivers = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let takes = if n < STREAMS {
            Takes::Webhook(hook(arrivals[n].clone()).await, 16)
        } else {
            Takes::Inbox
        };
        receivers.push((name.as_str(), takes));
    }
    let world = World::new(&broker, receivers).await;
    let http = client();
    let (mut acknowledged, mut reached) = (Vec::new(), [Vec::new(), Vec::new()]);
    for n in 0..2 * STREAMS {
        let pulls = n >= STREAMS;
        let mut opening = message(&random_id().to_string(), None, &names[n]);
        opening["schemaVersion"] = json!("2.2");
        opening["stream"] = json!({ "open": true });
        post(&http, &format!("{}/handoffs", broker.base), &world.sender_key, &opening).await;
        let id = opening["handoffId"].as_str().unwrap().to_owned();
        if pulls {
            let key = world.receivers[&names[n]].clone();
            tokio::spawn(pull(broker.base.clone(), key, id.clone(), arrivals[n].clone()));
        } else {
            let page = format!("{}/handoffs/{id}", broker.base);
            until(WITHIN, "the opening is accepted", async || {
                let seen = http.get(&page).bearer_auth(&world.sender_key).send().await.unwrap();
                usize::from(seen.json::<Value>().await.unwrap()["status"] != "ACCEPTED")
            })
            .await;
        }
        let chunks = format!("{}/handoffs/{id}/chunks", broker.base);
        let mut sent = BTreeMap::new();
        for seq in 1..=CHUNKS {
            let turn = json!({ "role": "tool", "content": format!("Page {seq}: {}", "clause by clause, as it was read. ".repeat(12)) });
            let chunk = json!({ "seq": seq, "append": { "/conversationHistoryVerbatim": [turn] } });
            let begun = Instant::now();
            post(&http, &chunks, &world.sender_key, &chunk).await;
            acknowledged.push(begun.elapsed());
            sent.insert(seq, Instant::now());
        }
        until(WITHIN, "each chunk reaches its receiver", async || {
            usize::try_from(CHUNKS).unwrap() - arrivals[n].count()
        })
        .await;
        // A chunk may be there before its acknowledgement is.
        let arrived = arrivals[n].0.lock().unwrap().clone();
        let late = sent.iter().map(|(seq, sent)| arrived[seq].saturating_duration_since(*sent));
        reached[usize::from(pulls)].extend(late);
    }
    eprintln!("{:?}: a chunk to its acknowledgement: {}", site.side, Figures(acknowledged).told());
    for (name, took) in ["webhook", "puller with wait"].into_iter().zip(reached) {
        let told = Figures(took).told();
        eprintln!("{:?}: from its acknowledgement to its receiver, {name}: {told}", site.side);
    }
    broker.stop().await;
    site.verify().await;
}
