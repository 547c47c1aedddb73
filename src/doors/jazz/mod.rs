//! Jazz's agent handoff pattern at `/adapters/jazz` (seed 004, specification §11.4, docs/doors/jazz.md).
//!
//! A `HandoffRequest` is a handoff of the broker, and its `HandoffResult` what became of it. The router of the pattern is the
//! tenant's registered agents, within the caller's allowlist. Whatever has to last is in the broker's log, so any broker
//! answers any request.

mod agents;
mod answer;
mod call;
mod handoffs;
mod outcomes;
mod profile;
mod request;
mod result;
mod router;
mod specialist;
mod tool;
mod words;

use std::sync::Arc;

use crate::http::routing::{get, post, put};
use axum::Router;
use axum::extract::Extension;
use axum::response::Response;
use tokio::time::Instant;

use super::front::FrontDoor;
use super::names::Names;
use crate::http::Api;
use handoffd_domain::strategy::ROUTING_DOOR;

/// The door's name in metrics, traces and `extensions`.
const DOOR: &str = ROUTING_DOOR;
/// How long a call waits unless it says so, in seconds: many clients give up at 60.
const WAIT: u64 = 50;

/// The door, as its routes share it.
#[derive(Clone)]
struct Jazz {
    front: FrontDoor,
    names: Arc<Names>,
}

/// The routes of the door.
pub(super) fn routes(api: &Api) -> Router<Api> {
    let front = FrontDoor::new(api.clone(), DOOR);
    let names = Arc::new(Names::of(&api.config.server));
    Router::new()
        .route("/adapters/jazz/handoffs", post(handoffs::execute))
        .route("/adapters/jazz/handoffs/{id}", get(handoffs::read))
        .route("/adapters/jazz/handoffs/{id}/run", get(handoffs::run))
        .route("/adapters/jazz/conversations/{id}/handoffs", get(handoffs::history))
        .route("/adapters/jazz/tools", get(tool::list))
        .route("/adapters/jazz/tools/handoff_to_specialist", post(tool::call))
        .route("/adapters/jazz/publish", post(tool::publish))
        .route("/adapters/jazz/agents", put(agents::register).get(agents::list))
        .route("/adapters/jazz/agents/match", get(agents::find))
        .route("/adapters/jazz/agents/recommendations", get(outcomes::recommendations))
        .route("/adapters/jazz/agents/{id}/handoff-guidance", get(agents::guidance))
        .route("/adapters/jazz/agents/{id}/strategies", get(agents::shares).put(agents::set_shares))
        .layer(Extension(Jazz { front, names }))
}

/// Counts a call with its time, waits included.
async fn observed(
    api: &Api,
    operation: &'static str,
    answered: impl Future<Output = Response>,
) -> Response {
    let began = Instant::now();
    let response = answered.await;
    let outcome = match response.status() {
        status if status.is_server_error() => "failed",
        status if status.is_client_error() => "refused",
        _ => "ok",
    };
    api.metrics.door_calls.with_label_values(&[DOOR, operation, outcome]).inc();
    let seconds = &api.metrics.door_seconds;
    seconds.with_label_values(&[DOOR, operation]).observe(began.elapsed().as_secs_f64());
    response
}
