//! Whether what happened is what the contracts say (seed 002 §2 and §3.1): an audit log, record by
//! record, against a set of contracts. Pure; the reader of the log hands its records over.
//!
//! A handoff is judged by the contract in the version that its record names, or else by one that declares
//! its edge: its message by required fields, payload schema, history strategy and those predicates that
//! read of the agents only what the record holds; its course by time, attempts and recovery (`course`).
//! Permissions, and predicates over what agents were then, stand in no record: they are counted as unasked.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::catalog::Catalog;
use super::enforce::CompiledContract;
use super::lint::{LintRule, Severity};
use course::OpenCourses;
use handoffd_domain::failure::Failure;

mod course;

const fn error(name: &'static str, about: &'static str) -> LintRule {
    LintRule { name, severity: Severity::Error, about }
}

const fn warning(name: &'static str, about: &'static str) -> LintRule {
    LintRule { name, severity: Severity::Warning, about }
}

const UNDECLARED: LintRule =
    error("undeclared-edge", "Handoffs went along an edge that no contract declares.");
const UNKNOWN: LintRule =
    error("unknown-contract", "Records name a contract or version that is not there.");
const OTHER_EDGE: LintRule = error(
    "other-edge",
    "Records name a contract of another edge, although a contract declares the edge that the handoff took.",
);
const PAYLOAD: LintRule =
    error("payload-drift", "Messages do not fit the contract that ruled them.");
const PREDICATE: LintRule =
    error("predicate-drift", "Handoffs went although a predicate of their contract did not hold.");
const EARLY: LintRule = error(
    "early-timeout",
    "Handoffs ended for want of a verdict before the contract's time was over.",
);
const RECOVERY: LintRule =
    error("recovery-drift", "Control went elsewhere than the contract's recovery says.");
const LATE: LintRule = warning(
    "late-verdict",
    "A verdict came later after the commit than the contract's time; the log does not tell when the receiver had it.",
);
const RETRIES: LintRule = warning(
    "retry-drift",
    "More attempts than the contract's retries; attempts put off by a busy receiver or repeated after a broker's end count.",
);
const OUTGROWN: LintRule =
    warning("payload-outgrown", "Messages under an older version do not fit the current one.");
const VERSION: LintRule =
    warning("version-drift", "Records name another version than the current one.");
const UNRULED: LintRule =
    warning("unruled-handoff", "A contract declares the edge, and the record names none.");
const DEAD: LintRule =
    warning("dead-contract", "No handoff ever went along the edge that it declares.");

/// All rules, in the order of the report.
pub const RULES: [LintRule; 13] = [
    UNDECLARED, UNKNOWN, OTHER_EDGE, PAYLOAD, PREDICATE, EARLY, RECOVERY, LATE, RETRIES, OUTGROWN,
    VERSION, UNRULED, DEAD,
];

/// Handoffs that broke one rule in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConformanceFinding {
    pub rule: &'static str,
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The contract, `id version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Source and target of the edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<[String; 2]>,
    /// The deviation as a sentence; that of the first handoff, where they differ.
    pub message: String,
    pub handoffs: u64,
    /// Leaf index of the first handoff's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_leaf_index: Option<i64>,
    /// Leaf index of the last handoff's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_leaf_index: Option<i64>,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConformanceReport {
    pub records: u64,
    pub handoffs: u64,
    /// Handoffs whose message was checked against its contract.
    pub messages: u64,
    /// Handoffs whose message is erased, is not in what was read, or came with personal data, which is
    /// kept apart: its fields cannot be told to be missing.
    pub unseen: u64,
    /// Clauses that were not checked, because no record holds their facts.
    pub unasked: u64,
    /// Contracts, each counted once.
    pub contracts: u64,
    /// The deviations, in the order of the rules.
    pub findings: Vec<ConformanceFinding>,
}

impl ConformanceReport {
    /// Whether a finding is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        let error = Severity::Error.as_str();
        self.findings.iter().any(|finding| finding.severity == error)
    }

    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "ok": !self.has_errors(), "report": self })
    }
}

/// Identity of a finding: index of the rule, contract, edge.
type FindingKey = (usize, Option<String>, Option<[String; 2]>);

/// A replay in progress.
#[derive(Debug)]
pub struct ConformanceReplay<'a> {
    catalog: &'a Catalog,
    /// Types of agents, by id.
    types: BTreeMap<String, String>,
    used: BTreeMap<String, u64>,
    courses: OpenCourses,
    findings: BTreeMap<FindingKey, ConformanceFinding>,
    report: ConformanceReport,
}

/// Relates the contract that the report checks a handoff against to the version in the handoff's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionStanding {
    /// The contract is the named one, in the current version.
    Current,
    /// The contract is the named one, in an older version.
    Older,
    /// The record names none, or a version that is not there.
    Unruled,
}

/// The fields of a `HANDOFF` record.
struct HandoffRecord<'a> {
    leaf_index: i64,
    source: &'a str,
    target: &'a str,
}

impl HandoffRecord<'_> {
    fn edge(&self) -> [String; 2] {
        [self.source.to_owned(), self.target.to_owned()]
    }
}

fn text<'a>(record: &'a Value, pointer: &str) -> Option<&'a str> {
    record.pointer(pointer).and_then(Value::as_str)
}

impl<'a> ConformanceReplay<'a> {
    /// Starts a report on these contracts. `types` maps agent ids to known agent types; the report adds the types of receivers
    /// from the records that it reads.
    #[must_use]
    pub fn new(catalog: &'a Catalog, types: BTreeMap<String, String>) -> Self {
        let report = ConformanceReport {
            contracts: catalog.iter().count() as u64,
            ..ConformanceReport::default()
        };
        Self {
            catalog,
            types,
            used: BTreeMap::new(),
            courses: OpenCourses::default(),
            findings: BTreeMap::new(),
            report,
        }
    }

    /// Checks the next record, and its content where available.
    pub fn record(&mut self, record: &Value, content: Option<&Value>) {
        self.report.records += 1;
        if text(record, "/kind") != Some("HANDOFF") {
            self.go_on(record);
            return;
        }
        let (Some(source), Some(target)) =
            (text(record, "/fromAgent/agentId"), text(record, "/toAgent/agentId"))
        else {
            return;
        };
        self.report.handoffs += 1;
        for party in ["/fromAgent", "/toAgent"] {
            let id = record.pointer(party).and_then(|party| text(party, "/agentId"));
            let kind = record.pointer(party).and_then(|party| text(party, "/agentType"));
            if let Some((id, kind)) = id.zip(kind) {
                self.types.insert(id.to_owned(), kind.to_owned());
            }
        }
        let leaf_index = record.get("leafIndex").and_then(Value::as_i64).unwrap_or_default();
        let passage = HandoffRecord { leaf_index, source, target };
        self.go_on(record);
        let named = text(record, "/contract/id").zip(text(record, "/contract/version"));
        let Some((ready, standing)) = self.covering(&passage, named) else { return };
        *self.used.entry(ready.contract().id.clone()).or_default() += 1;
        let message = content.filter(|_| record.get("personalDataCommitments").is_none());
        if standing != VersionStanding::Unruled {
            self.courses.begin(record, &ready, content);
        }
        match message {
            None => self.report.unseen += 1,
            Some(message) => self.message(&passage, record, &ready, standing, message),
        }
    }

    /// Applies a record to the handoff that it follows.
    fn go_on(&mut self, record: &Value) {
        if let Some((rule, drift)) = self.courses.go_on(record) {
            let (contract, message) = (drift.contract.clone(), drift.message.clone());
            self.found(rule, Some(contract), Some(&drift.passage()), message);
        }
    }

    /// The contract to check a handoff against, and its relation to the version in the record.
    fn covering(
        &mut self,
        passage: &HandoffRecord<'_>,
        named: Option<(&str, &str)>,
    ) -> Option<(Arc<CompiledContract>, VersionStanding)> {
        let catalog = self.catalog;
        let Some((id, version)) = named else {
            let ready = self.declaring(passage).map(Arc::clone);
            let Some(ready) = ready else {
                let why =
                    format!("{} → {}: no contract declares it", passage.source, passage.target);
                self.found(UNDECLARED, None, Some(passage), why);
                return None;
            };
            let contract = ready.contract().to_string();
            let why = format!("{contract} declares the edge; the record names no contract");
            self.found(UNRULED, Some(contract), Some(passage), why);
            return Some((ready, VersionStanding::Unruled));
        };
        let known = version.parse().ok().and_then(|version| catalog.find(id, Some(&version)));
        let Some(ready) = catalog.find(id, None) else {
            let why = format!("contract {id} does not exist");
            self.found(UNKNOWN, Some(format!("{id} {version}")), Some(passage), why);
            return None;
        };
        if !self.speaks_of(ready, passage)
            && let Some(own) = self.declaring(passage).map(Arc::clone)
        {
            let contract = own.contract().to_string();
            let why = format!(
                "{contract} declares the edge; the record names {id} {version}, which is about another"
            );
            self.found(OTHER_EDGE, Some(contract), Some(passage), why);
            // It is what should have ruled.
            return Some((own, VersionStanding::Current));
        }
        let current = ready.contract().version().to_string();
        if current == version {
            return Some((Arc::clone(ready), VersionStanding::Current));
        }
        let contract = Some(format!("{id} {version}"));
        let Some(known) = known else {
            let why =
                format!("contract {id} has no version {version}; {current} is the current one");
            self.found(UNKNOWN, contract, Some(passage), why);
            return Some((Arc::clone(ready), VersionStanding::Unruled));
        };
        let why = format!("{current} is the current version of {id}");
        self.found(VERSION, contract, Some(passage), why);
        Some((Arc::clone(known), VersionStanding::Older))
    }

    /// Whether a contract may be about the edge: a type that no record told is taken for the named one.
    fn speaks_of(&self, ready: &CompiledContract, passage: &HandoffRecord<'_>) -> bool {
        let is =
            |name: &str, id: &str| name == id || self.types.get(id).is_none_or(|kind| kind == name);
        let contract = ready.contract();
        is(&contract.source, passage.source) && is(&contract.target, passage.target)
    }

    /// A contract that declares the edge, by ids or types; the most specific one.
    fn declaring(&self, passage: &HandoffRecord<'_>) -> Option<&'a Arc<CompiledContract>> {
        let catalog = self.catalog;
        let is = |name: &str, id: &str| {
            name == id || self.types.get(id).is_some_and(|kind| kind == name)
        };
        let by_id = |ready: &&Arc<CompiledContract>| {
            let contract = ready.contract();
            u8::from(contract.source == passage.source) * 2
                + u8::from(contract.target == passage.target)
        };
        catalog
            .iter()
            .filter(|ready| {
                let contract = ready.contract();
                is(&contract.source, passage.source) && is(&contract.target, passage.target)
            })
            .max_by_key(by_id)
    }

    /// A message, by the version that ruled it and, where that is an older one, by the current one.
    fn message(
        &mut self,
        passage: &HandoffRecord<'_>,
        record: &Value,
        ready: &CompiledContract,
        standing: VersionStanding,
        message: &Value,
    ) {
        self.report.messages += 1;
        let nobody = json!({});
        let party = |pointer: &str| course::facts(record.pointer(pointer).unwrap_or(&nobody));
        let (source, target) = (party("/fromAgent"), party("/toAgent"));
        let (failures, unasked) = ready.replay(message, &source, &target);
        self.report.unasked += unasked;
        let is_predicate = |failure: &&Failure| {
            matches!(
                failure.rule.as_deref(),
                Some("trigger.predicate" | "acceptance_criteria.domain_match")
            )
        };
        let told = |failure: &Failure| format!("{} (at `{}`)", failure.message, failure.pointer);
        let contract = ready.contract().to_string();
        let other = failures.iter().find(|failure| !is_predicate(failure));
        if standing == VersionStanding::Unruled {
            if let Some(first) = other {
                self.found(OUTGROWN, Some(contract), Some(passage), told(first));
            }
            return;
        }
        if let Some(first) = failures.iter().find(is_predicate) {
            self.found(PREDICATE, Some(contract.clone()), Some(passage), told(first));
        }
        if let Some(first) = other {
            self.found(PAYLOAD, Some(contract), Some(passage), told(first));
        } else if standing == VersionStanding::Older
            && let Some(current) = self.catalog.find(&ready.contract().id, None)
        {
            let (failures, _) = current.replay(message, &source, &target);
            if let Some(first) = failures.first() {
                let contract = current.contract().to_string();
                self.found(OUTGROWN, Some(contract), Some(passage), told(first));
            }
        }
    }

    fn found(
        &mut self,
        rule: LintRule,
        contract: Option<String>,
        passage: Option<&HandoffRecord<'_>>,
        message: String,
    ) {
        let place = RULES.iter().position(|known| known.name == rule.name).unwrap_or_default();
        let edge = passage.map(HandoffRecord::edge);
        let leaf = passage.map(|passage| passage.leaf_index);
        let key = (place, contract.clone(), edge.clone());
        let finding = self.findings.entry(key).or_insert_with(|| ConformanceFinding {
            rule: rule.name,
            severity: rule.severity.as_str(),
            contract,
            edge,
            message,
            handoffs: 0,
            first_leaf_index: leaf,
            last_leaf_index: leaf,
        });
        finding.handoffs += u64::from(passage.is_some());
        finding.last_leaf_index = leaf;
    }

    #[must_use]
    pub fn finish(mut self) -> ConformanceReport {
        let catalog = self.catalog;
        for ready in catalog.iter() {
            let contract = ready.contract();
            if !self.used.contains_key(&contract.id) {
                let why =
                    format!("no handoff {} → {} is in the log", contract.source, contract.target);
                self.found(DEAD, Some(contract.to_string()), None, why);
            }
        }
        self.report.findings = self.findings.into_values().collect();
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::document::Document;
    use crate::contract::read;
    use handoffd_domain::ids::Micros;

    fn ready(id: &str, version: &str, edge: [&str; 2], more: &str) -> Arc<CompiledContract> {
        let [source, target] = edge;
        let text = format!(
            "{{id: {id}, version: {version}, source: {source}, target: {target}, trigger: {{intent: x}}, {more}}}"
        );
        let (contract, _) = read(&Document::parse(&text).unwrap());
        Arc::new(CompiledContract::new(contract, String::new(), String::new(), Micros(0)))
    }

    fn record(leaf: i64, edge: [&str; 2], kind: &str, contract: Option<[&str; 2]>) -> Value {
        let mut record = json!({
            "kind": "HANDOFF", "leafIndex": leaf, "fromAgent": {"agentId": edge[0]},
            "toAgent": {"agentId": edge[1], "agentType": kind},
        });
        if let Some([id, version]) = contract {
            record["contract"] = json!({ "id": id, "version": version });
        }
        record
    }

    fn rules(report: &ConformanceReport) -> Vec<(&str, u64)> {
        report.findings.iter().map(|one| (one.rule, one.handoffs)).collect()
    }

    #[test]
    fn c9_each_rule_fires_on_its_log_and_is_silent_on_a_log_that_conforms() {
        let needs = "payload: {schema: s, required: [order_id]}";
        let catalog = Catalog::new(vec![
            ready("a-to-b", "1.0.0", ["a", "b"], "payload: {schema: s}"),
            ready("a-to-b", "1.1.0", ["a", "b"], needs),
            ready("b-to-refunds", "1.0.0", ["b", "refunds"], "payload: {schema: s}"),
        ]);
        let fits = json!({ "currentState": { "order_id": 7 } });
        let lacks = json!({ "currentState": {} });
        let replay = |records: &[(Value, &Value)]| {
            let mut replay = ConformanceReplay::new(&catalog, BTreeMap::new());
            replay.record(&json!({ "kind": "REFUSED" }), None);
            for (record, content) in records {
                replay.record(record, Some(content));
            }
            replay.finish()
        };
        let now = Some(["a-to-b", "1.1.0"]);
        let refunds = Some(["b-to-refunds", "1.0.0"]);
        let well = [
            (record(1, ["a", "b"], "b", now), &fits),
            (record(2, ["b", "c"], "refunds", refunds), &lacks),
        ];
        let report = replay(&well);
        assert_eq!((rules(&report), report.has_errors()), (vec![], false));
        assert_eq!((report.records, report.handoffs, report.messages), (3, 2, 2));

        let unruled = replay(&[(record(1, ["b", "c"], "refunds", None), &fits), well[0].clone()]);
        assert_eq!(rules(&unruled), [("unruled-handoff", 1)]);
        let bad = replay(&[
            (record(1, ["a", "x"], "x", None), &fits),
            (record(2, ["a", "x"], "x", None), &fits),
            (record(3, ["a", "b"], "b", now), &lacks),
            (record(4, ["a", "b"], "b", Some(["a-to-b", "1.0.0"])), &lacks),
            (record(5, ["a", "b"], "b", Some(["a-to-b", "2.0.0"])), &fits),
            (record(6, ["a", "b"], "b", Some(["gone", "1.0.0"])), &fits),
        ]);
        let expected = [
            ("undeclared-edge", 2),
            ("unknown-contract", 1),
            ("unknown-contract", 1),
            ("payload-drift", 1),
            ("payload-outgrown", 1),
            ("version-drift", 1),
            ("dead-contract", 0),
        ];
        // Each by the version that it names; what the current one would say is a warning.
        assert_eq!(rules(&bad), expected);
        assert!(bad.has_errors());
        let first = &bad.findings[0];
        assert_eq!((first.first_leaf_index, first.last_leaf_index), (Some(1), Some(2)));
        assert!(bad.findings[3].message.contains("order_id"), "{}", bad.findings[3].message);
    }

    #[test]
    fn a_handoff_is_judged_by_the_contract_of_the_edge_that_it_took() {
        let needs = "payload: {schema: s, required: [order_id]}";
        let catalog = Catalog::new(vec![
            ready("a-to-b", "1.0.0", ["a", "b"], "payload: {schema: s}"),
            ready("a-to-c", "1.0.0", ["a", "c"], needs),
        ]);
        let run = |to: &str| {
            let mut replay = ConformanceReplay::new(&catalog, BTreeMap::new());
            for (leaf, to) in [(1, "b"), (2, to)] {
                let record = record(leaf, ["a", to], to, Some(["a-to-b", "1.0.0"]));
                replay.record(&record, Some(&json!({ "currentState": {} })));
            }
            rules(&replay.finish()).into_iter().map(|(rule, _)| rule.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(run("c"), ["other-edge", "payload-drift"]);
        // No contract declares the edge: that of the failed handoff goes on to rule.
        assert_eq!(run("d"), ["dead-contract"]);
    }

    #[test]
    fn what_cannot_be_seen_is_counted_and_not_judged() {
        let needs = "payload: {schema: s, required: [order_id]}";
        let catalog = Catalog::new(vec![ready("a-to-b", "1.0.0", ["a", "b"], needs)]);
        let mut replay = ConformanceReplay::new(&catalog, BTreeMap::new());
        let mut apart = record(1, ["a", "b"], "b", Some(["a-to-b", "1.0.0"]));
        replay.record(&apart, None);
        apart["personalDataCommitments"] = json!(["sha256:00"]);
        replay.record(&apart, Some(&json!({})));
        let report = replay.finish();
        assert_eq!((report.unseen, report.messages, rules(&report)), (2, 0, vec![]));
    }
}
