//! What receivers say by callback: accept, reject, heartbeat, complete, fail (specification §3).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use tracing::Span;
use utoipa::ToSchema;

use super::Api;
use super::auth::AgentCaller;
use super::credentials;
use super::extract::{Id, Json, Said, heavy, trace_context};
use super::handoffs::{find, not_the_receiver};
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::results;
use super::views::HandoffView;
use handoffd_broker::directory::Principal;
use handoffd_broker::early_replies::EarlyVerdict;
use handoffd_broker::ledger::command::content;
use handoffd_broker::ledger::commands::{TakeOver, Verdict, VerdictKind};
use handoffd_broker::ledger::reply::HandoffReply;
use handoffd_broker::telemetry;
use handoffd_core::domain::canonical;
use handoffd_core::domain::failure::{Code, Failure, Stage, escaped};
use handoffd_core::domain::funds::Spending;
use handoffd_core::domain::handoff::{DeliveryMode, HANDED_ON, Handoff, HandoffStatus};
use handoffd_core::domain::ids::{AgentId, HandoffId, Micros, TenantId};
use handoffd_core::domain::lease::LONGEST_INTERVAL_MS;
use handoffd_core::domain::lenient::{self, UnreadableParts, Why};
use handoffd_core::domain::message::whole_number;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::trace_context::TraceParent;
use handoffd_core::domain::warning::{Warning, WarningCode};
use handoffd_core::evidence::record::Actor;
use handoffd_core::gate::reply::{Reply as ReceiverReply, ReplyError, ReplyVerdict};
use handoffd_core::gate::safety::policy::PolicyContext;
use handoffd_core::gate::safety::{SafetyFinding, to_failure};
use handoffd_core::gate::unheld;
use handoffd_store::store::{HandoffKey, Role};

/// The largest amount that a receiver may state, as in a message.
const MOST_USD: f64 = 1e9;

/// The member by which a holder says how often it will be heard of.
const INTERVAL: &str = "heartbeatIntervalMs";

/// The counts of `tokenSpent`.
const TOKENS: [&str; 2] = ["prompt", "completion"];

/// What a receiver may say when it takes the task.
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

/// What came of the task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct CompleteBody {
    /// The token that came with the delivery, where the header does not have it.
    pub fencing_token: Option<i64>,
    /// Result of the receiver: any JSON.
    pub result: Option<Value>,
    /// What was spent by then, cumulative as in a message.
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
    /// What was spent by then, cumulative as in a message.
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

/// What a receiver says was spent by then.
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
            if handoff.target != caller.id {
                return Err(not_the_receiver());
            }
            let Said { members: mut said, unreadable } = said;
            let token = fencing_token(&headers, &mut said)?;
            let heard = Heard { verdict: $verdict, said, unreadable, at: api.now() };
            let view = say(&api, &caller.principal, &handoff, token, heard);
            view.await.map(axum::Json)
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

/// A worker that takes a handoff over from one that is silent.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TakeoverBody {
    /// How often the broker will hear of the new holder. Without it the new lease cannot be taken over before it ends.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub heartbeat_interval_ms: Option<u64>,
}

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
    Json(mut said): Json<serde_json::Map<String, Value>>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let handoff = find(&api, &caller.principal, id).await?;
    linked(&handoff, &headers);
    if handoff.target != caller.id {
        return Err(not_the_receiver());
    }
    let interval_ms = interval(&mut said)?;
    if let Some(name) = said.keys().next() {
        return Err(wrong(&format!("/{}", escaped(name)), "is no member of a takeover"));
    }
    let now = api.now();
    let take = TakeOver {
        task_id: handoff.task_id,
        handoff_id: handoff.id,
        interval_ms,
        lease_until: now.plus(Duration::from_millis(api.config.delivery.lease_ms)),
    };
    let HandoffReply { handoff, .. } = api.carry_out(&caller.principal, now, take).await?;
    Ok(axum::Json(HandoffView::from(&handoff)))
}

/// How often the holder of a lease will be heard of, in milliseconds.
fn interval(said: &mut serde_json::Map<String, Value>) -> Result<Option<u64>, Problem> {
    let Some(told) = said.remove(INTERVAL).filter(|told| !told.is_null()) else { return Ok(None) };
    let told = whole_number(&told).filter(|ms| (1..=LONGEST_INTERVAL_MS).contains(ms));
    told.map(Some).ok_or_else(|| {
        let why = format!("must be whole milliseconds from 1 to {LONGEST_INTERVAL_MS}");
        wrong(&format!("/{INTERVAL}"), why)
    })
}

/// The fencing token of the header alone; `None` without one.
///
/// # Errors
/// It is no whole number, or there are several that differ.
pub(super) fn header_token(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    if !headers.contains_key("handoff-fencing-token") {
        return Ok(None);
    }
    fencing_token(headers, &mut serde_json::Map::new()).map(Some)
}

fn text(said: &serde_json::Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match said.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&format!("/{name}"), "must be a non-empty string")),
    }
}

pub(super) fn fencing_token(
    headers: &HeaderMap,
    said: &mut serde_json::Map<String, Value>,
) -> Result<i64, Problem> {
    let in_body = match said.remove("fencingToken") {
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

/// What a receiver that is done, or gave up, says was spent by then. Tokens count beside an amount alone; anything else in
/// `costTracking` is kept with the record and not looked at.
fn spent(
    kind: &VerdictKind,
    said: &serde_json::Map<String, Value>,
) -> Result<Option<Spending>, Problem> {
    if !matches!(kind, VerdictKind::Complete | VerdictKind::Fail(_)) {
        return Ok(None);
    }
    let tracking = match said.get("costTracking") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(tracking)) => tracking,
        Some(_) => return Err(wrong("/costTracking", "must be an object")),
    };
    let Some(usd) = tracking.get("costSpentSoFarUSD") else { return Ok(None) };
    let usd = usd.as_f64().filter(|usd| (0.0..=MOST_USD).contains(usd)).ok_or_else(|| {
        wrong(
            "/costTracking/costSpentSoFarUSD",
            "must be what was spent by now, from 0 to 1 000 000 000 US dollars",
        )
    })?;
    let told = match tracking.get("tokenSpent") {
        None | Some(Value::Null) => None,
        Some(Value::Object(told)) => Some(told),
        Some(_) => return Err(wrong("/costTracking/tokenSpent", "must be an object")),
    };
    if let Some(name) =
        told.and_then(|told| told.keys().find(|name| !TOKENS.contains(&name.as_str())))
    {
        let pointer = format!("/costTracking/tokenSpent/{}", escaped(name));
        return Err(wrong(&pointer, "is not counted: prompt and completion are"));
    }
    let tokens = |name: &str| match told.and_then(|told| told.get(name)) {
        None => Ok(0),
        Some(count) => count.as_u64().ok_or_else(|| {
            wrong(&format!("/costTracking/tokenSpent/{name}"), "must be a whole number from 0")
        }),
    };
    let [prompt, completion] = TOKENS.map(tokens);
    let (prompt, completion) = (prompt?, completion?);
    Ok(Some(Spending { usd: Usd::from_f64(usd), prompt, completion }))
}

/// Holds a result to the rounds that its handoff allows (`maxIterations`, seed 004). The verdict again, of a handoff that
/// has ended, is not measured again.
fn hold_iterations(
    api: &Api,
    handoff: &Handoff,
    said: &serde_json::Map<String, Value>,
) -> Result<(), Problem> {
    let taken = match said.get("iterations") {
        None | Some(Value::Null) => return Ok(()),
        Some(value) => whole_number(value).ok_or_else(|| {
            wrong("/iterations", "must be the rounds that it took: a whole number from 0")
        })?,
    };
    let stated = handoff.ruling.as_ref().and_then(|ruling| ruling.max_iterations);
    let most = stated.unwrap_or(api.config.gate.max_iterations);
    let ended = handoff.status.is_final() && handoff.reason.as_deref() != Some(HANDED_ON);
    if taken <= most || ended {
        return Ok(());
    }
    let why = format!(
        "the handoff allows {most} iterations (maxIterations), and the receiver took {taken}: fail the handoff instead"
    );
    let failure = Failure::new(Stage::State, Code::MaxIterations, "/iterations", why);
    Err(Problem::refusal(vec![failure], false))
}

/// A receiver's verdict as the ledger takes it.
fn kind_of(
    verdict: ReplyVerdict,
    said: &serde_json::Map<String, Value>,
) -> Result<VerdictKind, Problem> {
    Ok(match verdict {
        ReplyVerdict::Accept => VerdictKind::Accept,
        ReplyVerdict::Reject => {
            VerdictKind::Reject(text(said, "reason")?.unwrap_or_else(|| "REJECTED".to_owned()))
        }
        ReplyVerdict::Heartbeat => VerdictKind::Heartbeat,
        ReplyVerdict::Complete => VerdictKind::Complete,
        ReplyVerdict::Fail => VerdictKind::Fail(match said.get("error") {
            // The code is what readers tell failures by; the message stays in the record's content.
            Some(Value::Object(error)) => {
                let known = ["code", "message"].into_iter().filter_map(|name| error.get(name));
                let known = known.filter(|value| !value.is_null()).collect::<Vec<_>>();
                if known.iter().any(|value| !value.is_string()) {
                    return Err(wrong("/error", "its code and its message must be strings"));
                }
                let first =
                    known.into_iter().filter_map(Value::as_str).find(|text| !text.is_empty());
                first.unwrap_or("FAILED").to_owned()
            }
            None | Some(Value::Null) => "FAILED".to_owned(),
            Some(_) => text(said, "error")
                .map_err(|_| wrong("/error", "must be a non-empty string or an object"))?
                .unwrap_or_default(),
        }),
    })
}

/// The kind of the record that has a verdict's content, where the handoff has come to it before.
fn repeated(kind: &VerdictKind, handoff: &Handoff) -> Option<&'static str> {
    let leads_to = match kind {
        VerdictKind::Accept => HandoffStatus::Accepted,
        VerdictKind::Reject(_) => HandoffStatus::Rejected,
        VerdictKind::Complete => HandoffStatus::Completed,
        VerdictKind::Fail(_) => HandoffStatus::Failed,
        VerdictKind::Heartbeat => return None,
    };
    // Who handed on gives its result afterwards.
    let gives_more = handoff.reason.as_deref() == Some(HANDED_ON);
    (handoff.status == leads_to && !gives_more).then(|| leads_to.as_str())
}

fn without_effect(pointer: &str, why: &str) -> WarningView {
    WarningView::from(&Warning::new(WarningCode::WithoutEffect, pointer, why))
}

/// A receiver's verdict, and what it says besides.
struct Heard {
    verdict: ReplyVerdict,
    said: serde_json::Map<String, Value>,
    unreadable: UnreadableParts,
    /// When it was said: a lease counts from then.
    at: Micros,
}

impl Heard {
    /// Makes what is said fit its members. On a reply channel nobody hears of a refusal, and the verdict is clear: a
    /// value of another form becomes its JSON text, or is dropped where it is counted.
    fn fitted(mut self) -> Self {
        let said = &mut self.said;
        let mut as_text = |value: &mut Value, pointer: &str| {
            if !matches!(value, Value::String(_) | Value::Null) {
                *value = Value::String(value.to_string());
                self.unreadable.add(pointer, Why::FormAsText);
            }
        };
        for name in ["reason", "conversationSummary"] {
            if let Some(value) = said.get_mut(name) {
                as_text(value, &format!("/{name}"));
            }
        }
        match said.get_mut("error") {
            Some(Value::Object(error)) => {
                for name in ["code", "message"] {
                    if let Some(value) = error.get_mut(name) {
                        as_text(value, &format!("/error/{name}"));
                    }
                }
            }
            Some(value) => as_text(value, "/error"),
            None => {}
        }
        for name in ["reason", "error"] {
            if said.get(name).and_then(Value::as_str) == Some("") {
                said.remove(name);
            }
        }
        let uncounted = |said: &serde_json::Map<String, Value>, name: &str| match name {
            "iterations" => {
                said.get(name).is_some_and(|n| !n.is_null() && whole_number(n).is_none())
            }
            _ => spent(&VerdictKind::Complete, said).is_err(),
        };
        if matches!(self.verdict, ReplyVerdict::Complete | ReplyVerdict::Fail) {
            for name in ["iterations", "costTracking"] {
                if uncounted(said, name) {
                    said.remove(name);
                    self.unreadable.add(&format!("/{name}"), Why::Form);
                }
            }
        }
        self
    }
}

/// Carries out what the receiver of a handoff says.
async fn say(
    api: &Api,
    principal: &Principal,
    handoff: &Handoff,
    fencing_token: i64,
    heard: Heard,
) -> Result<HandoffView, Problem> {
    let Heard { verdict, mut said, unreadable, at: said_at } = heard;
    let kind = kind_of(verdict, &said)?;
    let lives = matches!(kind, VerdictKind::Accept | VerdictKind::Heartbeat);
    let interval_ms = if lives { interval(&mut said)? } else { None };
    let spent = spent(&kind, &said)?;
    if kind == VerdictKind::Complete {
        hold_iterations(api, handoff, &said)?;
        if said.get("conversationSummary").is_some_and(|told| !told.is_string() && !told.is_null())
        {
            return Err(wrong("/conversationSummary", "must be a text"));
        }
    }
    let mut warnings = credentials::redacted(api, &mut said)?;
    // The broker follows remote tasks without a key, and has the note of what it read there.
    if !principal.key_id.is_empty() && said.remove(lenient::OWN).is_some() {
        let why = "is the broker's own: nothing of it is kept";
        warnings.push(without_effect(&format!("/{}", lenient::OWN), why));
    }
    unreadable.note_in(&mut said);
    warnings.extend(unreadable.named.iter().map(|part| {
        let warning = Warning::new(WarningCode::Unreadable, &part.pointer, part.why.sentence());
        WarningView::from(&warning)
    }));
    if !unreadable.is_empty() {
        tracing::info!(handoff_id = %handoff.id, agent_id = %handoff.target, parts = unreadable.count, "parts of what a receiver says beside its verdict are unreadable");
    }
    // The row keeps the reason, too: as it is redacted.
    let kind = kind_of(verdict, &said)?;
    for (name, why) in [
        (
            "costSpentSoFarUSD",
            "is kept with the record and not counted: it counts in complete and fail",
        ),
        (
            "tokenSpent",
            "is kept with the record and not counted: tokens count in complete and fail, beside costSpentSoFarUSD",
        ),
    ] {
        if spent.is_none() && said.get("costTracking").is_some_and(|told| told.get(name).is_some())
        {
            warnings.push(without_effect(&format!("/costTracking/{name}"), why));
        }
    }
    if let Some(kind) = repeated(&kind, handoff)
        && !said.is_empty()
    {
        let before = results::find_said(api, &handoff.tenant, handoff.task_id, handoff.id, kind);
        if before.await?.as_ref().and_then(Value::as_object) != Some(&said) {
            let why = format!("the handoff is {kind} already: nothing of what this says is kept");
            warnings.push(without_effect("", &why));
        }
    }
    let now = api.now();
    let content = if said.is_empty() {
        None
    } else {
        let said = Value::Object(said);
        let bytes = canonical::to_vec(&said);
        if kind == VerdictKind::Complete {
            let way = (&handoff.target, &handoff.source);
            warnings.extend(judge(api, handoff, way, said, bytes.len(), now).await?);
        }
        Some(content(&bytes, now))
    };
    let heard_at = if kind == VerdictKind::Heartbeat { said_at.min(now) } else { now };
    let verdict = Verdict {
        task_id: handoff.task_id,
        handoff_id: handoff.id,
        kind,
        fencing_token,
        content,
        spent,
        said_at: heard_at,
        interval_ms,
        // A heartbeat that waited in a queue extends the lease from when it was said. An acceptance begins it now.
        lease_until: heard_at.plus(Duration::from_millis(api.config.delivery.lease_ms)),
    };
    let HandoffReply { handoff, .. } = api.carry_out(principal, now, verdict).await?;
    Ok(HandoffView { warnings, ..HandoffView::from(&handoff) })
}

/// The outcome of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// Its effect is committed.
    Taken,
    /// The reply has no effect, and never will: late, stale, forged, refused. Counted by reason.
    Ignored,
    /// Not a reply.
    Malformed,
    /// The broker cannot take it now.
    Unavailable,
}

/// Carries out a verdict that came on a reply channel: proven by its signature, and then as the same callback.
pub async fn reply(api: &Api, tenant: &TenantId, mode: DeliveryMode, bytes: &[u8]) -> ReplyOutcome {
    let count = |result: &str| {
        api.metrics.replies.with_label_values(&[mode.as_str(), result]).inc();
    };
    if bytes.len() > api.config.server.max_body_bytes {
        count("too_large");
        return ReplyOutcome::Malformed;
    }
    let said = match ReceiverReply::read(bytes) {
        Ok(said) => said,
        Err(why) => {
            count(&why.to_string());
            return ReplyOutcome::Malformed;
        }
    };
    let (id, verdict) = (said.handoff_id, said.verdict);
    match take_reply(api, tenant, said).await {
        Ok(()) => {
            count("taken");
            ReplyOutcome::Taken
        }
        Err(ReplyRefusal::Unproven(why)) => {
            count(&why.to_string());
            tracing::warn!(handoff_id = %id, transport = mode.as_str(), reason = %why, "a reply is ignored");
            ReplyOutcome::Ignored
        }
        Err(ReplyRefusal::Problem(problem)) => match problem.code {
            // An internal error may be the database's: the reply stays in its channel, as a caller would send it again.
            Code::Unavailable | Code::Overloaded | Code::Internal => {
                count("later");
                ReplyOutcome::Unavailable
            }
            code => {
                count(&code.as_str().to_ascii_lowercase());
                tracing::info!(handoff_id = %id, transport = mode.as_str(), ?verdict, code = code.as_str(), "a reply changes nothing");
                ReplyOutcome::Ignored
            }
        },
    }
}

enum ReplyRefusal {
    Unproven(ReplyError),
    Problem(Problem),
}

impl<E: Into<Problem>> From<E> for ReplyRefusal {
    fn from(err: E) -> Self {
        Self::Problem(err.into())
    }
}

async fn take_reply(api: &Api, tenant: &TenantId, said: ReceiverReply) -> Result<(), ReplyRefusal> {
    let key = (tenant.clone(), said.handoff_id);
    if let Some(receiver) = api.replies.receiver(&key, said.fencing_token)
        && take_early(api, &key, &receiver, &said).await?
    {
        return Ok(());
    }
    let handoff =
        api.store.find_handoff(&key).await?.ok_or_else(|| Problem::not_found("handoff"))?;
    prove(api, tenant, &handoff.target, &said).await?;
    let principal = signed_by(tenant, &handoff.target);
    let ReceiverReply { fencing_token, verdict, timestamp, said, unreadable, .. } = said;
    let heard = Heard { verdict, said, unreadable, at: timestamp }.fitted();
    say(api, &principal, &handoff, fencing_token, heard).await?;
    Ok(())
}

/// Gives a verdict to the attempt that waits for it. Returns false where it is to be carried out as a callback.
async fn take_early(
    api: &Api,
    handoff: &HandoffKey,
    receiver: &AgentId,
    said: &ReceiverReply,
) -> Result<bool, ReplyRefusal> {
    // An attempt's outcome has no place for the interval of a holder: the acceptance is carried out as a callback.
    let states_interval = said.said.contains_key(INTERVAL);
    if states_interval || !matches!(said.verdict, ReplyVerdict::Accept | ReplyVerdict::Reject) {
        return Ok(false);
    }
    prove(api, &handoff.0, receiver, said).await?;
    let (verdict, words, unreadable) = (said.verdict, said.said.clone(), said.unreadable.clone());
    let heard = Heard { verdict, said: words, unreadable, at: said.timestamp }.fitted();
    let Heard { said: mut words, unreadable, .. } = heard;
    kind_of(said.verdict, &words)?;
    credentials::redacted(api, &mut words)?;
    words.remove(lenient::OWN);
    unreadable.note_in(&mut words);
    let verdict = match kind_of(said.verdict, &words)? {
        VerdictKind::Reject(reason) => EarlyVerdict::Rejected(reason),
        _ => EarlyVerdict::Accepted,
    };
    Ok(api.replies.offer(handoff, said.fencing_token, verdict, words).await)
}

/// Checks that a receiver made a reply.
async fn prove(
    api: &Api,
    tenant: &TenantId,
    receiver: &AgentId,
    said: &ReceiverReply,
) -> Result<(), ReplyRefusal> {
    let secrets = api.intake.secrets_of(tenant, receiver).await?;
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
    let max_age = Duration::from_secs(api.config.transports.reply_max_age_s);
    said.prove(&secrets, api.now(), max_age).map_err(ReplyRefusal::Unproven)
}

/// An agent that is known by its signature instead of by a key.
pub(super) fn signed_by(tenant: &TenantId, agent: &AgentId) -> Principal {
    Principal {
        tenant: tenant.clone(),
        role: Role::Agent,
        agent: Some(agent.clone()),
        key_id: Actor::BY_SIGNATURE.to_owned(),
    }
}

/// Runs the safety stage over what goes into another agent's model beside messages: a result, a question, an answer
/// (specification §10.3). The policies hold as for a message from the one agent to the other, and `orders` of the agent
/// that reads it. `size` is in bytes. Returns a warning for each text that reads like an order to an assistant.
///
/// # Errors
/// A refusal that names each place. The handoff stays as it is: the caller may say something else.
pub(super) async fn judge(
    api: &Api,
    handoff: &Handoff,
    (from, to): (&AgentId, &AgentId),
    said: Value,
    size: usize,
    at: Micros,
) -> Result<Vec<WarningView>, Problem> {
    let reader = api
        .intake
        .directory
        .agents(&handoff.tenant)
        .await?
        .row(to)
        .and_then(|row| row.agent.orders);
    let gate = Arc::clone(&api.intake.gate);
    let report = heavy(size, move || gate.scanner.report(&said, &[], &mut |_, _| {})).await?;
    let case = PolicyContext { tenant: &handoff.tenant, agent: from, to: Some(to), at };
    let policies = &api.intake.gate.policies;
    let (mut refused, observed) = policies.part(&case, report.findings);
    let (orders, marked) = policies.part_marks(&case, report.marks, [[None, reader]]);
    refused.extend(orders);
    let rules = |findings: &[SafetyFinding]| -> Vec<String> {
        findings.iter().map(|one| one.rule.clone()).collect()
    };
    api.intake.metrics.count_safety_rules(&rules(&refused), &rules(&observed), &rules(&marked));
    if refused.is_empty() {
        return Ok(unheld::orders(&marked).iter().map(WarningView::from).collect());
    }
    tracing::warn!(handoff_id = %handoff.id, agent = %from, findings = refused.len(), "the safety rules refuse what an agent said of a handoff");
    Err(Problem::refusal(refused.iter().map(to_failure).collect(), false))
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
