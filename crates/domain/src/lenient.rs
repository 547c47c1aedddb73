//! A receiver's verdict, read status first: what is unreadable in a text beside it does not undo it (specification §3).
//!
//! The strict reader (`domain::json`) reads first, and a body that it accepts is taken as it is. A body that it refuses is
//! read again here: an escape of half a character, bytes that are not UTF-8, a word such as `NaN`, a number that a double
//! cannot hold, nesting without end, a member that occurs twice. Structure is not guessed: brackets, quotes, colons and
//! commas have to fit. Nothing recurses over the body, and cost is linear in it.

use std::ops::Range;

use serde_json::{Map, Number, Value, json};

use super::canonical::{self, CanonicalObject};
use super::json::{self, MAX_DEPTH, MAX_SAFE_INTEGER, MAX_VALUES, push_segment};

/// Most places that are named one by one.
const MAX_NAMED: usize = 20;

/// The member of a record's content under which the broker's own words stand, as in a message's `extensions`.
pub const OWN: &str = "handoffd";

/// Why a part of a document cannot be kept as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// An escape of half a character (`\ud800`).
    LoneSurrogate,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A backslash before what it does not escape.
    Escape,
    /// A word that is not a JSON value, as `NaN`, or a number out of a double's range.
    NoValue,
    /// An integer that a double does not hold.
    LargeInteger,
    /// More than [`MAX_DEPTH`] arrays and objects within one another.
    Nesting,
    /// A member that occurs twice in an object; the last one is kept.
    Repeated,
    /// A value of a form that its member does not take, if no one can be told.
    Form,
    /// The same, kept as its JSON text.
    FormAsText,
}

impl Why {
    /// The code in a record's content.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoneSurrogate => "LONE_SURROGATE",
            Self::NotUtf8 => "NOT_UTF8",
            Self::Escape => "UNKNOWN_ESCAPE",
            Self::NoValue => "NO_VALUE",
            Self::LargeInteger => "LARGE_INTEGER",
            Self::Nesting => "NESTING",
            Self::Repeated => "REPEATED",
            Self::Form | Self::FormAsText => "FORM",
        }
    }

    /// Whether the part is dropped; else a value replaces it.
    #[must_use]
    pub const fn drops(self) -> bool {
        matches!(self, Self::NoValue | Self::Nesting | Self::Repeated | Self::Form)
    }

    /// The same in a sentence, for the caller.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::LoneSurrogate => {
                "half a character (a lone surrogate) is kept as U+FFFD: JSON texts are Unicode"
            }
            Self::NotUtf8 => "bytes that are not UTF-8 are kept as U+FFFD",
            Self::Escape => "an escape that JSON does not have is kept as U+FFFD",
            Self::NoValue => "is not a JSON value, or a number out of a double's range: dropped",
            Self::LargeInteger => "is an integer that a double does not hold: kept as a text",
            Self::Nesting => "nests deeper than the broker keeps: dropped",
            Self::Repeated => "is stated twice in one object: the last one is kept",
            Self::Form => "has not the form that its member takes: dropped",
            Self::FormAsText => "has not the form that its member takes: kept as its JSON text",
        }
    }
}

/// A part that could not be kept as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// JSON pointer of the part.
    pub pointer: String,
    pub why: Why,
}

/// The parts that could not be kept, in the order of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadableParts {
    /// The first ones.
    pub named: Vec<Unreadable>,
    /// How many there are in all.
    pub count: usize,
}

impl UnreadableParts {
    /// Adds a part.
    pub fn add(&mut self, pointer: &str, why: Why) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(Unreadable { pointer: pointer.to_owned(), why });
        }
    }

    /// Whether everything was kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those within members of these names.
    #[must_use]
    pub fn within(mut self, names: &[&str]) -> Self {
        let before = self.named.len();
        self.named.retain(|one| {
            let first = one.pointer.split('/').nth(1).unwrap_or_default();
            names.contains(&first)
        });
        self.count -= before - self.named.len();
        if self.named.is_empty() {
            self.count = 0;
        }
        self
    }

    /// Writes what was not kept into a record's content, so that the record says so.
    pub fn note_in(&self, content: &mut Map<String, Value>) {
        if let Some(note) = self.note() {
            content.insert(OWN.to_owned(), note);
        }
    }

    /// The parts that were not kept, in the form of [`OWN`]; `None` if all were.
    #[must_use]
    pub fn note(&self) -> Option<Value> {
        if self.is_empty() {
            return None;
        }
        let parts = self.named.iter().map(|one| {
            let kept = if one.why.drops() { "DROPPED" } else { "REPLACED" };
            json!({ "pointer": one.pointer, "why": one.why.as_str(), "kept": kept })
        });
        let parts: Vec<_> = parts.collect();
        Some(json!({ "unreadable": parts, "unreadableCount": self.count }))
    }
}

/// An object that was read.
#[derive(Debug)]
pub struct Lenient<'b> {
    /// Its members, as they are kept.
    pub members: Map<String, Value>,
    pub unreadable: UnreadableParts,
    /// Only where the strict reader refused it.
    tree: Option<Tree<'b>>,
}

impl<'b> Lenient<'b> {
    /// Reads an object; a byte order mark before it counts for nothing.
    ///
    /// Returns `None` where its structure is broken, or it has more than [`MAX_VALUES`] values.
    #[must_use]
    pub fn read(bytes: &'b [u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if let Ok(Value::Object(members)) = json::parse(bytes) {
            return Some(Self { members, unreadable: UnreadableParts::default(), tree: None });
        }
        let tree = Tree::parse(bytes)?;
        let mut unreadable = UnreadableParts::default();
        let Some(Value::Object(members)) = tree.value(ROOT, 1, &mut String::new(), &mut unreadable)
        else {
            return None;
        };
        Some(Self { members, unreadable, tree: Some(tree) })
    }

    /// Whether a member of this name stands more than once: its values may differ.
    #[must_use]
    pub fn repeats(&self, name: &str) -> bool {
        let Some(tree) = &self.tree else { return false };
        let Kind::Object(members) = &tree.nodes[ROOT].kind else { return false };
        members.iter().filter(|(key, _)| tree.text(key).0 == name).count() > 1
    }

    /// The canonical form (RFC 8785) of the object as it came, for its signature: half a character as the escape that it
    /// came as, which is how JavaScript writes it, and words that are no value as they came.
    #[must_use]
    pub fn canonical(&self) -> CanonicalObject {
        let Some(tree) = &self.tree else { return CanonicalObject::new(&self.members) };
        let Kind::Object(members) = &tree.nodes[ROOT].kind else {
            return CanonicalObject::new(&self.members);
        };
        let members = tree.sorted(members).into_iter().map(|(key, node)| {
            let (name, ..) = tree.text(&key);
            (name, tree.canonical(node))
        });
        CanonicalObject::of_members(members)
    }
}

/// The byte range of the value under these names in a document of objects; `None` if a name is absent or repeated, or the
/// structure is broken.
#[must_use]
pub fn place_of(bytes: &[u8], names: &[&str]) -> Option<Range<usize>> {
    let tree = Tree::parse(bytes)?;
    let mut at = ROOT;
    for name in names {
        let Kind::Object(members) = &tree.nodes.get(at)?.kind else { return None };
        let mut found = members.iter().filter(|(key, _)| tree.text(key).0 == *name);
        let ((_, node), None) = (found.next()?, found.next()) else { return None };
        at = *node;
    }
    Some(tree.nodes.get(at)?.range.clone())
}

/// The elements of an array, or the one value that is there, each as the bytes that it came as. `None` where the structure
/// is broken.
#[must_use]
pub fn elements(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let tree = Tree::parse(bytes)?;
    let root = &tree.nodes[ROOT];
    Some(match &root.kind {
        Kind::List(items) => {
            items.iter().map(|item| &bytes[tree.nodes[*item].range.clone()]).collect()
        }
        _ => vec![&bytes[root.range.clone()]],
    })
}

/// The index of a tree's first node.
const ROOT: usize = 0;

/// A value of a document: its range and its content. Values lie in one list, so that none is within another in memory and
/// nesting costs no stack.
#[derive(Debug)]
struct Node {
    range: Range<usize>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text,
    /// A number, `true`, `false`, `null`, or any other word.
    Word,
    List(Vec<usize>),
    /// Each member by the place of its name, quotes included.
    Object(Vec<(Range<usize>, usize)>),
}

#[derive(Debug)]
struct Tree<'b> {
    bytes: &'b [u8],
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
}

impl<'b> Tree<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut tree = Self { bytes, nodes: Vec::new() };
        let (mut open, mut names): (Vec<usize>, Vec<Range<usize>>) = (Vec::new(), Vec::new());
        let (mut at, mut next) = (0, Next::Value);
        loop {
            while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
            let Some(&byte) = bytes.get(at) else {
                return (open.is_empty() && !tree.nodes.is_empty()).then_some(tree);
            };
            if open.is_empty() && !tree.nodes.is_empty() {
                return None;
            }
            match (next, byte) {
                (Next::Colon, b':') => {
                    next = Next::Value;
                    at += 1;
                }
                (Next::Name | Next::NameOrEnd, b'"') => {
                    let end = text_end(bytes, at)?;
                    names.push(at..end);
                    at = end;
                    next = Next::Colon;
                }
                (Next::CommaOrEnd, b',') => {
                    let Kind::Object(_) = tree.nodes[*open.last()?].kind else {
                        next = Next::Value;
                        at += 1;
                        continue;
                    };
                    next = Next::Name;
                    at += 1;
                }
                (Next::CommaOrEnd | Next::ValueOrEnd | Next::NameOrEnd, b']' | b'}') => {
                    let node = &mut tree.nodes[open.pop()?];
                    let closes = matches!(node.kind, Kind::Object(_)) == (byte == b'}');
                    if !closes {
                        return None;
                    }
                    at += 1;
                    node.range.end = at;
                    next = Next::CommaOrEnd;
                }
                (Next::Value | Next::ValueOrEnd, _) => {
                    let (kind, end) = match byte {
                        b'[' => (Kind::List(Vec::new()), at + 1),
                        b'{' => (Kind::Object(Vec::new()), at + 1),
                        b'"' => (Kind::Text, text_end(bytes, at)?),
                        _ => (Kind::Word, word_end(bytes, at)?),
                    };
                    let node = tree.nodes.len();
                    if node > MAX_VALUES {
                        return None;
                    }
                    match open.last().map(|parent| &mut tree.nodes[*parent].kind) {
                        Some(Kind::List(items)) => items.push(node),
                        Some(Kind::Object(members)) => members.push((names.pop()?, node)),
                        _ => {}
                    }
                    next = match kind {
                        Kind::List(_) => Next::ValueOrEnd,
                        Kind::Object(_) => Next::NameOrEnd,
                        _ => Next::CommaOrEnd,
                    };
                    if matches!(kind, Kind::List(_) | Kind::Object(_)) {
                        open.push(node);
                    }
                    tree.nodes.push(Node { range: at..end, kind });
                    at = end;
                }
                _ => return None,
            }
        }
    }

    /// A value as it is kept, `depth` levels down; `None` where it is dropped.
    fn value(
        &self,
        node: usize,
        depth: usize,
        pointer: &mut String,
        unreadable: &mut UnreadableParts,
    ) -> Option<Value> {
        let node = &self.nodes[node];
        let short = pointer.len();
        match &node.kind {
            Kind::Text => {
                let (text, why) = self.text(&node.range);
                if let Some(why) = why {
                    unreadable.add(pointer, why);
                }
                Some(Value::String(text))
            }
            Kind::Word => {
                let (value, why) = word(&self.bytes[node.range.clone()]);
                if let Some(why) = why {
                    unreadable.add(pointer, why);
                }
                value
            }
            Kind::List(_) | Kind::Object(_) if depth > MAX_DEPTH => {
                unreadable.add(pointer, Why::Nesting);
                None
            }
            Kind::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (place, item) in items.iter().enumerate() {
                    push_segment(pointer, &place.to_string());
                    // Others keep their places.
                    list.push(
                        self.value(*item, depth + 1, pointer, unreadable).unwrap_or_default(),
                    );
                    pointer.truncate(short);
                }
                Some(Value::Array(list))
            }
            Kind::Object(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    let (name, why) = self.text(name);
                    push_segment(pointer, &name);
                    if let Some(why) = why {
                        unreadable.add(pointer, why);
                    }
                    if object.contains_key(&name) {
                        unreadable.add(pointer, Why::Repeated);
                        object.remove(&name);
                    }
                    if let Some(value) = self.value(*member, depth + 1, pointer, unreadable) {
                        object.insert(name, value);
                    }
                    pointer.truncate(short);
                }
                Some(Value::Object(object))
            }
        }
    }

    /// A text as it is kept, and what could not be.
    fn text(&self, range: &Range<usize>) -> (String, Option<Why>) {
        let (units, mut why) = self.units(range);
        let text = char::decode_utf16(units)
            .map(|unit| {
                unit.unwrap_or_else(|_| {
                    why.get_or_insert(Why::LoneSurrogate);
                    char::REPLACEMENT_CHARACTER
                })
            })
            .collect();
        (text, why)
    }

    /// A text's UTF-16 code units, escapes undone.
    fn units(&self, range: &Range<usize>) -> (Vec<u16>, Option<Why>) {
        let inner = &self.bytes[range.start + 1..range.end - 1];
        let mut why = None;
        let text = String::from_utf8_lossy(inner);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            why = Some(Why::NotUtf8);
        }
        let mut units = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        let mut buffer = [0; 2];
        while let Some(character) = rest.next() {
            if character != '\\' {
                units.extend_from_slice(character.encode_utf16(&mut buffer));
                continue;
            }
            let unit = match rest.next() {
                Some('b') => 8,
                Some('t') => 9,
                Some('n') => 10,
                Some('f') => 12,
                Some('r') => 13,
                Some(same @ ('"' | '\\' | '/')) => same as u16,
                Some('u') => {
                    let digits = rest.as_str().get(..4);
                    let digits = digits.filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
                    if let Some(unit) = digits.and_then(|four| u16::from_str_radix(four, 16).ok()) {
                        rest = rest.as_str()[4..].chars();
                        unit
                    } else {
                        why = why.or(Some(Why::Escape));
                        0xfffd
                    }
                }
                _ => {
                    why = why.or(Some(Why::Escape));
                    0xfffd
                }
            };
            units.push(unit);
        }
        (units, why)
    }

    /// Members by name in the order of RFC 8785 §3.2.3, the last one of each.
    fn sorted(&self, members: &[(Range<usize>, usize)]) -> Vec<(Range<usize>, usize)> {
        let mut named: Vec<_> =
            members.iter().map(|member| (self.units(&member.0).0, member.clone())).collect();
        named.reverse();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named.dedup_by(|later, first| later.0 == first.0);
        named.into_iter().map(|(_, member)| member).collect()
    }

    fn canonical(&self, node: usize) -> Vec<u8> {
        enum Step {
            Node(usize),
            Name(Range<usize>),
            Mark(u8),
        }
        let mut out = Vec::new();
        let mut steps = vec![Step::Node(node)];
        while let Some(step) = steps.pop() {
            let node = match step {
                Step::Mark(mark) => {
                    out.push(mark);
                    continue;
                }
                Step::Name(range) => {
                    write_units(&self.units(&range).0, &mut out);
                    out.push(b':');
                    continue;
                }
                Step::Node(node) => &self.nodes[node],
            };
            match &node.kind {
                Kind::Text => write_units(&self.units(&node.range).0, &mut out),
                Kind::Word => {
                    let word = &self.bytes[node.range.clone()];
                    match serde_json::from_slice::<Value>(word) {
                        Ok(value) => out.extend(canonical::to_vec(&value)),
                        Err(_) => out.extend_from_slice(word),
                    }
                }
                Kind::List(items) => {
                    out.push(b'[');
                    steps.push(Step::Mark(b']'));
                    for (place, item) in items.iter().enumerate().rev() {
                        steps.push(Step::Node(*item));
                        if place > 0 {
                            steps.push(Step::Mark(b','));
                        }
                    }
                }
                Kind::Object(members) => {
                    out.push(b'{');
                    steps.push(Step::Mark(b'}'));
                    for (place, (name, member)) in
                        self.sorted(members).into_iter().enumerate().rev()
                    {
                        steps.push(Step::Node(member));
                        steps.push(Step::Name(name));
                        if place > 0 {
                            steps.push(Step::Mark(b','));
                        }
                    }
                }
            }
        }
        out
    }
}

/// The end of the text that opens at `open`, its closing quote included.
fn text_end(bytes: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The end of a word: what structure or space ends. `None` where there is none.
fn word_end(bytes: &[u8], start: usize) -> Option<usize> {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:[]{}\"".contains(byte);
    let length = bytes[start..].iter().position(ends).unwrap_or(bytes.len() - start);
    (length > 0).then_some(start + length)
}

/// A word as it is kept.
fn word(bytes: &[u8]) -> (Option<Value>, Option<Why>) {
    match serde_json::from_slice(bytes) {
        Ok(Value::Number(number))
            if !is_safe(&number) && !bytes.iter().any(|b| b".eE".contains(b)) =>
        {
            let digits = String::from_utf8_lossy(bytes).into_owned();
            (Some(Value::String(digits)), Some(Why::LargeInteger))
        }
        Ok(value) => (Some(value), None),
        Err(_) => (None, Some(Why::NoValue)),
    }
}

fn is_safe(number: &Number) -> bool {
    number.as_i64().is_some_and(|whole| whole.unsigned_abs() <= MAX_SAFE_INTEGER)
}

/// Writes a text as RFC 8785 §3.2.2.2 does, and half a character as its escape.
fn write_units(units: &[u16], out: &mut Vec<u8>) {
    out.push(b'"');
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(character) => match character {
                '"' => out.extend(b"\\\""),
                '\\' => out.extend(b"\\\\"),
                '\u{8}' => out.extend(b"\\b"),
                '\t' => out.extend(b"\\t"),
                '\n' => out.extend(b"\\n"),
                '\u{c}' => out.extend(b"\\f"),
                '\r' => out.extend(b"\\r"),
                '\0'..='\u{1f}' => {
                    out.extend(format!("\\u{:04x}", u32::from(character)).as_bytes());
                }
                _ => out.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            },
            Err(half) => {
                out.extend(format!("\\u{:04x}", half.unpaired_surrogate()).as_bytes());
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> (Value, Vec<(String, Why)>) {
        let read =
            Lenient::read(bytes).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(bytes)));
        let parts = read.unreadable.named.iter().map(|one| (one.pointer.clone(), one.why));
        let parts = parts.collect();
        (Value::Object(read.members), parts)
    }

    #[test]
    fn what_cannot_be_kept_is_replaced_or_dropped_and_named() {
        type Row = (&'static [u8], Value, &'static [(&'static str, Why)]);
        let rows: [Row; 14] = [
            (
                br#"{"s":1,"r":"a\ud800b"}"#,
                json!({"s":1,"r":"a\u{fffd}b"}),
                &[("/r", Why::LoneSurrogate)],
            ),
            (
                br#"{"s":1,"r":"\udc00\ud83d\ude00"}"#,
                json!({"s":1,"r":"\u{fffd}\u{1f600}"}),
                &[("/r", Why::LoneSurrogate)],
            ),
            (
                b"{\"s\":1,\"r\":\"a\xffb\"}",
                json!({"s":1,"r":"a\u{fffd}b"}),
                &[("/r", Why::NotUtf8)],
            ),
            (b"\xef\xbb\xbf{\"s\":1}", json!({"s":1}), &[]),
            (b"{\"s\":1,\"r\":\"line\nnext\"}", json!({"s":1,"r":"line\nnext"}), &[]),
            (br#"{"s":1,"r":NaN}"#, json!({"s":1}), &[("/r", Why::NoValue)]),
            (
                br#"{"s":1,"r":[1,-Infinity,2]}"#,
                json!({"s":1,"r":[1,null,2]}),
                &[("/r/1", Why::NoValue)],
            ),
            (br#"{"s":1,"r":1e999}"#, json!({"s":1}), &[("/r", Why::NoValue)]),
            (br#"{"s":1,"r":undefined}"#, json!({"s":1}), &[("/r", Why::NoValue)]),
            (
                br#"{"s":1,"r":12345678901234567890}"#,
                json!({"s":1,"r":"12345678901234567890"}),
                &[("/r", Why::LargeInteger)],
            ),
            (
                br#"{"s":1,"r":"a\x41\'"}"#,
                json!({"s":1,"r":"a\u{fffd}41\u{fffd}"}),
                &[("/r", Why::Escape)],
            ),
            (br#"{"s":1,"r":"\u12"}"#, json!({"s":1,"r":"\u{fffd}12"}), &[("/r", Why::Escape)]),
            (
                br#"{"s":1,"d":{"a":1,"a":2}}"#,
                json!({"s":1,"d":{"a":2}}),
                &[("/d/a", Why::Repeated)],
            ),
            (
                br#"{"s":1,"\ud800":2}"#,
                json!({"s":1,"\u{fffd}":2}),
                &[("/\u{fffd}", Why::LoneSurrogate)],
            ),
        ];
        for (bytes, value, parts) in rows {
            let parts: Vec<_> = parts.iter().map(|(at, why)| ((*at).to_owned(), *why)).collect();
            assert_eq!(read(bytes), (value, parts), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn nesting_without_end_is_dropped_where_it_begins_to_be_too_deep() {
        let deep = format!(r#"{{"s":1,"d":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
        let (value, parts) = read(deep.as_bytes());
        assert_eq!(value["s"], 1);
        assert_eq!(canonical::depth(&value), MAX_DEPTH);
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].1, Why::Nesting);
    }

    #[test]
    fn broken_structure_is_not_guessed() {
        for bytes in [
            &b""[..],
            b"{",
            b"[1]",
            b"{\"a\":1",
            b"{\"a\" 1}",
            b"{\"a\":}",
            b"{\"a\":1}x",
            b"{\"a\":\"x}",
            b"{a:1}",
            b"{\"a\":1]",
            b"{,}",
            b"{\"a\":[1,]}",
            b"<p>NaN</p>",
            b"{\"a\":1,}",
            b"{\"a\":[}",
        ] {
            assert!(Lenient::read(bytes).is_none(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_signed_form_has_what_came() {
        let came = br#"{"b":"x\ud800","a":{"d":NaN,"c":[1.0,"\u0007"]},"z":1,"z":2}"#;
        let read = Lenient::read(came).unwrap();
        assert!(read.repeats("z") && !read.repeats("b"));
        let canonical = r#"{"a":{"c":[1,"\u0007"],"d":NaN},"b":"x\ud800","z":2}"#;
        assert_eq!(String::from_utf8(read.canonical().all()).unwrap(), canonical);
    }

    #[test]
    fn a_note_names_the_first_places_and_counts_all() {
        let many = format!(r#"{{"s":1,"r":[{}]}}"#, vec!["NaN"; 50].join(","));
        let read = Lenient::read(many.as_bytes()).unwrap();
        let mut content = Map::new();
        read.unreadable.note_in(&mut content);
        assert_eq!(content[OWN]["unreadableCount"], 50);
        assert_eq!(content[OWN]["unreadable"].as_array().unwrap().len(), MAX_NAMED);
        assert_eq!(
            content[OWN]["unreadable"][0],
            json!({"pointer": "/r/0", "why": "NO_VALUE", "kept": "DROPPED"})
        );
    }

    #[test]
    fn elements_are_the_bytes_that_came() {
        let list: &[u8] = br#" [ {"a":"\ud800"} , "x", NaN ] "#;
        let parts: Vec<&[u8]> = vec![br#"{"a":"\ud800"}"#, br#""x""#, b"NaN"];
        assert_eq!(elements(list), Some(parts));
        assert_eq!(elements(b"{}"), Some(vec![&b"{}"[..]]));
        assert_eq!(elements(b"[1"), None);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
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

    proptest! {
        #[test]
        fn what_the_strict_reader_takes_is_read_alike(value in any_value()) {
            let text = json!({ "v": value, "s": "x" }).to_string();
            let tree = Tree::parse(text.as_bytes()).expect("JSON");
            let mut unreadable = UnreadableParts::default();
            let read = tree.value(0, 1, &mut String::new(), &mut unreadable).expect("kept");
            let strict = json::parse(text.as_bytes()).expect("strict");
            prop_assert_eq!(&read, &strict);
            prop_assert!(unreadable.is_empty());
            prop_assert_eq!(tree.canonical(0), canonical::to_vec(&strict));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, inner in "[\\\\\"a-fuNI0-9{}\\[\\],:\u{80}-\u{ff}]{0,60}") {
            let _ = Lenient::read(&bytes).map(|read| read.canonical().all());
            let _ = elements(&bytes);
            let text = format!("{{\"s\":{inner}}}");
            let _ = Lenient::read(text.as_bytes()).map(|read| read.canonical().all());
        }
    }
}
