//! The console: pages for people at `/console`.

pub mod session;

use axum::Router;

use crate::http::Api;

/// The routes of the console; none where `console.enabled` is off.
pub fn routes(api: &Api) -> Router<Api> {
    if api.config.console.enabled { session::routes() } else { Router::new() }
}
