//! The log's account of the objects that steer the broker: the last committed state of each, by their records. Memory grows
//! with the number of such objects.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::commitment::hash_text;
use crate::record::{
    AdoptionFacts, ChangeFacts, PayloadSchemaRef, RecordKind, RecordParty, RulingContract,
    StateObject,
};
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical;
use handoffd_domain::event::Subscription;

/// A record about state, with its content as JSON where it can be read.
#[derive(Debug)]
pub struct StateRecord<'a> {
    pub leaf_index: i64,
    pub kind: &'a str,
    /// Microseconds since the epoch.
    pub recorded_at: i64,
    pub body: &'a [u8],
    pub content: Option<Value>,
}

/// Whether records of this kind are about the state of objects.
#[must_use]
pub fn is_about_state(kind: &str) -> bool {
    RecordKind::ABOUT_STATE.iter().any(|known| known.as_str() == kind)
}

/// The log's last statement on one object.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    State(Value),
    Removed,
    /// Its content cannot be read here.
    Unread,
    /// A record of an earlier version, which commits to no state.
    Uncommitted,
}

/// Records of an earlier version that name the kind of an object and not which.
#[derive(Debug, Clone, Copy, Default)]
struct Unnamed {
    count: u64,
    /// The last one's leaf index.
    last: i64,
}

/// The log's verdict on one object that a table has.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// Its row is as the record says.
    Same,
    /// Its row is not as the record says.
    Differs { leaf_index: i64, difference: Difference },
    /// The record with its state cannot be read here.
    Unread,
    /// An earlier version wrote it, and no record commits to its state.
    Uncommitted,
    /// The record at that leaf index removed it, or no record knows it (`None`).
    Added(Option<i64>),
}

/// The first member in which two states differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub pointer: String,
    /// In the row.
    pub is: String,
    /// In the record.
    pub was: String,
}

/// The last committed states of all objects of a log, as far as it was gone through.
#[derive(Debug, Default)]
pub struct StateBook {
    objects: HashMap<StateObject, BTreeMap<String, (i64, Said)>>,
    unnamed: HashMap<(StateObject, Option<String>), Unnamed>,
    /// Some record commits to a state.
    begun: bool,
    /// An adoption cannot be read here: it may have named any object.
    lost_adoption: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    id: String,
}

/// The members of a record that say what it is about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    changes: Vec<ChangeFacts>,
    adoption: Option<AdoptionFacts>,
    to_agent: Option<RecordParty>,
    contract: Option<RulingContract>,
    payload_schema: Option<PayloadSchemaRef>,
    legal_hold: Option<Named>,
    task_id: Option<IgnoredAny>,
    actor: Option<Value>,
}

/// The key of one version of a contract or payload schema.
#[must_use]
pub fn version_key(id: &str, version: &str) -> String {
    format!("{id} {version}")
}

/// The member of a state that commits to secrets, which only who has the master key can compare.
const SECRETS: &str = "secrets";

impl StateBook {
    /// Takes the next record; records come in log order, and those that are not about state are passed over.
    pub fn add(&mut self, record: StateRecord<'_>) {
        if !is_about_state(record.kind) {
            return;
        }
        let body: Body = serde_json::from_slice(record.body).unwrap_or_default();
        let leaf = record.leaf_index;
        if let Some(adoption) = body.adoption {
            self.adopt(leaf, adoption, record.content);
        } else if body.changes.is_empty() {
            self.of_earlier(&record, &body);
        } else {
            self.begun = true;
            let states = record.content.as_ref().and_then(|content| content.get("states"));
            for (place, change) in body.changes.iter().enumerate() {
                let state = states.and_then(|states| states.get(place)?.get("state"));
                let said = match state {
                    _ if change.removed => Said::Removed,
                    Some(state) => Said::State(self.carried(change, state.clone())),
                    None => Said::Unread,
                };
                self.say(change.object, change.id.clone(), leaf, said);
            }
        }
    }

    /// The state with the commitment to its secrets: if a change left them alone, the commitment is that of the
    /// change before.
    fn carried(&self, change: &ChangeFacts, mut state: Value) -> Value {
        let before = self.secrets(change.object, &change.id).map(str::to_owned);
        if let (Some(object), Some(before)) = (state.as_object_mut(), before) {
            object.entry(SECRETS).or_insert(Value::String(before));
        }
        state
    }

    fn adopt(&mut self, leaf: i64, facts: AdoptionFacts, content: Option<Value>) {
        self.begun = true;
        let Some(Value::Array(states)) =
            content.and_then(|mut content| content.get_mut("states").map(Value::take))
        else {
            self.lost_adoption = true;
            return;
        };
        for mut entry in states {
            let object = serde_json::from_value(entry["object"].take());
            let (Ok(object), Some(id)) = (object, entry["id"].as_str().map(str::to_owned)) else {
                continue;
            };
            let later = self.objects.get(&object).and_then(|known| known.get(&id));
            if later.is_none_or(|(known, _)| *known < facts.as_of) {
                self.say(object, id, leaf, Said::State(entry["state"].take()));
            }
        }
        self.unnamed.retain(|_, unnamed| unnamed.last >= facts.as_of);
    }

    fn say(&mut self, object: StateObject, id: String, leaf: i64, said: Said) {
        self.objects.entry(object).or_default().insert(id, (leaf, said));
    }

    /// A record without `changes`: of an earlier version, or about a contract or payload schema, whose content is all.
    fn of_earlier(&mut self, record: &StateRecord<'_>, body: &Body) {
        let leaf = record.leaf_index;
        let agent = body.to_agent.as_ref().and_then(|party| party.agent_id.as_ref());
        let agent = agent.map(ToString::to_string);
        let unnamed = match (record.kind, agent) {
            ("CONTRACT_PUT", _) => {
                if let Some(RulingContract { id, version }) = &body.contract {
                    let said = contract(record).map_or(Said::Unread, Said::State);
                    self.say(StateObject::Contract, version_key(id, version), leaf, said);
                }
                return;
            }
            ("PAYLOAD_SCHEMA_PUT", _) => {
                if let Some(PayloadSchemaRef { id, version }) = &body.payload_schema {
                    let said = self.schema(id, record, body).map_or(Said::Unread, Said::State);
                    self.say(StateObject::PayloadSchema, version_key(id, version), leaf, said);
                }
                return;
            }
            ("AGENT_DELETED", Some(agent)) => {
                self.say(StateObject::Agent, agent, leaf, Said::Removed);
                return;
            }
            ("AGENT_CREATED", Some(agent)) => {
                self.say(StateObject::Agent, agent.clone(), leaf, Said::Uncommitted);
                (StateObject::Key, Some(agent))
            }
            (
                "AGENT_UPDATED" | "SECRET_ROTATED" | "ENDPOINT_DISABLED" | "ENDPOINT_FAILING"
                | "ENDPOINT_RECOVERED",
                Some(agent),
            ) => {
                self.say(StateObject::Agent, agent, leaf, Said::Uncommitted);
                return;
            }
            ("KEY_CREATED" | "KEY_REVOKED", agent) => (StateObject::Key, agent),
            (
                "SUBSCRIPTION_CREATED"
                | "SUBSCRIPTION_UPDATED"
                | "SUBSCRIPTION_DELETED"
                | "SUBSCRIPTION_DISABLED"
                | "SECRET_ROTATED",
                None,
            ) => (StateObject::Subscription, None),
            ("BUDGET_CHANGED", _) if body.task_id.is_none() => (StateObject::Cap, None),
            ("LEGAL_HOLD_PLACED" | "LEGAL_HOLD_RELEASED", _) => {
                if let Some(hold) = &body.legal_hold {
                    self.say(StateObject::LegalHold, hold.id.clone(), leaf, Said::Uncommitted);
                }
                return;
            }
            _ => return,
        };
        let unnamed = self.unnamed.entry(unnamed).or_default();
        *unnamed = Unnamed { count: unnamed.count + 1, last: leaf };
    }

    /// The state of a payload schema that a record registered. The versions of a schema are numbered in log order.
    fn schema(&self, id: &str, record: &StateRecord<'_>, body: &Body) -> Option<Value> {
        let content = record.content.as_ref()?;
        let schema = content.get("schema")?;
        let family = version_key(id, "");
        let known = self.objects.get(&StateObject::PayloadSchema);
        let ordinal = known.map_or(0, |known| {
            known.range(family.clone()..).take_while(|(key, _)| key.starts_with(&family)).count()
        });
        let by = body.actor.as_ref().and_then(|actor| actor.get("keyId"));
        Some(json!({
            "doc": schema,
            "sha256": digest(schema),
            "migration": content.get("migration"),
            "ordinal": ordinal,
            "createdBy": by.and_then(Value::as_str).unwrap_or_default(),
            "createdAt": record.recorded_at,
        }))
    }

    /// The leaf index of the last record about an object.
    #[must_use]
    pub fn leaf_index(&self, object: StateObject, id: &str) -> Option<i64> {
        self.objects.get(&object)?.get(id).map(|(leaf_index, _)| *leaf_index)
    }

    /// The commitment to an object's secrets, where its records have one.
    #[must_use]
    pub fn secrets(&self, object: StateObject, id: &str) -> Option<&str> {
        match self.objects.get(&object)?.get(id)? {
            (_, Said::State(state)) => state.get(SECRETS)?.as_str(),
            _ => None,
        }
    }

    /// Judges an object as its row has it. The commitment to its secrets is not compared here. `agent` is the agent of a key.
    #[must_use]
    pub fn judge(
        &self,
        object: StateObject,
        (id, agent): (&str, Option<&str>),
        state: &Value,
    ) -> Judgement {
        let known = self.objects.get(&object).and_then(|known| known.get(id));
        let unnamed = self.unnamed(object, agent);
        let derived = matches!(object, StateObject::Contract | StateObject::PayloadSchema);
        match known {
            Some((leaf_index, Said::State(was))) => {
                let (was, is) = (normal(object, was), normal(object, state));
                match difference(&was, &is) {
                    None => Judgement::Same,
                    // A record behind it may have changed it, and does not say.
                    Some(_) if unnamed.count > 0 && unnamed.last > *leaf_index => {
                        Judgement::Uncommitted
                    }
                    Some(difference) => Judgement::Differs { leaf_index: *leaf_index, difference },
                }
            }
            Some((_, Said::Unread)) => Judgement::Unread,
            Some((_, Said::Uncommitted)) => Judgement::Uncommitted,
            Some((leaf_index, Said::Removed)) => Judgement::Added(Some(*leaf_index)),
            None if self.lost_adoption => Judgement::Unread,
            None if unnamed.count > 0 || (!self.begun && !derived) => Judgement::Uncommitted,
            None => Judgement::Added(None),
        }
    }

    fn unnamed(&self, object: StateObject, agent: Option<&str>) -> Unnamed {
        let key = (object, agent.map(str::to_owned));
        self.unnamed.get(&key).copied().unwrap_or_default()
    }

    /// How many objects of a kind, of an agent where they are keys, may stand without a record that names them.
    #[must_use]
    pub fn unnamed_count(&self, object: StateObject, agent: Option<&str>) -> Option<u64> {
        self.begun.then(|| self.unnamed(object, agent).count)
    }

    /// The objects of a kind that the log knows and a table must have, each with the leaf index of its last record.
    pub fn present(&self, object: StateObject) -> impl Iterator<Item = (&str, i64)> {
        let loose = self.unnamed(object, None);
        let known = self.objects.get(&object).into_iter().flatten();
        known.filter_map(move |(id, (leaf, said))| {
            // An earlier version may have taken it away, and did not say which.
            let open = object != StateObject::Key && loose.count > 0 && loose.last > *leaf;
            (*said != Said::Removed && !open).then_some((id.as_str(), *leaf))
        })
    }

    /// The committed states of a kind, with the leaf index of their records.
    pub fn states(&self, object: StateObject) -> impl Iterator<Item = (&str, i64, &Value)> {
        let known = self.objects.get(&object).into_iter().flatten();
        known.filter_map(|(id, (leaf, said))| match said {
            Said::State(state) => Some((id.as_str(), *leaf, state)),
            _ => None,
        })
    }
}

fn digest(value: &Value) -> String {
    hash_text(&Sha256::digest(canonical::to_vec(value)))
}

/// The state of a contract that a record put: its document is the record's content.
fn contract(record: &StateRecord<'_>) -> Option<Value> {
    let doc = record.content.as_ref()?;
    Some(json!({
        "doc": doc,
        "sha256": digest(doc),
        "source": doc.get("source"),
        "target": doc.get("target"),
        "createdAt": record.recorded_at,
    }))
}

/// A state in the form of this version, without what is compared elsewhere: a version that knows a member more writes it, too.
fn normal(object: StateObject, state: &Value) -> Value {
    let mut state = state.clone();
    if let Some(members) = state.as_object_mut() {
        members.remove(SECRETS);
        members.retain(|_, value| !value.is_null());
    }
    if let (StateObject::Agent, Some(agent)) = (object, state.get_mut("agent")) {
        again::<Agent>(agent);
    }
    if let (StateObject::Subscription, Some(told)) = (object, state.get_mut("subscription")) {
        again::<Subscription>(told);
    }
    state
}

/// Reads a value and writes it again.
fn again<T: serde::Serialize + for<'de> Deserialize<'de>>(value: &mut Value) {
    let read = serde_json::from_value::<T>(value.clone());
    if let Some(written) = read.ok().and_then(|read| serde_json::to_value(read).ok()) {
        *value = written;
    }
}

/// The first member in which two values differ, by its JSON pointer.
#[must_use]
pub fn difference(was: &Value, is: &Value) -> Option<Difference> {
    fn step(name: &str) -> String {
        format!("/{}", name.replace('~', "~0").replace('/', "~1"))
    }
    // Without recursion: a contract may nest as deep as its sender liked.
    let mut open = vec![(String::new(), Some(was), Some(is))];
    while let Some((pointer, was, is)) = open.pop() {
        match (was, is) {
            (Some(Value::Object(was)), Some(Value::Object(is))) => {
                let mut names: Vec<&String> = was.keys().chain(is.keys()).collect();
                names.sort_unstable();
                names.dedup();
                let members = names.into_iter().rev();
                open.extend(
                    members.map(|name| {
                        (format!("{pointer}{}", step(name)), was.get(name), is.get(name))
                    }),
                );
            }
            (Some(Value::Array(was)), Some(Value::Array(is))) => {
                let places = 0..was.len().max(is.len());
                open.extend(
                    places
                        .rev()
                        .map(|place| (format!("{pointer}/{place}"), was.get(place), is.get(place))),
                );
            }
            (was, is) if was == is => {}
            (was, is) => {
                return Some(Difference { pointer, is: told(is), was: told(was) });
            }
        }
    }
    None
}

/// Most characters of a value in a sentence.
const TOLD: usize = 120;

fn told(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(TOLD) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(book: &mut StateBook, leaf_index: i64, kind: &str, body: &Value, content: Value) {
        let body = body.to_string();
        let content = Some(content);
        book.add(StateRecord { leaf_index, kind, recorded_at: 7, body: body.as_bytes(), content });
    }

    fn key(id: &str, state: &Value) -> (Value, Value) {
        (
            json!({ "changes": [{ "object": "key", "id": id, "role": "admin" }] }),
            json!({ "states": [{ "object": "key", "id": id, "state": state }] }),
        )
    }

    #[test]
    fn a_row_is_as_its_last_record_says_or_its_member_is_named() {
        let mut book = StateBook::default();
        let (body, content) = key("k", &json!({ "role": "auditor", "expiresAt": null }));
        add(&mut book, 3, "KEY_CREATED", &body, content);
        let judge = |book: &StateBook, state| book.judge(StateObject::Key, ("k", None), &state);
        assert_eq!(judge(&book, json!({ "role": "auditor" })), Judgement::Same);
        let Judgement::Differs { leaf_index: 3, difference } =
            judge(&book, json!({ "role": "admin" }))
        else {
            panic!("not found");
        };
        let named = (difference.pointer, difference.is, difference.was);
        assert_eq!(named, ("/role".into(), "\"admin\"".into(), "\"auditor\"".into()));
        let other = book.judge(StateObject::Key, ("l", None), &json!({}));
        assert_eq!(other, Judgement::Added(None));
        // An earlier version beside it creates one: it does not say which.
        add(&mut book, 4, "KEY_CREATED", &json!({}), Value::Null);
        let other = book.judge(StateObject::Key, ("l", None), &json!({}));
        assert_eq!(
            (other, book.unnamed_count(StateObject::Key, None)),
            (Judgement::Uncommitted, Some(1))
        );
    }

    #[test]
    fn an_adoption_counts_for_what_no_later_record_is_about() {
        let mut book = StateBook::default();
        let agent = |name: &str| json!({ "changes": [{ "object": "agent", "id": name }] });
        let party = json!({ "toAgent": { "agentId": "B" } });
        add(&mut book, 0, "AGENT_CREATED", &party, Value::Null);
        assert_eq!(
            book.judge(StateObject::Agent, ("B", None), &json!({ "n": 1 })),
            Judgement::Uncommitted
        );
        let states = json!({ "states": [{ "state": { "n": 2 } }] });
        add(&mut book, 2, "AGENT_UPDATED", &agent("A"), states);
        let entry = |id: &str| json!({ "object": "agent", "id": id, "state": { "n": 1 } });
        let body = json!({ "adoption": { "objects": 2, "asOf": 1 } });
        add(&mut book, 3, "STATE_ADOPTED", &body, json!({ "states": [entry("A"), entry("B")] }));
        for (id, n) in [("A", 2), ("B", 1)] {
            let state = json!({ "n": n });
            assert_eq!(book.judge(StateObject::Agent, (id, None), &state), Judgement::Same);
        }
        assert_eq!(book.present(StateObject::Agent).count(), 2);
    }

    #[test]
    fn a_difference_is_found_at_any_depth() {
        let was = json!({ "a": [1, { "b/c": [[[[[1]]]]] }] });
        let is = json!({ "a": [1, { "b/c": [[[[[2]]]]] }] });
        assert_eq!(difference(&was, &is).unwrap().pointer, "/a/1/b~1c/0/0/0/0/0");
        assert_eq!(difference(&was, &was), None);
        assert_eq!(difference(&json!({ "a": 1 }), &json!({})).unwrap().is, "nothing");
    }
}
