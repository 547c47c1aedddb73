//! `/console/subscriptions`: who is told of events, how far behind, and each delivery.

use axum::extract::Path;
use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Sheet, Table};
use super::super::text;
use super::agent;

pub(crate) async fn list(desk: Desk) -> Response {
    let page = make_list(&desk).await;
    desk.answer(page)
}

fn state(item: &Json) -> Cell {
    match (item.flag("enabled"), item.text("progress/failingSince")) {
        (false, _) if !item.text("disabledReason").is_empty() => Cell::mark("Disabled", "bad"),
        (false, _) => Cell::mark("Off", "calm"),
        (true, "") => Cell::mark("Delivers", "good"),
        (true, _) => Cell::mark("Failing", "bad"),
    }
}

async fn make_list(desk: &Desk) -> Result<Sheet, Refusal> {
    let answer = desk.get(&["subscriptions"], &[]).await?;
    let columns = [
        ("subscriptionId", "Subscription"),
        ("state", "State"),
        ("description", "Description"),
        ("url", "Address"),
        ("owner", "Of"),
        ("failures", "Failures#"),
        ("nextAttemptAt", "Next attempt"),
    ];
    let table = Table::of(&columns, "No subscription: events are in the feed alone.").rows(
        answer.list("items").iter().map(|item| {
            vec![
                Cell::id(item.get("subscriptionId"))
                    .to(&["subscriptions", item.text("subscriptionId")]),
                state(item),
                Cell::excerpt(item.get("description"), 40),
                Cell::excerpt(item.get("url"), 50),
                agent(item.get("owner")),
                Cell::number(item.at("progress/failures")),
                Cell::time(item.at("progress/nextAttemptAt"), desk.now, ""),
            ]
        }),
    );
    let frame = desk.frame("subscriptions", "Subscriptions", &[]);
    Ok(Sheet::new(frame).part("subscriptions", "", Content::Table(table)))
}

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let item = desk.get(&["subscriptions", id], &[]).await?;
    let pairs = [("limit", "50"), ("before", desk.query.get("before"))];
    let deliveries = desk.get(&["subscriptions", id, "deliveries"], &pairs).await?;
    let title = match item.text("description") {
        "" => format!("Subscription {}", text::short_id(id)),
        words => text::short(&text::visible(words), 60),
    };
    let columns = [
        ("at", "When"),
        ("outcome", "Outcome"),
        ("type", "Event"),
        ("attempt", "Attempt#"),
        ("status", "Answer#"),
        ("durationMs", "Took#"),
        ("detail", "Detail"),
    ];
    let rows = deliveries.list("items");
    let mut table =
        Table::of(&columns, "Nothing was delivered yet.").rows(rows.iter().map(|item| {
            vec![
                Cell::time(item.get("at"), desk.now, ""),
                Cell::status(item.get("outcome")),
                Cell::code(item.get("type")),
                Cell::number(item.get("attempt")),
                Cell::number(item.get("status")),
                Cell::millis(item.get("durationMs")),
                Cell::excerpt(item.get("detail"), 80),
            ]
        }));
    if let Some(last) = rows.last().filter(|_| rows.len() == 50) {
        table.next = desk.here_with(&[("before", last.text("number"))]);
    }
    let events: Vec<&str> = item.list("eventTypes").iter().map(Json::as_text).collect();
    let facts = Facts::of(vec![
        ("Address", Cell::code(item.get("url"))),
        (
            "Events",
            Cell::said(if events.is_empty() {
                "all".to_owned()
            } else {
                text::visible(&events.join(", "))
            }),
        ),
        ("Format", Cell::text(item.get("format"))),
        ("Of", agent(item.get("owner"))),
        ("Delivered up to", Cell::code(item.at("progress/cursor"))),
        ("Failures in a row", Cell::number(item.at("progress/failures"))),
        ("Failing since", Cell::time(item.at("progress/failingSince"), desk.now, "")),
        ("Next attempt", Cell::time(item.at("progress/nextAttemptAt"), desk.now, "")),
        ("Switched off for", Cell::text(item.get("disabledReason"))),
    ]);
    Ok(Sheet::new(desk.frame("subscriptions", title, &[("Subscriptions", &["subscriptions"])]))
        .status(state(&item))
        .buttons([
            desk.may("replay", &[id]),
            desk.may("switch", &[id]),
            desk.may("rotate-subscription", &[id]),
        ])
        .part("about", "", Content::Facts(facts))
        .part("deliveries", "Deliveries", Content::Table(table)))
}
