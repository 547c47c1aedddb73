//! Allowlist and route: whom a handoff may go to, and who of those takes it (specification §2.2
//! stages 5 and 6, §4.1, §4.2).

use super::AllowlistViolation;
use super::schema::version_range;
use crate::domain::agent::{Agent, AgentState, Target};
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::ids::AgentId;
use crate::domain::message::Address;
use crate::domain::roster::Roster;

/// The refusal's exact words (seed 003).
pub const NOT_ON_ALLOWLIST: &str =
    "The target agent is not on the source agent's handoff_targets allowlist.";

/// What came of an address.
#[derive(Debug, Default)]
pub struct Found {
    /// Who takes it.
    pub target: Option<Agent>,
    /// Why nobody does, or may.
    pub failures: Vec<Failure>,
    /// An allowlist refusal, for the log.
    pub violation: Option<AllowlistViolation>,
}

impl Found {
    /// The sender is not registered.
    pub(super) fn stranger(sender: &AgentId, to: &Address) -> Self {
        let mut found = Self::default();
        found.forbid(sender, 0, to);
        found
    }

    fn forbid(&mut self, source: &AgentId, allowlist_size: usize, to: &Address) {
        self.failures.push(Failure::new(
            Stage::Allowlist,
            Code::Forbidden,
            pointer(to),
            NOT_ON_ALLOWLIST,
        ));
        self.violation = Some(AllowlistViolation {
            source: source.clone(),
            target: describe(to),
            allowlist_size,
        });
    }

    fn nobody(&mut self, to: &Address, why: String) {
        self.failures.push(Failure::new(Stage::Route, Code::NoCapableAgent, pointer(to), why));
    }
}

fn pointer(to: &Address) -> &'static str {
    if to.agent_id.is_some() {
        "/toAgent/agentId"
    } else if to.agent_type.is_some() {
        "/toAgent/agentType"
    } else {
        "/toAgent/capability"
    }
}

fn describe(to: &Address) -> String {
    match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(id), _, _) => id.to_string(),
        (None, Some(name), _) => format!("type:{name}"),
        (None, None, Some(capability)) => format!("capability:{capability}"),
        (None, None, None) => "nobody".to_owned(),
    }
}

/// Finds who takes a handoff: of those addressed, whom the sender may hand off to and who is live
/// and able; then the highest version, then the fewest open handoffs, then the id.
#[must_use]
pub fn resolve(source: &Agent, to: &Address, required: &[String], roster: &Roster) -> Found {
    let mut found = Found::default();
    if to.agent_id.as_ref() == Some(&source.agent_id) {
        found.target = Some(source.clone());
        return found;
    }
    let addressed: Vec<&Agent> = match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(id), _, _) => roster.find(id).into_iter().collect(),
        (None, Some(name), _) => roster.of_type(name).collect(),
        (None, None, Some(capability)) => roster.with_capability(capability).collect(),
        (None, None, None) => Vec::new(),
    };
    let others: Vec<&Agent> =
        addressed.into_iter().filter(|agent| agent.agent_id != source.agent_id).collect();
    let allowed: Vec<&Agent> =
        others.iter().copied().filter(|agent| source.may_hand_off_to(agent)).collect();
    // Who is not there may still be named on the list: then the route is what fails.
    let named = source.handoff_targets.iter().any(|target| match target {
        Target::Agent(id) => to.agent_id.as_ref() == Some(id),
        Target::Type(name) => to.agent_id.is_none() && to.agent_type.as_ref() == Some(name),
    });
    let open_question = others.is_empty()
        && to.agent_id.is_none()
        && to.agent_type.is_none()
        && !source.handoff_targets.is_empty();
    if allowed.is_empty() && !named && !open_question {
        found.forbid(&source.agent_id, source.handoff_targets.len(), to);
    }
    let candidates = if allowed.is_empty() { &others } else { &allowed };
    let range = to.agent_version.as_deref().and_then(version_range);
    let mut able: Vec<&Agent> = Vec::new();
    let mut lacking = None;
    for agent in candidates {
        match unfit(agent, to, required, range.as_ref()) {
            None => able.push(agent),
            Some(why) => lacking = Some(why),
        }
    }
    let best = able.into_iter().min_by(|a, b| {
        b.agent_version
            .cmp_precedence(&a.agent_version)
            .then_with(|| roster.in_flight(&a.agent_id).cmp(&roster.in_flight(&b.agent_id)))
            .then_with(|| a.agent_id.cmp(&b.agent_id))
    });
    match best {
        Some(agent) => found.target = Some(agent.clone()),
        None => found.nobody(
            to,
            lacking.unwrap_or_else(|| format!("no agent is registered for {}", describe(to))),
        ),
    }
    found
}

/// The words of seed 001 for a list that came to its end.
const ALL_UNAVAILABLE: &str = "All preferred agents unavailable";

/// The sender's preferred agents, in order: each has to stand on its allowlist; where nobody addressed
/// can take the handoff now, the first of them that can does (seed 001, rejection handling).
#[must_use]
pub fn or_preferred(
    mut found: Found,
    source: &Agent,
    preferred: &[AgentId],
    required: &[String],
    roster: &Roster,
) -> Found {
    if preferred.is_empty() {
        return found;
    }
    let named = |id: &AgentId| {
        roster.find(id).map_or_else(
            || source.handoff_targets.contains(&Target::Agent(id.clone())),
            |agent| source.may_hand_off_to(agent),
        )
    };
    for (place, id) in preferred.iter().enumerate() {
        if !named(id) {
            let pointer = format!("/preferredAgents/{place}");
            found.failures.push(Failure::new(
                Stage::Allowlist,
                Code::Forbidden,
                pointer,
                NOT_ON_ALLOWLIST,
            ));
            found.violation.get_or_insert_with(|| AllowlistViolation {
                source: source.agent_id.clone(),
                target: id.to_string(),
                allowlist_size: source.handoff_targets.len(),
            });
        }
    }
    let unrouted = found.failures.iter().all(|failure| failure.code == Code::NoCapableAgent);
    if found.target.is_some() || !unrouted {
        return found;
    }
    let any = Address { agent_id: None, agent_type: None, agent_version: None, capability: None };
    let able = preferred
        .iter()
        .filter_map(|id| roster.find(id))
        .find(|agent| unfit(agent, &any, required, None).is_none());
    found.failures.clear();
    match able {
        Some(agent) => found.target = Some(agent.clone()),
        None => found.failures.push(Failure::new(
            Stage::Route,
            Code::NoCapableAgent,
            "/preferredAgents",
            ALL_UNAVAILABLE,
        )),
    }
    found
}

/// Why an agent cannot take it, in the words of seed 001.
fn unfit(
    agent: &Agent,
    to: &Address,
    required: &[String],
    range: Option<&semver::VersionReq>,
) -> Option<String> {
    let id = &agent.agent_id;
    if let Some(name) = &to.agent_type
        && agent.agent_type != *name
    {
        return Some(format!("agent {id} is of type {}, not {name}", agent.agent_type));
    }
    if let Some(range) = range
        && !range.matches(&agent.agent_version)
    {
        return Some(format!("agent {id} has version {}, not {range}", agent.agent_version));
    }
    if let Some(missing) = to
        .capability
        .iter()
        .chain(required)
        .find(|capability| !agent.capabilities.contains(capability))
    {
        return Some(format!("Missing capability: {missing} (agent {id})"));
    }
    match agent.state {
        _ if !agent.accepts_handoffs => Some(format!("agent {id} accepts no handoffs")),
        AgentState::Busy => Some(format!("Agent busy: {id}")),
        AgentState::Paused => Some(format!("agent {id} is paused")),
        AgentState::Runnable if agent.delivery.disabled => {
            Some(format!("delivery to agent {id} is disabled: its endpoint is gone or only fails"))
        }
        AgentState::Runnable => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn agent(id: &str, kind: &str, version: &str, capabilities: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.agent_type = kind.to_owned();
        agent.agent_version = version.parse().unwrap();
        agent.capabilities = capabilities.iter().map(|&c| c.to_owned()).collect();
        agent
    }

    fn source(targets: &[&str]) -> Agent {
        let mut source = agent("src", "src", "1.0.0", &[]);
        source.handoff_targets = targets.iter().map(|t| t.parse().unwrap()).collect();
        source
    }

    fn roster(agents: Vec<Agent>) -> Roster {
        Roster::new(agents, &HashMap::from([("r1".parse().unwrap(), 5)]))
    }

    fn to(
        id: Option<&str>,
        kind: Option<&str>,
        version: Option<&str>,
        cap: Option<&str>,
    ) -> Address {
        Address {
            agent_id: id.map(|id| id.parse().unwrap()),
            agent_type: kind.map(str::to_owned),
            agent_version: version.map(str::to_owned),
            capability: cap.map(str::to_owned),
        }
    }

    fn team() -> Roster {
        roster(vec![
            agent("r1", "risk", "1.6.0", &["score"]),
            agent("r2", "risk", "1.6.0", &["score"]),
            agent("r3", "risk", "2.0.0", &["score", "explain"]),
            agent("old", "risk", "1.0.0", &[]),
        ])
    }

    fn codes(found: &Found) -> Vec<Code> {
        found.failures.iter().map(|failure| failure.code).collect()
    }

    #[test]
    fn the_highest_version_in_range_then_the_fewest_in_flight() {
        let source = source(&["type:risk"]);
        let pick = |range| {
            resolve(&source, &to(None, Some("risk"), Some(range), None), &[], &team())
                .target
                .unwrap()
                .agent_id
                .to_string()
        };
        assert_eq!(pick(">=1.5.0"), "r3");
        assert_eq!(pick(">=1.5.0, <2"), "r2", "r1 has more in flight");
        assert_eq!(pick("~1.0"), "old");
    }

    #[test]
    fn an_empty_list_lets_nobody_through_with_orbits_words() {
        let found = resolve(&source(&[]), &to(Some("r1"), None, None, None), &[], &team());
        assert_eq!(codes(&found), [Code::Forbidden]);
        assert_eq!(found.failures[0].message, NOT_ON_ALLOWLIST);
        assert_eq!(found.violation.unwrap().allowlist_size, 0);
        let unknown = resolve(&source(&[]), &to(Some("ghost"), None, None, None), &[], &team());
        assert_eq!(codes(&unknown), [Code::Forbidden, Code::NoCapableAgent]);
    }

    #[test]
    fn of_a_type_only_listed_agents_are_chosen() {
        let found = resolve(&source(&["r1"]), &to(None, Some("risk"), None, None), &[], &team());
        assert_eq!(found.target.unwrap().agent_id.as_str(), "r1");
    }

    #[test]
    fn a_listed_but_absent_target_is_a_matter_of_the_route() {
        let found = resolve(
            &source(&["ghost", "type:spirit"]),
            &to(Some("ghost"), None, None, None),
            &[],
            &team(),
        );
        assert_eq!(codes(&found), [Code::NoCapableAgent]);
        let found =
            resolve(&source(&["type:spirit"]), &to(None, Some("spirit"), None, None), &[], &team());
        assert_eq!(codes(&found), [Code::NoCapableAgent]);
    }

    #[test]
    fn by_capability_all_required_ones_and_the_refusal_names_what_is_missing() {
        let source = source(&["type:risk"]);
        let by = |cap: &str, required: &[&str]| {
            let required: Vec<String> = required.iter().map(|&c| c.to_owned()).collect();
            resolve(&source, &to(None, None, None, Some(cap)), &required, &team())
        };
        assert_eq!(by("score", &["explain"]).target.unwrap().agent_id.as_str(), "r3");
        let found = by("score", &["fly"]);
        assert!(found.failures[0].message.starts_with("Missing capability: fly"));
        assert_eq!(codes(&by("fly", &[])), [Code::NoCapableAgent]);
    }

    #[test]
    fn who_is_busy_paused_or_gone_is_not_routed_to() {
        for (change, words) in [
            ((|a: &mut Agent| a.state = AgentState::Busy) as fn(&mut Agent), "Agent busy: only"),
            (|a| a.state = AgentState::Paused, "paused"),
            (|a| a.accepts_handoffs = false, "accepts no handoffs"),
            (|a| a.delivery.disabled = true, "disabled"),
        ] {
            let mut only = agent("only", "solo", "1.0.0", &[]);
            change(&mut only);
            let found = resolve(
                &source(&["only"]),
                &to(Some("only"), None, None, None),
                &[],
                &roster(vec![only]),
            );
            assert_eq!(codes(&found), [Code::NoCapableAgent]);
            assert!(found.failures[0].message.contains(words), "{}", found.failures[0].message);
        }
    }

    #[test]
    fn to_oneself_needs_no_list() {
        let found = resolve(&source(&[]), &to(Some("src"), None, None, None), &[], &team());
        assert_eq!(found.target.unwrap().agent_id.as_str(), "src");
    }
}
