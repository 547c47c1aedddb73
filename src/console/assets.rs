//! Stylesheet and module, in the binary, under addresses that change with their content.

use std::sync::LazyLock;

use crate::http::routing::get;
use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::http::Api;
use crate::http::coding::Constant;

static CSS: &[u8] = include_bytes!("assets/console.css");
static JS: &[u8] = include_bytes!("assets/console.js");

static CSS_AT: LazyLock<String> = LazyLock::new(|| address(CSS, "css"));
static JS_AT: LazyLock<String> = LazyLock::new(|| address(JS, "js"));

fn address(bytes: &[u8], ending: &str) -> String {
    let hash = hex::encode(Sha256::digest(bytes));
    format!("/console/assets/console-{}.{ending}", &hash[..16])
}

/// Address of the stylesheet.
pub(super) fn css() -> &'static str {
    &CSS_AT
}

/// Address of the module.
pub(super) fn js() -> &'static str {
    &JS_AT
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/console/assets/{name}", get(asset))
}

/// An asset by its name. One of an earlier build answers 404: the page that named it is as old.
async fn asset(Path(name): Path<String>) -> Response {
    let path = format!("/console/assets/{name}");
    let (bytes, kind) = match path {
        path if path == *CSS_AT => (CSS, "text/css; charset=utf-8"),
        path if path == *JS_AT => (JS, "text/javascript; charset=utf-8"),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut response = Constant::of(text).answer(kind);
    let forever = header::HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    response
}
