//! Agents: who may send, who can receive (specification §4.1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::content_coding::Coding;
use super::handoff::DeliveryMode;
use super::ids::AgentId;
use super::message::SCHEMA_VERSIONS;
use super::policy::Orders;
use super::residency::{Region, is_basis};
use super::transport::Credentials;
use super::version_range::VersionRange;
use super::window::{ContextPolicy, Tokenizer};

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

/// Where and how an agent takes its handoffs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delivery {
    /// The transport: `webhook`, `pull`, or another of `GET /transports`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: DeliveryMode,
    /// The webhook's URL; http or https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How long one attempt may take, in milliseconds (100 to 120 000).
    #[serde(default = "default_timeout_ms", alias = "timeout_ms")]
    #[cfg_attr(feature = "openapi", schema(default = 10_000))]
    pub timeout_ms: u64,
    /// How many handoffs may be on their way to it at once (1 to 1 000).
    #[serde(default = "default_max_in_flight", alias = "max_in_flight")]
    pub max_in_flight: u32,
    /// The form in which handoffs are sent; `handoff` unless said.
    #[serde(default, skip_serializing_if = "DeliveryFormat::is_handoff")]
    pub format: DeliveryFormat,
    /// Content codings that the endpoint takes, the preferred one first; large bodies go to it so.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "accept_encoding")]
    pub accept_encoding: Vec<Coding>,
    /// The transport's own settings; `GET /transports` describes them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub config: Map<String, Value>,
    /// The transport's secrets: sealed on arrival, and never shown. Absent in a change: those of the same mode are kept.
    #[serde(default, skip_serializing)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, write_only))]
    pub credentials: Option<Credentials>,
    /// Names of the sealed credentials. The broker sets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "credentials_set")]
    pub credentials_set: Vec<String>,
    /// Set when the endpoint answered 410, or failed too often in a row; cleared by setting a delivery
    /// anew.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// Set while the endpoint is on its way to being disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
}

/// The form in which a receiver gets its handoffs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryFormat {
    /// The handoff message.
    #[default]
    Handoff,
    /// SW4RM's `HandoffRequest` (docs/doors/sw4rm.md).
    Sw4rm,
}

impl DeliveryFormat {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    const fn is_handoff(&self) -> bool {
        matches!(self, Self::Handoff)
    }
}

/// How far an endpoint is on its way to being disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failing {
    /// Failures in a row that counted.
    pub failures: u32,
    /// The last step told to operators: 50, 70, 90 or 100.
    pub percent: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

const fn default_timeout_ms() -> u64 {
    10_000
}

const fn default_max_in_flight() -> u32 {
    16
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            mode: DeliveryMode::Pull,
            url: None,
            timeout_ms: default_timeout_ms(),
            max_in_flight: default_max_in_flight(),
            format: DeliveryFormat::default(),
            accept_encoding: Vec::new(),
            config: Map::new(),
            credentials: None,
            credentials_set: Vec::new(),
            disabled: false,
            failing: None,
        }
    }
}

impl Delivery {
    /// Identifies the destination: a disabled or failing endpoint is meant only while this is unchanged.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.url {
            Some(url) => url.clone(),
            None => format!("{} {}", self.mode.as_str(), Value::Object(self.config.clone())),
        }
    }
}

/// What an agent's public description says of it to other protocols (docs/doors/a2a.md); an agent without one has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Card {
    /// Shown without a key too, where the settings name the agent's tenant.
    pub public: bool,
    /// Media types of parts that the agent reads; a range such as `image/*` is one.
    #[serde(alias = "input_modes")]
    pub input_modes: Vec<String>,
    /// Media types of what the agent makes.
    #[serde(alias = "output_modes")]
    pub output_modes: Vec<String>,
}

impl Default for Card {
    fn default() -> Self {
        let modes = || ["text/plain", "application/json"].map(str::to_owned).to_vec();
        Self { public: false, input_modes: modes(), output_modes: modes() }
    }
}

impl Card {
    /// Whether the agent reads parts of this media type; parameters do not count.
    #[must_use]
    pub fn reads(&self, media_type: &str) -> bool {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.input_modes.iter().any(|mode| match mode.strip_suffix('*') {
            Some("*/") => true,
            Some(range) => essence.starts_with(&range.to_ascii_lowercase()),
            None => essence == mode.to_ascii_lowercase(),
        })
    }
}

/// Whether a text is a media type without parameters, or a range of them.
fn is_media_range(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    text.len() <= 255
        && text
            .split_once('/')
            .is_some_and(|(kind, sub)| (token(kind) && (token(sub) || sub == "*")) || text == "*/*")
}

/// Most media types of one list of a card.
const MAX_MODES: usize = 100;

fn check_card(card: &Card) -> Result<(), (String, String)> {
    for (pointer, modes) in
        [("/card/inputModes", &card.input_modes), ("/card/outputModes", &card.output_modes)]
    {
        if modes.is_empty()
            || modes.len() > MAX_MODES
            || !modes.iter().all(|mode| is_media_range(mode))
        {
            let why =
                format!("must be 1 to {MAX_MODES} media types, such as text/plain or image/*");
            return Err((pointer.to_owned(), why));
        }
    }
    Ok(())
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
    /// What kind it is; handoffs are usually addressed to a type.
    pub agent_type: String,
    /// Version of the agent, semver.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_version: semver::Version,
    /// Name for people; the id unless set.
    pub name: String,
    /// For people and for matching.
    pub description: String,
    /// What it is best at (seed 004).
    pub specialization: Option<String>,
    /// What it can do; a handoff may require some.
    pub capabilities: Vec<String>,
    /// Fields of knowledge that it covers.
    pub domains: Vec<String>,
    /// Sample tasks, for matching.
    pub examples: Vec<String>,
    /// What it may see and do.
    pub permissions: Vec<String>,
    /// Takes handoffs at all.
    pub accepts_handoffs: bool,
    /// Whether it takes handoffs at the moment.
    pub state: AgentState,
    /// Size of its context window, in tokens.
    pub context_window_tokens: Option<u64>,
    /// By which tokenizer its model counts; absent: an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// What becomes of a message over the limit; absent: the broker's setting.
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
    /// What becomes of orders inside data that is handed to it; absent: the broker's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<Orders>,
    /// Whom it may hand off to, by id or `type:<agentType>`; empty: nobody.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub handoff_targets: Vec<Target>,
    /// How and where it receives its handoffs.
    pub delivery: Delivery,
    /// Where its events go. Not shown to other agents.
    pub callback_url: Option<String>,
    /// Where it is; none: in the broker's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub region: Option<Region>,
    /// What transfers of data to and from its region stand on: a code.
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

/// Tells an explicit `null` (clear it) from an absent member (leave it alone).
fn nullable<'de, D, T>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(from).map(Some)
}

/// Orbit's place for an agent's allowlist (seed 003).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OrbitConfig {
    /// Whom it may hand off to, as `handoffTargets`.
    #[serde(default, alias = "handoffTargets")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub handoff_targets: Option<Vec<Target>>,
}

/// What a caller says of an agent, on creation and in a patch: an absent member leaves alone, a
/// list replaces, `[]` clears (seed 003). Spellings in `snake_case` are understood.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentSpec {
    /// Its id; made by the broker when absent on creation, refused in a patch.
    #[serde(alias = "agent_id")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub agent_id: Option<AgentId>,
    /// What kind it is; handoffs are usually addressed to a type.
    #[serde(alias = "agent_type")]
    pub agent_type: Option<String>,
    /// Version of the agent, semver.
    #[serde(alias = "agent_version")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub agent_version: Option<semver::Version>,
    /// Name for people; the id unless set.
    pub name: Option<String>,
    /// For people and for matching.
    pub description: Option<String>,
    /// What it is best at (seed 004). Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub specialization: Option<Option<String>>,
    /// What it can do; a handoff may require some.
    pub capabilities: Option<Vec<String>>,
    /// Fields of knowledge that it covers.
    pub domains: Option<Vec<String>>,
    /// Sample tasks, for matching.
    pub examples: Option<Vec<String>>,
    /// What it may see and do.
    pub permissions: Option<Vec<String>>,
    /// Takes handoffs at all.
    #[serde(alias = "accepts_handoffs")]
    pub accepts_handoffs: Option<bool>,
    /// Whether it takes handoffs at the moment.
    pub state: Option<AgentState>,
    /// Size of its context window, in tokens. Null clears it.
    #[serde(alias = "context_window_tokens", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub context_window_tokens: Option<Option<u64>>,
    /// By which tokenizer its model counts; absent: an estimate. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Tokenizer>))]
    pub tokenizer: Option<Option<Tokenizer>>,
    /// What becomes of a message over the limit; absent: the broker's setting. Null clears it.
    #[serde(alias = "context_policy", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<ContextPolicy>))]
    pub context_policy: Option<Option<ContextPolicy>>,
    /// Dotted paths that `currentState` must hold for it.
    #[serde(alias = "required_state")]
    pub required_state: Option<Vec<String>>,
    /// Versions of the message schema that it takes; absent: all that the broker does. Null clears it.
    #[serde(alias = "schema_versions", deserialize_with = "nullable")]
    pub schema_versions: Option<Option<VersionRange>>,
    /// Who gets its failures. Null clears it.
    #[serde(alias = "supervisor_id", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub supervisor_id: Option<Option<AgentId>>,
    /// Refuse its messages without a signature.
    #[serde(alias = "require_signature")]
    pub require_signature: Option<bool>,
    /// Refuse its handoffs without a checkpoint of its own.
    #[serde(alias = "require_checkpoint")]
    pub require_checkpoint: Option<bool>,
    /// What becomes of orders inside data that is handed to it; absent: the broker's setting. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Orders>))]
    pub orders: Option<Option<Orders>>,
    /// Whom it may hand off to, by id or `type:<agentType>`; empty: nobody.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub handoff_targets: Option<Vec<Target>>,
    /// The same in Orbit's spelling.
    #[serde(rename = "handoff_targets")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub orbit_targets: Option<Vec<Target>>,
    /// The same where Orbit keeps it.
    pub config: Option<OrbitConfig>,
    /// How and where it receives its handoffs.
    pub delivery: Option<Delivery>,
    /// Where its events go. Not shown to other agents. Null clears it.
    #[serde(alias = "callback_url", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub callback_url: Option<Option<String>>,
    /// Where it is; none: in the broker's region. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub region: Option<Option<Region>>,
    /// What transfers of data to and from its region stand on: a code. Null clears it.
    #[serde(alias = "transfer_basis", deserialize_with = "nullable")]
    pub transfer_basis: Option<Option<String>>,
    /// What the A2A door publishes of the agent. Null takes it back.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Card>))]
    pub card: Option<Option<Card>>,
    /// Free data of its owner. Not shown to other agents.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Map<String, Value>>,
    /// Orbit's field; kept in `metadata`.
    pub model: Option<String>,
    /// Orbit's field; kept in `metadata`.
    pub instructions: Option<String>,
}

/// What a transfer basis may be.
pub(super) const BASIS: &str =
    "must be a code such as ADEQUACY or SCC_2021: A-Z, 0-9 and _, 2 to 64";

/// Bounds of one agent's lists, so that a roster stays loadable.
const MAX_LIST: usize = 10_000;
const MAX_TEXT: usize = 16_384;
/// The largest agent, as JSON.
const MAX_AGENT: usize = 512 * 1024;

impl AgentSpec {
    /// The allowlist, in whichever of its spellings it is said.
    ///
    /// # Errors
    /// Where two spellings say different things.
    fn targets(&self) -> Result<Option<&Vec<Target>>, (String, String)> {
        let in_config = self.config.as_ref().and_then(|config| config.handoff_targets.as_ref());
        let mut said: Option<&Vec<Target>> = self.handoff_targets.as_ref();
        for (pointer, other) in [
            ("/handoff_targets", self.orbit_targets.as_ref()),
            ("/config/handoff_targets", in_config),
        ] {
            match (said, other) {
                (Some(one), Some(other)) if one != other => {
                    let why = "differs from the other spelling of handoffTargets in this body";
                    return Err((pointer.to_owned(), why.to_owned()));
                }
                (None, Some(_)) => said = other,
                _ => {}
            }
        }
        Ok(said)
    }

    /// Applies what is said to an agent.
    ///
    /// # Errors
    /// A sentence and the JSON pointer of what is wrong; the agent is then unchanged.
    pub fn apply(&self, agent: &Agent) -> Result<Agent, (String, String)> {
        let mut next = agent.clone();
        let wrong = |pointer: &str, message: String| Err((pointer.to_owned(), message));
        if let Some(name) = &self.agent_type {
            if !is_type_name(name) {
                return wrong(
                    "/agentType",
                    "must be 1 to 128 letters, digits or any of . _ : @ -".to_owned(),
                );
            }
            next.agent_type.clone_from(name);
        }
        macro_rules! take {
            ($($field:ident),*) => { $( if let Some(value) = &self.$field { next.$field = value.clone(); } )* };
        }
        take!(
            agent_version,
            name,
            description,
            specialization,
            capabilities,
            domains,
            examples,
            permissions,
            accepts_handoffs,
            state,
            context_window_tokens,
            tokenizer,
            context_policy,
            required_state,
            schema_versions,
            supervisor_id,
            require_signature,
            require_checkpoint,
            orders,
            callback_url,
            region,
            transfer_basis,
            card,
            metadata
        );
        if let Some(targets) = self.targets()? {
            next.handoff_targets.clone_from(targets);
        }
        for (key, value) in [("model", &self.model), ("instructions", &self.instructions)] {
            if let Some(value) = value {
                next.metadata.insert(key.to_owned(), value.clone().into());
            }
        }
        if let Some(delivery) = &self.delivery {
            next.delivery =
                Delivery { disabled: false, failing: None, credentials: None, ..delivery.clone() };
            check_delivery(&next.delivery)?;
        }
        if let Some(url) = &next.callback_url {
            check_url("/callbackUrl", url)?;
        }
        if next.transfer_basis.as_ref().is_some_and(|basis| !is_basis(basis)) {
            return wrong("/transferBasis", BASIS.to_owned());
        }
        if let Some(card) = &next.card {
            check_card(card)?;
        }
        let mut seen = std::collections::BTreeSet::new();
        next.handoff_targets.retain(|target| seen.insert(target.clone()));
        for (pointer, list) in [
            ("/capabilities", &next.capabilities),
            ("/domains", &next.domains),
            ("/examples", &next.examples),
            ("/permissions", &next.permissions),
            ("/requiredState", &next.required_state),
        ] {
            if list.len() > MAX_LIST || list.iter().any(|entry| entry.len() > MAX_TEXT) {
                return wrong(pointer, format!("at most {MAX_LIST} entries of {MAX_TEXT} bytes"));
            }
        }
        let known = |range: &VersionRange| {
            let mut all =
                SCHEMA_VERSIONS.iter().filter_map(|minor| format!("{minor}.0").parse().ok());
            all.any(|version| range.matches(&version))
        };
        if next.schema_versions.as_ref().is_some_and(|range| !known(range)) {
            return wrong(
                "/schemaVersions",
                format!("must take one of the broker's versions: {}", SCHEMA_VERSIONS.join(", ")),
            );
        }
        if next.handoff_targets.len() > MAX_LIST {
            return wrong("/handoffTargets", format!("at most {MAX_LIST} entries"));
        }
        // The roster is read whole for routing, so no agent may be large.
        let size = serde_json::to_vec(&next).map_or(usize::MAX, |text| text.len());
        if size > MAX_AGENT {
            return wrong(
                "",
                format!("an agent may take {MAX_AGENT} bytes as JSON, this takes {size}"),
            );
        }
        Ok(next)
    }
}

fn check_delivery(delivery: &Delivery) -> Result<(), (String, String)> {
    if !(100..=120_000).contains(&delivery.timeout_ms) {
        return Err((
            "/delivery/timeoutMs".to_owned(),
            "must be between 100 and 120000 milliseconds".to_owned(),
        ));
    }
    if !(1..=1_000).contains(&delivery.max_in_flight) {
        return Err(("/delivery/maxInFlight".to_owned(), "must be between 1 and 1000".to_owned()));
    }
    let codings = &delivery.accept_encoding;
    if codings.iter().enumerate().any(|(place, coding)| codings[..place].contains(coding)) {
        return Err((
            "/delivery/acceptEncoding".to_owned(),
            "must name each coding once".to_owned(),
        ));
    }
    if !codings.is_empty() && !delivery.mode.carries_bytes() {
        let why = if delivery.mode == DeliveryMode::Pull {
            "is for what is sent; who pulls says it in the request's Accept-Encoding".to_owned()
        } else {
            format!("{} carries text alone", delivery.mode.as_str())
        };
        return Err(("/delivery/acceptEncoding".to_owned(), why));
    }
    if delivery.mode == DeliveryMode::A2a && delivery.format != DeliveryFormat::Handoff {
        let why = "an agent that is reached by A2A gets messages of that protocol";
        return Err(("/delivery/format".to_owned(), why.to_owned()));
    }
    match (&delivery.mode, &delivery.url) {
        (DeliveryMode::Webhook, None) => {
            Err(("/delivery/url".to_owned(), "a webhook needs a url".to_owned()))
        }
        (DeliveryMode::Webhook | DeliveryMode::Pull, Some(url)) => check_url("/delivery/url", url),
        (mode, Some(_)) => Err((
            "/delivery/url".to_owned(),
            format!("is for webhooks; the address for {} stands in delivery.config", mode.as_str()),
        )),
        (_, None) => Ok(()),
    }
}

/// A URL that may be registered.
pub(super) fn check_url(pointer: &str, text: &str) -> Result<(), (String, String)> {
    let wrong = |message: &str| Err((pointer.to_owned(), message.to_owned()));
    if text.len() > 2_048 {
        return wrong("must be at most 2048 bytes long");
    }
    match url::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => wrong("must be http or https"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("must not carry a user name or password")
        }
        Ok(_) => Ok(()),
        Err(_) => wrong("must be an absolute URL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        Agent::new("triage".parse().unwrap())
    }

    fn spec(json: &str) -> AgentSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_list_replaces_an_empty_list_clears_an_absent_one_leaves_alone() {
        let first = spec(r#"{"handoff_targets":["billing","type:returns","billing"]}"#)
            .apply(&agent())
            .unwrap();
        assert_eq!(
            first.handoff_targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["billing", "type:returns"]
        );
        let kept = spec(r#"{"description":"x"}"#).apply(&first).unwrap();
        assert_eq!(kept.handoff_targets, first.handoff_targets);
        let cleared = spec(r#"{"handoffTargets":[]}"#).apply(&kept).unwrap();
        assert!(cleared.handoff_targets.is_empty());
    }

    #[test]
    fn orbits_own_create_body_is_understood() {
        let made = spec(
            r#"{"name":"Triage Router","description":"d","model":"m","instructions":"i","handoff_targets":["agent_a"]}"#,
        )
        .apply(&agent())
        .unwrap();
        assert_eq!(made.name, "Triage Router");
        assert_eq!(made.metadata["model"], "m");
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_pointer() {
        for (json, pointer) in [
            (r#"{"delivery":{"mode":"webhook"}}"#, "/delivery/url"),
            (r#"{"delivery":{"mode":"a2a","format":"sw4rm"}}"#, "/delivery/format"),
            (r#"{"delivery":{"mode":"webhook","url":"ftp://x/"}}"#, "/delivery/url"),
            (r#"{"delivery":{"mode":"webhook","url":"http://u:p@x/"}}"#, "/delivery/url"),
            (r#"{"delivery":{"mode":"pull","timeoutMs":1}}"#, "/delivery/timeoutMs"),
            (r#"{"agentType":"a b"}"#, "/agentType"),
            (r#"{"callbackUrl":"not a url"}"#, "/callbackUrl"),
            (r#"{"card":{"inputModes":[]}}"#, "/card/inputModes"),
            (r#"{"card":{"outputModes":["text"]}}"#, "/card/outputModes"),
            (r#"{"card":{"outputModes":["*/plain"]}}"#, "/card/outputModes"),
        ] {
            assert_eq!(spec(json).apply(&agent()).unwrap_err().0, pointer, "{json}");
        }
        assert!(serde_json::from_str::<AgentSpec>(r#"{"handoffTarget":[]}"#).is_err());
        assert!(serde_json::from_str::<AgentSpec>(r#"{"agentVersion":"one"}"#).is_err());
    }

    #[test]
    fn a_card_reads_the_media_types_it_names() {
        let made = spec(r#"{"card":{"inputModes":["text/plain","image/*"]}}"#).apply(&agent());
        let card = made.unwrap().card.unwrap();
        assert!(card.reads("text/plain; charset=utf-8") && card.reads("IMAGE/png"));
        assert!(!card.reads("text/html") && !card.reads("imagery/png"));
        assert_eq!(card.output_modes, Card::default().output_modes);
        assert!(spec(r#"{"card":{"inputModes":["*/*"]}}"#).apply(&agent()).is_ok());
    }

    #[test]
    fn null_clears_what_may_be_empty() {
        let with = spec(r#"{"supervisorId":"boss"}"#).apply(&agent()).unwrap();
        assert!(with.supervisor_id.is_some());
        assert!(spec(r#"{"supervisorId":null}"#).apply(&with).unwrap().supervisor_id.is_none());
    }

    #[test]
    fn an_agent_survives_the_store() {
        let agent = spec(r#"{"handoffTargets":["type:x"],"delivery":{"mode":"webhook","url":"https://x.example/h"}}"#)
            .apply(&agent())
            .unwrap();
        let text = serde_json::to_string(&agent).unwrap();
        assert_eq!(serde_json::from_str::<Agent>(&text).unwrap(), agent);
    }
}
