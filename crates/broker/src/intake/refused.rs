//! Why a use case did not do what its caller asked. Each door of the broker puts it into a form of its own.

use std::sync::Arc;

use super::IntakeError;
use crate::ledger::reply::{LedgerError, Undone};
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_store::store::StoreError;

/// The sentence for a store that does not answer.
const STORE_AWAY: &str = "the store cannot be reached; try again";

/// Why a use case did not do what its caller asked. It changed nothing, unless a refusal is recorded.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// Findings, each with its place in the request.
    Findings(Vec<Failure>),
    /// Findings that the log keeps, and the new state of the task where they moved it.
    Recorded(Vec<Failure>, Option<Undone>),
    /// The body is not JSON.
    Malformed(Failure),
    /// A reason that has no place in the request.
    Because(Code, String),
    /// The tenant has no resource of this name.
    NotFound(&'static str),
    /// The ledger does not carry the command out.
    Ledger(LedgerError),
    /// The store fails.
    Store(StoreError),
}

impl Refusal {
    /// A reason that has no place in the request.
    #[must_use]
    pub fn because(code: Code, why: impl Into<String>) -> Self {
        Self::Because(code, why.into())
    }

    /// The content is in the archive, which does not return it.
    #[must_use]
    pub fn archive_away() -> Self {
        Self::because(Code::Unavailable, "the content is in the archive, which cannot give it now")
    }

    /// The code of the answer.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Findings(failures) | Self::Recorded(failures, _) => {
                primary(failures).unwrap_or(Code::Internal)
            }
            Self::Malformed(failure) => failure.code,
            Self::Because(code, _) => *code,
            Self::NotFound(_) => Code::NotFound,
            Self::Ledger(err) => err.code(),
            Self::Store(StoreError::Refused(_)) => Code::Internal,
            Self::Store(_) => Code::Unavailable,
        }
    }

    /// Whether the same request may succeed later. An internal error may be the database's.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self.code(), Code::Unavailable | Code::Overloaded | Code::Internal)
    }

    /// Writes the causes that no caller is told to the log of the process.
    pub fn log(&self) {
        match self {
            Self::Ledger(LedgerError::Internal(why)) => {
                tracing::error!(error = %why, "a command failed");
            }
            Self::Store(StoreError::Refused(why)) => {
                tracing::error!(error = %why, "the store refused");
            }
            Self::Store(StoreError::Denied(why)) => {
                tracing::error!(error = %why, "the store does not let the broker work");
            }
            Self::Store(StoreError::Unavailable(why) | StoreError::Conflict(why)) => {
                tracing::warn!(error = %why, "the store is unavailable");
            }
            _ => {}
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Findings(vec![failure])
    }
}

impl From<LedgerError> for Refusal {
    fn from(err: LedgerError) -> Self {
        Self::Ledger(err)
    }
}

impl From<StoreError> for Refusal {
    fn from(err: StoreError) -> Self {
        Self::Store(err)
    }
}

impl From<Arc<StoreError>> for Refusal {
    fn from(err: Arc<StoreError>) -> Self {
        Self::Store(StoreError::clone(&err))
    }
}

impl From<IntakeError> for Refusal {
    fn from(err: IntakeError) -> Self {
        match err {
            IntakeError::Ledger(err) => Self::Ledger(err),
            IntakeError::Classifier => {
                Self::because(Code::Unavailable, "the safety classifier does not answer; try again")
            }
            IntakeError::Store => Self::because(Code::Unavailable, STORE_AWAY),
        }
    }
}

/// A member of a request that does not fit.
pub(crate) fn misfit(pointer: &str, why: impl Into<String>) -> Failure {
    Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_may_pass_is_told_from_one_that_will_not() {
        let failure = || misfit("/reason", "must be a text");
        let lasting = [
            Refusal::from(failure()),
            Refusal::Recorded(vec![failure()], None),
            Refusal::NotFound("handoff"),
            Refusal::from(LedgerError::StaleLease),
            Refusal::because(Code::Forbidden, "not this key"),
        ];
        for refusal in lasting {
            assert!(!refusal.is_temporary(), "{refusal:?}");
        }
        let temporary = [
            Refusal::from(LedgerError::Overloaded),
            Refusal::from(LedgerError::Internal("a defect".to_owned())),
            Refusal::from(StoreError::Unavailable("away".to_owned())),
            Refusal::from(StoreError::Refused("no such column".to_owned())),
            Refusal::from(IntakeError::Classifier),
            Refusal::archive_away(),
        ];
        for refusal in temporary {
            assert!(refusal.is_temporary(), "{refusal:?}");
        }
    }

    #[test]
    fn the_code_of_several_findings_is_that_of_the_first_in_precedence() {
        let safety = Failure::new(Stage::Safety, Code::SafetyViolation, "/result", "an order");
        let refusal = Refusal::Findings(vec![safety, misfit("/result", "too long")]);
        assert_eq!(refusal.code(), Code::SchemaInvalid);
    }
}
