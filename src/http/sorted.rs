//! JSON answers whose members are in the order of their names.

use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::Problem;
use handoffd_domain::failure::Code;

/// A view as an answer. Its members are sorted by name at every level, so that an answer's bytes do not depend on the order
/// in which a type declares them.
#[derive(Debug)]
pub struct Sorted<T>(pub T);

impl<T: Serialize> IntoResponse for Sorted<T> {
    fn into_response(self) -> Response {
        match serde_json::to_value(&self.0) {
            Ok(value) => axum::Json(value).into_response(),
            Err(err) => {
                tracing::error!(error = %err, "an answer cannot be written as JSON");
                let why = "the broker failed; the request id tells the operator more";
                Problem::new(Code::Internal, why).into_response()
            }
        }
    }
}
