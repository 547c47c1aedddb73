//! The one registry of answer codes, and the shape in which the gate says no.
//!
//! Codes are fixed by the product specification; each has a page in `docs/errors/`, and a test
//! checks that the page exists. Nothing here knows HTTP: the mapping to a status is in
//! `http/problem.rs`.

use serde::{Deserialize, Serialize};

/// Every code that an answer, a record or a metric label can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// No key, or one that is unknown or revoked.
    Unauthenticated,
    /// The message's HMAC is missing though required, or does not match.
    SignatureInvalid,
    /// Not JSON, or not what the schema asks for.
    SchemaInvalid,
    /// The caller may not do this (role, identity, allowlist).
    Forbidden,
    /// A safety rule fired on some text of the message.
    SafetyViolation,
    /// A text holds what looks like a credential, and the operators let none pass.
    CredentialFound,
    /// The remaining budget is zero or less.
    BudgetExhausted,
    /// The budget relay does not add up against the task's ledger.
    BudgetMismatch,
    /// The message follows another handoff than the broker knows of.
    LineageMismatch,
    /// The task goes in circles.
    LoopDetected,
    /// The message has more tokens than its receiver takes.
    ContextTooLarge,
    /// The contract of this edge refuses.
    ContractViolation,
    /// No live agent can take this handoff.
    NoCapableAgent,
    /// The receiver would lack what it needs to go on.
    IncompleteContext,
    /// The request contradicts what is already recorded.
    Conflict,
    /// The receiver took more rounds than the handoff allows.
    MaxIterations,
    /// The fencing token is not the current one.
    StaleLease,
    /// No such thing within this tenant.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The body is not `application/json`.
    UnsupportedMediaType,
    /// The body is larger than the configured limit.
    PayloadTooLarge,
    /// A query parameter, header or path segment is malformed.
    InvalidRequest,
    /// A queue is full; come back later.
    Overloaded,
    /// The store cannot be reached; nothing was written.
    Unavailable,
    /// A defect of the broker.
    Internal,
}

impl Code {
    /// All codes, in the order of the registry.
    pub const ALL: [Self; 25] = [
        Self::Unauthenticated,
        Self::SignatureInvalid,
        Self::SchemaInvalid,
        Self::Forbidden,
        Self::SafetyViolation,
        Self::CredentialFound,
        Self::BudgetExhausted,
        Self::BudgetMismatch,
        Self::LineageMismatch,
        Self::LoopDetected,
        Self::ContextTooLarge,
        Self::ContractViolation,
        Self::NoCapableAgent,
        Self::IncompleteContext,
        Self::Conflict,
        Self::MaxIterations,
        Self::StaleLease,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::PayloadTooLarge,
        Self::InvalidRequest,
        Self::Overloaded,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The text of the code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::SignatureInvalid => "SIGNATURE_INVALID",
            Self::SchemaInvalid => "SCHEMA_INVALID",
            Self::Forbidden => "FORBIDDEN",
            Self::SafetyViolation => "SAFETY_VIOLATION",
            Self::CredentialFound => "CREDENTIAL_FOUND",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
            Self::BudgetMismatch => "BUDGET_MISMATCH",
            Self::LineageMismatch => "LINEAGE_MISMATCH",
            Self::LoopDetected => "LOOP_DETECTED",
            Self::ContextTooLarge => "CONTEXT_TOO_LARGE",
            Self::ContractViolation => "CONTRACT_VIOLATION",
            Self::NoCapableAgent => "NO_CAPABLE_AGENT",
            Self::IncompleteContext => "INCOMPLETE_CONTEXT",
            Self::Conflict => "CONFLICT",
            Self::MaxIterations => "MAX_ITERATIONS",
            Self::StaleLease => "STALE_LEASE",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::Overloaded => "OVERLOADED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }

    /// The class of a reason for which a submission is refused; `None` for any other reason.
    #[must_use]
    pub const fn class(self) -> Option<RefusalClass> {
        match self {
            Self::SignatureInvalid
            | Self::SchemaInvalid
            | Self::BudgetExhausted
            | Self::BudgetMismatch
            | Self::LineageMismatch
            | Self::ContextTooLarge
            | Self::ContractViolation
            | Self::IncompleteContext
            | Self::CredentialFound => Some(RefusalClass::Validation),
            Self::SafetyViolation => Some(RefusalClass::Safety),
            Self::Forbidden | Self::NoCapableAgent => Some(RefusalClass::Access),
            Self::LoopDetected => Some(RefusalClass::Loop),
            Self::Unauthenticated
            | Self::Conflict
            | Self::MaxIterations
            | Self::StaleLease
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::PayloadTooLarge
            | Self::InvalidRequest
            | Self::Overloaded
            | Self::Unavailable
            | Self::Internal => None,
        }
    }

    /// Reads a code back from the wire or from the store.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// Precedence among gate failures (lower is named first): the order of the specification, §2.2.
    #[must_use]
    pub const fn precedence(self) -> u8 {
        match self {
            Self::Unauthenticated => 0,
            Self::SignatureInvalid => 1,
            Self::SchemaInvalid => 2,
            Self::Forbidden => 3,
            Self::SafetyViolation => 4,
            Self::CredentialFound => 5,
            Self::BudgetExhausted => 6,
            Self::BudgetMismatch => 7,
            Self::LineageMismatch => 8,
            Self::LoopDetected => 9,
            Self::ContextTooLarge => 10,
            Self::ContractViolation => 11,
            Self::NoCapableAgent => 12,
            Self::IncompleteContext => 13,
            _ => 14,
        }
    }
}

/// A class of reasons to refuse a submission, for the rates that operators watch (seed 000 §8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalClass {
    /// The message does not hold: signature, schema, contract, completeness, figures.
    Validation,
    /// Its text is unsafe.
    Safety,
    /// The allowlist does not permit the handoff, or no agent has the receiver's name.
    Access,
    /// The task goes in circles.
    Loop,
}

impl RefusalClass {
    pub const ALL: [Self; 4] = [Self::Validation, Self::Safety, Self::Access, Self::Loop];

    /// The class as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Safety => "safety",
            Self::Access => "access",
            Self::Loop => "loop",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The stage of the gate that found a failure (specification §2.2, in this order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Key,
    /// The HMAC over the canonical message.
    Signature,
    /// JSON and JSON Schema.
    Schema,
    /// The key's agent is the sender.
    Identity,
    /// The sender's handoff targets.
    Allowlist,
    /// A live target exists.
    Route,
    Contract,
    /// Completeness: the receiver's needs are met.
    Completeness,
    Budget,
    /// Which handoff it follows.
    Lineage,
    Loop,
    Safety,
    /// The receiver's context window.
    Context,
    /// Not the gate: what the ledger found in the recorded state.
    State,
}

impl Stage {
    /// The stage as answers and lists have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Schema => "schema",
            Self::Identity => "identity",
            Self::Allowlist => "allowlist",
            Self::Route => "route",
            Self::Contract => "contract",
            Self::Completeness => "completeness",
            Self::Budget => "budget",
            Self::Lineage => "lineage",
            Self::Loop => "loop",
            Self::Safety => "safety",
            Self::Context => "context",
            Self::State => "state",
        }
    }
}

/// One reason why the gate says no: which stage, which code, where in the message, and a sentence
/// for the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stage that found it.
    pub stage: Stage,
    /// The answer code of the failure.
    pub code: Code,
    /// RFC 6901 JSON pointer into the message; empty for the whole message.
    pub pointer: String,
    /// The defect and, where known, its remedy.
    pub message: String,
    /// The clause of a contract, or the safety rule, that the message breaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Failure {
    /// A failure at `pointer`.
    #[must_use]
    pub fn new(
        stage: Stage,
        code: Code,
        pointer: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { stage, code, pointer: pointer.into(), message: message.into(), rule: None }
    }

    /// The same failure, found by a named rule.
    #[must_use]
    pub fn of_rule(self, rule: impl Into<String>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Whether both say the same. The rule is left out: failures of version 0.1.0 were kept without it.
    #[must_use]
    pub fn repeats(&self, kept: &Self) -> bool {
        (self.stage, self.code, &self.pointer, &self.message)
            == (kept.stage, kept.code, &kept.pointer, &kept.message)
    }
}

/// A member's name as a segment of a JSON pointer (RFC 6901).
#[must_use]
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The primary reason among several failures: the first by [`Code::precedence`].
#[must_use]
pub fn primary(failures: &[Failure]) -> Option<Code> {
    failures.iter().map(|failure| failure.code).min_by_key(|code| code.precedence())
}
