//! Handoff latency: from the first byte of the request that submits a handoff to its acceptance, the shares of broker
//! and receiver, and the objectives (seed 000 §6.5).

use std::time::Duration;

use super::handoff::DeliveryMode;
use super::ids::Micros;

/// The times of a handoff's latency, stored with it: another broker may record the acceptance, or the same one after
/// a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyClock {
    /// Time of the first byte of the request; for a released dead letter, of the release; for a handoff made by
    /// the broker, of its decision.
    pub started_at: Micros,
    /// Time at which the receiver could first take the handoff: the begin of the first attempt's request, or the
    /// commit to an inbox. None while neither is known.
    pub offered_at: Option<Micros>,
}

impl LatencyClock {
    #[must_use]
    pub const fn starting(at: Micros) -> Self {
        Self { started_at: at, offered_at: None }
    }

    /// Sets the time of the offer, unless it is known.
    pub fn offer(&mut self, at: Micros) {
        self.offered_at.get_or_insert(at);
    }

    /// Duration from start to acceptance.
    #[must_use]
    pub fn whole(&self, accepted_at: Micros) -> Duration {
        accepted_at.since(self.started_at)
    }

    /// The broker's and the receiver's share, which add up to the whole; `None` while the offer is unknown.
    /// Clocks of two brokers may differ: a share is never below zero nor above the whole.
    #[must_use]
    pub fn shares(&self, accepted_at: Micros) -> Option<(Duration, Duration)> {
        let whole = self.whole(accepted_at);
        let broker = self.offered_at?.since(self.started_at).min(whole);
        Some((broker, whole.saturating_sub(broker)))
    }
}

/// Latencies that became known by a command, each at most once in a handoff's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencySample {
    /// Duration from start to acceptance, if the command accepted the handoff.
    pub whole: Option<Duration>,
    /// The broker's and the receiver's share, once offer and acceptance are known.
    pub shares: Option<(Duration, Duration)>,
}

/// Latency objective of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objective {
    /// Limit for 99 of 100 handoffs.
    pub p99: Duration,
    /// Limit for every handoff.
    pub max: Duration,
}

impl Objective {
    /// Objective of synchronous HTTP (seed 000 §6.5).
    pub const HTTP: Self =
        Self { p99: Duration::from_millis(200), max: Duration::from_millis(500) };
    /// Objective of a durable queue, including the inbox (seed 000 §6.5).
    pub const QUEUE: Self = Self { p99: Duration::from_millis(500), max: Duration::from_secs(2) };
    /// Objective of a Temporal signal (seed 000 §6.5).
    pub const TEMPORAL: Self = Self { p99: Duration::from_secs(1), max: Duration::from_secs(5) };
}

impl DeliveryMode {
    /// The objective of this transport.
    #[must_use]
    pub const fn objective(self) -> Objective {
        match self {
            Self::Webhook | Self::A2a => Objective::HTTP,
            Self::Pull | Self::Sqs | Self::Nats | Self::Redis | Self::Amqp => Objective::QUEUE,
            Self::Temporal => Objective::TEMPORAL,
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
        for mode in DeliveryMode::ALL {
            let expected = match mode.as_str() {
                "webhook" | "a2a" => (200, 500),
                "temporal" => (1_000, 5_000),
                _ => (500, 2_000),
            };
            assert_eq!(of(mode), expected, "{}", mode.as_str());
        }
    }
}
