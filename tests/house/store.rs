//! The store's SQL is stated once: it is moving into `crates/store/src/store/tables`, and does not come back.

use std::collections::BTreeSet;
use std::path::Path;

/// Statements outside of `tables/`, besides those of [`APART`]. Lower it with each table that moves.
const OUTSIDE: usize = 228;

/// Statements that both drivers state in the same words. Lower it with each one that moves to its table.
const ALIKE: usize = 21;

/// Files with the statements of one database alone: its roles, its statistics, a log apart, its migrations.
const APART: [&str; 4] = ["roles.rs", "statistics.rs", "apart.rs", "migrations.rs"];

const TESTS: [&str; 2] = ["tests.rs", "rows_tests.rs"];

/// The string literals of a source, without its comments and its unit tests.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut texts = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find(['"', '/']) {
        let (before, from) = rest.split_at(start);
        if from.starts_with("//") {
            rest = from.split_once('\n').map_or("", |(_, next)| next);
        } else if from.starts_with('"') && !before.ends_with('\'') {
            let mut escaped = false;
            let end = from[1..].find(|char| {
                let ends = char == '"' && !escaped;
                escaped = char == '\\' && !escaped;
                ends
            });
            let end = end.map_or(from.len() - 1, |end| end + 1);
            texts.push(from[1..end].to_owned());
            rest = from.get(end + 1..).unwrap_or_default();
        } else {
            rest = &from[1..];
        }
    }
    texts
}

/// A literal with single spaces, and its parameters as `$`; `None` where it is not a statement.
fn statement(literal: &str) -> Option<String> {
    let text = literal.replace("\\\n", " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "WITH "];
    if !words.iter().any(|word| text.starts_with(word)) {
        return None;
    }
    let mut pieces = text.split(['?', '$']);
    let first = pieces.next().unwrap_or_default().to_owned();
    let numbered = |char: char| char.is_ascii_digit();
    let others = pieces.map(|piece| format!("${}", piece.trim_start_matches(numbered)));
    Some(others.fold(first, |text, piece| text + &piece).to_lowercase())
}

fn statements(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store/src/store").join(folder);
    let mut queries = Vec::new();
    for file in std::fs::read_dir(folder).expect("a folder of the store") {
        let path = file.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if is_source && !APART.contains(&name) && !TESTS.contains(&name) {
            let source = std::fs::read_to_string(&path).expect("a source");
            queries.extend(literals(&source).iter().filter_map(|literal| statement(literal)));
        }
    }
    queries
}

#[test]
fn statements_are_in_the_files_of_their_tables() {
    let outside: usize =
        ["sqlite", "postgres", ""].map(|folder| statements(folder).len()).iter().sum();
    assert!(outside <= OUTSIDE, "{outside} statements are outside of tables/, and {OUTSIDE} were");
    assert_eq!(outside, OUTSIDE, "fewer than before: lower OUTSIDE");
}

#[test]
fn the_drivers_state_nothing_twice() {
    let [sqlite, postgres] =
        ["sqlite", "postgres"].map(|side| BTreeSet::from_iter(statements(side)));
    let alike: Vec<_> = sqlite.intersection(&postgres).collect();
    assert!(alike.len() <= ALIKE, "{} statements are in both drivers: {alike:#?}", alike.len());
    assert_eq!(alike.len(), ALIKE, "fewer than before: lower ALIKE");
}

#[test]
fn a_statement_is_found_in_a_source() {
    let source = "// \"SELECT 0\"\nlet a = '\"'; let b = \"SELECT ?1 \\\n  FROM t WHERE x = \\\"y\\\"\"; f(\"no\")";
    let queries: Vec<_> = literals(source).iter().filter_map(|text| statement(text)).collect();
    assert_eq!(queries, ["select $ from t where x = \\\"y\\\""]);
}
