//! Differences between two documents of the API, by place.

use super::json::Json;
use super::sheet::{Cell, Table};
use super::text;

/// Differences that a page shows; the documents have the rest.
const MOST: usize = 30;
/// Characters of a value in a row.
const LONG: usize = 100;

/// A place at which two documents differ: its pointer, and the value on each side; null where there is none.
pub(super) struct Change<'a> {
    place: String,
    before: &'a Json,
    after: &'a Json,
}

/// The places at which two documents differ, in the order of the later one.
pub(super) fn changes<'a>(before: &'a Json, after: &'a Json) -> Vec<Change<'a>> {
    let mut list = Vec::new();
    walk(String::new(), before, after, &mut list);
    list
}

fn walk<'a>(place: String, before: &'a Json, after: &'a Json, found: &mut Vec<Change<'a>>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Json::Object(_), Json::Object(_)) => {
            let below =
                |name: &str| format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
            for (name, value) in after.members() {
                walk(below(name), before.get(name), value, found);
            }
            let gone = before.members().iter().filter(|(name, _)| after.get(name).is_null());
            for (name, value) in gone.filter(|(_, value)| !value.is_null()) {
                found.push(Change { place: below(name), before: value, after: after.get(name) });
            }
        }
        (Json::List(old), Json::List(new)) => {
            for index in 0..old.len().max(new.len()) {
                let at = |items: &'a [Json]| items.get(index).unwrap_or(before.get(""));
                walk(format!("{place}/{index}"), at(old), at(new), found);
            }
        }
        _ => found.push(Change { place, before, after }),
    }
}

/// The differences as a table; `empty` is said where there is none.
pub(super) fn table(changes: &[Change<'_>], empty: &'static str) -> Table {
    let columns =
        [("place", "Place"), ("change", "Change"), ("before", "Before"), ("after", "After")];
    Table::of(&columns, empty).rows(changes.iter().take(MOST).map(|change| {
        let word = match (change.before.is_null(), change.after.is_null()) {
            (true, _) => "set",
            (_, true) => "removed",
            _ => "changed",
        };
        vec![
            Cell::code(&Json::from(change.place.as_str())),
            Cell::said(word),
            value(change.before),
            value(change.after),
        ]
    }))
}

/// The beginning of a value: the page stays small.
fn value(value: &Json) -> Cell {
    let whole = match value {
        Json::Object(_) | Json::List(_) => value.pretty(),
        other => other.as_text().to_owned(),
    };
    Cell::text(&Json::from(text::short(&whole, LONG)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_differ_are_named_and_equal_ones_are_not() {
        let before =
            Json::parse(br#"{"a":1,"b":{"c":"x","d/e":[1,2]},"gone":true,"same":[{"x":1}]}"#);
        let after =
            Json::parse(br#"{"new":{"y":1},"a":2,"b":{"c":"x","d/e":[1,3,4]},"same":[{"x":1}]}"#);
        let list = changes(&before, &after);
        let list: Vec<(&str, &str, &str)> = list
            .iter()
            .map(|one| (one.place.as_str(), one.before.as_text(), one.after.as_text()))
            .collect();
        assert_eq!(
            list,
            [
                ("/new", "", ""),
                ("/a", "1", "2"),
                ("/b/d~1e/1", "2", "3"),
                ("/b/d~1e/2", "", "4"),
                ("/gone", "true", ""),
            ]
        );
        assert!(changes(&after, &after).is_empty());
    }
}
