//! `/console/costs`: money and tokens by day, agent and edge.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Sheet, Table};
use super::super::text;
use super::{agent, typed};

const FILTERS: [&str; 7] = ["from", "to", "agentId", "fromAgent", "toAgent", "taskId", "userRef"];
/// Rows that the page draws; all of them are in the API.
const MOST: usize = 200;

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let pairs: Vec<_> = FILTERS.iter().map(|name| (*name, desk.query.get(name))).collect();
    let answer = desk.get(&["costs"], &pairs).await?;
    let caps = desk.get(&["caps"], &[]).await?;
    let columns = [
        ("day", "Day"),
        ("fromAgentId", "From"),
        ("toAgentId", "To"),
        ("agentId", "Spent by"),
        ("handoffs", "Handoffs#"),
        ("prompt", "Tokens read#"),
        ("completion", "Tokens written#"),
        ("spentUSD", "Spent#"),
    ];
    let items = answer.list("items");
    let table = Table::of(&columns, "Nothing was spent on these days.").rows(
        items.iter().take(MOST).map(|line| {
            vec![
                Cell::text(line.get("day")),
                agent(line.get("fromAgentId")),
                agent(line.get("toAgentId")),
                agent(line.get("agentId")),
                Cell::number(line.get("handoffs")),
                Cell::number(line.at("tokens/prompt")),
                Cell::number(line.at("tokens/completion")),
                Cell::money(line.get("spentUSD")),
            ]
        }),
    );
    let figures = Facts(vec![
        ("Spent", Cell::money(answer.at("total/spentUSD"))),
        ("Handoffs", Cell::number(answer.at("total/handoffs"))),
        ("Tokens read", Cell::number(answer.at("total/tokens/prompt"))),
        ("Tokens written", Cell::number(answer.at("total/tokens/completion"))),
    ]);
    let filters = vec![
        typed(desk, "from", "From day", "2026-11-28"),
        typed(desk, "to", "until", "2026-11-29"),
        typed(desk, "agentId", "Spent by", ""),
        typed(desk, "fromAgent", "From agent", ""),
        typed(desk, "toAgent", "To agent", ""),
        typed(desk, "userRef", "User reference", ""),
    ];
    let note = if items.len() > MOST {
        format!("The first {MOST} of {} lines; narrow them by the filters.", items.len())
    } else {
        String::new()
    };
    Ok(Sheet::new(desk.frame("costs", "Costs", &[]))
        .filters(filters)
        .part("total", "", Content::Figures(figures))
        .part("costs", "By day and edge", Content::Table(table))
        .note(note)
        .part("caps", "Rolling caps", Content::Table(cap_table(&caps))))
}

fn cap_table(caps: &Json) -> Table {
    let columns = [
        ("agentId", "Agent"),
        ("window", "Window"),
        ("usd", "Cap#"),
        ("spentUSD", "Spent#"),
        ("leftUSD", "Left#"),
        ("tokens", "Token cap#"),
        ("spentTokens", "Tokens#"),
    ];
    Table::of(&columns, "No cap is set.").rows(caps.list("items").iter().map(|cap| {
        let name = match cap.text("agentId") {
            "" => Cell::said("the tenant"),
            _ => agent(cap.get("agentId")),
        };
        vec![
            name,
            Cell::said(text::visible(cap.text("window"))),
            Cell::money(cap.get("usd")),
            Cell::money(cap.get("spentUSD")),
            Cell::money(cap.get("leftUSD")),
            Cell::number(cap.get("tokens")),
            Cell::number(cap.get("spentTokens")),
        ]
    }))
}
