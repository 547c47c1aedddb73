//! A2A's states of a task, for a handoff (specification §11.2, docs/doors/a2a.md). Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::handoff::HandoffStatus;
use super::ids::TaskId;

/// The member of a handoff's message that holds the A2A client's own message.
const CLIENT_MESSAGE: &str = "/extensions/a2a/message";

/// Whether a context's id is the id of a task as the broker writes it. Any other is the client's own name for its context.
#[must_use]
pub fn is_task_id(context: &str) -> bool {
    context.parse::<TaskId>().is_ok_and(|id| id.to_string() == context)
}

/// The context of a handoff's message by its client's own name; `None` where the context has the broker's task as its id.
#[must_use]
pub fn named_context(message: &Value) -> Option<&str> {
    let sent = message.pointer(CLIENT_MESSAGE)?;
    let named = ["contextId", "context_id"].iter().find_map(|name| sent.get(name)?.as_str())?;
    (!named.is_empty() && !is_task_id(named)).then_some(named)
}

/// A state of A2A 1.0, by the names of its protocol buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskState {
    /// Committed, not accepted yet.
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    /// The receiver works on it.
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// Done, with its result.
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    /// Ended without a result.
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    /// Withdrawn.
    #[serde(rename = "TASK_STATE_CANCELED")]
    Canceled,
    /// The receiver waits for an answer.
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    /// The receiver refused it.
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
}

impl TaskState {
    /// The state of a handoff.
    #[must_use]
    pub const fn of(status: HandoffStatus) -> Self {
        match status {
            HandoffStatus::Pending => Self::Submitted,
            HandoffStatus::Accepted => Self::Working,
            HandoffStatus::InputRequired => Self::InputRequired,
            HandoffStatus::Completed | HandoffStatus::NoOp => Self::Completed,
            HandoffStatus::Rejected => Self::Rejected,
            HandoffStatus::Canceled => Self::Canceled,
            HandoffStatus::Failed | HandoffStatus::Expired | HandoffStatus::DeadLettered => {
                Self::Failed
            }
        }
    }

    /// Nothing follows it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// The client's turn: the end, or a question.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        self.is_terminal() || matches!(self, Self::InputRequired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_terminal_where_the_handoff_is() {
        for status in HandoffStatus::ALL {
            assert_eq!(TaskState::of(status).is_terminal(), status.is_final(), "{status:?}");
        }
    }

    #[test]
    fn a_context_has_its_clients_name_where_that_is_no_tasks_id() {
        let own = "7f6f2f0e-9c0d-4b1a-8f3e-1a2b3c4d5e6f";
        let message = |name: &str, context: &str| {
            let sent = serde_json::json!({ name: context });
            serde_json::json!({ "extensions": { "a2a": { "message": sent } } })
        };
        for name in ["contextId", "context_id"] {
            assert_eq!(named_context(&message(name, "my context")), Some("my context"));
            assert_eq!(
                named_context(&message(name, &own.to_uppercase())),
                Some(&*own.to_uppercase())
            );
            assert_eq!(named_context(&message(name, own)), None);
            assert_eq!(named_context(&message(name, "")), None);
        }
        assert_eq!(named_context(&serde_json::json!({})), None);
    }

    #[test]
    fn states_have_the_names_of_the_protocol() {
        let names = [
            (TaskState::Submitted, "TASK_STATE_SUBMITTED"),
            (TaskState::InputRequired, "TASK_STATE_INPUT_REQUIRED"),
            (TaskState::Canceled, "TASK_STATE_CANCELED"),
        ];
        for (state, name) in names {
            assert_eq!(serde_json::to_value(state).unwrap(), name);
        }
        assert!(!TaskState::events().contains(&crate::event::EventType::HandoffRolledBack));
    }
}
