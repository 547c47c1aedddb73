use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::{Keyword, ValidationError};
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

/// Definitions of which each names the next one twice, in a schema that applies the first by `begin`.
fn doubling(levels: usize, begin: impl Fn(Value) -> Value, step: impl Fn(Value) -> Value) -> Value {
    let next = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
    let mut defs = Map::new();
    for n in 0..levels {
        defs.insert(format!("d{n}"), step(next(n + 1)));
    }
    defs.insert(format!("d{levels}"), json!({ "type": "integer" }));
    let mut schema = begin(next(0));
    schema["$defs"] = Value::Object(defs);
    schema
}

#[expect(clippy::needless_pass_by_value, reason = "a step of `doubling`, which gives values")]
fn property(first: Value) -> Value {
    json!({ "properties": { "x": first } })
}

#[expect(clippy::needless_pass_by_value, reason = "a step of `doubling`, which gives values")]
fn list(first: Value) -> Value {
    json!({ "properties": { "x": { "items": first } } })
}

#[expect(clippy::needless_pass_by_value, reason = "a step of `doubling`, which gives values")]
fn either(next: Value) -> Value {
    json!({ "anyOf": [next.clone(), next] })
}

fn refused(schema: &Value) -> Option<(u64, String)> {
    let graph = Graph::of(schema).unwrap();
    let checked = graph.places(MOST).and_then(|places| graph.check_many(&places));
    checked.err().map(|costly| (costly.limit, costly.part.to_owned()))
}

#[test]
fn what_doubles_beside_itself_or_down_one_property_is_too_much() {
    let beside = doubling(60, property, either);
    assert_eq!(refused(&beside), Some((MOST, "#/$defs/d60".to_owned())));
    let down = doubling(60, property, |next| {
        let branch = json!({ "properties": { "a": next } });
        json!({ "anyOf": [branch, branch] })
    });
    assert!(refused(&down).is_some_and(|(limit, _)| limit == MOST));
    assert_eq!(refused(&doubling(8, property, either)), None);
}

/// Finding S3 of 0.3.0: eleven levels are few for one value, and three thousand of them stand in six kilobytes.
#[test]
fn what_a_list_may_hold_many_times_costs_less_than_what_is_there_once() {
    assert_eq!(refused(&doubling(11, property, either)), None);
    assert!(refused(&doubling(11, list, either)).is_some_and(|(limit, _)| limit == MOST_OF_MANY));
    for open in ["additionalProperties", "patternProperties"] {
        let many = doubling(11, property, either);
        let inner = if open == "patternProperties" {
            json!({ ".": { "$ref": "#/$defs/d0" } })
        } else {
            json!({ "$ref": "#/$defs/d0" })
        };
        let mut schema = json!({ "$defs": many["$defs"] });
        schema[open] = inner;
        assert!(refused(&schema).is_some_and(|(limit, _)| limit == MOST_OF_MANY), "{open}");
    }
    let long: Vec<Value> = (0..20_000).map(|n| json!(n)).collect();
    assert_eq!(refused(&json!({ "enum": long })), None);
}

#[test]
fn a_message_costs_what_its_values_cost_together() {
    let schema = doubling(9, list, either);
    let graph = Graph::of(&schema).unwrap();
    let places = graph.places(MOST).unwrap();
    let message = |count: usize| json!({ "x": vec![Value::from("no"); count] });
    assert!(places.can_be_judged(&message(3_000)));
    assert!(!places.can_be_judged(&message(100_000)), "more looks than a message may take");
    // Its faults would fill the memory: it is told that it does not fit, and no more.
    assert!(!graph.can_be_told(&message(3_000)));
    assert!(graph.can_be_told(&message(5)));
    let looks = |message: &Value| places.cost(message, u64::MAX).looks;
    let (few, many) = (looks(&message(10)), looks(&message(1_000)));
    assert!(many > 99 * few && many < 101 * few, "{few} {many}");
    // A text is read by patterns.
    let patterns = json!({ "items": { "pattern": "^a*$" } });
    let places = Graph::of(&patterns).unwrap().places(MOST).unwrap();
    let of = |text: String| places.cost(&json!([text]), u64::MAX).looks;
    assert!(of("a".repeat(1 << 20)) > 60_000);
    // Elements that have to differ are compared, with all that is in them.
    let unique = json!({ "uniqueItems": true });
    let places = Graph::of(&unique).unwrap().places(MOST).unwrap();
    let of = |count: usize| places.cost(&json!([vec![1; count], 2]), u64::MAX).looks;
    assert!(of(1_000) > 1_000);
}

#[test]
fn what_only_looks_like_much_is_taken() {
    // Each name is another place of the message.
    let wide =
        doubling(60, property, |next| json!({ "properties": { "left": next, "right": next } }));
    assert_eq!(refused(&wide), None);
    // Leads back to itself: the validator remembers. Its faults, though, are told of shallow ones alone.
    let branch = |op| json!({ "properties": { "op": { "const": op }, "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
    let terms = json!({ "anyOf": [{ "type": "number" }, branch("add"), branch("mul")] });
    assert_eq!(refused(&terms), None);
    let graph = Graph::of(&terms).unwrap();
    let deep = |depth: usize| {
        (0..depth).fold(json!("x"), |below, _| json!({ "op": "add", "left": below, "right": 1 }))
    };
    assert!(graph.can_be_told(&deep(3)) && !graph.can_be_told(&deep(60)));
    assert!(graph.places(MOST).unwrap().can_be_judged(&deep(60)));
    let long: Vec<Value> = (0..5_000).map(|n| json!({ "const": n })).collect();
    assert_eq!(refused(&json!({ "anyOf": long })), None);
    // A language of statements, each a list of others.
    let statement = |n| json!({ "properties": { "kind": { "const": n }, "body": { "items": { "$ref": "#" } }, "of": { "$ref": "#" } } });
    let language: Vec<Value> = (0..40).map(statement).collect();
    assert_eq!(refused(&json!({ "oneOf": language })), None);
}

#[test]
fn what_leads_back_to_itself_at_once_is_named() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "$defs": { "a": { "$anchor": "a", "allOf": [{ "$ref": "#a" }] } }, "items": { "$ref": "#/$defs/a" } }),
    ] {
        assert!(Graph::of(&schema).unwrap_err().contains("leads back"), "{schema}");
    }
}

/// Counts each application of the subschema that has it.
struct Counted(Arc<AtomicU64>);

impl<'i> Keyword<'i> for Counted {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Subschemas whose references lead to any of four definitions. Those that hold a value to something fail on some.
fn parts() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..4).prop_map(|n| json!({ "$ref": format!("#/$defs/d{n}"), "counted": true })),
        Just(json!({ "type": "integer", "counted": true })),
        Just(json!({ "type": "object", "counted": true })),
        Just(json!({ "counted": true })),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = || proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            list().prop_map(|all| json!({ "anyOf": all, "counted": true })),
            list().prop_map(|all| json!({ "allOf": all, "counted": true })),
            list().prop_map(|all| json!({ "oneOf": all, "counted": true })),
            inner.clone().prop_map(|one| json!({ "not": one, "counted": true })),
            inner.clone().prop_map(|one| json!({ "items": one, "counted": true })),
            inner.clone().prop_map(|one| json!({ "contains": one, "counted": true })),
            inner.clone().prop_map(|one| json!({ "additionalProperties": one, "counted": true })),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| json!({ "properties": { "a": a, "b": b }, "counted": true })),
            (inner.clone(), inner.clone()).prop_map(
                |(a, b)| json!({ "anyOf": [a], "unevaluatedProperties": b, "counted": true })
            ),
        ]
    })
}

fn schemas() -> impl Strategy<Value = Value> {
    (parts(), proptest::collection::vec(parts(), 4)).prop_map(|(mut root, defs)| {
        for (n, def) in defs.into_iter().enumerate() {
            root["$defs"][format!("d{n}")] = def;
        }
        root
    })
}

fn messages() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("x")), Just(Value::Null)];
    leaf.prop_recursive(8, 120, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((prop_oneof!["a", "b", "c"], inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn faults(errors: &[ValidationError<'_>]) -> u64 {
    let within = |error: &ValidationError<'_>| match error.kind() {
        jsonschema::error::ValidationErrorKind::AnyOf { context }
        | jsonschema::error::ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().map(|branch| faults(branch)).sum()
        }
        _ => 0,
    };
    errors.iter().map(|error| 1 + within(error)).sum()
}

/// The validator forgets cheap results and computes them again, up to this factor.
const AGAIN: u64 = 16;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Finding S3 of 0.3.0: schema and message are drawn together, and what the validator does is counted.
    #[test]
    fn the_validator_looks_no_oftener_than_was_counted(schema in schemas(), message in messages()) {
        let Ok(graph) = Graph::of(&schema) else { return Ok(()) };
        let Ok(places) = graph.places(MOST) else { return Ok(()) };
        let looks = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&looks);
        let validator = jsonschema::options()
            .offline()
            .with_keyword("counted", move |_, _, _| Ok(Box::new(Counted(Arc::clone(&counter)))))
            .build(&schema)
            .unwrap();
        let fits = validator.is_valid(&message);
        let (actual, counted) = (looks.load(Ordering::Relaxed), places.cost(&message, u64::MAX));
        prop_assert!(actual <= AGAIN * counted.looks, "{actual} of {counted:?}: {schema} {message}");
        if !fits && graph.can_be_told(&message) {
            let errors: Vec<_> = validator.iter_errors(&message).collect();
            prop_assert!(faults(&errors) <= TOLD, "{schema} {message}");
        }
    }
}
