//! Differences between two JSON values, by pointer.

use serde_json::Value;

/// Most differences listed; the rest is counted.
const MOST: usize = 200;

/// A difference at one pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// RFC 6901 pointer.
    pub(super) pointer: String,
    /// `new`, `changed` or `gone`.
    pub(super) kind: &'static str,
    /// The value before, as JSON; empty for `new`.
    pub(super) before: String,
    /// The value after, as JSON; empty for `gone`.
    pub(super) after: String,
}

/// Differences in the order of the members, and the number of further ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// The first [`MOST`] differences.
    pub(super) listed: Vec<Difference>,
    /// Number of differences not listed.
    pub(super) more: usize,
}

/// Differences below `pointer`. Objects are compared by member, lists of equal length by item, other values as a
/// whole.
pub(super) fn differences(pointer: &str, before: &Value, after: &Value) -> Differences {
    let mut found = Differences::default();
    compare(pointer, Some(before), Some(after), &mut found);
    found
}

fn compare(pointer: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Differences) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for (name, value) in before {
                compare(&below(pointer, name), Some(value), after.get(name), found);
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                compare(&below(pointer, name), None, Some(value), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&format!("{pointer}/{at}"), Some(before), Some(after), found);
            }
        }
        _ if found.listed.len() == MOST => found.more += 1,
        (before, after) => {
            let kind = match (before, after) {
                (None, _) => "new",
                (_, None) => "gone",
                _ => "changed",
            };
            let text = |value: Option<&Value>| value.map(Value::to_string).unwrap_or_default();
            found.listed.push(Difference {
                pointer: pointer.to_owned(),
                kind,
                before: text(before),
                after: text(after),
            });
        }
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_and_items_are_told_apart_by_their_place() {
        let before = json!({ "same": 1, "a/b": [1, 2], "old": true, "deep": { "x": "one" } });
        let after = json!({ "same": 1, "a/b": [1, 3], "deep": { "x": "two" }, "new": null });
        let found = differences("/currentState", &before, &after);
        let listed: Vec<_> = found
            .listed
            .iter()
            .map(|one| (one.pointer.as_str(), one.kind, one.before.as_str(), one.after.as_str()))
            .collect();
        assert_eq!(
            listed,
            [
                ("/currentState/a~1b/1", "changed", "2", "3"),
                ("/currentState/deep/x", "changed", "\"one\"", "\"two\""),
                ("/currentState/old", "gone", "true", ""),
                ("/currentState/new", "new", "", "null"),
            ]
        );
        assert_eq!(differences("", &before, &before), Differences::default());
    }

    #[test]
    fn a_flood_of_differences_is_counted() {
        let after: Value = (0..1_000).map(|n| (n.to_string(), json!(n))).collect();
        let found = differences("", &json!({}), &after);
        assert_eq!((found.listed.len(), found.more), (MOST, 800));
    }
}
