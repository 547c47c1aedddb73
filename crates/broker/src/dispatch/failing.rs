//! The path of an endpoint to being disabled: consecutive failures, and the steps at which operators are notified.
//! Pure.
//!
//! Only failures that moved the circuit breaker count: those that opened it, and then each failed probe. A burst of
//! attempts in flight when a receiver goes down counts as a few failures, not as a hundred, so the count follows the
//! length of an outage and not the traffic.

use handoffd_domain::agent::Failing;

/// Steps at which operators are notified, in percent of the limit; the last step disables the endpoint.
pub(super) const STEPS: [u8; 4] = [50, 70, 90, 100];

/// Consecutive failures of one endpoint, as one broker counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Streak {
    /// Failures at which the endpoint is disabled; 0 means never.
    limit: u32,
    failures: u32,
    /// The highest step already notified.
    reported: u8,
}

impl Streak {
    pub(super) const fn new(limit: u32) -> Self {
        Self { limit, failures: 0, reported: 0 }
    }

    /// Adopts the step stored with the agent: notified before this broker started, or by another broker, or reset
    /// since (by an answer that another broker received, or by an operator who configured the delivery again).
    pub(super) fn known(&mut self, reported: Option<Failing>) {
        match reported {
            Some(reported) if reported.failures > self.failures => {
                self.failures = reported.failures;
                self.reported = reported.percent;
            }
            None if self.reported > 0 => *self = Self::new(self.limit),
            _ => {}
        }
    }

    /// Counts a failure. Returns the step that it reached; the highest of several.
    pub(super) fn failed(&mut self) -> Option<Failing> {
        if self.limit == 0 {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        let share = u64::from(self.failures) * 100 / u64::from(self.limit);
        let reached = STEPS.into_iter().rev().find(|step| u64::from(*step) <= share)?;
        (reached > self.reported).then(|| {
            self.reported = reached;
            Failing { percent: reached, failures: self.failures }
        })
    }

    /// Resets the count. Returns whether a failing step had been notified.
    pub(super) fn answered(&mut self) -> bool {
        let was_reported = self.reported > 0;
        *self = Self::new(self.limit);
        was_reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(streak: &mut Streak, failures: u32) -> Vec<(u8, u32)> {
        (0..failures)
            .filter_map(|_| streak.failed())
            .map(|step| (step.percent, step.failures))
            .collect()
    }

    #[test]
    fn operators_are_told_at_each_step_once() {
        let mut streak = Streak::new(10);
        assert_eq!(steps(&mut streak, 30), [(50, 5), (70, 7), (90, 9), (100, 10)]);
    }

    #[test]
    fn an_answer_starts_over() {
        let mut streak = Streak::new(10);
        assert_eq!(steps(&mut streak, 4), []);
        assert!(!streak.answered(), "no failure was reported");
        assert_eq!(steps(&mut streak, 5), [(50, 5)]);
        assert!(streak.answered());
        assert_eq!(steps(&mut streak, 5), [(50, 5)]);
    }

    #[test]
    fn a_broker_goes_on_from_what_was_told() {
        let mut streak = Streak::new(10);
        streak.known(Some(Failing { percent: 70, failures: 7 }));
        assert_eq!(steps(&mut streak, 3), [(90, 9), (100, 10)]);
        streak.known(Some(Failing { percent: 50, failures: 5 }));
        assert_eq!(streak.failures, 10, "it knows better");
        streak.known(None);
        assert_eq!(steps(&mut streak, 5), [(50, 5)], "set anew");
        streak.known(Some(Failing { percent: 50, failures: 5 }));
        assert_eq!(steps(&mut streak, 2), [(70, 7)]);
    }

    #[test]
    fn with_no_limit_nothing_is_told() {
        assert_eq!(steps(&mut Streak::new(0), 1_000), []);
    }

    proptest! {
        /// For every limit, the last step comes with the failure that reaches it, and percentages only grow.
        #[test]
        fn the_last_step_is_the_limit(limit in 1_u32..500) {
            let reported = steps(&mut Streak::new(limit), limit);
            prop_assert_eq!(reported.last().copied(), Some((100, limit)));
            prop_assert!(reported.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
