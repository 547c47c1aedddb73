//! `/dead-letters`: handoffs kept from delivery until a person decides.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Auditor;
use super::extract::{Id, Params, page_size, read_cursor};
use super::problem::{FailureView, NoKey, Problem, ProblemDetails, view};
use super::views::Page;
use crate::domain::ids::HandoffId;
use crate::store::DeadLetterRow;

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterView {
    /// The handoff's id, and the dead letter's.
    pub handoff_id: String,
    /// Its task.
    pub task_id: String,
    /// Who sent it.
    pub from_agent: String,
    /// To whom, where that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_agent: Option<String>,
    /// The primary reason.
    pub reason: String,
    /// Everything that the gate found.
    pub failures: Vec<FailureView>,
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    pub status: String,
    /// When it was kept, RFC 3339.
    pub created_at: String,
    /// The message; only on the dead letter's own page. It may carry an attack: show it as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub message: Option<Value>,
}

impl From<&DeadLetterRow> for DeadLetterView {
    fn from(row: &DeadLetterRow) -> Self {
        Self {
            handoff_id: row.handoff_id.to_string(),
            task_id: row.task_id.to_string(),
            from_agent: row.source.to_string(),
            to_agent: row.target.as_ref().map(ToString::to_string),
            reason: row.reason.clone(),
            failures: row.failures.iter().map(view).collect(),
            status: row.status.clone(),
            created_at: row.created_at.rfc3339(),
            message: None,
        }
    }
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    status: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List dead letters, newest first.
#[utoipa::path(
    get, path = "/dead-letters", tag = "dead letters", operation_id = "listDeadLetters",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<DeadLetterView>),
        (status = 400, description = "A malformed parameter", body = ProblemDetails, content_type = "application/problem+json"),
        NoKey,
        (status = 403, description = "An agent's key", body = ProblemDetails, content_type = "application/problem+json"),
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn list(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<DeadLetterView>>, Problem> {
    let limit = page_size(params.limit)?;
    let status = params.status.as_deref();
    if status.is_some_and(|status| !matches!(status, "OPEN" | "RELEASED" | "DISCARDED")) {
        return Err(Problem::invalid("status can be: OPEN, RELEASED, DISCARDED"));
    }
    let after = read_cursor(params.cursor.as_deref())?;
    let rows =
        api.store.list_dead_letters(&principal.tenant, status, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::new(
        rows,
        limit,
        |row| (row.created_at, row.handoff_id.to_string()),
        |row| DeadLetterView::from(row),
    )))
}

/// Read one dead letter with its message.
#[utoipa::path(
    get, path = "/dead-letters/{handoffId}", tag = "dead letters", operation_id = "getDeadLetter",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterView),
        NoKey,
        (status = 403, description = "An agent's key", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "No such dead letter", body = ProblemDetails, content_type = "application/problem+json"),
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn get(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Id(id): Id<HandoffId>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    let key = (principal.tenant.clone(), id);
    let row =
        api.store.find_dead_letter(&key).await?.ok_or_else(|| Problem::not_found("dead letter"))?;
    let mut view = DeadLetterView::from(&row);
    if let Some(content) = api.store.find_handoff(&key).await?.and_then(|found| found.content_id) {
        view.message = api
            .store
            .find_content(&principal.tenant, content)
            .await?
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    }
    Ok(axum::Json(view))
}
