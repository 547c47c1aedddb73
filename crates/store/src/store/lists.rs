//! List filters and counts.

use crate::store::DeadLetterRow;
use crate::store::reach::Reach;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::EscalationStatus;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{AgentId, ExecutionId, Micros, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::TaskStatus;

/// Position in a list ordered by creation, newest first: `(created_at, id)` of the last row returned.
pub type Cursor = (Micros, String);

#[derive(Debug, Clone, Default)]
pub struct HandoffFilter {
    /// Only handoffs of this task.
    pub task_id: Option<TaskId>,
    /// Only handoffs with this status.
    pub status: Option<HandoffStatus>,
    /// Only handoffs from this agent.
    pub source: Option<AgentId>,
    /// Only handoffs to this agent.
    pub target: Option<AgentId>,
    /// Only handoffs of the conversation with this id.
    pub conversation: Option<String>,
    /// Only handoffs from or to this agent.
    pub party: Option<AgentId>,
    /// Only handoffs committed at or after this time.
    pub from: Option<Micros>,
    /// Only handoffs committed before this time.
    pub until: Option<Micros>,
    /// Only handoffs for the user with this reference.
    pub user: Option<String>,
    /// Which rows are read.
    pub reach: Reach,
}

#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks with this status.
    pub status: Option<TaskStatus>,
    /// Only tasks in which this agent takes part.
    pub party: Option<AgentId>,
    /// Only tasks begun at or after this time.
    pub from: Option<Micros>,
    /// Only tasks begun before this time.
    pub until: Option<Micros>,
    /// Only tasks on which no more than this is left.
    pub left_at_most: Option<Usd>,
    /// Only tasks on which this was spent, or more.
    pub spent_at_least: Option<Usd>,
    /// Only tasks with a handoff for the user with this reference.
    pub user: Option<String>,
    /// Which rows are read.
    pub reach: Reach,
}

#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// Only dead letters with this status.
    pub status: Option<DeadLetterStatus>,
    /// Only dead letters of this task.
    pub task_id: Option<TaskId>,
    /// Only dead letters with this primary reason.
    pub reason: Option<String>,
    /// Only dead letters from this agent.
    pub source: Option<AgentId>,
    /// Only dead letters to this agent.
    pub target: Option<AgentId>,
    /// Only dead letters created at or after this time.
    pub from: Option<Micros>,
    /// Only dead letters created before this time.
    pub until: Option<Micros>,
}

impl DeadLetterFilter {
    /// Whether a row matches the filter.
    #[must_use]
    pub fn takes(&self, row: &DeadLetterRow) -> bool {
        self.status.is_none_or(|status| row.status == status)
            && self.task_id.is_none_or(|task| row.task_id == task)
            && self.reason.as_ref().is_none_or(|reason| row.reason == *reason)
            && self.source.as_ref().is_none_or(|source| row.source == *source)
            && self.target.as_ref().is_none_or(|target| row.target.as_ref() == Some(target))
            && self.from.is_none_or(|from| row.created_at >= from)
            && self.until.is_none_or(|until| row.created_at < until)
    }
}

#[derive(Debug, Clone, Default)]
pub struct EscalationFilter {
    /// Only escalations with this status.
    pub status: Option<EscalationStatus>,
    /// Only escalations of this task.
    pub task_id: Option<TaskId>,
}

/// Position in a task's list of checkpoints, newest first: creation, run, number.
pub type CheckpointCursor = (Micros, ExecutionId, i64);

/// Counts for metrics and for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the outbox.
    pub outbox: i64,
    /// Time of commit of the oldest of them.
    pub oldest: Option<Micros>,
    /// Open dead letters.
    pub dead_letters: i64,
    /// Open escalations.
    pub escalations: i64,
    /// Tasks that wait for a handoff since that time or longer.
    pub idle_tasks: i64,
    /// Second opinions that are due.
    pub opinions: i64,
    /// Records over all tenants.
    pub records: i64,
}
