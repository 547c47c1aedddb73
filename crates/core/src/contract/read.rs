//! From a document to a [`Contract`]: takes what is there, and says what is wrong or missing, each
//! with its pointer.

use semver::Version;
use serde_json::{Map, Value};

use super::document::Document;
use super::predicate::Predicate;
use super::shelf::SchemaName;
use super::{
    AcceptanceClause, Contract, Deprecation, HistoryStrategy, HumanClause, Idempotency,
    LoopGuardClause, Observability, PayloadClause, RecoveryClause, Review, SchemaRef,
    TriggerClause, agent_id,
};
use crate::domain::agent::is_type_name;
use crate::domain::policy::{HumanTarget, LoopGuard, Moment, Orders, Recovery};
use crate::domain::window::ContextRule;

/// The longest id of a contract, in bytes.
const MAX_ID: usize = 128;
/// The longest time that a contract may state, in milliseconds: 30 days.
const MAX_TIME_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// The most retries that a contract may state.
const MAX_RETRIES: u64 = 100;
/// Passages that a counter allows unless it says how many.
const COUNTER: u32 = 3;
/// The most names in a list.
const MAX_NAMES: usize = 256;
/// The most turns that a contract may allow: as many as a message may have.
const MAX_TURNS: u64 = 10_000;
/// The most bytes of a conversation that a contract may allow: the largest body, by default.
const MAX_HISTORY: u64 = 10 * 1024 * 1024;
/// The largest context of a model that a contract may name, in tokens.
const MAX_CONTEXT: u64 = 100_000_000;

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
/// A clause that has no effect as it stands.
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

/// An object and where it stands.
struct ObjectCursor<'a> {
    object: &'a Map<String, Value>,
    pointer: String,
}

impl<'a> ObjectCursor<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"))
    }
}

struct ContractReader {
    faults: Vec<ContractDefect>,
}

impl ContractReader {
    fn fault(&mut self, kind: DefectKind, pointer: impl Into<String>, message: String) {
        self.faults.push(ContractDefect { kind, pointer: pointer.into(), message });
    }

    fn invalid(&mut self, pointer: impl Into<String>, message: String) {
        self.fault(DefectKind::Invalid, pointer, message);
    }

    fn missing(&mut self, pointer: impl Into<String>, message: &str) {
        self.fault(DefectKind::Missing, pointer, message.to_owned());
    }

    fn contract(&mut self, root: &ObjectCursor<'_>) -> Contract {
        const KNOWN: [&str; 24] = [
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

    fn unknown(&mut self, at: &ObjectCursor<'_>, known: &[&str]) {
        for name in at.object.keys() {
            if known.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with("x_") {
                continue;
            }
            let near = known
                .iter()
                .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
                .filter(|(score, _)| *score >= 0.7)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let hint =
                near.map_or_else(String::new, |(_, known)| format!("; did you mean `{known}`?"));
            let shown: String = name.chars().take(80).collect();
            self.fault(
                DefectKind::Unknown,
                at.pointer(name),
                format!("`{shown}` is not a field of a contract{hint}"),
            );
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

    fn trigger(&mut self, root: &ObjectCursor<'_>) -> TriggerClause {
        let Some(at) = self.object(root, "trigger") else {
            if root.get("trigger").is_none() {
                self.missing("/trigger", "`trigger` is absent: say when the source hands off");
            }
            return TriggerClause::default();
        };
        self.unknown(&at, &["intent", "predicate", "tool_call"]);
        let trigger = TriggerClause {
            intent: self.text(&at, "intent"),
            predicate: self.predicate(&at, "predicate"),
            tool_call: self.text(&at, "tool_call"),
        };
        if ["intent", "predicate", "tool_call"].iter().all(|name| at.get(name).is_none()) {
            self.missing(
                "/trigger",
                "`trigger` needs at least one of `intent`, `predicate` and `tool_call`",
            );
        } else {
            for (name, why) in [
                ("intent", "people read no predicate"),
                ("predicate", "the broker can hold no words"),
            ] {
                if at.get(name).is_none() {
                    let why = format!("`trigger.{name}` is absent: {why}");
                    self.fault(RECOMMENDED, "/trigger", why);
                }
            }
        }
        if trigger.tool_call.as_deref().is_some_and(|name| !is_tool_name(name)) {
            let why = "the tool endpoint does not offer it: a tool's name has letters, digits, `_` and `-`, 64 at most";
            self.fault(WITHOUT_EFFECT, "/trigger/tool_call", why.to_owned());
        }
        trigger
    }

    fn payload(&mut self, root: &ObjectCursor<'_>) -> PayloadClause {
        let Some(at) = self.object(root, "payload") else {
            if root.get("payload").is_none() {
                self.missing("/payload", "`payload` is absent: name its schema");
            }
            return PayloadClause::default();
        };
        self.unknown(
            &at,
            &[
                "schema",
                "required",
                "history_strategy",
                "history_justification",
                "history_turns",
                "history_bytes",
                "context_tokens",
                "context_policy",
            ],
        );
        let schema = match at.get("schema") {
            None => {
                self.missing(
                    "/payload/schema",
                    "`payload.schema` is absent: a payload is defined by a named schema",
                );
                None
            }
            Some(Value::String(name)) if !name.trim().is_empty() && name.len() <= 1_024 => {
                if let Some(Err(why)) = SchemaName::parse(name) {
                    self.invalid("/payload/schema", why);
                }
                Some(SchemaRef::Named(name.clone()))
            }
            Some(Value::Object(inline)) => Some(SchemaRef::Inline(Value::Object(inline.clone()))),
            Some(_) => {
                self.invalid(
                    "/payload/schema",
                    "`payload.schema` must name a schema, or be one".to_owned(),
                );
                None
            }
        };
        let required = self.names(&at, "required");
        let history_strategy = self.text(&at, "history_strategy").and_then(|text| {
            let strategy = HistoryStrategy::parse(&text);
            if strategy.is_none() {
                self.invalid(
                    "/payload/history_strategy",
                    "`history_strategy` must be one of full, summary, last_k, pointer".to_owned(),
                );
            }
            strategy
        });
        let history_justification = self.text(&at, "history_justification");
        let history_turns = self.number(&at, "history_turns", 0, MAX_TURNS);
        let history_bytes = self.number(&at, "history_bytes", 0, MAX_HISTORY);
        if history_strategy.is_none() && (history_turns.is_some() || history_bytes.is_some()) {
            let why =
                "`history_turns` and `history_bytes` bound a `history_strategy`, and there is none";
            self.fault(WITHOUT_EFFECT, "/payload", why.to_owned());
        }
        let context = ContextRule {
            tokens: self.number(&at, "context_tokens", 1, MAX_CONTEXT),
            policy: self.text(&at, "context_policy").and_then(|text| {
                let policy = serde_json::from_value(Value::String(text)).ok();
                if policy.is_none() {
                    self.invalid(
                        "/payload/context_policy",
                        "`context_policy` must be one of flag, compress, refuse".to_owned(),
                    );
                }
                policy
            }),
        };
        PayloadClause {
            schema,
            required,
            history_strategy,
            history_justification,
            history_turns,
            history_bytes,
            context,
        }
    }

    fn acceptance(&mut self, root: &ObjectCursor<'_>) -> AcceptanceClause {
        let Some(at) = self.object(root, "acceptance_criteria") else {
            if root.get("acceptance_criteria").is_none() {
                self.missing("/acceptance_criteria", "`acceptance_criteria` is absent");
            }
            return AcceptanceClause::default();
        };
        let names = ["required_fields", "domain_match", "permission_check"];
        self.unknown(&at, &names);
        for name in names {
            if at.get(name).is_none() {
                self.missing(at.pointer(name), &format!("`acceptance_criteria.{name}` is absent"));
            }
        }
        AcceptanceClause {
            required_fields: self.names(&at, "required_fields"),
            domain_match: self.predicate(&at, "domain_match"),
            permission_check: self.text(&at, "permission_check"),
        }
    }

    fn recovery(&mut self, root: &ObjectCursor<'_>) -> RecoveryClause {
        const ON: [&str; 3] = ["on_reject", "on_timeout", "on_error"];
        let Some(at) = self.object(root, "recovery") else {
            if root.get("recovery").is_none() {
                self.fault(
                    DefectKind::MissingRecovery,
                    "/recovery",
                    "`recovery` is absent: say on_reject, on_timeout and on_error".to_owned(),
                );
            }
            return RecoveryClause::default();
        };
        self.unknown(
            &at,
            &["on_reject", "on_timeout", "on_error", "timeout_ms", "max_retries", "loop_guard"],
        );
        let absent: Vec<&str> = ON.into_iter().filter(|name| at.get(name).is_none()).collect();
        if !absent.is_empty() {
            self.fault(
                DefectKind::MissingRecovery,
                "/recovery",
                format!("`recovery` does not say {}", absent.join(", ")),
            );
        }
        for (name, why) in [
            ("timeout_ms", "`on_timeout` needs a documented budget"),
            ("loop_guard", "name a counter or a set of visited agents"),
        ] {
            if at.get(name).is_none() {
                let why = format!("`recovery.{name}` is absent: {why}");
                self.missing(at.pointer(name), &why);
            }
        }
        let [on_reject, on_timeout, on_error] = ON.map(|name| self.way(&at, name));
        RecoveryClause {
            on_reject,
            on_timeout,
            on_error,
            timeout_ms: self.number(&at, "timeout_ms", 1, MAX_TIME_MS),
            max_retries: self
                .number(&at, "max_retries", 0, MAX_RETRIES)
                .and_then(|count| u32::try_from(count).ok()),
            loop_guard: self.loop_guard(&at),
        }
    }

    fn way(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<Recovery> {
        let text = self.text(at, name)?;
        match text.parse() {
            Ok(way) => Some(way),
            Err(why) => {
                self.invalid(at.pointer(name), why);
                None
            }
        }
    }

    fn loop_guard(&mut self, at: &ObjectCursor<'_>) -> Option<LoopGuardClause> {
        let pointer = at.pointer("loop_guard");
        let counter = |reference: &str, max| LoopGuardClause {
            reference: reference.to_owned(),
            rule: LoopGuard::Counter { max },
        };
        match at.get("loop_guard")? {
            Value::String(text) if !text.trim().is_empty() => {
                let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
                Some(if last.contains("visit") || last.contains("agents") {
                    LoopGuardClause { reference: text.clone(), rule: LoopGuard::Visited }
                } else {
                    counter(text, COUNTER)
                })
            }
            Value::Number(max) => match max.as_u64().and_then(|max| u32::try_from(max).ok()) {
                Some(max) if max >= 1 => Some(counter("", max)),
                _ => {
                    self.invalid(pointer, "`loop_guard` as a number must be 1 or more".to_owned());
                    None
                }
            },
            Value::Object(object) => {
                let guard = ObjectCursor { object, pointer };
                self.unknown(&guard, &["visited", "counter", "max"]);
                if let Some(reference) = self.text(&guard, "visited") {
                    return Some(LoopGuardClause { reference, rule: LoopGuard::Visited });
                }
                let reference = self.text(&guard, "counter").unwrap_or_default();
                let max = self.number(&guard, "max", 1, 1_000).unwrap_or(u64::from(COUNTER));
                Some(counter(&reference, u32::try_from(max).unwrap_or(COUNTER)))
            }
            _ => {
                self.invalid(
                    pointer,
                    "`loop_guard` must name a counter or a set of visited agents".to_owned(),
                );
                None
            }
        }
    }

    fn observability(&mut self, root: &ObjectCursor<'_>) -> Option<Observability> {
        let at = self.object(root, "observability")?;
        self.unknown(&at, &["trace_id_field", "audit_event", "metrics"]);
        let trace_id_field = self.dotted(&at, "trace_id_field");
        if at.get("trace_id_field").is_none() {
            let why = "`observability.trace_id_field` is absent";
            self.fault(RECOMMENDED, "/observability", why.to_owned());
        }
        // It goes into records, which cannot be erased: a name, no sentence.
        let audit_event = self.text(&at, "audit_event").filter(|name| {
            let well = is_event_name(name);
            if !well {
                let why = "`audit_event` must be a name: letters, digits, `.`, `_`, `:` and `-`, 128 at most";
                self.invalid("/observability/audit_event", why.to_owned());
            }
            well
        });
        let metrics = self.names(&at, "metrics").unwrap_or_default();
        for (place, name) in metrics.iter().enumerate() {
            if !is_event_name(name) {
                let why =
                    "a metric must be a name: letters, digits, `.`, `_`, `:` and `-`, 128 at most";
                self.invalid(format!("/observability/metrics/{place}"), why.to_owned());
            } else if Moment::of_metric(name).is_none() {
                let kind = DefectKind::Noted("unknown-metric");
                let why = format!(
                    "no moment of a handoff is called `{name}`: each handoff that is committed counts"
                );
                self.fault(kind, format!("/observability/metrics/{place}"), why);
            }
        }
        let metrics = metrics.into_iter().filter(|name| is_event_name(name)).collect();
        Some(Observability { trace_id_field, audit_event, metrics })
    }

    fn idempotency(&mut self, root: &ObjectCursor<'_>) -> Option<Idempotency> {
        let at = self.object(root, "idempotency")?;
        self.unknown(&at, &["idempotent", "dedupe_key", "replay_window_ms"]);
        let dedupe_key = self.dotted(&at, "dedupe_key");
        let replay_window_ms = self.number(&at, "replay_window_ms", 1, MAX_TIME_MS);
        for (name, other) in
            [("dedupe_key", "replay_window_ms"), ("replay_window_ms", "dedupe_key")]
        {
            if at.get(name).is_some() && at.get(other).is_none() {
                let why = format!("`{name}` without `{other}` drops no repeat");
                self.fault(WITHOUT_EFFECT, at.pointer(name), why);
            }
        }
        for name in ["idempotent", "dedupe_key"] {
            let silent = name == "dedupe_key"
                && (at.get("idempotent").and_then(Value::as_bool) == Some(false)
                    || at.get("replay_window_ms").is_some());
            if at.get(name).is_none() && !silent {
                let why = format!("`idempotency.{name}` is absent");
                self.fault(RECOMMENDED, "/idempotency", why);
            }
        }
        Some(Idempotency { idempotent: self.flag(&at, "idempotent"), dedupe_key, replay_window_ms })
    }

    fn human(&mut self, root: &ObjectCursor<'_>) -> Option<HumanClause> {
        let human = self.human_clause(root);
        if let Some(HumanClause { target: true, how }) = &human {
            let said = [
                ("channel", how.channel.is_some()),
                ("timeout_ms", how.timeout_ms.is_some()),
                ("resume_as", how.resume_as.is_some()),
            ];
            let absent: Vec<&str> =
                said.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
            if !absent.is_empty() {
                let at = if root.get("human_in_the_loop").is_some() {
                    "/human_in_the_loop"
                } else {
                    "/human_target"
                };
                let why =
                    format!("the target may be a person, and {} is not said", absent.join(", "));
                self.fault(RECOMMENDED, at, why);
            }
        }
        human
    }

    fn human_clause(&mut self, root: &ObjectCursor<'_>) -> Option<HumanClause> {
        let stated = self.flag(root, "human_target");
        match root.get("human_in_the_loop") {
            None => stated.map(|target| HumanClause { target, how: HumanTarget::default() }),
            Some(Value::Bool(target)) => {
                Some(HumanClause { target: stated.unwrap_or(*target), how: HumanTarget::default() })
            }
            Some(Value::Object(object)) => {
                let at = ObjectCursor { object, pointer: "/human_in_the_loop".to_owned() };
                self.unknown(
                    &at,
                    &["human_target", "channel", "timeout_ms", "resume_as", "synthetic_agent"],
                );
                let target = self.flag(&at, "human_target").or(stated);
                if target.is_none() {
                    self.invalid(
                        "/human_in_the_loop",
                        "`human_in_the_loop` must say whether `human_target` is true".to_owned(),
                    );
                }
                let name =
                    if at.get("resume_as").is_some() { "resume_as" } else { "synthetic_agent" };
                let resume_as = self.text(&at, name).and_then(|text| {
                    let id = agent_id(&text);
                    if id.is_none() {
                        self.invalid(at.pointer(name), format!("`{name}` must be an agent's id"));
                    }
                    id
                });
                let how = HumanTarget {
                    channel: self.text(&at, "channel"),
                    timeout_ms: self.number(&at, "timeout_ms", 1, MAX_TIME_MS),
                    resume_as,
                    ..HumanTarget::default()
                };
                Some(HumanClause { target: target.unwrap_or(false), how })
            }
            Some(_) => {
                self.invalid(
                    "/human_in_the_loop",
                    "`human_in_the_loop` must be true, false or a mapping".to_owned(),
                );
                None
            }
        }
    }

    fn deprecation(&mut self, root: &ObjectCursor<'_>) -> Option<Deprecation> {
        if matches!(root.get("deprecation")?, Value::Bool(false)) {
            return None;
        }
        let at = self.object(root, "deprecation")?;
        self.unknown(&at, &["since", "sunset", "sunset_date", "replacement_id", "reason"]);
        let sunset = if at.get("sunset").is_some() { "sunset" } else { "sunset_date" };
        for name in [sunset, "replacement_id"] {
            if at.get(name).is_none() {
                let name = if name == "sunset_date" { "sunset" } else { name };
                let why = format!("`deprecation.{name}` is absent");
                self.fault(RECOMMENDED, "/deprecation", why);
            }
        }
        Some(Deprecation {
            since: self.date(&at, "since"),
            sunset: self.date(&at, sunset),
            replacement_id: self.text(&at, "replacement_id"),
        })
    }

    fn reviews(&mut self, root: &ObjectCursor<'_>) -> Vec<Review> {
        match root.get("reviewed_by") {
            None => Vec::new(),
            Some(Value::Array(entries)) => entries
                .iter()
                .enumerate()
                .filter_map(|(place, entry)| self.review(entry, format!("/reviewed_by/{place}")))
                .collect(),
            Some(entry) => self.review(entry, "/reviewed_by".to_owned()).into_iter().collect(),
        }
    }

    fn review(&mut self, entry: &Value, pointer: String) -> Option<Review> {
        let review = match entry {
            Value::String(name) if !name.trim().is_empty() => {
                Review { name: name.clone(), ..Review::default() }
            }
            Value::Object(object) => {
                let at = ObjectCursor { object, pointer: pointer.clone() };
                self.unknown(&at, &["name", "at", "sha256"]);
                let sha256 = self.text(&at, "sha256").and_then(|text| {
                    let hash = text.strip_prefix("sha256:").unwrap_or(&text);
                    let well = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
                    if !well {
                        let why = "`sha256` must be 64 hexadecimal digits";
                        self.invalid(at.pointer("sha256"), why.to_owned());
                    }
                    well.then(|| hash.to_ascii_lowercase())
                });
                let name = self.text(&at, "name").unwrap_or_default();
                Review { name, at: self.date(&at, "at"), sha256 }
            }
            _ => Review::default(),
        };
        if review.name.trim().is_empty() {
            self.invalid(pointer, "`reviewed_by` must name who reviewed".to_owned());
            return None;
        }
        if review.at.is_none() || review.sha256.is_none() {
            let why = "a reviewer's entry says who (`name`), when (`at`) and what (`sha256` of the payload schema); this one counts for no level";
            self.fault(DefectKind::Noted("unsigned-review"), pointer, why.to_owned());
        }
        Some(review)
    }

    fn orders(&mut self, root: &ObjectCursor<'_>) -> Option<Orders> {
        let text = self.text(root, "orders")?;
        let orders = Orders::parse(&text);
        if orders.is_none() {
            self.invalid(root.pointer("orders"), "must be mark, refuse or allow".to_owned());
        }
        orders
    }

    fn dotted(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        self.text(at, name).filter(|text| {
            let well = is_path(text);
            if !well {
                self.invalid(at.pointer(name), format!("`{name}` must be a dotted name"));
            }
            well
        })
    }

    fn object<'a>(&mut self, at: &ObjectCursor<'a>, name: &str) -> Option<ObjectCursor<'a>> {
        let pointer = at.pointer(name);
        let object = at.get(name)?.as_object();
        if object.is_none() {
            self.invalid(pointer.clone(), format!("`{name}` must be a mapping"));
        }
        object.map(|object| ObjectCursor { object, pointer })
    }

    fn text(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        match at.get(name)? {
            Value::String(text) if text.len() <= 4_096 && !text.contains('\0') => {
                Some(text.clone())
            }
            _ => {
                self.invalid(
                    at.pointer(name),
                    format!("`{name}` must be a text of at most 4096 bytes"),
                );
                None
            }
        }
    }

    fn flag(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<bool> {
        let value = at.get(name)?;
        if value.as_bool().is_none() {
            self.invalid(at.pointer(name), format!("`{name}` must be true or false"));
        }
        value.as_bool()
    }

    fn number(&mut self, at: &ObjectCursor<'_>, name: &str, least: u64, most: u64) -> Option<u64> {
        let number = at.get(name)?.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.invalid(
                at.pointer(name),
                format!("`{name}` must be a whole number from {least} to {most}"),
            );
        }
        number
    }

    fn names(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<Vec<String>> {
        let items = at.get(name)?.as_array();
        let names = items.filter(|items| items.len() <= MAX_NAMES).and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().filter(|text| is_path(text)).map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        if names.is_none() {
            self.invalid(
                at.pointer(name),
                format!("`{name}` must be a list of at most {MAX_NAMES} dotted names"),
            );
        }
        names
    }

    fn predicate(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<String> {
        let text = self.text(at, name)?;
        match Predicate::compile(&text) {
            Ok(_) => Some(text),
            Err(why) => {
                self.invalid(at.pointer(name), why.to_string());
                None
            }
        }
    }

    /// RFC 3339, or a plain date: its midnight in UTC.
    fn date(&mut self, at: &ObjectCursor<'_>, name: &str) -> Option<i64> {
        use time::format_description::well_known::Rfc3339;
        let text = self.text(at, name)?;
        let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text };
        let Ok(moment) = time::OffsetDateTime::parse(&whole, &Rfc3339) else {
            self.invalid(at.pointer(name), format!("`{name}` must be a date like `2027-01-31`"));
            return None;
        };
        Some(moment.unix_timestamp())
    }
}

pub(super) fn is_kebab(id: &str) -> bool {
    id.len() <= MAX_ID
        && id.split('-').all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
        })
}

/// What model providers take as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn is_event_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}

fn is_path(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text.split('.').all(|part| !part.is_empty() && !part.chars().any(char::is_control))
}
