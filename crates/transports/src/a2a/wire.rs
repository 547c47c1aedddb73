//! The protocol's requests and answers in both bindings (A2A 1.0 §9, §11). Pure.

use serde_json::{Map, Value, json};
use url::form_urlencoded::byte_serialize;

use super::card::{Binding, RemoteCard};
use handoffd_domain::lenient::{self, Lenient, UnreadableParts};

/// Messages of a task's history that the broker asks for: enough to find its own.
const HISTORY: u32 = 100;
/// Tasks on a page of a list: a page with the history of each stays below the limit of an answer's size.
const LIST_PAGE: u32 = 10;
/// Longest text of a refusal that is kept, in characters.
const REASON_MAX: usize = 500;

/// An operation of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation<'a> {
    /// The body of `SendMessageRequest`.
    Send(&'a Value),
    Get {
        id: &'a str,
    },
    /// Tasks of a context without their artifacts.
    List {
        context: &'a str,
        /// The `nextPageToken` of the page before.
        page: Option<&'a str>,
    },
    Cancel {
        id: &'a str,
    },
}

/// A request as it goes over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct WireRequest {
    pub post: bool,
    pub url: String,
    pub body: Option<Value>,
    pub content_type: &'static str,
}

/// An agent's refusals, by the protocol's own names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRefusal {
    /// Such as `TASK_NOT_FOUND`; the HTTP status or the JSON-RPC code where the agent names no reason.
    pub reason: String,
    pub message: String,
    /// The agent's own failure, which another attempt may not meet.
    pub internal: bool,
}

/// The answer does not have the binding's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer is none of the protocol's")]
pub struct NotOfProtocol;

impl RemoteRefusal {
    /// The agent does not know the task.
    #[must_use]
    pub fn is_no_task(&self) -> bool {
        self.reason == "TASK_NOT_FOUND"
    }
}

impl Operation<'_> {
    const fn method(&self) -> &'static str {
        match self {
            Self::Send(_) => "SendMessage",
            Self::Get { .. } => "GetTask",
            Self::List { .. } => "ListTasks",
            Self::Cancel { .. } => "CancelTask",
        }
    }

    /// The request of this operation to an interface.
    #[must_use]
    pub fn request(&self, card: &RemoteCard) -> WireRequest {
        match card.binding {
            Binding::JsonRpc => {
                let mut params = match self {
                    Self::Send(request) => (*request).clone(),
                    Self::Get { id } => json!({ "id": id, "historyLength": HISTORY }),
                    Self::List { context, page } => {
                        let mut params = json!({ "contextId": context, "historyLength": HISTORY, "pageSize": LIST_PAGE });
                        if let Some(token) = page {
                            params["pageToken"] = (*token).into();
                        }
                        params
                    }
                    Self::Cancel { id } => json!({ "id": id }),
                };
                if let Some(tenant) = &card.tenant {
                    params["tenant"] = tenant.as_str().into();
                }
                let body =
                    json!({ "jsonrpc": "2.0", "id": 1, "method": self.method(), "params": params });
                WireRequest {
                    post: true,
                    url: card.url.clone(),
                    body: Some(body),
                    content_type: "application/json",
                }
            }
            Binding::HttpJson => self.http_json(card),
        }
    }

    fn http_json(&self, card: &RemoteCard) -> WireRequest {
        let segment =
            |text: &str| byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
        let base = match &card.tenant {
            Some(tenant) => format!("{}/{}", card.url, segment(tenant)),
            None => card.url.clone(),
        };
        let (post, path, body) = match self {
            Self::Send(request) => (true, "/message:send".to_owned(), Some((*request).clone())),
            Self::Get { id } => {
                (false, format!("/tasks/{}?historyLength={HISTORY}", segment(id)), None)
            }
            Self::List { context, page } => {
                let query = format!("contextId={}&historyLength={HISTORY}", segment(context));
                let token =
                    page.map_or_else(String::new, |token| format!("&pageToken={}", segment(token)));
                (false, format!("/tasks?{query}&pageSize={LIST_PAGE}{token}"), None)
            }
            Self::Cancel { id } => {
                (true, format!("/tasks/{}:cancel", segment(id)), Some(json!({})))
            }
        };
        WireRequest {
            post,
            url: format!("{base}{path}"),
            body,
            content_type: "application/a2a+json",
        }
    }
}

/// Reads an answer: its result, or the agent's refusal.
///
/// # Errors
/// [`NotOfProtocol`]: neither.
pub fn answer(
    binding: Binding,
    status: u16,
    body: &[u8],
) -> Result<Result<Value, RemoteRefusal>, NotOfProtocol> {
    let Lenient { mut members, unreadable, .. } = Lenient::read(body).ok_or(NotOfProtocol)?;
    let result = match binding {
        Binding::JsonRpc => members.get_mut("result").and_then(Value::as_object_mut),
        Binding::HttpJson => Some(&mut members),
    };
    if let Some(result) = result {
        note(result, &unreadable);
    }
    match binding {
        Binding::JsonRpc => match (members.get("result"), members.get("error")) {
            (None | Some(Value::Null), Some(Value::Object(error))) => Ok(Err(rpc_refusal(error))),
            (Some(result), None | Some(Value::Null)) if (200..300).contains(&status) => {
                Ok(Ok(result.clone()))
            }
            _ => Err(NotOfProtocol),
        },
        Binding::HttpJson if (200..300).contains(&status) => Ok(Ok(Value::Object(members))),
        Binding::HttpJson => match members.get("error") {
            Some(Value::Object(error)) => Ok(Err(status_refusal(error, status))),
            _ => Err(NotOfProtocol),
        },
    }
}

/// Leaves a note of the parts that could not be kept in a task or in the answer that has one. The member is the broker's:
/// the agent's own goes.
fn note(result: &mut Map<String, Value>, unreadable: &UnreadableParts) {
    let task = match result.get_mut("task") {
        Some(Value::Object(task)) => task,
        _ => result,
    };
    task.remove(lenient::OWN);
    unreadable.note_in(task);
}

/// The names that the protocol gives its errors in JSON-RPC.
const CODES: [(i64, &str); 13] = [
    (-32001, "TASK_NOT_FOUND"),
    (-32002, "TASK_NOT_CANCELABLE"),
    (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    (-32004, "UNSUPPORTED_OPERATION"),
    (-32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    (-32006, "INVALID_AGENT_RESPONSE"),
    (-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    (-32008, "EXTENSION_SUPPORT_REQUIRED"),
    (-32009, "VERSION_NOT_SUPPORTED"),
    (-32600, "INVALID_REQUEST"),
    (-32601, "METHOD_NOT_FOUND"),
    (-32602, "INVALID_PARAMS"),
    (-32603, "INTERNAL"),
];

fn rpc_refusal(error: &Map<String, Value>) -> RemoteRefusal {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let known = CODES.iter().find(|(known, _)| *known == code).map(|(_, name)| (*name).to_owned());
    let named = reason_in(error.get("data"));
    let reason = known.or(named).unwrap_or_else(|| format!("JSON_RPC_{}", code.unsigned_abs()));
    let internal =
        matches!(code, -32603 | -32006) || (code == -32000 && reason.starts_with("JSON"));
    RemoteRefusal { internal, message: message_of(error), reason }
}

fn status_refusal(error: &Map<String, Value>, status: u16) -> RemoteRefusal {
    let named = reason_in(error.get("details"));
    let reason = named.unwrap_or_else(|| format!("HTTP_{status}"));
    RemoteRefusal { internal: status >= 500, message: message_of(error), reason }
}

/// The reason of the first `ErrorInfo`, where it is one: capital letters, digits and underscores.
fn reason_in(details: Option<&Value>) -> Option<String> {
    let reason = details?.as_array()?.iter().find_map(|one| one.get("reason")?.as_str())?;
    let fits = (1..=63).contains(&reason.len())
        && reason.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    fits.then(|| reason.to_owned())
}

fn message_of(error: &Map<String, Value>) -> String {
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    message.chars().take(REASON_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::card::CardSignature;
    use super::*;

    fn card(binding: Binding, tenant: Option<&str>) -> RemoteCard {
        RemoteCard {
            binding,
            url: "https://a.example/x".to_owned(),
            tenant: tenant.map(str::to_owned),
            push: false,
            reads_text: true,
            reads_data: true,
            signature: CardSignature::Absent,
        }
    }

    #[test]
    fn both_bindings_say_the_same_operations() {
        let http = |operation: Operation<'_>| {
            let request = operation.request(&card(Binding::HttpJson, None));
            (request.post, request.url.strip_prefix("https://a.example/x").unwrap().to_owned())
        };
        let body = json!({ "message": {} });
        assert_eq!(http(Operation::Send(&body)), (true, "/message:send".to_owned()));
        assert_eq!(
            http(Operation::Get { id: "a/../b c" }),
            (false, "/tasks/a%2F..%2Fb%20c?historyLength=100".to_owned())
        );
        assert_eq!(http(Operation::Cancel { id: "t" }), (true, "/tasks/t:cancel".to_owned()));
        assert_eq!(
            http(Operation::List { context: "c", page: None }),
            (false, "/tasks?contextId=c&historyLength=100&pageSize=10".to_owned())
        );
        let second = Operation::List { context: "c", page: Some("a&b") };
        let listed = second.request(&card(Binding::JsonRpc, None)).body.unwrap();
        assert_eq!(
            listed["params"],
            json!({ "contextId": "c", "historyLength": 100, "pageSize": 10, "pageToken": "a&b" })
        );
        assert!(http(second).1.ends_with("&pageToken=a%26b"));
        let rpc = Operation::Get { id: "t" }.request(&card(Binding::JsonRpc, Some("acme")));
        assert_eq!(rpc.url, "https://a.example/x");
        let body = rpc.body.unwrap();
        assert_eq!(body["method"], "GetTask");
        assert_eq!(body["params"], json!({ "id": "t", "historyLength": 100, "tenant": "acme" }));
        let tenant = Operation::Get { id: "t" }.request(&card(Binding::HttpJson, Some("acme")));
        assert!(tenant.url.starts_with("https://a.example/x/acme/tasks/t?"), "{}", tenant.url);
    }

    #[test]
    fn a_refusal_has_the_protocols_name_in_both_bindings() {
        let rpc =
            json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32001, "message": "gone" } });
        let http = json!({ "error": { "code": 404, "message": "gone", "details": [
            { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org" }
        ] } });
        let read = |binding, status, value: &Value| {
            answer(binding, status, value.to_string().as_bytes()).unwrap().unwrap_err()
        };
        for refused in [read(Binding::JsonRpc, 200, &rpc), read(Binding::HttpJson, 404, &http)] {
            assert!(
                refused.is_no_task() && !refused.internal && refused.message == "gone",
                "{refused:?}"
            );
        }
        let internal = json!({ "error": { "code": -32603, "message": "x".repeat(9_000) } });
        let internal = read(Binding::JsonRpc, 200, &internal);
        assert!(internal.internal && internal.message.len() == REASON_MAX, "{internal:?}");
        let odd = json!({ "error": { "details": [{ "reason": "no reason\n" }] } });
        assert_eq!(read(Binding::HttpJson, 418, &odd).reason, "HTTP_418");
    }

    #[test]
    fn what_is_not_of_the_protocol_is_no_answer() {
        for (binding, status, body) in [
            (Binding::HttpJson, 200, "<html>"),
            (Binding::HttpJson, 200, "[]"),
            (Binding::HttpJson, 500, "{}"),
            (Binding::JsonRpc, 200, "{}"),
            (Binding::JsonRpc, 200, r#"{"result":{},"error":{}}"#),
            (Binding::JsonRpc, 404, r#"{"result":{}}"#),
            (Binding::JsonRpc, 200, r#"{"error":"text"}"#),
        ] {
            assert_eq!(answer(binding, status, body.as_bytes()), Err(NotOfProtocol), "{body}");
        }
    }
}
