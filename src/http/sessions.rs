//! `/sessions`: who is logged in to the console.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Operator;
use super::extract::{Id, NoBody, Params, page_size, read_cursor};
use super::problem::{Busy, Problem};
use super::views::Page;
use handoffd_domain::ids::SessionId;
use handoffd_store::store::Role;
use handoffd_store::store::console_sessions::SessionRow;

/// The list in its cursors.
const LIST: &str = "sessions";

/// A login at the console, without its token.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// UUID of the session; it opens nothing.
    pub session_id: String,
    /// Public name of the key of the login.
    pub key_id: String,
    /// The key's role at the login; the key's present role decides on access.
    pub role: Role,
    /// When the session began, RFC 3339.
    pub created_at: String,
    /// The last request, to the minute.
    pub last_seen_at: String,
    /// When the session ends, if it is used until then.
    pub expires_at: String,
    /// The name that the browser gives itself, 120 characters at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
}

impl From<&SessionRow> for SessionView {
    fn from(row: &SessionRow) -> Self {
        Self {
            session_id: row.id.to_string(),
            key_id: row.key_id.clone(),
            role: row.role,
            created_at: row.created_at.rfc3339(),
            last_seen_at: row.last_seen_at.rfc3339(),
            expires_at: row.expires_at.rfc3339(),
            user_agent: row.user_agent.clone(),
        }
    }
}

/// A session that was ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedSessionView {
    /// UUID of the session.
    pub session_id: String,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionListParams {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List the console's sessions, newest first. A session that ended by time is listed until it is deleted, for some minutes.
#[utoipa::path(
    get, path = "/sessions", tag = "keys", operation_id = "listSessions",
    params(SessionListParams),
    responses(
        (status = 200, description = "One page", body = Page<SessionView>),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "Not an operator"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Operator(principal): Operator,
    Params(params): Params<SessionListParams>,
) -> Result<axum::Json<Page<SessionView>>, Problem> {
    let limit = page_size(params.limit)?;
    let tenant = &principal.tenant;
    let newest = async || {
        let rows = api.store.list_sessions(tenant, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.id.to_string())))
    };
    let after = read_cursor(&api, LIST, params.cursor.as_deref(), newest).await?;
    let rows = api.store.list_sessions(tenant, after.as_ref(), limit + 1).await?;
    let position = |row: &SessionRow| (row.created_at, row.id.to_string());
    Ok(axum::Json(Page::new(LIST, rows, limit, position, |row| SessionView::from(row))))
}

/// End a session of the console.
#[utoipa::path(
    delete, path = "/sessions/{sessionId}", tag = "keys", operation_id = "endSession",
    params(("sessionId" = String, Path, description = "The session's UUID")),
    responses(
        (status = 200, description = "Ended", body = EndedSessionView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such session, or it has ended"),
        Busy,
    )
)]
pub(super) async fn end(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<SessionId>,
    _: NoBody,
) -> Result<axum::Json<EndedSessionView>, Problem> {
    if !api.sessions.end(&principal.tenant, id).await? {
        return Err(Problem::not_found("session"));
    }
    tracing::info!(
        tenant = %principal.tenant, key_id = principal.key_id, session_id = %id,
        "a console session was ended by an operator"
    );
    Ok(axum::Json(EndedSessionView { session_id: id.to_string() }))
}
