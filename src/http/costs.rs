//! `GET /costs`: what was spent, by day, edge and agent.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Open};
use super::extract::{Params, parameter, time_parameter};
use super::problem::{Busy, Problem};
use super::users::user_parameter;
use handoffd_broker::costs::{CostError, CostQuery};
use handoffd_domain::ids::Micros;
use handoffd_domain::money::Usd;
use handoffd_evidence::account::SpentTokens;
use handoffd_evidence::costs::{CostFilter, CostKey, CostLine, CostTable};

/// The most lines of an answer.
const MAX_LINES: usize = 50_000;

/// Which costs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CostsParams {
    /// Only what was said at this time or later, RFC 3339.
    from: Option<String>,
    /// Only what was said before this time, RFC 3339.
    to: Option<String>,
    /// Only what this agent spent.
    agent_id: Option<String>,
    /// Only on edges from this agent.
    from_agent: Option<String>,
    /// Only on edges to this agent.
    to_agent: Option<String>,
    /// Only on this task.
    task_id: Option<String>,
    /// Only of handoffs for the user with this reference; `POST /users/search` gives it.
    user_ref: Option<String>,
}

/// An agent's spending on an edge on a day.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostLineView {
    /// The day on which it was said, UTC.
    pub day: String,
    /// Id of the edge's sender.
    pub from_agent_id: String,
    /// Id of the edge's receiver.
    pub to_agent_id: String,
    /// Id of the agent that spent it: the sender or the receiver.
    pub agent_id: String,
    /// US dollars that it spent.
    #[serde(rename = "spentUSD")]
    #[schema(value_type = f64)]
    pub spent: Usd,
    /// Tokens that it used.
    pub tokens: SpentTokens,
    /// Handoffs that it sent on the edge.
    pub handoffs: u64,
}

impl From<(&CostKey, &CostLine)> for CostLineView {
    fn from((key, line): (&CostKey, &CostLine)) -> Self {
        let CostKey { day, source, target, agent } = key.clone();
        Self {
            day,
            from_agent_id: source,
            to_agent_id: target,
            agent_id: agent,
            spent: line.spent.usd,
            tokens: line.spent.into(),
            handoffs: line.handoffs,
        }
    }
}

/// All lines together.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostTotalView {
    /// US dollars.
    #[serde(rename = "spentUSD")]
    #[schema(value_type = f64)]
    pub spent: Usd,
    /// Tokens.
    pub tokens: SpentTokens,
    /// Handoffs.
    pub handoffs: u64,
}

/// Costs by day, edge and agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostsView {
    /// One line for each day, edge and agent, in that order.
    pub items: Vec<CostLineView>,
    /// All lines together.
    pub total: CostTotalView,
    /// Handoffs of versions before 0.2, whose records do not state what was spent: they count as handoffs, and as 0 dollars.
    pub unbooked: u64,
}

impl From<&CostTable> for CostsView {
    fn from(table: &CostTable) -> Self {
        let CostLine { spent, handoffs, unbooked } = table.total();
        Self {
            items: table.lines().map(CostLineView::from).collect(),
            total: CostTotalView { spent: spent.usd, tokens: spent.into(), handoffs },
            unbooked,
        }
    }
}

/// Spending by day, edge and agent, from the records: the same figures as those of the tasks. Each amount counts on the day
/// of its report, in UTC. One request reads a million records at most.
#[utoipa::path(
    get, path = "/costs", tag = "tasks", operation_id = "listCosts",
    params(CostsParams),
    responses(
        (status = 200, description = "The lines, and all together", body = CostsView),
        (status = 400, description = "A malformed parameter, or too much for one answer: ask for a shorter window"),
        (status = 403, description = "An agent's key"),
        Busy,
    )
)]
pub(super) async fn costs(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(params): Params<CostsParams>,
) -> Result<axum::Json<CostsView>, Problem> {
    let query = CostQuery {
        from: time_parameter("from", params.from.as_deref())?.unwrap_or(Micros(i64::MIN)),
        until: time_parameter("to", params.to.as_deref())?.unwrap_or(Micros(i64::MAX)),
        task: parameter("taskId", params.task_id.as_deref())?,
        user: user_parameter(params.user_ref)?,
        of: CostFilter {
            agent: parameter("agentId", params.agent_id.as_deref())?,
            source: parameter("fromAgent", params.from_agent.as_deref())?,
            target: parameter("toAgent", params.to_agent.as_deref())?,
        },
    };
    let table = match api.costs.table(&principal.tenant, &query).await {
        Ok(table) => table,
        Err(CostError::Store(err)) => return Err(err.into()),
        Err(err @ CostError::TooMuch(_)) => return Err(Problem::invalid(err.to_string())),
    };
    let view = CostsView::from(&table);
    if view.items.len() > MAX_LINES {
        let why = format!("more than {MAX_LINES} lines: ask for a shorter window, or one agent");
        return Err(Problem::invalid(why));
    }
    Ok(axum::Json(view))
}
