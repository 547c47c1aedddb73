//! Open lists of words (statuses, codes, kinds) as the OpenAPI document tells them: the values of this version by
//! name, and any other text besides, so that a client made from the document survives a newer broker. Generators
//! of clients make a union of an enum and a string of it.

use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

use handoffd_core::contract::level::Level;
use handoffd_core::domain::escalation::EscalationStatus;
use handoffd_core::domain::event::EventType as Event;
use handoffd_core::domain::failure::Code;
use handoffd_core::domain::handoff::{DeliveryMode as Mode, HandoffStatus as Handoff};
use handoffd_core::domain::receiver::BreakerState as Breaker;
use handoffd_core::domain::stream::StreamStatus as Stream;
use handoffd_core::domain::task::TaskStatus as Task;
use handoffd_core::domain::warning::WarningCode as Warning;

/// The component of an open list.
pub(super) fn open(what: &str, known: &[&str]) -> RefOr<Schema> {
    let text = || ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
    let known = text().enum_values(Some(known.iter().copied()));
    let list = AnyOfBuilder::new()
        .description(Some(format!("{what} A later version may have more.")))
        .item(known.build())
        .item(text().build())
        .build();
    RefOr::T(Schema::AnyOf(list))
}

macro_rules! open_lists {
    ($($name:ident, $what:literal: $known:expr;)+) => {
        $(
            #[doc = $what]
            pub struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    open($what, &$known)
                }
            }

            impl ToSchema for $name {}
        )+
    };
}

open_lists! {
    HandoffStatus, "Where a handoff stands.": Handoff::ALL.map(Handoff::as_str);
    QuestionState, "Where a receiver's question stands.": ["OPEN", "ANSWERED", "CLOSED"];
    TaskStatus, "Where a task stands.": Task::ALL.map(Task::as_str);
    EscalationState, "Where a question to a person stands.":
        EscalationStatus::ALL.map(EscalationStatus::as_str);
    DeadLetterStatus, "Where a dead letter stands.": ["OPEN", "RELEASED", "DISCARDED"];
    DefaultAction, "What happens when nobody decides in time.": ["resume", "dead-letter"];
    BreakerState, "A circuit breaker's state.": Breaker::ALL.map(Breaker::as_str);
    AttemptOutcome, "How an attempt at a delivery ended, as the metric of attempts has it. Any other word is the class of a failure.":
        [
            "accepted", "rejected", "received", "busy", "gone", "away", "not_sent", "request", "egress", "dns",
            "connect", "tls", "timeout", "status", "redirect", "protocol", "body_too_large", "unauthorized", "missing",
            "refused",
        ];
    DeliveryMode, "How an agent takes its handoffs.": Mode::ALL.map(Mode::as_str);
    ErrorCode, "Why a request is refused; /docs/errors/{code} explains each.": Code::ALL.map(Code::as_str);
    WarningCode, "What is taken and does not hold in full; docs/warnings.md explains each.":
        Warning::ALL.map(Warning::as_str);
    StreamStatus, "Where the stream of a handoff in pieces stands.": Stream::ALL.map(Stream::as_str);
    ContextAction, "What becomes of a message over its receiver's limit.":
        ["none", "flag", "compress"];
    CompressedBy, "Which compressor wrote a summary.": ["extractive", "model", "trimming"];
    Tokenizer, "How the tokens of a message were counted.": ["o200k", "cl100k", "estimate"];
    GateStage, "Where a failure was found.": [
        "key", "signature", "schema", "identity", "allowlist", "route", "contract", "completeness", "budget",
        "lineage", "loop", "safety", "context", "state",
    ];
    EventType, "What happened; /schemas/events/{type} has the form of each.":
        Event::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
    EventOutcome, "What came of an attempt at telling a subscription.":
        ["delivered", "retry", "set_aside", "gone"];
    ContractLevel, "How far a contract conforms.": [Level::L1, Level::L2, Level::L3].map(Level::as_str);
    Severity, "How much a linter's finding weighs.": ["error", "warning"];
    AttentionSeverity, "How soon a person should look.": ["critical", "warning", "notice"];
    VersionStep, "By how much a version number has to rise.": ["patch", "minor", "major"];
    BrokenSide, "Whom a change of a schema breaks.": ["senders", "receivers"];
    SchemaChange, "What changed at a place of a schema.": [
        "property-added", "property-removed", "required-added", "required-removed", "type-changed", "narrowed",
        "widened", "incomparable", "deprecated", "annotation",
    ];
    ValueChange, "What a hop did to a value.": ["set", "changed", "removed", "erased"];
    GoneReason, "Why a message is not there any more.": ["erasure", "retention"];
    WhatIfVerdict, "What the gate says.": ["pass", "refuse"];
    WhatIfChange, "What becomes of a verdict.":
        ["newlyRefused", "newlyPassed", "refusedDifferently", "observedDifferently"];
    ActorRole, "Who acted.":
        ["agent", "operator", "operator-metadata", "auditor", "admin", "broker"];
}
