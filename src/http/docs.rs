//! `/openapi.json`, `/docs` and the pages of the error codes: all from within the binary, without any
//! CDN.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::Api;
use super::document::Published;
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

/// Pages for people; the document itself is served as `/openapi.json`.
pub fn routes(document: Published) -> Router<Api> {
    // Its badge would send the document's address to a service of other people.
    let config = Config::new(["/openapi.json"]).validator_url("none");
    let ui: Router<Api> = SwaggerUi::new("/docs/api")
        .external_url_unchecked("/openapi.json", document.into())
        .config(config)
        .into();
    Router::new()
        .route("/docs", get(|| async { Redirect::temporary("/docs/api/") }))
        .route("/docs/errors/{code}", get(error))
        .merge(ui)
}

async fn error(Id(code): Id<String>) -> Result<Response, Problem> {
    let page = error_page(&code).ok_or_else(|| Problem::not_found("error code"))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], page).into_response())
}
