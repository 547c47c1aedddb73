//! The bound on series of a metric whose labels senders or operators choose: the first labels get series of their own,
//! all others are counted as `other`.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

/// Labels with series of their own, at most.
pub(super) const MAX_SERIES: usize = 200;

/// The labels seen so far.
#[derive(Debug, Default)]
pub(super) struct BoundedLabels<const N: usize>(RwLock<HashSet<[String; N]>>);

impl<const N: usize> BoundedLabels<N> {
    /// These labels, or `other` for each beyond the limit.
    pub(super) fn bounded<'a>(&self, labels: [&'a str; N]) -> [&'a str; N] {
        if self.has_place(labels) { labels } else { ["other"; N] }
    }

    fn has_place(&self, labels: [&str; N]) -> bool {
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

    #[test]
    fn f3_6_the_first_labels_have_names_and_the_rest_are_other() {
        let pairs = BoundedLabels::default();
        let names: Vec<String> = (0..=MAX_SERIES).map(|n| format!("a{n}")).collect();
        for name in &names[..MAX_SERIES] {
            assert_eq!(pairs.bounded(["t", name, "b"]), ["t", name, "b"]);
        }
        assert_eq!(pairs.bounded(["t", &names[MAX_SERIES], "b"]), ["other"; 3]);
        assert_eq!(pairs.bounded(["t", &names[0], "b"]), ["t", &names[0], "b"], "kept");
        assert_eq!(
            pairs.bounded(["u", &names[0], "b"]),
            ["other"; 3],
            "another tenant's is another"
        );
    }
}
