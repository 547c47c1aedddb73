//! `/legal-holds`: what may not be erased, and why.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Operator};
use super::data_subjects::{MAX_NOTE, bounded, subject};
use super::extract::{Id, Json, Params, bad_cursor, page_size, plain_cursor, read_id, write_id};
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use handoffd_broker::intake::data_subjects::HoldRequest;
use handoffd_broker::ledger::reply::HoldReply;
use handoffd_domain::ids::{Micros, TaskId};
use handoffd_store::store::erasure::HoldRow;

/// The list in its cursors.
const LIST: &str = "legal-holds";

/// A legal hold: data that no erasure may touch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldView {
    /// Id of the hold, as its maker named it.
    pub hold_id: String,
    /// The person whose data it holds; no longer named once it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_id: Option<String>,
    /// The task that it holds: no person with data on it can be erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Why it was placed, in words.
    pub reason: String,
    /// When it was placed, RFC 3339.
    pub placed_at: String,
    /// When it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// `NOTHING_HELD` where nothing of the task or person is stored; in the answer to its placing, absent for none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

impl From<&HoldRow> for HoldView {
    fn from(row: &HoldRow) -> Self {
        Self {
            hold_id: row.id.clone(),
            subject_id: row.subject_id.clone(),
            task_id: row.task_id.map(|id| id.to_string()),
            reason: row.reason.clone(),
            placed_at: row.placed_at.rfc3339(),
            released_at: row.released_at.map(Micros::rfc3339),
            warnings: Vec::new(),
        }
    }
}

/// Legal holds, by id.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldsView {
    /// The holds of this page.
    pub items: Vec<HoldView>,
    /// The value of `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A hold to place: on a person or on a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldBody {
    /// The person whose data may not be erased.
    subject_id: Option<String>,
    /// The task on which no person's data may be erased.
    #[schema(value_type = Option<String>)]
    task_id: Option<TaskId>,
    /// Why, in words; shown to everyone who tries to erase.
    reason: String,
}

/// Why a hold is released.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = LegalHoldReleaseBody)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseBody {
    /// Why it is released, in words.
    #[serde(default)]
    reason: String,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only of this person.
    subject_id: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// The id in a cursor. The id itself, as versions up to 0.3.0 gave it out, is taken too.
fn read_place(cursor: &str) -> Result<String, Problem> {
    match plain_cursor(cursor) {
        Ok(plain) if plain.contains(':') => read_id(LIST, cursor),
        _ => Ok(cursor.to_owned()),
    }
}

/// Whether an id is a code: hold ids stay in records forever.
fn code(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Place a legal hold; placing the same again changes nothing.
#[utoipa::path(
    put, path = "/legal-holds/{holdId}", tag = "data subjects", operation_id = "placeLegalHold",
    params(("holdId" = String, Path, description = "A code of your own: letters, digits, `.`, `_`, `-`, 64 at most; the audit log keeps it for ever, so put no person's name in it")),
    request_body(content = HoldBody, content_type = "application/json"),
    responses(
        (status = 200, description = "It was there", body = HoldView),
        (status = 201, description = "Placed", body = HoldView),
        (status = 403, description = "Not an operator"),
        (status = 409, description = "The id holds, or held, something else"),
        BadBody,
        (status = 422, description = "The hold does not fit"),
        Busy,
    )
)]
pub(super) async fn place(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<String>,
    Json(body): Json<HoldBody>,
) -> Result<(StatusCode, axum::Json<HoldView>), Problem> {
    if !code(&id) {
        return Err(Problem::invalid("holdId must be a code: A-Z a-z 0-9 . _ - , 64 at most"));
    }
    bounded("/reason", &body.reason, MAX_NOTE)?;
    if body.reason.trim().is_empty() {
        return Err(wrong("/reason", "a hold needs its reason"));
    }
    if body.subject_id.is_some() == body.task_id.is_some() {
        return Err(wrong("", "a hold is either on a subjectId or on a taskId"));
    }
    let tenant = &principal.tenant;
    let held = body
        .subject_id
        .map(|id| subject(&api, tenant, id))
        .transpose()
        .map_err(|_| wrong("/subjectId", "is not a subject's id"))?;
    let HoldBody { task_id, reason, .. } = body;
    let request = HoldRequest { id, subject: held, task_id, reason };
    let (HoldReply { row, repeated }, warnings) =
        api.intake.place_hold(&principal, request).await?;
    let warnings = warnings.iter().map(WarningView::from).collect();
    let status = if repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, axum::Json(HoldView { warnings, ..HoldView::from(&row) })))
}

/// Release a legal hold.
#[utoipa::path(
    delete, path = "/legal-holds/{holdId}", tag = "data subjects", operation_id = "releaseLegalHold",
    params(("holdId" = String, Path, description = "The hold")),
    request_body(content = ReleaseBody, content_type = "application/json"),
    responses(
        (status = 200, description = "Released, now or before", body = HoldView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such hold"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn release(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<String>,
    Json(body): Json<ReleaseBody>,
) -> Result<axum::Json<HoldView>, Problem> {
    bounded("/reason", &body.reason, MAX_NOTE)?;
    let HoldReply { row, .. } = api.intake.release_hold(&principal, id, &body.reason).await?;
    Ok(axum::Json(HoldView::from(&row)))
}

/// Read one legal hold.
#[utoipa::path(
    get, path = "/legal-holds/{holdId}", tag = "data subjects", operation_id = "getLegalHold",
    params(("holdId" = String, Path, description = "The hold")),
    responses(
        (status = 200, description = "The hold", body = HoldView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such hold"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Id(id): Id<String>,
) -> Result<axum::Json<HoldView>, Problem> {
    let found = api.store.find_hold(&(principal.tenant.clone(), id)).await?;
    let row = found.ok_or_else(|| Problem::not_found("legal hold"))?;
    Ok(axum::Json(HoldView::from(&row)))
}

/// List legal holds, released ones too.
#[utoipa::path(
    get, path = "/legal-holds", tag = "data subjects", operation_id = "listLegalHolds",
    params(ListParams),
    responses(
        (status = 200, description = "One page, by id", body = HoldsView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<HoldsView>, Problem> {
    let limit = page_size(params.limit)?;
    let tenant = &principal.tenant;
    let held = params
        .subject_id
        .map(|id| subject(&api, tenant, id))
        .transpose()
        .map_err(|_| Problem::invalid("subjectId is not a subject's id"))?;
    let after = params.cursor.as_deref().map(read_place).transpose()?;
    let after = after.as_deref();
    if after.is_some_and(|after| !code(after)) {
        return Err(bad_cursor());
    }
    // Holds stay when they are released: an id without a hold is not a place among them.
    if let Some(after) = after
        && api.store.find_hold(&(tenant.clone(), after.to_owned())).await?.is_none()
    {
        return Err(bad_cursor());
    }
    let key = held.as_ref().map(|held| &held.key);
    let mut rows = api.store.list_holds(tenant, key, after, limit + 1).await?;
    let more = rows.len() as i64 > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(axum::Json(HoldsView {
        next_cursor: more.then(|| rows.last().map(|row| write_id(LIST, &row.id))).flatten(),
        items: rows.iter().map(HoldView::from).collect(),
    }))
}
