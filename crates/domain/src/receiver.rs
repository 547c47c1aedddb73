//! A receiver as brokers notice it: its circuit breakers, and its attempts by time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::histogram::Histogram;
use super::ids::Micros;

/// Length of a window, in microseconds: five minutes.
pub const WINDOW_US: i64 = 300_000_000;

/// How long a window is kept, in microseconds: a day.
pub const KEPT_US: i64 = 86_400_000_000;

/// A circuit breaker's state. The worst is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Attempts pass.
    Closed,
    /// One probe is in flight.
    HalfOpen,
    /// No attempt passes until the cool-down ends.
    Open,
}

impl BreakerState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// The value of columns and of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// How an attempt ended, as far as it tells of its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The receiver answered after this time: it took the handoff, refused it, or asked for patience.
    Answered(Duration),
    /// No complete answer came within the time limit.
    TimedOut(Duration),
    /// It failed in another way. Its duration says nothing of the latency of the receiver.
    Failed,
}

/// Attempts at one receiver within some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttemptCounts {
    pub attempts: u64,
    /// Those that failed, time-outs among them.
    pub failures: u64,
    pub timeouts: u64,
    /// Durations of those that were answered or timed out.
    pub durations: Histogram,
}

impl AttemptCounts {
    pub fn record(&mut self, end: AttemptEnd) {
        self.attempts += 1;
        match end {
            AttemptEnd::Answered(took) => self.durations.record(took),
            AttemptEnd::TimedOut(took) => {
                self.failures += 1;
                self.timeouts += 1;
                self.durations.record(took);
            }
            AttemptEnd::Failed => self.failures += 1,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.failures = self.failures.saturating_add(other.failures);
        self.timeouts = self.timeouts.saturating_add(other.timeouts);
        self.durations.add(&other.durations);
    }

    /// The share of attempts that failed, from 0 to 1; `None` without an attempt.
    #[must_use]
    pub fn failure_share(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.failures as f64 / self.attempts as f64)
    }

    /// Half of the answers came within this time.
    #[must_use]
    pub fn p50(&self) -> Option<Duration> {
        self.durations.quantile(50)
    }

    /// 95 of 100 answers came within this time.
    #[must_use]
    pub fn p95(&self) -> Option<Duration> {
        self.durations.quantile(95)
    }
}

/// Windows by the time at which each begins.
pub type Windows = BTreeMap<Micros, AttemptCounts>;

/// The beginning of the window of this length around a time.
#[must_use]
pub const fn window_at(at: Micros, length_us: i64) -> Micros {
    Micros(at.0 - at.0.rem_euclid(length_us))
}

/// All windows as one.
#[must_use]
pub fn total<'a>(windows: impl IntoIterator<Item = &'a AttemptCounts>) -> AttemptCounts {
    let mut sum = AttemptCounts::default();
    windows.into_iter().for_each(|counts| sum.add(counts));
    sum
}

/// The windows added up to longer ones.
#[must_use]
pub fn widened(windows: &Windows, length_us: i64) -> Windows {
    let mut wide = Windows::new();
    for (at, counts) in windows {
        wide.entry(window_at(*at, length_us)).or_default().add(counts);
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(number: u64) -> AttemptEnd {
        let took = Duration::from_millis(number);
        match number % 3 {
            0 => AttemptEnd::Answered(took),
            1 => AttemptEnd::TimedOut(took),
            _ => AttemptEnd::Failed,
        }
    }

    #[test]
    fn a_breaker_is_read_as_it_is_written_and_open_is_the_worst() {
        for state in BreakerState::ALL {
            assert_eq!(BreakerState::parse(state.as_str()), Some(state));
        }
        assert_eq!(BreakerState::parse("ajar"), None);
        assert_eq!(BreakerState::ALL.into_iter().max(), Some(BreakerState::Open));
        assert!(BreakerState::HalfOpen > BreakerState::Closed);
    }

    #[test]
    fn a_failure_other_than_a_time_out_has_no_latency() {
        let mut counts = AttemptCounts::default();
        assert_eq!((counts.failure_share(), counts.p50()), (None, None));
        for number in [3, 4, 5, 6] {
            counts.record(end(number));
        }
        assert_eq!((counts.attempts, counts.failures, counts.timeouts), (4, 2, 1));
        assert_eq!(counts.durations.count(), 3);
        assert_eq!(counts.failure_share(), Some(0.5));
    }

    #[test]
    fn a_window_begins_at_a_multiple_of_its_length() {
        assert_eq!(window_at(Micros(2 * WINDOW_US + 7), WINDOW_US), Micros(2 * WINDOW_US));
        assert_eq!(window_at(Micros(2 * WINDOW_US), WINDOW_US), Micros(2 * WINDOW_US));
        assert_eq!(window_at(Micros(-1), WINDOW_US), Micros(-WINDOW_US));
    }

    proptest! {
        /// Longer windows lose nothing: their sum is the sum of the short ones.
        #[test]
        fn widened_windows_have_the_same_sum(
            ends in proptest::collection::vec((0_i64..KEPT_US, 0_u64..100_000), 0..100),
        ) {
            let mut windows = Windows::new();
            for (at, number) in &ends {
                windows.entry(window_at(Micros(*at), WINDOW_US)).or_default().record(end(*number));
            }
            let wide = widened(&windows, 12 * WINDOW_US);
            prop_assert!(wide.len() <= 24 && wide.len() <= windows.len());
            prop_assert_eq!(total(wide.values()), total(windows.values()));
            prop_assert_eq!(total(windows.values()).attempts, ends.len() as u64);
        }
    }
}
