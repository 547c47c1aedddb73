//! Random draws. All come from `clock.rs`, so a schedule's seed determines the simulation's draws and the product's.

use std::time::Duration;

use handoffd_store::clock;

/// Evenly in `0..bound`; the bias of the remainder is of no account here.
pub(super) fn below(bound: u64) -> u64 {
    u64::from_le_bytes(clock::random()) % bound.max(1)
}

/// True with a probability in thousandths.
pub(super) fn chance(per_mille: u64) -> bool {
    per_mille > 0 && below(1_000) < per_mille
}

pub(super) fn one_of<T>(of: &[T]) -> &T {
    &of[below(of.len() as u64) as usize]
}

/// The index of a weight, drawn in proportion.
pub(super) fn weighted(weights: &[u64]) -> usize {
    let mut left = below(weights.iter().sum());
    for (at, weight) in weights.iter().enumerate() {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return at,
        }
    }
    0
}

/// Milliseconds in `from..to`.
pub(super) fn pause(from: u64, to: u64) -> Duration {
    Duration::from_millis(from + below(to - from))
}
