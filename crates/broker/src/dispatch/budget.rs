//! The retry budget of one receiver: retries stay a fraction of first attempts, plus a constant rate. A receiver that
//! fails under load gets its usual load and a little more, not a multiple of it.
//!
//! The budget is a token bucket that may go into debt. Each first attempt adds a fraction of a token, and each second
//! adds a few; each retry takes one. Without a token the retry is deferred to the time at which the constant
//! rate alone will have paid for it. Retries are deferred, never dropped, so a debt is also a queue. Pure: the caller
//! passes the time. After Finagle's `RetryBudget` (20 % and ten a second), which drops instead.

use std::time::Duration;

use handoffd_domain::ids::Micros;

/// Rates and bound of a receiver's retry budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetSettings {
    /// Retries for each first attempt.
    pub share: f64,
    /// Retries a second in any case; more than 0.
    pub floor: f64,
    /// Largest number of saved tokens.
    pub most: f64,
}

impl Default for BudgetSettings {
    /// 0.2 retries for each first attempt, 10 a second, 100 saved.
    fn default() -> Self {
        Self { share: 0.2, floor: 10.0, most: 100.0 }
    }
}

#[derive(Debug, Clone)]
pub(super) struct RetryBudget {
    settings: BudgetSettings,
    tokens: f64,
    as_of: Option<Micros>,
}

impl RetryBudget {
    /// A budget with all its tokens saved.
    pub(super) fn new(settings: BudgetSettings) -> Self {
        Self { settings, tokens: settings.most, as_of: None }
    }

    /// Records a first attempt.
    pub(super) fn first(&mut self) {
        self.tokens = (self.tokens + self.settings.share).min(self.settings.most);
    }

    /// The earliest time at which a retry that is due at `wanted` may start.
    pub(super) fn retry(&mut self, now: Micros, wanted: Micros) -> Micros {
        let passed = self.as_of.map_or(Duration::ZERO, |before| now.since(before));
        self.as_of = Some(self.as_of.map_or(now, |before| before.max(now)));
        let paid = self.tokens + passed.as_secs_f64() * self.settings.floor;
        self.tokens = paid.min(self.settings.most) - 1.0;
        if self.tokens >= 0.0 {
            return wanted;
        }
        wanted.max(now.plus(Duration::from_secs_f64(-self.tokens / self.settings.floor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: BudgetSettings = BudgetSettings { share: 0.5, floor: 2.0, most: 4.0 };

    #[test]
    fn what_is_saved_is_spent_at_once_and_then_it_trickles() {
        let mut budget = RetryBudget::new(SETTINGS);
        let now = Micros(1_000_000);
        let at: Vec<i64> = (0..7).map(|_| budget.retry(now, now).0 - now.0).collect();
        assert_eq!(at, [0, 0, 0, 0, 500_000, 1_000_000, 1_500_000]);
        // A second later two of the three are paid; two first attempts pay for the third.
        let now = Micros(2_000_000);
        budget.first();
        budget.first();
        assert_eq!(budget.retry(now, now).0 - now.0, 500_000);
    }

    #[test]
    fn a_later_wish_is_kept() {
        let mut budget = RetryBudget::new(SETTINGS);
        for _ in 0..4 {
            budget.retry(Micros(0), Micros(0));
        }
        assert_eq!(budget.retry(Micros(0), Micros(9_000_000)), Micros(9_000_000));
    }

    proptest! {
        /// Within any interval, no more retries fall due than tokens were saved, earned by first attempts, and added
        /// by the constant rate; and no retry falls due before its wanted time.
        #[test]
        fn retries_stay_within_the_budget(
            steps in proptest::collection::vec((any::<bool>(), 0_i64..200_000, 0_i64..1_000_000), 1..200),
        ) {
            let mut budget = RetryBudget::new(SETTINGS);
            let (mut now, mut firsts, mut due) = (Micros(0), 0.0, Vec::new());
            for (first, pause, wish) in steps {
                now = Micros(now.0 + pause);
                if first {
                    firsts += 1.0;
                    budget.first();
                } else {
                    let wanted = Micros(now.0 + wish);
                    let at = budget.retry(now, wanted);
                    prop_assert!(at >= wanted);
                    due.push(at);
                }
            }
            due.sort();
            for (n, at) in due.iter().enumerate() {
                let allowed = SETTINGS.most + SETTINGS.share * firsts + SETTINGS.floor * at.0 as f64 / 1e6;
                prop_assert!(n as f64 <= allowed, "{n} due by {at:?}, allowed {allowed}");
            }
        }
    }
}
