//! `POST /users/search`: the reference by which lists and costs are filtered for a user. No URL contains the id itself.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::auth::Auditor;
use super::extract::Json;
use super::problem::{BadBody, Busy, Problem, wrong};
use handoffd_domain::personal::is_user_ref;
use handoffd_store::store::reach::{BOUNDS, Reach};
use handoffd_store::store::{HandoffFilter, TaskFilter};

/// Most characters of a user's id, as in the message schema.
const MAX_USER: usize = 256;

/// A user to look for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserSearchBody {
    /// The user's id, as senders write it into `userId`.
    user_id: String,
}

/// A user's reference, and when something was last committed for it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserView {
    /// The reference, for `userRef` of lists and costs. It is a keyed hash, so the id cannot be computed from it.
    pub user_ref: String,
    /// When the newest handoff for the user was committed, RFC 3339; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handoff_at: Option<String>,
    /// When the newest task with a handoff for the user began, RFC 3339; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_task_at: Option<String>,
}

/// A query parameter as a user's reference.
///
/// # Errors
/// 400 where it has another form.
pub(super) fn user_parameter(text: Option<String>) -> Result<Option<String>, Problem> {
    if text.as_deref().is_some_and(|text| !is_user_ref(text)) {
        return Err(Problem::invalid(
            "userRef is not a reference to a user: POST /users/search gives one for an id",
        ));
    }
    Ok(text)
}

/// Find the reference to a user, by which tasks, handoffs and costs can be listed.
#[utoipa::path(
    post, path = "/users/search", tag = "data subjects", operation_id = "searchUser",
    request_body = UserSearchBody,
    responses(
        (status = 200, description = "The reference; the same for each request", body = UserView),
        (status = 403, description = "An agent's key"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn search(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Json(said): Json<UserSearchBody>,
) -> Result<axum::Json<UserView>, Problem> {
    let id = said.user_id;
    if id.is_empty() || id.chars().count() > MAX_USER || id.contains('\0') {
        return Err(wrong("/userId", "must be 1 to 256 characters, without NUL"));
    }
    let tenant = &principal.tenant;
    let user_ref = api.intake.vault.user_ref(tenant, &id);
    let user = Some(user_ref.clone());
    let handoffs = HandoffFilter { user: user.clone(), ..HandoffFilter::default() };
    let newest = api.store.list_handoffs(tenant, &handoffs, None, 1).await?;
    let mut tasks = TaskFilter { user, ..TaskFilter::default() };
    tasks.reach = api.store.reach_of_tasks(tenant, &tasks, None, BOUNDS).await?;
    let mut last = api.store.list_tasks(tenant, &tasks, None, 1).await?;
    if last.is_empty() && tasks.reach.end().is_some() {
        tasks.reach = Reach::Whole;
        last = api.store.list_tasks(tenant, &tasks, None, 1).await?;
    }
    Ok(axum::Json(UserView {
        user_ref,
        last_handoff_at: newest.first().map(|row| row.created_at.rfc3339()),
        last_task_at: last.first().map(|row| row.created_at.rfc3339()),
    }))
}
