//! One task through three protocols: a model's client hands off by MCP, its receiver hands on by A2A, and that one by the
//! API to a webhook. Results come back the same way, and the log is one.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::agents::{BrokerAnswer, Caller, DemoAgent, DemoRole, DemoVerdict};
use super::report::DemoReport;
use super::story::StoryResult;
use handoffd_store::clock::{self, Clock, SystemClock};

pub(super) const TITLE: &str = "one task through MCP, A2A and a webhook, over real HTTP";

const PLANNER: &str = "planner";
const ANALYST: &str = "analyst";
const MCP_VERSION: &str = "2026-07-28";
const A2A_VERSION: &str = "1.0";
const RESULT: &str = "Filed under 2026/11 as report 7";

/// The two agents that serve webhooks.
const ROLES: [DemoRole; 2] = [
    DemoRole {
        id: "reviewer",
        version: "1.0.0",
        description: "Reviews figures",
        required_state: &[],
        judge: |_| DemoVerdict::Accept,
    },
    DemoRole {
        id: "archivist",
        version: "1.0.0",
        description: "Files reports",
        required_state: &["report"],
        judge: |_| DemoVerdict::Accept,
    },
];

type Outcome<T = ()> = Result<T, String>;

/// The agents and the operator.
struct DoorsStage {
    operator: Caller,
    planner: Caller,
    analyst: Caller,
    reviewer: DemoAgent,
    archivist: DemoAgent,
}

/// A handoff's id, and its task's.
struct Crossing {
    handoff: String,
    task: String,
}

/// Runs the story against the broker at that address.
pub(super) async fn tell(
    report: &mut DemoReport,
    broker: SocketAddr,
    admin_key: &str,
) -> Outcome<StoryResult> {
    let mut stage = set_up(report, broker, admin_key).await?;
    let (first, held) = by_mcp(report, &stage).await?;
    let second = by_a2a(report, &mut stage, &first).await?;
    let third = by_webhook(report, &mut stage, &second).await?;
    back(report, &stage, (&first, &second), &held).await?;
    let trace = trace(report, &stage, [&first.handoff, &second.handoff, &third]).await?;
    let DoorsStage { reviewer, archivist, .. } = stage;
    Ok(StoryResult { agents: vec![reviewer, archivist], deliveries: &[1, 1], trace })
}

async fn set_up(
    report: &mut DemoReport,
    broker: SocketAddr,
    admin_key: &str,
) -> Outcome<DoorsStage> {
    report.step("A broker starts, and the operator registers four agents");
    report.say(format!("http://{broker}, SQLite; MCP at /mcp, A2A at /a2a/reviewer"));
    let operator = Caller::new(broker, admin_key)?;
    let [reviewer, archivist] = &ROLES;
    let reviewer = DemoAgent::start(reviewer, &operator, broker).await?;
    let archivist = DemoAgent::start(archivist, &operator, broker).await?;
    let change = json!({ "card": {}, "handoffTargets": [archivist.id] });
    operator.patch("/agents/reviewer", &change).await?.expect(200, "giving a card")?;
    let mut callers = Vec::new();
    for (id, targets) in [(PLANNER, ANALYST), (ANALYST, reviewer.id)] {
        let spec = json!({ "agentId": id, "handoffTargets": [targets] });
        let made = operator.post("/agents", &spec).await?.expect(201, "registering an agent")?;
        callers.push(Caller::new(broker, made["apiKey"].as_str().unwrap_or_default())?);
    }
    let [planner, analyst] =
        <[Caller; 2]>::try_from(callers).map_err(|_| "two callers were wanted".to_owned())?;
    report.say("who may hand off to whom: planner -> analyst -> reviewer -> archivist");
    Ok(DoorsStage { operator, planner, analyst, reviewer, archivist })
}

/// Calls a tool of the MCP door; the result's structured content, and its first text.
async fn tool(caller: &Caller, name: &str, arguments: Value) -> Outcome<(Value, String)> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "handoffd-demo", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": arguments, "_meta": meta },
    });
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MCP_VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", name),
    ];
    let answer = caller.post_with("/mcp", &headers, &body).await?.expect(200, name)?;
    let result = &answer["result"];
    if result["isError"] != false {
        return Err(format!("{name}: {answer}"));
    }
    let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
    Ok((result["structuredContent"].clone(), text.to_owned()))
}

/// The planner's model hands off by a tool; the analyst's takes the task by another.
async fn by_mcp(report: &mut DemoReport, stage: &DoorsStage) -> Outcome<(Crossing, Value)> {
    report.step("MCP: planner -> analyst, by the tool hand_off");
    let given = json!({
        "target": ANALYST, "task": "Add up the invoices of November and have the report filed",
        "summary": "Two invoices came in: 1200 EUR and 800 EUR.", "context": { "invoicesEUR": [1200, 800] },
        "returnTo": "source", "requestId": "november", "budgetUsd": 0.4, "waitSeconds": 0,
    });
    let (sent, _) = tool(&stage.planner, "hand_off", given.clone()).await?;
    let of = |name: &str| sent[name].as_str().unwrap_or_default().to_owned();
    let first = Crossing { handoff: of("handoffId"), task: of("taskId") };
    report.say(format!("handoff {} on task {}", first.handoff, first.task));
    let (again, _) = tool(&stage.planner, "hand_off", given).await?;
    report.check(
        "the same call again is the same handoff",
        sent["handoffId"].clone(),
        again["handoffId"].clone(),
    );
    let (item, block) = tool(&stage.analyst, "take_next", json!({ "waitSeconds": 10 })).await?;
    report.check(
        "the analyst's model reads the task as data",
        true,
        block.contains("| Add up the invoices"),
    );
    let held = json!({ "handoffId": item["handoffId"], "fencingToken": item["fencingToken"] });
    let (accepted, _) = tool(&stage.analyst, "accept", held.clone()).await?;
    report.check("the analyst's verdict", "ACCEPTED", accepted["status"].clone());
    report.say("taken by take_next, as a guarded block, and accepted");
    Ok((first, held))
}

fn a2a(answer: BrokerAnswer, what: &str, pointer: &str) -> Outcome<Value> {
    let body = answer.expect(200, what)?;
    body.pointer(pointer).cloned().ok_or_else(|| format!("{what}: no {pointer} in {body}"))
}

/// The analyst is a client of A2A: its message goes on in the context, which is the broker's task, and arrives at the
/// reviewer's webhook.
async fn by_a2a(
    report: &mut DemoReport,
    stage: &mut DoorsStage,
    first: &Crossing,
) -> Outcome<Crossing> {
    report.step("A2A: analyst -> reviewer, by message:send");
    let body = json!({
        "message": {
            "messageId": "sum-1", "role": "ROLE_USER", "contextId": first.task,
            "parts": [{ "text": "Review the sum: 2000 EUR" }, { "data": { "sumEUR": 2000 } }],
            "metadata": { "urn:handoffd:a2a:handoff:1": {
                "completed": [{ "description": "Added up the invoices", "result": { "sumEUR": 2000 } }],
            } },
        },
        "configuration": { "returnImmediately": true },
    });
    let version = [("a2a-version", A2A_VERSION)];
    let answer = stage.analyst.post_with("/a2a/reviewer/message:send", &version, &body).await?;
    let task = a2a(answer, "message:send", "/task")?;
    let of = |name: &str| task[name].as_str().unwrap_or_default().to_owned();
    let second = Crossing { handoff: of("id"), task: of("contextId") };
    report.check("the context is the task", first.task.clone(), second.task.clone());
    let delivery = stage.reviewer.next().await?;
    report.check("the delivery", second.handoff.clone(), delivery.handoff_id.clone());
    report.check(
        "it follows the first",
        first.handoff.clone(),
        delivery.message["parentHandoffId"].clone(),
    );
    report.check(
        "the message keeps what A2A said",
        "sum-1",
        delivery.message["extensions"]["a2a"]["message"]["messageId"].clone(),
    );
    report.say("in by A2A, out by a webhook: signed, and accepted in its answer");
    Ok(second)
}

/// The reviewer hands on by the API, signed; the archivist gets it by a webhook and completes.
async fn by_webhook(
    report: &mut DemoReport,
    stage: &mut DoorsStage,
    second: &Crossing,
) -> Outcome<String> {
    report.step("HTTP: reviewer -> archivist, by POST /handoffs and a webhook");
    let now = SystemClock::default().now().rfc3339();
    let done = json!([{ "subtaskId": "review", "description": "Reviewed the sum", "result": { "ok": true }, "completedAt": now }]);
    let message = json!({
        "schemaVersion": "2.2",
        "handoffId": clock::random_id().to_string(),
        "taskId": second.task,
        "parentHandoffId": second.handoff,
        "fromAgent": { "agentId": stage.reviewer.id, "agentVersion": "1.0.0", "executionId": stage.reviewer.execution_id },
        "toAgent": { "agentId": stage.archivist.id },
        "timestamp": now,
        "taskDescription": "File the report",
        "completedSubtasks": done,
        "remainingSubtasks": [{ "subtaskId": "file", "description": "File the report" }],
        "currentState": { "report": { "sumEUR": 2000 } },
        "relevantContext": [],
        "constraints": [],
        "costTracking": {
            "costSpentSoFarUSD": 0.05, "costBudgetRemainingUSD": 0.35, "tokenSpent": { "prompt": 900, "completion": 100 },
        },
        "conversationHistorySummary": "The sum was reviewed.",
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        "traceparent": format!("00-{:032x}-{:016x}-01", clock::random_id().as_u128() | 1, 1),
        "checkpoint": { "step": "reviewed" },
    });
    let answer = stage.reviewer.submit(message, true).await?.expect(200, "the third handoff")?;
    let delivery = stage.archivist.next().await?;
    report.check("its verdict", "ACCEPTED", answer["status"].clone());
    let said = json!({ "result": { "note": RESULT }, "iterations": 1 });
    let completed = stage.archivist.say(&delivery, "complete", said).await?;
    report.check("its end", "COMPLETED", completed["status"].clone());
    report.say(
        "signed by the reviewer, delivered signed by the broker, completed under its fencing token",
    );
    Ok(delivery.handoff_id)
}

/// The results, each by the protocol that asked.
async fn back(
    report: &mut DemoReport,
    stage: &DoorsStage,
    (first, second): (&Crossing, &Crossing),
    held: &Value,
) -> Outcome {
    report.step("The results come back, each by the protocol that asked");
    let version = [("a2a-version", A2A_VERSION)];
    let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": second.handoff } });
    let answer = stage.analyst.post_with("/a2a/reviewer", &version, &asked).await?;
    let task = a2a(answer, "GetTask", "/result")?;
    let state = task.pointer("/status/state").cloned().unwrap_or_default();
    report.check("the task of A2A", "TASK_STATE_COMPLETED", state);
    report.check("its artifact", true, task["artifacts"].to_string().contains(RESULT));
    report.say("A2A: TASK_STATE_COMPLETED, with the archivist's result as the artifact");
    let mut said = held.clone();
    said["result"] = json!({ "sumEUR": 2000, "filed": RESULT });
    tool(&stage.analyst, "complete", said).await?;
    let asked = json!({ "handoffId": first.handoff, "waitSeconds": 10 });
    let (page, block) = tool(&stage.planner, "check_handoff", asked).await?;
    report.check("the handoff of MCP", "COMPLETED", page["status"].clone());
    report.check("its result, as data", true, block.contains(RESULT));
    report.say("MCP: COMPLETED, with the analyst's result as a guarded block");
    let done = json!({ "output": { "filed": RESULT } });
    let path = format!("/tasks/{}/complete", first.task);
    let ended = stage.planner.post(&path, &done).await?.expect(200, "completing the task")?;
    report.check("the task", "COMPLETED", ended["status"].clone());
    Ok(())
}

/// One trace for all three, and one count for each door.
async fn trace(
    report: &mut DemoReport,
    stage: &DoorsStage,
    handoffs: [&String; 3],
) -> Outcome<Value> {
    report.step("One gate, one log: the trace of the task");
    let mut doors = Vec::new();
    let mut task = String::new();
    for id in handoffs {
        let page = stage.operator.get(&format!("/handoffs/{id}?include=message")).await?;
        let page = page.expect(200, "a handoff")?;
        page["taskId"].as_str().unwrap_or_default().clone_into(&mut task);
        let came_by = page["message"]["extensions"].as_object();
        doors.push(
            came_by.and_then(|one| one.keys().next()).map_or("http", String::as_str).to_owned(),
        );
    }
    report.check("the door of each handoff", json!(["mcp", "a2a", "http"]), json!(doors));
    let trace =
        stage.operator.get(&format!("/tasks/{task}/trace")).await?.expect(200, "the trace")?;
    report.trace(&trace);
    let count = trace["handoffs"].as_array().map_or(0, Vec::len);
    report.check("handoffs in the trace", 3, count);
    report.check("its verification", true, trace["verification"]["ok"].clone());
    report.check("what it cost, in US dollars", 0.05, trace["cost"]["totalUSD"].clone());
    Ok(trace)
}
