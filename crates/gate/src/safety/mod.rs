//! The safety stage (seed 000 §6.1 and §10.1, specification §2.2 stage 11): instructions hidden in what
//! should be data.
//!
//! Every string of a message, keys included, at any depth ([`fields`]), is read in several ways
//! (`views`: as it is, and with disguises undone) and held against weighted rules
//! (`config/safety-rules.json`, [`rules`]): words of a [`lexicon`] by concept, in [`sequence`], and forms
//! of the text ([`structure`]). [`scanner`] keeps the score, [`policy`] says what a finding is worth.
//! Everything is linear in the size of the message. `docs/safety.md` states what the rules catch and miss, as measured.

mod cache;
pub mod disguise;
pub mod fields;
mod finding;
pub mod lexicon;
mod mention;
pub mod normalize;
mod order;
mod origin;
pub mod policy;
mod reading;
pub mod rules;
pub mod scanner;
pub mod sequence;
pub mod structure;
mod sweep;
mod views;
mod words;

use handoffd_domain::failure::{Code, Failure, Stage};

pub use finding::SafetyFinding;
pub use rules::{FieldClass, Rule, Tier};
pub use scanner::{Certainty, Explanation, ScanReport, Scanner};

/// The failure that reports a finding. It names the rule and the place; it does not repeat the text, since the answer and the
/// logs have other readers than the dead letter.
#[must_use]
pub fn to_failure(finding: &SafetyFinding) -> Failure {
    Failure::new(
        Stage::Safety,
        Code::SafetyViolation,
        finding.pointer.clone(),
        format!(
            "Rule `{}` ({}) fired at byte {} of this text.",
            finding.rule, finding.family, finding.offset
        ),
    )
    .of_rule(finding.rule.clone())
}
