//! `/console/tasks/{taskId}`: why it waits, its hops against time, what it cost, and what proves it.

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::super::acts;
use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{
    Bar, Button, Cell, Content, Facts, Quote, Remedy, Sheet, Table, Wait, Waterfall,
};
use super::super::text;
use super::waterfall::Scale;
use super::{agent, handoff_id};
use crate::doors::front::ApiRequest;
use handoffd_domain::ids::Micros;

/// Handoffs up to which a page reads the whole trace: a larger task is read by windows.
const WHOLE: i64 = 60;
/// Hops of a page.
const HOPS: &str = "50";
/// Records of a page of a large task.
const WINDOW: &str = "50";

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let task = desk.get(&["tasks", id], &[]).await?;
    let why = desk.get(&["tasks", id, "why"], &[]).await?;
    let cursor = desk.query.get("cursor");
    let query = [
        ("taskId", id),
        ("limit", HOPS),
        ("cursor", cursor),
        ("from", desk.query.get("from")),
        ("to", desk.query.get("to")),
    ];
    let page = desk.get(&["handoffs"], &query).await?;
    let (from, to) = (desk.query.get("from"), desk.query.get("to"));
    let small = task.count("handoffs") <= WHOLE && from.is_empty() && to.is_empty();
    let before = desk.query.get("records");
    let window = [("from", from), ("to", to), ("cursor", before), ("limit", WINDOW)];
    // A large task shows its hops or its records: both are too much for a page.
    let by_record = !small && desk.query.get("view") == "records";
    let trace = match (small, by_record) {
        (true, _) => desk.get(&["tasks", id, "trace"], &[]).await?,
        (_, true) => desk.get(&["tasks", id, "trace"], &window).await?,
        _ => Json::Null,
    };
    let ended = matches!(task.text("status"), "COMPLETED" | "CANCELED");
    let mut frame =
        desk.frame("tasks", format!("Task {}", text::short_id(id)), &[("Tasks", &["tasks"])]);
    id.clone_into(&mut frame.watched);
    frame.live = !ended;
    let acts = ["top-up-task", "complete-task", "cancel-task"]
        .map(|act| desk.may(act, &[id]).filter(|_| !ended));
    let bundle = Button {
        label: "Download bundle".to_owned(),
        href: link(&["tasks", id, "bundle"], &[]),
        tone: "",
    };
    let mut sheet = Sheet::new(frame)
        .status(Cell::status(task.get("status")))
        // An open task says why it waits in the part below.
        .lead(if ended { text::visible(why.text("sentence")) } else { String::new() })
        .buttons(acts)
        .buttons([Some(bundle).filter(|_| desk.reads_contents())]);
    if !ended {
        sheet = sheet.part("why", "Why it waits", Content::Waits(waits(desk, &why)));
    }
    let proof = proof(desk, id, if small { &trace } else { &Json::Null }).await?;
    sheet = sheet.part("figures", "", Content::Figures(figures(&task, proof)));
    sheet = history(desk, sheet, (&task, &page, &trace), (small, by_record));
    let facts = facts(desk, &task);
    sheet = blame(desk, sheet, id).await?;
    Ok(sheet.part("task", "About", Content::Facts(facts)))
}

/// Hops, cost and records; of a large task its hops or its records.
fn history(
    desk: &Desk,
    mut sheet: Sheet,
    (task, page, trace): (&Json, &Json, &Json),
    (small, by_record): (bool, bool),
) -> Sheet {
    if !by_record {
        let fall = waterfall(desk, task, page, trace);
        sheet = sheet.part("hops", "Hops", Content::Waterfall(fall)).with(windows(desk, small));
        sheet = sheet.note(if small {
            "A light bar waits for a verdict, a full bar is work. Times without any are folded."
        } else {
            "A large task: this is one window of its hops, the newest first."
        });
    }
    if small {
        sheet = sheet.part("cost", "Cost by agent", Content::Table(costs(trace))).fold();
    }
    if small || by_record {
        let mut records = records(desk, trace);
        let next = trace.text("nextCursor");
        if !next.is_empty() {
            records.next = desk.here_with(&[("records", next)]);
        }
        if !desk.query.get("records").is_empty() {
            records.first = desk.here_with(&[("records", "")]);
        }
        sheet = sheet.part("records", "Records", Content::Table(records));
    }
    if small {
        sheet = sheet.fold();
    } else if by_record {
        let words = "The newest of this window first; each was recomputed as it was read.";
        sheet = sheet.with(windows(desk, small)).note(words);
    }
    sheet
}

/// Links to windows of a large task, and to its hops or its records.
fn windows(desk: &Desk, small: bool) -> Vec<Option<Button>> {
    if small {
        return Vec::new();
    }
    let link = |label: &str, changes: &[(&str, &str)]| {
        let fresh = [("to", ""), ("cursor", ""), ("records", "")];
        let href = desk.here_with(&[changes, &fresh].concat());
        Some(Button { label: label.to_owned(), href, tone: "" })
    };
    let ago = |hours: i64| Micros(desk.now.0 - hours * 3_600_000_000).rfc3339();
    let (hour, day) = (ago(1), ago(24));
    let other = match desk.query.get("view") {
        "records" => link("Hops", &[("view", "")]),
        _ => link("Records", &[("view", "records")]),
    };
    vec![
        other,
        link("Last hour", &[("from", &hour)]),
        link("Last day", &[("from", &day)]),
        link("All times", &[("from", "")]),
    ]
}

fn facts(desk: &Desk, task: &Json) -> Facts {
    Facts::of(vec![
        ("Task", Cell::code(task.get("taskId"))),
        ("Held by", agent(task.get("holder"))),
        ("Opened by", agent(task.get("openedBy"))),
        ("Begun", Cell::time(task.get("createdAt"), desk.now, "")),
        ("Changed", Cell::time(task.get("updatedAt"), desk.now, "")),
        ("Checkpoint", Cell::code(task.at("checkpoint/executionId"))),
        ("Topped up", Cell::money(task.get("toppedUpUSD"))),
    ])
}

fn figures(task: &Json, proof: Cell) -> Facts {
    let failures = Cell::number(task.get("failures"));
    let bad = failures.shown != "0";
    Facts(vec![
        ("Hops", Cell::number(task.get("handoffs"))),
        ("Failures", if bad { failures.toned("bad") } else { failures }),
        ("Spent", Cell::money(task.get("costSpentSoFarUSD"))),
        ("Left", Cell::money(task.get("costBudgetRemainingUSD"))),
        ("Evidence", proof),
    ])
}

/// The reasons why a task waits, with the actions that end them.
fn waits(desk: &Desk, why: &Json) -> Vec<Wait> {
    why.list("waits").iter().map(|wait| reason(desk, wait)).collect()
}

fn reason(desk: &Desk, wait: &Json) -> Wait {
    let attempts = wait.count("attempts");
    let tried = match attempts {
        0 => String::new(),
        1 => "1 attempt so far".to_owned(),
        count => format!("{count} attempts so far"),
    };
    let next = match wait.text("next/at") {
        "" => String::new(),
        at => {
            format!("{} {}", text::visible(wait.text("next/event")), text::relative(at, desk.now))
        }
    };
    let tone = match wait.text("awaited") {
        "person" => "warn",
        "agent" => "busy",
        "nobody" => "good",
        _ => "calm",
    };
    Wait {
        sentence: text::visible(wait.text("sentence")),
        since: Cell::time(wait.get("since"), desk.now, ""),
        tried,
        error: text::visible(wait.text("lastError")),
        next,
        handoff: handoff_id(wait.get("handoffId")),
        remedies: wait
            .list("remedies")
            .iter()
            .filter_map(|item| remedy(desk, wait, item))
            .collect(),
        tone,
    }
}

fn remedy(desk: &Desk, wait: &Json, remedy: &Json) -> Option<Remedy> {
    let request = remedy.text("request");
    let (act, of) = acts::of_remedy(wait.text("cause"), request)?;
    let of: Vec<&str> = of.iter().map(String::as_str).collect();
    let button = desk.may(act.name, &of)?;
    let url = request.split_once(' ').map_or(request, |(_, path)| path);
    let method = request.split(' ').next().unwrap_or("POST");
    Some(Remedy {
        button,
        effect: text::visible(remedy.text("effect")),
        command: text::visible(remedy.text("command")),
        curl: text::visible(&format!(
            "curl -X {method} \"$HANDOFFD_URL{url}\" -H \"Authorization: Bearer $HANDOFFD_API_KEY\""
        )),
    })
}

/// Whether the evidence of the task verifies: by its trace, or, for a large task, on demand.
async fn proof(desk: &Desk, id: &str, trace: &Json) -> Result<Cell, Refusal> {
    let verification = if !trace.is_null() {
        trace.get("verification").clone()
    } else if desk.query.get("check").is_empty() {
        return Ok(Cell::mark("Check now", "calm").linked(desk.here_with(&[("check", "1")])));
    } else {
        tail(desk, id).await?
    };
    let records = text::grouped(verification.text("records"));
    Ok(if verification.flag("ok") {
        let words = format!("{records} records and their contents recomputed");
        Cell::mark("Verified", "good").titled(words)
    } else {
        let fault = text::visible(verification.text("firstBad/fault"));
        Cell::mark("Does not verify", "bad").titled(fault)
    })
}

/// Bytes at the end of a trace that hold its verification.
const TAIL: usize = 16 * 1024;

/// The verification at the end of a trace, without keeping the trace.
async fn tail(desk: &Desk, id: &str) -> Result<Json, Refusal> {
    let body = desk.open(ApiRequest::get(&["tasks", id, "trace"])).await?;
    let mut pieces = body.into_data_stream();
    let mut end: Vec<u8> = Vec::new();
    while let Some(Ok(piece)) = pieces.next().await {
        end.extend_from_slice(&piece);
        let surplus = end.len().saturating_sub(TAIL);
        end.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&end);
    let at = text.rfind("\"verification\":").map_or("", |at| &text[at + 15..]);
    let document = at.trim_end().strip_suffix('}').unwrap_or_default();
    Ok(Json::parse(document.as_bytes()))
}

const BAD: [&str; 5] = ["FAILED", "REJECTED", "EXPIRED", "DEAD_LETTERED", "CANCELED"];

fn waterfall(desk: &Desk, task: &Json, page: &Json, trace: &Json) -> Waterfall {
    let only_failures = !desk.query.get("failures").is_empty();
    let mut hops: Vec<&Json> = page.list("items").iter().collect();
    hops.sort_by_key(|hop| text::micros(hop.text("createdAt")));
    let spans: Vec<(i64, i64)> = hops.iter().map(|hop| span(desk, hop)).collect();
    let scale = Scale::of(&spans);
    let total = task.count("handoffs");
    let whole = page.text("nextCursor").is_empty() && desk.query.get("cursor").is_empty();
    let mut bars = Vec::new();
    for (index, hop) in hops.iter().enumerate() {
        let bad = BAD.contains(&hop.text("status"));
        if !only_failures || bad {
            let number = if whole && total >= hops.len() as i64 {
                (index + 1).to_string()
            } else {
                String::new()
            };
            bars.push(bar(desk, hop, told(trace, hop), &scale, number));
        }
    }
    let next = match page.text("nextCursor") {
        "" => String::new(),
        cursor => desk.here_with(&[("cursor", cursor)]),
    };
    let first = match desk.query.get("cursor") {
        "" => String::new(),
        _ => desk.here_with(&[("cursor", "")]),
    };
    Waterfall {
        bars,
        folds: scale.folds(),
        ticks: scale.ticks(),
        next,
        first,
        other: desk.here_with(&[("failures", if only_failures { "" } else { "1" })]),
        only_failures,
    }
}

/// From the commit to the end; to the present where the hop is open.
fn span(desk: &Desk, hop: &Json) -> (i64, i64) {
    let begin = text::micros(hop.text("createdAt")).unwrap_or(0);
    (begin, text::micros(hop.text("endedAt")).unwrap_or(desk.now.0))
}

/// A hop as its trace tells it; null where the page has no trace.
fn told<'a>(trace: &'a Json, hop: &Json) -> &'a Json {
    let id = hop.text("handoffId");
    let hop = trace.list("handoffs").iter().find(|one| one.text("handoffId") == id);
    hop.unwrap_or(trace.get("none"))
}

fn bar(desk: &Desk, hop: &Json, told: &Json, scale: &Scale, number: String) -> Bar {
    let (begin, end) = span(desk, hop);
    let open = hop.text("endedAt").is_empty();
    let accepted = text::micros(hop.text("acceptedAt")).unwrap_or(end);
    let (x, work, stop) = (scale.place(begin), scale.place(accepted), scale.place(end));
    let took = text::duration(end - begin);
    let cost =
        if told.get("cost").is_null() { Cell::default() } else { Cell::money(told.at("cost/usd")) };
    Bar {
        number,
        from: text::visible(hop.text("fromAgent/agentId")),
        to: text::visible(hop.text("toAgent/agentId")),
        href: link(&["handoffs", hop.text("handoffId")], &[]),
        status: Cell::status(hop.get("status")),
        x,
        waiting: (work - x).max(3),
        working: if accepted < end { (stop - work).max(2) } else { 0 },
        took: if open { format!("{took} so far") } else { took },
        at: Cell::time(hop.get("createdAt"), desk.now, ""),
        cost,
        tokens: growth(hop, told),
        words: words(hop, told),
        bad: BAD.contains(&hop.text("status")),
        notes: notes(hop),
    }
}

/// Tokens of the message, with how many more than in the one before.
fn growth(hop: &Json, told: &Json) -> Cell {
    let mut cell = Cell::number(hop.at("context/tokens"));
    match told.text("context/growth") {
        "" | "0" => {}
        less if less.starts_with('-') => {
            cell.shown = format!("{} ({})", cell.shown, text::grouped(less));
        }
        more => cell.shown = format!("{} (+{})", cell.shown, text::grouped(more)),
    }
    cell
}

/// Retries, groups, streams and compressions as what they are.
fn notes(hop: &Json) -> Vec<String> {
    let mut notes = Vec::new();
    if hop.count("attempts") > 1 {
        notes.push(format!("{} attempts", hop.text("attempts")));
    }
    if !hop.get("group").is_null() {
        let index = hop.count("group/index") + 1;
        notes.push(format!("branch {index} of {}", text::visible(hop.text("group/of"))));
    }
    if !hop.get("stream").is_null() {
        notes.push(format!("stream {}", text::visible(&hop.text("stream/status").to_lowercase())));
    }
    if hop.text("context/action") == "compress" {
        notes.push("compressed".to_owned());
    }
    if !hop.get("asked").is_null() {
        notes.push(format!("question {}", hop.text("asked/state").to_lowercase()));
    }
    notes
}

/// The words of a hop, shortest forms.
fn words(hop: &Json, told: &Json) -> Vec<Quote> {
    let from = text::visible(hop.text("fromAgent/agentId"));
    let to = text::visible(hop.text("toAgent/agentId"));
    let task = match told.text("taskSummary") {
        "" => told.text("taskDescription"),
        summary => summary,
    };
    let result = hop.get("result");
    let words_of = |value: &Json| match value {
        Json::Object(_) | Json::List(_) => value.pretty(),
        other => other.as_text().to_owned(),
    };
    let lines = [
        (format!("{from} asks {to}"), task.to_owned()),
        (format!("{to} asks back"), words_of(hop.at("asked/question"))),
        (format!("{from} answers"), words_of(hop.at("asked/answer"))),
        (format!("{to} answers"), words_of(result)),
        ("Why it ended".to_owned(), hop.text("reason").to_owned()),
    ];
    let spoken = lines.into_iter().filter(|(_, words)| !words.is_empty());
    spoken.map(|(who, words)| Quote::of(who, &text::short(&words, 1_200))).collect()
}

fn costs(trace: &Json) -> Table {
    let columns = [
        ("agentId", "Agent"),
        ("usd", "US dollars#"),
        ("prompt", "Tokens read#"),
        ("completion", "Tokens written#"),
    ];
    Table::of(&columns, "The task has cost nothing yet.").rows(
        trace.list("cost/perAgent").iter().map(|line| {
            vec![
                agent(line.get("agentId")),
                Cell::money(line.get("usd")),
                Cell::number(line.at("tokens/prompt")),
                Cell::number(line.at("tokens/completion")),
            ]
        }),
    )
}

/// Records that the page shows.
const RECORDS: usize = 200;

fn records(desk: &Desk, trace: &Json) -> Table {
    let columns = [
        ("leafIndex", "Leaf#"),
        ("kind", "Record"),
        ("actor", "By"),
        ("handoffId", "Handoff"),
        ("reason", "Reason"),
        ("time", "When"),
    ];
    let records = trace.list("records");
    let newest = &records[records.len().saturating_sub(RECORDS)..];
    Table::of(&columns, "No record.").rows(newest.iter().map(|record| {
        let actor = match record.get("actor").get("agentId") {
            Json::Null => Cell::text(record.at("actor/role")),
            id => agent(id),
        };
        vec![
            Cell::number(record.get("leafIndex")),
            Cell::status(record.get("kind")).toned("calm"),
            actor,
            handoff_id(record.get("handoffId")),
            Cell::excerpt(record.get("reason"), 80),
            Cell::time(record.get("time"), desk.now, ""),
        ]
    }))
}

/// The hop that wrote a value of the messages, if the address names a value.
async fn blame(desk: &Desk, sheet: Sheet, id: &str) -> Result<Sheet, Refusal> {
    let pointer = desk.query.get("blame");
    if pointer.is_empty() {
        return Ok(sheet);
    }
    let pairs = [("pointer", pointer), ("handoff", desk.query.get("handoff"))];
    let blame = match desk.get(&["tasks", id, "blame"], &pairs).await {
        Ok(blame) => blame,
        Err(refusal) => {
            let words = vec![text::visible(refusal.problem.text("detail"))];
            return Ok(sheet.part("blame", "Blame", Content::Words(words)));
        }
    };
    let columns =
        [("change", "Change"), ("agentId", "By"), ("handoffId", "Handoff"), ("leafIndex", "Leaf#")];
    let table = Table::of(&columns, "No hop set this value.").rows(
        blame.list("history").iter().map(|step| {
            vec![
                Cell::status(step.get("change")).toned("calm"),
                agent(step.get("agentId")),
                handoff_id(step.get("handoffId")),
                Cell::number(step.get("leafIndex")),
            ]
        }),
    );
    let title = format!("Who wrote {}", text::visible(pointer));
    Ok(sheet.part("blame", title, Content::Table(table)))
}

/// The task's bundle, as the API makes it.
pub(crate) async fn bundle(desk: Desk, Path(id): Path<String>) -> Response {
    let request = ApiRequest::get(&["tasks", &id, "trace"]).with(&[("format", "bundle")]);
    match desk.open(request).await {
        Ok(body) => {
            let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let name = if plain { id.as_str() } else { "task" };
            let named = format!("attachment; filename=\"task-{name}.zip\"");
            let mut response = body.into_response();
            let zip = HeaderValue::from_static("application/zip");
            response.headers_mut().insert(header::CONTENT_TYPE, zip);
            if let Ok(named) = HeaderValue::from_str(&named) {
                response.headers_mut().insert(header::CONTENT_DISPOSITION, named);
            }
            response
        }
        Err(refusal) => desk.refused(&refusal),
    }
}
