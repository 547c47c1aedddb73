//! The sender's version as a message claims it, compared with the registered one.

use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::message::Sender;
use handoffd_domain::policy::VersionClaims;
use handoffd_domain::warning::{Warning, WarningCode};

/// The pointer to the sender's version in a message.
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

/// Compares the version that a message claims with the registered one; build metadata does not count.
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
