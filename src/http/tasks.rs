//! `/tasks`: reading, completing, checkpoints.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{AgentCaller, Caller, Masked, Operator, Participant};
use super::escalations::reason_of;
use super::extract::{
    Id, Ids, Json, JsonBytes, Params, page_size, parameter, parse, read_cursor, time_parameter,
};
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::users::user_parameter;
use super::verdicts::header_token;
use super::views::{Page, TaskView, stated};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::tasks::SavedState;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::{ExecutionId, HandoffId, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::commitment::{hash_text, unpack};
use handoffd_store::store::reach::{BOUNDS, Reach};
use handoffd_store::store::{CheckpointRow, TaskFilter};

/// The list in its cursors.
const LIST: &str = "tasks";

/// A task that the caller may see: an agent sees those it has a part in.
pub(crate) async fn find(api: &Api, principal: &Principal, id: TaskId) -> Result<Task, Problem> {
    let task = principal.reader().find_task(&api.store, id).await?;
    task.ok_or_else(|| Problem::not_found("task"))
}

/// Read one task.
#[utoipa::path(
    get, path = "/tasks/{taskId}", tag = "tasks", operation_id = "getTask",
    params(("taskId" = String, Path, description = "The task's UUID")),
    responses(
        (status = 200, description = "The task", body = TaskView),
        (status = 404, description = "No such task, or not the caller's"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Id(id): Id<TaskId>,
) -> Result<axum::Json<TaskView>, Problem> {
    let task = find(&api, &principal, id).await?;
    let mut view = TaskView::from(&task);
    if let Some(at) = task.checkpoint {
        let run = (principal.tenant.clone(), id, at.execution_id);
        if let Some(row) = api.store.find_checkpoint(&run, None, Some(at.seq)).await?
            && principal.reader().sees_agent(&row.agent)
        {
            view.checkpoint_state = Some(state_of(&row)?);
        }
    }
    Ok(axum::Json(view))
}

fn state_of(row: &CheckpointRow) -> Result<Value, Problem> {
    unpack(row.part.codec, &row.part.bytes)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Problem::new(Code::Internal, "the checkpoint cannot be read"))
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only rows in this state.
    status: Option<String>,
    /// Only begun at this time or later, RFC 3339.
    from: Option<String>,
    /// Only begun before this time, RFC 3339.
    to: Option<String>,
    /// Only with so much left or less, decimal US dollars; 0: those whose budget is used up.
    #[serde(rename = "leftAtMostUSD")]
    #[param(rename = "leftAtMostUSD")]
    left_at_most: Option<String>,
    /// Only on which so much was spent, or more, decimal US dollars.
    #[serde(rename = "spentAtLeastUSD")]
    #[param(rename = "spentAtLeastUSD")]
    spent_at_least: Option<String>,
    /// Only for the user with this reference; `POST /users/search` gives it.
    user_ref: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List tasks, newest first; an agent sees those it has a part in.
///
/// A page looks at 20,000 tasks, or at 4,000 with their handoffs: it may have few rows, or none, and `nextCursor` goes on.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", operation_id = "listTasks",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<TaskView>),
        (status = 400, description = "A malformed parameter"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<TaskView>>, Problem> {
    let limit = page_size(params.limit)?;
    let mut filter = TaskFilter {
        status: params
            .status
            .as_deref()
            .map(|text| {
                TaskStatus::parse(text).ok_or_else(|| Problem::invalid("status is not one"))
            })
            .transpose()?,
        party: principal.reader().limit().cloned(),
        from: time_parameter("from", params.from.as_deref())?,
        until: time_parameter("to", params.to.as_deref())?,
        left_at_most: parameter("leftAtMostUSD", params.left_at_most.as_deref())?,
        spent_at_least: parameter("spentAtLeastUSD", params.spent_at_least.as_deref())?,
        user: user_parameter(params.user_ref)?,
        reach: Reach::Whole,
    };
    let newest = async || {
        let all =
            TaskFilter { party: principal.reader().limit().cloned(), ..TaskFilter::default() };
        let rows = api.store.list_tasks(&principal.tenant, &all, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.id.to_string())))
    };
    let after = read_cursor(&api, LIST, params.cursor.as_deref(), newest).await?;
    let tenant = &principal.tenant;
    filter.reach = api.store.reach_of_tasks(tenant, &filter, after.as_ref(), BOUNDS).await?;
    let rows = api.store.list_tasks(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::within(
        LIST,
        rows,
        (limit, &filter.reach),
        |row| (row.created_at, row.id.to_string()),
        |row| TaskView::from(row),
    )))
}

/// The result of a task.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CompleteTaskBody {
    /// Output of the task: any JSON.
    // A null is an output, too, and is kept as one.
    #[serde(default, deserialize_with = "stated")]
    output: Option<Value>,
    /// The body's other members.
    #[serde(flatten)]
    #[schema(ignore)]
    others: Map<String, Value>,
}

impl CompleteTaskBody {
    /// All members, as they came.
    fn members(self) -> Map<String, Value> {
        let Self { output, mut others } = self;
        others.extend(output.map(|output| ("output".to_owned(), output)));
        others
    }
}

/// Declare a task done: its current holder, or an operator.
#[utoipa::path(
    post, path = "/tasks/{taskId}/complete", tag = "tasks", operation_id = "completeTask",
    params(("taskId" = String, Path, description = "The task's UUID")),
    request_body(content = CompleteTaskBody, description = "The result; further members are kept too", content_type = "application/json"),
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 403, description = "Not its holder"),
        (status = 404, description = "No such task"),
        (status = 409, description = "Not in this state"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn complete(
    State(api): State<Api>,
    Participant(principal): Participant,
    Id(id): Id<TaskId>,
    Json(body): Json<CompleteTaskBody>,
) -> Result<axum::Json<TaskView>, Problem> {
    let (task, warnings) = api.intake.complete_task(&principal, id, body.members()).await?;
    let warnings = warnings.iter().map(WarningView::from).collect();
    Ok(axum::Json(TaskView { warnings, ..TaskView::from(&task) }))
}

/// A wish to withdraw a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelBody {
    /// Why, 1 to 2 000 characters; kept with the record.
    reason: String,
    /// How long who works on the task may still finish, in milliseconds, up to an hour; the broker's
    /// `recovery.cancel_grace_ms` unless said.
    #[serde(default)]
    #[schema(maximum = 3_600_000)]
    grace_ms: Option<u64>,
}

/// Withdraw a task: its holder, the agent that began it, or an operator. Handoffs that wait are
/// withdrawn at once; a receiver that accepted one may still finish within the grace.
#[utoipa::path(
    post, path = "/tasks/{taskId}/cancel", tag = "tasks", operation_id = "cancelTask",
    params(("taskId" = String, Path, description = "The task's UUID")),
    request_body = CancelBody,
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 403, description = "Neither its holder nor who began it"),
        (status = 404, description = "No such task"),
        (status = 409, description = "It is done already"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    Masked(Participant(principal)): Masked<Participant>,
    Id(id): Id<TaskId>,
    Json(said): Json<CancelBody>,
) -> Result<axum::Json<TaskView>, Problem> {
    find(&api, &principal, id).await?;
    let reason = reason_of(&said.reason)?;
    let grace = grace_of(&api, said.grace_ms)?;
    let task = api.intake.cancel_task(&principal, id, reason, grace).await?;
    Ok(axum::Json(TaskView::from(&task)))
}

/// The grace of a cancellation, in milliseconds.
///
/// # Errors
/// 422 where it is too long.
pub(super) fn grace_of(api: &Api, asked: Option<u64>) -> Result<u64, Problem> {
    let grace = asked.unwrap_or(api.config.recovery.cancel_grace_ms);
    if grace > MAX_GRACE_MS {
        return Err(wrong("/graceMs", "the grace is an hour at most"));
    }
    Ok(grace)
}

/// The longest grace, in milliseconds: an hour.
const MAX_GRACE_MS: u64 = 3_600_000;

/// An addition to a budget.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetBody {
    /// US dollars to add: more than 0, up to a billion.
    #[serde(rename = "addUSD")]
    add: f64,
    /// Why, 1 to 2 000 characters; kept with the record.
    reason: String,
}

/// Top a task's budget up: later handoffs may have that much more left than the relay would allow.
#[utoipa::path(
    post, path = "/tasks/{taskId}/budget", tag = "tasks", operation_id = "topUpTask",
    params(("taskId" = String, Path, description = "The task's UUID")),
    request_body = BudgetBody,
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such task"),
        (status = 409, description = "The task has ended"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn budget(
    State(api): State<Api>,
    Masked(Operator(principal)): Masked<Operator>,
    Id(id): Id<TaskId>,
    Json(said): Json<BudgetBody>,
) -> Result<axum::Json<TaskView>, Problem> {
    let reason = reason_of(&said.reason)?;
    let add = Usd::from_f64(said.add);
    if said.add > 1e9 || add <= Usd(0) {
        return Err(wrong("/addUSD", "more than 0 and at most 1 000 000 000 US dollars"));
    }
    let task = api.intake.top_up(&principal, id, add, reason).await?;
    Ok(axum::Json(TaskView::from(&task)))
}

/// A stored checkpoint.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointView {
    /// UUID of the task that it belongs to.
    pub task_id: String,
    /// The run whose state it is.
    pub execution_id: String,
    /// Its number within that run, from 1.
    pub seq: i64,
    /// The agent that stored it.
    pub agent_id: String,
    /// `sha256:…`: what records name it by.
    pub commitment: String,
    /// When it was stored, RFC 3339.
    pub created_at: String,
    /// The state; not repeated when it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub state: Option<Value>,
    /// The parts of the request that do not hold in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

impl From<&CheckpointRow> for CheckpointView {
    fn from(row: &CheckpointRow) -> Self {
        Self {
            task_id: row.task_id.to_string(),
            execution_id: row.at.execution_id.to_string(),
            seq: row.at.seq,
            agent_id: row.agent.to_string(),
            commitment: hash_text(&row.part.commitment),
            created_at: row.created_at.rfc3339(),
            state: None,
            warnings: Vec::new(),
        }
    }
}

/// Store a checkpoint ahead of a handoff; the body is the state itself, a JSON object. The caller has a part in the
/// task, or the task does not exist yet. A run is its agent's own: agents that use one `executionId` have a run each.
#[utoipa::path(
    put, path = "/tasks/{taskId}/checkpoints/{executionId}", tag = "tasks", operation_id = "putCheckpoint",
    params(
        ("taskId" = String, Path, description = "The task's UUID; it need not exist yet"),
        ("executionId" = String, Path, description = "The UUID of the agent's run"),
        ("Handoff-Id" = Option<String>, Header, description = "The handoff on which the agent's worker works, with its token: a worker whose handoff another one took over saves nothing"),
        ("Handoff-Fencing-Token" = Option<i64>, Header, description = "The token by which the worker holds that handoff"),
    ),
    request_body(content = super::views::CheckpointState, description = "The state", content_type = "application/json"),
    responses(
        (status = 200, description = "Stored", body = CheckpointView),
        (status = 403, description = "No agent's key"),
        (status = 404, description = "Not UUIDs, or a task in which the caller has no part"),
        (status = 409, description = "The task has ended, and no grace runs in which the caller may finish its work on it; or the token is stale"),
        BadBody,
        (status = 422, description = "Not an object"),
        Busy,
    )
)]
pub(super) async fn put_checkpoint(
    State(api): State<Api>,
    caller: AgentCaller,
    Ids(task_id, execution_id): Ids<TaskId, ExecutionId>,
    headers: HeaderMap,
    body: JsonBytes,
) -> Result<axum::Json<CheckpointView>, Problem> {
    let fence = fence(&headers)?;
    let size = body.bytes.len();
    let state = parse(body.bytes.clone()).await?;
    let saved = SavedState { task_id, execution_id, agent: caller.id, fence, state, size };
    let (row, warnings) = api.intake.save_checkpoint(&caller.principal, saved).await?;
    let warnings = warnings.iter().map(WarningView::from).collect();
    Ok(axum::Json(CheckpointView { warnings, ..CheckpointView::from(&row) }))
}

/// The handoff under which a worker saves, and the token by which it holds that.
fn fence(headers: &HeaderMap) -> Result<Option<(HandoffId, i64)>, Problem> {
    let token = header_token(headers)?;
    let id = headers.get("handoff-id");
    match (id, token) {
        (None, None) => Ok(None),
        (Some(id), Some(token)) => {
            let id = id.to_str().ok().and_then(|id| id.trim().parse().ok());
            let id = id.ok_or_else(|| Problem::invalid("Handoff-Id must be a UUID"))?;
            Ok(Some((id, token)))
        }
        _ => Err(Problem::invalid("Handoff-Id and Handoff-Fencing-Token come together")),
    }
}

/// Query of a checkpoint.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckpointParams {
    /// Its number within the run, from 1; the last unless said.
    #[param(minimum = 1)]
    seq: Option<i64>,
}

/// Read a run's last checkpoint, or one of its earlier ones; an agent reads its own only.
#[utoipa::path(
    get, path = "/tasks/{taskId}/checkpoints/{executionId}", tag = "tasks", operation_id = "getCheckpoint",
    params(
        ("taskId" = String, Path, description = "The task's UUID"),
        ("executionId" = String, Path, description = "The UUID of the agent's run"),
        CheckpointParams,
    ),
    responses(
        (status = 200, description = "The checkpoint with its state", body = CheckpointView),
        (status = 400, description = "An unknown parameter, or no number"),
        (status = 404, description = "No such checkpoint, or not the caller's"),
    )
)]
pub(super) async fn get_checkpoint(
    State(api): State<Api>,
    Caller(principal): Caller,
    Ids(task_id, execution_id): Ids<TaskId, ExecutionId>,
    Params(params): Params<CheckpointParams>,
) -> Result<axum::Json<CheckpointView>, Problem> {
    let run = (principal.tenant.clone(), task_id, execution_id);
    let agent = principal.reader().limit().cloned();
    let row = api
        .store
        .find_checkpoint(&run, agent.as_ref(), params.seq)
        .await?
        .ok_or_else(|| Problem::not_found("checkpoint"))?;
    let mut view = CheckpointView::from(&row);
    view.state = Some(state_of(&row)?);
    Ok(axum::Json(view))
}
