//! The payload of a contract as a message carries it (seed 002 §3.4).
//!
//! A contract speaks of `task_summary` and `provenance.order_id`; a message says `taskSummary`, and
//! has the order where its sender put it. A dotted name is looked for, in this order: as a field of the
//! message, in `currentState`, in `extensions`, in `metadata`. `payload.` in front says nothing,
//! `state.` means `currentState` alone. `constraints` are `key:value` texts in a message, and count as
//! an object here.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::schema;

/// Members of the message that are searched, in this order, when a payload name matches no field of the message itself.
const ELSEWHERE: [&str; 3] = ["currentState", "extensions", "metadata"];

/// `taskSummary` as `task_summary`.
#[must_use]
pub fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            if !out.is_empty() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// `task_summary` as `taskSummary`.
#[must_use]
pub fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match (c, upper) {
            ('_', _) if !out.is_empty() => upper = true,
            (c, true) => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            (c, false) => out.push(c),
        }
    }
    out
}

fn push(pointer: &mut String, segment: &str) {
    pointer.push('/');
    pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
}

/// A dotted name as a pointer into the message (RFC 6901): where a missing one should be.
#[must_use]
pub fn pointer_of(name: &str) -> String {
    let name = name.strip_prefix("payload.").unwrap_or(name);
    let mut segments = name.split('.');
    let mut pointer = String::new();
    match segments.next() {
        Some("state") => push(&mut pointer, "currentState"),
        Some(first) => push(&mut pointer, &camel(first)),
        None => {}
    }
    for segment in segments {
        push(&mut pointer, segment);
    }
    pointer
}

/// The value under a dotted name in a message, with its pointer; null counts as absent.
#[must_use]
pub fn find<'a>(message: &'a Value, name: &str) -> Option<(String, Cow<'a, Value>)> {
    let name = name.strip_prefix("payload.").unwrap_or(name);
    if let Some(below) = name.strip_prefix("state.") {
        return within(message.get("currentState")?, "/currentState", below);
    }
    let (first, rest) = name.split_once('.').map_or((name, ""), |(first, rest)| (first, rest));
    for field in [camel(first), first.to_owned()] {
        let Some(value) = message.get(&field) else { continue };
        let mut pointer = String::new();
        push(&mut pointer, &field);
        let found = match value {
            Value::Array(entries) if field == "constraints" => {
                constraint(entries, rest).map(|(at, value)| {
                    (at.map_or_else(|| pointer.clone(), |at| format!("{pointer}/{at}")), value)
                })
            }
            _ if rest.is_empty() => some(value).map(|value| (pointer.clone(), value)),
            _ => within(value, &pointer, rest),
        };
        if found.is_some() {
            return found;
        }
    }
    ELSEWHERE.iter().find_map(|place| within(message.get(*place)?, &format!("/{place}"), name))
}

fn some(value: &Value) -> Option<Cow<'_, Value>> {
    (!value.is_null()).then_some(Cow::Borrowed(value))
}

/// A dotted name below a value; a member with that very name does as well.
fn within<'a>(value: &'a Value, pointer: &str, name: &str) -> Option<(String, Cow<'a, Value>)> {
    if let Some(found) = value.get(name).and_then(some) {
        let mut pointer = pointer.to_owned();
        push(&mut pointer, name);
        return Some((pointer, found));
    }
    let mut pointer = pointer.to_owned();
    let mut at = value;
    for segment in name.split('.') {
        push(&mut pointer, segment);
        at = at.get(segment)?;
    }
    some(at).map(|found| (pointer, found))
}

/// One constraint by its key, or all as an object where no key is given.
fn constraint<'a>(entries: &'a [Value], key: &str) -> Option<(Option<usize>, Cow<'a, Value>)> {
    if key.is_empty() {
        let object: Map<String, Value> = entries
            .iter()
            .filter_map(Value::as_str)
            .filter_map(|text| text.split_once(':'))
            .map(|(key, value)| (key.trim().to_owned(), plain(value)))
            .collect();
        return Some((None, Cow::Owned(Value::Object(object))));
    }
    entries.iter().enumerate().find_map(|(at, entry)| {
        let (known, value) = entry.as_str()?.split_once(':')?;
        (known.trim() == key).then(|| (Some(at), Cow::Owned(plain(value))))
    })
}

/// A constraint's value: a number or a truth where it reads as one, else text.
fn plain(text: &str) -> Value {
    let text = text.trim();
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::from(text),
    }
}

/// Builds the payload as an object with these names only, and the pointer of each value in the message.
#[must_use]
pub fn view(
    message: &Value,
    names: &[String],
    against: Option<&Value>,
) -> (Value, Map<String, Value>) {
    let mut payload = Map::new();
    let mut places = Map::new();
    for name in names {
        let as_array = name == "constraints"
            && against.is_some_and(|schema| schema::wants_array(schema, name));
        if as_array && let Some(entries) = message.get("constraints") {
            payload.insert(name.clone(), entries.clone());
            places.insert(name.clone(), Value::from("/constraints"));
        } else if let Some((pointer, value)) = find(message, name) {
            payload.insert(name.clone(), value.into_owned());
            places.insert(name.clone(), Value::from(pointer));
        }
    }
    (Value::Object(payload), places)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(message: &Value, name: &str) -> Option<(String, Value)> {
        find(message, name).map(|(pointer, value)| (pointer, value.into_owned()))
    }

    #[test]
    fn c20_a_dotted_name_is_found_where_a_message_has_it() {
        let message = json!({
            "taskSummary": "refund", "provenance": {"order_id": 7, "none": null},
            "constraints": ["policy_window_days:30", "tone: kind"],
            "currentState": {"a": {"b": 1}, "c.d": true, "customer": "x"},
            "extensions": {"extra": [1]},
        });
        let found = |pointer: &str, value: Value| Some((pointer.to_owned(), value));
        assert_eq!(at(&message, "task_summary"), found("/taskSummary", json!("refund")));
        assert_eq!(
            at(&message, "payload.provenance.order_id"),
            found("/provenance/order_id", json!(7))
        );
        assert_eq!(
            at(&message, "constraints.policy_window_days"),
            found("/constraints/0", json!(30))
        );
        assert_eq!(at(&message, "constraints.tone"), found("/constraints/1", json!("kind")));
        assert_eq!(at(&message, "state.a.b"), found("/currentState/a/b", json!(1)));
        assert_eq!(at(&message, "customer"), found("/currentState/customer", json!("x")));
        assert_eq!(at(&message, "c.d"), found("/currentState/c.d", json!(true)));
        assert_eq!(at(&message, "extra"), found("/extensions/extra", json!([1])));
        for absent in [
            "provenance.none",
            "provenance.x.y",
            "constraints.other",
            "state.customer.z",
            "nothing",
        ] {
            assert_eq!(at(&message, absent), None, "{absent}");
        }
        assert_eq!(pointer_of("payload.task_summary.x"), "/taskSummary/x");
        assert_eq!(pointer_of("state.visited_agents"), "/currentState/visited_agents");
    }

    #[test]
    fn the_two_spellings_are_one() {
        for (camels, snakes) in
            [("taskSummary", "task_summary"), ("a", "a"), ("conversationId", "conversation_id")]
        {
            assert_eq!(snake(camels), snakes);
            assert_eq!(camel(snakes), camels);
        }
    }
}
