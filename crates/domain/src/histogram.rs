//! Durations as counts by size, in buckets of a fixed logarithmic scale: histograms of several brokers and times add up.

use std::time::Duration;

/// Number of buckets. Changing it, or the scale, makes stored histograms unreadable.
pub const BUCKETS: usize = 40;

/// Upper bound of each bucket but the last, in microseconds: from 1 ms on, each is √2 times the one before.
const BOUNDS: [u64; BUCKETS - 1] = bounds();

const fn bounds() -> [u64; BUCKETS - 1] {
    let mut bounds = [0; BUCKETS - 1];
    let mut place = 0;
    while place < bounds.len() {
        // In nanoseconds 1 ms, or √2 of them, doubled for each second place.
        let base: u64 = if place % 2 == 0 { 1_000_000 } else { 1_414_214 };
        bounds[place] = (base << (place / 2)) / 1_000;
        place += 1;
    }
    bounds
}

/// Counts of durations.
///
/// A quantile of durations from 1 ms to 524 s is within a factor of 1.19 (the fourth root of 2) of the exact one. A shorter one
/// reads as 1 ms, a longer one as 524 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Makes a histogram of its counts.
    #[must_use]
    pub const fn of(counts: [u64; BUCKETS]) -> Self {
        Self(counts)
    }

    #[must_use]
    pub const fn counts(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|bound| *bound < micros);
        self.0[place] = self.0[place].saturating_add(1);
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The smallest duration that at least `percent` of a hundred do not exceed, as well as the buckets tell; `None` without a
    /// duration.
    #[must_use]
    pub fn quantile(&self, percent: u8) -> Option<Duration> {
        let share = u128::from(self.count()) * u128::from(percent.min(100));
        let rank = u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX).max(1);
        let mut below: u64 = 0;
        let reaches = |count: &u64| {
            below = below.saturating_add(*count);
            below >= rank
        };
        self.0.iter().position(reaches).map(middle)
    }
}

/// The duration for which a bucket's durations are taken: the geometric mean of its bounds.
fn middle(place: usize) -> Duration {
    let micros = match place {
        0 => BOUNDS[0],
        place if place < BOUNDS.len() => {
            (BOUNDS[place - 1] as f64 * BOUNDS[place] as f64).sqrt().round() as u64
        }
        _ => BOUNDS[BOUNDS.len() - 1],
    };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(micros: &[u64]) -> Histogram {
        let mut made = Histogram::default();
        for micros in micros {
            made.record(Duration::from_micros(*micros));
        }
        made
    }

    /// The exact quantile by the same definition.
    fn exact(micros: &[u64], percent: u8) -> u64 {
        let mut sorted = micros.to_vec();
        sorted.sort_unstable();
        sorted[(sorted.len() * usize::from(percent)).div_ceil(100).max(1) - 1]
    }

    #[test]
    fn the_scale_is_a_millisecond_doubled_at_every_second_place() {
        assert_eq!(BOUNDS[..5], [1_000, 1_414, 2_000, 2_828, 4_000]);
        assert_eq!(BOUNDS[38], 524_288_000);
        assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        assert_eq!(histogram(&[0, 1_000]).counts()[0], 2);
        assert_eq!(histogram(&[1_001, 1_414]).counts()[1], 2);
        assert_eq!(histogram(&[524_288_001, u64::MAX]).counts()[39], 2);
    }

    #[test]
    fn outside_of_the_scale_the_nearest_bound_is_read() {
        assert_eq!(Histogram::default().quantile(50), None);
        assert_eq!(histogram(&[3]).quantile(50), Some(Duration::from_millis(1)));
        let hours = histogram(&[7_200_000_000]);
        assert_eq!(hours.quantile(95), Some(Duration::from_millis(524_288)));
    }

    proptest! {
        /// On the scale a quantile is within a factor of the fourth root of 2 of the exact one, and half a microsecond of
        /// rounding at each bound.
        #[test]
        fn a_quantile_is_within_nineteen_percent(
            micros in proptest::collection::vec(1_000_u64..=524_288_000, 1..200),
            percent in 1_u8..=100,
        ) {
            let exact = exact(&micros, percent) as f64;
            let read = histogram(&micros).quantile(percent).unwrap().as_micros() as f64;
            let factor = (read / exact).max(exact / read);
            prop_assert!(factor <= 2_f64.powf(0.25) * 1.001, "{read} for {exact}");
        }

        /// Histograms that are made apart and added are the histogram of all.
        #[test]
        fn histograms_add_up(
            some in proptest::collection::vec(any::<u64>(), 0..50),
            others in proptest::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut sum = histogram(&some);
            sum.add(&histogram(&others));
            let all: Vec<u64> = some.iter().chain(&others).copied().collect();
            prop_assert_eq!(sum, histogram(&all));
            prop_assert_eq!(sum.count(), all.len() as u64);
        }

        #[test]
        fn quantiles_only_grow(micros in proptest::collection::vec(any::<u64>(), 1..50)) {
            let made = histogram(&micros);
            let read: Vec<_> = (0..=100).map(|percent| made.quantile(percent)).collect();
            prop_assert!(read.is_sorted());
        }
    }
}
