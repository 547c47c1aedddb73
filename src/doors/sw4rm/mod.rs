//! SW4RM's handoffs at `/adapters/sw4rm` (specification §11.3, seed 001, docs/doors/sw4rm.md).
//!
//! A `HandoffRequest` is a message, a `HandoffResponse` a handoff's page. Whatever has to last is in the broker's log, so any
//! broker answers any request.

mod operations;
mod request;
mod response;

use std::sync::Arc;

use crate::http::routing::{get, post};
use axum::Router;
use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::client::ApiClient;
use super::front::{CallerHeaders, FrontDoor};
use super::names::Names;
use super::submission::Refusal;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::problem::Problem;
use handoffd_broker::directory::Principal;

/// The door's name in metrics, traces and `extensions`.
const DOOR: &str = handoffd_gate::sw4rm::NAME;

/// The door, as its routes share it.
#[derive(Clone)]
struct Sw4rm {
    front: FrontDoor,
    names: Arc<Names>,
}

/// A call under way: in whose name, and by which trace.
struct Call {
    api: Api,
    client: ApiClient,
    principal: Principal,
}

impl Call {
    /// Lets a request in: its host, its origin, its key.
    async fn enter(api: &Api, door: &Sw4rm, parts: &Parts) -> Result<Self, Refusal> {
        door.names.check(parts)?;
        let mut parts = parts.clone();
        let Caller(principal) = Caller::from_request_parts(&mut parts, api).await?;
        Ok(Self {
            api: api.clone(),
            client: ApiClient::new(&door.front, CallerHeaders::of(&parts, None)),
            principal,
        })
    }
}

/// The routes of the door.
pub(super) fn routes(api: &Api) -> Router<Api> {
    let front = FrontDoor::new(api.clone(), DOOR);
    let names = Arc::new(Names::of(&api.config.server));
    Router::new()
        .route("/adapters/sw4rm/handoffs", post(operations::request_handoff))
        .route("/adapters/sw4rm/handoffs/{handoffId}", get(operations::get_handoff))
        .route("/adapters/sw4rm/handoffs/{handoffId}/accept", post(operations::accept))
        .route("/adapters/sw4rm/handoffs/{handoffId}/reject", post(operations::reject))
        .route("/adapters/sw4rm/handoffs/{handoffId}/complete", post(operations::complete))
        .route("/adapters/sw4rm/agents/{agentId}/pending", get(operations::pending))
        .layer(Extension(Sw4rm { front, names }))
}

/// Counts a call and its time; a refusal has the form that it has at the front door, with the places of this door's documents.
async fn observed(
    api: &Api,
    operation: &'static str,
    work: impl Future<Output = Result<Response, Refusal>>,
) -> Response {
    let began = Instant::now();
    let answered = work.await;
    let outcome = match &answered {
        Ok(_) => "ok",
        Err(refusal) if refusal.is_failure() => "failed",
        Err(_) => "refused",
    };
    api.metrics.door_calls.with_label_values(&[DOOR, operation, outcome]).inc();
    let seconds = &api.metrics.door_seconds;
    seconds.with_label_values(&[DOOR, operation]).observe(began.elapsed().as_secs_f64());
    answered.unwrap_or_else(|refusal| problem_of(refusal).into_response())
}

/// The refusal as a problem of the request that came in: the outermost layer names that request in it.
fn problem_of(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Door(problem) => *problem,
        Refusal::Api(refusal) => {
            let problem = Problem::of_details(refusal.status, *refusal.problem);
            Problem { retry_after: refusal.retry_after, ..problem }
        }
    }
}
