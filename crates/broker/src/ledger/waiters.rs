//! Waits for changes of one thing, on this broker.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// The waits by key; a change wakes each with a value.
pub(super) struct Waiters<K, V> {
    by_key: Mutex<HashMap<K, (watch::Sender<V>, usize)>>,
}

impl<K, V> Default for Waiters<K, V> {
    fn default() -> Self {
        Self { by_key: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, V: Default> Waiters<K, V> {
    pub(super) fn watch(self: &Arc<Self>, key: K) -> Watch<K, V> {
        let mut map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, count) =
            map.entry(key.clone()).or_insert_with(|| (watch::Sender::new(V::default()), 0));
        *count += 1;
        let (changes, waiting) = (changes.subscribe(), *count);
        Watch { waiters: Arc::clone(self), changes, key, waiting }
    }

    /// Wakes the waits for a key; false where there are none.
    pub(super) fn wake(&self, key: &K, value: impl FnOnce() -> V) -> bool {
        let map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((changes, _)) = map.get(key) else { return false };
        changes.send_replace(value());
        true
    }

    /// Whether anything waits for this key.
    pub(super) fn any(&self, key: &K) -> bool {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    pub(super) fn keys(&self) -> Vec<K> {
        let map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        map.keys().cloned().collect()
    }
}

/// A wait for changes of one thing.
pub struct Watch<K: Eq + Hash, V = ()> {
    waiters: Arc<Waiters<K, V>>,
    changes: watch::Receiver<V>,
    key: K,
    /// How many waited for the same thing when this wait began, counting it.
    pub(super) waiting: usize,
}

impl<K: Eq + Hash, V: Clone> Watch<K, V> {
    /// Resolves at the next change since this wait began or since the last one that it returned, with the value of
    /// the latest. A dropped call misses nothing.
    pub async fn changed(&mut self) -> V {
        // The other end lives as long as a caller waits.
        let _ = self.changes.changed().await;
        self.changes.borrow_and_update().clone()
    }
}

impl<K: Eq + Hash, V> Watch<K, V> {
    /// Whether there was a change since this wait began or since the last one that it returned.
    pub fn take_change(&mut self) -> bool {
        // The other end lives as long as this wait.
        let changed = self.changes.has_changed().unwrap_or(false);
        self.changes.mark_unchanged();
        changed
    }
}

impl<K: Eq + Hash + std::fmt::Debug, V> std::fmt::Debug for Watch<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash, V> Drop for Watch<K, V> {
    fn drop(&mut self) {
        let mut map = self.waiters.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = map.get_mut(&self.key) {
            entry.1 -= 1;
            if entry.1 == 0 {
                map.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_before_the_first_look_is_told_and_the_latest_counts() {
        let waiters = Arc::new(Waiters::<u8, u32>::default());
        let mut watch = waiters.watch(1);
        assert!(waiters.wake(&1, || 7));
        assert!(waiters.wake(&1, || 8));
        assert_eq!(watch.changed().await, 8);
        let again = tokio::time::timeout(std::time::Duration::from_millis(1), watch.changed());
        assert!(again.await.is_err(), "told once");
        assert!(!watch.take_change());
        assert!(waiters.wake(&1, || 9));
        assert_eq!([watch.take_change(), watch.take_change()], [true, false]);
    }

    #[tokio::test]
    async fn nobody_is_told_of_others_or_after_they_left() {
        let waiters = Arc::new(Waiters::<u8, u32>::default());
        let (one, two) = (waiters.watch(1), waiters.watch(1));
        assert_eq!((one.waiting, two.waiting), (1, 2));
        assert!(!waiters.wake(&2, || unreachable!("no caller asks")));
        drop(one);
        assert_eq!(waiters.keys(), [1]);
        drop(two);
        assert!(!waiters.wake(&1, || unreachable!("no caller asks")));
        assert_eq!(waiters.keys(), Vec::<u8>::new());
    }
}
