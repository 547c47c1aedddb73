//! Agents: who may send, who can receive (specification §4.1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::ids::AgentId;
use super::policy::Orders;
use super::residency::Region;
use super::version_range::VersionRange;
use super::window::{ContextPolicy, Tokenizer};

mod card;
mod delivery;
mod rules;
mod spec;
#[cfg(test)]
mod tests;

pub use card::Card;
pub(super) use delivery::check_url;
pub use delivery::{Delivery, DeliveryFormat, DeliverySpec, Failing};
pub(super) use spec::BASIS;
pub use spec::{AgentSpec, OrbitConfig};

/// Tells an explicit `null` (clear it) from an absent member (leave it alone).
pub(super) fn nullable<'de, D, T>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(from).map(Some)
}

/// Whether an agent takes work now (seed 001: RUNNABLE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AgentState {
    /// Takes handoffs.
    Runnable,
    /// Full for now: not routed to.
    Busy,
    /// Switched off by its people: not routed to.
    Paused,
}

/// The action on a handoff that names a paused agent by its id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Pause {
    /// It is taken, and waits until the agent runs again; none of its deadlines runs meanwhile.
    #[default]
    Hold,
    /// It is refused with `Retry-After`, and does not count as a failure.
    Refuse,
}

/// One entry of an allowlist: an agent, or every agent of a type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Agent(AgentId),
    /// `type:<agentType>`.
    Type(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(id) => id.fmt(f),
            Self::Type(name) => write!(f, "type:{name}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("type:") {
            Some(name) if is_type_name(name) => Ok(Self::Type(name.to_owned())),
            Some(_) => Err(format!("'{text}' names no agent type")),
            None => text.parse().map(Self::Agent).map_err(|err| err.to_string()),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The permission that entitles a receiver to `personalDataPayload`.
pub const PERSONAL_DATA_PERMISSION: &str = "personal-data:read";

/// An agent as registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its id, unique within the tenant.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_id: AgentId,
    /// The kind of agent; handoffs are usually addressed to a type.
    pub agent_type: String,
    /// Version of the agent, semver.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_version: semver::Version,
    /// Name for people; the id unless set.
    pub name: String,
    /// For people and for matching.
    pub description: String,
    /// The field in which it is best (seed 004).
    pub specialization: Option<String>,
    /// Its abilities; a handoff may require some.
    pub capabilities: Vec<String>,
    /// Fields of knowledge that it covers.
    pub domains: Vec<String>,
    /// Sample tasks, for matching.
    pub examples: Vec<String>,
    /// Its permissions.
    pub permissions: Vec<String>,
    /// Takes handoffs at all.
    pub accepts_handoffs: bool,
    /// Whether it takes handoffs at the moment.
    pub state: AgentState,
    /// The action on a handoff that names it by its id while it is `PAUSED`.
    #[serde(default)]
    pub pause: Pause,
    /// Size of its context window, in tokens.
    pub context_window_tokens: Option<u64>,
    /// By which tokenizer its model counts; absent: an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// The action on a message over the limit; absent: the broker's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_policy: Option<ContextPolicy>,
    /// Dotted paths that `currentState` must hold for it.
    pub required_state: Vec<String>,
    /// Versions of the message schema that it takes; absent: all that the broker does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_versions: Option<VersionRange>,
    /// Who gets its failures.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub supervisor_id: Option<AgentId>,
    /// Refuse its messages without a signature.
    pub require_signature: bool,
    /// Refuse its handoffs without a checkpoint of its own.
    pub require_checkpoint: bool,
    /// The action on orders inside data that is handed to it; absent: the broker's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<Orders>,
    /// The agents to which it may hand off, by id or `type:<agentType>`; empty: none.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub handoff_targets: Vec<Target>,
    /// How and where it receives its handoffs.
    pub delivery: Delivery,
    /// URL to which its events are posted. Not shown to other agents.
    pub callback_url: Option<String>,
    /// The region of the endpoint; none: the broker's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub region: Option<Region>,
    /// The legal basis of transfers of data to and from its region: a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_basis: Option<String>,
    /// Its card for other protocols; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// Free data of its owner. Not shown to other agents.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Map<String, Value>,
}

impl Agent {
    /// A new agent with every default.
    #[must_use]
    pub fn new(agent_id: AgentId) -> Self {
        Self {
            agent_type: agent_id.as_str().to_owned(),
            name: agent_id.as_str().to_owned(),
            agent_id,
            agent_version: semver::Version::new(1, 0, 0),
            description: String::new(),
            specialization: None,
            capabilities: Vec::new(),
            domains: Vec::new(),
            examples: Vec::new(),
            permissions: Vec::new(),
            accepts_handoffs: true,
            state: AgentState::Runnable,
            pause: Pause::default(),
            context_window_tokens: None,
            tokenizer: None,
            context_policy: None,
            required_state: Vec::new(),
            schema_versions: None,
            supervisor_id: None,
            require_signature: false,
            require_checkpoint: false,
            orders: None,
            handoff_targets: Vec::new(),
            delivery: Delivery::default(),
            callback_url: None,
            region: None,
            transfer_basis: None,
            card: None,
            metadata: Map::new(),
        }
    }

    /// Can be routed to right now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.accepts_handoffs && self.state == AgentState::Runnable && !self.delivery.disabled
    }

    /// Has a capability: it lists the name, or is specialized in it (seed 004).
    #[must_use]
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|one| one == capability)
            || self.specialization.as_deref() == Some(capability)
    }

    /// May see personal data.
    #[must_use]
    pub fn is_entitled(&self) -> bool {
        self.permissions.iter().any(|name| name == PERSONAL_DATA_PERMISSION)
    }

    /// This allowlist names that agent, by id or by type.
    #[must_use]
    pub fn may_hand_off_to(&self, other: &Self) -> bool {
        self.handoff_targets.iter().any(|target| match target {
            Target::Agent(id) => *id == other.agent_id,
            Target::Type(name) => *name == other.agent_type,
        })
    }
}

/// A type's name: letters, digits, `.`, `_`, `-`; up to 128.
#[must_use]
pub fn is_type_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@-".contains(&b))
}
