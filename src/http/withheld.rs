//! Contents that a key of role `operator-metadata` does not read (docs/roles.md): the answers of `Masked` routes are written anew
//! without contents.
//!
//! A text is shown where its member is named here, and withheld under any other name. So a member that is added later is
//! withheld until someone decides otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::problem::Problem;
use handoffd_broker::directory::Principal;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::handoff::{is_in_own_words, is_reason_code};

/// Members that are shown with all that they name: ids, times, codes and figures of the broker.
#[rustfmt::skip]
const SHOWN: [&str; 135] = [
    "acceptedAt", "action", "agentId", "agentType", "agentVersion", "agent_id", "alert",
    "answerBy", "answeredAt", "answeredBy", "asked", "askedAt", "at", "attempts", "auditEvent",
    "awaited", "awaitedAgentId", "begunAt", "branches", "cause", "channel", "checkpoint",
    "classifier", "code", "command", "commitment", "context", "contract", "costTracking",
    "counts", "createdAt", "crossing", "crossings", "cursor", "data", "datacontenttype",
    "dataschema", "deadLetterId", "deadlineAt", "defaultAction", "deliveryMode", "dueAt",
    "effect", "endedAt", "escalation", "escalationId", "event", "eventId", "executionId",
    "failures", "from", "fromAgent", "group", "groupId", "handoffId", "handoff_id", "heardAt",
    "holder", "id", "inclusionProof", "items", "join", "keyId", "kind", "links", "logId",
    "marked", "name", "next", "nextCursor", "observed", "onReject", "openedAt", "openedBy",
    "outcome", "parentHandoffId", "parts", "party", "questions", "receipt", "recordHash",
    "refusalId", "refusedAt", "remedies", "request", "requestHeaders", "resolution",
    "resolvedAt", "resolvedBy", "resumeAs", "returnedTo", "returnsTo", "rule", "rules", "safety",
    "self", "sentence", "severity", "since", "source", "sourceAgentId", "source_agent_id",
    "specversion", "stage", "status", "stream", "subject", "subscriptionId", "successorId",
    "targetAgentId", "target_agent_id", "task", "taskId", "taskStatus", "task_id", "time",
    "timeoutAt", "timestamp", "to", "toAgent", "tokenSpent", "tokenizer", "tokens", "trace",
    "traceparent", "transferBasis", "transport", "treeHead", "type", "updatedAt", "userRef",
    "version", "waits", "warnings", "with",
];

/// Members with a code of the broker, or with words of an agent: only the code is shown.
const CODES: [&str; 7] = ["by", "error", "label", "lastError", "reason", "state", "verdict"];

/// Members of any form: a number or a flag there is content too.
const FREE: [&str; 7] =
    ["answer", "checkpointState", "content", "message", "output", "question", "result"];

/// Whether the answer to a request is written anew. An extension of requests, which `Masked` sets.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight(Arc<AtomicBool>);

impl Sight {
    /// Notes that the request's answer goes to a caller that reads no contents.
    pub(super) fn limit(of: &Extensions, principal: &Principal) {
        if let Some(Self(limited)) = of.get().filter(|_| !principal.rights().reads_contents()) {
            limited.store(true, Ordering::Relaxed);
        }
    }
}

/// The refusal of a key that reads no contents, where a route is not opened to it.
pub(super) fn closed_to_metadata() -> Problem {
    let why =
        "a key of role operator-metadata may not do this: it shows contents, or is decided by them";
    Problem::new(Code::Forbidden, why)
}

/// The layer: takes contents out of the answer where its reader may not have them.
pub(super) async fn withhold(mut request: Request, next: Next) -> Response {
    let sight = Sight::default();
    request.extensions_mut().insert(sight.clone());
    let response = next.run(request).await;
    if sight.0.load(Ordering::Relaxed) { without_contents(response).await } else { response }
}

async fn without_contents(mut response: Response) -> Response {
    if let Some(problem) = response.extensions().get::<Arc<Problem>>() {
        let mut problem = Problem::clone(problem);
        hide_findings(&mut problem);
        return problem.into_response();
    }
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    if !is_json && response.status() != axum::http::StatusCode::NO_CONTENT {
        return closed_to_metadata().into_response();
    }
    let body = std::mem::take(response.body_mut());
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return unreadable() };
    if bytes.is_empty() {
        return response;
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else { return unreadable() };
    mask(&mut value);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(value.to_string());
    response
}

fn unreadable() -> Response {
    Problem::new(Code::Internal, "the answer cannot be read").into_response()
}

/// Takes a message's findings out of a refusal. Those of the request's own body stay.
fn hide_findings(problem: &mut Problem) {
    let of_message = |failure: &&mut Failure| failure.stage != Stage::Schema;
    for failure in problem.failures.iter_mut().filter(of_message) {
        failure.message = marker(&failure.message);
        failure.pointer = first_segment(&failure.pointer);
        problem.detail = failure.message.clone();
    }
}

/// Takes contents out of a document of the API.
pub(super) fn mask(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(members) => {
            // An event counts questions under the name by which a handoff shows one.
            let counts = !members.contains_key("askedAt");
            for (name, value) in members.iter_mut() {
                if !(counts && name == "question" && value.is_number()) {
                    mask_member(name, value);
                }
            }
        }
        _ => {}
    }
}

fn mask_member(name: &str, value: &mut Value) {
    let scalar = matches!(value, Value::Null | Value::Bool(_) | Value::Number(_));
    if value.is_null() || scalar && !FREE.contains(&name) {
        return;
    }
    if SHOWN.contains(&name) {
        mask(value);
    } else if name == "pointer" {
        *value = first_segment(value.as_str().unwrap_or_default()).into();
    } else if !(CODES.contains(&name) && value.as_str().is_some_and(is_reason_code)) {
        *value = withheld(value);
    }
}

/// The replacement of a value: of a text a text, of anything else an object.
fn withheld(value: &Value) -> Value {
    match value {
        Value::String(text) => marker(text).into(),
        other => json!({ "withheld": true, "bytes": other.to_string().len() }),
    }
}

/// The replacement of a text.
#[must_use]
pub(super) fn marker(text: &str) -> String {
    format!("[withheld: {} bytes]", text.len())
}

/// A pointer's first segment: those below may be names that an agent chose.
fn first_segment(pointer: &str) -> String {
    let end = pointer.match_indices('/').nth(1).map_or(pointer.len(), |(at, _)| at);
    let (first, rest) = pointer.split_at(end);
    if rest.is_empty() { first.to_owned() } else { format!("{first}/…") }
}

/// Takes a receiver's own words out of a sentence that names the last error, and out of the error.
pub(super) fn hide_words(sentence: &mut String, error: &mut Option<String>) {
    if let Some(words) = error.as_mut().filter(|words| is_in_own_words(words)) {
        let shown = marker(words);
        *sentence = sentence.replace(&**words, &shown);
        *words = shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_only_where_its_member_is_named() {
        let masked = |mut value: Value| {
            mask(&mut value);
            value
        };
        let object = |bytes: usize| json!({ "withheld": true, "bytes": bytes });
        let shown = json!({
            "items": [{ "handoffId": "h", "status": "PENDING", "attempts": 3, "reason": "NO_ANSWER" }],
            "result": null, "pointer": "/intent",
        });
        assert_eq!(masked(shown.clone()), shown);
        let whole = json!({
            "result": 42, "message": { "a": 1 }, "conversationId": "order 7", "addedLater": "words",
            "reason": "the lease is not signed", "state": { "step": 1 }, "asked": { "question": 5, "askedAt": "t" }, "question": 1,
            "failures": [{ "code": "X", "pointer": "/currentState/jana", "message": "quotes" }],
        });
        let left = json!({
            "result": object(2), "message": object(7), "conversationId": "[withheld: 7 bytes]",
            "addedLater": "[withheld: 5 bytes]", "reason": "[withheld: 23 bytes]", "state": object(10),
            "asked": { "question": object(1), "askedAt": "t" }, "question": 1,
            "failures": [{ "code": "X", "pointer": "/currentState/…", "message": "[withheld: 6 bytes]" }],
        });
        assert_eq!(masked(whole), left);
    }

    #[test]
    fn a_sentence_loses_the_words_of_a_receiver_and_keeps_codes() {
        let mut sentence = "It is REJECTED (ask Jana).".to_owned();
        let mut error = Some("ask Jana".to_owned());
        hide_words(&mut sentence, &mut error);
        assert_eq!(sentence, "It is REJECTED ([withheld: 8 bytes]).");
        assert_eq!(error.as_deref(), Some("[withheld: 8 bytes]"));
        let mut error = Some("NO_ANSWER".to_owned());
        hide_words(&mut sentence, &mut error);
        assert_eq!(error.as_deref(), Some("NO_ANSWER"));
    }
}
