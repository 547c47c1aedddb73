//! Lanes: one for each receiver, so that a slow or dead receiver never delays another. A lane bounds the attempts in
//! flight, holds the circuit breaker, and remembers whether more waits in the outbox. Pure except for its lock; the
//! caller passes the time.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::breaker::{Breaker, BreakerSettings, BreakerState, Permit};
use super::budget::{BudgetSettings, RetryBudget};
use super::failing::Streak;
use super::turns::Turns;
use crate::receivers::NoticedBreaker;
use handoffd_domain::agent::Failing;
use handoffd_domain::ids::Micros;
use handoffd_store::store::ReceiverKey;

/// Attempts in flight to a receiver whose own limit is not known yet.
const FIRST_LIMIT: u32 = 16;
/// How long after its cool-down an open breaker is counted, while nothing is tried, in microseconds: a quarter of an hour.
const FORGOTTEN_US: i64 = 900_000_000;
/// Idle lanes that are retained; further idle lanes are dropped.
const MAX_IDLE: usize = 10_000;

/// Attempts in a row without a reply after which a receiver counts as one that does not reply at once.
const SLOW_TO_REPLY: u32 = 16;

struct Lane {
    in_flight: u32,
    limit: u32,
    backlog: bool,
    /// Counts the handoffs that found no slot: a concurrent read of the outbox may have missed them.
    asked: u64,
    breaker: Breaker,
    budget: RetryBudget,
    streak: Streak,
    /// Attempts in a row that were settled before a reply.
    without_reply: u32,
}

struct LaneTable {
    lanes: HashMap<ReceiverKey, Lane>,
    in_flight: usize,
    /// Receivers that found the whole broker full, or others waiting for a slot.
    turns: Turns,
    wakes: BTreeSet<(Micros, ReceiverKey)>,
}

pub(super) struct Lanes {
    state: Mutex<LaneTable>,
    max_in_flight: usize,
    breaker: BreakerSettings,
    budget: BudgetSettings,
    disable_after: u32,
}

/// An attempt's evidence about its receiver's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Answered,
    /// The receiver did not answer, or answered with a failure.
    Failed,
    /// The transport is away: the breaker counts it, the receiver's own record does not.
    Away,
    /// No request was sent.
    Unknown,
}

/// Changes by the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EndedAttempt {
    /// A change of the endpoint's health that operators must learn.
    pub(super) health: Option<EndpointHealthChange>,
    /// Whether the breaker closed, or was closed and opened.
    pub(super) turned: bool,
}

/// A change of an endpoint's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointHealthChange {
    /// The endpoint is on its way to being disabled.
    Failing(Failing),
    /// The endpoint had been failing, and answers again.
    Answers,
}

impl Lanes {
    pub(super) fn new(
        max_in_flight: usize,
        breaker: BreakerSettings,
        budget: BudgetSettings,
        disable_after: u32,
    ) -> Self {
        let state = LaneTable {
            lanes: HashMap::new(),
            in_flight: 0,
            turns: Turns::default(),
            wakes: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), max_in_flight, breaker, budget, disable_after }
    }

    fn lock(&self) -> MutexGuard<'_, LaneTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for a handoff that is about to be committed. Fails where older handoffs wait: they go first.
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

    /// Reserves slots for handoffs in the outbox: `most` at most, and no more than the receiver's share where others
    /// wait. The caller returns unused slots, and passes the second number to [`Lanes::drained`].
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

    /// Returns unused slots. The result says whether more waits and no attempt in flight would look for it.
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

    /// Receivers whose turn has come, as many as there are free slots.
    pub(super) fn next_turns(&self) -> Vec<ReceiverKey> {
        let mut state = self.lock();
        let room = self.max_in_flight.saturating_sub(state.in_flight);
        (0..room).map_while(|_| state.turns.pop()).collect()
    }

    /// Whether a handoff to this receiver would get a slot now, and none waits for one.
    pub(super) fn has_room(&self, receiver: &ReceiverKey) -> bool {
        let state = self.lock();
        let free = state.turns.is_empty() && state.in_flight < self.max_in_flight;
        let lane = state.lanes.get(receiver);
        free && lane.is_none_or(|lane| !lane.backlog && lane.in_flight < lane.limit)
    }

    /// Whether an attempt keeps its slot for a reply: the receiver is one that replies at once. Of another, one attempt in
    /// [`SLOW_TO_REPLY`] finds out whether it does now.
    pub(super) fn waits_for_reply(&self, receiver: &ReceiverKey) -> bool {
        let without = self.lock().lanes.get(receiver).map_or(0, |lane| lane.without_reply);
        without < SLOW_TO_REPLY || without.is_multiple_of(SLOW_TO_REPLY)
    }

    /// Notes whether an attempt got its reply while it waited.
    pub(super) fn replied(&self, receiver: &ReceiverKey, soon: bool) {
        let mut state = self.lock();
        let lane = state.lane(receiver, self);
        lane.without_reply = if soon { 0 } else { lane.without_reply.wrapping_add(1) };
    }

    pub(super) fn waiting(&self) -> usize {
        self.lock().turns.len()
    }

    /// The slots that each of this many receivers may take of the free ones.
    pub(super) fn share(&self, receivers: usize) -> u32 {
        let room = self.max_in_flight.saturating_sub(self.lock().in_flight);
        u32::try_from(room.div_ceil(receivers.max(1))).unwrap_or(u32::MAX)
    }

    /// Counts a first attempt in the retry budget.
    pub(super) fn first(&self, receiver: &ReceiverKey) {
        self.lock().lane(receiver, self).budget.first();
    }

    /// The time at which a retry that is due at `wanted` may start: not before the retry budget pays for it.
    pub(super) fn retry_at(&self, receiver: &ReceiverKey, now: Micros, wanted: Micros) -> Micros {
        self.lock().lane(receiver, self).budget.retry(now, wanted)
    }

    /// Counts how an attempt ended; its slot stays taken.
    pub(super) fn ended(
        &self,
        receiver: &ReceiverKey,
        health: Health,
        now: Micros,
    ) -> EndedAttempt {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get_mut(receiver) else { return EndedAttempt::default() };
        let before = lane.breaker.changed_at();
        let health = lane.ended(health, now);
        EndedAttempt { health, turned: lane.breaker.changed_at() != before }
    }

    /// The breakers that ever opened.
    pub(super) fn breakers(&self, now: Micros) -> Vec<NoticedBreaker> {
        let state = self.lock();
        let noticed = |(receiver, lane): (&ReceiverKey, &Lane)| {
            let since = Micros(lane.breaker.changed_at()?);
            let state = (!lane.is_forgotten(now)).then(|| lane.breaker.state());
            Some(NoticedBreaker { receiver: receiver.clone(), state, since })
        };
        state.lanes.iter().filter_map(noticed).collect()
    }

    /// Frees an attempt's slot. Returns whether more waits in the outbox for this receiver, and it is the receiver's turn.
    pub(super) fn done(&self, receiver: &ReceiverKey) -> bool {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let Some(lane) = state.lanes.get_mut(receiver) else { return false };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        let more = lane.backlog;
        state.in_turn(receiver, more)
    }

    /// Adopts the receiver's stored state: its own limit, and the notified step of its endpoint.
    pub(super) fn known(&self, receiver: &ReceiverKey, limit: u32, failing: Option<Failing>) {
        let mut state = self.lock();
        let lane = state.lane(receiver, self);
        lane.limit = limit.max(1);
        lane.streak.known(failing);
    }

    /// Records that the outbox returned all it had: nothing more waits, unless a handoff came after `asked` was taken.
    /// Returns whether the outbox must be read again.
    pub(super) fn drained(&self, receiver: &ReceiverKey, asked: u64) -> bool {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get_mut(receiver) else { return false };
        let missed = lane.asked != asked;
        lane.backlog = missed;
        missed
    }

    /// Records that the receiver accepts no webhooks now: its handoffs belong to its inbox, and a further look would
    /// claim the same ones forever. Handoffs for a webhook that come later are looked at then.
    pub(super) fn takes_none(&self, receiver: &ReceiverKey) {
        if let Some(lane) = self.lock().lanes.get_mut(receiver) {
            lane.backlog = false;
        }
    }

    /// Records that a committed handoff found no slot. Returns whether the outbox must be read now: not where an
    /// attempt in flight does so at its end.
    pub(super) fn must_look(&self, receiver: &ReceiverKey) -> bool {
        let mut state = self.lock();
        let lane = state.lane(receiver, self);
        let known = lane.backlog && lane.in_flight > 0;
        lane.backlog = true;
        lane.asked += 1;
        !known
    }

    /// Records that more waits in the outbox.
    pub(super) fn backlog(&self, receiver: &ReceiverKey) {
        self.lock().lane(receiver, self).backlog = true;
    }

    /// Schedules a look at the receiver's outbox.
    pub(super) fn wake_at(&self, receiver: &ReceiverKey, at: Micros) {
        self.lock().wakes.insert((at, receiver.clone()));
    }

    /// Receivers whose scheduled time has come, and the next scheduled time.
    pub(super) fn due(&self, now: Micros) -> (Vec<ReceiverKey>, Option<Micros>) {
        let mut state = self.lock();
        let mut due = Vec::new();
        while state.wakes.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(state.wakes.pop_first().map(|(_, receiver)| receiver));
        }
        (due, state.wakes.first().map(|(at, _)| *at))
    }

    /// Number of receivers by breaker state: closed, open, half open. A forgotten one is left out. Drops idle lanes beyond
    /// [`MAX_IDLE`].
    pub(super) fn census(&self, now: Micros) -> [(BreakerState, i64); 3] {
        let mut state = self.lock();
        if state.lanes.len() > MAX_IDLE {
            state.lanes.retain(|_, lane| {
                lane.in_flight > 0 || lane.backlog || lane.breaker.state() != BreakerState::Closed
            });
        }
        [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen].map(|wanted| {
            let of_state = |lane: &&Lane| lane.breaker.state() == wanted && !lane.is_forgotten(now);
            let count = state.lanes.values().filter(of_state).count();
            (wanted, i64::try_from(count).unwrap_or(i64::MAX))
        })
    }
}

impl Lane {
    fn ended(&mut self, health: Health, now: Micros) -> Option<EndpointHealthChange> {
        match health {
            Health::Answered => {
                self.breaker.on_success(now.0);
                self.streak.answered().then_some(EndpointHealthChange::Answers)
            }
            Health::Failed if self.breaker.on_failure(now.0) => {
                self.streak.failed().map(EndpointHealthChange::Failing)
            }
            Health::Failed => None,
            Health::Away => {
                self.breaker.on_failure(now.0);
                None
            }
            Health::Unknown => {
                self.breaker.on_abandoned(now.0);
                None
            }
        }
    }

    /// Whether its breaker is open and nothing was tried since long after the cool-down: it has no work, and its state is unknown.
    fn is_forgotten(&self, now: Micros) -> bool {
        let over = self.breaker.next_probe_at().is_some_and(|at| at + FORGOTTEN_US < now.0);
        over && self.in_flight == 0
    }
}

impl LaneTable {
    /// Whether a receiver with more may be read at once; where others wait for a slot, the receiver queues behind
    /// them.
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
            budget: RetryBudget::new(lanes.budget),
            streak: Streak::new(lanes.disable_after),
            without_reply: 0,
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

    /// Ends an attempt: whether more waits, and what operators must learn.
    fn end(
        lanes: &Lanes,
        receiver: &ReceiverKey,
        health: Health,
        now: Micros,
    ) -> (bool, Option<EndpointHealthChange>) {
        let change = lanes.ended(receiver, health, now).health;
        (lanes.done(receiver), change)
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
    fn who_seldom_replies_at_once_is_waited_for_once_in_a_while() {
        let lanes = lanes(100);
        let one = receiver("one");
        let waits = |count: u32| {
            let replied = |_: &u32| {
                let waits = lanes.waits_for_reply(&one);
                lanes.replied(&one, false);
                waits
            };
            (0..count).filter(replied).count()
        };
        assert_eq!(waits(SLOW_TO_REPLY), 16);
        assert_eq!(waits(10 * SLOW_TO_REPLY), 10);
        lanes.replied(&one, true);
        assert_eq!(waits(SLOW_TO_REPLY), 16, "it replies at once again");
    }

    #[test]
    fn what_waits_goes_before_what_comes() {
        let lanes = lanes(100);
        let one = receiver("one");
        lanes.known(&one, 1, None);
        assert!(lanes.reserve(&one, Micros(0)));
        assert!(!lanes.reserve(&one, Micros(0)));
        assert!(end(&lanes, &one, Health::Answered, Micros(0)).0, "something waits");
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
        assert!(!end(&lanes, &one, Health::Unknown, Micros(0)).0);
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
        assert!(lanes.give_back(&one, 8, Micros(0)), "and no look that is under way would");
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
            !end(&lanes, &a, Health::Answered, Micros(0)).0,
            "a has more, and waits behind the others"
        );
        assert_eq!(lanes.next_turns(), std::slice::from_ref(&b));
        assert!(!lanes.reserve(&receiver("new"), Micros(0)), "it is not before those who wait");
        assert_eq!(lanes.reserve_many(&b, Micros(0), 8).0, 1);
        end(&lanes, &a, Health::Answered, Micros(0));
        end(&lanes, &a, Health::Answered, Micros(0));
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
        let health_change: Vec<_> =
            (0..places).filter_map(|_| end(&lanes, &dead, Health::Failed, Micros(0)).1).collect();
        assert_eq!(
            health_change,
            [EndpointHealthChange::Failing(Failing { percent: 50, failures: 2 })],
            "of four, two counted"
        );
        let (_, probe) = lanes.due(Micros(0));
        assert_eq!(lanes.reserve_many(&dead, probe.unwrap_or(Micros(2_000_000)), 8).0, 1);
        let (_, change) = end(&lanes, &dead, Health::Answered, Micros(2_000_000));
        assert_eq!(change, Some(EndpointHealthChange::Answers));
    }

    #[test]
    fn breakers_that_opened_are_told_with_their_time_until_nothing_is_tried_for_long() {
        let lanes = lanes(100);
        let (dead, well) = (receiver("dead"), receiver("well"));
        lanes.reserve(&well, Micros(1));
        assert!(!lanes.ended(&well, Health::Answered, Micros(1)).turned);
        let turned: Vec<bool> = [2, 3, 4]
            .map(|now| {
                lanes.reserve(&dead, Micros(now));
                lanes.ended(&dead, Health::Failed, Micros(now)).turned
            })
            .to_vec();
        assert_eq!(turned, [false, true, false], "the second one opens it");
        let noticed = |state, since| NoticedBreaker { receiver: dead.clone(), state, since };
        let open = noticed(Some(BreakerState::Open), Micros(3));
        assert_eq!(lanes.breakers(Micros(4)), std::slice::from_ref(&open));
        for _ in 0..2 {
            lanes.done(&dead);
        }
        let probe_at = 1_000_003;
        assert_eq!(lanes.breakers(Micros(probe_at + FORGOTTEN_US)), [open]);
        let later = Micros(probe_at + FORGOTTEN_US + 1);
        assert_eq!(lanes.breakers(later), [noticed(None, Micros(3))]);
        assert!(lanes.ended(&dead, Health::Answered, later).turned);
        assert_eq!(lanes.breakers(later), [noticed(Some(BreakerState::Closed), later)]);
    }

    #[test]
    fn an_open_breaker_is_counted_no_longer_where_nothing_is_tried() {
        let lanes = lanes(100);
        let dead = receiver("dead");
        for _ in 0..2 {
            assert!(lanes.reserve(&dead, Micros(0)));
            end(&lanes, &dead, Health::Failed, Micros(0));
        }
        let open = |now| lanes.census(now)[1];
        assert_eq!(open(Micros(1)), (BreakerState::Open, 1));
        assert!(!lanes.reserve(&dead, Micros(1)), "something waits for the probe");
        let (_, next) = lanes.due(Micros(1));
        let probe = next.expect("a wake for the probe");
        assert_eq!(open(Micros(probe.0 + FORGOTTEN_US)).1, 1);
        assert_eq!(open(Micros(probe.0 + FORGOTTEN_US + 1)).1, 0);
    }

    #[test]
    fn a_dead_receiver_is_asked_again_by_one_probe() {
        let lanes = lanes(100);
        let dead = receiver("dead");
        for _ in 0..2 {
            assert!(lanes.reserve(&dead, Micros(0)));
            end(&lanes, &dead, Health::Failed, Micros(0));
        }
        assert!(!lanes.reserve(&dead, Micros(1)), "the breaker is open");
        let (_, next) = lanes.due(Micros(1));
        let at = next.expect("a wake for the probe");
        assert_eq!(lanes.due(at).0, std::slice::from_ref(&dead));
        assert_eq!(lanes.reserve_many(&dead, at, 8).0, 1, "one probe");
        assert!(
            !end(&lanes, &dead, Health::Answered, at).0 || lanes.reserve_many(&dead, at, 8).0 == 8
        );
    }
}
