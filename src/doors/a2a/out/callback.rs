//! Push notifications of remote agents. Their content is not trusted: a notification wakes the broker, which asks the agent.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use super::Follow;
use crate::http::Api;
use crate::http::problem::Problem;
use handoffd_transports::a2a::transport::open_callback;

/// The header of a notification's token (A2A 1.0 §4.3.3).
const TOKEN: &str = "x-a2a-notification-token";

/// Takes a notification.
pub(super) async fn told(
    State(api): State<Api>,
    Extension(follow): Extension<Follow>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let token = headers.get(TOKEN).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let handoff = open_callback(&api.intake.vault, token)
        .filter(|(_, handoff)| handoff.to_string() == id)
        .ok_or_else(|| Problem::not_found("callback"))?;
    follow.nudge(handoff);
    Ok(StatusCode::NO_CONTENT)
}
