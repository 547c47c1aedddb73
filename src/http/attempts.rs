//! `GET /handoffs/{handoffId}/attempts`: the last attempts at a handoff, for operators.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Masked, Operator};
use super::extract::Id;
use super::open;
use super::problem::Problem;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::HandoffId;
use handoffd_store::store::attempts::{AttemptRow, KEPT_ATTEMPTS};

/// A header of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptHeader {
    /// Name, as it was sent.
    name: String,
    /// Value; `[REDACTED:secret]` in the place of a signature, a key, a token or a signed link.
    value: String,
}

/// An attempt at a handoff.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// From 1.
    #[schema(minimum = 1)]
    attempt: i32,
    /// When it began, RFC 3339.
    begun_at: String,
    /// How long it took, in milliseconds; absent where nothing was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<f64>,
    /// The way that it took; absent where nothing was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::DeliveryMode>, nullable = false)]
    transport: Option<&'static str>,
    /// How it ended.
    #[schema(value_type = open::AttemptOutcome)]
    outcome: String,
    /// HTTP status of the answer; absent where none came.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// The failure, in a sentence of the broker or as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Headers that the broker set for this handoff.
    request_headers: Vec<AttemptHeader>,
    /// The first 4 KiB of the receiver's answer: text of others, shown as it came. Absent where there was none, or where it
    /// may hold values that the redaction policy names.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

impl From<AttemptRow> for AttemptView {
    fn from(row: AttemptRow) -> Self {
        let header = |(name, value)| AttemptHeader { name, value };
        Self {
            attempt: row.attempt,
            begun_at: row.begun_at.rfc3339(),
            duration_ms: row.duration_us.map(|duration| duration as f64 / 1_000.0),
            transport: row.transport.map(DeliveryMode::as_str),
            outcome: row.outcome,
            status: row.status,
            error: row.error,
            request_headers: row.headers.into_iter().map(header).collect(),
            answer: row.answer,
        }
    }
}

/// The last attempts at a handoff.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptsView {
    /// UUID of the handoff.
    handoff_id: String,
    /// Attempts begun so far. The first one has no item where the receiver took it at once, nor has one that an erasure or the
    /// end of retention took.
    #[schema(minimum = 0)]
    attempts: i32,
    /// Most items: of more attempts the newest are kept.
    #[schema(minimum = 1)]
    kept: i32,
    /// Newest first.
    items: Vec<AttemptView>,
}

/// The last attempts at delivering a handoff, newest first.
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/attempts", tag = "handoffs", operation_id = "listAttempts",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    responses(
        (status = 200, description = "The attempts that are kept", body = AttemptsView),
        (status = 403, description = "Neither an operator nor an admin"),
        (status = 404, description = "No such handoff"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Operator(principal)): Masked<Operator>,
    Id(id): Id<HandoffId>,
) -> Result<axum::Json<AttemptsView>, Problem> {
    let handoff = super::handoffs::find(&api, &principal, id).await?;
    let rows = api.store.list_attempts(&(handoff.tenant.clone(), id)).await?;
    Ok(axum::Json(AttemptsView {
        handoff_id: id.to_string(),
        attempts: handoff.attempts,
        kept: KEPT_ATTEMPTS,
        items: rows.into_iter().map(AttemptView::from).collect(),
    }))
}
