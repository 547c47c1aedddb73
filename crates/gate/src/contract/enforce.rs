//! A contract made ready for the gate, and what it says of a message (specification §2.2 stage 7).

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::document::Document;
use super::history::{CarriedHistory, HistoryLimits};
use super::level::Level;
use super::predicate::{Facts, Predicate};
use super::schema::{self, PayloadSchema, SchemaVerdict, TOO_COSTLY};
use super::{Contract, lint, payload};
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::Micros;
use handoffd_domain::policy::{EdgePolicy, LoopGuard};
use handoffd_domain::stream;
use handoffd_domain::trace_context::TraceParent;
use handoffd_domain::warning::{Warning, WarningCode};

/// Largest number of reported payload errors.
const MAX_FAULTS: usize = 20;

/// A contract with its compiled rules. Predicates and schema are compiled once, at the first use.
pub struct CompiledContract {
    contract: Contract,
    policy: EdgePolicy,
    doc: String,
    sha256: String,
    created_at: Micros,
    trigger: OnceLock<Option<Predicate>>,
    domain: OnceLock<Option<Predicate>>,
    schema: OnceLock<Option<PayloadValidator>>,
    level: OnceLock<Option<Level>>,
    /// Whether a message must say where its content comes from.
    sourced: OnceLock<bool>,
}

/// A payload schema that was compiled.
struct PayloadValidator {
    schema: PayloadSchema,
    names: Vec<String>,
}

impl std::fmt::Debug for CompiledContract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledContract").field("contract", &self.contract).finish_non_exhaustive()
    }
}

/// The sending and the receiving agent of a message.
#[derive(Debug, Clone, Copy)]
pub struct HandoffEdge<'a> {
    pub source: &'a Agent,
    pub target: &'a Agent,
}

impl CompiledContract {
    /// Makes a contract ready: with its canonical document, the document's SHA-256 in hexadecimal, and
    /// when it was put.
    #[must_use]
    pub fn new(contract: Contract, doc: String, sha256: String, created_at: Micros) -> Self {
        let policy = contract.policy();
        Self {
            contract,
            policy,
            doc,
            sha256,
            created_at,
            trigger: OnceLock::new(),
            domain: OnceLock::new(),
            schema: OnceLock::new(),
            level: OnceLock::new(),
            sourced: OnceLock::new(),
        }
    }

    /// The level that it reaches by itself: rules that need a registry do not count against it. Graded
    /// at the first use, once.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        *self.level.get_or_init(|| {
            let value = serde_json::from_str(&self.doc).ok()?;
            lint::level_of(&self.contract, Document::from_value(value))
        })
    }

    /// The contract's parsed document.
    #[must_use]
    pub const fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The rules for its edge.
    #[must_use]
    pub const fn policy(&self) -> &EdgePolicy {
        &self.policy
    }

    #[must_use]
    pub fn doc(&self) -> &str {
        &self.doc
    }

    /// Creation time, by the clock of the broker that stored the contract.
    #[must_use]
    pub const fn created_at(&self) -> Micros {
        self.created_at
    }

    /// SHA-256 of its document, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Everything in which a message breaks the contract, each naming its clause.
    #[must_use]
    pub fn check(&self, message: &Value, edge: HandoffEdge<'_>) -> Vec<Failure> {
        let mut failures = Vec::new();
        let source = facts_of(edge.source);
        let target = facts_of(edge.target);
        self.predicates(message, &source, &target, &mut failures);
        self.permission(edge.target, &mut failures);
        self.whole(message, &mut failures);
        self.history(message, &mut failures);
        self.visited(message, edge.target, &mut failures);
        failures
    }

    /// Everything in which a message breaks the clauses that a record and its content can tell of:
    /// required fields, payload schema, history strategy, and the predicates that read of the agents only
    /// what the record holds of them. How many predicates were not asked, because they read more.
    #[must_use]
    pub fn replay(&self, message: &Value, source: &Value, target: &Value) -> (Vec<Failure>, u64) {
        let mut failures = Vec::new();
        let mut unasked = 0;
        for clause in self.predicate_clauses() {
            let Some(predicate) = clause.compiled() else { continue };
            let told = |root: &str, facts: &Value| {
                predicate.reads_of(root).iter().all(|name| facts.get(name).is_some())
            };
            if told("source", source) && told("target", target) {
                self.predicate(&clause, message, source, target, &mut failures);
            } else {
                unasked += 1;
            }
        }
        // No record has the target's permissions, so the check counts as not made.
        unasked += u64::from(self.contract.acceptance.permission_check.is_some());
        self.whole(message, &mut failures);
        self.history(message, &mut failures);
        (failures, unasked)
    }

    /// Parts of the contract that do not hold in full for a message that passes.
    #[must_use]
    pub fn warnings(&self, message: &Value) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let clause = |clause: &str, why: &str| {
            format!("Contract {}, clause `{clause}`: {why}", self.contract)
        };
        if let Some(key) = self.policy.dedupe.as_ref()
            && payload::find(message, &key.name).is_none()
        {
            let why =
                format!("`{}` is missing or null: no repeat of this handoff is dropped", key.name);
            warnings.push(Warning::new(
                WarningCode::DedupeKeyAbsent,
                key.pointer.clone(),
                clause("idempotency.dedupe_key", &why),
            ));
        }
        let observed = self.contract.observability.as_ref();
        if let Some(field) = observed.and_then(|observed| observed.trace_id_field.as_ref())
            && self.trace_id(message).is_none()
        {
            let why = format!(
                "`{field}` has no trace id: the trace of the request or of `traceparent` goes on"
            );
            warnings.push(Warning::new(
                WarningCode::TraceIdAbsent,
                payload::pointer_of(field),
                clause("observability.trace_id_field", &why),
            ));
        }
        if self.contract.payload.schema.is_some()
            && self.contract.local_schema().is_none()
            && self.contract.registered_schema().is_none()
        {
            let why = "the schema is not at hand and was not held";
            warnings.push(Warning::new(
                WarningCode::ClauseNotEnforced,
                "",
                clause("payload.schema", why),
            ));
        }
        warnings
    }

    /// The trace id that a message carries in the contract's field: 32 hexadecimal digits, a UUID, or a
    /// whole `traceparent`.
    #[must_use]
    pub fn trace_id(&self, message: &Value) -> Option<TraceField> {
        let field = self.contract.observability.as_ref()?.trace_id_field.as_ref()?;
        let (_, found) = payload::find(message, field)?;
        let text = found.as_str()?;
        if let Some(whole) = TraceParent::parse(text) {
            return Some(TraceField::Parent(whole));
        }
        let digits = text.replace('-', "").to_ascii_lowercase();
        let mut id = [0; 16];
        hex::decode_to_slice(&digits, &mut id).ok()?;
        (id != [0; 16]).then_some(TraceField::Id(id))
    }

    /// The clauses that a whole message is held to. Of one that opens a stream the rest may follow in chunks: the close
    /// asks for it (specification §10.5).
    fn whole(&self, message: &Value, failures: &mut Vec<Failure>) {
        if !stream::opens(message) {
            self.required(message, failures);
            self.payload(message, failures);
        }
    }

    fn violation(&self, clause: &str, pointer: impl Into<String>, why: &str) -> Failure {
        Failure::new(
            Stage::Contract,
            Code::ContractViolation,
            pointer,
            format!("Contract {}, clause `{clause}`: {why}", self.contract),
        )
        .of_rule(clause)
    }

    fn predicates(
        &self,
        message: &Value,
        source: &Value,
        target: &Value,
        failures: &mut Vec<Failure>,
    ) {
        for clause in self.predicate_clauses() {
            self.predicate(&clause, message, source, target, failures);
        }
    }

    fn predicate_clauses(&self) -> impl Iterator<Item = PredicateClause<'_>> {
        let acceptance = &self.contract.acceptance;
        let clauses = [
            ("trigger.predicate", &self.trigger, &self.contract.trigger.predicate, "/currentState"),
            (
                "acceptance_criteria.domain_match",
                &self.domain,
                &acceptance.domain_match,
                "/toAgent",
            ),
        ];
        clauses.into_iter().filter_map(|(name, once, text, pointer)| {
            Some(PredicateClause { name, once, text: text.as_deref()?, pointer })
        })
    }

    fn predicate(
        &self,
        clause: &PredicateClause<'_>,
        message: &Value,
        source: &Value,
        target: &Value,
        failures: &mut Vec<Failure>,
    ) {
        let PredicateClause { name, text, pointer, .. } = *clause;
        let Some(predicate) = clause.compiled() else {
            failures.push(self.violation(name, "", "the predicate cannot be read"));
            return;
        };
        let (view, _) = payload::view(message, &predicate.reads_of("payload"), None);
        let answer = predicate.holds(&Facts {
            state: message.get("currentState").unwrap_or(&Value::Null),
            payload: &view,
            message,
            source,
            target,
        });
        let why = match answer {
            Ok(true) => return,
            Ok(false) => format!("`{text}` does not hold"),
            Err(why) => format!("`{text}` cannot be answered: {why}"),
        };
        failures.push(self.violation(name, pointer, &why));
    }

    fn required(&self, message: &Value, failures: &mut Vec<Failure>) {
        let lists = [
            ("acceptance_criteria.required_fields", &self.contract.acceptance.required_fields),
            ("payload.required", &self.contract.payload.required),
        ];
        let mut told: Vec<&str> = Vec::new();
        for (clause, names) in lists {
            for name in names.iter().flatten() {
                if payload::find(message, name).is_none() && !told.contains(&name.as_str()) {
                    told.push(name);
                    failures.push(self.violation(
                        clause,
                        payload::pointer_of(name),
                        &format!("`{name}` is missing or null"),
                    ));
                }
            }
        }
        self.provenance(message, failures);
    }

    /// Provenance is what upstream decisions can be reconstructed from: ids of messages, or a pointer
    /// into a trajectory (§3.4).
    fn provenance(&self, message: &Value, failures: &mut Vec<Failure>) {
        const IDS: [&str; 3] = ["message_ids", "source_message_ids", "source_agent_message_ids"];
        const POINTERS: [&str; 5] =
            ["trajectory", "trajectory_pointer", "trajectory_id", "trajectory_uri", "pointer"];
        let Some(given) = message.get("provenance").and_then(Value::as_object) else { return };
        if !self.sourced.get_or_init(|| self.contract.requires("provenance")) {
            return;
        }
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let told = given.iter().any(|(name, value)| {
            let name = payload::snake(name);
            let listed =
                value.as_array().is_some_and(|ids| !ids.is_empty() && ids.iter().all(text));
            (IDS.contains(&name.as_str()) && listed)
                || (POINTERS.contains(&name.as_str()) && text(value))
        });
        if !told {
            let why = "it has neither `message_ids` (a list of texts) nor a `trajectory` (a pointer, a text)";
            failures.push(self.violation("payload.provenance", "/provenance", why));
        }
    }

    fn permission(&self, target: &Agent, failures: &mut Vec<Failure>) {
        if let Some(rule) = &self.contract.acceptance.permission_check
            && !target.permissions.contains(rule)
        {
            failures.push(self.violation(
                "acceptance_criteria.permission_check",
                "/toAgent",
                &format!("{} does not have the permission `{rule}`", target.agent_id),
            ));
        }
    }

    fn payload(&self, message: &Value, failures: &mut Vec<Failure>) {
        let Some(document) = self.contract.local_schema() else {
            if let Some(name) = self.contract.registered_schema() {
                let why = format!("`{name}` is not registered");
                failures.push(self.violation("payload.schema", "", &why));
            }
            return;
        };
        let compiled = self.schema.get_or_init(|| {
            let schema = schema::compile_known(document).ok()?;
            Some(PayloadValidator { schema, names: schema::names(document) })
        });
        let Some(PayloadValidator { schema, names }) = compiled else {
            failures.push(self.violation("payload.schema", "", "the schema cannot be compiled"));
            return;
        };
        let (view, places) = payload::view(message, names, Some(document));
        let faults = match schema.judge(document, &view, MAX_FAULTS) {
            SchemaVerdict::Fits => return,
            SchemaVerdict::TooCostly => {
                let why = format!("the payload {TOO_COSTLY}");
                failures.push(self.violation("payload.schema", "", &why));
                return;
            }
            SchemaVerdict::Unfit(faults) => faults,
        };
        if faults.is_empty() {
            let why = "the payload does not satisfy the schema";
            failures.push(self.violation("payload.schema", "", why));
        }
        for error in faults {
            let at = error.instance_path().as_str();
            let (first, rest) = at.trim_start_matches('/').split_once('/').map_or_else(
                || (at.trim_start_matches('/'), String::new()),
                |(first, rest)| (first, format!("/{rest}")),
            );
            let pointer = places
                .get(first)
                .and_then(Value::as_str)
                .map_or_else(String::new, |place| format!("{place}{rest}"));
            // The validator's own words repeat values; its keyword does not.
            let keyword = error.kind().keyword().to_owned();
            let what = if at.is_empty() { "the payload" } else { at };
            let why = match error.kind() {
                jsonschema::error::ValidationErrorKind::Required { property } => {
                    format!("{what} lacks {property}")
                }
                _ => format!("{what} does not satisfy the schema's `{keyword}`"),
            };
            failures.push(self.violation("payload.schema", pointer, &why));
        }
    }

    /// A sender may carry over less of a conversation than the contract says, never more: neither by what
    /// the message says of itself, nor by what it carries.
    fn history(&self, message: &Value, failures: &mut Vec<Failure>) {
        let Some(limits) = HistoryLimits::of(&self.contract) else { return };
        let clause = "payload.history_strategy";
        if let Some(used) = HistoryLimits::claimed(message)
            && used > limits.strategy
        {
            let why = format!(
                "`{}` carries over more than `{}`",
                used.as_str(),
                limits.strategy.as_str()
            );
            failures.push(self.violation(clause, "/historyStrategy", &why));
            return;
        }
        if let Some((pointer, why)) = limits.exceeded(&CarriedHistory::by(message)) {
            failures.push(self.violation(clause, pointer, &why));
        }
    }

    /// The sender's own counter for the contract's loop guard, where it sends one.
    fn visited(&self, message: &Value, target: &Agent, failures: &mut Vec<Failure>) {
        let Some(guard) = &self.contract.recovery.loop_guard else { return };
        if guard.reference.is_empty() {
            return;
        }
        let Some((pointer, kept)) = payload::find(message, &guard.reference) else { return };
        let is_target = |name: &Value| {
            name.as_str()
                .is_some_and(|name| name == target.agent_id.as_str() || name == target.agent_type)
        };
        let (around, why) = match (&*kept, &guard.rule) {
            (Value::Array(names), _) => (
                names.iter().any(is_target),
                format!("{} is among the visited agents", target.agent_id),
            ),
            (Value::Number(count), LoopGuard::Counter { max }) => (
                count.as_f64().is_some_and(|count| count >= f64::from(*max)),
                format!("the counter is at {count}, of {max} at most"),
            ),
            _ => (false, String::new()),
        };
        if around {
            failures.push(Failure {
                stage: Stage::Loop,
                code: Code::LoopDetected,
                ..self.violation("recovery.loop_guard", pointer, &why)
            });
        }
    }
}

struct PredicateClause<'a> {
    name: &'static str,
    once: &'a OnceLock<Option<Predicate>>,
    text: &'a str,
    pointer: &'static str,
}

impl<'a> PredicateClause<'a> {
    fn compiled(&self) -> Option<&'a Predicate> {
        self.once.get_or_init(|| Predicate::compile(self.text).ok()).as_ref()
    }
}

/// The value of a contract's `trace_id_field`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceField {
    Id([u8; 16]),
    /// A full `traceparent`.
    Parent(TraceParent),
}

/// An agent as predicates see it, in both spellings.
fn facts_of(agent: &Agent) -> Value {
    json!({
        "id": agent.agent_id, "agentId": agent.agent_id, "agent_id": agent.agent_id,
        "type": agent.agent_type, "agentType": agent.agent_type, "agent_type": agent.agent_type,
        "version": agent.agent_version, "agentVersion": agent.agent_version,
        "agent_version": agent.agent_version,
        "name": agent.name,
        "specialization": agent.specialization,
        "domains": agent.domains,
        "capabilities": agent.capabilities,
        "permissions": agent.permissions,
    })
}

#[cfg(test)]
mod tests;
