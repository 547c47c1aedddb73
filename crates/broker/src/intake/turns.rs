//! Turns of submissions: how many the broker judges and commits at once, and whose is next.
//!
//! A few are enough to keep processors and store busy. More would only stand before each other: an agent that sends without
//! pause would fill the run queue and each transaction, and the rare message of another agent would come after all of its.
//! So further ones wait here. A free turn goes to each tenant in turn, and within the tenant to each agent in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::oneshot;

use crate::directory::Principal;
use handoffd_core::domain::ids::{AgentId, TenantId};

/// The submissions that are judged and committed at once.
pub struct Turns {
    lines: Mutex<Lines>,
    /// The longest that all lines together may be.
    longest: usize,
    /// Shows [`Lines::waiting`].
    waiting: IntGauge,
}

/// A turn, until this is dropped: then it is the next one's.
pub struct Turn(Option<Arc<Turns>>);

#[derive(Default)]
struct Lines {
    free: usize,
    /// Callers that wait, those that left among them until their turn comes.
    waiting: usize,
    tenants: Rotation<TenantId, Rotation<String, VecDeque<oneshot::Sender<Turn>>>>,
}

/// Queues by key that are served in turn.
struct Rotation<K, Q> {
    queues: HashMap<K, Q>,
    order: VecDeque<K>,
}

impl<K, Q> Default for Rotation<K, Q> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + std::hash::Hash, Q: Default> Rotation<K, Q> {
    /// The queue of this key; a new one is served after all others.
    fn queue(&mut self, key: K) -> &mut Q {
        if !self.queues.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.queues.entry(key).or_default()
    }

    /// Takes from the queue whose turn it is. `take` also says whether the queue is empty now.
    fn next<T>(&mut self, take: impl FnOnce(&mut Q) -> (Option<T>, bool)) -> Option<T> {
        let key = self.order.pop_front()?;
        let (taken, empty) = take(self.queues.get_mut(&key)?);
        if empty {
            self.queues.remove(&key);
        } else {
            self.order.push_back(key);
        }
        taken
    }
}

impl Lines {
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        self.tenants.next(|callers| {
            let next = callers.next(|line| (line.pop_front(), line.is_empty()));
            (next, callers.order.is_empty())
        })
    }
}

impl Turns {
    /// Allows `size` turns at once, at least one; at most `longest` callers wait.
    #[must_use]
    pub fn new(size: usize, longest: usize, waiting: IntGauge) -> Arc<Self> {
        let lines = Lines { free: size.max(1), ..Lines::default() };
        Arc::new(Self { lines: Mutex::new(lines), longest, waiting })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, lines: &Lines) {
        self.waiting.set(i64::try_from(lines.waiting).unwrap_or(i64::MAX));
    }

    /// Waits for the caller's turn; `None` where as many wait as may.
    pub async fn take(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let waiting = {
            let mut lines = self.lines();
            if lines.free > 0 {
                lines.free -= 1;
                return Some(Turn(Some(Arc::clone(self))));
            }
            if lines.waiting >= self.longest {
                return None;
            }
            lines.waiting += 1;
            let (pass, waiting) = oneshot::channel();
            let caller =
                principal.agent.as_ref().map_or(principal.key_id.as_str(), AgentId::as_str);
            self.show(&lines);
            lines.tenants.queue(principal.tenant.clone()).queue(caller.to_owned()).push_back(pass);
            waiting
        };
        // The sender is in the lines, which live as long as these turns; each is used or dropped with them.
        waiting.await.ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let next = {
                let mut lines = turns.lines();
                let Some(next) = lines.next() else {
                    lines.free += 1;
                    return;
                };
                lines.waiting -= 1;
                turns.show(&lines);
                next
            };
            // A caller that left gives its turn back.
            match next.send(Self(Some(Arc::clone(&turns)))) {
                Ok(()) => return,
                Err(mut left) => left.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    fn turns(size: usize) -> Arc<Turns> {
        Turns::new(size, 100, IntGauge::new("waiting", "Waiting.").unwrap())
    }

    fn agent(tenant: &str, agent: &str) -> Principal {
        Principal::by_signature(&tenant.parse().unwrap(), &agent.parse().unwrap())
    }

    /// Callers that wait behind one who has the only turn; each says its name when its turn comes.
    async fn order(callers: &[(&str, &str)]) -> Vec<String> {
        let turns = turns(1);
        let first = turns.take(&agent("a", "busy")).await;
        assert!(first.is_some());
        let (tell, mut names_in_turn) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = JoinSet::new();
        for (tenant, name) in callers {
            let (turns, tell, caller) = (Arc::clone(&turns), tell.clone(), agent(tenant, name));
            let name = format!("{tenant}/{name}");
            waiting.spawn(async move {
                let _turn = turns.take(&caller).await;
                tell.send(name).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop((first, tell));
        let mut names = Vec::new();
        while let Some(name) = names_in_turn.recv().await {
            names.push(name);
        }
        assert_eq!(turns.lines().free, 1);
        names
    }

    #[tokio::test]
    async fn a_rare_sender_waits_for_one_submission_of_a_flood_and_not_for_all() {
        let names =
            order(&[("a", "flood"), ("a", "flood"), ("a", "flood"), ("a", "rare"), ("a", "flood")]);
        assert_eq!(names.await, ["a/flood", "a/rare", "a/flood", "a/flood", "a/flood"]);
    }

    #[tokio::test]
    async fn tenants_have_turns_before_their_agents() {
        let names = order(&[("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("b", "x")]);
        assert_eq!(names.await, ["a/x", "b/x", "a/y", "b/x", "a/z"]);
    }

    #[tokio::test]
    async fn a_full_line_takes_no_caller() {
        let waiting = IntGauge::new("waiting", "Waiting.").unwrap();
        let turns = Turns::new(1, 1, waiting);
        let caller = agent("a", "x");
        let held = turns.take(&caller).await;
        let mut next = Box::pin(turns.take(&caller));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        assert!(turns.take(&caller).await.is_none());
        drop(held);
        assert!(next.await.is_some());
    }

    #[tokio::test]
    async fn a_caller_that_leaves_while_it_waits_holds_up_nothing() {
        let turns = turns(2);
        let caller = agent("a", "x");
        let held = [turns.take(&caller).await, turns.take(&caller).await];
        let mut left: Vec<_> = (0..3).map(|_| Box::pin(turns.take(&caller))).collect();
        for one in &mut left {
            assert!(futures_util::poll!(one.as_mut()).is_pending());
        }
        let mut stays = Box::pin(turns.take(&caller));
        assert!(futures_util::poll!(stays.as_mut()).is_pending());
        // Two leave before their turn, one has it already and never looks.
        left.truncate(1);
        drop(held);
        drop(left);
        drop(stays.await);
        assert_eq!(turns.lines().free, 2);
        assert!(turns.lines().tenants.order.is_empty());
        assert_eq!(turns.waiting.get(), 0);
    }
}
