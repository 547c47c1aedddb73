//! `GET /handoffs/{handoffId}/history`: the turns of a handoff's conversation as its sender submitted them, whatever of them
//! a prompt or a compressed message left out.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Caller;
use super::extract::{Id, Params, heavy};
use super::problem::Problem;
use super::prompt::stored_message;
use handoffd_domain::ids::HandoffId;

/// Most turns of one answer.
const PAGE: usize = 500;

/// Query of a history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryParams {
    /// The first turn, from 0; 0 unless said.
    #[param(minimum = 0)]
    from: Option<usize>,
    /// The turn after the last one; 500 turns after `from` at most.
    #[param(minimum = 0)]
    to: Option<usize>,
}

/// Turns of a conversation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// Turns of the message in all.
    pub total: usize,
    /// The first turn of this answer.
    pub from: usize,
    /// The turn after the last one of this answer.
    pub to: usize,
    /// The sender's own summary of the conversation before the first turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The turns, as they were said.
    #[schema(value_type = Vec<HistoryTurn>)]
    pub turns: Vec<Value>,
}

/// A turn of a conversation: free, as in `conversationHistoryVerbatim`.
#[derive(ToSchema)]
pub struct HistoryTurn {}

/// Read turns of the original conversation.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/history", tag = "handoffs", operation_id = "getHistory",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), HistoryParams),
    responses(
        (status = 200, description = "The turns", body = ConversationView),
        (status = 400, description = "A malformed parameter, or `from` beyond the last turn: `head` is their number"),
        (status = 403, description = "A dead letter: its text reaches no agent"),
        (status = 404, description = "No such handoff, not the caller's, or its message was erased or past its time"),
    )
)]
pub(super) async fn history(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<HistoryParams>,
) -> Result<axum::Json<ConversationView>, Problem> {
    let from = params.from.unwrap_or(0);
    let to = params.to.unwrap_or(from.saturating_add(PAGE));
    if to < from || to - from > PAGE {
        return Err(Problem::invalid(format!("to must be from {from} to {PAGE} turns after it")));
    }
    let handoff = super::handoffs::find(&api, &principal, id).await?;
    let stored = stored_message(&api, &principal, &handoff, handoff.content_id).await?;
    let read = heavy(stored.len(), move || serde_json::from_slice::<Value>(&stored)).await?;
    let mut message = read.map_err(|_| Problem::unreadable_message())?;
    let mut turns = match message.pointer_mut("/conversationHistoryVerbatim").map(Value::take) {
        Some(Value::Array(turns)) => turns,
        _ => Vec::new(),
    };
    let total = turns.len();
    if from > total {
        return Err(Problem::ahead("from", total));
    }
    let to = to.min(total);
    turns.truncate(to);
    let summary = message.get("conversationHistorySummary").and_then(Value::as_str);
    Ok(axum::Json(ConversationView {
        handoff_id: id.to_string(),
        total,
        from,
        to,
        summary: summary.filter(|text| !text.is_empty()).map(str::to_owned),
        turns: turns.split_off(from),
    }))
}
