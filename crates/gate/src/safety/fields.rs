//! The texts of a message: every string at any depth, keys included, and the class of its field: by the field of the message,
//! and by the origin that the value itself names (`origin`).

use serde_json::Value;

use super::finding::SafetyFinding;
use super::origin;
use super::rules::FieldClass;
use handoffd_domain::json::push_segment;

/// Shortest key that could hold a text, in bytes.
const MIN_KEY: usize = 5;

/// The location of a text in a message.
#[derive(Debug)]
pub struct TextLocation<'a, 'm>(&'a [PathSegment<'m>]);

#[derive(Debug)]
enum PathSegment<'m> {
    Key(&'m str),
    Index(usize),
}

impl TextLocation<'_, '_> {
    /// That of a text that is all there is.
    pub(super) const TOP: Self = TextLocation(&[]);

    /// Whether a text is the name that the location ends with.
    pub(super) fn is_name(&self, text: &str) -> bool {
        matches!(self.0.last(), Some(PathSegment::Key(name)) if std::ptr::eq(*name, text))
    }

    /// As a JSON pointer; of a key, that of the member it names.
    #[must_use]
    pub fn pointer(&self) -> String {
        self.0.iter().fold(String::new(), |mut pointer, segment| {
            match segment {
                PathSegment::Key(name) => push_segment(&mut pointer, name),
                PathSegment::Index(index) => push_segment(&mut pointer, &index.to_string()),
            }
            pointer
        })
    }
}

impl<'m> TextLocation<'_, 'm> {
    /// The name of the member whose value a text is; `None` of an item, and of a name itself.
    #[must_use]
    pub fn member(&self, text: &str) -> Option<&'m str> {
        match self.0.last() {
            Some(PathSegment::Key(name)) if !std::ptr::eq(*name, text) => Some(name),
            _ => None,
        }
    }

    /// The text's place as a JSON pointer; for a member's name, the pointer of its object.
    #[must_use]
    pub fn holder(&self, text: &str) -> String {
        match self.0.split_last() {
            Some((PathSegment::Key(name), above)) if std::ptr::eq(*name, text) => {
                TextLocation(above).pointer()
            }
            _ => self.pointer(),
        }
    }
}

/// Shows every text of a message to `visit`, in the order of the fields.
pub fn each_text<'m>(
    message: &'m Value,
    visit: &mut dyn FnMut(&TextLocation<'_, 'm>, &'m str, FieldClass),
) {
    let mut walk = FieldWalk { visit, path: Vec::new() };
    match message.as_object() {
        Some(members) => {
            for (name, value) in members {
                walk.key(name, FieldClass::Data);
                walk.path.push(PathSegment::Key(name));
                walk.field(name, value);
                walk.path.pop();
            }
        }
        None => walk.value(message, FieldClass::Data),
    }
}

/// Visits every text of a document within a text of class `class`, in its order.
pub(super) fn each_inner_text<'m>(
    document: &'m Value,
    class: FieldClass,
    visit: &mut dyn FnMut(&TextLocation<'_, 'm>, &'m str, FieldClass),
) {
    FieldWalk { visit, path: Vec::new() }.value(document, class);
}

/// The text of a message that a finding covers: of a value, or of a name. A finding whose end is not known covers the
/// rest of its line.
#[must_use]
pub fn stretch<'m>(message: &'m Value, finding: &SafetyFinding) -> Option<&'m str> {
    let whole = match message.pointer(&finding.pointer) {
        Some(Value::String(text)) if text.len() > finding.offset => text.as_str(),
        _ => {
            let (holder, name) = finding.pointer.rsplit_once('/')?;
            let name = name.replace("~1", "/").replace("~0", "~");
            let members = message.pointer(holder)?.as_object()?;
            members.keys().find(|key| **key == name)?.as_str()
        }
    };
    let start = whole.floor_char_boundary(finding.offset.min(whole.len()));
    let rest = &whole[start..];
    let known = finding.end.saturating_sub(start);
    let length = if known > 1 { known } else { rest.find('\n').unwrap_or(rest.len()) };
    let text = &rest[..rest.ceil_char_boundary(length.min(rest.len()))];
    (!text.trim().is_empty()).then_some(text)
}

struct FieldWalk<'v, 'm> {
    visit: &'v mut dyn FnMut(&TextLocation<'_, 'm>, &'m str, FieldClass),
    path: Vec<PathSegment<'m>>,
}

impl<'m> FieldWalk<'_, 'm> {
    /// A top-level field: its name says what class its texts are.
    fn field(&mut self, name: &str, value: &'m Value) {
        match (name, value) {
            ("conversationHistoryVerbatim", Value::Array(turns)) => {
                self.items(turns, |walk, turn| {
                    let class = match turn.get("role").and_then(Value::as_str) {
                        Some("user") => FieldClass::UserTurn,
                        _ => FieldClass::Data,
                    };
                    walk.value(turn, class);
                });
            }
            ("completedSubtasks", Value::Array(subtasks)) => {
                self.items(subtasks, |walk, subtask| {
                    walk.members(subtask, "result", FieldClass::Task);
                });
            }
            ("relevantContext", Value::Array(excerpts)) => {
                self.items(excerpts, |walk, excerpt| {
                    walk.members(excerpt, "excerpt", FieldClass::Data);
                });
            }
            ("toolCallHistory", _) => self.value(value, FieldClass::ToolOutput),
            (
                "taskDescription" | "taskSummary" | "remainingSubtasks" | "constraints" | "reason",
                _,
            ) => self.value(value, FieldClass::Task),
            _ => self.value(value, FieldClass::Data),
        }
    }

    fn items(&mut self, items: &'m [Value], mut visit: impl FnMut(&mut Self, &'m Value)) {
        for (index, item) in items.iter().enumerate() {
            self.path.push(PathSegment::Index(index));
            visit(self, item);
            self.path.pop();
        }
    }

    /// Members of an object: `output` is tool output, the others are `class`.
    fn members(&mut self, value: &'m Value, output: &str, class: FieldClass) {
        let Some(members) = value.as_object() else {
            return self.value(value, class);
        };
        let class = origin::of_object(members, class);
        for (name, member) in members {
            self.key(name, class);
            self.path.push(PathSegment::Key(name));
            let class = if name == output {
                FieldClass::ToolOutput
            } else {
                origin::of_member(name, class)
            };
            self.value(member, class);
            self.path.pop();
        }
    }

    fn value(&mut self, value: &'m Value, class: FieldClass) {
        match value {
            Value::String(text) => (self.visit)(&TextLocation(&self.path), text, class),
            Value::Array(items) => self.items(items, |walk, item| walk.value(item, class)),
            Value::Object(members) => {
                let class = origin::of_object(members, class);
                for (name, member) in members {
                    self.key(name, class);
                    self.path.push(PathSegment::Key(name));
                    self.value(member, origin::of_member(name, class));
                    self.path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The name of a member: of the class of tool output if the value is a tool's output, else data.
    fn key(&mut self, name: &'m str, class: FieldClass) {
        if name.len() >= MIN_KEY {
            let output = class == FieldClass::ToolOutput;
            let class = if output { class } else { FieldClass::Data };
            self.path.push(PathSegment::Key(name));
            (self.visit)(&TextLocation(&self.path), name, class);
            self.path.pop();
        }
    }
}
