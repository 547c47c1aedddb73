//! The loaded rows of a task: its edges, and its open handoffs.

use super::call::Call;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::progress::Edge;
use handoffd_store::store::BatchState;

/// The edges of a task.
pub(super) fn edges_of<'a>(state: &'a BatchState, call: &Call, task: TaskId) -> Vec<&'a Edge> {
    state.edges.values().filter(|edge| edge.tenant == call.tenant && edge.task_id == task).collect()
}

/// The handoffs of a task that are still open.
pub(super) fn open_of(state: &BatchState, call: &Call, task: TaskId) -> Vec<HandoffId> {
    state
        .handoffs
        .values()
        .filter(|handoff| {
            handoff.tenant == call.tenant && handoff.task_id == task && !handoff.status.is_final()
        })
        .map(|handoff| handoff.id)
        .collect()
}
