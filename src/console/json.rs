//! JSON whose numbers keep the digits of the API's answer: a page shows none that a float rounded.

use std::fmt::{self, Write as _};

use serde::de::{MapAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Levels of nesting that are read; a value below is shown as its text.
const DEPTH: usize = 120;

/// A JSON value. The order of members is the answer's.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Json {
    #[default]
    Null,
    Bool(bool),
    /// The digits as written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// The members of an object, in order, not yet read.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

const NULL: &Json = &Json::Null;

impl Json {
    /// Reads a document; null where it is not JSON.
    pub(super) fn parse(text: &[u8]) -> Self {
        serde_json::from_slice::<&RawValue>(text).map_or(Self::Null, |raw| Self::of(raw.get(), 0))
    }

    fn of(text: &str, depth: usize) -> Self {
        if depth > DEPTH {
            return Self::Text(text.to_owned());
        }
        match text.as_bytes().first() {
            Some(b'{') => {
                let members = serde_json::from_str(text).map(|Members(members)| members);
                let read =
                    |(name, raw): (String, &RawValue)| (name, Self::of(raw.get(), depth + 1));
                Self::Object(members.unwrap_or_default().into_iter().map(read).collect())
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                Self::List(items.into_iter().map(|raw| Self::of(raw.get(), depth + 1)).collect())
            }
            Some(b'"') => Self::Text(serde_json::from_str(text).unwrap_or_default()),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number(text.to_owned()),
        }
    }

    /// A member; null where there is none.
    pub(super) fn get(&self, name: &str) -> &Self {
        match self {
            Self::Object(members) => {
                members.iter().find(|(one, _)| one == name).map_or(NULL, |(_, value)| value)
            }
            _ => NULL,
        }
    }

    /// A member of members, by names between slashes.
    pub(super) fn at(&self, path: &str) -> &Self {
        path.split('/').fold(self, |value, name| value.get(name))
    }

    /// A text or a number as text; empty for anything else.
    pub(super) fn text(&self, path: &str) -> &str {
        self.at(path).as_text()
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text,
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
            _ => "",
        }
    }

    /// The items of a list; none for anything else.
    pub(super) fn list(&self, path: &str) -> &[Self] {
        match self.at(path) {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(super) fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    pub(super) fn flag(&self, path: &str) -> bool {
        *self.at(path) == Self::Bool(true)
    }

    /// A whole number, for counting and drawing; 0 for anything else.
    pub(super) fn count(&self, path: &str) -> i64 {
        self.text(path).parse().unwrap_or(0)
    }

    pub(super) fn is_null(&self) -> bool {
        *self == Self::Null
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Object(members) => members.is_empty(),
            _ => false,
        }
    }

    /// The value over several lines, two spaces a level.
    pub(super) fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, level: usize) {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let mut each = |open: char, close: char, items: Vec<(Option<&String>, &Self)>| {
            out.push(open);
            for (index, (name, item)) in items.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(out, "{comma}\n{:width$}", "", width = (level + 1) * 2);
                if let Some(name) = name {
                    let _ = write!(out, "{}: ", quoted(name));
                }
                item.write(out, level + 1);
            }
            if !items.is_empty() {
                let _ = write!(out, "\n{:width$}", "", width = level * 2);
            }
            out.push(close);
        };
        match self {
            Self::List(items) => each('[', ']', items.iter().map(|item| (None, item)).collect()),
            Self::Object(members) => {
                each('{', '}', members.iter().map(|(name, item)| (Some(name), item)).collect());
            }
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Null => out.push_str("null"),
            other => out.push_str(other.as_text()),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(flag) => to.serialize_bool(*flag),
            Self::Number(digits) => {
                let raw =
                    RawValue::from_string(digits.clone()).map_err(serde::ser::Error::custom)?;
                raw.serialize(to)
            }
            Self::Text(text) => to.serialize_str(text),
            Self::List(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Self::Object(members) => {
                let mut map = to.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, item)| map.serialize_entry(name, item))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stay_as_they_were_written() {
        let text = r#"{"b":9007199254740993,"a":[0.10,-1e999,"x\u202ey"],"c":null}"#;
        let read = Json::parse(text.as_bytes());
        assert_eq!(read.text("b"), "9007199254740993");
        assert_eq!(read.list("a")[0].as_text(), "0.10");
        assert_eq!(read.list("a")[1].as_text(), "-1e999");
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(again, text.replace("\\u202e", "\u{202e}"));
        assert!(read.pretty().contains("\"b\": 9007199254740993,\n"));
        assert!(read.at("c/d").is_null());
        assert_eq!(Json::parse(b"<html>"), Json::Null);
    }
}
