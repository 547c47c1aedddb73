//! Counts of handoffs, tasks and decisions that wait, grouped by their cause.

use super::ids::{AgentId, EscalationId, HandoffId, Micros, TaskId};

/// Open escalations of one edge for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEscalations {
    pub source: AgentId,
    pub target: AgentId,
    /// Code of the reason.
    pub reason: String,
    pub count: i64,
    /// The oldest one.
    pub first: EscalationId,
    pub task_id: TaskId,
    pub since: Micros,
    /// The earliest time at which the broker decides without a person.
    pub timeout_at: Micros,
}

/// Open dead letters of one sender for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDeadLetters {
    pub source: AgentId,
    /// Code of the reason.
    pub reason: String,
    pub count: i64,
    /// The oldest one.
    pub first: HandoffId,
    pub task_id: TaskId,
    pub since: Micros,
}

/// Deliveries to one receiver that no attempt or claim holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingDeliveries {
    pub target: AgentId,
    pub count: i64,
    /// The oldest one.
    pub first: HandoffId,
    pub task_id: TaskId,
    /// When the oldest was committed.
    pub since: Micros,
    /// Most attempts begun of one.
    pub attempts: i32,
    /// The earliest time at which one may be claimed.
    pub visible_at: Micros,
    /// Code of the last failure of the oldest.
    pub last_error: Option<String>,
}

impl WaitingDeliveries {
    /// Two groups of one receiver together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let older =
            if (other.since, other.first) < (self.since, self.first) { other } else { self };
        Self {
            count: self.count + other.count,
            attempts: self.attempts.max(other.attempts),
            visible_at: self.visible_at.min(other.visible_at),
            ..older.clone()
        }
    }
}

/// Questions of receivers that one sender has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestions {
    /// The agent that sent the handoffs, and is asked.
    pub sender: AgentId,
    pub count: i64,
    /// The handoff of the oldest one.
    pub first: HandoffId,
    pub task_id: TaskId,
    /// The agent that asks the oldest one.
    pub asked_by: AgentId,
    pub since: Micros,
    /// When the handoff of the oldest one expires without an answer.
    pub due_at: Option<Micros>,
}

/// Tasks of one holder that wait for their next handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleTasks {
    pub holder: AgentId,
    /// Whether nothing is left of their budgets.
    pub used_up: bool,
    pub count: i64,
    /// The oldest one.
    pub first: TaskId,
    pub since: Micros,
}

/// A place outside the database that lacks records of the tenant's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateHead {
    /// Kind of the place.
    pub place: &'static str,
    /// Records under the last tree head that the place has.
    pub published: u64,
    /// Records of the log.
    pub size: u64,
    /// When the place last had all of them.
    pub since: Micros,
}
