//! The other inputs of a decision, besides the state and the request: the broker's rules, and
//! unpredictable ids. Made when a command enters the queue, so that deciding stays pure.

use std::time::Duration;

use handoffd_domain::cap::Defaults;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{ContentId, EscalationId, HandoffId, Micros};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::residency::ResidencyRules;
use handoffd_domain::window::ContextSettings;
use handoffd_store::clock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Handoffs on one task.
    pub max_hops: i64,
    /// Handoffs on one edge of a task without progress, where its contract says nothing else.
    pub max_edge_repeats: i64,
    /// Handoffs side by side share what their sender was handed; else each may have as much.
    pub reserve: bool,
    /// How long what comes back to its receiver is leased anew.
    pub lease: Duration,
    /// How long a receiver has for its verdict, where the contract says nothing else.
    pub verdict: Duration,
    /// How long a claim from an inbox lasts.
    pub claim: Duration,
    /// How long an escalation waits for a person, where the contract says nothing else.
    pub escalation_timeout: Duration,
    /// Rolling caps where an operator set none.
    pub caps: Defaults,
    /// The regions to which data may go.
    pub residency: ResidencyRules,
    /// The rules on a receiver's context window.
    pub context: ContextSettings,
}

impl Default for Rules {
    /// The specification's limits, and a day for people.
    fn default() -> Self {
        Self {
            max_hops: 32,
            max_edge_repeats: 3,
            reserve: false,
            lease: Duration::from_mins(15),
            verdict: Duration::from_secs(30),
            claim: Duration::from_secs(10),
            escalation_timeout: Duration::from_hours(24),
            caps: Defaults::default(),
            residency: ResidencyRules::default(),
            context: ContextSettings::default(),
        }
    }
}

/// Ids for what a decision may bring into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// For a handoff that replaces a failed one.
    pub handoff: HandoffId,
    pub escalation: EscalationId,
    /// For the states of objects that an administrative command changes; no other command pays for it.
    pub states: Option<StateSpare>,
}

/// The id and the salt of a content with the states of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpare {
    pub content: ContentId,
    pub salt: [u8; 16],
}

impl StateSpare {
    fn new(now: Micros) -> Self {
        Self { content: ContentId(clock::time_ordered_id(now)), salt: clock::random() }
    }
}

impl Spare {
    #[must_use]
    pub fn new(now: Micros) -> Self {
        Self {
            // A sender may name it as a parent: version 4, as the message's schema has it.
            handoff: HandoffId(clock::random_id()),
            escalation: EscalationId(clock::time_ordered_id(now)),
            states: None,
        }
    }

    /// With what the record of changed states needs.
    #[must_use]
    pub fn for_states(self, now: Micros) -> Self {
        Self { states: Some(StateSpare::new(now)), ..self }
    }
}

/// The claim of a broker's dispatcher on a handoff, from its commit on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatcherClaim {
    pub broker: String,
    /// The end of the claim.
    pub until: Micros,
}

/// The inputs of a decision besides the state and the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub rules: Rules,
    pub spare: Spare,
    /// How long the command waited until its batch was decided.
    pub waited: Duration,
    /// The claim for a submission whose delivery has a slot in the dispatcher.
    pub claim: Option<DispatcherClaim>,
}

impl Context {
    /// The latency clock of a handoff that is committed for that transport: an inbox offers at the commit,
    /// a pushed transport offers with its first attempt. The time in the queue is the broker's share.
    #[must_use]
    pub fn offered(&self, mut clock: LatencyClock, at: Micros, mode: DeliveryMode) -> LatencyClock {
        if !mode.is_pushed() {
            clock.offer(at.plus(self.waited));
        }
        clock
    }
}
