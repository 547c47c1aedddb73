//! `GET /handoffs/{handoffId}/prompt`: the context as a user turn for the receiver's model; and
//! `GET /handoffs/{handoffId}/result/prompt`: the result, for the model of the agent that asked.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Caller;
use super::extract::{Id, Params, heavy};
use super::groups;
use super::problem::Problem;
use handoffd_broker::archive::ContentState;
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::questions::words;
use handoffd_broker::intake::spoken::marked;
use handoffd_broker::judged;
use handoffd_broker::reader::WordAccess;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{ContentRef, Handoff, HandoffStatus, is_in_own_words};
use handoffd_domain::ids::{AgentId, HandoffId};
use handoffd_gate::context::tokens;
use handoffd_gate::prompt::{
    BranchResult, MIN_TOKENS, Origin, Prompt, PromptExtent, PromptSegment, TURNS, context,
    group_results, question, refusal, result,
};
use handoffd_store::clock;

/// Most turns of a prompt: as many as a message may have.
const MAX_TURNS: usize = 10_000;

/// A result may be as large as a body, so it is rendered as large work is: in bytes, more than small work has.
const RESULT_BYTES: usize = usize::MAX;

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
    /// The most tokens of the block, by the receiver's tokenizer; what does not fit is named at its end.
    #[serde(rename = "maxTokens")]
    #[param(minimum = 500)]
    max_tokens: Option<u64>,
}

/// The context as a chat model's messages.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// The random number that the marks of this answer carry.
    pub nonce: String,
    /// Always one: everything is data within a single user turn.
    pub messages: Vec<Turn>,
    /// The parts of the turn, in order: heading, pointer into the message, claimed role.
    pub segments: Vec<SegmentView>,
}

/// One piece of the context and where it comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SegmentView {
    /// The heading above it.
    pub section: &'static str,
    /// RFC 6901 pointer into the message, or into the group's page.
    pub pointer: String,
    /// The role that a turn of the conversation claims; `unknown` where it is none that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub claimed_role: Option<&'static str>,
    /// Safety rules that marked an order in it; the block fences the place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<String>,
}

impl From<PromptSegment> for SegmentView {
    fn from(segment: PromptSegment) -> Self {
        let PromptSegment { section, pointer, claimed_role, orders } = segment;
        Self { section, pointer, claimed_role, orders }
    }
}

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct Turn {
    /// Always `user`.
    pub role: &'static str,
    /// Guarded block, as a model is to read it.
    pub content: String,
}

/// A stored message of a handoff: for its source, its receiver and people. That of a dead letter is for people alone.
pub(super) async fn stored_message(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
    content: Option<ContentRef>,
) -> Result<Bytes, Problem> {
    readable(principal, handoff, "message")?;
    let stored = match content {
        Some(content) => api.contents.find(&principal.tenant, content).await?,
        None => ContentState::Gone,
    };
    match stored {
        ContentState::Whole(stored) => Ok(stored.into()),
        ContentState::Gone => Err(Problem::not_found("message: it was erased")),
        ContentState::Purged => Err(Problem::not_found("message: it was past its time")),
        ContentState::Unavailable(_) => Err(Problem::archive_away()),
    }
}

/// Refuses a reader that is not a party of the handoff, and every agent if it is a dead letter.
fn readable(principal: &Principal, handoff: &Handoff, what: &str) -> Result<(), Problem> {
    match principal.reader().words_of(handoff) {
        WordAccess::Open => Ok(()),
        WordAccess::OfOthers => Err(Problem::not_found(what)),
        WordAccess::DeadLetter => {
            let why = "the handoff is a dead letter: its text reaches no agent";
            Err(Problem::new(Code::Forbidden, why))
        }
    }
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
pub(super) async fn prompt(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<PromptParams>,
) -> Result<Response, Problem> {
    let as_messages = as_messages(params.format.as_deref())?;
    let turns = params.turns.unwrap_or(TURNS);
    if turns > MAX_TURNS {
        return Err(Problem::invalid(format!("turns must be between 0 and {MAX_TURNS}")));
    }
    if params.max_tokens.is_some_and(|most| most < MIN_TOKENS) {
        return Err(Problem::invalid(format!("maxTokens must be {MIN_TOKENS} at least")));
    }
    let handoff = super::handoffs::find(&api, &principal, id).await?;
    let compressed = handoff.compressed_id().is_some();
    let sent = handoff.compressed_id().or(handoff.content_id);
    let stored = stored_message(&api, &principal, &handoff, sent).await?;
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let tokenizer = agents.roster.find(&handoff.target).and_then(|agent| agent.tokenizer);
    let origin = origin(&handoff, &handoff.source, &handoff.source_version);
    let unsafe_label = judged::unsafe_label(&api.store, &handoff).await?;
    let scanner = api.intake.scanner();
    answer(id, stored.len(), as_messages, move |nonce| {
        let count = |text: &str| tokens::count(text, tokenizer.unwrap_or_default());
        let budget = params.max_tokens.map(|most| (most, &count as &dyn Fn(&str) -> u64));
        serde_json::from_slice(&stored).map(|message| {
            let marks = marked(&scanner, &message);
            let opinion = unsafe_label.as_deref();
            let extent = PromptExtent { turns, compressed, budget, marks: &marks, opinion };
            context(&message, &origin, nonce, &extent)
        })
    })
    .await
}

/// How to show a result.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResultPromptParams {
    /// `text` (unless said) or `messages`.
    format: Option<String>,
}

/// The handoff's result, or the words of a receiver that rejected it or gave it up, as one user turn for the model of the
/// agent that asked, between marks that its content cannot forge.
///
/// Of a handoff to several receivers, by the id of its message: all results, each under its own branch.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/result/prompt", tag = "handoffs", operation_id = "getResultPrompt",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), ResultPromptParams),
    responses(
        (status = 200, description = "The block as text, or as `messages`", content(
            (String = "text/plain"), (PromptView = "application/json"),
        )),
        (status = 400, description = "A malformed parameter"),
        (status = 404, description = "No such handoff, not the caller's, or its receiver gave no result, or it was erased or past its time"),
        (status = 409, description = "The handoff is not completed, and its receiver gave no reason in words"),
    )
)]
pub(super) async fn result_prompt(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<ResultPromptParams>,
) -> Result<Response, Problem> {
    let as_messages = as_messages(params.format.as_deref())?;
    let found = super::handoffs::find(&api, &principal, id).await;
    if !found.as_ref().is_ok_and(|handoff| handoff.status != HandoffStatus::DeadLettered)
        && let Some(branches) = groups::branch_results(&api, &principal, id).await?
    {
        return group_prompt(&api, id, as_messages, branches).await;
    }
    let handoff = found?;
    let scanner = api.intake.scanner();
    let origin = origin(&handoff, &handoff.target, &handoff.target_version);
    if matches!(handoff.status, HandoffStatus::Rejected | HandoffStatus::Failed)
        && let Some(said) = refusal_words(&api, &handoff).await?
    {
        return answer(id, RESULT_BYTES, as_messages, move |nonce| {
            Ok(refusal(&said, &origin, nonce, &marked(&scanner, &said)))
        })
        .await;
    }
    if handoff.status != HandoffStatus::Completed {
        let why = format!("the handoff is {}: it has no result", handoff.status.as_str());
        return Err(Problem::new(Code::Conflict, why));
    }
    let said = api.statements().completion(&handoff).await?;
    let said = said.ok_or_else(|| Problem::not_found("result"))?;
    answer(id, RESULT_BYTES, as_messages, move |nonce| {
        Ok(result(&said, &origin, nonce, &marked(&scanner, &said)))
    })
    .await
}

/// The receiver's words when it rejected or failed: the `details` beside its reason, and the message of its error.
/// `None` if it gave a code alone.
async fn refusal_words(api: &Api, handoff: &Handoff) -> Result<Option<Value>, Problem> {
    let kept = api.statements().of_kind(handoff, handoff.status.as_str()).await?;
    let of = |pointer: &str| kept.as_ref().and_then(|kept| kept.pointer(pointer)).cloned();
    let message = of("/error/message").filter(Value::is_string);
    let words = [("details", of("/details")), ("message", message)];
    let mut said: Map<String, Value> =
        words.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let in_words = handoff.reason.as_ref().is_some_and(|reason| is_in_own_words(reason));
    if said.is_empty() && !in_words {
        return Ok(None);
    }
    said.extend(handoff.reason.clone().map(|reason| ("reason".to_owned(), reason.into())));
    Ok(Some(said.into()))
}

/// The results of a group as one block.
async fn group_prompt(
    api: &Api,
    id: HandoffId,
    as_messages: bool,
    mut branches: Vec<BranchResult>,
) -> Result<Response, Problem> {
    if branches.is_empty() {
        return Err(Problem::not_found("result"));
    }
    let scanner = api.intake.scanner();
    answer(id, RESULT_BYTES, as_messages, move |nonce| {
        for branch in &mut branches {
            branch.marks = marked(&scanner, &branch.said);
        }
        Ok(group_results(&branches, nonce))
    })
    .await
}

/// The receiver's last question, with its answer where there is one, as one user turn: for the model of the sender that is
/// to answer, and for that of the receiver that asked.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/question/prompt", tag = "handoffs", operation_id = "getQuestionPrompt",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), ResultPromptParams),
    responses(
        (status = 200, description = "The block as text, or as `messages`", content(
            (String = "text/plain"), (PromptView = "application/json"),
        )),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "A dead letter: its text reaches no agent"),
        (status = 404, description = "No such handoff, not the caller's, its receiver asked nothing, or the question was erased or past its time"),
    )
)]
pub(super) async fn question_prompt(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<ResultPromptParams>,
) -> Result<Response, Problem> {
    let as_messages = as_messages(params.format.as_deref())?;
    let handoff = super::handoffs::find(&api, &principal, id).await?;
    let asked = handoff.questions.last().ok_or_else(|| Problem::not_found("question"))?;
    readable(&principal, &handoff, "question")?;
    let question_words = words(&api.contents, &principal.tenant, asked.content).await?;
    let mut said = question_words.ok_or_else(|| Problem::not_found("question: it was erased"))?;
    if let Some(members) = said.as_object_mut() {
        members.remove("answerWithinMs");
        if let Some(answer) = &asked.answer {
            let answer_words = words(&api.contents, &principal.tenant, answer.content).await?;
            let answer = answer_words.and_then(|mut words| Some(words.get_mut("answer")?.take()));
            members.extend(answer.map(|answer| ("answer".to_owned(), answer)));
        }
    }
    let asker = origin(&handoff, &handoff.target, &handoff.target_version);
    let sender = origin(&handoff, &handoff.source, &handoff.source_version);
    let answerer = match &asked.answer {
        Some(answer) if answer.by.is_none() => Origin { agent_id: String::new(), ..sender },
        _ => sender,
    };
    let scanner = api.intake.scanner();
    answer(id, RESULT_BYTES, as_messages, move |nonce| {
        Ok(question(&said, (&asker, &answerer), nonce, &marked(&scanner, &said)))
    })
    .await
}

/// The agent that wrote what a block shows.
fn origin(handoff: &Handoff, agent: &AgentId, version: &str) -> Origin {
    Origin {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        agent_id: agent.to_string(),
        agent_version: version.to_owned(),
    }
}

/// Whether the query asks for a chat model's messages.
fn as_messages(format: Option<&str>) -> Result<bool, Problem> {
    match format {
        None | Some("text") => Ok(false),
        Some("messages") => Ok(true),
        Some(_) => Err(Problem::invalid("format can be: text, messages")),
    }
}

/// Renders a block under a number of its own and answers with it. `size` is the size of the rendered part, in bytes.
async fn answer(
    id: HandoffId,
    size: usize,
    as_messages: bool,
    render: impl FnOnce(&str) -> Result<Prompt, serde_json::Error> + Send + 'static,
) -> Result<Response, Problem> {
    let nonce = hex::encode(clock::random::<16>());
    let number = nonce.clone();
    let Prompt { text, segments } =
        heavy(size, move || render(&number)).await?.map_err(|_| Problem::unreadable_message())?;
    // Every answer has its own number; a kept one would let content be written for it.
    let fresh = [(header::CACHE_CONTROL, "no-store")];
    if !as_messages {
        return Ok((fresh, text).into_response());
    }
    let messages = vec![Turn { role: "user", content: text }];
    let segments = segments.into_iter().map(SegmentView::from).collect();
    let view = PromptView { handoff_id: id.to_string(), nonce, messages, segments };
    Ok((fresh, axum::Json(view)).into_response())
}
