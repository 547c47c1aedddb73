//! A client's request as a handoff message, and a message as a request (specification §11.4, docs/doors/jazz.md). Pure.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::state::message_of;
use super::DOOR;
use crate::http::problem::Problem;
use crate::http::views::HandoffView;
use handoffd_domain::canonical;
use handoffd_gate::completeness::INITIAL;
use handoffd_gate::schema::DocumentSchema;

/// The forms of bodies that the door takes.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    let all: Value =
        serde_json::from_str(include_str!("schemas.json")).expect("compiled in and tested");
    let of = |name: &str| DocumentSchema::new(&all[name]).expect("its schemas are tested");
    Schemas {
        handoff: of("handoff"),
        tool: of("tool"),
        publish: of("publish"),
        profile: of("profile"),
        shares: of("shares"),
    }
});

struct Schemas {
    handoff: DocumentSchema,
    tool: DocumentSchema,
    publish: DocumentSchema,
    profile: DocumentSchema,
    shares: DocumentSchema,
}

/// A kind of body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Handoff,
    Tool,
    Publish,
    Profile,
    Shares,
}

/// Holds a body against its form.
///
/// # Errors
/// 422 with each place.
pub(super) fn check(form: Form, body: &Value) -> Result<(), Problem> {
    let schema = match form {
        Form::Handoff => &SCHEMAS.handoff,
        Form::Tool => &SCHEMAS.tool,
        Form::Publish => &SCHEMAS.publish,
        Form::Profile => &SCHEMAS.profile,
        Form::Shares => &SCHEMAS.shares,
    };
    let failures = schema.check(body);
    if failures.is_empty() { Ok(()) } else { Err(Problem::refusal(failures, false)) }
}

/// `HandoffRequest`. Members of a client's own are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandoffRequest {
    pub(super) id: String,
    pub(super) from_agent_id: String,
    pub(super) to_agent_id: String,
    pub(super) reason: String,
    pub(super) task: String,
    pub(super) context: HandoffContext,
    pub(super) timestamp: String,
    pub(super) conversation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_iterations: Option<u64>,
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

/// `HandoffContext`. Members of a client's own are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandoffContext {
    pub(super) original_request: String,
    pub(super) conversation_history: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed_work: Option<Map<String, Value>>,
    pub(super) required_capabilities: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) correlation_id: Option<String>,
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

/// A call of the tool.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToolCall {
    pub(super) specialist_type: String,
    pub(super) task: String,
    pub(super) reason: String,
    pub(super) context: Option<Map<String, Value>>,
    pub(super) required_capabilities: Option<Vec<String>>,
    #[serde(rename = "executionContext", default)]
    pub(super) execution: ExecutionContext,
}

/// An agent's position when it calls the tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExecutionContext {
    pub(super) agent_id: Option<String>,
    pub(super) user_input: String,
    pub(super) conversation_history: Vec<Value>,
    pub(super) user_id: Option<String>,
    pub(super) conversation_id: Option<String>,
    pub(super) request_id: Option<String>,
}

/// A handoff that is published as an event.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishRequest {
    pub(super) specialist_type: String,
    pub(super) task: String,
    pub(super) priority: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) context: Option<Map<String, Value>>,
    pub(super) conversation_id: Option<String>,
    pub(super) user_id: Option<String>,
    pub(super) request_id: Option<String>,
}

/// The digest by which a repeated request is known: `sha256:…` over the whole body.
pub(super) fn digest(body: &Value) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(canonical::to_vec(body))))
}

/// A request's id as the handoff's: a UUID of RFC 9562 in its usual form.
pub(super) fn uuid_of(id: &str) -> Option<String> {
    let bytes = id.as_bytes();
    let formed = bytes.len() == 36
        && matches!(bytes[14], b'1'..=b'8')
        && matches!(bytes[19], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    let read = uuid::Uuid::parse_str(id).ok().filter(|_| formed)?;
    Some(read.hyphenated().to_string())
}

/// A request as the message's members: those that `hand_off`'s arguments give, the others, and what has no place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestMapping {
    pub(super) arguments: Map<String, Value>,
    pub(super) members: Map<String, Value>,
    pub(super) extension: Map<String, Value>,
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl HandoffRequest {
    /// The request as members of a message.
    pub(super) fn mapped(&self, parent: Option<&str>) -> RequestMapping {
        let context = &self.context;
        let work = context.completed_work.as_ref();
        let completed: Vec<Value> = work
            .into_iter()
            .flatten()
            .map(|(name, value)| json!({ "description": name, "result": { name.as_str(): value } }))
            .collect();
        let completed_is_empty = completed.is_empty();
        let mut arguments = object(json!({
            "target": self.to_agent_id,
            "task": self.task,
            "summary": "",
            "reason": self.reason,
            "conversationId": self.conversation_id,
            // The specialist is done, and the generalist goes on (seed 004, "natural return").
            "returnTo": "source",
            "completed": completed,
        }));
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                arguments.insert(name.to_owned(), value);
            }
        };
        put("context", work.cloned().map(Value::Object));
        let required = &context.required_capabilities;
        put("capabilities", (!required.is_empty()).then(|| json!(required)));
        put("parentHandoffId", parent.map(Into::into));

        let history = &context.conversation_history;
        let mut members = object(json!({
            "toAgent": { "agentId": self.to_agent_id },
            "timestamp": self.timestamp,
            "conversationHistoryVerbatim": history,
            "extensions": { "originalRequest": context.original_request },
        }));
        let optional = [
            ("metadata", context.metadata.clone().map(Value::Object)),
            ("userId", context.user_id.as_deref().map(Into::into)),
            ("correlationId", context.correlation_id.as_deref().map(Into::into)),
            ("maxIterations", self.max_iterations.map(Into::into)),
        ];
        let given =
            optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        members.extend(given);

        if completed_is_empty {
            // Also of a handoff that follows another: the pattern has work that was done as an option, and the gate wants some
            // where the task is not begun.
            members.insert("taskDescription".to_owned(), INITIAL.into());
            let task = json!([{ "subtaskId": "task", "description": self.task }]);
            members.insert("remainingSubtasks".to_owned(), task);
        }

        let mut extension = Map::new();
        for (name, more) in [("request", &self.more), ("context", &context.more)] {
            if !more.is_empty() {
                extension.insert(name.to_owned(), Value::Object(more.clone()));
            }
        }
        // An empty state says nothing of whether there was one.
        if work.is_some_and(Map::is_empty) {
            extension.insert("completedWork".to_owned(), json!({}));
        }
        RequestMapping { arguments, members, extension }
    }

    /// A handoff as the request that it was, or would have been. The page speaks for a message that cannot be read.
    pub(super) fn of_page(view: &HandoffView) -> Self {
        let message = message_of(view);
        let at = |pointer: &str| message.pointer(pointer).filter(|value| !value.is_null());
        let text = |pointer: &str| at(pointer).and_then(Value::as_str).map(str::to_owned);
        let map = |pointer: &str| at(pointer).and_then(Value::as_object).cloned();
        let kept = |name: &str| map(&format!("/extensions/{DOOR}/{name}"));
        let stated = text("/taskDescription");
        let initial = stated.as_deref() == Some(INITIAL);
        let first = text("/remainingSubtasks/0/description").filter(|_| initial);
        let state = map("/currentState").filter(|state| !state.is_empty());
        let list = |pointer: &str| at(pointer).and_then(Value::as_array).cloned();
        let required = list("/capabilitiesRequired").unwrap_or_default();
        let requested = text("/extensions/originalRequest")
            .or_else(|| text("/metadata/originalRequest"))
            .or_else(|| text("/taskSummary"));
        Self {
            id: request_id(view),
            from_agent_id: text("/fromAgent/agentId")
                .unwrap_or_else(|| view.from_agent.agent_id.clone()),
            to_agent_id: text("/toAgent/agentId").unwrap_or_else(|| view.to_agent.agent_id.clone()),
            reason: text("/reason").unwrap_or_default(),
            task: first.or(stated).unwrap_or_default(),
            context: HandoffContext {
                original_request: requested.unwrap_or_default(),
                conversation_history: list("/conversationHistoryVerbatim").unwrap_or_default(),
                completed_work: state.or_else(|| kept("completedWork")),
                required_capabilities: required
                    .iter()
                    .filter_map(|name| name.as_str().map(str::to_owned))
                    .collect(),
                metadata: map("/metadata"),
                user_id: text("/userId"),
                correlation_id: text("/correlationId"),
                more: kept("context").unwrap_or_default(),
            },
            timestamp: text("/timestamp").unwrap_or_else(|| view.created_at.clone()),
            conversation_id: text("/conversationId")
                .or_else(|| view.conversation_id.clone())
                .unwrap_or_default(),
            max_iterations: at("/maxIterations").and_then(Value::as_u64),
            more: kept("request").unwrap_or_default(),
        }
    }
}

/// The id by which a client knows a handoff: its own, else the broker's.
pub(super) fn request_id(view: &HandoffView) -> String {
    let own = message_of(view).pointer(&format!("/extensions/{DOOR}/requestId"));
    own.and_then(Value::as_str).unwrap_or(&view.handoff_id).to_owned()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
