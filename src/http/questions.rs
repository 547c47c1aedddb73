//! What a receiver asks the sender of its handoff, and the answers (specification §10.3).

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Api;
use super::auth::{AgentCaller, Participant, limited_to, operates};
use super::credentials;
use super::extract::{Id, Json, OWN_THREAD, heavy, idempotency_key};
use super::handoffs::{find, not_the_receiver};
use super::open;
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::verdicts::{fencing_token, judge, linked};
use super::views::HandoffView;
use handoffd_broker::archive::ContentState;
use handoffd_broker::directory::Principal;
use handoffd_broker::ledger::command::content;
use handoffd_broker::ledger::commands::{Answer, Ask, Queued};
use handoffd_broker::ledger::reply::HandoffReply;
use handoffd_core::contract::answer::{check_schema, faults};
use handoffd_core::domain::canonical;
use handoffd_core::domain::failure::Code;
use handoffd_core::domain::handoff::{Handoff, HandoffStatus};
use handoffd_core::domain::ids::{ContentId, HandoffId, Micros};
use handoffd_core::domain::question::{LONGEST_ANSWER, Question};

type Body = Json<Map<String, Value>>;

/// What a receiver asks.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct AskBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// The question: a text, or data of any form.
    pub question: Value,
    /// A JSON Schema (2020-12) that the answer has to fit; within the bounds of a contract's payload schema.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// Milliseconds until the handoff expires without an answer, 30 days at most; `delivery.answer_timeout_ms` unless said.
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    pub answer_within_ms: Option<u64>,
}

/// The answer to a receiver's question.
#[derive(ToSchema)]
pub struct AnswerBody {
    /// The answer: of the form that the question's schema asks for, else free.
    pub answer: Value,
    /// Which question it answers, from 1; the last one unless said.
    #[schema(minimum = 1)]
    pub number: Option<u32>,
}

/// A question of a receiver to the sender of its handoff, and its answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedView {
    /// Its number among the questions of the handoff, from 1.
    pub number: u32,
    /// Whether the question waits for its answer.
    #[schema(value_type = open::QuestionState)]
    pub state: String,
    /// The question; only on the handoff's own page, absent once erased.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
    Json(said): Body,
) -> Result<axum::Json<HandoffView>, Problem> {
    let (handoff, warnings) = put(&api, &caller, id, &headers, said).await?;
    view(&api, &caller.principal, &handoff, warnings).await
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
    Json(said): Body,
) -> Result<axum::Json<HandoffView>, Problem> {
    let (handoff, warnings) = give(&api, &principal, id, &headers, said).await?;
    view(&api, &principal, &handoff, warnings).await
}

/// Takes a receiver's question to the ledger.
async fn put(
    api: &Api,
    caller: &AgentCaller,
    id: HandoffId,
    headers: &HeaderMap,
    mut said: Map<String, Value>,
) -> Result<(Handoff, Vec<WarningView>), Problem> {
    let handoff = find(api, &caller.principal, id).await?;
    linked(&handoff, headers);
    if handoff.target != caller.id {
        return Err(not_the_receiver());
    }
    let key = idempotency_key(headers)?;
    let fencing_token = fencing_token(headers, &mut said)?;
    only(&said, &["question", "schema", "answerWithinMs"])?;
    present(&said, "question", "the question is needed: a text, or data")?;
    let within = within(api, &said)?;
    let mut warnings = credentials::redacted(api, &mut said)?;
    if let Some(schema) = said.get("schema").filter(|schema| !schema.is_null()).cloned() {
        let checked = heavy(OWN_THREAD, move || check_schema(&schema)).await?;
        checked.map_err(|fault| Problem::refusal(vec![fault], false))?;
    }
    let now = api.now();
    let said = Value::Object(said);
    let whole = canonical::to_vec(&said);
    let way = (&handoff.target, &handoff.source);
    warnings.extend(judge(api, &handoff, way, said, whole.len(), now).await?);
    let ask = Ask {
        task_id: handoff.task_id,
        handoff_id: id,
        fencing_token,
        content: content(&whole, now),
        whole,
        key,
        answer_by: now.plus(within),
    };
    Ok((handle(api, &caller.principal, now, ask).await?, warnings))
}

/// Takes an answer to the ledger.
async fn give(
    api: &Api,
    principal: &Principal,
    id: HandoffId,
    headers: &HeaderMap,
    mut said: Map<String, Value>,
) -> Result<(Handoff, Vec<WarningView>), Problem> {
    let handoff = find(api, principal, id).await?;
    linked(&handoff, headers);
    if !operates(principal) && principal.agent.as_ref() != Some(&handoff.source) {
        return Err(Problem::new(
            Code::Forbidden,
            "only the handoff's sender or an operator may answer",
        ));
    }
    let key = idempotency_key(headers)?;
    only(&said, &["answer", "number"])?;
    present(&said, "answer", "the answer is needed")?;
    let number = number(&mut said, &handoff)?;
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let Some(asked) = place.and_then(|place| handoff.questions.get(place)) else {
        return Err(if handoff.questions.is_empty() {
            Problem::new(Code::Conflict, "the receiver asked nothing")
        } else {
            Problem::not_found("question")
        });
    };
    let mut warnings = credentials::redacted(api, &mut said)?;
    if asked.answer.is_none() && handoff.status == HandoffStatus::InputRequired {
        fits(api, principal, asked, &said).await?;
    }
    let now = api.now();
    let said = Value::Object(said);
    let whole = canonical::to_vec(&said);
    let way = (&handoff.source, &handoff.target);
    warnings.extend(judge(api, &handoff, way, said, whole.len(), now).await?);
    let answer = Answer {
        task_id: handoff.task_id,
        handoff_id: id,
        number,
        by: principal.agent.clone(),
        content: content(&whole, now),
        whole,
        key,
    };
    Ok((handle(api, principal, now, answer).await?, warnings))
}

/// Checks an answer against the schema of its question.
async fn fits(
    api: &Api,
    principal: &Principal,
    asked: &Question,
    said: &Map<String, Value>,
) -> Result<(), Problem> {
    let question = words(api, principal, asked.content).await?;
    let question = question.ok_or_else(|| {
        Problem::new(Code::Conflict, "the question was erased, and its schema with it")
    })?;
    let schema = question.get("schema").filter(|schema| !schema.is_null()).cloned();
    let Some((schema, answer)) = schema.zip(said.get("answer").cloned()) else { return Ok(()) };
    let found = heavy(OWN_THREAD, move || faults(&schema, &answer)).await?;
    if found.is_empty() { Ok(()) } else { Err(Problem::refusal(found, false)) }
}

async fn handle(
    api: &Api,
    principal: &Principal,
    at: Micros,
    command: impl Queued<Reply = HandoffReply>,
) -> Result<Handoff, Problem> {
    let HandoffReply { handoff, .. } = api.carry_out(principal, at, command).await?;
    Ok(handoff)
}

async fn view(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
    warnings: Vec<WarningView>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let mut view = HandoffView { warnings, ..HandoffView::from(handoff) };
    view.asked = last(api, principal, handoff).await?;
    Ok(axum::Json(view))
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
    let reader = limited_to(principal);
    let withheld = reader.is_some_and(|agent| {
        handoff.status == HandoffStatus::DeadLettered
            || (handoff.source != agent && handoff.target != agent)
    });
    let Some(asked) = handoff.questions.get(place).filter(|_| !withheld) else {
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

/// The body of a question or an answer; `None` once it was erased or is past its time.
pub(super) async fn words(
    api: &Api,
    principal: &Principal,
    id: ContentId,
) -> Result<Option<Value>, Problem> {
    match api.contents.find(&principal.tenant, id).await? {
        ContentState::Whole(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        ContentState::Gone | ContentState::Purged => Ok(None),
        ContentState::Unavailable(_) => Err(Problem::archive_away()),
    }
}

/// Refuses members that the request does not have.
fn only(said: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    match said.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            Err(wrong(&pointer, format!("unknown; known are: {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn present(said: &Map<String, Value>, name: &str, why: &str) -> Result<(), Problem> {
    let empty = match said.get(name) {
        None => true,
        Some(Value::Null) => name == "question",
        Some(Value::String(text)) => name == "question" && text.trim().is_empty(),
        Some(_) => false,
    };
    if empty { Err(wrong(&format!("/{name}"), why)) } else { Ok(()) }
}

/// The time for the answer.
fn within(api: &Api, said: &Map<String, Value>) -> Result<Duration, Problem> {
    let most = u64::try_from(LONGEST_ANSWER.as_millis()).unwrap_or(u64::MAX);
    let ms = match said.get("answerWithinMs") {
        None | Some(Value::Null) => api.config.delivery.answer_timeout_ms,
        Some(value) => value.as_u64().filter(|ms| (1..=most).contains(ms)).ok_or_else(|| {
            wrong(
                "/answerWithinMs",
                format!("must be a whole number of milliseconds from 1 to {most}"),
            )
        })?,
    };
    Ok(Duration::from_millis(ms))
}

/// The number of the question that is answered: the last one unless said.
fn number(said: &mut Map<String, Value>, handoff: &Handoff) -> Result<u32, Problem> {
    match said.remove("number") {
        None | Some(Value::Null) => Ok(u32::try_from(handoff.questions.len()).unwrap_or(u32::MAX)),
        Some(value) => value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or_else(|| wrong("/number", "must be a question's number, from 1")),
    }
}
