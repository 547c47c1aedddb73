//! Which handoff of its task a handoff follows (specification §2.2, stage 9). Pure.
//!
//! A handoff follows one that reached its sender: one of the same task that the sender accepted, and that was not taken
//! from it since: by its failure, its deadline, a cancellation or the task's return. The first
//! handoff of a task follows none; neither does another try of the agent that began it, as long as no handoff
//! of the task reached that agent.

use super::failure::{Code, Failure, Stage};
use super::handoff::{Handoff, HandoffStatus, RETURNED};
use super::ids::{AgentId, HandoffId};
use super::task::Task;

/// The pointer to the handoff that a message follows.
const PARENT: &str = "/parentHandoffId";

/// Whether a handoff of its task reached an agent: the agent accepted it, and it did not end with the task back at its sender
/// or with no agent.
#[must_use]
pub fn reached(handoff: &Handoff, agent: &AgentId) -> bool {
    let holds = match handoff.status {
        HandoffStatus::Completed => handoff.reason.as_deref() != Some(RETURNED),
        status => !status.is_final(),
    };
    handoff.target == *agent && handoff.accepted_at.is_some() && holds
}

/// The parent that a message names is not the one that the broker knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The expected parent; `None` where the message should have named none.
    pub expected: Option<HandoffId>,
    /// For the sender.
    pub failure: Failure,
}

/// Holds the parent that a message names against the handoffs of the task that reached its sender, in any
/// order. Of several the last is expected, and any is taken.
///
/// # Errors
/// [`Mismatch`], with what was expected.
pub fn check(
    task: Option<&Task>,
    parent: Option<HandoffId>,
    source: &AgentId,
    reached: &[&Handoff],
) -> Result<(), Mismatch> {
    let last = reached
        .iter()
        .max_by_key(|one| (one.accepted_at, one.fencing_token, one.id))
        .map(|one| one.id);
    let opener = task.is_none_or(|task| {
        task.handoffs == 0 || task.opened_by.as_ref().is_none_or(|opener| opener == source)
    });
    let fits = match (parent, last) {
        (Some(id), Some(_)) => reached.iter().any(|one| one.id == id),
        (None, None) => opener,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let why = match (last, opener) {
        (Some(id), _) => format!(
            "expected {id}: a handoff follows one of its task that reached its sender; that one was the last that {source} accepted"
        ),
        (None, true) => format!(
            "expected null: {source} begins the task, and no handoff of the task reached it"
        ),
        (None, false) => format!(
            "no handoff of this task reached {source} that it has or completed, and another agent began the task: there is nothing that {source} could hand on"
        ),
    };
    let failure = Failure::new(Stage::Lineage, Code::LineageMismatch, PARENT, why);
    Err(Mismatch { expected: last, failure })
}
