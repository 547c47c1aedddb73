use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::contract::schema;

/// Kinds and pointers of the changes.
fn told(old: &Value, new: &Value) -> Vec<(&'static str, String)> {
    compare(old, new).into_iter().map(|one| (one.kind.as_str(), one.pointer)).collect()
}

fn one(kind: &'static str, pointer: &str) -> Vec<(&'static str, String)> {
    vec![(kind, pointer.to_owned())]
}

/// Compares 2.1 with 2.2. The version that a message names and the patterns of ids are left out, because the comparison sees
/// patterns as plain texts: any id of 2.1 fits 2.2 (`src/schema/tests.rs`).
#[test]
fn schema_2_2_breaks_neither_senders_nor_receivers_of_2_1() {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let old = read(include_str!("../../../../../schemas/handoff/2.1.json"));
    let new = read(include_str!("../../../../../schemas/handoff/2.2.json"));
    let ids = ["/schemaVersion", "/handoffId", "/taskId", "/parentHandoffId", "uuid", "Uuid"];
    let changes: Vec<_> = compare(&old, &new)
        .into_iter()
        .filter(|change| !ids.iter().any(|id| change.pointer.contains(id)))
        .collect();
    let breaking: Vec<_> = changes.iter().filter(|change| !change.breaks.is_empty()).collect();
    assert!(breaking.is_empty(), "{breaking:?}");
    let told = |kind, pointer: &str| {
        changes.iter().any(|change| change.kind == kind && change.pointer == pointer)
    };
    assert!(told(Kind::PropertyAdded, "/properties/context"), "{changes:?}");
    for added in ["returnTo", "join", "onReject"] {
        assert!(told(Kind::PropertyAdded, &format!("/properties/{added}")), "{changes:?}");
    }
    assert!(told(Kind::Widened, "/properties/historyStrategy/enum"), "{changes:?}");
}

#[test]
fn a115_each_change_is_told_with_its_place_and_who_breaks() {
    let base = json!({
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "maxLength": 20, "pattern": "^a"},
            "state": {"enum": ["open", "closed"]},
            "count": {"type": "integer", "minimum": 1, "multipleOf": 4},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
    });
    let senders: &[Side] = &[Side::Senders];
    let receivers: &[Side] = &[Side::Receivers];
    let both: &[Side] = &[Side::Senders, Side::Receivers];
    let cases: &[(&str, Value, &str, &[Side])] = &[
        ("/properties/note", json!({"type": "string"}), "property-added", &[]),
        ("/properties/tags", Value::Null, "property-removed", receivers),
        ("/required", json!(["id", "state"]), "required-added", senders),
        ("/required", json!([]), "required-removed", receivers),
        ("/properties/id/type", json!(["string", "null"]), "type-changed", receivers),
        ("/properties/id/type", json!("integer"), "type-changed", both),
        ("/properties/count/type", json!("number"), "type-changed", receivers),
        ("/properties/id/maxLength", json!(10), "narrowed", senders),
        ("/properties/id/maxLength", json!(30), "widened", &[]),
        ("/properties/id/maxLength", Value::Null, "widened", &[]),
        ("/properties/id/minLength", json!(1), "narrowed", senders),
        ("/properties/id/pattern", json!("^b"), "incomparable", both),
        ("/properties/id/pattern", Value::Null, "widened", &[]),
        ("/properties/id/format", json!("uuid"), "narrowed", senders),
        ("/properties/state/enum", json!(["open"]), "narrowed", senders),
        ("/properties/state/enum", json!(["open", "closed", "held"]), "widened", &[]),
        ("/properties/count/minimum", json!(2), "narrowed", senders),
        ("/properties/count/minimum", json!(0), "widened", &[]),
        ("/properties/count/multipleOf", json!(2), "widened", &[]),
        ("/properties/count/multipleOf", json!(6), "narrowed", senders),
        ("/properties/tags/items/type", json!("integer"), "type-changed", both),
        ("/properties/tags/uniqueItems", json!(true), "narrowed", senders),
        ("/additionalProperties", json!(false), "narrowed", senders),
        ("/patternProperties", json!({"^x-": {"type": "string"}}), "narrowed", senders),
        ("/not", json!({"required": ["x"]}), "incomparable", both),
        ("/anyOf", json!([{"required": ["x"]}]), "incomparable", both),
        ("/properties/id/deprecated", json!(true), "deprecated", &[]),
        ("/properties/id/description", json!("Its name."), "annotation", &[]),
        ("/title", json!("A thing"), "annotation", &[]),
    ];
    for (pointer, value, kind, breaks) in cases {
        let mut new = base.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(name);
        } else {
            parent.insert(name.to_owned(), value.clone());
        }
        let changes = compare(&base, &new);
        assert_eq!(changes.len(), 1, "{pointer} {value}: {changes:#?}");
        assert_eq!((changes[0].kind.as_str(), changes[0].breaks), (*kind, *breaks), "{pointer}");
        let at = &changes[0].pointer;
        assert!(at == pointer || at.starts_with(&format!("{pointer}/")), "{pointer}: {at}");
        assert!(!changes[0].reason.is_empty());
    }
    assert_eq!(compare(&base, &base), []);
}

#[test]
fn definitions_are_compared_through_references_also_where_they_contain_themselves() {
    let tree = |kind: &str| {
        json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"properties": {
                "value": {"type": kind},
                "left": {"$ref": "#/$defs/node"},
            }}},
        })
    };
    assert_eq!(told(&tree("string"), &tree("string")), []);
    assert_eq!(
        told(&tree("integer"), &tree("number")),
        one("type-changed", "/$defs/node/properties/value/type")
    );
    // An inline schema may become a definition.
    let inline = json!({"properties": {"a": {"type": "string"}}});
    let defined =
        json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}});
    assert_eq!(told(&inline, &defined), []);
    let own = json!({"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}});
    let more = json!({"properties": {"a": {"$ref": "#"}, "b": {"type": "null"}}});
    assert_eq!(told(&own, &more), one("type-changed", "/properties/b/type"));
    let named = json!({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}});
    assert_eq!(told(&named, &json!({})), one("incomparable", "/$ref"));
    let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
    assert_eq!(told(&circle, &json!({})), one("incomparable", "/$ref"));
}

#[test]
fn maps_lists_and_parts_are_compared_place_by_place() {
    let map = |kind: &str| json!({"additionalProperties": {"type": kind}});
    assert_eq!(
        told(&map("string"), &map("integer")),
        one("type-changed", "/additionalProperties/type")
    );
    // A name that a map described before is held against what the map said.
    let mut named = map("string");
    named["properties"] = json!({"a": {"type": "integer"}});
    assert_eq!(
        told(&map("string"), &named),
        [
            ("property-added", "/properties/a".to_owned()),
            ("type-changed", "/properties/a/type".to_owned())
        ]
    );
    let pair = json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}});
    let longer = json!({"prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"}});
    assert_eq!(told(&pair, &longer), one("type-changed", "/prefixItems/1/type"));
    let either = |least: u8| json!({"anyOf": [{"type": "null"}, {"minLength": least}]});
    assert_eq!(told(&either(1), &either(2)), one("narrowed", "/anyOf/1/minLength"));
    let exactly = |least: u8| json!({"oneOf": [{"type": "null"}, {"minLength": least}]});
    assert_eq!(
        told(&exactly(2), &exactly(1)),
        [("widened", "/oneOf/1/minLength".to_owned()), ("incomparable", "/oneOf".to_owned())]
    );
    // An equal `not` means something else where its definition changed.
    let not = |kind: &str| json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": kind}}});
    assert_eq!(told(&not("string"), &not("null")), one("incomparable", "/not"));
    assert_eq!(told(&json!(true), &json!(false)), one("narrowed", ""));
    assert_eq!(told(&json!(false), &json!({"type": "string"})), one("widened", ""));
}

#[test]
fn a_comparison_is_bounded() {
    // Each level refers to the next in two places: a naive walk doubles at each, and so does an honest
    // one where the places differ.
    let level = |n: usize| {
        json!({"properties": {
            "a": {"$ref": format!("#/$defs/l{}", n + 1)}, "b": {"$ref": format!("#/$defs/l{}", n + 1)},
        }})
    };
    let mut old = json!({"$ref": "#/$defs/l0", "$defs": {"l40": {"type": "string"}}});
    for n in 0..40 {
        old["$defs"][format!("l{n}")] = level(n);
    }
    let mut new = old.clone();
    new["$defs"]["l40"] = json!({"type": "null"});
    assert_eq!(told(&old, &new), one("type-changed", "/$defs/l40/type"));
    let wide = |kind: &str| {
        let all = (0..30_000).map(|n| (format!("p{n}"), json!({"type": kind})));
        json!({"properties": all.collect::<serde_json::Map<_, _>>()})
    };
    let changes = compare(
        &wide("string"),
        &wide("string")
            .as_object()
            .map(|all| {
                let mut all = all.clone();
                all.insert("title".to_owned(), json!("wide"));
                Value::Object(all)
            })
            .unwrap(),
    );
    assert_eq!(changes.last().unwrap().kind, Kind::Incomparable);
}

fn version(text: &str) -> semver::Version {
    text.parse().unwrap()
}

fn shelf(versions: &[(&str, Value)]) -> Vec<SchemaRelease> {
    versions
        .iter()
        .map(|(number, schema)| SchemaRelease { version: version(number), schema: schema.clone() })
        .collect()
}

fn faults(known: &[SchemaRelease], number: &str, schema: &Value, migration: bool) -> Vec<String> {
    let found = assess(known, Some(&version(number)), schema, migration);
    found.faults.into_iter().map(|fault| fault.pointer).collect()
}

#[test]
fn a115_the_version_says_what_the_change_does() {
    let base = json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let known = shelf(&[("1.2.3", base.clone())]);
    let mut words = base.clone();
    words["title"] = json!("A thing");
    let mut optional = base.clone();
    optional["properties"]["c"] = json!({});
    let mut required = base.clone();
    required["required"] = json!(["a"]);
    let none: [&str; 0] = [];
    assert_eq!(faults(&known, "1.2.4", &words, false), none);
    assert_eq!(faults(&known, "1.2.4", &optional, false), ["/version", "/schema/properties/c"]);
    assert_eq!(faults(&known, "1.3.0", &optional, false), none);
    assert_eq!(faults(&known, "1.3.0", &required, true), ["/version", "/schema/required"]);
    assert_eq!(faults(&known, "2.0.0", &required, false), ["/migration"]);
    assert_eq!(faults(&known, "2.0.0", &required, true), none);
    assert_eq!(faults(&known, "2.0.0-rc.1", &required, true), none);
    let found = assess(&known, None, &required, true);
    assert_eq!((found.needs, found.next), (Some(Bump::Major), version("2.0.0")));
    assert_eq!(found.faults, []);
    assert_eq!(assess(&[], None, &base, false).next, version("1.0.0"));
    assert_eq!(faults(&[], "0.1.0", &base, false), none);
}

#[test]
fn a115_what_goes_was_announced_in_a_release_before() {
    let base = json!({"properties": {"a": {"type": "string"}, "b": {"properties": {"c": {"type": "string"}}}}});
    let mut less = base.clone();
    less["properties"].as_object_mut().unwrap().remove("a");
    let known = shelf(&[("1.0.0", base.clone())]);
    assert_eq!(faults(&known, "2.0.0", &less, false), ["/schema/properties/a"]);
    let mut marked = base.clone();
    marked["properties"]["a"]["deprecated"] = json!(true);
    // A pre-release announces nothing.
    let known = shelf(&[("1.0.0", base.clone()), ("1.1.0-rc.1", marked.clone())]);
    assert_eq!(faults(&known, "2.0.0", &less, false), ["/schema/properties/a"]);
    let known = shelf(&[("1.0.0", base.clone()), ("1.1.0", marked)]);
    assert_eq!(faults(&known, "2.0.0", &less, false), Vec::<String>::new());
    // The enclosing object may carry the mark instead.
    let mut around = base.clone();
    around["properties"]["b"]["deprecated"] = json!(true);
    let mut changed = around.clone();
    changed["properties"]["b"]["properties"]["c"]["type"] = json!("integer");
    let known = shelf(&[("1.0.0", base.clone()), ("1.1.0", around)]);
    assert_eq!(faults(&known, "2.0.0", &changed, false), Vec::<String>::new());
    // Before 1.0.0 no announcement is needed, and a minor release counts as a major one.
    let known = shelf(&[("0.3.0", base)]);
    assert_eq!(faults(&known, "0.3.1", &less, false), ["/version", "/schema/properties/a"]);
    assert_eq!(faults(&known, "0.4.0", &less, false), Vec::<String>::new());
}

#[test]
fn a_version_between_two_keeps_the_upper_one_honest() {
    let with = |names: &[&str]| {
        let all = names.iter().map(|name| ((*name).to_owned(), json!({})));
        json!({"properties": all.collect::<serde_json::Map<_, _>>()})
    };
    let known =
        shelf(&[("1.0.0", with(&["a"])), ("1.2.0", with(&["a", "b"])), ("2.0.0", with(&["c"]))]);
    let none: [&str; 0] = [];
    assert_eq!(faults(&known, "1.1.0", &with(&["a", "b"]), false), none);
    // 1.2.0 would then lack `z`, which a minor version may not.
    assert_eq!(faults(&known, "1.1.0", &with(&["a", "z"]), false), ["/version"]);
    assert_eq!(faults(&known, "1.3.0", &with(&["a", "b", "z"]), false), none);
    assert_eq!(faults(&known, "0.9.0", &with(&["q"]), false), none);
}

// --- properties ---

/// Schemas without parts that are combined: what [`closed`] and [`skeleton`] can be made of.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        (0u8..3, 0u8..4).prop_map(|(least, span)| json!({
            "type": "string", "minLength": least, "maxLength": least + span,
        })),
        (-2i8..3, 0u8..4).prop_map(|(least, span)| json!({
            "type": "integer", "minimum": least, "maximum": i16::from(least) + i16::from(span),
        })),
        (-2i8..3).prop_map(|least| json!({"type": "number", "exclusiveMinimum": least})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!({"type": "boolean"})),
        proptest::sample::subsequence(vec![json!("a"), json!("ab"), json!(1), Value::Null], 1..4)
            .prop_map(|values| json!({ "enum": values })),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let object = (
            proptest::collection::btree_map("[a-c]", inner.clone(), 0..3),
            proptest::sample::subsequence(vec!["a", "b", "c"], 0..3),
            prop_oneof![Just(None), Just(Some(json!(false))), inner.clone().prop_map(Some)],
            0u8..2,
        )
            .prop_map(|(properties, required, additional, least)| {
                let mut made = json!({
                    "type": "object", "properties": properties, "required": required,
                    "minProperties": least,
                });
                if let Some(additional) = additional {
                    made["additionalProperties"] = additional;
                }
                made
            });
        let list = (inner, 0u8..3, 0u8..3).prop_map(|(items, least, span)| {
            json!({
                "type": "array", "items": items, "minItems": least, "maxItems": least + span,
            })
        });
        prop_oneof![object, list]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i8..5).prop_map(Value::from),
        Just(json!(0.5)),
        "[ab]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::btree_map("[a-d]", inner.clone(), 0..3)
                .prop_map(|all| json!(all)),
            proptest::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

/// A schema with some of its places changed, so that pairs are near each other.
fn pairs() -> impl Strategy<Value = (Value, Value)> {
    (schemas(), schemas(), proptest::collection::vec(any::<prop::sample::Index>(), 1..3)).prop_map(
        |(old, donor, picks)| {
            let mut new = old.clone();
            for pick in picks {
                let (mut places, mut parts) = (Vec::new(), Vec::new());
                pointers(&new, "", &mut places);
                pointers(&donor, "", &mut parts);
                let place = places[pick.index(places.len())].clone();
                let keyword = place.rsplit('/').next().unwrap_or_default().to_owned();
                let same: Vec<_> =
                    parts.iter().filter(|part| part.rsplit('/').next() == Some(&keyword)).collect();
                if let Some(part) = same.first() {
                    let part = donor.pointer(part).unwrap().clone();
                    *new.pointer_mut(&place).unwrap() = part;
                } else if let Some((parent, name)) = place.rsplit_once('/')
                    && let Some(parent) = new.pointer_mut(parent).and_then(Value::as_object_mut)
                {
                    parent.remove(name);
                }
            }
            (old, new)
        },
    )
}

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    if let Value::Object(members) = value {
        for (name, member) in members {
            pointers(member, &format!("{at}/{name}"), found);
        }
    }
}

/// The schema without any property that it does not name, even if it allows further ones.
fn closed(schema: &Value) -> Value {
    let mut made = schema.clone();
    let Some(members) = made.as_object_mut() else { return made };
    let others = members.get("additionalProperties");
    if others.is_none_or(|others| others == &json!(true) || others == &json!({})) {
        members.insert("additionalProperties".to_owned(), json!(false));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(part) = members.get_mut(name) {
            *part = closed(part);
        }
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for part in properties.values_mut() {
            *part = closed(part);
        }
    }
    made
}

/// The members of a schema that a receiver relies on: types and required properties.
fn skeleton(schema: &Value) -> Value {
    let mut made = json!({});
    for name in ["type", "required"] {
        if let Some(part) = schema.get(name) {
            made[name] = part.clone();
        }
    }
    if let Some(items) = schema.get("items") {
        made["items"] = skeleton(items);
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, part) in properties {
            made["properties"][name] = skeleton(part);
        }
    }
    made
}

fn breaks(changes: &[Change], side: Side) -> bool {
    changes.iter().any(|change| change.breaks.contains(&side))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_breaks_no_sender_takes_all_that_the_old_version_describes(
        (old, new) in pairs(), payloads in proptest::collection::vec(values(), 12)
    ) {
        if !breaks(&compare(&old, &new), Side::Senders) {
            let (before, after) = (schema::compile(&closed(&old)).unwrap(), schema::compile(&new).unwrap());
            for payload in payloads.iter().filter(|payload| before.is_valid(payload)) {
                prop_assert!(after.is_valid(payload), "{payload} {old} {new}");
            }
        }
    }

    #[test]
    fn what_breaks_no_receiver_leaves_it_what_it_relies_on(
        (old, new) in pairs(), payloads in proptest::collection::vec(values(), 12)
    ) {
        if !breaks(&compare(&old, &new), Side::Receivers) {
            let (relied, after) = (schema::compile(&skeleton(&old)).unwrap(), schema::compile(&new).unwrap());
            for payload in payloads.iter().filter(|payload| after.is_valid(payload)) {
                prop_assert!(relied.is_valid(payload), "{payload} {old} {new}");
            }
        }
    }

    #[test]
    fn a_schema_is_compatible_with_itself_under_any_number(schema in schemas()) {
        prop_assert_eq!(compare(&schema, &schema), []);
        let known = [SchemaRelease { version: semver::Version::new(1, 0, 0), schema: schema.clone() }];
        let next = semver::Version::new(1, 0, 1);
        prop_assert_eq!(assess(&known, Some(&next), &schema, false).faults, []);
    }
}
