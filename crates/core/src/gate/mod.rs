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
pub mod contract;
pub mod json;
pub mod safety;
pub mod schema;
pub mod signature;
pub mod unheld;

use crate::contract::catalog::Catalog;
use crate::contract::enforce::CompiledContract;
use crate::domain::agent::Agent;
use crate::domain::canonical::CanonicalObject;
use crate::domain::credential::{self, CredentialForms, SecretPolicy};
use crate::domain::failure::{Code, Failure, Stage, primary};
use crate::domain::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::message::Message;
use crate::domain::policy::VersionClaims;
use crate::domain::residency::{Crossing, CrossingParty, Residency, ResidencyFacts};
use crate::domain::roster::Roster;
use crate::domain::warning::{Warning, WarningCode};
use schema::older::MessageForm;

/// The span of one stage, for traces only; it names what the stage found, by a code.
macro_rules! stage {
    ($name:literal) => {
        tracing::debug_span!($name, error.type = Empty)
    };
}

/// Notes the code of what was found in the stage's span.
fn note(failures: &[Failure]) {
    if let Some(code) = primary(failures) {
        Span::current().record("error.type", code.as_str());
    }
}

fn noted<T>(result: Result<T, Vec<Failure>>) -> Result<T, Vec<Failure>> {
    result.inspect_err(|failures| note(failures))
}

/// The configuration of the gate, constant between messages: compiled schemas and rules.
pub struct Gate {
    /// Compiled message schemas.
    pub schemas: Arc<schema::Schemas>,
    /// Compiled safety rules.
    pub scanner: safety::Scanner,
    /// Policies on safety findings.
    pub policies: safety::policy::Policies,
    /// Requirements on the contracts of edges.
    pub requirement: contract::ContractRequirement,
    /// Region rules.
    pub residency: Residency,
    /// Treatment of a message that claims another version of its sender than the registered one.
    pub versions: VersionClaims,
    /// SecretPolicy of credentials in a message.
    pub credentials: SecretPolicy,
    /// The largest checkpoint, in bytes of canonical JSON.
    pub max_checkpoint: usize,
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

/// The gate's decision.
pub enum GateVerdict {
    /// The message is accepted.
    Pass(Box<PassedMessage>),
    /// The body is not valid JSON.
    Malformed(Failure),
    /// The message is refused.
    Refused(Box<RefusedMessage>),
}

/// An accepted message.
pub struct PassedMessage {
    /// The parsed message.
    pub message: Message,
    /// The receiving agent.
    pub target: Arc<Agent>,
    /// Whether the sender is the receiver.
    pub to_itself: bool,
    /// The contract that rules the edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// Safety findings that are recorded only.
    pub observed: Vec<safety::SafetyFinding>,
    /// Fields that the broker accepts without full effect.
    pub warnings: Vec<Warning>,
    /// The regions between which the data moves.
    pub residency: Option<ResidencyFacts>,
}

/// A refused message.
pub struct RefusedMessage {
    /// All failures, in stage order.
    pub failures: Vec<Failure>,
    /// The message, where the schema stage passed.
    pub message: Option<Message>,
    /// The receiver, where the route was resolved.
    pub target: Option<Arc<Agent>>,
    /// The contract that rules the edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// Safety findings that refuse.
    pub findings: Vec<safety::SafetyFinding>,
    /// Safety findings that are recorded only.
    pub observed: Vec<safety::SafetyFinding>,
    /// Details of an allowlist refusal, for the log.
    pub allowlist: Option<AllowlistViolation>,
    /// `taskId` and `handoffId`, where readable although the schema stage failed.
    pub ids: (Option<TaskId>, Option<HandoffId>),
    /// The readable fields, where the schema stage failed.
    pub unread: UnreadMessage,
}

/// The fields of a message that are readable although the schema stage failed, as far as the refusal counts them.
#[derive(Debug, Clone, Default)]
pub struct UnreadMessage {
    /// `fromAgent.agentId`.
    pub from: Option<AgentId>,
    /// `fromAgent.executionId`.
    pub run: Option<ExecutionId>,
    /// As addressed: an agent's id, `type:<agentType>` or `capability:<name>`.
    pub to: String,
    /// `checkpoint`.
    pub checkpoint: Option<Value>,
}

impl UnreadMessage {
    fn of(value: &Value) -> Self {
        let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
        // As long as an id may be, and free of what no store takes.
        let short = |text: &str| text.chars().filter(|c| !c.is_control()).take(128).collect();
        let named = |kind: &str, pointer| Some(short(&format!("{kind}:{}", text(pointer)?)));
        Self {
            from: text("/fromAgent/agentId").and_then(|id| id.parse().ok()),
            run: text("/fromAgent/executionId").and_then(|id| id.parse().ok()),
            to: text("/toAgent/agentId")
                .map(short)
                .or_else(|| named("type", "/toAgent/agentType"))
                .or_else(|| named("capability", "/toAgent/capability"))
                .unwrap_or_default(),
            checkpoint: value.get("checkpoint").filter(|kept| kept.is_object()).cloned(),
        }
    }
}

/// A handoff to a target outside of the sender's allowlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowlistViolation {
    /// The sending agent.
    pub source: AgentId,
    /// The target as addressed.
    pub target: String,
    /// Number of entries of the sender's allowlist.
    pub allowlist_size: usize,
}

impl RefusedMessage {
    fn early(failures: Vec<Failure>, value: Option<&Value>) -> GateVerdict {
        let ids = value.map_or((None, None), |value| {
            let text = |name| value.get(name).and_then(Value::as_str);
            (
                text("taskId").and_then(|id| id.parse().ok()),
                text("handoffId").and_then(|id| id.parse().ok()),
            )
        });
        GateVerdict::Refused(Box::new(Self {
            ids,
            unread: value.map(UnreadMessage::of).unwrap_or_default(),
            failures,
            message: None,
            target: None,
            contract: None,
            findings: Vec::new(),
            observed: Vec::new(),
            allowlist: None,
        }))
    }

    /// Refuses a message that passed the gate.
    #[must_use]
    pub fn after_gate(
        message: Message,
        target: Arc<Agent>,
        contract: Option<Arc<CompiledContract>>,
        failures: Vec<Failure>,
    ) -> Self {
        let envelope = message.envelope();
        Self {
            ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
            unread: UnreadMessage::default(),
            failures,
            message: Some(message),
            target: Some(target),
            contract,
            findings: Vec::new(),
            observed: Vec::new(),
            allowlist: None,
        }
    }

    /// Refuses an accepted message on the finding of an external classifier.
    #[must_use]
    pub fn unsafe_text(
        passed: PassedMessage,
        finding: safety::SafetyFinding,
        failure: Failure,
    ) -> Self {
        let PassedMessage { message, target, contract, observed, .. } = passed;
        let refused = Self::after_gate(message, target, contract, vec![failure]);
        Self { findings: vec![finding], observed, ..refused }
    }

    /// The primary reason (specification §2.2).
    #[must_use]
    pub fn reason(&self) -> Code {
        primary(&self.failures).unwrap_or(Code::Internal)
    }
}

/// Where a message names the party of a crossing.
const fn place(crossing: &Crossing) -> &'static str {
    match crossing.party {
        CrossingParty::Sender => "/fromAgent",
        CrossingParty::Receiver => "/toAgent",
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
        Self::with(policies, contract::ContractRequirement::default())
    }

    /// The same, with these policies about the findings of the safety rules, and about the contracts of
    /// edges.
    #[must_use]
    pub fn with(
        policies: safety::policy::Policies,
        requirement: contract::ContractRequirement,
    ) -> Self {
        let scanner = safety::Scanner::builtin();
        Self {
            schemas: Arc::new(schema::Schemas::new()),
            scanner,
            policies,
            requirement,
            residency: Residency::default(),
            versions: VersionClaims::default(),
            credentials: SecretPolicy::default(),
            max_checkpoint: usize::MAX,
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
        let fits = stage!("gate.schema").in_scope(|| noted(self.schemas.check(&value)));
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

    /// What of a message that passed does not hold in full.
    fn warnings(&self, message: &Message, target: &Agent) -> Vec<Warning> {
        let mut warnings = unheld::warnings(message.value());
        if let Ok(MessageForm::Older(older)) = self.schemas.form_for(message.value(), target) {
            warnings.push(unheld::downgraded(target, &older));
        }
        warnings
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
    fn judge(&self, message: Message, lookup: &GateLookup<'_>, again: bool) -> GateVerdict {
        let envelope = message.envelope();
        let sender = &envelope.from_agent.agent_id;
        let mut failures = Vec::new();
        if !again {
            failures.extend(self.oversized(&message));
        }
        if lookup.caller != Some(sender) {
            failures.push(Failure::new(
                Stage::Identity,
                Code::Forbidden,
                "/fromAgent/agentId",
                "the key that was used is not this agent's",
            ));
        }
        let mut warnings = Vec::new();
        let claim = lookup
            .roster
            .find(sender)
            .map(|source| claims::check(&envelope.from_agent, source, self.versions));
        match claim {
            Some(claims::VersionClaimCheck::Differs(warning)) => warnings.push(warning),
            Some(claims::VersionClaimCheck::Refused(failure)) => failures.push(failure),
            Some(claims::VersionClaimCheck::Fits) | None => {}
        }
        let on_address = stage!("gate.address").entered();
        let readers = address::ReceiverForms::new(&self.schemas, message.value());
        let asking = lookup.receiver.and_then(|id| lookup.roster.find(id));
        let mut to = Cow::Borrowed(&envelope.to_agent);
        if let Some(agent) = asking {
            if !address::names(&envelope.to_agent, &envelope.preferred_agents, agent) {
                failures.push(Failure::new(
                    Stage::Identity,
                    Code::Forbidden,
                    "/fromAgent/agentId",
                    "the key that was used is not this agent's",
                ));
            } else if to.agent_id.is_none() {
                // Another of its type may be routed to; what counts is whether it could take the message itself.
                to.to_mut().agent_id = Some(agent.agent_id.clone());
            }
        }
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
            // Whoever is not registered has no allowlist.
            None => address::ResolvedReceiver::stranger(sender, &envelope.to_agent),
        };
        drop(readers);
        note(&found.failures);
        drop(on_address);
        failures.extend(found.failures);
        let crossings =
            self.residency.crossings(lookup.roster.find(sender), found.target.as_deref());
        failures.extend(crossings.iter().filter(|one| self.residency.refuses(one)).map(|one| {
            Failure::new(Stage::Route, Code::Forbidden, place(one), format!("{one}: refused"))
        }));
        let to_itself = found.target.as_ref().is_some_and(|target| target.agent_id == *sender);
        let on_contract = stage!("gate.contract").entered();
        let ruled = match (lookup.roster.find(sender), &found.target) {
            (Some(source), Some(target)) if !to_itself => {
                let (tenant, at) = (lookup.tenant, lookup.at);
                let terms = self.requirement.terms(tenant, sender, &target.agent_id, at, again);
                contract::check(&message, source, target, lookup.contracts, terms)
            }
            _ => contract::ContractCheck::default(),
        };
        note(&ruled.failures);
        drop(on_contract);
        failures.extend(ruled.failures);
        let required_state = found.target.as_ref().map_or(&[][..], |agent| &agent.required_state);
        failures.extend(stage!("gate.completeness").in_scope(|| {
            let found = completeness::check(message.value(), required_state);
            note(&found);
            found
        }));
        failures.extend(stage!("gate.budget").in_scope(|| {
            let found: Vec<_> = budget::check(message.value()).into_iter().collect();
            note(&found);
            found
        }));
        let case = safety::policy::PolicyContext {
            tenant: lookup.tenant,
            agent: sender,
            to: found.target.as_ref().map(|target| &target.agent_id),
            at: lookup.at,
        };
        let on_safety = stage!("gate.safety").entered();
        let mut sightings = Vec::new();
        let found_rules = self.scanner.scan_beside(message.value(), &mut |place, text| {
            let found = CredentialForms::builtin().find(text, place.member(text));
            credential::note(&mut sightings, || place.holder(text), &found);
        });
        let (findings, observed) = self.policies.part(&case, found_rules);
        let unsafe_texts: Vec<_> = findings.iter().map(safety::to_failure).collect();
        note(&unsafe_texts);
        drop(on_safety);
        failures.extend(unsafe_texts);
        match self.credentials {
            SecretPolicy::Refuse => {
                failures.extend(sightings.iter().map(unheld::refused_credential));
            }
            kept => warnings.extend(sightings.iter().map(|one| unheld::credential(one, kept))),
        }
        match found.target {
            Some(target) if failures.is_empty() => GateVerdict::Pass(Box::new(PassedMessage {
                warnings: [
                    warnings,
                    self.warnings(&message, &target),
                    ruled.warnings,
                    crossed(&crossings),
                ]
                .concat(),
                residency: Residency::facts(crossings),
                message,
                target,
                to_itself,
                contract: ruled.ruling,
                observed,
            })),
            target => GateVerdict::Refused(Box::new(RefusedMessage {
                ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
                unread: UnreadMessage::default(),
                failures,
                message: Some(message),
                target,
                contract: ruled.ruling,
                findings,
                observed,
                allowlist: found.violation,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_checkpoint_above_the_limit_is_refused_beside_all_else() {
        let text = include_str!("../../../../tests/vectors/messages/initial.json");
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
