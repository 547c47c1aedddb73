//! `/console`: what waits for a person, the most urgent first.

use axum::response::Response;

use super::super::acts;
use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Button, Card, Cards, Cell, Content, Facts, Sheet};
use super::super::text;
use super::{ROWS, chosen, typed};

const FILTERS: [&str; 4] = ["agentId", "kind", "severity", "cursor"];
const SEVERITIES: [&str; 4] = ["", "critical", "warning", "notice"];

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let mut pairs: Vec<_> = FILTERS.iter().map(|name| (*name, desk.query.get(name))).collect();
    pairs.extend([("minAgeMs", desk.query.get("minutes")), ("limit", ROWS)]);
    let answer = desk.get(&["attention"], &pairs).await?;
    let of = |severity: &str| {
        let here = desk.here_with(&[("severity", severity), ("cursor", "")]);
        Cell::number(answer.get("counts").get(severity)).linked(here)
    };
    let figures = Facts(vec![
        ("Critical", of("critical")),
        ("Warnings", of("warning")),
        ("Notices", of("notice")),
    ]);
    let items: Vec<Card> = answer.list("items").iter().map(|item| card(desk, item)).collect();
    let more = match answer.text("nextCursor") {
        "" => String::new(),
        cursor => desk.here_with(&[("cursor", cursor)]),
    };
    let mut frame = desk.frame("", "Needs attention", &[]);
    frame.live = true;
    let cards = Cards { items, empty: "Nothing waits for a person.", more };
    let filters = vec![
        chosen(desk, "severity", "Severity", &SEVERITIES),
        typed(desk, "agentId", "Agent", ""),
        typed(desk, "minutes", "Waits at least (minutes)", "15"),
    ];
    Ok(Sheet::new(frame).part("counts", "", Content::Figures(figures)).filters(filters).part(
        "attention",
        "",
        Content::Cards(cards),
    ))
}

/// A cause, with everything that waits because of it.
fn card(desk: &Desk, item: &Json) -> Card {
    let tone = match item.text("severity") {
        "critical" => "bad",
        "warning" => "warn",
        _ => "calm",
    };
    let mut facts = vec![Cell::time(item.get("since"), desk.now, "")];
    if item.count("attempts") > 0 {
        facts.push(Cell::said(format!("{} attempts", item.text("attempts"))));
    }
    facts.push(Cell::code(item.get("lastError")));
    let at = item.text("next/at");
    if !at.is_empty() {
        let event = text::visible(item.text("next/event"));
        let event = event.trim_end_matches('.');
        facts.push(Cell::said(format!("{event} {}", text::relative(at, desk.now))));
    }
    Card {
        status: Cell::mark(&text::words(item.text("kind")), tone),
        title: Cell::said(text::visible(item.text("sentence"))).linked(place(item)),
        sentence: String::new(),
        facts: facts.into_iter().filter(|cell| !cell.is_empty()).collect(),
        buttons: buttons(desk, item),
    }
}

/// The link to the page with the details.
fn place(item: &Json) -> String {
    const PLACES: [(&str, &str); 5] = [
        ("escalationId", "decisions"),
        ("deadLetterId", "dead-letters"),
        ("subscriptionId", "subscriptions"),
        ("taskId", "tasks"),
        ("agentId", "receivers"),
    ];
    let many = item.count("count") > 1;
    let section = match item.text("kind") {
        "ESCALATED" if many => return link(&["decisions"], &[]),
        "DEAD_LETTERED" if many => return link(&["dead-letters"], &[]),
        "TREE_HEAD_LATE" => return link(&["evidence"], &[]),
        "TRANSPORT_AWAY" if item.text("agentId").is_empty() => return link(&["receivers"], &[]),
        "BREAKER_OPEN" | "TRANSPORT_AWAY" => Some(&("agentId", "receivers")),
        _ => PLACES.iter().find(|(name, _)| !item.text(name).is_empty()),
    };
    section.map_or_else(String::new, |(name, section)| link(&[section, item.text(name)], &[]))
}

fn buttons(desk: &Desk, item: &Json) -> Vec<Button> {
    let button = |remedy: &Json| {
        let (act, of) = acts::of_remedy(item.text("kind"), remedy.text("request"))?;
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        desk.may(act.name, &of)
    };
    item.list("remedies").iter().filter_map(button).collect()
}
