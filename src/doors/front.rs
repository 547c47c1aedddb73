//! The API's router, called in this process in a caller's name.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_service::Service;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::http::arrival::Arrival;
use crate::http::auth::Named;
use crate::http::layer::{Door, REQUEST_ID};
use crate::http::problem::{Problem, ProblemDetails, details};
use crate::http::{Api, router};
use handoffd_broker::directory::Principal;
use handoffd_domain::failure::Code;
use handoffd_domain::lenient::UnreadableParts;

/// The API as a door calls it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FrontDoor {
    router: Router,
    door: Door,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiRequest {
    method: Method,
    target: String,
    /// JSON.
    body: Option<Vec<u8>>,
    /// `Idempotency-Key`.
    key: Option<String>,
    /// The parts of the caller's own body that could not be kept as they came, by their place in this body.
    unreadable: UnreadableParts,
}

impl ApiRequest {
    /// A request of these path segments, not encoded.
    fn new(method: Method, segments: &[&str]) -> Self {
        let encoded = |segment: &&str| byte_serialize(segment.as_bytes()).collect::<String>();
        let path: Vec<String> = segments.iter().map(encoded).collect();
        let target = format!("/{}", path.join("/"));
        Self { method, target, body: None, key: None, unreadable: UnreadableParts::default() }
    }

    pub(crate) fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    pub(crate) fn post(segments: &[&str], body: impl Serialize) -> Self {
        Self::new(Method::POST, segments).saying(body)
    }

    pub(crate) fn delete(segments: &[&str]) -> Self {
        Self::new(Method::DELETE, segments)
    }

    pub(crate) fn put(segments: &[&str], body: impl Serialize) -> Self {
        Self::new(Method::PUT, segments).saying(body)
    }

    pub(crate) fn patch(segments: &[&str], body: impl Serialize) -> Self {
        Self::new(Method::PATCH, segments).saying(body)
    }

    /// A POST without a body.
    pub(crate) fn post_bare(segments: &[&str]) -> Self {
        Self::new(Method::POST, segments)
    }

    /// The request with this body.
    pub(crate) fn saying(self, body: impl Serialize) -> Self {
        Self { body: Some(serde_json::to_vec(&body).unwrap_or_default()), ..self }
    }

    /// Says what of the caller's own body could not be kept as it came.
    pub(crate) fn without(self, unreadable: UnreadableParts) -> Self {
        Self { unreadable, ..self }
    }

    /// Sets the idempotency key: 1 to 255 visible ASCII characters.
    pub(crate) fn under(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// Adds parameters to the query.
    pub(crate) fn with(mut self, pairs: &[(&str, &str)]) -> Self {
        if !pairs.is_empty() {
            let mark = if self.target.contains('?') { '&' } else { '?' };
            let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
            self.target = format!("{}{mark}{query}", self.target);
        }
        self
    }

    /// Adds those parameters to the query that have a value.
    pub(super) fn with_some(self, pairs: &[(&str, Option<&str>)]) -> Self {
        let pairs: Vec<_> =
            pairs.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        self.with(&pairs)
    }
}

/// The API's refusal of a request.
#[derive(Debug, Clone)]
pub(crate) struct ApiRefusal {
    pub(crate) status: StatusCode,
    /// The document, as the API wrote it.
    pub(crate) problem: Box<ProblemDetails>,
    /// Seconds after which to try again.
    pub(crate) retry_after: Option<u64>,
}

impl ApiRefusal {
    /// An answer that is not as the API describes it.
    fn unreadable() -> Self {
        let problem = Problem::new(Code::Internal, "the answer cannot be read");
        let status = problem.status;
        Self { status, problem: Box::new(details(&problem, "", "")), retry_after: None }
    }

    pub(crate) fn code(&self) -> Option<Code> {
        Code::parse(&self.problem.code)
    }

    /// Its document, for clients.
    pub(crate) fn document(&self) -> Value {
        serde_json::to_value(&self.problem).unwrap_or_default()
    }
}

/// In whose name a door calls, and under which trace: the headers of the caller's request that the API reads.
#[derive(Debug, Clone)]
pub(crate) struct CallerHeaders {
    headers: HeaderMap,
    arrival: Arrival,
    /// In whose name the broker itself calls.
    named: Option<Named>,
}

impl CallerHeaders {
    /// Takes what counts of a request. `trace` is `traceparent` and `tracestate` where the protocol itself carries them:
    /// they go before the headers.
    pub(crate) fn of(parts: &Parts, trace: Option<(&str, Option<&str>)>) -> Self {
        const TRACE: [&str; 2] = ["traceparent", "tracestate"];
        let mut headers = HeaderMap::new();
        let mut keep = |name: HeaderName| {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        };
        keep(header::AUTHORIZATION);
        keep(HeaderName::from_static("x-api-key"));
        keep(HeaderName::from_static(REQUEST_ID));
        match trace {
            None => TRACE.map(|name| keep(HeaderName::from_static(name))),
            Some((parent, state)) => {
                [(TRACE[0], Some(parent)), (TRACE[1], state)].map(|(name, value)| {
                    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                        headers.insert(HeaderName::from_static(name), value);
                    }
                })
            }
        };
        let arrival = parts.extensions.get::<Arrival>().copied().unwrap_or_else(Arrival::now);
        let named = parts.extensions.get::<Named>().cloned();
        Self { headers, arrival, named }
    }

    /// A call of the broker itself in a caller's name.
    pub(crate) fn in_name(principal: Principal) -> Self {
        let named = Some(Named(principal));
        Self { headers: HeaderMap::new(), arrival: Arrival::now(), named }
    }

    /// The trace context, as headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

impl FrontDoor {
    pub(crate) fn new(api: Api, door: &'static str) -> Self {
        Self { router: router::router(api), door: Door(door) }
    }

    /// Calls the API. A request that cannot be built names nothing: it is answered as one for an unknown path. `after`: the
    /// event behind which a stream begins.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn call(
        &self,
        caller: &CallerHeaders,
        asked: ApiRequest,
        after: Option<&str>,
    ) -> Result<Response, ApiRefusal> {
        let mut request = self.request(caller, asked);
        if let Some(after) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            request.headers_mut().insert(HeaderName::from_static("last-event-id"), after);
        }
        let answered = self.router.clone().call(request).await;
        let Ok(response) = answered;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    /// Calls the API. Returns what the document of its answer says.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        caller: &CallerHeaders,
        asked: ApiRequest,
    ) -> Result<T, ApiRefusal> {
        read(self.call(caller, asked, None).await?).await
    }

    /// Calls the API. Returns the text of its answer.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn text(
        &self,
        caller: &CallerHeaders,
        asked: ApiRequest,
    ) -> Result<String, ApiRefusal> {
        let answer = self.call(caller, asked, None).await?;
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Calls the API. Returns status and body as they come.
    pub(crate) async fn fetch(
        &self,
        caller: &CallerHeaders,
        asked: ApiRequest,
    ) -> (StatusCode, Bytes) {
        let answered = self.router.clone().call(self.request(caller, asked)).await;
        let Ok(response) = answered;
        let (parts, body) = response.into_parts();
        (parts.status, to_bytes(body, usize::MAX).await.unwrap_or_default())
    }

    fn request(&self, caller: &CallerHeaders, asked: ApiRequest) -> Request<Body> {
        let length = asked.body.as_ref().map(Vec::len);
        let body = asked.body.map_or_else(Body::empty, Body::from);
        let mut request = Request::new(body);
        *request.method_mut() = asked.method;
        *request.uri_mut() = asked.target.parse().unwrap_or_default();
        *request.headers_mut() = caller.headers.clone();
        if let Some(length) = length {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        if let Some(key) = asked.key.and_then(|key| HeaderValue::from_str(&key).ok()) {
            request.headers_mut().insert(HeaderName::from_static("idempotency-key"), key);
        }
        request.extensions_mut().insert(caller.arrival);
        request.extensions_mut().insert(self.door);
        if !asked.unreadable.is_empty() {
            request.extensions_mut().insert(asked.unreadable);
        }
        if let Some(named) = &caller.named {
            request.extensions_mut().insert(named.clone());
        }
        request
    }
}

/// Reads an answer's document.
pub(super) async fn read<T: DeserializeOwned>(answer: Response) -> Result<T, ApiRefusal> {
    let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap_or_default();
    serde_json::from_slice(&bytes).map_err(|_| ApiRefusal::unreadable())
}

async fn refusal(answer: Response) -> ApiRefusal {
    let status = answer.status();
    let retry_after = answer.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    match read(answer).await {
        Ok(problem) => ApiRefusal { status, problem, retry_after },
        Err(unreadable) => ApiRefusal { status, retry_after, ..unreadable },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_and_a_parameter_cannot_become_more_than_one() {
        let asked =
            ApiRequest::get(&["handoffs", "../keys?x=1#y"]).with(&[("wait", "5&until=ended")]);
        assert_eq!(asked.target, "/handoffs/..%2Fkeys%3Fx%3D1%23y?wait=5%26until%3Dended");
        assert_eq!(
            ApiRequest::get(&["tasks"]).with(&[]).with(&[("a", "1")]).with(&[("b", "2")]).target,
            "/tasks?a=1&b=2"
        );
    }
}
