//! Brokers that die within a conversation at a door: MCP, A2A, SW4RM and Jazz with an inbox behind them, and the front door with a
//! remote A2A agent behind it. A request that got no answer is sent again as it was; the log then has each step once, the
//! remote agent was given one task, and the handoff comes to its end.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use handoffd::fault::Step;
use reqwest::Method;
use serde_json::{Value, json};

use super::RESTS_WITHIN;
use super::failures::ask as send;
use super::fleet::Fleet;
use super::rig::below;
use crate::kills::rounds;
use crate::remote_agent::RemoteAgent;
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Takes, World, client, message};

/// Conversations: one at each door in, and one with a remote agent.
const CONVERSATIONS: usize = 5;
/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing: each conversation once. 35 are each conversation at each of its steps.
const ROUNDS: usize = CONVERSATIONS;

/// Steps of a conversation at a door, and how often each is passed.
const TALK: [(Step, f64); 7] = [
    (Step::CommitBegin, 6.0),
    (Step::CommitDecided, 6.0),
    (Step::CommitWritten, 6.0),
    (Step::CommitSealed, 6.0),
    (Step::CommitDone, 6.0),
    (Step::InboxClaimed, 1.0),
    (Step::InboxLeased, 1.0),
];

/// Steps on the way to a remote agent and back.
const OUT: [(Step, f64); 7] = [
    (Step::SendBegin, 1.0),
    (Step::SendAnswered, 1.0),
    (Step::SettleBegin, 1.0),
    (Step::SettleDone, 1.0),
    (Step::CommitBegin, 3.0),
    (Step::CommitWritten, 3.0),
    (Step::CommitDone, 3.0),
];

pub async fn killed_within_a_conversation_at_a_door_each_step_is_in_the_log_once(site: Arc<Site>) {
    let settings = [
        ("HANDOFFD_DOORS__A2A__POLL_MS", "30"),
        ("HANDOFFD_DOORS__A2A__POLL_MAX_MS", "200"),
        ("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "300"),
        // Longer than a restart takes on a busy machine: between two steps no other agent may get the handoff. A claim
        // whose answer was lost comes back after it.
        ("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "10000"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut fleet = Fleet::start(&site, settings, 1).await;
    let world =
        World::new(fleet.first(), vec![("puller", Takes::Inbox), ("remote", Takes::Inbox)]).await;
    let agent = RemoteAgent::start().await;
    let body = json!({ "delivery": { "mode": "a2a", "config": { "url": agent.url } } });
    let changed = send(&fleet.base(), Method::PATCH, "/agents/remote", ADMIN_KEY, &body).await;
    assert_eq!(changed.unwrap().0, 200);
    let card =
        send(&fleet.base(), Method::PATCH, "/agents/puller", ADMIN_KEY, &json!({ "card": {} }))
            .await;
    assert_eq!(card.unwrap().0, 200);
    // The two sides begin at steps of their own.
    let offset = if site.side == Side::Sqlite { 0 } else { 3 };
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        let conversation = round % CONVERSATIONS;
        let place = (offset + conversation + round / CONVERSATIONS) % TALK.len();
        let (step, passes) =
            if conversation == CONVERSATIONS - 1 { OUT[place] } else { TALK[place] };
        fleet.kill(0).await;
        fleet.arm(0, step, below(passes) as u32, "").await;
        let mut talk = Talk { fleet: &mut fleet, world: &world, step };
        let (task, handoff, kinds) = match conversation {
            0 => talk.by_mcp().await,
            1 => talk.by_a2a().await,
            2 => talk.by_sw4rm().await,
            3 => talk.by_jazz().await,
            _ => talk.hand_to_remote(&agent).await,
        };
        fleet.kill(0).await;
        fleet.revive(0).await;
        judge(&fleet, &task, &handoff, &kinds, step).await;
        site.verify().await;
    }
    let ends: usize = fleet.ends.values().sum();
    assert!(ends * 2 >= rounds, "{ends} of {rounds} rounds came to their step");
    fleet.stop().await;
    site.verify().await;
}

/// The results of a conversation: task, handoff, and the kinds of its records in order.
type Said = (String, String, Vec<&'static str>);

const TALKED: [&str; 5] = ["HANDOFF", "ACCEPTED", "INPUT_REQUESTED", "INPUT_PROVIDED", "COMPLETED"];

struct Talk<'a> {
    fleet: &'a mut Fleet,
    world: &'a World,
    step: Step,
}

impl Talk<'_> {
    /// Asks until there is something, and revives who came to its step meanwhile.
    async fn until<T>(&mut self, what: &str, mut ask: impl AsyncFnMut(String) -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        loop {
            assert!(tokio::time::Instant::now() < deadline, "{}: no {what}", self.step.name());
            self.fleet.tend().await;
            if let Some(found) = ask(self.fleet.base()).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A tool's result, its structured content; the call is made again until one comes.
    async fn tool(&mut self, key: &str, name: &str, arguments: Value) -> Value {
        let step = self.step.name();
        self.until(name, async |base| {
            let result = call(&base, key, name, &arguments).await?;
            let content = result["structuredContent"].clone();
            let busy = matches!(content["code"].as_str(), Some("UNAVAILABLE" | "OVERLOADED"));
            assert!(result["isError"] != true || busy, "{step}: {name}: {result}");
            (result["isError"] == false).then_some(content)
        })
        .await
    }

    async fn by_mcp(&mut self) -> Said {
        let sender = self.world.sender_key.clone();
        let receiver = self.world.receivers["puller"].clone();
        let request = random_id().to_string();
        let given = json!({
            "target": "puller", "task": "Add the two", "summary": "Three and four.", "requestId": request, "waitSeconds": 0,
        });
        let made = self.tool(&sender, "hand_off", given.clone()).await;
        let id = made["handoffId"].as_str().unwrap().to_owned();
        let again = self.tool(&sender, "hand_off", given).await;
        assert_eq!(again["handoffId"], id, "the same request is the same handoff");
        let mut token = Value::Null;
        while token.is_null() {
            token = self.tool(&receiver, "take_next", json!({ "waitSeconds": 1 })).await["fencingToken"].clone();
        }
        let held = json!({ "handoffId": id, "fencingToken": token });
        self.tool(&receiver, "accept", held.clone()).await;
        let mut asked = held.clone();
        asked["question"] = "Which currency?".into();
        asked["waitSeconds"] = 0.into();
        self.tool(&receiver, "ask", asked).await;
        self.tool(&sender, "answer", json!({ "handoffId": id, "answer": "EUR", "number": 1 }))
            .await;
        let mut done = held;
        done["result"] = json!({ "sum": 7 });
        self.tool(&receiver, "complete", done).await;
        let checked =
            self.tool(&sender, "check_handoff", json!({ "handoffId": id, "waitSeconds": 5 })).await;
        assert_eq!(checked["status"], "COMPLETED", "{checked}");
        let task = self.task_of(&id).await;
        (task, id, TALKED.to_vec())
    }

    async fn by_a2a(&mut self) -> Said {
        let sender = self.world.sender_key.clone();
        let receiver = self.world.receivers["puller"].clone();
        let body = json!({
            "message": { "messageId": random_id(), "role": "ROLE_USER", "parts": [{ "text": "Add the two" }, { "data": { "a": 3 } }] },
            "configuration": { "returnImmediately": true },
        });
        let path = "/a2a/puller/message:send";
        let made = self.a2a(&sender, Method::POST, path, &body).await;
        let id = made["task"]["id"].as_str().unwrap().to_owned();
        let again = self.a2a(&sender, Method::POST, path, &body).await;
        assert_eq!(again["task"]["id"], id, "the same message is the same task");
        let token = self.claimed().await;
        let own = |verb: &str| format!("/handoffs/{id}/{verb}");
        self.api(&receiver, Method::POST, &own("accept"), &json!({ "fencingToken": token })).await;
        let question = json!({ "question": "Which currency?", "fencingToken": token });
        self.api(&receiver, Method::POST, &own("ask"), &question).await;
        let answer = json!({
            "message": { "messageId": random_id(), "taskId": id, "role": "ROLE_USER", "parts": [{ "text": "EUR" }] },
            "configuration": { "returnImmediately": true },
        });
        // After a lost answer the task is not waiting any more: the client looks at it.
        let task_path = format!("/a2a/puller/tasks/{id}");
        self.until("answer", async |base| {
            if let Some((200, _)) = a2a(&base, &sender, Method::POST, path, &answer).await {
                return Some(());
            }
            let (status, task) = a2a(&base, &sender, Method::GET, &task_path, &json!({})).await?;
            (status == 200 && task["status"]["state"] == "TASK_STATE_WORKING").then_some(())
        })
        .await;
        let done = json!({ "result": { "sum": 7 }, "fencingToken": token });
        self.api(&receiver, Method::POST, &own("complete"), &done).await;
        let task = self.a2a(&sender, Method::GET, &task_path, &json!({})).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        (task["contextId"].as_str().unwrap().to_owned(), id, TALKED.to_vec())
    }

    async fn by_sw4rm(&mut self) -> Said {
        let sender = self.world.sender_key.clone();
        let receiver = self.world.receivers["puller"].clone();
        let context =
            json!({ "conversation_history": [], "tool_state": {}, "metadata": { "a": 3 } });
        let body = json!({
            "from_agent": "source", "to_agent": "puller", "reason": "Add the two", "request_id": random_id(),
            "context_snapshot": context.to_string(),
        });
        let path = "/adapters/sw4rm/handoffs";
        let made = self.api(&sender, Method::POST, path, &body).await;
        let id = made["handoff_id"].as_str().unwrap().to_owned();
        let again = self.api(&sender, Method::POST, path, &body).await;
        assert_eq!(again["handoff_id"], id, "the same request is the same handoff");
        let pending = "/adapters/sw4rm/agents/puller/pending?wait=1";
        let mut token = Value::Null;
        while token.is_null() {
            let page = self.api(&receiver, Method::GET, pending, &json!({})).await;
            token = page["handoffs"][0]["metadata"]["handoffd"]["fencingToken"].clone();
        }
        let held = json!({ "fencing_token": token });
        self.api(&receiver, Method::POST, &format!("{path}/{id}/accept"), &held).await;
        let done = json!({ "fencing_token": token, "result": { "sum": 7 } });
        self.api(&receiver, Method::POST, &format!("{path}/{id}/complete"), &done).await;
        let page = self.api(&sender, Method::GET, &format!("{path}/{id}"), &json!({})).await;
        assert_eq!(page["status"], "COMPLETED", "{page}");
        let task = self.task_of(&id).await;
        (task, id, vec!["HANDOFF", "ACCEPTED", "COMPLETED"])
    }

    async fn by_jazz(&mut self) -> Said {
        let sender = self.world.sender_key.clone();
        let request = random_id().to_string();
        let body = json!({
            "id": request, "fromAgentId": "source", "toAgentId": "puller", "reason": "It is theirs", "task": "Add the two",
            "context": { "originalRequest": "Add the two", "conversationHistory": [], "completedWork": { "a": 3 }, "requiredCapabilities": [], "metadata": {} },
            "timestamp": "2026-01-01T00:00:00Z", "conversationId": random_id(),
        });
        let path = "/adapters/jazz/handoffs?wait=0";
        let made = self.api(&sender, Method::POST, path, &body).await;
        assert_eq!(made["handoffId"], request, "{made}");
        let again = self.api(&sender, Method::POST, path, &body).await;
        assert_eq!(again["handoffId"], request, "the same request is the same handoff");
        let token = self.claimed().await;
        let own = |verb: &str| format!("/handoffs/{request}/{verb}");
        let receiver = self.world.receivers["puller"].clone();
        self.api(&receiver, Method::POST, &own("accept"), &json!({ "fencingToken": token })).await;
        let done = json!({ "result": { "sum": 7 }, "iterations": 1, "fencingToken": token });
        self.api(&receiver, Method::POST, &own("complete"), &done).await;
        let told = self.api(&sender, Method::POST, path, &body).await;
        assert_eq!((&told["success"], &told["result"]), (&json!(true), &json!({ "sum": 7 })));
        let task = self.task_of(&request).await;
        (task, request, vec!["HANDOFF", "ACCEPTED", "COMPLETED"])
    }

    /// The fencing token of the handoff in the puller's inbox.
    async fn claimed(&mut self) -> Value {
        let receiver = self.world.receivers["puller"].clone();
        loop {
            let inbox = "/agents/puller/inbox?wait=1";
            let page = self.api(&receiver, Method::GET, inbox, &json!({})).await;
            if page["items"][0]["fencingToken"].is_number() {
                return page["items"][0]["fencingToken"].clone();
            }
        }
    }

    async fn hand_to_remote(&mut self, agent: &RemoteAgent) -> Said {
        let sender = self.world.sender_key.clone();
        let handoff = message(&random_id().to_string(), None, "remote");
        let id = handoff["handoffId"].as_str().unwrap().to_owned();
        self.api(&sender, Method::POST, "/handoffs", &handoff).await;
        let path = format!("/handoffs/{id}");
        let step = self.step.name();
        self.until("result", async |base| {
            let (status, page) = send(&base, Method::GET, &path, &sender, &json!({})).await?;
            let open = matches!(page["status"].as_str(), Some("PENDING" | "ACCEPTED"));
            assert!(open || page["status"] == "COMPLETED" || status != 200, "{step}: {page}");
            (page["status"] == "COMPLETED").then_some(())
        })
        .await;
        assert_eq!(agent.tasks_of(&id), 1, "{step}: the agent was given one task");
        let task = handoff["taskId"].as_str().unwrap().to_owned();
        (task, id, vec!["HANDOFF", "ACCEPTED", "COMPLETED"])
    }

    async fn a2a(&mut self, key: &str, method: Method, path: &str, body: &Value) -> Value {
        let step = self.step.name();
        self.until(path, async |base| match a2a(&base, key, method.clone(), path, body).await? {
            (200, said) => Some(said),
            (503, _) => None,
            other => panic!("{step}: {path}: {other:?}"),
        })
        .await
    }

    async fn api(&mut self, key: &str, method: Method, path: &str, body: &Value) -> Value {
        let step = self.step.name();
        self.until(path, async |base| match send(&base, method.clone(), path, key, body).await? {
            (200 | 202, said) => Some(said),
            (503, _) => None,
            other => panic!("{step}: {path}: {other:?}"),
        })
        .await
    }

    async fn task_of(&mut self, handoff: &str) -> String {
        let page =
            self.api(ADMIN_KEY, Method::GET, &format!("/handoffs/{handoff}"), &json!({})).await;
        page["taskId"].as_str().unwrap().to_owned()
    }
}

/// A call of a tool; `None` where no answer came.
async fn call(base: &str, key: &str, name: &str, arguments: &Value) -> Option<Value> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "crash", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let answer = client()
        .post(format!("{base}/mcp"))
        .bearer_auth(key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", name)
        .json(&body)
        .send()
        .await
        .ok()?;
    if answer.status() != 200 {
        return None;
    }
    Some(answer.json::<Value>().await.ok()?["result"].clone()).filter(|result| !result.is_null())
}

async fn a2a(
    base: &str,
    key: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let mut request = client().request(method.clone(), format!("{base}{path}"));
    if method == Method::POST {
        request = request.json(body);
    }
    let answer = request.bearer_auth(key).header("a2a-version", "1.0").send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

/// Each step is in the log once, in order.
async fn judge(fleet: &Fleet, task: &str, handoff: &str, kinds: &[&str], step: Step) {
    let path = format!("/tasks/{task}/trace");
    let page = send(&fleet.base(), Method::GET, &path, ADMIN_KEY, &json!({})).await.unwrap().1;
    let records = page["records"].as_array().unwrap();
    let said: Vec<&str> = records
        .iter()
        .filter(|record| record["handoffId"] == handoff)
        .map(|record| record["kind"].as_str().unwrap())
        .collect();
    let said: Vec<&str> = said.into_iter().filter(|kind| *kind != "RETURNED").collect();
    assert_eq!(said, kinds, "after {}: {page:#}", step.name());
    assert_eq!(page["verification"]["ok"], true, "after {}: {page:#}", step.name());
}
