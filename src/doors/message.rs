//! A door's arguments as the canonical message, pure (specification §2.1, §11.1, §11.2): those of MCP's `hand_off`, to which
//! other doors map theirs. The rules for what a sender leaves out are those of the SDKs' builder.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::http::views::{CostView, TaskView};
use handoffd_domain::canonical;

const SCHEMA_VERSION: &str = "2.2";
/// US dollars that a new task may spend where the sender names no budget.
const DEFAULT_BUDGET_USD: f64 = 1.0;
/// Characters of a task's summary, by the message schema.
const SUMMARY: usize = 500;
/// `taskDescription` of a handoff before any work was done (specification §2.1).
const INITIAL: &str = "INITIAL";

/// Arguments that do not become part of the message.
const OF_THE_CALL: [&str; 2] = ["requestId", "waitSeconds"];

/// The facts that a message needs besides the arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MessageContext {
    pub(super) agent: String,
    /// The sender's registered version.
    pub(super) version: String,
    /// Ids where the arguments have none.
    pub(super) ids: Ids,
    /// RFC 3339.
    pub(super) timestamp: String,
    /// W3C trace context.
    pub(super) traceparent: String,
    pub(super) tracestate: Option<String>,
    /// The spent and the remaining amount of the task, as the broker has them; none for a new task.
    pub(super) funds: Option<Funds>,
    /// The task of the parent handoff.
    pub(super) parent_task: Option<String>,
    /// The door.
    pub(super) door: &'static str,
    /// Members of the protocol without a field in the message: `extensions.<door>`.
    pub(super) extension: Map<String, Value>,
    /// Members of the message that the arguments do not give; they go before those that they do. `extensions` is added to.
    pub(super) members: Map<String, Value>,
}

/// Ids of a new handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) handoff: String,
    pub(super) task: String,
    pub(super) execution: String,
}

impl Ids {
    /// Ids that are the same for the same door, agent and request: a repeated call is the same handoff. Everyone who
    /// knows the request can compute the ids of the handoff and the task; `run`, which comes from the vault, makes the
    /// run one that only the agent can name.
    pub(super) fn derived(door: &str, agent: &str, request: &str, run: [u8; 16]) -> Self {
        Self {
            execution: uuid::Builder::from_random_bytes(run).into_uuid().to_string(),
            ..Self::named(door, agent, request)
        }
    }

    /// The ids without those of a run, which is empty: for places that are found again by name.
    pub(super) fn named(door: &str, agent: &str, request: &str) -> Self {
        let digest = |kind: &str| -> [u8; 16] {
            let text = format!("handoffd\u{1f}{door}\u{1f}{kind}\u{1f}{agent}\u{1f}{request}");
            let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hash[..16]);
            bytes
        };
        // Version 8 (RFC 9562) is for derived ids.
        let custom = |kind| uuid::Builder::from_custom_bytes(digest(kind)).into_uuid().to_string();
        Self { handoff: custom("handoff"), task: custom("task"), execution: String::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Funds {
    pub(super) spent: f64,
    pub(super) left: f64,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl From<&CostView> for Funds {
    fn from(cost: &CostView) -> Self {
        Self {
            spent: cost.spent,
            left: cost.remaining,
            prompt_tokens: cost.token_spent.prompt,
            completion_tokens: cost.token_spent.completion,
        }
    }
}

impl From<&TaskView> for Funds {
    fn from(task: &TaskView) -> Self {
        Self { spent: task.spent, left: task.remaining, prompt_tokens: 0, completion_tokens: 0 }
    }
}

/// The digest by which a repeated call is known: `sha256:…` over the arguments that become the message.
pub(super) fn arguments_digest(arguments: &Map<String, Value>) -> String {
    let mut counted = arguments.clone();
    for name in OF_THE_CALL {
        counted.remove(name);
    }
    let bytes = canonical::to_vec(&Value::Object(counted));
    format!("sha256:{}", hex::encode(Sha256::digest(&bytes)))
}

/// The begin of a task in place of a missing summary: the whole task is beside it.
pub(super) fn summary_of(task: &str) -> String {
    task.chars().take(SUMMARY).collect()
}

/// The arguments of a contract's tool as those of `hand_off`; `target` is the contract's.
pub(super) fn of_contract_tool(
    target: &str,
    contract: &str,
    mut given: Map<String, Value>,
) -> Map<String, Value> {
    let summary = given.remove("task_summary").unwrap_or_default();
    // The others have the names that `hand_off` has for them.
    let mut arguments = given;
    arguments.insert("target".to_owned(), target.into());
    arguments.insert("contractId".to_owned(), contract.into());
    arguments.insert("summary".to_owned(), summary_of(summary.as_str().unwrap_or_default()).into());
    arguments.insert("task".to_owned(), summary);
    arguments
}

/// Nano-dollars are the smallest amount: digits that floating point adds beyond them are not money.
fn money(usd: f64) -> f64 {
    (usd * 1e9).round() / 1e9
}

/// `costTracking`: the figures said, else the task's, else those of a new task.
fn cost(arguments: &Map<String, Value>, funds: Option<Funds>) -> Value {
    let given = |name: &str| arguments.get(name).and_then(Value::as_f64);
    let spent_before = funds.map_or(0.0, |funds| funds.spent);
    let spent = given("spentUsd").unwrap_or(spent_before);
    let left = given("budgetUsd").unwrap_or_else(|| match funds {
        Some(funds) => funds.left - (spent - spent_before).max(0.0),
        None => (DEFAULT_BUDGET_USD - spent).max(0.0),
    });
    json!({
        "costSpentSoFarUSD": money(spent),
        "costBudgetRemainingUSD": money(left),
        "tokenSpent": {
            "prompt": funds.map_or(0, |funds| funds.prompt_tokens),
            "completion": funds.map_or(0, |funds| funds.completion_tokens),
        },
    })
}

/// `toAgent`: an id, `type:NAME` or `capability:NAME`.
fn target(text: &str) -> Value {
    match text.split_once(':') {
        Some(("type", name)) => json!({ "agentType": name, "agentVersion": "*" }),
        Some(("capability", name)) => json!({ "capability": name }),
        _ => json!({ "agentId": text }),
    }
}

/// The id of a completed subtask, from its content: what was done before keeps its id from hop to hop, and what is new
/// has a new one, which the loop guard counts as progress.
fn subtask_id(description: &Value, result: &Value) -> String {
    let content = json!([description, result]);
    let hash = Sha256::digest(canonical::to_vec(&content));
    format!("done-{}", hex::encode(&hash[..8]))
}

/// The message of a call. The arguments are as the tool's schema says.
pub(super) fn build(arguments: &Map<String, Value>, context: MessageContext) -> Value {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let list =
        |name: &str| arguments.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let task = text("task").unwrap_or_default();
    let parent = text("parentHandoffId");
    let mut named: Vec<String> = Vec::new();
    let completed: Vec<Value> = list("completed")
        .iter()
        .map(|one| {
            let result = one.get("result").cloned().unwrap_or_else(|| json!({}));
            let id = subtask_id(&one["description"], &result);
            // The same work twice is two entries.
            let before = named.iter().filter(|known| **known == id).count();
            named.push(id.clone());
            json!({
                "subtaskId": if before == 0 { id } else { format!("{id}-{}", before + 1) },
                "description": one["description"],
                "result": result,
                "completedAt": context.timestamp,
            })
        })
        .collect();
    // The schema marks a handoff before any work was done; what is to be done is then what remains.
    let initial = completed.is_empty() && parent.is_none();
    let first = initial.then(|| json!({ "subtaskId": "task", "description": task }));
    let open = list("remaining").iter().enumerate().map(
        |(place, one)| json!({ "subtaskId": format!("open-{}", place + 1), "description": one }),
    );
    let remaining: Vec<Value> = first.into_iter().chain(open).collect();
    let excerpts: Vec<Value> = list("excerpts")
        .iter()
        .map(|one| json!({ "source": one["source"], "excerpt": one["excerpt"], "relevanceScore": 1 }))
        .collect();
    let mut message = json!({
        "schemaVersion": SCHEMA_VERSION,
        "handoffId": context.ids.handoff,
        "taskId": text("taskId").or(context.parent_task.as_deref()).unwrap_or(&context.ids.task),
        "parentHandoffId": parent,
        "fromAgent": {
            "agentId": context.agent,
            "agentVersion": context.version,
            "executionId": text("executionId").unwrap_or(&context.ids.execution),
        },
        "toAgent": target(text("target").unwrap_or_default()),
        "timestamp": context.timestamp,
        "taskDescription": if initial { INITIAL } else { task },
        "completedSubtasks": completed,
        "remainingSubtasks": remaining,
        "currentState": arguments.get("context").cloned().unwrap_or_else(|| json!({})),
        "relevantContext": excerpts,
        "constraints": list("constraints"),
        "costTracking": cost(arguments, context.funds),
        "conversationHistorySummary": text("summary").unwrap_or_default(),
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        "traceparent": context.traceparent,
        "taskSummary": summary_of(task),
        "extensions": { (context.door): context.extension },
    });
    if let Some(state) = context.tracestate {
        message["tracestate"] = state.into();
    }
    for (argument, member) in [
        ("reason", "reason"),
        ("capabilities", "capabilitiesRequired"),
        ("priority", "priority"),
        ("returnTo", "returnTo"),
        ("checkpoint", "checkpoint"),
        ("conversationId", "conversationId"),
        ("contractId", "contractId"),
        ("provenance", "provenance"),
    ] {
        if let Some(value) = arguments.get(argument) {
            message[member] = value.clone();
        }
    }
    for (member, value) in context.members {
        match (message.get_mut(&member), value) {
            (Some(Value::Object(before)), Value::Object(more)) if member == "extensions" => {
                before.extend(more);
            }
            (_, value) => message[member.as_str()] = value,
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use handoffd_gate::schema::Schemas;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_completed_subtask_has_the_id_of_its_content_at_every_hop() {
        // Finding G4 of 0.3.0.
        let ids = |done: Value| -> Vec<String> {
            let given = json!({ "target": "b", "task": "go on", "completed": done });
            let message = build(given.as_object().unwrap(), context());
            assert!(Schemas::new().check(&message).is_ok(), "{message}");
            let named = message["completedSubtasks"].as_array().unwrap();
            named.iter().map(|one| one["subtaskId"].as_str().unwrap().to_owned()).collect()
        };
        let done =
            |what: &str, result: u64| json!({ "description": what, "result": { "n": result } });
        let (first, second) = (ids(json!([done("read", 1)])), ids(json!([done("write", 1)])));
        assert_ne!(first, second, "each hop that did something new says so");
        assert_eq!(
            ids(json!([done("write", 1), done("read", 1)])),
            [second[0].clone(), first[0].clone()]
        );
        assert_ne!(ids(json!([done("read", 2)])), first);
        let twice = ids(json!([done("read", 1), done("read", 1)]));
        assert_eq!(twice, [first[0].clone(), format!("{}-2", first[0])]);
    }

    fn context() -> MessageContext {
        MessageContext {
            agent: "a".to_owned(),
            version: "1.0.0".to_owned(),
            ids: Ids::derived("mcp", "a", "r", [7; 16]),
            timestamp: "2026-11-23T10:00:00Z".to_owned(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
            tracestate: None,
            funds: None,
            parent_task: None,
            door: "mcp",
            extension: Map::new(),
            members: Map::new(),
        }
    }

    fn arguments(value: Value) -> Map<String, Value> {
        let Value::Object(members) = value else { panic!("an object") };
        members
    }

    #[test]
    fn three_arguments_are_a_whole_message() {
        let message = build(
            &arguments(json!({ "target": "b", "task": "Add it up", "summary": "Two sums." })),
            context(),
        );
        Schemas::new().check(&message).unwrap();
        assert_eq!(message["taskDescription"], INITIAL);
        assert_eq!(
            message["remainingSubtasks"],
            json!([{ "subtaskId": "task", "description": "Add it up" }])
        );
        assert_eq!(
            (&message["taskSummary"], &message["toAgent"]),
            (&json!("Add it up"), &json!({ "agentId": "b" }))
        );
        assert_eq!(message["costTracking"]["costBudgetRemainingUSD"], 1.0);
    }

    #[test]
    fn all_arguments_have_their_place() {
        let given = arguments(json!({
            "target": "type:clerk", "task": "Go on", "summary": "s", "completed": [{ "description": "read", "result": { "pages": 3 } }, { "description": "sorted" }],
            "remaining": ["sum", "file"], "context": { "lease": 7 }, "excerpts": [{ "source": "p. 1", "excerpt": "so it is" }],
            "constraints": ["deadline:today"], "reason": "sums", "capabilities": ["sums"], "priority": "high", "returnTo": "source",
            "parentHandoffId": "0190b5a0-0000-7000-8000-000000000001", "executionId": "6f6b7f0e-0d5c-4b0e-9d6e-2a6a3d0c9b11",
            "checkpoint": { "x": 1 }, "spentUsd": 0.3, "conversationId": "c", "contractId": "k", "provenance": { "trajectory": "t" }, "requestId": "r", "waitSeconds": 3,
        }));
        let funds = Some(Funds { spent: 0.1, left: 0.9, prompt_tokens: 5, completion_tokens: 6 });
        let parent_task = Some("0190b5a0-0000-7000-8000-000000000002".to_owned());
        let message =
            build(&given, MessageContext { funds, parent_task: parent_task.clone(), ..context() });
        Schemas::new().check(&message).unwrap();
        assert_eq!(message["taskDescription"], "Go on");
        assert_eq!(message["taskId"], json!(parent_task));
        assert_eq!(message["completedSubtasks"][1]["result"], json!({}));
        assert_eq!(message["remainingSubtasks"].as_array().unwrap().len(), 2);
        assert_eq!(message["toAgent"], json!({ "agentType": "clerk", "agentVersion": "*" }));
        let cost = json!({ "costSpentSoFarUSD": 0.3, "costBudgetRemainingUSD": 0.7, "tokenSpent": { "prompt": 5, "completion": 6 } });
        assert_eq!(message["costTracking"], cost);
        for name in [
            "reason",
            "capabilitiesRequired",
            "priority",
            "returnTo",
            "checkpoint",
            "conversationId",
            "contractId",
        ] {
            assert!(message.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_request_id_gives_the_same_ids_and_another_gives_others() {
        let ids = Ids::derived("mcp", "a", "r", [7; 16]);
        assert_eq!(ids, Ids::derived("mcp", "a", "r", [7; 16]));
        for other in [
            Ids::derived("mcp", "a", "s", [8; 16]),
            Ids::derived("mcp", "b", "r", [9; 16]),
            Ids::derived("a2a", "a", "r", [6; 16]),
        ] {
            assert!(
                other.handoff != ids.handoff
                    && other.task != ids.task
                    && other.execution != ids.execution
            );
        }
        let run = |ids: &Ids| ids.execution.parse::<uuid::Uuid>().unwrap().get_version_num();
        assert_eq!(run(&ids), 4, "an `executionId` is a UUID of version 4");
    }

    #[test]
    fn what_is_of_the_call_is_not_of_the_digest() {
        let digest = |value: Value| arguments_digest(&arguments(value));
        let plain = digest(json!({ "task": "x", "target": "b" }));
        assert_eq!(
            plain,
            digest(json!({ "target": "b", "task": "x", "requestId": "r", "waitSeconds": 5 }))
        );
        assert_ne!(plain, digest(json!({ "target": "b", "task": "y" })));
    }

    proptest! {
        #[test]
        fn whatever_a_model_says_is_a_message_of_the_schema(
            task in "\\PC{1,600}", summary in "\\PC{1,80}", remaining in prop::collection::vec("\\PC{1,20}", 0..4),
            spent in 0.0..1e6_f64, parent in any::<bool>(), done in 0_usize..3,
        ) {
            let mut given = arguments(json!({ "target": "b", "task": task, "summary": summary, "remaining": remaining, "spentUsd": spent }));
            given.insert("completed".to_owned(), (0..done).map(|n| json!({ "description": n.to_string() })).collect());
            if parent {
                given.insert("parentHandoffId".to_owned(), json!("0190b5a0-0000-7000-8000-000000000001"));
            }
            let message = build(&given, context());
            prop_assert!(Schemas::new().check(&message).is_ok(), "{message}");
        }
    }
}
