//! A task's life: what its handoffs do to it (specification §5).

use serde::{Deserialize, Serialize};

use super::course::Course;
use super::funds::Funds;
use super::handoff::{CheckpointRef, Cost};
use super::ids::{AgentId, Micros, TaskId, TenantId};
use super::money::Usd;

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    /// Back with its sender: the last handoff was undone or never left.
    PendingHandoff,
    /// A handoff is on its way.
    HandingOff,
    /// A receiver works on it.
    Running,
    /// A person must decide.
    Escalated,
    Completed,
    Canceled,
}

/// Events of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskEvent {
    /// A handoff was committed.
    Submit,
    Accept,
    /// A handoff was undone; its sender has the task again.
    RollBack,
    /// A handoff was completed; the agent that asked for the task's return has it again.
    Return,
    /// The task is done.
    Complete,
    /// The task is withdrawn.
    Cancel,
    /// A person must decide.
    Escalate,
    /// A person decided, or no decision came in time: the task can move again.
    Resume,
}

/// A transition that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {} cannot {}", from.as_str(), event.verb())]
pub struct IllegalTaskTransition {
    /// The present state of the task.
    pub from: TaskStatus,
    /// The event refused.
    pub event: TaskEvent,
}

impl TaskStatus {
    pub const ALL: [Self; 6] = [
        Self::PendingHandoff,
        Self::HandingOff,
        Self::Running,
        Self::Escalated,
        Self::Completed,
        Self::Canceled,
    ];

    /// The text on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PendingHandoff => "PENDING_HANDOFF",
            Self::HandingOff => "HANDING_OFF",
            Self::Running => "RUNNING",
            Self::Escalated => "ESCALATED",
            Self::Completed => "COMPLETED",
            Self::Canceled => "CANCELED",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The task has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }

    /// The task waits for a person's decision, or has ended: no lease on it starts.
    #[must_use]
    pub const fn waits_for_person(self) -> bool {
        matches!(self, Self::Escalated) || self.is_final()
    }

    /// The transition table. An ended task takes nothing more; what still happens to its last
    /// handoffs (a late acceptance, a rollback) leaves it ended.
    ///
    /// # Errors
    /// [`IllegalTaskTransition`] where the table has no entry for the state and the event.
    pub const fn next(self, event: TaskEvent) -> Result<Self, IllegalTaskTransition> {
        use TaskEvent as E;
        Ok(match (self, event) {
            (Self::Completed, E::Complete | E::Accept | E::RollBack) => Self::Completed,
            (Self::PendingHandoff | Self::HandingOff | Self::Running, E::Submit)
            | (Self::HandingOff, E::Return) => Self::HandingOff,
            (Self::PendingHandoff | Self::HandingOff | Self::Running, E::Accept) => Self::Running,
            (Self::PendingHandoff | Self::Running | Self::Escalated, E::Complete) => {
                Self::Completed
            }
            (
                Self::PendingHandoff | Self::HandingOff | Self::Running | Self::Escalated,
                E::Cancel,
            )
            | (Self::Canceled, E::Cancel | E::Accept | E::RollBack) => Self::Canceled,
            (
                Self::PendingHandoff | Self::HandingOff | Self::Running | Self::Escalated,
                E::Escalate,
            )
            | (Self::Escalated, E::Accept | E::RollBack | E::Return) => Self::Escalated,
            (Self::PendingHandoff | Self::HandingOff | Self::Running, E::RollBack)
            | (Self::PendingHandoff | Self::Running, E::Return)
            | (Self::Escalated, E::Resume) => Self::PendingHandoff,
            (from, event) => return Err(IllegalTaskTransition { from, event }),
        })
    }
}

impl TaskEvent {
    pub const ALL: [Self; 8] = [
        Self::Submit,
        Self::Accept,
        Self::RollBack,
        Self::Return,
        Self::Complete,
        Self::Cancel,
        Self::Escalate,
        Self::Resume,
    ];

    /// For messages and diagrams.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Submit => "be handed off",
            Self::Accept => "be accepted",
            Self::RollBack => "be rolled back",
            Self::Return => "be returned",
            Self::Complete => "be completed",
            Self::Cancel => "be canceled",
            Self::Escalate => "be escalated",
            Self::Resume => "resume",
        }
    }
}

/// The row of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub tenant: TenantId,
    pub id: TaskId,
    pub status: TaskStatus,
    /// Its holder: the sender before the first acceptance, then the last receiver that accepted.
    pub holder: AgentId,
    /// The checkpoint that a rollback made current.
    pub checkpoint: Option<CheckpointRef>,
    /// The last fencing token given out; only ever grows.
    pub fence: i64,
    /// Handoffs committed on it, which is also the order in which they are delivered.
    pub handoffs: i64,
    /// Handoffs whose outbox row still waits.
    pub undelivered: i64,
    /// Failures since the last acceptance.
    pub failures: i64,
    /// Failures by edge, and the subtasks that it has seen.
    pub course: Course,
    /// The highest cumulative cost that a handoff reported.
    pub spent: Usd,
    /// The budget left by the last handoff's figures.
    pub remaining: Usd,
    /// The sum that operators added to the budget.
    pub topped_up: Usd,
    /// The task budget and its shares; `None` for tasks of older versions, and before the first handoff.
    pub funds: Option<Box<Funds>>,
    /// The agent that began it; `None` for tasks of older versions.
    pub opened_by: Option<AgentId>,
    /// When it was first seen.
    pub created_at: Micros,
    /// When it last changed.
    pub updated_at: Micros,
}

impl Task {
    /// Takes over the figures that a message states of the whole task.
    pub fn state_cost(&mut self, cost: &Cost) {
        self.spent = self.spent.max(cost.spent);
        self.remaining = cost.remaining;
    }

    /// Its cost so far: by its books, else (a task of an older version) the highest figure that a message
    /// stated.
    #[must_use]
    pub fn cost(&self) -> Usd {
        self.funds.as_ref().map_or(self.spent, |funds| funds.spent)
    }

    /// The amount that may still be spent on it, reserved or not: by its books, else the amount that
    /// the last message stated.
    #[must_use]
    pub fn left(&self) -> Usd {
        self.funds.as_ref().map_or(self.remaining, |funds| funds.granted.minus(funds.spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_task_stays_as_it_ended() {
        for from in [TaskStatus::Completed, TaskStatus::Canceled] {
            for event in TaskEvent::ALL {
                if let Ok(to) = from.next(event) {
                    assert_eq!(to, from, "{event:?}");
                }
            }
            assert!(from.next(TaskEvent::Submit).is_err());
        }
    }

    #[test]
    fn the_ordinary_life_and_a_rollback() {
        let mut status = TaskStatus::PendingHandoff;
        for (event, expected) in [
            (TaskEvent::Submit, "HANDING_OFF"),
            (TaskEvent::RollBack, "PENDING_HANDOFF"),
            (TaskEvent::Submit, "HANDING_OFF"),
            (TaskEvent::Accept, "RUNNING"),
            (TaskEvent::Submit, "HANDING_OFF"),
            (TaskEvent::Accept, "RUNNING"),
            (TaskEvent::Complete, "COMPLETED"),
        ] {
            status = status.next(event).unwrap();
            assert_eq!(status.as_str(), expected);
        }
    }

    #[test]
    fn a_task_on_its_way_cannot_be_declared_done() {
        assert!(TaskStatus::HandingOff.next(TaskEvent::Complete).is_err());
    }

    #[test]
    fn names_survive_the_store() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
        }
    }
}
