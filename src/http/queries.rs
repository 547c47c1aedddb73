//! Query parameters: an operation takes those that the OpenAPI document names, and no others.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::agents::ALIAS;
use super::docs::OPENAPI;
use super::problem::Problem;

/// The query parameters of each operation, by the document's path and the method in lower case.
type OperationParameters = HashMap<String, HashMap<String, Vec<String>>>;

/// The members of the document that are read here; the parser passes over all others.
#[derive(Deserialize)]
struct Document {
    paths: HashMap<String, HashMap<String, Operation>>,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(default)]
    parameters: Vec<Parameter>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    #[serde(rename = "in")]
    place: String,
}

/// Read from the document by the first request that has a query.
fn parameters() -> &'static OperationParameters {
    static READ: OnceLock<OperationParameters> = OnceLock::new();
    READ.get_or_init(|| {
        let document: Document =
            serde_json::from_str(OPENAPI).expect("a test reads docs/openapi.json in the same way");
        let queried = |operation: Operation| {
            let all = operation.parameters.into_iter();
            all.filter(|one| one.place == "query").map(|one| one.name).collect()
        };
        let methods = |methods: HashMap<String, Operation>| {
            methods.into_iter().map(|(method, operation)| (method, queried(operation))).collect()
        };
        document.paths.into_iter().map(|(path, item)| (path, methods(item))).collect()
    })
}

/// Refuses a request with a parameter that its operation does not take, or with a NUL in a value. Pages of the
/// documentation are no operations and pass.
pub async fn check(request: Request, next: Next) -> Response {
    match wrong(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn wrong(request: &Request) -> Option<Problem> {
    let query = request.uri().query().filter(|query| !query.is_empty())?;
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    // The document has no mark for a parameter that spans segments.
    let path = path.strip_prefix(ALIAS).unwrap_or(path).replace("{*", "{");
    let method = match request.method() {
        &Method::HEAD => "get".to_owned(),
        other => other.as_str().to_ascii_lowercase(),
    };
    let taken = parameters().get(&path)?.get(&method)?;
    let given = url::form_urlencoded::parse(query.as_bytes());
    let Some((name, _)) = given.clone().find(|(name, _)| !taken.iter().any(|one| one == name))
    else {
        // No value has a NUL, and Postgres takes none in a text.
        let (name, _) = given.into_iter().find(|(_, value)| value.contains('\0'))?;
        return Some(Problem::invalid(format!("`{name}` has a NUL character, which no value has")));
    };
    let name: String = name.chars().take(64).collect();
    Some(Problem::invalid(if taken.is_empty() {
        format!("unknown query parameter `{name}`; this operation takes none")
    } else {
        format!("unknown query parameter `{name}`; this operation takes {}", taken.join(", "))
    }))
}
