//! What a message says of its sender, held against what is registered: its version.

use crate::domain::agent::Agent;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::message::Sender;
use crate::domain::policy::VersionClaims;
use crate::domain::warning::{Warning, WarningCode};

/// Where a message names its sender's version.
const POINTER: &str = "/fromAgent/agentVersion";

/// What a claim comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is so.
    Fits,
    /// It is not, and the sender is told.
    Differs(Warning),
    /// It is not, and the message is refused.
    Refused(Failure),
}

/// Holds the version that a message claims against the registered one; build metadata does not count.
#[must_use]
pub fn check(sender: &Sender, registered: &Agent, claims: VersionClaims) -> Claim {
    let known = &registered.agent_version;
    // A message that passed the schema has a semantic version here.
    let claimed = semver::Version::parse(&sender.agent_version).ok();
    if claimed.is_some_and(|claimed| claimed.cmp_precedence(known).is_eq()) {
        return Claim::Fits;
    }
    let words = format!("the agent is registered as version {known}");
    match claims {
        VersionClaims::Warn => {
            let code = WarningCode::AgentVersionMismatch;
            let words = format!("{words}; the record has both versions");
            Claim::Differs(Warning::new(code, POINTER, words))
        }
        VersionClaims::Enforce => {
            Claim::Refused(Failure::new(Stage::Identity, Code::Forbidden, POINTER, words))
        }
    }
}
