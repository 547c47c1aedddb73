//! A circuit breaker for one receiver: a dead receiver gets single probes, not every delivery.
//!
//! ```text
//!            threshold failures in a row              cool-down over, next permit
//!   Closed ─────────────────────────────▶ Open ─────────────────────────────▶ HalfOpen
//!     ▲                                    ▲  ▲                                │   │
//!     │                                    │  └── failure: cool-down doubles ──┘   │
//!     └──────────── success (from anywhere) ───────────────────────────────────────┘
//! ```
//!
//! Pure: the caller passes the time as microseconds since any fixed epoch. The caller holds one breaker per receiver
//! behind a lock, asks [`Breaker::permits`] before an attempt and reports its end.

use std::time::Duration;

pub use handoffd_domain::receiver::BreakerState;

/// Thresholds and times of a [`Breaker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Consecutive failures that open the breaker; 0 counts as 1.
    pub failure_threshold: u32,
    /// Cool-down after the first opening.
    pub cool_down_base: Duration,
    /// Upper bound of the cool-down, which doubles with each failed probe.
    pub cool_down_cap: Duration,
    /// A probe that has not reported after this time counts as lost, and another may start. Must exceed the
    /// whole-attempt timeout of the receiver.
    pub probe_timeout: Duration,
}

impl Default for BreakerSettings {
    /// 5 failures; cool-down 1 s, doubled up to 60 s; a probe is lost after 120 s.
    fn default() -> Self {
        Self {
            failure_threshold: 5,
            cool_down_base: Duration::from_secs(1),
            cool_down_cap: Duration::from_mins(1),
            probe_timeout: Duration::from_mins(2),
        }
    }
}

/// The breaker's decision on one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// The attempt may start.
    Granted,
    /// The attempt may start as the single probe; its end decides whether the breaker closes.
    Probe,
    /// The attempt must wait.
    Denied {
        /// Earliest time, in microseconds of the caller's epoch, at which the decision can change without a report.
        retry_at_us: i64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { openings: u32, until_us: i64 },
    HalfOpen { openings: u32, lost_at_us: i64 },
}

/// The circuit breaker of one receiver.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: BreakerSettings,
    phase: Phase,
    /// When it left the phase `Closed`, or came back to it.
    changed_us: Option<i64>,
}

impl Breaker {
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, phase: Phase::Closed { failures: 0 }, changed_us: None }
    }

    /// Decides on an attempt that starts now. Occupies the probe's place if the attempt is the probe.
    pub fn permits(&mut self, now_us: i64) -> Permit {
        match self.phase {
            Phase::Closed { .. } => Permit::Granted,
            Phase::Open { openings, until_us }
            | Phase::HalfOpen { openings, lost_at_us: until_us } => {
                if now_us < until_us {
                    return Permit::Denied { retry_at_us: until_us };
                }
                self.phase = Phase::HalfOpen {
                    openings,
                    lost_at_us: after(now_us, self.settings.probe_timeout),
                };
                Permit::Probe
            }
        }
    }

    /// Records a sensible answer, a rejection included: the breaker closes and all counts reset.
    ///
    /// An attempt that started before the breaker opened may report here while it is open; the answer proves that the
    /// receiver is alive and closes the breaker too.
    pub fn on_success(&mut self, now_us: i64) {
        if !matches!(self.phase, Phase::Closed { .. }) {
            self.changed_us = Some(now_us);
        }
        self.phase = Phase::Closed { failures: 0 };
    }

    /// Records a failed attempt at `now_us`. Returns whether the failure counted.
    ///
    /// While the breaker is open, late reports of attempts that started earlier change nothing: otherwise the
    /// stragglers of one burst would extend the cool-down several times.
    pub fn on_failure(&mut self, now_us: i64) -> bool {
        match self.phase {
            Phase::Closed { failures } => {
                let failures = failures.saturating_add(1);
                if failures >= self.settings.failure_threshold {
                    self.changed_us = Some(now_us);
                    self.open(1, now_us);
                } else {
                    self.phase = Phase::Closed { failures };
                }
            }
            Phase::Open { .. } => return false,
            Phase::HalfOpen { openings, .. } => self.open(openings.saturating_add(1), now_us),
        }
        true
    }

    /// Records an attempt that ended without evidence about the receiver (cancelled before it was sent). If the
    /// attempt was the probe, the next caller may probe at once.
    pub fn on_abandoned(&mut self, now_us: i64) {
        if let Phase::HalfOpen { openings, .. } = self.phase {
            self.phase = Phase::Open { openings, until_us: now_us };
        }
    }

    /// The present state. An open breaker whose cool-down is over stays `Open` until a probe starts.
    pub fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// When it opened first since it was closed, or closed last; `None` where it never opened.
    pub fn changed_at(&self) -> Option<i64> {
        self.changed_us
    }

    /// The time at which the next probe may start, in microseconds; `None` while closed.
    pub fn next_probe_at(&self) -> Option<i64> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until_us, .. } => Some(until_us),
            Phase::HalfOpen { lost_at_us, .. } => Some(lost_at_us),
        }
    }

    fn open(&mut self, openings: u32, now_us: i64) {
        let doublings = openings.saturating_sub(1).min(31);
        let cool_down = self
            .settings
            .cool_down_base
            .saturating_mul(1 << doublings)
            .min(self.settings.cool_down_cap);
        self.phase = Phase::Open { openings, until_us: after(now_us, cool_down) };
    }
}

fn after(now_us: i64, wait: Duration) -> i64 {
    now_us.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(BreakerSettings::default());
        for _ in 0..5 {
            assert_eq!(breaker.permits(0), Permit::Granted);
            breaker.on_failure(0);
        }
        breaker
    }

    #[test]
    fn opens_after_the_threshold_and_only_in_a_row() {
        let mut breaker = Breaker::new(BreakerSettings::default());
        for _ in 0..4 {
            breaker.on_failure(0);
        }
        breaker.on_success(0);
        for _ in 0..4 {
            breaker.on_failure(0);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(breaker.next_probe_at(), None);
        breaker.on_failure(0);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert_eq!(breaker.next_probe_at(), Some(SECOND));
    }

    #[test]
    fn lets_one_probe_through_and_closes_on_its_success() {
        let mut breaker = opened();
        assert_eq!(breaker.permits(SECOND - 1), Permit::Denied { retry_at_us: SECOND });
        assert_eq!(breaker.permits(SECOND), Permit::Probe);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(matches!(breaker.permits(SECOND), Permit::Denied { .. }));
        breaker.on_success(SECOND);
        assert_eq!(breaker.permits(SECOND), Permit::Granted);
    }

    #[test]
    fn cool_down_doubles_to_the_cap_and_starts_over_after_a_success() {
        let mut breaker = opened();
        let mut now = SECOND;
        for expected in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(breaker.permits(now), Permit::Probe);
            breaker.on_failure(now);
            assert_eq!(breaker.next_probe_at(), Some(now + expected * SECOND));
            now += expected * SECOND;
        }
        assert_eq!(breaker.permits(now), Permit::Probe);
        breaker.on_success(now);
        for _ in 0..5 {
            breaker.on_failure(now);
        }
        assert_eq!(breaker.next_probe_at(), Some(now + SECOND));
    }

    #[test]
    fn stragglers_do_not_stretch_the_cool_down_and_may_close() {
        let mut breaker = opened();
        assert!(!breaker.on_failure(SECOND / 2));
        assert_eq!(breaker.next_probe_at(), Some(SECOND));
        breaker.on_success(SECOND);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn it_says_since_when_it_is_open_over_all_its_probes() {
        let mut breaker = Breaker::new(BreakerSettings::default());
        breaker.on_success(1);
        assert_eq!(breaker.changed_at(), None, "it never opened");
        for now in 2..7 {
            breaker.on_failure(now);
        }
        assert_eq!(breaker.changed_at(), Some(6));
        assert_eq!(breaker.permits(2 * SECOND), Permit::Probe);
        breaker.on_failure(2 * SECOND);
        assert_eq!((breaker.state(), breaker.changed_at()), (BreakerState::Open, Some(6)));
        breaker.on_success(3 * SECOND);
        breaker.on_success(4 * SECOND);
        assert_eq!(breaker.changed_at(), Some(3 * SECOND));
    }

    #[test]
    fn a_lost_or_abandoned_probe_is_replaced() {
        let mut breaker = opened();
        assert_eq!(breaker.permits(SECOND), Permit::Probe);
        let lost_at = 121 * SECOND;
        assert_eq!(breaker.permits(lost_at - 1), Permit::Denied { retry_at_us: lost_at });
        assert_eq!(breaker.permits(lost_at), Permit::Probe);
        breaker.on_abandoned(lost_at + 1);
        assert_eq!(breaker.permits(lost_at + 1), Permit::Probe);
        let mut closed = Breaker::new(BreakerSettings::default());
        closed.on_abandoned(0);
        assert_eq!(closed.state(), BreakerState::Closed);
    }

    proptest! {
        /// In any order of events, two probes are separated by a cool-down or by the end of the first, a denial names
        /// a later time, and at that time the breaker does not deny.
        #[test]
        fn never_locks_up(steps in proptest::collection::vec((0_u8..4, 0_i64..5 * SECOND), 1..200)) {
            let mut breaker = Breaker::new(BreakerSettings::default());
            let mut now = 0;
            for (action, pause) in steps {
                now += pause;
                match action {
                    0 => breaker.on_success(now),
                    1 => _ = breaker.on_failure(now),
                    2 => breaker.on_abandoned(now),
                    _ => match breaker.permits(now) {
                        Permit::Granted => prop_assert_eq!(breaker.state(), BreakerState::Closed),
                        Permit::Probe => {
                            prop_assert_eq!(breaker.state(), BreakerState::HalfOpen);
                            let denied = matches!(breaker.permits(now), Permit::Denied { .. });
                            prop_assert!(denied);
                        }
                        Permit::Denied { retry_at_us } => {
                            prop_assert!(retry_at_us > now);
                            prop_assert_eq!(breaker.next_probe_at(), Some(retry_at_us));
                            prop_assert_eq!(breaker.clone().permits(retry_at_us), Permit::Probe);
                        }
                    },
                }
            }
        }
    }
}
