//! Facts about single schemas: targets of references, allowed types and values.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Number, Value};

/// References after one another that lead to no schema yet.
const MAX_HOPS: usize = 32;

/// The target of a chain of references.
pub(super) struct ResolvedReference<'a> {
    pub(super) schema: &'a Value,
    pub(super) at: String,
    pub(super) hops: usize,
    /// A schema on the way, or the last one, is `deprecated`.
    pub(super) deprecated: bool,
}

/// Follows references that stand alone, but for words.
pub(super) fn hop<'a>(
    root: &'a Value,
    schema: &'a Value,
    at: &str,
) -> Result<ResolvedReference<'a>, ()> {
    let mut hopped = ResolvedReference { schema, at: at.to_owned(), hops: 0, deprecated: false };
    loop {
        hopped.deprecated |= hopped.schema.get("deprecated") == Some(&Value::Bool(true));
        let Some(reference) = reference(hopped.schema).filter(|_| is_alone(hopped.schema)) else {
            return Ok(hopped);
        };
        let (next, at) = resolve(root, reference).ok_or(())?;
        (hopped.schema, hopped.at, hopped.hops) = (next, at, hopped.hops + 1);
        if hopped.hops > MAX_HOPS {
            return Err(());
        }
    }
}

pub(super) fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str)
}

/// Whether no keyword beside the reference constrains the value.
fn is_alone(schema: &Value) -> bool {
    const WORDS: [&str; 12] = [
        "$ref",
        "$defs",
        "definitions",
        "$id",
        "$schema",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
    ];
    schema.as_object().is_some_and(|all| all.keys().all(|name| WORDS.contains(&name.as_str())))
}

/// The target of a reference within the document, with its pointer.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<(&'a Value, String)> {
    let own = root.get("$id").and_then(Value::as_str).unwrap_or_default();
    let pointer = reference.strip_prefix(own).unwrap_or(reference).strip_prefix('#')?;
    if pointer.contains('%') || !(pointer.is_empty() || pointer.starts_with('/')) {
        return None;
    }
    Some((root.pointer(pointer)?, pointer.to_owned()))
}

pub(super) fn has_reference(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_reference),
        Value::Object(members) => {
            members.contains_key("$ref") || members.values().any(has_reference)
        }
        _ => false,
    }
}

/// Properties that are not described may be anything.
pub(super) fn is_open(schema: Option<&Value>) -> bool {
    match schema {
        None | Some(Value::Bool(true)) => true,
        Some(Value::Object(demands)) => demands.is_empty(),
        _ => false,
    }
}

pub(super) fn texts(list: Option<&Value>) -> BTreeSet<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The types of JSON; a number is a whole one or not.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "string", "integer", "number"];
const INTEGER: u8 = 1 << 5;
const FRACTION: u8 = 1 << 6;
const ALL: u8 = (1 << 7) - 1;

fn bit(name: &str) -> u8 {
    let place = TYPES.iter().position(|known| *known == name);
    place.map_or(0, |place| if name == "number" { INTEGER | FRACTION } else { 1 << place })
}

/// The types that a schema allows, as bits: by `type`, and by the values that it lists.
pub(super) fn types(schema: &Value) -> u8 {
    let stated = match schema.get("type") {
        Some(Value::String(name)) => bit(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).fold(0, |all, name| all | bit(name))
        }
        _ => ALL,
    };
    let listed =
        allowed(schema).map_or(ALL, |values| values.iter().fold(0, |all, one| all | bit_of(one)));
    stated & listed
}

fn bit_of(value: &Value) -> u8 {
    match value {
        Value::Null => bit("null"),
        Value::Bool(_) => bit("boolean"),
        Value::Object(_) => bit("object"),
        Value::Array(_) => bit("array"),
        Value::String(_) => bit("string"),
        Value::Number(number) => {
            let whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
            if whole { INTEGER } else { FRACTION }
        }
    }
}

pub(super) fn named(bits: u8) -> String {
    let mut names: Vec<&str> =
        TYPES.iter().filter(|name| **name != "number" && bits & bit(name) != 0).copied().collect();
    if bits & FRACTION != 0 {
        names.retain(|name| *name != "integer");
        names.push(if bits & INTEGER != 0 { "number" } else { "a number that is not whole" });
    }
    if bits == ALL { "any type".to_owned() } else { names.join(" or ") }
}

pub(super) fn allowed(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(only) = schema.get("const") {
        return Some(vec![only]);
    }
    schema.get("enum").and_then(Value::as_array).map(|all| all.iter().collect())
}

/// Exactly for whole numbers, else as near as floating point goes.
pub(super) fn order(one: &Number, other: &Number) -> Option<Ordering> {
    let whole = |number: &Number| {
        number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
    };
    match whole(one).zip(whole(other)) {
        Some((one, other)) => Some(one.cmp(&other)),
        None => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

pub(super) fn shown(values: &[&&Value]) -> String {
    let texts: Vec<String> = values.iter().take(5).map(|value| short(&value.to_string())).collect();
    let more = if values.len() > 5 { ", …" } else { "" };
    texts.join(", ") + more
}
