//! The answer of an action as parts of a page: secrets apart, lists as tables, the rest as facts.

use super::super::desk::Desk;
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Quote, Sheet};
use super::super::text;

/// Members that are shown once.
const SECRETS: [&str; 4] = ["apiKey", "webhookSecret", "signingSecret", "secret"];
/// Rows of a list that a page shows.
const MOST: usize = 200;

/// Adds an answer to a page.
pub(in super::super) fn parts(desk: &Desk, mut sheet: Sheet, answer: &Json) -> Sheet {
    let secrets: Vec<Quote> = SECRETS
        .iter()
        .filter(|name| !answer.text(name).is_empty())
        .map(|name| Quote::of(label(name), answer.text(name)))
        .collect();
    if !secrets.is_empty() {
        sheet = sheet
            .part("secrets", "Shown once", Content::Quotes(secrets))
            .note("Copy it now: the broker does not show it again.");
    }
    let mut facts = Vec::new();
    for (name, value) in answer.members() {
        match value {
            Json::List(items) if !items.is_empty() => {
                let shown = items.iter().take(MOST).map(line).collect();
                let title = format!("{} ({})", label(name), items.len());
                sheet = sheet.part("items", title, Content::Quotes(shown));
            }
            Json::Object(_) => {
                let quote = Quote::of(label(name), &value.pretty());
                sheet = sheet.part("detail", label(name), Content::Quotes(vec![quote]));
            }
            Json::List(_) | Json::Null => {}
            _ if SECRETS.contains(&name.as_str()) => {}
            value => facts.push((label(name), cell(desk, name, value))),
        }
    }
    sheet.part("result", "Result", Content::Result(facts))
}

fn label(name: &str) -> String {
    let mut out = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(character.to_ascii_lowercase());
    }
    let mut first = out.chars();
    first.next().map_or_else(String::new, |letter| {
        format!("{}{}", letter.to_uppercase(), text::visible(first.as_str()))
    })
}

fn cell(desk: &Desk, name: &str, value: &Json) -> Cell {
    match value {
        Json::Number(_) if name.ends_with("Ms") => Cell::millis(value),
        Json::Number(_) => Cell::number(value),
        Json::Bool(_) => Cell::flag(value),
        Json::Text(_) if name.ends_with("At") || name.ends_with("Until") => {
            Cell::time(value, desk.now, "never")
        }
        _ => Cell::text(value),
    }
}

/// One item of a list: its id and result as the label, all of it as text.
fn line(item: &Json) -> Quote {
    const NAMES: [&str; 6] = ["handoffId", "id", "taskId", "rule", "file", "fromAgent"];
    const RESULTS: [&str; 5] = ["result", "error", "change", "message", "level"];
    let first = |names: &[&'static str]| {
        names.iter().map(|name| item.text(name)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let label = format!("{} {}", first(&NAMES), first(&RESULTS));
    let shown = match item {
        Json::Object(_) | Json::List(_) => item.pretty(),
        other => other.as_text().to_owned(),
    };
    Quote { folded: true, ..Quote::of(text::visible(label.trim()), &shown) }
}
