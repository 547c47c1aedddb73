//! A `HandoffRequest` as a message (docs/doors/sw4rm.md). Pure.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::mcp::hand_off_schema;
use crate::http::problem::Problem;
use handoffd_domain::canonical;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_gate::schema::DocumentSchema;
use handoffd_gate::sw4rm::{BROKER_METADATA, HandoffContext, SnapshotError, priority_of};

/// Most turns that `?trim=` keeps.
const MAX_TRIM: usize = 10_000;
/// Members of a request that have a place of their own in the message.
const MAPPED: [&str; 9] = [
    "from_agent",
    "to_agent",
    "reason",
    "context_snapshot",
    "preserve_history",
    "capabilities_required",
    "metadata",
    "preferred_agents",
    "request_id",
];
/// Arguments of `hand_off` that the request itself gives.
const GIVEN: [&str; 7] =
    ["target", "task", "context", "reason", "capabilities", "requestId", "waitSeconds"];
/// Members of `metadata.handoffd` of a request that the broker delivered.
const DELIVERED: [&str; 2] = ["handoffId", "fencingToken"];

static SCHEMA: LazyLock<DocumentSchema> = LazyLock::new(|| {
    let text = |least: u64| json!({ "type": "string", "minLength": least });
    let names = json!({ "type": "array", "maxItems": 10_000, "items": { "type": "string", "minLength": 1, "maxLength": 256 } });
    let schema = json!({
        "type": "object",
        "required": ["from_agent", "to_agent", "reason"],
        "properties": {
            "from_agent": text(1),
            "to_agent": { "type": ["string", "null"] },
            "reason": text(1),
            "context_snapshot": { "type": ["string", "null"] },
            "preserve_history": { "type": "boolean" },
            "capabilities_required": names,
            "metadata": {
                "type": "object",
                "properties": { "preferred_agents": names, (BROKER_METADATA): { "type": "object" } },
            },
            "timeout": { "type": ["number", "null"], "exclusiveMinimum": 0 },
            "preferred_agents": names,
            "request_id": { "type": ["string", "null"], "minLength": 1, "maxLength": 255 },
        },
    });
    DocumentSchema::new(&schema).expect("a test compiles it")
});

/// To whom a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Addressee {
    /// The agent of `to_agent`.
    Agent(String),
    /// The first of `preferred_agents`: `to_agent` is empty.
    Preferred(String),
    /// Any agent with the capabilities.
    Capability,
}

/// A request as the parts of a message.
#[derive(Debug, Clone)]
pub(super) struct MappedRequest {
    /// The sender, as the request names it.
    pub(super) from: String,
    pub(super) addressee: Addressee,
    pub(super) required: Vec<String>,
    /// Whether other agents are to be asked in their order.
    pub(super) preferred: bool,
    /// As `hand_off` has them.
    pub(super) arguments: Map<String, Value>,
    /// Members of the message besides.
    pub(super) members: Map<String, Value>,
    /// Members of the request without a member in the message.
    pub(super) extension: Map<String, Value>,
    /// The sender's own id of the request.
    pub(super) request_id: Option<String>,
    /// The digest by which a repeated request is known.
    pub(super) digest: String,
    /// Parts of the request with a limited effect.
    pub(super) warnings: Vec<Warning>,
}

/// Limits and parameters of one mapping.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    /// Turns to keep, where the request is to be trimmed.
    pub(super) trim: Option<usize>,
    /// Bytes that a context may expand to.
    pub(super) limit: usize,
    /// The broker's time for a verdict, in milliseconds.
    pub(super) verdict_ms: u64,
}

/// `?trim=N`.
///
/// # Errors
/// 400.
pub(super) fn trim(asked: Option<usize>) -> Result<Option<usize>, Problem> {
    match asked {
        Some(most) if most > MAX_TRIM => {
            Err(Problem::invalid(format!("trim must be between 0 and {MAX_TRIM} turns")))
        }
        asked => Ok(asked),
    }
}

/// The refusal of one place of a document.
pub(super) fn wrong(pointer: &str, message: impl Into<String>) -> Problem {
    let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message);
    Problem::refusal(vec![failure], false)
}

/// Maps a request.
///
/// # Errors
/// Each place of the request that does not fit.
pub(super) fn map(body: &Value, mapping: &Mapping) -> Result<MappedRequest, Problem> {
    let failures = SCHEMA.check(body);
    if !failures.is_empty() {
        return Err(Problem::refusal(failures, false));
    }
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let names = |pointer: &str| -> Vec<String> {
        let list = body.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let required = names("/capabilities_required");
    let mut preferred = names("/preferred_agents");
    if preferred.is_empty() {
        preferred = names("/metadata/preferred_agents");
    }
    let has_preferred = !preferred.is_empty();
    let addressee = addressee(text("to_agent"), &mut preferred, !required.is_empty())?;
    let mut warnings = Vec::new();
    let (mut metadata, said) = metadata(body, &mut warnings)?;
    let (context, snapshot) = context(body, mapping)?;
    let preserve = body.get("preserve_history") != Some(&Value::Bool(false));

    let mut arguments = said;
    let own_summary = arguments.contains_key("summary");
    arguments.entry("summary").or_insert_with(|| text("reason").into());
    arguments.insert("task".to_owned(), text("reason").into());
    arguments.insert("context".to_owned(), Value::Object(context.metadata));
    arguments.insert("reason".to_owned(), text("reason").into());
    if !required.is_empty() {
        arguments.insert("capabilities".to_owned(), json!(required));
    }
    if let Some(urgency) = urgency(&metadata, &mut warnings) {
        arguments.entry("priority").or_insert_with(|| urgency.into());
    }

    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put(
        "toAgent",
        match &addressee {
            Addressee::Agent(id) | Addressee::Preferred(id) => json!({ "agentId": id }),
            Addressee::Capability => json!({ "capability": required.first() }),
        },
    );
    if !preferred.is_empty() {
        put("preferredAgents", json!(preferred));
    }
    if !own_summary {
        put("conversationHistorySummary", "".into());
    }
    let history = if preserve { context.conversation_history } else { Vec::new() };
    put("conversationHistoryVerbatim", history.into());
    put("toolState", Value::Object(context.tool_state));
    put("metadata", Value::Object(std::mem::take(&mut metadata)));

    let mut extension = extension(body, mapping, (preserve, snapshot), &mut warnings);
    if !context.others.is_empty() {
        extension.insert("context".to_owned(), Value::Object(context.others));
    }
    Ok(MappedRequest {
        from: text("from_agent").to_owned(),
        addressee,
        required,
        preferred: has_preferred,
        arguments,
        members,
        extension,
        request_id: Some(text("request_id")).filter(|id| !id.is_empty()).map(str::to_owned),
        digest: digest(body, mapping.trim),
        warnings,
    })
}

/// To whom a request goes; the first of the preferred agents is taken from its list.
fn addressee(
    to_agent: &str,
    preferred: &mut Vec<String>,
    by_capability: bool,
) -> Result<Addressee, Problem> {
    match (to_agent, preferred.is_empty(), by_capability) {
        ("", false, _) => Ok(Addressee::Preferred(preferred.remove(0))),
        ("", true, true) => Ok(Addressee::Capability),
        ("", true, false) => {
            let why = "Name an agent, the capabilities that it must have, or preferred agents.";
            Err(wrong("/to_agent", why))
        }
        (id, _, _) => Ok(Addressee::Agent(id.to_owned())),
    }
}

/// Members of the request without a member in the message, and those that the broker does not enforce.
fn extension(
    body: &Value,
    mapping: &Mapping,
    (preserve, snapshot): (bool, bool),
    warnings: &mut Vec<Warning>,
) -> Map<String, Value> {
    let mut extension = Map::new();
    if !preserve {
        extension.insert("preserveHistory".to_owned(), false.into());
    }
    if !snapshot {
        extension.insert("snapshot".to_owned(), "none".into());
    }
    let others: Map<String, Value> = body
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !MAPPED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if others.get("timeout").is_some_and(|timeout| !timeout.is_null()) {
        let why = format!(
            "tells the receiver; the broker grants {} ms for the verdict, or what a contract of the edge says",
            mapping.verdict_ms
        );
        warnings.push(Warning::new(WarningCode::WithoutEffect, "/timeout", why));
    }
    if !others.is_empty() {
        extension.insert("members".to_owned(), Value::Object(others));
    }
    extension
}

/// The context of a request, and whether it has one.
fn context(body: &Value, mapping: &Mapping) -> Result<(HandoffContext, bool), Problem> {
    let given = body.get("context_snapshot").and_then(Value::as_str);
    let context = match given {
        None => HandoffContext::default(),
        Some(snapshot) => {
            HandoffContext::read(snapshot, mapping.limit).map_err(|unread| match unread {
                SnapshotError::TooLarge => Problem::new(
                    Code::PayloadTooLarge,
                    format!("a context may have {} bytes at most", mapping.limit),
                ),
                SnapshotError::Unfit(failures) => Problem::refusal(failures, false),
            })?
        }
    };
    let context = match mapping.trim.filter(|_| given.is_some()) {
        Some(most) => context.trimmed(most),
        None => context,
    };
    Ok((context, given.is_some()))
}

type Members = Map<String, Value>;

/// The sender's own metadata, and the arguments of `hand_off` in the broker's member of it.
fn metadata(body: &Value, warnings: &mut Vec<Warning>) -> Result<(Members, Members), Problem> {
    let mut metadata = match body.get("metadata") {
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    };
    let pointer = format!("/metadata/{BROKER_METADATA}");
    let Some(Value::Object(said)) = metadata.remove(BROKER_METADATA) else {
        return Ok((metadata, Map::new()));
    };
    if DELIVERED.iter().all(|name| said.contains_key(*name)) {
        let why = "is what the broker said of another handoff; parentHandoffId in its place goes on with that task";
        warnings.push(Warning::new(WarningCode::WithoutEffect, pointer, why));
        return Ok((metadata, Map::new()));
    }
    if let Some(name) = GIVEN.iter().find(|name| said.contains_key(**name)) {
        return Err(wrong(&format!("{pointer}/{name}"), "The request itself says this."));
    }
    let mut whole = said.clone();
    for name in ["target", "task", "summary"] {
        whole.entry(name).or_insert_with(|| "-".into());
    }
    let schema = hand_off_schema()
        .ok_or_else(|| Problem::new(Code::Internal, "the schema of hand_off is missing"))?;
    let failures = schema.check(&Value::Object(whole));
    if failures.is_empty() {
        return Ok((metadata, said));
    }
    let below =
        |failure: Failure| Failure { pointer: format!("{pointer}{}", failure.pointer), ..failure };
    Err(Problem::refusal(failures.into_iter().map(below).collect(), false))
}

/// The priority that `metadata.urgency` means.
fn urgency(metadata: &Map<String, Value>, warnings: &mut Vec<Warning>) -> Option<&'static str> {
    let said = metadata.get("urgency").filter(|said| !said.is_null())?;
    let found = said.as_str().and_then(priority_of);
    if found.is_none() {
        let why = "is not an urgency that the broker knows (low, normal, high, urgent); the handoff has the normal priority";
        warnings.push(Warning::new(WarningCode::WithoutEffect, "/metadata/urgency", why));
    }
    found
}

/// `sha256:…` over all that the sender said, but for its own id of the request.
fn digest(body: &Value, trim: Option<usize>) -> String {
    let mut said = body.clone();
    if let Some(members) = said.as_object_mut() {
        members.remove("request_id");
    }
    let bytes = canonical::to_vec(&json!([said, trim]));
    format!("sha256:{}", hex::encode(Sha256::digest(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: Mapping = Mapping { trim: None, limit: 1 << 20, verdict_ms: 30_000 };

    fn request(more: Value) -> Value {
        let mut body =
            json!({ "from_agent": "a", "to_agent": "b", "reason": "Needs a specialist" });
        let Value::Object(more) = more else { panic!("an object") };
        body.as_object_mut().unwrap().extend(more);
        body
    }

    fn mapped(more: Value) -> MappedRequest {
        map(&request(more), &MAPPING).unwrap()
    }

    fn pointers(body: &Value) -> Vec<String> {
        let problem = map(body, &MAPPING).unwrap_err();
        assert_eq!(problem.status, 422, "{body}");
        problem.failures.into_iter().map(|failure| failure.pointer).collect()
    }

    fn snapshot() -> String {
        json!({
            "conversation_history": [{ "role": "user", "content": "x" }, { "role": "assistant", "content": "y" }],
            "tool_state": { "active_calls": [], "configurations": { "db": {} } }, "metadata": { "agent_id": "a" }, "plan": { "step": 2 },
        })
        .to_string()
    }

    #[test]
    fn b10_three_members_are_a_request() {
        let mapped = mapped(json!({}));
        assert_eq!(mapped.addressee, Addressee::Agent("b".to_owned()));
        assert_eq!(mapped.members["toAgent"], json!({ "agentId": "b" }));
        assert_eq!(mapped.extension, *json!({ "snapshot": "none" }).as_object().unwrap());
        assert_eq!(
            (&mapped.arguments["task"], &mapped.arguments["reason"]),
            (&json!("Needs a specialist"), &json!("Needs a specialist"))
        );
        assert!(mapped.warnings.is_empty() && mapped.request_id.is_none());
        assert_eq!(pointers(&json!({})), ["/from_agent", "/to_agent", "/reason"]);
    }

    #[test]
    fn every_member_has_its_place() {
        let mapped = mapped(json!({
            "context_snapshot": snapshot(), "capabilities_required": ["x", "y"], "metadata": { "urgency": "HIGH", "ticket": 7 },
            "timeout": 2.5, "later": [1], "request_id": "r", "preferred_agents": ["c"],
        }));
        assert_eq!(mapped.arguments["context"], json!({ "agent_id": "a" }));
        assert_eq!(
            (&mapped.arguments["priority"], &mapped.arguments["capabilities"]),
            (&json!("high"), &json!(["x", "y"]))
        );
        assert_eq!(mapped.members["conversationHistoryVerbatim"].as_array().unwrap().len(), 2);
        assert_eq!(
            mapped.members["toolState"],
            json!({ "active_calls": [], "configurations": { "db": {} } })
        );
        assert_eq!(mapped.members["metadata"], json!({ "urgency": "HIGH", "ticket": 7 }));
        assert_eq!(mapped.members["preferredAgents"], json!(["c"]));
        // The turns that it carries decide, whatever a contract allows.
        assert_eq!(mapped.members.get("historyStrategy"), None);
        assert_eq!(mapped.extension["members"], json!({ "timeout": 2.5, "later": [1] }));
        assert_eq!(mapped.extension["context"], json!({ "plan": { "step": 2 } }));
        assert_eq!(mapped.request_id.as_deref(), Some("r"));
        assert_eq!(mapped.warnings.len(), 1, "the time-out: {:?}", mapped.warnings);
        assert_eq!(mapped.warnings[0].pointer, "/timeout");
    }

    #[test]
    fn b17_b18_an_empty_target_is_a_list_or_capabilities() {
        let of = |more: Value| {
            let mut body = request(more);
            body["to_agent"] = "".into();
            map(&body, &MAPPING)
        };
        let by = of(json!({ "capabilities_required": ["x", "y"] })).unwrap();
        assert_eq!(
            (by.addressee, &by.members["toAgent"]),
            (Addressee::Capability, &json!({ "capability": "x" }))
        );
        for list in [
            json!({ "preferred_agents": ["c", "d"] }),
            json!({ "metadata": { "preferred_agents": ["c", "d"] } }),
        ] {
            let by = of(list).unwrap();
            assert_eq!(by.addressee, Addressee::Preferred("c".to_owned()));
            assert_eq!(by.members["preferredAgents"], json!(["d"]));
            assert!(by.preferred);
        }
        assert_eq!(of(json!({})).unwrap_err().failures[0].pointer, "/to_agent");
    }

    #[test]
    fn b16_a_history_that_is_not_preserved_does_not_go() {
        let mapped = mapped(json!({ "context_snapshot": snapshot(), "preserve_history": false }));
        assert_eq!(mapped.members["conversationHistoryVerbatim"], json!([]));
        assert_eq!(mapped.extension["preserveHistory"], json!(false));
        assert_eq!(mapped.members["toolState"]["configurations"], json!({ "db": {} }));
    }

    #[test]
    fn b20_b23_trimming_is_asked_for() {
        let body = request(json!({ "context_snapshot": snapshot() }));
        let trimmed = map(&body, &Mapping { trim: Some(1), ..MAPPING }).unwrap();
        assert_eq!(
            trimmed.members["conversationHistoryVerbatim"],
            json!([{ "role": "assistant", "content": "y" }])
        );
        assert_eq!(
            trimmed.members["toolState"],
            json!({ "active_calls": [], "pending_approvals": [] })
        );
        assert_eq!(
            trimmed.arguments["context"],
            json!({ "agent_id": "a", "original_history_length": 2, "trimmed": true })
        );
        assert_ne!(trimmed.digest, map(&body, &MAPPING).unwrap().digest);
        assert!(trim(Some(MAX_TRIM + 1)).is_err() && trim(Some(0)).unwrap() == Some(0));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (more, pointer) in [
            (json!({ "from_agent": 7 }), "/from_agent"),
            (json!({ "reason": "" }), "/reason"),
            (json!({ "context_snapshot": {} }), "/context_snapshot"),
            (json!({ "context_snapshot": "%%%" }), "/context_snapshot"),
            (
                json!({ "context_snapshot": "{\"tool_state\":{},\"metadata\":{}}" }),
                "/context_snapshot/conversation_history",
            ),
            (json!({ "preserve_history": "yes" }), "/preserve_history"),
            (json!({ "capabilities_required": "x" }), "/capabilities_required"),
            (json!({ "capabilities_required": ["x", 7] }), "/capabilities_required/1"),
            (json!({ "metadata": [] }), "/metadata"),
            (json!({ "metadata": { "preferred_agents": 1 } }), "/metadata/preferred_agents"),
            (json!({ "timeout": -1 }), "/timeout"),
            (json!({ "metadata": { "handoffd": { "target": "x" } } }), "/metadata/handoffd/target"),
            (
                json!({ "metadata": { "handoffd": { "budgetUsd": "x" } } }),
                "/metadata/handoffd/budgetUsd",
            ),
            (json!({ "metadata": { "handoffd": { "later": 1 } } }), "/metadata/handoffd/later"),
        ] {
            assert_eq!(pointers(&request(more.clone())), [pointer], "{more}");
        }
    }

    #[test]
    fn the_brokers_member_has_arguments_and_a_delivered_one_is_left_out_with_a_warning() {
        let with =
            |said: Value| mapped(json!({ "metadata": { "handoffd": said, "urgency": "soon" } }));
        let told = with(
            json!({ "parentHandoffId": "p", "completed": [{ "description": "read" }], "budgetUsd": 2, "priority": "low" }),
        );
        assert_eq!(
            (
                &told.arguments["parentHandoffId"],
                &told.arguments["budgetUsd"],
                &told.arguments["priority"]
            ),
            (&json!("p"), &json!(2), &json!("low"))
        );
        assert_eq!(told.members["metadata"], json!({ "urgency": "soon" }));
        assert_eq!(told.warnings[0].pointer, "/metadata/urgency");
        let copied =
            with(json!({ "handoffId": "h", "taskId": "t", "fencingToken": 1, "message": {} }));
        assert_eq!(copied.warnings[0].pointer, "/metadata/handoffd");
        assert!(!copied.arguments.contains_key("parentHandoffId"));
    }

    #[test]
    fn a_repeated_request_has_the_same_digest_whatever_its_id() {
        let of = |more: Value| mapped(more).digest;
        assert_eq!(of(json!({ "request_id": "r" })), of(json!({})));
        assert_ne!(of(json!({ "reason": "other" })), of(json!({})));
    }
}
