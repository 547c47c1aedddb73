//! Query parameters: an operation takes those that the OpenAPI document names, and no others.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::problem::Problem;
use super::router::ALIAS;

/// The query parameters of each operation, by routed path and method.
pub type OperationParameters = Arc<HashMap<(String, Method), Vec<String>>>;

/// Collects the query parameters of each operation.
#[must_use]
pub fn parameters(document: &OpenApi) -> OperationParameters {
    let mut known = HashMap::new();
    for (path, item) in &document.paths.paths {
        for (method, operation) in [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::DELETE, &item.delete),
            (Method::PATCH, &item.patch),
        ] {
            if let Some(operation) = operation {
                known.insert((path.clone(), method), names(operation));
            }
        }
    }
    Arc::new(known)
}

fn names(operation: &Operation) -> Vec<String> {
    let all = operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
        RefOr::T(parameter) => Some(parameter),
        RefOr::Ref(_) => None,
    });
    let queried = all.filter(|parameter| matches!(parameter.parameter_in, ParameterIn::Query));
    queried.map(|parameter| parameter.name.clone()).collect()
}

/// Refuses a request with a parameter that its operation does not take. Pages of the
/// documentation are no operations and pass.
pub async fn check(
    State(known): State<OperationParameters>,
    request: Request,
    next: Next,
) -> Response {
    match unknown(&known, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn unknown(known: &OperationParameters, request: &Request) -> Option<Problem> {
    let query = request.uri().query().filter(|query| !query.is_empty())?;
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    let path = path.strip_prefix(ALIAS).unwrap_or(path);
    let method = match request.method() {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    let taken = known.get(&(path.to_owned(), method))?;
    let mut names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    let name = names.find(|name| !taken.iter().any(|one| one == name))?;
    let name: String = name.chars().take(64).collect();
    Some(Problem::invalid(if taken.is_empty() {
        format!("unknown query parameter `{name}`; this operation takes none")
    } else {
        format!("unknown query parameter `{name}`; this operation takes {}", taken.join(", "))
    }))
}
