//! Doors: protocols other than the HTTP API by which handoffs come in (specification §11).
//!
//! A door maps each request of its protocol to requests of the API, and the answers back. It makes them of the API's own
//! router, in this process and with the caller's key: authorisation, gate, commit and refusal are those of the front door. What
//! a protocol says that the canonical message has no field for stands in `extensions.<door>`, and the same door tells it
//! to the receiver again.

mod a2a;
mod front;
pub mod mcp;
mod message;
mod names;
mod submission;

use axum::Router;

use crate::http::{Api, router};

/// The router of the API, with each door that the settings open.
pub fn router(api: &Api) -> Router {
    let mut doors = Router::new();
    if api.config.doors.mcp.enabled {
        doors = doors.merge(mcp::routes(api));
    }
    if api.config.doors.a2a.enabled {
        doors = doors.merge(a2a::routes(api));
    }
    router::with_doors(api.clone(), doors)
}
