//! `GET /agents/{agentId}/inbox`: pull receivers long-poll for their handoffs (specification §3).

use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::AgentCaller;
use super::extract::{Id, Params};
use super::problem::{Busy, Problem};
use super::questions;
use handoffd_broker::inbox::{ClaimedHandoff, InboxDesk, ReturnedHandoff};
use handoffd_broker::intake::spoken::not_the_receiver;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_store::store::ReceiverKey;

/// Polls of one inbox at once: all of them are woken for each handoff.
const MAX_POLLS: usize = 32;

/// Most handoffs that a poll claims.
const MAX_CLAIMS: i64 = 100;

/// Query of the inbox.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InboxParams {
    /// Seconds to wait for a handoff when there is none, up to 60.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
    /// Handoffs to claim at most, 0 to 100; 1 unless said. With 0 the poll gives returns and questions alone.
    #[param(minimum = 0, maximum = 100)]
    max: Option<i64>,
}

/// One claimed handoff.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxItem {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// UUID of the handoff's task.
    pub task_id: String,
    /// Counts claims, from 1.
    pub attempt: i32,
    /// Give this back with the verdict.
    pub fencing_token: i64,
    /// Without a verdict by then, RFC 3339, the handoff returns to the inbox.
    pub claimed_until: String,
    /// Without a verdict by then, RFC 3339, the handoff expires, or is offered for one more claim where it was not yet:
    /// the time runs from its first claim on. Absent where a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict_by: Option<String>,
    /// Trace context of this delivery, W3C `traceparent`.
    pub traceparent: String,
    /// The vendors' part of the trace context.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tracestate: String,
    /// Message of the handoff, as stored.
    #[schema(value_type = super::views::StoredMessage)]
    pub message: Value,
}

/// A task that came back: a receiver completed a handoff whose sender asked for the task's return.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReturnItem {
    /// UUID of the completed handoff.
    pub handoff_id: String,
    /// The task that came back.
    pub task_id: String,
    /// The agent that completed the handoff.
    pub completed_by: String,
    /// When it did, RFC 3339.
    pub returned_at: String,
    /// Unless the agent hands the task on, completes or cancels it by then, RFC 3339, the item comes again.
    pub claimed_until: String,
    /// The receiver's body of `/complete`; absent if it sent none, or if that was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub completion: Option<Value>,
}

/// A question of a receiver to this agent, which sent it the handoff.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionItem {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// UUID of the handoff's task.
    pub task_id: String,
    /// The agent that asks.
    pub asked_by: String,
    /// The number of the question, from 1.
    pub number: u32,
    /// Question as the receiver asked it.
    pub question: Value,
    /// The schema that the answer has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// When it was asked, RFC 3339.
    pub asked_at: String,
    /// Without an answer by then, RFC 3339, the handoff expires.
    pub answer_by: String,
    /// Unless it is answered by then, RFC 3339, the item comes again.
    pub claimed_until: String,
}

/// The items that the call claimed, by kind.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct InboxView {
    /// The most urgent first, then the oldest; empty when the wait ran out.
    pub items: Vec<InboxItem>,
    /// Tasks that came back to this agent, the oldest first; absent for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<ReturnItem>,
    /// Questions of receivers to this agent, the oldest first; absent for none. `POST /handoffs/{handoffId}/answer` answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionItem>,
}

impl InboxView {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.returns.is_empty() && self.questions.is_empty()
    }
}

/// Claim handoffs; waits for one where there is none.
#[utoipa::path(
    get, path = "/agents/{agentId}/inbox", tag = "inbox", operation_id = "pollInbox",
    params(("agentId" = String, Path, description = "The agent's id"), InboxParams),
    responses(
        (status = 200, description = "The claimed handoffs", body = InboxView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "Not this agent's key"),
        (status = 429, description = "The agent polls too often at once"),
        (status = 409, description = "The agent takes its handoffs by webhook"),
        Busy,
    )
)]
pub(super) async fn poll(
    State(api): State<Api>,
    caller: AgentCaller,
    Id(id): Id<AgentId>,
    Params(params): Params<InboxParams>,
) -> Result<axum::Json<InboxView>, Problem> {
    if id != caller.id {
        return Err(not_the_receiver().into());
    }
    let max = params.max.unwrap_or(1);
    if !(0..=MAX_CLAIMS).contains(&max) {
        return Err(Problem::invalid("max must be between 0 and 100"));
    }
    // Returns and questions are no work that an agent could have too much of.
    let most_told = if max == 0 { MAX_CLAIMS } else { max };
    let wait = Duration::from_secs(params.wait.unwrap_or(0).min(60));
    let deadline = tokio::time::Instant::now() + wait;
    let receiver = (caller.principal.tenant.clone(), id);
    // Registered before the store is asked, so that no handoff falls between.
    let mut watch =
        api.intake.ledger.watch_inbox(receiver.clone(), MAX_POLLS).ok_or_else(|| Problem {
            status: axum::http::StatusCode::TOO_MANY_REQUESTS,
            ..Problem::new(
                Code::Overloaded,
                format!("this agent polls its inbox {MAX_POLLS} times at once already"),
            )
        })?;
    api.receivers.polled(&receiver, api.now());
    loop {
        let view = look(&api, &caller, &receiver, (max, most_told)).await?;
        if !view.is_empty() || tokio::time::Instant::now() >= deadline {
            return Ok(axum::Json(view));
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = api.stopping.cancelled() => return Ok(axum::Json(InboxView::default())),
        }
    }
}

/// Claims once.
async fn look(
    api: &Api,
    caller: &AgentCaller,
    receiver: &ReceiverKey,
    (max, most_told): (i64, i64),
) -> Result<InboxView, Problem> {
    let desk =
        InboxDesk { intake: &api.intake, compression: &api.compression, broker: &api.broker };
    let claims = desk.claim(receiver, max).await?;
    let items: Vec<InboxItem> = claims.into_iter().map(InboxItem::from).collect();
    let (returns, questions) = match returned(api, &desk, caller, receiver, most_told).await {
        // The answer still has the handoffs that were leased: without it they would wait until their leases end.
        Err(_) if !items.is_empty() => Default::default(),
        returned => returned?,
    };
    Ok(InboxView { items, returns, questions })
}

/// Returns and questions for this agent. An item that fails here comes again once the claim has run out.
async fn returned(
    api: &Api,
    desk: &InboxDesk<'_>,
    caller: &AgentCaller,
    receiver: &ReceiverKey,
    max: i64,
) -> Result<(Vec<ReturnItem>, Vec<QuestionItem>), Problem> {
    let (mut returns, mut questions) = (Vec::new(), Vec::new());
    for item in desk.returned(receiver, max).await? {
        if item.asks {
            questions.extend(question(api, caller, &item).await?);
            continue;
        }
        let handoff = &item.handoff;
        returns.push(ReturnItem {
            handoff_id: handoff.id.to_string(),
            task_id: handoff.task_id.to_string(),
            completed_by: handoff.target.to_string(),
            returned_at: item.returned_at.rfc3339(),
            claimed_until: item.claimed_until.rfc3339(),
            completion: api.statements().completion(handoff).await?,
        });
    }
    Ok((returns, questions))
}

/// The open question of a handoff.
async fn question(
    api: &Api,
    caller: &AgentCaller,
    item: &ReturnedHandoff,
) -> Result<Option<QuestionItem>, Problem> {
    let handoff = &item.handoff;
    let last = questions::last(api, &caller.principal, handoff).await?;
    Ok(last.map(|asked| QuestionItem {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        asked_by: handoff.target.to_string(),
        number: asked.number,
        question: asked.question.unwrap_or_default(),
        schema: asked.schema,
        asked_at: asked.asked_at,
        answer_by: asked.answer_by,
        claimed_until: item.claimed_until.rfc3339(),
    }))
}

impl From<ClaimedHandoff> for InboxItem {
    fn from(claimed: ClaimedHandoff) -> Self {
        let handoff = &claimed.handoff;
        Self {
            handoff_id: handoff.id.to_string(),
            task_id: handoff.task_id.to_string(),
            attempt: claimed.attempt,
            fencing_token: handoff.fencing_token,
            claimed_until: claimed.claimed_until.rfc3339(),
            verdict_by: handoff.deadline_at.map(Micros::rfc3339),
            traceparent: claimed.traceparent,
            tracestate: claimed.tracestate,
            message: serde_json::from_slice(&claimed.message).unwrap_or_default(),
        }
    }
}
