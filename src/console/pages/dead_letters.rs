//! `/console/dead-letters`: handoffs that wait for a person, each with the finding at its place in the text.

use axum::extract::Path;
use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Quote, Sheet, Table};
use super::super::text;
use super::handoff::message_parts;
use super::{ROWS, agent, chosen, handoff_id, paged, task, typed};

const FILTERS: [&str; 8] =
    ["reason", "fromAgent", "toAgent", "taskId", "from", "to", "cursor", "status"];

pub(crate) async fn list(desk: Desk) -> Response {
    let page = make_list(&desk).await;
    desk.answer(page)
}

async fn make_list(desk: &Desk) -> Result<Sheet, Refusal> {
    let of_query = |name: &'static str| match (name, desk.query.get(name)) {
        ("status", "") => (name, "OPEN"),
        ("status", "ALL") => (name, ""),
        (_, value) => (name, value),
    };
    let mut pairs: Vec<_> = FILTERS.iter().map(|name| of_query(name)).collect();
    pairs.push(("limit", ROWS));
    let answer = desk.get(&["dead-letters"], &pairs).await?;
    let columns = [
        ("handoffId", "Handoff"),
        ("status", "Status"),
        ("reason", "Kept for"),
        ("finding", "Finding"),
        ("fromAgent", "From"),
        ("toAgent", "To"),
        ("taskId", "Task"),
        ("createdAt", "Since"),
    ];
    let empty = "No dead letter fits.";
    let table = Table::of(&columns, empty).rows(answer.list("items").iter().map(|item| {
        let first =
            item.list("failures").first().map_or(&Json::Null, |failure| failure.get("message"));
        vec![
            Cell::id(item.get("handoffId")).to(&["dead-letters", item.text("handoffId")]),
            Cell::status(item.get("status")),
            Cell::status(item.get("reason")).toned("bad"),
            Cell::excerpt(first, 90),
            agent(item.get("fromAgent")),
            agent(item.get("toAgent")),
            task(item.get("taskId")),
            Cell::time(item.get("createdAt"), desk.now, ""),
        ]
    }));
    let filled = [
        ("rule", desk.query.get("reason")),
        ("source", desk.query.get("fromAgent")),
        ("target", desk.query.get("toAgent")),
        ("from", desk.query.get("from")),
        ("to", desk.query.get("to")),
    ];
    let filters = vec![
        chosen(desk, "status", "Status", &["OPEN", "RELEASED", "DISCARDED", "ALL"]),
        typed(desk, "reason", "Kept for", "SAFETY_VIOLATION"),
        typed(desk, "fromAgent", "From agent", ""),
        typed(desk, "toAgent", "To agent", ""),
        typed(desk, "from", "Since", "2026-11-28"),
        typed(desk, "to", "until", ""),
    ];
    let mut frame = desk.frame("dead-letters", "Dead letters", &[]);
    frame.live = true;
    Ok(Sheet::new(frame)
        .buttons([
            desk.may_with("release-many", &[], &filled),
            desk.may_with("discard-many", &[], &filled),
        ])
        .filters(filters)
        .part("deadLetters", "", Content::Table(paged(desk, table, &answer))))
}

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let explain = if desk.explains() { "true" } else { "" };
    let letter = desk.get(&["dead-letters", id], &[("explain", explain)]).await?;
    let crumbs: [(&str, &[&str]); 1] = [("Dead letters", &["dead-letters"])];
    let from = text::visible(letter.text("fromAgent"));
    let to = match letter.text("toAgent") {
        "" => "no receiver".to_owned(),
        to => text::visible(to),
    };
    let mut frame = desk.frame("dead-letters", format!("{from} → {to}"), &crumbs);
    letter.text("taskId").clone_into(&mut frame.watched);
    let open = letter.text("status") == "OPEN";
    frame.live = open;
    let findings = letter.list("explanation/findings");
    let waives: Vec<(&str, &str)> =
        findings.iter().map(|finding| ("waive", finding.text("waive"))).collect();
    let mut tried = waives.clone();
    tried.push(("of", id));
    let mut sheet = Sheet::new(frame)
        .status(Cell::status(letter.get("status")))
        .lead(format!("Kept for {}.", text::words(letter.text("reason")).to_lowercase()))
        .buttons([
            desk.may_with("release", &[id], &waives).filter(|_| open),
            desk.may_with("release-many", &[], &tried).filter(|_| open).map(|button| {
                super::super::sheet::Button { label: "Dry run…".to_owned(), tone: "", ..button }
            }),
            desk.may("discard", &[id]).filter(|_| open),
        ]);
    if !findings.is_empty() {
        let quotes = findings.iter().map(|finding| explained(finding, letter.get("message")));
        sheet = sheet
            .part("findings", "Findings in place", Content::Quotes(quotes.collect()))
            .note("Release asks which of them to waive.");
    }
    let failures = letter.list("failures");
    if !failures.is_empty() {
        sheet = sheet.part("failures", "Refused by", Content::Table(failures_table(failures)));
    }
    let marks: Vec<(String, String)> = failures
        .iter()
        .map(|failure| (failure.text("pointer").to_owned(), failure.text("code").to_owned()))
        .collect();
    sheet = sheet
        .part("message", "Message", Content::Quotes(message_parts(letter.get("message"), &marks)))
        .note("Text of agents, shown as it came. Fenced parts have a finding.");
    Ok(sheet.part(
        "about",
        "About",
        Content::Facts(Facts::of(vec![
            ("Handoff", handoff_id(letter.get("handoffId"))),
            ("Task", task(letter.get("taskId"))),
            ("From", agent(letter.get("fromAgent"))),
            ("To", agent(letter.get("toAgent"))),
            ("Since", Cell::time(letter.get("createdAt"), desk.now, "")),
            ("Decided", Cell::time(letter.get("resolvedAt"), desk.now, "")),
            ("Decided by", Cell::code(letter.get("resolvedBy"))),
        ])),
    ))
}

fn failures_table(failures: &[Json]) -> Table {
    let columns = [("code", "Code"), ("pointer", "Place"), ("message", "Message")];
    Table::of(&columns, "").rows(failures.iter().map(|failure| {
        vec![
            Cell::status(failure.get("code")).toned("bad"),
            Cell::code(failure.get("pointer")),
            Cell::excerpt(failure.get("message"), 300),
        ]
    }))
}

/// Characters of text around a finding.
const AROUND: usize = 160;

/// A finding with the words of its rule, at its place in the text.
fn explained(finding: &Json, message: &Json) -> Quote {
    let words = finding.text("words");
    let place = finding.text("pointer");
    let whole = at_pointer(message, place);
    let shown = around(whole.as_text(), words);
    let mut quote = Quote::of(text::visible(place), &shown);
    quote.marked = true;
    quote.notes = vec![
        format!("rule {}", text::visible(finding.text("rule"))),
        text::visible(finding.text("family")),
        text::visible(finding.text("because")),
        format!("to waive: {}", text::visible(finding.text("waive"))),
    ];
    quote
}

/// The words of a finding between marks, with some text before and after.
fn around(whole: &str, words: &str) -> String {
    let Some(at) = whole.find(words).filter(|_| !words.is_empty()) else {
        return if words.is_empty() { whole.to_owned() } else { format!("▸{words}◂") };
    };
    let end = at + words.len();
    let before = whole[..at].char_indices().rev().nth(AROUND).map_or(0, |(index, _)| index);
    let after =
        whole[end..].char_indices().nth(AROUND).map_or(whole.len(), |(index, _)| end + index);
    let (open, close) =
        (if before > 0 { "… " } else { "" }, if after < whole.len() { " …" } else { "" });
    format!("{open}{}▸{words}◂{}{close}", &whole[before..at], &whole[end..after])
}

/// The value at a JSON pointer.
fn at_pointer<'a>(value: &'a Json, pointer: &str) -> &'a Json {
    pointer.split('/').skip(1).fold(value, |value, segment| {
        let name = segment.replace("~1", "/").replace("~0", "~");
        match value {
            Json::List(items) => {
                let index: Option<usize> = name.parse().ok();
                index.and_then(|index| items.get(index)).unwrap_or(value.get(""))
            }
            other => other.get(&name),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_marked_in_its_text() {
        assert_eq!(around("abc def ghi", "def"), "abc ▸def◂ ghi");
        assert_eq!(around("abc", "def"), "▸def◂");
        let long = "x".repeat(400);
        let shown = around(&format!("{long}HIT{long}"), "HIT");
        assert!(shown.starts_with("… x") && shown.ends_with("x …") && shown.len() < 360);
        let message = Json::parse(br#"{"a":[{"b/c":"text"}]}"#);
        assert_eq!(at_pointer(&message, "/a/0/b~1c").as_text(), "text");
        assert!(at_pointer(&message, "/a/9").is_null());
    }
}
