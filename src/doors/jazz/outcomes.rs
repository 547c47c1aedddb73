//! Outcomes of earlier handoffs: the router's `success_rate`, and recommendations for those who choose themselves (seed 004,
//! phases 4 and 5). Read from the store at each call: nothing is kept here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, ProblemContext, answered};
use super::call::Call;
use super::router::{SpecialistQuery, matching};
use super::{Jazz, profile};
use crate::http::Api;
use crate::http::extract::Params;
use crate::http::problem::Problem;
use handoffd_domain::agent::Agent;
use handoffd_domain::ids::AgentId;
use handoffd_domain::track_record::TrackRecord;
use handoffd_store::store::HandoffFilter;

/// The newest handoffs of an agent that its record is made of.
const LOOKED_AT: i64 = 200;
/// Most agents whose records are read at once; the others count as untried.
const AGENTS: usize = 50;

type Records = HashMap<AgentId, BTreeMap<String, TrackRecord>>;

async fn records(call: &Call, agents: &[&Agent]) -> Result<Records, Problem> {
    let mut records = Records::new();
    for agent in agents.iter().take(AGENTS) {
        let target = Some(agent.agent_id.clone());
        let filter = HandoffFilter { target, ..HandoffFilter::default() };
        let tenant = &call.principal.tenant;
        let newest = call.api.store.list_handoffs(tenant, &filter, None, LOOKED_AT).await?;
        records.insert(agent.agent_id.clone(), TrackRecord::by_specialty(&newest));
    }
    Ok(records)
}

/// Puts those first whose handoffs for this specialty are expected to end well; equals stay in their order.
pub(super) async fn rank(
    call: &Call,
    agents: &mut [&Agent],
    specialty: &str,
) -> Result<(), Problem> {
    let records = records(call, agents).await?;
    let untried = TrackRecord::default();
    let expected = |agent: &Agent| {
        let own = records.get(&agent.agent_id).and_then(|own| own.get(specialty));
        own.unwrap_or(&untried).expected()
    };
    agents.sort_by(|one, other| expected(other).total_cmp(&expected(one)));
    Ok(())
}

/// For what an agent is looked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecommendationParams {
    /// A capability, specialization or tag; all that was asked for unless said.
    capability: Option<String>,
}

/// The agents that the caller may hand off to, with what came of their handoffs for each specialty; best first.
pub(super) async fn recommendations(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let place = ProblemContext::of(&parts);
    let work = async {
        let call = Call::enter(&api, &door, &parts).await?;
        let Params(params) =
            Params::<RecommendationParams>::from_request_parts(&mut parts, &api).await?;
        let told = recommended(&call, params.capability.as_deref()).await?;
        Ok(answer::json(StatusCode::OK, Value::Array(told)))
    };
    Box::pin(answered(&api, "recommend_agents", &place, work)).await
}

async fn recommended(call: &Call, capability: Option<&str>) -> Result<Vec<Value>, Problem> {
    let available = call.available();
    let mut records = records(call, &available).await?;
    // Who can do it is recommended without a record, too.
    let able = capability.map(|kind| matching(&available, SpecialistQuery { kind, required: &[] }));
    for agent in able.into_iter().flatten() {
        let own = records.entry(agent.agent_id.clone()).or_default();
        own.entry(capability.unwrap_or_default().to_owned()).or_default();
    }
    let mut found: Vec<(&Agent, &str, &TrackRecord)> = Vec::new();
    for agent in &available {
        let own = records.get(&agent.agent_id).into_iter().flatten();
        let wanted = own.filter(|(specialty, _)| capability.is_none_or(|kind| kind == *specialty));
        found.extend(wanted.map(|(specialty, record)| (*agent, specialty.as_str(), record)));
    }
    found.sort_by(|(_, _, one), (_, _, other)| other.expected().total_cmp(&one.expected()));
    found.sort_by_key(|(agent, _, _)| Reverse(agent.is_live()));
    Ok(found.into_iter().map(|(agent, specialty, record)| told(agent, specialty, record)).collect())
}

fn told(agent: &Agent, specialty: &str, record: &TrackRecord) -> Value {
    let median = record.median().and_then(|took| u64::try_from(took.as_millis()).ok());
    json!({
        "agent": profile::of_agent(agent),
        "capability": specialty,
        // A tag that an agent has handoffs for is a capability that its profile may name.
        "named": agent.can(specialty),
        "available": agent.is_live(),
        "succeeded": record.succeeded,
        "failed": record.failed,
        "successRate": record.success_rate(),
        "expectedRate": record.expected(),
        "medianDurationMs": median,
    })
}
