//! `GET /tasks/{taskId}/trace`: everything that happened on a task, streamed.

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Open, forbidden};
use super::bundle;
use super::extract::{Id, Params, bad_cursor, page_size, read_id, time_parameter, write_id};
use super::open;
use super::problem::Problem;
use super::record::{RecordCost, RecordGroup, TraceRecord};
use super::withheld::closed_to_metadata;
use handoffd_broker::directory::Principal;
use handoffd_broker::trace::{self, RowDifference, TaskLog, Verification, WindowQuery};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::TaskId;
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::window::ContextParts;
use handoffd_evidence::account::{AgentPart, HandoffCost, TaskCost};
use handoffd_evidence::record::{RecordParty, RulingContract, StreamFacts};

/// The list in its cursors.
const LIST: &str = "trace";

/// Query of a trace. With `from`, `to`, `cursor` or `limit` the answer is a window of the task's records, newest first.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TraceParams {
    /// `json` (unless said), or `bundle`: a zip for a regulator, which `handoffd verify` checks offline.
    format: Option<String>,
    /// Put personal data into the bundle; for operators and admins.
    #[serde(rename = "includePersonal", default)]
    #[param(rename = "includePersonal", required = false)]
    include_personal: bool,
    /// Only records of this time or later, RFC 3339.
    from: Option<String>,
    /// Only records before this time, RFC 3339.
    to: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Records of a window, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

impl TraceParams {
    /// The window that the query asks for; `None` for the whole trace.
    fn window(&self) -> Result<Option<WindowQuery>, Problem> {
        let from = time_parameter("from", self.from.as_deref())?;
        let until = time_parameter("to", self.to.as_deref())?;
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            return Err(Problem::invalid("from must be earlier than to"));
        }
        let before = self.cursor.as_deref().map(read_place).transpose()?;
        let limit = page_size(self.limit)?;
        let any = from.is_some() || until.is_some() || before.is_some() || self.limit.is_some();
        Ok(any.then_some(WindowQuery { from, until, before, limit }))
    }
}

/// Reads a cursor: a place of the log.
fn read_place(cursor: &str) -> Result<i64, Problem> {
    let place = read_id(LIST, cursor)?;
    if place < 0 { Err(bad_cursor()) } else { Ok(place) }
}

/// Everything that happened on a task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceView {
    /// UUID of the task.
    pub task_id: String,
    /// Its state; null if every submission on it was refused.
    #[schema(required, value_type = Option<open::TaskStatus>)]
    pub status: Option<String>,
    /// One entry a boundary, in log order; in a window newest first.
    pub handoffs: Vec<TraceHandoff>,
    /// Every record of the task, in log order; in a window those of the page, newest first.
    pub records: Vec<TraceRecord>,
    /// The agents that had a part; absent in a window.
    #[schema(nullable = false)]
    pub agents: Option<Vec<AgentPart>>,
    /// The cost of the task, by its records; absent in a window.
    #[schema(nullable = false)]
    pub cost: Option<TaskCost>,
    /// The evidence that was recomputed.
    pub verification: Verification,
    /// Give this as `cursor` for the next window; absent on the last, and in a whole trace.
    #[schema(nullable = false)]
    pub next_cursor: Option<String>,
}

/// A handoff as a trace tells of it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceHandoff {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// The handoff before it.
    #[schema(required)]
    pub parent_handoff_id: Option<String>,
    /// UUID of the task.
    pub task_id: String,
    /// Its record's place in the log.
    pub leaf_index: i64,
    /// When it was committed, RFC 3339.
    pub committed_at: String,
    /// Sender, as its record names it.
    #[schema(required)]
    pub from_agent: Option<RecordParty>,
    /// Receiver, as its record names it.
    #[schema(required)]
    pub to_agent: Option<RecordParty>,
    /// The contract that ruled the edge.
    #[schema(required)]
    pub contract: Option<RulingContract>,
    /// The description of the task; null if the message is gone or the caller may not read it.
    #[schema(required)]
    pub task_description: Option<String>,
    /// The same in short, where the message has it: what a task is about whose first handoff is marked `INITIAL`.
    #[schema(nullable = false)]
    pub task_summary: Option<String>,
    /// The costs that the message stated, cumulative.
    #[schema(required)]
    pub cost_tracking: Option<RecordCost>,
    /// The cost of the hop; null in a window.
    #[schema(required)]
    pub cost: Option<HandoffCost>,
    /// Its status.
    #[schema(value_type = Option<open::HandoffStatus>, nullable = false)]
    pub status: Option<String>,
    /// Why it ended badly; null for an agent that has no part in it.
    pub reason: Option<String>,
    /// Delivery attempts begun so far.
    #[schema(nullable = false)]
    pub attempts: Option<i32>,
    /// When the receiver accepted, RFC 3339.
    pub accepted_at: Option<String>,
    /// When it ended, RFC 3339.
    pub ended_at: Option<String>,
    /// Between which regions the data went, and on what basis.
    #[schema(value_type = Option<ResidencyFacts>, nullable = false)]
    pub residency: Option<Value>,
    /// Its place among the handoffs of a message to several receivers.
    #[schema(nullable = false)]
    pub group: Option<RecordGroup>,
    /// The message against its receiver's context window.
    #[schema(value_type = Option<TraceContextSize>, nullable = false)]
    pub context: Option<Value>,
    /// Its stream, where the message comes in pieces; the chunks are at /handoffs/{handoffId}/chunks.
    #[schema(value_type = Option<StreamFacts>, nullable = false)]
    pub stream: Option<Value>,
    /// Why its message is not there any more.
    #[schema(value_type = Option<open::GoneReason>, nullable = false)]
    pub message_gone: Option<String>,
    /// Members in which the database's row differs from the records, each with both values (`row`, `record`). The entry has
    /// the record's, and `verification` names the fault `state`.
    #[schema(value_type = Option<std::collections::BTreeMap<String, RowDifference>>, nullable = false)]
    pub row_differs: Option<Value>,
}

/// A message against its receiver's context window, and how it grew.
#[derive(ToSchema)]
pub struct TraceContextSize {
    /// Tokens of the message.
    pub tokens: u64,
    /// The receiver's context window, in tokens.
    #[schema(nullable = false)]
    pub window: Option<u64>,
    /// The most tokens of a message to it.
    #[schema(nullable = false)]
    pub limit: Option<u64>,
    /// The action on it.
    #[schema(value_type = open::ContextAction)]
    pub action: String,
    /// How the tokens were counted.
    #[schema(value_type = open::Tokenizer)]
    pub tokenizer: String,
    /// The tokens by part.
    pub parts: ContextParts,
    /// Tokens more than in the handoff before it.
    #[schema(nullable = false)]
    pub growth: Option<i64>,
}

enum TraceForm {
    Json,
    Bundle { personal: bool },
    Window(WindowQuery),
}

/// A caller that may read a trace in the form it asks for: agents get no bundle, auditors no personal data.
pub struct TraceAccess {
    principal: Principal,
    form: TraceForm,
}

impl FromRequestParts<Api> for TraceAccess {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Open(Caller(principal)) = Open::<Caller>::from_request_parts(parts, api).await?;
        let Params(params) = Params::<TraceParams>::from_request_parts(parts, api).await?;
        let personal = params.include_personal;
        let window = params.window()?;
        let form = match params.format.as_deref() {
            Some("bundle") if window.is_some() => {
                return Err(Problem::invalid("from, to, cursor and limit are for format=json"));
            }
            Some("bundle") => TraceForm::Bundle { personal },
            Some("json") | None if !personal => window.map_or(TraceForm::Json, TraceForm::Window),
            Some("json") | None => {
                return Err(Problem::invalid("includePersonal is for format=bundle"));
            }
            Some(_) => return Err(Problem::invalid("format is json or bundle")),
        };
        if matches!(form, TraceForm::Bundle { .. }) {
            if !principal.rights().reads_contents() {
                return Err(closed_to_metadata());
            }
            if principal.rights().is_agent() {
                return Err(forbidden("an auditor or operator"));
            }
            if personal && !principal.rights().operates() {
                let why = "only an operator may have personal data in a bundle";
                return Err(Problem::new(Code::Forbidden, why));
            }
        }
        Ok(Self { principal, form })
    }
}

/// Everything that happened on a task.
#[utoipa::path(
    get, path = "/tasks/{taskId}/trace", tag = "tasks", operation_id = "getTrace",
    params(("taskId" = String, Path, description = "The task's UUID"), TraceParams),
    responses(
        (status = 200, description = "One entry a boundary, every record, and the cost; or a window of it. An agent reads the words (content, task description, reason) of its own handoffs only. As a bundle: a zip, see docs/bundle.md", content((TraceView = "application/json"), (Vec<u8> = "application/zip"))),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "A bundle is not for agents, nor personal data for auditors"),
        (status = 404, description = "No such task, or not the caller's"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn trace(
    State(api): State<Api>,
    TraceAccess { principal, form }: TraceAccess,
    Id(id): Id<TaskId>,
) -> Result<Response, Problem> {
    if let TraceForm::Bundle { personal } = form {
        return bundle::answer(&api, &principal, id, personal).await;
    }
    let tenant = principal.tenant.clone();
    let status = match super::tasks::find(&api, &principal, id).await {
        Ok(task) => Some(task.status.as_str()),
        // A task whose every submission was refused has records and no row; people may see them.
        Err(problem) => {
            let any = principal.reader().sees_all()
                && !api.store.list_records(&tenant, Some(id), 0, 1, false).await?.is_empty();
            if !any {
                return Err(problem);
            }
            None
        }
    };
    if let TraceForm::Window(query) = form {
        let document = window(&api, &principal, (id, status), query).await?;
        return Ok(axum::Json(document).into_response());
    }
    let (store, contents) = (api.store.clone(), api.contents.clone());
    let body = trace::stream(store, contents, tenant, id, status, principal.reader().shown_words());
    let body = futures_util::stream::unfold(body, |mut body| async move {
        body.recv().await.map(|chunk| (chunk, body))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response())
}

/// A window of a task's trace.
async fn window(
    api: &Api,
    principal: &Principal,
    (id, status): (TaskId, Option<&str>),
    query: WindowQuery,
) -> Result<Value, Problem> {
    let tenant = &principal.tenant;
    let size = api.store.find_head(tenant).await?.map_or(0, |head| head.size);
    if query.before.is_some_and(|before| before > size) {
        return Err(Problem::ahead("cursor", write_id(LIST, size)));
    }
    let log = TaskLog { store: &api.store, contents: &api.contents, tenant, id, until: i64::MAX };
    let (mut document, next) =
        trace::window(&log, status, &principal.reader().shown_words(), query).await?;
    if let Some(next) = next {
        document["nextCursor"] = write_id(LIST, next).into();
    }
    Ok(document)
}
