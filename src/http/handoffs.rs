//! `/handoffs`: submitting, validating, reading.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::arrival::Arrival;
use super::auth::{Caller, limited_to, operates};
use super::contracts::tell_deprecation;
use super::extract::{
    Id, JsonBytes, Params, idempotency_key, page_size, parameter, preferred_wait, read_cursor,
    trace_context,
};
use super::open;
use super::problem::{BadBody, FailureView, Problem, WarningView, view};
use super::results;
use super::views::{HandoffMessage, HandoffView, Links, Page, Receipt, SubmittedView};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::{Answer, Request};
use handoffd_broker::ledger::HandoffWatch;
use handoffd_broker::tree;
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::failure::{Code, primary};
use handoffd_core::domain::handoff::{Handoff, HandoffStatus};
use handoffd_core::domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_core::domain::warning::Warning;
use handoffd_core::evidence;
use handoffd_core::gate::schema::older::MessageForm;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::HandoffFilter;

/// How often a wait looks for what another broker may have recorded.
const WAIT_POLL: Duration = Duration::from_millis(250);

/// Submit a handoff: the gate, one commit, then delivery.
#[utoipa::path(
    post, path = "/handoffs", tag = "handoffs", operation_id = "submitHandoff",
    request_body(content = HandoffMessage, description = "The canonical handoff message; see /schemas/handoff/2.1", content_type = "application/json"),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated submission safe"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold the answer up to N seconds (60 at most) for the verdict"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context; a valid one goes before the message's, with its `tracestate`"),
        ("tracestate" = Option<String>, Header, description = "What vendors say of that trace context"),
    ),
    responses(
        (status = 200, description = "The verdict came within the wait, or a handoff to oneself", body = SubmittedView),
        (status = 202, description = "Committed", body = SubmittedView),
        (status = 400, description = "Not JSON"),
        (status = 401, description = "No valid key, or a wrong signature"),
        (status = 403, description = "Not the key's agent, or not on the allowlist"),
        (status = 409, description = "The id exists with another content, or the task has ended"),
        BadBody,
        (status = 422, description = "Refused by the gate"),
        (status = 503, description = "Overloaded, or the store is away: nothing was written"),
    )
)]
pub async fn submit(
    State(api): State<Api>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Extension(arrival): Extension<Arrival>,
    body: JsonBytes,
) -> Result<Response, Problem> {
    let wait = preferred_wait(&headers)?;
    let request = Request {
        idempotency_key: idempotency_key(&headers)?,
        trace: trace_context(&headers),
        awaited: wait.is_some(),
        arrived_at: Some(arrival.before(api.now())),
    };
    match api.intake.submit(&principal, body.into_body(), request).await? {
        Answer::Submitted { handoff, placed, replayed, contract, watch, warnings } => {
            fault::at(Step::HeadSign);
            let fresh =
                placed.and_then(|placed| evidence::receipt::Receipt::fresh(&placed, &api.notary));
            let receipt = match &fresh {
                Some(receipt) => Some(Receipt::from(receipt)),
                None => receipt_of(&api, &handoff).await?,
            };
            let mut response = submitted(
                &api,
                *handoff,
                receipt,
                replayed,
                wait.map(|wait| (wait, watch)),
                &warnings,
            )
            .await?;
            if let Some(ready) = contract
                && let Some(deprecation) = &ready.contract().deprecation
            {
                let put_at = ready.created_at().seconds();
                tell_deprecation(response.headers_mut(), deprecation, put_at);
            }
            Ok(response)
        }
        Answer::Refused { failures, dead_letter, replayed, retry_after, undone } => {
            let failures = match dead_letter {
                Some(id) if failures.is_empty() => api
                    .store
                    .find_dead_letter(&(principal.tenant.clone(), id))
                    .await?
                    .map_or(failures, |row| row.failures),
                _ => failures,
            };
            // Whole seconds, and not before.
            let retry_after = retry_after.map(|wait| wait.as_secs() + 1);
            Err(Problem { retry_after, undone, ..Problem::refusal(failures, replayed) })
        }
        Answer::Malformed(failure) => Err(Problem::malformed(failure)),
    }
}

async fn receipt_of(api: &Api, handoff: &Handoff) -> Result<Option<Receipt>, Problem> {
    let key = (handoff.tenant.clone(), handoff.id);
    let Some(sealed) = api.store.find_receipt(&key).await? else { return Ok(None) };
    let receipt = tree::receipt(&*api.store, &api.notary, &key.0, &sealed).await?;
    Ok(receipt.as_ref().map(Receipt::from))
}

async fn submitted(
    api: &Api,
    handoff: Handoff,
    receipt: Option<Receipt>,
    replayed: bool,
    wait: Option<(Duration, Option<HandoffWatch>)>,
    warnings: &[Warning],
) -> Result<Response, Problem> {
    let no_op = handoff.status == HandoffStatus::NoOp;
    let mut last = handoff.clone();
    let (mut settled, mut waited) = (false, Duration::ZERO);
    if let Some((wait, watch)) = wait.filter(|_| !no_op) {
        last = await_verdict(api, handoff.clone(), watch, wait).await?;
        settled = last.status != HandoffStatus::Pending;
        waited = wait;
    }
    // A replay answers as the first time did; only who waits asks for what became of it.
    let status = match (no_op, settled) {
        (true, _) => HandoffStatus::NoOp,
        (false, true) => last.status,
        (false, false) => HandoffStatus::Pending,
    };
    let links = Links::of(&handoff);
    let view = SubmittedView {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        status: status.as_str().to_owned(),
        successor_id: (last.id != handoff.id).then(|| last.id.to_string()),
        reason: if settled { last.reason.clone() } else { None },
        receipt,
        warnings: warnings.iter().map(WarningView::from).collect(),
        links: links.clone(),
    };
    let code = if no_op || settled { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (code, axum::Json(view)).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&links.itself) {
        headers.insert(header::LOCATION, location);
    }
    if settled {
        headers.insert(
            HeaderName::from_static("preference-applied"),
            HeaderValue::from_str(&format!("wait={}", waited.as_secs()))
                .unwrap_or(HeaderValue::from_static("wait")),
        );
    }
    if replayed {
        headers.insert(
            HeaderName::from_static("idempotency-replayed"),
            HeaderValue::from_static("true"),
        );
    }
    Ok(response)
}

async fn await_verdict(
    api: &Api,
    handoff: Handoff,
    watch: Option<HandoffWatch>,
    wait: Duration,
) -> Result<Handoff, Problem> {
    let key = (handoff.tenant.clone(), handoff.id);
    let deadline = tokio::time::Instant::now() + wait;
    let (mut latest, mut watch) = if let Some(watch) = watch {
        (handoff, watch)
    } else {
        let watch = api.intake.ledger.watch(key.clone());
        (api.store.find_handoff(&key).await?.unwrap_or(handoff), watch)
    };
    loop {
        while latest.status == HandoffStatus::Pending {
            tokio::select! {
                told = watch.changed() => {
                    latest = told.map_or(latest, Arc::unwrap_or_clone);
                }
                () = tokio::time::sleep(WAIT_POLL) => {
                    let key = (latest.tenant.clone(), latest.id);
                    latest = api.store.find_handoff(&key).await?.unwrap_or(latest);
                }
                () = tokio::time::sleep_until(deadline) => return Ok(latest),
                () = api.stopping.cancelled() => return Ok(latest),
            }
        }
        // Whoever was asked instead has its say.
        let Some(next) = successor(api, &latest).await? else { return Ok(latest) };
        let key = (next.tenant.clone(), next.id);
        watch = api.intake.ledger.watch(key.clone());
        latest = api.store.find_handoff(&key).await?.unwrap_or(next);
    }
}

/// The handoff that stands in the place of one that ended badly: the broker gave its message to another agent.
async fn successor(api: &Api, handoff: &Handoff) -> Result<Option<Handoff>, Problem> {
    let ended = matches!(
        handoff.status,
        HandoffStatus::Rejected
            | HandoffStatus::Expired
            | HandoffStatus::Failed
            | HandoffStatus::DeadLettered
            | HandoffStatus::Canceled
    );
    if !ended {
        return Ok(None);
    }
    let filter = HandoffFilter { task_id: Some(handoff.task_id), ..HandoffFilter::default() };
    let mut after = None;
    loop {
        let page = api.store.list_handoffs(&handoff.tenant, &filter, after.as_ref(), 500).await?;
        let Some(last) = page.last() else { return Ok(None) };
        after = Some((last.created_at, last.id.to_string()));
        let stands_in = |one: &Handoff| one.parent_id == Some(handoff.id) && one.origin.is_some();
        if let Some(next) = page.into_iter().find(stands_in) {
            return Ok(Some(next));
        }
    }
}

/// The last in the row of those that stand in for one another.
async fn last_successor(api: &Api, handoff: &Handoff) -> Result<Option<Handoff>, Problem> {
    let mut last = None;
    while let Some(next) = successor(api, last.as_ref().unwrap_or(handoff)).await? {
        last = Some(next);
    }
    Ok(last)
}

/// What the gate would say.
#[derive(Debug, Serialize, ToSchema)]
pub struct ValidationView {
    /// It would pass.
    pub valid: bool,
    /// The primary reason, where it would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::ErrorCode>)]
    pub reason: Option<String>,
    /// Everything that was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureView>,
    /// What of the message would be taken and not hold in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

/// As whom to ask.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ValidateParams {
    /// For operators: the agent, sender or receiver of the message, in whose place they ask.
    #[serde(rename = "as")]
    agent: Option<String>,
}

/// The caller, in the place of the agent that `as` names: an operator represents any agent, an agent itself alone.
pub struct Represented(Principal);

impl FromRequestParts<Api> for Represented {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Caller(mut principal) = Caller::from_request_parts(parts, api).await?;
        let Params(params) = Params::<ValidateParams>::from_request_parts(parts, api).await?;
        let Some(agent) = parameter::<AgentId>("as", params.agent.as_deref())? else {
            return Ok(Self(principal));
        };
        if !operates(&principal) && principal.agent.as_ref() != Some(&agent) {
            return Err(Problem::new(
                Code::Forbidden,
                "only an operator may ask for another agent",
            ));
        }
        let agents = api.intake.directory.agents(&principal.tenant).await?;
        if agents.roster.find(&agent).is_none() {
            return Err(Problem::not_found("agent"));
        }
        principal.agent = Some(agent);
        Ok(Self(principal))
    }
}

/// Ask what the gate and the ledger would say now; writes and reserves nothing. A message's sender asks
/// before it submits, its receiver about what it was sent, an operator for either (`as`).
#[utoipa::path(
    post, path = "/handoffs/validate", tag = "handoffs", operation_id = "validateHandoff",
    params(ValidateParams),
    request_body(content = HandoffMessage, description = "The canonical handoff message", content_type = "application/json"),
    responses(
        (status = 200, description = "What the gate would say", body = ValidationView),
        (status = 403, description = "`as` names another agent, and the key is no operator's"),
        (status = 404, description = "`as` names no agent"),
        BadBody,
    )
)]
pub async fn validate(
    State(api): State<Api>,
    Represented(principal): Represented,
    body: JsonBytes,
) -> Result<axum::Json<ValidationView>, Problem> {
    let (contents, body) = (&api.contents, body.into_body());
    Ok(axum::Json(match api.intake.validate(&principal, contents, body).await? {
        Ok(warnings) => ValidationView {
            valid: true,
            reason: None,
            failures: Vec::new(),
            warnings: warnings.iter().map(WarningView::from).collect(),
        },
        Err(failures) => ValidationView {
            valid: false,
            reason: primary(&failures).map(|code| code.as_str().to_owned()),
            failures: failures.iter().map(view).collect(),
            warnings: Vec::new(),
        },
    }))
}

/// A handoff that the caller may see.
pub async fn find(api: &Api, principal: &Principal, id: HandoffId) -> Result<Handoff, Problem> {
    let sees = |handoff: &Handoff, agent: &AgentId| {
        let ruling = handoff.ruling.as_ref();
        // The agent that gets the task back reads what came of it, whoever handed it on meanwhile.
        let returns_to = ruling.and_then(|ruling| ruling.returns_to.as_ref());
        [Some(&handoff.source), Some(&handoff.target), returns_to].contains(&Some(agent))
    };
    api.store
        .find_handoff(&(principal.tenant.clone(), id))
        .await?
        .filter(|handoff| limited_to(principal).is_none_or(|agent| sees(handoff, &agent)))
        .ok_or_else(|| Problem::not_found("handoff"))
}

/// What to show besides.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetParams {
    /// `message`: show the stored message too.
    include: Option<String>,
}

/// Read one handoff.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}", tag = "handoffs", operation_id = "getHandoff",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), GetParams),
    responses(
        (status = 200, description = "The handoff", body = HandoffView),
        (status = 400, description = "A malformed parameter"),
        (status = 404, description = "No such handoff, or not the caller's"),
    )
)]
pub async fn get(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<GetParams>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let handoff = find(&api, &principal, id).await?;
    let mut view = HandoffView::from(&handoff);
    view.receipt = receipt_of(&api, &handoff).await?;
    view.successor_id = last_successor(&api, &handoff).await?.map(|last| last.id.to_string());
    if handoff.status == HandoffStatus::Completed {
        let said = results::find(&api, &principal.tenant, handoff.task_id, handoff.id).await?;
        view.say_result(said);
    }
    match params.include.as_deref() {
        None => {}
        Some("message") => {
            // A dead letter waits for a person: its text reaches no agent, by no way.
            let reader = limited_to(&principal);
            let party = |agent| handoff.source == agent || handoff.target == agent;
            let withheld = reader.is_some_and(|agent| {
                handoff.status == HandoffStatus::DeadLettered || !party(agent)
            });
            if let Some(content) = handoff.content_id.filter(|_| !withheld) {
                view.message = api.contents.find_json(&principal.tenant, content).await?;
                if principal.agent.as_ref() == Some(&handoff.target)
                    && let Some(message) = &mut view.message
                {
                    let agents = api.intake.directory.agents(&principal.tenant).await?;
                    as_delivered(&api, agents.roster.find(&handoff.target), message);
                }
            }
        }
        Some(_) => return Err(Problem::invalid("include can be: message")),
    }
    Ok(axum::Json(view))
}

/// The message as its receiver gets it: in the older form where it takes an older schema only, and there is one.
fn as_delivered(api: &Api, receiver: Option<&Agent>, message: &mut serde_json::Value) {
    let Some(receiver) = receiver else { return };
    if let Ok(MessageForm::Older(older)) = api.intake.gate.schemas.form_for(message, receiver) {
        *message = older.message;
    }
}

/// Which handoffs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// On this task.
    task_id: Option<String>,
    /// In this state.
    status: Option<String>,
    /// From this agent.
    from_agent: Option<String>,
    /// To this agent.
    to_agent: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List handoffs, newest first; an agent sees those it sends or receives.
#[utoipa::path(
    get, path = "/handoffs", tag = "handoffs", operation_id = "listHandoffs",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<HandoffView>),
        (status = 400, description = "A malformed parameter"),
    )
)]
pub async fn list(
    State(api): State<Api>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<HandoffView>>, Problem> {
    let limit = page_size(params.limit)?;
    let filter = HandoffFilter {
        task_id: parameter::<TaskId>("taskId", params.task_id.as_deref())?,
        status: params
            .status
            .as_deref()
            .map(|text| {
                HandoffStatus::parse(text).ok_or_else(|| Problem::invalid("status is not one"))
            })
            .transpose()?,
        source: parameter::<AgentId>("fromAgent", params.from_agent.as_deref())?,
        target: parameter::<AgentId>("toAgent", params.to_agent.as_deref())?,
        party: limited_to(&principal),
    };
    let after = read_cursor(params.cursor.as_deref())?;
    let rows =
        api.store.list_handoffs(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::new(
        rows,
        limit,
        |row| (row.created_at, row.id.to_string()),
        |row| HandoffView::from(row),
    )))
}

/// Not the caller's to decide.
#[must_use]
pub fn not_the_receiver() -> Problem {
    Problem::new(Code::Forbidden, "only the handoff's receiver may say this")
}
