//! Finding a receiver: `/agents/match`, and the tools by which a model hands off (specification §4.1).

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Caller;
use super::extract::{Id, Params};
use super::layer::Door;
use super::problem::Problem;
use super::schemas::JsonSchema;
use handoffd_broker::directory::{Agents, Ranking};
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::failure::Code;
use handoffd_core::domain::handoff_tool::{Style, reachable, tools};
use handoffd_core::domain::ids::AgentId;

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
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct MatchView {
    /// The agents.
    pub items: Vec<MatchedAgent>,
    /// The ranking in use: `capability`, `text`, or the name of the matcher.
    pub ranked_by: String,
}

/// An agent that could take something.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct MatchedAgent {
    /// Id of the agent that matches.
    pub agent_id: String,
    /// Its type.
    pub agent_type: String,
    /// Its version.
    pub agent_version: String,
    /// Its name for people.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// It takes work now.
    pub live: bool,
    /// How well it fits; compares within one answer.
    pub score: f64,
}

/// Tools for a language model.
#[derive(ToSchema)]
pub struct ToolsView {
    /// The tools, in the form that was asked for.
    pub tools: Vec<HandoffTool>,
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
) -> Result<axum::Json<Value>, Problem> {
    if params.capability.is_none() && params.task.is_none() {
        return Err(Problem::invalid("say what to match: capability=… or task=…"));
    }
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    // A door shows an agent whom it may hand off to: others must not take the places of those.
    let reached: Option<HashSet<&AgentId>> =
        principal.agent.as_ref().filter(|_| door.is_some()).map(|id| {
            let own = agents.roster.find(id);
            let reached = own.map(|own| reachable(own, &agents.roster)).unwrap_or_default();
            reached.into_iter().map(|agent| &agent.agent_id).collect()
        });
    let eligible = |agent: &Agent| {
        let able = |wanted: &String| agent.can(wanted);
        agent.accepts_handoffs
            && params.capability.as_ref().is_none_or(able)
            && reached.as_ref().is_none_or(|reached| reached.contains(&agent.agent_id))
    };
    let (ranked, ranked_by) = match params.task {
        None => {
            let able = agents.roster.iter().filter(|agent| eligible(agent));
            (able.map(|agent| (1.0, agent.agent_id.clone())).collect(), "capability")
        }
        Some(ref task) => {
            let mut by_text = by_text(&agents, task).await?;
            by_text.retain(|(_, id)| agents.roster.find(id).is_some_and(eligible));
            ask_matcher(&api, task, &agents, eligible, by_text).await
        }
    };
    let mut found: Vec<(f64, &Agent)> =
        ranked.iter().filter_map(|(score, id)| Some((*score, agents.roster.find(id)?))).collect();
    found.sort_by(|a, b| {
        b.1.is_live()
            .cmp(&a.1.is_live())
            .then_with(|| b.0.total_cmp(&a.0))
            .then_with(|| b.1.agent_version.pre.is_empty().cmp(&a.1.agent_version.pre.is_empty()))
            .then_with(|| b.1.agent_version.cmp_precedence(&a.1.agent_version))
            .then_with(|| a.1.agent_id.cmp(&b.1.agent_id))
    });
    let items: Vec<Value> = found
        .into_iter()
        .take(SHOWN)
        .map(|(score, agent)| {
            json!({
                "agentId": agent.agent_id,
                "agentType": agent.agent_type,
                "agentVersion": agent.agent_version,
                "name": agent.name,
                "description": agent.description,
                "live": agent.is_live(),
                "score": score,
            })
        })
        .collect();
    Ok(axum::Json(json!({ "items": items, "rankedBy": ranked_by })))
}

/// Agents by text relevance.
async fn by_text(agents: &Arc<Agents>, task: &str) -> Result<Ranking, Problem> {
    let (agents, task) = (Arc::clone(agents), task.to_owned());
    // An index over thousands of agents takes a while to make, once for each change of theirs.
    let ranking = tokio::task::spawn_blocking(move || {
        let ranked = agents.relevance().rank(&task);
        ranked.into_iter().map(|(score, id)| (score, id.clone())).collect()
    });
    ranking.await.map_err(|_| Problem::new(Code::Internal, "the agents were not ranked"))
}

/// What the matcher says, where there is one and it answers; else the ranking by text. It is shown whom that
/// found, then others that take work now: a model understands what shares no word.
async fn ask_matcher<'a>(
    api: &'a Api,
    task: &str,
    agents: &Agents,
    eligible: impl Fn(&Agent) -> bool,
    by_text: Ranking,
) -> (Ranking, &'a str) {
    const TEXT: &str = "text";
    let Some(matcher) = &api.matcher else { return (by_text, TEXT) };
    let found: HashSet<&AgentId> = by_text.iter().map(|(_, id)| id).collect();
    let others = agents
        .roster
        .iter()
        .filter(|agent| agent.is_live() && eligible(agent) && !found.contains(&agent.agent_id));
    let shown: Vec<&Agent> = by_text
        .iter()
        .filter_map(|(_, id)| agents.roster.find(id))
        .chain(others)
        .take(matcher.most())
        .collect();
    if shown.is_empty() {
        return (by_text, TEXT);
    }
    let answers = &api.metrics.matcher_answers;
    match matcher.rank(task, &shown).await {
        Ok(ranking) => {
            answers.with_label_values(&["ranked"]).inc();
            (ranking, matcher.name())
        }
        Err(why) => {
            answers.with_label_values(&["none"]).inc();
            tracing::warn!(matcher = matcher.name(), error = why, "the matcher did not answer");
            (by_text, TEXT)
        }
    }
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
        (status = 200, description = "The tools in that form; none where the agent reaches nobody", body = ToolsView),
        (status = 400, description = "No style, or an unknown one"),
        (status = 404, description = "No such agent"),
    )
)]
pub(super) async fn handoff_tool(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<AgentId>,
    Params(params): Params<ToolParams>,
) -> Result<axum::Json<Value>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let contracts = api.intake.directory.contracts(&principal.tenant).await?;
    let agent = agents.roster.find(&id).ok_or_else(|| Problem::not_found("agent"))?;
    let named = contracts.tools_of(agent, api.now());
    Ok(axum::Json(json!({ "tools": tools(agent, &agents.roster, &named, params.style) })))
}
