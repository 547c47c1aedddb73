//! Agents, messages, and the count at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use handoffd::clock::random_id;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Site};

/// How long a case waits for what has to come: it ends what hangs, and is far above what a busy machine takes.
pub const COMES_WITHIN: Duration = Duration::from_mins(3);

/// An HTTP client.
pub fn client() -> reqwest::Client {
    // Reading the system's certificates takes longer than most calls, and no server here speaks TLS.
    let builder = reqwest::Client::builder().tls_certs_only([]);
    // The broker ends a connection that is idle for ten seconds: one that ends as it is used again fails the request.
    let builder = builder.pool_idle_timeout(Duration::from_secs(5));
    builder.timeout(Duration::from_secs(40)).build().unwrap()
}

/// The transport by which a receiver takes its handoffs.
pub enum Takes {
    /// By webhook at a URL, so many at once.
    Webhook(String, u32),
    /// The same, with a context window of so many tokens.
    Window(String, u32, u64),
    /// From its inbox.
    Inbox,
    /// As this `delivery` says.
    Delivery(Value),
}

/// The agents of a case, and what it was told.
#[derive(Default)]
pub struct World {
    /// The key of the sender, `source`.
    pub sender_key: String,
    /// Receivers by id, with their keys.
    pub receivers: BTreeMap<String, String>,
    /// Their signing secrets.
    pub signing_secrets: BTreeMap<String, String>,
    /// The messages that reached each receiver.
    pub seen: Arc<Seen>,
    /// Acknowledged handoffs.
    pub acknowledged: Mutex<BTreeMap<String, Acknowledged>>,
}

/// The answer about a handoff that the broker acknowledged.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    pub task: String,
    /// The one that was acknowledged before it on its task.
    pub parent: Option<String>,
    pub target: String,
}

/// Registers an agent; returns its key.
pub async fn register(base: &str, agent: Value) -> String {
    registered(base, agent).await.0
}

/// Registers an agent; returns its key and its signing secret.
async fn registered(base: &str, agent: Value) -> (String, String) {
    let answer = client()
        .post(format!("{base}/agents"))
        .bearer_auth(ADMIN_KEY)
        .json(&agent)
        .send()
        .await
        .unwrap();
    let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert_eq!(status, 201, "{body}");
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    (text("apiKey"), text("signingSecret"))
}

impl World {
    /// Registers the sender and these receivers.
    pub async fn new(broker: &Broker, receivers: Vec<(&str, Takes)>) -> Self {
        let targets: Vec<&str> = receivers.iter().map(|(id, _)| *id).collect();
        let sender = json!({ "agentId": "source", "handoffTargets": targets });
        let mut world =
            Self { sender_key: register(&broker.base, sender).await, ..Self::default() };
        for (id, takes) in receivers {
            let hook = |url, most| json!({ "mode": "webhook", "url": url, "maxInFlight": most, "timeoutMs": 60_000 });
            let (delivery, window) = match takes {
                Takes::Webhook(url, most) => (hook(url, most), None),
                Takes::Window(url, most, tokens) => (hook(url, most), Some(tokens)),
                Takes::Inbox => (json!({ "mode": "pull" }), None),
                Takes::Delivery(delivery) => (delivery, None),
            };
            let mut agent = json!({ "agentId": id, "delivery": delivery });
            if let Some(tokens) = window {
                agent["contextWindowTokens"] = tokens.into();
            }
            let (key, secret) = registered(&broker.base, agent).await;
            world.receivers.insert(id.to_owned(), key);
            world.signing_secrets.insert(id.to_owned(), secret);
        }
        world
    }

    /// A world with a quick webhook receiver, a slow and narrow one, and one that pulls: there is always a backlog, and
    /// attempts under way, when a server dies.
    pub async fn with_backlog(broker: &Broker) -> Self {
        let seen = Arc::new(Seen::default());
        let quick = accepting(Arc::clone(&seen), Duration::ZERO).await;
        let slow = accepting(Arc::clone(&seen), Duration::from_millis(30)).await;
        let receivers = vec![
            ("quick", Takes::Webhook(quick, 16)),
            ("slow", Takes::Webhook(slow, 4)),
            ("puller", Takes::Inbox),
        ];
        Self { seen, ..Self::new(broker, receivers).await }
    }

    pub fn acknowledge(&self, message: &Value) {
        let text = |name: &str| message[name].as_str().map(str::to_owned);
        let said = Acknowledged {
            task: text("taskId").unwrap(),
            parent: message
                .pointer("/currentState/after")
                .and_then(Value::as_str)
                .map(str::to_owned),
            target: message["toAgent"]["agentId"].as_str().unwrap().to_owned(),
        };
        self.acknowledged.lock().unwrap().insert(text("handoffId").unwrap(), said);
    }

    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Submits one message; panics unless it is taken.
    pub async fn submit(&self, base: &str, message: &Value) {
        let answer = client()
            .post(format!("{base}/handoffs"))
            .bearer_auth(&self.sender_key)
            .json(message)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 202, "{:?}", answer.text().await);
        self.acknowledge(message);
    }

    /// The count: everything acknowledged is in its task's trace once, was accepted, and reached its
    /// receiver, in the order of its task; no attempt was made twice; the log verifies.
    pub async fn settle_up(&self, site: &Site, broker: &Broker) -> Tally {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        until(COMES_WITHIN, "everything acknowledged reaches its receiver", async || {
            let seen = self.seen.handoffs();
            acknowledged.keys().filter(|id| !seen.contains(*id)).count()
        })
        .await;
        self.seen.check_attempts();
        self.check_order(&acknowledged);
        let tasks: BTreeSet<String> = acknowledged.values().map(|said| said.task.clone()).collect();
        let open = async || {
            let accepted = traces(&broker.base, &tasks).await;
            acknowledged.keys().filter(|id| accepted.get(*id) != Some(&true)).count()
        };
        until(COMES_WITHIN, "every acknowledged handoff is accepted in its trace", open).await;
        let records = site.verify().await;
        let deliveries = self.seen.all().len();
        let tally = Tally { acknowledged: acknowledged.len(), deliveries };
        assert!(
            records >= 2 * tally.acknowledged as u64,
            "each has a record of its commit and one of its acceptance: {tally:?}, {records} records"
        );
        eprintln!("{:?}: {tally:?}, {records} records verified", site.side);
        tally
    }

    fn check_order(&self, acknowledged: &BTreeMap<String, Acknowledged>) {
        let mut first = BTreeMap::new();
        for (place, delivery) in self.seen.all().into_iter().enumerate() {
            first.entry(delivery.handoff).or_insert(place);
        }
        for (id, said) in acknowledged {
            if let Some(parent) = &said.parent {
                assert!(first[parent] < first[id], "{id} went before {parent} of its task");
            }
        }
    }
}

/// The figures of a case.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    pub acknowledged: usize,
    pub deliveries: usize,
}

/// The handoffs in the traces of `tasks`, each there once, and whether it was accepted.
async fn traces(base: &str, tasks: &BTreeSet<String>) -> BTreeMap<String, bool> {
    let http = client();
    let pages = stream::iter(tasks.iter().map(|task| {
        let ask = http.get(format!("{base}/tasks/{task}/trace")).bearer_auth(ADMIN_KEY);
        async move { ask.send().await.unwrap().json::<Value>().await.unwrap() }
    }))
    .buffer_unordered(8)
    .collect::<Vec<_>>()
    .await;
    let mut found = BTreeMap::new();
    for page in pages {
        assert_eq!(page["verification"]["ok"], true, "{}", page["verification"]);
        for handoff in page["handoffs"].as_array().unwrap() {
            let id = handoff["handoffId"].as_str().unwrap().to_owned();
            let accepted = handoff["status"] == "ACCEPTED";
            assert!(found.insert(id, accepted).is_none(), "twice in the trace: {handoff}");
        }
    }
    found
}

/// Polls until nothing is left, for a bounded time.
pub async fn until(within: Duration, what: &str, mut left: impl AsyncFnMut() -> usize) {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let count = left().await;
        if count == 0 {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "not in {within:?}: {what}; {count} left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A message from `source`, which begins every task. Of several it says in its state which one went before.
pub fn message(task: &str, after: Option<&str>, target: &str) -> Value {
    json!({
        "schemaVersion": "2.1",
        "handoffId": random_id().to_string(),
        "taskId": task,
        "parentHandoffId": null,
        "fromAgent": {
            "agentId": "source",
            "agentVersion": "1.0.0",
            "executionId": "a1b2c3d4-e5f6-4789-8abc-def012345678",
        },
        "toAgent": { "agentId": target },
        "timestamp": "2026-06-12T08:00:00Z",
        "taskDescription": "INITIAL",
        "completedSubtasks": [],
        "remainingSubtasks": [{ "subtaskId": "s1", "description": "Read the contract" }],
        "currentState": { "documentId": "contract-7", "notes": "x".repeat(512), "after": after },
        "relevantContext": [],
        "constraints": [],
        "costTracking": {
            "costSpentSoFarUSD": 0.01,
            "costBudgetRemainingUSD": 0.4,
            "tokenSpent": { "prompt": 10, "completion": 2 },
        },
        "conversationHistorySummary": "",
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    })
}
