//! The sender's version as a message claims it, compared with the registered one.

use crate::domain::agent::Agent;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::message::Sender;
use crate::domain::policy::VersionClaims;
use crate::domain::warning::{Warning, WarningCode};

/// Where a message names its sender's version.
const POINTER: &str = "/fromAgent/agentVersion";

/// The result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionClaimCheck {
    Fits,
    /// The versions differ: a warning.
    Differs(Warning),
    /// The versions differ: the message is refused.
    Refused(Failure),
}

/// Holds the version that a message claims against the registered one; build metadata does not count.
#[must_use]
pub fn check(sender: &Sender, registered: &Agent, claims: VersionClaims) -> VersionClaimCheck {
    let known = &registered.agent_version;
    // A message that passed the schema has a semantic version here.
    let claimed = semver::Version::parse(&sender.agent_version).ok();
    if claimed.is_some_and(|claimed| claimed.cmp_precedence(known).is_eq()) {
        return VersionClaimCheck::Fits;
    }
    let words = format!("the agent is registered as version {known}");
    match claims {
        VersionClaims::Warn => {
            let code = WarningCode::AgentVersionMismatch;
            let words = format!("{words}; the record has both versions");
            VersionClaimCheck::Differs(Warning::new(code, POINTER, words))
        }
        VersionClaims::Enforce => VersionClaimCheck::Refused(Failure::new(
            Stage::Identity,
            Code::Forbidden,
            POINTER,
            words,
        )),
    }
}
