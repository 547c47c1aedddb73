//! The rules, by name.

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
        "The loop_guard is absent, and the target's contracts lead back to the source.",
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
    warning("without-effect", "A clause has no effect in this form."),
    warning("unknown-metric", "A metric's name tells no moment of a handoff."),
    warning("unsigned-review", "A reviewer's entry does not say who, when and what."),
];

/// A rule by its name; an unknown name is a slip of this file, and counts as an error.
pub(super) fn rule(name: &'static str) -> LintRule {
    RULES.into_iter().find(|rule| rule.name == name).unwrap_or(error(name, ""))
}
