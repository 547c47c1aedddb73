//! The bound on series of agent pairs. Labels must come from bounded sets, and tenants create agents freely: the first
//! pairs get their names, all others are counted as `other`.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use handoffd_core::domain::handoff::Handoff;

/// Pairs with series of their own, at most. Each has a histogram of eight buckets and some counters.
pub(super) const MAX_PAIRS: usize = 200;

/// Labels of a pair beyond the limit.
const OTHER: [&str; 3] = ["other", "other", "other"];

/// The pairs seen so far.
#[derive(Debug, Default)]
pub(super) struct Pairs(RwLock<HashSet<[String; 3]>>);

impl Pairs {
    /// Calls `with` with the labels of a handoff's pair: tenant, source, target.
    pub(super) fn labelled<T>(&self, handoff: &Handoff, with: impl FnOnce(&[&str]) -> T) -> T {
        let pair = [handoff.tenant.as_str(), handoff.source.as_str(), handoff.target.as_str()];
        if self.has_place(pair) { with(&pair) } else { with(&OTHER) }
    }

    fn has_place(&self, pair: [&str; 3]) -> bool {
        let owned = pair.map(str::to_owned);
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if known.contains(&owned) {
                return true;
            }
            if known.len() >= MAX_PAIRS {
                return false;
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_PAIRS {
            known.insert(owned);
            return true;
        }
        known.contains(&owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pairs_have_names_and_the_rest_are_other() {
        let pairs = Pairs::default();
        let names: Vec<String> = (0..=MAX_PAIRS).map(|n| format!("a{n}")).collect();
        for name in &names[..MAX_PAIRS] {
            assert!(pairs.has_place(["t", name, "b"]));
        }
        assert!(!pairs.has_place(["t", &names[MAX_PAIRS], "b"]));
        assert!(pairs.has_place(["t", &names[0], "b"]), "who has a name keeps it");
        assert!(!pairs.has_place(["u", &names[0], "b"]), "another tenant's is another pair");
    }
}
