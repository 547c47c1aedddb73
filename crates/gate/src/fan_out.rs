//! A message to many (specification §10.4): what depends on the message alone is judged once, what depends on the edge
//! for each receiver. One receiver that cannot have it refuses the whole list.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Gate, GateLookup, GateVerdict, JudgedReport, OtherEdges, PassedMessage, RefusedMessage,
    ScannedEdge, UnreadMessage, address, budget, completeness, crossed, edge_contract, place,
    stream, unheld,
};
use crate::context;
use crate::contract::enforce::CompiledContract;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::group::{Join, OnReject};
use handoffd_domain::ids::AgentId;
use handoffd_domain::message::{Address, FanOut, Message};
use handoffd_domain::policy::Recovery;
use handoffd_domain::residency::{ResidencyFacts, ResidencyRules};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_domain::window::ContextFacts;

/// The receivers of a message to many, each with what rules its edge.
#[derive(Clone)]
pub struct PassedGroup {
    /// How many of them are needed.
    pub join: Join,
    /// The consequence if one branch ends badly.
    pub on_reject: OnReject,
    /// The receivers in the list's order.
    pub branches: Vec<PassedBranch>,
}

/// One receiver of a message to many.
#[derive(Clone)]
pub struct PassedBranch {
    /// The receiver as addressed.
    pub to: Address,
    pub target: Arc<Agent>,
    /// The contract that rules the edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// The other edges that the branch may take.
    pub others: OtherEdges,
    /// The regions between which the data moves.
    pub residency: Option<ResidencyFacts>,
    /// The message against the receiver's context window.
    pub context: Option<ContextFacts>,
}

impl PassedGroup {
    /// The receivers with the contracts of their edges.
    pub(super) fn edges(&self) -> Vec<ScannedEdge<'_>> {
        let edges = self.branches.iter();
        edges.map(|one| (Some(&*one.target), one.contract.as_deref())).collect()
    }

    /// Whether each receiver of the list has a branch, and no agent has two.
    fn is_whole(&self, list: &FanOut) -> bool {
        let agents: BTreeSet<&AgentId> =
            self.branches.iter().map(|branch| &branch.target.agent_id).collect();
        agents.len() == list.receivers.len() && agents.len() == self.branches.len()
    }
}

/// The findings on one receiver, before the message itself is judged.
#[derive(Default)]
struct JudgedReceiver {
    branch: Option<PassedBranch>,
    failures: Vec<Failure>,
    warnings: Vec<Warning>,
    violation: Option<super::AllowlistViolation>,
}

/// The pointer and the words of a finding about one receiver: what points at `toAgent` points at the receiver, and of
/// what points elsewhere the receiver's place is named.
fn at_receiver(index: usize, pointer: &str, message: &str) -> (String, String) {
    let own = format!("/receiverList/{index}");
    match pointer.strip_prefix("/toAgent") {
        Some(rest) => (own + rest, message.to_owned()),
        None if pointer.is_empty() => (own, message.to_owned()),
        None => (own, format!("{pointer}: {message}")),
    }
}

impl Gate {
    /// From identity on all stages run over a message to many, and all failures are reported.
    pub(super) fn judge_all(
        &self,
        message: Message,
        lookup: &GateLookup<'_>,
        again: bool,
    ) -> GateVerdict {
        let Some(list) = message.fan_out().cloned() else {
            let why = Failure::new(Stage::Schema, Code::SchemaInvalid, "/receiverList", "no list");
            return GateVerdict::Malformed(why);
        };
        let (mut failures, mut warnings) = (Vec::new(), Vec::new());
        if !again {
            failures.extend(self.oversized(&message));
        }
        self.identity(&message, lookup, &mut failures, &mut warnings);
        let mut judged = self.receivers(&message, &list, lookup, again);
        let violation = judged.iter_mut().find_map(|one| one.violation.take());
        for one in &mut judged {
            failures.append(&mut one.failures);
            warnings.append(&mut one.warnings);
        }
        failures.extend(stream::opening(&message, false, None, None));
        failures.extend(completeness::check(message.value(), &[]));
        failures.extend(budget::check(message.value()));
        let branches: Vec<PassedBranch> = judged.into_iter().filter_map(|one| one.branch).collect();
        let group = PassedGroup { join: list.join, on_reject: list.on_reject, branches };
        let edges = group.edges();
        let alone = match &edges[..] {
            [(target, _)] => *target,
            _ => None,
        };
        let scanned = self.scan(&message, lookup, alone, &edges);
        failures.extend_from_slice(&scanned.failures);
        self.credentials_and_binary(&scanned, &mut failures, &mut warnings);
        warnings.extend(unheld::warnings(message.value()));
        let may_repeat = scanned.may_repeat;
        let JudgedReport { findings, observed, marked } = scanned.judged;
        let first = group.branches.first();
        let first = first.filter(|_| failures.is_empty()).map(|first| {
            let contract = first.contract.as_ref().map(Arc::clone);
            (Arc::clone(&first.target), contract, first.residency.clone(), first.context)
        });
        let Some((target, contract, residency, context)) = first else {
            let envelope = message.envelope();
            return GateVerdict::Refused(Box::new(RefusedMessage {
                ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
                unread: UnreadMessage::default(),
                failures,
                message: Some(message),
                target: None,
                contract: None,
                others: OtherEdges::default(),
                findings,
                observed,
                allowlist: violation,
                context: None,
                group: Some(group).filter(|group| group.is_whole(&list)),
            }));
        };
        warnings.extend(unheld::orders(&marked));
        GateVerdict::Pass(Box::new(PassedMessage {
            message,
            target,
            to_itself: false,
            contract,
            others: OtherEdges::default(),
            observed,
            marked,
            may_repeat,
            warnings,
            residency,
            context,
            group: Some(group),
        }))
    }

    fn receivers(
        &self,
        message: &Message,
        list: &FanOut,
        lookup: &GateLookup<'_>,
        again: bool,
    ) -> Vec<JudgedReceiver> {
        let mut taken: Vec<AgentId> = Vec::new();
        let mut judged = Vec::with_capacity(list.receivers.len());
        for (index, to) in list.receivers.iter().enumerate() {
            let mut one = self.receiver(message, to, lookup, again);
            if let Some(branch) = &one.branch {
                let id = &branch.target.agent_id;
                if let Some(first) = taken.iter().position(|other| other == id) {
                    one.failures.push(Failure::new(
                        Stage::Route,
                        Code::SchemaInvalid,
                        "/toAgent",
                        format!("agent {id} is a receiver already, as `/receiverList/{first}`"),
                    ));
                }
                taken.push(id.clone());
            }
            for failure in &mut one.failures {
                (failure.pointer, failure.message) =
                    at_receiver(index, &failure.pointer, &failure.message);
            }
            for warning in &mut one.warnings {
                (warning.pointer, warning.message) =
                    at_receiver(index, &warning.pointer, &warning.message);
            }
            judged.push(one);
        }
        judged
    }

    /// Checks of one edge: allowlist, route, regions, contract, required state, context window.
    fn receiver(
        &self,
        message: &Message,
        to: &Address,
        lookup: &GateLookup<'_>,
        again: bool,
    ) -> JudgedReceiver {
        let envelope = message.envelope();
        let sender = &envelope.from_agent.agent_id;
        let source = lookup.roster.find(sender);
        let readers = address::ReceiverForms::new(&self.schemas, message.value());
        let required = &envelope.capabilities_required;
        let found = match source {
            Some(source) => address::resolve(source, to, required, lookup.roster, &readers, None),
            None => address::ResolvedReceiver::stranger(sender, to),
        };
        let (found, ruled) = self.best_ruled(message, to, lookup, found, again);
        let mut judged = JudgedReceiver {
            failures: found.failures,
            violation: found.violation,
            ..JudgedReceiver::default()
        };
        let (Some(target), Some(source)) = (found.target, source) else { return judged };
        if target.agent_id == *sender {
            let why = "the sender is not a receiver of its own list";
            let failure = Failure::new(Stage::Route, Code::NoCapableAgent, "/toAgent", why);
            judged.failures.push(failure);
            return judged;
        }
        let crossings = self.residency.crossings(Some(source), Some(&target));
        for one in crossings.iter().filter(|one| self.residency.refuses(one)) {
            let why = format!("{one}: refused");
            let pointer = place(one).replace("/fromAgent", "");
            judged.failures.push(Failure::new(Stage::Route, Code::Forbidden, pointer, why));
        }
        let edge_contract::ContractCheck { failures, warnings, ruling, .. } = ruled;
        judged.failures.extend(failures);
        judged.warnings.extend(warnings);
        judged.warnings.extend(crossed(&crossings));
        if let Some(ready) = &ruling {
            contract_in_a_list(ready, &mut judged);
        }
        let edge = (source, &*target);
        let others = self.other_edges(message, lookup, edge, ruling.as_deref(), again);
        judged.failures.extend(others.failures);
        judged.warnings.extend(others.warnings);
        let bare = completeness::check(message.value(), &[]);
        let missing = completeness::check(message.value(), &target.required_state);
        judged.failures.extend(missing.into_iter().filter(|one| !bare.contains(one)));
        let older = self.older_form(message, &target);
        let (facts, failure) = self.measured(message, &target, ruling.as_deref(), older.as_ref());
        judged.warnings.extend(context::over_limit(
            message.value(),
            &facts,
            self.context.keep_turns,
        ));
        judged.failures.extend(failure);
        judged.warnings.extend(older.map(|older| unheld::downgraded(&target, &older)));
        judged.branch = Some(PassedBranch {
            to: to.clone(),
            target,
            contract: ruling,
            others: others.others,
            residency: ResidencyRules::facts(crossings),
            context: Some(facts),
        });
        judged
    }
}

/// Clauses that suppose a single receiver: one that hands the task to a person is refused, others are named.
fn contract_in_a_list(ready: &CompiledContract, judged: &mut JudgedReceiver) {
    let (policy, contract) = (ready.policy(), ready.contract());
    if policy.human.as_ref().is_some_and(|human| human.target) {
        let why = format!("contract {contract} hands the task to a person: hand it off alone");
        let failure = Failure::new(Stage::Contract, Code::ContractViolation, "", why);
        judged.failures.push(failure.of_rule("human_in_loop"));
    }
    let mut unheld = |what: String| {
        judged.warnings.push(Warning::new(WarningCode::WithoutEffect, "", what));
    };
    if [&policy.on_reject, &policy.on_timeout, &policy.on_error].contains(&&Recovery::Human) {
        unheld(format!(
            "contract {contract} asks a person when the handoff fails: in a list `onReject` rules instead"
        ));
    }
    if policy.dedupe.is_some() {
        unheld(format!("contract {contract} drops repeats by a dedupe key: not in a list"));
    }
}
