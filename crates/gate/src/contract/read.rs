//! From a document to a [`Contract`]: takes what is there, and says what is wrong or missing, each
//! with its pointer.

use semver::Version;

use self::values::ObjectCursor;
use super::document::Document;
use super::{Contract, SchemaRef};
use handoffd_domain::agent::is_type_name;

mod optional;
mod required;
mod values;

/// The longest id of a contract, in bytes.
const MAX_ID: usize = 128;
/// The longest time that a contract may state, in milliseconds: 30 days.
const MAX_TIME_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// A defect of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractDefect {
    pub kind: DefectKind,
    /// RFC 6901 pointer to the defective value, or to its expected position.
    pub pointer: String,
    /// The defect as a sentence.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefectKind {
    /// The value cannot be enforced: wrong type, unreadable predicate, no id.
    Invalid,
    /// A required clause is absent (seed 002 §3).
    Missing,
    /// One of the three recoveries is absent (seed 002 §7).
    MissingRecovery,
    /// No contract has this field: a typing error, or a note.
    Unknown,
    /// A recommended clause is absent, or has no full effect; named after the lint rule.
    Noted(&'static str),
}

/// A clause that the seed recommends is absent.
pub(super) const RECOMMENDED: DefectKind = DefectKind::Noted("recommended-clause");
/// A clause that has no effect in its present form.
pub(super) const WITHOUT_EFFECT: DefectKind = DefectKind::Noted("without-effect");

impl DefectKind {
    /// Whether the defect violates a MUST of the seed.
    #[must_use]
    pub const fn breaks_a_must(self) -> bool {
        matches!(self, Self::Invalid | Self::Missing | Self::MissingRecovery)
    }
}

/// Reads a contract and collects its defects.
#[must_use]
pub fn read(document: &Document) -> (Contract, Vec<ContractDefect>) {
    let mut reader = ContractReader { faults: Vec::new() };
    let Some(root) = document.value().as_object() else {
        reader.invalid("", "a contract is a mapping of clauses".to_owned());
        return (Contract::default(), reader.faults);
    };
    let root = ObjectCursor { object: root, pointer: String::new() };
    let contract = reader.contract(&root);
    (contract, reader.faults)
}

struct ContractReader {
    faults: Vec<ContractDefect>,
}

impl ContractReader {
    fn contract(&mut self, root: &ObjectCursor<'_>) -> Contract {
        const KNOWN: [&str; 25] = [
            // Of a declared file (`handoffd apply`).
            "kind",
            "id",
            "version",
            "source",
            "target",
            "trigger",
            "payload",
            "acceptance_criteria",
            "recovery",
            "observability",
            "idempotency",
            "human_in_the_loop",
            "human_target",
            "deprecation",
            "reviewed_by",
            "require_checkpoint",
            "orders",
            "schemas",
            "description",
            "title",
            "owner",
            "tags",
            "notes",
            "review",
            "$schema",
        ];
        self.unknown(root, &KNOWN);
        let contract = Contract {
            id: self.id(root),
            version: self.version(root),
            source: self.party(root, "source"),
            target: self.party(root, "target"),
            trigger: self.trigger(root),
            payload: self.payload(root),
            acceptance: self.acceptance(root),
            recovery: self.recovery(root),
            observability: self.observability(root),
            idempotency: self.idempotency(root),
            human: self.human(root),
            deprecation: self.deprecation(root),
            reviews: self.reviews(root),
            require_checkpoint: self.flag(root, "require_checkpoint").unwrap_or(false),
            orders: self.orders(root),
            schemas: self
                .object(root, "schemas")
                .map(|at| {
                    at.object.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect()
                })
                .unwrap_or_default(),
        };
        self.schemas(&contract);
        contract
    }

    fn schemas(&mut self, contract: &Contract) {
        for (name, schema) in &contract.schemas {
            if let Err(why) = super::schema::compile(schema) {
                let name = name.replace('~', "~0").replace('/', "~1");
                self.invalid(format!("/schemas/{name}"), why);
            }
        }
        if let Some(SchemaRef::Inline(schema)) = &contract.payload.schema
            && let Err(why) = super::schema::compile(schema)
        {
            self.invalid("/payload/schema", why);
        }
    }

    fn id(&mut self, root: &ObjectCursor<'_>) -> String {
        let Some(id) = self.text(root, "id") else {
            if root.get("id").is_none() {
                self.fault(DefectKind::Invalid, "/id", "the contract has no `id`".to_owned());
            }
            return String::new();
        };
        if !is_kebab(&id) {
            self.invalid(
                "/id",
                format!("`id` must be kebab-case, at most {MAX_ID} characters, like `triage-to-refunds-v1`"),
            );
        }
        id
    }

    fn version(&mut self, root: &ObjectCursor<'_>) -> Option<Version> {
        let Some(stated) = root.get("version") else {
            let why = "the contract states no `version`";
            self.fault(RECOMMENDED, "/version", why.to_owned());
            return None;
        };
        let version = stated.as_str().and_then(|text| Version::parse(text).ok());
        if version.is_none() {
            let quote = if stated.is_number() { "; quote it" } else { "" };
            self.invalid(
                "/version",
                format!("`version` must be a semantic version like `1.2.0`{quote}"),
            );
        }
        version
    }

    fn party(&mut self, root: &ObjectCursor<'_>, name: &str) -> String {
        let Some(text) = self.text(root, name) else {
            if root.get(name).is_none() {
                self.invalid(root.pointer(name), format!("the contract has no `{name}`"));
            }
            return String::new();
        };
        let plain = text.strip_prefix("type:").unwrap_or(&text);
        if !is_type_name(plain) {
            self.invalid(
                root.pointer(name),
                format!("`{name}` must be one agent's id or type, without wildcards"),
            );
        }
        plain.to_owned()
    }
}

pub(super) fn is_kebab(id: &str) -> bool {
    id.len() <= MAX_ID
        && id.split('-').all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
        })
}

/// The tools that the broker's MCP door has itself: none of a contract goes by such a name.
pub const BUILTIN_TOOLS: [&str; 20] = [
    "find_agents",
    "hand_off",
    "check_handoff",
    "get_handoff",
    "answer",
    "cancel_task",
    "save_checkpoint",
    "get_trace",
    "take_next",
    "accept",
    "reject",
    "ask",
    "heartbeat",
    "complete",
    "fail",
    "list_dead_letters",
    "release",
    "discard",
    "list_escalations",
    "resolve",
];

/// Whether model providers take a text as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}
