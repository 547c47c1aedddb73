//! `/keys`: who may call, for admins.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::auth::Admin;
use super::extract::{Id, Json, NoBody};
use super::problem::{BadBody, Busy, Problem};
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_store::store::{KeyRow, Role};

/// A key, without the key.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// Public name of the key; it opens nothing.
    pub key_id: String,
    /// `agent`, `operator`, `operator-metadata`, `auditor` or `admin`.
    pub role: Role,
    /// The agent it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// A name for people.
    pub label: String,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it was last used, to the minute; absent where it never was, and in the answers to changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
    /// When it stopped working, or will.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The key itself: only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

impl From<&KeyRow> for KeyView {
    fn from(row: &KeyRow) -> Self {
        Self {
            key_id: row.key_id.clone(),
            role: row.role,
            agent_id: row.agent.as_ref().map(ToString::to_string),
            label: row.label.clone(),
            created_at: row.created_at.rfc3339(),
            last_used_at: None,
            expires_at: row.expires_at.map(Micros::rfc3339),
            api_key: None,
        }
    }
}

/// All keys of the tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeysView {
    /// The keys, by age.
    pub items: Vec<KeyView>,
}

/// A key to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyBody {
    /// The role of the key.
    role: Role,
    /// The agent it is bound to; needed for role `agent`, and for no other.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    agent_id: Option<AgentId>,
    /// For people, 200 characters at most.
    #[serde(default)]
    label: String,
    /// When it stops working, RFC 3339; never unless said.
    #[serde(default)]
    expires_at: Option<String>,
}

/// Make a key; it is shown this once.
#[utoipa::path(
    post, path = "/keys", tag = "keys", operation_id = "createKey",
    request_body(content = KeyBody, content_type = "application/json"),
    responses(
        (status = 201, description = "The key", body = KeyView),
        (status = 403, description = "Not an admin"),
        BadBody,
        (status = 422, description = "The key does not fit"),
        Busy,
    )
)]
pub(super) async fn create(
    State(api): State<Api>,
    Admin(principal): Admin,
    Json(body): Json<KeyBody>,
) -> Result<(StatusCode, axum::Json<KeyView>), Problem> {
    let KeyBody { role, agent_id, label, expires_at } = body;
    let administration = api.administration();
    let created =
        administration.create_key(&principal, (role, agent_id), label, expires_at.as_deref());
    let (row, key) = created.await?;
    let view = KeyView { api_key: Some(key.to_string()), ..KeyView::from(&row) };
    Ok((StatusCode::CREATED, axum::Json(view)))
}

/// List the tenant's keys, without the keys.
#[utoipa::path(
    get, path = "/keys", tag = "keys", operation_id = "listKeys",
    responses(
        (status = 200, description = "The keys", body = KeysView),
        (status = 403, description = "Not an admin"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Admin(principal): Admin,
) -> Result<axum::Json<KeysView>, Problem> {
    let rows = api.store.list_keys(&principal.tenant).await?;
    let uses = api.store.list_key_uses(&principal.tenant).await?;
    let view = |row: &KeyRow| {
        let last_used_at = uses.get(&row.key_id).map(|at| at.rfc3339());
        KeyView { last_used_at, ..KeyView::from(row) }
    };
    Ok(axum::Json(KeysView { items: rows.iter().map(view).collect() }))
}

/// Revoke a key.
#[utoipa::path(
    delete, path = "/keys/{keyId}", tag = "keys", operation_id = "revokeKey",
    params(("keyId" = String, Path, description = "The key's public name")),
    responses(
        (status = 200, description = "Revoked", body = KeyView),
        (status = 403, description = "Not an admin"),
        (status = 409, description = "The key that is used for this very request"),
        (status = 404, description = "No such key"),
        Busy,
    )
)]
pub(super) async fn revoke(
    State(api): State<Api>,
    Admin(principal): Admin,
    Id(key_id): Id<String>,
    _: NoBody,
) -> Result<axum::Json<KeyView>, Problem> {
    let row = api.administration().revoke_key(&principal, key_id).await?;
    Ok(axum::Json(KeyView::from(&row)))
}
