//! Retry schedule of a failed delivery: exponential back-off with full jitter. Pure: the caller passes the random
//! number.
//!
//! Full jitter (a delay drawn evenly between zero and the exponential bound) spreads the load on receivers best among
//! the common schemes. Source: AWS Architecture Blog, "Exponential Backoff and Jitter".

use std::time::Duration;

use crate::transport::answer::RETRY_AFTER_MAX;

/// Delays and number of attempts of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Upper bound of the first delay.
    pub base: Duration,
    /// Upper bound of every delay.
    pub cap: Duration,
    /// Number of attempts in all, the first one included.
    pub max_attempts: u32,
}

impl Default for RetryPolicy {
    /// 500 ms, doubled up to 60 s, five attempts in all.
    fn default() -> Self {
        Self { base: Duration::from_millis(500), cap: Duration::from_mins(1), max_attempts: 5 }
    }
}

impl RetryPolicy {
    /// The policy with a contract's `max_retries` in place of its own, where the contract states it.
    #[must_use]
    pub fn within(self, max_retries: Option<u32>) -> Self {
        let max_attempts = max_retries.map_or(self.max_attempts, |n| n.saturating_add(1));
        Self { max_attempts, ..self }
    }

    /// The delay before the next attempt; `None` when no attempt is left.
    ///
    /// `failed_attempts` counts the attempts made, from 1. `random` lies in `[0, 1)`; other values are clamped.
    /// `retry_after`, the receiver's request, is a lower bound of the delay and may exceed `cap`, but not
    /// [`RETRY_AFTER_MAX`].
    pub fn next_delay(
        &self,
        failed_attempts: u32,
        random: f64,
        retry_after: Option<Duration>,
    ) -> Option<Duration> {
        if failed_attempts >= self.max_attempts {
            return None;
        }
        Some(self.pause(failed_attempts, random, retry_after))
    }

    /// As [`Self::next_delay`], without the limit on attempts.
    pub fn pause(
        &self,
        failed_attempts: u32,
        random: f64,
        retry_after: Option<Duration>,
    ) -> Duration {
        let random = if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) };
        let drawn = self.bound(failed_attempts).mul_f64(random);
        let floor = retry_after.unwrap_or(Duration::ZERO).min(RETRY_AFTER_MAX);
        drawn.max(floor)
    }

    /// The largest delay that can be drawn after this many failed attempts.
    pub fn bound(&self, failed_attempts: u32) -> Duration {
        let doublings = failed_attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: RetryPolicy = RetryPolicy {
        base: Duration::from_millis(100),
        cap: Duration::from_secs(2),
        max_attempts: 8,
    };

    #[test]
    fn bounds_double_up_to_the_cap() {
        let rows = [
            (0, 100),
            (1, 100),
            (2, 200),
            (3, 400),
            (5, 1600),
            (6, 2000),
            (7, 2000),
            (u32::MAX, 2000),
        ];
        for (failed, millis) in rows {
            assert_eq!(POLICY.bound(failed), Duration::from_millis(millis), "{failed}");
        }
    }

    #[test]
    fn attempts_run_out() {
        assert!(POLICY.next_delay(7, 0.5, None).is_some());
        assert_eq!(POLICY.next_delay(8, 0.5, None), None);
        assert_eq!(POLICY.next_delay(u32::MAX, 0.5, Some(Duration::from_secs(1))), None);
        let never = RetryPolicy { max_attempts: 1, ..POLICY };
        assert_eq!(never.next_delay(1, 0.0, None), None);
    }

    #[test]
    fn a_contract_says_how_often() {
        assert_eq!(POLICY.within(None), POLICY);
        assert_eq!(POLICY.within(Some(0)).next_delay(1, 0.5, None), None);
        assert!(POLICY.within(Some(20)).next_delay(20, 0.5, None).is_some());
        assert_eq!(POLICY.within(Some(20)).next_delay(21, 0.5, None), None);
    }

    #[test]
    fn the_receivers_wish_is_a_clamped_floor() {
        let wish = |secs| Some(Duration::from_secs(secs));
        assert_eq!(POLICY.next_delay(1, 0.9, wish(30)), wish(30));
        assert_eq!(POLICY.next_delay(1, 0.5, wish(0)), Some(Duration::from_millis(50)));
        assert_eq!(POLICY.next_delay(1, 0.5, wish(u64::MAX)), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn odd_random_numbers_do_no_harm() {
        for random in [f64::NAN, f64::NEG_INFINITY, -1.0, 1.0, f64::INFINITY] {
            let delay = POLICY.next_delay(3, random, None).expect("a delay");
            assert!(delay <= POLICY.bound(3), "{random}");
        }
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(
            base_ms in 0_u64..100_000, cap_ms in 0_u64..1_000_000, max in 0_u32..100,
            failed in any::<u32>(), random in 0.0_f64..1.0, wish_s in proptest::option::of(any::<u64>()),
        ) {
            let policy = RetryPolicy {
                base: Duration::from_millis(base_ms),
                cap: Duration::from_millis(cap_ms),
                max_attempts: max,
            };
            let wish = wish_s.map(Duration::from_secs);
            match policy.next_delay(failed, random, wish) {
                None => prop_assert!(failed >= max),
                Some(delay) => {
                    prop_assert!(failed < max);
                    let floor = wish.unwrap_or_default().min(RETRY_AFTER_MAX);
                    prop_assert!(delay >= floor);
                    prop_assert!(delay <= policy.cap.max(floor));
                }
            }
        }
    }
}
