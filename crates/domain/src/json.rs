//! StrictValue JSON: the one way in for a message body.
//!
//! A text that two readers could understand differently (duplicate keys, integers that a double cannot
//! hold, lone surrogates) never gets as far as a hash or a signature. RFC 8259 and RFC 7493 (I-JSON),
//! specification §2.2 stage 3. Cost is linear in the body; nesting is bounded before anything recurses.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::failure::{Code, Failure, Stage};

pub use super::canonical::MAX_DEPTH;

/// Most members and elements of one document: each takes some 100 bytes once parsed, so this bounds
/// what a small body can become in memory.
pub const MAX_VALUES: usize = 500_000;

/// Largest magnitude of an integer literal: 2^53 − 1 (RFC 7493, §2.2).
pub const MAX_SAFE_INTEGER: u64 = 9_007_199_254_740_991;

/// Longest text from the body that a message repeats, in characters.
const MAX_ECHO: usize = 80;

/// Why a body was refused. Both variants hold a [`Stage::Schema`] failure with [`Code::SchemaInvalid`]; they differ in
/// the HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// No unambiguous JSON text: broken syntax, invalid UTF-8, duplicate keys, nesting over
    /// [`MAX_DEPTH`], lone surrogates, numbers outside the range of a double. HTTP 400.
    #[error("{}", .0.message)]
    Malformed(Failure),
    /// JSON, but nothing the schema could accept: the top level is not an object, or an integer
    /// literal lies beyond ±[`MAX_SAFE_INTEGER`]. HTTP 422.
    #[error("{}", .0.message)]
    Unacceptable(Failure),
}

impl JsonError {
    /// The failure to report.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        match self {
            Self::Malformed(failure) | Self::Unacceptable(failure) => failure,
        }
    }

    /// The failure to report, by value.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Malformed(failure) | Self::Unacceptable(failure) => failure,
        }
    }

    /// Whether the body is not JSON, or ambiguous JSON (HTTP 400 instead of 422).
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed(_))
    }
}

/// Parses a message body into a JSON object.
///
/// # Errors
///
/// [`JsonError`], with a JSON pointer where one is known and the line and column otherwise.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(bytes, error.valid_up_to());
        malformed("", format!("The body is not valid UTF-8 at line {line}, column {column}."))
    })?;
    let unsafe_integer = match prescan(bytes) {
        Prescan::TooDeep(offset) => {
            let (line, column) = position(bytes, offset);
            return Err(malformed(
                "",
                format!(
                    "The body nests more than {MAX_DEPTH} arrays and objects at line {line}, column {column}."
                ),
            ));
        }
        Prescan::TooMany => {
            return Err(malformed(
                "",
                format!("The body holds more than {MAX_VALUES} members and elements."),
            ));
        }
        Prescan::Passed { unsafe_integer } => unsafe_integer,
    };
    let mut state = DuplicateKeyTrail::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let parsed = StrictValue(&mut state)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| state.into_fault(&error))?;
    if !parsed.is_object() {
        return Err(unacceptable(
            "",
            format!("The body must be a JSON object and is {}.", kind(&parsed)),
        ));
    }
    if let Some(offset) = unsafe_integer {
        let (line, column) = position(bytes, offset);
        return Err(unacceptable(
            &pointer_at(bytes, offset),
            format!(
                "The integer at line {line}, column {column} lies beyond ±{MAX_SAFE_INTEGER} (2^53 − 1) and cannot be kept exactly; send it as a string."
            ),
        ));
    }
    Ok(parsed)
}

/// The JSON documents that a text consists of: one object or array, or one on each line. None where it is something
/// else, or what two readers could understand differently.
#[must_use]
pub fn documents(text: &str) -> Vec<Value> {
    let whole = text.trim_ascii();
    if !(whole.starts_with(['{', '[']) && whole.ends_with(['}', ']'])) {
        return Vec::new();
    }
    if let Some(document) = document(whole) {
        return vec![document];
    }
    if !whole.starts_with('{') {
        return Vec::new();
    }
    let lines = whole.lines().map(str::trim_ascii).filter(|line| !line.is_empty());
    lines.map(document).collect::<Option<_>>().unwrap_or_default()
}

fn document(text: &str) -> Option<Value> {
    let Prescan::Passed { .. } = prescan(text.as_bytes()) else { return None };
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut state = DuplicateKeyTrail::default();
    let value = StrictValue(&mut state).deserialize(&mut reader).ok()?;
    (reader.end().is_ok() && (value.is_object() || value.is_array())).then_some(value)
}

fn malformed(pointer: &str, message: String) -> JsonError {
    JsonError::Malformed(Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message))
}

fn unacceptable(pointer: &str, message: String) -> JsonError {
    JsonError::Unacceptable(Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message))
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Line and column (in characters), both from 1, of a byte offset.
fn position(bytes: &[u8], offset: usize) -> (usize, usize) {
    let before = bytes.get(..offset).unwrap_or(bytes);
    let line = before.split(|byte| *byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let column = before[start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
    (line, column)
}

/// The size of a document as [`MAX_VALUES`] bounds it: its commas and colons.
#[must_use]
pub fn count_values(value: &Value) -> usize {
    match value {
        Value::Array(items) => {
            items.len().saturating_sub(1) + items.iter().map(count_values).sum::<usize>()
        }
        Value::Object(members) => {
            let own = (2 * members.len()).saturating_sub(1);
            own + members.values().map(count_values).sum::<usize>()
        }
        _ => 0,
    }
}

enum Prescan {
    /// More members and elements than [`MAX_VALUES`].
    TooMany,
    TooDeep(usize),
    Passed {
        unsafe_integer: Option<usize>,
    },
}

/// One pass over the bytes, before any recursion: finds nesting that is too deep, and the first
/// integer literal out of range (which the parser would quietly turn into a double).
fn prescan(bytes: &[u8]) -> Prescan {
    let mut depth = 0_usize;
    let mut values = 0_usize;
    let mut unsafe_integer = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Prescan::TooDeep(at);
                }
            }
            b',' | b':' => {
                values += 1;
                if values > MAX_VALUES {
                    return Prescan::TooMany;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let start = at;
                while bytes.get(at + 1).is_some_and(|next| number_byte(*next)) {
                    at += 1;
                }
                if unsafe_integer.is_none() && !is_safe(&bytes[start..=at]) {
                    unsafe_integer = Some(start);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Prescan::Passed { unsafe_integer }
}

/// The offset of the quote that closes the string opened at `open` (or the last byte).
fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len().saturating_sub(1)
}

const fn number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

fn is_safe(literal: &[u8]) -> bool {
    let digits = literal.strip_prefix(b"-").unwrap_or(literal);
    if !digits.iter().all(u8::is_ascii_digit) {
        return true; // a fraction or an exponent: a double by its own notation
    }
    digits.len() <= 16
        && digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'))
            <= MAX_SAFE_INTEGER
}

/// The JSON pointer of the value that starts at `offset` in a text already known to be valid.
fn pointer_at(bytes: &[u8], offset: usize) -> String {
    enum NestingLevel {
        Array(usize),
        Object(String),
    }
    let mut levels: Vec<NestingLevel> = Vec::new();
    let mut expects_key = false;
    let mut at = 0;
    while at < offset {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                if expects_key && let Some(NestingLevel::Object(key)) = levels.last_mut() {
                    *key = serde_json::from_slice(&bytes[at..=end]).unwrap_or_default();
                    expects_key = false;
                }
                at = end;
            }
            b'{' => {
                levels.push(NestingLevel::Object(String::new()));
                expects_key = true;
            }
            b'[' => {
                levels.push(NestingLevel::Array(0));
                expects_key = false;
            }
            b']' | b'}' => {
                levels.pop();
                expects_key = false;
            }
            b',' => match levels.last_mut() {
                Some(NestingLevel::Array(index)) => *index += 1,
                Some(NestingLevel::Object(_)) => expects_key = true,
                None => {}
            },
            _ => {}
        }
        at += 1;
    }
    levels.iter().fold(String::new(), |mut pointer, level| {
        match level {
            NestingLevel::Array(index) => push_segment(&mut pointer, &index.to_string()),
            NestingLevel::Object(key) => push_segment(&mut pointer, key),
        }
        pointer
    })
}

/// The places of texts with a NUL, which no database keeps as text; at most `most`. A member whose name has one is named
/// by its object.
#[must_use]
pub fn nuls(value: &Value, most: usize) -> Vec<String> {
    fn look(value: &Value, at: &mut String, most: usize, found: &mut Vec<String>) {
        if found.len() >= most {
            return;
        }
        match value {
            Value::String(text) if text.contains('\0') => found.push(at.clone()),
            Value::Array(items) => {
                let length = at.len();
                for (index, item) in items.iter().enumerate() {
                    push_segment(at, &index.to_string());
                    look(item, at, most, found);
                    at.truncate(length);
                }
            }
            Value::Object(members) => {
                if members.keys().any(|name| name.contains('\0')) {
                    found.push(at.clone());
                }
                let length = at.len();
                for (name, item) in members.iter().filter(|(name, _)| !name.contains('\0')) {
                    push_segment(at, name);
                    look(item, at, most, found);
                    at.truncate(length);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    look(value, &mut String::new(), most, &mut found);
    found
}

/// Appends one reference token to a JSON pointer, escaped after RFC 6901, §3.
pub fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for character in segment.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// The place of a duplicate key in the document: filled in while the error travels outwards, so
/// that a document without faults pays nothing for it.
#[derive(Default)]
struct DuplicateKeyTrail {
    duplicate: Option<String>,
    /// From the inside out.
    trail: Vec<String>,
}

impl DuplicateKeyTrail {
    fn into_fault(self, error: &serde_json::Error) -> JsonError {
        let (line, column) = (error.line(), error.column());
        let Some(key) = self.duplicate else {
            let detail = error.to_string();
            let detail = detail.split(" at line ").next().unwrap_or_default();
            return malformed(
                "",
                format!("The body is not valid JSON at line {line}, column {column}: {detail}."),
            );
        };
        let mut pointer = String::new();
        for segment in self.trail.iter().rev() {
            push_segment(&mut pointer, segment);
        }
        let name: String = key.chars().take(MAX_ECHO).collect();
        push_segment(&mut pointer, &key);
        malformed(
            &pointer,
            format!("The key `{name}` occurs twice in one object (line {line}, column {column})."),
        )
    }
}

/// Builds a [`Value`] and refuses duplicate keys.
struct StrictValue<'s>(&'s mut DuplicateKeyTrail);

impl<'de> DeserializeSeed<'de> for StrictValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of the range of a double"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            match access.next_element_seed(StrictValue(self.0)) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => {
                    self.0.trail.push(items.len().to_string());
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if members.contains_key(&key) {
                self.0.duplicate = Some(key);
                return Err(A::Error::custom("duplicate key"));
            }
            match access.next_value_seed(StrictValue(self.0)) {
                Ok(value) => members.insert(key, value),
                Err(error) => {
                    self.0.trail.push(key);
                    return Err(error);
                }
            };
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests;
