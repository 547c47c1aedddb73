//! Doors: protocols other than the HTTP API by which handoffs come in (specification §11).
//!
//! A door maps each request of its protocol to requests of the API, and the answers back. It makes them of the API's own
//! router, in this process and with the caller's key (`client`): authorisation, gate, commit and refusal are those of the
//! front door. The door puts a protocol's field that the canonical message lacks into `extensions.<door>`, and the same door
//! gives it to the receiver.

mod a2a;
mod client;
pub(crate) mod front;
mod jazz;
pub mod mcp;
mod message;
mod names;
pub mod queues;
mod state;
mod submission;
mod sw4rm;

use std::sync::Arc;

use axum::Router;
use rmcp::ServerHandler;

pub use self::a2a::out::Follow;
use crate::http::{Api, router};
use handoffd_broker::issuer::Issuer;

/// The facts that doors know beyond the API.
#[derive(Clone)]
pub struct Outside {
    /// Knows callers at the MCP door by their tokens; `None` where no issuer is set.
    pub issuer: Option<Arc<Issuer>>,
    /// Follows tasks at remote A2A agents.
    pub follow: Follow,
}

/// The router of the API, with each door that the settings open and these routes beside them.
pub fn router(api: &Api, outside: &Outside, beside: Router<Api>) -> Router {
    router_of(api, outside, beside, mcp::routes)
}

/// The same router, with this handler behind the MCP door: tests put the conformance suite's fixtures there.
#[doc(hidden)]
pub fn router_with_mcp<H: ServerHandler + Clone>(
    api: &Api,
    outside: &Outside,
    handler: H,
) -> Router {
    router_of(api, outside, Router::new(), |api, issuer| mcp::routes_to(api, issuer, handler))
}

fn router_of(
    api: &Api,
    outside: &Outside,
    beside: Router<Api>,
    mcp: impl FnOnce(&Api, Option<&Arc<Issuer>>) -> Router<Api>,
) -> Router {
    let mut doors = a2a::out::routes(&outside.follow).merge(beside);
    if api.config.doors.mcp.enabled {
        doors = doors.merge(mcp(api, outside.issuer.as_ref()));
    }
    if api.config.doors.a2a.enabled {
        doors = doors.merge(a2a::routes(api));
    }
    if api.config.doors.sw4rm.enabled {
        doors = doors.merge(sw4rm::routes(api));
    }
    if api.config.doors.jazz.enabled {
        doors = doors.merge(jazz::routes(api));
    }
    router::with_doors(api.clone(), doors)
}
