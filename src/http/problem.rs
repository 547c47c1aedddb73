//! The one door for errors: RFC 9457 problem details, with Orbit's `error` object as an extension
//! member (ruling X13). Nothing of the inside leaks through a 5xx.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::{IntoResponses, ToSchema};

use super::open;
use handoffd_broker::dead_letters::DecisionError;
use handoffd_broker::intake::{IntakeError, Refusal};
use handoffd_broker::ledger::reply::{LedgerError, Undone};
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::task::TaskStatus;
use handoffd_domain::warning::Warning;
use handoffd_store::clock;
use handoffd_store::store::StoreError;

/// `Accept-Encoding` of a 415: the codings that requests may use.
pub const ACCEPTED: &str = "zstd, gzip";

/// A refusal. The outermost layer renders it, because it knows the request.
#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    pub code: Code,
    /// A sentence for this very case.
    pub detail: String,
    /// Failures found by the gate or a validation.
    pub failures: Vec<Failure>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// Whether this repeats an earlier answer.
    pub replayed: bool,
    /// The answer names the content codings that a request may come in.
    pub accept_encoding: bool,
    /// The new state of a refused submission's task, where the refusal moved it.
    pub undone: Option<Undone>,
    /// How far the chunks of a request came.
    pub chunks: Option<Box<ChunksTaken>>,
    /// The members that few problems have; boxed, since every handler's error has this size.
    pub more: Option<Box<ProblemMore>>,
}

/// The members that few problems have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProblemMore {
    /// The `stepDigest` of the message that has the id already, told to its sender.
    pub stored_step_digest: Option<Box<str>>,
    /// The last place there is, where a request names one ahead of it.
    pub head: Option<Box<str>>,
    /// `WWW-Authenticate` of a refusal without a valid key; the API's own unless set.
    pub challenge: Option<Box<str>>,
}

/// How far the chunks of a request came before one was refused.
#[derive(Debug, Clone, Copy)]
pub struct ChunksTaken {
    /// The number of the next chunk.
    pub expected_seq: Option<i64>,
    /// Chunks that the request added.
    pub taken: usize,
    /// The line of the refused one, from 1.
    pub line: Option<usize>,
}

/// The default HTTP status of a code.
#[must_use]
pub const fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Unauthenticated | Code::SignatureInvalid => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::Conflict | Code::StaleLease => StatusCode::CONFLICT,
        Code::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::InvalidRequest => StatusCode::BAD_REQUEST,
        Code::Overloaded | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::SchemaInvalid
        | Code::SafetyViolation
        | Code::CredentialFound
        | Code::BudgetExhausted
        | Code::BudgetMismatch
        | Code::LineageMismatch
        | Code::LoopDetected
        | Code::ContextTooLarge
        | Code::ContractViolation
        | Code::NoCapableAgent
        | Code::IncompleteContext
        | Code::MaxIterations => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

const fn title(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "A valid API key is needed",
        Code::SignatureInvalid => "The message's signature does not hold",
        Code::SchemaInvalid => "The document does not fit its schema",
        Code::Forbidden => "Not allowed",
        Code::SafetyViolation => "The message carries text that a safety rule forbids",
        Code::CredentialFound => "The message carries a credential",
        Code::BudgetExhausted => "No budget is left",
        Code::BudgetMismatch => "The budget relay does not add up",
        Code::LineageMismatch => "The message follows another handoff",
        Code::LoopDetected => "The task goes in circles",
        Code::ContextTooLarge => "The message is larger than its receiver's context",
        Code::ContractViolation => "The contract of this edge refuses",
        Code::NoCapableAgent => "No agent can take this handoff",
        Code::IncompleteContext => "The receiver would lack context",
        Code::Conflict => "This contradicts what is recorded",
        Code::MaxIterations => "The receiver took more rounds than the handoff allows",
        Code::StaleLease => "Another worker holds the lease",
        Code::NotFound => "Not found",
        Code::MethodNotAllowed => "Method not allowed",
        Code::UnsupportedMediaType => "Unsupported media type",
        Code::PayloadTooLarge => "The body is too large",
        Code::InvalidRequest => "The request is malformed",
        Code::Overloaded => "Overloaded",
        Code::Unavailable => "Unavailable",
        Code::Internal => "An internal error",
    }
}

/// The sentence for a defect of the broker.
const FAILED: &str = "the broker failed; the request id tells the operator more";

/// The problem of one member of a body that does not fit.
pub(crate) fn wrong(pointer: &str, message: impl Into<String>) -> Problem {
    let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message);
    Problem::refusal(vec![failure], false)
}

impl Problem {
    /// A problem with the code's default status.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            status: status_of(code),
            code,
            detail: detail.into(),
            failures: Vec::new(),
            retry_after: matches!(code, Code::Overloaded | Code::Unavailable).then_some(1),
            replayed: false,
            accept_encoding: false,
            undone: None,
            chunks: None,
            more: None,
        }
    }

    /// A place beyond the end: `head` is the last one that may be named.
    #[must_use]
    pub fn ahead(name: &str, head: impl std::fmt::Display) -> Self {
        let head = head.to_string();
        let why = format!("{name} is ahead of the last place, {head}");
        let more = ProblemMore { head: Some(head.into()), ..ProblemMore::default() };
        Self { more: Some(Box::new(more)), ..Self::new(Code::InvalidRequest, why) }
    }

    /// A stored message that is not JSON.
    #[must_use]
    pub fn unreadable_message() -> Self {
        Self::new(Code::Internal, "the stored message cannot be read")
    }

    /// A refusal by the gate; the primary failure gives code and status.
    #[must_use]
    pub fn refusal(failures: Vec<Failure>, replayed: bool) -> Self {
        let code = primary(&failures).unwrap_or(Code::Internal);
        let detail = failures
            .iter()
            .find(|failure| failure.code == code)
            .map(|failure| failure.message.clone())
            .unwrap_or_default();
        Self { failures, replayed, ..Self::new(code, detail) }
    }

    /// A body that is not JSON.
    #[must_use]
    pub fn malformed(failure: Failure) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            failures: vec![failure.clone()],
            ..Self::new(Code::SchemaInvalid, failure.message)
        }
    }

    /// The problem that a document of this broker tells, for a request of another form.
    #[must_use]
    pub fn of_details(status: StatusCode, details: ProblemDetails) -> Self {
        let successor = details.successor_id.and_then(|id| id.parse().ok());
        let task_status = details.task_status.as_deref().and_then(TaskStatus::parse);
        let head = details.head.map(String::into_boxed_str);
        let more = head.map(|head| ProblemMore { head: Some(head), ..ProblemMore::default() });
        let failures = serde_json::to_value(details.failures).and_then(serde_json::from_value);
        Self {
            status,
            failures: failures.unwrap_or_default(),
            undone: task_status.map(|task_status| Undone { task_status, successor }),
            more: more.map(Box::new),
            ..Self::new(Code::parse(&details.code).unwrap_or(Code::Internal), details.detail)
        }
    }

    /// The archive cannot be reached, and has the content.
    #[must_use]
    pub fn archive_away() -> Self {
        let why = "the content is in the archive, which cannot give it now";
        Self::new(Code::Unavailable, why)
    }

    /// The tenant has no resource of that name.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("no such {what}"))
    }

    fn of_ledger(err: &LedgerError) -> Self {
        match err {
            LedgerError::Internal(_) => Self::new(Code::Internal, FAILED),
            LedgerError::IdempotencyMismatch => Self {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                ..Self::new(Code::Conflict, err.to_string())
            },
            LedgerError::Invalid(pointer, message) => wrong(pointer, message.clone()),
            LedgerError::Contradicts(failures) => {
                let detail = failures.first().map(|failure| failure.message.clone());
                let failures = failures.clone();
                Self { failures, ..Self::new(Code::Conflict, detail.unwrap_or_default()) }
            }
            LedgerError::Unavailable => {
                Self::new(Code::Unavailable, "the store does not take this now; try again")
            }
            _ => Self::new(err.code(), err.to_string()),
        }
    }

    fn of_store(err: &StoreError) -> Self {
        match err {
            StoreError::Refused(_) => Self::new(Code::Internal, FAILED),
            StoreError::Denied(_) => {
                Self::new(Code::Unavailable, "the store cannot be used; try again")
            }
            StoreError::Unavailable(_) | StoreError::Conflict(_) => {
                Self::new(Code::Unavailable, "the store cannot be reached; try again")
            }
        }
    }

    /// A malformed query parameter, header or path segment.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        refusal.log();
        match refusal {
            Refusal::Findings(failures) => Self::refusal(failures, false),
            Refusal::Recorded(failures, undone) => {
                Self { undone, ..Self::refusal(failures, false) }
            }
            Refusal::Malformed(failure) => Self::malformed(failure),
            Refusal::Because(code, why) => Self::new(code, why),
            Refusal::NotFound(what) => Self::not_found(what),
            Refusal::Ledger(err) => Self::of_ledger(&err),
            Refusal::Store(err) => Self::of_store(&err),
        }
    }
}

impl From<LedgerError> for Problem {
    fn from(err: LedgerError) -> Self {
        Refusal::from(err).into()
    }
}

impl From<StoreError> for Problem {
    fn from(err: StoreError) -> Self {
        Refusal::from(err).into()
    }
}

impl From<Arc<StoreError>> for Problem {
    fn from(err: Arc<StoreError>) -> Self {
        Refusal::from(err).into()
    }
}

impl From<IntakeError> for Problem {
    fn from(err: IntakeError) -> Self {
        Refusal::from(err).into()
    }
}

impl From<DecisionError> for Problem {
    fn from(err: DecisionError) -> Self {
        match err {
            DecisionError::Intake(err) => err.into(),
            DecisionError::Store(err) => err.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// RFC 9457, with the specification's extension members (§2.4).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    /// URL of the page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in a few words.
    pub title: String,
    /// Status code of the HTTP answer.
    pub status: u16,
    /// A sentence for this very case.
    pub detail: String,
    /// The path that was asked.
    pub instance: String,
    /// Code of the error; `docs/errors/` has a page on each.
    #[schema(value_type = open::ErrorCode)]
    pub code: String,
    /// The primary reason of a refusal; the same as `code`.
    #[schema(value_type = open::ErrorCode)]
    pub reason: String,
    /// Everything that was found.
    pub failures: Vec<FailureView>,
    /// The status of a refused submission's task, if the refusal changed it: `ESCALATED` after the third.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::TaskStatus>)]
    pub task_status: Option<String>,
    /// The handoff that goes to another agent in place of the refused one, as its contract says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor_id: Option<String>,
    /// Of chunks: the number of the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_seq: Option<i64>,
    /// Of chunks: how many of the request were committed before the refused one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<usize>,
    /// Of chunks as NDJSON: the line of the refused one, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Of a message whose `handoffId` its sender used before, with other content: `extensions.handoffd.stepDigest` of the
    /// message that has the id, where that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_step_digest: Option<String>,
    /// Of a place beyond the end: the last place that may be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Names this request in the broker's log.
    pub request_id: String,
    /// The same error in the form that clients of Orbit read.
    pub error: OrbitError,
}

/// One finding of the gate, or of the request's check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// Stage of the gate that found it.
    #[schema(value_type = open::GateStage)]
    pub stage: String,
    /// Code of the error; `docs/errors/` has a page on each.
    #[schema(value_type = open::ErrorCode)]
    pub code: String,
    /// RFC 6901 pointer into the body.
    pub pointer: String,
    /// The fault, in a sentence for people.
    pub message: String,
}

/// A shortfall that refuses nothing: something was taken and does not hold in full.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WarningView {
    /// Its code; `docs/warnings.md` explains each.
    #[schema(value_type = open::WarningCode)]
    pub code: String,
    /// RFC 6901 pointer into the body.
    pub pointer: String,
    /// The part that does not hold, and the part that does.
    pub message: String,
}

impl From<&Warning> for WarningView {
    fn from(warning: &Warning) -> Self {
        Self {
            code: warning.code.as_str().to_owned(),
            pointer: warning.pointer.clone(),
            message: warning.message.clone(),
        }
    }
}

/// Orbit's error object (seed 003).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrbitError {
    /// Code of the error, as in `code` beside it.
    #[schema(value_type = open::ErrorCode)]
    pub code: String,
    /// Sentence for people, as in `detail` beside it.
    pub message: String,
    /// Status code of the HTTP answer.
    pub status: u16,
}

#[must_use]
pub fn view(failure: &Failure) -> FailureView {
    FailureView {
        stage: failure.stage.as_str().to_owned(),
        code: failure.code.as_str().to_owned(),
        pointer: failure.pointer.clone(),
        message: failure.message.clone(),
    }
}

/// A problem as a document, for the request it answers.
#[must_use]
pub fn details(problem: &Problem, instance: &str, request_id: &str) -> ProblemDetails {
    let code = problem.code.as_str().to_owned();
    let more = problem.more.as_deref();
    ProblemDetails {
        kind: format!("/docs/errors/{code}"),
        title: title(problem.code).to_owned(),
        status: problem.status.as_u16(),
        detail: problem.detail.clone(),
        instance: instance.to_owned(),
        reason: code.clone(),
        failures: problem.failures.iter().map(view).collect(),
        task_status: problem.undone.map(|undone| undone.task_status.as_str().to_owned()),
        successor_id: problem.undone.and_then(|undone| undone.successor).map(|id| id.to_string()),
        expected_seq: problem.chunks.as_ref().and_then(|chunks| chunks.expected_seq),
        taken: problem.chunks.as_ref().map(|chunks| chunks.taken),
        line: problem.chunks.as_ref().and_then(|chunks| chunks.line),
        stored_step_digest: more
            .and_then(|more| more.stored_step_digest.as_deref().map(str::to_owned)),
        head: more.and_then(|more| more.head.as_deref().map(str::to_owned)),
        request_id: request_id.to_owned(),
        error: OrbitError {
            code: code.clone(),
            message: problem.detail.clone(),
            status: problem.status.as_u16(),
        },
        code,
    }
}

/// The document for the sender of a message that came by a queue and is refused.
#[must_use]
pub fn of_queue(refusal: Refusal, handoff: &str) -> Bytes {
    let request_id = clock::random_id().to_string();
    let details = details(&refusal.into(), &format!("/handoffs/{handoff}"), &request_id);
    serde_json::to_vec(&details).unwrap_or_default().into()
}

/// Writes a problem out for the request it answers.
#[must_use]
pub fn render(problem: &Problem, instance: &str, request_id: &str) -> Response {
    let details = details(problem, instance, request_id);
    let body = serde_json::to_vec(&details).unwrap_or_default();
    let mut response = (problem.status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let challenge = problem.more.as_deref().and_then(|more| more.challenge.as_deref());
    if problem.status == StatusCode::UNAUTHORIZED || challenge.is_some() {
        let own = challenge.and_then(|text| HeaderValue::from_str(text).ok());
        let challenge = own.unwrap_or(HeaderValue::from_static("Bearer realm=\"handoffd\""));
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    if problem.accept_encoding {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    }
    if problem.replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

/// Answers that many operations give: by name, status and description.
const SHARED: &[(&str, &str, &str)] = &[
    ("NoKey", "401", "No valid key"),
    ("BadBody", "400", "Not JSON, or a malformed header"),
    ("TooLarge", "413", "The body is too large, as it is or decoded"),
    (
        "NotJson",
        "415",
        "Not application/json, or in a Content-Encoding other than those that the answer's Accept-Encoding names",
    ),
    ("Busy", "503", "Overloaded, or the store is away: nothing was written"),
    ("Away", "503", "The store is away, or the broker takes no more requests"),
    ("Refused", "default", "Any other refusal: its `code` says why"),
];

/// The shared answers as components of the OpenAPI document.
pub(super) fn shared() -> Value {
    let answer = |what: &str| json!({ "description": what, "content": content() });
    SHARED.iter().map(|(name, _, what)| ((*name).to_owned(), answer(what))).collect()
}

/// The content of a refusal in the OpenAPI document.
pub(super) fn content() -> Value {
    json!({
        "application/problem+json": { "schema": { "$ref": "#/components/schemas/ProblemDetails" } }
    })
}

/// Names a shared answer.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/responses/{name}") })
}

fn references(names: &[&str]) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let shared = SHARED.iter().filter(|(name, ..)| names.contains(name));
    shared
        .map(|(name, status, _)| {
            let reference = utoipa::openapi::Ref::from_response_name(*name);
            ((*status).to_owned(), RefOr::Ref(reference))
        })
        .collect()
}

/// Refusals of each operation that takes a body.
pub struct BadBody;

impl IntoResponses for BadBody {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        references(&["BadBody", "TooLarge", "NotJson"])
    }
}

/// Refusals of each operation that writes.
pub struct Busy;

impl IntoResponses for Busy {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        references(&["Busy"])
    }
}
