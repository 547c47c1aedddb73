//! When the holder of an accepted handoff was last heard of, and when another worker of its agent may take over.
//!
//! A lease of minutes ends late after a crash. A holder that says how often it will be heard of (`heartbeatIntervalMs`) may be
//! replaced once it missed [`MISSED`] of its own intervals. The interval is the holder's, never that of the worker that asks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::Micros;

/// Intervals that a holder misses before another worker may take over.
pub const MISSED: u32 = 4;

/// The longest interval that a holder may state, in milliseconds: a day.
pub const LONGEST_INTERVAL_MS: u64 = 86_400_000;

/// The holder of a lease that said how often it will be heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderPulse {
    /// Time between two signs of life, as the holder stated it, in milliseconds.
    pub interval_ms: u64,
    /// When the holder was last heard of.
    pub heard_at: Micros,
    /// The end of the lease as of then. Another end means that a broker of an older version extended the lease without
    /// noting when it heard of the holder.
    pub until: Micros,
}

/// Whether another worker may take a handoff over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The holder missed its intervals.
    Over,
    /// Not before this time, unless the holder is heard of.
    Until(Micros),
    /// The lease has no interval that counts: not before it ends.
    Unknown,
}

impl HolderPulse {
    /// The silence of the holder at a time. `deadline` is the lease's end as it is.
    #[must_use]
    pub fn silence(pulse: Option<&Self>, deadline: Option<Micros>, now: Micros) -> Silence {
        let Some(pulse) = pulse.filter(|pulse| Some(pulse.until) == deadline) else {
            return Silence::Unknown;
        };
        let allowed = Duration::from_millis(pulse.interval_ms.saturating_mul(u64::from(MISSED)));
        let due = pulse.heard_at.plus(allowed);
        if due <= now { Silence::Over } else { Silence::Until(due) }
    }

    /// The same holder with a lease that ends at another time, heard of at `at`. A word that waited in a queue is older than
    /// what came meanwhile: the later time counts.
    #[must_use]
    pub fn renewed(self, at: Micros, until: Micros) -> Self {
        Self { heard_at: self.heard_at.max(at), until, ..self }
    }

    /// As stored.
    #[must_use]
    pub fn to_text(&self) -> String {
        // A struct of numbers always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(interval_ms: u64, heard_at: i64, until: i64) -> HolderPulse {
        HolderPulse { interval_ms, heard_at: Micros(heard_at), until: Micros(until) }
    }

    #[test]
    fn a_holder_is_silent_after_four_of_its_own_intervals() {
        let holder = pulse(1_000, 5_000_000, 900_000_000);
        let at = |now| HolderPulse::silence(Some(&holder), Some(Micros(900_000_000)), Micros(now));
        assert_eq!(at(8_999_999), Silence::Until(Micros(9_000_000)));
        assert_eq!(at(9_000_000), Silence::Over);
    }

    #[test]
    fn a_lease_without_an_interval_that_counts_is_not_taken_over() {
        let far = Micros(i64::MAX);
        assert_eq!(HolderPulse::silence(None, Some(Micros(1)), far), Silence::Unknown);
        // An older broker extended the lease, and did not note when it heard of the holder.
        let holder = pulse(1, 1, 2);
        assert_eq!(HolderPulse::silence(Some(&holder), Some(Micros(3)), far), Silence::Unknown);
        assert_eq!(HolderPulse::silence(Some(&holder), None, far), Silence::Unknown);
    }

    #[test]
    fn a_late_word_does_not_make_a_holder_older() {
        let holder = pulse(1_000, 5, 10).renewed(Micros(3), Micros(10));
        assert_eq!(holder.heard_at, Micros(5));
    }
}
