//! Turns of submissions: how many the broker judges and commits at once, and whose is next.
//!
//! A few are enough to keep processors and store busy. More would only wait before each other: an agent that sends without
//! pause would fill the run queue and each transaction, and the rare message of another agent would come after all of its.
//! So further ones wait here. A free turn goes to each tenant in turn, and within the tenant to each agent in turn.
//!
//! One agent alone may have all turns. Beside others it has a few: the message of another agent waits for the transaction
//! under way, and the length of that one is the number of turns.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::directory::Principal;
use crate::rotation::{Rotation, Served};
use handoffd_domain::ids::{AgentId, TenantId};

/// A caller counts as active for this long after its last submission: some fifty times the length of a transaction.
const ACTIVE: Duration = Duration::from_secs(1);

/// The least number of remembered callers at which inactive ones are removed.
const REMEMBERED: usize = 1024;

/// How many turns there are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The submissions that are judged and committed at once, at least one.
    pub all: usize,
    /// Of these, the most of one caller while others are active, at least one.
    pub each: usize,
    /// The longest that all lines together may be.
    pub longest: usize,
}

/// The submissions that are judged and committed at once.
pub struct Turns {
    lines: Mutex<Lines>,
    sizes: Sizes,
    /// Shows [`Lines::waiting`].
    waiting: IntGauge,
}

/// An agent, or a key without one, within its tenant.
type Caller = (TenantId, String);

/// A turn, until this is dropped: then it is the next one's.
pub struct Turn(Option<(Arc<Turns>, Caller)>);

#[derive(Default)]
struct Lines {
    free: usize,
    /// Callers that wait, those that left among them until their turn comes.
    waiting: usize,
    tenants: Rotation<TenantId, Rotation<String, VecDeque<oneshot::Sender<Turn>>>>,
    callers: HashMap<Caller, Activity>,
    /// The number of callers at which the next look for inactive ones is due.
    forget_at: usize,
}

/// A caller's turns and its last submission.
struct Activity {
    turns: usize,
    last: Instant,
}

impl Activity {
    fn is_over(&self, now: Instant) -> bool {
        self.turns == 0 && now.duration_since(self.last) > ACTIVE
    }
}

impl Lines {
    /// The activity of this caller, which submits or gets a turn now.
    fn activity(&mut self, caller: &Caller, now: Instant) -> &mut Activity {
        if !self.callers.contains_key(caller) {
            if self.callers.len() >= self.forget_at {
                self.callers.retain(|_, activity| !activity.is_over(now));
                self.forget_at = REMEMBERED.max(2 * self.callers.len());
            }
            self.callers.insert(caller.clone(), Activity { turns: 0, last: now });
        }
        self.callers.get_mut(caller).expect("it is there or was inserted")
    }

    /// The most turns of one caller now.
    fn share(&mut self, sizes: Sizes, now: Instant) -> usize {
        if self.callers.len() < 2 {
            return sizes.all;
        }
        let mut active = self.callers.values().filter(|activity| !activity.is_over(now));
        if active.nth(1).is_some() {
            return sizes.each;
        }
        // Without them the next count stops at once.
        self.callers.retain(|_, activity| !activity.is_over(now));
        sizes.all
    }

    /// Takes a turn for this caller, which submits now, if one is free and it has fewer than its share.
    fn take(&mut self, caller: &Caller, sizes: Sizes, now: Instant) -> bool {
        self.activity(caller, now).last = now;
        let share = self.share(sizes, now);
        let is_free = self.free > 0;
        let activity = self.activity(caller, now);
        let may = is_free && activity.turns < share;
        if may {
            activity.turns += 1;
            self.free -= 1;
        }
        may
    }

    fn give_back(&mut self, caller: &Caller) {
        self.free += 1;
        if let Some(activity) = self.callers.get_mut(caller) {
            activity.turns -= 1;
        }
    }

    /// Takes a free turn for the next caller that waits and has fewer than its share.
    fn next(&mut self, share: usize, now: Instant) -> Option<(Caller, oneshot::Sender<Turn>)> {
        if self.free == 0 {
            return None;
        }
        let Self { tenants, callers, .. } = self;
        let (caller, pass) = tenants.next(|tenant, lines| {
            let taken = lines.next(|name, line| {
                let caller = (tenant.clone(), name.clone());
                let has_room = callers.get(&caller).is_none_or(|activity| activity.turns < share);
                let pass = has_room.then(|| line.pop_front()).flatten();
                Served { taken: pass.map(|pass| (caller, pass)), empty: line.is_empty() }
            });
            Served { taken, empty: lines.is_empty() }
        })?;
        self.waiting -= 1;
        self.activity(&caller, now).turns += 1;
        self.free -= 1;
        Some((caller, pass))
    }
}

impl Turns {
    #[must_use]
    pub fn new(sizes: Sizes, waiting: IntGauge) -> Arc<Self> {
        let sizes = Sizes { all: sizes.all.max(1), each: sizes.each.max(1), ..sizes };
        let lines = Lines { free: sizes.all, ..Lines::default() };
        Arc::new(Self { lines: Mutex::new(lines), sizes, waiting })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, lines: &Lines) {
        self.waiting.set(i64::try_from(lines.waiting).unwrap_or(i64::MAX));
    }

    /// Waits for the caller's turn; `None` where as many wait as may.
    pub async fn take(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let name = principal.agent.as_ref().map_or(principal.key_id.as_str(), AgentId::as_str);
        let caller = (principal.tenant.clone(), name.to_owned());
        let waiting = {
            let now = Instant::now();
            let mut lines = self.lines();
            if lines.take(&caller, self.sizes, now) {
                return Some(Turn(Some((Arc::clone(self), caller))));
            }
            if lines.waiting >= self.sizes.longest {
                return None;
            }
            lines.waiting += 1;
            let (pass, waiting) = oneshot::channel();
            self.show(&lines);
            lines.tenants.queue(caller.0).queue(caller.1).push_back(pass);
            waiting
        };
        // The sender is in the lines, which live as long as these turns; each is used or dropped with them.
        waiting.await.ok()
    }

    /// Gives the free turns to those that wait. A caller that waits has a turn or there is none free: it waits for no clock.
    fn serve(self: &Arc<Self>, mut lines: MutexGuard<'_, Lines>) {
        let now = Instant::now();
        let share = lines.share(self.sizes, now);
        while let Some((caller, pass)) = lines.next(share, now) {
            let turn = Turn(Some((Arc::clone(self), caller.clone())));
            if let Err(mut left) = pass.send(turn) {
                // The caller left while it waited.
                left.0 = None;
                lines.give_back(&caller);
            }
        }
        self.show(&lines);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some((turns, caller)) = self.0.take() else { return };
        let mut lines = turns.lines();
        lines.give_back(&caller);
        turns.serve(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    fn sized(all: usize, each: usize, longest: usize) -> Arc<Turns> {
        Turns::new(Sizes { all, each, longest }, IntGauge::new("waiting", "Waiting.").unwrap())
    }

    fn turns(size: usize) -> Arc<Turns> {
        sized(size, size, 100)
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
        let turns = sized(1, 1, 1);
        let caller = agent("a", "x");
        let held = turns.take(&caller).await;
        let mut next = Box::pin(turns.take(&caller));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        assert!(turns.take(&caller).await.is_none());
        drop(held);
        assert!(next.await.is_some());
    }

    /// Whether each of so many submissions of this caller gets a turn at once.
    async fn take(turns: &Arc<Turns>, name: &str, count: usize) -> (Vec<Turn>, usize) {
        let mut taken = Vec::new();
        for _ in 0..count {
            let caller = agent("a", name);
            let mut turn = Box::pin(turns.take(&caller));
            if let std::task::Poll::Ready(turn) = futures_util::poll!(turn.as_mut()) {
                taken.extend(turn);
            }
        }
        let waited = count - taken.len();
        (taken, waited)
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_has_all_turns_alone_and_a_few_beside_others() {
        let turns = sized(8, 2, 100);
        let (flood, waited) = take(&turns, "flood", 9).await;
        assert_eq!((flood.len(), waited), (8, 1));
        drop(flood);
        let (rare, _) = take(&turns, "rare", 1).await;
        drop(rare);
        let (flood, waited) = take(&turns, "flood", 9).await;
        assert_eq!((flood.len(), waited), (2, 7));
        // A second after the rare submission the flood is alone again.
        tokio::time::advance(ACTIVE * 2).await;
        drop(flood);
        let (flood, waited) = take(&turns, "flood", 9).await;
        assert_eq!((flood.len(), waited), (8, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_at_its_share_goes_on_when_one_of_its_own_ends() {
        let turns = sized(8, 1, 100);
        let (rare, _) = take(&turns, "rare", 1).await;
        let caller = agent("a", "flood");
        let first = turns.take(&caller).await;
        let mut second = Box::pin(turns.take(&caller));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        // Six turns are free, and are not its.
        drop(rare);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await);
        assert_eq!(turns.lines().free, 8);
        assert_eq!(turns.waiting.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn inactive_callers_are_forgotten() {
        let turns = sized(8, 2, 100);
        for caller in 0..REMEMBERED * 3 {
            drop(take(&turns, &format!("agent-{caller}"), 1).await);
            tokio::time::advance(ACTIVE / 100).await;
        }
        assert!(turns.lines().callers.len() <= REMEMBERED);
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
        assert!(turns.lines().tenants.is_empty());
        assert_eq!(turns.waiting.get(), 0);
    }
}
