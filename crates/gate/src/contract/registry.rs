//! The linter's view of the system: the agents, the prompts and tools that expose their handoffs, the permissions, and the
//! hashes of the payload schemas at their last review (specification §4.4).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use handoffd_domain::agent::Agent;

/// A registry file: `agents`, `permissions`, `reviewed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Registry {
    /// Agents of the system.
    pub agents: Vec<RegisteredAgent>,
    /// Names of permission rules; `None` where unknown, and then not checked.
    #[serde(deserialize_with = "names")]
    pub permissions: Option<BTreeSet<String>>,
    /// Whether the agents declare supervisors: if so, the linter reports a `supervisor` that no agent has.
    #[serde(skip)]
    pub supervisors: bool,
    /// SHA-256 (hexadecimal) of each payload schema at its last review, by the path that contracts use.
    pub reviewed: BTreeMap<String, String>,
}

/// An agent as the linter sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisteredAgent {
    #[serde(alias = "agent_id", alias = "id")]
    pub agent_id: String,
    #[serde(alias = "agent_type", alias = "type")]
    pub agent_type: Option<String>,
    pub domains: Vec<String>,
    /// Names of tools that the agent can call.
    #[serde(deserialize_with = "tools")]
    pub tools: Vec<String>,
    pub prompt: Option<String>,
    /// Ids and types that it may hand off to, as a broker's allowlist has them.
    pub handoff_targets: Vec<String>,
    /// Id of the supervising agent.
    #[serde(alias = "supervisor_id")]
    pub supervisor_id: Option<String>,
}

/// A name, or an object that has one.
fn name_of(value: &Value) -> Option<String> {
    let named = value.as_str().or_else(|| value.get("name").and_then(Value::as_str));
    named.or_else(|| value.get("id").and_then(Value::as_str)).map(str::to_owned)
}

fn tools<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Option::<Vec<Value>>::deserialize(from)?.unwrap_or_default();
    Ok(list.iter().filter_map(name_of).collect())
}

fn names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<BTreeSet<String>>, D::Error> {
    let list = Option::<Vec<Value>>::deserialize(from)?;
    Ok(list.map(|list| list.iter().filter_map(name_of).collect()))
}

impl Registry {
    /// Builds the linter's view of a tenant's agents. Their permissions serve as the permission registry; their allowlists
    /// expose handoffs as prompts and tools do.
    pub fn of<'a>(agents: impl IntoIterator<Item = &'a Agent>) -> Self {
        let permissions = Some(BTreeSet::new());
        let mut registry = Self { permissions, supervisors: true, ..Self::default() };
        for agent in agents {
            registry.permissions.get_or_insert_default().extend(agent.permissions.iter().cloned());
            registry.agents.push(RegisteredAgent::of(agent));
        }
        registry
    }

    /// Agents of that id or type.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a RegisteredAgent> + 'a {
        self.agents.iter().filter(move |agent| agent.is(name))
    }

    /// Whether two names of contracts may mean the same agent: equal, or one is the type of the other.
    #[must_use]
    pub fn same(&self, one: &str, other: &str) -> bool {
        one == other || self.named(one).any(|agent| agent.is(other))
    }

    /// The hash of a schema at its last review.
    #[must_use]
    pub fn reviewed(&self, path: &str) -> Option<&str> {
        let plain = |text: &str| text.trim_start_matches("./").to_owned();
        let known = self.reviewed.get(path).or_else(|| {
            self.reviewed
                .iter()
                .find(|(known, _)| plain(known) == plain(path))
                .map(|(_, hash)| hash)
        })?;
        Some(known.strip_prefix("sha256:").unwrap_or(known))
    }
}

impl RegisteredAgent {
    /// An agent as a broker holds it; its tools and its prompt stand in its metadata, where they do.
    fn of(agent: &Agent) -> Self {
        let text = |name: &str| agent.metadata.get(name).and_then(Value::as_str).map(str::to_owned);
        let tools = agent.metadata.get("tools").and_then(Value::as_array);
        Self {
            agent_id: agent.agent_id.to_string(),
            agent_type: Some(agent.agent_type.clone()),
            domains: agent.domains.clone(),
            tools: tools
                .into_iter()
                .flatten()
                .filter_map(|tool| tool.as_str().map(str::to_owned))
                .collect(),
            prompt: text("instructions").or_else(|| text("prompt")),
            handoff_targets: agent.handoff_targets.iter().map(ToString::to_string).collect(),
            supervisor_id: agent.supervisor_id.as_ref().map(ToString::to_string),
        }
    }

    fn is(&self, name: &str) -> bool {
        self.agent_id == name || self.agent_type.as_deref() == Some(name)
    }

    /// Whether its prompt, a tool or its allowlist leads to a handoff to `target` by `tool_call`.
    #[must_use]
    pub fn exposes(
        &self,
        target: &str,
        target_type: Option<&str>,
        tool_call: Option<&str>,
    ) -> bool {
        /// Tools whose argument is the target.
        const ANY_TARGET: [&str; 2] = ["transfer_to_agent", "handoff_to_specialist"];
        let flat = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
        let wanted = flat(target);
        let by_tool = self.tools.iter().any(|tool| {
            tool_call == Some(tool.as_str())
                || ANY_TARGET.contains(&tool.as_str())
                || (tool_call.is_none() && flat(tool).ends_with(&format!("to_{wanted}")))
        });
        let by_prompt = self.prompt.as_ref().is_some_and(|prompt| {
            let prompt = flat(prompt);
            prompt.contains(&wanted) || tool_call.is_some_and(|tool| prompt.contains(&flat(tool)))
        });
        let by_list = self.handoff_targets.iter().any(|entry| {
            let name = entry.strip_prefix("type:").unwrap_or(entry);
            name == target || target_type == Some(name)
        });
        by_tool || by_prompt || by_list
    }
}
