//! JSON values as YAML in block style; the same value gives the same bytes. Pure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Members that come first, in this order; the others follow by name.
const FIRST: [&str; 14] = [
    "kind",
    "id",
    "schemaId",
    "agentId",
    "window",
    "version",
    "title",
    "name",
    "description",
    "agentType",
    "agentVersion",
    "source",
    "target",
    "url",
];
/// Words without quotes that YAML readers do not read as text.
const TAKEN: [&str; 14] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "none",
    "nil",
];
/// Longest text without quotes, in bytes.
const MAX_PLAIN: usize = 200;

/// An object as a YAML document.
pub(super) fn document(members: &Map<String, Value>) -> String {
    let mut out = String::new();
    mapping(&mut out, members, 0);
    out
}

fn mapping(out: &mut String, members: &Map<String, Value>, indent: usize) {
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by_key(|(name, _)| (rank(name), name.as_str()));
    for (place, (name, value)) in sorted.into_iter().enumerate() {
        if place > 0 || indent == 0 || out.ends_with('\n') {
            pad(out, indent);
        }
        out.push_str(&scalar_text(name));
        out.push(':');
        below(out, value, indent);
    }
}

/// Writes a value after `name:`, whose line is indented by `indent`.
fn below(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            mapping(out, members, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            list(out, items, indent + 2);
        }
        plain => {
            out.push(' ');
            scalar(out, plain);
            out.push('\n');
        }
    }
}

fn list(out: &mut String, items: &[Value], indent: usize) {
    for item in items {
        pad(out, indent);
        out.push('-');
        match item {
            Value::Object(members) if !members.is_empty() => {
                out.push(' ');
                mapping(out, members, indent + 2);
            }
            other => below(out, other, indent),
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => out.push_str(&scalar_text(text)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => _ = write!(out, "{other}"),
    }
}

fn scalar_text(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// Whether every YAML reader reads the text without quotes as the same text.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && text.len() <= MAX_PLAIN
        && !TAKEN.iter().any(|word| text.eq_ignore_ascii_case(word))
        && bytes.iter().zip(bytes.iter().skip(1).chain(b" ")).all(|(byte, next)| match byte {
            b' ' => next.is_ascii_alphanumeric(),
            b':' => next.is_ascii_alphanumeric() || *next == b'/',
            byte => byte.is_ascii_alphanumeric() || b"_./@-".contains(byte),
        })
}

/// A text in double quotes, with JSON's escapes, which YAML shares. Invisible characters are escaped, too.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    let mut out = String::with_capacity(json.len());
    for one in json.chars() {
        match u32::from(one) {
            code @ (0x7f..=0xa0
            | 0xad
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0xfeff
            | 0xfff0..=0xffff) => {
                let _ = write!(out, "\\u{code:04x}");
            }
            code @ (0xe0000..=0xe0fff) => {
                let _ = write!(out, "\\U{code:08x}");
            }
            _ => out.push(one),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use handoffd_gate::contract::document::Document;

    fn reread(value: &Map<String, Value>) -> Value {
        let text = document(value);
        Document::parse_large(&text).unwrap_or_else(|err| panic!("{err}:\n{text}")).value().clone()
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("JSON has none", |one| one.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z0-9 :#'\"\\-\n.~/|>%@&*!?{}\\[\\],]{0,12}".prop_map(Value::from),
            "(true|No|null|~|1e3|0x1f|1_000|2020-01-01|<<|=|-|---|\\.\\.\\.|:)"
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = prop_oneof!["[a-zA-Z0-9 :#~-]{0,6}", any::<String>()];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_value_is_read_back_as_it_was(value in value()) {
            let whole = Map::from_iter([("kind".to_owned(), json!("X")), ("v".to_owned(), value)]);
            prop_assert_eq!(reread(&whole), Value::Object(whole));
        }
    }

    #[test]
    fn a_document_reads_as_a_person_would_write_it() {
        let value = json!({
            "list": [{ "b": 1, "a": "x y" }, [], ["no", "perm:refund:read"]],
            "kind": "Agent", "empty": {}, "at": { "url": "http://127.0.0.1:1/x" },
        });
        let wanted = "kind: Agent\nat:\n  url: http://127.0.0.1:1/x\nempty: {}\nlist:\n  - a: x y\n    b: 1\n  - []\n  -\n    - \"no\"\n    - perm:refund:read\n";
        assert_eq!(document(value.as_object().unwrap()), wanted);
    }
}
