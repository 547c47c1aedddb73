//! `GET /handoffs/{handoffId}/prompt`: the context as a user turn for the receiver's model.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, limited_to};
use super::extract::{Id, Params, heavy};
use super::problem::Problem;
use handoffd_broker::archive::ContentState;
use handoffd_core::domain::failure::Code;
use handoffd_core::domain::handoff::HandoffStatus;
use handoffd_core::domain::ids::HandoffId;
use handoffd_core::prompt::{Origin, Prompt, PromptSegment, TURNS, context};
use handoffd_store::clock;

/// Most turns of a prompt: as many as a message may have.
const MAX_TURNS: usize = 10_000;

/// Query of a prompt.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PromptParams {
    /// `text` (unless said) or `messages`.
    format: Option<String>,
    /// Turns of the conversation to show, counted from the end; 5 unless said.
    #[param(minimum = 0, maximum = 10000)]
    turns: Option<usize>,
}

/// The context as a chat model's messages.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptView {
    /// The handoff.
    pub handoff_id: String,
    /// The random number that the marks of this answer carry.
    pub nonce: String,
    /// Always one: everything is data within a single user turn.
    pub messages: Vec<Turn>,
    /// What the turn is made of, in order: heading, pointer into the message, claimed role.
    #[schema(value_type = Vec<SegmentView>)]
    pub segments: Vec<PromptSegment>,
}

/// One piece of the context and where it comes from.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct SegmentView {
    /// The heading it stands under.
    pub section: String,
    /// RFC 6901 pointer into the message.
    pub pointer: String,
    /// The role that a turn of the conversation claims; `unknown` where it is none that is known.
    #[schema(nullable = false)]
    pub claimed_role: Option<String>,
}

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct Turn {
    /// Always `user`.
    pub role: &'static str,
    /// The block.
    pub content: String,
}

/// The handoff's context as one user turn, between marks that its content cannot forge.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/prompt", tag = "handoffs", operation_id = "getPrompt",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), PromptParams),
    responses(
        (status = 200, description = "The block as text, or as `messages`", content(
            (String = "text/plain"), (PromptView = "application/json"),
        )),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "A dead letter: its text reaches no agent"),
        (status = 404, description = "No such handoff, not the caller's, or its message was erased or past its time"),
    )
)]
pub async fn prompt(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<PromptParams>,
) -> Result<Response, Problem> {
    let as_messages = match params.format.as_deref() {
        None | Some("text") => false,
        Some("messages") => true,
        Some(_) => return Err(Problem::invalid("format can be: text, messages")),
    };
    let turns = params.turns.unwrap_or(TURNS);
    if turns > MAX_TURNS {
        return Err(Problem::invalid(format!("turns must be between 0 and {MAX_TURNS}")));
    }
    let handoff = super::handoffs::find(&api, &principal, id).await?;
    if handoff.status == HandoffStatus::DeadLettered && limited_to(&principal).is_some() {
        let why = "the handoff is a dead letter: its text reaches no agent";
        return Err(Problem::new(Code::Forbidden, why));
    }
    let stored = match handoff.content_id {
        Some(content) => api.contents.find(&principal.tenant, content).await?,
        None => ContentState::Gone,
    };
    let stored = match stored {
        ContentState::Whole(stored) => stored,
        ContentState::Gone => return Err(Problem::not_found("message: it was erased")),
        ContentState::Purged => return Err(Problem::not_found("message: it was past its time")),
        ContentState::Unavailable(_) => return Err(Problem::archive_away()),
    };
    let origin = Origin {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        agent_id: handoff.source.to_string(),
        agent_version: handoff.source_version,
    };
    let nonce = hex::encode(clock::random::<16>());
    let number = nonce.clone();
    let Prompt { text, segments } = heavy(stored.len(), move || {
        serde_json::from_slice(&stored).map(|message| context(&message, &origin, &number, turns))
    })
    .await?
    .map_err(|_| Problem::new(Code::Internal, "the stored message cannot be read"))?;
    // Every answer has its own number; a kept one would let content be written for it.
    let fresh = [(header::CACHE_CONTROL, "no-store")];
    if !as_messages {
        return Ok((fresh, text).into_response());
    }
    let messages = vec![Turn { role: "user", content: text }];
    let view = PromptView { handoff_id: id.to_string(), nonce, messages, segments };
    Ok((fresh, axum::Json(view)).into_response())
}
