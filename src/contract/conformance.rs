//! Whether what happened is what the contracts say (seed 002 §2 and §3.1): an audit log, record by
//! record, against a set of contracts. Pure; whoever reads the log hands its records over.
//!
//! A handoff is covered by the contract that its record names, or else by one that declares its edge. Its
//! message is held against that contract as it is now: required fields, payload schema and history
//! strategy. Predicates and permissions are not asked anew: they speak of agents as they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::catalog::Catalog;
use super::enforce::Ready;
use super::lint::{Rule, Severity};

const fn error(name: &'static str, about: &'static str) -> Rule {
    Rule { name, severity: Severity::Error, about }
}

const fn warning(name: &'static str, about: &'static str) -> Rule {
    Rule { name, severity: Severity::Warning, about }
}

const UNDECLARED: Rule =
    error("undeclared-edge", "Handoffs went along an edge that no contract declares.");
const UNKNOWN: Rule =
    error("unknown-contract", "Records name a contract or version that is not there.");
const PAYLOAD: Rule = error("payload-drift", "Messages do not fit the contract that ruled them.");
const OUTGROWN: Rule =
    warning("payload-outgrown", "Messages under an older version do not fit the current one.");
const VERSION: Rule =
    warning("version-drift", "Records name another version than the current one.");
const UNRULED: Rule =
    warning("unruled-handoff", "A contract declares the edge, and the record names none.");
const DEAD: Rule =
    warning("dead-contract", "No handoff ever went along the edge that it declares.");

/// All rules, in the order in which they are told.
pub const RULES: [Rule; 7] = [UNDECLARED, UNKNOWN, PAYLOAD, OUTGROWN, VERSION, UNRULED, DEAD];

/// Handoffs that broke one rule in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The contract, `id version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// From whom to whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<[String; 2]>,
    /// In words; of the first handoff, where they differ.
    pub message: String,
    /// How many handoffs.
    pub handoffs: u64,
    /// The record of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_leaf_index: Option<i64>,
    /// The record of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_leaf_index: Option<i64>,
}

/// What a replay came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Handoffs among them.
    pub handoffs: u64,
    /// Handoffs whose message was held against its contract.
    pub messages: u64,
    /// Handoffs whose message is erased, is not in what was read, or came with personal data, which is
    /// kept apart: its fields cannot be told to be missing.
    pub unseen: u64,
    /// Contracts, each in its current version.
    pub contracts: u64,
    /// What was found, by rule.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether something is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        let error = Severity::Error.as_str();
        self.findings.iter().any(|finding| finding.severity == error)
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "ok": !self.has_errors(), "report": self })
    }
}

/// What tells findings apart: the rule's place, the contract, the edge.
type Key = (usize, Option<String>, Option<[String; 2]>);

/// A replay under way.
#[derive(Debug)]
pub struct Replay<'a> {
    catalog: &'a Catalog,
    /// Types of agents, by id.
    types: BTreeMap<String, String>,
    used: BTreeMap<String, u64>,
    findings: BTreeMap<Key, Finding>,
    report: Report,
}

/// What a `HANDOFF` record tells.
struct Passage<'a> {
    leaf_index: i64,
    source: &'a str,
    target: &'a str,
}

impl Passage<'_> {
    fn edge(&self) -> [String; 2] {
        [self.source.to_owned(), self.target.to_owned()]
    }
}

fn text<'a>(record: &'a Value, pointer: &str) -> Option<&'a str> {
    record.pointer(pointer).and_then(Value::as_str)
}

impl<'a> Replay<'a> {
    /// Against these contracts; `types` are the types of agents by id, as far as they are known. What
    /// records tell of a receiver's type is learned on the way.
    #[must_use]
    pub fn new(catalog: &'a Catalog, types: BTreeMap<String, String>) -> Self {
        let report = Report { contracts: catalog.iter().count() as u64, ..Report::default() };
        Self { catalog, types, used: BTreeMap::new(), findings: BTreeMap::new(), report }
    }

    /// Takes the next record, with what it commits to where that is there.
    pub fn record(&mut self, record: &Value, content: Option<&Value>) {
        self.report.records += 1;
        if text(record, "/kind") != Some("HANDOFF") {
            return;
        }
        let (Some(source), Some(target)) =
            (text(record, "/fromAgent/agentId"), text(record, "/toAgent/agentId"))
        else {
            return;
        };
        self.report.handoffs += 1;
        if let Some(kind) = text(record, "/toAgent/agentType") {
            self.types.insert(target.to_owned(), kind.to_owned());
        }
        let leaf_index = record.get("leafIndex").and_then(Value::as_i64).unwrap_or_default();
        let passage = Passage { leaf_index, source, target };
        let named = text(record, "/contract/id").zip(text(record, "/contract/version"));
        let Some((ready, current)) = self.covering(&passage, named) else { return };
        *self.used.entry(ready.contract().id.clone()).or_default() += 1;
        let apart = record.get("personalDataCommitments").is_some();
        match content.filter(|_| !apart) {
            None => self.report.unseen += 1,
            Some(message) => self.payload(&passage, &ready, current, message),
        }
    }

    /// The contract that a handoff is held against, and whether its record names the current version.
    fn covering(
        &mut self,
        passage: &Passage<'_>,
        named: Option<(&str, &str)>,
    ) -> Option<(Arc<Ready>, bool)> {
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
            return Some((ready, false));
        };
        let known = version.parse().ok().and_then(|version| catalog.find(id, Some(&version)));
        let Some(ready) = catalog.find(id, None) else {
            let why = format!("there is no contract {id}");
            self.found(UNKNOWN, Some(format!("{id} {version}")), Some(passage), why);
            return None;
        };
        let current = ready.contract().version().to_string();
        if current == version {
            return Some((Arc::clone(ready), true));
        }
        let contract = Some(format!("{id} {version}"));
        if known.is_none() {
            let why =
                format!("contract {id} has no version {version}; {current} is the current one");
            self.found(UNKNOWN, contract, Some(passage), why);
        } else {
            let why = format!("{current} is the current version of {id}");
            self.found(VERSION, contract, Some(passage), why);
        }
        Some((Arc::clone(ready), false))
    }

    /// A contract that declares the edge, by ids or types; the most specific one.
    fn declaring(&self, passage: &Passage<'_>) -> Option<&'a Arc<Ready>> {
        let catalog = self.catalog;
        let is = |name: &str, id: &str| {
            name == id || self.types.get(id).is_some_and(|kind| kind == name)
        };
        let by_id = |ready: &&Arc<Ready>| {
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

    fn payload(&mut self, passage: &Passage<'_>, ready: &Ready, current: bool, message: &Value) {
        self.report.messages += 1;
        let failures = ready.fits(message);
        let Some(first) = failures.first() else { return };
        let rule = if current { PAYLOAD } else { OUTGROWN };
        let why = format!("{} (at `{}`)", first.message, first.pointer);
        self.found(rule, Some(ready.contract().to_string()), Some(passage), why);
    }

    fn found(
        &mut self,
        rule: Rule,
        contract: Option<String>,
        passage: Option<&Passage<'_>>,
        message: String,
    ) {
        let place = RULES.iter().position(|known| known.name == rule.name).unwrap_or_default();
        let edge = passage.map(Passage::edge);
        let leaf = passage.map(|passage| passage.leaf_index);
        let key = (place, contract.clone(), edge.clone());
        let finding = self.findings.entry(key).or_insert_with(|| Finding {
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

    /// What it came to.
    #[must_use]
    pub fn finish(mut self) -> Report {
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
    use crate::domain::ids::Micros;

    fn ready(id: &str, version: &str, edge: [&str; 2], more: &str) -> Arc<Ready> {
        let [source, target] = edge;
        let text = format!(
            "{{id: {id}, version: {version}, source: {source}, target: {target}, trigger: {{intent: x}}, {more}}}"
        );
        let (contract, _) = read(&Document::parse(&text).unwrap());
        Arc::new(Ready::new(contract, String::new(), String::new(), Micros(0)))
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

    fn rules(report: &Report) -> Vec<(&str, u64)> {
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
            let mut replay = Replay::new(&catalog, BTreeMap::new());
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
        // Both kinds of drift of a payload are held against the current version.
        assert_eq!(rules(&bad), expected);
        assert!(bad.has_errors());
        let first = &bad.findings[0];
        assert_eq!((first.first_leaf_index, first.last_leaf_index), (Some(1), Some(2)));
        assert!(bad.findings[3].message.contains("order_id"), "{}", bad.findings[3].message);
    }

    #[test]
    fn what_cannot_be_seen_is_counted_and_not_judged() {
        let needs = "payload: {schema: s, required: [order_id]}";
        let catalog = Catalog::new(vec![ready("a-to-b", "1.0.0", ["a", "b"], needs)]);
        let mut replay = Replay::new(&catalog, BTreeMap::new());
        let mut apart = record(1, ["a", "b"], "b", Some(["a-to-b", "1.0.0"]));
        replay.record(&apart, None);
        apart["personalDataCommitments"] = json!(["sha256:00"]);
        replay.record(&apart, Some(&json!({})));
        let report = replay.finish();
        assert_eq!((report.unseen, report.messages, rules(&report)), (2, 0, vec![]));
    }
}
