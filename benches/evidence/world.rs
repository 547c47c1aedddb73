//! Two agents that hand a task to each other.

use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::database::ADMIN_KEY;

/// An HTTP client with as many connections as it needs.
pub fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_mins(5)).build().unwrap()
}

/// An agent's id and key.
pub struct Agent {
    pub id: &'static str,
    pub key: String,
}

/// Asks, and takes the answer if it is well.
pub async fn ask(request: reqwest::RequestBuilder) -> Value {
    let answer = request.send().await.unwrap();
    let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert!(status.is_success(), "{status}: {body}");
    body
}

/// Registers `a` and `b`; both pull, and may hand off to each other and to themselves.
pub async fn agents(http: &reqwest::Client, broker: &Broker) -> [Agent; 2] {
    let register = async |id: &'static str, other: &str| {
        let agent = json!({
            "agentId": id, "handoffTargets": [other, id], "delivery": { "mode": "pull" },
        });
        let post = http.post(format!("{}/agents", broker.base)).bearer_auth(ADMIN_KEY);
        let said = ask(post.json(&agent)).await;
        Agent { id, key: said["apiKey"].as_str().unwrap().to_owned() }
    };
    [register("a", "b").await, register("b", "a").await]
}

/// A message of some 4 KB, with a subtask that no other has.
pub fn message(task: &str, parent: Option<&str>, from: &str, to: &str) -> Value {
    let noise: String = (0..80).map(|_| random_id().simple().to_string()).collect();
    json!({
        "schemaVersion": "2.1",
        "handoffId": random_id().to_string(),
        "taskId": task,
        "parentHandoffId": parent,
        "fromAgent": {
            "agentId": from, "agentVersion": "1.0.0", "executionId": random_id().to_string(),
        },
        "toAgent": { "agentId": to },
        "timestamp": "2026-06-12T08:00:00Z",
        "taskDescription": "Review the contract",
        "completedSubtasks": [{
            "subtaskId": random_id().to_string(), "description": "Read a page", "result": {},
            "completedAt": "2026-06-12T08:00:00Z",
        }],
        "remainingSubtasks": [{ "subtaskId": "s1", "description": "Read the rest" }],
        "currentState": { "notes": noise },
        "relevantContext": [],
        "constraints": [],
        "costTracking": {
            "costSpentSoFarUSD": 0.01, "costBudgetRemainingUSD": 0.4,
            "tokenSpent": { "prompt": 10, "completion": 5 },
        },
        "conversationHistorySummary": "Nothing yet.",
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    })
}

/// Submits; returns the handoff's id.
pub async fn submit(http: &reqwest::Client, broker: &Broker, key: &str, message: &Value) -> String {
    let post = http.post(format!("{}/handoffs", broker.base)).bearer_auth(key);
    ask(post.json(message)).await;
    message["handoffId"].as_str().unwrap().to_owned()
}

/// The receiver takes what waits for it, and says so.
pub async fn accept(http: &reqwest::Client, broker: &Broker, by: &Agent, handoff: &str) {
    let inbox = format!("{}/agents/{}/inbox?wait=30&max=1", broker.base, by.id);
    let page = ask(http.get(inbox).bearer_auth(&by.key)).await;
    let item = &page["items"][0];
    assert_eq!(item["handoffId"], handoff);
    let path = format!("{}/handoffs/{handoff}/accept", broker.base);
    let token = json!({ "fencingToken": item["fencingToken"] });
    ask(http.post(path).bearer_auth(&by.key).json(&token)).await;
}

/// Median, 99th percentile and longest of durations, in milliseconds.
pub fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |share: f64| {
        let place = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1;
        times[place].as_secs_f64() * 1e3
    };
    format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(0.5), at(0.99), at(1.0))
}
