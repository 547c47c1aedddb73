//! A contract's text, YAML or JSON, as a value with the place of each of its parts: what a finding
//! points at.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use handoffd_domain::json;

/// The largest contract, in bytes.
pub const MAX_TEXT: usize = 256 * 1024;
/// The largest registry, in bytes.
const MAX_REGISTRY: usize = 64 * 1024 * 1024;
/// The most nodes of a contract.
const MAX_NODES: usize = 20_000;
/// How deep a document may nest.
const MAX_DEPTH: usize = 64;
/// The stack on which a document is read, in bytes: many times what this depth takes in a build without optimization,
/// whatever thread asks.
const STACK: usize = 32 * 1024 * 1024;

/// A position in a text; line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentPosition {
    /// Line number, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl DocumentPosition {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocumentError {
    pub place: DocumentPosition,
    /// The error as a sentence.
    pub message: String,
}

/// A parsed document with the position of each value.
#[derive(Debug, Clone)]
pub struct Document {
    value: Value,
    places: BTreeMap<String, DocumentPosition>,
    /// One a line.
    comments: Vec<Option<LineComment>>,
}

/// A comment with words in it.
#[derive(Debug, Clone)]
struct LineComment {
    text: String,
    /// It has the line for itself.
    alone: bool,
}

impl Document {
    /// Reads YAML or JSON: one document, no key twice, within bounds of size and depth.
    ///
    /// # Errors
    /// [`DocumentError`], with the place.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        Self::parse_within(text, MAX_TEXT, MAX_NODES)
    }

    /// Reads a document that may be as large as a registry of a whole system.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn parse_large(text: &str) -> Result<Self, DocumentError> {
        Self::parse_within(text, MAX_REGISTRY, MAX_REGISTRY)
    }

    fn parse_within(text: &str, most: usize, nodes: usize) -> Result<Self, DocumentError> {
        let refuse = |message: String| DocumentError { place: DocumentPosition::START, message };
        if text.len() > most {
            return Err(refuse(format!("larger than {most} bytes")));
        }
        std::thread::scope(|scope| {
            let reading = std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || Self::parse_here(text, nodes))
                .map_err(|err| refuse(format!("it cannot be read now: {err}")))?;
            reading.join().unwrap_or_else(|_| Err(refuse("it cannot be read".to_owned())))
        })
    }

    fn parse_here(text: &str, nodes: usize) -> Result<Self, DocumentError> {
        let refuse = |message: String| DocumentError { place: DocumentPosition::START, message };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let node = match serde_saphyr::from_str_with_options::<PositionedNode>(text, options(nodes))
        {
            Ok(node) => node,
            // JSON knows escapes that YAML does not (a pair of surrogates); places are lost then.
            Err(err) => match json::parse(text.as_bytes()) {
                Ok(value) => return Ok(Self::from_value(value)),
                Err(fault) if !fault.failure().pointer.is_empty() => {
                    return Err(refuse(fault.to_string()));
                }
                Err(_) => return Err(unreadable(&err)),
            },
        };
        let mut places = BTreeMap::new();
        let value = node.settle(&mut String::new(), &mut places);
        Ok(Self { value, places, comments: text.lines().map(comment_of).collect() })
    }

    /// A document from a value: every position is [`DocumentPosition::START`].
    #[must_use]
    pub const fn from_value(value: Value) -> Self {
        Self { value, places: BTreeMap::new(), comments: Vec::new() }
    }

    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Position of the key at `pointer` (RFC 6901), or of its nearest existing ancestor.
    #[must_use]
    pub fn place(&self, pointer: &str) -> DocumentPosition {
        let mut at = pointer;
        loop {
            if let Some(place) = self.places.get(at) {
                return *place;
            }
            match at.rfind('/') {
                Some(end) => at = &at[..end],
                None => return DocumentPosition::START,
            }
        }
    }

    /// The comment on the line of `pointer`, or else the one above it, with all its lines (YAML only).
    #[must_use]
    pub fn comment(&self, pointer: &str) -> Option<String> {
        let place = self.places.get(pointer)?;
        let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
        let on = |line: usize| self.comments.get(line).and_then(Option::as_ref);
        if let Some(own) = on(line) {
            return Some(own.text.clone());
        }
        let last = on(line.checked_sub(1)?)?;
        let mut block = vec![last.text.as_str()];
        if last.alone {
            let above = (0..line - 1).rev().map_while(|line| on(line).filter(|one| one.alone));
            block.extend(above.map(|one| one.text.as_str()));
        }
        block.reverse();
        Some(block.join(" "))
    }
}

/// A comment with words in it, at the line's end or alone.
fn comment_of(line: &str) -> Option<LineComment> {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') if before.is_whitespace() => quote = Some(c),
            (None, '#') if before.is_whitespace() => {
                let text = line[at..].trim_matches(|c: char| c == '#' || c.is_whitespace());
                let alone = line[..at].trim().is_empty();
                let words = text.chars().any(char::is_alphanumeric);
                return words.then(|| LineComment { text: text.to_owned(), alone });
            }
            _ => {}
        }
        before = c;
    }
    None
}

fn options(nodes: usize) -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    let mut budget = options.budget.take().unwrap_or_default();
    budget.max_events = nodes.saturating_mul(3);
    budget.max_nodes = nodes;
    budget.max_aliases = 100;
    budget.max_anchors = 100;
    budget.max_depth = MAX_DEPTH;
    budget.max_documents = 1;
    budget.max_total_scalar_bytes = MAX_REGISTRY;
    options.budget = Some(budget);
    options.strict_booleans = true;
    options
}

fn unreadable(err: &serde_saphyr::Error) -> DocumentError {
    let place = err.location().map_or(DocumentPosition::START, |at| DocumentPosition {
        line: at.line().max(1),
        column: at.column().max(1),
    });
    let text = err.without_snippet().to_string();
    let message = text.lines().next().unwrap_or("it cannot be read").chars().take(300).collect();
    DocumentError { place, message }
}

/// A value with its positions.
struct PositionedNode {
    shape: DocumentShape,
    place: DocumentPosition,
}

enum DocumentShape {
    Plain(Value),
    List(Vec<PositionedNode>),
    Object(Vec<(String, DocumentPosition, PositionedNode)>),
}

impl PositionedNode {
    fn settle(
        self,
        pointer: &mut String,
        places: &mut BTreeMap<String, DocumentPosition>,
    ) -> Value {
        places.entry(pointer.clone()).or_insert(self.place);
        let length = pointer.len();
        match self.shape {
            DocumentShape::Plain(value) => value,
            DocumentShape::List(items) => Value::Array(
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
            DocumentShape::Object(members) => {
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

fn place_of<T>(spanned: &Spanned<T>) -> DocumentPosition {
    let at = &spanned.referenced;
    DocumentPosition { line: at.line().max(1), column: at.column().max(1) }
}

impl<'de> Deserialize<'de> for PositionedNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<DocumentShape>::deserialize(from)?;
        let place = place_of(&spanned);
        Ok(Self { shape: spanned.value, place })
    }
}

impl<'de> Deserialize<'de> for DocumentShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = DocumentShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON knows")
    }

    fn visit_bool<E>(self, value: bool) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<DocumentShape, E> {
        let number = serde_json::Number::from_f64(value)
            .ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(DocumentShape::Plain(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<DocumentShape, E> {
        Ok(DocumentShape::Plain(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<DocumentShape, D::Error> {
        DocumentShape::deserialize(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<DocumentShape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<PositionedNode>()? {
            list.push(item);
        }
        Ok(DocumentShape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<DocumentShape, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            let place = place_of(&key);
            object.push((key.value, place, members.next_value::<PositionedNode>()?));
        }
        Ok(DocumentShape::Object(object))
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
        assert_eq!(yaml.place("/recovery/max_retries"), DocumentPosition { line: 3, column: 3 });
        assert_eq!(yaml.place("/recovery/absent/deep"), DocumentPosition { line: 2, column: 1 });
        assert_eq!(json.place("/recovery/on_reject").line, 3);
        assert_eq!(yaml.comment("/recovery/max_retries").as_deref(), Some("why"));
        assert_eq!(yaml.comment("/id"), None);
    }

    #[test]
    fn a_comment_is_the_one_on_the_line_or_the_block_above_it() {
        let text = "# about all\n\n# First,\n#   second.\na: 1\nb: '# no' # own\n# ---\nc: 3\nd: 4 # of d\ne: 5\n";
        let document = Document::parse(text).unwrap();
        let comments = ["/a", "/b", "/c", "/d", "/e"].map(|at| document.comment(at));
        let wanted = [Some("First, second."), Some("own"), None, Some("of d"), Some("of d")];
        assert_eq!(comments, wanted.map(|text| text.map(str::to_owned)));
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

    /// Finding S10 of 0.3.0: on a stack as small as any thread has, in a build without optimization.
    #[test]
    fn the_deepest_document_is_read_and_a_deeper_one_refused_on_a_small_stack() {
        let small = std::thread::Builder::new().stack_size(256 * 1024);
        let flow = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let block = |depth: usize| format!("{}1\n", "- ".repeat(depth));
        let mapping = |depth: usize| {
            let line = |at: usize| format!("{}a:\n", " ".repeat(at));
            format!("{}{}1\n", (0..depth).map(line).collect::<String>(), " ".repeat(depth))
        };
        let run = move || {
            for of in [&flow as &dyn Fn(usize) -> String, &block, &mapping] {
                assert!(Document::parse(&of(MAX_DEPTH - 4)).is_ok(), "{}", of(3));
                assert!(Document::parse(&of(300)).is_err(), "{}", of(3));
                assert!(Document::parse_large(&of(5_000)).is_err());
            }
            // No JSON, which has a bound of its own.
            for of in [&block as &dyn Fn(usize) -> String, &mapping] {
                assert!(Document::parse(&of(100)).is_err(), "{}", of(3));
            }
        };
        small.spawn(run).unwrap().join().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_text_is_a_document_or_an_error(text in "\\PC{0,300}") {
            let _ = Document::parse(&text);
        }
    }
}
