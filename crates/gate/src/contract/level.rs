//! Conformance levels (seed 002 §6), and what is missing for the next.

use super::{Contract, ContractDefect, DefectKind};

/// The conformance level of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every required clause of §3.
    L1,
    /// L1, and observability, version, idempotency.
    L2,
    /// L2, and a reviewer, frozen schemas, a lint without errors.
    L3,
}

impl Level {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::L1, Self::L2, Self::L3]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a level: say L1, L2 or L3"))
    }
}

/// Facts from outside of the contract's document.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReviewEvidence {
    /// The payload schema is at hand and has a hash at review, which is its own.
    pub frozen: bool,
    /// A reviewer's entry says who, when, and that hash.
    pub signed: bool,
    /// Whether the lint found an error.
    pub errors: bool,
}

/// The level that a contract reaches (`None`: not even L1), and what is missing for the next, as the
/// names of clauses.
#[must_use]
pub fn grade(
    contract: &Contract,
    faults: &[ContractDefect],
    outside: ReviewEvidence,
) -> (Option<Level>, Vec<String>) {
    let missing = first(contract, faults);
    if !missing.is_empty() {
        return (None, missing);
    }
    let missing = second(contract);
    if !missing.is_empty() {
        return (Some(Level::L1), missing);
    }
    let missing = third(outside);
    if !missing.is_empty() {
        return (Some(Level::L2), missing);
    }
    (Some(Level::L3), Vec::new())
}

fn first(contract: &Contract, faults: &[ContractDefect]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for fault in faults.iter().filter(|fault| fault.kind.breaks_a_must()) {
        let name = match fault.pointer.trim_start_matches('/') {
            "" => "the document".to_owned(),
            pointer => pointer.replace('/', "."),
        };
        if fault.kind == DefectKind::MissingRecovery && name == "recovery" {
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
    let guard = "recovery.loop_guard";
    if contract.recovery.loop_guard.is_none() && !missing.iter().any(|name| name == guard) {
        missing.push(guard.to_owned());
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

fn third(outside: ReviewEvidence) -> Vec<String> {
    let mut missing = Vec::new();
    if !outside.signed {
        missing.push("reviewed_by".to_owned());
    }
    if !outside.frozen {
        missing.push("payload.schema (frozen: its hash in `reviewed`)".to_owned());
    }
    if outside.errors {
        missing.push("a lint without errors".to_owned());
    }
    missing
}

/// The changes that the contract allows.
#[must_use]
pub fn is_url(name: &str) -> bool {
    name.contains("://")
}

#[cfg(test)]
mod tests {
    use super::super::document::Document;
    use super::super::read::read;
    use super::*;

    #[test]
    fn what_is_no_mapping_lacks_the_document() {
        let (contract, faults) = read(&Document::parse("[]").unwrap());
        let (level, missing) = grade(&contract, &faults, ReviewEvidence::default());
        assert_eq!(level, None);
        assert_eq!(missing, ["the document", "recovery.loop_guard"]);
    }
}
