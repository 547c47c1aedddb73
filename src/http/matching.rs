//! Finding a receiver: `/agents/match`, and the tools by which a model hands off (specification §4.1).

use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Caller;
use super::extract::{Id, Params};
use super::layer::Door;
use super::problem::Problem;
use super::schemas::JsonSchema;
use super::sorted::Sorted;
use handoffd_broker::intake::matching::{MatchedAgents, WantedAgent};
use handoffd_domain::handoff_tool::{Style, tools};
use handoffd_domain::ids::AgentId;

/// Most agents in an answer.
const SHOWN: usize = 50;

/// Query of a match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MatchParams {
    /// Agents that can do this.
    capability: Option<String>,
    /// Agents whose names, capabilities, description or examples fit this text.
    task: Option<String>,
}

/// Agents that could take something, best first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchView {
    /// The agents.
    pub items: Vec<MatchedAgent>,
    /// The ranking in use: `capability`, `text`, or the name of the matcher.
    pub ranked_by: String,
}

/// An agent that could take something.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchedAgent {
    /// Id of the agent that matches.
    pub agent_id: String,
    /// Its type.
    pub agent_type: String,
    /// Its version.
    pub agent_version: String,
    /// Its name for people.
    pub name: String,
    /// The purpose of the agent.
    pub description: String,
    /// It takes work now.
    pub live: bool,
    /// How well it fits; compares within one answer.
    pub score: f64,
}

/// Tools for a language model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolsView {
    /// The tools, in the form that was asked for.
    #[schema(value_type = Vec<HandoffTool>)]
    pub tools: Vec<Value>,
}

/// A tool in one of the forms.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum HandoffTool {
    /// As OpenAI's chat completions take it.
    OpenAi(OpenAiTool),
    /// As Anthropic's messages take it.
    Anthropic(AnthropicTool),
    /// As the Model Context Protocol's `tools/list` gives it.
    Mcp(McpTool),
}

/// A tool as OpenAI's chat completions take it.
#[derive(Serialize, ToSchema)]
pub struct OpenAiTool {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function.
    pub function: OpenAiFunction,
}

/// A function as OpenAI's chat completions take it.
#[derive(Serialize, ToSchema)]
pub struct OpenAiFunction {
    /// Its name.
    pub name: String,
    /// When to call it.
    pub description: String,
    /// The schema of its arguments.
    pub parameters: JsonSchema,
}

/// A tool as Anthropic's messages take it.
#[derive(Serialize, ToSchema)]
pub struct AnthropicTool {
    /// Its name.
    pub name: String,
    /// When to call it.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: JsonSchema,
}

/// A tool as the Model Context Protocol's `tools/list` gives it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpTool {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// When to call it.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: JsonSchema,
}

/// Find agents that could take something, best first: who takes work now, then by relevance to the task
/// (a matcher's where one is set and answers, else BM25), then by version.
#[utoipa::path(
    get, path = "/agents/match", tag = "agents", operation_id = "matchAgents",
    params(MatchParams),
    responses(
        (status = 200, description = "The agents, fifty at most", body = MatchView),
        (status = 400, description = "Neither capability nor task"),
    )
)]
pub(super) async fn find_match(
    State(api): State<Api>,
    Caller(principal): Caller,
    door: Option<Extension<Door>>,
    Params(params): Params<MatchParams>,
) -> Result<Sorted<MatchView>, Problem> {
    let wanted = WantedAgent {
        capability: params.capability.as_deref(),
        task: params.task.as_deref(),
        // A door shows an agent those to which it may hand off.
        reachable_only: door.is_some(),
    };
    let matched = api.intake.matching_agents(&principal, api.matcher.as_deref(), wanted).await?;
    let MatchedAgents { agents, ranking, ranked_by } = matched;
    let shown = ranking.iter().take(SHOWN);
    let items = shown.filter_map(|(score, id)| {
        let agent = agents.roster.find(id)?;
        Some(MatchedAgent {
            agent_id: agent.agent_id.to_string(),
            agent_type: agent.agent_type.clone(),
            agent_version: agent.agent_version.to_string(),
            name: agent.name.clone(),
            description: agent.description.clone(),
            live: agent.is_live(),
            score: *score,
        })
    });
    Ok(Sorted(MatchView { items: items.collect(), ranked_by }))
}

/// Query of a tool.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ToolParams {
    /// `openai` (chat completions), `anthropic` (messages) or `mcp` (tools/list).
    #[param(inline)]
    style: Style,
}

/// Tool definitions for an agent's language model: `transfer_to_agent` and `handoff_to_specialist`, their
/// targets enumerated from the agent's allowlist, and the tools that contracts of its edges name
/// (`trigger.tool_call`). Without anybody to hand off to there are none, so that
/// the model never sees the choice (seed 003).
#[utoipa::path(
    get, path = "/agents/{agentId}/handoff-tool", tag = "agents", operation_id = "getHandoffTool",
    params(("agentId" = String, Path, description = "The agent's id"), ToolParams),
    responses(
        (status = 200, description = "The tools in that form; none if the agent reaches no other agent", body = ToolsView),
        (status = 400, description = "No style, or an unknown one"),
        (status = 404, description = "No such agent"),
    )
)]
pub(super) async fn handoff_tool(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<AgentId>,
    Params(params): Params<ToolParams>,
) -> Result<Sorted<ToolsView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let contracts = api.intake.directory.contracts(&principal.tenant).await?;
    let agent = agents.roster.find(&id).ok_or_else(|| Problem::not_found("agent"))?;
    let named = contracts.tools_of(agent, api.now());
    Ok(Sorted(ToolsView { tools: tools(agent, &agents.roster, &named, params.style) }))
}
