//! The edges that a message may take besides the first (specification §2.2 stage 7): to the sender's preferred
//! agents, and to those whom the contracts on its way name. Each is judged under its own contract before anything
//! is committed, and the handoff that follows is ruled by it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{Gate, GateLookup, edge_contract};
use crate::contract::enforce::CompiledContract;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::AgentId;
use handoffd_domain::message::Message;
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::ruling::OtherEdge;
use handoffd_domain::warning::{Warning, WarningCode};

/// The other edges of a message that passed.
#[derive(Debug, Clone, Default)]
pub struct OtherEdges {
    /// The rules of an edge by its receiver. Of an agent that a contract names, none where no contract rules the
    /// edge: the contract that names it goes on to rule.
    pub rules: BTreeMap<AgentId, OtherEdge>,
    /// Agents that are not registered: no edge to them was judged, and they take nothing over.
    pub unknown: Vec<AgentId>,
}

/// The result of judging a message's other edges.
#[derive(Debug, Default)]
pub(super) struct JudgedEdges {
    pub(super) others: OtherEdges,
    pub(super) failures: Vec<Failure>,
    pub(super) warnings: Vec<Warning>,
    /// The contracts of these edges.
    pub(super) contracts: Vec<Arc<CompiledContract>>,
}

/// How a message comes to take an edge.
#[derive(Clone)]
enum Way {
    /// By its own list of preferred agents; the place in it.
    Preferred(usize),
    /// By a clause of a contract.
    Named(&'static str, String),
}

impl Way {
    /// A finding about the edge, as one about the message.
    fn told(&self, id: &AgentId, failure: Failure) -> Failure {
        let place = match failure.pointer.as_str() {
            "" => String::new(),
            pointer if pointer.starts_with("/toAgent") => String::new(),
            pointer => format!("{pointer}: "),
        };
        match self {
            Self::Preferred(place_of) => Failure {
                pointer: format!("/preferredAgents/{place_of}"),
                message: format!("{place}{}", failure.message),
                ..failure
            },
            Self::Named(clause, contract) => Failure {
                pointer: "/toAgent".to_owned(),
                message: format!(
                    "Contract {contract}, clause `{clause}`, names {id}, and the message does not fit that edge: {place}{}",
                    failure.message
                ),
                ..failure
            }
            .of_rule(*clause),
        }
    }
}

/// A registered agent to judge an edge to, or its id alone.
type Waiting = VecDeque<(AgentId, Way)>;

/// The agents that a contract names on an edge; of a handoff that is a recovery already, only who resumes for a
/// person.
fn named(edge: &OtherEdge, contract: &str, recovery: bool, waiting: &mut Waiting) {
    let policy = &edge.edge;
    if !recovery {
        for (clause, way) in [
            ("recovery.on_reject", &policy.on_reject),
            ("recovery.on_timeout", &policy.on_timeout),
            ("recovery.on_error", &policy.on_error),
        ] {
            if let Some(id) = way.leads_to(edge.supervisor.as_ref()) {
                waiting.push_back((id, Way::Named(clause, contract.to_owned())));
            }
        }
    }
    if let Some(id) = policy.human.as_ref().and_then(|human| human.resume_as.clone()) {
        let clause = "human_in_the_loop.resume_as";
        waiting.push_back((id, Way::Named(clause, contract.to_owned())));
    }
}

impl Gate {
    /// Judges the edges that a message may take besides the one from `source` to `target`.
    pub(super) fn other_edges(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        (source, target): (&Agent, &Agent),
        ruling: Option<&CompiledContract>,
        again: bool,
    ) -> JudgedEdges {
        let preferred = &message.envelope().preferred_agents;
        let mut judged = JudgedEdges::default();
        let mut waiting = Waiting::new();
        for (place, id) in preferred.iter().enumerate() {
            waiting.push_back((id.clone(), Way::Preferred(place)));
        }
        let first = ruling.map(|ready| OtherEdge::of(ready.policy(), source, target));
        if let (Some(first), Some(ready)) = (&first, ruling) {
            named(first, &ready.contract().to_string(), false, &mut waiting);
        }
        if waiting.is_empty() {
            return judged;
        }
        let mut seen: HashSet<AgentId> =
            [source.agent_id.clone(), target.agent_id.clone()].into_iter().collect();
        let mut bare = Vec::new();
        while let Some((id, way)) = waiting.pop_front() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let Some(agent) = lookup.roster.find(&id) else {
                if let Way::Preferred(place) = way {
                    judged.warnings.push(Warning::new(
                        WarningCode::UnknownAgent,
                        format!("/preferredAgents/{place}"),
                        "no agent of that id is registered: it is not asked for this handoff",
                    ));
                }
                judged.others.unknown.push(id);
                continue;
            };
            let own = self.other_edge(message, lookup, (source, agent), &way, again);
            judged.failures.extend(own.failures.into_iter().map(|one| way.told(&id, one)));
            let Some(ready) = own.ruling else {
                if matches!(way, Way::Preferred(_)) {
                    bare.push(id);
                }
                continue;
            };
            let edge = OtherEdge::of(ready.policy(), source, agent);
            let recovery = matches!(way, Way::Named(..));
            named(&edge, &ready.contract().to_string(), recovery, &mut waiting);
            judged.others.rules.insert(id, edge);
            judged.contracts.push(ready);
        }
        // If no contract rules the edge to a preferred agent, the contract of the submission still rules, and not that of
        // another preferred agent before it.
        if !judged.others.rules.is_empty() {
            let first =
                first.unwrap_or_else(|| OtherEdge::of(&EdgePolicy::default(), source, target));
            let rules = &mut judged.others.rules;
            rules.extend(bare.into_iter().map(|id| (id, first.clone())));
        }
        judged
    }

    /// Holds a message against the contract of another edge. That an edge must have one counts where the sender
    /// names the agent, not where a contract does.
    fn other_edge(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        (source, agent): (&Agent, &Agent),
        way: &Way,
        again: bool,
    ) -> edge_contract::ContractCheck {
        let (tenant, at) = (lookup.tenant, lookup.at);
        let terms = self.requirement.terms(tenant, &source.agent_id, &agent.agent_id, at, again);
        let required = terms.required && matches!(way, Way::Preferred(_));
        let terms = edge_contract::ContractTerms { required, ..terms };
        let mut found =
            edge_contract::check_beside(message, source, agent, lookup.contracts, terms);
        if let Some(ready) = &found.ruling
            && ready.policy().human.as_ref().is_some_and(|human| human.target)
        {
            let contract = ready.contract();
            let why = format!(
                "Contract {contract}, clause `human_in_the_loop`: it hands the task to a person: address {} itself",
                agent.agent_id
            );
            let failure = Failure::new(Stage::Contract, Code::ContractViolation, "", why);
            found.failures.push(failure.of_rule("human_in_the_loop"));
        }
        found
    }
}
