//! An agent as a request states it, and what may be stated.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::card::{self, Card};
use super::delivery::{self, Delivery, DeliverySpec, check_url};
use super::nullable;
use super::{Agent, AgentState, Pause, Target, is_type_name};
use crate::ids::AgentId;
use crate::message::SCHEMA_VERSIONS;
use crate::policy::Orders;
use crate::residency::{Region, is_basis};
use crate::version_range::VersionRange;
use crate::warning::{Warning, WarningCode};
use crate::window::{ContextPolicy, Tokenizer};

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

/// A caller's description of an agent, on creation and in a patch: an absent member is left alone,
/// a list replaces, `[]` clears (seed 003). Spellings in `snake_case` are understood.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentSpec {
    /// Its id; made by the broker when absent on creation, refused in a patch.
    #[serde(alias = "agent_id")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub agent_id: Option<AgentId>,
    /// The kind of agent; handoffs are usually addressed to a type.
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
    /// The field in which it is best (seed 004). Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub specialization: Option<Option<String>>,
    /// Its abilities; a handoff may require some.
    pub capabilities: Option<Vec<String>>,
    /// Fields of knowledge that it covers.
    pub domains: Option<Vec<String>>,
    /// Sample tasks, for matching.
    pub examples: Option<Vec<String>>,
    /// Its permissions.
    pub permissions: Option<Vec<String>>,
    /// Takes handoffs at all.
    #[serde(alias = "accepts_handoffs")]
    pub accepts_handoffs: Option<bool>,
    /// Whether it takes handoffs at the moment.
    pub state: Option<AgentState>,
    /// The action on a handoff that names it by its id while it is `PAUSED`; `hold` by default.
    pub pause: Option<Pause>,
    /// Size of its context window, in tokens. Null clears it.
    #[serde(alias = "context_window_tokens", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub context_window_tokens: Option<Option<u64>>,
    /// By which tokenizer its model counts; absent: an estimate. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Tokenizer>))]
    pub tokenizer: Option<Option<Tokenizer>>,
    /// The action on a message over the limit; absent: the broker's setting. Null clears it.
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
    /// The action on orders inside data that is handed to it; absent: the broker's setting. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Orders>))]
    pub orders: Option<Option<Orders>>,
    /// The agents to which it may hand off, by id or `type:<agentType>`; empty: none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub handoff_targets: Option<Vec<Target>>,
    /// The same in Orbit's spelling.
    #[serde(rename = "handoff_targets")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub orbit_targets: Option<Vec<Target>>,
    /// The same where Orbit keeps it.
    pub config: Option<OrbitConfig>,
    /// How and where it receives its handoffs.
    pub delivery: Option<DeliverySpec>,
    /// URL to which its events are posted. Not shown to other agents. Null clears it.
    #[serde(alias = "callback_url", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub callback_url: Option<Option<String>>,
    /// The region of the endpoint; none: the broker's region. Null clears it.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub region: Option<Option<Region>>,
    /// The legal basis of transfers of data to and from its region: a code. Null clears it.
    #[serde(alias = "transfer_basis", deserialize_with = "nullable")]
    pub transfer_basis: Option<Option<String>>,
    /// The card that the A2A door publishes for the agent. Null takes it back.
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

/// The error text for a transfer basis.
pub(crate) const BASIS: &str =
    "must be a code such as ADEQUACY or SCC_2021: A-Z, 0-9 and _, 2 to 64";

/// Bounds of one agent's lists, so that a roster stays loadable.
const MAX_LIST: usize = 10_000;

const MAX_TEXT: usize = 16_384;

/// The largest agent, as JSON.
const MAX_AGENT: usize = 512 * 1024;

const NO_WINDOW: &str = "a context window has a token at least; null says that it is not known";

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

    /// Warnings about members that are stated and that only the broker sets.
    #[must_use]
    pub fn without_effect(&self) -> Vec<Warning> {
        let Some(delivery) = &self.delivery else { return Vec::new() };
        let why = "the broker sets it, and a delivery whose `mode`, `url`, `config` or `credentials` is set clears it; \
                   `acceptsHandoffs: false` keeps handoffs away";
        [
            ("/delivery/disabled", delivery.disabled == Some(true)),
            ("/delivery/failing", delivery.failing.is_some()),
        ]
        .into_iter()
        .filter(|(_, stated)| *stated)
        .map(|(pointer, _)| Warning::new(WarningCode::WithoutEffect, pointer, why))
        .collect()
    }

    /// Applies what is said to an agent.
    ///
    /// # Errors
    /// A sentence and the JSON pointer of the faulty member; the agent is then unchanged.
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
            pause,
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
            next.delivery = Delivery { credentials: None, ..delivery.over(&agent.delivery) };
            delivery::check(&next.delivery)?;
        }
        if next.context_window_tokens == Some(0) {
            return wrong("/contextWindowTokens", NO_WINDOW.to_owned());
        }
        if let Some(url) = &next.callback_url {
            check_url("/callbackUrl", url)?;
        }
        if next.transfer_basis.as_ref().is_some_and(|basis| !is_basis(basis)) {
            return wrong("/transferBasis", BASIS.to_owned());
        }
        if let Some(card) = &next.card {
            card::check(card)?;
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
