//! How a door chooses the receiver of a handoff where its client names only what is needed, and trials of one way
//! against another (seed 004, phase 5; specification §11.4). Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The door that chooses receivers by a strategy.
pub const ROUTING_DOOR: &str = "jazz";

/// The pointer to the strategy that chose the receiver of a message.
const POINTER: &str = "/extensions/jazz/strategy";

/// A way to choose among agents that can take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutingStrategy {
    /// Of those with the capability or specialization, the one that was registered first.
    FirstMatch,
    /// The one whose description fits the task's text best.
    Relevance,
    /// Of those with the capability or specialization, the one with the fewest open handoffs.
    LeastBusy,
    /// Of those with the capability or specialization, the one whose handoffs for it ended well most often.
    SuccessRate,
}

impl RoutingStrategy {
    pub const ALL: [Self; 4] =
        [Self::FirstMatch, Self::Relevance, Self::LeastBusy, Self::SuccessRate];

    /// Its name in settings, messages and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstMatch => "first_match",
            Self::Relevance => "relevance",
            Self::LeastBusy => "least_busy",
            Self::SuccessRate => "success_rate",
        }
    }

    /// The strategy of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// The strategy that a message names. Any sender can write that member.
    #[must_use]
    pub fn of_message(message: &Value) -> Option<Self> {
        message.pointer(POINTER)?.as_str().and_then(Self::parse)
    }
}

/// How a door chose a receiver, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterChoice {
    pub strategy: RoutingStrategy,
    /// The capability, specialization or tag of the receiver that it was chosen for; none if the client's word is not in the
    /// receiver's registration.
    pub specialty: Option<String>,
}

/// The largest share of one strategy.
pub const MAX_SHARE: u32 = 1_000_000;

/// Shares of the conversations by strategy: weights, which need not add up to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategyShares {
    #[serde(default)]
    pub first_match: u32,
    #[serde(default)]
    pub relevance: u32,
    #[serde(default)]
    pub least_busy: u32,
    #[serde(default)]
    pub success_rate: u32,
}

impl StrategyShares {
    const fn share(&self, strategy: RoutingStrategy) -> u32 {
        match strategy {
            RoutingStrategy::FirstMatch => self.first_match,
            RoutingStrategy::Relevance => self.relevance,
            RoutingStrategy::LeastBusy => self.least_busy,
            RoutingStrategy::SuccessRate => self.success_rate,
        }
    }

    /// Checks that some strategy has a share, and none more than [`MAX_SHARE`].
    ///
    /// # Errors
    /// The defect, as a sentence.
    pub fn check(self) -> Result<Self, String> {
        let shares = RoutingStrategy::ALL.map(|strategy| self.share(strategy));
        if shares.iter().any(|share| *share > MAX_SHARE) {
            return Err(format!("a share is {MAX_SHARE} at most"));
        }
        if shares.iter().all(|share| *share == 0) {
            return Err("one strategy at least needs a share above 0".to_owned());
        }
        Ok(self)
    }

    /// The strategy of a conversation: always the same for the same key and shares.
    #[must_use]
    pub fn pick(&self, key: &str) -> RoutingStrategy {
        let shares = RoutingStrategy::ALL.map(|strategy| u64::from(self.share(strategy)));
        let total = shares.iter().sum::<u64>().max(1);
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let start = [hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]];
        let mut place = u64::from_be_bytes(start) % total;
        for (strategy, share) in RoutingStrategy::ALL.into_iter().zip(shares) {
            if place < share {
                return strategy;
            }
            place -= share;
        }
        RoutingStrategy::FirstMatch
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::agent::Agent;

    const fn shares(first_match: u32, relevance: u32, least_busy: u32) -> StrategyShares {
        StrategyShares { first_match, relevance, least_busy, success_rate: 0 }
    }

    #[test]
    fn a_name_is_read_back_and_a_message_says_it() {
        for strategy in RoutingStrategy::ALL {
            assert_eq!(RoutingStrategy::parse(strategy.as_str()), Some(strategy));
            assert_eq!(serde_json::to_value(strategy).unwrap(), json!(strategy.as_str()));
            let message = json!({ "extensions": { "jazz": { "strategy": strategy.as_str() } } });
            assert_eq!(RoutingStrategy::of_message(&message), Some(strategy));
            let choice = |door| RouterChoice::of_submission(door, &message, &receiver());
            let chosen = RouterChoice { strategy, specialty: None };
            assert_eq!(choice(Some(ROUTING_DOOR)), Some(chosen));
            for other in [None, Some("mcp")] {
                assert_eq!(choice(other), None);
            }
        }
        for other in [json!({}), json!({ "extensions": { "jazz": { "strategy": "best" } } })] {
            assert_eq!(RoutingStrategy::of_message(&other), None);
        }
    }

    fn receiver() -> Agent {
        let mut agent = Agent::new("a".parse().unwrap());
        agent.specialization = Some("testing".to_owned());
        agent.capabilities = vec!["run-tests".to_owned()];
        agent.domains = vec!["quality".to_owned()];
        agent
    }

    #[test]
    fn what_a_receiver_was_chosen_for_is_a_word_of_its_registration() {
        let specialty = |word: &str| {
            let own = json!({ "strategy": "first_match", "specialistType": word });
            let message = json!({ "extensions": { "jazz": own } });
            let choice = RouterChoice::of_submission(Some(ROUTING_DOOR), &message, &receiver());
            choice.unwrap().specialty
        };
        for own in ["testing", "run-tests", "quality"] {
            assert_eq!(specialty(own).as_deref(), Some(own));
        }
        assert_eq!(specialty("Jane Roe's tests"), None);
    }

    #[test]
    fn shares_without_any_or_beyond_all_bounds_are_refused() {
        assert!(shares(1, 0, 0).check().is_ok());
        for wrong in [shares(0, 0, 0), shares(MAX_SHARE + 1, 1, 0)] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn conversations_are_split_by_the_shares() {
        let mut counted: BTreeMap<RoutingStrategy, u32> = BTreeMap::new();
        for number in 0..10_000 {
            let strategy = shares(50, 30, 20).pick(&format!("conversation {number}"));
            *counted.entry(strategy).or_default() += 1;
        }
        for (strategy, expected) in RoutingStrategy::ALL.into_iter().zip([5_000, 3_000, 2_000]) {
            let found = counted[&strategy];
            assert!(found.abs_diff(expected) < 200, "{strategy:?}: {found}");
        }
    }

    proptest! {
        #[test]
        fn a_conversation_keeps_its_strategy_and_one_without_a_share_is_never_picked(
            key in "\\PC{0,40}", first in 0_u32..3, relevance in 0_u32..3, least in 1_u32..3,
        ) {
            let shares = shares(first, relevance, least);
            let picked = shares.pick(&key);
            prop_assert_eq!(picked, shares.pick(&key));
            prop_assert!(shares.share(picked) > 0);
        }
    }
}
