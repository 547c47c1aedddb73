//! Printing of answers: tables with columns, or one member per line.

use std::borrow::Cow;
use std::fmt::Write as _;

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle, presets};
use serde_json::Value;

use super::resource::{Column, Shape};
use crate::cli::plain::plain;

/// Secrets that the API returns only once.
const SECRETS: [&str; 4] = ["apiKey", "signingSecret", "webhookSecret", "secret"];

/// A line above and below, and one under the headings.
const RULED: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('═').junction('═'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

#[derive(Debug, Clone, Copy)]
pub(super) enum OutputMedium {
    /// A terminal of this width: ruled tables and wrapped texts.
    Terminal(u16),
    /// Any other output: each row on one line of any length.
    Plain,
}

/// An answer as text, with a line break at the end unless it is empty.
pub(super) fn show(answer: &Value, shape: &Shape, paper: OutputMedium) -> String {
    match shape {
        Shape::Done(words) => format!("{words}\n"),
        Shape::One => {
            let mut rows = Vec::new();
            members(answer, "", &mut rows);
            render(None, rows.into_iter().map(|(name, value)| vec![name, value]).collect(), paper)
        }
        Shape::Rows { at, columns, foot } => {
            let rows: Vec<Vec<String>> = answer
                .pointer(at)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|row| columns.iter().map(|Column(_, at)| cell(row.pointer(at))).collect())
                .collect();
            let mut text = String::new();
            if !rows.is_empty() {
                text = render(Some(columns.iter().map(|one| one.0).collect()), rows, paper);
            }
            let foot: Vec<String> = foot
                .iter()
                .map(|one| format!("{} {}", one.0, cell(answer.pointer(one.1))))
                .collect();
            if !foot.is_empty() {
                let _ = writeln!(text, "{}", foot.join(", "));
            }
            text
        }
    }
}

/// The secrets of an answer.
pub(super) fn secrets(answer: &Value) -> Vec<&'static str> {
    SECRETS.into_iter().filter(|name| answer.get(name).is_some_and(Value::is_string)).collect()
}

fn render(head: Option<Vec<&str>>, rows: Vec<Vec<String>>, paper: OutputMedium) -> String {
    let mut table = Table::new();
    match paper {
        OutputMedium::Terminal(width) => {
            let preset = if head.is_some() { RULED } else { presets::NOTHING };
            table.load_style(preset).set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        OutputMedium::Plain => {
            table.load_style(presets::NOTHING);
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    if let Some(head) = head {
        table.set_header(head);
    }
    table.add_rows(rows);
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// One value in a few words.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => plain(&moment(text)).into_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Array(list)) if list.is_empty() => "-".to_owned(),
        Some(Value::Array(list)) => {
            list.iter().map(|one| cell(Some(one))).collect::<Vec<_>>().join(", ")
        }
        Some(object) => finding(object).unwrap_or_else(|| plain(&object.to_string()).into_owned()),
    }
}

/// One failure of the gate in a few words.
fn finding(value: &Value) -> Option<String> {
    let text = |name| value.get(name).and_then(Value::as_str);
    let said = format!("{} at {}: {}", text("code")?, text("pointer")?, text("message")?);
    Some(plain(&said).into_owned())
}

/// A time of the API without its fraction of a second; any other text as it is.
fn moment(text: &str) -> Cow<'_, str> {
    const FORM: &[u8] = b"dddd-dd-ddTdd:dd:dd.";
    let fits = text.len() > FORM.len()
        && text.ends_with('Z')
        && text.bytes().zip(FORM).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            form => byte == *form,
        })
        && text[FORM.len()..text.len() - 1].bytes().all(|byte| byte.is_ascii_digit());
    if fits { format!("{}Z", &text[..FORM.len() - 1]).into() } else { text.into() }
}

/// Lists every member with its path. Nested objects become paths; a list of texts stays one member.
fn members(value: &Value, path: &str, out: &mut Vec<(String, String)>) {
    let below = |name: &str| {
        let name = plain(name);
        if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") }
    };
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, value) in object {
                members(value, &below(name), out);
            }
        }
        Value::Array(list) if list.iter().any(|one| one.is_object() || one.is_array()) => {
            for (place, value) in list.iter().enumerate() {
                members(value, &below(&place.to_string()), out);
            }
        }
        value => out.push((path.to_owned(), cell(Some(value)))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHAPE: Shape = Shape::Rows {
        at: "/items",
        columns: &[Column("NAME", "/name"), Column("AT", "/at"), Column("TAGS", "/tags")],
        foot: &[Column("matched", "/matched")],
    };

    #[test]
    fn a_row_is_one_line_where_nobody_looks_on() {
        let long = "x".repeat(300);
        let answer = json!({ "matched": 2, "items": [
            { "name": long, "at": "2026-01-02T03:04:05.678901Z", "tags": ["a", "b"] },
            { "name": "two\nlines", "at": null, "tags": [] },
        ]});
        let text = show(&answer, &SHAPE, OutputMedium::Plain);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect())
            .collect();
        assert_eq!(lines[0], ["NAME", "AT", "TAGS"]);
        assert_eq!(lines[1], [long.as_str(), "2026-01-02T03:04:05Z", "a, b"]);
        assert_eq!(lines[2], [r"two\nlines", "-", "-"]);
        assert_eq!(lines[3], ["matched 2"]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let answer = json!({ "matched": 1, "items": [{ "name": "word ".repeat(60), "at": "名".repeat(90) }] });
        for width in [20, 80] {
            let text = show(&answer, &SHAPE, OutputMedium::Terminal(width));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{line}");
            }
            assert!(text.lines().count() > 5, "{text}");
        }
    }

    #[test]
    fn one_is_shown_with_all_that_it_has() {
        let answer =
            json!({ "id": 7, "list": ["x"], "deep": { "a\u{1b}": [{ "b": false }], "none": {} } });
        let text = show(&answer, &Shape::One, OutputMedium::Plain);
        let mut lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        lines.sort();
        let wanted = [
            vec![r"deep.a\u{1b}.0.b", "no"],
            vec!["deep.none", "{}"],
            vec!["id", "7"],
            vec!["list", "x"],
        ];
        assert_eq!(lines, wanted);
    }
}
