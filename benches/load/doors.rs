//! Time and processor time of each door in: the bench submits the same handoff by `POST /handoffs`, MCP's `hand_off`, A2A's `message:send` and `SendMessage`, SW4RM's
//! `request_handoff`, and Jazz's `executeHandoff` and `publish`, in turn, on one connection of one client, to a receiver that never looks into its inbox.

use std::collections::BTreeMap;
use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::report::{Quantiles, Row};
use crate::world::client;

/// Handoffs of one door before it is another's turn: enough for the processor's clock, which ticks at 100 Hz.
const TURN: usize = 50;
/// Turns of each door before any that counts.
const WARM: usize = 2;

/// An entry that the bench submits by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Front,
    Mcp,
    A2a,
    A2aRpc,
    Sw4rm,
    Jazz,
    JazzPublish,
}

const DOORS: [(Door, &str); 7] = [
    (Door::Front, "POST /handoffs"),
    (Door::Mcp, "MCP hand_off"),
    (Door::A2a, "A2A message:send"),
    (Door::A2aRpc, "A2A SendMessage"),
    (Door::Sw4rm, "SW4RM request_handoff"),
    (Door::Jazz, "Jazz executeHandoff"),
    (Door::JazzPublish, "Jazz publish"),
];

struct Caller {
    http: reqwest::Client,
    base: String,
    key: String,
    summary: String,
}

impl Caller {
    async fn register(http: &reqwest::Client, base: &str, agent: Value) -> String {
        let request = http.post(format!("{base}/agents")).bearer_auth(ADMIN_KEY).json(&agent);
        let made: Value = request.send().await.unwrap().json().await.unwrap();
        made["apiKey"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// One handoff; the time to its answer.
    async fn hand_off(&self, door: Door) -> Duration {
        let request = self.request(door);
        let began = Instant::now();
        let answer = self.http.execute(request).await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        let took = began.elapsed();
        let committed = match door {
            Door::Front | Door::Jazz | Door::JazzPublish => body["handoffId"].is_string(),
            Door::Sw4rm => body["accepted"] == true,
            Door::Mcp => body["result"]["structuredContent"]["handoffId"].is_string(),
            Door::A2a => body["task"]["id"].is_string(),
            Door::A2aRpc => body["result"]["task"]["id"].is_string(),
        };
        assert!(status.is_success() && committed, "{door:?}: {status}: {body}");
        took
    }

    fn request(&self, door: Door) -> reqwest::Request {
        let post =
            |path: &str| self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.key);
        let parts = json!([{ "text": self.summary }]);
        let message = json!({ "messageId": random_id(), "role": "ROLE_USER", "parts": parts });
        let sent = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let request = match door {
            Door::Front => post("/handoffs").json(&self.message()),
            Door::Mcp => {
                let meta = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "load", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let arguments = json!({ "target": "receiver", "task": "Add up", "summary": self.summary, "waitSeconds": 0 });
                let params = json!({ "name": "hand_off", "arguments": arguments, "_meta": meta });
                let body =
                    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
                post("/mcp")
                    .header("accept", "application/json, text/event-stream")
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", "tools/call")
                    .header("mcp-name", "hand_off")
                    .json(&body)
            }
            Door::A2a => {
                post("/a2a/receiver/message:send").header("a2a-version", "1.0").json(&sent)
            }
            Door::A2aRpc => {
                let body =
                    json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent });
                post("/a2a/receiver").header("a2a-version", "1.0").json(&body)
            }
            Door::Sw4rm => post("/adapters/sw4rm/handoffs").json(&json!({
                "from_agent": "sender", "to_agent": "receiver", "reason": "Add up",
                "context_snapshot": self.context().to_string(),
            })),
            Door::Jazz => post("/adapters/jazz/handoffs?wait=0").json(&json!({
                "id": random_id(), "fromAgentId": "sender", "toAgentId": "receiver", "reason": "It is theirs", "task": "Add up",
                "context": { "originalRequest": self.summary, "conversationHistory": [], "completedWork": {}, "requiredCapabilities": [], "metadata": {} },
                "timestamp": "2026-01-01T00:00:00Z", "conversationId": random_id(),
            })),
            Door::JazzPublish => post("/adapters/jazz/publish").json(&json!({
                "specialistType": "sums", "task": "Add up", "context": { "note": self.summary },
            })),
        };
        request.build().unwrap()
    }

    /// SW4RM's context with the text as its one turn.
    fn context(&self) -> Value {
        let turn = json!({ "role": "user", "content": self.summary });
        json!({ "conversation_history": [turn], "tool_state": {}, "metadata": {} })
    }

    fn message(&self) -> Value {
        json!({
            "schemaVersion": "2.2", "handoffId": random_id(), "taskId": random_id(), "parentHandoffId": null,
            "fromAgent": { "agentId": "sender", "agentVersion": "1.0.0", "executionId": random_id() },
            "toAgent": { "agentId": "receiver" }, "timestamp": "2026-01-01T00:00:00Z", "taskDescription": "INITIAL",
            "taskSummary": "Add up", "completedSubtasks": [], "remainingSubtasks": [], "currentState": {},
            "relevantContext": [], "constraints": [], "historyStrategy": "summary",
            "costTracking": { "costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 1, "tokenSpent": { "prompt": 0, "completion": 0 } },
            "conversationHistorySummary": self.summary, "conversationHistoryVerbatim": [], "toolCallHistory": [],
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        })
    }
}

/// Measures each door with so many handoffs, of so many bytes of text.
pub async fn measure(store: &str, binary: &std::path::Path, count: usize, size: usize) -> Vec<Row> {
    let database = Database::new(store, binary.to_owned()).await;
    let broker = Broker::start(&database, &[]).await;
    let http = client();
    let base = broker.base.clone();
    Caller::register(
        &http,
        &base,
        json!({ "agentId": "receiver", "card": {}, "capabilities": ["sums"] }),
    )
    .await;
    let sender = json!({ "agentId": "sender", "handoffTargets": ["receiver"] });
    let key = Caller::register(&http, &base, sender).await;
    let summary = "An invoice of seven euros was read. ".chars().cycle().take(size).collect();
    let caller = Caller { http, base, key, summary };
    let mut took = vec![Vec::new(); DOORS.len()];
    let mut cpu = vec![0.0; DOORS.len()];
    for turn in 0..WARM + count.div_ceil(TURN) {
        for (place, (door, _)) in DOORS.into_iter().enumerate() {
            let before = broker.cpu();
            for _ in 0..TURN {
                let one = caller.hand_off(door).await;
                if turn >= WARM {
                    took[place].push(one);
                }
            }
            if turn >= WARM {
                cpu[place] += broker.cpu() - before;
            }
        }
    }
    broker.stop().await;
    database.verify().await;
    database.drop().await;
    let side = if store.starts_with("sqlite") { "SQLite" } else { "Postgres" };
    let front = Quantiles::of(&took[0]);
    let mut rows = Vec::new();
    for (place, (_, name)) in DOORS.into_iter().enumerate() {
        let own = Quantiles::of(&took[place]);
        let spent: Duration = took[place].iter().sum();
        let calls = took[place].len() as f64;
        rows.push(Row {
            what: format!("{side}, {name}"),
            rate: calls / spent.as_secs_f64(),
            answered: Some(own),
            arrived: None,
            more: BTreeMap::from([
                ("broker cpu ms/handoff", cpu[place] * 1e3 / calls),
                ("cpu, times the front door", cpu[place] / cpu[0]),
                ("p50, times the front door", own.0 / front.0),
                ("p99, times the front door", own.1 / front.1),
            ]),
        });
    }
    rows
}
