//! `/caps`: what a tenant and its agents may spend within a window (docs/budget.md).

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Operator};
use super::extract::{Id, Json, Params};
use super::problem::{BadBody, Busy, NoKey, Problem, ProblemDetails};
use crate::directory::Principal;
use crate::domain::canonical;
use crate::domain::cap::{Cap, Limit, Window};
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::ids::{AgentId, Micros};
use crate::domain::money::Usd;
use crate::intake::actor;
use crate::ledger::command::{Command, Kind, LedgerError, Reply, SetCap, content};

/// A cap, and what of it is used now. Amounts are decimal US dollars, exactly.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapView {
    /// Whose; absent: the whole tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// How long what was spent counts, an ISO 8601 duration.
    pub window: String,
    /// What may count against it.
    pub usd: String,
    /// It comes from the settings; else an operator set it.
    pub default: bool,
    /// Spent within the window that ends now.
    #[serde(rename = "spentUSD")]
    pub spent: String,
    /// Reserved by open handoffs.
    #[serde(rename = "reservedUSD")]
    pub reserved: String,
    /// What is left; never less than nothing.
    #[serde(rename = "leftUSD")]
    pub left: String,
}

impl CapView {
    fn of(cap: &Cap, limit: Usd, now: Micros) -> Self {
        Self {
            agent_id: cap.agent.as_ref().map(ToString::to_string),
            window: cap.window.to_string(),
            usd: limit.to_string(),
            default: cap.usd.is_none(),
            spent: cap.spent(now).to_string(),
            reserved: cap.reserved().to_string(),
            left: Usd(limit.minus(cap.used(now)).0.max(0)).to_string(),
        }
    }
}

/// All caps of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct CapsView {
    /// The tenant's own first, then by agent; each by window.
    pub items: Vec<CapView>,
}

/// How much.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CapBody {
    /// Decimal US dollars, as text so that they are exact: `"100.00"`.
    usd: String,
}

/// Whose cap.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct WhoseParams {
    /// This agent's; the whole tenant's unless said.
    #[param(value_type = Option<String>)]
    agent_id: Option<String>,
}

fn window_of(text: &str) -> Result<Window, Problem> {
    text.parse().map_err(|err| Problem::invalid(format!("the window {text:?}: {err}")))
}

impl WhoseParams {
    fn agent(self) -> Result<Option<AgentId>, Problem> {
        self.agent_id
            .map(|id| id.parse())
            .transpose()
            .map_err(|err| Problem::invalid(format!("agentId: {err}")))
    }
}

/// Set a cap: what the tenant, or one of its agents, may spend within a window that moves on. What counts
/// against it goes on counting where it is only changed; a new one begins empty.
#[utoipa::path(
    put, path = "/caps/{window}", tag = "caps", operation_id = "putCap",
    params(("window" = String, Path, description = "An ISO 8601 duration from PT1M to P31D"), WhoseParams),
    request_body = CapBody,
    responses(
        (status = 200, description = "The cap as it is now", body = CapView),
        (status = 400, description = "A malformed parameter", body = ProblemDetails, content_type = "application/problem+json"),
        NoKey,
        (status = 403, description = "Not an operator", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "No such agent", body = ProblemDetails, content_type = "application/problem+json"),
        BadBody,
        (status = 422, description = "The body does not fit", body = ProblemDetails, content_type = "application/problem+json"),
        Busy,
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn put(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(window): Id<String>,
    Params(whose): Params<WhoseParams>,
    Json(body): Json<CapBody>,
) -> Result<axum::Json<CapView>, Problem> {
    let (window, agent) = (window_of(&window)?, whose.agent()?);
    let usd: Usd = body.usd.parse().map_err(|err: crate::domain::money::NoAmount| {
        let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, "/usd", err.to_string());
        Problem::refusal(vec![failure], false)
    })?;
    if let Some(id) = &agent {
        let agents = api.intake.directory.agents(&principal.tenant).await?;
        agents.row(id).ok_or_else(|| Problem::not_found("agent"))?;
    }
    match change(&api, &principal, agent, window, Some(usd)).await? {
        Reply::Cap(cap) => Ok(axum::Json(CapView::of(&cap, usd, api.now()))),
        other => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
    }
}

/// Take a cap away. Where the settings have one for that window, it counts again.
#[utoipa::path(
    delete, path = "/caps/{window}", tag = "caps", operation_id = "deleteCap",
    params(("window" = String, Path, description = "An ISO 8601 duration from PT1M to P31D"), WhoseParams),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "A malformed parameter", body = ProblemDetails, content_type = "application/problem+json"),
        NoKey,
        (status = 403, description = "Not an operator", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "No operator set such a cap", body = ProblemDetails, content_type = "application/problem+json"),
        Busy,
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn delete(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(window): Id<String>,
    Params(whose): Params<WhoseParams>,
) -> Result<StatusCode, Problem> {
    let (window, agent) = (window_of(&window)?, whose.agent()?);
    change(&api, &principal, agent, window, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change(
    api: &Api,
    principal: &Principal,
    agent: Option<AgentId>,
    window: Window,
    usd: Option<Usd>,
) -> Result<Reply, Problem> {
    let now = api.now();
    let words = serde_json::json!({
        "agentId": agent,
        "window": window.to_string(),
        "usd": usd.map(|usd| usd.to_string()),
    });
    let content = content(&canonical::to_vec(&words), now);
    let command = Command {
        tenant: principal.tenant.clone(),
        at: now,
        actor: actor(principal),
        kind: Kind::SetCap(Box::new(SetCap { agent, window, usd, content })),
    };
    Ok(api.intake.ledger.handle(command).await?)
}

/// List the tenant's caps with what of each is used now: those that operators set, and of the settings'
/// the tenant's own and those of agents that spent something.
#[utoipa::path(
    get, path = "/caps", tag = "caps", operation_id = "listCaps",
    params(WhoseParams),
    responses(
        (status = 200, description = "The caps", body = CapsView),
        (status = 400, description = "A malformed parameter", body = ProblemDetails, content_type = "application/problem+json"),
        NoKey,
        (status = 403, description = "An agent's key", body = ProblemDetails, content_type = "application/problem+json"),
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn list(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Params(whose): Params<WhoseParams>,
) -> Result<axum::Json<CapsView>, Problem> {
    let agent = whose.agent()?;
    let now = api.now();
    let defaults = &api.intake.rules.caps;
    let tenant = &principal.tenant;
    let mut caps = api.store.list_caps(tenant).await?;
    for Limit { window, .. } in defaults.of(false) {
        if !caps.iter().any(|cap| cap.agent.is_none() && cap.window == window) {
            caps.push(Cap::new((tenant.clone(), None, window), None, 0, now));
        }
    }
    caps.sort_by_key(Cap::key);
    let items = caps
        .iter()
        .filter(|cap| agent.is_none() || cap.agent == agent)
        .filter_map(|cap| Some(CapView::of(cap, cap.limit(defaults)?, now)))
        .collect();
    Ok(axum::Json(CapsView { items }))
}
