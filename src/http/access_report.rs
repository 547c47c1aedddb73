//! `GET /data-subjects/{subjectId}`: everything that is held on a person, streamed in pages, so that a
//! long report needs no more memory than a short one.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Api;
use super::auth::Auditor;
use super::data_subjects::subject;
use super::extract::Id;
use super::legal_holds::HoldView;
use super::problem::{NoKey, Problem, ProblemDetails};
use crate::directory::Agents;
use crate::domain::ids::Micros;
use crate::evidence::commitment::{hash_text, unpack};
use crate::evidence::erasure::DataSlot;
use crate::store::erasure::{ErasureRow, SubjectDatum, SubjectRef, entitled};
use crate::store::{Store, StoreError};

/// Data read at once.
const PAGE: i64 = 256;

/// What is held on a person.
#[utoipa::path(
    get, path = "/data-subjects/{subjectId}", tag = "data subjects", operation_id = "getDataSubject",
    params(("subjectId" = String, Path, description = "The person's id, as senders wrote it")),
    responses(
        (status = 200, description = "`{subjectId, generatedAt, data[], holds[], erasures[], count}`; each datum with its record, handoff and task, and where it was delivered to", body = Object),
        NoKey,
        (status = 403, description = "An agent's key", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "Nothing is or was held on this person", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The store is away", body = ProblemDetails, content_type = "application/problem+json"),
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn report(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Id(id): Id<String>,
) -> Result<Response, Problem> {
    let tenant = principal.tenant.clone();
    let subject = subject(&api, &tenant, id)?;
    let first = api.store.list_held(&tenant, &subject.id, None, PAGE).await?;
    let erasures = api.store.list_erasures(&tenant, &subject.key).await?;
    let holds = api.store.list_holds(&tenant, Some(&subject.key), None, 1000).await?;
    if first.is_empty() && erasures.is_empty() && holds.is_empty() {
        return Err(Problem::not_found("data subject"));
    }
    let agents = api.intake.directory.agents(&tenant).await?;
    let (chunks, body) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let store = api.store.clone();
    let now = api.now();
    tokio::spawn(async move {
        let head = format!(
            "{{\"subjectId\":{},\"generatedAt\":\"{}\",\"data\":[",
            json!(subject.id),
            now.rfc3339()
        );
        let written = pages(&*store, &subject, &agents, head, first, &chunks).await;
        let last = match written {
            Ok(Some(count)) => {
                let holds: Vec<_> = holds.iter().map(HoldView::from).collect();
                let erasures: Vec<_> = erasures.iter().map(erasure).collect();
                let (holds, erasures) = (json!(holds), json!(erasures));
                Ok(Bytes::from(format!(
                    "],\"holds\":{holds},\"erasures\":{erasures},\"count\":{count}}}"
                )))
            }
            Ok(None) => return,
            Err(err) => {
                tracing::warn!(error = %err, "an access report broke off");
                // The body ends in an error, so that nobody takes half for the whole.
                Err(std::io::Error::other("the report broke off"))
            }
        };
        let _ = chunks.send(last).await;
    });
    let body = futures_util::stream::unfold(body, |mut body| async move {
        body.recv().await.map(|chunk| (chunk, body))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response())
}

/// Writes the data page by page; `None` when the reader has gone.
async fn pages(
    store: &dyn Store,
    subject: &SubjectRef,
    agents: &Agents,
    head: String,
    first: Vec<SubjectDatum>,
    chunks: &mpsc::Sender<Result<Bytes, std::io::Error>>,
) -> Result<Option<u64>, StoreError> {
    let (mut text, mut page, mut count) = (head, first, 0u64);
    loop {
        for datum in &page {
            if count > 0 {
                text.push(',');
            }
            text.push_str(&entry(datum, agents).to_string());
            count += 1;
        }
        if chunks.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err() {
            return Ok(None);
        }
        let Some(after): Option<DataSlot> = page.last().map(|datum| datum.slot) else {
            return Ok(Some(count));
        };
        page = store.list_held(&subject.tenant, &subject.id, Some(after), PAGE).await?;
    }
}

fn entry(datum: &SubjectDatum, agents: &Agents) -> Value {
    let held: Value = unpack(datum.kept.0, &datum.kept.1)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let delivered = datum.route.as_ref().map(|route| {
        let now = route.target.parse().ok().and_then(|id| agents.row(&id));
        json!({
            "agentId": route.target,
            "handoffStatus": route.status,
            "attempts": route.attempts,
            "acceptedAt": route.accepted_at.map(Micros::rfc3339),
            // Whether it went along was decided at each attempt; this is how it stands now.
            "entitledNow": now.is_some_and(|row| entitled(&row.agent)),
        })
    });
    json!({
        "record": {
            "leafIndex": datum.slot.leaf_index,
            "recordHash": hash_text(&datum.record_hash),
            "kind": datum.kind,
            "time": datum.recorded_at.rfc3339(),
            "ordinal": datum.slot.ordinal,
        },
        "taskId": datum.task_id,
        "handoffId": datum.handoff_id,
        "fromAgent": datum.route.as_ref().map(|route| &route.source),
        "deliveredTo": delivered,
        "held": held,
    })
}

fn erasure(row: &ErasureRow) -> Value {
    json!({
        "erasureId": row.id,
        "status": row.status,
        "scope": row.scope,
        "reason": row.reason,
        "personalData": row.data,
        "contents": row.contents,
        "checkpoints": row.checkpoints,
        "leafIndex": row.leaf_index,
        "requestedAt": row.requested_at.rfc3339(),
        "erasedAt": row.completed_at.map(Micros::rfc3339),
    })
}
