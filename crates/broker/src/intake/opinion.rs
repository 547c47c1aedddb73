//! A second opinion on a message that the gate let pass, and the part of it that goes into the record. If the
//! opinion can refuse the message, it is requested before the commit; else it may come after (`crate::opinions`).

use async_trait::async_trait;
use serde_json::Value;

use super::{Intake, IntakeError};
use crate::directory::Principal;
use handoffd_domain::policy::CLASSIFIER;
use handoffd_domain::residency::Crossing;
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_evidence::record::{ClassifierFacts, SafetyFacts};
use handoffd_gate::safety::policy::{FindingMode, PolicyContext};
use handoffd_gate::safety::{SafetyFinding, to_failure};
use handoffd_gate::{GateVerdict, PassedMessage, RefusedMessage};

/// A verdict on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    /// Nothing is wrong with it.
    Safe,
    /// An attack.
    Unsafe {
        /// Of which kind; a code.
        label: String,
        /// JSON pointer of the text, where known.
        pointer: String,
    },
    /// There is none, and why.
    None(String),
}

/// Someone to ask about a message, within a bounded time.
#[async_trait]
pub trait SecondOpinion: Send + Sync {
    async fn ask(&self, message: &Value) -> Opinion;
    /// The classifier's code.
    fn name(&self) -> &str;
    /// Nothing passes without its word.
    fn required(&self) -> bool;
    /// Only asked about messages with a mark.
    fn marked_only(&self) -> bool;
    /// Asked after the commit about what its answer cannot refuse.
    fn after_commit(&self) -> bool;
    /// The transfer of data by which it is asked, where it is in another region.
    fn crossing(&self) -> Option<Crossing> {
        None
    }
}

impl Opinion {
    /// The opinion as a record states it.
    #[must_use]
    pub fn facts(&self, by: &str, crossing: Option<Crossing>) -> ClassifierFacts {
        let facts = match self {
            Self::Safe => ClassifierFacts::new(by, ClassifierFacts::SAFE),
            Self::Unsafe { label, .. } => ClassifierFacts {
                label: Some(label.clone()).filter(|label| !label.is_empty()),
                ..ClassifierFacts::new(by, ClassifierFacts::UNSAFE)
            },
            Self::None(_) => ClassifierFacts::new(by, ClassifierFacts::NONE),
        };
        ClassifierFacts { crossing, ..facts }
    }
}

/// The time at which the classifier is asked about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpinionTime {
    /// The broker asks before the commit.
    Before,
    /// The broker may ask after the commit, if the settings say so and the answer cannot refuse the message.
    MayBeAfter,
}

/// The classifier's finding, under its rule.
pub(super) fn finding(label: String, pointer: String) -> SafetyFinding {
    SafetyFinding {
        rule: CLASSIFIER.to_owned(),
        family: if label.is_empty() { "unsafe".to_owned() } else { label },
        pointer,
        offset: 0,
        end: 0,
        excerpt: String::new(),
    }
}

impl Intake {
    /// Whether an external classifier judges messages.
    pub(crate) fn asks_a_classifier(&self) -> bool {
        self.second_opinion.is_some()
    }

    /// The verdict after the second opinion, and its entry in the record.
    ///
    /// # Errors
    /// [`IntakeError::Classifier`] if there is none and nothing passes without.
    pub(super) async fn with_second_opinion(
        &self,
        principal: &Principal,
        verdict: GateVerdict,
        time: OpinionTime,
    ) -> Result<(GateVerdict, Option<SafetyFacts>), IntakeError> {
        let GateVerdict::Pass(mut passed) = verdict else { return Ok((verdict, None)) };
        let mut observed: Vec<String> =
            passed.observed.iter().map(|finding| finding.rule.clone()).collect();
        observed.sort();
        observed.dedup();
        let mut marked: Vec<String> = passed.marked.iter().map(|mark| mark.rule.clone()).collect();
        marked.sort();
        marked.dedup();
        let mut facts = SafetyFacts {
            rules: self.gate.scanner.version().to_owned(),
            observed,
            marked,
            classifier: None,
        };
        let asked = self.second_opinion.as_ref();
        let Some(asked) = asked.filter(|asked| !asked.marked_only() || !facts.marked.is_empty())
        else {
            let said = !facts.observed.is_empty() || !facts.marked.is_empty();
            return Ok((GateVerdict::Pass(passed), said.then_some(facts)));
        };
        if time == OpinionTime::MayBeAfter
            && asked.after_commit()
            && !self.may_refuse(principal, &passed)
        {
            facts.classifier = Some(ClassifierFacts::new(asked.name(), ClassifierFacts::PENDING));
            passed.warnings.push(pending());
            return Ok((GateVerdict::Pass(passed), Some(facts)));
        }
        let opinion = asked.ask(passed.message.value()).await;
        if let Opinion::None(why) = &opinion {
            tracing::warn!(classifier = asked.name(), why, "the safety classifier did not answer");
        }
        let said = opinion.facts(asked.name(), asked.crossing());
        self.metrics.classifier_verdicts.with_label_values(&[&said.verdict]).inc();
        facts.classifier = Some(said);
        let verdict = match opinion {
            Opinion::None(_) if asked.required() => return Err(IntakeError::Classifier),
            Opinion::None(_) | Opinion::Safe => GateVerdict::Pass(passed),
            Opinion::Unsafe { label, pointer } => {
                let finding = finding(label, pointer);
                let case = self.policy_context(principal, &passed);
                match self.gate.policies.of_classifier(&case, &finding) {
                    FindingMode::Enforce => {
                        let failure = to_failure(&finding);
                        GateVerdict::Refused(Box::new(RefusedMessage::unsafe_text(
                            *passed, finding, failure,
                        )))
                    }
                    FindingMode::Observe => {
                        passed.observed.push(finding);
                        GateVerdict::Pass(passed)
                    }
                    FindingMode::Allow => GateVerdict::Pass(passed),
                }
            }
        };
        Ok((verdict, Some(facts)))
    }

    /// Whether the classifier's answer can refuse the message, or its delivery waits for more of it. A handoff to
    /// several receivers is one text under the rules of several edges.
    fn may_refuse(&self, principal: &Principal, passed: &PassedMessage) -> bool {
        let streams = passed.message.envelope().stream.is_some_and(|stream| stream.open);
        let case = self.policy_context(principal, passed);
        streams || passed.group.is_some() || self.gate.policies.classifier_may_refuse(&case)
    }

    fn policy_context<'a>(
        &self,
        principal: &'a Principal,
        passed: &'a PassedMessage,
    ) -> PolicyContext<'a> {
        PolicyContext {
            tenant: &principal.tenant,
            agent: &passed.message.envelope().from_agent.agent_id,
            to: Some(&passed.target.agent_id).filter(|_| passed.group.is_none()),
            at: self.clock.now(),
        }
    }
}

fn pending() -> Warning {
    let why = "an external classifier is asked about the message after the commit; its answer refuses nothing, and \
         appears in the handoff's `safety`";
    Warning::new(WarningCode::OpinionPending, "", why)
}
