//! The search box: an id leads to the page of its object. Users are searched by POST, so that no address names one.

use axum::response::Response;

use super::super::desk::{Desk, Refusal, Sent};
use super::super::frame::{Flash, link};
use super::super::json::Json;
use super::super::sheet::Sheet;
use crate::doors::front::ApiRequest;

/// Leads to the page of the task, handoff, escalation, agent or conversation with this id.
pub(crate) async fn find(desk: Desk) -> Response {
    let id = desk.query.get("q").to_owned();
    if id.is_empty() {
        return Desk::back("/console");
    }
    if let Some(to) = place(&desk, &id).await {
        return Desk::back(&to);
    }
    let words = "No task, handoff, escalation, conversation or agent has this id.";
    desk.refused(&Refusal::unknown(words))
}

async fn place(desk: &Desk, id: &str) -> Option<String> {
    const KINDS: [(&str, &str); 4] = [
        ("tasks", "tasks"),
        ("handoffs", "handoffs"),
        ("escalations", "decisions"),
        ("agents", "receivers"),
    ];
    for (of_api, of_console) in KINDS {
        if desk.get(&[of_api, id], &[]).await.is_ok() {
            return Some(link(&[of_console, id], &[]));
        }
    }
    let page_of = desk.get(&["handoffs"], &[("conversationId", id), ("limit", "1")]).await.ok()?;
    let any = !page_of.list("items").is_empty();
    any.then(|| link(&["handoffs"], &[("conversationId", id)]))
}

/// Leads to the tasks of a user, by the reference of the id that was posted.
pub(crate) async fn user(sent: Sent) -> Response {
    let Sent { desk, fields } = sent;
    let body = Json::Object(vec![("userId".to_owned(), Json::from(fields.get("userId")))]);
    match desk.send(ApiRequest::post(&["users", "search"], body)).await {
        Ok(user) => Desk::back(&link(&["tasks"], &[("userRef", user.text("userRef"))])),
        Err(refusal) => {
            let mut sheet = Sheet::new(desk.frame("tasks", "Search for a user", &[]));
            let words = super::super::text::visible(refusal.problem.text("detail"));
            sheet.frame.flash = Some(Flash { words, tone: "bad", undo: None });
            desk.page(refusal.status, &sheet)
        }
    }
}
