//! The changes of an administrative command, for its record: the changed objects in the record, and the whole new state of
//! each in the record's content.

use serde_json::{Map, Value, json};

use super::context::StateSpare;
use super::plan::Change;
use crate::vault::AgentSecrets;
use handoffd_domain::canonical;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, unpack};
use handoffd_evidence::record::{ChangeFacts, RecordContent, StateObject};
use handoffd_store::store::states::ObjectState;
use handoffd_store::store::{BatchState, states};

/// One object that a command changes.
struct Changed {
    object: StateObject,
    id: String,
    role: Option<String>,
    before: Option<ObjectState>,
    /// None where it is removed.
    after: Option<ObjectState>,
}

impl Changed {
    fn new(before: Option<ObjectState>, after: Option<ObjectState>) -> Option<Self> {
        let named = after.as_ref().or(before.as_ref())?;
        let (object, id) = (named.object, named.id.clone());
        Some(Self { object, id, role: None, before, after })
    }

    /// The objects of a change of rows.
    fn of(state: &BatchState, change: &Change) -> Option<Self> {
        match change {
            Change::Agent(row) => {
                let key = (row.tenant.clone(), row.agent.agent_id.clone());
                let before = state.agents.get(&key).map(states::of_agent);
                Self::new(before, Some(states::of_agent(row)))
            }
            Change::NoAgent(key) => Self::new(state.agents.get(key).map(states::of_agent), None),
            Change::Key(row) => {
                let key = (row.tenant.clone(), row.key_id.clone());
                let before = state.keys.get(&key).map(states::of_key);
                let role = Some(row.role.as_str().to_owned());
                Some(Self { role, ..Self::new(before, Some(states::of_key(row)))? })
            }
            Change::Hold(row) => {
                let key = (row.tenant.clone(), row.id.clone());
                let before = state.erasure.holds.get(&key).map(states::of_hold);
                Self::new(before, Some(states::of_hold(row)))
            }
            Change::Cap(cap) => {
                let before = state.caps.get(&cap.key()).and_then(states::of_cap);
                Self::new(before, states::of_cap(cap))
            }
            Change::NoCap(key) => Self::new(state.caps.get(key).and_then(states::of_cap), None),
            Change::Subscription(row) => {
                let key = (row.tenant.clone(), row.id);
                let before = state.subscriptions.get(&key).map(states::of_subscription);
                Self::new(before, Some(states::of_subscription(row)))
            }
            Change::NoSubscription(key) => {
                Self::new(state.subscriptions.get(key).map(states::of_subscription), None)
            }
            _ => None,
        }
    }

    /// Its facts in the record.
    fn facts(&self) -> ChangeFacts {
        let changed = match (&self.before, &self.after) {
            (Some(before), Some(after)) => differing(before, after),
            _ => Vec::new(),
        };
        ChangeFacts {
            object: self.object,
            id: self.id.clone(),
            role: self.role.clone(),
            changed,
            removed: self.after.is_none(),
        }
    }

    /// Its part of the record's content: the whole new state, and the previous value of each changed member.
    fn content(&self, changed: &[String]) -> Value {
        let mut said = json!({ "object": self.object, "id": self.id });
        let known = self.before.as_ref().map(|before| members(&before.state));
        let before: Map<String, Value> = known
            .into_iter()
            .flatten()
            .filter(|(name, _)| changed.contains(name))
            .map(|(name, value)| (name, value.clone()))
            .collect();
        if !before.is_empty() {
            said["before"] = Value::Object(before);
        }
        if let Some(after) = &self.after {
            let mut state = after.state.clone();
            let sealed = after.sealed.as_deref().map(AgentSecrets::parse);
            if let Some(secrets) = sealed.as_ref().and_then(AgentSecrets::committed) {
                state["secrets"] = json!(secrets);
            }
            said["state"] = state;
        }
        said
    }
}

/// The members that an object has for its users: those of an agent's or a subscription's document stand one level deeper.
fn members(state: &Value) -> Vec<(String, &Value)> {
    let documents =
        ["agent", "subscription"].iter().filter_map(|name| state.get(*name)?.as_object());
    let own = state.as_object().into_iter();
    let all = documents.chain(own).flatten();
    let is_one = |name: &str| !["agent", "subscription", "updatedAt"].contains(&name);
    all.filter(|(name, _)| is_one(name)).map(|(name, value)| (name.clone(), value)).collect()
}

fn differing(before: &ObjectState, after: &ObjectState) -> Vec<String> {
    let (was, is) = (members(&before.state), members(&after.state));
    let value = |of: &[(String, &Value)], name: &str| {
        of.iter().find(|(own, _)| own == name).map(|(_, value)| (*value).clone())
    };
    let mut names: Vec<String> = was.iter().chain(&is).map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| value(&was, name) != value(&is, name));
    if let (Some(was), Some(is)) = (&before.sealed, &after.sealed) {
        let secrets = AgentSecrets::parse(was).changed(&AgentSecrets::parse(is));
        names.extend(secrets.into_iter().map(str::to_owned));
    }
    names
}

/// Lets the record of an administrative command say what it changed, and commit to the new states.
pub(super) fn commit(state: &BatchState, spare: &StateSpare, changes: &mut [Change]) {
    let changed: Vec<Changed> =
        changes.iter().filter_map(|change| Changed::of(state, change)).collect();
    let record = changes.iter_mut().find_map(|change| match change {
        Change::Record(draft) => Some(draft),
        _ => None,
    });
    let Some(draft) = record.filter(|_| !changed.is_empty()) else { return };
    draft.changes = changed.iter().map(Changed::facts).collect();
    let said = changed.iter().zip(&draft.changes);
    let states: Vec<Value> = said.map(|(changed, facts)| changed.content(&facts.changed)).collect();
    let mut words = draft.content.as_ref().and_then(words).unwrap_or_default();
    words.insert("states".to_owned(), Value::Array(states));
    let (id, salt) = match &draft.content {
        Some(content) => (content.id, <[u8; 16]>::try_from(&content.part.salt[..]).ok()),
        None => (spare.content, None),
    };
    draft.content = Some(RecordContent {
        id,
        part: PackedContent::new(
            CommitmentSubject::Message,
            salt.unwrap_or(spare.salt),
            &canonical::to_vec(&Value::Object(words)),
        ),
    });
}

/// The caller's words, as the members of an object.
fn words(content: &RecordContent) -> Option<Map<String, Value>> {
    let bytes = unpack(content.part.codec, &content.part.bytes).ok()?;
    Some(match serde_json::from_slice(&bytes).ok()? {
        Value::Object(members) => members,
        other => Map::from_iter([("said".to_owned(), other)]),
    })
}
