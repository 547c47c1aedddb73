//! `/erasures`: the tenant's erasures without the persons. The certificate of one is at the person's own address.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Auditor;
use super::data_subjects::ErasedCounts;
use super::extract::{Params, bad_cursor, page_size, read_id, write_id};
use super::problem::Problem;
use handoffd_domain::ids::Micros;
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::erasure::ErasureScope;
use handoffd_store::store::erasure::{ErasureRow, ErasureStatus};

/// The list in its cursors.
const LIST: &str = "erasures";

/// An erasure without the person's id and salt.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasureItem {
    /// UUID of the erasure.
    pub erasure_id: String,
    /// `RUNNING`, `SCRUBBING` (no row holds any of it, files are being cleaned) or `COMPLETED`.
    pub status: ErasureStatus,
    /// The data that the erasure covers.
    pub scope: ErasureScope,
    /// Why it was asked for: a code.
    pub reason: String,
    /// The person as records name one: `sha256:` and a hash over a tag, a salt and the id.
    pub subject_commitment: String,
    /// Data held when it was asked for.
    pub held: i64,
    /// Number of data erased so far.
    pub erased: ErasedCounts,
    /// When it was asked for, RFC 3339.
    pub requested_at: String,
    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<String>,
    /// Leaf index of the `ERASURE_COMPLETED` record, which the certificate repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_index: Option<i64>,
}

impl From<&ErasureRow> for ErasureItem {
    fn from(row: &ErasureRow) -> Self {
        Self {
            erasure_id: row.id.to_string(),
            status: row.status,
            scope: row.scope,
            reason: row.reason.clone(),
            subject_commitment: hash_text(&row.commitment),
            held: row.held,
            erased: ErasedCounts {
                personal_data: row.data,
                contents: row.contents,
                checkpoints: row.checkpoints,
            },
            requested_at: row.requested_at.rfc3339(),
            erased_at: row.completed_at.map(Micros::rfc3339),
            leaf_index: row.leaf_index,
        }
    }
}

/// Erasures, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasuresView {
    /// The erasures of this page.
    pub items: Vec<ErasureItem>,
    /// Give this as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ErasuresParams {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List erasures without the persons.
#[utoipa::path(
    get, path = "/erasures", tag = "data subjects", operation_id = "listErasures",
    params(ErasuresParams),
    responses(
        (status = 200, description = "One page, the newest first", body = ErasuresView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Params(params): Params<ErasuresParams>,
) -> Result<axum::Json<ErasuresView>, Problem> {
    let limit = page_size(params.limit)?;
    let tenant = &principal.tenant;
    let before = params.cursor.as_deref().map(|cursor| read_id(LIST, cursor)).transpose()?;
    // Rows of erasures stay, so the broker finds each id that it gave out.
    if let Some(before) = before
        && api.store.find_erasure(&(tenant.clone(), before)).await?.is_none()
    {
        return Err(bad_cursor());
    }
    let mut rows = api.store.list_newest_erasures(tenant, before, limit + 1).await?;
    let more = rows.len() as i64 > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let place = |row: &ErasureRow| write_id(LIST, row.id);
    Ok(axum::Json(ErasuresView {
        next_cursor: more.then(|| rows.last().map(place)).flatten(),
        items: rows.iter().map(ErasureItem::from).collect(),
    }))
}
