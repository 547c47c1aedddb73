//! Single values of a document, each with the defect of one that does not fit.

use serde_json::{Map, Value};

use super::{ContractDefect, ContractReader, DefectKind};
use crate::contract::predicate::Predicate;

/// The most names in a list.
const MAX_NAMES: usize = 256;

/// An object and its pointer in the document.
pub(super) struct ObjectCursor<'a> {
    pub(super) object: &'a Map<String, Value>,
    pub(super) pointer: String,
}

impl<'a> ObjectCursor<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"))
    }
}

impl ContractReader {
    pub(super) fn fault(&mut self, kind: DefectKind, pointer: impl Into<String>, message: String) {
        self.faults.push(ContractDefect { kind, pointer: pointer.into(), message });
    }

    pub(super) fn invalid(&mut self, pointer: impl Into<String>, message: String) {
        self.fault(DefectKind::Invalid, pointer, message);
    }

    pub(super) fn missing(&mut self, pointer: impl Into<String>, message: &str) {
        self.fault(DefectKind::Missing, pointer, message.to_owned());
    }

    pub(super) fn unknown(&mut self, at: &ObjectCursor<'_>, known: &[&str]) {
        for name in at.object.keys() {
            if known.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with("x_") {
                continue;
            }
            let near = known
                .iter()
                .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
                .filter(|(score, _)| *score >= 0.7)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let hint =
                near.map_or_else(String::new, |(_, known)| format!("; did you mean `{known}`?"));
            let shown: String = name.chars().take(80).collect();
            self.fault(
                DefectKind::Unknown,
                at.pointer(name),
                format!("`{shown}` is not a field of a contract{hint}"),
            );
        }
    }

    pub(super) fn dotted(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        self.text(at, name).filter(|text| {
            let well = is_path(text);
            if !well {
                self.invalid(at.pointer(name), format!("`{name}` must be a dotted name"));
            }
            well
        })
    }

    pub(super) fn object<'a>(
        &mut self,
        at: &ObjectCursor<'a>,
        name: &str,
    ) -> Option<ObjectCursor<'a>> {
        let pointer = at.pointer(name);
        let object = at.get(name)?.as_object();
        if object.is_none() {
            self.invalid(pointer.clone(), format!("`{name}` must be a mapping"));
        }
        object.map(|object| ObjectCursor { object, pointer })
    }

    pub(super) fn text(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        match at.get(name)? {
            Value::String(text) if text.len() <= 4_096 && !text.contains('\0') => {
                Some(text.clone())
            }
            _ => {
                self.invalid(
                    at.pointer(name),
                    format!("`{name}` must be a text of at most 4096 bytes"),
                );
                None
            }
        }
    }

    pub(super) fn flag(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<bool> {
        let value = at.get(name)?;
        if value.as_bool().is_none() {
            self.invalid(at.pointer(name), format!("`{name}` must be true or false"));
        }
        value.as_bool()
    }

    pub(super) fn number(
        &mut self,
        at: &ObjectCursor<'_>,
        name: &str,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let number = at.get(name)?.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.invalid(
                at.pointer(name),
                format!("`{name}` must be a whole number from {least} to {most}"),
            );
        }
        number
    }

    pub(super) fn names(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<Vec<String>> {
        let items = at.get(name)?.as_array();
        let names = items.filter(|items| items.len() <= MAX_NAMES).and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().filter(|text| is_path(text)).map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        if names.is_none() {
            self.invalid(
                at.pointer(name),
                format!("`{name}` must be a list of at most {MAX_NAMES} dotted names"),
            );
        }
        names
    }

    pub(super) fn predicate(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        let text = self.text(at, name)?;
        match Predicate::compile(&text) {
            Ok(_) => Some(text),
            Err(why) => {
                self.invalid(at.pointer(name), why.to_string());
                None
            }
        }
    }

    /// RFC 3339, or a plain date: its midnight in UTC.
    pub(super) fn date(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<i64> {
        use time::format_description::well_known::Rfc3339;
        let text = self.text(at, name)?;
        let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text };
        let Ok(moment) = time::OffsetDateTime::parse(&whole, &Rfc3339) else {
            self.invalid(at.pointer(name), format!("`{name}` must be a date like `2027-01-31`"));
            return None;
        };
        Some(moment.unix_timestamp())
    }
}

fn is_path(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text.split('.').all(|part| !part.is_empty() && !part.chars().any(char::is_control))
}
