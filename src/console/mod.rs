//! The console: pages for people, over the API's own router (specification §14).
//!
//! A page asks the API in this process in its visitor's name, and draws the answer as a `sheet::Sheet`: the same struct is the
//! answer of `?format=json`. The pages change nothing by themselves; an action is one request to the API, in the table of
//! `acts`.

mod acts;
mod assets;
mod bulk;
mod desk;
mod diff;
mod form;
mod frame;
mod json;
mod live;
mod pages;
mod problem;
pub mod session;
mod sheet;
mod text;

use std::sync::Arc;

use crate::http::routing::{get, post};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use self::desk::{Desk, Refusal, Sent};
use self::frame::Theme;
use crate::doors::front::FrontDoor;
use crate::http::Api;
use crate::http::layer::Written;
use crate::http::problem::Problem;

/// No script, style or image but the console's own, no frame around it, and no form to another site.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'";

/// The routes below `/console`; none where `console.enabled` is off.
pub fn routes(api: &Api) -> Router<Api> {
    if !api.config.console.enabled {
        return Router::new();
    }
    let front = FrontDoor::new(api.clone(), "console");
    Router::new()
        .merge(session::routes())
        .merge(assets::routes())
        .merge(pages::routes())
        .route("/console/do/{act}", get(acts::ask).post(acts::carry_out))
        .route("/console/theme", post(theme))
        .route(session::LIVE, get(live::wait))
        .route("/console/{*rest}", get(unknown))
        .layer(axum::Extension(front))
        .layer(from_fn(protect))
}

/// Sets the headers of each answer of the console.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    // A problem is written out like the API's own: a client asked for JSON.
    if response.extensions().get::<Arc<Problem>>().is_none() {
        response.extensions_mut().insert(Written);
    }
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    // Other sites learn no address; the console's own forms keep their origin, by which they are checked.
    set(header::REFERRER_POLICY, "same-origin");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn unknown(desk: Desk) -> Response {
    desk.refused(&Refusal::unknown("The console has no page at this address."))
}

/// Keeps the visitor's choice of colours for a year.
async fn theme(sent: Sent) -> Response {
    let theme = Theme::named(sent.fields.get("theme")).as_str();
    let name = Theme::COOKIE;
    let cookie = format!("{name}={theme}; Path=/console; Max-Age=31536000; SameSite=Lax; HttpOnly");
    let mut response = Desk::back(sent.fields.get("back"));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
