//! Open lists of words (statuses, codes, kinds) as the OpenAPI document tells them: the values of this version by
//! name, and any other text besides, so that a client made from the document survives a newer broker. Generators
//! of clients make a union of an enum and a string of it.

use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

use handoffd_domain::escalation::EscalationStatus;
use handoffd_domain::event::EventType as Event;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{DeliveryMode as Mode, HandoffStatus as Handoff};
use handoffd_domain::receiver::BreakerState as Breaker;
use handoffd_domain::stream::StreamStatus as Stream;
use handoffd_domain::task::TaskStatus as Task;
use handoffd_domain::warning::WarningCode as Warning;
use handoffd_gate::contract::level::Level;

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
    HandoffStatus, "The status of a handoff.": Handoff::ALL.map(Handoff::as_str);
    QuestionState, "The state of a receiver's question.": ["OPEN", "ANSWERED", "CLOSED"];
    TaskStatus, "The status of a task.": Task::ALL.map(Task::as_str);
    EscalationState, "The state of a question to a person.":
        EscalationStatus::ALL.map(EscalationStatus::as_str);
    DeadLetterStatus, "The status of a dead letter.": ["OPEN", "RELEASED", "DISCARDED"];
    DefaultAction, "The broker's action if no person decides in time.": ["resume", "dead-letter"];
    BreakerState, "A circuit breaker's state.": Breaker::ALL.map(Breaker::as_str);
    AttemptOutcome, "How an attempt at a delivery ended, as the metric of attempts has it. Any other word is the class of a failure.":
        [
            "accepted", "rejected", "received", "busy", "gone", "away", "not_sent", "request", "egress", "dns",
            "connect", "tls", "timeout", "status", "redirect", "protocol", "body_too_large", "unauthorized", "missing",
            "refused",
        ];
    DeliveryMode, "How an agent takes its handoffs.": Mode::ALL.map(Mode::as_str);
    ErrorCode, "Why a request is refused; /docs/errors/{code} explains each.": Code::ALL.map(Code::as_str);
    WarningCode, "A part that the broker accepts and that does not hold in full; docs/warnings.md explains each.":
        Warning::ALL.map(Warning::as_str);
    StreamStatus, "The status of the stream of a handoff in pieces.": Stream::ALL.map(Stream::as_str);
    ContextAction, "The broker's action on a message over its receiver's limit.":
        ["none", "flag", "compress"];
    CompressedBy, "Which compressor wrote a summary.": ["extractive", "model", "trimming"];
    Tokenizer, "How the tokens of a message were counted.": ["o200k", "cl100k", "estimate"];
    GateStage, "The stage of the gate that found a failure.": [
        "key", "signature", "schema", "identity", "allowlist", "route", "contract", "completeness", "budget",
        "lineage", "loop", "safety", "context", "state",
    ];
    EventType, "The type of an event; /schemas/events/{type} has the form of each.":
        Event::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
    EventOutcome, "The outcome of an attempt to deliver an event to a subscription.":
        ["delivered", "retry", "set_aside", "gone"];
    ContractLevel, "How far a contract conforms.": [Level::L1, Level::L2, Level::L3].map(Level::as_str);
    Severity, "How much a linter's finding weighs.": ["error", "warning"];
    AttentionSeverity, "How soon a person should look.": ["critical", "warning", "notice"];
    VersionStep, "By how much a version number has to rise.": ["patch", "minor", "major"];
    BrokenSide, "Whom a change of a schema breaks.": ["senders", "receivers"];
    SchemaChange, "The kind of a change at a place of a schema.": [
        "property-added", "property-removed", "required-added", "required-removed", "type-changed", "narrowed",
        "widened", "incomparable", "deprecated", "annotation",
    ];
    ValueChange, "The kind of a change that a hop made to a value.": ["set", "changed", "removed", "erased"];
    GoneReason, "Why a message is not there any more.": ["erasure", "retention"];
    WhatIfVerdict, "The gate's verdict.": ["pass", "refuse"];
    WhatIfChange, "The difference between two verdicts on a message.":
        ["newlyRefused", "newlyPassed", "refusedDifferently", "observedDifferently"];
    ActorRole, "Who acted.":
        ["agent", "operator", "operator-metadata", "auditor", "admin", "broker"];
}
