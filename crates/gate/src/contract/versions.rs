//! Finds the breaking changes of a new contract version (seed 002 §4.2): renamed or removed fields and changed semantics move
//! the major version. Pure.
//!
//! The comparison errs on the safe side: a predicate with another text counts as another predicate. Times,
//! retries, names for observers and descriptions are never breaking.

use semver::Version;

use super::{Contract, HistoryStrategy, evolution};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakingChange {
    /// RFC 6901 pointer into the new document.
    pub pointer: &'static str,
    /// The change as a sentence.
    pub what: String,
}

/// Whether a version may break what the one before it promised: its major is higher, or, before 1.0.0, its
/// minor (Semantic Versioning 2.0.0 §4, as package managers read it).
#[must_use]
pub fn may_break(before: &Version, after: &Version) -> bool {
    after.major > before.major || (before.major == 0 && after.minor > before.minor)
}

/// The breaking changes from one version to a later one.
#[must_use]
pub fn breaks(before: &Contract, after: &Contract) -> Vec<BreakingChange> {
    let mut found = Vec::new();
    let mut changed = |pointer: &'static str, same: bool, what: &str| {
        if !same {
            found.push(BreakingChange { pointer, what: what.to_owned() });
        }
    };
    changed("/source", before.source == after.source, "another source");
    changed("/target", before.target == after.target, "another target");
    let (old, new) = (&before.trigger, &after.trigger);
    changed("/trigger/predicate", old.predicate == new.predicate, "another predicate");
    changed("/trigger/tool_call", old.tool_call == new.tool_call, "another tool");
    let (old, new) = (&before.acceptance, &after.acceptance);
    let same = old.domain_match == new.domain_match;
    changed("/acceptance_criteria/domain_match", same, "another predicate");
    let same = old.permission_check == new.permission_check;
    changed("/acceptance_criteria/permission_check", same, "another permission");
    let same = sorted(old.required_fields.as_ref()) == sorted(new.required_fields.as_ref());
    changed("/acceptance_criteria/required_fields", same, "other fields must not be null");
    let (old, new) = (&before.payload, &after.payload);
    let same = sorted(old.required.as_ref()) == sorted(new.required.as_ref());
    changed("/payload/required", same, "other fields are required");
    let most = |strategy: Option<HistoryStrategy>| strategy.unwrap_or(HistoryStrategy::Full);
    let same = most(new.history_strategy) >= most(old.history_strategy);
    changed("/payload/history_strategy", same, "less of a conversation may be carried over");
    let (old, new) = (&before.recovery, &after.recovery);
    changed("/recovery/on_reject", old.on_reject == new.on_reject, "control goes elsewhere");
    changed("/recovery/on_timeout", old.on_timeout == new.on_timeout, "control goes elsewhere");
    changed("/recovery/on_error", old.on_error == new.on_error, "control goes elsewhere");
    changed("/recovery/loop_guard", old.loop_guard == new.loop_guard, "another loop guard");
    let idempotent = |one: &Contract| one.policy().idempotent;
    let same = idempotent(before) == idempotent(after);
    changed("/idempotency/idempotent", same, "a repeat has another outcome");
    let key =
        |one: &Contract| one.idempotency.as_ref().and_then(|stated| stated.dedupe_key.clone());
    changed("/idempotency/dedupe_key", key(before) == key(after), "another field tells repeats");
    let human = |one: &Contract| one.human.as_ref().is_some_and(|human| human.target);
    changed("/human_in_the_loop", human(before) == human(after), "another kind of receiver");
    let same = before.require_checkpoint || !after.require_checkpoint;
    changed("/require_checkpoint", same, "a checkpoint is required");
    let strict = |one: &Contract| one.orders.unwrap_or_default();
    changed("/orders", strict(after) <= strict(before), "orders inside data are refused");
    if let (Some(old), Some(new)) = (before.local_schema(), after.local_schema()) {
        let breaking = evolution::compare(old, new);
        let first = breaking.iter().find(|change| change.kind.needs() == evolution::Bump::Major);
        if let Some(change) = first {
            let what = format!("the schema, at `{}`: {}", change.pointer, change.reason);
            found.push(BreakingChange { pointer: "/payload/schema", what });
        }
    }
    found
}

fn sorted(names: Option<&Vec<String>>) -> Vec<String> {
    let mut names = names.cloned().unwrap_or_default();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::document::Document;
    use crate::contract::read;
    use crate::contract::tests::WORKED_EXAMPLE;

    fn with(from: &str, to: &str) -> Contract {
        assert!(WORKED_EXAMPLE.contains(from), "{from}");
        read(&Document::parse(&WORKED_EXAMPLE.replace(from, to)).unwrap()).0
    }

    #[test]
    fn f3_4_what_breaks_somebody_is_told_from_what_does_not() {
        let before = with("version", "version");
        let pointers = |after: &Contract| -> Vec<&str> {
            breaks(&before, after).into_iter().map(|one| one.pointer).collect()
        };
        for (from, to) in [
            ("timeout_ms: 30000", "timeout_ms: 10000"),
            ("[task_summary, provenance.order_id]", "[provenance.order_id, task_summary]"),
            ("metrics: [handoff.latency_ms, handoff.rejected]", "metrics: []"),
            ("Refund, cancellation", "Cancellation, refund"),
        ] {
            assert!(pointers(&with(from, to)).is_empty(), "{from}");
        }
        for (from, to, pointer) in [
            ("confidence >= 0.7", "confidence >= 0.8", "/trigger/predicate"),
            (", constraints.policy_window_days]", "]", "/payload/required"),
            ("summary\n", "pointer\n", "/payload/history_strategy"),
            ("on_error: source", "on_error: human", "/recovery/on_error"),
            ("idempotent: true", "idempotent: false", "/idempotency/idempotent"),
            ("target: refund-agent", "target: refund", "/target"),
        ] {
            assert_eq!(pointers(&with(from, to)), [pointer], "{from}");
        }
        assert!(may_break(&Version::new(1, 9, 9), &Version::new(2, 0, 0)));
        assert!(!may_break(&Version::new(1, 2, 0), &Version::new(1, 3, 0)));
        assert!(may_break(&Version::new(0, 2, 0), &Version::new(0, 3, 0)));
    }
}
