//! The layer around every request: a slot or a clear refusal, an id, a span, counts, and errors written out.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument;

use super::extract::trace_context;
use super::fair::{Place, Pool};
use super::problem::{Problem, render};
use super::unread::{self, Unread};
use super::{Api, auth, authority, coding};
use handoffd_broker::telemetry;
use handoffd_domain::failure::Code;
use handoffd_store::clock;

/// Paths that are answered under any load.
const ALWAYS: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Names a request in answers, logs and problems.
pub const REQUEST_ID: &str = "x-request-id";

/// The beginnings of the doors' routes. Their requests take no slot: each request that a door makes to the API
/// takes one.
const DOORS: [&str; 5] = ["/mcp", "/a2a/", "/.well-known/", "/adapters/", "/console"];

/// The door by which a request to the API came; a request without one came by HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door(pub &'static str);

/// Marks an answer that is written out already: its door has a form of error of its own.
#[derive(Debug, Clone, Copy)]
pub struct Written;

/// Why a request is not served, whatever it asks for: the listener found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its connection is one of those that are kept for health routes.
    Connections,
    /// Its connection has too many answers that the client does not read.
    Unread,
    /// Its host cannot be told.
    Host(authority::Fault),
    /// A header that HTTP allows once is there several times.
    Repeated(&'static str),
}

/// Headers of which a request has one. Of several, a proxy may judge the first and the broker go by the last.
const SINGLE: [&str; 6] =
    ["authorization", "x-api-key", "content-type", "origin", "last-event-id", "handoff-id"];

/// The first of `SINGLE` that these headers have more than once.
pub fn repeated(headers: &HeaderMap) -> Option<&'static str> {
    SINGLE.into_iter().find(|name| headers.get_all(*name).iter().nth(1).is_some())
}

impl Refused {
    /// The refusal of a request for this path.
    fn problem(self, path: &str) -> Option<Problem> {
        match self {
            Self::Connections if ALWAYS.contains(&path) => None,
            Self::Connections => {
                let why = "too many connections are open (server.max_connections); try again";
                Some(Problem::new(Code::Overloaded, why))
            }
            Self::Unread => {
                let why = "the answers that wait on this connection are too many; read them first";
                Some(Problem::new(Code::Overloaded, why))
            }
            Self::Host(fault) => Some(Problem::new(Code::InvalidRequest, fault.as_str())),
            Self::Repeated(name) => {
                let why = format!("one {name} header a request: this one has several");
                Some(Problem::new(Code::InvalidRequest, why))
            }
        }
    }
}

/// The outermost layer.
pub async fn surround(State(api): State<Api>, request: Request, next: Next) -> Response {
    let began = tokio::time::Instant::now();
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let version = request.version();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |matched| matched.as_str().to_owned());
    let request_id = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| is_request_id(text))
        .map_or_else(|| clock::random_id().to_string(), str::to_owned);
    let span = tracing::info_span!(
        "http.request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
        request_id,
        trace_id = tracing::field::Empty,
        handoff.door = request.extensions().get::<Door>().map(|door| door.0),
    );
    match trace_context(request.headers()) {
        Some(context) => telemetry::under(&span, &context),
        None => telemetry::root(&span),
    }

    let coding = coding::wanted(request.headers());
    let refused = request.extensions().get::<Refused>().copied();
    let (mut request, unread) = Unread::lend(request);
    // A door makes its requests to the API under the same id.
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }

    let pool = pool_for(&api, &request, &path, &route);
    // `/livez` asks for nothing that could be slow.
    let health = (ALWAYS.contains(&path.as_str()) && path != "/livez")
        .then(|| api.health_slots.try_acquire());
    let full = || {
        matches!(health, Some(Err(_)))
            .then(|| Problem::new(Code::Overloaded, "too many requests are under way; try again"))
    };
    let place = match refused.and_then(|refused| refused.problem(&path)).or_else(full) {
        Some(problem) => Err(problem),
        None => admit(&api, pool, &mut request).instrument(span.clone()).await,
    };
    let response = if let Err(refused) = &place {
        refused.clone().into_response()
    } else {
        // A panic in a handler ends in an answer and not in a cut connection.
        let handling = AssertUnwindSafe(next.run(request).instrument(span.clone()));
        handling.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(parent: &span, "a handler panicked");
            Problem::new(
                Code::Internal,
                "the broker failed; the request id tells the operator more",
            )
            .into_response()
        })
    };
    let mut response = coding::coded(finish(response, &path, &request_id), coding).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    let elapsed = began.elapsed();
    api.metrics
        .http_requests
        .with_label_values(&[method_label(&method), &route, status.as_str()])
        .inc();
    api.metrics.http_seconds.with_label_values(&[&route]).observe(elapsed.as_secs_f64());
    // The route and not the path, which may name a person.
    span.in_scope(|| {
        let elapsed_ms = elapsed.as_secs_f64() * 1_000.0;
        if status.is_server_error() {
            tracing::warn!(%method, route, status = status.as_u16(), elapsed_ms, "answered");
        } else {
            tracing::debug!(%method, route, status = status.as_u16(), elapsed_ms, "answered");
        }
    });
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if refused == Some(Refused::Connections) && version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(unread) = unread {
        let server = &api.config.server;
        let time = Duration::from_millis(server.drain_ms);
        let bounds = unread::Bounds { bytes: server.drain_bytes, time };
        unread.drain(&mut response, bounds, api.stopping.clone());
    }
    response
}

/// The pool in which a request takes its place; `None` for those of health and of doors.
fn pool_for<'a>(api: &'a Api, request: &Request, path: &str, route: &str) -> Option<&'a Arc<Pool>> {
    // A request that waits takes no slot from those at work.
    let query = request.uri().query().unwrap_or_default();
    let waits = path.ends_with("/inbox")
        || path.ends_with("/events")
        || query.split('&').any(|pair| pair.starts_with("wait="))
        || request.headers().contains_key("prefer");
    let exempt = ALWAYS.contains(&path) || DOORS.iter().any(|door| route.starts_with(door));
    match (exempt, waits) {
        (true, _) => None,
        (false, true) => Some(&api.pools.waits),
        (false, false) => Some(&api.pools.requests),
    }
}

/// Finds out whose request this is, and takes a place for it. The pool's own bound comes first: what cannot be served is
/// not looked up.
async fn admit(
    api: &Api,
    pool: Option<&Arc<Pool>>,
    request: &mut Request,
) -> Result<Option<Place>, Problem> {
    let place = pool.map(|pool| pool.enter(1)).transpose()?;
    // The bodies that a door reads count too.
    let reads = !matches!(*request.method(), Method::GET | Method::HEAD);
    let known = if pool.is_some() || reads { auth::identify(request, api).await } else { None };
    let Some(mut place) = place else { return Ok(None) };
    place.claim(api.pools.holder(known.as_ref()))?;
    Ok(Some(place))
}

fn is_request_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
}

/// A method as a label from a bounded set.
const fn method_label(method: &axum::http::Method) -> &'static str {
    match *method {
        axum::http::Method::GET => "GET",
        axum::http::Method::POST => "POST",
        axum::http::Method::PUT => "PUT",
        axum::http::Method::PATCH => "PATCH",
        axum::http::Method::DELETE => "DELETE",
        axum::http::Method::HEAD => "HEAD",
        _ => "other",
    }
}

/// Problems are written out here, where the request is known; so is what axum itself refuses.
fn finish(response: Response, path: &str, request_id: &str) -> Response {
    if response.extensions().get::<Written>().is_some() {
        return response;
    }
    if let Some(problem) = response.extensions().get::<Arc<Problem>>() {
        return render(problem, path, request_id);
    }
    let problem = match response.status() {
        StatusCode::NOT_FOUND => Problem::new(Code::NotFound, "there is nothing at this path"),
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(Code::MethodNotAllowed, "this path does not take this method")
        }
        status if status.is_client_error() => Problem {
            status,
            ..Problem::new(Code::InvalidRequest, "the request cannot be understood")
        },
        _ => return response,
    };
    let mut rendered = render(&problem, path, request_id);
    if let Some(allow) = response.headers().get(header::ALLOW) {
        rendered.headers_mut().insert(header::ALLOW, allow.clone());
    }
    rendered
}
