//! The protocol's operations: those of the SDK's `HandoffClient`.

use std::sync::{Arc, LazyLock};

use axum::extract::{Extension, FromRequest, FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::client::PageQuery;
use super::super::state::Standing;
use super::super::submission::{Refusal, Submission};
use super::request::{Addressee, MappedRequest, Mapping, map, trim, wrong};
use super::response::{relocate, relocate_warnings, submitted, unrouted, warn, warn_of};
use super::{Call, DOOR, Sw4rm, observed};
use crate::doors::message::Ids;
use crate::http::Api;
use crate::http::extract::{
    JsonBytes, Params, Said, heavy, idempotency_key, parse, preferred_wait,
};
use crate::http::inbox::InboxItem;
use crate::http::problem::Problem;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;
use handoffd_gate::schema::DocumentSchema;
use handoffd_gate::sw4rm::{ALL_UNAVAILABLE, BROKER_METADATA, DeliveryFacts, rejection, request};
use handoffd_store::clock;

/// Handoffs that one call for pending ones claims, unless it says.
const PENDING: u64 = 100;
/// The longest wait, in seconds.
const LONGEST: u64 = 60;

/// Query of a request for a handoff.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitParams {
    trim: Option<usize>,
    wait: Option<u64>,
}

/// Query of a handoff's page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageParams {
    wait: Option<u64>,
}

/// Query of the pending handoffs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingParams {
    wait: Option<u64>,
    max: Option<u64>,
    trim: Option<usize>,
}

async fn params<T: serde::de::DeserializeOwned>(
    parts: &mut Parts,
    api: &Api,
) -> Result<T, Refusal> {
    Ok(Params::<T>::from_request_parts(parts, api).await?.0)
}

/// `request_handoff`.
pub(super) async fn request_handoff(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    asked: Request,
) -> Response {
    let work = async {
        let (mut parts, body) = asked.into_parts();
        let call = Call::enter(&api, &door, &parts).await?;
        let query: SubmitParams = params(&mut parts, &api).await?;
        let wait = match query.wait {
            Some(seconds) if seconds > LONGEST => {
                let why = format!("wait must be between 0 and {LONGEST} seconds");
                return Err(Problem::invalid(why).into());
            }
            Some(seconds) => Some(seconds),
            None => preferred_wait(&parts.headers)?.map(|time| time.as_secs()),
        };
        let key = idempotency_key(&parts.headers)?;
        let mapping = Mapping {
            trim: trim(query.trim)?,
            limit: api.config.server.max_body_bytes,
            verdict_ms: api.config.delivery.verdict_timeout_ms,
        };
        let read = JsonBytes::from_request(Request::from_parts(parts, body), &api).await?;
        let (size, document) = (read.bytes.len(), parse(read.bytes.clone()).await?);
        // The body's share of the budget is kept until the answer is there.
        let _share = read.into_body();
        let mut mapped = heavy(size, move || map(&document, &mapping)).await??;
        if let (Some(key), Some(id)) = (&key, &mapped.request_id)
            && key != id
        {
            return Err(wrong("/request_id", "The header Idempotency-Key says another.").into());
        }
        mapped.request_id = key.or(mapped.request_id);
        submit(&call, mapped, wait).await
    };
    Box::pin(observed(&api, "request_handoff", work)).await
}

async fn submit(
    call: &Call,
    mut mapped: MappedRequest,
    wait: Option<u64>,
) -> Result<Response, Refusal> {
    let agents =
        call.api.intake.directory.agents(&call.principal.tenant).await.map_err(Problem::from)?;
    let registered = |id: &str| -> Option<&Agent> {
        id.parse::<AgentId>().ok().and_then(|id| agents.roster.find(&id))
    };
    let version = registered(&mapped.from)
        .map_or_else(|| "1.0.0".to_owned(), |agent| agent.agent_version.to_string());
    if mapped.preferred {
        mapped.extension.insert("preferred".to_owned(), true.into());
    }
    let submission = Submission {
        api: &call.api,
        client: &call.client,
        door: DOOR,
        tenant: &call.principal.tenant,
        agent: &mapped.from,
        version,
        arguments: &mapped.arguments,
        request: mapped.request_id.as_deref(),
        digest: std::mem::take(&mut mapped.digest),
        extension: std::mem::take(&mut mapped.extension),
        handoff: None,
        members: std::mem::take(&mut mapped.members),
    };
    let committed = match submission.submit().await {
        Ok(committed) => committed,
        Err(Refusal::Api(mut refusal)) => {
            relocate(&mut refusal.problem, Some(&mapped.addressee));
            if refusal.code() != Some(Code::NoCapableAgent) {
                return Err(refusal.into());
            }
            let addressed = match &mapped.addressee {
                Addressee::Agent(id) => registered(id),
                _ => None,
            };
            let reason = if mapped.preferred {
                ALL_UNAVAILABLE.to_owned()
            } else {
                rejection(addressed, &mapped.required)
            };
            let id = mapped.request_id.as_deref().map_or_else(
                || clock::random_id().to_string(),
                |request| Ids::named(DOOR, &mapped.from, request).handoff,
            );
            let response = unrouted(&id, &reason, &refusal.problem, &mapped.warnings);
            return Ok(axum::Json(response).into_response());
        }
        Err(refusal) => return Err(refusal),
    };
    let mut view = committed.answer;
    if let Some(view) = &mut view {
        relocate_warnings(&mut view.warnings, Some(&mapped.addressee));
    }
    if let Some(view) = view.as_ref().filter(|_| wait.is_none_or(|seconds| seconds == 0)) {
        let response = submitted(view, &mapped.warnings);
        return Ok((StatusCode::ACCEPTED, axum::Json(response)).into_response());
    }
    let standing = read(call, &committed.id, wait).await?;
    let mut response = standing.response(call.agent());
    warn(&mut response, &mapped.warnings);
    // The gate's warnings come once.
    warn_of(&mut response, view.as_ref().map_or(&[], |view| &view.warnings));
    Ok(axum::Json(response).into_response())
}

impl Call {
    /// The caller, where it is an agent.
    fn agent(&self) -> Option<&str> {
        self.principal.agent.as_ref().map(AgentId::as_str)
    }
}

/// Reads a handoff, after a wait of so many seconds for its verdict.
async fn read(call: &Call, id: &str, wait: Option<u64>) -> Result<Standing, Refusal> {
    let query = PageQuery { include: Some("message,verdict"), wait, until: None };
    Ok(call.client.succeeded(call.client.handoff(id, query).await?, Some("verdict")).await)
}

/// `get_handoff_status`.
pub(super) async fn get_handoff(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    Path(id): Path<String>,
    asked: Request,
) -> Response {
    let work = async {
        let (mut parts, _) = asked.into_parts();
        let call = Call::enter(&api, &door, &parts).await?;
        let query: PageParams = params(&mut parts, &api).await?;
        let standing = read(&call, &id, query.wait).await?;
        Ok(axum::Json(standing.response(call.agent())).into_response())
    };
    observed(&api, "get_handoff", work).await
}

/// `get_pending_handoffs`: claims them, as the inbox does.
pub(super) async fn pending(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    Path(agent): Path<String>,
    asked: Request,
) -> Response {
    let work = async {
        let (mut parts, _) = asked.into_parts();
        let call = Call::enter(&api, &door, &parts).await?;
        let query: PendingParams = params(&mut parts, &api).await?;
        let most = trim(query.trim)?;
        let (wait, max) = (query.wait.unwrap_or(0), query.max.unwrap_or(PENDING));
        let inbox = call.client.inbox(&agent, wait, max).await?;
        let requests = inbox.items.into_iter().map(|item| claimed(item, &agent, most));
        let mut body = Map::new();
        body.insert("handoffs".to_owned(), requests.collect());
        if !inbox.returns.is_empty() {
            body.insert("returns".to_owned(), json!(inbox.returns));
        }
        if !inbox.questions.is_empty() {
            body.insert("questions".to_owned(), json!(inbox.questions));
        }
        Ok(axum::Json(body).into_response())
    };
    observed(&api, "pending", work).await
}

/// A claimed handoff as its request, with how long the claim lasts.
fn claimed(item: InboxItem, agent: &str, trim: Option<usize>) -> Value {
    let facts = DeliveryFacts {
        receiver: agent,
        handoff_id: &item.handoff_id,
        task_id: &item.task_id,
        attempt: item.attempt.into(),
        fencing_token: item.fencing_token,
    };
    let mut request = request(&item.message, &facts, trim);
    let own = &mut request["metadata"][BROKER_METADATA];
    own["claimedUntil"] = item.claimed_until.into();
    own["traceparent"] = item.traceparent.into();
    if let Some(time) = item.verdict_by {
        own["verdictBy"] = time.into();
    }
    if !item.tracestate.is_empty() {
        own["tracestate"] = item.tracestate.into();
    }
    request
}

/// A verdict: the members of its body, and the API's names for them.
struct VerdictForm {
    verb: &'static str,
    members: &'static [(&'static str, &'static str)],
    schema: DocumentSchema,
}

impl VerdictForm {
    fn new(verb: &'static str, members: &'static [(&'static str, &'static str)]) -> Arc<Self> {
        let types = |name: &str| match name {
            "fencing_token" => json!({ "type": ["integer", "string", "null"] }),
            "reason" | "rejection_reason" => json!({ "type": "string", "minLength": 1 }),
            "metadata" | "cost_tracking" => json!({ "type": "object" }),
            "iterations" => json!({ "type": "integer", "minimum": 0 }),
            "conversation_summary" => json!({ "type": "string" }),
            _ => json!(true),
        };
        let properties: Map<String, Value> =
            members.iter().map(|(name, _)| ((*name).to_owned(), types(name))).collect();
        let schema =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        let schema = DocumentSchema::new(&schema).expect("a test compiles it");
        Arc::new(Self { verb, members, schema })
    }
}

static ACCEPT: LazyLock<Arc<VerdictForm>> = LazyLock::new(|| {
    VerdictForm::new("accept", &[("fencing_token", "fencingToken"), ("metadata", "metadata")])
});
static REJECT: LazyLock<Arc<VerdictForm>> = LazyLock::new(|| {
    let members = &[
        ("fencing_token", "fencingToken"),
        ("rejection_reason", "reason"),
        ("reason", "reason"),
        ("details", "details"),
        ("metadata", "metadata"),
    ];
    VerdictForm::new("reject", members)
});
static COMPLETE: LazyLock<Arc<VerdictForm>> = LazyLock::new(|| {
    let members = &[
        ("fencing_token", "fencingToken"),
        ("result", "result"),
        ("iterations", "iterations"),
        ("conversation_summary", "conversationSummary"),
        ("cost_tracking", "costTracking"),
        ("metadata", "metadata"),
    ];
    VerdictForm::new("complete", members)
});

/// A place of a verdict's body, by the API's names.
fn renamed(form: &VerdictForm, pointer: &str) -> String {
    let (name, rest) = pointer.strip_prefix('/').unwrap_or_default().split_once('/').map_or_else(
        || (pointer.trim_start_matches('/'), String::new()),
        |(name, rest)| (name, format!("/{rest}")),
    );
    let known = form.members.iter().find(|(own, _)| *own == name);
    format!("/{}{rest}", known.map_or(name, |(_, member)| *member))
}

/// `accept_handoff`.
pub(super) async fn accept(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    Path(id): Path<String>,
    asked: Request,
) -> Response {
    observed(&api, "accept", verdict(&api, &door, &ACCEPT, &id, asked)).await
}

/// `reject_handoff`.
pub(super) async fn reject(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    Path(id): Path<String>,
    asked: Request,
) -> Response {
    observed(&api, "reject", verdict(&api, &door, &REJECT, &id, asked)).await
}

/// `complete_handoff`.
pub(super) async fn complete(
    State(api): State<Api>,
    Extension(door): Extension<Sw4rm>,
    Path(id): Path<String>,
    asked: Request,
) -> Response {
    observed(&api, "complete", verdict(&api, &door, &COMPLETE, &id, asked)).await
}

async fn verdict(
    api: &Api,
    door: &Sw4rm,
    form: &VerdictForm,
    id: &str,
    asked: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = asked.into_parts();
    let call = Call::enter(api, door, &parts).await?;
    let token = parts.headers.get("handoff-fencing-token").cloned();
    // Status first: what beside a clear verdict cannot be kept does not undo it.
    let read = Said::from_request(Request::from_parts(parts, body), api).await?;
    let (said, mut unreadable) = (Value::Object(read.members), read.unreadable);
    if unreadable.named.iter().any(|part| part.pointer == "/fencing_token") {
        return Err(wrong("/fencing_token", "Must be clear, and stand once.").into());
    }
    for part in &mut unreadable.named {
        part.pointer = renamed(form, &part.pointer);
    }
    let failures = form.schema.check(&said);
    if !failures.is_empty() {
        return Err(Problem::refusal(failures, false).into());
    }
    let mut given = Map::new();
    for (name, member) in form.members {
        if let Some(value) = said.get(*name)
            && let Some(earlier) = given.insert((*member).to_owned(), value.clone())
            && earlier != *value
        {
            return Err(wrong(&format!("/{name}"), "Another member says another.").into());
        }
    }
    if let Some(token) = token {
        let token = token.to_str().unwrap_or_default().trim();
        given.insert("fencingToken".to_owned(), token.into());
    }
    let said = call.client.say(id, form.verb, &Value::Object(given), unreadable).await;
    let view = said.map_err(|mut refusal| {
        relocate(&mut refusal.problem, None);
        refusal
    })?;
    Ok(axum::Json(Standing::alone(view).response(call.agent())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_takes_what_the_protocol_says_and_nothing_else() {
        for (form, body, pointer) in [
            (&*ACCEPT, json!({ "fencing_token": 1, "metadata": { "capabilities": [] } }), None),
            (&*ACCEPT, json!({ "fencingToken": 1 }), Some("/fencingToken")),
            (&*REJECT, json!({ "reason": "Agent busy: BUSY" }), None),
            (&*REJECT, json!({ "reason": "" }), Some("/reason")),
            (&*COMPLETE, json!({ "result": [1], "iterations": 2 }), None),
            (&*COMPLETE, json!({ "iterations": -1 }), Some("/iterations")),
        ] {
            let failures = form.schema.check(&body);
            assert_eq!(failures.first().map(|one| one.pointer.as_str()), pointer, "{body}");
        }
    }

    #[test]
    fn a_claimed_handoff_says_how_long_it_is_claimed() {
        let item = json!({
            "handoffId": "h", "taskId": "t", "attempt": 1, "fencingToken": 4, "claimedUntil": "x", "traceparent": "",
            "message": { "reason": "r" },
        });
        let request = claimed(serde_json::from_value(item).unwrap(), "b", None);
        let own = &request["metadata"]["handoffd"];
        assert_eq!((&own["fencingToken"], &own["claimedUntil"]), (&json!(4), &json!("x")));
        assert_eq!(request["to_agent"], "b");
    }
}
