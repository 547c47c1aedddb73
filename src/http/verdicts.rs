//! The receivers' calls: accept, reject, heartbeat, complete, fail (specification §3).

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use tracing::Span;
use utoipa::ToSchema;

use super::Api;
use super::auth::AgentCaller;
use super::extract::{Id, Json, Said, trace_context};
use super::handoffs::find;
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::views::HandoffView;
use handoffd_broker::intake::spoken::{Addressed, Spoken};
use handoffd_broker::intake::verdicts::{Heard, TakeoverBody};
use handoffd_broker::telemetry;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;
use handoffd_domain::trace_context::TraceParent;
use handoffd_domain::warning::Warning;
use handoffd_gate::reply::ReplyVerdict;

/// A receiver's optional words when it takes the task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct AcceptBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// How often the broker will hear of this worker. Another worker of the agent may take the handoff over once four such
    /// intervals passed without a word. Without it the lease cannot be taken over before it ends.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub heartbeat_interval_ms: Option<u64>,
}

/// Why a receiver refuses the task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RejectBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// Why: a code such as `MISSING_CLAUSE_TEXT`; `REJECTED` unless said.
    pub reason: Option<String>,
    /// In words, or as data: free.
    pub details: Option<Value>,
}

/// A receiver at work.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct HeartbeatBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// How often the broker will hear of this worker from now on; as it said before where absent.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub heartbeat_interval_ms: Option<u64>,
}

/// The result of the task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct CompleteBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// Result of the receiver: any JSON.
    pub result: Option<Value>,
    /// The spending up to then, cumulative as in a message.
    pub cost_tracking: Option<SaidCost>,
    /// How many rounds it took; more than the message's `maxIterations` (15 unless said) is refused.
    #[schema(minimum = 0)]
    pub iterations: Option<i64>,
    /// The conversation in condensed form.
    pub conversation_summary: Option<String>,
}

/// Why a receiver gives up.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct FailBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// Why: a text, or an object with `code` and `message`.
    pub error: Option<SaidError>,
    /// The spending up to then, cumulative as in a message.
    pub cost_tracking: Option<SaidCost>,
}

/// Why a receiver gives up.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum SaidError {
    /// In words, or a code.
    Text(String),
    /// Code and words in one object.
    Object(SaidErrorObject),
}

/// Why a receiver gives up, as a code and in words.
#[derive(Serialize, ToSchema)]
pub struct SaidErrorObject {
    /// Code of the receiver's own choice.
    pub code: Option<String>,
    /// Sentence for people on what failed.
    pub message: Option<String>,
}

/// The spending that a receiver reports.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct SaidCost {
    /// US dollars spent on the task so far.
    #[schema(rename = "costSpentSoFarUSD", minimum = 0, maximum = 1_000_000_000)]
    pub cost_spent_so_far_usd: Option<f64>,
    /// Tokens spent on the task so far.
    pub token_spent: Option<super::views::TokensView>,
}

macro_rules! verdict_endpoint {
    ($(#[$doc:meta])* $name:ident, $path:literal, $operation:literal, $body:ty, $verdict:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post, path = $path, tag = "verdicts", operation_id = $operation,
            params(
                ("handoffId" = String, Path, description = "The handoff's UUID"),
                ("Handoff-Fencing-Token" = Option<i64>, Header, description = "The token that came with the delivery; or `fencingToken` in the body"),
            ),
            request_body(content = $body, description = "Further members are kept with the record", content_type = "application/json"),
            responses(
                (status = 200, description = "The handoff as it is now", body = HandoffView),
                (status = 403, description = "Not the receiver's key"),
                (status = 404, description = "No such handoff"),
                (status = 409, description = "A stale token, or not in this state"),
                BadBody,
                (status = 422, description = "The token is missing, or the body does not fit"),
                Busy,
            )
        )]
        pub(super) async fn $name(
            State(api): State<Api>,
            caller: AgentCaller,
            Id(id): Id<HandoffId>,
            headers: HeaderMap,
            said: Said,
        ) -> Result<axum::Json<HandoffView>, Problem> {
            let handoff = find(&api, &caller.principal, id).await?;
            linked(&handoff, &headers);
            let addressed = Addressed::to(&caller.principal, handoff)?;
            let Said { mut members, unreadable } = said;
            let fencing_token = fencing_token(&headers, members.remove("fencingToken"))?;
            let (verdict, at) = ($verdict, api.now());
            let heard = Heard { verdict, fencing_token, members, unreadable, at };
            let Spoken { handoff, warnings } =
                api.intake.verdict(&api.contents, addressed, heard).await?;
            Ok(axum::Json(spoken(&handoff, &warnings)))
        }
    };
}

verdict_endpoint!(
    /// Take the task.
    accept, "/handoffs/{handoffId}/accept", "acceptHandoff", AcceptBody,
    ReplyVerdict::Accept
);
verdict_endpoint!(
    /// Refuse the task: it goes back to the sender's checkpoint.
    reject, "/handoffs/{handoffId}/reject", "rejectHandoff", RejectBody,
    ReplyVerdict::Reject
);
verdict_endpoint!(
    /// Extend the lease.
    heartbeat, "/handoffs/{handoffId}/heartbeat", "heartbeatHandoff", HeartbeatBody,
    ReplyVerdict::Heartbeat
);
verdict_endpoint!(
    /// Done. The safety rules read the result as they read a message: 422 `SAFETY_VIOLATION` leaves the handoff as it is, and so
    /// does 422 `MAX_ITERATIONS` for more rounds than the message allows.
    complete, "/handoffs/{handoffId}/complete", "completeHandoff", CompleteBody,
    ReplyVerdict::Complete
);
verdict_endpoint!(
    /// Give up: the task goes back to the sender's checkpoint.
    fail, "/handoffs/{handoffId}/fail", "failHandoff", FailBody,
    ReplyVerdict::Fail
);

/// Take an accepted handoff over from another worker of the same agent that was silent for four of its own intervals
/// (`heartbeatIntervalMs` of its acceptance or heartbeats). The answer has a new fencing token and a lease that begins now; the
/// worker before gets 409 `STALE_LEASE` from then on.
#[utoipa::path(
    post, path = "/handoffs/{handoffId}/takeover", tag = "verdicts", operation_id = "takeOverHandoff",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    request_body(content = TakeoverBody, content_type = "application/json"),
    responses(
        (status = 200, description = "The handoff with its new token", body = HandoffView),
        (status = 403, description = "Not the receiver's key"),
        (status = 404, description = "No such handoff"),
        (status = 409, description = "Its holder was heard of, or said no interval, or no lease runs"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn takeover(
    State(api): State<Api>,
    caller: AgentCaller,
    Id(id): Id<HandoffId>,
    headers: HeaderMap,
    Json(body): Json<TakeoverBody>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let handoff = find(&api, &caller.principal, id).await?;
    linked(&handoff, &headers);
    let addressed = Addressed::to(&caller.principal, handoff)?;
    let handoff = api.intake.take_over(addressed, body).await?;
    Ok(axum::Json(HandoffView::from(&handoff)))
}

/// The answer to words on a handoff.
pub(super) fn spoken(handoff: &Handoff, warnings: &[Warning]) -> HandoffView {
    let warnings = warnings.iter().map(WarningView::from).collect();
    HandoffView { warnings, ..HandoffView::from(handoff) }
}

/// The fencing token of the header alone; `None` without one.
///
/// # Errors
/// It is not a whole number, or there are several that differ.
pub(super) fn header_token(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    if !headers.contains_key("handoff-fencing-token") {
        return Ok(None);
    }
    fencing_token(headers, None).map(Some)
}

/// The fencing token of a request, which its header and its body may have.
///
/// # Errors
/// It is not a whole number, there are several that differ, or there is none.
pub(super) fn fencing_token(headers: &HeaderMap, in_body: Option<Value>) -> Result<i64, Problem> {
    let in_body = match in_body {
        None | Some(Value::Null) => None,
        Some(Value::Number(number)) => {
            Some(number.as_i64().ok_or_else(|| wrong("/fencingToken", "must be a whole number"))?)
        }
        Some(Value::String(text)) => {
            Some(text.parse().map_err(|_| wrong("/fencingToken", "must be a whole number"))?)
        }
        Some(_) => return Err(wrong("/fencingToken", "must be a whole number")),
    };
    let mut told: Option<i64> = in_body;
    for value in headers.get_all("handoff-fencing-token") {
        let token = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        let token = token
            .ok_or_else(|| Problem::invalid("Handoff-Fencing-Token must be a whole number"))?;
        if told.replace(token).is_some_and(|other| other != token) {
            return Err(wrong(
                "/fencingToken",
                "differs from another fencing token in this request",
            ));
        }
    }
    told.ok_or_else(|| {
        wrong(
            "/fencingToken",
            "the fencing token that came with the delivery is needed, here or in the Handoff-Fencing-Token header",
        )
    })
}

/// A verdict belongs to the trace of its delivery, also where its request has none or another.
pub(super) fn linked(handoff: &Handoff, headers: &HeaderMap) {
    let span = Span::current();
    if let Some(parent) = TraceParent::parse(&handoff.span) {
        telemetry::link(&span, &parent);
    }
    if trace_context(headers).is_none()
        && let Some(parent) = TraceParent::parse(&handoff.traceparent)
    {
        span.record("trace_id", parent.trace_id_hex());
    }
}
