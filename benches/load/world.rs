//! Agents, receivers and messages.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::HeaderMap;
use handoffd::clock::{random, random_id};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

use crate::Args;
use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::drive::Plan;

/// Different texts, so that neither the database nor zstd sees the same one over and over.
const TEXTS: usize = 64;
const WORDS: [&str; 32] = [
    "clause",
    "liability",
    "supplier",
    "annual",
    "fee",
    "the",
    "of",
    "and",
    "negligence",
    "risk",
    "contract",
    "capped",
    "party",
    "shall",
    "notice",
    "within",
    "thirty",
    "days",
    "unless",
    "agreed",
    "in",
    "writing",
    "by",
    "both",
    "damages",
    "indirect",
    "loss",
    "profit",
    "review",
    "score",
    "section",
    "appendix",
];

/// An HTTP client with as many connections as it needs.
pub fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_secs(70)).build().unwrap()
}

/// One sending agent.
pub struct Sender {
    /// Its id.
    pub id: String,
    /// Its key.
    pub key: String,
    /// The receiver beside it.
    pub target: String,
}

/// The receivers' figures: the number of messages, and the time of each after it should have been sent.
#[derive(Default)]
pub struct Arrivals {
    /// When each handoff should have been sent.
    pub due: Mutex<HashMap<String, Instant>>,
    /// How long each took to its receiver.
    pub took: Mutex<Vec<Duration>>,
    /// Handoffs that came once.
    pub once: AtomicUsize,
    /// Deliveries of a handoff that had come before.
    pub again: AtomicUsize,
}

impl Arrivals {
    fn note(&self, id: &str) {
        match self.due.lock().unwrap().remove(id) {
            Some(due) => {
                self.took.lock().unwrap().push(due.elapsed());
                self.once.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                self.again.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Everything around the brokers.
pub struct World {
    /// The addresses of the brokers.
    pub bases: Vec<String>,
    /// Who sends.
    pub senders: Vec<Sender>,
    /// The arrivals.
    pub arrivals: Arc<Arrivals>,
    texts: Vec<String>,
}

async fn post(base: &str, path: &str, key: &str, body: &Value) -> Value {
    let url = format!("{base}{path}");
    let answer = client().post(url).bearer_auth(key).json(body).send().await.unwrap();
    let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert!(status.is_success(), "{status} {body}");
    body
}

/// One receiver for all agents: it accepts, at once or after a pause.
async fn receive(arrivals: Arc<Arrivals>, pause: Duration) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // Reads what it is sent: who answers before that is done breaks the connection.
    let take = move |headers: HeaderMap, _: axum::body::Bytes| {
        let arrivals = Arc::clone(&arrivals);
        async move {
            arrivals.note(headers["handoff-id"].to_str().unwrap());
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            axum::Json(json!({ "status": "ACCEPTED" }))
        }
    };
    let app = axum::Router::new().route("/", axum::routing::post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// The admin key of a tenant: the first one's is a setting, others' are made by command.
async fn admin_key(database: &Database, tenant: usize) -> String {
    if tenant == 0 {
        return ADMIN_KEY.to_owned();
    }
    let name = format!("tenant-{tenant}");
    let output = database
        .command(&[])
        .args(["--output", "json", "key", "create", "--role", "admin", "--tenant", &name])
        .output()
        .await
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    said["apiKey"].as_str().unwrap_or_else(|| panic!("no key: {said} {output:?}")).to_owned()
}

/// A sending agent, which may send to its receiver.
async fn registered(
    base: &str,
    admin: &str,
    (id, target): (String, String),
    url: &str,
    in_flight: u32,
) -> Sender {
    let receiver = json!({
        "agentId": target,
        "delivery": { "mode": "webhook", "url": url, "maxInFlight": in_flight },
    });
    post(base, "/agents", admin, &receiver).await;
    let sender = json!({ "agentId": id, "handoffTargets": [target] });
    let made = post(base, "/agents", admin, &sender).await;
    let key = made["apiKey"].as_str().unwrap().to_owned();
    Sender { id, key, target }
}

fn texts(size: usize) -> Vec<String> {
    (0..TEXTS).map(|_| text(size.saturating_sub(1_200))).collect()
}

impl World {
    /// Registers the agents with the first broker.
    pub async fn new(database: &Database, brokers: &[Broker], args: &Args, plan: &Plan) -> Self {
        let arrivals = Arc::new(Arrivals::default());
        let url = receive(Arc::clone(&arrivals), Duration::from_millis(args.receiver_ms)).await;
        let base = &brokers[0].base;
        let mut senders = Vec::new();
        for tenant in 0..plan.tenants {
            let admin = admin_key(database, tenant).await;
            for n in (tenant..args.agents).step_by(plan.tenants) {
                let names = (format!("sender-{n}"), format!("receiver-{n}"));
                senders.push(registered(base, &admin, names, &url, args.in_flight).await);
            }
        }
        let bases = brokers.iter().map(|broker| broker.base.clone()).collect();
        Self { bases, senders, arrivals, texts: texts(plan.size) }
    }

    /// One sending agent of this name, with an id that is not taken, and its receiver.
    pub async fn of_one(base: &str, admin: &str, name: &str, args: &Args) -> Self {
        let arrivals = Arc::new(Arrivals::default());
        let url = receive(Arc::clone(&arrivals), Duration::ZERO).await;
        let name = format!("{name}-{}", random_id());
        let names = (name.clone(), format!("{name}-receiver"));
        let senders = vec![registered(base, admin, names, &url, args.in_flight).await];
        Self { bases: vec![base.to_owned()], senders, arrivals, texts: texts(args.size[0]) }
    }

    /// The same agents, with brokers that were started since; nothing is counted yet.
    pub fn anew(self, brokers: &[Broker]) -> Self {
        self.arrivals.once.store(0, Ordering::Relaxed);
        self.arrivals.again.store(0, Ordering::Relaxed);
        Self { bases: brokers.iter().map(|broker| broker.base.clone()).collect(), ..self }
    }

    /// A message's id and bytes.
    pub fn message(&self, n: usize, task: &str) -> (String, String) {
        let sender = &self.senders[n % self.senders.len()];
        let id = random_id().to_string();
        let message = json!({
            "schemaVersion": "2.1",
            "handoffId": id,
            "taskId": task,
            "parentHandoffId": null,
            "fromAgent": {
                "agentId": sender.id,
                "agentVersion": "1.0.0",
                "executionId": task,
            },
            "toAgent": { "agentId": sender.target },
            "timestamp": "2026-06-12T08:00:00Z",
            "taskDescription": "Score the liability risk of the extracted clauses",
            "completedSubtasks": [{
                "subtaskId": id,
                "description": "Extract limitation-of-liability clauses",
                "result": { "clauses": ["4.2", "7.1"] },
                "completedAt": "2026-06-12T08:00:00Z",
            }],
            "remainingSubtasks": [{ "subtaskId": "s2", "description": "Score each clause" }],
            "currentState": { "documentId": "contract-7", "pendingDecisions": [] },
            "relevantContext": [{
                "source": "Contract PDF 2026-06-11",
                "excerpt": self.texts[n % self.texts.len()],
                "relevanceScore": 0.92,
            }],
            "constraints": ["returnJSON:true"],
            "costTracking": {
                "costSpentSoFarUSD": 0.01,
                "costBudgetRemainingUSD": 0.4,
                "tokenSpent": { "prompt": 1200, "completion": 300 },
            },
            "conversationHistorySummary": "A supply contract is reviewed for liability risk.",
            "conversationHistoryVerbatim": [],
            "toolCallHistory": [],
            // A trace of its own, so that a share of them can be sampled.
            "traceparent": format!("00-{}-00f067aa0ba902b7-01", hex::encode(random::<16>())),
        });
        (id, message.to_string())
    }
}

/// Words, so many bytes of them.
pub fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        for byte in random::<16>() {
            text.push_str(WORDS[usize::from(byte) % WORDS.len()]);
            text.push(' ');
        }
    }
    text.truncate(bytes);
    text
}
