//! Lanes: one for each receiver, so that a slow or dead one never delays another. A lane bounds what
//! is on its way, holds the circuit breaker, and remembers that more waits in the outbox. Pure but
//! for its lock; time is handed in.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::breaker::{Breaker, BreakerSettings, BreakerState, Permit};
use super::budget::{Budget, BudgetSettings};
use super::failing::Streak;
use super::turns::Turns;
use crate::domain::agent::Failing;
use crate::domain::ids::Micros;
use crate::store::ReceiverKey;

/// In flight to a receiver whose own limit is not known yet.
const FIRST_LIMIT: u32 = 16;
/// Lanes kept although idle; beyond it the idle ones go.
const MAX_IDLE: usize = 10_000;

struct Lane {
    in_flight: u32,
    limit: u32,
    backlog: bool,
    /// Counts those who found no place: whoever asked the outbox meanwhile may have missed them.
    asked: u64,
    breaker: Breaker,
    budget: Budget,
    streak: Streak,
}

struct State {
    lanes: HashMap<ReceiverKey, Lane>,
    in_flight: usize,
    /// Receivers that found the whole broker full, or others waiting for room.
    turns: Turns,
    wakes: BTreeSet<(Micros, ReceiverKey)>,
}

/// All lanes of one broker.
pub(super) struct Lanes {
    state: Mutex<State>,
    max_in_flight: usize,
    breaker: BreakerSettings,
    budget: BudgetSettings,
    disable_after: u32,
}

/// How an attempt speaks of its receiver's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered.
    Well,
    /// It did not, or with a failure.
    Ill,
    /// Nothing was tried.
    Unknown,
}

/// What the end of an attempt means for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Over {
    /// More waits in the outbox for this receiver, and it is its turn.
    pub(super) more: bool,
    /// Operators are to be told of its endpoint.
    pub(super) told: Option<Told>,
}

/// What there is to tell of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It is on its way to being disabled.
    Failing(Failing),
    /// It was, and answers again.
    Answers,
}

impl Lanes {
    pub(super) fn new(
        max_in_flight: usize,
        breaker: BreakerSettings,
        budget: BudgetSettings,
        disable_after: u32,
    ) -> Self {
        let state = State {
            lanes: HashMap::new(),
            in_flight: 0,
            turns: Turns::default(),
            wakes: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), max_in_flight, breaker, budget, disable_after }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a handoff that is about to be committed. None where older ones wait: they
    /// go first.
    pub(super) fn reserve(&self, receiver: &ReceiverKey, now: Micros) -> bool {
        let mut state = self.lock();
        // Who waits for room goes first, too.
        let full = state.in_flight >= self.max_in_flight || !state.turns.is_empty();
        if full {
            state.turns.push(receiver.clone());
        }
        let lane = state.lane(receiver, self);
        if lane.backlog || full || lane.in_flight >= lane.limit {
            lane.backlog = true;
            lane.asked += 1;
            return false;
        }
        if let Permit::Denied { retry_at_us } = lane.breaker.permits(now.0) {
            lane.backlog = true;
            lane.asked += 1;
            state.wakes.insert((Micros(retry_at_us), receiver.clone()));
            return false;
        }
        lane.in_flight += 1;
        state.in_flight += 1;
        true
    }

    /// Takes as many places as there are for what waits in the outbox, `most` at most, and no more than
    /// its share where others wait for room; the caller gives back what it does not use, and
    /// [`Lanes::drained`] the second number.
    pub(super) fn reserve_many(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        most: u32,
    ) -> (u32, u64) {
        let mut state = self.lock();
        let room = self.max_in_flight.saturating_sub(state.in_flight);
        if room == 0 {
            state.turns.push(receiver.clone());
        }
        let share = room.div_ceil(state.turns.len() + 1);
        let lane = state.lane(receiver, self);
        lane.backlog = true;
        let free = lane.limit.saturating_sub(lane.in_flight).min(most);
        let free = free.min(u32::try_from(share).unwrap_or(u32::MAX));
        if free == 0 {
            return (0, lane.asked);
        }
        let taken = match lane.breaker.permits(now.0) {
            Permit::Granted => free,
            Permit::Probe => 1,
            Permit::Denied { retry_at_us } => {
                let asked = lane.asked;
                state.wakes.insert((Micros(retry_at_us), receiver.clone()));
                return (0, asked);
            }
        };
        lane.in_flight += taken;
        let asked = lane.asked;
        state.in_flight += taken as usize;
        (taken, asked)
    }

    /// Gives places back that nothing was sent with. Returns whether more waits and nobody is left
    /// under way who would look for it.
    pub(super) fn give_back(&self, receiver: &ReceiverKey, places: u32, now: Micros) -> bool {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(places as usize);
        let Some(lane) = state.lanes.get_mut(receiver) else { return false };
        lane.in_flight = lane.in_flight.saturating_sub(places);
        if places > 0 && lane.in_flight == 0 {
            lane.breaker.on_abandoned(now.0);
        }
        let more = lane.backlog && lane.in_flight == 0;
        state.in_turn(receiver, more)
    }

    /// Whose turn it is, now that there is room: as many as there are places.
    pub(super) fn next_turns(&self) -> Vec<ReceiverKey> {
        let mut state = self.lock();
        let room = self.max_in_flight.saturating_sub(state.in_flight);
        (0..room).map_while(|_| state.turns.pop()).collect()
    }

    /// How many receivers wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.lock().turns.len()
    }

    /// What each of so many receivers may take of the room there is.
    pub(super) fn share(&self, receivers: usize) -> u32 {
        let room = self.max_in_flight.saturating_sub(self.lock().in_flight);
        u32::try_from(room.div_ceil(receivers.max(1))).unwrap_or(u32::MAX)
    }

    /// Something is tried for the first time.
    pub(super) fn first(&self, receiver: &ReceiverKey) {
        self.lock().lane(receiver, self).budget.first();
    }

    /// When what failed and is wanted again at `wanted` may be tried: not before the retry budget pays
    /// for it.
    pub(super) fn retry_at(&self, receiver: &ReceiverKey, now: Micros, wanted: Micros) -> Micros {
        self.lock().lane(receiver, self).budget.retry(now, wanted)
    }

    /// An attempt is over.
    pub(super) fn done(&self, receiver: &ReceiverKey, health: Health, now: Micros) -> Over {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let Some(lane) = state.lanes.get_mut(receiver) else {
            return Over { more: false, told: None };
        };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        let told = match health {
            Health::Well => {
                lane.breaker.on_success();
                lane.streak.answered().then_some(Told::Answers)
            }
            Health::Ill if lane.breaker.on_failure(now.0) => {
                lane.streak.failed().map(Told::Failing)
            }
            Health::Ill => None,
            Health::Unknown => {
                lane.breaker.on_abandoned(now.0);
                None
            }
        };
        let more = lane.backlog;
        Over { more: state.in_turn(receiver, more), told }
    }

    /// What stands with the receiver: its own bound, and what was told of its endpoint.
    pub(super) fn known(&self, receiver: &ReceiverKey, limit: u32, failing: Option<Failing>) {
        let mut state = self.lock();
        let lane = state.lane(receiver, self);
        lane.limit = limit.max(1);
        lane.streak.known(failing);
    }

    /// The outbox was asked and gave all it had: nothing more waits, unless somebody came since
    /// `asked` was taken. Returns whether the outbox must be asked again.
    pub(super) fn drained(&self, receiver: &ReceiverKey, asked: u64) -> bool {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get_mut(receiver) else { return false };
        let missed = lane.asked != asked;
        lane.backlog = missed;
        missed
    }

    /// The receiver takes no webhooks now: what waits for it is for its inbox, and looking for more would
    /// claim the same again for ever. What is found as a webhook's later is looked at then.
    pub(super) fn takes_none(&self, receiver: &ReceiverKey) {
        if let Some(lane) = self.lock().lanes.get_mut(receiver) {
            lane.backlog = false;
        }
    }

    /// Something was just committed that had no place. Returns whether the outbox must be asked now:
    /// not where an attempt under way will do so when it ends.
    pub(super) fn must_look(&self, receiver: &ReceiverKey) -> bool {
        let mut state = self.lock();
        let lane = state.lane(receiver, self);
        let known = lane.backlog && lane.in_flight > 0;
        lane.backlog = true;
        lane.asked += 1;
        !known
    }

    /// More waits in the outbox.
    pub(super) fn backlog(&self, receiver: &ReceiverKey) {
        self.lock().lane(receiver, self).backlog = true;
    }

    /// Look at that receiver's outbox again at `at`.
    pub(super) fn wake_at(&self, receiver: &ReceiverKey, at: Micros) {
        self.lock().wakes.insert((at, receiver.clone()));
    }

    /// Receivers whose time has come, and when the next one's will.
    pub(super) fn due(&self, now: Micros) -> (Vec<ReceiverKey>, Option<Micros>) {
        let mut state = self.lock();
        let mut due = Vec::new();
        while state.wakes.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(state.wakes.pop_first().map(|(_, receiver)| receiver));
        }
        (due, state.wakes.first().map(|(at, _)| *at))
    }

    /// Receivers by breaker state: closed, open, half open. Idle lanes beyond a bound are let go.
    pub(super) fn census(&self) -> [(BreakerState, i64); 3] {
        let mut state = self.lock();
        if state.lanes.len() > MAX_IDLE {
            state.lanes.retain(|_, lane| {
                lane.in_flight > 0 || lane.backlog || lane.breaker.state() != BreakerState::Closed
            });
        }
        [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen].map(|wanted| {
            let count = state.lanes.values().filter(|lane| lane.breaker.state() == wanted).count();
            (wanted, i64::try_from(count).unwrap_or(i64::MAX))
        })
    }
}

impl State {
    /// Whether a receiver with more may look at once; where others wait for room it waits behind them.
    fn in_turn(&mut self, receiver: &ReceiverKey, more: bool) -> bool {
        let wait = more && !self.turns.is_empty();
        if wait {
            self.turns.push(receiver.clone());
        }
        more && !wait
    }

    fn lane(&mut self, receiver: &ReceiverKey, lanes: &Lanes) -> &mut Lane {
        self.lanes.entry(receiver.clone()).or_insert_with(|| Lane {
            in_flight: 0,
            limit: FIRST_LIMIT,
            backlog: false,
            asked: 0,
            breaker: Breaker::new(lanes.breaker),
            budget: Budget::new(lanes.budget),
            streak: Streak::new(lanes.disable_after),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(name: &str) -> ReceiverKey {
        ("t".parse().unwrap(), name.parse().unwrap())
    }

    fn lanes(max: usize) -> Lanes {
        let breaker = BreakerSettings { failure_threshold: 2, ..BreakerSettings::default() };
        Lanes::new(max, breaker, BudgetSettings::default(), 4)
    }

    #[test]
    fn a_full_receiver_leaves_the_others_alone() {
        let lanes = lanes(100);
        let (slow, quick) = (receiver("slow"), receiver("quick"));
        lanes.known(&slow, 2, None);
        assert!(lanes.reserve(&slow, Micros(0)) && lanes.reserve(&slow, Micros(0)));
        assert!(!lanes.reserve(&slow, Micros(0)));
        assert!(lanes.reserve(&quick, Micros(0)));
    }

    #[test]
    fn what_waits_goes_before_what_comes() {
        let lanes = lanes(100);
        let one = receiver("one");
        lanes.known(&one, 1, None);
        assert!(lanes.reserve(&one, Micros(0)));
        assert!(!lanes.reserve(&one, Micros(0)));
        assert!(lanes.done(&one, Health::Well, Micros(0)).more, "something waits");
        assert!(!lanes.reserve(&one, Micros(0)), "the waiting one is first");
        let (places, asked) = lanes.reserve_many(&one, Micros(0), 8);
        assert_eq!(places, 1);
        assert!(!lanes.drained(&one, asked));
        lanes.give_back(&one, 1, Micros(0));
        assert!(lanes.reserve(&one, Micros(0)));
    }

    #[test]
    fn who_takes_no_webhooks_now_is_not_looked_for_again() {
        let lanes = lanes(100);
        let one = receiver("one");
        lanes.known(&one, 1, None);
        assert_eq!(lanes.reserve_many(&one, Micros(0), 8).0, 1);
        lanes.backlog(&one);
        lanes.takes_none(&one);
        assert!(!lanes.done(&one, Health::Unknown, Micros(0)).more);
        assert!(lanes.reserve(&one, Micros(0)), "what is committed later has its place");
    }

    #[test]
    fn who_comes_while_the_outbox_is_asked_is_not_missed() {
        let lanes = lanes(100);
        let one = receiver("one");
        let (places, asked) = lanes.reserve_many(&one, Micros(0), 8);
        assert_eq!(places, 8);
        assert!(!lanes.must_look(&one), "someone is looking");
        assert!(lanes.drained(&one, asked), "but looked before it came: look again");
        assert!(lanes.give_back(&one, 8, Micros(0)), "and nobody under way would");
    }

    #[test]
    fn the_whole_broker_is_bounded_and_room_goes_by_turns() {
        let lanes = lanes(3);
        let (a, b, c) = (receiver("a"), receiver("b"), receiver("c"));
        assert_eq!(lanes.reserve_many(&a, Micros(0), 8).0, 3);
        assert_eq!(lanes.reserve_many(&b, Micros(0), 8).0, 0);
        assert!(!lanes.reserve(&c, Micros(0)));
        assert_eq!(lanes.next_turns(), [], "no room");
        assert!(
            !lanes.done(&a, Health::Well, Micros(0)).more,
            "a has more, and waits behind the others"
        );
        assert_eq!(lanes.next_turns(), std::slice::from_ref(&b));
        assert!(!lanes.reserve(&receiver("new"), Micros(0)), "it is not before those who wait");
        assert_eq!(lanes.reserve_many(&b, Micros(0), 8).0, 1);
        lanes.done(&a, Health::Well, Micros(0));
        lanes.done(&a, Health::Well, Micros(0));
        assert_eq!(lanes.next_turns(), [c.clone(), a.clone()]);
        assert_eq!(lanes.reserve_many(&c, Micros(0), 8).0, 1, "its share of the room");
        assert_eq!(lanes.reserve_many(&a, Micros(0), 8).0, 1);
    }

    #[test]
    fn retries_are_put_off_when_too_much_fails() {
        let lanes = lanes(10);
        let one = receiver("one");
        let at: Vec<i64> = (0..101).map(|_| lanes.retry_at(&one, Micros(0), Micros(5)).0).collect();
        assert!(at[..100].iter().all(|at| *at == 5), "the savings");
        assert_eq!(at[100], 100_000, "ten a second");
    }

    #[test]
    fn a_burst_that_fails_counts_as_what_opened_the_breaker() {
        let lanes = lanes(100);
        let dead = receiver("dead");
        let (places, _) = lanes.reserve_many(&dead, Micros(0), 16);
        let told: Vec<_> =
            (0..places).filter_map(|_| lanes.done(&dead, Health::Ill, Micros(0)).told).collect();
        assert_eq!(
            told,
            [Told::Failing(Failing { percent: 50, failures: 2 })],
            "of four, two counted"
        );
        let (_, probe) = lanes.due(Micros(0));
        assert_eq!(lanes.reserve_many(&dead, probe.unwrap_or(Micros(2_000_000)), 8).0, 1);
        let over = lanes.done(&dead, Health::Well, Micros(2_000_000));
        assert_eq!(over.told, Some(Told::Answers));
    }

    #[test]
    fn a_dead_receiver_is_asked_again_by_one_probe() {
        let lanes = lanes(100);
        let dead = receiver("dead");
        for _ in 0..2 {
            assert!(lanes.reserve(&dead, Micros(0)));
            lanes.done(&dead, Health::Ill, Micros(0));
        }
        assert!(!lanes.reserve(&dead, Micros(1)), "the breaker is open");
        let (_, next) = lanes.due(Micros(1));
        let at = next.expect("a wake for the probe");
        assert_eq!(lanes.due(at).0, std::slice::from_ref(&dead));
        assert_eq!(lanes.reserve_many(&dead, at, 8).0, 1, "one probe");
        assert!(
            !lanes.done(&dead, Health::Well, at).more || lanes.reserve_many(&dead, at, 8).0 == 8
        );
    }
}
