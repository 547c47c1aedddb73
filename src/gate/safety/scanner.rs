//! Walks a message, scores each text against the rules, and reports where.

use std::sync::Arc;

use serde_json::Value;

use super::normalize;
use super::rules::{FieldClass, Rule, Rules};
use crate::gate::json::push_segment;

/// The score at which the rules that matched a text are reported.
pub const THRESHOLD: f32 = 1.0;

/// At most this many findings are reported for one message.
pub const MAX_FINDINGS: usize = 100;

/// Shortest text that any rule could match, in bytes.
const MIN_TEXT: usize = 5;

/// Length of an excerpt in characters, and how many of them stand before the match.
const EXCERPT: (usize, usize) = (80, 16);

/// One rule that fired on one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule's id.
    pub rule: String,
    /// The rule's family.
    pub family: String,
    /// JSON pointer of the text; for a key, of the member it names.
    pub pointer: String,
    /// Where the match starts, in bytes from the start of the text (for encoded text: where the encoded
    /// segment starts).
    pub offset: usize,
    /// At most 80 characters of the original text around the match, without control characters. For
    /// the dead letter; not for logs.
    pub excerpt: String,
}

/// Compiled rules, ready to scan. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Scanner {
    rules: Arc<Rules>,
}

impl Scanner {
    /// A scanner with the rules that are compiled in (compiling takes some milliseconds: build one and
    /// clone it).
    #[must_use]
    pub fn builtin() -> Self {
        Self::with_rules(Rules::builtin())
    }

    /// A scanner with other rules.
    #[must_use]
    pub fn with_rules(rules: Rules) -> Self {
        Self { rules: Arc::new(rules) }
    }

    /// The rules in use.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.rules.all()
    }

    /// Scans every string of a message, keys included. Empty when nothing scored [`THRESHOLD`]; at most
    /// [`MAX_FINDINGS`], in the order of the fields.
    #[must_use]
    pub fn scan(&self, message: &Value) -> Vec<Finding> {
        let mut walk = Walk { scanner: self, path: Vec::new(), findings: Vec::new() };
        match message.as_object() {
            Some(members) => {
                for (name, value) in members {
                    walk.key(name);
                    walk.path.push(Segment::Key(name));
                    walk.field(name, value);
                    walk.path.pop();
                }
            }
            None => walk.value(message, FieldClass::Data),
        }
        walk.findings
    }

    /// Scans one text as a field of `class`; the findings have an empty pointer.
    #[must_use]
    pub fn scan_text(&self, text: &str, class: FieldClass) -> Vec<Finding> {
        let mut walk = Walk { scanner: self, path: Vec::new(), findings: Vec::new() };
        walk.text(text, class);
        walk.findings
    }

    /// The ids of all rules that match a text in any of its views, whatever the score.
    #[must_use]
    pub fn matching_rules(&self, text: &str) -> Vec<&str> {
        let hits = self.hits(text, FieldClass::Any);
        hits.iter().map(|(rule, _)| self.rules.all()[*rule].id.as_str()).collect()
    }

    /// (rule, byte offset in the original) of each rule that matches a text or a view of it, once.
    fn hits(&self, text: &str, class: FieldClass) -> Vec<(usize, usize)> {
        let mut hits = Vec::new();
        self.surface(text, class, &mut hits, |offset| offset);
        for view in normalize::decoded(text) {
            self.surface(&view.text, class, &mut hits, |offset| view.original(offset));
        }
        hits
    }

    /// The text as it is, folded, and with spaced-out letters closed up.
    fn surface(
        &self,
        text: &str,
        class: FieldClass,
        hits: &mut Vec<(usize, usize)>,
        original: impl Fn(usize) -> usize,
    ) {
        let mut add = |rule: usize, offset: usize| {
            if hits.iter().all(|(known, _)| *known != rule) {
                hits.push((rule, offset));
            }
        };
        for (rule, offset) in self.rules.matching(text, class, false) {
            add(rule, original(offset));
        }
        let folded = normalize::fold(text);
        if let Some(view) = &folded {
            for (rule, offset) in self.rules.matching(&view.text, class, false) {
                add(rule, original(view.original(offset)));
            }
        }
        let plain = folded.as_ref().map_or(text, |view| view.text.as_str());
        for run in normalize::letter_spaced(plain) {
            for (rule, offset) in self.rules.matching(&run.text, class, true) {
                let offset = run.original(offset);
                let offset = folded.as_ref().map_or(offset, |view| view.original(offset));
                add(rule, original(offset));
            }
        }
    }
}

enum Segment<'m> {
    Key(&'m str),
    Index(usize),
}

struct Walk<'s, 'm> {
    scanner: &'s Scanner,
    path: Vec<Segment<'m>>,
    findings: Vec<Finding>,
}

impl<'m> Walk<'_, 'm> {
    /// A top-level field: its name says what class its texts are.
    fn field(&mut self, name: &str, value: &'m Value) {
        match (name, value) {
            ("conversationHistoryVerbatim", Value::Array(turns)) => {
                self.items(turns, |walk, turn| {
                    let class = match turn.get("role").and_then(Value::as_str) {
                        Some("user") => FieldClass::UserTurn,
                        Some("tool" | "function") => FieldClass::ToolOutput,
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
            self.path.push(Segment::Index(index));
            visit(self, item);
            self.path.pop();
        }
    }

    /// Members of an object: `output` is tool output, the others are `class`.
    fn members(&mut self, value: &'m Value, output: &str, class: FieldClass) {
        let Some(members) = value.as_object() else {
            return self.value(value, class);
        };
        for (name, member) in members {
            self.key(name);
            self.path.push(Segment::Key(name));
            self.value(member, if name == output { FieldClass::ToolOutput } else { class });
            self.path.pop();
        }
    }

    fn value(&mut self, value: &'m Value, class: FieldClass) {
        match value {
            Value::String(text) => self.text(text, class),
            Value::Array(items) => self.items(items, |walk, item| walk.value(item, class)),
            Value::Object(members) => {
                for (name, member) in members {
                    self.key(name);
                    self.path.push(Segment::Key(name));
                    self.value(member, class);
                    self.path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn key(&mut self, name: &'m str) {
        if name.len() >= MIN_TEXT {
            self.path.push(Segment::Key(name));
            self.text(name, FieldClass::Data);
            self.path.pop();
        }
    }

    fn text(&mut self, text: &str, class: FieldClass) {
        if text.len() < MIN_TEXT || self.findings.len() >= MAX_FINDINGS {
            return;
        }
        let hits = self.scanner.hits(text, class);
        let rules = self.scanner.rules();
        let score: f32 = hits.iter().map(|(rule, _)| rules[*rule].weight).sum();
        if score + f32::EPSILON < THRESHOLD {
            return;
        }
        for (rule, offset) in hits.into_iter().take(MAX_FINDINGS - self.findings.len()) {
            self.findings.push(Finding {
                rule: rules[rule].id.clone(),
                family: rules[rule].family.clone(),
                pointer: self.pointer(),
                offset,
                excerpt: excerpt(text, offset),
            });
        }
    }

    fn pointer(&self) -> String {
        self.path.iter().fold(String::new(), |mut pointer, segment| {
            match segment {
                Segment::Key(name) => push_segment(&mut pointer, name),
                Segment::Index(index) => push_segment(&mut pointer, &index.to_string()),
            }
            pointer
        })
    }
}

fn excerpt(text: &str, offset: usize) -> String {
    let (length, before) = EXCERPT;
    let offset = text.floor_char_boundary(offset);
    let start =
        text[..offset].char_indices().rev().take(before).last().map_or(offset, |(at, _)| at);
    text[start..]
        .chars()
        .take(length)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect()
}

#[cfg(test)]
mod tests;
