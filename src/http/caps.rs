//! `/caps`: what a tenant and its agents may spend within a window (docs/budget.md).

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Open, Operator};
use super::extract::{Id, Json, NoBody, Params};
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use handoffd_broker::administration::caps::CapScope;
use handoffd_domain::cap::{Cap, Defaults, Unit, Window};
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::money::Usd;

/// A cap, and what of it is used now. Amounts are decimal US dollars, exactly.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapView {
    /// Whose; absent: the whole tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// How long what was spent counts, an ISO 8601 duration.
    pub window: String,
    /// Money that may count against it; absent: it holds no money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<String>,
    /// The money comes from the settings; else an operator set it.
    pub default: bool,
    /// Spent within the window that ends now.
    #[serde(rename = "spentUSD")]
    pub spent: String,
    /// Reserved by open handoffs.
    #[serde(rename = "reservedUSD")]
    pub reserved: String,
    /// The remainder; never less than nothing.
    #[serde(rename = "leftUSD", skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// How many tokens may count against it; absent: it holds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The tokens come from the settings; else an operator set them.
    pub default_tokens: bool,
    /// Tokens spent within the window that ends now, where it holds any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent_tokens: Option<u64>,
    /// Tokens that are left; never less than none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_tokens: Option<u64>,
    /// The parts of the cap that do not hold as they read, in the answer to its change; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

impl CapView {
    /// `None` for a cap without limits.
    fn of(cap: &Cap, defaults: &Defaults, now: Micros) -> Option<Self> {
        let (limit, tokens) = (cap.limit(defaults), cap.token_limit(defaults));
        if limit.is_none() && tokens.is_none() {
            return None;
        }
        let left = |limit: Usd| Usd(limit.minus(cap.used(now)).0.max(0)).to_string();
        Some(Self {
            agent_id: cap.agent.as_ref().map(ToString::to_string),
            window: cap.window.to_string(),
            usd: limit.map(|limit| limit.to_string()),
            default: limit.is_some() && cap.usd.is_none(),
            spent: cap.spent(now).to_string(),
            reserved: cap.reserved().to_string(),
            left: limit.map(left),
            tokens,
            default_tokens: tokens.is_some() && cap.tokens().is_none(),
            spent_tokens: tokens.map(|_| cap.spent_tokens(now)),
            left_tokens: tokens.map(|tokens| tokens.saturating_sub(cap.spent_tokens(now))),
            warnings: Vec::new(),
        })
    }
}

/// All caps of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct CapsView {
    /// The tenant's own first, then by agent; each by window.
    pub items: Vec<CapView>,
}

/// How much, of at least one of both; what is not said stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CapBody {
    /// Decimal US dollars, as text so that they are exact: `"100.00"`.
    usd: Option<String>,
    /// Tokens, read and written.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    tokens: Option<u64>,
}

/// Query of a cap's scope.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct WhoseParams {
    /// This agent's; the whole tenant's unless said.
    #[param(value_type = Option<String>)]
    agent_id: Option<String>,
}

/// Query of the limits to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
    /// This agent's; the whole tenant's unless said.
    #[param(value_type = Option<String>)]
    agent_id: Option<String>,
    /// `usd` or `tokens`: only what it holds of that; all of it unless said.
    unit: Option<String>,
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

/// Set a cap: what the tenant, or one of its agents, may spend within a window that moves on. Spending that
/// counts already goes on counting, money and tokens alike; if there was no cap for that window, it begins
/// empty.
#[utoipa::path(
    put, path = "/caps/{window}", tag = "caps", operation_id = "putCap",
    params(("window" = String, Path, description = "An ISO 8601 duration from PT1M to P31D"), WhoseParams),
    request_body = CapBody,
    responses(
        (status = 200, description = "The cap as it is now", body = CapView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn put(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(window): Id<String>,
    Params(whose): Params<WhoseParams>,
    Json(body): Json<CapBody>,
) -> Result<axum::Json<CapView>, Problem> {
    let (window, agent) = (window_of(&window)?, whose.agent()?);
    let CapBody { usd, tokens } = body;
    let usd = usd.map(|usd| usd.parse::<Usd>()).transpose();
    let usd = usd.map_err(|err| wrong("/usd", err.to_string()))?;
    let (administration, scope) = (api.administration(), CapScope { agent, window });
    let (cap, warnings) = administration.set_cap(&principal, scope, usd, tokens).await?;
    let view = CapView::of(&cap, &api.intake.rules.caps, api.now());
    let view = view.ok_or_else(|| Problem::not_found("cap"))?;
    let warnings = warnings.iter().map(WarningView::from).collect();
    Ok(axum::Json(CapView { warnings, ..view }))
}

/// Take a cap away, or its limit for one unit. If the settings have one for that window, it counts again.
#[utoipa::path(
    delete, path = "/caps/{window}", tag = "caps", operation_id = "deleteCap",
    params(("window" = String, Path, description = "An ISO 8601 duration from PT1M to P31D"), RemoveParams),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No operator set such a cap"),
        Busy,
    )
)]
pub(super) async fn delete(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(window): Id<String>,
    Params(RemoveParams { agent_id, unit }): Params<RemoveParams>,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    let (window, agent) = (window_of(&window)?, WhoseParams { agent_id }.agent()?);
    let unit = match unit.as_deref() {
        None => None,
        Some("usd") => Some(Unit::Usd),
        Some("tokens") => Some(Unit::Tokens),
        Some(_) => return Err(Problem::invalid("unit can be: usd, tokens")),
    };
    let scope = CapScope { agent, window };
    api.administration().remove_cap(&principal, scope, unit).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the tenant's caps with what of each is used now: those that operators set, and of the settings'
/// the tenant's own and those of agents that spent something.
#[utoipa::path(
    get, path = "/caps", tag = "caps", operation_id = "listCaps",
    params(WhoseParams),
    responses(
        (status = 200, description = "The caps", body = CapsView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(whose): Params<WhoseParams>,
) -> Result<axum::Json<CapsView>, Problem> {
    let agent = whose.agent()?;
    let now = api.now();
    let defaults = &api.intake.rules.caps;
    let caps = api.administration().caps(&principal.tenant, now).await?;
    let items = caps
        .iter()
        .filter(|cap| agent.is_none() || cap.agent == agent)
        .filter_map(|cap| CapView::of(cap, defaults, now))
        .collect();
    Ok(axum::Json(CapsView { items }))
}
