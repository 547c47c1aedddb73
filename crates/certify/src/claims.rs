//! The claims: what a user of a handoff broker relies on, where it is stated, and the check.

use std::future::Future;
use std::pin::Pin;

use crate::Bench;
use crate::checks::{delivery, evidence, faults, gate, recovery};
use crate::map::{Map, Speaks};

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
    /// The protocol by which the kit can examine the claim.
    pub needs: Needs,
    pub(crate) check: fn(&Bench) -> Checking<'_>,
}

/// The demands of a check on the broker's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The canonical API: no other protocol of the kit has words for the claim.
    Canonical,
    /// The canonical API or A2A.
    A2a,
    /// Agents that the kit registers.
    Agents,
    /// A path that takes a message, and one that shows its status.
    Message,
}

impl Needs {
    /// Why the claim cannot be put to such a broker.
    pub(crate) fn lacking(self, map: &Map) -> Option<&'static str> {
        match (self, map.speaks) {
            (Self::Canonical, Speaks::A2a) => Some("A2A cannot express it"),
            (Self::Canonical | Self::A2a, Speaks::Http) => {
                Some("a mapping of paths and forms cannot express it")
            }
            (Self::Agents, _) if map.receiver.is_some() => {
                Some("the kit registers no agents with this broker")
            }
            _ => None,
        }
    }
}

/// States one line of the table.
macro_rules! claims {
    ($($id:literal, $needs:ident, $promise:literal, $source:literal, $check:path;)*) => {
        /// Every claim, in the order in which a run examines them.
        pub static CLAIMS: &[Claim] = &[
            $(Claim { id: $id, promise: $promise, source: $source, needs: Needs::$needs, check: |bench| Box::pin(async move { Check::from($check(bench).await) }) }),*
        ];
    };
}

claims! {
    "delivered", Message, "Every acknowledged handoff reaches its receiver, once.", "SPEC 3; seed 000", delivery::delivered;
    "repeat", Message, "The same submission again is the same handoff; the same id with other content is refused.", "SPEC 2.3; seed 000", delivery::repeat;
    "retried", Message, "A receiver that is busy or fails is tried again, under the same delivery id.", "SPEC 3; Standard Webhooks 1.0", delivery::retried;
    "signed", Canonical, "A delivery carries a signature that its receiver can check, and another secret does not fit.", "SPEC 3; Standard Webhooks 1.0", delivery::signed;
    "private-checkpoint", Canonical, "A receiver never sees its sender's checkpoint.", "SPEC 2.1", delivery::private_checkpoint;
    "fenced", Canonical, "A receiver whose claim lapsed cannot settle the handoff after another claimed it.", "SPEC 3", delivery::fenced;
    "authenticated", Message, "Without a valid key nothing is taken.", "SPEC 2.2, stage 1", gate::authenticated;
    "identity", Canonical, "An agent cannot submit in another agent's name.", "SPEC 2.2, stage 4", gate::identity;
    "allowlist", Agents, "An agent hands off only to the targets on its list.", "SPEC 4.2; seed 003", gate::allowlist;
    "schema", A2a, "A malformed message is refused with a pointer to each fault.", "SPEC 2.2, stage 3", gate::schema;
    "injection", Message, "A message with an injected order is refused and never delivered; harmless text about the same things passes.", "SPEC 2.2, stage 11; seed 000", gate::injection;
    "budget", Canonical, "A handoff without budget, or whose costs do not add up, is refused.", "SPEC 2.2, stage 9; seed 000", gate::budget;
    "lineage", Canonical, "A handoff names the handoff that it follows; another parent is refused.", "SPEC 2.2, stage 9", gate::lineage;
    "loop", Canonical, "Two agents that pass a task back and forth without progress are stopped.", "SPEC 2.2, stage 10; seed 002", gate::looped;
    "contract", Canonical, "The contract of an edge is enforced: what lacks a required field is refused, what has it passes.", "SPEC 2.2, stage 7; seed 002", gate::contract;
    "rejected", Canonical, "After a rejection the task is with its sender, in the state that the sender saved, to the letter.", "SPEC 5; seed 000", recovery::rejected;
    "silent", Canonical, "After a receiver's silence the task is with its sender, in the saved state.", "SPEC 5; seed 000", recovery::silent;
    "failed", Canonical, "After a failure of the receiver that had accepted, the task is with its sender, in the saved state.", "SPEC 5; seed 000", recovery::failed;
    "dead-letter", Canonical, "A refused attack waits for a person, who can discard it with a reason on record.", "SPEC 5", recovery::dead_letter;
    "log", Canonical, "The log's records hash to the signed tree head, and each receipt names its record.", "SPEC 6; RFC 6962", evidence::log;
    "refusals-recorded", Canonical, "A refusal of a known sender is on record.", "SPEC 2.2", evidence::refusals_recorded;
    "trace", Canonical, "One trace shows every hop of a task in order, with its costs, and says whether the evidence holds.", "SPEC 6; seed 000", evidence::trace;
    "tampering", Canonical, "A bundle with one altered byte in a record, a content or a proof is found out.", "SPEC 6", evidence::tampering;
    "killed", Message, "A broker that is killed under load loses nothing that it acknowledged, and goes on.", "SPEC 9; seed 000", faults::killed;
    "latency", Message, "Measured, not judged: the time from a submission to the receiver's verdict at a steady rate.", "SPEC 9", faults::latency;
}
