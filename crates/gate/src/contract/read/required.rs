//! The clauses that each contract has: trigger, payload, acceptance and recovery.

use serde_json::Value;

use super::values::ObjectCursor;
use super::{
    BUILTIN_TOOLS, ContractReader, DefectKind, MAX_TIME_MS, RECOMMENDED, WITHOUT_EFFECT,
    is_tool_name,
};
use crate::contract::shelf::SchemaName;
use crate::contract::{
    AcceptanceClause, HistoryStrategy, LoopGuardClause, PayloadClause, RecoveryClause, SchemaRef,
    TriggerClause,
};
use handoffd_domain::policy::{LoopGuard, Recovery};
use handoffd_domain::window::ContextRule;

/// The most retries that a contract may state.
const MAX_RETRIES: u64 = 100;

/// Passages that a counter allows unless it says how many.
const COUNTER: u32 = 3;

/// The most turns that a contract may allow: as many as a message may have.
const MAX_TURNS: u64 = 10_000;

/// The most bytes of a conversation that a contract may allow: the largest body, by default.
const MAX_HISTORY: u64 = 10 * 1024 * 1024;

/// The largest context of a model that a contract may name, in tokens.
const MAX_CONTEXT: u64 = 100_000_000;

impl ContractReader {
    pub(super) fn trigger(&mut self, root: &ObjectCursor<'_>) -> TriggerClause {
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
        if trigger.tool_call.as_deref().is_some_and(|name| BUILTIN_TOOLS.contains(&name)) {
            let why = "a tool of the broker has this name, and it is the one that is offered";
            self.fault(WITHOUT_EFFECT, "/trigger/tool_call", why.to_owned());
        }
        trigger
    }

    pub(super) fn payload(&mut self, root: &ObjectCursor<'_>) -> PayloadClause {
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

    pub(super) fn acceptance(&mut self, root: &ObjectCursor<'_>) -> AcceptanceClause {
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

    pub(super) fn recovery(&mut self, root: &ObjectCursor<'_>) -> RecoveryClause {
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
}
