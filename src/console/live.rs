//! `GET /console/live`: whether a page is out of date. The browser waits for the answer, and asks again.

use axum::Json as JsonBody;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::desk::Desk;

/// Seconds that a request waits for an event.
const WAIT: &str = "25";
/// Events that are counted at most.
const MOST: &str = "100";

/// The events behind a place of the feed.
#[derive(Serialize)]
struct News {
    /// How many there are, at most 100.
    count: usize,
    /// The cursor to go on from.
    cursor: String,
}

/// Waits for events behind `since` (a cursor, or the time of the page), of one task where `task` is given.
pub(super) async fn wait(desk: Desk) -> Response {
    let (since, task) = (desk.query.get("since"), desk.query.get("task"));
    let pairs = [("since", since), ("taskId", task), ("wait", WAIT), ("limit", MOST)];
    match desk.get(&["events"], &pairs).await {
        Ok(feed) => {
            let cursor = feed.text("nextCursor").to_owned();
            JsonBody(News { count: feed.list("items").len(), cursor }).into_response()
        }
        Err(refusal) => refusal.status.into_response(),
    }
}
