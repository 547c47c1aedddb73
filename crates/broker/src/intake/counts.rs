//! What is counted of a submission: once, after the ledger's word, so that a replay is counted apart and the
//! numerator and the denominator of a rate see the same requests.

use std::slice;

use super::{Answer, Intake, IntakeError};
use crate::ledger::command::LedgerError;
use handoffd_core::domain::failure::{Code, Failure};
use handoffd_core::domain::handoff::HandoffStatus;
use handoffd_core::gate::GateVerdict;
use handoffd_core::gate::safety::SafetyFinding;

/// What the gate noticed of a submission.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    fired: Vec<String>,
    observed: Vec<String>,
    off_the_allowlist: bool,
}

impl Noticed {
    pub(super) fn of(verdict: &GateVerdict) -> Self {
        let rules =
            |findings: &[SafetyFinding]| findings.iter().map(|one| one.rule.clone()).collect();
        match verdict {
            GateVerdict::Pass(passed) => {
                Self { observed: rules(&passed.observed), ..Self::default() }
            }
            GateVerdict::Malformed(_) => Self::default(),
            GateVerdict::Refused(refused) => Self {
                fired: rules(&refused.findings),
                observed: rules(&refused.observed),
                off_the_allowlist: refused.allowlist.is_some(),
            },
        }
    }
}

impl Intake {
    pub(super) fn count(&self, noticed: &Noticed, answered: &Result<Answer, IntakeError>) {
        let mut refused: &[Failure] = &[];
        let result = match answered {
            Ok(
                Answer::Submitted { replayed: true, .. } | Answer::Refused { replayed: true, .. },
            ) => "replayed",
            Ok(Answer::Submitted { handoff, .. }) if handoff.status == HandoffStatus::NoOp => {
                "no_op"
            }
            Ok(Answer::Submitted { .. }) => "accepted",
            Ok(Answer::Refused { failures, .. }) => {
                refused = failures;
                "refused"
            }
            Ok(Answer::Malformed(failure)) => {
                refused = slice::from_ref(failure);
                "refused"
            }
            Err(
                IntakeError::Store
                | IntakeError::Classifier
                | IntakeError::Ledger(LedgerError::Unavailable | LedgerError::Overloaded),
            ) => "unavailable",
            Err(IntakeError::Ledger(LedgerError::Internal(_))) => "failed",
            Err(IntakeError::Ledger(_)) => "conflict",
        };
        self.metrics.count_submission(result, refused);
        if !matches!(result, "accepted" | "no_op" | "refused") {
            return;
        }
        for rule in &noticed.fired {
            self.metrics.safety_findings.with_label_values(&[rule]).inc();
        }
        for rule in &noticed.observed {
            self.metrics.safety_observed.with_label_values(&[rule]).inc();
        }
        let flagged = refused.iter().any(|failure| failure.code == Code::SafetyViolation);
        if flagged || !noticed.observed.is_empty() {
            self.metrics.safety_flagged.inc();
        }
        if noticed.off_the_allowlist {
            self.metrics.allowlist_violations.inc();
        }
    }
}
