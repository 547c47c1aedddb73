//! The keys in service on this broker: each key once, and a limited number of keys at a time.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The keys in service.
pub(crate) struct InService<K> {
    keys: Arc<Mutex<HashSet<K>>>,
    places: Arc<Semaphore>,
}

/// A key in service. Dropped, it leaves its place to another.
pub(crate) struct Service<K: Eq + Hash> {
    key: K,
    keys: Arc<Mutex<HashSet<K>>>,
    _place: OwnedSemaphorePermit,
}

impl<K: Eq + Hash + Clone> InService<K> {
    /// None yet, and at most `at_once` at a time.
    #[must_use]
    pub(crate) fn new(at_once: usize) -> Self {
        Self { keys: Arc::default(), places: Arc::new(Semaphore::new(at_once)) }
    }

    /// Whether no key is in service.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes keys into service, in order, as far as there are places, and leaves out those in service already. The caller that
    /// ends a service looks again: a key that found no place is found then.
    pub(crate) fn admit(&self, due: Vec<K>) -> Vec<Service<K>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let mut admitted = Vec::new();
        for key in due {
            if keys.contains(&key) {
                continue;
            }
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { break };
            keys.insert(key.clone());
            admitted.push(Service { key, keys: Arc::clone(&self.keys), _place: place });
        }
        admitted
    }
}

impl<K: Eq + Hash> Service<K> {
    pub(crate) fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Eq + Hash> Drop for Service<K> {
    fn drop(&mut self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(admitted: &[Service<u32>]) -> Vec<u32> {
        admitted.iter().map(|service| *service.key()).collect()
    }

    #[test]
    fn a_key_is_in_service_once_until_its_service_ends() {
        let in_service = InService::new(8);
        let first = in_service.admit(vec![1, 2, 1]);
        assert_eq!(keys(&first), [1, 2]);
        assert!(in_service.admit(vec![1, 2]).is_empty());
        drop(first);
        assert!(in_service.is_empty());
        assert_eq!(keys(&in_service.admit(vec![2])), [2]);
    }

    #[test]
    fn no_more_are_in_service_than_there_are_places() {
        let in_service = InService::new(2);
        let mut admitted = in_service.admit(vec![1, 2, 3]);
        assert_eq!(keys(&admitted), [1, 2]);
        assert!(in_service.admit(vec![3]).is_empty());
        admitted.remove(0);
        assert_eq!(keys(&in_service.admit(vec![3, 4])), [3]);
    }

    #[test]
    fn a_service_that_panics_leaves_its_place() {
        let in_service = Arc::new(InService::new(1));
        let theirs = Arc::clone(&in_service);
        let panicked = std::thread::spawn(move || {
            let _service = theirs.admit(vec![1]);
            panic!("as a task may");
        });
        assert!(panicked.join().is_err());
        assert_eq!(keys(&in_service.admit(vec![1])), [1]);
    }
}
