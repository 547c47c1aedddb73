//! `/console/receivers`: agents, how they are delivered to, and what waits for them.

use axum::extract::Path;
use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Sheet, Table};
use super::super::text;
use super::{agent, handoff_id, task};

pub(crate) async fn list(desk: Desk) -> Response {
    let page = make_list(&desk).await;
    desk.answer(page)
}

/// The state of a receiver: what the broker can deliver to it now.
fn state(item: &Json) -> Cell {
    if item.flag("delivery/disabled") {
        return Cell::mark("Disabled", "bad");
    }
    if !item.text("delivery/failing/percent").is_empty() {
        return Cell::mark("Failing", "bad");
    }
    Cell::status(item.get("state"))
}

async fn make_list(desk: &Desk) -> Result<Sheet, Refusal> {
    let answer = desk.get(&["agents"], &[]).await?;
    let columns = [
        ("agentId", "Receiver"),
        ("state", "State"),
        ("agentType", "Type"),
        ("mode", "Delivery"),
        ("url", "Endpoint"),
        ("failing", "Failing#"),
        ("targets", "Hands off to#"),
        ("updatedAt", "Changed"),
    ];
    let table = Table::of(&columns, "No agent is registered.").rows(
        answer.list("items").iter().map(|item| {
            let percent = item.text("delivery/failing/percent");
            vec![
                agent(item.get("agentId")),
                state(item),
                Cell::text(item.get("agentType")),
                Cell::text(item.at("delivery/mode")),
                Cell::excerpt(item.at("delivery/url"), 40),
                Cell::said(if percent.is_empty() { String::new() } else { format!("{percent} %") }),
                Cell::count(item.list("handoffTargets").len()),
                Cell::time(item.get("updatedAt"), desk.now, ""),
            ]
        }),
    );
    let mut frame = desk.frame("receivers", "Receivers", &[]);
    frame.live = true;
    Ok(Sheet::new(frame).part("receivers", "", Content::Table(table)))
}

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let item = desk.get(&["agents", id], &[]).await?;
    let to = |status| [("toAgent", id), ("status", status), ("limit", "100")];
    let waiting = desk.get(&["handoffs"], &to("PENDING")).await?;
    let working = desk.get(&["handoffs"], &to("ACCEPTED")).await?;
    let letters = desk
        .get(&["dead-letters"], &[("toAgent", id), ("status", "OPEN"), ("limit", "100")])
        .await?;
    let latest = desk.get(&["handoffs"], &[("toAgent", id), ("limit", "20")]).await?;
    let mut frame = desk.frame("receivers", text::visible(id), &[("Receivers", &["receivers"])]);
    frame.live = true;
    let paused = item.text("state") == "PAUSED";
    let buttons = [
        desk.may("resume", &[id]).filter(|_| paused),
        desk.may("enable", &[id]).filter(|_| item.flag("delivery/disabled")),
        desk.may("hold", &[id]).filter(|_| !paused),
        desk.may("refuse", &[id]).filter(|_| !paused),
        desk.may("test-delivery", &[id]),
        desk.may("rotate-agent", &[id]),
        desk.may("remove-agent", &[id]),
    ];
    let figures = Facts(vec![
        (
            "Waiting",
            counted(&waiting)
                .linked(link(&["handoffs"], &[("toAgent", id), ("status", "PENDING")])),
        ),
        (
            "At work",
            counted(&working)
                .linked(link(&["handoffs"], &[("toAgent", id), ("status", "ACCEPTED")])),
        ),
        ("Dead letters", counted(&letters).linked(link(&["dead-letters"], &[("toAgent", id)]))),
        ("Typical time", middle(&latest)),
    ]);
    let targets = item.list("handoffTargets");
    let edges = Table::of(&[("target", "Hands off to"), ("remove", "")], "It hands off to no one.")
        .rows(targets.iter().map(|target| {
            let button = desk.may("remove-edge", &[id, target.as_text()]);
            let remove = button
                .map_or_else(Cell::default, |button| Cell::said("Remove…").linked(button.href));
            vec![Cell::text(target), remove]
        }));
    Ok(Sheet::new(frame)
        .status(state(&item))
        .lead(text::visible(item.text("description")))
        .buttons(buttons)
        .part("figures", "", Content::Figures(figures))
        .part("delivery", "Delivery", Content::Facts(delivery(desk, &item)))
        .part("latest", "Latest handoffs to it", Content::Table(handoffs(desk, &latest)))
        .part("targets", "Edges", Content::Table(edges))
        .with([desk.may_with("add-edge", &[], &[("agent", id)])]))
}

fn counted(page: &Json) -> Cell {
    let count = page.list("items").len();
    let mut cell = Cell::count(count);
    if !page.text("nextCursor").is_empty() {
        cell.shown = format!("{count}+");
    }
    cell
}

/// The median duration of the latest handoffs that ended.
fn middle(page: &Json) -> Cell {
    let mut took: Vec<i64> = page
        .list("items")
        .iter()
        .filter(|item| !item.get("durationMs").is_null())
        .map(|item| item.count("durationMs"))
        .collect();
    took.sort_unstable();
    let Some(median) = took.get(took.len() / 2) else { return Cell::said("none yet") };
    let title = format!("median of the latest {}", took.len());
    Cell::millis(&Json::Number(median.to_string())).titled(title)
}

fn delivery(desk: &Desk, item: &Json) -> Facts {
    let failing = item.get("delivery").get("failing");
    let share = match failing.text("percent") {
        "" => String::new(),
        percent => {
            format!("{percent} % of the last deliveries, {} in a row", failing.text("failures"))
        }
    };
    let list = |path: &str| {
        let words: Vec<&str> = item.list(path).iter().map(Json::as_text).collect();
        Cell::said(text::visible(&words.join(", ")))
    };
    Facts::of(vec![
        ("By", Cell::text(item.at("delivery/mode"))),
        ("Endpoint", Cell::code(item.at("delivery/url"))),
        ("Fails", Cell::said(share).toned("bad")),
        ("In flight at most", Cell::number(item.at("delivery/maxInFlight"))),
        ("Time-out", Cell::millis(item.at("delivery/timeoutMs"))),
        ("Version", Cell::text(item.get("agentVersion"))),
        ("Type", Cell::text(item.get("agentType"))),
        ("Capabilities", list("capabilities")),
        ("Supervisor", agent(item.get("supervisorId"))),
        ("Context window", Cell::number(item.get("contextWindowTokens"))),
        ("Region", Cell::text(item.get("region"))),
        ("Changed", Cell::time(item.get("updatedAt"), desk.now, "")),
    ])
}

fn handoffs(desk: &Desk, page: &Json) -> Table {
    let columns = [
        ("handoffId", "Handoff"),
        ("status", "Status"),
        ("fromAgent", "From"),
        ("taskId", "Task"),
        ("attempts", "Attempts#"),
        ("durationMs", "Took#"),
        ("createdAt", "Committed"),
    ];
    Table::of(&columns, "No handoff came to it yet.").rows(page.list("items").iter().map(|item| {
        vec![
            handoff_id(item.get("handoffId")),
            Cell::status(item.get("status")),
            agent(item.at("fromAgent/agentId")),
            task(item.get("taskId")),
            Cell::number(item.get("attempts")),
            Cell::millis(item.get("durationMs")),
            Cell::time(item.get("createdAt"), desk.now, ""),
        ]
    }))
}
