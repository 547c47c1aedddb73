//! The screens, one file each.

pub(super) mod answers;
mod costs;
mod dead_letters;
mod decisions;
mod edges;
mod evidence;
mod handoff;
mod home;
mod keys;
mod receivers;
mod refusals;
mod search;
mod sessions;
mod subscriptions;
mod task;
mod tasks;
mod waterfall;

use crate::http::routing::{get, post};
use axum::Router;

use super::desk::Desk;
use super::json::Json;
use super::sheet::{Cell, Filter, Table};
use super::text;
use crate::http::Api;

/// The routes of all screens.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/console", get(home::page))
        .route("/console/search", get(search::find))
        .route("/console/users", post(search::user))
        .route("/console/tasks", get(tasks::page))
        .route("/console/tasks/{id}", get(task::page))
        .route("/console/tasks/{id}/bundle", get(task::bundle))
        .route("/console/handoffs", get(tasks::handoffs))
        .route("/console/handoffs/{id}", get(handoff::page))
        .route("/console/dead-letters", get(dead_letters::list))
        .route("/console/dead-letters/{id}", get(dead_letters::page))
        .route("/console/decisions", get(decisions::list))
        .route("/console/decisions/{id}", get(decisions::page))
        .route("/console/receivers", get(receivers::list))
        .route("/console/receivers/{id}", get(receivers::page))
        .route("/console/refusals", get(refusals::page))
        .route("/console/costs", get(costs::page))
        .route("/console/edges", get(edges::page))
        .route("/console/contracts/{id}", get(edges::contract))
        .route("/console/evidence", get(evidence::page))
        .route("/console/keys", get(keys::page))
        .route("/console/sessions", get(sessions::page))
        .route("/console/subscriptions", get(subscriptions::list))
        .route("/console/subscriptions/{id}", get(subscriptions::page))
}

/// Rows of a page of a list.
const ROWS: &str = "50";

/// Gives a table the addresses of the pages around it.
fn paged(desk: &Desk, mut table: Table, answer: &Json) -> Table {
    let next = answer.text("nextCursor");
    if !next.is_empty() {
        table.next = desk.here_with(&[("cursor", next)]);
        answer.text("lookedBackTo").clone_into(&mut table.looked_back_to);
    }
    if !desk.query.get("cursor").is_empty() {
        table.first = desk.here_with(&[("cursor", "")]);
    }
    table
}

/// How far a page looked, in words, where it did not look at all rows; `rows` are what it looked at.
fn looked_back(desk: &Desk, answer: &Json, rows: &str) -> String {
    let at = answer.text("lookedBackTo");
    if at.is_empty() {
        return String::new();
    }
    format!(
        "Looked at {rows} back to {} ({}). Older ones may fit too.",
        text::relative(at, desk.now),
        text::visible(at)
    )
}

/// A filter of free text.
fn typed(desk: &Desk, name: &'static str, label: &'static str, hint: &'static str) -> Filter {
    Filter { name, label, value: desk.query.get(name).to_owned(), hint, options: vec![] }
}

/// A filter by a word; the empty word is all.
fn chosen(desk: &Desk, name: &'static str, label: &'static str, words: &[&'static str]) -> Filter {
    let options = words
        .iter()
        .map(|word| (*word, if word.is_empty() { "All".to_owned() } else { text::words(word) }));
    let value = desk.query.get(name).to_owned();
    Filter { name, label, value, hint: "", options: options.collect() }
}

fn agent(value: &Json) -> Cell {
    Cell::text(value).to(&["receivers", value.as_text()])
}

fn task(value: &Json) -> Cell {
    Cell::id(value).to(&["tasks", value.as_text()])
}

fn handoff_id(value: &Json) -> Cell {
    Cell::id(value).to(&["handoffs", value.as_text()])
}
