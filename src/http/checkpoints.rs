//! `/tasks/{taskId}/checkpoints`: what was stored, when, and back to it.

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Masked, Participant};
use super::extract::{Id, Ids, Json, Params, bad_cursor, of_list, page_size, plain_cursor};
use super::problem::{BadBody, Busy, Problem};
use super::tasks::CheckpointView;
use super::views::TaskView;
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{ExecutionId, Micros, TaskId};
use handoffd_store::store::CheckpointCursor;

/// The list in its cursors.
const LIST: &str = "checkpoints";

/// Query of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// A page of a task's checkpoints, newest first, without their states.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// The checkpoints.
    pub items: Vec<CheckpointView>,
    /// Give this as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

fn write_cursor(cursor: &CheckpointCursor) -> String {
    URL_SAFE_NO_PAD.encode(format!("{LIST}:{}:{}:{}", cursor.0.0, cursor.1, cursor.2))
}

fn read_cursor(text: &str) -> Result<CheckpointCursor, Problem> {
    place(of_list(LIST, &plain_cursor(text)?)?).ok_or_else(bad_cursor)
}

fn place(plain: &str) -> Option<CheckpointCursor> {
    let mut parts = plain.split(':');
    let cursor = (
        Micros(parts.next()?.parse().ok()?),
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    parts.next().is_none().then_some(cursor)
}

/// List the checkpoints of a task, newest first, over all of its runs; an agent sees its own. A
/// sender that crashed before its handoff finds here what it stored last.
#[utoipa::path(
    get, path = "/tasks/{taskId}/checkpoints", tag = "tasks", operation_id = "listCheckpoints",
    params(("taskId" = String, Path, description = "The task's UUID; it need not exist yet"), ListParams),
    responses(
        (status = 200, description = "One page", body = HistoryView),
        (status = 400, description = "A malformed parameter"),
        (status = 404, description = "Not a UUID"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Id(id): Id<TaskId>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<HistoryView>, Problem> {
    let limit = page_size(params.limit)?;
    let after = params.cursor.as_deref().map(read_cursor).transpose()?;
    let agent = principal.reader().limit();
    let key = (principal.tenant.clone(), id);
    if let Some(after) = after.as_ref().filter(|after| after.0 > api.now()) {
        let newest = api.store.list_checkpoints(&key, agent, None, 1).await?;
        let newest = newest.first().map(|row| (row.created_at, row.at.execution_id, row.at.seq));
        if newest.as_ref().is_none_or(|newest| after > newest) {
            let head = newest.map(|newest| write_cursor(&newest)).unwrap_or_default();
            return Err(Problem::ahead("cursor", head));
        }
    }
    let mut rows = api.store.list_checkpoints(&key, agent, after.as_ref(), limit + 1).await?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > most;
    rows.truncate(most);
    let next_cursor = rows
        .last()
        .filter(|_| more)
        .map(|row| write_cursor(&(row.created_at, row.at.execution_id, row.at.seq)));
    Ok(axum::Json(HistoryView {
        items: rows.iter().map(CheckpointView::from).collect(),
        next_cursor,
    }))
}

/// The checkpoint to restore.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreBody {
    /// Its number within the run, from 1.
    seq: i64,
}

/// Make a stored checkpoint the task's current one: its holder, for a run of its own, or an operator.
#[utoipa::path(
    post, path = "/tasks/{taskId}/checkpoints/{executionId}/restore", tag = "tasks", operation_id = "restoreCheckpoint",
    params(
        ("taskId" = String, Path, description = "The task's UUID"),
        ("executionId" = String, Path, description = "The UUID of the agent's run"),
    ),
    request_body = RestoreBody,
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 403, description = "Not its holder"),
        (status = 404, description = "No such task or checkpoint, or not the caller's"),
        (status = 409, description = "The task has ended, or a handoff is on its way"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn restore(
    State(api): State<Api>,
    Masked(Participant(principal)): Masked<Participant>,
    Ids(task_id, execution_id): Ids<TaskId, ExecutionId>,
    Json(said): Json<RestoreBody>,
) -> Result<axum::Json<TaskView>, Problem> {
    let at = CheckpointRef { execution_id, seq: said.seq };
    let task = api.intake.restore_checkpoint(&principal, task_id, at).await?;
    Ok(axum::Json(TaskView::from(&task)))
}
