//! The allowlist: the agents to which an agent may hand off (specification §4.2).

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Open, Operator};
use super::extract::{Id, Ids, JsonBytes, NoBody, parse, typed};
use super::problem::{BadBody, Busy, Problem, WarningView};
use handoffd_broker::administration::allowlist::{self, TargetsChange};
use handoffd_broker::directory::{Agents, Principal};
use handoffd_domain::agent::Target;
use handoffd_domain::ids::AgentId;
use handoffd_domain::warning::Warning;
use handoffd_store::store::AgentRow;

/// Whom an agent may hand off to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetsView {
    /// The agent.
    pub agent_id: String,
    /// Agents by id, or `type:<agentType>`; empty: none.
    pub handoff_targets: Vec<String>,
    /// Entries that match no agent; they are kept, and ignored at run time.
    pub unknown_targets: Vec<String>,
    /// The same entries as warnings, each at its pointer; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

fn targets(row: &AgentRow, agents: &Agents, warnings: &[Warning]) -> axum::Json<TargetsView> {
    axum::Json(TargetsView {
        agent_id: row.agent.agent_id.to_string(),
        handoff_targets: row.agent.handoff_targets.iter().map(ToString::to_string).collect(),
        unknown_targets: agents.roster.unknown_targets(&row.agent),
        warnings: warnings.iter().map(WarningView::from).collect(),
    })
}

async fn change(
    api: &Api,
    principal: &Principal,
    id: AgentId,
    change: TargetsChange,
) -> Result<axum::Json<TargetsView>, Problem> {
    let changed = api.administration().change_targets(principal, id, change).await?;
    Ok(targets(&changed.row, &changed.agents, &changed.warnings))
}

/// Read an agent's allowlist.
#[utoipa::path(
    get, path = "/agents/{agentId}/handoff-targets", tag = "allowlist", operation_id = "getHandoffTargets",
    params(("agentId" = String, Path, description = "The agent's id")),
    responses(
        (status = 200, description = "The allowlist", body = TargetsView),
        (status = 404, description = "No such agent"),
    )
)]
pub(super) async fn get_targets(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<AgentId>,
) -> Result<axum::Json<TargetsView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let row = agents.row(&id).ok_or_else(|| Problem::not_found("agent"))?;
    Ok(targets(row, &agents, &allowlist::warnings(&agents.roster, &row.agent)))
}

/// An allowlist that replaces the present one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetsBody {
    /// Agents' ids, and `type:<agentType>` for all agents of a type.
    #[serde(alias = "handoff_targets")]
    #[schema(value_type = Vec<String>)]
    handoff_targets: Vec<Target>,
}

/// Replace an agent's allowlist.
#[utoipa::path(
    put, path = "/agents/{agentId}/handoff-targets", tag = "allowlist", operation_id = "putHandoffTargets",
    params(("agentId" = String, Path, description = "The agent's id")),
    request_body(content = TargetsBody, description = "The list; a bare array is taken too", content_type = "application/json"),
    responses(
        (status = 200, description = "The allowlist as it is now", body = TargetsView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent"),
        BadBody,
        (status = 422, description = "Not a list of targets"),
        Busy,
    )
)]
pub(super) async fn put_targets(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<AgentId>,
    body: JsonBytes,
) -> Result<axum::Json<TargetsView>, Problem> {
    let value = match serde_json::from_slice::<Value>(&body.bytes) {
        // The strict parser takes objects only; a bare list is wrapped.
        Ok(Value::Array(list)) => json!({ "handoffTargets": list }),
        _ => parse(body.bytes.clone()).await?,
    };
    let TargetsBody { handoff_targets } = typed(value)?;
    change(&api, &principal, id, TargetsChange::Replace(handoff_targets)).await
}

macro_rules! one_target {
    ($(#[$doc:meta])* $name:ident, $method:ident, $operation:literal, $change:path) => {
        $(#[$doc])*
        #[utoipa::path(
            $method, path = "/agents/{agentId}/handoff-targets/{target}", tag = "allowlist", operation_id = $operation,
            params(
                ("agentId" = String, Path, description = "The agent's id"),
                ("target" = String, Path, description = "An agent's id, or `type:<agentType>`"),
            ),
            responses(
                (status = 200, description = "The allowlist as it is now", body = TargetsView),
                (status = 403, description = "Not an operator"),
                (status = 404, description = "No such agent, or not a target"),
                (status = 422, description = "The list is full"),
                Busy,
            )
        )]
        pub(super) async fn $name(
            State(api): State<Api>,
            Operator(principal): Operator,
            Ids(id, target): Ids<AgentId, Target>,
            _: NoBody,
        ) -> Result<axum::Json<TargetsView>, Problem> {
            change(&api, &principal, id, $change(target)).await
        }
    };
}

one_target!(
    /// Add one entry to an agent's allowlist.
    add_target, post, "addHandoffTarget", TargetsChange::Add
);
one_target!(
    /// Take one entry out of an agent's allowlist.
    remove_target, delete, "removeHandoffTarget", TargetsChange::Remove
);

/// The whole allowlist as a graph.
#[utoipa::path(
    get, path = "/allowlist", tag = "allowlist", operation_id = "getAllowlist",
    responses(
        (status = 200, description = "Every agent, and every entry of every list", body = AllowlistView),
    )
)]
pub(super) async fn graph(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
) -> Result<axum::Json<AllowlistView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let roster = &agents.roster;
    let nodes = roster.iter().map(|agent| NodeView {
        agent_id: agent.agent_id.to_string(),
        agent_type: agent.agent_type.clone(),
    });
    let edges = roster
        .iter()
        .flat_map(|agent| agent.handoff_targets.iter().map(move |target| (agent, target)))
        .map(|(agent, target)| {
            let resolved = allowlist::named(roster, target);
            EdgeView {
                source: agent.agent_id.to_string(),
                target: target.to_string(),
                unknown: resolved.is_empty(),
                resolved: resolved.into_iter().map(ToString::to_string).collect(),
            }
        });
    Ok(axum::Json(AllowlistView { nodes: nodes.collect(), edges: edges.collect() }))
}

/// The allowlists of all agents, as a graph.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllowlistView {
    /// The agents.
    nodes: Vec<NodeView>,
    /// The entries of their allowlists.
    edges: Vec<EdgeView>,
}

/// An agent as a node of the allowlist's graph.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Id of the agent.
    agent_id: String,
    /// Its type.
    agent_type: String,
}

/// An entry of an allowlist.
#[derive(Debug, Serialize, ToSchema)]
pub struct EdgeView {
    /// The agent whose allowlist it is.
    source: String,
    /// An id, or `type:<agentType>`.
    target: String,
    /// The agents that it names now.
    resolved: Vec<String>,
    /// Whether it matches no agent.
    unknown: bool,
}
