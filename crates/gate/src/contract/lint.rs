//! The linter (seed 002 §7): the seven errors, the warning, and the defects that make a document invalid as a contract. Pure:
//! the caller reads the files.

use self::checks::ContractFindings;
use self::rules::rule;
use super::document::{Document, DocumentPosition};
use super::level::{Level, ReviewEvidence, grade};
use super::registry::Registry;
use super::{Contract, ContractDefect, DefectKind, SchemaRef, read, schema};

mod checks;
mod registered;
mod rules;
mod subject;

pub use rules::{LintRule, RULES, Severity};
pub(super) use subject::schema_text;
pub use subject::{EnforceableSchema, LintSubject, SchemaFile, schema_name, schema_path};

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

/// The findings on one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintReport {
    /// Id of the contract; `None` where it could not be read.
    pub id: Option<String>,
    /// The file's displayed name.
    pub file: String,
    /// The level that the contract reaches.
    pub level: Option<Level>,
    /// Clauses that the next level requires.
    pub missing: Vec<String>,
    /// All findings, in document order.
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
        if let (SchemaFile::Enforceable(found), Some(SchemaRef::Named(name))) =
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
        found.rules_itself(&one.contract);
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
