//! Events: facts that the broker sends to subscribers (specification §7).
//!
//! An event is made where the change is decided, belongs to one record of the log, and is committed
//! with it. It holds ids, codes and figures and nothing that a person or an agent wrote: words are
//! read from the kept content when the event is told, so that an erasure reaches them.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::a2a::TaskState;
use super::agent::nullable;
use super::handoff::Handoff;
use super::ids::{AgentId, HandoffId, IdError, Micros, SubscriptionId, TaskId, TenantId};
use super::residency::{Region, is_basis};
use super::task::Task;

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// The kinds of events. The names are part of the interface and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventType {
            $($(#[$doc])* $name),+
        }

        impl EventType {
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name on the wire and in the store.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }
        }
    };
}

event_types! {
    /// A handoff was committed (seed 003's `agent.handoff.occurred`).
    HandoffOccurred = "agent.handoff.occurred",
    HandoffAccepted = "handoff.accepted",
    HandoffRejected = "handoff.rejected",
    /// A message was refused: no handoff came of it.
    HandoffRefused = "handoff.refused",
    /// The receiver completed its part.
    HandoffCompleted = "handoff.completed",
    /// The receiver completed its part, and the task went back to the agent that asked for its return.
    HandoffReturned = "handoff.returned",
    /// The receiver asks its sender something and waits.
    HandoffInputRequired = "handoff.input_required",
    /// The receiver's question was answered.
    HandoffInputProvided = "handoff.input_provided",
    /// A handoff to many was decided, or withdrawn with its task.
    HandoffGroupEnded = "handoff.group_ended",
    /// The task went back to its sender's checkpoint.
    HandoffRolledBack = "handoff.rolled_back",
    /// The handoff is kept for a person.
    HandoffDeadLettered = "handoff.dead_lettered",
    /// A person is asked to act.
    HandoffEscalated = "handoff.escalated",
    /// The receiver failed, or delivery was given up.
    HandoffFailed = "handoff.failed",
    /// A deadline passed.
    HandoffExpired = "handoff.expired",
    /// The handoff was withdrawn.
    HandoffCanceled = "handoff.canceled",
    /// The stream of a handoff was closed: its message is whole.
    HandoffStreamClosed = "handoff.stream_closed",
    /// The stream of a handoff ended without a whole message: the receiver stops.
    HandoffStreamAborted = "handoff.stream_aborted",
    /// An endpoint is no longer called.
    EndpointDisabled = "agent.endpoint_disabled",
    /// An endpoint is on its way to being disabled.
    EndpointFailing = "agent.endpoint_failing",
    /// A task is done.
    TaskCompleted = "task.completed",
    /// A task was withdrawn.
    TaskCanceled = "task.canceled",
    /// A task's budget was changed by a person.
    TaskBudgetChanged = "task.budget_changed",
    /// Something that an operator should look at.
    AlertRaised = "alert.raised",
}

/// The alerts of `alert.raised`. The names are part of the interface and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alert {
    /// A task went back to its sender's checkpoint.
    HandoffRolledBack,
    /// A person is asked to act.
    HandoffEscalated,
    /// A subscription is disabled after repeated failures.
    SubscriptionDisabled,
    /// An external classifier calls a committed message unsafe.
    SecondOpinionUnsafe,
}

impl Alert {
    /// The name in the event's `alert`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HandoffRolledBack => "HANDOFF_ROLLED_BACK",
            Self::HandoffEscalated => "HANDOFF_ESCALATED",
            Self::SubscriptionDisabled => "SUBSCRIPTION_DISABLED",
            Self::SecondOpinionUnsafe => "SECOND_OPINION_UNSAFE",
        }
    }
}

impl EventType {
    /// The sender of the handoff is told at its `callbackUrl`.
    #[must_use]
    pub const fn is_for_sender(self) -> bool {
        matches!(
            self,
            Self::HandoffAccepted
                | Self::HandoffRejected
                | Self::HandoffCompleted
                | Self::HandoffReturned
                | Self::HandoffInputRequired
                | Self::HandoffGroupEnded
                | Self::HandoffRolledBack
                | Self::HandoffDeadLettered
                | Self::HandoffEscalated
                | Self::HandoffFailed
                | Self::HandoffExpired
                | Self::HandoffCanceled
        )
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("'{text}' is not an event type"))
    }
}

impl Serialize for EventType {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The member of an event's data that has the handoff's trace context, a W3C `traceparent`.
pub const TRACEPARENT: &str = "traceparent";

/// The position of an event in its tenant's feed: the leaf index of its record, and its number
/// among that record's events. Records get their index under the lock of the log's head, which is
/// held until the commit. So a reader that sees a position has seen, or can see, every lower one,
/// and a cursor never skips a late commit. The feed needs no counter of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub leaf_index: i64,
    /// Among the record's events, from 0.
    pub ordinal: i32,
}

impl Position {
    /// Before every event.
    pub const START: Self = Self { leaf_index: -1, ordinal: 0 };

    /// Behind every event of a record.
    #[must_use]
    pub const fn behind(leaf_index: i64) -> Self {
        Self { leaf_index, ordinal: i32::MAX }
    }
}

/// A cursor: 16 characters that say nothing to their reader, in base64url.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.leaf_index.wrapping_add(1).to_be_bytes());
        bytes[8..].copy_from_slice(&self.ordinal.to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Position {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let opaque = || {
            let bytes: [u8; 12] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
            let (leaf, ordinal) = bytes.split_first_chunk::<8>()?;
            let leaf_index = i64::from_be_bytes(*leaf).checked_sub(1)?;
            Some(Self { leaf_index, ordinal: i32::from_be_bytes(*ordinal.first_chunk()?) })
        };
        // As versions up to 0.3.0 wrote it: subscribers may hold such a one.
        let former = || {
            let (leaf, ordinal) = text.split_once('.')?;
            Some(Self { leaf_index: leaf.parse().ok()?, ordinal: ordinal.parse().ok()? })
        };
        opaque()
            .or_else(former)
            .filter(|at| at.leaf_index >= -1 && at.ordinal >= 0)
            .ok_or_else(|| format!("'{text}' is not a cursor of the event feed"))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: EventType,
    pub tenant: TenantId,
    pub at: Micros,
    /// On which task; the task of its record, where it has one.
    pub task_id: Option<TaskId>,
    pub handoff_id: Option<HandoffId>,
    /// The handoff's sender, or the agent that it is about.
    pub source: Option<AgentId>,
    pub target: Option<AgentId>,
    /// The agent that is told at its `callbackUrl`.
    pub audience: Option<AgentId>,
    /// Further members: ids, codes and figures only.
    pub data: Map<String, Value>,
}

impl Event {
    /// An event about nothing but its tenant.
    #[must_use]
    pub fn new(kind: EventType, tenant: TenantId, at: Micros) -> Self {
        Self {
            kind,
            tenant,
            at,
            task_id: None,
            handoff_id: None,
            source: None,
            target: None,
            audience: None,
            data: Map::new(),
        }
    }

    /// An event of a handoff, with its status and its trace context; addressed to the sender where the type is for it.
    #[must_use]
    pub fn of_handoff(kind: EventType, handoff: &Handoff, at: Micros) -> Self {
        let mut event = Self::new(kind, handoff.tenant.clone(), at);
        event.task_id = Some(handoff.task_id);
        event.handoff_id = Some(handoff.id);
        event.source = Some(handoff.source.clone());
        event.target = Some(handoff.target.clone());
        event.audience = kind.is_for_sender().then(|| handoff.source.clone());
        if !handoff.traceparent.is_empty() {
            event = event.with(TRACEPARENT, handoff.traceparent.as_str());
        }
        if let Some(name) = handoff.audit_event() {
            event = event.with("auditEvent", name);
        }
        event.with("status", handoff.status.as_str())
    }

    /// An event of a task, with its status.
    #[must_use]
    pub fn of_task(kind: EventType, task: &Task, at: Micros) -> Self {
        let mut event = Self::new(kind, task.tenant.clone(), at);
        event.task_id = Some(task.id);
        event.with("status", task.status.as_str())
    }

    /// An event of an agent, addressed to it.
    #[must_use]
    pub fn of_agent(kind: EventType, tenant: TenantId, agent: &AgentId, at: Micros) -> Self {
        let mut event = Self::new(kind, tenant, at);
        event.source = Some(agent.clone());
        event.audience = Some(agent.clone());
        event
    }

    /// Says one thing more: an id, a code or a figure.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// That agent sends, receives, or is told.
    #[must_use]
    pub fn concerns(&self, agent: &AgentId) -> bool {
        [&self.source, &self.target, &self.audience].into_iter().flatten().any(|one| one == agent)
    }

    /// The event's id: a UUID of version 7 whose random part comes from the hash of its record, so
    /// that it is unique, sorts by time, and needs no randomness of its own.
    #[must_use]
    pub fn id(at: Micros, record_hash: &[u8; 32], ordinal: i32) -> Uuid {
        let mut random = [0; 10];
        random.copy_from_slice(&record_hash[..10]);
        for (byte, of_ordinal) in random[6..].iter_mut().zip(ordinal.to_be_bytes()) {
            *byte ^= of_ordinal;
        }
        let millis = u64::try_from(at.0 / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

/// A receiver of events.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subscriber {
    Subscription(SubscriptionId),
    /// An agent, at its `callbackUrl`.
    Agent(AgentId),
}

impl fmt::Display for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subscription(id) => write!(f, "subscription/{id}"),
            Self::Agent(id) => write!(f, "agent/{id}"),
        }
    }
}

impl FromStr for Subscriber {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.split_once('/') {
            Some(("agent", id)) => id.parse().map(Self::Agent),
            Some((_, id)) => id.parse().map(Self::Subscription),
            None => text.parse().map(Self::Subscription),
        }
    }
}

/// How an event is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EventFormat {
    /// `{id, type, timestamp, cursor, data}`, as Standard Webhooks recommends.
    #[default]
    Standard,
    /// `CloudEvents` 1.0, structured mode.
    CloudEvents,
    /// `StreamResponse` of A2A 1.0, for the events that change a handoff's state; others are not published.
    A2a,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EventFilter {
    /// Of these types; empty: of all.
    pub types: Vec<EventType>,
    /// That this agent has a part in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Of this handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<HandoffId>,
}

impl EventFilter {
    /// This event is one of them.
    #[must_use]
    pub fn takes(&self, event: &Event) -> bool {
        (self.types.is_empty() || self.types.contains(&event.kind))
            && self.agent_id.as_ref().is_none_or(|agent| event.concerns(agent))
            && self.task_id.is_none_or(|task| event.task_id == Some(task))
            && self.handoff_id.is_none_or(|handoff| event.handoff_id == Some(handoff))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// URL to which events are posted; http or https.
    pub url: String,
    /// For people.
    pub description: String,
    pub filter: EventFilter,
    /// How they are written.
    pub format: EventFormat,
    /// Delivered at all.
    pub enabled: bool,
    /// Why the broker switched it off: a code; cleared by switching it on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disabled_reason: Option<String>,
    /// The agent whose subscription it is; none: the operators'.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<AgentId>,
    /// The region of the endpoint; none: the broker's region.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub region: Option<Region>,
    /// The legal basis of the transfer of events to its region: a code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transfer_basis: Option<String>,
}

/// The agent, task or handoff that a subscription is limited to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scope {
    /// That this agent has a part in.
    pub agent_id: Option<AgentId>,
    pub task_id: Option<TaskId>,
    /// Of this handoff.
    pub handoff_id: Option<HandoffId>,
}

impl TaskState {
    /// The state to which an event brings a handoff; `None` for an event that changes none.
    #[must_use]
    pub const fn after(event: EventType) -> Option<Self> {
        match event {
            EventType::HandoffOccurred => Some(Self::Submitted),
            EventType::HandoffAccepted | EventType::HandoffInputProvided => Some(Self::Working),
            EventType::HandoffInputRequired => Some(Self::InputRequired),
            EventType::HandoffCompleted | EventType::HandoffReturned => Some(Self::Completed),
            EventType::HandoffRejected => Some(Self::Rejected),
            EventType::HandoffCanceled => Some(Self::Canceled),
            EventType::HandoffFailed
            | EventType::HandoffExpired
            | EventType::HandoffDeadLettered => Some(Self::Failed),
            _ => None,
        }
    }

    /// The types of events that change a state.
    #[must_use]
    pub fn events() -> Vec<EventType> {
        EventType::ALL.iter().copied().filter(|kind| Self::after(*kind).is_some()).collect()
    }
}

/// A caller's description of a subscription, on creation and in a patch: an absent member is left
/// alone, `eventTypes: []` means all types and `filter: {}` no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SubscriptionSpec {
    pub url: Option<String>,
    pub description: Option<String>,
    pub event_types: Option<Vec<EventType>>,
    pub filter: Option<Scope>,
    pub format: Option<EventFormat>,
    pub enabled: Option<bool>,
    /// Region of the endpoint; null clears it.
    #[serde(deserialize_with = "nullable")]
    pub region: Option<Option<Region>>,
    /// The legal basis of the transfer, a code; null clears it.
    #[serde(deserialize_with = "nullable")]
    pub transfer_basis: Option<Option<String>>,
}

impl SubscriptionSpec {
    /// A new subscription.
    ///
    /// # Errors
    /// Pointer and sentence of the part that does not fit.
    pub fn make(&self) -> Result<Subscription, (String, String)> {
        let Some(url) = &self.url else {
            return Err(("/url".to_owned(), "a subscription needs a url".to_owned()));
        };
        self.apply(&Subscription {
            url: url.clone(),
            description: String::new(),
            filter: EventFilter::default(),
            format: EventFormat::default(),
            enabled: true,
            disabled_reason: None,
            owner: None,
            region: None,
            transfer_basis: None,
        })
    }

    /// A subscription as it will be.
    ///
    /// # Errors
    /// Pointer and sentence of the part that does not fit.
    pub fn apply(&self, to: &Subscription) -> Result<Subscription, (String, String)> {
        let mut next = to.clone();
        if let Some(url) = &self.url {
            super::agent::check_url("/url", url)?;
            next.url.clone_from(url);
        }
        if let Some(region) = self.region {
            next.region = region;
        }
        if let Some(basis) = &self.transfer_basis {
            if basis.as_ref().is_some_and(|basis| !is_basis(basis)) {
                return Err(("/transferBasis".to_owned(), super::agent::BASIS.to_owned()));
            }
            next.transfer_basis.clone_from(basis);
        }
        if let Some(text) = &self.description {
            if text.chars().count() > 200 || text.contains('\0') {
                let rule = "must be 200 characters at most, without NUL";
                return Err(("/description".to_owned(), rule.to_owned()));
            }
            next.description.clone_from(text);
        }
        if let Some(types) = &self.event_types {
            next.filter.types.clone_from(types);
            next.filter.types.sort_unstable();
            next.filter.types.dedup();
        }
        if let Some(scope) = &self.filter {
            next.filter.agent_id.clone_from(&scope.agent_id);
            next.filter.task_id = scope.task_id;
            next.filter.handoff_id = scope.handoff_id;
        }
        next.format = self.format.unwrap_or(next.format);
        if next.format == EventFormat::A2a {
            let states = TaskState::events();
            if next.filter.types.is_empty() {
                next.filter.types.clone_from(&states);
            } else if next.filter.types.iter().any(|kind| !states.contains(kind)) {
                let why = "the format a2a has a form for events that change a handoff's state, and for no others";
                return Err(("/eventTypes".to_owned(), why.to_owned()));
            }
        }
        if let Some(enabled) = self.enabled {
            next.enabled = enabled;
            next.disabled_reason = None;
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
