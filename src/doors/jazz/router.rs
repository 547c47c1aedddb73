//! Which specialist takes a task (seed 004, "Handoff Router"; docs/doors/jazz.md). Pure.

use std::cmp::Reverse;

use handoffd_broker::directory::Agents;
use handoffd_domain::agent::Agent;
use handoffd_domain::handoff_tool::reachable;
use handoffd_domain::strategy::RoutingStrategy;

/// A specialist as it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpecialistQuery<'a> {
    /// A capability, specialization or tag.
    pub(super) kind: &'a str,
    /// Capabilities that it must have, all of them.
    pub(super) required: &'a [String],
}

/// The agents that take handoffs: those that the caller's allowlist reaches, or all for a person. In the order in which they
/// were registered.
pub(super) fn available<'a>(agents: &'a Agents, own: Option<&Agent>) -> Vec<&'a Agent> {
    let mut found: Vec<&Agent> = match own {
        Some(own) => reachable(own, &agents.roster),
        None => agents.roster.iter().filter(|agent| agent.accepts_handoffs).collect(),
    };
    let since = |agent: &Agent| agents.row(&agent.agent_id).map(|row| row.created_at);
    found.sort_by_key(|agent| (since(agent), agent.agent_id.clone()));
    found
}

/// Those that can do what is asked for, in their order: by capability or specialization; without any, by tag.
pub(super) fn matching<'a>(available: &[&'a Agent], wanted: SpecialistQuery<'_>) -> Vec<&'a Agent> {
    let able = |agent: &&&Agent| wanted.required.iter().all(|one| agent.can(one));
    let able: Vec<&Agent> = available.iter().filter(able).copied().collect();
    let of = |fits: &dyn Fn(&Agent) -> bool| -> Vec<&'a Agent> {
        able.iter().filter(|agent| fits(agent)).copied().collect()
    };
    let found = of(&|agent| agent.can(wanted.kind));
    if found.is_empty() {
        return of(&|agent| agent.domains.iter().any(|tag| tag == wanted.kind));
    }
    found
}

/// The one that a strategy chooses: of those that take work now, else of all, so that the refusal names it. By relevance and
/// success rate the list is ranked already.
pub(super) fn choose<'a>(
    strategy: RoutingStrategy,
    matching: &[&'a Agent],
    in_flight: impl Fn(&Agent) -> i64,
) -> Option<&'a Agent> {
    let live = matching.iter().any(|agent| agent.is_live());
    let mut able = matching.iter().copied().filter(|agent| !live || agent.is_live());
    match strategy {
        RoutingStrategy::FirstMatch | RoutingStrategy::Relevance | RoutingStrategy::SuccessRate => {
            able.next()
        }
        // Of equals the first.
        RoutingStrategy::LeastBusy => able.rev().max_by_key(|agent| Reverse(in_flight(agent))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::agent::AgentState;

    fn agent(id: &str, specialization: Option<&str>, capabilities: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.specialization = specialization.map(str::to_owned);
        agent.capabilities = capabilities.iter().map(|&name| name.to_owned()).collect();
        agent
    }

    fn ids<'a>(agents: &[&'a Agent]) -> Vec<&'a str> {
        agents.iter().map(|agent| agent.agent_id.as_str()).collect()
    }

    #[test]
    fn a_type_is_a_capability_or_a_specialization_and_else_a_tag() {
        let mut tagged = agent("c", None, &[]);
        tagged.domains = vec!["quality".to_owned(), "testing".to_owned()];
        let all =
            [agent("a", Some("testing"), &["report"]), agent("b", None, &["testing"]), tagged];
        let all: Vec<&Agent> = all.iter().collect();
        let of = |kind: &str, required: &[&str]| {
            let required: Vec<String> = required.iter().map(|&name| name.to_owned()).collect();
            ids(&matching(&all, SpecialistQuery { kind, required: &required }))
        };
        assert_eq!(of("testing", &[]), ["a", "b"]);
        assert_eq!(of("testing", &["report"]), ["a"]);
        assert_eq!(of("quality", &[]), ["c"]);
        assert!(of("flying", &[]).is_empty() && of("testing", &["fly"]).is_empty());
    }

    #[test]
    fn the_first_or_the_least_busy_of_those_that_take_work() {
        let mut paused = agent("a", None, &[]);
        paused.state = AgentState::Paused;
        let (b, c, d) = (agent("b", None, &[]), agent("c", None, &[]), agent("d", None, &[]));
        let busy = |agent: &Agent| i64::from(agent.agent_id.as_str() == "b") * 5;
        let of = |strategy, all: &[&Agent]| {
            choose(strategy, all, busy).map(|agent| agent.agent_id.to_string())
        };
        let all = [&paused, &b, &c, &d];
        assert_eq!(of(RoutingStrategy::FirstMatch, &all).as_deref(), Some("b"));
        assert_eq!(of(RoutingStrategy::LeastBusy, &all).as_deref(), Some("c"));
        assert_eq!(of(RoutingStrategy::FirstMatch, &[&paused]).as_deref(), Some("a"));
        assert_eq!(of(RoutingStrategy::LeastBusy, &[]), None);
    }
}
