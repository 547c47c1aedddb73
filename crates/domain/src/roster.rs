//! Who is there: the agents of one tenant, indexed for routing. A change makes another roster, which
//! shares with the one before whatever stayed: the agents, and the lists that they are found by.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::agent::{Agent, Delivery, Target};
use super::handoff::DeliveryMode;
use super::ids::AgentId;
use super::warning::{Warning, WarningCode};

/// An agent, and how much it has to do.
#[derive(Debug)]
pub struct Member {
    agent: Arc<Agent>,
    in_flight: AtomicI64,
}

impl Member {
    #[must_use]
    pub const fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Its open handoffs: as counted last, and what was routed since.
    #[must_use]
    pub fn in_flight(&self) -> i64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// Agents by what they have in common, each list by id.
type Index = HashMap<Arc<str>, Arc<Vec<Arc<Member>>>>;

/// The agents of a tenant at one moment.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    members: BTreeMap<AgentId, Arc<Member>>,
    by_type: Index,
    by_capability: Index,
}

impl Roster {
    /// Indexes agents; `in_flight` counts each one's open handoffs.
    #[must_use]
    pub fn new(agents: Vec<Agent>, in_flight: &HashMap<AgentId, i64>) -> Self {
        let mut roster = Self::default();
        for agent in agents {
            roster.put(agent);
        }
        roster.recount(in_flight);
        roster
    }

    /// Puts an agent in the given form. Its open work stays.
    pub fn put(&mut self, agent: Agent) {
        let id = agent.agent_id.clone();
        let open = self.remove(&id).map_or(0, |before| before.in_flight());
        let member = Arc::new(Member { agent: Arc::new(agent), in_flight: AtomicI64::new(open) });
        enter(&mut self.by_type, &member.agent.agent_type, &member);
        for capability in abilities(&member.agent) {
            enter(&mut self.by_capability, capability, &member);
        }
        self.members.insert(id, member);
    }

    /// Has no such agent.
    pub fn remove(&mut self, id: &AgentId) -> Option<Arc<Member>> {
        let member = self.members.remove(id)?;
        leave(&mut self.by_type, &member.agent.agent_type, id);
        for capability in abilities(&member.agent) {
            leave(&mut self.by_capability, capability, id);
        }
        Some(member)
    }

    #[must_use]
    pub fn find(&self, id: &AgentId) -> Option<&Agent> {
        self.members.get(id).map(|member| &*member.agent)
    }

    /// One agent, with what it has to do.
    #[must_use]
    pub fn member(&self, id: &AgentId) -> Option<&Arc<Member>> {
        self.members.get(id)
    }

    /// All agents, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.members.values().map(|member| &*member.agent)
    }

    /// Agents of a type, by id.
    pub fn of_type<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Agent> + 'a {
        self.members_of_type(name).iter().map(|member| &*member.agent)
    }

    /// Agents of a type, by id, with what they have to do.
    #[must_use]
    pub fn members_of_type(&self, name: &str) -> &[Arc<Member>] {
        self.by_type.get(name).map_or(&[], |members| members)
    }

    /// Agents with a capability or specialization, by id, with what they have to do.
    #[must_use]
    pub fn members_with_capability(&self, name: &str) -> &[Arc<Member>] {
        self.by_capability.get(name).map_or(&[], |members| members)
    }

    /// Open handoffs of an agent: as counted last, and what was routed since.
    #[must_use]
    pub fn in_flight(&self, id: &AgentId) -> i64 {
        self.members.get(id).map_or(0, |member| member.in_flight())
    }

    /// One more handoff goes to that agent.
    pub fn routed(&self, id: &AgentId) {
        if let Some(member) = self.members.get(id) {
            member.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Open handoffs were counted; who is not named has none.
    pub fn recount(&self, in_flight: &HashMap<AgentId, i64>) {
        for (id, member) in &self.members {
            let open = in_flight.get(id).copied().unwrap_or(0);
            member.in_flight.store(open, Ordering::Relaxed);
        }
    }

    fn knows(&self, target: &Target) -> bool {
        match target {
            Target::Agent(id) => self.members.contains_key(id),
            Target::Type(name) => self.by_type.contains_key(name.as_str()),
        }
    }

    /// Entries of an allowlist that match no agent (ruling X14).
    #[must_use]
    pub fn unknown_targets(&self, agent: &Agent) -> Vec<String> {
        let unknown = agent.handoff_targets.iter().filter(|target| !self.knows(target));
        unknown.map(ToString::to_string).collect()
    }

    /// The members of a registered agent that do not hold in full now, each at its pointer.
    #[must_use]
    pub fn warnings(&self, agent: &Agent) -> Vec<Warning> {
        let nobody = |pointer: String, message: &str| {
            Warning::new(WarningCode::UnknownAgent, pointer, message)
        };
        let unheld = |pointer: &str, message: &str| {
            Warning::new(WarningCode::WithoutEffect, pointer, message)
        };
        let mut warnings: Vec<_> = agent
            .handoff_targets
            .iter()
            .enumerate()
            .filter(|(_, target)| !self.knows(target))
            .map(|(place, _)| {
                nobody(
                    format!("/handoffTargets/{place}"),
                    "names no agent; the entry is kept, and ignored until such an agent exists",
                )
            })
            .collect();
        if agent.supervisor_id.as_ref().is_some_and(|id| !self.members.contains_key(id)) {
            warnings.push(nobody(
                "/supervisorId".to_owned(),
                "names no agent; until such an agent exists, a failure gives the task back to its sender",
            ));
        }
        if agent.supervisor_id.as_ref() == Some(&agent.agent_id) {
            warnings.push(unheld("/supervisorId", "an agent does not supervise itself"));
        }
        if agent.context_window_tokens.is_none() {
            for (pointer, set) in [
                ("/tokenizer", agent.tokenizer.is_some()),
                ("/contextPolicy", agent.context_policy.is_some()),
            ] {
                if set {
                    warnings.push(unheld(
                        pointer,
                        "without contextWindowTokens it counts only where a contract sets context_tokens",
                    ));
                }
            }
        }
        let Delivery { mode, url, timeout_ms, max_in_flight, format, .. } = &agent.delivery;
        if *mode == DeliveryMode::Pull {
            let usual = Delivery::default();
            for (pointer, set) in [
                ("/delivery/url", url.is_some()),
                ("/delivery/timeoutMs", *timeout_ms != usual.timeout_ms),
                ("/delivery/maxInFlight", *max_in_flight != usual.max_in_flight),
                ("/delivery/format", *format != usual.format),
            ] {
                if set {
                    warnings.push(unheld(pointer, "holds for webhooks; this agent pulls"));
                }
            }
        }
        warnings
    }
}

/// Names by which an agent is found as able: its capabilities, and its specialization.
fn abilities(agent: &Agent) -> impl Iterator<Item = &String> {
    agent.capabilities.iter().chain(&agent.specialization)
}

/// The index of an agent in a list, or the index at which it would be inserted.
fn place(members: &[Arc<Member>], id: &AgentId) -> Result<usize, usize> {
    members.binary_search_by(|member| member.agent.agent_id.cmp(id))
}

fn enter(index: &mut Index, name: &str, member: &Arc<Member>) {
    let members = match index.get_mut(name) {
        Some(members) => members,
        None => index.entry(Arc::from(name)).or_default(),
    };
    // A capability may be listed twice.
    if let Err(place) = place(members, &member.agent.agent_id) {
        Arc::make_mut(members).insert(place, Arc::clone(member));
    }
}

fn leave(index: &mut Index, name: &str, id: &AgentId) {
    let Some(members) = index.get_mut(name) else { return };
    if let Ok(place) = place(members, id) {
        Arc::make_mut(members).remove(place);
    }
    if members.is_empty() {
        index.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str, kind: &str, capabilities: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.agent_type = kind.to_owned();
        agent.capabilities = capabilities.iter().map(|&name| name.to_owned()).collect();
        agent
    }

    fn ids<'a>(agents: impl IntoIterator<Item = &'a Arc<Member>>) -> Vec<&'a str> {
        agents.into_iter().map(|member| member.agent().agent_id.as_str()).collect()
    }

    #[test]
    fn a_roster_that_was_changed_is_as_one_made_anew_and_the_one_before_stays() {
        let first = Roster::new(
            vec![agent("b", "x", &["read", "read"]), agent("a", "x", &[]), agent("c", "y", &[])],
            &HashMap::from([("a".parse().unwrap(), 4), ("b".parse().unwrap(), 2)]),
        );
        let mut next = first.clone();
        next.put(agent("a", "y", &["read"]));
        next.remove(&"b".parse().unwrap());
        next.remove(&"nobody".parse().unwrap());
        assert_eq!(ids(next.members_of_type("y")), ["a", "c"]);
        assert_eq!(ids(next.members_with_capability("read")), ["a"]);
        assert!(next.members_of_type("x").is_empty());
        assert_eq!(next.in_flight(&"a".parse().unwrap()), 4, "a change does not end its work");
        assert_eq!(ids(first.members_of_type("x")), ["a", "b"]);
        assert_eq!(ids(first.members_with_capability("read")), ["b"]);
        let mut special = agent("e", "x", &["read"]);
        special.specialization = Some("reading".to_owned());
        next.put(special);
        assert_eq!(ids(next.members_with_capability("reading")), ["e"]);
        next.remove(&"e".parse().unwrap());
        assert!(next.members_with_capability("reading").is_empty());
        let mut names = agent("d", "z", &[]);
        names.handoff_targets = vec!["type:x".parse().unwrap(), "type:y".parse().unwrap()];
        assert_eq!(next.unknown_targets(&names), ["type:x"]);
    }

    #[test]
    fn a_count_takes_the_place_of_what_was_routed() {
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let roster = Roster::new(
            vec![agent("a", "x", &[]), agent("b", "x", &[])],
            &HashMap::from([("a".parse().unwrap(), 1)]),
        );
        roster.routed(&a);
        roster.routed(&b);
        assert_eq!([roster.in_flight(&a), roster.in_flight(&b)], [2, 1]);
        // Those that share an agent share its count.
        let beside = roster.clone();
        roster.recount(&HashMap::from([("a".parse().unwrap(), 5)]));
        assert_eq!([beside.in_flight(&a), beside.in_flight(&b)], [5, 0]);
    }
}
