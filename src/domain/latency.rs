//! Handoff latency: from the first byte of the request that submits a handoff to its acceptance, what of it
//! is the broker's share and what the receiver's, and how long it may take (seed 000 §6.5).

use std::time::Duration;

use super::handoff::DeliveryMode;
use super::ids::Micros;

/// The times between which a handoff's latency is measured, as kept with it: acceptance may be recorded by
/// another broker, or after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyClock {
    /// When the first byte of its request was read; for a released dead letter, when it was released; for a
    /// handoff of the broker's own making, when that was decided.
    pub started_at: Micros,
    /// When its receiver could first take it: when the first attempt's request was begun, or when it was
    /// committed to an inbox. None while neither is known.
    pub offered_at: Option<Micros>,
}

impl LatencyClock {
    /// A clock that starts now.
    #[must_use]
    pub const fn starting(at: Micros) -> Self {
        Self { started_at: at, offered_at: None }
    }

    /// Notes when the receiver could take it, unless that is known.
    pub fn offer(&mut self, at: Micros) {
        self.offered_at.get_or_insert(at);
    }

    /// From the start to acceptance.
    #[must_use]
    pub fn whole(&self, accepted_at: Micros) -> Duration {
        accepted_at.since(self.started_at)
    }

    /// The broker's share and the receiver's, which together are the whole; none while the offer is not
    /// known. Times of two brokers may cross by their clocks' difference: a share is never below zero nor
    /// above the whole.
    #[must_use]
    pub fn shares(&self, accepted_at: Micros) -> Option<(Duration, Duration)> {
        let whole = self.whole(accepted_at);
        let broker = self.offered_at?.since(self.started_at).min(whole);
        Some((broker, whole.saturating_sub(broker)))
    }
}

/// What a command made known of a handoff's latency, each at most once in a handoff's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencySample {
    /// From the start to acceptance, where the command accepted it.
    pub whole: Option<Duration>,
    /// The broker's share and the receiver's, where both the offer and the acceptance are known now.
    pub shares: Option<(Duration, Duration)>,
}

/// How long a handoff may take to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objective {
    /// At most one of a hundred takes longer.
    pub p99: Duration,
    /// None takes longer.
    pub max: Duration,
}

impl Objective {
    /// Synchronous HTTP (seed 000 §6.5).
    pub const HTTP: Self =
        Self { p99: Duration::from_millis(200), max: Duration::from_millis(500) };
    /// A durable queue, which the inbox is as well (seed 000 §6.5).
    pub const QUEUE: Self = Self { p99: Duration::from_millis(500), max: Duration::from_secs(2) };
}

impl DeliveryMode {
    /// The objective of this transport.
    #[must_use]
    pub const fn objective(self) -> Objective {
        match self {
            Self::Webhook => Objective::HTTP,
            Self::Pull => Objective::QUEUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Micros {
        Micros(millis * 1_000)
    }

    #[test]
    fn f4_1_the_shares_add_up_to_the_whole_whatever_the_clocks_say() {
        let clock = LatencyClock { started_at: at(100), offered_at: Some(at(130)) };
        let millis = Duration::from_millis;
        assert_eq!(clock.whole(at(800)), millis(700));
        assert_eq!(clock.shares(at(800)), Some((millis(30), millis(670))));
        assert_eq!(LatencyClock::starting(at(100)).shares(at(800)), None);
        for (offered, accepted) in [(90, 800), (900, 800), (130, 90), (90, 80)] {
            let clock = LatencyClock { started_at: at(100), offered_at: Some(at(offered)) };
            let (broker, receiver) = clock.shares(at(accepted)).unwrap();
            assert_eq!(broker + receiver, clock.whole(at(accepted)), "{offered} {accepted}");
        }
    }

    #[test]
    fn f4_1_the_first_offer_stands() {
        let mut clock = LatencyClock::starting(at(1));
        clock.offer(at(5));
        clock.offer(at(9));
        assert_eq!(clock.offered_at, Some(at(5)));
    }

    #[test]
    fn f4_2_objectives_are_the_seeds() {
        let of = |mode: DeliveryMode| {
            let Objective { p99, max } = mode.objective();
            (p99.as_millis(), max.as_millis())
        };
        assert_eq!(of(DeliveryMode::Webhook), (200, 500));
        assert_eq!(of(DeliveryMode::Pull), (500, 2000));
    }
}
