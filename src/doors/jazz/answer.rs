//! The door's answers: results with the handoff named in headers, and refusals as the API's problems.

use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::super::submission::Refusal;
use super::observed;
use crate::http::Api;
use crate::http::layer::{REQUEST_ID, Written};
use crate::http::problem;
use handoffd_domain::strategy::RoutingStrategy;

/// Headers by which an answer names its handoff: bodies are the pattern's own, to the letter.
const HANDOFF: HeaderName = HeaderName::from_static("handoff-id");
const STRATEGY: HeaderName = HeaderName::from_static("handoff-strategy");

/// The members of a problem.
pub(super) struct ProblemContext {
    path: String,
    id: String,
}

impl ProblemContext {
    pub(super) fn of(parts: &Parts) -> Self {
        let id = parts.headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        Self { path: parts.uri.path().to_owned(), id: id.unwrap_or_default().to_owned() }
    }
}

/// An answer with a JSON body.
pub(super) fn json(status: StatusCode, body: Value) -> Response {
    (status, axum::Json(body)).into_response()
}

/// Names the handoff of an answer, and where to ask for it again.
pub(super) fn named(mut response: Response, handoff: &str) -> Response {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(handoff) {
        headers.insert(HANDOFF, value);
    }
    if let Ok(value) = HeaderValue::from_str(&format!("/adapters/jazz/handoffs/{handoff}")) {
        headers.insert(header::LOCATION, value);
    }
    response
}

/// Names the strategy by which the receiver was chosen.
pub(super) fn chosen(mut response: Response, strategy: Option<RoutingStrategy>) -> Response {
    if let Some(strategy) = strategy {
        let value = HeaderValue::from_static(strategy.as_str());
        response.headers_mut().insert(STRATEGY, value);
    }
    response
}

/// The sentence of a refusal.
pub(super) fn detail(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Api(refusal) => refusal.problem.detail.clone(),
        Refusal::Door(problem) => problem.detail.clone(),
    }
}

/// Answers, or tells the refusal.
pub(super) async fn answered(
    api: &Api,
    operation: &'static str,
    place: &ProblemContext,
    work: impl Future<Output = Result<Response, Refusal>>,
) -> Response {
    let answered =
        async { work.await.unwrap_or_else(|refusal| refused(refusal, place, Value::Null)) };
    observed(api, operation, answered).await
}

/// A refusal: the problem document, with members of the pattern's own beside it. `error` is theirs, a sentence.
pub(super) fn refused(refusal: Refusal, asked: &ProblemContext, members: Value) -> Response {
    let (status, mut details, retry_after) = match refusal {
        Refusal::Door(problem) => {
            if !members.is_object() {
                return problem.into_response();
            }
            let details = problem::details(&problem, &asked.path, &asked.id);
            (problem.status, Box::new(details), problem.retry_after)
        }
        Refusal::Api(refusal) => (refusal.status, refusal.problem, refusal.retry_after),
    };
    details.instance.clone_from(&asked.path);
    let mut document = serde_json::to_value(details).unwrap_or_default();
    if let (Some(document), Value::Object(members)) = (document.as_object_mut(), members) {
        document.extend(members);
    }
    let mut response = json(status, document);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(Written);
    response
}
