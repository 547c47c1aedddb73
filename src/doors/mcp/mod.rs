//! The Model Context Protocol at `/mcp`: Streamable HTTP without sessions (specification §11.1, docs/doors/mcp.md).
//!
//! `rmcp` reads and writes the protocol, 2026-07-28 and the versions before it; this room has the tools. Whatever has to last is in
//! the broker's log, so any broker answers any request.

mod answer;
mod call;
mod envelope;
mod hand_off;
mod oauth;
mod operations;
mod receive;
mod server;
mod task;
mod tools;
mod wait;

use std::any::Any;
use std::sync::Arc;

use crate::http::routing::{any, get};
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use self::server::McpServer;
use super::front::FrontDoor;
use super::names::Names;
use crate::http::extract::{JsonBytes, heavy, parse};
use crate::http::layer::Written;
use crate::http::problem::Problem;
use crate::http::{Api, authority};
use handoffd_broker::issuer::Issuer;
use handoffd_domain::failure::Code;
use handoffd_gate::schema::DocumentSchema;

/// The door's name in metrics, traces and `extensions`.
const DOOR: &str = "mcp";
const PATH: &str = "/mcp";
/// The media types of the protocol's answers.
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// An answer of the door's own outside the protocol: most bytes of its text.
const MAX_TEXT: usize = 4096;

type McpService<H> = StreamableHttpService<H, NeverSessionManager>;

/// Keeps a large body's share of the budget for as long as its request is at work.
#[derive(Clone)]
struct BodyShare(
    #[expect(dead_code, reason = "held, not read")] Option<Arc<dyn Any + Send + Sync>>,
);

/// The schema of `hand_off`'s arguments, to which other doors map theirs.
pub(super) fn hand_off_schema() -> Option<&'static DocumentSchema> {
    tools::find("hand_off").map(|known| &known.schema)
}

/// The door, whose handler answers with the broker's tools.
pub(super) fn routes(api: &Api, issuer: Option<&Arc<Issuer>>) -> Router<Api> {
    routes_to(api, issuer, McpServer::new(api.clone(), FrontDoor::new(api.clone(), DOOR)))
}

/// The door with a given handler of the protocol's requests. Authentication, checks, body reading and answers do not depend on it.
pub(super) fn routes_to<H: ServerHandler + Clone>(
    api: &Api,
    issuer: Option<&Arc<Issuer>>,
    handler: H,
) -> Router<Api> {
    let service = service(api, handler);
    let mut routes = Router::new().route(PATH, any(handle::<H>)).layer(Extension(service));
    if issuer.is_some() {
        for path in oauth::METADATA {
            routes = routes.route(path, get(oauth::metadata));
        }
    }
    routes.layer(Extension(issuer.cloned()))
}

fn service<H: ServerHandler + Clone>(api: &Api, handler: H) -> McpService<H> {
    let settings = &api.config.server;
    let Names { hosts, origins } = Names::of(settings);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(settings.max_body_bytes)
        .with_allowed_hosts(hosts)
        .with_allowed_origins(origins)
        .enforce_origin_validation();
    StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    )
}

async fn handle<H: ServerHandler>(
    State(api): State<Api>,
    Extension(service): Extension<McpService<H>>,
    Extension(issuer): Extension<Option<Arc<Issuer>>>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    // The protocol's library reads `Host` alone, which HTTP/2 need not have.
    let host = authority::of_parts(&parts)
        .map_err(|fault| Problem::new(Code::InvalidRequest, fault.as_str()))?;
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        parts.headers.insert(header::HOST, host);
    }
    let principal = oauth::caller(&mut parts, &api, issuer.as_deref()).await?;
    parts.extensions.insert(principal);
    let mut share = BodyShare(None);
    let body = if parts.method == Method::POST {
        let whole = Request::from_parts(parts.clone(), body);
        let read = JsonBytes::from_request(whole, &api).await?;
        // The API reads no document with two members of one name; the protocol's parser would take the last.
        let (message, unreadable) = match parse(read.bytes.clone()).await {
            Ok(message) => (message, None),
            // Status first: what beside a clear verdict cannot be kept does not undo it.
            Err(problem) => {
                let whole = read.bytes.clone();
                let clear = heavy(whole.len(), move || envelope::clear_verdict(&whole)).await?;
                let (message, unreadable) = clear.ok_or(problem)?;
                (message, Some(unreadable))
            }
        };
        if let Some(refused) = envelope::refused(&message) {
            return answered(refused).await;
        }
        let read = read.into_body();
        share = BodyShare(read.guard);
        let bytes = match unreadable {
            None => read.bytes,
            Some(unreadable) => {
                parts.extensions.insert(unreadable);
                message.to_string().into()
            }
        };
        decoded(&mut parts.headers, bytes.len());
        name_accepted(&mut parts.headers);
        Body::from(bytes)
    } else {
        body
    };
    parts.extensions.insert(share);
    let response = service.handle(Request::from_parts(parts, body)).await;
    answered(response.map(Body::new)).await
}

/// The headers of a body that was read and decoded.
fn decoded(headers: &mut HeaderMap, length: usize) {
    headers.remove(header::CONTENT_ENCODING);
    headers.remove(header::TRANSFER_ENCODING);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
}

/// Writes out what `Accept` takes by a range, or by its absence (RFC 9110 §12.5.1): the protocol's library looks for the two names.
fn name_accepted(headers: &mut HeaderMap) {
    let values = headers.get_all(header::ACCEPT);
    let ranges = values.iter().filter_map(|value| value.to_str().ok());
    let mut taken: Vec<&str> = Vec::new();
    let mut is_any = false;
    for range in ranges.flat_map(|ranges| ranges.split(',')) {
        is_any = true;
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()) == Some(0.0)
        });
        if is_refused {
            continue;
        }
        taken.extend(match essence.as_str() {
            "*/*" => &[JSON, EVENTS][..],
            "application/*" | JSON => &[JSON],
            "text/*" | EVENTS => &[EVENTS],
            _ => &[],
        });
    }
    let all = if is_any { taken.join(", ") } else { [JSON, EVENTS].join(", ") };
    if let Ok(value) = HeaderValue::try_from(all) {
        headers.insert(header::ACCEPT, value);
    }
}

/// Messages of the protocol go out as they are; what the protocol's library refuses in plain text becomes a problem.
async fn answered(mut response: Response) -> Result<Response, Problem> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let message = kind.is_some_and(|kind| {
        kind.starts_with("application/json") || kind.starts_with("text/event-stream")
    });
    if message || response.status().is_success() {
        response.extensions_mut().insert(Written);
        return Ok(response);
    }
    let status = response.status();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(response);
    }
    let (_, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_TEXT).await.unwrap_or_default();
    let code = match status {
        StatusCode::FORBIDDEN => Code::Forbidden,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        StatusCode::PAYLOAD_TOO_LARGE => Code::PayloadTooLarge,
        status if status.is_server_error() => Code::Internal,
        _ => Code::InvalidRequest,
    };
    let mut detail = String::from_utf8_lossy(&text).into_owned();
    if status == StatusCode::FORBIDDEN {
        detail.push_str("; server.public_url names the address by which clients reach the broker");
    }
    Err(Problem { status, ..Problem::new(code, detail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_by_a_range_is_accepted() {
        let named = |accept: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            name_accepted(&mut headers);
            headers[header::ACCEPT].to_str().unwrap().to_owned()
        };
        let both = "application/json, text/event-stream";
        for accept in [
            &[][..],
            &["*/*"],
            &["application/*, text/*;q=0.5"],
            &["application/json", "text/event-stream"],
            &["Application/JSON;q=0.9, text/event-stream"],
        ] {
            assert_eq!(named(accept), both, "{accept:?}");
        }
        assert_eq!(named(&["application/json"]), "application/json");
        assert_eq!(named(&["text/html, */*;q=0"]), "");
    }
}
