//! `/audit/heads`: how far tree heads are outside the database, as the answering broker knows.

use std::time::Duration;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::audit::head_of;
use super::auth::{Auditor, Open};
use super::problem::Problem;
use handoffd_broker::tree::LATE_AFTER_INTERVALS;

/// Tree heads outside the database.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedHeadsView {
    /// Id of the log.
    pub log_id: String,
    /// Records in the log now.
    pub tree_size: u64,
    /// The places of `audit.publish` that took a head, or did not, since this broker's start.
    pub places: Vec<HeadPlaceView>,
    /// The newest head that a witness cosigned since this broker's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<WitnessedHeadView>,
}

/// How much of the log a place has. The broker publishes a head only if the log continues the one that it published before.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadPlaceView {
    /// Kind of the place, such as `file`.
    pub kind: String,
    /// Records in the last head that the place took; 0 without one.
    pub tree_size: u64,
    /// When the place last had all of the log; without a head, the time of the first attempt. RFC 3339.
    pub checked_at: String,
    /// Whether it has lacked records for three intervals (`audit.publish_interval_s`).
    pub late: bool,
}

/// A cosigned head.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WitnessedHeadView {
    /// Records in its tree.
    pub tree_size: u64,
    /// Names of the witnesses that cosigned it.
    pub witnesses: Vec<String>,
}

/// How far tree heads are published.
#[utoipa::path(
    get, path = "/audit/heads", tag = "audit", operation_id = "listPublishedHeads",
    responses(
        (status = 200, description = "The places, and the newest cosigned head", body = PublishedHeadsView),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
) -> Result<axum::Json<PublishedHeadsView>, Problem> {
    let head = head_of(&api, &principal.tenant).await?;
    let (size, now) = (head.tree.size(), api.now());
    let allowed = Duration::from_secs(api.config.audit.publish_interval_s) * LATE_AFTER_INTERVALS;
    let places = api.published.list(&head.log_id).into_iter().map(|place| HeadPlaceView {
        late: place.is_late(size, now, allowed),
        kind: place.kind.to_owned(),
        tree_size: place.size,
        checked_at: place.at.rfc3339(),
    });
    let witnessed = api
        .cosigned
        .signers(&head.log_id)
        .map(|(tree_size, witnesses)| WitnessedHeadView { tree_size, witnesses });
    let (tree_size, places) = (size, places.collect());
    Ok(axum::Json(PublishedHeadsView { log_id: head.log_id, tree_size, places, witnessed }))
}
