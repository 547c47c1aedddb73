//! `executeHandoff`, `getHandoffHistory`, and the specialist's run (seed 004, "Handoff Service").

use axum::extract::{Extension, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use super::super::client::{HandoffQuery, PageQuery, PromptOf};
use super::super::state::{Standing, message_of};
use super::super::submission::Refusal;
use super::answer::{self, ProblemContext, detail, named, refused};
use super::call::{BodyShare, Call, SubmissionOptions, read_body};
use super::request::{Form, HandoffRequest, check, digest};
use super::{Jazz, WAIT, observed, words};
use crate::http::Api;
use crate::http::extract::{Params, page_size, typed};
use crate::http::problem::{Problem, WarningView};
use crate::http::views::HandoffView;

/// How long to wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    wait: Option<u64>,
}

impl WaitParams {
    /// Seconds; 60 at most.
    fn seconds(&self) -> Result<u64, Problem> {
        match self.wait.unwrap_or(WAIT) {
            seconds @ 0..=60 => Ok(seconds),
            _ => Err(Problem::invalid("wait must be between 0 and 60 seconds")),
        }
    }
}

/// `executeHandoff`: commits the handoff and waits for its result. A repeated request waits for the same handoff.
pub(super) async fn execute(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let answered = async {
        match received(&api, &door, request).await {
            Ok(WaitingRequest { call, asked, body, seconds, _share }) => {
                executed(&call, &asked, body, seconds).await
            }
            Err(problem) => problem.into_response(),
        }
    };
    Box::pin(observed(&api, "execute_handoff", answered)).await
}

/// A request with a body, and the seconds that it waits.
pub(super) struct WaitingRequest {
    pub(super) call: Call,
    pub(super) asked: ProblemContext,
    pub(super) body: Value,
    pub(super) seconds: u64,
    pub(super) _share: BodyShare,
}

/// Admits a request, and reads its wait and its body.
pub(super) async fn received(
    api: &Api,
    door: &Jazz,
    request: Request,
) -> Result<WaitingRequest, Problem> {
    let (parts, body) = request.into_parts();
    let call = Call::enter(api, door, &parts).await?;
    let Params(params) = Params::<WaitParams>::from_request_parts(&mut parts.clone(), api).await?;
    let (seconds, asked) = (params.seconds()?, ProblemContext::of(&parts));
    let (body, share) = read_body(api, Request::from_parts(parts, body)).await?;
    Ok(WaitingRequest { call, asked, body, seconds, _share: share })
}

async fn executed(call: &Call, asked: &ProblemContext, body: Value, seconds: u64) -> Response {
    let (id, to) =
        (body["id"].as_str().map(str::to_owned), body["toAgentId"].as_str().map(str::to_owned));
    match wait_for(call, body, seconds).await {
        Ok((standing, warnings)) => {
            let status = if standing.is_open() { StatusCode::ACCEPTED } else { StatusCode::OK };
            let mut told = call.told(&standing);
            if !warnings.is_empty() {
                told["warnings"] = json!(warnings);
            }
            named(answer::json(status, told), standing.id())
        }
        Err(refusal) => {
            let name = to.as_deref().map(|to| call.name_of(to));
            let told = json!({
                "handoffId": id, "agentId": to, "agentName": name, "success": false, "result": null,
                "duration": 0, "iterations": 0, "error": detail(&refusal),
            });
            refused(refusal, asked, told)
        }
    }
}

/// The handoff, and the gate's warnings if this request committed it.
async fn wait_for(
    call: &Call,
    body: Value,
    seconds: u64,
) -> Result<(Standing, Vec<WarningView>), Refusal> {
    check(Form::Handoff, &body)?;
    let besides = SubmissionOptions { digest: digest(&body), ..SubmissionOptions::default() };
    let request: HandoffRequest = typed(body)?;
    let committed = call.submit(&request, besides).await?;
    let warnings = committed.warnings().to_vec();
    let standing = call.standing_of(&committed.id, committed.page, seconds).await?;
    call.take(&standing).await;
    Ok((standing, warnings))
}

/// Returns a handoff by the client's id or the broker's.
pub(super) async fn read(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let answered = async {
        let (parts, _) = request.into_parts();
        let found = async {
            let call = Call::enter(&api, &door, &parts).await?;
            let params = Params::<WaitParams>::from_request_parts(&mut parts.clone(), &api).await;
            let seconds = params?.0.seconds()?;
            let standing = call.standing(&call.handoff_id(&id), seconds).await?;
            call.take(&standing).await;
            Ok::<_, Refusal>((call.told(&standing), standing))
        };
        match found.await {
            Ok((told, standing)) => {
                let status = if standing.is_open() { StatusCode::ACCEPTED } else { StatusCode::OK };
                named(answer::json(status, told), standing.id())
            }
            Err(refusal) => refused(refusal, &ProblemContext::of(&parts), Value::Null),
        }
    };
    observed(&api, "get_handoff", answered).await
}

/// The arguments of the specialist's runner: its input as a guarded turn, a conversation of its own, and its limit of rounds.
pub(super) async fn run(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let answered = async {
        let (parts, _) = request.into_parts();
        match run_of(&api, &door, &id, &parts).await {
            Ok(run) => answer::json(StatusCode::OK, run),
            Err(refusal) => refused(refusal, &ProblemContext::of(&parts), Value::Null),
        }
    };
    observed(&api, "get_run", answered).await
}

async fn run_of(api: &Api, door: &Jazz, id: &str, parts: &Parts) -> Result<Value, Refusal> {
    let call = Call::enter(api, door, parts).await?;
    let id = call.handoff_id(id);
    let view = call.client.handoff(&id, WITH_MESSAGE).await?;
    let prompt = call.client.prompt(&id, PromptOf::Message).await?;
    let request = HandoffRequest::of_page(&view);
    let receiver = view.to_agent.agent_id.as_str();
    let mut run = json!({
        "handoffId": request.id,
        "agent": { "id": receiver, "name": call.name_of(receiver) },
        "userInput": prompt,
        "conversationId": words::child_conversation(&id),
        "maxIterations": request.max_iterations.unwrap_or(api.config.gate.max_iterations),
        "conversationHistory": [],
        "request": request,
    });
    if let Some(user) = &request.context.user_id {
        run["userId"] = user.as_str().into();
    }
    Ok(run)
}

/// A handoff's page with its message.
const WITH_MESSAGE: PageQuery = PageQuery { include: Some("message"), wait: None, until: None };

/// The requested part of a history.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryParams {
    limit: Option<i64>,
    cursor: Option<String>,
}

/// The most handoffs of one answer, because the door reads each from the log.
const HISTORY: i64 = 100;

/// `getHandoffHistory`: the newest handoffs of a conversation, oldest first; a `Link` header leads to the earlier ones.
pub(super) async fn history(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let answered = async {
        let (parts, _) = request.into_parts();
        match history_of(&api, &door, &id, &parts).await {
            Ok(response) => response,
            Err(refusal) => refused(refusal, &ProblemContext::of(&parts), Value::Null),
        }
    };
    observed(&api, "get_handoff_history", answered).await
}

async fn history_of(
    api: &Api,
    door: &Jazz,
    conversation: &str,
    parts: &Parts,
) -> Result<Response, Refusal> {
    let call = Call::enter(api, door, parts).await?;
    let asked = Params::<HistoryParams>::from_request_parts(&mut parts.clone(), api).await;
    let Params(HistoryParams { limit, cursor }) = asked?;
    let limit = page_size(limit)?.min(HISTORY);
    let (conversation_id, cursor) = (Some(conversation), cursor.as_deref());
    let query =
        HandoffQuery { conversation: conversation_id, cursor, limit, ..HandoffQuery::default() };
    let page = call.client.handoffs(query).await?;
    let mut told = Vec::with_capacity(page.items.len());
    for row in page.items.iter().rev() {
        let view = call.client.handoff(&row.handoff_id, WITH_MESSAGE).await?;
        told.push(request_of(&view));
    }
    let mut response = answer::json(StatusCode::OK, told.into());
    if let Some(cursor) = page.next_cursor {
        let path: String = byte_serialize(conversation.as_bytes()).collect();
        let path = path.replace('+', "%20");
        let link = format!(
            "</adapters/jazz/conversations/{path}/handoffs?limit={limit}&cursor={cursor}>; rel=\"next\""
        );
        if let Ok(link) = HeaderValue::from_str(&link) {
            response.headers_mut().insert(header::LINK, link);
        }
    }
    Ok(response)
}

/// A handoff of the history. If its message reaches no agent or was erased, its texts are empty and a member says so.
fn request_of(view: &HandoffView) -> Value {
    let mut told = serde_json::to_value(HandoffRequest::of_page(view)).unwrap_or_default();
    if message_of(view).is_null() {
        told["contentWithheld"] = true.into();
    }
    told
}
