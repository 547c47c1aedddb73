//! The bound on series of contracts' metrics. Operators write contracts, and there may be many: the first names get
//! series of their own, all others are counted as `other`.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use handoffd_core::domain::policy::EdgePolicy;

/// Metrics of contracts with series of their own, at most. One that is timed has a histogram of 16 buckets.
pub(super) const MAX_SERIES: usize = 200;

/// Labels of a metric beyond the limit.
const OTHER: [&str; 2] = ["other", "other"];

/// The metrics seen so far, by contract.
#[derive(Debug, Default)]
pub(super) struct Series(RwLock<HashSet<[String; 2]>>);

impl Series {
    /// Calls `with` with the labels of each metric of a contract: the contract's id, the metric's name.
    pub(super) fn each(&self, edge: &EdgePolicy, mut with: impl FnMut(&str, &[&str])) {
        let Some(contract) = &edge.contract else { return };
        for name in &edge.metrics {
            let labels = [contract.id.as_str(), name.as_str()];
            with(name, if self.has_place(labels) { &labels } else { &OTHER });
        }
    }

    fn has_place(&self, labels: [&str; 2]) -> bool {
        let owned = labels.map(str::to_owned);
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if known.contains(&owned) {
                return true;
            }
            if known.len() >= MAX_SERIES {
                return false;
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_SERIES {
            known.insert(owned);
            return true;
        }
        known.contains(&owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_core::domain::policy::ContractRef;

    #[test]
    fn f3_6_the_first_metrics_have_names_and_the_rest_are_other() {
        let series = Series::default();
        let labels = |id: usize| {
            let contract = ContractRef { id: format!("c{id}"), version: "1.0.0".to_owned() };
            let metrics = vec!["handoff.rejected".to_owned()];
            let edge = EdgePolicy { contract: Some(contract), metrics, ..EdgePolicy::default() };
            let mut seen = Vec::new();
            series.each(&edge, |_, labels| seen.push(labels.join(" ")));
            seen
        };
        for id in 0..MAX_SERIES {
            assert_eq!(labels(id), [format!("c{id} handoff.rejected")]);
        }
        assert_eq!(labels(MAX_SERIES), ["other other"]);
        assert_eq!(labels(0), ["c0 handoff.rejected"], "a name that is there keeps its place");
    }
}
