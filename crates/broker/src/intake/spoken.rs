//! Words of an agent that go beside messages: a result, a question, an answer, a checkpoint stored ahead. Credentials leave
//! them, and the safety rules read them as they read a message.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::refused::Refusal;
use super::{Intake, heavy};
use crate::directory::Principal;
use crate::reader::Reader;
use handoffd_domain::credential::{self, SecretPolicy};
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::warning::Warning;
use handoffd_gate::safety::policy::PolicyContext;
use handoffd_gate::safety::{FieldClass, SafetyFinding, ScanReport, Scanner, to_failure};
use handoffd_gate::unheld;

/// Bounds of the words that agents say beside messages.
#[derive(Debug, Clone, Copy)]
pub struct WordLimits {
    /// The rounds that a result may take, where its message states no other number.
    pub max_iterations: u64,
    /// How long a question waits for its answer, where it states no other time.
    pub answer: Duration,
    /// The greatest age of a reply on a reply channel.
    pub reply_age: Duration,
    /// The most bytes of a checkpoint stored ahead.
    pub checkpoint_bytes: usize,
    /// The most bytes of a message from a queue.
    pub message_bytes: usize,
}

/// A handoff after words on it were carried out.
#[derive(Debug)]
pub struct Spoken {
    /// As it is now.
    pub handoff: Handoff,
    /// Words that do not hold in full.
    pub warnings: Vec<Warning>,
}

/// A handoff, and its receiver as the caller.
#[derive(Debug)]
pub struct Addressed<'a> {
    pub(super) receiver: &'a Principal,
    pub(super) handoff: Handoff,
}

impl<'a> Addressed<'a> {
    /// A handoff on which its receiver has a say.
    ///
    /// # Errors
    /// The caller is not its receiver.
    pub fn to(receiver: &'a Principal, handoff: Handoff) -> Result<Self, Refusal> {
        if Reader::of(receiver).is_receiver(&handoff) {
            Ok(Self { receiver, handoff })
        } else {
            Err(not_the_receiver())
        }
    }

    /// The handoff.
    #[must_use]
    pub const fn handoff(&self) -> &Handoff {
        &self.handoff
    }
}

/// Findings and marks of the safety scan in a document, by their places: a prompt fences these.
#[must_use]
pub fn marked(scanner: &Scanner, document: &Value) -> Vec<SafetyFinding> {
    let ScanReport { mut findings, marks, .. } = scanner.report(document, &[], &mut |_, _| {});
    findings.extend(marks);
    findings
}

/// The refusal of a caller that is not the receiver.
#[must_use]
pub fn not_the_receiver() -> Refusal {
    Refusal::because(Code::Forbidden, "only the handoff's receiver may say this")
}

impl Intake {
    /// Whether the safety rules neither refuse nor mark anything in these words, read as data of another agent.
    #[must_use]
    pub fn is_harmless(&self, words: &str) -> bool {
        let report = self.gate.scanner.report_text(words, FieldClass::Data);
        report.findings.is_empty() && report.marks.is_empty()
    }

    /// Applies `redaction.secrets` to a document; returns the warnings.
    ///
    /// # Errors
    /// A finding for each credential, where none may pass.
    pub fn judge_credentials(&self, document: &Value) -> Result<Vec<Warning>, Refusal> {
        let treatment = self.redaction.secrets;
        let sightings = credential::sightings("", document);
        if treatment == SecretPolicy::Refuse && !sightings.is_empty() {
            return Err(Refusal::Findings(
                sightings.iter().map(unheld::refused_credential).collect(),
            ));
        }
        Ok(sightings.iter().map(|one| unheld::credential(one, treatment)).collect())
    }

    /// The same for the words of a caller, which the whole redaction policy then rewrites.
    ///
    /// # Errors
    /// As for [`Self::judge_credentials`].
    pub fn redact_words(&self, words: &mut Map<String, Value>) -> Result<Vec<Warning>, Refusal> {
        let whole = Value::Object(std::mem::take(words));
        let warnings = self.judge_credentials(&whole);
        if let Value::Object(whole) = whole {
            *words = whole;
        }
        self.redaction.redact_words(words);
        warnings
    }

    /// Runs the safety stage over words that go into another agent's model (specification §10.3). The policies hold as for a
    /// message from the one agent to the other, and `orders` of the agent that reads it. `size` is in bytes. Returns a warning
    /// for each text that reads like an order to an assistant.
    ///
    /// # Errors
    /// A finding for each place. The handoff stays as it is: the caller may say something else.
    pub(super) async fn scan_words(
        &self,
        handoff: &Handoff,
        (from, to): (&AgentId, &AgentId),
        words: Value,
        size: usize,
        at: Micros,
    ) -> Result<Vec<Warning>, Refusal> {
        let agents = self.directory.agents(&handoff.tenant).await?;
        let reader = agents.row(to).and_then(|row| row.agent.orders);
        let gate = Arc::clone(&self.gate);
        let report = heavy(size, move || gate.scanner.report(&words, &[], &mut |_, _| {})).await?;
        let case = PolicyContext { tenant: &handoff.tenant, agent: from, to: Some(to), at };
        let policies = &self.gate.policies;
        let (mut refused, observed) = policies.part(&case, report.findings);
        let (orders, marked) = policies.part_marks(&case, report.marks, [[None, reader]]);
        refused.extend(orders);
        let rules = |findings: &[SafetyFinding]| -> Vec<String> {
            findings.iter().map(|one| one.rule.clone()).collect()
        };
        self.metrics.count_safety_rules(&rules(&refused), &rules(&observed), &rules(&marked));
        if refused.is_empty() {
            return Ok(unheld::orders(&marked));
        }
        tracing::warn!(handoff_id = %handoff.id, agent = %from, findings = refused.len(), "the safety rules refuse what an agent said of a handoff");
        Err(Refusal::Findings(refused.iter().map(to_failure).collect()))
    }
}
