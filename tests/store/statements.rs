//! Records the statements that the suite's stores send, for `scripts/statements`.
//!
//! The folder that `HANDOFFD_STATEMENTS` names gets a file for each database, with one statement a line. Without it nothing
//! is recorded. Parameters are written `$1` on both sides, and of the joined statement of a batch each part is a line: a
//! case with several brokers joins other parts each time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Records from here on, where that is wanted.
pub fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(folder) = std::env::var_os("HANDOFFD_STATEMENTS").map(PathBuf::from) else {
            return;
        };
        let recorder = Recorder { folder, seen: Mutex::default() };
        // The only subscriber of this binary.
        tracing::subscriber::set_global_default(recorder).unwrap();
    });
}

struct Recorder {
    folder: PathBuf,
    seen: Mutex<BTreeSet<(&'static str, String)>>,
}

impl Recorder {
    fn add(&self, side: &'static str, statement: &str) {
        let mut seen = self.seen.lock().unwrap();
        if is_query(statement) && seen.insert((side, statement.to_owned())) {
            append(&self.folder.join(side), statement);
        }
    }
}

fn append(file: &Path, line: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{line}").unwrap();
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        side(metadata).is_some()
    }

    fn event(&self, event: &Event<'_>) {
        let Some(side) = side(event.metadata()) else { return };
        let mut text = Text::default();
        event.record(&mut text);
        for part in parts(&canonical(&text.sql)) {
            self.add(side, &part);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The database that an event's statement was for. The stores' own statements are at `TRACE`; those of the cases, which go
/// past the store, at `DEBUG`.
fn side(metadata: &Metadata<'_>) -> Option<&'static str> {
    if *metadata.level() != Level::TRACE {
        return None;
    }
    match metadata.target() {
        "handoffd_store::store::sqlite::db" => Some("sqlite.txt"),
        "handoffd_store::store::postgres::session" | "sqlx::query" => Some("postgres.txt"),
        _ => None,
    }
}

/// A statement among an event's fields. The pool has short ones in its summary alone.
#[derive(Default)]
struct Text {
    sql: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        let whole = matches!(field.name(), "sql" | "db.statement") && !value.is_empty();
        if whole || (field.name() == "summary" && self.sql.is_empty()) {
            value.clone_into(&mut self.sql);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// Whether a statement reads or writes rows: others name roles and databases of one run.
fn is_query(sql: &str) -> bool {
    ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "].iter().any(|word| sql.starts_with(word))
}

/// A statement with single spaces, and its parameters as `$1`.
fn canonical(sql: &str) -> String {
    let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut pieces = sql.split('?');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for (place, piece) in pieces.enumerate() {
        text.push('$');
        if !piece.starts_with(|char: char| char.is_ascii_digit()) {
            let _ = write!(text, "{}", place + 1);
        }
        text.push_str(piece);
    }
    text
}

/// The parts of a joined statement, each with parameters from `$1` on; any other statement is one part.
fn parts(sql: &str) -> Vec<String> {
    let Some(joined) = sql.strip_prefix("WITH p0 AS (") else { return vec![sql.to_owned()] };
    let end = joined.rfind(") SELECT ARRAY[").unwrap_or(joined.len());
    let mut parts = Vec::new();
    let mut rest = &joined[..end];
    loop {
        let next = format!("), p{} AS (", parts.len() + 1);
        let Some((part, others)) = rest.split_once(&next) else { break };
        parts.push(from_one(part));
        rest = others;
    }
    parts.push(from_one(rest));
    parts
}

/// A part with its first parameter as `$1`.
fn from_one(part: &str) -> String {
    let mut pieces = part.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut before = None;
    for piece in pieces {
        let digits = piece.find(|char: char| !char.is_ascii_digit()).unwrap_or(piece.len());
        let number: usize = piece[..digits].parse().unwrap();
        let before = *before.get_or_insert(number - 1);
        let _ = write!(text, "${}{}", number - before, &piece[digits..]);
    }
    text
}

#[test]
fn a_joined_statement_is_recorded_by_its_parts() {
    let joined = "WITH p0 AS (INSERT INTO a SELECT $1::text), p1 AS (UPDATE b SET c = $2 \
                  RETURNING 1) SELECT ARRAY[(SELECT count(*) FROM p1)]::bigint[]";
    let expected = ["INSERT INTO a SELECT $1::text", "UPDATE b SET c = $1 RETURNING 1"];
    assert_eq!(parts(&canonical(joined)), expected);
    assert_eq!(canonical("SELECT  ?, ? FROM a"), "SELECT $1, $2 FROM a");
    assert_eq!(canonical("SELECT ?2 WHERE ?1"), "SELECT $2 WHERE $1");
}
