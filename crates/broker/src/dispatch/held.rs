//! The claims that this broker knows to hold, to find those that it holds without knowing.
//!
//! A claim whose commit succeeded although its answer was lost belongs to this broker, and no task here sends it; it
//! would wait until the claim expires. So the claims that the store has under this broker's name are compared with the
//! known ones, and the rest is released.
//!
//! The race to avoid: a claim is in the store before it is known here. Every operation that may claim is therefore
//! counted as in flight from before it calls the store until its claims are known. An unknown claim is released only
//! after every operation that was in flight when the claim was seen has ended. An operation ends in the same step in
//! which its claims become known.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use handoffd_store::store::{ClaimKey, HandoffKey};

/// An operation that may bring claims; see [`Claims::begin`].
pub(super) type Operation = u64;

#[derive(Default)]
struct ClaimTable {
    /// Known claims, with their attempt.
    live: HashMap<HandoffKey, i32>,
    begun: Operation,
    under_way: BTreeSet<Operation>,
    /// Claims that were unknown when they were seen, and the last operation begun by then.
    suspects: HashMap<HandoffKey, (i32, Operation)>,
    doubt: bool,
}

/// All claims that this broker knows.
#[derive(Default)]
pub(super) struct Claims(Mutex<ClaimTable>);

impl Claims {
    fn lock(&self) -> MutexGuard<'_, ClaimTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation that may bring claims.
    pub(super) fn begin(&self) -> Operation {
        let mut state = self.lock();
        state.begun += 1;
        let operation = state.begun;
        state.under_way.insert(operation);
        operation
    }

    /// Ends an operation, which brought these claims.
    pub(super) fn end(&self, operation: Operation, brought: impl IntoIterator<Item = ClaimKey>) {
        let mut state = self.lock();
        state.under_way.remove(&operation);
        state.live.extend(brought);
    }

    /// Ends an operation whose answer was lost: it may have brought claims that this broker does not know.
    pub(super) fn lost(&self, operation: Operation) {
        let mut state = self.lock();
        state.under_way.remove(&operation);
        state.doubt = true;
    }

    /// Removes a claim that is settled, or never will be.
    pub(super) fn let_go(&self, key: &HandoffKey, attempt: i32) {
        let mut state = self.lock();
        if state.live.get(key) == Some(&attempt) {
            state.live.remove(key);
        }
    }

    /// Whether an answer was lost since the last call.
    pub(super) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.lock().doubt)
    }

    /// Of the claims that the store has under this broker's name, just read: those that are neither known nor about to
    /// become known. The caller releases each only if it still has that attempt.
    pub(super) fn forgotten(&self, found: Vec<ClaimKey>) -> Vec<ClaimKey> {
        let mut state = self.lock();
        let ClaimTable { live, begun, under_way, suspects, .. } = &mut *state;
        let oldest = under_way.first().copied().unwrap_or(Operation::MAX);
        let known = std::mem::take(suspects);
        found
            .into_iter()
            .filter(|(key, attempt)| {
                if live.get(key) == Some(attempt) {
                    return false;
                }
                let seen = match known.get(key) {
                    Some((before, seen)) if before == attempt => *seen,
                    _ => *begun,
                };
                if oldest > seen {
                    return true;
                }
                suspects.insert(key.clone(), (*attempt, seen));
                false
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::ids::HandoffId;
    use proptest::prelude::*;

    fn held(n: u128, attempt: i32) -> ClaimKey {
        (("t".parse().unwrap(), HandoffId(uuid::Uuid::from_u128(n))), attempt)
    }

    #[test]
    fn what_is_known_is_not_forgotten() {
        let claims = Claims::default();
        let operation = claims.begin();
        claims.end(operation, [held(1, 1)]);
        assert_eq!(claims.forgotten(vec![held(1, 1)]), []);
        assert_eq!(claims.forgotten(vec![held(1, 2)]), [held(1, 2)], "another attempt of it");
        claims.let_go(&held(1, 1).0, 1);
        assert_eq!(claims.forgotten(vec![held(1, 1)]), [held(1, 1)]);
    }

    #[test]
    fn who_is_about_to_know_is_waited_for() {
        let claims = Claims::default();
        let (slow, quick) = (claims.begin(), claims.begin());
        assert_eq!(claims.forgotten(vec![held(1, 1)]), []);
        claims.end(quick, []);
        assert_eq!(claims.forgotten(vec![held(1, 1)]), [], "it may be the slow one's");
        let later = claims.begin();
        claims.lost(slow);
        assert!(claims.take_doubt() && !claims.take_doubt());
        assert_eq!(claims.forgotten(vec![held(1, 1)]), [held(1, 1)], "the later one came after");
        claims.end(later, []);
    }

    #[test]
    fn an_answer_that_comes_late_is_not_forgotten() {
        let claims = Claims::default();
        let operation = claims.begin();
        assert_eq!(claims.forgotten(vec![held(1, 1)]), []);
        claims.end(operation, [held(1, 1)]);
        assert_eq!(claims.forgotten(vec![held(1, 1)]), []);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin,
        /// The store commits the claim of an operation in flight.
        Commit(usize),
        Answer(usize),
        Lose(usize),
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Begin),
            (0_usize..4).prop_map(Step::Commit),
            (0_usize..4).prop_map(Step::Answer),
            (0_usize..4).prop_map(Step::Lose),
            Just(Step::Look),
        ]
    }

    proptest! {
        /// In any order of events, a claim that is held or about to be held is never released, and every lost claim is
        /// found once all operations have ended.
        #[test]
        fn only_what_nobody_holds_is_released(steps in proptest::collection::vec(step(), 1..60)) {
            let claims = Claims::default();
            // Number, operation, whether the store has it.
            let mut open: Vec<(u128, Operation, bool)> = Vec::new();
            let (mut stored, mut lost, mut next) = (Vec::<u128>::new(), Vec::<u128>::new(), 0);
            for step in steps {
                match step {
                    Step::Begin => {
                        next += 1;
                        open.push((next, claims.begin(), false));
                    }
                    Step::Commit(n) if n < open.len() && !open[n].2 => {
                        open[n].2 = true;
                        stored.push(open[n].0);
                    }
                    Step::Answer(n) if n < open.len() && open[n].2 => {
                        let (number, operation, _) = open.remove(n);
                        claims.end(operation, [held(number, 1)]);
                    }
                    Step::Lose(n) if n < open.len() => {
                        let (number, operation, _) = open.remove(n);
                        claims.lost(operation);
                        lost.push(number);
                    }
                    Step::Look => {
                        let found = stored.iter().map(|n| held(*n, 1)).collect();
                        for ((_, id), _) in claims.forgotten(found) {
                            let number = id.0.as_u128();
                            prop_assert!(lost.contains(&number), "{number} was taken from its holder");
                            stored.retain(|n| *n != number);
                        }
                    }
                    _ => {}
                }
            }
            for (_, operation, _) in open {
                claims.lost(operation);
            }
            let found: Vec<ClaimKey> = lost.iter().filter(|n| stored.contains(n)).map(|n| held(*n, 1)).collect();
            prop_assert_eq!(claims.forgotten(found.clone()), found);
        }
    }
}
