//! The Tasks extension (SEP-2663): a handoff as a task of the protocol. Its `taskId` is the `handoffId`, so it is durable before
//! it is answered, and any broker knows it.

use rmcp::model::{DetailedTask, Task, TaskPayload, TaskStatus};

use super::super::state::Standing;
use super::answer::{ToolAnswer, as_task_result, state};
use handoffd_domain::handoff::HandoffStatus;

/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 5_000;

/// The status of a handoff in the protocol's words. A tool that failed is `completed`, with `isError` in its result:
/// `failed` is for errors of the protocol.
fn status_of(standing: &Standing) -> TaskStatus {
    match standing.status() {
        Some(HandoffStatus::Canceled) => TaskStatus::Cancelled,
        _ if standing.has_ended() => TaskStatus::Completed,
        _ => TaskStatus::Working,
    }
}

/// A handoff as a task of the protocol.
pub(super) fn task_of(standing: &Standing) -> Task {
    let view = &*standing.view;
    let created = &view.created_at;
    let changed = view.ended_at.as_ref().or(view.accepted_at.as_ref()).unwrap_or(created);
    Task::new(standing.id(), status_of(standing), created, changed)
        .with_poll_interval_ms(POLL_MS)
        .with_status_message(state(view))
}

/// The task with its result, where it has ended.
pub(super) fn detailed(task: Task, result: ToolAnswer) -> DetailedTask {
    let payload = match task.status {
        TaskStatus::Completed => TaskPayload::Completed { result: as_task_result(result) },
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    DetailedTask::new(task, payload)
}
