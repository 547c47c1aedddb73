//! Conformance levels (seed 002 §6), and what is missing for the next.

use super::{Contract, Fault, FaultKind, SchemaRef, schema};

/// How far a contract goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every required clause of §3.
    L1,
    /// And observability, version, idempotency.
    L2,
    /// And a reviewer, frozen schemas, a lint without errors.
    L3,
}

impl Level {
    /// As written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

/// What was found out about a contract outside of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outside {
    /// The payload schema has a hash at review, and it is the same.
    pub reviewed: bool,
    /// The payload schema refers to something outside of itself.
    pub open_schema: bool,
    /// The lint found an error.
    pub errors: bool,
}

/// The level that a contract reaches (`None`: not even L1), and what is missing for the next, as the
/// names of clauses.
#[must_use]
pub fn grade(
    contract: &Contract,
    faults: &[Fault],
    outside: Outside,
) -> (Option<Level>, Vec<String>) {
    let missing = first(contract, faults);
    if !missing.is_empty() {
        return (None, missing);
    }
    let missing = second(contract);
    if !missing.is_empty() {
        return (Some(Level::L1), missing);
    }
    let missing = third(contract, outside);
    if !missing.is_empty() {
        return (Some(Level::L2), missing);
    }
    (Some(Level::L3), Vec::new())
}

fn first(contract: &Contract, faults: &[Fault]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for fault in faults.iter().filter(|fault| fault.kind != FaultKind::Unknown) {
        let name = fault.pointer.trim_start_matches('/').replace('/', ".");
        if fault.kind == FaultKind::MissingRecovery && name == "recovery" {
            let recovery = &contract.recovery;
            let ways = [
                ("on_reject", &recovery.on_reject),
                ("on_timeout", &recovery.on_timeout),
                ("on_error", &recovery.on_error),
            ];
            missing.extend(
                ways.iter()
                    .filter(|(_, way)| way.is_none())
                    .map(|(name, _)| format!("recovery.{name}")),
            );
        } else if !missing.contains(&name) {
            missing.push(name);
        }
    }
    if contract.recovery.loop_guard.is_none() {
        missing.push("recovery.loop_guard".to_owned());
    }
    missing
}

fn second(contract: &Contract) -> Vec<String> {
    let mut missing = Vec::new();
    if contract.version.is_none() {
        missing.push("version".to_owned());
    }
    match &contract.observability {
        None => missing.push("observability".to_owned()),
        Some(seen) if seen.audit_event.is_none() && seen.trace_id_field.is_none() => {
            missing.push("observability.audit_event".to_owned());
        }
        Some(_) => {}
    }
    if contract.idempotency.as_ref().is_none_or(|stated| stated.idempotent.is_none()) {
        missing.push("idempotency.idempotent".to_owned());
    }
    missing
}

fn third(contract: &Contract, outside: Outside) -> Vec<String> {
    let mut missing = Vec::new();
    if contract.reviewed_by.is_none() {
        missing.push("reviewed_by".to_owned());
    }
    let frozen = !outside.open_schema
        && match &contract.payload.schema {
            Some(SchemaRef::Named(name)) => {
                !is_url(name)
                    && (outside.reviewed || is_pinned(name) || contract.local_schema().is_some())
            }
            Some(SchemaRef::Inline(inline)) => schema::outside(inline).is_none(),
            None => false,
        };
    if !frozen {
        missing.push(
            "payload.schema (frozen: a local schema with its version in the name, or reviewed)"
                .to_owned(),
        );
    }
    if outside.errors {
        missing.push("a lint without errors".to_owned());
    }
    missing
}

/// What may change under the contract.
#[must_use]
pub fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// The name carries a version: `refund@1.2.0.json`.
fn is_pinned(name: &str) -> bool {
    name.rsplit('/').next().and_then(|file| file.split_once('@')).is_some_and(|(_, rest)| {
        let version: Vec<&str> = rest.splitn(4, '.').take(3).collect();
        version.len() == 3
            && version.iter().all(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()))
    })
}
