//! `/console/refusals`: submissions that the gate did not let through.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Sheet, Table};
use super::{ROWS, agent, paged, task, typed};

const FILTERS: [&str; 8] =
    ["fromAgent", "toAgent", "taskId", "code", "pointer", "from", "to", "cursor"];

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let mut pairs: Vec<_> = FILTERS.iter().map(|name| (*name, desk.query.get(name))).collect();
    pairs.push(("limit", ROWS));
    let answer = desk.get(&["refusals"], &pairs).await?;
    let columns = [
        ("code", "Code"),
        ("pointer", "Place"),
        ("rule", "Rule"),
        ("fromAgent", "From"),
        ("toAgent", "To"),
        ("taskId", "Task"),
        ("refusedAt", "When"),
    ];
    let empty = "No submission was refused, as far as the filters go.";
    let table = Table::of(&columns, empty).rows(answer.list("items").iter().map(|item| {
        let rule = item.list("failures").first().map_or(&Json::Null, |first| first.get("rule"));
        vec![
            Cell::status(item.get("code"))
                .toned("bad")
                .linked(desk.here_with(&[("code", item.text("code")), ("cursor", "")])),
            Cell::code(item.get("pointer")),
            Cell::code(rule),
            agent(item.get("fromAgent")),
            agent(item.get("toAgent")),
            task(item.get("taskId")),
            Cell::time(item.get("refusedAt"), desk.now, ""),
        ]
    }));
    let filters = vec![
        typed(desk, "code", "Code", "SCHEMA_INVALID"),
        typed(desk, "fromAgent", "From agent", ""),
        typed(desk, "toAgent", "To agent", ""),
        typed(desk, "pointer", "Place", "/taskDescription"),
        typed(desk, "from", "Since", "2026-11-28"),
        typed(desk, "to", "until", ""),
    ];
    let mut frame = desk.frame("refusals", "Refusals", &[]);
    frame.live = true;
    let table = Content::Table(paged(desk, table, &answer));
    Ok(Sheet::new(frame).filters(filters).part("refusals", "", table))
}
