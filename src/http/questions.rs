//! A receiver's questions to the sender of its handoff, and the answers (specification §10.3).

use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::auth::{AgentCaller, Participant};
use super::extract::{Id, Json, idempotency_key};
use super::handoffs::find;
use super::open;
use super::problem::{BadBody, Busy, Problem};
use super::verdicts::{fencing_token, linked, spoken};
use super::views::{HandoffView, stated};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::questions::{AnswerBody, Answerable, AskBody, Asked};
use handoffd_broker::intake::spoken::{Addressed, Spoken};
use handoffd_broker::reader::WordAccess;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;

/// A question of a receiver to the sender of its handoff, and its answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedView {
    /// Its number among the questions of the handoff, from 1.
    pub number: u32,
    /// Whether the question waits for its answer.
    #[schema(value_type = open::QuestionState)]
    pub state: String,
    /// The question; only on the handoff's own page, absent once erased.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub question: Option<Value>,
    /// The schema that the answer has to fit; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// When it was asked, RFC 3339.
    pub asked_at: String,
    /// When the handoff expires, or would have, without an answer, RFC 3339.
    pub answer_by: String,
    /// The answer; only on the handoff's own page, absent once erased.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// When it was answered, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    /// The agent that answered; absent where a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
}

impl AskedView {
    /// The last question of a handoff, without its words.
    #[must_use]
    pub fn last(handoff: &Handoff) -> Option<Self> {
        Self::of(handoff, handoff.questions.len().checked_sub(1)?)
    }

    /// The question at a place, from 0, without its words.
    fn of(handoff: &Handoff, place: usize) -> Option<Self> {
        let asked = handoff.questions.get(place)?;
        let answer = asked.answer.as_ref();
        let is_last = place + 1 == handoff.questions.len();
        let state = match (answer, handoff.open_question().filter(|_| is_last)) {
            (Some(_), _) => "ANSWERED",
            (None, Some(_)) => "OPEN",
            (None, None) => "CLOSED",
        };
        Some(Self {
            number: u32::try_from(place + 1).unwrap_or(u32::MAX),
            state: state.to_owned(),
            question: None,
            schema: None,
            asked_at: asked.asked_at.rfc3339(),
            answer_by: asked.answer_by.rfc3339(),
            answer: None,
            answered_at: answer.map(|answer| answer.answered_at.rfc3339()),
            answered_by: answer.and_then(|answer| Some(answer.by.as_ref()?.to_string())),
        })
    }
}

/// Ask the sender: the handoff is INPUT_REQUIRED until the answer, and no lease runs. The safety rules read the question
/// as they read a message. One question is open at most; the same request again changes nothing.
#[utoipa::path(
    post, path = "/handoffs/{handoffId}/ask", tag = "verdicts", operation_id = "askHandoff",
    params(
        ("handoffId" = String, Path, description = "The handoff's UUID"),
        ("Handoff-Fencing-Token" = Option<i64>, Header, description = "The token that came with the delivery; or `fencingToken` in the body"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated question safe after its answer, too"),
    ),
    request_body(content = AskBody, content_type = "application/json"),
    responses(
        (status = 200, description = "The handoff as it is now", body = HandoffView),
        (status = 403, description = "Not the receiver's key"),
        (status = 404, description = "No such handoff"),
        (status = 409, description = "A stale token, not in this state, or a question is open"),
        BadBody,
        (status = 422, description = "The token or the question is missing, the schema is none, the safety rules refuse the question, or the Idempotency-Key was used for another one"),
        Busy,
    )
)]
pub(super) async fn ask(
    State(api): State<Api>,
    caller: AgentCaller,
    Id(id): Id<HandoffId>,
    headers: HeaderMap,
    Json(mut body): Json<AskBody>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let handoff = find(&api, &caller.principal, id).await?;
    linked(&handoff, &headers);
    let addressed = Addressed::to(&caller.principal, handoff)?;
    let idempotency_key = idempotency_key(&headers)?;
    let fencing_token = fencing_token(&headers, body.fencing_token.take())?;
    let asked = Asked { fencing_token, idempotency_key, body };
    let spoken = api.intake.ask(addressed, asked).await?;
    view(&api, &caller.principal, &spoken).await
}

/// Answer the open question: the receiver works on under a new lease. The sender answers, or an operator. The answer fits
/// the question's schema, and the safety rules read it as they read a message.
#[utoipa::path(
    post, path = "/handoffs/{handoffId}/answer", tag = "verdicts", operation_id = "answerHandoff",
    params(
        ("handoffId" = String, Path, description = "The handoff's UUID"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated answer safe"),
    ),
    request_body(content = AnswerBody, content_type = "application/json"),
    responses(
        (status = 200, description = "The handoff as it is now", body = HandoffView),
        (status = 403, description = "Neither the sender's key nor an operator's"),
        (status = 404, description = "No such handoff, or no question of that number"),
        (status = 409, description = "No question is open, or it has another answer"),
        BadBody,
        (status = 422, description = "The answer is missing or does not fit the question's schema, the safety rules refuse it, or the Idempotency-Key was used for another one"),
        Busy,
    )
)]
pub(super) async fn answer(
    State(api): State<Api>,
    Participant(principal): Participant,
    Id(id): Id<HandoffId>,
    headers: HeaderMap,
    Json(body): Json<AnswerBody>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let handoff = find(&api, &principal, id).await?;
    linked(&handoff, &headers);
    let answerable = Answerable::by(&principal, handoff)?;
    let key = idempotency_key(&headers)?;
    let spoken = api.intake.answer(&api.contents, answerable, key, body).await?;
    view(&api, &principal, &spoken).await
}

async fn view(
    api: &Api,
    principal: &Principal,
    words: &Spoken,
) -> Result<axum::Json<HandoffView>, Problem> {
    let asked = last(api, principal, &words.handoff).await?;
    Ok(axum::Json(HandoffView { asked, ..spoken(&words.handoff, &words.warnings) }))
}

/// The last question of a handoff with its words, for its parties and people. Those of a dead letter are for people alone.
pub(super) async fn last(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
) -> Result<Option<AskedView>, Problem> {
    let Some(place) = handoff.questions.len().checked_sub(1) else { return Ok(None) };
    worded(api, principal, handoff, place).await
}

/// All questions of a handoff with their words and answers, the first one first.
pub(super) async fn all(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
) -> Result<Vec<AskedView>, Problem> {
    let mut views = Vec::with_capacity(handoff.questions.len());
    for place in 0..handoff.questions.len() {
        views.extend(worded(api, principal, handoff, place).await?);
    }
    Ok(views)
}

async fn worded(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
    place: usize,
) -> Result<Option<AskedView>, Problem> {
    let Some(mut view) = AskedView::of(handoff, place) else { return Ok(None) };
    let open = principal.reader().words_of(handoff) == WordAccess::Open;
    let Some(asked) = handoff.questions.get(place).filter(|_| open) else {
        return Ok(Some(view));
    };
    if let Some(mut said) = api.contents.find_json(&principal.tenant, asked.content).await? {
        view.schema = said.get_mut("schema").map(Value::take).filter(|schema| !schema.is_null());
        view.question = Some(taken(said, "question"));
    }
    if let Some(answer) = &asked.answer {
        let said = api.contents.find_json(&principal.tenant, answer.content).await?;
        view.answer = said.map(|said| taken(said, "answer"));
    }
    Ok(Some(view))
}

/// A member of a content, or the whole where it says that the archive is away.
fn taken(mut said: Value, name: &str) -> Value {
    said.get_mut(name).map(Value::take).unwrap_or(said)
}
