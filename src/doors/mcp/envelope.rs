//! The messages that the protocol's library would take for another message, or for none: a request whose id or parameters have
//! the wrong type. Pure.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::{Map, Value, json};

use handoffd_domain::json::{self, MAX_SAFE_INTEGER};
use handoffd_domain::lenient::{self, Lenient, UnreadableParts};

/// Longest id of a request that an answer repeats, in bytes.
const ID_MAX: usize = 1_024;
/// A byte order mark, which counts for nothing before a verdict.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The answer to a message of the wrong form, in the protocol's own words, under the message's id if it has one. A body
/// that is not a JSON-RPC message gets a 400.
pub(super) fn refused(message: &Value) -> Option<Response> {
    let members = message.as_object()?;
    let id = members.get("id").filter(|id| is_id(id));
    if let Some(wrong) = malformed(members) {
        let told = error(id, ErrorCode::INVALID_REQUEST, &wrong);
        return Some((StatusCode::BAD_REQUEST, told).into_response());
    }
    let params = members.get("params")?;
    let arguments = &params["arguments"];
    let called = members.get("method").and_then(Value::as_str) == Some("tools/call");
    let wrong = if !params.is_object() {
        "params is an object"
    } else if called && !params["name"].is_string() {
        "params.name is the name of a tool"
    } else if called && !(arguments.is_object() || arguments.is_null()) {
        "params.arguments is an object"
    } else {
        return None;
    };
    Some(error(id, ErrorCode::INVALID_PARAMS, wrong).into_response())
}

/// The receiver's tools that give a verdict.
const VERDICTS: [&str; 5] = ["accept", "reject", "complete", "fail", "heartbeat"];

/// A call that gives a verdict, if the strict reader refuses only its arguments: the message as the protocol's library takes
/// it, and the parts of the arguments that could not be kept. The rest of the message, the handoff and the token must be clear.
pub(super) fn clear_verdict(bytes: &[u8]) -> Option<(Value, UnreadableParts)> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let place = lenient::place_of(bytes, &["params", "arguments"])?;
    let around = [&bytes[..place.start], b"{}", &bytes[place.end..]].concat();
    let mut message = json::parse(&around).ok()?;
    let tool = message.pointer("/params/name").and_then(Value::as_str);
    if message["method"] != "tools/call" || !tool.is_some_and(|tool| VERDICTS.contains(&tool)) {
        return None;
    }
    let read = Lenient::read(&bytes[place])?;
    if ["handoffId", "fencingToken"].into_iter().any(|name| read.repeats(name)) {
        return None;
    }
    let Lenient { members, unreadable, .. } = read;
    message["params"]["arguments"] = Value::Object(members);
    Some((message, unreadable))
}

/// The reason why an object is not a message of JSON-RPC 2.0.
fn malformed(members: &Map<String, Value>) -> Option<String> {
    let has = |name: &str| members.contains_key(name);
    if members.get("id").is_some_and(|id| !is_id(id)) {
        let what = "the id of a request is a whole number, or a text of";
        Some(format!("{what} {ID_MAX} bytes at most"))
    } else if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        Some("jsonrpc is \"2.0\"".to_owned())
    } else if members.get("method").is_some_and(|method| !method.is_string()) {
        Some("the method of a request is a text".to_owned())
    } else if !has("id") && members.get("method").and_then(Value::as_str).is_some_and(is_request) {
        Some("a request has an id: without one nothing of it is done".to_owned())
    } else if !["method", "result", "error"].into_iter().any(has) {
        Some("a message has a method, a result or an error".to_owned())
    } else {
        None
    }
}

/// Whether a method is one that is answered; those of notifications have a prefix of their own.
fn is_request(method: &str) -> bool {
    !method.starts_with("notifications/")
}

/// Whether a value is the id of a request.
fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(number) => number
            .as_f64()
            .is_some_and(|number| number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER as f64),
        Value::String(text) => text.len() <= ID_MAX,
        _ => false,
    }
}

fn error(id: Option<&Value>, code: ErrorCode, message: &str) -> Json<Value> {
    let error = json!({ "code": code.0, "message": message });
    Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FINDINGS D1
    #[test]
    fn a_verdict_is_clear_where_only_its_arguments_are_not() {
        let call = |around: &str, tool: &str, arguments: &str| {
            let start = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"#;
            format!(r#"{start}"{tool}","arguments":{arguments}}}{around}}}"#)
        };
        let half = r#"{"handoffId":"x","fencingToken":1,"details":"a\ud83d"}"#;
        let (message, unreadable) = clear_verdict(call("", "reject", half).as_bytes()).unwrap();
        assert_eq!(message["params"]["arguments"]["details"], "a\u{fffd}");
        assert_eq!(
            (message["id"].as_i64(), unreadable.named[0].pointer.as_str()),
            (Some(1), "/details")
        );
        let whole = format!("\u{feff}{}", call("", "accept", r#"{"fencingToken":1}"#));
        assert!(clear_verdict(whole.as_bytes()).unwrap().1.is_empty());
        for unclear in [
            call("", "hand_off", half),
            call(r#","x":"\ud83d""#, "reject", half),
            call(r#","id":2"#, "reject", half),
            call(r#","params":{}"#, "reject", half),
            call("", "reject", r#"{"fencingToken":1,"fencingToken":2}"#),
            call("", "reject", r#"["\ud83d"]"#),
            call("", "reject", r#"{"details":"#),
        ] {
            assert!(clear_verdict(unclear.as_bytes()).is_none(), "{unclear}");
        }
    }

    #[test]
    fn a_request_of_the_wrong_form_is_refused_as_what_it_is() {
        let call = |params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        for good in [
            json!([]),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }),
            json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {} }),
            json!({ "jsonrpc": "2.0", "id": 1.0, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
            call(json!({ "name": "x" })),
            call(json!({ "name": "x", "arguments": null })),
            call(json!({ "name": "x", "arguments": {} })),
        ] {
            assert!(refused(&good).is_none(), "{good}");
        }
        let status = |message: &Value| refused(message).map(|answer| answer.status());
        let long = json!("x".repeat(ID_MAX + 1));
        for id in [json!(null), json!({}), json!([1]), json!(true), json!(1.5), json!(1e16), long] {
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
            assert_eq!(status(&message), Some(StatusCode::BAD_REQUEST), "{id}");
        }
        for message in [
            json!({ "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }),
            json!({ "jsonrpc": "2.0", "id": 1 }),
            json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": "x" } }),
            json!({ "jsonrpc": "2.0", "method": "ping" }),
        ] {
            assert_eq!(status(&message), Some(StatusCode::BAD_REQUEST), "{message}");
        }
        for wrong in [
            call(json!([])),
            call(json!("x")),
            call(json!({ "name": 7 })),
            call(json!({ "name": "x", "arguments": [] })),
            call(json!({ "name": "x", "arguments": "{}" })),
        ] {
            assert_eq!(status(&wrong), Some(StatusCode::OK), "{wrong}");
        }
    }
}
