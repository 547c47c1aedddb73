//! The canonical handoff message (seed 000 §5.2), parsed once: the value for the gate, its RFC 8785
//! form in members for hashing and storing, and the typed fields that the broker itself acts on.

use serde::Deserialize;
use serde_json::Value;

use super::canonical::CanonicalObject;
use super::group::{Join, OnReject};
use super::handoff::{Cost, Priority};
use super::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use super::personal::{self, PersonalDatum};
use super::redaction::RedactionPolicy;

/// The `taskDescription` that marks a handoff before any work was done (seed 000 §7.2).
pub const INITIAL: &str = "INITIAL";

/// The versions of the message schema that this broker knows, oldest first; all of major 2, without gaps.
pub const SCHEMA_VERSIONS: &[&str] = &["2.0", "2.1", "2.2"];

/// Members that never travel with the stored or delivered message.
const APART: [&str; 2] = ["checkpoint", "personalDataPayload"];

/// Members of a message that describe the sender's state: its checkpoint when it gave none.
const STATE_MEMBERS: [&str; 5] =
    ["taskDescription", "completedSubtasks", "remainingSubtasks", "currentState", "constraints"];

/// To whom a handoff is addressed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub agent_id: Option<AgentId>,
    /// Any agent of a type.
    pub agent_type: Option<String>,
    /// Within a semver range.
    pub agent_version: Option<String>,
    /// Any agent that can do this.
    pub capability: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sender {
    pub agent_id: AgentId,
    pub agent_version: String,
    pub execution_id: ExecutionId,
}

/// The fields that the broker acts on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    pub parent_handoff_id: Option<HandoffId>,
    pub from_agent: Sender,
    pub to_agent: Address,
    pub cost_tracking: Cost,
    pub traceparent: String,
    pub tracestate: Option<String>,
    pub contract_id: Option<String>,
    /// `preferredAgents`: who is asked next where the receiver says no, in order.
    #[serde(default)]
    pub preferred_agents: Vec<AgentId>,
    #[serde(default)]
    pub priority: Priority,
    #[serde(default)]
    pub capabilities_required: Vec<String>,
    pub return_to: Option<ReturnTo>,
    pub stream: Option<StreamMember>,
}

/// Whether a message comes in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct StreamMember {
    pub open: bool,
}

/// The agent that gets a task once the receiver of a handoff completes it (specification §10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReturnTo {
    /// Back to the sender of the handoff.
    Source,
}

/// A whole number from 0. JSON Schema counts `3.0` as an integer, too.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and within 2^53"
)]
pub fn whole_number(value: &Value) -> Option<u64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let whole = |number: f64| {
        (number.fract() == 0.0 && (0.0..=MOST).contains(&number)).then_some(number as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// To whom a message goes that has a `receiverList`, and what its group asks for (specification §10.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOut {
    /// The receivers in the list's order.
    pub receivers: Vec<Address>,
    /// How many of them are needed.
    pub join: Join,
    /// The effect of one bad end.
    pub on_reject: OnReject,
}

/// The first minor in which the broker sends to a `receiverList`; in older ones the field is without effect.
pub const FAN_OUT_MINOR: u32 = 2;

/// Whether the broker sends to the `receiverList` of this message.
#[must_use]
pub fn fans_out(message: &Value) -> bool {
    let version = message.get("schemaVersion").and_then(Value::as_str);
    let minor = version.and_then(|text| text.split('.').nth(1)?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= FAN_OUT_MINOR) && message.get("receiverList").is_some()
}

impl FanOut {
    /// Reads the list of a message that passed the schema.
    fn of(message: &Value) -> Result<Option<Self>, String> {
        let list = message.get("receiverList").and_then(Value::as_array);
        let Some(list) = list.filter(|_| fans_out(message)) else { return Ok(None) };
        let receiver = |entry: &Value| match entry {
            Value::String(id) => Ok(Address {
                agent_id: Some(id.parse().map_err(|err| format!("receiverList: {err}"))?),
                agent_type: None,
                agent_version: None,
                capability: None,
            }),
            entry => Address::deserialize(entry).map_err(|err| format!("receiverList: {err}")),
        };
        let receivers = list.iter().map(receiver).collect::<Result<_, _>>()?;
        let text = |name| message.get(name).and_then(Value::as_str);
        let join: Join = text("join").map_or(Ok(Join::All), str::parse)?;
        let on_reject = match text("onReject") {
            Some("rollback") => OnReject::Rollback,
            Some("drop") => OnReject::Drop,
            _ => OnReject::usual(join),
        };
        Ok(Some(Self { receivers, join, on_reject }))
    }
}

/// The UUIDs of a message.
const IDS: [&str; 4] = ["/handoffId", "/taskId", "/parentHandoffId", "/fromAgent/executionId"];

/// A message whose schema has been checked.
#[derive(Debug, Clone)]
pub struct Message {
    value: Value,
    canonical: CanonicalObject,
    envelope: Envelope,
    fan_out: Option<FanOut>,
    cut: Option<Cut>,
}

/// A message without the values that its sender marked as personal.
#[derive(Debug, Clone)]
struct Cut {
    value: Value,
    canonical: CanonicalObject,
    data: Vec<PersonalDatum>,
}

impl Cut {
    fn of(value: &Value) -> Option<Self> {
        let (value, data) = personal::cut(value, subjects(value).count())?;
        let canonical = CanonicalObject::from_value(&value)?;
        Some(Self { value, canonical, data })
    }
}

fn subjects(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = value.pointer("/personalDataPayload/subjects").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(|entry| Some((entry.get("subjectId")?.as_str()?, entry)))
}

impl Message {
    /// Types a message.
    ///
    /// # Errors
    /// The sentence about the part that does not fit; a message that passed the schema has
    /// none.
    pub fn new(value: Value, canonical: CanonicalObject) -> Result<Self, String> {
        let envelope = Envelope::deserialize(&value).map_err(|err| err.to_string())?;
        let fan_out = FanOut::of(&value)?;
        let cut = Cut::of(&value);
        Ok(Self { value, canonical, envelope, fan_out, cut })
    }

    /// The message without what a policy says must not be kept. Everything but the signature is made of
    /// that from then on.
    #[must_use]
    pub fn redacted(mut self, policy: &RedactionPolicy) -> Self {
        if policy.redact_message(&mut self.value)
            && let Some(canonical) = CanonicalObject::from_value(&self.value)
        {
            self.canonical = canonical;
            self.cut = Cut::of(&self.value);
        }
        self
    }

    /// The message as everyone may see it: values marked as personal are markers. Everything that is
    /// stored, or sent to a reader who is not entitled, comes from here.
    #[must_use]
    pub fn shown(&self) -> &Value {
        self.cut.as_ref().map_or(&self.value, |cut| &cut.value)
    }

    fn shown_canonical(&self) -> &CanonicalObject {
        self.cut.as_ref().map_or(&self.canonical, |cut| &cut.canonical)
    }

    /// The whole message as parsed, personal values and all: for the gate to judge.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }

    #[must_use]
    pub const fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The members as a receiver gets them: with personal values where it is entitled to those.
    #[must_use]
    pub fn for_receiver(&self, entitled: bool) -> &CanonicalObject {
        if entitled { &self.canonical } else { self.shown_canonical() }
    }

    /// The receivers of a message to many.
    #[must_use]
    pub const fn fan_out(&self) -> Option<&FanOut> {
        self.fan_out.as_ref()
    }

    /// Canonical form of everything, for telling a replay from a conflict. Ids are the same in capitals.
    #[must_use]
    pub fn whole(&self) -> Vec<u8> {
        let capital = |pointer: &&&str| {
            let id = self.value.pointer(pointer).and_then(Value::as_str);
            id.is_some_and(|id| id.bytes().any(|byte| byte.is_ascii_uppercase()))
        };
        if IDS.iter().all(|pointer| !capital(&pointer)) {
            return self.canonical.all();
        }
        let mut value = self.value.clone();
        for pointer in IDS.iter().filter(capital) {
            if let Some(Value::String(id)) = value.pointer_mut(pointer) {
                id.make_ascii_lowercase();
            }
        }
        super::canonical::to_vec(&value)
    }

    /// Canonical form of the content that is stored beside the log and delivered.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.shown_canonical().without(&APART)
    }

    /// Canonical form of the sender's own checkpoint, if it sent one.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Vec<u8>> {
        self.shown_canonical().member("checkpoint").map(<[u8]>::to_vec)
    }

    /// Length of the sender's own checkpoint in canonical form, in bytes; 0 without one.
    #[must_use]
    pub fn checkpoint_size(&self) -> usize {
        self.shown_canonical().member("checkpoint").map_or(0, <[u8]>::len)
    }

    /// The sender's state as far as the message tells it: what a rollback restores for a sender that
    /// keeps no checkpoint.
    #[must_use]
    pub fn implied_checkpoint(&self) -> Vec<u8> {
        let state = STATE_MEMBERS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.shown().get(*name)?.clone())))
            .collect::<serde_json::Map<_, _>>();
        super::canonical::to_vec(&Value::Object(state))
    }

    /// Personal data: what is said of each subject, then the values that were marked in the message.
    #[must_use]
    pub fn personal_data(&self) -> Vec<PersonalDatum> {
        let said = subjects(&self.value).map(|(subject_id, entry)| PersonalDatum {
            subject_id: subject_id.to_owned(),
            canonical: super::canonical::to_vec(entry),
        });
        let marked = self.cut.iter().flat_map(|cut| cut.data.iter().cloned());
        said.chain(marked).collect()
    }
}
