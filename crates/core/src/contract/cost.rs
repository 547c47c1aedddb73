//! What a payload schema can cost: how often parts of it are applied to one and the same value of a message.
//!
//! A schema that is small as text can be large as work: sixty definitions of which each names the next one twice
//! apply the last one 2^60 times. The validator remembers no result but that of a definition which leads back to
//! itself, of an object or a list. So a schema is walked before it is taken: a place of the message is a set of
//! subschemas that apply there, each with how often, and what applies to a property of it follows from that.

use std::collections::{BTreeMap, HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// How often subschemas may be applied to one value of a message; some milliseconds.
pub const MOST: u64 = 10_000;

/// How many subschemas at places of a message are looked at, each once a place. A schema of the largest size
/// that anybody would write has a tenth.
const LOOKS: usize = 200_000;

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
}

/// A payload schema as a graph: which subschema applies which.
#[derive(Debug, Default)]
pub struct Graph<'a> {
    nodes: Vec<SchemaNode<'a>>,
    pointers: Vec<String>,
    /// Each after all that apply it beside themselves.
    order: Vec<usize>,
    /// Where each stands in that order.
    rank: Vec<usize>,
    /// By what a subschema leads back to itself: of those the validator remembers results.
    back: HashSet<(usize, usize)>,
}

/// Subschemas that apply to one value, each with its number of applications.
type SubschemaCounts = BTreeMap<usize, u64>;

impl<'a> Graph<'a> {
    /// Reads a schema whose references lead only within it.
    ///
    /// # Errors
    /// A sentence: a subschema leads back to itself without going into the message.
    pub fn of(root: &'a Value) -> Result<Self, String> {
        let mut reader = SchemaReader {
            root,
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
                    } else if !seen[to] {
                        path.push((to, 0));
                    }
                }
                None => above[at] = false,
            }
        }
    }

    /// How deep a message may be until more than [`MOST`] subschemas apply to one of its values, and by
    /// which; `None` where no depth does. `remembered`: what leads back to itself counts once.
    #[must_use]
    pub fn too_deep(&self, remembered: bool) -> Option<(usize, &str)> {
        let (mut seen, mut looks) = (HashSet::new(), 0);
        let mut level = vec![SubschemaCounts::from([(0, 1)])];
        for depth in 0.. {
            let mut next = Vec::new();
            for place in level {
                let whole = self.whole(&place, remembered);
                let times = whole.iter().fold(0_u64, |sum, (_, times)| sum.saturating_add(*times));
                looks += whole.len();
                if times > MOST || looks > LOOKS {
                    let most = whole.iter().max_by_key(|(_, times)| *times);
                    let pointer = most.map_or("", |(at, _)| self.pointers[*at].as_str());
                    return Some((depth, shown(pointer)));
                }
                for below in self.below(&whole, remembered) {
                    if seen.insert(below.clone()) {
                        next.push(below);
                    }
                }
            }
            if next.is_empty() {
                return None;
            }
            level = next;
        }
        None
    }

    fn add(
        &self,
        place: &mut SubschemaCounts,
        from: usize,
        to: usize,
        times: u64,
        remembered: bool,
    ) {
        let times = if remembered && self.back.contains(&(from, to)) { 1 } else { times };
        let known = place.entry(to).or_default();
        *known = known.saturating_add(times);
    }

    /// With all that apply beside.
    fn whole(&self, place: &SubschemaCounts, remembered: bool) -> Vec<(usize, u64)> {
        // By rank: whoever applies one beside itself is done before it.
        let mut open: SubschemaCounts =
            place.iter().map(|(at, times)| (self.rank[*at], *times)).collect();
        let mut whole = Vec::new();
        while let Some((rank, times)) = open.pop_first() {
            let at = self.order[rank];
            whole.push((at, times));
            for &to in &self.nodes[at].beside {
                let times = if remembered && self.back.contains(&(at, to)) { 1 } else { times };
                let known = open.entry(self.rank[to]).or_default();
                *known = known.saturating_add(times);
            }
        }
        whole
    }

    /// The places within: of each property that is named, and of all others.
    fn below(&self, place: &[(usize, u64)], remembered: bool) -> Vec<SubschemaCounts> {
        let mut others = SubschemaCounts::new();
        let mut named: BTreeMap<&str, SubschemaCounts> = BTreeMap::new();
        for &(at, times) in place {
            for &to in &self.nodes[at].within {
                self.add(&mut others, at, to, times, remembered);
            }
            for (name, to) in &self.nodes[at].by_name {
                self.add(named.entry(name).or_default(), at, *to, times, remembered);
            }
        }
        for place in named.values_mut() {
            for (at, times) in &others {
                let known = place.entry(*at).or_default();
                *known = known.saturating_add(*times);
            }
        }
        named.into_values().chain((!others.is_empty()).then_some(others)).collect()
    }
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
    root: &'a Value,
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
        let Some(members) = schema.as_object() else { return };
        for (name, member) in members {
            let here = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            let name = name.as_str();
            if matches!(name, "$ref" | "$dynamicRef") {
                if let Some((target, pointer)) = member.as_str().and_then(|to| self.target(to)) {
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

    /// What a reference leads to: by pointer, by anchor, or the whole. A reference into a part with an `$id`
    /// of its own is looked for there as well.
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
        let mut roots = vec![self.root];
        parts(self.root, &mut roots);
        let called = |part: &&&'a Value| {
            base.is_empty() || part.get("$id").and_then(Value::as_str) == Some(base)
        };
        let found = roots.iter().filter(called).find_map(|root| within(root))?;
        Some((found, format!("#{fragment}")))
    }
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

/// How deep a value nests: 0 for one that has nothing within.
#[must_use]
pub fn depth(value: &Value) -> usize {
    let within = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => None,
    };
    within.map_or(0, |below| below + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions of which each names the next one twice.
    pub(crate) fn doubling(levels: usize, step: impl Fn(Value) -> Value) -> Value {
        let next = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
        let mut defs = serde_json::Map::new();
        for n in 0..levels {
            defs.insert(format!("d{n}"), step(next(n + 1)));
        }
        defs.insert(format!("d{levels}"), json!({ "type": "integer" }));
        json!({ "properties": { "x": next(0) }, "$defs": defs })
    }

    fn refused(schema: &Value) -> Option<(usize, String)> {
        let graph = Graph::of(schema).unwrap();
        graph.too_deep(true).map(|(depth, pointer)| (depth, pointer.to_owned()))
    }

    #[test]
    fn what_doubles_beside_itself_or_down_one_property_is_too_much() {
        let beside = doubling(60, |next| json!({ "anyOf": [next, next] }));
        assert_eq!(refused(&beside), Some((1, "#/$defs/d60".to_owned())));
        let down = doubling(60, |next| {
            let branch = json!({ "properties": { "a": next } });
            json!({ "anyOf": [branch, branch] })
        });
        assert!(refused(&down).is_some_and(|(depth, _)| depth > 5));
        let few = doubling(8, |next| json!({ "anyOf": [next, next] }));
        assert_eq!(refused(&few), None);
    }

    #[test]
    fn what_only_looks_like_much_is_taken() {
        // Each name is another place of the message.
        let wide = doubling(60, |next| json!({ "properties": { "left": next, "right": next } }));
        assert_eq!(refused(&wide), None);
        // Leads back to itself: the validator remembers. Its faults, though, are told of shallow ones alone.
        let branch = |op| json!({ "properties": { "op": { "const": op }, "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
        let terms = json!({ "anyOf": [{ "type": "number" }, branch("add"), branch("mul")] });
        assert_eq!(refused(&terms), None);
        let graph = Graph::of(&terms).unwrap();
        assert!(graph.too_deep(false).is_some_and(|(depth, _)| (8..16).contains(&depth)));
        let long: Vec<Value> = (0..5_000).map(|n| json!({ "const": n })).collect();
        assert_eq!(refused(&json!({ "anyOf": long })), None);
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

    #[test]
    fn depth_counts_what_is_within() {
        assert_eq!([json!(1), json!([]), json!({ "a": [1] })].each_ref().map(depth), [0, 0, 2]);
    }
}
