//! Escalations: questions that wait for a person (specification §5), each at most once open on a task.

use serde::{Deserialize, Serialize};

use super::ids::{AgentId, EscalationId, HandoffId, Micros, TaskId, TenantId};

/// Failures on one task and edge that call for a person, whatever the recovery (specification §5,
/// seed 000 §6.3).
pub const FAILURES_TO_ESCALATE: i64 = 3;

/// The status of an escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EscalationStatus {
    /// Waits for a person.
    Open,
    /// A person decided, or the task ended.
    Resolved,
    /// No decision came in time.
    TimedOut,
}

impl EscalationStatus {
    pub const ALL: [Self; 3] = [Self::Open, Self::Resolved, Self::TimedOut];

    /// The text on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Resolved => "RESOLVED",
            Self::TimedOut => "TIMED_OUT",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The same receiver once more; what is under way goes on.
    Retry,
    Reassign(AgentId),
    /// Back to the sender's checkpoint.
    RollBack,
    /// The task is withdrawn.
    Cancel,
    /// The task is done.
    Complete,
}

impl Resolution {
    /// The outcome of an escalation that a person decides this way.
    #[must_use]
    pub const fn outcome(&self) -> EscalationOutcome {
        match self {
            Self::Retry => EscalationOutcome::Retry,
            Self::Reassign(_) => EscalationOutcome::Reassign,
            Self::RollBack => EscalationOutcome::RollBack,
            Self::Cancel => EscalationOutcome::Cancel,
            Self::Complete => EscalationOutcome::Complete,
        }
    }
}

/// How an escalation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscalationOutcome {
    /// A person had the same receiver try again.
    Retry,
    /// A person chose another receiver.
    Reassign,
    /// A person rolled the task back.
    RollBack,
    /// A person withdrew the task, or its agent or an operator did meanwhile.
    Cancel,
    /// A person declared the task done, or its agent or an operator did meanwhile.
    Complete,
    /// The person that the handoff went to accepted it.
    Accepted,
    /// That person rejected it.
    Rejected,
    /// The handoff ran out of time.
    Expired,
    Failed,
    /// No decision came in time, and there was no handoff to end.
    TimedOut,
    /// No decision came in time; the open handoff goes on.
    TimedOutGoesOn,
    /// No decision came in time; the contract's synthetic identity took over.
    TimedOutResumed,
    /// No decision came in time; the handoff became a dead letter.
    TimedOutDeadLettered,
}

impl EscalationOutcome {
    pub const ALL: [Self; 13] = [
        Self::Retry,
        Self::Reassign,
        Self::RollBack,
        Self::Cancel,
        Self::Complete,
        Self::Accepted,
        Self::Rejected,
        Self::Expired,
        Self::Failed,
        Self::TimedOut,
        Self::TimedOutGoesOn,
        Self::TimedOutResumed,
        Self::TimedOutDeadLettered,
    ];

    /// The code in records, in the API and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "RETRY",
            Self::Reassign => "REASSIGN",
            Self::RollBack => "ROLLBACK",
            Self::Cancel => "CANCEL",
            Self::Complete => "COMPLETE",
            Self::Accepted => "ACCEPTED",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
            Self::Failed => "FAILED",
            Self::TimedOut => "TIMED_OUT",
            Self::TimedOutGoesOn => "TIMED_OUT_GOES_ON",
            Self::TimedOutResumed => "TIMED_OUT_RESUMED",
            Self::TimedOutDeadLettered => "TIMED_OUT_DEAD_LETTERED",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// The row of one escalation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    pub tenant: TenantId,
    pub id: EscalationId,
    /// The task that waits.
    pub task_id: TaskId,
    /// The handoff that failed; none where submissions were refused.
    pub handoff_id: Option<HandoffId>,
    /// From whom the failing edge leads.
    pub source: AgentId,
    /// To whom it leads.
    pub target: AgentId,
    pub reason: String,
    /// The contract's channel to people.
    pub channel: Option<String>,
    /// The identity that takes over when no decision comes in time (seed 002 §4.4).
    pub resume_as: Option<AgentId>,
    pub status: EscalationStatus,
    /// When it was opened.
    pub created_at: Micros,
    /// When it is decided without a person.
    pub timeout_at: Micros,
    /// When it was decided.
    pub resolved_at: Option<Micros>,
    /// By whom: a key's id, or `broker`.
    pub resolved_by: Option<String>,
    pub resolution: Option<EscalationOutcome>,
}

impl Escalation {
    /// Waits for a person.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.status == EscalationStatus::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_store() {
        for status in EscalationStatus::ALL {
            assert_eq!(EscalationStatus::parse(status.as_str()), Some(status));
        }
        for outcome in EscalationOutcome::ALL {
            assert_eq!(EscalationOutcome::parse(outcome.as_str()), Some(outcome));
        }
    }
}
