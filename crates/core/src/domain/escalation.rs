//! Escalations: questions that wait for a person (specification §5), each at most once open on a task.

use serde::{Deserialize, Serialize};

use super::ids::{AgentId, EscalationId, HandoffId, Micros, TaskId, TenantId};

/// Failures on one task and edge that call for a person, whatever the recovery (specification §5,
/// seed 000 §6.3).
pub const FAILURES_TO_ESCALATE: i64 = 3;

/// Where an escalation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EscalationStatus {
    /// It waits for a person.
    Open,
    /// A person decided, or the task ended.
    Resolved,
    /// Nobody decided in time.
    TimedOut,
}

impl EscalationStatus {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Open, Self::Resolved, Self::TimedOut];

    /// As it stands on the wire and in the store.
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

/// What a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The same receiver once more; what is under way goes on.
    Retry,
    /// Another receiver.
    Reassign(AgentId),
    /// Back to the sender's checkpoint.
    RollBack,
    /// The task is withdrawn.
    Cancel,
    /// The task is done.
    Complete,
}

impl Resolution {
    /// As it stands in records and in the store: a code.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Retry => "RETRY",
            Self::Reassign(_) => "REASSIGN",
            Self::RollBack => "ROLLBACK",
            Self::Cancel => "CANCEL",
            Self::Complete => "COMPLETE",
        }
    }
}

/// The row of one escalation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: EscalationId,
    /// The task that waits.
    pub task_id: TaskId,
    /// The handoff that failed; none where submissions were refused.
    pub handoff_id: Option<HandoffId>,
    /// From whom the failing edge leads.
    pub source: AgentId,
    /// To whom it leads.
    pub target: AgentId,
    /// Why: a code.
    pub reason: String,
    /// Where the contract says that people are reached.
    pub channel: Option<String>,
    /// The identity that takes over when nobody decides in time (seed 002 §4.4).
    pub resume_as: Option<AgentId>,
    /// Where it stands.
    pub status: EscalationStatus,
    /// When it was opened.
    pub created_at: Micros,
    /// When it is decided without a person.
    pub timeout_at: Micros,
    /// When it was decided.
    pub resolved_at: Option<Micros>,
    /// By whom: a key's id, or `broker`.
    pub resolved_by: Option<String>,
    /// What was decided: a code.
    pub resolution: Option<String>,
}

impl Escalation {
    /// It waits for a person.
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
    }
}
