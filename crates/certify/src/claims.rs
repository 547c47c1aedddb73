//! The claims: what a user of a handoff broker relies on, where it is stated, and the check.

use std::future::Future;
use std::pin::Pin;

use crate::Bench;
use crate::checks::{delivery, evidence, faults, gate, recovery};

/// The result of a check.
pub(crate) enum Check {
    /// The claim holds; the evidence in one line.
    Holds(String),
    /// The claim does not hold; the first fact that contradicts it.
    Broken(String),
    /// The claim could not be examined, for this reason.
    Unsupported(String),
}

/// An early end of a check is the fact that contradicts the claim.
impl From<Result<String, String>> for Check {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(evidence) => Self::Holds(evidence),
            Err(why) => Self::Broken(why),
        }
    }
}

type Checking<'a> = Pin<Box<dyn Future<Output = Check> + 'a>>;

/// One claim.
pub struct Claim {
    /// Short and stable: tables, JUnit and `--only` name it.
    pub id: &'static str,
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// The section of the specification, or the seed document, that states it.
    pub source: &'static str,
    pub(crate) check: fn(&Bench) -> Checking<'_>,
}

/// States one line of the table.
macro_rules! claims {
    ($($id:literal, $promise:literal, $source:literal, $check:path;)*) => {
        /// Every claim, in the order in which a run examines them.
        pub static CLAIMS: &[Claim] = &[
            $(Claim { id: $id, promise: $promise, source: $source, check: |bench| Box::pin(async move { Check::from($check(bench).await) }) }),*
        ];
    };
}

claims! {
    "delivered", "Every acknowledged handoff reaches its receiver, once.", "SPEC 3; seed 000", delivery::delivered;
    "repeat", "The same submission again is the same handoff; the same id with other content is refused.", "SPEC 2.3; seed 000", delivery::repeat;
    "retried", "A receiver that is busy or fails is tried again, under the same delivery id.", "SPEC 3; Standard Webhooks 1.0", delivery::retried;
    "signed", "A delivery carries a signature that its receiver can check, and another secret does not fit.", "SPEC 3; Standard Webhooks 1.0", delivery::signed;
    "private-checkpoint", "A receiver never sees its sender's checkpoint.", "SPEC 2.1", delivery::private_checkpoint;
    "fenced", "A receiver whose claim lapsed cannot settle the handoff after another claimed it.", "SPEC 3", delivery::fenced;
    "authenticated", "Without a valid key nothing is taken.", "SPEC 2.2, stage 1", gate::authenticated;
    "identity", "An agent cannot submit in another agent's name.", "SPEC 2.2, stage 4", gate::identity;
    "allowlist", "An agent hands off only to the targets on its list.", "SPEC 4.2; seed 003", gate::allowlist;
    "schema", "A malformed message is refused with a pointer to each fault.", "SPEC 2.2, stage 3", gate::schema;
    "injection", "A message with an injected order is refused and never delivered; harmless text about the same things passes.", "SPEC 2.2, stage 11; seed 000", gate::injection;
    "budget", "A handoff without budget, or whose costs do not add up, is refused.", "SPEC 2.2, stage 9; seed 000", gate::budget;
    "lineage", "A handoff names the handoff that it follows; another parent is refused.", "SPEC 2.2, stage 9", gate::lineage;
    "loop", "Two agents that pass a task back and forth without progress are stopped.", "SPEC 2.2, stage 10; seed 002", gate::looped;
    "contract", "The contract of an edge is enforced: what lacks a required field is refused, what has it passes.", "SPEC 2.2, stage 7; seed 002", gate::contract;
    "rejected", "After a rejection the task is with its sender, in the state that the sender saved, to the letter.", "SPEC 5; seed 000", recovery::rejected;
    "silent", "After a receiver's silence the task is with its sender, in the saved state.", "SPEC 5; seed 000", recovery::silent;
    "failed", "After a failure of the receiver that had accepted, the task is with its sender, in the saved state.", "SPEC 5; seed 000", recovery::failed;
    "dead-letter", "A refused attack waits for a person, who can discard it with a reason on record.", "SPEC 5", recovery::dead_letter;
    "log", "The log's records hash to the signed tree head, and each receipt names its record.", "SPEC 6; RFC 6962", evidence::log;
    "refusals-recorded", "A refusal of a known sender is on record.", "SPEC 2.2", evidence::refusals_recorded;
    "trace", "One trace shows every hop of a task in order, with its costs, and says whether the evidence holds.", "SPEC 6; seed 000", evidence::trace;
    "tampering", "A bundle with one altered byte in a record, a content or a proof is found out.", "SPEC 6", evidence::tampering;
    "killed", "A broker that is killed under load loses nothing that it acknowledged, and goes on.", "SPEC 9; seed 000", faults::killed;
    "latency", "Measured, not judged: the time from a submission to the receiver's verdict at a steady rate.", "SPEC 9", faults::latency;
}
