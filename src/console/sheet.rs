//! A page as data: the parts that a template draws and that `?format=json` answers.

use std::fmt::Write as _;

use askama::Template;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::frame::{Frame, Theme};
use super::json::Json;
use super::text;
use handoffd_domain::ids::Micros;

/// How a cell is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Form {
    #[default]
    Text,
    /// An id or a code.
    Code,
    Number,
    Time,
    /// A word with a mark in the colour of its tone.
    Status,
    /// Bars over time: what is shown is the path of an SVG of 120 by 24, and the title says it in words.
    Spark,
}

/// A value as shown, and as the API gave it. As text it is HTML.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "cell.html")]
pub(super) struct Cell {
    /// The answer to `?format=json`.
    raw: Json,
    pub(super) shown: String,
    /// Address of the page of this value, in the console; empty for none.
    pub(super) href: String,
    /// The exact value, on pointing.
    pub(super) title: String,
    /// `good`, `warn`, `bad`, `busy`, `calm` or empty.
    pub(super) tone: &'static str,
    pub(super) form: Form,
}

impl Cell {
    fn made(raw: &Json, shown: String, form: Form) -> Self {
        Self { raw: raw.clone(), shown, form, ..Self::default() }
    }

    pub(super) fn text(value: &Json) -> Self {
        Self::made(value, text::visible(value.as_text()), Form::Text)
    }

    /// Words of the console itself.
    pub(super) fn said(words: impl Into<String>) -> Self {
        let words = words.into();
        Self::made(&Json::from(words.as_str()), words, Form::Text)
    }

    /// Text cut after `most` characters; all of it on pointing.
    pub(super) fn excerpt(value: &Json, most: usize) -> Self {
        let whole = text::visible(value.as_text());
        let shown = text::short(&whole, most);
        let title = if shown == whole { String::new() } else { text::short(&whole, 1_000) };
        Self { title, ..Self::made(value, shown, Form::Text) }
    }

    pub(super) fn code(value: &Json) -> Self {
        Self::made(value, text::visible(value.as_text()), Form::Code)
    }

    /// An id in short, all of it on pointing.
    pub(super) fn id(value: &Json) -> Self {
        let whole = text::visible(value.as_text());
        Self { title: whole.clone(), ..Self::made(value, text::short_id(&whole), Form::Code) }
    }

    pub(super) fn number(value: &Json) -> Self {
        let digits = value.as_text();
        Self { title: digits.to_owned(), ..Self::made(value, text::grouped(digits), Form::Number) }
    }

    pub(super) fn count(count: usize) -> Self {
        Self::number(&Json::Number(count.to_string()))
    }

    pub(super) fn money(value: &Json) -> Self {
        let digits = value.as_text();
        Self { title: digits.to_owned(), ..Self::made(value, text::money(digits), Form::Number) }
    }

    /// A time in words, its exact value on pointing; `none` where there is none.
    pub(super) fn time(value: &Json, now: Micros, none: &str) -> Self {
        let exact = value.as_text();
        if exact.is_empty() {
            return Self::made(value, none.to_owned(), Form::Text);
        }
        let shown = text::relative(exact, now);
        Self { title: text::visible(exact), ..Self::made(value, shown, Form::Time) }
    }

    /// Milliseconds as a duration.
    pub(super) fn millis(value: &Json) -> Self {
        let Ok(millis) = value.as_text().parse::<f64>() else { return Self::text(value) };
        let shown = text::duration((millis * 1_000.0) as i64);
        let title = format!("{} ms", value.as_text());
        Self { title, ..Self::made(value, shown, Form::Number) }
    }

    /// A status in words, with the tone that it has.
    pub(super) fn status(value: &Json) -> Self {
        let code = value.as_text();
        let shown = if code.is_empty() { "Unknown".to_owned() } else { text::words(code) };
        let tone = tone(code);
        Self { tone, title: text::visible(code), ..Self::made(value, shown, Form::Status) }
    }

    /// A status of the console itself.
    pub(super) fn mark(words: &str, tone: &'static str) -> Self {
        Self { tone, ..Self::made(&Json::from(words), words.to_owned(), Form::Status) }
    }

    /// Bars by their places on an axis from 0 to 1, each with its height from 0 to 1.
    pub(super) fn spark(value: &Json, bars: &[(f64, f64)], title: String) -> Self {
        let mut path = String::new();
        for (place, height) in bars {
            // A bar without height is a point at the foot.
            let (x, y) = (2.0 + place * 116.0, 23.0 - height * 21.0);
            let _ = write!(path, "M{x:.1} 24V{y:.1}");
        }
        Self { title, ..Self::made(value, path, Form::Spark) }
    }

    /// A share from 0 to 1 in percent; empty where there is none.
    pub(super) fn percent(value: &Json) -> Self {
        let Ok(share) = value.as_text().parse::<f64>() else {
            return Self::made(value, String::new(), Form::Number);
        };
        Self::made(value, format!("{:.1} %", share * 100.0), Form::Number)
    }

    /// A yes or no.
    pub(super) fn flag(value: &Json) -> Self {
        let shown = if *value == Json::Bool(true) { "yes" } else { "no" };
        Self::made(value, shown.to_owned(), Form::Text)
    }

    /// The cell as a link to these segments below `/console`; plain where the value is empty.
    pub(super) fn to(mut self, segments: &[&str]) -> Self {
        if !self.raw.is_empty() {
            self.href = super::frame::link(segments, &[]);
        }
        self
    }

    pub(super) fn linked(self, href: String) -> Self {
        Self { href, ..self }
    }

    pub(super) fn toned(self, tone: &'static str) -> Self {
        Self { tone, ..self }
    }

    pub(super) fn titled(self, title: impl Into<String>) -> Self {
        Self { title: title.into(), ..self }
    }

    /// Whether the cell has nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Class names of the element of the value.
    fn span(&self) -> &'static str {
        match (self.form, self.tone) {
            (Form::Code, _) => "code",
            (Form::Number, "bad") => "num bad",
            (Form::Number, _) => "num",
            (_, "bad") => "bad",
            _ => "",
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(to)
    }
}

/// The tone of a status.
pub(super) fn tone(code: &str) -> &'static str {
    match code {
        "COMPLETED" | "RUNNABLE" | "RESOLVED" | "RELEASED" | "ACCEPTED_ALL" | "CLOSED"
        | "delivered" | "pass" | "ok" => "good",
        "RUNNING" | "ACCEPTED" | "HANDING_OFF" | "PENDING" | "BUSY" | "RUNNING_ERASURE" => "busy",
        "ESCALATED"
        | "INPUT_REQUIRED"
        | "OPEN"
        | "PAUSED"
        | "TIMED_OUT"
        | "retry"
        | "newlyPassed"
        | "observedDifferently" => "warn",
        "DEAD_LETTERED" | "FAILED" | "REJECTED" | "EXPIRED" | "ABORTED" | "set_aside" | "gone"
        | "refuse" | "newlyRefused" | "error" => "bad",
        _ => "calm",
    }
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Name of the member in JSON.
    key: &'static str,
    pub(super) label: &'static str,
    /// Numbers, set flush right.
    pub(super) numeric: bool,
}

/// Rows of equal members.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Said in place of rows.
    pub(super) empty: &'static str,
    /// Address of the next page; empty for none.
    pub(super) next: String,
    /// Address of the first page, from a later one.
    pub(super) first: String,
    /// Whether rows go by name, and not by time.
    pub(super) by_name: bool,
    /// The time back to which the page looked, where it did not look at all rows; empty otherwise.
    pub(super) looked_back_to: String,
}

impl Table {
    /// A table of these columns, each a key and a label; a label that ends in `#` is of numbers.
    pub(super) fn of(columns: &[(&'static str, &'static str)], empty: &'static str) -> Self {
        let column = |(key, label): &(&'static str, &'static str)| Column {
            key,
            label: label.trim_end_matches('#'),
            numeric: label.ends_with('#'),
        };
        Self { columns: columns.iter().map(column).collect(), empty, ..Self::default() }
    }

    pub(super) fn rows(mut self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// A row's cells with their columns.
    pub(super) fn cells<'a>(
        &'a self,
        row: &'a [Cell],
    ) -> impl Iterator<Item = (&'a Column, &'a Cell)> {
        self.columns.iter().zip(row)
    }
}

struct Row<'a>(&'a Table, &'a [Cell]);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.cells(self.1).map(|(column, cell)| (column.key, cell)))
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let rows: Vec<Row<'_>> = self.rows.iter().map(|row| Row(self, row)).collect();
        map.serialize_entry("items", &rows)?;
        let next = (!self.next.is_empty()).then_some(&self.next);
        map.serialize_entry("next", &next)?;
        if !self.looked_back_to.is_empty() {
            map.serialize_entry("lookedBackTo", &self.looked_back_to)?;
        }
        map.end()
    }
}

/// Facts of one object, each with its name.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts(pub(super) Vec<(&'static str, Cell)>);

impl Facts {
    /// The facts that have a value.
    pub(super) fn of(facts: Vec<(&'static str, Cell)>) -> Self {
        Self(facts.into_iter().filter(|(_, cell)| !cell.is_empty()).collect())
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, cell)| (name, cell)))
    }
}

/// Untrusted text, shown as it is.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Quote {
    /// Its place or speaker.
    pub(super) label: String,
    /// Words about it, such as an origin or a rule that marked it.
    pub(super) notes: Vec<String>,
    /// The text with hidden characters made visible.
    pub(super) text: String,
    /// Whether a rule marked it, so that it is fenced.
    pub(super) marked: bool,
    /// Shown folded: larger than 16 KiB, or secondary.
    pub(super) folded: bool,
    /// Size in bytes.
    pub(super) bytes: usize,
}

/// Bytes of a text above which a page folds it.
const FOLD: usize = 16 * 1024;
/// Bytes of a text that a page shows at most; the rest is in the JSON of the API.
const MOST: usize = 24 * 1024;

impl Quote {
    pub(super) fn of(label: impl Into<String>, whole: &str) -> Self {
        let bytes = whole.len();
        let cut = &whole[..whole.floor_char_boundary(MOST)];
        let mut shown = text::visible(cut);
        if cut.len() < bytes {
            let _ = write!(shown, "\n… {} bytes more", bytes - cut.len());
        }
        Self { label: label.into(), text: shown, folded: bytes > FOLD, bytes, ..Self::default() }
    }
}

/// A line of the waterfall.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bar {
    pub(super) number: String,
    pub(super) from: String,
    pub(super) to: String,
    #[serde(skip)]
    pub(super) href: String,
    pub(super) status: Cell,
    /// Begin of the wait, in thousandths of the width.
    pub(super) x: i64,
    /// Width of the wait for a verdict.
    pub(super) waiting: i64,
    /// Width of the work.
    pub(super) working: i64,
    pub(super) took: String,
    pub(super) at: Cell,
    pub(super) cost: Cell,
    pub(super) tokens: Cell,
    /// Words of this hop: the task, a question, a reason, a result.
    pub(super) words: Vec<Quote>,
    /// Whether it ended badly.
    pub(super) bad: bool,
    /// A retry, a branch of a group, a stream.
    pub(super) notes: Vec<String>,
}

impl Bar {
    /// Begin of the work.
    pub(super) fn work_at(&self) -> i64 {
        self.x + self.waiting
    }
}

/// Hops against a time axis whose idle times are folded.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Waterfall {
    pub(super) bars: Vec<Bar>,
    /// Folded idle times: where the mark is, and how long.
    pub(super) folds: Vec<(i64, String)>,
    /// Ticks: where, and the time since the first hop.
    pub(super) ticks: Vec<(i64, String)>,
    pub(super) next: String,
    pub(super) first: String,
    /// Address of the other choice of hops (only failures, or all).
    pub(super) other: String,
    pub(super) only_failures: bool,
}

/// One reason why a task waits.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Wait {
    pub(super) sentence: String,
    pub(super) since: Cell,
    pub(super) tried: String,
    pub(super) error: String,
    pub(super) next: String,
    pub(super) handoff: Cell,
    #[serde(skip)]
    pub(super) remedies: Vec<Remedy>,
    pub(super) tone: &'static str,
}

/// A way out of a wait.
#[derive(Debug, Clone)]
pub(super) struct Remedy {
    pub(super) button: Button,
    /// Its effect, in words.
    pub(super) effect: String,
    pub(super) command: String,
    pub(super) curl: String,
}

/// A link that looks like a button. Whatever it leads to asks before it changes anything.
#[derive(Debug, Clone, Default)]
pub(super) struct Button {
    pub(super) label: String,
    pub(super) href: String,
    /// `bad` for what cannot be undone, `good` for the main one, or empty.
    pub(super) tone: &'static str,
}

/// An item that waits for a person.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Card {
    pub(super) status: Cell,
    pub(super) title: Cell,
    pub(super) sentence: String,
    pub(super) facts: Vec<Cell>,
    #[serde(skip)]
    pub(super) buttons: Vec<Button>,
}

/// Cards under one name.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Cards {
    pub(super) items: Vec<Card>,
    #[serde(skip)]
    pub(super) empty: &'static str,
    /// Address of all of them; empty where these are all.
    pub(super) more: String,
}

/// Squares of senders by receivers.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Matrix {
    pub(super) targets: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Cell>)>,
}

/// Content of a part of a page.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Content {
    Table(Table),
    Facts(Facts),
    /// The same with names of the answer.
    Result(#[serde(serialize_with = "named")] Vec<(String, Cell)>),
    Quotes(Vec<Quote>),
    Waterfall(Waterfall),
    Waits(Vec<Wait>),
    Cards(Cards),
    Matrix(Matrix),
    /// Named figures in a row.
    Figures(Facts),
    /// A form that goes on with an action on many.
    More(super::bulk::More),
    /// Forms that ask something and change nothing.
    Ask(super::form::Form),
    /// Lines of the console itself.
    Words(Vec<String>),
}

fn named<S: Serializer>(facts: &[(String, Cell)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(facts.iter().map(|(name, cell)| (name, cell)))
}

/// A part of a page.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Member in JSON, and the anchor.
    pub(super) key: &'static str,
    pub(super) title: String,
    /// Said under the title.
    pub(super) note: String,
    pub(super) buttons: Vec<Button>,
    pub(super) content: Content,
    /// Folded until opened.
    pub(super) folded: bool,
}

/// A field that narrows a list.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) hint: &'static str,
    /// The values to choose from, each with its words; empty for a text.
    pub(super) options: Vec<(&'static str, String)>,
}

impl Filter {
    /// Whether this value is chosen.
    fn is(&self, word: &str) -> bool {
        self.value == word
    }
}

/// A whole page.
#[derive(Template)]
#[template(path = "sheet.html")]
pub(super) struct Sheet {
    pub(super) frame: Frame,
    /// Said under the title: one sentence.
    pub(super) lead: String,
    pub(super) status: Option<Cell>,
    pub(super) buttons: Vec<Button>,
    pub(super) filters: Vec<Filter>,
    pub(super) parts: Vec<Part>,
    /// Offers to end all sessions of the visitor's key.
    pub(super) everywhere: bool,
}

impl Sheet {
    pub(super) fn new(frame: Frame) -> Self {
        Self {
            frame,
            lead: String::new(),
            status: None,
            buttons: vec![],
            filters: vec![],
            parts: vec![],
            everywhere: false,
        }
    }

    /// Whether a filter has a value.
    fn is_narrowed(&self) -> bool {
        self.filters.iter().any(|filter| !filter.value.is_empty())
    }

    pub(super) fn lead(mut self, words: impl Into<String>) -> Self {
        self.lead = words.into();
        self
    }

    pub(super) fn status(mut self, status: Cell) -> Self {
        self.status = Some(status);
        self
    }

    pub(super) fn buttons(mut self, buttons: impl IntoIterator<Item = Option<Button>>) -> Self {
        self.buttons.extend(buttons.into_iter().flatten());
        self
    }

    pub(super) fn filters(mut self, filters: Vec<Filter>) -> Self {
        self.filters = filters;
        self
    }

    pub(super) fn part(
        mut self,
        key: &'static str,
        title: impl Into<String>,
        content: Content,
    ) -> Self {
        let (title, note) = (title.into(), String::new());
        self.parts.push(Part { key, title, note, buttons: vec![], content, folded: false });
        self
    }

    /// Says something under the last part's title.
    pub(super) fn note(mut self, words: impl Into<String>) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.note = words.into();
        }
        self
    }

    /// Gives the last part buttons.
    pub(super) fn with(mut self, buttons: impl IntoIterator<Item = Option<Button>>) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.buttons.extend(buttons.into_iter().flatten());
        }
        self
    }

    /// Folds the last part.
    pub(super) fn fold(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.folded = true;
        }
        self
    }
}

impl Serialize for Sheet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("title", &self.frame.title)?;
        if !self.lead.is_empty() {
            map.serialize_entry("lead", &self.lead)?;
        }
        if let Some(status) = &self.status {
            map.serialize_entry("status", status)?;
        }
        for part in &self.parts {
            if !matches!(part.content, Content::Ask(_)) {
                map.serialize_entry(part.key, &part.content)?;
            }
        }
        map.end()
    }
}
