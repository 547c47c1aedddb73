//! A message as the `HandoffRequest` that a receiver gets.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::context::HandoffContext;
use super::{BROKER_METADATA, NAME};
use handoffd_domain::agent::DeliveryFormat;

/// Members of a message that a request has a place for, or that reach no receiver.
const MAPPED: [&str; 11] = [
    "fromAgent",
    "toAgent",
    "reason",
    "conversationHistoryVerbatim",
    "toolState",
    "currentState",
    "capabilitiesRequired",
    "metadata",
    "extensions",
    "checkpoint",
    "signature",
];
/// Members of a request that a message never sets by its extension.
const OWN: [&str; 7] = [
    "from_agent",
    "to_agent",
    "reason",
    "context_snapshot",
    "capabilities_required",
    "metadata",
    "preserve_history",
];

/// Values with which a receiver answers a delivery.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryFacts<'a> {
    /// The agent that gets it.
    pub receiver: &'a str,
    pub handoff_id: &'a str,
    pub task_id: &'a str,
    /// Counts deliveries, from 1.
    pub attempt: i64,
    pub fencing_token: i64,
}

/// The request of a message. The message's members that a request lacks are in
/// `metadata.handoffd.message`; `trim` bounds the turns, as `prepare_handoff_context` does.
#[must_use]
pub fn request(message: &Value, facts: &DeliveryFacts<'_>, trim: Option<usize>) -> Value {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let kept = message.pointer("/extensions/sw4rm");
    let kept = |name: &str| kept.and_then(|kept| kept.get(name));
    let mut request = Map::new();
    if let Some(Value::Object(members)) = kept("members") {
        request.extend(
            members
                .iter()
                .filter(|(name, _)| !OWN.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
    let reason = ["/reason", "/taskSummary", "/taskDescription"].into_iter().find_map(text);
    let mut put = |name: &str, value: Value| request.insert(name.to_owned(), value);
    put("from_agent", text("/fromAgent/agentId").unwrap_or_default().into());
    put("to_agent", facts.receiver.into());
    put("reason", reason.unwrap_or_default().into());
    let none = kept("snapshot") == Some(&json!("none"));
    put("context_snapshot", snapshot(message, none, kept("context"), trim));
    put("preserve_history", (kept("preserveHistory") != Some(&Value::Bool(false))).into());
    let capabilities = message.get("capabilitiesRequired").cloned();
    put("capabilities_required", capabilities.unwrap_or_else(|| json!([])));
    put("metadata", metadata(message, facts));
    Value::Object(request)
}

/// A message's bytes in the form that its receiver asked for.
#[must_use]
pub fn in_format(format: DeliveryFormat, message: Bytes, facts: &DeliveryFacts<'_>) -> Bytes {
    match format {
        DeliveryFormat::Handoff => message,
        DeliveryFormat::Sw4rm => request_body(&message, facts),
    }
}

/// The request of a message's bytes, as a webhook posts it. Bytes that are no message stay as they are.
fn request_body(message: &Bytes, facts: &DeliveryFacts<'_>) -> Bytes {
    match serde_json::from_slice::<Value>(message) {
        Ok(message) => request(&message, facts, None).to_string().into(),
        Err(_) => message.clone(),
    }
}

/// `context_snapshot`, with the `others` of the sender's own; null where the sender gave none and nothing was added since.
fn snapshot(message: &Value, none: bool, others: Option<&Value>, trim: Option<usize>) -> Value {
    let of = |name: &str| message.get(name).cloned().unwrap_or_default();
    let mut context = HandoffContext::of(json!({
        "conversation_history": of("conversationHistoryVerbatim"),
        "tool_state": of("toolState"),
        "metadata": of("currentState"),
    }));
    if let Some(Value::Object(others)) = others {
        context.others.clone_from(others);
    }
    if none && context == HandoffContext::default() {
        return Value::Null;
    }
    let summary = message.get("conversationHistorySummary").and_then(Value::as_str);
    if message["historyStrategy"] == "compressed" {
        let kept = u64::try_from(context.conversation_history.len()).unwrap_or(u64::MAX);
        let original = message.pointer("/context/originalTurns").and_then(Value::as_u64);
        context = context.compressed(original.unwrap_or(kept), summary);
    } else if message.pointer("/extensions/sw4rm").is_none() {
        context = context.summarised(summary);
    }
    // Before contents become texts: the calls of tools stand in them.
    if let Some(most) = trim {
        context = context.trimmed(most);
    }
    for turn in &mut context.conversation_history {
        if let Some(content) = turn.get_mut("content")
            && !content.is_string()
        {
            *content = content_text(content).into();
        }
    }
    context.to_snapshot().into()
}

/// A turn's content as the text that the protocol wants: its text parts where it has nothing else, else its JSON.
fn content_text(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> =
        parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
    if !parts.is_empty() && texts.len() == parts.len() {
        return texts.join("\n\n");
    }
    content.to_string()
}

/// The sender's metadata, the urgency of a sender that speaks another protocol, and the broker's member.
fn metadata(message: &Value, facts: &DeliveryFacts<'_>) -> Value {
    let mut metadata = match message.get("metadata") {
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    };
    if message.pointer("/extensions/sw4rm").is_none()
        && !metadata.contains_key("urgency")
        && let Some(priority) = message.get("priority")
    {
        metadata.insert("urgency".to_owned(), priority.clone());
    }
    let mut rest: Map<String, Value> = message
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !MAPPED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(Value::Object(extensions)) = message.get("extensions") {
        let others: Map<String, Value> = extensions
            .iter()
            .filter(|(name, _)| *name != NAME)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !others.is_empty() {
            rest.insert("extensions".to_owned(), Value::Object(others));
        }
    }
    let own = json!({
        "handoffId": facts.handoff_id,
        "taskId": facts.task_id,
        "attempt": facts.attempt,
        "fencingToken": facts.fencing_token,
        "message": rest,
    });
    metadata.insert(BROKER_METADATA.to_owned(), own);
    Value::Object(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: DeliveryFacts<'static> = DeliveryFacts {
        receiver: "b",
        handoff_id: "h",
        task_id: "t",
        attempt: 2,
        fencing_token: 7,
    };

    fn context(request: &Value) -> Value {
        let snapshot = request["context_snapshot"].as_str().unwrap();
        HandoffContext::read(snapshot, 1 << 20).unwrap().to_document()
    }

    #[test]
    fn a_message_of_this_door_is_its_request_again() {
        let message = json!({
            "fromAgent": { "agentId": "a" }, "toAgent": { "capability": "x" }, "reason": "because", "taskDescription": "INITIAL",
            "conversationHistoryVerbatim": [{ "role": "user", "content": "x" }], "toolState": { "active_calls": [1] },
            "currentState": { "agent_id": "a" }, "capabilitiesRequired": ["x"], "metadata": { "urgency": "soon" }, "priority": "high",
            "checkpoint": { "secret": 1 },
            "extensions": { "mcp": 1, "sw4rm": {
                "preserveHistory": false, "members": { "timeout": 5, "to_agent": "forged", "later": [1] },
                "context": { "plan": { "step": 2 }, "metadata": { "agent_id": "forged" } },
            } },
        });
        let request = request(&message, &FACTS, None);
        assert_eq!(
            context(&request),
            json!({
                "conversation_history": [{ "role": "user", "content": "x" }], "tool_state": { "active_calls": [1] }, "metadata": { "agent_id": "a" },
                "plan": { "step": 2 },
            })
        );
        assert_eq!((&request["from_agent"], &request["to_agent"]), (&json!("a"), &json!("b")));
        assert_eq!((&request["timeout"], &request["later"]), (&json!(5), &json!([1])));
        assert_eq!(
            (&request["reason"], &request["preserve_history"]),
            (&json!("because"), &json!(false))
        );
        assert_eq!(
            request["metadata"],
            json!({ "urgency": "soon", "handoffd": {
                "handoffId": "h", "taskId": "t", "attempt": 2, "fencingToken": 7,
                "message": { "taskDescription": "INITIAL", "priority": "high", "extensions": { "mcp": 1 } },
            } })
        );
        assert!(!request.to_string().contains("secret"));
    }

    #[test]
    fn a_message_of_another_sender_is_a_request_too() {
        let message = json!({
            "fromAgent": { "agentId": "a" }, "taskDescription": "Add up", "priority": "urgent",
            "conversationHistoryVerbatim": [
                { "role": "user", "content": [{ "type": "text", "text": "a" }, { "text": "b" }] },
                { "role": "tool", "content": { "sum": 1 } },
            ],
        });
        let request = request(&message, &FACTS, Some(1));
        assert_eq!(
            (&request["reason"], &request["metadata"]["urgency"]),
            (&json!("Add up"), &json!("urgent"))
        );
        assert_eq!(request["capabilities_required"], json!([]));
        let context = context(&request);
        assert_eq!(
            context["conversation_history"],
            json!([{ "role": "tool", "content": "{\"sum\":1}" }])
        );
        assert_eq!(context["metadata"], json!({ "original_history_length": 2, "trimmed": true }));
        assert_eq!(content_text(&json!([{ "text": "a" }, { "text": "b" }])), "a\n\nb");
        let none = super::request(
            &json!({ "extensions": { "sw4rm": { "snapshot": "none" } } }),
            &FACTS,
            None,
        );
        assert_eq!(none["context_snapshot"], Value::Null);
    }

    /// Findings D2 and D3 of 0.3.0.
    #[test]
    fn a_compressed_context_says_so_and_has_the_summary() {
        let turns = json!([
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "f", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "x" }] },
            { "role": "assistant", "content": "done" },
        ]);
        let message = json!({
            "fromAgent": { "agentId": "a" }, "historyStrategy": "compressed", "context": { "originalTurns": 60, "keptTurns": 3 },
            "conversationHistorySummary": "[Compressed] The fee is EUR 5.", "conversationHistoryVerbatim": turns,
            "currentState": { "agent_id": "a" }, "extensions": { "sw4rm": {} },
        });
        let whole = context(&request(&message, &FACTS, None));
        assert_eq!(
            whole["metadata"],
            json!({ "agent_id": "a", "original_history_length": 60, "trimmed": true, "conversation_history_summary": "[Compressed] The fee is EUR 5." })
        );
        let trimmed = context(&request(&message, &FACTS, Some(2)));
        assert_eq!(trimmed["conversation_history"].as_array().unwrap().len(), 1);
        assert_eq!(trimmed["metadata"], whole["metadata"]);
        let mut earlier = message.clone();
        earlier["currentState"] = json!({ "original_history_length": 900, "trimmed": true });
        let metadata = context(&request(&earlier, &FACTS, None))["metadata"].clone();
        assert_eq!(metadata["original_history_length"], 900);
        // A context that a sender of this protocol serialised comes back as it was.
        earlier["historyStrategy"] = json!("full");
        let metadata = context(&request(&earlier, &FACTS, None))["metadata"].clone();
        assert_eq!(metadata, earlier["currentState"]);
    }

    #[test]
    fn bytes_that_are_no_message_stay() {
        let body = Bytes::from_static(b"no json");
        assert_eq!(request_body(&body, &FACTS), body);
    }
}
