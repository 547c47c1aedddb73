//! The media types and headers of answers.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::error::A2aError;
use crate::http::layer::Written;

/// The protocol's media type.
pub(super) const A2A_JSON: &str = "application/a2a+json";

/// The media type of an answer: the protocol's own, unless the client names plain JSON and not that. Errors are the protocol's own
/// for clients that name it.
pub(super) fn media_type(headers: &HeaderMap, error: bool) -> &'static str {
    let names = |kind: &str| {
        [header::ACCEPT, header::CONTENT_TYPE].iter().any(|name| {
            headers.get_all(name).iter().any(|value| {
                value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains(kind))
            })
        })
    };
    if names(A2A_JSON) || (!error && !names("application/json")) {
        A2A_JSON
    } else {
        "application/json"
    }
}

/// An error as this binding tells it.
pub(super) fn refused(error: &A2aError, headers: &HeaderMap) -> Response {
    let mut response = (error.status, axum::Json(error.status_body())).into_response();
    let kind = HeaderValue::from_static(media_type(headers, true));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    finish(error, response)
}

/// The headers that go with an error in both bindings.
pub(super) fn finish(error: &A2aError, mut response: Response) -> Response {
    if error.status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(Written);
    response
}
