//! The protocol's states, refusals and urgencies.

use serde::Serialize;

use handoffd_domain::agent::{Agent, AgentState};
pub use handoffd_domain::handoff::ALL_UNAVAILABLE;
use handoffd_domain::handoff::HandoffStatus;

/// `HandoffStatus` of the protocol: the four of seed 001, and `EXPIRED`, which upstream added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// No verdict yet.
    Pending,
    /// The receiver took it.
    Accepted,
    /// Ended without the receiver's work.
    Rejected,
    /// The receiver finished its part.
    Completed,
    /// No verdict came in time, or the lease ran out.
    Expired,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Accepted, Self::Rejected, Self::Completed, Self::Expired];

    /// The projection of a handoff's status.
    #[must_use]
    pub const fn of(status: HandoffStatus) -> Self {
        match status {
            HandoffStatus::Pending => Self::Pending,
            HandoffStatus::Accepted | HandoffStatus::InputRequired => Self::Accepted,
            HandoffStatus::Completed | HandoffStatus::NoOp => Self::Completed,
            HandoffStatus::Expired => Self::Expired,
            HandoffStatus::Rejected
            | HandoffStatus::Failed
            | HandoffStatus::DeadLettered
            | HandoffStatus::Canceled => Self::Rejected,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Accepted => "ACCEPTED",
            Self::Rejected => "REJECTED",
            Self::Completed => "COMPLETED",
            Self::Expired => "EXPIRED",
        }
    }

    /// `accepted` of a response in this state. A pending handoff counts as accepted for delivery, as in the SDK.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        !matches!(self, Self::Rejected | Self::Expired)
    }
}

/// No agent has the capabilities (seed 001, capability routing).
pub const NO_CAPABLE_AGENT: &str = "No capable agent available";

/// The rejection of a handoff that no agent can take, in the words of seed 001. `addressed` is the agent that the request
/// names.
#[must_use]
pub fn rejection(addressed: Option<&Agent>, required: &[String]) -> String {
    let Some(agent) = addressed else { return NO_CAPABLE_AGENT.to_owned() };
    let missing = required.iter().find(|one| !agent.capabilities.contains(one));
    match (missing, agent.state) {
        (Some(missing), _) => format!("Missing capability: {missing}"),
        (None, AgentState::Busy) => "Agent busy: BUSY".to_owned(),
        (None, AgentState::Paused) => "Agent busy: PAUSED".to_owned(),
        (None, AgentState::Runnable) => NO_CAPABLE_AGENT.to_owned(),
    }
}

/// The message's `priority` for a request's `metadata.urgency`; `None` for a word that is not an urgency.
#[must_use]
pub fn priority_of(urgency: &str) -> Option<&'static str> {
    match urgency.to_ascii_lowercase().as_str() {
        "low" => Some("low"),
        "normal" | "medium" => Some("normal"),
        "high" => Some("high"),
        "urgent" | "critical" => Some("urgent"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x10_every_status_is_one_of_the_protocols() {
        let of = |status: HandoffStatus| {
            let projected = Status::of(status);
            (projected.as_str(), projected.is_accepted())
        };
        for (status, expected) in [
            (HandoffStatus::Pending, ("PENDING", true)),
            (HandoffStatus::Accepted, ("ACCEPTED", true)),
            (HandoffStatus::InputRequired, ("ACCEPTED", true)),
            (HandoffStatus::Completed, ("COMPLETED", true)),
            (HandoffStatus::NoOp, ("COMPLETED", true)),
            (HandoffStatus::Rejected, ("REJECTED", false)),
            (HandoffStatus::Failed, ("REJECTED", false)),
            (HandoffStatus::DeadLettered, ("REJECTED", false)),
            (HandoffStatus::Canceled, ("REJECTED", false)),
            (HandoffStatus::Expired, ("EXPIRED", false)),
        ] {
            assert_eq!(of(status), expected, "{status:?}");
        }
        for status in Status::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }

    #[test]
    fn b14_a_refusal_has_the_seeds_words() {
        let mut agent = Agent::new("b".parse().unwrap());
        agent.capabilities = vec!["code_review".to_owned()];
        let required = ["code_review", "security_analysis"].map(str::to_owned);
        assert_eq!(rejection(Some(&agent), &required), "Missing capability: security_analysis");
        agent.state = AgentState::Busy;
        assert_eq!(rejection(Some(&agent), &required[..1]), "Agent busy: BUSY");
        agent.state = AgentState::Paused;
        assert_eq!(rejection(Some(&agent), &[]), "Agent busy: PAUSED");
        agent.state = AgentState::Runnable;
        assert_eq!(rejection(Some(&agent), &[]), NO_CAPABLE_AGENT);
        assert_eq!(rejection(None, &required), NO_CAPABLE_AGENT);
    }

    #[test]
    fn b16_an_urgency_is_a_priority() {
        let words = ["low", "Medium", "normal", "HIGH", "critical", "urgent", "soon", ""];
        assert_eq!(
            words.map(priority_of),
            [
                Some("low"),
                Some("normal"),
                Some("normal"),
                Some("high"),
                Some("urgent"),
                Some("urgent"),
                None,
                None
            ]
        );
    }
}
