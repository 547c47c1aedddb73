//! The gate: decides whether the broker accepts a message (specification §2.2). One file per stage, each a pure
//! function of the message and of looked-up facts; this file runs the stages in order.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tracing::Span;
use tracing::field::Empty;

pub mod address;
pub mod budget;
pub mod claims;
pub mod completeness;
pub mod context;
pub mod contract;
pub mod edge_contract;
mod fan_out;
mod other_edges;
pub mod prompt;
pub mod relevance;
pub mod reply;
pub mod safety;
pub mod schema;
pub mod signature;
pub mod stream;
pub mod sw4rm;
pub mod unheld;
mod verdict;

use crate::contract::catalog::Catalog;
use crate::contract::enforce::CompiledContract;
pub use fan_out::{PassedBranch, PassedGroup};
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::credential::{self, CredentialForms, CredentialMatch, SecretPolicy};
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::json;
use handoffd_domain::message::{Address, Message};
use handoffd_domain::policy::{EdgePolicy, Orders, VersionClaims};
use handoffd_domain::residency::{Crossing, CrossingParty, ResidencyRules};
use handoffd_domain::roster::Roster;
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_domain::window::{BinaryPolicy, ContextFacts, ContextSettings};
pub use other_edges::OtherEdges;
use schema::older::{MessageForm, OlderForm};
use verdict::JudgedReport;
pub use verdict::{AllowlistViolation, GateVerdict, PassedMessage, RefusedMessage, UnreadMessage};

/// The span of one stage, for traces only; it names what the stage found, by a code.
macro_rules! stage {
    ($name:literal) => {
        tracing::debug_span!($name, error.type = Empty)
    };
}

/// Notes the primary code of the failures in the stage's span.
fn note(failures: &[Failure]) {
    if let Some(code) = primary(failures) {
        Span::current().record("error.type", code.as_str());
    }
}

fn noted<T>(result: Result<T, Vec<Failure>>) -> Result<T, Vec<Failure>> {
    result.inspect_err(|failures| note(failures))
}

/// The configuration of the gate, constant between messages: compiled schemas and rules.
#[derive(Clone)]
pub struct Gate {
    pub schemas: Arc<schema::Schemas>,
    pub scanner: safety::Scanner,
    /// Policies on safety findings.
    pub policies: safety::policy::Policies,
    /// Requirements on the contracts of edges.
    pub requirement: edge_contract::ContractRequirement,
    pub residency: ResidencyRules,
    /// Treatment of a message that claims another version of its sender than the registered one.
    pub versions: VersionClaims,
    /// Treatment of credentials in a message.
    pub credentials: SecretPolicy,
    /// The largest checkpoint, in bytes of canonical JSON.
    pub max_checkpoint: usize,
    /// Settings about the receiver's context window.
    pub context: ContextSettings,
}

/// The facts looked up for one message.
pub struct GateLookup<'a> {
    /// The tenant of the message.
    pub tenant: &'a TenantId,
    /// The time of the check, at which exceptions from rules may have ended.
    pub at: Micros,
    /// The agent of the API key; `None` for a person's key.
    pub caller: Option<&'a AgentId>,
    /// In a dry run, the agent that reads the message as its receiver; `caller` is then the sender.
    pub receiver: Option<&'a AgentId>,
    /// Agents of the tenant.
    pub roster: &'a Roster,
    /// Contracts of the tenant.
    pub contracts: &'a Catalog,
    /// Valid signing secrets of the caller.
    pub signing_secrets: &'a [&'a [u8]],
}

/// The pointer to the party of a crossing in a message.
const fn place(crossing: &Crossing) -> &'static str {
    match crossing.party {
        CrossingParty::Sender => "/fromAgent",
        CrossingParty::Receiver | CrossingParty::Classifier | CrossingParty::Model => "/toAgent",
    }
}

fn crossed(crossings: &[Crossing]) -> Vec<Warning> {
    crossings
        .iter()
        .map(|one| {
            let said = format!("{one}; the record says so");
            Warning::new(WarningCode::ResidencyCrossing, place(one), said)
        })
        .collect()
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Compiles schemas and rules; takes some milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let policies = safety::policy::Policies::default();
        Self::with(policies, edge_contract::ContractRequirement::default())
    }

    /// The same, with these policies about the findings of the safety rules, and about the contracts of
    /// edges.
    #[must_use]
    pub fn with(
        policies: safety::policy::Policies,
        requirement: edge_contract::ContractRequirement,
    ) -> Self {
        let scanner = safety::Scanner::builtin();
        Self {
            schemas: Arc::new(schema::Schemas::new()),
            scanner,
            policies,
            requirement,
            residency: ResidencyRules::default(),
            versions: VersionClaims::default(),
            credentials: SecretPolicy::default(),
            max_checkpoint: usize::MAX,
            context: ContextSettings::default(),
        }
    }

    /// Runs every stage after the key.
    #[must_use]
    pub fn run(&self, body: &[u8], lookup: &GateLookup<'_>) -> GateVerdict {
        let value = match stage!("gate.json").in_scope(|| json::parse(body)) {
            Ok(value) => value,
            Err(fault) if fault.is_malformed() => {
                return GateVerdict::Malformed(fault.into_failure());
            }
            Err(fault) => return RefusedMessage::early(vec![fault.into_failure()], None),
        };
        let Some(canonical) = CanonicalObject::from_value(&value) else {
            return RefusedMessage::early(
                vec![Failure::new(
                    Stage::Schema,
                    Code::SchemaInvalid,
                    "",
                    "a message is a JSON object",
                )],
                None,
            );
        };
        let required = lookup
            .caller
            .and_then(|id| lookup.roster.find(id))
            .is_some_and(|agent| agent.require_signature);
        let signed = stage!("gate.signature").in_scope(|| {
            let given = value.get(signature::FIELD);
            noted(
                signature::verify(&canonical, given, lookup.signing_secrets, required)
                    .map_err(|failure| vec![failure]),
            )
        });
        if let Err(failures) = signed {
            return RefusedMessage::early(failures, Some(&value));
        }
        let fits = stage!("gate.schema").in_scope(|| {
            // Only an escape can bring one: a message without it is not searched.
            let mut nuls = match memchr::memmem::find(body, b"\\u0000") {
                Some(_) => with_nul(&value),
                None => Vec::new(),
            };
            let fits = self.schemas.check(&value).map(|_| ());
            nuls.extend(fits.err().into_iter().flatten());
            noted(if nuls.is_empty() { Ok(()) } else { Err(nuls) })
        });
        if let Err(failures) = fits {
            return RefusedMessage::early(failures, Some(&value));
        }
        match Message::new(value, canonical) {
            Ok(message) => self.judge(message, lookup, false),
            Err(why) => RefusedMessage::early(
                vec![Failure::new(Stage::Schema, Code::SchemaInvalid, "", why)],
                None,
            ),
        }
    }

    /// Runs the stages from the schema on over a message that was kept: its sender's key and signature
    /// were checked when it came.
    #[must_use]
    pub fn again(&self, value: Value, lookup: &GateLookup<'_>) -> GateVerdict {
        let Some(canonical) = CanonicalObject::from_value(&value) else {
            let why = Failure::new(Stage::Schema, Code::SchemaInvalid, "", "not an object");
            return GateVerdict::Malformed(why);
        };
        if let Err(failures) = self.schemas.check(&value) {
            return RefusedMessage::early(failures, Some(&value));
        }
        match Message::new(value, canonical) {
            Ok(message) => self.judge(message, lookup, true),
            Err(why) => {
                GateVerdict::Malformed(Failure::new(Stage::Schema, Code::SchemaInvalid, "", why))
            }
        }
    }

    /// Judges a message that passed once more, beside earlier messages of its task: what repeats a tool's output in one
    /// of them is judged as a tool's output.
    #[must_use]
    pub fn beside_earlier(
        &self,
        mut passed: Box<PassedMessage>,
        (tenant, at): (&TenantId, Micros),
        earlier: &[Value],
    ) -> GateVerdict {
        let report =
            self.scanner.report_of(tenant, passed.message.value(), earlier, &mut |_, _| {});
        let case = safety::policy::PolicyContext {
            tenant,
            agent: &passed.message.envelope().from_agent.agent_id,
            to: Some(&passed.target.agent_id).filter(|_| passed.group.is_none()),
            at,
        };
        let said: Vec<_> = if let Some(group) = &passed.group {
            group.edges().into_iter().map(orders_on).collect()
        } else {
            let first = orders_on((Some(&*passed.target), passed.contract.as_deref()));
            let others = passed.others.rules.values();
            let others = others.map(|other| orders_of(Some(&other.edge), None));
            [first].into_iter().chain(others).collect()
        };
        let judged = self.on_report(&case, report, &said);
        let JudgedReport { findings, observed, marked } = judged;
        if findings.is_empty() {
            passed.warnings.retain(|warning| warning.code != WarningCode::OrderInData);
            passed.warnings.extend(unheld::orders(&marked));
            (passed.observed, passed.marked, passed.may_repeat) = (observed, marked, false);
            return GateVerdict::Pass(passed);
        }
        let failures = findings.iter().map(safety::to_failure).collect();
        let PassedMessage { message, target, contract, others, context, group, .. } = *passed;
        let refused = RefusedMessage::after_gate(message, target, contract, failures);
        let refused = RefusedMessage { others, findings, observed, context, group, ..refused };
        GateVerdict::Refused(Box::new(refused))
    }

    /// The effect of a scan's findings by the policies, the contracts and the receivers; of several the strictest.
    fn on_report(
        &self,
        case: &safety::policy::PolicyContext<'_>,
        report: safety::ScanReport,
        said: &[[Option<Orders>; 2]],
    ) -> JudgedReport {
        let (mut findings, observed) = self.policies.part(case, report.findings);
        let (refused, marked) = self.policies.part_marks(case, report.marks, said.iter().copied());
        findings.extend(refused);
        JudgedReport { findings, observed, marked }
    }

    /// The message in the form that its receiver takes, where that is an older one.
    fn older_form(&self, message: &Message, target: &Agent) -> Option<OlderForm> {
        match self.schemas.form_for(message.value(), target) {
            Ok(MessageForm::Older(older)) => Some(older),
            Ok(MessageForm::Original) | Err(_) => None,
        }
    }

    /// The message against its receiver's context window, as the receiver gets it.
    fn measured(
        &self,
        message: &Message,
        target: &Agent,
        contract: Option<&CompiledContract>,
        older: Option<&OlderForm>,
    ) -> (ContextFacts, Option<Failure>) {
        let rule = contract.map(|ready| &ready.policy().context);
        let older = older.and_then(|older| CanonicalObject::from_value(&older.message));
        let form = older.as_ref().unwrap_or_else(|| message.for_receiver(target.is_entitled()));
        context::assess(form, target, rule, &self.context)
    }

    /// The failure of a message whose checkpoint is larger than the limit. A stored message has passed it.
    fn oversized(&self, message: &Message) -> Option<Failure> {
        let size = message.checkpoint_size();
        (size > self.max_checkpoint).then(|| {
            let why =
                format!("the checkpoint has {size} bytes; {} are allowed", self.max_checkpoint);
            Failure::new(Stage::Schema, Code::SchemaInvalid, "/checkpoint", why)
        })
    }

    /// From identity on all stages run, and all failures are reported.
    #[expect(
        clippy::too_many_lines,
        reason = "one stage after another, in the order of the specification"
    )]
    fn judge(&self, message: Message, lookup: &GateLookup<'_>, again: bool) -> GateVerdict {
        if message.fan_out().is_some() && lookup.receiver.is_none() {
            return self.judge_all(message, lookup, again);
        }
        let envelope = message.envelope();
        let sender = &envelope.from_agent.agent_id;
        let mut failures = Vec::new();
        if !again {
            failures.extend(self.oversized(&message));
        }
        let mut warnings = Vec::new();
        self.identity(&message, lookup, &mut failures, &mut warnings);
        let found = stage!("gate.address").in_scope(|| self.route(&message, lookup, &mut failures));
        let (found, ruled) = stage!("gate.contract").in_scope(|| {
            let (found, ruled) =
                self.best_ruled(&message, &envelope.to_agent, lookup, found, again);
            note(&ruled.failures);
            (found, ruled)
        });
        failures.extend(found.failures);
        let source = lookup.roster.find(sender);
        let crossings = self.residency.crossings(source, found.target.as_deref());
        failures.extend(crossings.iter().filter(|one| self.residency.refuses(one)).map(|one| {
            Failure::new(Stage::Route, Code::Forbidden, place(one), format!("{one}: refused"))
        }));
        let to_itself = found.target.as_ref().is_some_and(|target| target.agent_id == *sender);
        let receiver = found.target.as_deref().filter(|_| !to_itself);
        let others = source
            .zip(receiver)
            .map(|edge| self.other_edges(&message, lookup, edge, ruled.ruling.as_deref(), again))
            .unwrap_or_default();
        failures.extend(ruled.failures.into_iter().map(|mut one| {
            if let Some(place) = found.preferred.filter(|_| one.pointer == "/toAgent") {
                one.pointer = format!("/preferredAgents/{place}");
            }
            one
        }));
        failures.extend(others.failures);
        warnings.extend(others.warnings);
        failures.extend(stage!("gate.completeness").in_scope(|| {
            let required = found.target.as_ref().map_or(&[][..], |agent| &agent.required_state);
            let found = completeness::check(message.value(), required);
            note(&found);
            found
        }));
        failures.extend(stage!("gate.budget").in_scope(|| {
            let found = budget::check(message.value());
            note(&found);
            found
        }));
        let (target, contract) = (found.target.as_deref(), ruled.ruling.as_deref());
        let mut edges = vec![(target, contract)];
        edges.extend(others.contracts.iter().map(|ready| (None, Some(&**ready))));
        let scanned =
            stage!("gate.safety").in_scope(|| self.scan(&message, lookup, target, &edges));
        failures.extend_from_slice(&scanned.failures);
        self.credentials_and_binary(&scanned, &mut failures, &mut warnings);
        failures.extend(stream::opening(&message, to_itself, target, contract));
        let measured = found.target.as_deref().and_then(|target| {
            let older = self.older_form(&message, target);
            let facts = (!to_itself).then(|| {
                let contract = ruled.ruling.as_deref();
                let (facts, failure) = stage!("gate.context")
                    .in_scope(|| self.measured(&message, target, contract, older.as_ref()));
                let facts = stream::measured(message.value(), facts);
                warnings.extend(context::over_limit(
                    message.value(),
                    &facts,
                    self.context.keep_turns,
                ));
                failures.extend(failure);
                facts
            });
            warnings.extend(unheld::warnings(message.value()));
            warnings.extend(older.map(|older| unheld::downgraded(target, &older)));
            facts
        });
        match found.target {
            Some(target) if failures.is_empty() => GateVerdict::Pass(Box::new(PassedMessage {
                warnings: [
                    warnings,
                    ruled.warnings,
                    crossed(&crossings),
                    unheld::orders(&scanned.judged.marked),
                ]
                .concat(),
                context: measured,
                residency: ResidencyRules::facts(crossings),
                message,
                target,
                to_itself,
                group: None,
                contract: ruled.ruling,
                others: others.others,
                observed: scanned.judged.observed,
                marked: scanned.judged.marked,
                may_repeat: scanned.may_repeat,
            })),
            target => GateVerdict::Refused(Box::new(RefusedMessage {
                ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
                unread: UnreadMessage::default(),
                failures,
                message: Some(message),
                target,
                contract: ruled.ruling,
                others: others.others,
                findings: scanned.judged.findings,
                observed: scanned.judged.observed,
                allowlist: found.violation,
                context: measured,
                group: None,
            })),
        }
    }

    /// The caller's and the sender's identity: the key is the sender's own, and so is the version that it claims.
    fn identity(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        failures: &mut Vec<Failure>,
        warnings: &mut Vec<Warning>,
    ) {
        let sender = &message.envelope().from_agent;
        if lookup.caller != Some(&sender.agent_id) {
            failures.push(foreign_key());
        }
        let source = lookup.roster.find(&sender.agent_id);
        match source.map(|source| claims::check(sender, source, self.versions)) {
            Some(claims::VersionClaimCheck::Differs(warning)) => warnings.push(warning),
            Some(claims::VersionClaimCheck::Refused(failure)) => failures.push(failure),
            Some(claims::VersionClaimCheck::Fits) | None => {}
        }
    }

    /// The allowlist and the route. In a receiver's dry run `failures` gets the refusal of an agent that the message
    /// does not name.
    fn route(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        failures: &mut Vec<Failure>,
    ) -> address::ResolvedReceiver {
        let envelope = message.envelope();
        let sender = &envelope.from_agent.agent_id;
        let mut to = Cow::Borrowed(&envelope.to_agent);
        if let Some(agent) = lookup.receiver.and_then(|id| lookup.roster.find(id)) {
            let listed = message.fan_out().map_or(&[][..], |list| &list.receivers);
            if let Some(own) = listed.iter().find(|to| address::names(to, &[], agent)) {
                to = Cow::Borrowed(own);
            }
            if !address::names(&to, &envelope.preferred_agents, agent) {
                failures.push(foreign_key());
            } else if !address::names(&to, &[], agent) {
                // It gets the message when those addressed do not take it, along an edge of its own.
                to = Cow::Owned(Address {
                    agent_id: Some(agent.agent_id.clone()),
                    agent_type: None,
                    agent_version: None,
                    capability: None,
                });
            } else if to.agent_id.is_none() {
                // Another of its type may be routed to; what counts is whether it could take the message itself.
                to.to_mut().agent_id = Some(agent.agent_id.clone());
            }
        }
        let readers = address::ReceiverForms::new(&self.schemas, message.value());
        let found = match lookup.roster.find(sender) {
            Some(source) => address::or_preferred(
                address::resolve(
                    source,
                    &to,
                    &envelope.capabilities_required,
                    lookup.roster,
                    &readers,
                    lookup.receiver,
                ),
                source,
                &envelope.preferred_agents,
                &envelope.capabilities_required,
                lookup.roster,
                &readers,
            ),
            // An unregistered agent has no allowlist.
            None => address::ResolvedReceiver::stranger(sender, &envelope.to_agent),
        };
        note(&found.failures);
        found
    }

    /// The receiver with the contract of its edge. If several agents could take the message by its address, and the contract of
    /// the best one refuses it, the best agent whose edge takes it.
    fn best_ruled(
        &self,
        message: &Message,
        to: &Address,
        lookup: &GateLookup<'_>,
        mut found: address::ResolvedReceiver,
        again: bool,
    ) -> (address::ResolvedReceiver, edge_contract::ContractCheck) {
        let envelope = message.envelope();
        let source = lookup.roster.find(&envelope.from_agent.agent_id);
        let target = found.target.as_deref();
        let edge = source.zip(target).filter(|(from, to)| from.agent_id != to.agent_id);
        let ruled = self.ruled(message, lookup, edge, again);
        let Some((source, best)) = edge.filter(|_| {
            !ruled.failures.is_empty()
                && lookup.receiver.is_none()
                && found.preferred.is_none()
                && to.agent_id.is_none()
        }) else {
            return (found, ruled);
        };
        let readers = address::ReceiverForms::new(&self.schemas, message.value());
        let required = &envelope.capabilities_required;
        let others = address::others(source, to, required, lookup.roster, &readers, &best.agent_id);
        for other in others {
            let crossings = self.residency.crossings(Some(source), Some(&other));
            if crossings.iter().any(|one| self.residency.refuses(one)) {
                continue;
            }
            let of_other = self.ruled(message, lookup, Some((source, &other)), again);
            if of_other.failures.is_empty() {
                found.target = Some(other);
                return (found, of_other);
            }
        }
        (found, ruled)
    }

    /// The contract of the edge; without sender or receiver, or of an agent to itself, there is none.
    fn ruled(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        edge: Option<(&Agent, &Agent)>,
        again: bool,
    ) -> edge_contract::ContractCheck {
        let Some((source, target)) = edge else { return edge_contract::ContractCheck::default() };
        let (tenant, at) = (lookup.tenant, lookup.at);
        let terms = self.requirement.terms(tenant, &source.agent_id, &target.agent_id, at, again);
        edge_contract::check(message, source, target, lookup.contracts, terms)
    }

    /// The effect of credentials and of embedded binary data.
    fn credentials_and_binary(
        &self,
        scanned: &ScannedMessage,
        failures: &mut Vec<Failure>,
        warnings: &mut Vec<Warning>,
    ) {
        match self.credentials {
            SecretPolicy::Refuse => {
                failures.extend(scanned.credentials.iter().map(unheld::refused_credential));
            }
            kept => {
                warnings
                    .extend(scanned.credentials.iter().map(|one| unheld::credential(one, kept)));
            }
        }
        let embedded = scanned.embedded.iter();
        match self.context.binary {
            BinaryPolicy::Refuse => {
                failures.extend(embedded.map(|(at, kind)| context::embedded_failure(at, kind)));
            }
            BinaryPolicy::Warn => {
                warnings.extend(embedded.map(|(at, kind)| context::embedded_warning(at, kind)));
            }
        }
    }

    /// Scans every text once, for unsafe instructions and for credentials. `alone` is the one receiver, where there
    /// is one: an exception for one receiver is none for all of several.
    fn scan(
        &self,
        message: &Message,
        lookup: &GateLookup<'_>,
        alone: Option<&Agent>,
        edges: &[ScannedEdge<'_>],
    ) -> ScannedMessage {
        let case = safety::policy::PolicyContext {
            tenant: lookup.tenant,
            agent: &message.envelope().from_agent.agent_id,
            to: alone.map(|target| &target.agent_id),
            at: lookup.at,
        };
        let (mut credentials, mut embedded) = (Vec::new(), Vec::new());
        let report =
            self.scanner.report_of(lookup.tenant, message.value(), &[], &mut |place, text| {
                let found = CredentialForms::builtin().find(text, place.member(text));
                credential::note(&mut credentials, || place.holder(text), &found);
                if let Some(kind) = context::embedded::find(text) {
                    embedded.push((place.holder(text), kind));
                }
            });
        embedded.retain(|(pointer, _)| !context::is_apart(pointer));
        let may_repeat = report.open;
        let said: Vec<_> = edges.iter().copied().map(orders_on).collect();
        let judged = self.on_report(&case, report, &said);
        let failures: Vec<_> = judged.findings.iter().map(safety::to_failure).collect();
        note(&failures);
        ScannedMessage { failures, judged, may_repeat, credentials, embedded }
    }
}

/// A receiver and the contract of its edge, as far as they are known.
type ScannedEdge<'a> = (Option<&'a Agent>, Option<&'a CompiledContract>);

/// The result of the safety stage.
struct ScannedMessage {
    /// A failure for each finding that refuses.
    failures: Vec<Failure>,
    judged: JudgedReport,
    /// Whether a text may repeat a tool's output of an earlier message.
    may_repeat: bool,
    /// Texts in the form of a credential.
    credentials: Vec<CredentialMatch>,
    /// Binary data as text, with its pointer.
    embedded: Vec<(String, &'static str)>,
}

/// The settings of contract and receiver for orders inside data.
fn orders_on((target, contract): ScannedEdge<'_>) -> [Option<Orders>; 2] {
    orders_of(contract.map(CompiledContract::policy), target)
}

fn orders_of(edge: Option<&EdgePolicy>, target: Option<&Agent>) -> [Option<Orders>; 2] {
    [edge.and_then(|edge| edge.orders), target.and_then(|target| target.orders)]
}

/// Most texts with a NUL that are named.
const MAX_NULS: usize = 32;

/// A failure for each text with a NUL.
#[must_use]
pub fn with_nul(value: &Value) -> Vec<Failure> {
    let failure = |pointer| {
        let why = "The text has the character U+0000, which no database keeps: leave it out.";
        Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, why)
    };
    json::nuls(value, MAX_NULS).into_iter().map(failure).collect()
}

/// The failure of a caller whose key is another agent's.
fn foreign_key() -> Failure {
    Failure::new(
        Stage::Identity,
        Code::Forbidden,
        "/fromAgent/agentId",
        "the key that was used is not this agent's",
    )
}

#[cfg(test)]
mod agreement;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_checkpoint_above_the_limit_is_refused_beside_all_else() {
        let text = include_str!("../../../tests/vectors/messages/initial.json");
        let mut message: Value = serde_json::from_str(text).unwrap();
        message["checkpoint"] = serde_json::json!({ "a": "12345678" });
        let sender: AgentId = message["fromAgent"]["agentId"].as_str().unwrap().parse().unwrap();
        let (roster, contracts) = (Roster::new(Vec::new(), &HashMap::new()), Catalog::default());
        let tenant = "t".parse().unwrap();
        let lookup = GateLookup {
            tenant: &tenant,
            at: Micros(0),
            caller: Some(&sender),
            receiver: None,
            roster: &roster,
            contracts: &contracts,
            signing_secrets: &[],
        };
        let pointers = |max_checkpoint| {
            let gate = Gate { max_checkpoint, ..Gate::new() };
            let GateVerdict::Refused(refused) = gate.run(message.to_string().as_bytes(), &lookup)
            else {
                panic!("no agent is registered");
            };
            refused.failures.into_iter().map(|one| one.pointer).collect::<Vec<_>>()
        };
        let within = pointers(16);
        assert!(!within.is_empty() && !within.contains(&"/checkpoint".to_owned()));
        assert_eq!(pointers(15), [vec!["/checkpoint".to_owned()], within].concat());
    }
}
