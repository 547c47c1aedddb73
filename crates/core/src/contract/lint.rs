//! The linter (seed 002 §7): the seven errors, the warning, and what makes a document no contract at
//! all. Pure: files are read by whoever calls.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::document::{Document, DocumentError, DocumentPosition};
use super::level::{Level, ReviewEvidence, grade, is_url};
use super::registry::Registry;
use super::shelf::SchemaName;
use super::{
    Contract, ContractDefect, DefectKind, HistoryStrategy, SchemaRef, read, schema, versions,
};
use crate::domain::canonical;
use crate::domain::policy::Recovery;

/// A lint rule: name (stable), severity and description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LintRule {
    /// Stable name.
    pub name: &'static str,
    /// `error` or `warning`.
    pub severity: Severity,
    /// The description as a sentence.
    pub about: &'static str,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The contract does not conform.
    Error,
    /// The contract conforms and deserves a review.
    Warning,
}

impl Severity {
    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

const fn error(name: &'static str, about: &'static str) -> LintRule {
    LintRule { name, severity: Severity::Error, about }
}

const fn warning(name: &'static str, about: &'static str) -> LintRule {
    LintRule { name, severity: Severity::Warning, about }
}

/// All rules. The first eight are the seed's.
pub const RULES: [LintRule; 23] = [
    error("orphan-target", "The target does not appear in the agent registry."),
    error("unreachable-handoff", "No prompt or tool of the source exposes a path to this trigger."),
    error("missing-recovery", "One of on_reject, on_timeout and on_error is absent."),
    error(
        "loop-risk",
        "There is no loop_guard, and the target's contracts lead back to the source.",
    ),
    error("retry-non-idempotent", "The handoff is not idempotent, and max_retries is above 0."),
    error("schema-drift", "The payload schema is missing, or has changed since the last review."),
    error(
        "permission-mismatch",
        "The permission_check is not declared in the permission registry.",
    ),
    warning("full-history", "The whole conversation goes along, and no comment says why."),
    error("unreadable", "The document is neither YAML nor JSON, or is too large."),
    error("invalid-clause", "A clause has a value that cannot be enforced."),
    error("missing-clause", "A required clause is absent."),
    error("duplicate-id", "Two contracts have the same id and version."),
    warning("unknown-field", "A field that no contract has: it is not enforced."),
    warning("unchecked-schema", "A registered payload schema that could not be looked for."),
    error(
        "breaking-change",
        "A new version breaks what the one before promised, and its major is the same.",
    ),
    error("past-sunset", "The contract is past its sunset: it refuses every handoff."),
    error(
        "orphan-recovery",
        "An agent that recovery or a human's silence leads to is not in the registry.",
    ),
    warning(
        "no-supervisor",
        "Recovery leads to a supervisor, and neither source nor target has one.",
    ),
    warning("unknown-replacement", "The replacement_id names no contract that is known."),
    warning("recommended-clause", "A clause that a contract should have is absent."),
    warning("without-effect", "A clause has no effect as it stands."),
    warning("unknown-metric", "A metric's name tells no moment of a handoff."),
    warning("unsigned-review", "A reviewer's entry does not say who, when and what."),
];

/// A rule by its name; an unknown name is a slip of this file, and counts as the gravest.
fn rule(name: &'static str) -> LintRule {
    RULES.into_iter().find(|rule| rule.name == name).unwrap_or(error(name, ""))
}

/// A finding of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    pub rule: LintRule,
    pub place: DocumentPosition,
    /// RFC 6901 pointer into the document.
    pub pointer: String,
    /// The finding as a sentence.
    pub message: String,
}

/// A document to lint.
#[derive(Debug)]
pub struct LintSubject {
    /// The file's displayed name.
    pub file: String,
    /// The document, or why there is none.
    pub document: Result<Document, DocumentError>,
    /// What there is of the payload schema that the document names.
    pub schema: SchemaFile,
}

/// The result of looking for a payload schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum SchemaFile {
    /// No look-up took place: the contract embeds the schema, or names none.
    #[default]
    NotLooked,
    /// There is no such file, or no such schema is registered.
    Missing,
    /// The schema is registered and no registry is available: the text names the remedy.
    Unchecked(String),
    /// The schema exists and cannot be enforced: file and reason.
    Unfit(String),
    /// The schema exists and can be enforced.
    ContractFindings(Box<EnforceableSchema>),
}

/// A payload schema that can be enforced.
#[derive(Debug, Clone, PartialEq)]
pub struct EnforceableSchema {
    /// SHA-256 of its file, where it is one, and of its canonical form, in hexadecimal.
    hashes: Vec<String>,
    document: Value,
}

impl EnforceableSchema {
    /// SHA-256 of its canonical form, as a broker shows it.
    fn sha256(&self) -> &str {
        self.hashes.last().map_or("", String::as_str)
    }

    fn has(&self, hash: &str) -> bool {
        self.hashes.iter().any(|own| own.eq_ignore_ascii_case(hash))
    }
}

impl SchemaFile {
    /// A schema's file as read: JSON, or YAML.
    #[must_use]
    pub fn found(name: &str, bytes: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Value>(bytes).or_else(|err| {
            let text = String::from_utf8_lossy(bytes);
            let read = Document::parse(&text).map(|document| document.value().clone());
            read.map_err(|_| err.to_string())
        });
        let document = match parsed.and_then(|document| Self::registered(&document)) {
            Ok(document) => document,
            Err(why) => return Self::Unfit(format!("`{name}` cannot be enforced: {why}")),
        };
        match document {
            Self::ContractFindings(mut found) => {
                found.hashes.insert(0, hex::encode(Sha256::digest(bytes)));
                Self::ContractFindings(found)
            }
            other => other,
        }
    }

    /// A schema's document. Its hash is that of the canonical form, as a broker shows it.
    ///
    /// # Errors
    /// Why it cannot be enforced, in a sentence.
    pub fn registered(document: &Value) -> Result<Self, String> {
        schema::compile(document)?;
        Ok(Self::of(document))
    }

    /// A schema that was compiled before.
    #[must_use]
    pub fn of(document: &Value) -> Self {
        let sha256 = hex::encode(Sha256::digest(canonical::to_vec(document)));
        Self::ContractFindings(Box::new(EnforceableSchema {
            hashes: vec![sha256],
            document: document.clone(),
        }))
    }
}

/// The registered schema that a document names.
#[must_use]
pub fn schema_name(document: &Document) -> Option<SchemaName> {
    SchemaName::parse(document.value().pointer("/payload/schema")?.as_str()?)?.ok()
}

/// The schema that a document names as a file: a path with a folder or an extension.
#[must_use]
pub fn schema_path(document: &Document) -> Option<&str> {
    let name = document.value().pointer("/payload/schema")?.as_str()?;
    let path_like = name.contains('/')
        || [".json", ".yaml", ".yml"].iter().any(|ending| name.to_lowercase().ends_with(ending));
    let plain = |text: &str| text.trim_start_matches("./").to_owned();
    let brought = document.value().get("schemas").and_then(Value::as_object);
    let local = brought.is_some_and(|all| all.keys().any(|own| plain(own) == plain(name)));
    let registered = SchemaName::parse(name).is_some();
    (path_like && !is_url(name) && !local && !registered).then_some(name)
}

/// Id of the contract; `None` where it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintReport {
    /// The file's displayed name.
    pub id: Option<String>,
    /// The level that the contract reaches.
    pub file: String,
    /// Clauses that the next level requires.
    pub level: Option<Level>,
    /// All findings, in document order.
    pub missing: Vec<String>,
    /// Whether a finding is an error.
    pub findings: Vec<LintFinding>,
}

impl LintReport {
    /// Whether an error was found.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.rule.severity == Severity::Error)
    }
}

/// A document that could be read.
struct LintedContract<'a> {
    at: usize,
    document: &'a Document,
    schema: SchemaFile,
    contract: Contract,
    faults: Vec<ContractDefect>,
}

impl<'a> LintedContract<'a> {
    fn of(at: usize, subject: &'a LintSubject) -> Option<Self> {
        let document = subject.document.as_ref().ok()?;
        let (mut contract, faults) = read(document);
        let schema = match (&subject.schema, contract.local_schema()) {
            (SchemaFile::NotLooked, Some(own)) => SchemaFile::of(own),
            (looked, _) => looked.clone(),
        };
        if let (SchemaFile::ContractFindings(found), Some(SchemaRef::Named(name))) =
            (&schema, &contract.payload.schema)
        {
            let name = name.clone();
            contract.schemas.entry(name).or_insert_with(|| found.document.clone());
        }
        Some(Self { at, document, schema, contract, faults })
    }
}

/// Context of a lint run; unknown facts are not checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct LintContext<'a> {
    /// Agents and their permissions.
    pub registry: Option<&'a Registry>,
    /// Contracts in force that are not linted, but may lead back, or replace another.
    pub in_force: &'a [&'a Contract],
    /// Existing versions of contracts.
    pub versions: &'a [&'a Contract],
    /// Present time, in seconds since the epoch.
    pub now: Option<i64>,
}

/// Lints documents together: what leads from one edge to another is seen over all of them.
#[must_use]
pub fn lint(subjects: &[LintSubject], around: LintContext<'_>) -> Vec<LintReport> {
    let mut reports: Vec<LintReport> = subjects.iter().map(unread).collect();
    let mut known: Vec<LintedContract<'_>> = subjects
        .iter()
        .enumerate()
        .filter_map(|(at, subject)| LintedContract::of(at, subject))
        .collect();
    for one in &mut known {
        payload_parts(one);
    }
    let of = |contract: &'_ Contract| (contract.source.clone(), contract.target.clone());
    let edges: Vec<(String, String)> = known
        .iter()
        .map(|one| of(&one.contract))
        .chain(around.in_force.iter().map(|contract| of(contract)))
        .collect();
    for one in &known {
        let mut found = ContractFindings { document: one.document, findings: Vec::new() };
        found.faults(&one.faults);
        found.duplicates(one, &known);
        found.loops(&one.contract, &edges, around.registry);
        found.retries(&one.contract);
        found.history(&one.contract);
        found.before(one, &known, around.versions);
        found.ending(one, &known, around);
        found.tools(one, &known, around.in_force);
        let review = found.review(one, around.registry);
        if let Some(registry) = around.registry {
            found.target(&one.contract, registry);
            found.reach(&one.contract, registry);
            found.permission(&one.contract, registry);
            found.ways(&one.contract, registry);
        }
        let mut findings = found.findings;
        findings.sort_by(|a, b| (a.place, a.rule.name).cmp(&(b.place, b.rule.name)));
        let report = &mut reports[one.at];
        report.id = Some(one.contract.id.clone()).filter(|id| !id.is_empty());
        report.findings = findings;
        let outside = ReviewEvidence { errors: report.has_errors(), ..review };
        (report.level, report.missing) = grade(&one.contract, &one.faults, outside);
    }
    reports
}

/// The level of one contract by itself, with the payload schema that it has.
#[must_use]
pub fn level_of(contract: &Contract, document: Document) -> Option<Level> {
    let schema = contract.local_schema().map_or(SchemaFile::NotLooked, SchemaFile::of);
    let subject = LintSubject { file: String::new(), document: Ok(document), schema };
    lint(&[subject], LintContext::default()).first().and_then(|report| report.level)
}

/// The parts that a payload must have, by its list or by its schema (seed 002 §3.4).
fn payload_parts(one: &mut LintedContract<'_>) {
    let Contract { payload, .. } = &one.contract;
    let unknown = matches!(one.schema, SchemaFile::Unchecked(_)) && payload.required.is_none();
    if payload.schema.is_none() && payload.required.is_none() || unknown {
        return;
    }
    let pointer = if payload.required.is_some() { "/payload/required" } else { "/payload" };
    for part in ["task_summary", "provenance"] {
        if !one.contract.requires(part) {
            let message = format!(
                "the payload must include `{part}`: list it in `payload.required`, or require it in the schema"
            );
            let (kind, pointer) = (DefectKind::Missing, pointer.to_owned());
            one.faults.push(ContractDefect { kind, pointer, message });
        }
    }
    let described = one
        .contract
        .local_schema()
        .is_some_and(|schema| schema::names(schema).iter().any(|name| name == "constraints"));
    if !described && !one.contract.requires("constraints") {
        let message = "the payload has no `constraints`: policy, budget or deadline".to_owned();
        let (kind, pointer) = (super::read::RECOMMENDED, pointer.to_owned());
        one.faults.push(ContractDefect { kind, pointer, message });
    }
}

fn unread(subject: &LintSubject) -> LintReport {
    let findings = match &subject.document {
        Ok(_) => Vec::new(),
        Err(why) => vec![LintFinding {
            rule: rule("unreadable"),
            place: why.place,
            pointer: String::new(),
            message: why.message.clone(),
        }],
    };
    LintReport { id: None, file: subject.file.clone(), level: None, missing: Vec::new(), findings }
}

/// The findings on one document.
struct ContractFindings<'a> {
    document: &'a Document,
    findings: Vec<LintFinding>,
}

impl ContractFindings<'_> {
    fn add(&mut self, name: &'static str, pointer: &str, message: String) {
        self.findings.push(LintFinding {
            rule: rule(name),
            place: self.document.place(pointer),
            pointer: pointer.to_owned(),
            message,
        });
    }

    fn faults(&mut self, faults: &[ContractDefect]) {
        for fault in faults {
            let name = match fault.kind {
                DefectKind::Invalid => "invalid-clause",
                DefectKind::Missing => "missing-clause",
                DefectKind::MissingRecovery => "missing-recovery",
                DefectKind::Unknown => "unknown-field",
                DefectKind::Noted(name) => name,
            };
            self.add(name, &fault.pointer, fault.message.clone());
        }
    }

    fn duplicates(&mut self, one: &LintedContract<'_>, all: &[LintedContract<'_>]) {
        let same = |other: &&LintedContract<'_>| {
            other.at < one.at
                && other.contract.id == one.contract.id
                && other.contract.version() == one.contract.version()
        };
        if !one.contract.id.is_empty() && all.iter().any(|other| same(&other)) {
            self.add(
                "duplicate-id",
                "/id",
                format!("`{}` is another contract's id as well", one.contract),
            );
        }
    }

    /// From the target over all contracts: does a path lead back to the source?
    fn loops(
        &mut self,
        contract: &Contract,
        edges: &[(String, String)],
        registry: Option<&Registry>,
    ) {
        if contract.recovery.loop_guard.is_some()
            || contract.source.is_empty()
            || contract.target.is_empty()
        {
            return;
        }
        let same = |a: &str, b: &str| registry.map_or(a == b, |registry| registry.same(a, b));
        let mut reached = vec![contract.target.as_str()];
        let mut seen: BTreeSet<&str> = reached.iter().copied().collect();
        while let Some(at) = reached.pop() {
            if same(at, &contract.source) {
                self.add(
                    "loop-risk",
                    if self.document.value().get("recovery").is_some() {
                        "/recovery"
                    } else {
                        "/target"
                    },
                    format!(
                        "there is no `loop_guard`, and a path leads from {} back to {}",
                        contract.target, contract.source
                    ),
                );
                return;
            }
            for (_, to) in edges.iter().filter(|(from, _)| same(from, at)) {
                if seen.insert(to.as_str()) {
                    reached.push(to.as_str());
                }
            }
        }
    }

    fn retries(&mut self, contract: &Contract) {
        let idempotent = contract.idempotency.as_ref().and_then(|stated| stated.idempotent);
        let retries = contract.recovery.max_retries.unwrap_or(0);
        if idempotent == Some(false) && retries > 0 {
            self.add(
                "retry-non-idempotent",
                "/recovery/max_retries",
                format!(
                    "the handoff is not idempotent, and `max_retries` is {retries}: it must be 0"
                ),
            );
        }
    }

    fn history(&mut self, contract: &Contract) {
        /// Names under which a payload carries a whole conversation.
        const WHOLE: [&str; 7] = [
            "history",
            "messages",
            "transcript",
            "conversation",
            "conversation_history",
            "full_history",
            "conversation_history_verbatim",
        ];
        let pointer = "/payload/history_strategy";
        match contract.payload.history_strategy {
            Some(HistoryStrategy::Full) => {
                if contract.payload.history_justification.is_none()
                    && !self.document.is_commented(pointer)
                {
                    self.add(
                        "full-history",
                        pointer,
                        "`history_strategy: full` without a comment that says why a summary is not enough".to_owned(),
                    );
                }
            }
            Some(_) => {}
            None => {
                let names = contract.payload.required.iter().flatten();
                let whole = names.filter(|name| {
                    let name = name.strip_prefix("payload.").unwrap_or(name);
                    WHOLE.contains(&super::payload::snake(name).as_str())
                });
                if let Some(name) = whole.map(String::as_str).next() {
                    self.add(
                        "full-history",
                        "/payload/required",
                        format!("the payload carries `{name}` without a `history_strategy`"),
                    );
                }
            }
        }
    }

    /// The highest version below this one: what it breaks of that moves the major (seed 002 §4.2).
    fn before(&mut self, one: &LintedContract<'_>, all: &[LintedContract<'_>], held: &[&Contract]) {
        let version = one.contract.version();
        let others = all.iter().map(|other| &other.contract).chain(held.iter().copied());
        let before = others
            .filter(|other| {
                other.id == one.contract.id
                    && other.version() < version
                    && (other.version().pre.is_empty() || !version.pre.is_empty())
            })
            .max_by_key(|other| other.version());
        let Some(before) = before else { return };
        let then = before.version();
        if versions::may_break(&then, &version) {
            return;
        }
        for versions::BreakingChange { pointer, what } in versions::breaks(before, &one.contract) {
            let why =
                format!("{version} breaks {then} ({what}): a breaking change moves the major");
            self.add("breaking-change", pointer, why);
        }
    }

    /// Where it is on its way out.
    fn ending(
        &mut self,
        one: &LintedContract<'_>,
        all: &[LintedContract<'_>],
        around: LintContext<'_>,
    ) {
        let Some(word) = &one.contract.deprecation else { return };
        if around.now.is_some_and(|now| one.contract.has_ended(now)) {
            let next = word
                .replacement_id
                .as_deref()
                .map_or_else(String::new, |next| format!("; `{next}` takes its place"));
            let why =
                format!("the sunset is past: every handoff under this contract is refused{next}");
            self.add("past-sunset", "/deprecation", why);
        }
        if let Some(next) = &word.replacement_id {
            let others = all.iter().map(|other| &other.contract);
            let others = others.chain(around.in_force.iter().copied());
            if !others.into_iter().any(|other| other.id == *next && other.id != one.contract.id) {
                let why = format!("no contract is called `{next}`");
                self.add("unknown-replacement", "/deprecation/replacement_id", why);
            }
        }
    }

    /// A tool that leads to two receivers is offered for the first contract by id.
    fn tools(
        &mut self,
        one: &LintedContract<'_>,
        all: &[LintedContract<'_>],
        in_force: &[&Contract],
    ) {
        let Some(tool) = &one.contract.trigger.tool_call else { return };
        let others = all.iter().map(|other| &other.contract).chain(in_force.iter().copied());
        let first = others
            .filter(|other| {
                other.source == one.contract.source
                    && other.id < one.contract.id
                    && other.target != one.contract.target
                    && other.trigger.tool_call.as_ref() == Some(tool)
            })
            .min_by(|a, b| a.id.cmp(&b.id));
        if let Some(first) = first {
            let why = format!(
                "`{tool}` of `{}` leads to {} already: the tool endpoint offers that one",
                first.id, first.target
            );
            self.add("without-effect", "/trigger/tool_call", why);
        }
    }

    /// Finds the schema, and holds it against its reviews.
    fn review(&mut self, one: &LintedContract<'_>, registry: Option<&Registry>) -> ReviewEvidence {
        let mut outside = ReviewEvidence::default();
        let pointer = "/payload/schema";
        let name = match &one.contract.payload.schema {
            None => return outside,
            Some(SchemaRef::Inline(_)) => None,
            Some(SchemaRef::Named(name)) => Some(name),
        };
        let shown = name.map_or("the schema", String::as_str);
        let found = match &one.schema {
            SchemaFile::ContractFindings(found) => found,
            SchemaFile::NotLooked => {
                let why = if is_url(shown) {
                    "is a URL: a frozen schema lies in a file, in `schemas`, or in the registry"
                } else {
                    "is no file, is not among `schemas`, and is not registered: it cannot be enforced"
                };
                self.add("schema-drift", pointer, format!("`{shown}` {why}"));
                return outside;
            }
            SchemaFile::Unchecked(hint) => {
                let why = format!("`{shown}` was not checked: {hint}");
                self.add("unchecked-schema", pointer, why);
                return outside;
            }
            SchemaFile::Unfit(why) => {
                self.add("schema-drift", pointer, format!("`{shown}`: {why}"));
                return outside;
            }
            SchemaFile::Missing => {
                let why = match SchemaName::parse(shown) {
                    Some(_) => format!("`{shown}` is not registered"),
                    None => format!("there is no file `{shown}`"),
                };
                self.add("schema-drift", pointer, why);
                return outside;
            }
        };
        let changed = |by: &str, then: &str| {
            let now = found.sha256();
            format!("`{shown}` has changed since {by}: sha256 is {now}, and was {then}")
        };
        match name.and_then(|name| registry.and_then(|registry| registry.reviewed(name))) {
            Some(then) if found.has(then) => outside.frozen = true,
            Some(then) => {
                self.add("schema-drift", pointer, changed("the last review", then));
            }
            None => {}
        }
        for review in &one.contract.reviews {
            let (Some(_), Some(then)) = (review.at, &review.sha256) else { continue };
            if found.has(then) {
                (outside.frozen, outside.signed) = (true, true);
            } else {
                let why = changed(&format!("{} reviewed it", review.name), then);
                self.add("schema-drift", "/reviewed_by", why);
            }
        }
        outside
    }

    /// Where control goes when it goes wrong: agents that are there.
    fn ways(&mut self, contract: &Contract, registry: &Registry) {
        let recovery = &contract.recovery;
        let ways = [
            ("/recovery/on_reject", &recovery.on_reject),
            ("/recovery/on_timeout", &recovery.on_timeout),
            ("/recovery/on_error", &recovery.on_error),
        ];
        let resume = contract.human.as_ref().and_then(|human| human.how.resume_as.as_ref());
        let named = ways.iter().filter_map(|(pointer, way)| match way {
            Some(Recovery::Agent(id)) => Some((*pointer, id)),
            _ => None,
        });
        for (pointer, id) in named.chain(resume.map(|id| ("/human_in_the_loop/resume_as", id))) {
            if !registry.agents.iter().any(|agent| agent.agent_id == id.as_str()) {
                let why = format!("no agent of the registry has the id `{id}`");
                self.add("orphan-recovery", pointer, why);
            }
        }
        let supervised = ways.iter().find(|(_, way)| *way == &Some(Recovery::Supervisor));
        let parties = [&contract.source, &contract.target];
        let mut agents = parties.into_iter().flat_map(|name| registry.named(name)).peekable();
        if let Some((pointer, _)) = supervised
            && registry.supervisors
            && agents.peek().is_some()
            && !agents.any(|agent| {
                agent
                    .supervisor_id
                    .as_ref()
                    .is_some_and(|id| registry.agents.iter().any(|other| other.agent_id == *id))
            })
        {
            let why = format!(
                "neither {} nor {} has a `supervisorId` that is registered: the task goes back to its source",
                contract.source, contract.target
            );
            self.add("no-supervisor", pointer, why);
        }
    }

    fn target(&mut self, contract: &Contract, registry: &Registry) {
        let target = &contract.target;
        if !target.is_empty() && registry.named(target).next().is_none() {
            self.add(
                "orphan-target",
                "/target",
                format!("no agent of the registry has the id or type `{target}`"),
            );
        }
    }

    fn reach(&mut self, contract: &Contract, registry: &Registry) {
        let (source, target) = (&contract.source, &contract.target);
        if source.is_empty() || target.is_empty() {
            return;
        }
        let target_type = registry.named(target).find_map(|agent| agent.agent_type.as_deref());
        let tool_call = contract.trigger.tool_call.as_deref();
        let mut sources = registry.named(source).peekable();
        let unknown = sources.peek().is_none();
        if sources.any(|agent| agent.exposes(target, target_type, tool_call)) {
            return;
        }
        let pointer =
            if contract.trigger.tool_call.is_some() { "/trigger/tool_call" } else { "/trigger" };
        let why = match (unknown, tool_call) {
            (true, _) => format!("the source `{source}` is not in the registry"),
            (false, Some(tool)) => {
                format!("`{source}` has no tool `{tool}`, and no prompt that leads to {target}")
            }
            (false, None) => format!("`{source}` has no tool and no prompt that lead to {target}"),
        };
        self.add("unreachable-handoff", if unknown { "/source" } else { pointer }, why);
    }

    fn permission(&mut self, contract: &Contract, registry: &Registry) {
        if let (Some(rule), Some(known)) =
            (&contract.acceptance.permission_check, &registry.permissions)
            && !known.contains(rule)
        {
            self.add(
                "permission-mismatch",
                "/acceptance_criteria/permission_check",
                format!("`{rule}` is not declared in the permission registry"),
            );
        }
    }
}
