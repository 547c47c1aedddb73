//! Queues by key that are served in turn: one with a thousand entries gets no more turns than one with a single entry. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Queues by key in the order of their turns; none is empty between two calls.
#[derive(Debug)]
pub(crate) struct Rotation<K, Q> {
    queues: HashMap<K, Q>,
    order: VecDeque<K>,
}

impl<K, Q> Default for Rotation<K, Q> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new() }
    }
}

/// The outcome of one queue's turn.
pub(crate) struct Served<T> {
    /// The entry taken; `None` passes the turn on.
    pub taken: Option<T>,
    /// The queue has no entry left, and goes.
    pub empty: bool,
}

impl<K: Clone + Eq + Hash, Q: Default> Rotation<K, Q> {
    /// The queue of this key; a new one is served after all others.
    pub(crate) fn queue(&mut self, key: K) -> &mut Q {
        if !self.queues.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.queues.entry(key).or_default()
    }

    /// Asks each queue in turn until one gives an entry.
    pub(crate) fn next<T>(&mut self, mut serve: impl FnMut(&K, &mut Q) -> Served<T>) -> Option<T> {
        for _ in 0..self.order.len() {
            let key = self.order.pop_front()?;
            let Served { taken, empty } = serve(&key, self.queues.get_mut(&key)?);
            if empty {
                self.queues.remove(&key);
            } else {
                self.order.push_back(key);
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(entries: &[(&'static str, u8)]) -> Rotation<&'static str, VecDeque<u8>> {
        let mut rotation = Rotation::<_, VecDeque<_>>::default();
        for (key, entry) in entries {
            rotation.queue(*key).push_back(*entry);
        }
        rotation
    }

    #[test]
    fn each_key_has_its_turn_before_one_has_a_second() {
        let mut rotation = filled(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)]);
        let mut next = || {
            rotation.next(|_, queue| Served { taken: queue.pop_front(), empty: queue.is_empty() })
        };
        let order: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(order, [1, 4, 5, 2, 3]);
        assert!(rotation.is_empty());
    }

    #[test]
    fn a_queue_that_gives_none_keeps_its_entries_and_passes_its_turn() {
        let mut rotation = filled(&[("a", 1), ("b", 2)]);
        let mut all_but_a = || {
            rotation.next(|key, queue| {
                let taken = if *key == "a" { None } else { queue.pop_front() };
                Served { taken, empty: queue.is_empty() }
            })
        };
        assert_eq!([all_but_a(), all_but_a()], [Some(2), None]);
        assert_eq!(rotation.queue("a").len(), 1);
    }
}
