//! `/data-subjects`: what is held on a person, and its erasure.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Operator};
use super::extract::{Id, Ids, Json, Params, preferred_wait};
use super::problem::{BadBody, Busy, Problem, wrong};
use super::views::ReceiptView;
use handoffd_broker::directory::Principal;
use handoffd_broker::erasure::held_on;
use handoffd_broker::intake::data_subjects::ErasureWish;
use handoffd_broker::ledger::reply::ErasureReply;
use handoffd_broker::tree;
use handoffd_domain::ids::{ErasureId, TenantId};
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::erasure::ErasureScope;
use handoffd_evidence::record::SealedRecord;
use handoffd_store::store::erasure::{ErasureRow, ErasureStatus, SubjectRef};

/// Most characters of a subject's id, as in the message schema.
const MAX_SUBJECT: usize = 256;
/// Most characters of `requestedBy`.
const MAX_REFERENCE: usize = 200;
/// Most characters of a note.
pub(super) const MAX_NOTE: usize = 2000;

/// An erasure, and once it is done its certificate.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasureView {
    /// UUID of the erasure.
    pub erasure_id: String,
    /// Whose data, as the caller named it.
    pub subject_id: String,
    /// `RUNNING`, `SCRUBBING` (no row holds any of it, files are being cleaned) or `COMPLETED`.
    pub status: ErasureStatus,
    /// The data that the erasure covers.
    pub scope: ErasureScope,
    /// Why it was asked for: a code.
    pub reason: String,
    /// The name of the person in records: SHA-256 over a tag, `subjectSalt` and the id.
    pub subject_commitment: String,
    /// In hexadecimal; the broker does not store it, and computes it again for everyone who gives the id.
    pub subject_salt: String,
    /// Data held when it was asked for.
    pub held: i64,
    /// The data erased so far.
    pub erased: ErasedCounts,
    /// When it was asked for, RFC 3339.
    pub requested_at: String,
    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<String>,
    /// The `ERASURE_COMPLETED` record: `handoffd verify` holds each other member to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub record: Option<serde_json::Value>,
    /// The record's receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptView>,
}

/// The data that an erasure removed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasedCounts {
    /// Personal data, with their salts.
    pub personal_data: i64,
    /// Messages and other contents of records.
    pub contents: i64,
    /// Number of checkpoints that went so far.
    pub checkpoints: i64,
}

/// Query of an erasure.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EraseParams {
    /// `personal-data` (unless said), or `messages`: all contents and checkpoints of the tasks that the person's data
    /// came with, too. It may follow an erasure of the scope `personal-data`.
    #[param(value_type = Option<String>)]
    scope: Option<ErasureScope>,
}

/// A request for an erasure.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EraseBody {
    /// A code, `DATA_SUBJECT_REQUEST` by default; it is part of the records.
    reason: Option<String>,
    /// Your own reference to the request, e.g. a ticket; kept with the record, outlives the erasure.
    requested_by: Option<String>,
    /// Words for people; kept with the record, they outlive the erasure: do not name a person in them.
    note: Option<String>,
}

pub(super) fn bounded(pointer: &str, text: &str, most: usize) -> Result<(), Problem> {
    if text.chars().count() > most || text.contains('\0') {
        return Err(wrong(pointer, format!("must be {most} characters at most, without NUL")));
    }
    Ok(())
}

/// The subject that a path names.
pub(super) fn subject(api: &Api, tenant: &TenantId, id: String) -> Result<SubjectRef, Problem> {
    if id.is_empty() || id.chars().count() > MAX_SUBJECT || id.contains('\0') {
        return Err(Problem::not_found("data subject"));
    }
    let key = api.intake.vault.subject_key(tenant, &id);
    Ok(SubjectRef { tenant: tenant.clone(), id, key })
}

fn salt(api: &Api, subject: &SubjectRef, id: ErasureId) -> [u8; 16] {
    api.intake.vault.subject_salt(&subject.tenant, &id.to_string(), &subject.id)
}

/// Erase a person's data.
///
/// Answers 200 with the certificate when it is done within the wait (`Prefer: wait=N`, else
/// `erasure.wait_ms`), and 202 with where to look when it takes longer. Asking again gives the same, unless it asks for `messages`
/// where `personal-data` were erased.
#[utoipa::path(
    delete, path = "/data-subjects/{subjectId}", tag = "data subjects", operation_id = "eraseDataSubject",
    params(("subjectId" = String, Path, description = "The person's id, as senders wrote it"), EraseParams),
    request_body(content = EraseBody, content_type = "application/json"),
    responses(
        (status = 200, description = "Erased: the certificate", body = ErasureView),
        (status = 202, description = "Under way; Location says where it can be watched", body = ErasureView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "Nothing is or was held on this person"),
        (status = 409, description = "A legal hold forbids it, or an erasure of a narrower scope came before it"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn erase(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<String>,
    Params(params): Params<EraseParams>,
    headers: HeaderMap,
    Json(body): Json<EraseBody>,
) -> Result<Response, Problem> {
    let subject = subject(&api, &principal.tenant, id)?;
    let scope = params.scope.unwrap_or(ErasureScope::PersonalData);
    let (row, repeated) = request(&api, &principal, &subject, scope, body).await?;
    let wait = preferred_wait(&headers)?
        .unwrap_or_else(|| Duration::from_millis(api.config.erasure.wait_ms));
    let row = if row.status == ErasureStatus::Completed {
        row
    } else {
        let key = (row.tenant.clone(), row.id);
        let mut ending = api.eraser.start(key.clone());
        // The sender is dropped when the run ends.
        let _ = tokio::time::timeout(wait, async { while ending.changed().await.is_ok() {} }).await;
        api.store.find_erasure(&key).await?.unwrap_or(row)
    };
    let view = axum::Json(certificate(&api, &subject, &row).await?);
    let mut response = if row.status == ErasureStatus::Completed {
        view.into_response()
    } else {
        let mut response = (StatusCode::ACCEPTED, view).into_response();
        let place = format!("/data-subjects/{}/erasures/{}", percent(&subject.id), row.id);
        if let Ok(place) = HeaderValue::from_str(&place) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        response
    };
    if repeated {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Percent-encodes a text as one path segment.
fn percent(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

async fn request(
    api: &Api,
    principal: &Principal,
    subject: &SubjectRef,
    scope: ErasureScope,
    body: EraseBody,
) -> Result<(ErasureRow, bool), Problem> {
    let reason = body.reason.clone().unwrap_or_else(|| "DATA_SUBJECT_REQUEST".to_owned());
    let code = !reason.is_empty()
        && reason.len() <= 64
        && reason.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !code {
        return Err(wrong("/reason", "must be a code such as DATA_SUBJECT_REQUEST"));
    }
    bounded("/requestedBy", body.requested_by.as_deref().unwrap_or_default(), MAX_REFERENCE)?;
    bounded("/note", body.note.as_deref().unwrap_or_default(), MAX_NOTE)?;
    held_on(&api.intake.directory, &principal.tenant).await?;
    let EraseBody { requested_by, note, .. } = body;
    let wish = ErasureWish { scope, reason, requested_by, note };
    let ErasureReply { row, repeated } =
        api.intake.request_erasure(principal, subject, wish).await?;
    Ok((row, repeated))
}

async fn certificate(
    api: &Api,
    subject: &SubjectRef,
    row: &ErasureRow,
) -> Result<ErasureView, Problem> {
    let (record, receipt) = receipt(api, row).await?.unzip();
    Ok(ErasureView {
        erasure_id: row.id.to_string(),
        subject_id: subject.id.clone(),
        status: row.status,
        scope: row.scope,
        reason: row.reason.clone(),
        subject_commitment: hash_text(&row.commitment),
        subject_salt: hex::encode(salt(api, subject, row.id)),
        held: row.held,
        erased: ErasedCounts {
            personal_data: row.data,
            contents: row.contents,
            checkpoints: row.checkpoints,
        },
        requested_at: row.requested_at.rfc3339(),
        erased_at: row.completed_at.map(handoffd_domain::ids::Micros::rfc3339),
        record,
        receipt,
    })
}

/// The record that ended an erasure, and its receipt.
async fn receipt(
    api: &Api,
    row: &ErasureRow,
) -> Result<Option<(serde_json::Value, ReceiptView)>, Problem> {
    let Some(leaf_index) = row.leaf_index else { return Ok(None) };
    let found = api.store.list_records(&row.tenant, None, leaf_index, 1, false).await?;
    let head = api.store.find_head(&row.tenant).await?;
    let (Some(record), Some(head)) = (found.into_iter().next(), head) else { return Ok(None) };
    let Ok(hash) = record.hash.try_into() else { return Ok(None) };
    let Ok(told) = serde_json::from_slice(&record.body) else { return Ok(None) };
    let sealed =
        SealedRecord { log_id: head.log_id, leaf_index, hash, body: record.body, tree_size: 0 };
    let receipt = tree::receipt(&api.store, &api.notary, &row.tenant, &sealed).await?;
    Ok(receipt.as_ref().map(|receipt| (told, ReceiptView::from(receipt))))
}

/// Watch an erasure, or fetch its certificate again.
#[utoipa::path(
    get, path = "/data-subjects/{subjectId}/erasures/{erasureId}", tag = "data subjects", operation_id = "getErasure",
    params(
        ("subjectId" = String, Path, description = "The person's id, as senders wrote it"),
        ("erasureId" = String, Path, description = "The erasure's UUID"),
    ),
    responses(
        (status = 200, description = "The erasure", body = ErasureView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such erasure of this person"),
    )
)]
pub(super) async fn get_erasure(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Ids(subject_id, id): Ids<String, ErasureId>,
) -> Result<axum::Json<ErasureView>, Problem> {
    let subject = subject(&api, &principal.tenant, subject_id)?;
    let row = api
        .store
        .find_erasure(&(principal.tenant.clone(), id))
        .await?
        .filter(|row| row.subject_key == subject.key)
        .ok_or_else(|| Problem::not_found("erasure"))?;
    Ok(axum::Json(certificate(&api, &subject, &row).await?))
}
