//! The one registry of warnings: what the broker took and does not hold in full (specification §2.3, §9).
//!
//! A warning refuses nothing. It names the place and says what holds instead, in the answer to the caller; where
//! no caller sees it (a setting at the start), the same words are a log line at WARN. Each code has a row in
//! `docs/warnings.md`.

use serde::{Deserialize, Serialize};

/// Every code that a warning can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WarningCode {
    /// The field is taken, and nothing in this version acts on it.
    WithoutEffect,
    /// A name that no agent of this tenant has.
    UnknownAgent,
    /// The egress guard refuses to call the address.
    EndpointRefused,
    /// The limit refuses every handoff from now on.
    NoRoom,
    /// There are no data yet that the hold could keep.
    NothingHeld,
    /// The linter found something in a contract that was put all the same.
    ContractFinding,
    /// A contract is below the level that its edge must have.
    BelowMinimumLevel,
    /// `contractId` names no contract of this broker.
    ContractUnknown,
    /// A clause of the contract that rules cannot be enforced.
    ClauseNotEnforced,
    /// The contract's `dedupe_key` finds nothing in the message.
    DedupeKeyAbsent,
    /// The contract's `trace_id_field` finds no trace id in the message.
    TraceIdAbsent,
    /// Data go to another region, or come from one; the record says so.
    ResidencyCrossing,
    /// The message claims another version of its sender than the one that is registered.
    AgentVersionMismatch,
    /// The receiver gets the message in an older version of its schema.
    SchemaDowngraded,
    /// The message's trace context is invalid, and another trace took its place.
    TraceRestarted,
    /// A text holds what looks like a credential.
    CredentialFound,
    /// The message has more tokens than its receiver takes, and is delivered as it is.
    ContextOverLimit,
    /// A text embeds binary data.
    EmbeddedBinary,
    /// A tool's output or data reads like an order to an assistant.
    OrderInData,
    /// The external classifier is asked after the commit.
    OpinionPending,
    /// A part of a verdict could not be kept as it came: it was replaced, or dropped.
    Unreadable,
}

impl WarningCode {
    /// All codes, in the order of the registry.
    pub const ALL: [Self; 21] = [
        Self::WithoutEffect,
        Self::UnknownAgent,
        Self::EndpointRefused,
        Self::NoRoom,
        Self::NothingHeld,
        Self::ContractFinding,
        Self::BelowMinimumLevel,
        Self::ContractUnknown,
        Self::ClauseNotEnforced,
        Self::DedupeKeyAbsent,
        Self::TraceIdAbsent,
        Self::ResidencyCrossing,
        Self::AgentVersionMismatch,
        Self::SchemaDowngraded,
        Self::TraceRestarted,
        Self::CredentialFound,
        Self::ContextOverLimit,
        Self::EmbeddedBinary,
        Self::OrderInData,
        Self::OpinionPending,
        Self::Unreadable,
    ];

    /// The text of the code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WithoutEffect => "WITHOUT_EFFECT",
            Self::UnknownAgent => "UNKNOWN_AGENT",
            Self::EndpointRefused => "ENDPOINT_REFUSED",
            Self::NoRoom => "NO_ROOM",
            Self::NothingHeld => "NOTHING_HELD",
            Self::ContractFinding => "CONTRACT_FINDING",
            Self::BelowMinimumLevel => "BELOW_MINIMUM_LEVEL",
            Self::ContractUnknown => "CONTRACT_UNKNOWN",
            Self::ClauseNotEnforced => "CLAUSE_NOT_ENFORCED",
            Self::DedupeKeyAbsent => "DEDUPE_KEY_ABSENT",
            Self::TraceIdAbsent => "TRACE_ID_ABSENT",
            Self::ResidencyCrossing => "RESIDENCY_CROSSING",
            Self::AgentVersionMismatch => "AGENT_VERSION_MISMATCH",
            Self::SchemaDowngraded => "SCHEMA_DOWNGRADED",
            Self::TraceRestarted => "TRACE_RESTARTED",
            Self::CredentialFound => "CREDENTIAL_FOUND",
            Self::ContextOverLimit => "CONTEXT_OVER_LIMIT",
            Self::EmbeddedBinary => "EMBEDDED_BINARY",
            Self::OrderInData => "ORDER_IN_DATA",
            Self::OpinionPending => "OPINION_PENDING",
            Self::Unreadable => "UNREADABLE",
        }
    }
}

impl std::fmt::Display for WarningCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One warning: a code, a place in the caller's document, and a sentence. Never the value itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Its code.
    pub code: WarningCode,
    /// RFC 6901 JSON pointer into the document; empty for the whole document.
    pub pointer: String,
    /// The part that does not hold, and the part that does.
    pub message: String,
}

impl Warning {
    #[must_use]
    pub fn new(code: WarningCode, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, pointer: pointer.into(), message: message.into() }
    }
}
