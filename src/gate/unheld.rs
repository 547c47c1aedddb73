//! Fields of a message that the broker takes and does not act on: each is named in `warnings`.

use serde_json::Value;

use crate::domain::warning::{Warning, WarningCode};

/// The warnings about fields without effect. Empty for most messages.
#[must_use]
pub fn warnings(message: &Value) -> Vec<Warning> {
    let several = message
        .get("receiverList")
        .and_then(Value::as_array)
        .is_some_and(|receivers| !receivers.is_empty());
    several
        .then(|| {
            Warning::new(
                WarningCode::WithoutEffect,
                "/receiverList",
                "the broker delivers to toAgent alone; submit one handoff for each other receiver",
            )
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_receiver_list_is_named_and_its_absence_is_not() {
        let found = warnings(&json!({ "receiverList": ["b", "c"] }));
        assert_eq!(found[0].pointer, "/receiverList");
        assert!(warnings(&json!({ "receiverList": [] })).is_empty());
        assert!(warnings(&json!({})).is_empty());
    }
}
