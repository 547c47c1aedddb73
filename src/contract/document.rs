//! A contract's text, YAML or JSON, as a value with the place of each of its parts: what a finding
//! points at.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

/// The largest contract, in bytes.
pub const MAX_TEXT: usize = 256 * 1024;
/// The largest registry, in bytes.
const MAX_REGISTRY: usize = 64 * 1024 * 1024;
/// The most nodes of a contract.
const MAX_NODES: usize = 20_000;

/// A place in a text; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl Place {
    /// Where a text begins.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// Why a text is no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unreadable {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub message: String,
}

/// A text that was read.
#[derive(Debug, Clone)]
pub struct Document {
    value: Value,
    places: BTreeMap<String, Place>,
    commented: Vec<bool>,
}

impl Document {
    /// Reads YAML or JSON: one document, no key twice, within bounds of size and depth.
    ///
    /// # Errors
    /// [`Unreadable`], with the place.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        Self::parse_within(text, MAX_TEXT, MAX_NODES)
    }

    /// Reads a document that may be as large as a registry of a whole system.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn parse_large(text: &str) -> Result<Self, Unreadable> {
        Self::parse_within(text, MAX_REGISTRY, MAX_REGISTRY)
    }

    fn parse_within(text: &str, most: usize, nodes: usize) -> Result<Self, Unreadable> {
        let refuse = |message: String| Unreadable { place: Place::START, message };
        if text.len() > most {
            return Err(refuse(format!("larger than {most} bytes")));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let node = match serde_saphyr::from_str_with_options::<Node>(text, options(nodes)) {
            Ok(node) => node,
            // JSON knows escapes that YAML does not (a pair of surrogates); places are lost then.
            Err(err) => match serde_json::from_str::<Value>(text) {
                Ok(value) => return Ok(Self::from_value(value)),
                Err(_) => return Err(unreadable(&err)),
            },
        };
        let mut places = BTreeMap::new();
        let value = node.settle(&mut String::new(), &mut places);
        Ok(Self { value, places, commented: text.lines().map(has_comment).collect() })
    }

    /// A value without a text: every place is its beginning.
    #[must_use]
    pub const fn from_value(value: Value) -> Self {
        Self { value, places: BTreeMap::new(), commented: Vec::new() }
    }

    /// What it says.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Where `pointer` (RFC 6901) stands: its key, or the nearest that is there above it.
    #[must_use]
    pub fn place(&self, pointer: &str) -> Place {
        let mut at = pointer;
        loop {
            if let Some(place) = self.places.get(at) {
                return *place;
            }
            match at.rfind('/') {
                Some(end) => at = &at[..end],
                None => return Place::START,
            }
        }
    }

    /// Whether the line of `pointer`, or the one above it, carries a comment (YAML only).
    #[must_use]
    pub fn is_commented(&self, pointer: &str) -> bool {
        let Some(place) = self.places.get(pointer) else { return false };
        let line = usize::try_from(place.line).unwrap_or(usize::MAX);
        [line, line.wrapping_sub(1)]
            .into_iter()
            .any(|line| self.commented.get(line.wrapping_sub(1)).copied().unwrap_or(false))
    }
}

/// A comment with words in it, at the line's end or alone.
fn has_comment(line: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') if before.is_whitespace() => quote = Some(c),
            (None, '#') if before.is_whitespace() => {
                return line[at..].chars().any(char::is_alphanumeric);
            }
            _ => {}
        }
        before = c;
    }
    false
}

fn options(nodes: usize) -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    let mut budget = options.budget.take().unwrap_or_default();
    budget.max_events = nodes.saturating_mul(3);
    budget.max_nodes = nodes;
    budget.max_aliases = 100;
    budget.max_anchors = 100;
    budget.max_depth = 64;
    budget.max_documents = 1;
    budget.max_total_scalar_bytes = MAX_REGISTRY;
    options.budget = Some(budget);
    options.strict_booleans = true;
    options
}

fn unreadable(err: &serde_saphyr::Error) -> Unreadable {
    let place = err
        .location()
        .map_or(Place::START, |at| Place { line: at.line().max(1), column: at.column().max(1) });
    let text = err.without_snippet().to_string();
    let message = text.lines().next().unwrap_or("it cannot be read").chars().take(300).collect();
    Unreadable { place, message }
}

/// A value with its places.
struct Node {
    shape: Shape,
    place: Place,
}

enum Shape {
    Plain(Value),
    List(Vec<Node>),
    Object(Vec<(String, Place, Node)>),
}

impl Node {
    fn settle(self, pointer: &mut String, places: &mut BTreeMap<String, Place>) -> Value {
        places.entry(pointer.clone()).or_insert(self.place);
        let length = pointer.len();
        match self.shape {
            Shape::Plain(value) => value,
            Shape::List(items) => Value::Array(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| {
                        pointer.push('/');
                        pointer.push_str(&at.to_string());
                        let value = item.settle(pointer, places);
                        pointer.truncate(length);
                        value
                    })
                    .collect(),
            ),
            Shape::Object(members) => {
                let mut object = Map::new();
                for (name, place, member) in members {
                    pointer.push('/');
                    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    places.insert(pointer.clone(), place);
                    let value = member.settle(pointer, places);
                    pointer.truncate(length);
                    object.insert(name, value);
                }
                Value::Object(object)
            }
        }
    }
}

fn place_of<T>(spanned: &Spanned<T>) -> Place {
    let at = &spanned.referenced;
    Place { line: at.line().max(1), column: at.column().max(1) }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Shape>::deserialize(from)?;
        let place = place_of(&spanned);
        Ok(Self { shape: spanned.value, place })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON knows")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Plain(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Shape, E> {
        let number = serde_json::Number::from_f64(value)
            .ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Shape::Plain(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Plain(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Shape, D::Error> {
        Shape::deserialize(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Node>()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Shape, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            let place = place_of(&key);
            object.push((key.value, place, members.next_value::<Node>()?));
        }
        Ok(Shape::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn yaml_and_json_say_the_same_and_know_where() {
        let yaml = Document::parse(
            "id: a\nrecovery:\n  max_retries: 2 # why\n  on_reject: no\nlist: [x, 1.5, null]\n",
        )
        .unwrap();
        let json = Document::parse(
            "{\n \"id\": \"a\",\n \"recovery\": {\"max_retries\": 2, \"on_reject\": \"no\"},\n\t\"list\": [\"x\", 1.5, null]\n}",
        )
        .unwrap();
        assert_eq!(yaml.value(), json.value());
        assert_eq!(yaml.place("/recovery/max_retries"), Place { line: 3, column: 3 });
        assert_eq!(yaml.place("/recovery/absent/deep"), Place { line: 2, column: 1 });
        assert_eq!(json.place("/recovery/on_reject").line, 3);
        assert!(yaml.is_commented("/recovery/max_retries"));
        assert!(!yaml.is_commented("/id"));
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        for (text, line) in [("a: 1\nb: [\n", 2), ("a: 1\na: 2\n", 2), ("a: 1\n b: 2\n", 2)] {
            let err = Document::parse(text).unwrap_err();
            assert!(err.place.line >= line, "{text:?}: {err:?}");
        }
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        assert!(Document::parse(bomb).is_err());
        assert!(Document::parse(&"[".repeat(5_000)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_text_is_a_document_or_an_error(text in "\\PC{0,300}") {
            let _ = Document::parse(&text);
        }
    }
}
