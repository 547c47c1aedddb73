//! Credentials in a JSON document: where they stand, and the document without them.

use serde_json::Value;

use super::{Credential, CredentialForms};

/// The location of a credential in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialMatch {
    /// JSON pointer of the string; for a member's name, of its object.
    pub pointer: String,
    /// Display name, with its article.
    pub name: &'static str,
}

/// Most credentials reported for one document.
pub const MAX_SIGHTINGS: usize = 20;

/// The credentials in a document at `root` (a JSON pointer), including its keys.
#[must_use]
pub fn sightings(root: &str, value: &Value) -> Vec<CredentialMatch> {
    let mut found = Vec::new();
    look(&mut root.to_owned(), None, value, &mut found);
    found
}

fn look(
    pointer: &mut String,
    member: Option<&str>,
    value: &Value,
    found: &mut Vec<CredentialMatch>,
) {
    let forms = CredentialForms::builtin();
    let length = pointer.len();
    match value {
        Value::String(text) => note(found, || pointer.clone(), &forms.find(text, member)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                push_segment(pointer, &index.to_string());
                look(pointer, None, item, found);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, below) in members {
                note(found, || pointer.clone(), &forms.find(name, None));
                push_segment(pointer, name);
                look(pointer, Some(name), below, found);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the matches of a string. A pointer never repeats a credential that is a member's name further up.
pub fn note(
    sightings: &mut Vec<CredentialMatch>,
    pointer: impl Fn() -> String,
    found: &[Credential<'static>],
) {
    for one in found.iter().take(MAX_SIGHTINGS.saturating_sub(sightings.len())) {
        let pointer = pointer();
        let pointer = CredentialForms::builtin().redact(&pointer, None).unwrap_or(pointer);
        sightings.push(CredentialMatch { pointer, name: one.name });
    }
}

/// Replaces the credentials in a document, including its keys; returns whether there were any.
pub fn redact(member: Option<&str>, value: &mut Value) -> bool {
    let forms = CredentialForms::builtin();
    match value {
        Value::String(text) => match forms.redact(text, member) {
            Some(safe) => {
                *text = safe;
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| redact(None, item) | any),
        Value::Object(members) => {
            let mut any = false;
            for (name, below) in members.iter_mut() {
                any |= redact(Some(name), below);
            }
            let names: Vec<String> =
                members.keys().filter(|name| !forms.find(name, None).is_empty()).cloned().collect();
            for name in names {
                any = true;
                if let (Some(safe), Some(below)) =
                    (forms.redact(&name, None), members.remove(&name))
                {
                    // Two names may have become one.
                    let mut free = safe.clone();
                    let mut number = 2;
                    while members.contains_key(&free) {
                        free = format!("{safe} {number}");
                        number += 1;
                    }
                    members.insert(free, below);
                }
            }
            any
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn push_segment(pointer: &mut String, name: &str) {
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
}
