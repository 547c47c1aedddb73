//! `Idempotency-Key`: a POST that changes something counts once under its key, and a repeat gets the first answer.
//!
//! A request claims its key before it is carried out, and its answer is kept under the key for a day, sealed: answers show
//! secrets. One that was refused changed nothing and lets its key go, so that it is judged afresh. One whose end is not known
//! (the broker died, or the store did not answer a commit) keeps its key: nothing is ever carried out twice.
//!
//! Submissions, questions and answers keep their keys in the commit of the rows that they make (`OWN`), and pass here.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Instrument;

use super::Api;
use super::agents::ALIAS;
use super::auth::any_caller;
use super::extract::{idempotency_key, read};
use super::problem::Problem;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::TenantId;
use handoffd_store::store::requests::RequestRow;

/// Operations whose commits keep their keys.
const OWN: [&str; 3] = ["/handoffs", "/handoffs/{handoffId}/ask", "/handoffs/{handoffId}/answer"];

/// Operations that change nothing: a repeat of them is the same question.
const READS: [&str; 4] =
    ["/handoffs/validate", "/contracts/lint", "/schemas/payloads/{schemaId}/compare", "/what-if"];

/// The largest answer that is kept, in bytes.
const MOST: usize = 1024 * 1024;

/// Headers of an answer that are kept with it.
const KEPT: [HeaderName; 2] = [header::CONTENT_TYPE, header::LOCATION];

/// Whether an operation takes an `Idempotency-Key`, and whether this layer is what keeps it.
#[must_use]
pub(super) fn takes_key(method: &str, path: &str) -> bool {
    method.eq_ignore_ascii_case("post") && !READS.contains(&path)
}

/// A kept answer.
#[derive(Serialize, Deserialize)]
struct KeptAnswer {
    status: u16,
    /// Values of [`KEPT`], in that order.
    headers: [Option<String>; 2],
    body: Option<Box<RawValue>>,
}

/// A claimed key.
struct Claim {
    api: Api,
    tenant: TenantId,
    id: [u8; 32],
}

/// The layer.
pub async fn once(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned())
    else {
        return next.run(request).await;
    };
    let path = path.strip_prefix(ALIAS).unwrap_or(&path).replace("{*", "{");
    if *request.method() != Method::POST {
        return next.run(request).await;
    }
    let answered = match idempotency_key(request.headers()) {
        Ok(Some(key)) if !OWN.contains(&path.as_str()) && !READS.contains(&path.as_str()) => {
            keyed(api, key, request, next).await
        }
        Ok(_) => return next.run(request).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn keyed(api: Api, key: String, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let principal = any_caller(&parts, &api).await?;
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str()).to_owned();
    let coding = parts.headers.get(header::CONTENT_ENCODING).cloned();
    let (bytes, share) = read(Request::from_parts(parts.clone(), body), &api).await?;
    if coding.is_some() {
        // It was decoded here.
        parts.headers.remove(header::CONTENT_ENCODING);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    let caller = match &principal.agent {
        Some(agent) => format!("agent {agent}"),
        None => format!("key {}", principal.key_id),
    };
    let vault = &api.intake.vault;
    let tenant = principal.tenant.clone();
    let row = RequestRow {
        id: vault.request_tag(&[tenant.as_str().as_bytes(), caller.as_bytes(), key.as_bytes()]),
        asked: vault.request_tag(&[target.as_bytes(), &bytes]),
        tenant,
        answer: None,
        created_at: api.now(),
    };
    if let Some(known) = api.store.begin_request(&row).await? {
        return again(&api, &row, known);
    }
    let claim = Claim { api, tenant: row.tenant, id: row.id };
    // A client that is gone leaves no request half kept: it is carried out to its end.
    let carried = async move {
        let answer = next.run(Request::from_parts(parts, Body::from(bytes))).await;
        drop(share);
        claim.settle(answer).await
    };
    let carried = tokio::spawn(carried.in_current_span()).await;
    carried.unwrap_or_else(|_| Err(failed()))
}

fn failed() -> Problem {
    Problem::new(Code::Internal, "the broker failed; the request id tells the operator more")
}

/// The answer to a request under a known key.
fn again(api: &Api, row: &RequestRow, known: RequestRow) -> Result<Response, Problem> {
    if known.asked != row.asked {
        let why = "this Idempotency-Key was used for another payload";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Problem { status, ..Problem::new(Code::Conflict, why) });
    }
    let Some(sealed) = known.answer else {
        return Err(Problem::new(
            Code::Conflict,
            "the first request with this Idempotency-Key is still under way, or its end is unknown; \
             look at what it changes before you send another with a new key",
        ));
    };
    let opened = api.intake.vault.open(&answer_place(&row.tenant, &row.id), &sealed);
    let opened = opened.map_err(|_| failed())?;
    let kept: KeptAnswer = serde_json::from_slice(&opened).map_err(|_| failed())?;
    let body = kept.body.map_or_else(Bytes::new, |body| Bytes::from(body.get().to_owned()));
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(kept.status).map_err(|_| failed())?;
    let headers = response.headers_mut();
    for (name, value) in KEPT.into_iter().zip(kept.headers) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            headers.insert(name, value);
        }
    }
    headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    Ok(response)
}

/// The place of a sealed answer.
pub fn answer_place(tenant: &TenantId, id: &[u8]) -> String {
    format!("request/{tenant}/{}", hex::encode(id))
}

impl Claim {
    /// Keeps the answer, or lets the key go where the request changed nothing.
    async fn settle(self, answer: Response) -> Result<Response, Problem> {
        let Self { api, tenant, id } = &self;
        let status = answer.status();
        if !status.is_success() {
            // After these answers it is unknown whether a commit got through.
            let unknown = status == StatusCode::INTERNAL_SERVER_ERROR || is_unavailable(&answer);
            if !unknown && let Err(err) = api.store.forget_request(tenant, id).await {
                tracing::warn!(error = %err, "an Idempotency-Key could not be let go; it is for a day");
            }
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        // Every answer of the API to a POST is a document that is made already.
        let bytes = to_bytes(body, usize::MAX).await.map_err(|_| failed())?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let body = RawValue::from_string(text.to_owned()).ok();
        let headers = KEPT.map(|name| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        });
        let kept = KeptAnswer { status: status.as_u16(), headers, body };
        let text = zeroize::Zeroizing::new(serde_json::to_vec(&kept).map_err(|_| failed())?);
        if text.len() <= MOST {
            let sealed =
                api.intake.vault.seal(&answer_place(tenant, id), &text).map_err(|_| failed())?;
            if let Err(err) = api.store.answer_request(tenant, id, &sealed).await {
                tracing::warn!(error = %err, "an answer under an Idempotency-Key could not be kept; a repeat gets 409");
            }
        }
        Ok(Response::from_parts(parts, Body::from(bytes)))
    }
}

/// Whether the store did not say what became of a commit.
fn is_unavailable(answer: &Response) -> bool {
    let problem = answer.extensions().get::<std::sync::Arc<Problem>>();
    problem.is_some_and(|problem| problem.code == Code::Unavailable)
}
