//! A handoff's life: one pure, total transition function (specification §5).

use serde::{Deserialize, Serialize};

/// The state of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HandoffStatus {
    /// Committed, not yet answered by the receiver.
    Pending,
    /// The receiver took it and holds its lease.
    Accepted,
    /// The receiver took it, asked its sender something, and waits for the answer; no lease runs.
    InputRequired,
    /// The receiver finished its part.
    Completed,
    /// The receiver said no.
    Rejected,
    /// No verdict in time, or the lease ran out.
    Expired,
    /// Could not be delivered, or the receiver failed.
    Failed,
    /// Kept from delivery until a person decides.
    DeadLettered,
    /// Withdrawn before its end.
    Canceled,
    /// Addressed to its own sender; recorded, never delivered.
    NoOp,
}

/// Events of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandoffEvent {
    Accept,
    Reject,
    /// The receiver is done.
    Complete,
    /// The receiver gives up, or delivery attempts are exhausted.
    Fail,
    /// The receiver asks its sender.
    Ask,
    /// The sender, or a person, answers.
    Answer,
    /// A deadline passed: the verdict's or the lease's.
    Expire,
    /// An operator or the sender withdraws it.
    Cancel,
    /// Failed, and no decision came in time.
    DeadLetter,
    /// A person upheld the appeal.
    Release,
}

/// A transition that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a handoff that is {} cannot {}", from.as_str(), event.verb())]
pub struct IllegalTransition {
    /// The present state of the handoff.
    pub from: HandoffStatus,
    /// The event refused.
    pub event: HandoffEvent,
}

impl HandoffStatus {
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Accepted,
        Self::InputRequired,
        Self::Completed,
        Self::Rejected,
        Self::Expired,
        Self::Failed,
        Self::DeadLettered,
        Self::Canceled,
        Self::NoOp,
    ];

    /// The text on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Accepted => "ACCEPTED",
            Self::InputRequired => "INPUT_REQUIRED",
            Self::Completed => "COMPLETED",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
            Self::Failed => "FAILED",
            Self::DeadLettered => "DEAD_LETTERED",
            Self::Canceled => "CANCELED",
            Self::NoOp => "NO_OP",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Nothing more can happen to it, unless a person decides otherwise.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Accepted | Self::InputRequired)
    }

    /// The receiver has the task by it: it works, or waits for an answer.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Accepted | Self::InputRequired)
    }

    /// As the column `status` has it: a handoff whose question is open is an accepted one there, with the number of the
    /// question in a column of its own, so that an older binary beside sees a handoff with a lease until the deadline.
    #[must_use]
    pub const fn stored(self) -> &'static str {
        match self {
            Self::InputRequired => Self::Accepted.as_str(),
            other => other.as_str(),
        }
    }

    /// The transition table. A repeated verdict changes nothing and is accepted; `Complete` on a pending handoff
    /// accepts and completes it, because a receiver's callback may overtake its own answer to the delivery.
    ///
    /// # Errors
    /// [`IllegalTransition`] where the table has no entry for the state and the event.
    pub const fn next(self, event: HandoffEvent) -> Result<Self, IllegalTransition> {
        use HandoffEvent as E;
        Ok(match (self, event) {
            (Self::Pending | Self::Accepted, E::Accept) | (Self::InputRequired, E::Answer) => {
                Self::Accepted
            }
            (Self::Pending | Self::Rejected, E::Reject) => Self::Rejected,
            (Self::Accepted, E::Ask) | (Self::InputRequired, E::Accept) => Self::InputRequired,
            (
                Self::Pending | Self::Accepted | Self::InputRequired | Self::Completed,
                E::Complete,
            ) => Self::Completed,
            (Self::Pending | Self::Accepted | Self::InputRequired | Self::Failed, E::Fail) => {
                Self::Failed
            }
            (Self::Pending | Self::Accepted | Self::InputRequired, E::Expire) => Self::Expired,
            (Self::Pending | Self::Accepted | Self::InputRequired | Self::Canceled, E::Cancel) => {
                Self::Canceled
            }
            (Self::Rejected | Self::Failed | Self::Expired, E::DeadLetter) => Self::DeadLettered,
            (Self::DeadLettered, E::Release) => Self::Pending,
            (from, event) => return Err(IllegalTransition { from, event }),
        })
    }
}

impl HandoffEvent {
    pub const ALL: [Self; 10] = [
        Self::Accept,
        Self::Reject,
        Self::Complete,
        Self::Fail,
        Self::Ask,
        Self::Answer,
        Self::Expire,
        Self::Cancel,
        Self::DeadLetter,
        Self::Release,
    ];

    /// An event that only a person, or the time given to one, brings about: it leads out of an end.
    #[must_use]
    pub const fn is_decided(self) -> bool {
        matches!(self, Self::DeadLetter | Self::Release)
    }

    /// For messages and diagrams.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Accept => "be accepted",
            Self::Reject => "be rejected",
            Self::Complete => "be completed",
            Self::Fail => "fail",
            Self::Ask => "ask",
            Self::Answer => "be answered",
            Self::Expire => "expire",
            Self::Cancel => "be canceled",
            Self::DeadLetter => "be kept as a dead letter",
            Self::Release => "be released",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_meets_every_event_as_the_table_says() {
        use HandoffEvent as E;
        use HandoffStatus as S;
        for from in S::ALL {
            for event in E::ALL {
                let expected = match (from, event) {
                    (S::Pending | S::Accepted, E::Accept) | (S::InputRequired, E::Answer) => {
                        Some(S::Accepted)
                    }
                    (S::Accepted, E::Ask) | (S::InputRequired, E::Accept) => Some(S::InputRequired),
                    (S::Pending | S::Rejected, E::Reject) => Some(S::Rejected),
                    (S::Pending | S::Accepted | S::InputRequired | S::Completed, E::Complete) => {
                        Some(S::Completed)
                    }
                    (S::Pending | S::Accepted | S::InputRequired | S::Failed, E::Fail) => {
                        Some(S::Failed)
                    }
                    (S::Pending | S::Accepted | S::InputRequired, E::Expire) => Some(S::Expired),
                    (S::Pending | S::Accepted | S::InputRequired | S::Canceled, E::Cancel) => {
                        Some(S::Canceled)
                    }
                    (S::Rejected | S::Failed | S::Expired, E::DeadLetter) => Some(S::DeadLettered),
                    (S::DeadLettered, E::Release) => Some(S::Pending),
                    _ => None,
                };
                assert_eq!(from.next(event).ok(), expected, "{from:?} × {event:?}");
            }
        }
    }

    #[test]
    fn a_final_state_is_left_by_decision_only() {
        for from in HandoffStatus::ALL.into_iter().filter(|status| status.is_final()) {
            for event in HandoffEvent::ALL.into_iter().filter(|event| !event.is_decided()) {
                if let Ok(to) = from.next(event) {
                    assert_eq!(to, from);
                }
            }
        }
    }

    #[test]
    fn names_survive_the_store() {
        for status in HandoffStatus::ALL {
            assert_eq!(HandoffStatus::parse(status.as_str()), Some(status));
            assert_eq!(
                serde_json::to_value(status).unwrap(),
                serde_json::Value::from(status.as_str())
            );
        }
    }
}
