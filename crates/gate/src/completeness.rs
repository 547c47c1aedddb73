//! Completeness: does the receiver get what it needs to go on? (Seed 000 §6.1 and §7.2,
//! specification §2.2 stage 8.)

use serde_json::Value;

use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::json::push_segment;
use handoffd_domain::stream;

pub use handoffd_domain::message::INITIAL;

/// Checks a message that passed the schema.
///
/// `required_state` holds names of members of `currentState` that the receiver requires; a dotted
/// name (`clauses.primary`) goes deeper, and a member with that literal name does as well. Absent
/// and null count as missing.
///
/// Gives one [`Code::IncompleteContext`] failure for each thing missing: at `/completedSubtasks`, or
/// at the member's own path below `/currentState`.
#[must_use]
pub fn check(message: &Value, required_state: &[String]) -> Vec<Failure> {
    let mut failures = Vec::new();
    // A stream may send its completed subtasks in later chunks; the close checks them (specification §10.5).
    let initial = message.get("taskDescription").and_then(Value::as_str) == Some(INITIAL)
        || stream::opens(message);
    let done = message.get("completedSubtasks").and_then(Value::as_array);
    if !initial && done.is_none_or(Vec::is_empty) {
        failures.push(incomplete(
            "/completedSubtasks".to_owned(),
            format!(
                "No completed subtask, though `taskDescription` is not `{INITIAL}`: name what was done, or mark the handoff as initial."
            ),
        ));
    }
    let state = message.get("currentState").unwrap_or(&Value::Null);
    for name in required_state {
        if present(state, name) {
            continue;
        }
        let mut pointer = "/currentState".to_owned();
        for segment in name.split('.') {
            push_segment(&mut pointer, segment);
        }
        failures.push(incomplete(
            pointer,
            format!("The receiver requires `{name}` in `currentState`, and it is missing or null."),
        ));
    }
    failures
}

fn present(state: &Value, name: &str) -> bool {
    let filled = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    filled(state.get(name))
        || filled(name.split('.').try_fold(state, |value, segment| value.get(segment)))
}

fn incomplete(pointer: String, message: String) -> Failure {
    Failure::new(Stage::Completeness, Code::IncompleteContext, pointer, message)
}

/// The failure of a sender that must keep checkpoints and has none.
#[must_use]
pub fn no_checkpoint() -> Failure {
    Failure::new(
        Stage::Completeness,
        Code::IncompleteContext,
        "/checkpoint",
        "this sender must checkpoint before it hands off: send `checkpoint`, or store one with PUT /tasks/{taskId}/checkpoints/{executionId}",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn pointers(failures: &[Failure]) -> Vec<&str> {
        failures.iter().map(|failure| failure.pointer.as_str()).collect()
    }

    #[test]
    fn a104_no_completed_subtask_in_a_later_handoff_is_incomplete_context() {
        let message = json!({"taskDescription": "Score it", "completedSubtasks": [],
            "currentState": {}});
        let failures = check(&message, &[]);
        assert_eq!(pointers(&failures), ["/completedSubtasks"]);
        assert_eq!(failures[0].code, Code::IncompleteContext);
        assert_eq!(failures[0].stage, Stage::Completeness);
    }

    #[test]
    fn an_initial_handoff_needs_no_completed_subtask() {
        let mut message = json!({"taskDescription": "INITIAL", "completedSubtasks": [],
            "currentState": {}});
        assert!(check(&message, &[]).is_empty());
        message["taskDescription"] = json!("INITIAL ");
        assert_eq!(check(&message, &[]).len(), 1);
    }

    #[test]
    fn every_required_member_of_the_state_must_be_there_and_not_null() {
        let message = json!({"taskDescription": "INITIAL", "completedSubtasks": [],
            "currentState": {"a": 0, "b": null, "c": {"d": "", "e": null}, "f.g": []}});
        let required = names(&["a", "b", "c.d", "c.e", "c.x.y", "f.g", "a.z", "h/i"]);
        assert_eq!(
            pointers(&check(&message, &required)),
            [
                "/currentState/b",
                "/currentState/c/e",
                "/currentState/c/x/y",
                "/currentState/a/z",
                "/currentState/h~1i"
            ]
        );
    }
}
