//! `/console`: what waits for a person, the most urgent first.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Card, Cards, Cell, Content, Facts, Sheet};
use super::super::text;

/// Cards that a group shows.
const MOST: usize = 6;

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let open = [("status", "OPEN"), ("limit", "50")];
    let letters = desk.get(&["dead-letters"], &open).await?;
    let escalations = desk.get(&["escalations"], &open).await?;
    let agents = desk.get(&["agents"], &[]).await?;
    let running = desk.get(&["tasks"], &[("status", "RUNNING"), ("limit", "50")]).await?;
    let pending = desk.get(&["tasks"], &[("status", "PENDING_HANDOFF"), ("limit", "50")]).await?;
    let stopped = stopped(desk, &agents);
    let waiting: Vec<&Json> = running.list("items").iter().chain(pending.list("items")).collect();
    let idle: Vec<Card> = waiting.iter().filter_map(|task| idle(desk, task)).collect();
    let figures = Facts(vec![
        ("Decisions", figure(&escalations, "decisions")),
        ("Dead letters", figure(&letters, "dead-letters")),
        ("Receivers stopped", Cell::count(stopped.len()).linked(link(&["receivers"], &[]))),
        ("Tasks not moving", Cell::count(idle.len()).linked(link(&["tasks"], &[]))),
    ]);
    let nothing = letters.list("items").is_empty()
        && escalations.list("items").is_empty()
        && stopped.is_empty()
        && idle.is_empty();
    let mut frame = desk.frame("", "Needs attention", &[]);
    frame.live = true;
    let lead = if nothing { "Nothing waits for a person." } else { "" };
    let mut sheet = Sheet::new(frame).lead(lead).part("figures", "", Content::Figures(figures));
    let groups = [
        ("decisions", "Decisions", cards(decisions(desk, &escalations), "decisions")),
        ("deadLetters", "Dead letters", cards(dead_letters(desk, &letters), "dead-letters")),
        ("receivers", "Receivers that take nothing", cards(stopped, "receivers")),
        ("idle", "Tasks that do not move", cards(idle, "tasks")),
    ];
    for (key, title, group) in groups {
        if !group.items.is_empty() {
            sheet = sheet.part(key, title, Content::Cards(group));
        }
    }
    Ok(sheet)
}

fn figure(page: &Json, section: &str) -> Cell {
    let count = page.list("items").len();
    let mut cell = Cell::count(count).linked(link(&[section], &[]));
    if !page.text("nextCursor").is_empty() {
        cell.shown = format!("{count}+");
    }
    cell
}

fn cards(mut items: Vec<Card>, section: &str) -> Cards {
    let more = if items.len() > MOST { link(&[section], &[]) } else { String::new() };
    items.truncate(MOST);
    Cards { items, empty: "", more }
}

fn decisions(desk: &Desk, page: &Json) -> Vec<Card> {
    let card = |item: &Json| {
        let id = item.text("escalationId");
        let to = text::visible(item.text("toAgent"));
        let from = text::visible(item.text("fromAgent"));
        let ends = match item.text("defaultAction") {
            "resume" => "goes on by itself",
            _ => "becomes a dead letter",
        };
        Card {
            status: Cell::mark("Decision", "warn"),
            title: Cell::said(format!("{from} → {}", if to.is_empty() { "?" } else { &to }))
                .linked(link(&["decisions", id], &[])),
            sentence: format!(
                "{}. Without a decision it {ends} {}.",
                text::visible(item.text("reason")),
                text::relative(item.text("timeoutAt"), desk.now)
            ),
            facts: vec![
                Cell::time(item.get("openedAt"), desk.now, ""),
                super::task(item.get("taskId")),
            ],
            buttons: desk.may("resolve", &[id]).into_iter().collect(),
        }
    };
    page.list("items").iter().map(card).collect()
}

fn dead_letters(desk: &Desk, page: &Json) -> Vec<Card> {
    let card = |item: &Json| {
        let id = item.text("handoffId");
        let from = text::visible(item.text("fromAgent"));
        let to = text::visible(item.text("toAgent"));
        let finding = item.list("failures").first();
        let why = finding.map_or("", |failure| failure.text("message"));
        Card {
            status: Cell::mark("Dead letter", "bad"),
            title: Cell::said(format!("{from} → {}", if to.is_empty() { "?" } else { &to }))
                .linked(link(&["dead-letters", id], &[])),
            sentence: format!(
                "{}: {}",
                text::words(item.text("reason")),
                text::short(&text::visible(why), 200)
            ),
            facts: vec![
                Cell::time(item.get("createdAt"), desk.now, ""),
                super::task(item.get("taskId")),
            ],
            buttons: [desk.may("release", &[id]), desk.may("discard", &[id])]
                .into_iter()
                .flatten()
                .collect(),
        }
    };
    page.list("items").iter().map(card).collect()
}

fn stopped(desk: &Desk, agents: &Json) -> Vec<Card> {
    agents.list("items").iter().filter_map(|agent| stop(desk, agent)).collect()
}

/// A receiver that takes nothing: paused, its endpoint disabled or failing.
fn stop(desk: &Desk, agent: &Json) -> Option<Card> {
    let id = agent.text("agentId");
    let percent = agent.text("delivery/failing/percent");
    let (status, sentence, act) = if agent.flag("delivery/disabled") {
        let words = "The broker disabled the endpoint after failures; nothing is delivered.";
        (Cell::mark("Disabled", "bad"), words.to_owned(), desk.may("enable", &[id]))
    } else if agent.text("state") == "PAUSED" {
        let words = match agent.text("pause") {
            "refuse" => "Paused: handoffs to it are refused.",
            _ => "Paused: handoffs to it are held.",
        };
        (Cell::mark("Paused", "warn"), words.to_owned(), desk.may("resume", &[id]))
    } else if !percent.is_empty() {
        let words = format!("{percent} % of the last deliveries failed.");
        (Cell::mark("Failing", "bad"), words, desk.may("test-delivery", &[id]))
    } else {
        return None;
    };
    Some(Card {
        status,
        title: super::agent(agent.get("agentId")),
        sentence,
        facts: vec![Cell::said(text::visible(agent.text("delivery/mode")))],
        buttons: act.into_iter().collect(),
    })
}

/// Microseconds without a change after which a task counts as idle.
const IDLE: i64 = 15 * 60 * 1_000_000;

fn idle(desk: &Desk, task: &Json) -> Option<Card> {
    let id = task.text("taskId");
    let still = desk.now.0 - text::micros(task.text("updatedAt"))?;
    let buttons = desk.may("cancel-task", &[id]).into_iter().collect();
    (still >= IDLE).then(|| Card {
        status: Cell::status(task.get("status")),
        title: super::task(task.get("taskId")),
        sentence: format!(
            "Held by {}; no change for {}.",
            text::visible(task.text("holder")),
            text::duration(still)
        ),
        facts: vec![Cell::time(task.get("updatedAt"), desk.now, "")],
        buttons,
    })
}
