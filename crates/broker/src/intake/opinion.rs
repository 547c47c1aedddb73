//! A second opinion on what the gate let pass, and what of it goes into the record.

use async_trait::async_trait;

use super::{Intake, IntakeError};
use crate::directory::Principal;
use handoffd_core::domain::message::Message;
use handoffd_core::evidence::record::{ClassifierFacts, SafetyFacts};
use handoffd_core::gate::safety::policy::{CLASSIFIER, FindingMode, PolicyContext};
use handoffd_core::gate::safety::{SafetyFinding, to_failure};
use handoffd_core::gate::{GateVerdict, RefusedMessage};

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
    async fn ask(&self, message: &Message) -> Opinion;
    /// The classifier's code.
    fn name(&self) -> &str;
    /// Nothing passes without its word.
    fn required(&self) -> bool;
    /// Only asked about messages with a mark.
    fn marked_only(&self) -> bool;
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
    /// The verdict after the second opinion, and its entry in the record.
    ///
    /// # Errors
    /// [`IntakeError::Classifier`] if there is none and nothing passes without.
    pub(super) async fn with_second_opinion(
        &self,
        principal: &Principal,
        verdict: GateVerdict,
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
        let opinion = asked.ask(&passed.message).await;
        let (word, label) = match &opinion {
            Opinion::Safe => ("SAFE", None),
            Opinion::Unsafe { label, .. } => ("UNSAFE", Some(label.clone())),
            Opinion::None(why) => {
                tracing::warn!(
                    classifier = asked.name(),
                    why,
                    "the safety classifier did not answer"
                );
                ("NONE", None)
            }
        };
        self.metrics.classifier_verdicts.with_label_values(&[word]).inc();
        facts.classifier = Some(ClassifierFacts {
            by: asked.name().to_owned(),
            verdict: word.to_owned(),
            label: label.filter(|label| !label.is_empty()),
        });
        let verdict = match opinion {
            Opinion::None(_) if asked.required() => return Err(IntakeError::Classifier),
            Opinion::None(_) | Opinion::Safe => GateVerdict::Pass(passed),
            Opinion::Unsafe { label, pointer } => {
                let finding = finding(label, pointer);
                let case = PolicyContext {
                    tenant: &principal.tenant,
                    agent: &passed.message.envelope().from_agent.agent_id,
                    to: Some(&passed.target.agent_id).filter(|_| passed.group.is_none()),
                    at: self.clock.now(),
                };
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
}
