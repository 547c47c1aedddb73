//! `/openapi.json`, `/docs` and the pages of the error codes: all from within the binary, without any
//! CDN.

use crate::http::routing::get;
use axum::Router;
use axum::response::{Redirect, Response};

use super::Api;
use super::coding::Constant;
use super::extract::Id;
use super::problem::Problem;

macro_rules! error_pages {
    ($($code:literal),* $(,)?) => {
        /// The page of an error code, in Markdown.
        fn error_page(code: &str) -> Option<&'static str> {
            match code {
                $( $code => Some(include_str!(concat!("../../docs/errors/", $code, ".md"))), )*
                _ => None,
            }
        }
    };
}

error_pages!(
    "UNAUTHENTICATED",
    "SIGNATURE_INVALID",
    "SCHEMA_INVALID",
    "FORBIDDEN",
    "SAFETY_VIOLATION",
    "BUDGET_EXHAUSTED",
    "BUDGET_MISMATCH",
    "LINEAGE_MISMATCH",
    "LOOP_DETECTED",
    "CONTEXT_TOO_LARGE",
    "CONTRACT_VIOLATION",
    "NO_CAPABLE_AGENT",
    "INCOMPLETE_CONTEXT",
    "CONFLICT",
    "STALE_LEASE",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "UNSUPPORTED_MEDIA_TYPE",
    "PAYLOAD_TOO_LARGE",
    "INVALID_REQUEST",
    "OVERLOADED",
    "UNAVAILABLE",
    "INTERNAL",
);

/// The path of the document.
const DOCUMENT: &str = "/openapi.json";

/// The OpenAPI document of this build: the file that a test holds to the handlers. The code that makes it is not
/// in the binary.
pub static OPENAPI: &str = include_str!("../../docs/openapi.json");

/// Pages for people, and the document.
pub fn routes() -> Router<Api> {
    let document = || async { Constant::of(OPENAPI).answer("application/json") };
    Router::new()
        .route(DOCUMENT, get(document))
        .route("/docs/errors/{code}", get(error))
        .merge(pages())
}

#[cfg(feature = "swagger-ui")]
fn pages() -> Router<Api> {
    use utoipa_swagger_ui::{Config, SwaggerUi};

    // Its badge would send the document's address to a service of other people.
    let config = Config::new([DOCUMENT]).validator_url("none");
    let ui: Router<Api> = SwaggerUi::new("/docs/api").config(config).into();
    Router::new().route("/docs", get(|| async { Redirect::temporary("/docs/api/") })).merge(ui)
}

#[cfg(not(feature = "swagger-ui"))]
fn pages() -> Router<Api> {
    Router::new().route("/docs", get(|| async { Redirect::temporary(DOCUMENT) }))
}

async fn error(Id(code): Id<String>) -> Result<Response, Problem> {
    let page = error_page(&code).ok_or_else(|| Problem::not_found("error code"))?;
    Ok(Constant::of(page).answer("text/markdown; charset=utf-8"))
}
