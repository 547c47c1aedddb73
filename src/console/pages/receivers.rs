//! `/console/receivers`: agents, how they are delivered to, what brokers notice of them, and what waits for them.

use axum::extract::Path;
use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Sheet, Table};
use super::super::text;
use super::{ROWS, agent, handoff_id, looked_back, paged, task};

pub(crate) async fn list(desk: Desk) -> Response {
    let page = make_list(&desk).await;
    desk.answer(page)
}

/// The state of a receiver: what the broker can deliver to it now. `item` is an agent, or a line of receivers.
fn state(item: &Json) -> Cell {
    if item.flag("disabled") || item.flag("delivery/disabled") {
        return Cell::mark("Disabled", "bad");
    }
    if !item.text("delivery/failing/percent").is_empty() {
        return Cell::mark("Failing", "bad");
    }
    Cell::status(item.get("state"))
}

async fn make_list(desk: &Desk) -> Result<Sheet, Refusal> {
    let pairs = [("cursor", desk.query.get("cursor")), ("limit", ROWS)];
    let answer = desk.get(&["receivers"], &pairs).await?;
    let columns = [
        ("agentId", "Receiver"),
        ("state", "State"),
        ("delivery", "Delivery"),
        ("breaker", "Breaker"),
        ("failureShare", "Failed#"),
        ("p95Ms", "p95#"),
        ("windows", "p95 by hour"),
        ("open", "Open#"),
        ("waiting", "Waiting#"),
        ("heardOf", "Last heard of"),
    ];
    let table = Table::of(&columns, "No agent is registered.").rows(
        answer.list("items").iter().map(|item| {
            vec![
                agent(item.get("agentId")),
                state(item),
                Cell::text(item.get("delivery")),
                breaker(item.get("breaker")),
                Cell::percent(item.get("failureShare")),
                Cell::millis(item.get("p95Ms")),
                spark(desk, item, answer.count("windowMs")),
                Cell::number(item.get("open")),
                Cell::number(item.get("waiting")),
                heard_of(desk, item),
            ]
        }),
    );
    let table = Table { by_name: true, ..paged(desk, table, &answer) };
    let mut frame = desk.frame("receivers", "Receivers", &[]);
    frame.live = true;
    let note = "Failures and latency of the last 24 hours. The page of a receiver has its time-outs and p50.";
    Ok(Sheet::new(frame).part("receivers", "", Content::Table(table)).note(note))
}

/// A breaker's state; empty where the receiver pulls.
fn breaker(state: &Json) -> Cell {
    let tone = match state.as_text() {
        "" => return Cell::default(),
        "closed" => "good",
        "half_open" => "warn",
        _ => "bad",
    };
    Cell::status(state).toned(tone)
}

/// The later of the last poll and the last success.
fn heard_of(desk: &Desk, item: &Json) -> Cell {
    let (poll, success) = (item.get("lastPollAt"), item.get("lastSuccessAt"));
    // Times of one form are in the order of their texts.
    let (at, what) = if poll.as_text() > success.as_text() {
        (poll, "the last poll")
    } else {
        (success, "the last success")
    };
    let cell = Cell::time(at, desk.now, "never");
    let title = if at.is_empty() { String::new() } else { format!("{what}, {}", cell.title) };
    if title.is_empty() { cell } else { cell.titled(title) }
}

/// The last 24 hours as bars: the p95 of each window against the highest.
fn spark(desk: &Desk, item: &Json, window_ms: i64) -> Cell {
    let day = 86_400_000_000.0;
    let begin = desk.now.0 as f64 - day;
    let read = |window: &Json| {
        let at = text::micros(window.text("from"))? as f64 + window_ms as f64 * 500.0;
        let p95: f64 = window.text("p95Ms").parse().unwrap_or(0.0);
        Some((((at - begin) / day).clamp(0.0, 1.0), p95))
    };
    let windows = item.get("windows");
    let points: Vec<(f64, f64)> = item.list("windows").iter().filter_map(read).collect();
    let highest = points.iter().map(|(_, p95)| *p95).fold(0.0, f64::max);
    let height = |p95: f64| if highest > 0.0 { p95 / highest } else { 0.0 };
    let bars: Vec<_> = points.iter().map(|(place, p95)| (*place, height(*p95))).collect();
    let shown = text::duration((highest * 1_000.0) as i64);
    Cell::spark(windows, &bars, format!("p95 over 24 hours, at most {shown}"))
}

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let item = desk.get(&["agents", id], &[]).await?;
    let noticed = desk.get(&["receivers", id], &[]).await?;
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
    let to = |status| link(&["handoffs"], &[("toAgent", id), ("status", status)]);
    let figures = Facts(vec![
        ("Waiting", Cell::number(noticed.get("waiting")).linked(to("PENDING"))),
        ("Open", Cell::number(noticed.get("open")).linked(to("ACCEPTED"))),
        ("Dead letters", counted(&letters).linked(link(&["dead-letters"], &[("toAgent", id)]))),
        ("Failed", or_none(Cell::percent(noticed.get("failureShare")))),
        ("Timed out", Cell::number(noticed.get("timeouts"))),
        ("p50", or_none(Cell::millis(noticed.get("p50Ms")))),
        ("p95", or_none(Cell::millis(noticed.get("p95Ms")))),
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
        .part("noticed", "Last 24 hours", Content::Facts(last_day(desk, &noticed)))
        .part("breakers", "Breakers", Content::Table(breakers(desk, &noticed)))
        .part("delivery", "Delivery", Content::Facts(delivery(desk, &item)))
        .part("latest", "Latest handoffs to it", Content::Table(handoffs(desk, id, &latest)))
        .note(looked_back(desk, &latest, "handoffs of all receivers"))
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

/// A figure, or that there is none.
fn or_none(cell: Cell) -> Cell {
    if cell.is_empty() { Cell::said("none yet") } else { cell }
}

/// The receiver as brokers noticed it.
fn last_day(desk: &Desk, noticed: &Json) -> Facts {
    let failure = noticed.get("lastFailure");
    Facts::of(vec![
        ("Breaker", breaker(noticed.get("breaker"))),
        ("p95 by 5 minutes", spark(desk, noticed, noticed.count("windowMs"))),
        ("Attempts", Cell::number(noticed.get("attempts"))),
        ("Failures", Cell::number(noticed.get("failures"))),
        ("Oldest that waits", Cell::time(noticed.get("waitingSince"), desk.now, "")),
        ("Last poll", Cell::time(noticed.get("lastPollAt"), desk.now, "")),
        ("Last success", Cell::time(noticed.get("lastSuccessAt"), desk.now, "never")),
        ("Last failure", Cell::time(noticed.get("lastFailureAt"), desk.now, "")),
        ("Failed with", Cell::code(failure).toned("bad")),
    ])
}

fn breakers(desk: &Desk, noticed: &Json) -> Table {
    let columns =
        [("broker", "Broker"), ("state", "State"), ("since", "Since"), ("reason", "Last failure")];
    let empty = "No breaker opened since the brokers started, or the receiver pulls.";
    Table::of(&columns, empty).rows(noticed.list("breakers").iter().map(|one| {
        vec![
            Cell::code(one.get("broker")),
            breaker(one.get("state")),
            Cell::time(one.get("since"), desk.now, ""),
            Cell::code(one.get("reason")),
        ]
    }))
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

fn handoffs(desk: &Desk, id: &str, page: &Json) -> Table {
    let columns = [
        ("handoffId", "Handoff"),
        ("status", "Status"),
        ("fromAgent", "From"),
        ("taskId", "Task"),
        ("attempts", "Attempts#"),
        ("durationMs", "Took#"),
        ("createdAt", "Committed"),
    ];
    let looked_back_to = page.text("lookedBackTo").to_owned();
    let (empty, next) = if looked_back_to.is_empty() {
        ("No handoff came to it yet.", String::new())
    } else {
        let pairs = [("toAgent", id), ("cursor", page.text("nextCursor"))];
        ("None of these came to it.", link(&["handoffs"], &pairs))
    };
    let table = Table::of(&columns, empty).rows(page.list("items").iter().map(|item| {
        vec![
            handoff_id(item.get("handoffId")),
            Cell::status(item.get("status")),
            agent(item.at("fromAgent/agentId")),
            task(item.get("taskId")),
            Cell::number(item.get("attempts")),
            Cell::millis(item.get("durationMs")),
            Cell::time(item.get("createdAt"), desk.now, ""),
        ]
    }));
    Table { next, looked_back_to, ..table }
}
