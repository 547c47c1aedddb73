//! RFC 8785 (JSON Canonicalization Scheme): the bytes that are signed, hashed and compared.
//!
//! A message is needed in several shapes (whole, without `signature`, without `checkpoint` …).
//! [`CanonicalObject`] canonicalises each top-level member once and puts the shapes together by
//! copying byte ranges.

use std::ops::Range;

use serde_json::{Map, Number, Value};

/// Deepest nesting of arrays and objects in a document, the top-level object counted (specification §2.2).
pub const MAX_DEPTH: usize = 64;

/// The arrays and objects that lie within one another in a value; 0 for a scalar.
#[must_use]
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The canonical form of any JSON value, as UTF-8 bytes (RFC 8785, §3.2).
///
/// Integers are written as the IEEE 754 double they denote, so beyond ±(2^53−1) two values can share
/// one form; `json` refuses such literals at the door.
///
/// # Panics
///
/// Never on data: a [`Value`] holds finite numbers and string keys alone, and the sink is memory.
#[must_use]
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

/// Appends the canonical form of a value. `serde_json_canonicalizer` formats every number that is not a small integer, and
/// the tests hold the rest to it: it parses each name again in order to sort it, and a record has some fifty.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (place, (name, member)) in in_order(members).enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write(member, out);
            }
            out.push(b'}');
        }
    }
}

/// The members of an object by the UTF-16 code units of their names (RFC 8785, §3.2.3).
fn in_order(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    // Up to U+DFFF the order of UTF-8 is that of UTF-16, and a map has its names in the order of UTF-8.
    let is_alike = |name: &String| name.bytes().all(|byte| byte < 0xee);
    let sorted = (!members.keys().all(is_alike) || !members.keys().is_sorted()).then(|| {
        let mut entries: Vec<_> = members.iter().collect();
        entries.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
        entries
    });
    let as_they_are = sorted.is_none().then(|| members.iter());
    sorted.into_iter().flatten().chain(as_they_are.into_iter().flatten())
}

/// RFC 8785, §3.2.2.2: the escapes are those that `serde_json` writes.
fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("memory takes any text");
}

/// RFC 8785, §3.2.2.3. The digits of a double's integer are its own up to 2^53.
fn write_number(number: &Number, out: &mut Vec<u8>) {
    const EXACT: u64 = 1 << 53;
    let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
    if size.is_some_and(|size| size <= EXACT) {
        serde_json::to_writer(out, number).expect("memory takes any number");
    } else {
        serde_json_canonicalizer::to_writer(number, out).expect("a JSON number is finite");
    }
}

/// One top-level member within the buffer.
#[derive(Debug, Clone)]
struct Member {
    name: String,
    /// `"name":value`, without any comma.
    entry: Range<usize>,
    /// The offset of `value`, which ends with the entry.
    value: usize,
}

/// The canonical form of an object, kept so that shapes without some members cost a copy only.
#[derive(Debug, Clone)]
pub struct CanonicalObject {
    /// The whole canonical object, braces and commas included.
    buffer: Vec<u8>,
    /// In the order of RFC 8785, §3.2.3: by UTF-16 code units of the name.
    members: Vec<Member>,
}

impl CanonicalObject {
    /// Canonicalises every member of `object` once.
    #[must_use]
    pub fn new(object: &Map<String, Value>) -> Self {
        Self::of(in_order(object).map(|(name, value)| (name, move |out: &mut _| write(value, out))))
    }

    /// An object of members in their canonical order, each value in its canonical form.
    #[must_use]
    pub fn of_members(sorted: impl Iterator<Item = (String, Vec<u8>)>) -> Self {
        Self::of(sorted.map(|(name, content)| {
            (name, move |out: &mut Vec<u8>| out.extend_from_slice(&content))
        }))
    }

    /// An object of members in their canonical order, each with what appends its value.
    fn of(sorted: impl Iterator<Item = (impl Into<String>, impl FnOnce(&mut Vec<u8>))>) -> Self {
        let mut buffer = vec![b'{'];
        let mut members = Vec::new();
        for (name, content) in sorted {
            let name = name.into();
            if !members.is_empty() {
                buffer.push(b',');
            }
            let start = buffer.len();
            write_text(&name, &mut buffer);
            buffer.push(b':');
            let value = buffer.len();
            content(&mut buffer);
            members.push(Member { name, entry: start..buffer.len(), value });
        }
        buffer.push(b'}');
        Self { buffer, members }
    }

    /// The same for a value; `None` unless it is an object.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        value.as_object().map(Self::new)
    }

    /// The canonical bytes of the whole object, borrowed.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The canonical bytes of the whole object.
    #[must_use]
    pub fn all(&self) -> Vec<u8> {
        self.buffer.clone()
    }

    /// The canonical bytes of the object without the top-level members in `names`; names that do not
    /// occur change nothing.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.buffer.len());
        out.push(b'{');
        for member in &self.members {
            if names.contains(&member.name.as_str()) {
                continue;
            }
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&self.buffer[member.entry.clone()]);
        }
        out.push(b'}');
        out
    }

    /// The top-level members in order, each with its name and its canonical `"name":value`.
    pub fn members(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.members.iter().map(|one| (one.name.as_str(), &self.buffer[one.entry.clone()]))
    }

    /// The canonical bytes of one top-level member's value.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&[u8]> {
        let member = self.members.iter().find(|member| member.name == name)?;
        Some(&self.buffer[member.value..member.entry.end])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn vectors() -> Vec<(String, Value, Vec<u8>)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/jcs");
        ["arrays", "french", "structures", "unicode", "values", "weird"]
            .into_iter()
            .map(|name| {
                let file = format!("{name}.json");
                let input = std::fs::read(root.join("input").join(&file)).expect("input");
                let output = std::fs::read(root.join("output").join(&file)).expect("output");
                (name.to_owned(), serde_json::from_slice(&input).expect("JSON"), output)
            })
            .collect()
    }

    #[test]
    fn the_rfc_8785_vectors_come_out_byte_for_byte() {
        for (name, value, expected) in vectors() {
            assert_eq!(to_vec(&value), expected, "{name}");
            if let Some(object) = CanonicalObject::from_value(&value) {
                assert_eq!(object.all(), expected, "{name}, assembled");
            }
        }
    }

    #[test]
    fn members_are_ordered_by_utf16_code_units() {
        // U+1F600 is d83d de00 in UTF-16 and so comes before U+FB33, unlike in UTF-8.
        let object = json!({"\u{fb33}": 1, "\u{1f600}": 2});
        let canonical = CanonicalObject::from_value(&object).expect("object");
        assert_eq!(canonical.all(), "{\"\u{1f600}\":2,\"\u{fb33}\":1}".as_bytes());
    }

    #[test]
    fn a_member_is_found_by_its_name_and_gives_its_value_bytes() {
        let canonical = CanonicalObject::from_value(&json!({"b": {"d": 1.0, "c": []}, "a": null}))
            .expect("object");
        assert_eq!(canonical.member("b"), Some(&br#"{"c":[],"d":1}"#[..]));
        assert_eq!(canonical.member("z"), None);
        assert_eq!(canonical.without(&["b", "a"]), b"{}");
        assert_eq!(canonical.as_bytes(), canonical.all());
    }

    #[test]
    fn only_objects_have_members() {
        assert!(CanonicalObject::from_value(&json!([1])).is_none());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn names_beyond_the_surrogates_and_numbers_beyond_a_double_are_written_as_the_library_does() {
        let value = json!({
            "\u{e000}": 9_007_199_254_740_993_u64, "\u{10000}": u64::MAX, "\u{d7ff}": i64::MIN, "\u{ffff}": -0.0, "a\"": 1e21,
            "": [1.0, 0.1, 9_007_199_254_740_992_u64, -9_007_199_254_740_992_i64], "\u{0}\u{7f}\u{80}": {"\u{1f600}": {}, "\u{fb33}": []},
        });
        assert_eq!(to_vec(&value), serde_json_canonicalizer::to_vec(&value).expect("JSON"));
    }

    proptest! {
        #[test]
        fn the_form_is_that_of_the_library(value in any_value()) {
            prop_assert_eq!(to_vec(&value), serde_json_canonicalizer::to_vec(&value).expect("JSON"));
        }

        #[test]
        fn without_equals_canonicalising_the_rest(
            map in prop::collection::btree_map(any::<String>(), any_value(), 0..8),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let map: Map<String, Value> = map.into_iter().collect();
            let names: Vec<String> = map.keys().cloned().collect();
            let removed: Vec<&str> = if names.is_empty() { vec!["absent"] } else {
                picks.iter().map(|pick| pick.get(&names).as_str()).collect()
            };
            let mut rest = map.clone();
            for name in &removed {
                rest.remove(*name);
            }
            let canonical = CanonicalObject::new(&map);
            prop_assert_eq!(canonical.without(&removed), to_vec(&Value::Object(rest)));
            for (name, value) in &map {
                let expected = to_vec(value);
                prop_assert_eq!(canonical.member(name), Some(expected.as_slice()));
            }
            prop_assert_eq!(canonical.all(), to_vec(&Value::Object(map)));
        }
    }
}
