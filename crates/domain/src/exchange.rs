//! Calls of tools and their results in a conversation: where it may be cut. The APIs of models refuse a history with a
//! result whose call is missing, and one with a call whose result is.
//!
//! The wire forms differ, and a turn holds them verbatim: `tool_calls` and `tool_call_id` (Chat Completions, `LangChain`),
//! content blocks `tool_use` and `tool_result` (Anthropic, Bedrock), items with a `call_id` (Responses), parts with a
//! `functionCall` and a `functionResponse` (Google), `tool-call` and `tool-result` (AI SDK, Pydantic AI). The SDKs have
//! the same rule; `tests/vectors/turn_cuts.json` holds all three to it.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Roles of a turn that is a tool's.
const TOOL_ROLES: [&str; 2] = ["tool", "function"];
/// Roles of a turn that calls no tool.
const OTHER_ROLES: [&str; 4] = ["user", "human", "system", "developer"];

/// Which turns of a conversation belong together.
#[derive(Debug, Clone)]
pub struct Exchanges {
    /// For each turn the turns with the calls that its results answer.
    calls: Vec<Vec<usize>>,
    /// For each place, and the end, the earliest turn that one from there on depends on.
    reach: Vec<usize>,
}

/// A call as a turn names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Id(String),
    Name(String),
}

impl Exchanges {
    /// Reads the turns of a conversation, oldest first.
    ///
    /// A result belongs to the nearest earlier turn that has its call, by id or else by name. If no turn has it, the
    /// result belongs to the nearest earlier turn of the model: some frameworks keep calls apart from the turns.
    #[must_use]
    pub fn of(turns: &[Value]) -> Self {
        let mut made: HashMap<Key, usize> = HashMap::new();
        let mut speaker = None;
        let mut calls = Vec::with_capacity(turns.len());
        for (at, turn) in turns.iter().enumerate() {
            let (asked, answered) = keys(turn);
            let mut own: Vec<usize> = answered
                .iter()
                .filter_map(|key| key.as_ref().and_then(|key| made.get(key)).copied().or(speaker))
                .collect();
            own.sort_unstable();
            own.dedup();
            if answered.is_empty() && !is_no_models(turn) {
                speaker = Some(at);
            }
            for key in asked {
                made.insert(key, at);
            }
            calls.push(own);
        }
        let mut reach = vec![turns.len(); turns.len() + 1];
        for at in (0..turns.len()).rev() {
            let own = calls[at].first().copied().unwrap_or(at).min(at);
            reach[at] = own.min(reach[at + 1]);
        }
        Self { calls, reach }
    }

    /// Whether the turns from a place on are whole: no result among them lacks its call.
    #[must_use]
    pub fn is_whole_from(&self, place: usize) -> bool {
        self.reach.get(place).is_none_or(|reach| *reach >= place)
    }

    /// The first place at or after this one from which turns are whole, and are not none.
    #[must_use]
    pub fn after(&self, place: usize) -> Option<usize> {
        (place..self.calls.len()).find(|place| self.is_whole_from(*place))
    }

    /// The last place at or before this one from which turns are whole.
    #[must_use]
    pub fn before(&self, place: usize) -> usize {
        let place = place.min(self.calls.len());
        (0..=place).rev().find(|place| self.is_whole_from(*place)).unwrap_or(0)
    }

    /// The place at which a conversation is cut when it should begin at `place`: there or later, so that at most the
    /// requested turns stay; before it only if no turn would stay. A cut at the end stays one.
    #[must_use]
    pub fn cut(&self, place: usize) -> usize {
        if place >= self.calls.len() {
            return self.calls.len();
        }
        self.after(place).unwrap_or_else(|| self.before(place))
    }

    /// Adds to the turns that stay those that they are nothing without: the calls of results, and the results of calls.
    pub fn complete(&self, stays: &mut [bool]) {
        // Each turn under the first of its exchange, calls that share a result joined.
        let mut root: Vec<usize> = (0..self.calls.len()).collect();
        for (at, calls) in self.calls.iter().enumerate() {
            for call in calls {
                let (one, other) = (find(&mut root, at), find(&mut root, *call));
                root[one.max(other)] = one.min(other);
            }
        }
        let roots: Vec<usize> = (0..root.len()).map(|at| find(&mut root, at)).collect();
        let mut whole = vec![false; roots.len()];
        for (at, root) in roots.iter().enumerate() {
            whole[*root] |= stays.get(at).copied().unwrap_or(false);
        }
        for (stay, root) in stays.iter_mut().zip(roots) {
            *stay |= whole[root];
        }
    }
}

/// The first turn of the exchange that a turn belongs to (union-find with path halving).
fn find(root: &mut [usize], mut at: usize) -> usize {
    while root[at] != at {
        root[at] = root[root[at]];
        at = root[at];
    }
    at
}

fn is_no_models(turn: &Value) -> bool {
    turn.get("role").and_then(Value::as_str).is_some_and(|role| OTHER_ROLES.contains(&role))
}

/// The calls that a turn makes, and those whose results it has; `None` for a result that names none.
fn keys(turn: &Value) -> (Vec<Key>, Vec<Option<Key>>) {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    let Some(members) = turn.as_object() else { return (asked, answered) };
    part(members, &mut asked, &mut answered);
    for name in ["content", "parts", "metadata"] {
        match members.get(name) {
            Some(Value::Object(inner)) => part(inner, &mut asked, &mut answered),
            Some(Value::Array(inner)) => {
                for inner in inner.iter().filter_map(Value::as_object) {
                    part(inner, &mut asked, &mut answered);
                }
            }
            _ => {}
        }
    }
    let role = members.get("role").and_then(Value::as_str).unwrap_or_default();
    if answered.is_empty() && asked.is_empty() && TOOL_ROLES.contains(&role) {
        answered.push(id(members, &["name"]).map(Key::Name));
    }
    (asked, answered)
}

/// The same of one part of a turn.
fn part(members: &Map<String, Value>, asked: &mut Vec<Key>, answered: &mut Vec<Option<Key>>) {
    let object = |names: [&str; 2]| {
        names.iter().find_map(|name| members.get(*name).and_then(Value::as_object))
    };
    let named = |inner: &Map<String, Value>, ids: &[&str]| {
        id(inner, ids).map(Key::Id).or_else(|| id(inner, &["name"]).map(Key::Name))
    };
    for name in ["tool_calls", "toolCalls"] {
        let list = members.get(name).and_then(Value::as_array);
        for call in list.into_iter().flatten().filter_map(Value::as_object) {
            asked.extend(named(call, &["id", "call_id", "tool_call_id", "toolCallId"]));
        }
    }
    if let Some(call) = object(["function_call", "functionCall"]) {
        asked.extend(named(call, &["id", "call_id"]));
    }
    if let Some(call) = object(["toolUse", "tool_use"]) {
        asked.extend(named(call, &["toolUseId", "id"]));
    }
    if let Some(result) = object(["function_response", "functionResponse"]) {
        answered.push(named(result, &["id", "call_id"]));
    }
    if let Some(result) = object(["toolResult", "tool_result"]) {
        answered.push(named(result, &["toolUseId", "tool_use_id"]));
    }
    let kind = ["type", "part_kind"].iter().find_map(|name| members.get(*name)?.as_str());
    let ids = ["call_id", "tool_use_id", "tool_call_id", "toolCallId", "id"];
    match kind.unwrap_or_default() {
        kind if kind.ends_with("tool_result")
            || kind.ends_with("_call_output")
            || matches!(kind, "function_result" | "tool-result" | "tool-return") =>
        {
            answered.push(named(members, &ids[..4]));
        }
        kind if kind.ends_with("tool_use") || kind.ends_with("_call") || kind == "tool-call" => {
            asked.extend(named(members, &ids));
        }
        _ => {
            if let Some(call) = id(members, &["tool_call_id", "tool_use_id"]) {
                answered.push(Some(Key::Id(call)));
            }
        }
    }
}

fn id(members: &Map<String, Value>, names: &[&str]) -> Option<String> {
    let texts = names.iter().filter_map(|name| members.get(*name)?.as_str());
    texts.map(str::to_owned).find(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The vectors of all three implementations.
    #[test]
    fn the_shared_vectors_are_cut_alike() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/turn_cuts.json");
        let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = cases.as_array().unwrap();
        assert!(cases.len() >= 10);
        for case in cases {
            let turns = case["turns"].as_array().unwrap();
            let exchanges = Exchanges::of(turns);
            let cuts: Vec<usize> = (0..=turns.len()).map(|place| exchanges.cut(place)).collect();
            assert_eq!(json!(cuts), case["cuts"], "{}", case["name"]);
        }
    }

    /// How a wire form writes a call and its result.
    #[derive(Debug, Clone, Copy)]
    enum Form {
        Chat,
        Blocks,
        Items,
    }

    /// A conversation of a form, as an agent's loop makes it: words, then calls side by side, then their results in any
    /// order; and for each turn the ids of its calls and of its results.
    fn conversation(form: Form, steps: &[(u8, u8, bool)]) -> (Vec<Value>, Vec<[Vec<String>; 2]>) {
        let (mut turns, mut facts) = (Vec::new(), Vec::new());
        let mut say = |turn: Value, calls: Vec<String>, results: Vec<String>| {
            turns.push(turn);
            facts.push([calls, results]);
        };
        for (step, (calls, reuse, reversed)) in steps.iter().enumerate() {
            say(json!({"role": "user", "content": format!("do {step}")}), vec![], vec![]);
            // Some frameworks count their calls anew in each round.
            let round = if *reuse == 0 { 0 } else { step };
            let ids: Vec<String> = (0..*calls).map(|call| format!("c{round}-{call}")).collect();
            let mut results = ids.clone();
            if *reversed {
                results.reverse();
            }
            if ids.is_empty() {
                say(json!({"role": "assistant", "content": "done"}), vec![], vec![]);
                continue;
            }
            match form {
                Form::Chat => {
                    let made = ids.iter().map(|id| {
                        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
                    });
                    let made: Vec<_> = made.collect();
                    say(
                        json!({"role": "assistant", "content": "", "tool_calls": made}),
                        ids,
                        vec![],
                    );
                    for id in results {
                        let turn = json!({"role": "tool", "tool_call_id": id, "content": "x"});
                        say(turn, vec![], vec![id]);
                    }
                }
                Form::Blocks => {
                    let made = ids
                        .iter()
                        .map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}}));
                    let made: Vec<_> = made.collect();
                    say(json!({"role": "assistant", "content": made}), ids, vec![]);
                    let blocks = results.iter().map(
                        |id| json!({"type": "tool_result", "tool_use_id": id, "content": "x"}),
                    );
                    let blocks: Vec<_> = blocks.collect();
                    say(json!({"role": "user", "content": blocks}), vec![], results);
                }
                Form::Items => {
                    for id in ids {
                        let call = json!({"type": "function_call", "call_id": id, "id": format!("fc_{id}"), "name": "f", "arguments": "{}"});
                        say(json!({"role": "assistant", "content": call}), vec![id], vec![]);
                    }
                    for id in results {
                        let turn = json!({"role": "tool", "tool_call_id": id, "content": "x"});
                        say(turn, vec![], vec![id]);
                    }
                }
            }
        }
        (turns, facts)
    }

    /// Whether the turns that stay are whole, by the conversation's own books.
    fn is_whole(facts: &[[Vec<String>; 2]], stays: &[bool]) -> bool {
        // Pairs by id, each result with the last call before it.
        let mut last: HashMap<&String, usize> = HashMap::new();
        let mut pairs = Vec::new();
        for (at, [calls, results]) in facts.iter().enumerate() {
            pairs.extend(results.iter().map(|id| (last[id], at)));
            last.extend(calls.iter().map(|id| (id, at)));
        }
        pairs.into_iter().all(|(call, result)| stays[call] == stays[result])
    }

    fn any_form() -> impl Strategy<Value = Form> {
        prop_oneof![Just(Form::Chat), Just(Form::Blocks), Just(Form::Items)]
    }

    proptest! {
        #[test]
        fn no_cut_parts_a_call_from_its_result(
            form in any_form(),
            steps in prop::collection::vec((0_u8..4, 0_u8..2, any::<bool>()), 1..12),
            place in 0_usize..60,
        ) {
            let (turns, facts) = conversation(form, &steps);
            let exchanges = Exchanges::of(&turns);
            let cut = exchanges.cut(place);
            let stays: Vec<bool> = (0..turns.len()).map(|at| at >= cut).collect();
            prop_assert!(is_whole(&facts, &stays), "{cut} of {}", turns.len());
            prop_assert!(cut >= place || place >= turns.len() || exchanges.after(place).is_none());
            prop_assert!(cut < turns.len() || place >= turns.len());
            // The cut is the nearest one: at each place between, a result would lose its call.
            for between in place.min(cut)..cut {
                let stays: Vec<bool> = (0..turns.len()).map(|at| at >= between).collect();
                prop_assert!(!is_whole(&facts, &stays), "{between} would do");
            }
        }

        #[test]
        fn turns_that_stay_keep_what_they_are_nothing_without(
            form in any_form(),
            steps in prop::collection::vec((0_u8..4, 0_u8..2, any::<bool>()), 1..12),
            picked in prop::collection::vec(any::<bool>(), 60..61),
        ) {
            let (turns, facts) = conversation(form, &steps);
            let mut stays = picked[..turns.len().min(60)].to_vec();
            stays.resize(turns.len(), false);
            let before = stays.clone();
            Exchanges::of(&turns).complete(&mut stays);
            prop_assert!(is_whole(&facts, &stays));
            prop_assert!(before.iter().zip(&stays).all(|(was, is)| !was || *is));
        }
    }
}
