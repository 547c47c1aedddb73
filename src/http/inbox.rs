//! `GET /agents/{agentId}/inbox`: pull receivers long-poll for their handoffs (specification §3).

use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::AgentCaller;
use super::extract::{Id, Params};
use super::handoffs::not_the_receiver;
use super::problem::{Busy, Problem};
use super::results;
use handoffd_broker::ledger::command::{Command, Kind, Lease, Outcome, Reply, Settle};
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::{AgentId, Micros};
use handoffd_core::evidence::record::Actor;
use handoffd_core::gate::schema::older::SCHEMA_UNREADABLE;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::Claim;

/// Polls of one inbox at once: all of them are woken for each handoff.
const MAX_POLLS: usize = 32;

/// Query of the inbox.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InboxParams {
    /// Seconds to wait for a handoff when there is none, up to 60.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
    /// Handoffs to claim at most, 1 to 100; 1 unless said.
    #[param(minimum = 1, maximum = 100)]
    max: Option<i64>,
}

/// One claimed handoff.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxItem {
    /// The handoff.
    pub handoff_id: String,
    /// Its task.
    pub task_id: String,
    /// Counts claims, from 1.
    pub attempt: i32,
    /// Give this back with the verdict.
    pub fencing_token: i64,
    /// Without a verdict by then, RFC 3339, the handoff returns to the inbox.
    pub claimed_until: String,
    /// Without a verdict by then, RFC 3339, the handoff expires: the time runs from its first claim on. Absent
    /// where a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict_by: Option<String>,
    /// W3C trace context.
    pub traceparent: String,
    /// What vendors say of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tracestate: String,
    /// The message.
    #[schema(value_type = super::views::StoredMessage)]
    pub message: Value,
}

/// A task that came back: a receiver completed a handoff whose sender asked for the task's return.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReturnItem {
    /// The completed handoff.
    pub handoff_id: String,
    /// The task that came back.
    pub task_id: String,
    /// The agent that completed the handoff.
    pub completed_by: String,
    /// When it did, RFC 3339.
    pub returned_at: String,
    /// Unless the agent hands the task on, completes or cancels it by then, RFC 3339, the item comes again.
    pub claimed_until: String,
    /// What the receiver said at `/complete`; absent where it said nothing, or that was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub completion: Option<Value>,
}

/// What was claimed.
#[derive(Debug, Serialize, ToSchema)]
pub struct InboxView {
    /// The most urgent first, then the oldest; empty when the wait ran out.
    pub items: Vec<InboxItem>,
    /// Tasks that came back to this agent, the oldest first; absent for none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<ReturnItem>,
}

/// Claim handoffs; waits for one where there is none.
#[utoipa::path(
    get, path = "/agents/{agentId}/inbox", tag = "inbox", operation_id = "pollInbox",
    params(("agentId" = String, Path, description = "The agent's id"), InboxParams),
    responses(
        (status = 200, description = "What was claimed", body = InboxView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "Not this agent's key"),
        (status = 429, description = "The agent polls too often at once"),
        (status = 409, description = "The agent takes its handoffs by webhook"),
        Busy,
    )
)]
pub async fn poll(
    State(api): State<Api>,
    caller: AgentCaller,
    Id(id): Id<AgentId>,
    Params(params): Params<InboxParams>,
) -> Result<axum::Json<InboxView>, Problem> {
    if id != caller.id {
        return Err(not_the_receiver());
    }
    let max = params.max.unwrap_or(1);
    if !(1..=100).contains(&max) {
        return Err(Problem::invalid("max must be between 1 and 100"));
    }
    let wait = Duration::from_secs(params.wait.unwrap_or(0).min(60));
    let deadline = tokio::time::Instant::now() + wait;
    let receiver = (caller.principal.tenant.clone(), id);
    // Registered before the store is asked, so that no handoff falls between.
    let mut watch =
        api.intake.ledger.watch_inbox(receiver.clone(), MAX_POLLS).ok_or_else(|| Problem {
            status: axum::http::StatusCode::TOO_MANY_REQUESTS,
            ..Problem::new(
                handoffd_core::domain::failure::Code::Overloaded,
                format!("this agent polls its inbox {MAX_POLLS} times at once already"),
            )
        })?;
    loop {
        let items = claim(&api, &caller, &receiver, max).await?;
        let returns = match returned(&api, &receiver, max).await {
            // What was leased must not go with it.
            Err(_) if !items.is_empty() => Vec::new(),
            returns => returns?,
        };
        let any = !items.is_empty() || !returns.is_empty();
        if any || tokio::time::Instant::now() >= deadline {
            return Ok(axum::Json(InboxView { items, returns }));
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = api.stopping.cancelled() => return Ok(axum::Json(InboxView { items: vec![], returns: vec![] })),
        }
    }
}

/// Returns for this agent. What fails here comes again once the claim has run out.
async fn returned(
    api: &Api,
    receiver: &handoffd_store::store::ReceiverKey,
    max: i64,
) -> Result<Vec<ReturnItem>, Problem> {
    let now = api.now();
    let until = now.plus(Duration::from_millis(api.config.delivery.claim_ttl_ms));
    let mut items = Vec::new();
    for row in api.store.claim_returns(receiver, now, until, max).await? {
        let handoff = api.store.find_handoff(&(row.tenant.clone(), row.handoff_id)).await?;
        let Some(handoff) = handoff else { continue };
        items.push(ReturnItem {
            handoff_id: row.handoff_id.to_string(),
            task_id: row.task_id.to_string(),
            completed_by: handoff.target.to_string(),
            returned_at: row.returned_at.rfc3339(),
            claimed_until: until.rfc3339(),
            completion: results::find(api, &row.tenant, row.task_id, row.handoff_id).await?,
        });
    }
    Ok(items)
}

async fn claim(
    api: &Api,
    caller: &AgentCaller,
    receiver: &handoffd_store::store::ReceiverKey,
    max: i64,
) -> Result<Vec<InboxItem>, Problem> {
    let now = api.now();
    let until = now.plus(Duration::from_millis(api.config.delivery.claim_ttl_ms));
    let agents = api.intake.directory.agents(&receiver.0).await?;
    let Some(agent) = agents.roster.find(&caller.id) else {
        return Err(Problem::not_found("agent"));
    };
    if agent.delivery.mode != DeliveryMode::Pull {
        return Err(Problem::new(
            handoffd_core::domain::failure::Code::Conflict,
            "this agent takes its handoffs by webhook; set delivery.mode to pull to use the inbox",
        ));
    }
    let claims =
        api.store.claim(receiver, DeliveryMode::Pull, &api.broker, now, until, max).await?;
    if !claims.is_empty() {
        fault::at(Step::InboxClaimed);
    }
    // Together, so that they share a batch.
    let leases = claims.into_iter().map(|claim| lease(api, claim, agent, now, until));
    let mut items = Vec::new();
    let mut failed = None;
    for leased in futures_util::future::join_all(leases).await {
        match leased {
            Ok(item) => items.extend(item),
            // Its claim runs out and it returns to the inbox; what was leased must not go with it.
            Err(problem) => failed = Some(problem),
        }
    }
    if !items.is_empty() {
        fault::at(Step::InboxLeased);
    }
    match failed {
        Some(problem) if items.is_empty() => Err(problem),
        _ => Ok(items),
    }
}

async fn lease(
    api: &Api,
    claim: Claim,
    agent: &Agent,
    now: Micros,
    until: Micros,
) -> Result<Option<InboxItem>, Problem> {
    let (task_id, handoff_id, attempt) = (claim.task_id, claim.handoff_id, claim.attempt);
    let body = api.intake.gate.schemas.delivered(claim.delivered(agent.is_entitled()), agent);
    let kind = match &body {
        Ok(_) => {
            let granted = Duration::from_millis(api.config.delivery.verdict_timeout_ms);
            Kind::Lease(Lease { task_id, handoff_id, attempt, verdict_by: now.plus(granted) })
        }
        // It takes no version of the schema that the message has a form in; it did when the gate looked.
        Err(_) => Kind::Settle(Box::new(Settle {
            task_id,
            handoff_id,
            attempt,
            begun_at: None,
            outcome: Outcome::GivenUp { why: SCHEMA_UNREADABLE.to_owned() },
            content: None,
            lease_until: now,
        })),
    };
    let (tenant, actor) = (claim.tenant.clone(), Actor::broker());
    let reply = api.intake.ledger.handle(Command { tenant, at: now, actor, kind }).await?;
    let (Reply::Leased { handoff, .. }, Ok(body)) = (reply, body) else { return Ok(None) };
    Ok(Some(InboxItem {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        attempt: claim.attempt,
        fencing_token: handoff.fencing_token,
        claimed_until: handoff.deadline_at.map_or(until, |by| by.min(until)).rfc3339(),
        verdict_by: handoff.deadline_at.map(Micros::rfc3339),
        traceparent: claim
            .trace()
            .map_or_else(|| claim.traceparent.clone(), |context| context.parent.to_string()),
        tracestate: claim.tracestate,
        message: serde_json::from_slice(&body).unwrap_or_default(),
    }))
}
