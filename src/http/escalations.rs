//! `/escalations`: questions that wait for a person (specification §5).

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Masked, Operator};
use super::extract::{Id, Json, Params, page_size, parameter, read_cursor};
use super::open;
use super::problem::{BadBody, Busy, Problem, wrong};
use super::views::{Page, TaskView};
use super::withheld::closed_to_metadata;
use handoffd_broker::directory::Principal;
use handoffd_domain::escalation::{Escalation, EscalationStatus, Resolution};
use handoffd_domain::ids::{AgentId, EscalationId, Micros};
use handoffd_store::store::EscalationFilter;

/// The list in its cursors.
const LIST: &str = "escalations";

/// The longest reason that a person may give, in characters.
pub const MAX_REASON: usize = 2_000;

/// An escalation: a question that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EscalationView {
    /// UUID of the escalation.
    pub escalation_id: String,
    /// The task that waits.
    pub task_id: String,
    /// The handoff that failed; absent where submissions were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<String>,
    /// From whom the failing edge leads.
    pub from_agent: String,
    /// Id of the agent that the failing edge leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_agent: Option<String>,
    /// Why a person is asked: a code.
    pub reason: String,
    /// How the contract says that people are reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The agent that takes over when no decision comes in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_as: Option<String>,
    /// The action when no decision comes in time: `resume` or `dead-letter`.
    #[schema(value_type = open::DefaultAction)]
    pub default_action: String,
    /// `OPEN`, `RESOLVED` or `TIMED_OUT`.
    #[schema(value_type = open::EscalationState)]
    pub status: String,
    /// When it was opened, RFC 3339.
    pub opened_at: String,
    /// When it is decided without a person.
    pub timeout_at: String,
    /// When it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<String>,
    /// By whom: a key's id, or `broker`. The words are with the record `ESCALATION_RESOLVED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// The decision: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
}

impl From<&Escalation> for EscalationView {
    fn from(row: &Escalation) -> Self {
        let default = if row.resume_as.is_some() { "resume" } else { "dead-letter" };
        Self {
            escalation_id: row.id.to_string(),
            task_id: row.task_id.to_string(),
            handoff_id: row.handoff_id.map(|id| id.to_string()),
            from_agent: row.source.to_string(),
            to_agent: (row.target != row.source).then(|| row.target.to_string()),
            reason: row.reason.clone(),
            channel: row.channel.clone(),
            resume_as: row.resume_as.as_ref().map(ToString::to_string),
            default_action: default.to_owned(),
            status: row.status.as_str().to_owned(),
            opened_at: row.created_at.rfc3339(),
            timeout_at: row.timeout_at.rfc3339(),
            resolved_at: row.resolved_at.map(Micros::rfc3339),
            resolved_by: row.resolved_by.clone(),
            resolution: row.resolution.map(|outcome| outcome.as_str().to_owned()),
        }
    }
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// `OPEN`, `RESOLVED` or `TIMED_OUT`.
    status: Option<String>,
    /// Only escalations of this task.
    task_id: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List escalations, newest first.
#[utoipa::path(
    get, path = "/escalations", tag = "escalations", operation_id = "listEscalations",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<EscalationView>),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<EscalationView>>, Problem> {
    let limit = page_size(params.limit)?;
    let status = params.status.as_deref().map(|text| {
        EscalationStatus::parse(text)
            .ok_or_else(|| Problem::invalid("status can be: OPEN, RESOLVED, TIMED_OUT"))
    });
    let filter = EscalationFilter {
        status: status.transpose()?,
        task_id: parameter("taskId", params.task_id.as_deref())?,
    };
    let newest = async || {
        let all = EscalationFilter::default();
        let rows = api.store.list_escalations(&principal.tenant, &all, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.id.to_string())))
    };
    let after = read_cursor(&api, LIST, params.cursor.as_deref(), newest).await?;
    let rows =
        api.store.list_escalations(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::new(
        LIST,
        rows,
        limit,
        |row| (row.created_at, row.id.to_string()),
        |row| EscalationView::from(row),
    )))
}

/// Read one escalation.
#[utoipa::path(
    get, path = "/escalations/{escalationId}", tag = "escalations", operation_id = "getEscalation",
    params(("escalationId" = String, Path, description = "The escalation's UUID")),
    responses(
        (status = 200, description = "The escalation", body = EscalationView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such escalation"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Id(id): Id<EscalationId>,
) -> Result<axum::Json<EscalationView>, Problem> {
    let row = api.store.find_escalation(&(principal.tenant, id)).await?;
    row.map(|row| axum::Json(EscalationView::from(&row)))
        .ok_or_else(|| Problem::not_found("escalation"))
}

/// A person's decision on an escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The same receiver once more; where the recovery is under way, it goes on.
    Retry,
    /// Give it to `agentId`.
    Reassign,
    /// Back to the sender's checkpoint.
    Rollback,
    /// Withdraw the task.
    Cancel,
    /// The task is done.
    Complete,
}

/// A person's decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveBody {
    /// A person's decision on an escalation.
    action: Action,
    /// To whom; for `reassign`, and for no other action.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    agent_id: Option<AgentId>,
    /// Why, 1 to 2 000 characters; kept with the record.
    reason: String,
}

/// An escalation that was decided, and its task.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResolvedView {
    /// As it is now.
    pub escalation: EscalationView,
    /// Its task as it is now.
    pub task: TaskView,
}

/// A reason that a person gave.
///
/// # Errors
/// 422 where it is empty or too long.
pub fn reason_of(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_REASON {
        return Err(wrong("/reason", "say why, in 1 to 2 000 characters"));
    }
    Ok(text)
}

/// Decide on an escalation. Who and why become a record.
#[utoipa::path(
    post, path = "/escalations/{escalationId}/resolve", tag = "escalations", operation_id = "resolveEscalation",
    params(("escalationId" = String, Path, description = "The escalation's UUID")),
    request_body = ResolveBody,
    responses(
        (status = 200, description = "Decided", body = ResolvedView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such escalation"),
        (status = 409, description = "Decided before, or there is nothing to reassign"),
        BadBody,
        (status = 422, description = "The body does not fit, the agent takes no handoffs, or the contract of the edge to it refuses the message"),
        Busy,
    )
)]
pub(super) async fn resolve(
    State(api): State<Api>,
    Masked(Operator(principal)): Masked<Operator>,
    Id(id): Id<EscalationId>,
    Json(said): Json<ResolveBody>,
) -> Result<axum::Json<ResolvedView>, Problem> {
    let reason = reason_of(&said.reason)?;
    let row = api
        .store
        .find_escalation(&(principal.tenant.clone(), id))
        .await?
        .ok_or_else(|| Problem::not_found("escalation"))?;
    let resolution = resolution_of(&principal, said.action, said.agent_id)?;
    resolve_one(&api, &principal, &row, resolution, reason).await.map(axum::Json)
}

/// A person's decision, with the agent that `reassign` names.
///
/// # Errors
/// 422 where an agent is named for another action, or none for this one; 403 where a caller that reads no contents calls the
/// work done.
pub(super) fn resolution_of(
    principal: &Principal,
    action: Action,
    agent: Option<AgentId>,
) -> Result<Resolution, Problem> {
    if action == Action::Complete && !principal.rights().reads_contents() {
        return Err(closed_to_metadata());
    }
    Ok(match (action, agent) {
        (Action::Reassign, Some(agent)) => Resolution::Reassign(agent),
        (Action::Reassign, None) => return Err(wrong("/agentId", "say to whom")),
        (_, Some(_)) => return Err(wrong("/agentId", "only reassign takes an agent")),
        (Action::Retry, None) => Resolution::Retry,
        (Action::Rollback, None) => Resolution::RollBack,
        (Action::Cancel, None) => Resolution::Cancel,
        (Action::Complete, None) => Resolution::Complete,
    })
}

/// Decides on an escalation.
///
/// # Errors
/// What [`resolve`] answers.
pub(super) async fn resolve_one(
    api: &Api,
    principal: &Principal,
    row: &Escalation,
    resolution: Resolution,
    reason: &str,
) -> Result<ResolvedView, Problem> {
    let decided = api.intake.resolve(principal, &api.contents, row, resolution, reason).await?;
    let (escalation, task) = (EscalationView::from(&decided.row), TaskView::from(&decided.task));
    Ok(ResolvedView { escalation, task })
}
