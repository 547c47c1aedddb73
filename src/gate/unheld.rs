//! Fields of a message that the broker takes and does not act on: each is named in `warnings`.

use serde_json::Value;

use crate::domain::credential::{Sighting, Treatment};
use crate::domain::failure::{Code, Failure, Stage};
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

/// The warning about a credential that passes, as it stands or replaced. Never the value.
#[must_use]
pub fn credential(found: &Sighting, treatment: Treatment) -> Warning {
    let told = match treatment {
        Treatment::Redact => format!("held what looks like {}: the broker replaced it", found.name),
        _ => format!(
            "holds what looks like {}: the broker stores and delivers it as it stands",
            found.name
        ),
    };
    Warning::new(WarningCode::CredentialFound, found.pointer.clone(), told)
}

/// The failure for a credential that is refused. Never the value.
#[must_use]
pub fn refused_credential(found: &Sighting) -> Failure {
    Failure::new(
        Stage::Safety,
        Code::CredentialFound,
        found.pointer.clone(),
        format!("holds what looks like {}: send a reference to it instead", found.name),
    )
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
