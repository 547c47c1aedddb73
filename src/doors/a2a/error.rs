//! Errors of the protocol, in both bindings (A2A 1.0 §3.3.2, §5.4): what the door refuses itself, and what the API refuses.

#![expect(
    clippy::unnecessary_box_returns,
    reason = "an error goes on as it is made, in the box of a route's result"
)]

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::client::ApiRefusal;
use super::super::submission::Refusal;
use crate::http::problem::{self, Problem, ProblemDetails};

/// The kinds of errors, with the names, JSON-RPC codes and statuses that the protocol gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    TaskNotFound,
    TaskNotCancelable,
    UnsupportedOperation,
    ContentTypeNotSupported,
    VersionNotSupported,
    /// The body is not JSON.
    Parse,
    /// The JSON is not a request of JSON-RPC.
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// A refusal by the broker for which the protocol has no name.
    Broker,
}

impl ErrorKind {
    /// JSON-RPC code, HTTP status, name in `ErrorInfo`.
    const fn row(self) -> (i64, StatusCode, &'static str) {
        match self {
            Self::TaskNotFound => (-32001, StatusCode::NOT_FOUND, "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, StatusCode::BAD_REQUEST, "TASK_NOT_CANCELABLE"),
            Self::UnsupportedOperation => {
                (-32004, StatusCode::BAD_REQUEST, "UNSUPPORTED_OPERATION")
            }
            Self::ContentTypeNotSupported => {
                (-32005, StatusCode::BAD_REQUEST, "CONTENT_TYPE_NOT_SUPPORTED")
            }
            Self::VersionNotSupported => (-32009, StatusCode::BAD_REQUEST, "VERSION_NOT_SUPPORTED"),
            Self::Parse => (-32700, StatusCode::BAD_REQUEST, "PARSE_ERROR"),
            Self::InvalidRequest => (-32600, StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
            Self::MethodNotFound => (-32601, StatusCode::NOT_FOUND, "METHOD_NOT_FOUND"),
            Self::InvalidParams => (-32602, StatusCode::BAD_REQUEST, "INVALID_PARAMS"),
            Self::Internal => (-32603, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
            Self::Broker => (-32000, StatusCode::BAD_REQUEST, "REFUSED"),
        }
    }

    /// Whether the protocol itself names it.
    const fn is_of_protocol(self) -> bool {
        matches!(
            self,
            Self::TaskNotFound
                | Self::TaskNotCancelable
                | Self::UnsupportedOperation
                | Self::ContentTypeNotSupported
                | Self::VersionNotSupported
        )
    }
}

/// An error as both bindings tell it.
#[derive(Debug, Clone)]
pub(super) struct A2aError {
    pub(super) kind: ErrorKind,
    /// HTTP status.
    pub(super) status: StatusCode,
    message: String,
    /// The broker's code, where it refused.
    code: Option<String>,
    /// Pointer and sentence of each finding.
    violations: Vec<(String, String)>,
    /// Seconds after which to try again.
    pub(super) retry_after: Option<u64>,
}

/// How a route refuses.
pub(super) type Refused = Box<A2aError>;

impl A2aError {
    /// An error of this kind.
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Refused {
        Box::new(Self {
            kind,
            status: kind.row().1,
            message: message.into(),
            code: None,
            violations: Vec::new(),
            retry_after: None,
        })
    }

    /// A parameter that does not fit.
    pub(super) fn invalid(field: &str, why: impl Into<String>) -> Refused {
        let why = why.into();
        let mut error = Self::new(ErrorKind::InvalidParams, format!("{field}: {why}"));
        error.violations.push((field.to_owned(), why));
        error
    }

    pub(super) fn no_task() -> Refused {
        Self::new(ErrorKind::TaskNotFound, "no such task")
    }

    /// The outcome as a metric's label.
    pub(super) fn outcome(&self) -> &'static str {
        if self.status.is_server_error() { "failed" } else { "refused" }
    }

    /// The details of both bindings, as `Any`s.
    fn details(&self) -> Vec<Value> {
        let (_, _, name) = self.kind.row();
        let reason = self.code.as_deref().unwrap_or(name);
        let domain = if self.kind.is_of_protocol() && self.code.is_none() {
            "a2a-protocol.org"
        } else {
            "handoffd"
        };
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain,
        })];
        if !self.violations.is_empty() {
            let told: Vec<Value> = self
                .violations
                .iter()
                .map(|(field, why)| json!({ "field": field, "description": why }))
                .collect();
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": told,
            }));
        }
        details
    }

    /// `google.rpc.Status` in JSON.
    pub(super) fn status_body(&self) -> Value {
        json!({ "error": {
            "code": self.status.as_u16(),
            "status": canonical(self.kind, self.status),
            "message": self.message,
            "details": self.details(),
        } })
    }

    /// The `error` of a JSON-RPC answer.
    pub(super) fn rpc_error(&self) -> Value {
        json!({ "code": self.kind.row().0, "message": self.message, "data": self.details() })
    }
}

/// The name of a status in `google.rpc.Code`.
fn canonical(kind: ErrorKind, status: StatusCode) -> &'static str {
    match (kind, status.as_u16()) {
        (
            ErrorKind::TaskNotCancelable
            | ErrorKind::UnsupportedOperation
            | ErrorKind::VersionNotSupported,
            _,
        )
        | (_, 422) => "FAILED_PRECONDITION",
        (_, 401) => "UNAUTHENTICATED",
        (_, 403) => "PERMISSION_DENIED",
        (_, 404) => "NOT_FOUND",
        (_, 409) => "ABORTED",
        (_, 413 | 429) => "RESOURCE_EXHAUSTED",
        (_, 503) => "UNAVAILABLE",
        (_, 500..) => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

/// A problem as an error: the same code and status as at the front door.
fn of_details(details: ProblemDetails, status: StatusCode, retry_after: Option<u64>) -> Refused {
    let kind = match status {
        // The protocol has a name for it, and HTTP has a status.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            let named = A2aError::new(ErrorKind::ContentTypeNotSupported, details.detail);
            return Box::new(A2aError { status, ..*named });
        }
        status if status.is_server_error() => ErrorKind::Internal,
        _ => ErrorKind::Broker,
    };
    Box::new(A2aError {
        kind,
        status,
        message: details.detail,
        code: Some(details.code),
        violations: details.failures.into_iter().map(|one| (one.pointer, one.message)).collect(),
        retry_after,
    })
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let details = problem::details(&problem, "/a2a", "");
        of_details(details, problem.status, problem.retry_after)
    }
}

impl From<ApiRefusal> for Refused {
    fn from(refusal: ApiRefusal) -> Self {
        of_details(*refusal.problem, refusal.status, refusal.retry_after)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Api(refusal) => refusal.into(),
            Refusal::Door(problem) => (*problem).into(),
        }
    }
}

/// The refusal to read a task: one that is another's is as unknown as one that was never made.
pub(super) fn unread(refusal: ApiRefusal) -> Refused {
    // An id that is not a UUID is 404 at the API too.
    if refusal.status == StatusCode::NOT_FOUND { A2aError::no_task() } else { refusal.into() }
}

/// Pointer and sentence of each finding, under a prefix.
pub(super) fn violations(prefix: &str, problem: &Problem) -> Refused {
    let mut error = A2aError::new(ErrorKind::InvalidParams, problem.detail.clone());
    error.violations = problem
        .failures
        .iter()
        .map(|failure| (format!("{prefix}{}", failure.pointer), failure.message.clone()))
        .collect();
    error
}

/// An empty object, for answers without content.
pub(super) fn nothing() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::failure::Code;

    #[test]
    fn an_error_of_the_protocol_has_its_name_code_and_status() {
        let error = A2aError::no_task();
        let body = error.status_body();
        assert_eq!(
            (&body["error"]["code"], &body["error"]["status"]),
            (&json!(404), &json!("NOT_FOUND"))
        );
        assert_eq!(
            body["error"]["details"],
            json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org" }])
        );
        assert_eq!(error.rpc_error()["code"], -32001);
        let error = A2aError::new(ErrorKind::VersionNotSupported, "x");
        assert_eq!(error.status_body()["error"]["status"], "FAILED_PRECONDITION");
    }

    #[test]
    fn a_refusal_of_the_broker_keeps_its_code_and_status() {
        let error: Refused = Problem::new(Code::SafetyViolation, "no").into();
        let body = error.status_body();
        assert_eq!(body["error"]["code"], 422);
        assert_eq!(body["error"]["details"][0]["reason"], "SAFETY_VIOLATION");
        assert_eq!(body["error"]["details"][0]["domain"], "handoffd");
        assert_eq!(error.rpc_error()["code"], -32000);
        let error: Refused = Problem::new(Code::Unavailable, "later").into();
        assert_eq!(
            (error.rpc_error()["code"].as_i64(), error.retry_after),
            (Some(-32603), Some(1))
        );
    }
}
