//! The HTTP+JSON binding below `/a2a/{agentId}` (A2A 1.0 §11).

use std::borrow::Cow;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::answer::{media_type, refused};
use super::error::{A2aError, ErrorKind, Refused};
use super::method::{Method, Outcome};
use super::{A2a, CallTimer, EXTENSIONS_HEADER, HEARTBEAT, enter, read_body};
use crate::http::Api;

/// A request below an agent's address, whatever its path.
pub(super) async fn handle(
    State(api): State<Api>,
    Extension(door): Extension<A2a>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let (agent, method, given) = match named_by(&request) {
        Ok(found) => found,
        Err(error) => return refused(&error, &headers),
    };
    let timer = CallTimer::new(&api, method);
    let answered = answer(&api, &door, &agent, method, given, request).await;
    timer.observe(answered.as_ref().err().map(|error| error.outcome()));
    match answered {
        Ok(response) => response,
        Err(error) => refused(&error, &headers),
    }
}

async fn answer(
    api: &Api,
    door: &A2a,
    agent: &str,
    method: Method,
    given: Map<String, Value>,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let call = enter(api, door, agent, &parts).await?;
    let kind = media_type(&parts.headers, false);
    let known = call.knows_extension();
    let takes_body = matches!(
        method,
        Method::SendMessage | Method::SendStreamingMessage | Method::CreatePushConfig
    );
    let (mut params, _share) = if takes_body {
        let (value, share) = read_body(api, Request::from_parts(parts, body)).await?;
        (value, Some(share))
    } else {
        (Value::Object(Map::new()), None)
    };
    let Some(members) = params.as_object_mut() else {
        return Err(A2aError::invalid("", "the body must be an object"));
    };
    // The path takes precedence over the body.
    members.extend(given);
    let mut response = match method.run(call, params).await? {
        Outcome::Json(value) => {
            let mut response = axum::Json(value).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        }
        Outcome::Stream(updates) => {
            let events = updates.events(|update| update);
            let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT));
            // A proxy that collects answers before it passes them on would defeat the purpose.
            ([(header::CACHE_CONTROL, "no-cache"), (super::ACCEL, "no")], sse).into_response()
        }
    };
    tell_extension(&mut response, known);
    Ok(response)
}

/// Says that the extension counted.
pub(super) fn tell_extension(response: &mut Response, known: bool) {
    if known {
        let uri = HeaderValue::from_static(super::EXTENSION);
        response.headers_mut().insert(EXTENSIONS_HEADER, uri);
    }
}

/// The agent and the method that the address of a request names, and what path and query say.
fn named_by(request: &Request) -> Result<(String, Method, Map<String, Value>), Refused> {
    let uri = request.uri();
    // Not as the router decodes it: a slash that was encoded is a part of a name.
    let path = uri.path().strip_prefix("/a2a/").unwrap_or_default();
    let (agent, path) = path.split_once('/').unwrap_or((path, ""));
    let (method, given) = method_of(request.method(), path, uri.query().unwrap_or_default())?;
    Ok((decoded(agent)?.into_owned(), method, given))
}

/// A segment of a path, percent-decoded.
fn decoded(segment: &str) -> Result<Cow<'_, str>, Refused> {
    let undecodable = |_| A2aError::invalid("", "the path must be UTF-8, percent-encoded");
    percent_decode_str(segment).decode_utf8().map_err(undecodable)
}

/// The method of a path as it came, and what path and query say.
fn method_of(
    verb: &axum::http::Method,
    path: &str,
    query: &str,
) -> Result<(Method, Map<String, Value>), Refused> {
    use axum::http::Method as Verb;
    let nothing = || A2aError::new(ErrorKind::MethodNotFound, "there is nothing at this path");
    let of = |value: Value| match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let segments: Vec<Cow<'_, str>> = path.split('/').map(decoded).collect::<Result<_, _>>()?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let known = match (verb, segments.as_slice()) {
        (&Verb::POST, ["message:send"]) => (Method::SendMessage, Map::new()),
        (&Verb::POST, ["message:stream"]) => (Method::SendStreamingMessage, Map::new()),
        (&Verb::GET, ["extendedAgentCard"]) => (Method::GetExtendedAgentCard, Map::new()),
        (&Verb::GET, ["tasks"]) => (Method::ListTasks, parameters(query)?),
        (verb, ["tasks", task]) => match (verb, task.rsplit_once(':')) {
            (&Verb::GET, None) => {
                let mut given = parameters(query)?;
                given.insert("id".to_owned(), (*task).into());
                (Method::GetTask, given)
            }
            (&Verb::POST, Some((id, "cancel"))) => (Method::CancelTask, of(json!({ "id": id }))),
            // The specification has both verbs.
            (&Verb::GET | &Verb::POST, Some((id, "subscribe"))) => {
                (Method::SubscribeToTask, of(json!({ "id": id })))
            }
            _ => return Err(nothing()),
        },
        (verb, ["tasks", task, "pushNotificationConfigs"]) => {
            let given = of(json!({ "taskId": task }));
            match *verb {
                Verb::POST => (Method::CreatePushConfig, given),
                Verb::GET => (Method::ListPushConfigs, given),
                _ => return Err(nothing()),
            }
        }
        (verb, ["tasks", task, "pushNotificationConfigs", id]) => {
            let given = of(json!({ "taskId": task, "id": id }));
            match *verb {
                Verb::GET => (Method::GetPushConfig, given),
                Verb::DELETE => (Method::DeletePushConfig, given),
                _ => return Err(nothing()),
            }
        }
        _ => return Err(nothing()),
    };
    Ok(known)
}

/// Parameters of a query as members of a request: numbers and truth values by either name.
fn parameters(query: &str) -> Result<Map<String, Value>, Refused> {
    let mut given = Map::new();
    for (name, text) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = match &*name {
            "pageSize" | "page_size" | "historyLength" | "history_length" => {
                let number: i32 =
                    text.parse().map_err(|_| A2aError::invalid(&name, "must be a whole number"))?;
                number.into()
            }
            "includeArtifacts" | "include_artifacts" => {
                let truth: bool =
                    text.parse().map_err(|_| A2aError::invalid(&name, "must be true or false"))?;
                truth.into()
            }
            _ => text.into_owned().into(),
        };
        given.insert(name.into_owned(), value);
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::super::answer::A2A_JSON;
    use super::*;
    use axum::http::{HeaderMap, Method as Verb};

    #[test]
    fn a_path_is_a_method_with_what_it_names() {
        for (verb, path, query, method, given) in [
            (Verb::POST, "message:send", "", Method::SendMessage, json!({})),
            (
                Verb::GET,
                "tasks/h",
                "historyLength=2",
                Method::GetTask,
                json!({ "historyLength": 2, "id": "h" }),
            ),
            (
                Verb::GET,
                "tasks",
                "pageSize=3&includeArtifacts=true&contextId=c",
                Method::ListTasks,
                json!({ "pageSize": 3, "includeArtifacts": true, "contextId": "c" }),
            ),
            (
                Verb::GET,
                "tasks",
                "page_size=3&include_artifacts=true&history_length=1",
                Method::ListTasks,
                json!({ "page_size": 3, "include_artifacts": true, "history_length": 1 }),
            ),
            (Verb::POST, "tasks/h:cancel", "", Method::CancelTask, json!({ "id": "h" })),
            (Verb::GET, "tasks/h:subscribe", "", Method::SubscribeToTask, json!({ "id": "h" })),
            (Verb::POST, "tasks/h:subscribe", "", Method::SubscribeToTask, json!({ "id": "h" })),
            (
                Verb::DELETE,
                "tasks/h/pushNotificationConfigs/p",
                "",
                Method::DeletePushConfig,
                json!({ "taskId": "h", "id": "p" }),
            ),
            (
                Verb::GET,
                "tasks/h%3A/pushNotificationConfigs/a%2Fb%20c",
                "",
                Method::GetPushConfig,
                json!({ "taskId": "h:", "id": "a/b c" }),
            ),
        ] {
            let (found, params) = method_of(&verb, path, query).unwrap();
            assert_eq!((found, Value::Object(params)), (method, given), "{verb} {path}");
        }
        for (verb, path) in [
            (Verb::GET, "message:send"),
            (Verb::GET, "tasks/h:cancel"),
            (Verb::POST, "tasks/h"),
            (Verb::GET, ""),
            (Verb::GET, "tasks/h/x"),
            (Verb::GET, "tasks/%ff"),
        ] {
            assert!(method_of(&verb, path, "").is_err(), "{verb} {path}");
        }
        for query in ["pageSize=x", "page_size=x", "include_artifacts=maybe"] {
            assert!(method_of(&Verb::GET, "tasks", query).is_err(), "{query}");
        }
    }

    #[test]
    fn an_answer_has_the_media_type_that_the_client_speaks() {
        let of = |accept: &str, error| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            media_type(&headers, error)
        };
        assert_eq!(
            [of("*/*", false), of("application/json", false), of("*/*", true)],
            [A2A_JSON, "application/json", "application/json"]
        );
        assert_eq!(of("application/a2a+json, application/json", true), A2A_JSON);
    }
}
