//! Examples of request bodies for the OpenAPI document, by operation. A test posts each to a broker.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static EXAMPLES: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// The examples of an operation's body, as a media type has them.
pub(super) fn of(operation: &str) -> Option<Value> {
    EXAMPLES.get(operation).cloned()
}
