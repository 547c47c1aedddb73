//! The counts of a submission: once, after the ledger's answer, so that a replay is counted apart and the
//! numerator and the denominator of a rate see the same requests.

use std::slice;

use super::{Answer, Intake, IntakeError, SubmittedGroup, SubmittedHandoff};
use crate::directory::Principal;
use crate::ledger::reply::LedgerError;
use handoffd_domain::failure::{Code, Failure, primary};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::window::ContextFacts;
use handoffd_gate::GateVerdict;
use handoffd_gate::safety::SafetyFinding;

/// The gate's counts for a submission.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    fired: Vec<String>,
    observed: Vec<String>,
    marked: Vec<String>,
    off_the_allowlist: bool,
    context: Option<ContextFacts>,
}

impl Noticed {
    pub(super) fn of(verdict: &GateVerdict) -> Self {
        let rules =
            |findings: &[SafetyFinding]| findings.iter().map(|one| one.rule.clone()).collect();
        match verdict {
            GateVerdict::Pass(passed) => {
                let (observed, marked) = (rules(&passed.observed), rules(&passed.marked));
                Self { observed, marked, context: passed.context, ..Self::default() }
            }
            GateVerdict::Malformed(_) => Self::default(),
            GateVerdict::Refused(refused) => Self {
                fired: rules(&refused.findings),
                observed: rules(&refused.observed),
                marked: Vec::new(),
                off_the_allowlist: refused.allowlist.is_some(),
                context: refused.context,
            },
        }
    }
}

impl Intake {
    pub(super) fn count(&self, noticed: &Noticed, answered: &Result<Answer, IntakeError>) {
        let mut refused: &[Failure] = &[];
        let result = match answered {
            Ok(
                Answer::Submitted(SubmittedHandoff { replayed: true, .. })
                | Answer::Group(SubmittedGroup { replayed: true, .. })
                | Answer::Refused { replayed: true, .. },
            ) => "replayed",
            Ok(Answer::Submitted(done)) if done.handoff.status == HandoffStatus::NoOp => "no_op",
            Ok(Answer::Submitted(_) | Answer::Group(_)) => "accepted",
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
        if let Some(facts) = &noticed.context {
            let too_large = refused.iter().any(|failure| failure.code == Code::ContextTooLarge);
            let action = if too_large { "refuse" } else { facts.action.as_str() };
            self.metrics.context_tokens.with_label_values(&[action]).observe(facts.tokens as f64);
            for (part, tokens) in facts.parts.named() {
                self.metrics.context_parts.with_label_values(&[part]).inc_by(tokens);
            }
        }
        self.metrics.count_safety_rules(&noticed.fired, &noticed.observed, &noticed.marked);
        let flagged = refused.iter().any(|failure| failure.code == Code::SafetyViolation);
        if flagged || !noticed.observed.is_empty() {
            self.metrics.safety_flagged.inc();
        }
        if noticed.off_the_allowlist {
            self.metrics.allowlist_violations.inc();
        }
    }

    /// Counts a refusal by its sender.
    pub(super) fn count_sender(
        &self,
        principal: &Principal,
        answered: &Result<Answer, IntakeError>,
    ) {
        let failures = match answered {
            Ok(Answer::Refused { failures, replayed: false, .. }) => failures.as_slice(),
            Ok(Answer::Malformed(failure)) => slice::from_ref(failure),
            _ => return,
        };
        if let (Some(agent), Some(code)) = (&principal.agent, primary(failures)) {
            self.metrics.count_agent_refusal(&principal.tenant, agent, code);
        }
    }
}
