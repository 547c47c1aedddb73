//! A2A's states of a task, for a handoff (specification §11.2, docs/doors/a2a.md). Pure.

use serde::{Deserialize, Serialize};

use super::event::EventType;
use super::handoff::HandoffStatus;

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

    /// The state to which an event brings a handoff; `None` for an event that changes none.
    #[must_use]
    pub const fn after(event: EventType) -> Option<Self> {
        match event {
            EventType::HandoffOccurred => Some(Self::Submitted),
            EventType::HandoffAccepted | EventType::HandoffInputProvided => Some(Self::Working),
            EventType::HandoffInputRequired => Some(Self::InputRequired),
            EventType::HandoffCompleted | EventType::HandoffReturned => Some(Self::Completed),
            EventType::HandoffRejected => Some(Self::Rejected),
            EventType::HandoffCanceled => Some(Self::Canceled),
            EventType::HandoffFailed
            | EventType::HandoffExpired
            | EventType::HandoffDeadLettered => Some(Self::Failed),
            _ => None,
        }
    }

    /// The types of events that change a state.
    #[must_use]
    pub fn events() -> Vec<EventType> {
        EventType::ALL.iter().copied().filter(|kind| Self::after(*kind).is_some()).collect()
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
    fn states_have_the_names_of_the_protocol() {
        let names = [
            (TaskState::Submitted, "TASK_STATE_SUBMITTED"),
            (TaskState::InputRequired, "TASK_STATE_INPUT_REQUIRED"),
            (TaskState::Canceled, "TASK_STATE_CANCELED"),
        ];
        for (state, name) in names {
            assert_eq!(serde_json::to_value(state).unwrap(), name);
        }
        assert!(!TaskState::events().contains(&EventType::HandoffRolledBack));
    }
}
