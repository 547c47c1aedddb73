//! Bounds on series of metrics whose labels senders or operators choose.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock};

/// Series of a tenant's pairs, at most.
pub(super) const PAIRS_OF_TENANT: usize = 200;

/// Series of all tenants' pairs, at most.
const PAIRS: usize = 2_000;

/// Places of a tenant that its first pairs get. The others are for those that are busy.
const AT_ONCE: usize = PAIRS_OF_TENANT / 2;

/// Handoffs after which a pair is busy.
const BUSY: u32 = 16;

/// Pairs of a tenant without a place whose handoffs are counted, at most.
const CANDIDATES: usize = 1_000;

/// Other series with labels of their own, at most.
const MAX_SERIES: usize = 200;

/// Which pairs of agents have series of their own. The first pairs of a tenant have, until half of its places are taken; the
/// others get one once they are busy. None loses it while the process runs, for a counter must not jump.
#[derive(Debug, Default)]
pub(super) struct PairLabels(RwLock<KnownPairs>);

#[derive(Debug, Default)]
struct KnownPairs {
    tenants: HashMap<String, TenantPairs>,
    /// Places of all tenants that are taken.
    all: usize,
}

#[derive(Debug, Default)]
struct TenantPairs {
    named: HashSet<[String; 2]>,
    /// Handoffs of pairs that have no place.
    waiting: HashMap<[String; 2], u32>,
}

impl PairLabels {
    /// Counts a handoff of a pair, and gives the labels of its series.
    pub(super) fn counted<'a>(&self, labels: [&'a str; 3]) -> [&'a str; 3] {
        let shown = self.shown(labels);
        if shown == labels {
            return labels;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.count(labels) { labels } else { shown }
    }

    /// The labels of a pair's series: of the pair, or of the others of its tenant.
    pub(super) fn shown<'a>(&self, labels: [&'a str; 3]) -> [&'a str; 3] {
        let [tenant, source, target] = labels;
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match known.tenants.get(tenant) {
            Some(pairs) if pairs.named.contains(&[source.to_owned(), target.to_owned()]) => labels,
            Some(_) => [tenant, "other", "other"],
            None => ["other"; 3],
        }
    }
}

impl KnownPairs {
    /// Counts a handoff of a pair without a place; whether the pair has one now.
    fn count(&mut self, [tenant, source, target]: [&str; 3]) -> bool {
        if !self.tenants.contains_key(tenant) {
            if self.all >= PAIRS {
                return false;
            }
            self.tenants.insert(tenant.to_owned(), TenantPairs::default());
        }
        let Some(pairs) = self.tenants.get_mut(tenant) else { return false };
        let pair = [source.to_owned(), target.to_owned()];
        if pairs.named.contains(&pair) {
            return true;
        }
        if self.all >= PAIRS || pairs.named.len() >= PAIRS_OF_TENANT {
            return false;
        }
        if pairs.named.len() >= AT_ONCE && !pairs.is_busy(&pair) {
            return false;
        }
        pairs.named.insert(pair);
        self.all += 1;
        true
    }
}

impl TenantPairs {
    fn is_busy(&mut self, pair: &[String; 2]) -> bool {
        let count = self.waiting.get(pair).copied().unwrap_or(0) + 1;
        if count >= BUSY {
            self.waiting.remove(pair);
            return true;
        }
        if self.waiting.len() >= CANDIDATES && !self.waiting.contains_key(pair) {
            // Those that are seldom seen make room.
            self.waiting.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        if self.waiting.len() < CANDIDATES {
            self.waiting.insert(pair.clone(), count);
        }
        false
    }
}

/// The labels seen so far: the first ones get series of their own, all others are counted as `other`.
#[derive(Debug, Default)]
pub(super) struct BoundedLabels<const N: usize>(Mutex<HashSet<[String; N]>>);

impl<const N: usize> BoundedLabels<N> {
    /// These labels, or `other` for each beyond the limit.
    pub(super) fn bounded<'a>(&self, labels: [&'a str; N]) -> [&'a str; N] {
        let owned = labels.map(str::to_owned);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_place = known.contains(&owned) || (known.len() < MAX_SERIES && known.insert(owned));
        if has_place { labels } else { ["other"; N] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("a{n}")).collect()
    }

    #[test]
    fn f3_6_the_first_labels_have_names_and_the_rest_are_other() {
        let contracts = BoundedLabels::default();
        let names = names(MAX_SERIES + 1);
        for name in &names[..MAX_SERIES] {
            assert_eq!(contracts.bounded([name, "b"]), [name, "b"]);
        }
        assert_eq!(contracts.bounded([&names[MAX_SERIES], "b"]), ["other"; 2]);
        assert_eq!(contracts.bounded([&names[0], "b"]), [&names[0], "b"], "kept");
    }

    /// Finding S6 of 0.3.0.
    #[test]
    fn one_tenants_pairs_hide_no_other_tenants() {
        let pairs = PairLabels::default();
        for name in &names(PAIRS_OF_TENANT + 10) {
            pairs.counted(["loud", name, "b"]);
        }
        assert_eq!(pairs.counted(["quiet", "a", "b"]), ["quiet", "a", "b"]);
        assert_eq!(pairs.shown(["quiet", "a", "b"]), ["quiet", "a", "b"]);
        assert_eq!(pairs.shown(["loud", "a205", "b"]), ["loud", "other", "other"]);
        assert_eq!(pairs.shown(["unheard", "a", "b"]), ["other"; 3]);
    }

    #[test]
    fn a_busy_pair_gets_a_name_after_many_that_were_seen_once() {
        let pairs = PairLabels::default();
        let seen_once = names(5 * CANDIDATES);
        for name in &seen_once {
            pairs.counted(["t", name, "b"]);
        }
        for round in 1..=BUSY {
            let shown = pairs.counted(["t", "busy", "b"]);
            let expected = if round < BUSY { ["t", "other", "other"] } else { ["t", "busy", "b"] };
            assert_eq!(shown, expected, "round {round}");
        }
        assert_eq!(pairs.counted(["t", "a0", "b"]), ["t", "a0", "b"], "none loses its name");
        let all = names(3 * PAIRS_OF_TENANT);
        for name in &all {
            for _ in 0..BUSY {
                pairs.counted(["t", name, "c"]);
            }
        }
        let known = pairs.0.read().unwrap();
        assert_eq!((known.all, known.tenants["t"].named.len()), (PAIRS_OF_TENANT, PAIRS_OF_TENANT));
        assert!(known.tenants["t"].waiting.len() <= CANDIDATES);
    }
}
