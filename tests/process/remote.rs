//! Two brokers on one Postgres, and a task at a remote A2A agent: one follows it, and the other takes over when that one dies.

use std::sync::Arc;

use handoffd::clock::random_id;
use reqwest::Method;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::remote_agent::RemoteAgent;
use crate::site::{ADMIN_KEY, Site};
use crate::world::{COMES_WITHIN, Takes, World, client, message, until};

const CALLS: &str = "handoff_door_calls_total";
const LOOKS: &str = "operation=\"get_task\"";

/// Leases of five seconds, which a broker on a busy machine extends in time.
const SETTINGS: [(&str, &str); 4] = [
    ("HANDOFFD_DOORS__A2A__POLL_MS", "30"),
    ("HANDOFFD_DOORS__A2A__POLL_MAX_MS", "100"),
    ("HANDOFFD_DELIVERY__LEASE_MS", "5000"),
    ("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "500"),
];

async fn ask(base: &str, method: Method, path: &str, key: &str, body: &Value) -> Value {
    let request = client().request(method, format!("{base}{path}")).bearer_auth(key).json(body);
    let answer = request.send().await.unwrap();
    let (status, body) = (answer.status(), answer.json().await.unwrap());
    assert!(status.is_success(), "{path}: {status}: {body}");
    body
}

async fn looks(broker: &Broker) -> f64 {
    broker.counter(CALLS, LOOKS).await
}

/// Waits until a broker looked at remote tasks so often more.
async fn looks_more(broker: &Broker, times: f64) {
    let before = looks(broker).await;
    let what = "the broker looks at the remote task";
    until(COMES_WITHIN, what, async || usize::from(looks(broker).await < before + times)).await;
}

/// A handoff that the remote agent accepted and works on: its id and its task.
async fn accepted(base: &str, key: &str) -> (String, String) {
    let handoff = message(&random_id().to_string(), None, "remote");
    ask(base, Method::POST, "/handoffs", key, &handoff).await;
    let text = |name: &str| handoff[name].as_str().unwrap().to_owned();
    becomes(base, &text("handoffId"), "ACCEPTED").await;
    (text("handoffId"), text("taskId"))
}

async fn becomes(base: &str, handoff: &str, status: &str) {
    let path = format!("/handoffs/{handoff}");
    until(COMES_WITHIN, &format!("the handoff is {status}"), async || {
        let page = ask(base, Method::GET, &path, ADMIN_KEY, &json!({})).await;
        usize::from(page["status"] != status)
    })
    .await;
}

/// Waits until one of two brokers follows a task: whether the first one does.
async fn is_followed_by(one: (&Broker, f64), other: (&Broker, f64)) -> bool {
    until(COMES_WITHIN, "a broker follows the task", async || {
        let (here, there) = (looks(one.0).await, looks(other.0).await);
        usize::from(here <= one.1 && there <= other.1)
    })
    .await;
    looks(one.0).await > one.1
}

async fn kinds(base: &str, task: &str, handoff: &str) -> Vec<String> {
    let path = format!("/tasks/{task}/trace");
    let page = ask(base, Method::GET, &path, ADMIN_KEY, &json!({})).await;
    assert_eq!(page["verification"]["ok"], true, "{page:#}");
    let records = page["records"].as_array().unwrap().iter();
    let own = records.filter(|record| record["handoffId"] == handoff);
    own.map(|record| record["kind"].as_str().unwrap().to_owned()).collect()
}

pub async fn one_of_two_brokers_follows_a_remote_task_and_the_other_takes_over(site: Arc<Site>) {
    let first = Broker::start(&site, &SETTINGS).await;
    let second = Broker::start(&site, &SETTINGS).await;
    let agent = RemoteAgent::start().await;
    let delivery = json!({ "mode": "a2a", "config": { "url": agent.url } });
    let world = World::new(&first, vec![("remote", Takes::Delivery(delivery))]).await;
    agent.set_busy(true);
    let (handoff, task) = accepted(&first.base, &world.sender_key).await;
    let (follows, idle) = if is_followed_by((&first, 0.0), (&second, 0.0)).await {
        (first, second)
    } else {
        (second, first)
    };
    // The lease is extended for longer than it lasts, and the other broker keeps away.
    looks_more(&follows, 100.0).await;
    becomes(&idle.base, &handoff, "ACCEPTED").await;
    assert!(looks(&idle).await < 0.5, "one broker follows");
    follows.kill().await;
    looks_more(&idle, 1.0).await;
    becomes(&idle.base, &handoff, "ACCEPTED").await;
    agent.set_busy(false);
    becomes(&idle.base, &handoff, "COMPLETED").await;
    assert_eq!(agent.states_of(&handoff), ["TASK_STATE_COMPLETED"], "one task, and it was let be");
    assert_eq!(kinds(&idle.base, &task, &handoff).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);

    // A task whose handoff ended while its follower was dead is withdrawn by the follower that lives.
    agent.set_busy(true);
    let revived = Broker::start(&site, &SETTINGS).await;
    let before = (looks(&revived).await, looks(&idle).await);
    let (handoff, task) = accepted(&revived.base, &world.sender_key).await;
    let there = is_followed_by((&revived, before.0), (&idle, before.1)).await;
    let (follows, lives) = if there { (revived, idle) } else { (idle, revived) };
    follows.kill().await;
    let cancel = json!({ "reason": "NOT_NEEDED", "graceMs": 0 });
    let path = format!("/tasks/{task}/cancel");
    ask(&lives.base, Method::POST, &path, &world.sender_key, &cancel).await;
    until(COMES_WITHIN, "the remote task is withdrawn", async || {
        usize::from(agent.states_of(&handoff) != ["TASK_STATE_CANCELED"])
    })
    .await;
    becomes(&lives.base, &handoff, "CANCELED").await;
    lives.stop().await;
    site.verify().await;
}
