//! The linter (seed 002 §7): the seven errors, the warning, and what makes a document no contract at
//! all. Pure: files are read by whoever calls.

use std::collections::BTreeSet;

use super::document::{Document, Place, Unreadable};
use super::level::{Level, Outside, grade, is_url};
use super::registry::Registry;
use super::shelf::SchemaName;
use super::{Contract, Fault, FaultKind, HistoryStrategy, SchemaRef, read, schema};
use crate::domain::canonical;

/// A rule: its name (fixed), how grave it is, and what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The name.
    pub name: &'static str,
    /// `error` or `warning`.
    pub severity: Severity,
    /// What it finds, in a sentence.
    pub about: &'static str,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The contract does not conform.
    Error,
    /// It should be looked at.
    Warning,
}

impl Severity {
    /// As written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

const fn error(name: &'static str, about: &'static str) -> Rule {
    Rule { name, severity: Severity::Error, about }
}

const fn warning(name: &'static str, about: &'static str) -> Rule {
    Rule { name, severity: Severity::Warning, about }
}

/// All rules. The first eight are the seed's.
pub const RULES: [Rule; 14] = [
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
];

/// A rule by its name; an unknown name is a slip of this file, and counts as the gravest.
fn rule(name: &'static str) -> Rule {
    RULES.into_iter().find(|rule| rule.name == name).unwrap_or(error(name, ""))
}

/// Something that a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Where.
    pub place: Place,
    /// RFC 6901 pointer into the document.
    pub pointer: String,
    /// In words.
    pub message: String,
}

/// A document to be linted.
#[derive(Debug)]
pub struct Subject {
    /// The file's name, as it is shown.
    pub file: String,
    /// The document, or why there is none.
    pub document: Result<Document, Unreadable>,
    /// What there is of the payload schema that the document names.
    pub schema: SchemaFile,
}

/// A payload schema, as far as whoever reads files found it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SchemaFile {
    /// Nobody looked, or there is nothing to look for (an inline schema, a URL, a bare name).
    #[default]
    NotLooked,
    /// There is no such file, or no such schema is registered.
    Missing,
    /// A registered schema, and nowhere to look for it: what would help.
    Unchecked(String),
    /// A registered schema's file is missing, or holds none: which file, and why it will not do.
    Unfit(String),
    /// It is there.
    Found {
        /// SHA-256 of its bytes, in hexadecimal.
        sha256: String,
        /// It refers to something outside of itself.
        open: bool,
    },
}

impl SchemaFile {
    /// A schema's file as read.
    #[must_use]
    pub fn found(bytes: &[u8]) -> Self {
        use sha2::{Digest, Sha256};
        let open = serde_json::from_slice::<serde_json::Value>(bytes)
            .ok()
            .is_some_and(|value| schema::outside(&value).is_some());
        Self::Found { sha256: hex::encode(Sha256::digest(bytes)), open }
    }

    /// A registered schema's document. Its hash is that of the canonical form, as a broker shows it.
    ///
    /// # Errors
    /// Why it could not be registered, in a sentence.
    pub fn registered(document: &serde_json::Value) -> Result<Self, String> {
        schema::compile(document)?;
        Ok(Self::found(&canonical::to_vec(document)))
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
    let local = document.value().get("schemas").is_some();
    let registered = SchemaName::parse(name).is_some();
    (path_like && !is_url(name) && !local && !registered).then_some(name)
}

/// What became of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The contract's id; `None` where it could not be read.
    pub id: Option<String>,
    /// The file's name, as it is shown.
    pub file: String,
    /// The level it reaches.
    pub level: Option<Level>,
    /// What is missing for the next level.
    pub missing: Vec<String>,
    /// Everything that was found, in the order of the text.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether an error was found.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.rule.severity == Severity::Error)
    }
}

/// A document that could be read.
struct Known<'a> {
    at: usize,
    document: &'a Document,
    schema: &'a SchemaFile,
    contract: Contract,
    faults: Vec<Fault>,
}

/// Lints documents together: what leads from one edge to another is seen over all of them. Rules that
/// need a registry are left out without one. `around` are edges of contracts that are not linted, but
/// may lead back.
#[must_use]
pub fn lint(
    subjects: &[Subject],
    registry: Option<&Registry>,
    around: &[(&str, &str)],
) -> Vec<Report> {
    let mut reports: Vec<Report> = subjects.iter().map(unread).collect();
    let known: Vec<Known<'_>> = subjects
        .iter()
        .enumerate()
        .filter_map(|(at, subject)| {
            let document = subject.document.as_ref().ok()?;
            let (contract, faults) = read(document);
            Some(Known { at, document, schema: &subject.schema, contract, faults })
        })
        .collect();
    let own = known.iter().map(|one| (one.contract.source.as_str(), one.contract.target.as_str()));
    let edges: Vec<(&str, &str)> = own.chain(around.iter().copied()).collect();
    for one in &known {
        let mut found = Found { document: one.document, findings: Vec::new() };
        found.faults(&one.faults);
        found.duplicates(one, &known);
        found.loops(&one.contract, &edges, registry);
        found.retries(&one.contract);
        found.history(&one.contract);
        let reviewed = found.drift(one, registry);
        if let Some(registry) = registry {
            found.target(&one.contract, registry);
            found.reach(&one.contract, registry);
            found.permission(&one.contract, registry);
        }
        let mut findings = found.findings;
        findings.sort_by(|a, b| (a.place, a.rule.name).cmp(&(b.place, b.rule.name)));
        let report = &mut reports[one.at];
        report.id = Some(one.contract.id.clone()).filter(|id| !id.is_empty());
        report.findings = findings;
        let outside = Outside {
            reviewed,
            open_schema: matches!(one.schema, SchemaFile::Found { open: true, .. }),
            errors: report.has_errors(),
        };
        (report.level, report.missing) = grade(&one.contract, &one.faults, outside);
    }
    reports
}

fn unread(subject: &Subject) -> Report {
    let findings = match &subject.document {
        Ok(_) => Vec::new(),
        Err(why) => vec![Finding {
            rule: rule("unreadable"),
            place: why.place,
            pointer: String::new(),
            message: why.message.clone(),
        }],
    };
    Report { id: None, file: subject.file.clone(), level: None, missing: Vec::new(), findings }
}

/// The findings on one document.
struct Found<'a> {
    document: &'a Document,
    findings: Vec<Finding>,
}

impl Found<'_> {
    fn add(&mut self, name: &'static str, pointer: &str, message: String) {
        self.findings.push(Finding {
            rule: rule(name),
            place: self.document.place(pointer),
            pointer: pointer.to_owned(),
            message,
        });
    }

    fn faults(&mut self, faults: &[Fault]) {
        for fault in faults {
            let name = match fault.kind {
                FaultKind::Invalid => "invalid-clause",
                FaultKind::Missing => "missing-clause",
                FaultKind::MissingRecovery => "missing-recovery",
                FaultKind::Unknown => "unknown-field",
            };
            self.add(name, &fault.pointer, fault.message.clone());
        }
    }

    fn duplicates(&mut self, one: &Known<'_>, all: &[Known<'_>]) {
        let same = |other: &&Known<'_>| {
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
    fn loops(&mut self, contract: &Contract, edges: &[(&str, &str)], registry: Option<&Registry>) {
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
                if seen.insert(to) {
                    reached.push(to);
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

    /// Returns whether the schema was reviewed, and is what it was then.
    fn drift(&mut self, one: &Known<'_>, registry: Option<&Registry>) -> bool {
        let Some(SchemaRef::Named(name)) = &one.contract.payload.schema else { return false };
        match one.schema {
            SchemaFile::NotLooked => false,
            SchemaFile::Unchecked(hint) => {
                let why = format!("`{name}` was not checked: {hint}");
                self.add("unchecked-schema", "/payload/schema", why);
                false
            }
            SchemaFile::Unfit(why) => {
                self.add("schema-drift", "/payload/schema", format!("`{name}`: {why}"));
                false
            }
            SchemaFile::Missing => {
                let why = match SchemaName::parse(name) {
                    Some(_) => format!("`{name}` is not registered"),
                    None => format!("there is no file `{name}`"),
                };
                self.add("schema-drift", "/payload/schema", why);
                false
            }
            SchemaFile::Found { sha256, .. } => {
                match registry.and_then(|registry| registry.reviewed(name)) {
                    Some(then) if then.eq_ignore_ascii_case(sha256) => true,
                    Some(then) => {
                        self.add(
                            "schema-drift",
                            "/payload/schema",
                            format!("`{name}` has changed since the last review: sha256 is {sha256}, and was {then}"),
                        );
                        false
                    }
                    None => false,
                }
            }
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
