//! `/handoffs`: submitting, validating, reading.

use axum::extract::{Extension, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::arrival::Arrival;
use super::auth::{Caller, Masked};
use super::contracts::tell_deprecation;
use super::extract::{
    Id, JsonBytes, Params, idempotency_key, page_size, parameter, read_cursor, time_parameter,
    trace_context,
};
use super::groups;
use super::layer::Door;
use super::open;
use super::problem::{BadBody, FailureView, Problem, ProblemMore, WarningView, view};
use super::questions;
use super::users::user_parameter;
use super::verdicts::header_token;
use super::views::{
    ContextView, HandoffMessage, HandoffView, Links, Page, ReceiptView, StreamView, SubmittedView,
};
use super::waiting::{self, Wait};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::waiting::AnsweredState;
use handoffd_broker::intake::{Answer, IntakeError, Request, SubmittedHandoff, results};
use handoffd_broker::judged;
use handoffd_broker::ledger::reply::LedgerError;
use handoffd_broker::reader::WordAccess;
use handoffd_broker::tree;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, primary};
use handoffd_domain::group::name_branch;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_domain::warning::Warning;
use handoffd_evidence::append::LoggedRecord;
use handoffd_evidence::receipt::Receipt;
use handoffd_evidence::record::SealedRecord;
use handoffd_gate::schema::older::MessageForm;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::reach::{BOUNDS, Reach};
use handoffd_store::store::{HandoffFilter, HandoffKey};

/// The list in its cursors.
const LIST: &str = "handoffs";

/// Submit a handoff: the gate, one commit, then delivery.
#[utoipa::path(
    post, path = "/handoffs", tag = "handoffs", operation_id = "submitHandoff",
    request_body(content = HandoffMessage, description = "The canonical handoff message; see /schemas/handoff/2.1", content_type = "application/json"),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated submission safe"),
        ("Handoff-Fencing-Token" = Option<i64>, Header, description = "The token by which the sender holds `parentHandoffId`: 409 `STALE_LEASE` where another worker took over"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold the answer up to N seconds (60 at most) for the verdict; `wait=N, until=ended`: for the end, with the result; `wait=N, until=asked`: for the end, or a question of the receiver"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context; a valid one goes before the message's, with its `tracestate`"),
        ("tracestate" = Option<String>, Header, description = "The vendors' part of that trace context"),
    ),
    responses(
        (status = 200, description = "The verdict came within the wait, or a handoff to oneself", body = SubmittedView),
        (status = 202, description = "Committed", body = SubmittedView),
        (status = 400, description = "Not JSON"),
        (status = 401, description = "No valid key, or a wrong signature"),
        (status = 403, description = "Not the key's agent, or not on the allowlist"),
        (status = 409, description = "The id exists with another content (`storedStepDigest` has the digest of that step), the task has ended, or the token is stale"),
        BadBody,
        (status = 422, description = "Refused by the gate"),
        (status = 503, description = "Overloaded, or the store is away: nothing was written"),
    )
)]
pub(super) async fn submit(
    State(api): State<Api>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Extension(arrival): Extension<Arrival>,
    door: Option<Extension<Door>>,
    body: JsonBytes,
) -> Result<Response, Problem> {
    let wait = waiting::preferred(&headers)?;
    let request = Request {
        idempotency_key: idempotency_key(&headers)?,
        fencing_token: header_token(&headers)?,
        trace: trace_context(&headers),
        awaited: wait.is_some(),
        arrived_at: Some(arrival.before(api.now())),
        door: door.map(|Extension(Door(name))| name),
        user_ref: None,
    };
    match api.intake.submit(&principal, body.into_body(), request).await {
        Ok(Answer::Submitted(done)) => submitted(&api, done, wait, door.is_some()).await,
        Ok(Answer::Group(done)) => groups::submitted(&api, done, wait).await,
        Ok(Answer::Refused { failures, replayed, retry_after, undone }) => {
            // Whole seconds, and not before.
            let retry_after = retry_after.map(|wait| wait.as_secs() + 1);
            Err(Problem { retry_after, undone, ..Problem::refusal(failures, replayed) })
        }
        Ok(Answer::Malformed(failure)) => Err(Problem::malformed(failure)),
        Err(IntakeError::Ledger(LedgerError::Exists(id))) => {
            let stored = api.intake.stored_step_digest(&principal, &api.contents, id).await?;
            let more = ProblemMore { stored_step_digest: stored, ..ProblemMore::default() };
            Err(Problem { more: Some(Box::new(more)), ..LedgerError::Exists(id).into() })
        }
        Err(err) => Err(err.into()),
    }
}

/// The handoff that a door's submission committed, as it stood then: an extension of the answer, so that a door whose
/// answer tells the handoff does not read it back.
#[derive(Clone)]
pub(crate) struct CommittedHandoff(pub(crate) Box<HandoffView>);

pub(super) async fn receipt_of(
    api: &Api,
    handoff: &Handoff,
) -> Result<Option<ReceiptView>, Problem> {
    let key = (handoff.tenant.clone(), handoff.id);
    match api.store.find_receipt(&key).await? {
        Some(sealed) => receipt_from(api, &key, &sealed).await,
        None => Ok(None),
    }
}

async fn receipt_from(
    api: &Api,
    (tenant, _): &HandoffKey,
    sealed: &SealedRecord,
) -> Result<Option<ReceiptView>, Problem> {
    let receipt = tree::receipt(&api.store, &api.notary, tenant, sealed).await?;
    Ok(receipt.as_ref().map(ReceiptView::from))
}

/// The receipt of a submission: made from the record that this call committed, else from the stored one.
pub(super) async fn submission_receipt(
    api: &Api,
    record: Option<&LoggedRecord>,
    handoff: &Handoff,
) -> Result<Option<ReceiptView>, Problem> {
    fault::at(Step::HeadSign);
    match record.and_then(|record| Receipt::fresh(record, &api.notary)) {
        Some(receipt) => Ok(Some(ReceiptView::from(&receipt))),
        None => receipt_of(api, handoff).await,
    }
}

/// The answer to a message to one receiver, after the wait that its sender asks for.
async fn submitted(
    api: &Api,
    done: SubmittedHandoff,
    wait: Option<Wait>,
    is_door: bool,
) -> Result<Response, Problem> {
    let SubmittedHandoff { handoff, record, replayed, repeated, contract, watch, warnings } = done;
    let receipt = submission_receipt(api, record.as_ref(), &handoff).await?;
    let committed = (is_door && !replayed).then(|| {
        let receipt = receipt.clone();
        Box::new(HandoffView { receipt, ..HandoffView::from(&*handoff) })
    });
    let awaited = wait.map(|wait| (wait, watch));
    let state = api.intake.answered_state(&handoff, repeated, awaited, &api.stopping).await?;
    let result =
        if state.has_result { api.statements().completion(&state.last).await? } else { None };
    let applied = wait.filter(|_| state.is_reached).map(waiting::applied);
    let is_done = state.status == HandoffStatus::NoOp || applied.is_some();
    let code = if is_done { StatusCode::OK } else { StatusCode::ACCEPTED };
    let view = submitted_view(&handoff, receipt, state, result, &warnings);
    let mut response = answered(code, view, applied.as_deref(), replayed);
    if let Some(ready) = contract
        && let Some(deprecation) = &ready.contract().deprecation
    {
        let put_at = ready.created_at().seconds();
        tell_deprecation(response.headers_mut(), deprecation, put_at);
    }
    if let Some(view) = committed {
        response.extensions_mut().insert(CommittedHandoff(view));
    }
    Ok(response)
}

fn submitted_view(
    handoff: &Handoff,
    receipt: Option<ReceiptView>,
    state: AnsweredState,
    result: Option<Value>,
    warnings: &[Warning],
) -> SubmittedView {
    let AnsweredState { last, status, is_settled, .. } = state;
    SubmittedView {
        handoff_id: handoff.id.to_string(),
        task_id: handoff.task_id.to_string(),
        status: status.as_str().to_owned(),
        successor_id: (last.id != handoff.id).then(|| last.id.to_string()),
        group: None,
        reason: last.reason.filter(|_| is_settled),
        result: result.and_then(results::result),
        receipt,
        context: handoff.context.map(ContextView::from),
        stream: handoff.stream.as_ref().map(StreamView::from),
        warnings: warnings.iter().map(WarningView::from).collect(),
        links: Links::of(handoff),
    }
}

/// The answer to a submission with its headers.
pub(super) fn answered(
    code: StatusCode,
    view: SubmittedView,
    applied: Option<&str>,
    replayed: bool,
) -> Response {
    let location = HeaderValue::from_str(&view.links.itself);
    let mut response = (code, axum::Json(view)).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = location {
        headers.insert(header::LOCATION, location);
    }
    if let Some(applied) = applied.and_then(|applied| HeaderValue::from_str(applied).ok()) {
        headers.insert(HeaderName::from_static("preference-applied"), applied);
    }
    if replayed {
        headers.insert(
            HeaderName::from_static("idempotency-replayed"),
            HeaderValue::from_static("true"),
        );
    }
    response
}

/// The gate's answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ValidationView {
    /// Whether the gate would accept the message.
    pub valid: bool,
    /// The primary reason, where it would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::ErrorCode>)]
    pub reason: Option<String>,
    /// Everything that was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureView>,
    /// The parts of the message that would be accepted and not hold in full.
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
        if !principal.rights().operates() && principal.agent.as_ref() != Some(&agent) {
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
        (status = 200, description = "The verdict that the gate would give", body = ValidationView),
        (status = 403, description = "`as` names another agent, and the key is not an operator's"),
        (status = 404, description = "`as` names no agent"),
        BadBody,
    )
)]
pub(super) async fn validate(
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
pub(crate) async fn find(
    api: &Api,
    principal: &Principal,
    id: HandoffId,
) -> Result<Handoff, Problem> {
    let handoff = principal.reader().find_handoff(&api.store, id).await?;
    handoff.ok_or_else(|| Problem::not_found("handoff"))
}

/// Members to show besides the defaults.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetParams {
    /// `message`: show the stored message too; `verdict`: what the receiver said with its verdict; `questions`: all questions with
    /// their answers. Several are separated by commas.
    pub(super) include: Option<String>,
    /// Seconds to hold the answer, 60 at most: until the handoff, or the one that replaces it, has a verdict.
    #[param(minimum = 0, maximum = 60)]
    pub(super) wait: Option<u64>,
    /// With `wait`: `verdict` (unless said), `ended`, `asked` (ended, or a question waits for an answer), or `answered` (no
    /// question waits).
    pub(super) until: Option<String>,
}

/// Members that a page shows besides the defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) message: bool,
    pub(super) verdict: bool,
    pub(super) questions: bool,
}

impl GetParams {
    /// The parts that `include` names.
    pub(super) fn included(&self) -> Result<Included, Problem> {
        let mut included = Included::default();
        for part in self.include.as_deref().iter().flat_map(|include| include.split(',')) {
            match part.trim() {
                "message" => included.message = true,
                "verdict" => included.verdict = true,
                "questions" => included.questions = true,
                _ => return Err(Problem::invalid("include can be: message, verdict, questions")),
            }
        }
        Ok(included)
    }
}

/// Read one handoff, or a handoff to several receivers by the id of its message.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}", tag = "handoffs", operation_id = "getHandoff",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), GetParams),
    responses(
        (status = 200, description = "The handoff", body = HandoffView),
        (status = 400, description = "A malformed parameter"),
        (status = 404, description = "No such handoff, or not the caller's"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Id(id): Id<HandoffId>,
    Params(params): Params<GetParams>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let found = find(&api, &principal, id).await;
    // A dead letter to several receivers that was released has the id of its group.
    if !found.as_ref().is_ok_and(|handoff| handoff.status != HandoffStatus::DeadLettered)
        && let Some(page) = groups::page(&api, &principal, id, &params).await?
    {
        return Ok(axum::Json(page));
    }
    let mut handoff = found?;
    let mut last = None;
    if let Some(wait) = waiting::asked(params.wait, params.until.as_deref())? {
        last = Some(api.intake.wait_for(handoff.clone(), None, wait, &api.stopping).await?)
            .filter(|one| one.id != id);
        if !wait.time.is_zero() {
            // It may have been erased, or handed to others, meanwhile.
            handoff = find(&api, &principal, id).await?;
        }
    }
    let last = match last {
        None => api.intake.last_successor(&handoff).await?,
        last => last,
    };
    let mut view = shown(&api, &principal, &handoff, params.included()?).await?;
    view.successor_id = last.map(|last| last.id.to_string());
    Ok(axum::Json(view))
}

/// The page of a handoff with the parts that its caller asks for.
async fn shown(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
    included: Included,
) -> Result<HandoffView, Problem> {
    let mut view = HandoffView::from(handoff);
    view.asked = questions::last(api, principal, handoff).await?;
    let key = (handoff.tenant.clone(), handoff.id);
    if let Some(sealed) = api.store.find_receipt(&key).await? {
        view.receipt = receipt_from(api, &key, &sealed).await?;
        view.safety = judged::of(&api.store, handoff).await?;
    }
    if handoff.status == HandoffStatus::Completed {
        view.say_result(api.statements().completion(handoff).await?);
    }
    if included.verdict {
        view.verdict = api.statements().verdict(handoff).await?;
    }
    if included.questions {
        view.questions = Some(questions::all(api, principal, handoff).await?);
    }
    if included.message {
        view.message = shown_message(api, principal, handoff).await?;
    }
    Ok(view)
}

/// The message of a handoff as its caller may read it.
async fn shown_message(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
) -> Result<Option<Value>, Problem> {
    let reader = principal.reader();
    let open = reader.words_of(handoff) == WordAccess::Open;
    let receives = reader.is_receiver(handoff);
    let sent = handoff.compressed_id().filter(|_| receives).or(handoff.content_id);
    let Some(content) = sent.filter(|_| open) else { return Ok(None) };
    let mut message = api.contents.find_json(&principal.tenant, content).await?;
    if receives && let Some(message) = &mut message {
        let agents = api.intake.directory.agents(&principal.tenant).await?;
        name_branch(message, handoff.id);
        as_delivered(api, agents.roster.find(&handoff.target), message);
    }
    Ok(message)
}

/// The message as its receiver gets it: in the older form where it takes an older schema only, and there is one.
fn as_delivered(api: &Api, receiver: Option<&Agent>, message: &mut Value) {
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
    /// Only handoffs of this task.
    task_id: Option<String>,
    /// Only rows in this state.
    status: Option<String>,
    /// Only of this conversation (`conversationId` of the messages).
    conversation_id: Option<String>,
    /// Only from this sender.
    from_agent: Option<String>,
    /// Only to this receiver.
    to_agent: Option<String>,
    /// Only committed at this time or later, RFC 3339.
    from: Option<String>,
    /// Only committed before this time, RFC 3339.
    to: Option<String>,
    /// Only for the user with this reference; `POST /users/search` gives it.
    user_ref: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List handoffs, newest first; an agent sees those it sends or receives.
///
/// A page looks at 20,000 handoffs at most: it may have few rows, or none, and `nextCursor` goes on.
#[utoipa::path(
    get, path = "/handoffs", tag = "handoffs", operation_id = "listHandoffs",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<HandoffView>),
        (status = 400, description = "A malformed parameter"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<HandoffView>>, Problem> {
    let limit = page_size(params.limit)?;
    let cursor = params.cursor.clone();
    let mut filter = params.filter(principal.reader().limit())?;
    let newest = async || {
        let party = principal.reader().limit().cloned();
        let all = HandoffFilter { party, ..HandoffFilter::default() };
        let rows = api.store.list_handoffs(&principal.tenant, &all, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.id.to_string())))
    };
    let after = read_cursor(&api, LIST, cursor.as_deref(), newest).await?;
    let tenant = &principal.tenant;
    filter.reach = api.store.reach_of_handoffs(tenant, &filter, after.as_ref(), BOUNDS).await?;
    let rows =
        api.store.list_handoffs(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::within(
        LIST,
        rows,
        (limit, &filter.reach),
        |row| (row.created_at, row.id.to_string()),
        |row| HandoffView::from(row),
    )))
}

impl ListParams {
    /// The handoffs to list, of an agent those that it sends or receives.
    fn filter(self, party: Option<&AgentId>) -> Result<HandoffFilter, Problem> {
        let status = |text: &str| {
            HandoffStatus::parse(text).ok_or_else(|| Problem::invalid("status is not one"))
        };
        Ok(HandoffFilter {
            task_id: parameter::<TaskId>("taskId", self.task_id.as_deref())?,
            status: self.status.as_deref().map(status).transpose()?,
            source: parameter::<AgentId>("fromAgent", self.from_agent.as_deref())?,
            target: parameter::<AgentId>("toAgent", self.to_agent.as_deref())?,
            conversation: conversation(self.conversation_id)?,
            party: party.cloned(),
            from: time_parameter("from", self.from.as_deref())?,
            until: time_parameter("to", self.to.as_deref())?,
            user: user_parameter(self.user_ref)?,
            reach: Reach::Whole,
        })
    }
}

/// The id of a conversation: 1 to 256 characters, as messages have it.
fn conversation(id: Option<String>) -> Result<Option<String>, Problem> {
    let fits = |id: &String| (1..=256).contains(&id.chars().count()) && !id.contains('\0');
    match id {
        Some(id) if !fits(&id) => {
            Err(Problem::invalid("conversationId must have 1 to 256 characters"))
        }
        id => Ok(id),
    }
}
