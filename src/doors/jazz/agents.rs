//! The router's registrations, and what an agent's prompt is told of them (seed 004, "Handoff Router", "System Prompt
//! Enhancement").

use axum::extract::{Extension, FromRequestParts, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::client::IssuedSecrets;
use super::answer::{self, ProblemContext, answered};
use super::call::{Call, read_body};
use super::request::{Form, check};
use super::router::{SpecialistQuery, available, choose, matching};
use super::{Jazz, profile, words};
use crate::http::Api;
use crate::http::extract::Params;
use crate::http::problem::Problem;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;
use handoffd_domain::strategy::RoutingStrategy;

/// `registerAgent`: registers an agent, or changes its profile.
pub(super) async fn register(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let (given, _share) = read_body(&api, Request::from_parts(parts, body)).await?;
        check(Form::Profile, &given)?;
        let id = given["agentId"].as_str().unwrap_or_default();
        match call.client.change_agent(id, &profile::to_change(&given)).await {
            Err(refused) if refused.code() == Some(Code::NotFound) => {}
            changed => {
                changed?;
                return Ok(answer::json(StatusCode::OK, read_back(&call, id).await?));
            }
        }
        let made = call.client.register_agent(&profile::to_agent(&given)).await?;
        let IssuedSecrets { api_key, signing_secret, webhook_secret } = made;
        let mut told = read_back(&call, id).await?;
        told["apiKey"] = api_key.into();
        told["signingSecret"] = signing_secret.into();
        told["webhookSecret"] = webhook_secret.into();
        Ok(answer::json(StatusCode::CREATED, told))
    };
    Box::pin(answered(&api, "register_agent", &place, work)).await
}

/// The profile of an agent as it is now.
async fn read_back(call: &Call, id: &str) -> Result<Value, Problem> {
    let agents = call.api.intake.directory.agents(&call.principal.tenant).await?;
    let id: Option<AgentId> = id.parse().ok();
    let found = id.and_then(|id| agents.roster.find(&id).map(profile::of_agent));
    found.ok_or_else(|| Problem::not_found("agent"))
}

/// `listAvailableAgents`: those that take handoffs, and that the caller's allowlist reaches.
pub(super) async fn list(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let told = call.available().into_iter().map(profile::of_agent).collect();
        Ok(answer::json(StatusCode::OK, Value::Array(told)))
    };
    Box::pin(answered(&api, "list_agents", &place, work)).await
}

/// The search for an agent: by a capability, or by a task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FindParams {
    capability: Option<String>,
    task: Option<String>,
}

/// `findAgentForCapability` and `findAgentForTask`: the agent's profile and name, or null and `NONE`.
pub(super) async fn find(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let Params(params) = Params::<FindParams>::from_request_parts(&mut parts, &api).await?;
        let available = call.available();
        let found = match (&params.capability, &params.task) {
            (Some(kind), None) => matching(&available, SpecialistQuery { kind, required: &[] }),
            (None, Some(task)) => call.ranked(&available, task).await?,
            _ => {
                let why = "say what to find an agent for: capability=… or task=…";
                return Err(Problem::invalid(why).into());
            }
        };
        let found = choose(RoutingStrategy::FirstMatch, &found, |_| 0);
        let told = json!({
            "agent": found.map(profile::of_agent),
            "answer": found.map_or(words::NONE, |agent| agent.name.as_str()),
        });
        Ok(answer::json(StatusCode::OK, told))
    };
    Box::pin(answered(&api, "find_agent", &place, work)).await
}

/// The agent of a path.
fn agent<'a>(call: &'a Call, id: &str) -> Result<&'a Agent, Problem> {
    let id: Option<AgentId> = id.parse().ok();
    let found = id.and_then(|id| call.agents.roster.find(&id));
    found.ok_or_else(|| Problem::not_found("agent"))
}

/// The guidance for an agent's system prompt, with the specialists that it may hand off to; nothing where there are none.
pub(super) async fn guidance(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let specialists = available(&call.agents, Some(agent(&call, &id)?));
        if specialists.is_empty() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let lines: Vec<String> = specialists.into_iter().map(profile::line).collect();
        let mut response = words::guidance(&lines).into_response();
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    };
    Box::pin(answered(&api, "get_guidance", &place, work)).await
}

/// Which strategies an agent's conversations are given, and by whose word.
pub(super) async fn shares(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        Ok(answer::json(StatusCode::OK, shares_of(&call, agent(&call, &id)?)))
    };
    Box::pin(answered(&api, "get_strategies", &place, work)).await
}

fn shares_of(call: &Call, agent: &Agent) -> Value {
    let settings = call.api.config.doors.jazz.strategies;
    let (shares, from, warning) = match profile::shares(agent) {
        Ok(Some(own)) => (own, "agent", None),
        Ok(None) => (settings, "settings", None),
        Err(why) => (settings, "settings", Some(why)),
    };
    let mut told = json!({ "agentId": agent.agent_id, "strategies": shares, "from": from });
    if let Some(why) = warning {
        let pointer = "/metadata/jazz/strategies";
        told["warnings"] = json!([{
            "code": "WITHOUT_EFFECT", "pointer": pointer, "message": format!("the settings hold: {why}"),
        }]);
    }
    told
}

/// Sets the shares of an agent's own; null takes them away.
pub(super) async fn set_shares(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let (given, _share) = read_body(&api, Request::from_parts(parts, body)).await?;
        check(Form::Shares, &given)?;
        let metadata = profile::with_shares(&agent(&call, &id)?.metadata, &given["strategies"]);
        let mut wanted = Agent::new(agent(&call, &id)?.agent_id.clone());
        wanted.metadata.clone_from(&metadata);
        profile::shares(&wanted).map_err(wrong_shares)?;
        call.client.change_agent(&id, &json!({ "metadata": metadata })).await?;
        let call = call.refreshed().await?;
        Ok(answer::json(StatusCode::OK, shares_of(&call, agent(&call, &id)?)))
    };
    Box::pin(answered(&api, "set_strategies", &place, work)).await
}

fn wrong_shares(why: String) -> Problem {
    use handoffd_domain::failure::{Failure, Stage};
    let failure = Failure::new(Stage::Schema, Code::SchemaInvalid, "/strategies", why);
    Problem::refusal(vec![failure], false)
}
