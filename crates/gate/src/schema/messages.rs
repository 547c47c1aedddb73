//! The words of the schema stage: what is wrong, in one sentence each, for the person who wrote the
//! sender. Values are repeated only when short, and never from below `/personalDataPayload` or
//! `/checkpoint`.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

/// Longest text from a message that an answer repeats, in characters.
pub(super) const MAX_ECHO: usize = 80;

/// Longest unknown field name that is put into a pointer or compared with known names, in bytes.
pub(super) const MAX_NAME: usize = 256;

/// How alike (0 to 1) an unknown name and a known one must be for the known one to be suggested.
pub(super) const NEAR: f64 = 0.7;

/// `, and is …` for a short value, nothing for a long or a compound one.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() <= MAX_ECHO => format!(", and is `{text}`"),
        Value::Number(_) | Value::Bool(_) | Value::Null => format!(", and is {value}"),
        _ => String::new(),
    }
}

/// Whether content below `pointer` may be repeated in an answer.
fn may_echo(pointer: &str) -> bool {
    !["/personalDataPayload", "/checkpoint"].iter().any(|private| {
        pointer.strip_prefix(private).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn type_name(name: &str) -> &str {
    match name {
        "array" => "an array",
        "object" => "an object",
        "integer" => "an integer",
        "string" => "a string",
        "number" => "a number",
        "boolean" => "a boolean",
        other => other,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The defect at `at` as a sentence. `value` is repeated only where that may be.
pub(super) fn sentence(kind: &ValidationErrorKind, at: &str, value: &Value) -> String {
    let is = if may_echo(at) { shown(value) } else { String::new() };
    match kind {
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(one) => type_name(one.as_str()).to_owned(),
                TypeKind::Multiple(several) => several
                    .iter()
                    .map(|one| type_name(one.as_str()).to_owned())
                    .collect::<Vec<_>>()
                    .join(" or "),
            };
            format!("Must be {expected}, and is {}.", kind_of(value))
        }
        ValidationErrorKind::Enum { options } => {
            let options: Vec<String> = options
                .as_array()
                .into_iter()
                .flatten()
                .map(|option| format!("`{}`", option.as_str().unwrap_or_default()))
                .collect();
            format!("Must be one of {}{is}.", options.join(", "))
        }
        ValidationErrorKind::Minimum { limit } => format!("Must be at least {limit}{is}."),
        ValidationErrorKind::Maximum { limit } => format!("Must be at most {limit}{is}."),
        ValidationErrorKind::MinLength { limit: 1 } => "Must not be empty.".to_owned(),
        ValidationErrorKind::MinLength { limit } => {
            format!("Must have at least {limit} characters.")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("Must have at most {limit} characters.")
        }
        ValidationErrorKind::MaxItems { limit } => format!("Must have at most {limit} items."),
        ValidationErrorKind::MinProperties { .. } => "Must not be an empty object.".to_owned(),
        ValidationErrorKind::Format { format } if format == "date-time" => {
            format!("Must be a date and time after RFC 3339, like `2026-06-12T08:00:00Z`{is}.")
        }
        ValidationErrorKind::Format { format } if format == "uuid" => uuid_sentence(&is),
        ValidationErrorKind::Pattern { pattern } if pattern.contains("-4[0-9a-fA-F]") => {
            uuid_sentence(&is)
        }
        ValidationErrorKind::Pattern { pattern } if pattern.contains("-[1-8][0-9a-fA-F]") => {
            format!("Must be a UUID with hyphens, of version 1 to 8{is}.")
        }
        ValidationErrorKind::Pattern { pattern } => pattern_sentence(pattern, at, &is),
        ValidationErrorKind::AnyOf { .. } if at == "/toAgent" => {
            "Must name a target: at least one of `agentType`, `agentId` and `capability`."
                .to_owned()
        }
        ValidationErrorKind::AdditionalProperties { .. } => {
            "Has a member that the schema does not allow here.".to_owned()
        }
        other => format!("Does not satisfy the schema's `{}`.", other.keyword()),
    }
}

fn uuid_sentence(is: &str) -> String {
    format!("Must be a version 4 UUID with hyphens{is}.")
}

fn pattern_sentence(pattern: &str, at: &str, is: &str) -> String {
    if at == "/schemaVersion" {
        return format!("Must be a version like `2.1` or `2.1.0`{is}.");
    }
    if at == "/traceparent" {
        return format!(
            "Must be a W3C traceparent, `00-<32 hex>-<16 hex>-<2 hex>` in lower case, or one of a later version{is}."
        );
    }
    if pattern.starts_with("^sha256:") {
        return format!("Must be `sha256:` and at most 64 hexadecimal digits{is}.");
    }
    if at == "/signature" {
        return "Must be `hmac-sha256:` and 64 hexadecimal digits.".to_owned();
    }
    if at.starts_with("/constraints/") {
        return format!("Must have the form `key:value`{is}.");
    }
    if pattern.starts_with("^[A-Za-z0-9][") {
        return format!(
            "Must be an agent id: a letter or digit, then at most 127 more of letters, digits and `._:@-`{is}."
        );
    }
    format!("Must match the pattern `{pattern}`{is}.")
}

/// The known name most like `name`, if it is alike enough.
pub(super) fn nearest<'n>(name: &str, known: &'n [String]) -> Option<&'n str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let plain = |text: &str| text.replace(['_', '-', ' '], "").to_lowercase();
    let wanted = plain(name);
    known
        .iter()
        .map(|candidate| {
            (strsim::normalized_damerau_levenshtein(&wanted, &plain(candidate)), candidate)
        })
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.as_str())
}
