//! Who is shown which card: `/.well-known/agent-card.json` below an agent's address, and at the root for the default agent; and
//! the keys that cards are signed with.

use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{Extension, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answer::refused;
use super::call::Call;
use super::card::{add_skills, card, entity_tag, extended as more, signed, web_key};
use super::error::{A2aError, ErrorKind, Refused};
use super::{A2a, agent_row, count};
use crate::http::auth::OptionalCaller;
use crate::http::problem::Problem;
use crate::http::{Api, authority};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::TenantId;
use handoffd_store::store::AgentRow;

/// The address by which the client reaches the broker.
pub(super) fn base(api: &Api, parts: &Parts) -> String {
    if let Some(url) = &api.config.server.public_url {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    let host = authority::of_parts(parts).ok().flatten();
    format!("http://{}", host.unwrap_or("localhost"))
}

/// The card of an agent for its clients with a key.
pub(super) async fn extended(call: &Call) -> Result<Value, Refused> {
    let agent = &call.agent.agent;
    let mut extended = more(card(agent, &call.card, &call.base), agent);
    if let Some(id) = &call.principal.agent {
        if !call.reached_by(id) {
            let why = "the client's allowlist does not reach this agent";
            return Err(Problem::new(Code::Forbidden, why).into());
        }
        let contracts = call.api.intake.directory.contracts(&call.principal.tenant).await;
        let contracts = contracts.map_err(Call::away)?;
        if let Some(own) = call.agents.roster.find(id) {
            add_skills(&mut extended, agent, &contracts.tools_of(own, call.api.now()));
        }
    }
    Ok(signed(extended, &call.api.notary, &call.base))
}

/// `GET /a2a/{agentId}/.well-known/agent-card.json`.
pub(super) async fn of_agent(
    State(api): State<Api>,
    Extension(door): Extension<A2a>,
    Path(agent): Path<String>,
    caller: Result<OptionalCaller, Problem>,
    parts: Parts,
) -> Response {
    show(&api, &door, &agent, caller, &parts).await
}

/// `GET /.well-known/agent-card.json`.
pub(super) async fn of_default(
    State(api): State<Api>,
    Extension(door): Extension<A2a>,
    caller: Result<OptionalCaller, Problem>,
    parts: Parts,
) -> Response {
    let agent = api.config.doors.a2a.default_agent.clone();
    if agent.is_empty() {
        return Problem::not_found("agent card").into_response();
    }
    show(&api, &door, &agent, caller, &parts).await
}

async fn show(
    api: &Api,
    door: &A2a,
    agent: &str,
    caller: Result<OptionalCaller, Problem>,
    parts: &Parts,
) -> Response {
    let found = match (door.names.check(parts), caller) {
        (Err(problem), _) | (_, Err(problem)) => Err(problem.into()),
        (Ok(()), Ok(OptionalCaller(caller))) => find(api, agent, caller).await,
    };
    let outcome = match &found {
        Ok(_) => "ok",
        Err(error) => error.outcome(),
    };
    count(api, "get_agent_card", outcome);
    match found {
        Ok((row, public)) => told(api, &row, public, parts),
        Err(error) => refused(&error, &parts.headers),
    }
}

/// An agent whose card the caller may see, and whether it sees it without a key. An agent sees those that its allowlist reaches, and
/// its own.
async fn find(
    api: &Api,
    agent: &str,
    caller: Option<handoffd_broker::directory::Principal>,
) -> Result<(AgentRow, bool), Refused> {
    let none = || Refused::from(Problem::not_found("agent card"));
    let Some(principal) = caller else {
        let tenant: Option<TenantId> = api.config.doors.a2a.public_tenant.parse().ok();
        if let Some(tenant) = tenant
            && let Ok(row) = agent_row(api, &tenant, agent).await
            && row.agent.card.as_ref().is_some_and(|card| card.public)
        {
            return Ok((row, true));
        }
        // Without a key the answer does not reveal whether the agent exists.
        let why = "this card needs a key of the agent's tenant";
        return Err(Problem::new(Code::Unauthenticated, why).into());
    };
    let row = agent_row(api, &principal.tenant, agent).await?;
    if row.agent.card.is_none() {
        return Err(none());
    }
    if let Some(own) = &principal.agent {
        let agents = api.intake.directory.agents(&principal.tenant).await.map_err(Call::away)?;
        let reached = agents.roster.find(own).is_some_and(|own| own.may_hand_off_to(&row.agent));
        if !reached && *own != row.agent.agent_id {
            return Err(none());
        }
    }
    Ok((row, false))
}

fn told(api: &Api, row: &AgentRow, public: bool, parts: &Parts) -> Response {
    let headers = &parts.headers;
    let base = base(api, parts);
    let Some(said) = &row.agent.card else {
        return refused(&A2aError::new(ErrorKind::Internal, "no card"), headers);
    };
    let card = signed(card(&row.agent, said, &base), &api.notary, &base);
    let tag = entity_tag(&card);
    let seconds = u64::try_from(row.updated_at.seconds()).unwrap_or(0);
    let changed = UNIX_EPOCH + Duration::from_secs(seconds);
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let same = match text(header::IF_NONE_MATCH) {
        Some(tags) => tags
            .split(',')
            .any(|one| [tag.as_str(), "*"].contains(&one.trim().trim_start_matches("W/"))),
        None => text(header::IF_MODIFIED_SINCE)
            .and_then(|text| httpdate::parse_http_date(text).ok())
            .is_some_and(|since| changed <= since),
    };
    let age = api.config.doors.a2a.card_max_age_s;
    let scope = if public { "public" } else { "private" };
    let mut response = if same {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        axum::Json(card).into_response()
    };
    let values = [
        (header::ETAG, tag),
        (header::LAST_MODIFIED, httpdate::fmt_http_date(changed)),
        (header::CACHE_CONTROL, format!("{scope}, max-age={age}")),
        (header::VARY, "Authorization, X-API-Key".to_owned()),
    ];
    for (name, value) in values {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// `GET /.well-known/jwks.json`: the keys of cards, current and retired, as a JSON Web Key Set.
pub(super) async fn keys(State(api): State<Api>) -> Result<Response, Problem> {
    let mut keys: Vec<Value> = api
        .store
        .list_tree_keys()
        .await?
        .iter()
        .filter(|row| row.retired_at.is_none())
        .map(|row| web_key(&row.public))
        .collect();
    let own = web_key(&api.notary.public_bytes());
    if !keys.contains(&own) {
        keys.push(own);
    }
    let age = format!("public, max-age={}", api.config.doors.a2a.card_max_age_s);
    Ok(([(header::CACHE_CONTROL, age)], axum::Json(json!({ "keys": keys }))).into_response())
}
