//! A handoff in pieces (specification §10.5; ruling A113): the state of its stream, one chunk, and the message that the
//! chunks make of the opening one. Pure: this file decides the form of a chunk; other files decide who may send it and
//! when.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::canonical::{MAX_DEPTH, depth};
use super::failure::{Code, Failure, Stage, escaped};
use super::ids::Micros;

/// The members of a message that chunks may add to. Ids, routing, money, security and what the receiver began on are fixed
/// by the opening message.
pub const GROWING: [&str; 12] = [
    "completedSubtasks",
    "remainingSubtasks",
    "currentState",
    "relevantContext",
    "conversationHistorySummary",
    "conversationHistoryVerbatim",
    "toolCallHistory",
    "taskSummary",
    "provenance",
    "toolState",
    "metadata",
    "extensions",
];

/// The most changes of one chunk.
const MAX_CHANGES: usize = 256;

/// The longest reason of an abort, in characters.
const MAX_REASON: usize = 500;

/// Reason code of a handoff whose sender aborted its stream.
pub const STREAM_ABORTED: &str = "STREAM_ABORTED";

/// Reason code of a handoff whose stream had no chunk in time.
pub const STREAM_TIMEOUT: &str = "STREAM_TIMEOUT";

/// Reason code of a handoff whose assembled message no stage of the gate names a reason against.
pub const STREAM_REFUSED: &str = "STREAM_REFUSED";

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StreamStatus {
    /// Takes chunks.
    Open,
    /// The assembled message passed the gate and is the handoff's message.
    Closed,
    /// Ended without a whole message.
    Aborted,
}

impl StreamStatus {
    pub const ALL: [Self; 3] = [Self::Open, Self::Closed, Self::Aborted];

    /// The name on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closed => "CLOSED",
            Self::Aborted => "ABORTED",
        }
    }
}

/// The stream of a handoff: figures and codes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stream {
    pub status: StreamStatus,
    /// The last committed number; 0 before the first chunk.
    pub seq: i64,
    /// Bytes of its chunks in canonical form.
    pub bytes: u64,
    /// When the stream ends unless a chunk comes; none once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Micros>,
    /// Why it was aborted: a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Stream {
    /// A stream without chunks, which waits for the first until then.
    #[must_use]
    pub const fn opened(due_at: Micros) -> Self {
        Self { status: StreamStatus::Open, seq: 0, bytes: 0, due_at: Some(due_at), reason: None }
    }

    /// Whether it takes chunks.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.status == StreamStatus::Open
    }

    /// Counts a chunk of so many bytes, and waits for the next until then.
    pub fn take(&mut self, bytes: u64, due_at: Micros) {
        self.seq += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.due_at = Some(due_at);
    }

    /// Ends it with its message.
    pub fn close(&mut self) {
        (self.status, self.due_at) = (StreamStatus::Closed, None);
    }

    /// Ends it without one.
    pub fn abort(&mut self, reason: &str) {
        (self.status, self.due_at) = (StreamStatus::Aborted, None);
        self.reason = Some(reason.to_owned());
    }

    /// Why it takes no more chunks, in a sentence; `None` where it does.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let why = match (self.status, &self.reason) {
            (StreamStatus::Open, _) => return None,
            (StreamStatus::Closed, _) => "it was closed".to_owned(),
            (StreamStatus::Aborted, reason) => {
                format!("it was aborted, {}", reason.as_deref().unwrap_or("without a reason"))
            }
        };
        Some(format!("the stream takes no more chunks: {why}"))
    }

    /// As stored.
    #[must_use]
    pub fn to_text(&self) -> String {
        // A struct of texts and numbers always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How a stream ended, as a metric's label: `closed`, `aborted` by its sender, `timeout`, `refused` by the gate, or `ended`
/// with its handoff.
#[must_use]
pub fn outcome(ends: StreamStatus, reason: Option<&str>) -> &'static str {
    match (ends, reason) {
        (StreamStatus::Closed, _) => "closed",
        (_, Some(STREAM_ABORTED)) => "aborted",
        (_, Some(STREAM_TIMEOUT)) => "timeout",
        (_, Some(code)) if Code::parse(code).is_some() || code == STREAM_REFUSED => "refused",
        _ => "ended",
    }
}

/// Whether a message opens a stream.
#[must_use]
pub fn opens(message: &Value) -> bool {
    message.pointer("/stream/open") == Some(&Value::Bool(true))
}

/// How a chunk ends its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkEnd {
    /// With the assembled message.
    Close,
    Abort,
}

/// One chunk, as its sender states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Its number in the stream, from 1.
    pub seq: i64,
    /// Items for arrays, and texts for texts, by the pointer of the value to which they are added.
    pub append: Vec<(String, Vec<Value>)>,
    /// Values by their pointers.
    pub set: Vec<(String, Value)>,
    /// Whether the stream ends with it.
    pub end: Option<ChunkEnd>,
    pub signature: Option<Value>,
    /// The handoff that it names, where it names one.
    pub handoff_id: Option<String>,
}

fn wrong(pointer: impl Into<String>, message: impl Into<String>) -> Failure {
    Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message)
}

/// The longest pointer that a failure repeats, in bytes.
const MAX_ECHO: usize = 1_000;

/// The pointer of a change within its chunk; that of all its changes where it is too long to repeat.
fn at(member: &str, pointer: &str) -> String {
    if pointer.len() > MAX_ECHO {
        return format!("/{member}");
    }
    format!("/{member}/{}", escaped(pointer))
}

/// Whether each `~` of a pointer is an escape of RFC 6901.
fn is_escaped(pointer: &str) -> bool {
    pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

impl Chunk {
    /// Reads a chunk.
    ///
    /// # Errors
    /// Everything that is wrong with its form, by pointers into the chunk.
    pub fn parse(value: &Value) -> Result<Self, Vec<Failure>> {
        let Some(members) = value.as_object() else {
            return Err(vec![wrong("", "a chunk is a JSON object")]);
        };
        let mut faults = Vec::new();
        for name in members.keys().filter(|name| !NAMES.contains(&name.as_str())) {
            let why = format!("a chunk has {}", NAMES.join(", "));
            faults.push(wrong(format!("/{}", escaped(name)), why));
        }
        let seq = members.get("seq").and_then(Value::as_i64).filter(|seq| *seq > 0);
        if seq.is_none() {
            faults.push(wrong("/seq", "the chunk's number in its stream: a whole number from 1"));
        }
        let mut flag = |name: &str| match members.get(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                faults.push(wrong(format!("/{name}"), "must be true or false"));
                false
            }
        };
        let (close, abort) = (flag("close"), flag("abort"));
        if close && abort {
            faults.push(wrong("/abort", "a chunk closes its stream or aborts it, not both"));
        }
        let append = changes(members, "append", &mut faults, |value| value.as_array().cloned());
        let set = changes(members, "set", &mut faults, |value| Some(value.clone()));
        let changes = append.len() + set.len();
        if changes > MAX_CHANGES {
            faults.push(wrong("", format!("a chunk has {MAX_CHANGES} changes at most")));
            // Comparing them with one another would take the square of their number.
            return Err(faults);
        }
        faults.extend(overlaps(&append, &set));
        if abort && changes > 0 {
            faults.push(wrong("/abort", "a chunk that aborts its stream changes nothing"));
        }
        if changes == 0 && !close && !abort && faults.is_empty() {
            faults.push(wrong("", "a chunk appends, sets, closes or aborts"));
        }
        match members.get("reason") {
            None => {}
            Some(Value::String(text)) if abort && text.chars().count() <= MAX_REASON => {}
            Some(_) => faults.push(wrong(
                "/reason",
                format!("goes with `abort`: a text of {MAX_REASON} characters at most"),
            )),
        }
        let handoff_id = members.get("handoffId").map(|id| match id.as_str() {
            Some(text) => text.to_owned(),
            None => id.to_string(),
        });
        if !faults.is_empty() {
            return Err(faults);
        }
        let end = match (close, abort) {
            (true, _) => Some(ChunkEnd::Close),
            (_, true) => Some(ChunkEnd::Abort),
            _ => None,
        };
        let signature = members.get("signature").cloned();
        Ok(Self { seq: seq.unwrap_or_default(), append, set, end, signature, handoff_id })
    }

    /// Changes a message, first by `set`, then by `append`.
    ///
    /// # Errors
    /// Every change that does not fit the message; the message is of no use then.
    pub fn apply(&self, message: &mut Value) -> Result<(), Vec<Failure>> {
        let mut faults = Vec::new();
        for (pointer, value) in &self.set {
            match place(message, pointer) {
                Ok(MemberSlot { members, name }) => {
                    members.insert(name, value.clone());
                }
                Err(why) => faults.push(wrong(at("set", pointer), why)),
            }
        }
        for (pointer, items) in &self.append {
            if let Err(why) = add(message, pointer, items) {
                faults.push(wrong(at("append", pointer), why));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The values that it sets, and the items that it appends, each as a message of nothing else: a set value at its place,
    /// appended items in an array there.
    #[must_use]
    pub fn shapes(&self) -> (Value, Value) {
        let set = self.set.iter().map(|(pointer, value)| (pointer, value.clone()));
        let appended =
            self.append.iter().map(|(pointer, items)| (pointer, Value::Array(items.clone())));
        (shape(set), shape(appended))
    }

    /// The same changes with the values of shapes.
    ///
    /// # Errors
    /// Every change that has no place in its shape: what it goes into was replaced.
    pub fn reshape(&mut self, set: &Value, appended: &Value) -> Result<(), Vec<Failure>> {
        let mut faults = Vec::new();
        let replaced = |member: &str, pointer: &str| {
            let why = "redaction replaces what this goes into: nothing can be added to it";
            wrong(at(member, pointer), why)
        };
        for (pointer, value) in &mut self.set {
            match set.pointer(pointer) {
                Some(given) => value.clone_from(given),
                None => faults.push(replaced("set", pointer)),
            }
        }
        for (pointer, items) in &mut self.append {
            match appended.pointer(pointer) {
                Some(Value::Array(given)) => items.clone_from(given),
                _ => faults.push(replaced("append", pointer)),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Writes the values of the changes into the document that the chunk was read from.
    pub fn write_to(&self, document: &mut Value) {
        for (pointer, value) in &self.set {
            if let Some(place) = document["set"].get_mut(pointer) {
                place.clone_from(value);
            }
        }
        for (pointer, items) in &self.append {
            if let Some(place) = document["append"].get_mut(pointer) {
                *place = Value::Array(items.clone());
            }
        }
    }

    /// The top-level members that it changes.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let appended = self.append.iter().map(|(pointer, _)| pointer);
        let set = self.set.iter().map(|(pointer, _)| pointer);
        appended.chain(set).map(|pointer| top(pointer))
    }
}

/// A message of nothing but these values.
fn shape<'a>(values: impl Iterator<Item = (&'a String, Value)>) -> Value {
    let mut shape = Value::Null;
    for (pointer, value) in values {
        let mut into = &mut shape;
        for segment in pointer.split('/').skip(1) {
            // No change lies within another: what is on the way is an object of this loop.
            into = &mut into[unescaped(segment).as_str()];
        }
        *into = value;
    }
    shape
}

/// Changes of one chunk that lie within one another: their order would decide.
fn overlaps(append: &[(String, Vec<Value>)], set: &[(String, Value)]) -> Vec<Failure> {
    let appended = append.iter().map(|(pointer, _)| ("append", pointer.as_str()));
    let all: Vec<(&str, &str)> =
        set.iter().map(|(pointer, _)| ("set", pointer.as_str())).chain(appended).collect();
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let place = |(index, (member, pointer)): (usize, &(&str, &str))| {
        let others = all.iter().enumerate().filter(|(other, _)| *other != index);
        let covered = others.into_iter().any(|(other, (_, outer))| {
            within(pointer, outer) && (pointer != outer || other < index)
        });
        covered.then(|| wrong(at(member, pointer), "lies within another change of this chunk"))
    };
    all.iter().enumerate().filter_map(place).collect()
}

/// The members of a chunk.
const NAMES: [&str; 8] =
    ["seq", "append", "set", "close", "abort", "reason", "handoffId", "signature"];

/// The top-level member that a pointer goes through, as written.
fn top(pointer: &str) -> &str {
    let rest = pointer.strip_prefix('/').unwrap_or_default();
    rest.split_once('/').map_or(rest, |(first, _)| first)
}

/// Reads `append` or `set`: what changes, by pointer.
fn changes<T>(
    members: &Map<String, Value>,
    name: &str,
    faults: &mut Vec<Failure>,
    read: impl Fn(&Value) -> Option<T>,
) -> Vec<(String, T)> {
    let given = match members.get(name) {
        None => return Vec::new(),
        Some(Value::Object(given)) => given,
        Some(_) => {
            let why = "an object with JSON pointers (RFC 6901) for names";
            faults.push(wrong(format!("/{name}"), why));
            return Vec::new();
        }
    };
    let mut read_changes = Vec::with_capacity(given.len());
    for (pointer, value) in given {
        if !pointer.starts_with('/') || !is_escaped(pointer) {
            faults.push(wrong(at(name, pointer), "the name must be a JSON pointer (RFC 6901)"));
        } else if !GROWING.contains(&top(pointer)) {
            let why = format!(
                "`{}` is fixed by the opening message; chunks add to {}",
                top(pointer),
                GROWING.join(", ")
            );
            faults.push(wrong(at(name, pointer), why));
        } else if pointer.matches('/').count() + depth(value) > MAX_DEPTH {
            // The pointer goes through one object a segment.
            let why = format!("the message would nest more than {MAX_DEPTH} arrays and objects");
            faults.push(wrong(at(name, pointer), why));
        } else if let Some(value) = read(value) {
            read_changes.push((pointer.clone(), value));
        } else {
            faults.push(wrong(at(name, pointer), "must be an array: what to add"));
        }
    }
    read_changes
}

/// The object and the name that a pointer ends with.
struct MemberSlot<'a> {
    members: &'a mut Map<String, Value>,
    name: String,
}

fn unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Finds the object that a pointer goes into. It goes through objects alone: later chunks could move an item of an array.
fn place<'a>(message: &'a mut Value, pointer: &str) -> Result<MemberSlot<'a>, String> {
    let rest = pointer.strip_prefix('/').unwrap_or_default();
    let (parents, name) = match rest.rsplit_once('/') {
        Some((parents, name)) => (Some(parents), name),
        None => (None, rest),
    };
    let mut value = message;
    for segment in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let segment = unescaped(segment);
        value = value
            .as_object_mut()
            .and_then(|members| members.get_mut(&segment))
            .ok_or_else(|| format!("no object has a member `{segment}` to go into"))?;
    }
    let name = unescaped(name);
    match value.as_object_mut() {
        Some(members) => Ok(MemberSlot { members, name }),
        None => Err("only members of objects can be changed: set or extend the whole array".into()),
    }
}

/// Adds items to an array, or texts to a text. A missing value becomes an array.
fn add(message: &mut Value, pointer: &str, items: &[Value]) -> Result<(), String> {
    let MemberSlot { members, name } = place(message, pointer)?;
    match members.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(array) => array.extend(items.iter().cloned()),
        Value::String(text) => {
            for item in items {
                let more = item.as_str().ok_or("only texts can be added to a text")?;
                text.push_str(more);
            }
        }
        _ => return Err("only arrays and texts can be added to".to_owned()),
    }
    Ok(())
}

/// Marks an assembled message as whole: `stream` says that it is, and of how many chunks.
pub fn mark_closed(message: &mut Value, seq: i64) {
    if let Some(members) = message.as_object_mut() {
        members.insert("stream".to_owned(), serde_json::json!({ "open": false, "seq": seq }));
    }
}

#[cfg(test)]
mod tests;
