//! What the protocol's library would take for another message, or for no message at all: a request whose id or parameters have the
//! wrong type. Pure.

use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use crate::http::problem::Problem;
use handoffd_core::domain::failure::Code;

/// Longest id of a request that an answer repeats, in bytes.
const ID_MAX: usize = 1_024;

/// The answer to a message of the wrong form, in the protocol's own words where its id can be told.
///
/// # Errors
/// 400: what was sent is no JSON-RPC message.
pub(super) fn refused(message: &Value) -> Result<Option<Response>, Problem> {
    // What is no object is the library's to refuse.
    let Some(members) = message.as_object() else { return Ok(None) };
    let malformed = |what: &str| Problem::new(Code::InvalidRequest, what);
    match members.get("id") {
        None | Some(Value::Number(_)) => {}
        Some(Value::String(id)) if id.len() <= ID_MAX => {}
        Some(_) => {
            let what =
                format!("the id of a request is a number, or a text of {ID_MAX} bytes at most");
            return Err(malformed(&what));
        }
    }
    if members.get("method").is_some_and(|method| !method.is_string()) {
        return Err(malformed("the method of a request is a text"));
    }
    let Some(params) = members.get("params") else { return Ok(None) };
    let arguments = &params["arguments"];
    let called = members.get("method").and_then(Value::as_str) == Some("tools/call");
    let wrong = if !params.is_object() {
        "params is an object"
    } else if called && !params["name"].is_string() {
        "params.name is the name of a tool"
    } else if called && !(arguments.is_object() || arguments.is_null()) {
        "params.arguments is an object"
    } else {
        return Ok(None);
    };
    let error = json!({ "code": ErrorCode::INVALID_PARAMS.0, "message": wrong });
    let told = json!({ "jsonrpc": "2.0", "id": members.get("id"), "error": error });
    Ok(Some(axum::Json(told).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_the_wrong_form_is_refused_as_what_it_is() {
        let call = |params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        for good in [
            json!([]),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }),
            json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {} }),
            call(json!({ "name": "x" })),
            call(json!({ "name": "x", "arguments": null })),
            call(json!({ "name": "x", "arguments": {} })),
        ] {
            assert!(matches!(refused(&good), Ok(None)), "{good}");
        }
        for id in [json!(null), json!({}), json!([1]), json!(true), json!("x".repeat(ID_MAX + 1))] {
            assert!(refused(&json!({ "id": id, "method": "tools/list" })).is_err(), "{id}");
        }
        assert!(refused(&json!({ "id": 1, "method": 7 })).is_err());
        for wrong in [
            call(json!([])),
            call(json!("x")),
            call(json!({ "name": 7 })),
            call(json!({ "name": "x", "arguments": [] })),
            call(json!({ "name": "x", "arguments": "{}" })),
        ] {
            assert!(matches!(refused(&wrong), Ok(Some(_))), "{wrong}");
        }
    }
}
