//! `/console/handoffs/{handoffId}`: the message by its parts, marked parts fenced, and its delivery.

use axum::extract::Path;
use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::diff;
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Button, Cell, Content, Facts, Quote, Sheet, Table};
use super::super::text;
use super::{agent, handoff_id, task};

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let include = [("include", "message,verdict,questions")];
    let handoff = desk.get(&["handoffs", id], &include).await?;
    let task_id = handoff.text("taskId");
    let from = text::visible(handoff.text("fromAgent/agentId"));
    let to = text::visible(handoff.text("toAgent/agentId"));
    let short = text::short_id(task_id);
    let crumbs: [(&str, &[&str]); 2] = [("Tasks", &["tasks"]), (&short, &["tasks", task_id])];
    let mut frame = desk.frame("tasks", format!("{from} → {to}"), &crumbs);
    task_id.clone_into(&mut frame.watched);
    frame.live = handoff.text("endedAt").is_empty();
    let letter = handoff.text("status") == "DEAD_LETTERED";
    let open = Button {
        label: "Open dead letter".to_owned(),
        href: link(&["dead-letters", id], &[]),
        tone: "",
    };
    let message = handoff.get("message");
    let mut sheet = Sheet::new(frame)
        .status(Cell::status(handoff.get("status")))
        .lead(text::visible(handoff.text("reason")))
        .buttons([letter.then_some(open)])
        .part("delivery", "Delivery", Content::Facts(delivery(desk, &handoff)));
    if let Some(attempts) = attempts(desk, id, &handoff).await {
        sheet = sheet
            .part("attempts", "Attempts", Content::Table(attempts))
            .note("Answers are text of receivers. The API has their first 4 KiB and the headers of the requests.");
    }
    if let Some(findings) = findings(&handoff) {
        sheet = sheet.part("safety", "Marked by the scan", Content::Table(findings));
    }
    sheet = sheet
        .part("message", "Message", Content::Quotes(message_parts(message, &marks(&handoff))))
        .note("Text of agents, shown as it came. Hidden and direction-changing characters are written out.");
    if let Some(changed) = changed(desk, &handoff).await {
        sheet = sheet
            .part("changes", "Changed by this hop", Content::Table(changed))
            .note("The message against that of the handoff before it.")
            .fold();
    }
    let answers = answers(&handoff);
    if !answers.is_empty() {
        sheet = sheet.part("answers", "Questions, verdict and result", Content::Quotes(answers));
    }
    if !message.is_null() && desk.reads_contents() {
        let prompt = desk.get(&["handoffs", id, "prompt"], &[]).await.unwrap_or_default();
        let turns: Vec<Quote> = prompt.list("messages").iter().map(turn).collect();
        if !turns.is_empty() {
            sheet = sheet.part("prompt", "As a model reads it", Content::Quotes(turns)).fold();
        }
    }
    Ok(sheet
        .part("evidence", "Receipt", Content::Facts(receipt(&handoff)))
        .part("about", "About", Content::Facts(about(desk, &handoff)))
        .fold())
}

/// Members of a message that differ at each hop: ids, times and figures that the page shows elsewhere.
const OF_EACH_HOP: [&str; 9] = [
    "handoffId",
    "parentHandoffId",
    "timestamp",
    "fromAgent",
    "toAgent",
    "traceparent",
    "tracestate",
    "costTracking",
    "signature",
];

/// Changes of the message by this hop; none for the first, and where either is not the visitor's to read.
async fn changed(desk: &Desk, handoff: &Json) -> Option<Table> {
    let parent = handoff.text("parentHandoffId");
    if parent.is_empty() || handoff.get("message").is_null() || !desk.reads_contents() {
        return None;
    }
    let before = desk.get(&["handoffs", parent], &[("include", "message")]).await.ok()?;
    if before.get("message").is_null() {
        return None;
    }
    let body = |handoff: &Json| {
        let members = handoff.get("message").members().iter();
        let rest = members.filter(|(name, _)| !OF_EACH_HOP.contains(&name.as_str()));
        Json::Object(rest.cloned().collect())
    };
    let (before, after) = (body(&before), body(handoff));
    Some(diff::table(&diff::changes(&before, &after), "Nothing but ids, times and figures."))
}

fn turn(turn: &Json) -> Quote {
    Quote::of(text::visible(turn.text("role")), turn.text("content"))
}

fn delivery(desk: &Desk, handoff: &Json) -> Facts {
    Facts::of(vec![
        ("Task", task(handoff.get("taskId"))),
        ("From", agent(handoff.at("fromAgent/agentId"))),
        ("To", agent(handoff.at("toAgent/agentId"))),
        ("By", Cell::text(handoff.get("deliveryMode"))),
        ("Attempts", Cell::number(handoff.get("attempts"))),
        ("Committed", Cell::time(handoff.get("createdAt"), desk.now, "")),
        ("Accepted", Cell::time(handoff.get("acceptedAt"), desk.now, "")),
        ("Last heard of", Cell::time(handoff.get("heardAt"), desk.now, "")),
        ("Due", Cell::time(handoff.get("deadlineAt"), desk.now, "")),
        ("Ended", Cell::time(handoff.get("endedAt"), desk.now, "")),
        ("Took", Cell::millis(handoff.get("durationMs"))),
        ("Successor", handoff_id(handoff.get("successorId"))),
        ("Before it", handoff_id(handoff.get("parentHandoffId"))),
    ])
}

/// Characters of an answer that a row shows.
const ANSWER: usize = 300;

/// The attempts that are kept; none for a visitor who may not read them.
async fn attempts(desk: &Desk, id: &str, handoff: &Json) -> Option<Table> {
    if ["", "0"].contains(&handoff.text("attempts")) || handoff.text("deliveryMode") == "pull" {
        return None;
    }
    let list = desk.get(&["handoffs", id, "attempts"], &[]).await.unwrap_or_default();
    let columns = [
        ("attempt", "Attempt#"),
        ("begunAt", "Begun"),
        ("durationMs", "Took#"),
        ("transport", "By"),
        ("outcome", "Outcome"),
        ("status", "HTTP#"),
        ("error", "Error"),
        ("answer", "Answer"),
    ];
    let row = |attempt: &Json| {
        let outcome = attempt.get("outcome");
        let taken = ["accepted", "received"].contains(&outcome.as_text());
        vec![
            Cell::number(attempt.get("attempt")),
            Cell::time(attempt.get("begunAt"), desk.now, ""),
            Cell::millis(attempt.get("durationMs")),
            Cell::text(attempt.get("transport")),
            Cell::status(outcome).toned(if taken { "good" } else { "warn" }),
            Cell::number(attempt.get("status")),
            Cell::text(attempt.get("error")),
            Cell::excerpt(attempt.get("answer"), ANSWER),
        ]
    };
    let items = list.list("items");
    (!items.is_empty()).then(|| Table::of(&columns, "").rows(items.iter().map(row)))
}

fn about(desk: &Desk, handoff: &Json) -> Facts {
    let user = handoff.get("userRef");
    Facts::of(vec![
        ("Handoff", Cell::code(handoff.get("handoffId"))),
        ("Conversation", conversation(desk, handoff.get("conversationId"))),
        (
            "User reference",
            Cell::code(user).linked(link(&["tasks"], &[("userRef", user.as_text())])),
        ),
        ("Execution", Cell::code(handoff.at("fromAgent/executionId"))),
        ("Sender's version", Cell::text(handoff.at("fromAgent/agentVersion"))),
        ("Tokens", Cell::number(handoff.at("context/tokens"))),
        ("Context window", Cell::number(handoff.at("context/window"))),
        ("Spent so far", Cell::money(handoff.at("costTracking/costSpentSoFarUSD"))),
        ("Left", Cell::money(handoff.at("costTracking/costBudgetRemainingUSD"))),
        ("Fencing token", Cell::number(handoff.get("fencingToken"))),
        ("Trace", Cell::code(handoff.get("traceparent"))),
        ("Heartbeat", Cell::millis(handoff.get("heartbeatIntervalMs"))),
        ("Read at", Cell::said(desk.now.rfc3339())),
    ])
}

fn conversation(desk: &Desk, id: &Json) -> Cell {
    Cell::code(id).linked(match id.as_text() {
        id if id.is_empty() || !desk.reads_contents() => String::new(),
        id => link(&["handoffs"], &[("conversationId", id)]),
    })
}

fn receipt(handoff: &Json) -> Facts {
    let receipt = handoff.get("receipt");
    Facts::of(vec![
        ("Log", Cell::code(receipt.get("logId"))),
        ("Leaf", Cell::number(receipt.get("leafIndex"))),
        ("Record hash", Cell::code(receipt.get("recordHash"))),
        (
            "Inclusion proof",
            Cell::said(match receipt.list("inclusionProof").len() {
                0 => String::new(),
                count => format!("{count} hashes"),
            }),
        ),
        ("Tree head", Cell::code(receipt.get("treeHead"))),
    ])
}

/// Pointers that the scan marked or would have refused, with the words of each.
fn marks(handoff: &Json) -> Vec<(String, String)> {
    let safety = handoff.get("safety");
    let named = |list: &str, what: &str| -> Vec<(String, String)> {
        safety
            .list(list)
            .iter()
            .map(|entry| (entry.as_text().to_owned(), what.to_owned()))
            .collect()
    };
    [named("marked", "marked"), named("observed", "observed")].concat()
}

fn findings(handoff: &Json) -> Option<Table> {
    let marks = marks(handoff);
    let columns = [("finding", "Finding"), ("kind", "Treatment")];
    let rows = marks.iter().map(|(finding, kind)| {
        vec![Cell::code(&Json::from(finding.as_str())), Cell::mark(kind, "warn")]
    });
    (!marks.is_empty()).then(|| Table::of(&columns, "").rows(rows))
}

/// Parts that a page shows first, with their titles.
const FIRST: [(&str, &str); 6] = [
    ("taskDescription", "Task, by the sender"),
    ("taskSummary", "Task in short, by the sender"),
    ("conversationHistorySummary", "Summary of the conversation"),
    ("reason", "Reason"),
    ("currentState", "State"),
    ("constraints", "Constraints"),
];
/// Turns of a conversation that a page shows; the newest.
const TURNS: usize = 20;

/// The message by part and origin.
pub(super) fn message_parts(message: &Json, marks: &[(String, String)]) -> Vec<Quote> {
    if message.is_null() {
        return vec![Quote::of(
            "Message",
            "The message is not there any more, or not yours to read.",
        )];
    }
    if message.flag("withheld") {
        let bytes = text::grouped(message.text("bytes"));
        let words = format!("Withheld from your role: {bytes} bytes.");
        return vec![Quote::of("Message", &words)];
    }
    let mut parts = Vec::new();
    for (name, title) in FIRST {
        push(&mut parts, title, &format!("/{name}"), message.get(name), marks);
    }
    let turns = message.list("conversationHistoryVerbatim");
    for (index, turn) in turns.iter().enumerate().skip(turns.len().saturating_sub(TURNS)) {
        let title = format!("Turn {} · {}", index + 1, text::visible(turn.text("role")));
        let at = format!("/conversationHistoryVerbatim/{index}");
        push(&mut parts, &title, &at, turn.get("content"), marks);
    }
    for (index, context) in message.list("relevantContext").iter().enumerate() {
        let title = format!("Context from {}", text::visible(context.text("source")));
        push(
            &mut parts,
            &title,
            &format!("/relevantContext/{index}"),
            context.get("excerpt"),
            marks,
        );
    }
    let shown = |name: &str| {
        FIRST.iter().any(|(one, _)| *one == name)
            || ["conversationHistoryVerbatim", "relevantContext"].contains(&name)
    };
    for (name, value) in message.members().iter().filter(|(name, _)| !shown(name)) {
        if matches!(value, Json::Object(_) | Json::List(_)) && !value.is_empty() {
            let before = parts.len();
            push(&mut parts, &text::visible(name), &format!("/{name}"), value, marks);
            parts[before..].iter_mut().for_each(|part| part.folded = true);
        }
    }
    bounded(parts)
}

/// Bytes of texts that a page has at most, so that it stays below 100 KB.
const BUDGET: usize = 64 * 1024;

/// Cuts the last parts where all together are too much for a page.
fn bounded(parts: Vec<Quote>) -> Vec<Quote> {
    let mut left = BUDGET;
    let mut out = Vec::new();
    for mut part in parts {
        if part.text.len() > left {
            let end = part.text.floor_char_boundary(left.min(1_000));
            part.text.truncate(end);
            part.text.push_str("\n… cut: the page is full. The API has all of it.");
        }
        left = left.saturating_sub(part.text.len());
        out.push(part);
    }
    out
}

fn push(parts: &mut Vec<Quote>, title: &str, at: &str, value: &Json, marks: &[(String, String)]) {
    if value.is_empty() {
        return;
    }
    let words = match value {
        Json::Object(_) | Json::List(_) => value.pretty(),
        other => other.as_text().to_owned(),
    };
    let mut part = Quote::of(title, &words);
    part.notes.push(at.to_owned());
    for (finding, kind) in marks {
        let inside = finding.split([' ', ':']).any(|word| {
            word == at || word.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'))
        });
        if inside {
            part.marked = true;
            part.notes.push(format!("{kind}: {}", text::visible(finding)));
        }
    }
    parts.push(part);
}

fn answers(handoff: &Json) -> Vec<Quote> {
    let words = |value: &Json| match value {
        Json::Object(_) | Json::List(_) => value.pretty(),
        other => other.as_text().to_owned(),
    };
    let mut out = Vec::new();
    for asked in handoff.list("questions") {
        let number = text::visible(asked.text("number"));
        out.push(Quote::of(format!("Question {number}"), &words(asked.get("question"))));
        if !asked.get("answer").is_null() {
            let by = text::visible(asked.text("answeredBy"));
            out.push(Quote::of(format!("Answer {number} by {by}"), &words(asked.get("answer"))));
        }
    }
    for (name, title) in [("result", "Result"), ("verdict", "Verdict")] {
        let value = handoff.get(name);
        if !value.is_empty() {
            out.push(Quote::of(title, &words(value)));
        }
    }
    out
}
