//! The comparison of two schemas (JSON Schema 2020-12), keyword by keyword: each demand of the new one
//! must follow from a demand of the old one, else it is told as a change.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Number, Value};

use super::{Change, Kind, Side};
use facts::{allowed, has_reference, hop, named, order, reference, resolve, short, shown, types};

mod facts;
mod objects;

/// Places that are looked at, at most: references may lead to the same ones again and again.
const MAX_STEPS: usize = 20_000;

const SENDERS: &[Side] = &[Side::Senders];
const RECEIVERS: &[Side] = &[Side::Receivers];
const BOTH: &[Side] = &[Side::Senders, Side::Receivers];

/// The meaning of a missing schema: anything.
static ANY: Value = Value::Bool(true);

/// Lower bounds; what is absent, and what the absence of a count means.
const LEAST: [(&str, Option<u64>); 5] = [
    ("minimum", None),
    ("exclusiveMinimum", None),
    ("minLength", Some(0)),
    ("minItems", Some(0)),
    ("minProperties", Some(0)),
];
/// Upper bounds.
const MOST: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
/// Demands of which only equality, presence and absence are understood.
const PLAIN: [&str; 2] = ["pattern", "format"];
/// Demands that are understood as a whole only: no part of them can be widened or narrowed by itself.
const OPAQUE: [&str; 15] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "dependencies",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "additionalItems",
    "$vocabulary",
];
/// Demands that have a function of their own here, and places where definitions stand.
const OWN: [&str; 18] = [
    "$ref",
    "$defs",
    "definitions",
    "type",
    "enum",
    "const",
    "multipleOf",
    "uniqueItems",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "dependentRequired",
    "dependentSchemas",
    "items",
    "prefixItems",
    "deprecated",
];
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Everything that changes from `old` to `new`, in the order in which it is found. Both are schemas that
/// compile. Takes a bounded number of steps; what is beyond counts as incomparable.
#[must_use]
pub fn compare(old: &Value, new: &Value) -> Vec<Change> {
    if old == new {
        return Vec::new();
    }
    let mut walk =
        SchemaComparison { old, new, seen: HashSet::new(), changes: Vec::new(), steps: MAX_STEPS };
    walk.seen.insert((String::new(), String::new(), false));
    walk.schema(SchemaPair {
        old,
        new,
        old_at: String::new(),
        new_at: String::new(),
        announced: false,
    });
    if walk.steps == 0 {
        let reason = format!("more than {MAX_STEPS} places would have to be compared");
        walk.changes.push(Change {
            pointer: String::new(),
            kind: Kind::Incomparable,
            breaks: BOTH,
            reason,
            announced: false,
        });
    }
    walk.changes
}

/// A position in both schemas.
#[derive(Clone)]
struct SchemaPair<'a> {
    old: &'a Value,
    new: &'a Value,
    old_at: String,
    new_at: String,
    /// The old one is `deprecated` here or around.
    announced: bool,
}

fn below(pointer: &str, keyword: &str, name: Option<&str>) -> String {
    let mut pointer = format!("{pointer}/{keyword}");
    if let Some(name) = name {
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

impl<'a> SchemaPair<'a> {
    /// Both under the same keyword; what is absent means anything.
    fn under(&self, keyword: &str, name: Option<&str>) -> Self {
        let part = |schema: &'a Value| {
            let under = schema.get(keyword);
            name.map_or(under, |name| under.and_then(|all| all.get(name))).unwrap_or(&ANY)
        };
        Self {
            old: part(self.old),
            new: part(self.new),
            old_at: below(&self.old_at, keyword, name),
            new_at: below(&self.new_at, keyword, name),
            announced: self.announced,
        }
    }

    fn both(&self, keyword: &str) -> (Option<&'a Value>, Option<&'a Value>) {
        (self.old.get(keyword), self.new.get(keyword))
    }

    fn maps(&self, keyword: &str) -> (SchemaMembers<'a>, SchemaMembers<'a>) {
        let map = |schema: &'a Value| schema.get(keyword).and_then(Value::as_object);
        (map(self.old), map(self.new))
    }
}

/// The members of an object, where a schema has one there.
type SchemaMembers<'a> = Option<&'a Map<String, Value>>;

struct SchemaComparison<'a> {
    old: &'a Value,
    new: &'a Value,
    /// Pairs of definitions that were compared, or are being compared: a schema may contain itself.
    seen: HashSet<(String, String, bool)>,
    changes: Vec<Change>,
    steps: usize,
}

impl<'a> SchemaComparison<'a> {
    fn say(
        &mut self,
        at: &SchemaPair<'_>,
        keyword: &str,
        kind: Kind,
        breaks: &'static [Side],
        reason: impl Into<String>,
    ) {
        let pointer =
            if keyword.is_empty() { at.new_at.clone() } else { below(&at.new_at, keyword, None) };
        self.changes.push(Change {
            pointer,
            kind,
            breaks,
            reason: reason.into(),
            announced: at.announced,
        });
    }

    fn schema(&mut self, at: SchemaPair<'a>) {
        let Some(steps) = self.steps.checked_sub(1) else { return };
        self.steps = steps;
        let Some(at) = self.followed(at) else { return };
        match (at.old == &Value::Bool(false), at.new == &Value::Bool(false)) {
            (true, true) => return,
            (true, false) => {
                return self.say(
                    &at,
                    "",
                    Kind::Widened,
                    &[],
                    "nothing was allowed here, now something is",
                );
            }
            (false, true) => {
                return self.say(
                    &at,
                    "",
                    Kind::Narrowed,
                    SENDERS,
                    "nothing is allowed here any more",
                );
            }
            (false, false) => {}
        }
        self.types(&at);
        self.values(&at);
        self.bounds(&at);
        self.plain(&at);
        self.properties(&at);
        self.other_properties(&at);
        self.required(&at);
        self.items(&at);
        self.combined(&at);
        self.opaque(&at);
        self.annotations(&at);
    }

    /// The place that references lead to; none where it was looked at before, or where a reference cannot
    /// be followed, which is told.
    fn followed(&mut self, mut at: SchemaPair<'a>) -> Option<SchemaPair<'a>> {
        let (old, new) = (hop(self.old, at.old, &at.old_at), hop(self.new, at.new, &at.new_at));
        let (Ok(old), Ok(new)) = (old, new) else {
            let why = "a reference cannot be followed: only `#` and JSON pointers after it are";
            self.say(&at, "$ref", Kind::Incomparable, BOTH, why);
            return None;
        };
        let before = at.announced;
        at.announced |= old.deprecated;
        if new.deprecated && !old.deprecated {
            self.say(&at, "deprecated", Kind::Deprecated, &[], "marked as on its way out");
        }
        if old.hops + new.hops > 0
            && !self.seen.insert((old.at.clone(), new.at.clone(), before || old.deprecated))
        {
            return None;
        }
        (at.old, at.new, at.old_at, at.new_at) = (old.schema, new.schema, old.at, new.at);
        // A reference with demands beside it is one demand among them.
        match at.both("$ref") {
            (None, None) => {}
            (Some(_), Some(_)) => {
                let (old, new) = (reference(at.old), reference(at.new));
                let next = old.zip(new).and_then(|(old, new)| {
                    Some((resolve(self.old, old)?, resolve(self.new, new)?))
                });
                match next {
                    Some(((old, old_at), (new, new_at))) => {
                        let fresh = (old_at.clone(), new_at.clone(), at.announced);
                        if self.seen.insert(fresh) {
                            let announced = at.announced;
                            self.schema(SchemaPair { old, new, old_at, new_at, announced });
                        }
                    }
                    None => self.say(
                        &at,
                        "$ref",
                        Kind::Incomparable,
                        BOTH,
                        "a reference cannot be followed",
                    ),
                }
            }
            _ => self.say(
                &at,
                "$ref",
                Kind::Incomparable,
                BOTH,
                "a reference beside other demands came or went",
            ),
        }
        Some(at)
    }

    fn types(&mut self, at: &SchemaPair<'_>) {
        let (old, new) = (types(at.old), types(at.new));
        if old == new {
            return;
        }
        let (lost, won) = (old & !new, new & !old);
        let breaks = match (lost != 0, won != 0) {
            (true, true) => BOTH,
            (true, false) => SENDERS,
            _ => RECEIVERS,
        };
        let reason = match (lost, won) {
            (lost, 0) => format!("{} is refused from now on", named(lost)),
            (0, won) => format!("a receiver may now find {}", named(won)),
            (lost, won) => format!("{} becomes {}", named(lost), named(won)),
        };
        self.say(at, "type", Kind::TypeChanged, breaks, reason);
    }

    fn values(&mut self, at: &SchemaPair<'_>) {
        let keyword = if at.new.get("const").is_some() { "const" } else { "enum" };
        match (allowed(at.old), allowed(at.new)) {
            (None, None) => {}
            (None, Some(_)) => {
                self.say(
                    at,
                    keyword,
                    Kind::Narrowed,
                    SENDERS,
                    "only listed values are allowed from now on",
                );
            }
            (Some(_), None) => {
                self.say(
                    at,
                    keyword,
                    Kind::Widened,
                    &[],
                    "other than the listed values are allowed",
                );
            }
            (Some(old), Some(new)) => {
                let gone: Vec<_> = old.iter().filter(|one| !new.contains(one)).collect();
                let come: Vec<_> = new.iter().filter(|one| !old.contains(one)).collect();
                if !gone.is_empty() {
                    let reason = format!("no longer allowed: {}", shown(&gone));
                    self.say(at, keyword, Kind::Narrowed, SENDERS, reason);
                }
                if !come.is_empty() {
                    let reason = format!("a receiver may now find {}", shown(&come));
                    self.say(at, keyword, Kind::Widened, &[], reason);
                }
            }
        }
    }

    fn bounds(&mut self, at: &SchemaPair<'_>) {
        for (keyword, absent) in LEAST {
            let bound = |schema: &Value| {
                schema.get(keyword).and_then(Value::as_number).cloned().or(absent.map(Number::from))
            };
            self.bound(at, keyword, bound(at.old), bound(at.new), Ordering::Greater);
        }
        for keyword in MOST {
            let bound = |schema: &Value| schema.get(keyword).and_then(Value::as_number).cloned();
            self.bound(at, keyword, bound(at.old), bound(at.new), Ordering::Less);
        }
        match at.both("multipleOf") {
            (None, Some(_)) => {
                self.say(
                    at,
                    "multipleOf",
                    Kind::Narrowed,
                    SENDERS,
                    "only multiples are allowed from now on",
                );
            }
            (Some(_), None) => {
                self.say(at, "multipleOf", Kind::Widened, &[], "other than multiples are allowed");
            }
            (Some(old), Some(new)) if old != new => {
                let whole = |value: &Value| value.as_u64().filter(|value| *value > 0);
                let divides = whole(old).zip(whole(new)).is_some_and(|(old, new)| old % new == 0);
                let (kind, breaks, reason) = if divides {
                    (Kind::Widened, &[][..], "multiples of a divisor are allowed")
                } else {
                    (Kind::Narrowed, SENDERS, "not every multiple of before is allowed any more")
                };
                self.say(at, "multipleOf", kind, breaks, reason);
            }
            _ => {}
        }
    }

    /// `tighter` is how a tighter bound compares with a looser one.
    fn bound(
        &mut self,
        at: &SchemaPair<'_>,
        keyword: &str,
        old: Option<Number>,
        new: Option<Number>,
        tighter: Ordering,
    ) {
        match (old, new) {
            (None, None) => {}
            (None, Some(new)) => {
                self.say(
                    at,
                    keyword,
                    Kind::Narrowed,
                    SENDERS,
                    format!("there was no bound, now it is {new}"),
                );
            }
            (Some(old), None) => {
                self.say(at, keyword, Kind::Widened, &[], format!("the bound {old} is gone"));
            }
            (Some(old), Some(new)) => match order(&new, &old) {
                Some(Ordering::Equal) => {}
                Some(found) if found != tighter => {
                    self.say(at, keyword, Kind::Widened, &[], format!("{old} becomes {new}"));
                }
                _ => self.say(at, keyword, Kind::Narrowed, SENDERS, format!("{old} becomes {new}")),
            },
        }
    }

    fn plain(&mut self, at: &SchemaPair<'_>) {
        for keyword in PLAIN {
            match at.both(keyword) {
                (None, Some(_)) => {
                    self.say(
                        at,
                        keyword,
                        Kind::Narrowed,
                        SENDERS,
                        format!("there was no `{keyword}`, now there is"),
                    );
                }
                (Some(_), None) => {
                    self.say(at, keyword, Kind::Widened, &[], format!("the `{keyword}` is gone"));
                }
                (Some(old), Some(new)) if old != new => {
                    let reason = format!("of two `{keyword}`s it cannot be told which allows more");
                    self.say(at, keyword, Kind::Incomparable, BOTH, reason);
                }
                _ => {}
            }
        }
        let unique = |schema: &Value| schema.get("uniqueItems") == Some(&Value::Bool(true));
        match (unique(at.old), unique(at.new)) {
            (false, true) => {
                self.say(
                    at,
                    "uniqueItems",
                    Kind::Narrowed,
                    SENDERS,
                    "equal items are refused from now on",
                );
            }
            (true, false) => {
                self.say(at, "uniqueItems", Kind::Widened, &[], "equal items are allowed");
            }
            _ => {}
        }
    }

    fn items(&mut self, at: &SchemaPair<'a>) {
        let prefix = |schema: &'a Value| {
            schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
        };
        let (old, new) = (prefix(at.old), prefix(at.new));
        let rest = at.under("items", None);
        for place in 0..old.len().max(new.len()) {
            let index = place.to_string();
            let one = |own: &'a [Value], pointer: &str, rest: (&'a Value, &str)| {
                own.get(place).map_or((rest.0, rest.1.to_owned()), |item| {
                    (item, below(pointer, "prefixItems", Some(&index)))
                })
            };
            let (old, old_at) = one(old, &at.old_at, (rest.old, &rest.old_at));
            let (new, new_at) = one(new, &at.new_at, (rest.new, &rest.new_at));
            self.schema(SchemaPair { old, new, old_at, new_at, announced: at.announced });
        }
        if at.both("items") != (None, None) {
            self.schema(rest);
        }
    }

    /// `allOf`, `anyOf`, `oneOf`: part by part, where there are as many as before.
    fn combined(&mut self, at: &SchemaPair<'a>) {
        for keyword in COMBINED {
            let (old, new) = at.both(keyword);
            if old.is_none() && new.is_none() {
                continue;
            }
            let parts = old.and_then(Value::as_array).zip(new.and_then(Value::as_array));
            let Some((old, new)) = parts.filter(|(old, new)| old.len() == new.len()) else {
                let reason = format!("`{keyword}` has parts that it had not before, or lacks some");
                self.say(at, keyword, Kind::Incomparable, BOTH, reason);
                continue;
            };
            let before = self.changes.len();
            for (place, (old, new)) in old.iter().zip(new).enumerate() {
                let index = place.to_string();
                self.schema(SchemaPair {
                    old,
                    new,
                    old_at: below(&at.old_at, keyword, Some(&index)),
                    new_at: below(&at.new_at, keyword, Some(&index)),
                    announced: at.announced,
                });
            }
            // Exactly one part must hold: with one that allows more, two may.
            let harmless =
                |change: &Change| matches!(change.kind, Kind::Annotation | Kind::Deprecated);
            if keyword == "oneOf" && !self.changes[before..].iter().all(harmless) {
                let why = "a part of `oneOf` changed: another part may hold beside it now, or none";
                self.say(at, keyword, Kind::Incomparable, BOTH, why);
            }
        }
    }

    fn opaque(&mut self, at: &SchemaPair<'_>) {
        for keyword in OPAQUE {
            let (old, new) = at.both(keyword);
            let refers = |part: Option<&Value>| part.is_some_and(has_reference);
            let same_definitions = || {
                ["$defs", "definitions"].iter().all(|name| self.old.get(name) == self.new.get(name))
            };
            if old != new || (refers(old) && !same_definitions()) {
                let reason =
                    format!("`{keyword}` changed: it cannot be told what that allows or forbids");
                self.say(at, keyword, Kind::Incomparable, BOTH, reason);
            }
        }
    }

    fn annotations(&mut self, at: &SchemaPair<'_>) {
        let known = |name: &str| {
            OWN.contains(&name)
                || COMBINED.contains(&name)
                || OPAQUE.contains(&name)
                || PLAIN.contains(&name)
                || MOST.contains(&name)
                || LEAST.iter().any(|(own, _)| *own == name)
        };
        let members = [at.old, at.new].into_iter().filter_map(Value::as_object);
        let names: BTreeSet<&String> = members.flat_map(Map::keys).collect();
        for name in names.into_iter().filter(|name| !known(name)) {
            let (old, new) = at.both(name);
            if old != new {
                let reason =
                    format!("`{}` changed: it is told to people, not checked", short(name));
                self.say(
                    at,
                    &name.replace('~', "~0").replace('/', "~1"),
                    Kind::Annotation,
                    &[],
                    reason,
                );
            }
        }
    }
}
