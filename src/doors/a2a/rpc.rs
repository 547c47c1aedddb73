//! The JSON-RPC 2.0 binding at `/a2a/{agentId}` (A2A 1.0 §9).

use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::answer::finish;
use super::call::Call;
use super::error::{A2aError, ErrorKind, Refused};
use super::http_json::tell_extension;
use super::method::{Method, Outcome};
use super::{A2a, CallTimer, HEARTBEAT, enter, read_body};
use crate::http::Api;
use crate::http::layer::Written;

/// Characters of an unknown method's name in its refusal.
const SHOWN_NAME: usize = 100;

/// A request of JSON-RPC.
struct RpcRequest {
    id: Value,
    method: Method,
    params: Value,
}

/// The request in a body, or the reason why it is not one, with the id that it has.
fn request_of(body: Value) -> Result<RpcRequest, (Value, Refused)> {
    let Value::Object(mut members) = body else {
        let why = "a request is an object; batches are not taken";
        return Err((Value::Null, A2aError::new(ErrorKind::InvalidRequest, why)));
    };
    let wrong = |id: Value, why: &str| Err((id, A2aError::new(ErrorKind::InvalidRequest, why)));
    let Some(id) = members.remove("id") else {
        return wrong(Value::Null, "id is needed: the protocol has no notifications");
    };
    if !(id.is_string() || id.is_number() || id.is_null()) {
        return wrong(Value::Null, "id is a text or a number");
    }
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(id, "jsonrpc must be \"2.0\"");
    }
    let Some(name) = members.get("method").and_then(Value::as_str) else {
        return wrong(id, "method is needed");
    };
    let Some(method) = Method::parse(name) else {
        let name: String = name.chars().take(SHOWN_NAME).collect();
        let why = format!("the method {name} does not exist");
        return Err((id, A2aError::new(ErrorKind::MethodNotFound, why)));
    };
    match members.remove("params").unwrap_or_else(|| Value::Object(Map::new())) {
        params @ Value::Object(_) => Ok(RpcRequest { id, method, params }),
        _ => Err((id, A2aError::invalid("params", "must be an object"))),
    }
}

/// An error within the conversation: its status is that of HTTP alone.
fn error(id: &Value, status: StatusCode, error: &A2aError) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error.rpc_error() });
    finish(error, (status, axum::Json(body)).into_response())
}

/// `POST /a2a/{agentId}`.
pub(super) async fn handle(
    State(api): State<Api>,
    Extension(door): Extension<A2a>,
    Path(agent): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    // The version belongs to the conversation: its refusal has the request's id.
    let call = match enter(&api, &door, &agent, &parts).await {
        Ok(call) => Ok(call),
        Err(refused) if refused.kind == ErrorKind::VersionNotSupported => Err(refused),
        Err(refused) => return error(&Value::Null, refused.status, &refused),
    };
    let read = read_body(&api, Request::from_parts(parts, body)).await;
    let (body, _share) = match read {
        Ok(read) => read,
        Err(refused) if refused.kind == ErrorKind::Parse => {
            return error(&Value::Null, StatusCode::OK, &refused);
        }
        Err(refused) => return error(&Value::Null, refused.status, &refused),
    };
    let (request, call) = match (request_of(body), call) {
        (Ok(request), Ok(call)) => (request, call),
        (Ok(RpcRequest { id, .. }), Err(refused)) | (Err((id, refused)), _) => {
            return error(&id, StatusCode::OK, &refused);
        }
    };
    let timer = CallTimer::new(&api, request.method);
    let answered = answer(call, request.method, &request.id, request.params).await;
    timer.observe(answered.as_ref().err().map(|error| error.outcome()));
    answered.unwrap_or_else(|refused| error(&request.id, StatusCode::OK, &refused))
}

async fn answer(
    call: Call,
    method: Method,
    id: &Value,
    params: Value,
) -> Result<Response, Refused> {
    let known = call.knows_extension();
    let id = id.clone();
    let wrap = move |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let mut response = match method.run(call, params).await? {
        Outcome::Json(value) => axum::Json(wrap(value)).into_response(),
        Outcome::Stream(updates) => {
            let sse = Sse::new(updates.events(wrap));
            let sse = sse.keep_alive(KeepAlive::new().interval(HEARTBEAT));
            ([(header::CACHE_CONTROL, "no-cache"), (super::ACCEL, "no")], sse).into_response()
        }
    };
    tell_extension(&mut response, known);
    response.extensions_mut().insert(Written);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_request_or_says_why_not() {
        let request = request_of(
            json!({ "jsonrpc": "2.0", "id": "a", "method": "GetTask", "params": { "id": "h" } }),
        );
        let request = request.ok().unwrap();
        assert_eq!(
            (request.id, request.method, request.params),
            (json!("a"), Method::GetTask, json!({ "id": "h" }))
        );
        for (body, code, id) in [
            (json!([]), -32600, Value::Null),
            (json!({ "id": 1, "method": "GetTask" }), -32600, json!(1)),
            (json!({ "jsonrpc": "2.0", "id": {}, "method": "GetTask" }), -32600, Value::Null),
            (json!({ "jsonrpc": "2.0", "id": 1 }), -32600, json!(1)),
            (json!({ "jsonrpc": "2.0", "method": "GetTask" }), -32600, Value::Null),
            (json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send" }), -32601, json!(1)),
            (
                json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": [] }),
                -32602,
                json!(1),
            ),
        ] {
            let (found, refused) = request_of(body.clone()).err().unwrap();
            assert_eq!((refused.rpc_error()["code"].as_i64(), found), (Some(code), id), "{body}");
        }
        let long = json!({ "jsonrpc": "2.0", "id": 1, "method": "ä".repeat(5_000) });
        let (_, refused) = request_of(long).err().unwrap();
        let message = refused.rpc_error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&"ä".repeat(100)) && message.chars().count() < 130, "{message}");
    }
}
