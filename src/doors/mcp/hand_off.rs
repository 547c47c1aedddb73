//! `hand_off`: a message from the model's arguments, one submission, and the same handoff when the call is repeated.

use serde_json::{Map, Value, json};

use super::super::message::arguments_digest;
use super::super::submission::{Committed, Refusal, Submission};
use super::DOOR;
use super::answer::ToolAnswer;
use super::call::ToolCall;
use super::wait::LONGEST;

/// Prefix of metadata that the protocol reserves.
const RESERVED: &str = "io.modelcontextprotocol/";
/// Other metadata that is the protocol's own.
const PROTOCOL: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];

/// How long a call waits, in seconds.
pub(super) fn wait_of(arguments: &Map<String, Value>) -> u64 {
    arguments
        .get("waitSeconds")
        .and_then(Value::as_u64)
        .map_or(LONGEST, |seconds| seconds.min(LONGEST))
}

/// Submits a handoff.
///
/// # Errors
/// What the tool answers in its place: a refusal.
pub(super) async fn submit(
    call: &ToolCall<'_>,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Committed, ToolAnswer> {
    let submission = Submission {
        api: call.api,
        client: &call.client,
        door: DOOR,
        tenant: &call.principal.tenant,
        agent: call.agent()?,
        version: call.registered().await?.agent_version.to_string(),
        arguments,
        request: arguments.get("requestId").and_then(Value::as_str),
        digest: arguments_digest(arguments),
        extension: extension(call, tool),
        handoff: None,
        members: Map::new(),
    };
    submission.submit().await.map_err(|refusal| match refusal {
        Refusal::Api(answer) => ToolAnswer::refused(&answer),
        Refusal::Door(problem) => ToolAnswer::problem(&problem),
    })
}

/// `extensions.mcp`: who called which tool, and metadata that the message has no field for.
fn extension(call: &ToolCall<'_>, tool: &str) -> Map<String, Value> {
    let mut extension = Map::new();
    extension.insert("tool".to_owned(), tool.into());
    if let Some(client) = call.context.client_info() {
        let client = json!({ "name": client.name, "version": client.version });
        extension.insert("client".to_owned(), client);
    }
    let meta = kept_meta(&call.context.meta);
    if !meta.is_empty() {
        extension.insert("meta".to_owned(), Value::Object(meta));
    }
    extension
}

/// The metadata of a call that is not the protocol's own.
fn kept_meta(meta: &Map<String, Value>) -> Map<String, Value> {
    let own = |name: &str| name.starts_with(RESERVED) || PROTOCOL.contains(&name);
    meta.iter()
        .filter(|(name, _)| !own(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The metadata that a message carries for this door, as it came in.
pub(super) fn meta_of(message: &Value) -> Map<String, Value> {
    let meta = message.pointer(&format!("/extensions/{DOOR}/meta")).and_then(Value::as_object);
    meta.map(kept_meta).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_out_as_it_went_in_without_the_protocols_own() {
        let meta = json!({
            "com.example/ticket": { "id": [1, null] }, "io.modelcontextprotocol/clientInfo": {}, "progressToken": 1,
            "traceparent": "x", "plain": "y",
        });
        let kept = kept_meta(meta.as_object().unwrap());
        assert_eq!(
            Value::Object(kept.clone()),
            json!({ "com.example/ticket": { "id": [1, null] }, "plain": "y" })
        );
        let message = json!({ "extensions": { "mcp": { "meta": kept } } });
        assert_eq!(meta_of(&message), kept);
        for other in [
            json!({}),
            json!({ "extensions": { "mcp": { "meta": 7 } } }),
            json!({ "extensions": 1 }),
        ] {
            assert!(meta_of(&other).is_empty());
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        let of = |value: Value| wait_of(value.as_object().unwrap());
        assert_eq!(
            [of(json!({})), of(json!({ "waitSeconds": 3 })), of(json!({ "waitSeconds": 500 }))],
            [LONGEST, 3, LONGEST]
        );
    }
}
