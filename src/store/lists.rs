//! What can be asked for, and how much there is.

use crate::domain::escalation::EscalationStatus;
use crate::domain::handoff::HandoffStatus;
use crate::domain::ids::{AgentId, ExecutionId, Micros, TaskId};
use crate::domain::task::TaskStatus;
use crate::store::DeadLetterRow;

/// A place in a list ordered by creation, newest first: `(created_at, id)` of the last row seen.
pub type Cursor = (Micros, String);

/// Which handoffs to list.
#[derive(Debug, Clone, Default)]
pub struct HandoffFilter {
    /// On this task.
    pub task_id: Option<TaskId>,
    /// In this state.
    pub status: Option<HandoffStatus>,
    /// From this agent.
    pub source: Option<AgentId>,
    /// To this agent.
    pub target: Option<AgentId>,
    /// That this agent sends or receives.
    pub party: Option<AgentId>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// In this state.
    pub status: Option<TaskStatus>,
    /// That this agent has a part in.
    pub party: Option<AgentId>,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    pub status: Option<String>,
    /// With this primary reason.
    pub reason: Option<String>,
    /// From this agent.
    pub source: Option<AgentId>,
    /// To this agent.
    pub target: Option<AgentId>,
    /// Kept at this time or later.
    pub from: Option<Micros>,
    /// Kept before this time.
    pub until: Option<Micros>,
}

impl DeadLetterFilter {
    /// Whether a row fits.
    #[must_use]
    pub fn takes(&self, row: &DeadLetterRow) -> bool {
        let text = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|w| w == is);
        text(&self.status, &row.status)
            && text(&self.reason, &row.reason)
            && self.source.as_ref().is_none_or(|source| row.source == *source)
            && self.target.as_ref().is_none_or(|target| row.target.as_ref() == Some(target))
            && self.from.is_none_or(|from| row.created_at >= from)
            && self.until.is_none_or(|until| row.created_at < until)
    }
}

/// Which escalations to list.
#[derive(Debug, Clone, Default)]
pub struct EscalationFilter {
    /// In this state.
    pub status: Option<EscalationStatus>,
    /// Of this task.
    pub task_id: Option<TaskId>,
}

/// A place in the history of a task's checkpoints, newest first: creation, run, number.
pub type CheckpointCursor = (Micros, ExecutionId, i64);

/// Counts for the metrics page and for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the outbox.
    pub outbox: i64,
    /// When the oldest of them was committed.
    pub oldest: Option<Micros>,
    /// Open dead letters.
    pub dead_letters: i64,
    /// Open escalations.
    pub escalations: i64,
    /// Records over all tenants.
    pub records: i64,
}
