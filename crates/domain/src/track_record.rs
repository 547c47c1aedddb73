//! The results of the handoffs for which a door's router chose an agent, by the ability it was chosen for (seed 004, phases
//! 4 and 5). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::handoff::{Handoff, HandoffStatus};
use super::ruling::Standing;

/// Outcomes of an agent's handoffs for one capability, specialization or tag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrackRecord {
    pub succeeded: u32,
    pub failed: u32,
    /// Times from commit to end of those that succeeded, in no order.
    took: Vec<Duration>,
}

impl TrackRecord {
    /// The records of one agent by specialty. Handoffs that are open, were withdrawn by their sender or stand in for another
    /// say nothing of the agent.
    #[must_use]
    pub fn by_specialty<'a>(
        handoffs: impl IntoIterator<Item = &'a Handoff>,
    ) -> BTreeMap<String, Self> {
        let mut records: BTreeMap<String, Self> = BTreeMap::new();
        for handoff in handoffs {
            let ruling = handoff.ruling.as_ref().filter(|ruling| ruling.standing == Standing::Own);
            let Some(specialty) = ruling.and_then(|ruling| ruling.specialty.as_ref()) else {
                continue;
            };
            let succeeded = match handoff.status {
                HandoffStatus::Completed => true,
                HandoffStatus::Rejected | HandoffStatus::Failed | HandoffStatus::Expired => false,
                _ => continue,
            };
            let record = records.entry(specialty.clone()).or_default();
            if succeeded {
                record.succeeded += 1;
                record.took.extend(handoff.ended_at.map(|at| at.since(handoff.created_at)));
            } else {
                record.failed += 1;
            }
        }
        records
    }

    /// The share of those that ended well; `None` before the first end.
    #[must_use]
    pub fn success_rate(&self) -> Option<f64> {
        let ended = self.succeeded + self.failed;
        (ended > 0).then(|| f64::from(self.succeeded) / f64::from(ended))
    }

    /// The expected success rate of the next one: Laplace's rule of succession. An agent without a record has one half, and
    /// one outcome alone makes no agent the best or the worst.
    #[must_use]
    pub fn expected(&self) -> f64 {
        f64::from(self.succeeded + 1) / f64::from(self.succeeded + self.failed + 2)
    }

    /// The median time of those that ended well.
    #[must_use]
    pub fn median(&self) -> Option<Duration> {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get(took.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(succeeded: u32, failed: u32) -> TrackRecord {
        let took = (0..succeeded).rev().map(|n| Duration::from_secs(n.into())).collect();
        TrackRecord { succeeded, failed, took }
    }

    #[test]
    fn an_expected_rate_asks_for_more_than_one_outcome() {
        assert_eq!((record(0, 0).success_rate(), record(0, 0).expected()), (None, 0.5));
        assert_eq!(record(3, 1).success_rate(), Some(0.75));
        let (one, many, bad) = (record(1, 0), record(9, 1), record(0, 1));
        assert!(many.expected() > one.expected() && one.expected() > 0.5 && bad.expected() < 0.5);
    }

    #[test]
    fn the_median_is_that_of_the_ends_that_were_good() {
        assert_eq!(record(0, 4).median(), None);
        assert_eq!(record(5, 4).median(), Some(Duration::from_secs(2)));
    }
}
