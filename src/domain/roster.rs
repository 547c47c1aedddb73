//! Who is there: the agents of one tenant, indexed for routing. Plain data, built whole and shared.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};

use super::agent::Agent;
use super::ids::AgentId;

/// The agents of a tenant at one moment.
#[derive(Debug, Default)]
pub struct Roster {
    agents: BTreeMap<AgentId, Agent>,
    by_type: HashMap<String, Vec<AgentId>>,
    by_capability: HashMap<String, Vec<AgentId>>,
    in_flight: HashMap<AgentId, AtomicI64>,
}

impl Roster {
    /// Indexes agents; `in_flight` counts each one's open handoffs.
    #[must_use]
    pub fn new(agents: Vec<Agent>, in_flight: &HashMap<AgentId, i64>) -> Self {
        let mut roster = Self::default();
        for agent in &agents {
            let open = in_flight.get(&agent.agent_id).copied().unwrap_or(0);
            roster.in_flight.insert(agent.agent_id.clone(), AtomicI64::new(open));
        }
        for agent in agents {
            roster
                .by_type
                .entry(agent.agent_type.clone())
                .or_default()
                .push(agent.agent_id.clone());
            for capability in &agent.capabilities {
                roster
                    .by_capability
                    .entry(capability.clone())
                    .or_default()
                    .push(agent.agent_id.clone());
            }
            roster.agents.insert(agent.agent_id.clone(), agent);
        }
        roster
    }

    /// One agent.
    #[must_use]
    pub fn find(&self, id: &AgentId) -> Option<&Agent> {
        self.agents.get(id)
    }

    /// All agents, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Agents of a type, by id.
    pub fn of_type<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Agent> + 'a {
        self.by_type.get(name).into_iter().flatten().filter_map(|id| self.agents.get(id))
    }

    /// Agents with a capability, by id.
    pub fn with_capability<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Agent> + 'a {
        self.by_capability.get(name).into_iter().flatten().filter_map(|id| self.agents.get(id))
    }

    /// Open handoffs of an agent: when the roster was built, and what was routed since.
    #[must_use]
    pub fn in_flight(&self, id: &AgentId) -> i64 {
        self.in_flight.get(id).map_or(0, |open| open.load(Ordering::Relaxed))
    }

    /// One more handoff goes to that agent.
    pub fn routed(&self, id: &AgentId) {
        if let Some(open) = self.in_flight.get(id) {
            open.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries of an allowlist that name nobody (ruling X14).
    #[must_use]
    pub fn unknown_targets(&self, agent: &Agent) -> Vec<String> {
        use super::agent::Target;
        agent
            .handoff_targets
            .iter()
            .filter(|target| match target {
                Target::Agent(id) => !self.agents.contains_key(id),
                Target::Type(name) => !self.by_type.contains_key(name),
            })
            .map(ToString::to_string)
            .collect()
    }
}
