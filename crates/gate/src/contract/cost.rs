//! Bounds the cost of a payload schema: the number of times that its parts apply to the values of a message.
//!
//! A schema that is small as text can be large as work: sixty definitions of which each names the next one twice
//! apply the last one 2^60 times. The validator remembers no result but that of a definition which leads back to
//! itself, of an object or a list. So a schema is walked before it is taken: a place of the message is a set of
//! subschemas that apply there, each with how often, and what applies to a property of it follows from that. The places
//! are kept: by them the cost of one message is counted, value by value, before the validator sees it.

use std::collections::{BTreeMap, HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Looks at one value of a message at most; some milliseconds. A look is one application of a subschema, with what its
/// own keywords read.
pub const MOST: u64 = 10_000;

/// Looks at one value that a list or an open object may hold any number of times.
pub const MOST_OF_MANY: u64 = 4_000;

/// Looks at all values of a message; about a second.
const MESSAGE: u64 = 20_000_000;

/// Results that the validator remembers while it looks at a message; some tens of megabytes.
const REMEMBERED: u64 = 500_000;

/// Looks for which all faults of a message are told. The validator keeps a fault for each of them, some hundred bytes.
const TOLD: u64 = 20_000;

/// Entries of the places that a schema gives, at most. A schema of the largest size that anybody would write has a
/// tenth.
const ENTRIES: usize = 200_000;

/// Bytes of a text that cost as much as a look: patterns and formats read it.
const TEXT: usize = 16;

/// Names or values of a keyword that cost as much as a look: each is compared.
const NAMES: usize = 8;

/// Subschemas that apply to the same value as the one that has the keyword.
const BESIDE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// The same, by a property that there has to be.
const BESIDE_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Subschemas that apply to what is within, whatever it is called.
const WITHIN: [&str; 9] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "patternProperties",
];

#[derive(Debug, Default)]
struct SchemaNode<'a> {
    beside: Vec<usize>,
    by_name: Vec<(&'a str, usize)>,
    within: Vec<usize>,
    /// Looks of one application.
    looks: u64,
    /// Whether the elements of a list are compared with each other.
    is_unique: bool,
    /// Extra applications of the subschemas in place: `unevaluated…` keywords apply them once more.
    again: u64,
}

/// A payload schema as a graph: which subschema applies which.
#[derive(Debug, Default)]
pub struct Graph<'a> {
    nodes: Vec<SchemaNode<'a>>,
    pointers: Vec<String>,
    /// Each after all that apply it beside themselves.
    order: Vec<usize>,
    /// The rank of each subschema in that order.
    rank: Vec<usize>,
    /// Edges through which a subschema leads back to itself. The validator remembers results for these.
    back: HashSet<(usize, usize)>,
    /// Those that have such an edge.
    leads_back: HashSet<usize>,
}

/// How often a subschema is applied to a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Count {
    /// By what applies it, each of which is applied as often as it says here.
    all: u64,
    /// The same, where the validator remembers the first result: this often it goes on into the value.
    first: u64,
}

impl Count {
    const ONE: Self = Self { all: 1, first: 1 };

    /// Adds what `times` applications of something that applies this one add, `again` times each.
    fn add(&mut self, times: Self, again: u64, is_remembered: bool) {
        let (all, first) = (times.all.saturating_mul(again), times.first.saturating_mul(again));
        self.all = self.all.saturating_add(all);
        self.first = if is_remembered { 1 } else { self.first.saturating_add(first) };
    }
}

/// Subschemas that apply to one value, each with its number of applications.
type SubschemaCounts = BTreeMap<usize, Count>;

impl<'a> Graph<'a> {
    /// Reads a schema whose references lead only within it.
    ///
    /// # Errors
    /// A sentence: a subschema leads back to itself without going into the message.
    pub fn of(root: &'a Value) -> Result<Self, String> {
        let mut roots = vec![root];
        parts(root, &mut roots);
        let mut reader = SchemaReader {
            roots,
            targets: HashMap::new(),
            graph: Self::default(),
            known: HashMap::new(),
            waiting: Vec::new(),
        };
        reader.node(root, String::new());
        while let Some((at, schema, pointer)) = reader.waiting.pop() {
            reader.read(at, schema, &pointer);
        }
        let mut graph = reader.graph;
        graph.sort()?;
        graph.find_ways_back();
        Ok(graph)
    }

    /// Orders by what applies beside what.
    fn sort(&mut self) -> Result<(), String> {
        // 0: not seen; 1: under way; 2: done.
        let mut state = vec![0_u8; self.nodes.len()];
        for begin in 0..self.nodes.len() {
            let mut path = vec![(begin, 0)];
            while let Some((at, next)) = path.pop() {
                if next == 0 {
                    if state[at] != 0 {
                        continue;
                    }
                    state[at] = 1;
                }
                if let Some(&to) = self.nodes[at].beside.get(next) {
                    if state[to] == 1 {
                        return Err(format!(
                            "`{}` leads back to itself without going into the message",
                            shown(&self.pointers[to])
                        ));
                    }
                    path.push((at, next + 1));
                    path.push((to, 0));
                } else {
                    state[at] = 2;
                    self.order.push(at);
                }
            }
        }
        self.order.reverse();
        self.rank = vec![0; self.nodes.len()];
        for (rank, at) in self.order.iter().enumerate() {
            self.rank[*at] = rank;
        }
        Ok(())
    }

    /// Goes through everything from the root on, and notes what leads to where it comes from.
    fn find_ways_back(&mut self) {
        let edges: Vec<Vec<usize>> = self.nodes.iter().map(|node| node.all().collect()).collect();
        let (mut seen, mut above) = (vec![false; edges.len()], vec![false; edges.len()]);
        let mut path = vec![(0, 0)];
        while let Some((at, next)) = path.pop() {
            (seen[at], above[at]) = (true, true);
            match edges[at].get(next) {
                Some(&to) => {
                    path.push((at, next + 1));
                    if above[to] {
                        self.back.insert((at, to));
                        self.leads_back.insert(at);
                    } else if !seen[to] {
                        path.push((to, 0));
                    }
                }
                None => above[at] = false,
            }
        }
    }

    /// The places of a message to which the schema applies, of which none costs more than `limit` looks.
    ///
    /// # Errors
    /// One may cost more, or there are too many of them.
    pub fn places(&self, limit: u64) -> Result<Places, TooCostly<'_>> {
        let mut places = Places::default();
        let mut known: HashMap<SubschemaCounts, usize> = HashMap::new();
        let mut waiting = vec![SubschemaCounts::from([(0, Count::ONE)])];
        known.insert(waiting[0].clone(), 0);
        let (mut entries, mut next) = (0, 0);
        while next < waiting.len() {
            let counts = std::mem::take(&mut waiting[next]);
            next += 1;
            let whole = self.whole(&counts, true);
            let (place, most) = self.place(&whole);
            entries += whole.len();
            if place.looks > limit || entries > ENTRIES {
                return Err(TooCostly { part: shown(&self.pointers[most]), limit: MOST });
            }
            let (named, others) = self.below(&whole, true);
            entries += named.len();
            let mut numbered = |below: SubschemaCounts| {
                *known.entry(below).or_insert_with_key(|below| {
                    waiting.push(below.clone());
                    waiting.len() - 1
                })
            };
            let named =
                named.into_iter().map(|(name, below)| (name.into(), numbered(below))).collect();
            let others = (!others.is_empty()).then(|| numbered(others));
            places.0.push(Place { named, others, most, ..place });
        }
        Ok(places)
    }

    /// Checks the places that one message may have any number of times.
    ///
    /// # Errors
    /// One costs more than [`MOST_OF_MANY`].
    pub fn check_many(&self, places: &Places) -> Result<(), TooCostly<'_>> {
        let mut costs = places.many().into_iter().map(|at| &places.0[at]);
        costs.find(|place| place.looks > MOST_OF_MANY).map_or(Ok(()), |place| {
            Err(TooCostly { part: shown(&self.pointers[place.most]), limit: MOST_OF_MANY })
        })
    }

    /// The subschemas that apply at a place, and the most expensive of them.
    fn place(&self, whole: &[(usize, Count)]) -> (Place, usize) {
        let (mut place, mut most) = (Place::default(), (0, 0));
        for &(at, times) in whole {
            let node = &self.nodes[at];
            let looks = times.all.saturating_mul(node.looks);
            place.looks = place.looks.saturating_add(looks);
            place.remembered += u64::from(self.leads_back.contains(&at));
            let unique = times.all * u64::from(node.is_unique);
            place.unique = place.unique.saturating_add(unique);
            if looks > most.0 {
                most = (looks, at);
            }
        }
        (place, most.1)
    }

    /// Whether so few subschemas apply to a value, counted without what the validator remembers, that all its faults
    /// can be told: it remembers nothing while it collects them.
    #[must_use]
    pub fn can_be_told(&self, value: &Value) -> bool {
        let mut left = TOLD;
        let mut waiting = vec![(value, SubschemaCounts::from([(0, Count::ONE)]))];
        while let Some((value, counts)) = waiting.pop() {
            if counts.is_empty() {
                continue;
            }
            let whole = self.whole(&counts, false);
            let looks = self.place(&whole).0.looks;
            let read: usize = whole.iter().map(|(at, _)| self.nodes[*at].by_name.len()).sum();
            let Some(rest) = left.checked_sub(looks.saturating_add((read / NAMES) as u64)) else {
                return false;
            };
            left = rest;
            if !value.is_array() && !value.is_object() {
                continue;
            }
            let (mut named, others) = self.below(&whole, false);
            match value {
                Value::Array(items) => {
                    waiting.extend(items.iter().map(|item| (item, others.clone())));
                }
                Value::Object(members) => waiting.extend(members.iter().map(|(name, member)| {
                    (member, named.remove(name.as_str()).unwrap_or_else(|| others.clone()))
                })),
                _ => {}
            }
        }
        true
    }

    fn add(
        &self,
        place: &mut SubschemaCounts,
        (from, to): (usize, usize),
        times: Count,
        remembered: bool,
    ) {
        // Only the first result sends the validator on into the value.
        let times = Count { all: times.first, ..times };
        let is_remembered = remembered && self.back.contains(&(from, to));
        place.entry(to).or_default().add(times, 1, is_remembered);
    }

    /// With all that apply beside.
    fn whole(&self, place: &SubschemaCounts, remembered: bool) -> Vec<(usize, Count)> {
        // In order of rank, so that a subschema is counted before the ones that it applies in place.
        let mut open: SubschemaCounts =
            place.iter().map(|(at, times)| (self.rank[*at], *times)).collect();
        let mut whole = Vec::new();
        while let Some((rank, times)) = open.pop_first() {
            let at = self.order[rank];
            whole.push((at, times));
            let node = &self.nodes[at];
            for &to in &node.beside {
                let is_remembered = remembered && self.back.contains(&(at, to));
                let known = open.entry(self.rank[to]).or_default();
                known.add(times, node.again, is_remembered);
            }
        }
        whole
    }

    /// The subschemas that apply one level below: for each named property, and for all others.
    fn below(
        &self,
        place: &[(usize, Count)],
        remembered: bool,
    ) -> (BTreeMap<&str, SubschemaCounts>, SubschemaCounts) {
        let mut others = SubschemaCounts::new();
        let mut named: BTreeMap<&str, SubschemaCounts> = BTreeMap::new();
        for &(at, times) in place {
            for &to in &self.nodes[at].within {
                self.add(&mut others, (at, to), times, remembered);
            }
            for (name, to) in &self.nodes[at].by_name {
                self.add(named.entry(name).or_default(), (at, *to), times, remembered);
            }
        }
        for place in named.values_mut() {
            for (at, times) in &others {
                place.entry(*at).or_default().add(*times, 1, false);
            }
        }
        (named, others)
    }
}

/// A schema may cost too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooCostly<'a> {
    /// The part that costs most.
    pub part: &'a str,
    /// The limit that it exceeds: [`MOST`] or [`MOST_OF_MANY`].
    pub limit: u64,
}

/// The subschemas that apply to the values at one place of a message.
#[derive(Debug, Default)]
struct Place {
    looks: u64,
    /// Results that the validator remembers of an object or a list.
    remembered: u64,
    /// How often the elements of a list are compared with each other.
    unique: u64,
    /// The places of members by name.
    named: HashMap<Box<str>, usize>,
    /// The place of all other members and of elements.
    others: Option<usize>,
    /// The subschema that costs most here.
    most: usize,
}

/// The places of a message to which a schema applies; the first is the message's own.
#[derive(Debug, Default)]
pub struct Places(Vec<Place>);

impl Places {
    /// The places that one message may have any number of times.
    fn many(&self) -> Vec<usize> {
        let mut seen = vec![false; self.0.len()];
        let mut found: Vec<usize> = self.0.iter().filter_map(|place| place.others).collect();
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            next += 1;
            if !std::mem::replace(&mut seen[at], true) {
                found.extend(self.0[at].named.values());
            }
        }
        found
    }

    /// Whether the validator may look at a message.
    #[must_use]
    pub fn can_be_judged(&self, message: &Value) -> bool {
        let Cost { looks, remembered } = self.cost(message, MESSAGE);
        looks <= MESSAGE && remembered <= REMEMBERED
    }

    /// The cost of a message. Counting ends when it exceeds `most` looks.
    fn cost(&self, message: &Value, most: u64) -> Cost {
        let mut cost = Cost::default();
        // A value, its place, and how often it is compared with others of its list.
        let mut waiting = vec![(message, Some(0), 0_u64)];
        while let Some((value, place, compared)) = waiting.pop() {
            let place = place.map(|place| &self.0[place]);
            let looks = place.map_or(0, |place| place.looks).saturating_add(compared);
            if looks == 0 {
                continue;
            }
            let length = value.as_str().map_or(0, str::len);
            cost.looks =
                cost.looks.saturating_add(looks.saturating_mul(1 + (length / TEXT) as u64));
            if cost.looks > most {
                return cost;
            }
            match value {
                Value::Array(items) => {
                    cost.remembered += place.map_or(0, |place| place.remembered);
                    // Comparing sorts or hashes them: each is read as often as its number has bits.
                    let unique = place.map_or(0, |place| place.unique);
                    let bits = u64::from(usize::BITS - items.len().leading_zeros());
                    let compared = compared.saturating_add(unique.saturating_mul(bits));
                    let others = place.and_then(|place| place.others);
                    waiting.extend(items.iter().map(|item| (item, others, compared)));
                }
                Value::Object(members) => {
                    cost.remembered += place.map_or(0, |place| place.remembered);
                    for (name, member) in members {
                        let below = place.and_then(|place| {
                            place.named.get(name.as_str()).copied().or(place.others)
                        });
                        let looks = below.map_or(0, |below| self.0[below].looks);
                        let read = looks.saturating_mul((name.len() / TEXT) as u64);
                        cost.looks = cost.looks.saturating_add(read);
                        waiting.push((member, below, compared));
                    }
                }
                _ => {}
            }
        }
        cost
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    looks: u64,
    remembered: u64,
}

impl SchemaNode<'_> {
    fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let named = self.by_name.iter().map(|(_, to)| *to);
        self.beside.iter().copied().chain(named).chain(self.within.iter().copied())
    }
}

/// A pointer as a reference shows it, bounded.
fn shown(pointer: &str) -> &str {
    if pointer.is_empty() { "#" } else { &pointer[..pointer.floor_char_boundary(120)] }
}

struct SchemaReader<'a> {
    /// The schema, and its parts with an `$id` of their own.
    roots: Vec<&'a Value>,
    /// The target of each reference, by the reference's text.
    targets: HashMap<&'a str, Option<(&'a Value, String)>>,
    graph: Graph<'a>,
    /// Index by address: the same text at two positions is two subschemas.
    known: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'a Value, String)>,
}

impl<'a> SchemaReader<'a> {
    fn node(&mut self, schema: &'a Value, pointer: String) -> usize {
        let next = self.graph.nodes.len();
        let at = *self.known.entry(std::ptr::from_ref(schema)).or_insert(next);
        if at == next {
            self.graph.nodes.push(SchemaNode::default());
            self.graph.pointers.push(pointer.clone());
            self.waiting.push((at, schema, pointer));
        }
        at
    }

    fn read(&mut self, at: usize, schema: &'a Value, pointer: &str) {
        let node = &mut self.graph.nodes[at];
        (node.looks, node.again) = (1, 1);
        let Some(members) = schema.as_object() else { return };
        for (name, member) in members {
            let node = &mut self.graph.nodes[at];
            match name.as_str() {
                "uniqueItems" => node.is_unique = member.as_bool() == Some(true),
                "unevaluatedProperties" | "unevaluatedItems" => node.again = 3,
                name => node.looks += compared(name, member),
            }
            let here = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            let name = name.as_str();
            if matches!(name, "$ref" | "$dynamicRef") {
                if let Some((target, pointer)) =
                    member.as_str().and_then(|to| self.known_target(to))
                {
                    let to = self.node(target, pointer);
                    self.graph.nodes[at].beside.push(to);
                }
            } else if BESIDE.contains(&name) || BESIDE_BY_NAME.contains(&name) {
                let all = self.nodes(member, &here, BESIDE_BY_NAME.contains(&name));
                self.graph.nodes[at].beside.extend(all);
            } else if WITHIN.contains(&name) {
                let all = self.nodes(member, &here, name == "patternProperties");
                self.graph.nodes[at].within.extend(all);
            } else if name == "properties" {
                for (name, member) in member.as_object().into_iter().flatten() {
                    let segment = name.replace('~', "~0").replace('/', "~1");
                    let to = self.node(member, format!("{here}/{segment}"));
                    self.graph.nodes[at].by_name.push((name, to));
                }
            }
        }
    }

    /// The subschemas that a keyword has: itself, a list of them, or by name.
    fn nodes(&mut self, value: &'a Value, pointer: &str, by_name: bool) -> Vec<usize> {
        match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(place, item)| self.node(item, format!("{pointer}/{place}")))
                .collect(),
            Value::Object(members) if by_name => members
                .iter()
                .map(|(name, member)| {
                    let segment = name.replace('~', "~0").replace('/', "~1");
                    self.node(member, format!("{pointer}/{segment}"))
                })
                .collect(),
            Value::Object(_) => vec![self.node(value, pointer.to_owned())],
            _ => Vec::new(),
        }
    }

    fn known_target(&mut self, reference: &'a str) -> Option<(&'a Value, String)> {
        if let Some(known) = self.targets.get(reference) {
            return known.clone();
        }
        let found = self.target(reference);
        self.targets.insert(reference, found.clone());
        found
    }

    /// Resolves a reference: by pointer, by anchor, or to the whole document. A reference into a part with its own `$id` is
    /// resolved there as well.
    fn target(&self, reference: &str) -> Option<(&'a Value, String)> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        // RFC 6901 §6.
        let fragment = &*percent_decode_str(fragment).decode_utf8_lossy();
        let within = |root: &'a Value| {
            if fragment.is_empty() {
                return Some(root);
            }
            if fragment.starts_with('/') { root.pointer(fragment) } else { anchor(root, fragment) }
        };
        let called = |part: &&&'a Value| {
            base.is_empty() || part.get("$id").and_then(Value::as_str) == Some(base)
        };
        let found = self.roots.iter().filter(called).find_map(|root| within(root))?;
        Some((found, format!("#{fragment}")))
    }
}

/// Looks that a keyword's own names or values cost an application.
fn compared(keyword: &str, value: &Value) -> u64 {
    let count = match (keyword, value) {
        ("required" | "enum", Value::Array(items)) => items.len(),
        ("properties" | "dependentRequired", Value::Object(members)) => members.len(),
        _ => 0,
    };
    let size = match keyword {
        "enum" | "const" => size(value),
        _ => 0,
    };
    (count / NAMES + size / (TEXT * NAMES)) as u64
}

/// About the bytes of a value.
fn size(value: &Value) -> usize {
    let (mut size, mut waiting) = (0, vec![value]);
    while let Some(value) = waiting.pop() {
        size += 1 + value.as_str().map_or(0, str::len);
        match value {
            Value::Array(items) => waiting.extend(items),
            Value::Object(members) => {
                size += members.keys().map(String::len).sum::<usize>();
                waiting.extend(members.values());
            }
            _ => {}
        }
    }
    size
}

/// Parts with an `$id` of their own.
fn parts<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let members: Vec<&'a Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => return,
    };
    for member in members {
        if member.get("$id").is_some_and(Value::is_string) {
            found.push(member);
        }
        parts(member, found);
    }
}

fn anchor<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| anchor(item, name)),
        Value::Object(members) => {
            let is = |key: &str| members.get(key).and_then(Value::as_str) == Some(name);
            if is("$anchor") || is("$dynamicAnchor") {
                return Some(value);
            }
            members.values().find_map(|member| anchor(member, name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
