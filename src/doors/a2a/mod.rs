//! A2A 1.0 at `/a2a/{agentId}`: the HTTP+JSON and JSON-RPC bindings (specification §11.2, docs/doors/a2a.md).
//!
//! A handoff is a task of the protocol, a broker's task its context. Whatever has to last is in the broker's log, so any broker
//! answers any request.

mod answer;
mod call;
mod card;
mod cards;
mod error;
mod events;
mod http_json;
mod message;
mod method;
mod operations;
pub(super) mod out;
mod push;
mod request;
mod rpc;
mod stream;
mod task;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::http::routing::{any, get, post};
use axum::Router;
use axum::extract::{Extension, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use self::call::{Call, check_version, extensions};
use self::error::{A2aError, ErrorKind, Refused};
use self::method::Method;
use super::client::ApiClient;
use super::front::{CallerHeaders, FrontDoor};
use super::names::Names;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::extract::{JsonBytes, parse};
use crate::http::problem::Problem;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_store::store::AgentRow;

/// The door's name in metrics, traces and `extensions`.
const DOOR: &str = "a2a";
/// The version of the protocol that is served.
const VERSION: &str = "1.0";
const VERSION_HEADER: &str = "a2a-version";
const EXTENSIONS_HEADER: &str = "a2a-extensions";
/// The broker's own extension of the protocol: fields of a handoff in `metadata`.
const EXTENSION: &str = "urn:handoffd:a2a:handoff:1";
/// Silence on a stream before a comment is sent, so that nothing on the way takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The door, as its routes share it.
#[derive(Clone)]
struct A2a {
    front: FrontDoor,
    names: Arc<Names>,
}

/// The time of a call, and its count.
struct CallTimer {
    api: Api,
    label: &'static str,
    began: Instant,
}

impl CallTimer {
    /// Counts the call; for a stream, its beginning. `outcome`: none for a success.
    fn observe(self, outcome: Option<&'static str>) {
        count(&self.api, self.label, outcome.unwrap_or("ok"));
        let seconds = &self.api.metrics.door_seconds;
        seconds.with_label_values(&[DOOR, self.label]).observe(self.began.elapsed().as_secs_f64());
    }
}

impl CallTimer {
    fn new(api: &Api, method: Method) -> Self {
        Self { api: api.clone(), label: method.label(), began: Instant::now() }
    }
}

fn count(api: &Api, operation: &str, outcome: &str) {
    api.metrics.door_calls.with_label_values(&[DOOR, operation, outcome]).inc();
}

/// The routes of the door.
pub(super) fn routes(api: &Api) -> Router<Api> {
    let front = FrontDoor::new(api.clone(), DOOR);
    let names = Arc::new(Names::of(&api.config.server));
    Router::new()
        .route("/a2a/{agentId}", post(rpc::handle))
        // Clients that join addresses may leave a slash at the end.
        .route("/a2a/{agentId}/", post(rpc::handle))
        .route("/a2a/{agentId}/.well-known/agent-card.json", get(cards::of_agent))
        .route("/a2a/{agentId}/{*path}", any(http_json::handle))
        .route("/.well-known/agent-card.json", get(cards::of_default))
        .route("/.well-known/jwks.json", get(cards::keys))
        .layer(Extension(A2a { front, names }))
}

/// An agent of a tenant.
async fn agent_row(api: &Api, tenant: &TenantId, id: &str) -> Result<AgentRow, Refused> {
    let agents = api.intake.directory.agents(tenant).await.map_err(Call::away)?;
    let id: Option<AgentId> = id.parse().ok();
    let row = id.and_then(|id| agents.row(&id).cloned());
    row.ok_or_else(|| Problem::not_found("agent").into())
}

/// Lets a request in: its host, its key, its version, and the agent that it is for, which has a card.
async fn enter(api: &Api, door: &A2a, agent: &str, parts: &Parts) -> Result<Call, Refused> {
    door.names.check(parts)?;
    let mut parts = parts.clone();
    let Caller(principal) = Caller::from_request_parts(&mut parts, api).await?;
    let row = agent_row(api, &principal.tenant, agent).await?;
    let Some(card) = row.agent.card.clone() else {
        return Err(Problem::not_found("agent").into());
    };
    check_version(&parts)?;
    let last = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    Ok(Call {
        api: api.clone(),
        client: ApiClient::new(&door.front, CallerHeaders::of(&parts, None)),
        base: cards::base(api, &parts),
        last_event: last.filter(|id| !id.is_empty()).map(str::to_owned),
        extensions: extensions(&parts),
        agents: api.intake.directory.agents(&principal.tenant).await.map_err(Call::away)?,
        agent: Arc::new(row),
        card,
        principal,
    })
}

/// Keeps a large body's share of the budget for as long as its request is at work.
struct BodyShare(
    #[expect(dead_code, reason = "held, not read")] Option<Arc<dyn Any + Send + Sync>>,
);

/// Reads a body: JSON within the size limit, without two members of one name.
async fn read_body(api: &Api, request: Request) -> Result<(Value, BodyShare), Refused> {
    let read = JsonBytes::from_request(request, api).await?;
    let value = parse(read.bytes.clone()).await.map_err(|problem| {
        let kind = match (problem.status, problem.code) {
            (StatusCode::BAD_REQUEST, Code::SchemaInvalid) => ErrorKind::Parse,
            // JSON, and no object that the broker reads.
            (_, Code::SchemaInvalid) => ErrorKind::InvalidRequest,
            _ => return problem.into(),
        };
        A2aError::new(kind, problem.detail)
    })?;
    Ok((value, BodyShare(read.into_body().guard)))
}
