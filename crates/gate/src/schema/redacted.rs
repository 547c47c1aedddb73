//! The remains of a message after redaction, held against the schemas.

use serde_json::json;

use super::*;
use handoffd_domain::members::{BROKER_MEMBERS, CONTENT_MEMBERS};
use handoffd_domain::redaction::RedactionPolicy;

fn applied(pattern: &str, mut message: Value) -> Value {
    RedactionPolicy::parse(&[pattern]).expect("a policy").redact_message(&mut message);
    message
}

/// A message with all that a schema knows of content.
fn full() -> Value {
    let mut message: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/messages/review.json"))
            .unwrap();
    let more = json!({
        "schemaVersion": "2.1",
        "taskSummary": "s", "reason": "r", "userId": "u", "toolState": { "a": "b" }, "provenance": { "a": 1 },
        "metadata": { "a": 1 }, "extensions": { "a": 1 }, "checkpoint": { "a": 1 }, "constraints": ["length: 3"],
    });
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

#[test]
fn f5_8_what_redaction_leaves_fits_the_schema() {
    let schemas = Schemas::new();
    assert_eq!(schemas.check(&full()).map(|_| ()), Ok(()));
    for member in CONTENT_MEMBERS {
        let mut patterns = vec![format!("/{member}")];
        let is_list = full()[member].is_array();
        if is_list {
            patterns.push(format!("/{member}/*"));
        }
        if is_list && member != "constraints" {
            patterns.push(format!("/{member}/*/*"));
        }
        for pattern in patterns {
            let done = applied(&pattern, full());
            assert_eq!(schemas.check(&done).map(|_| ()), Ok(()), "{pattern}: {}", done[member]);
            assert!(full().get(member).is_none_or(|was| done[member] != *was), "{pattern}");
        }
    }
    let message = full();
    let all = applied("/**/*", message);
    assert_eq!(schemas.check(&all).map(|_| ()), Ok(()), "{all}");
}

#[test]
fn f5_8_each_member_of_the_schemas_is_content_or_the_brokers() {
    for version in VERSIONS {
        let schema: Value = serde_json::from_str(document(version).unwrap()).unwrap();
        for name in schema["properties"].as_object().unwrap().keys() {
            let sides =
                [CONTENT_MEMBERS.contains(&name.as_str()), BROKER_MEMBERS.contains(&name.as_str())];
            assert_ne!(sides[0], sides[1], "{name}");
        }
    }
}
