//! `GET /data-subjects/{subjectId}`: everything that is held on a person, streamed in pages, so that a
//! long report needs no more memory than a short one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Api;
use super::auth::Auditor;
use super::data_subjects::subject;
use super::extract::Id;
use super::legal_holds::HoldView;
use super::open;
use super::problem::Problem;
use handoffd_broker::directory::Agents;
use handoffd_domain::ids::Micros;
use handoffd_evidence::commitment::{hash_text, unpack};
use handoffd_evidence::erasure::{DataSlot, ErasureScope};
use handoffd_store::store::erasure::{
    ErasureRow, ErasureStatus, HoldRow, SubjectDatum, SubjectRef, entitled,
};
use handoffd_store::store::{Store, StoreError};

/// Entries read at once.
const PAGE: i64 = 256;

/// The data held on a person.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct AccessReportView {
    /// The person, as the caller named it.
    pub subject_id: String,
    /// When the broker made the report, RFC 3339.
    pub generated_at: String,
    /// The data, in log order.
    pub data: Vec<DatumView>,
    /// Legal holds on the person's data.
    pub holds: Vec<HoldView>,
    /// Erasures of the person's data.
    pub erasures: Vec<PastErasureView>,
    /// How many data there are.
    pub count: u64,
}

/// One datum of a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatumView {
    /// The record that it came with.
    pub record: DatumRecord,
    /// UUID of the task; null where its record has none.
    #[schema(required)]
    pub task_id: Option<String>,
    /// UUID of the handoff; null where its record has none.
    #[schema(required)]
    pub handoff_id: Option<String>,
    /// Id of the agent that sent it; null where its record names none.
    #[schema(required)]
    pub from_agent: Option<String>,
    /// Who received it; null if its record does not belong to a handoff.
    #[schema(required)]
    pub delivered_to: Option<DatumReceiver>,
    /// The datum: free, the sender's own.
    pub held: Value,
}

/// The record that a datum came with.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatumRecord {
    /// Its place in the log.
    pub leaf_index: i64,
    /// `sha256:…` over the record: the leaf's hash.
    pub record_hash: String,
    /// Its kind.
    #[schema(value_type = super::record::RecordKind)]
    pub kind: String,
    /// When it was made, RFC 3339.
    pub time: String,
    /// The datum's number within it.
    pub ordinal: i64,
}

/// The agent that a datum was delivered to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatumReceiver {
    /// Id of the agent that received it.
    pub agent_id: String,
    /// The state of the handoff.
    #[schema(value_type = open::HandoffStatus)]
    pub handoff_status: &'static str,
    /// Delivery attempts begun so far.
    pub attempts: i32,
    /// When the receiver accepted, RFC 3339.
    #[schema(required)]
    pub accepted_at: Option<String>,
    /// It is entitled to personal data at present.
    pub entitled_now: bool,
}

/// An erasure as an access report tells of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastErasureView {
    /// UUID of the erasure.
    pub erasure_id: String,
    /// Its status.
    pub status: ErasureStatus,
    /// The data that the erasure covered.
    pub scope: ErasureScope,
    /// Why it was asked for: a code.
    pub reason: String,
    /// Personal data that went, with their salts.
    pub personal_data: i64,
    /// Messages and other contents of records that went.
    pub contents: i64,
    /// Number of checkpoints that went.
    pub checkpoints: i64,
    /// Its record's place in the log.
    #[schema(required)]
    pub leaf_index: Option<i64>,
    /// When it was asked for, RFC 3339.
    pub requested_at: String,
    /// When it was done, RFC 3339.
    #[schema(required)]
    pub erased_at: Option<String>,
}

/// List the data held on a person.
#[utoipa::path(
    get, path = "/data-subjects/{subjectId}", tag = "data subjects", operation_id = "getDataSubject",
    params(("subjectId" = String, Path, description = "The person's id, as senders wrote it")),
    responses(
        (status = 200, description = "Each datum with its record, handoff and task, and where it was delivered to", body = AccessReportView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "Nothing is or was held on this person"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn report(
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
    let held = HeldData { subject, agents, first, holds, erasures, at: api.now() };
    tokio::spawn(write(api.store.clone(), held, chunks));
    let body = futures_util::stream::unfold(body, |mut body| async move {
        body.recv().await.map(|chunk| (chunk, body))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response())
}

/// The data of a person, with the first page of it.
struct HeldData {
    subject: SubjectRef,
    agents: Arc<Agents>,
    first: Vec<SubjectDatum>,
    holds: Vec<HoldRow>,
    erasures: Vec<ErasureRow>,
    at: Micros,
}

/// Writes a report as one JSON document.
async fn write(
    store: Arc<Store>,
    held: HeldData,
    chunks: mpsc::Sender<Result<Bytes, std::io::Error>>,
) {
    let HeldData { subject, agents, first, holds, erasures, at } = held;
    let head = format!(
        "{{\"subjectId\":{},\"generatedAt\":\"{}\",\"data\":[",
        json!(subject.id),
        at.rfc3339()
    );
    let written = pages(&store, &subject, &agents, head, first, &chunks).await;
    let last = match written {
        Ok(Some(count)) => {
            let holds: Vec<_> = holds.iter().map(HoldView::from).collect();
            let erasures: Vec<_> = erasures.iter().map(PastErasureView::from).collect();
            let (holds, erasures) = (json!(holds), json!(erasures));
            Ok(Bytes::from(format!(
                "],\"holds\":{holds},\"erasures\":{erasures},\"count\":{count}}}"
            )))
        }
        Ok(None) => return,
        Err(err) => {
            tracing::warn!(error = %err, "an access report broke off");
            // The body ends in an error, so that a client does not take half a report for a whole one.
            Err(std::io::Error::other("the report broke off"))
        }
    };
    let _ = chunks.send(last).await;
}

/// Writes the data page by page; `None` when the client has closed the connection.
async fn pages(
    store: &Store,
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
            text.push_str(&json!(DatumView::of(datum, agents)).to_string());
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

impl DatumView {
    fn of(datum: &SubjectDatum, agents: &Agents) -> Self {
        let held: Value = unpack(datum.kept.0, &datum.kept.1)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let delivered_to = datum.route.as_ref().map(|route| {
            let now = route.target.parse().ok().and_then(|id| agents.row(&id));
            DatumReceiver {
                agent_id: route.target.clone(),
                handoff_status: route.status.as_str(),
                attempts: route.attempts,
                accepted_at: route.accepted_at.map(Micros::rfc3339),
                // Each attempt decided on entitlement; this is the present state.
                entitled_now: now.is_some_and(|row| entitled(&row.agent)),
            }
        });
        Self {
            record: DatumRecord {
                leaf_index: datum.slot.leaf_index,
                record_hash: hash_text(&datum.record_hash),
                kind: datum.kind.clone(),
                time: datum.recorded_at.rfc3339(),
                ordinal: datum.slot.ordinal,
            },
            task_id: datum.task_id.clone(),
            handoff_id: datum.handoff_id.clone(),
            from_agent: datum.route.as_ref().map(|route| route.source.clone()),
            delivered_to,
            held,
        }
    }
}

impl From<&ErasureRow> for PastErasureView {
    fn from(row: &ErasureRow) -> Self {
        Self {
            erasure_id: row.id.to_string(),
            status: row.status,
            scope: row.scope,
            reason: row.reason.clone(),
            personal_data: row.data,
            contents: row.contents,
            checkpoints: row.checkpoints,
            leaf_index: row.leaf_index,
            requested_at: row.requested_at.rfc3339(),
            erased_at: row.completed_at.map(Micros::rfc3339),
        }
    }
}
