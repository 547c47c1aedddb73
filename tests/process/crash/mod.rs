//! The crash harness. In each round a broker is killed under load at a random moment, started again so
//! that it ends at a named step (`crates/store/src/fault.rs`), and started once more; in between the database is cut off
//! and comes back. Then the load ends, everything comes to rest, and the laws are checked: what was
//! acknowledged is in the log once and reached its receiver, nothing was carried out twice, every record
//! is a move that the state machines' tables have, and the log verifies.

mod caller;
pub mod clouds;
mod compressed;
mod doors;
mod failures;
mod fleet;
mod groups;
pub mod hands;
mod laws;
mod questions;
pub mod queues;
mod readers;
mod rig;
mod stream_laws;
mod streams;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use handoffd::fault::Step;
use handoffd_domain::handoff::HandoffStatus;
use serde_json::{Value, json};

pub use self::doors::killed_within_a_conversation_at_a_door_each_step_is_in_the_log_once;
pub use self::failures::f2_killed_while_handoffs_fail_each_failure_is_in_the_log_once;
use self::fleet::Fleet;
use self::hands::{Done, Hands, Slow, answering, indifferent};
use self::laws::Ends;
pub use self::questions::killed_while_receivers_ask_each_question_is_in_the_log_once;
use self::queues::Queues;
pub use self::queues::killed_while_queues_are_cut_and_killed_breaks_no_law;
use self::rig::{Rig, below};
pub use self::together::{
    killed_while_groups_gather_and_streams_run_one_broker_breaks_no_law,
    killed_while_groups_gather_and_streams_run_three_brokers_break_no_law,
};
use crate::kills::rounds;
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Acknowledged, Takes, World, client, until};

/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing: the three cases have a third of the steps each then.
const ROUNDS: usize = 7;

/// Senders over all brokers.
const SENDERS: usize = 6;

/// How long a round's handoffs may take to come to rest after the last fault.
const RESTS_WITHIN: Duration = Duration::from_mins(2);

/// Attempts that a broker makes at the slow receiver at a time.
const AT_ONCE: u32 = 4;

pub async fn killed_at_each_step_one_broker_breaks_no_law(site: Arc<Site>) {
    let offset = usize::from(site.side != Side::Sqlite);
    Case::start(site, 1, offset).await.run(ROUNDS).await;
}

pub async fn killed_at_each_step_three_brokers_break_no_law(site: Arc<Site>) {
    Case::start(site, 3, 2).await.run(ROUNDS).await;
}

/// How what the slow receiver accepts ends.
const IN_TIME: [HandoffStatus; 1] = [HandoffStatus::Accepted];

/// And where all brokers that would hear it are dead at once.
const LATE: [HandoffStatus; 2] = [HandoffStatus::Accepted, HandoffStatus::Expired];

/// How a receiver's handoffs may end.
fn ends() -> BTreeMap<&'static str, Ends> {
    use HandoffStatus as S;
    const NO_HANDS: Ends = Ends {
        statuses: &[S::Accepted],
        carried_out: false,
        pulls: false,
        unseen: false,
        queued: false,
    };
    const HANDS: Ends =
        Ends { statuses: &[S::Completed, S::Expired], carried_out: true, ..NO_HANDS };
    BTreeMap::from([
        ("quick", NO_HANDS),
        ("slow", Ends { statuses: &IN_TIME, unseen: true, ..NO_HANDS }),
        ("refuser", Ends { statuses: &[S::Rejected], ..NO_HANDS }),
        ("silent", Ends { statuses: &[S::Expired], ..NO_HANDS }),
        // Its verdict is late where the broker that it calls is dead.
        ("caller", HANDS),
        // The verdict's time runs from its first claim, also while its broker is dead: a claim whose answer died with
        // its broker starts it, and no agent may have seen it.
        ("puller", Ends { pulls: true, unseen: true, ..HANDS }),
    ])
}

/// Whether a broker under load comes to a step: one alone takes nothing over, and several are a case of
/// their own; of several the armed one may not be the one that tells the subscriber.
fn reachable(step: Step, brokers: usize) -> bool {
    match step {
        Step::TakeoverFreed => false,
        Step::EventTold => brokers == 1,
        _ => true,
    }
}

/// The step that a broker comes to when others die.
fn taken_over(brokers: usize) -> impl Iterator<Item = Step> {
    (brokers > 1).then_some(Step::TakeoverFreed).into_iter()
}

/// How often a step is passed before it is the end, at most: what is done for every handoff is passed
/// many times in a moment.
fn most_passes(step: Step) -> f64 {
    match step {
        Step::RollbackDecided
        | Step::RollbackDone
        | Step::HeadKept
        | Step::InboxClaimed
        | Step::InboxLeased
        | Step::SweepFound
        | Step::SweepDone => 2.0,
        _ => 20.0,
    }
}

struct Case {
    rig: Rig,
    world: Arc<World>,
    done: Arc<Done>,
    /// The steps of the rounds to come, over and over.
    steps: Vec<Step>,
    ends: BTreeMap<&'static str, Ends>,
    slow: Slow,
    /// Handoffs of earlier rounds.
    judged: BTreeSet<String>,
    /// The queues from which receivers take their handoffs.
    queues: Option<Queues>,
}

impl Case {
    async fn start(site: Arc<Site>, brokers: usize, offset: usize) -> Self {
        // Longer than a claim lives (1.5 s): what a dead broker handed out comes back to the inbox first.
        let settings = [("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "3000")];
        let rig = Rig::start(site, &settings, brokers).await;
        let (seen, done) = (Arc::<Seen>::default(), Arc::<Done>::default());
        let slow = Slow::new();
        let world = populate(&rig.fleet, &seen, &done, &slow).await;
        // A stride of three from another place in each case, so that few rounds of each make all steps.
        let all: Vec<Step> =
            Step::ALL.into_iter().filter(|step| reachable(*step, brokers)).collect();
        let strides = (0..3).flat_map(|skip| all.iter().skip((skip + offset) % 3).step_by(3));
        let steps = taken_over(brokers).chain(strides.copied()).collect();
        Self { slow, ..Self::of(rig, (world, done), (steps, ends()), None) }
    }

    fn of(
        rig: Rig,
        (world, done): (Arc<World>, Arc<Done>),
        (steps, ends): (Vec<Step>, BTreeMap<&'static str, Ends>),
        queues: Option<Queues>,
    ) -> Self {
        let (slow, judged) = (Slow::new(), BTreeSet::new());
        Self { rig, world, done, steps, ends, slow, judged, queues }
    }

    async fn run(mut self, few: usize) {
        let rounds = rounds(few);
        let mut records = 0;
        for round in 0..rounds {
            let step = self.steps[round % self.steps.len()];
            self.round(round, step).await;
            records = self.judge(step).await;
        }
        let ends: usize = self.rig.fleet.ends.values().sum();
        println!(
            "{:?}, {} broker(s): {rounds} rounds, {} kills at random and {ends} at {} steps, {} cuts of the \
             database, {} handoffs acknowledged, {} deliveries, {records} records verified, no violation",
            self.rig.site.side,
            self.rig.fleet.bases.len(),
            self.rig.fleet.kills,
            self.rig.fleet.ends.len(),
            self.rig.cuts,
            self.world.count(),
            self.world.seen.all().len(),
        );
        self.rig.fleet.stop().await;
        self.rig.site.verify().await;
    }

    /// Load, a kill, a cut, an end at a step.
    async fn round(&mut self, round: usize, step: Step) {
        let brokers = self.rig.brokers();
        let seat = round % brokers;
        if let Some(slow) = self.ends.get_mut("slow") {
            slow.statuses = if step == Step::TakeoverFreed { &LATE } else { &IN_TIME };
        }
        let bases = self.rig.fleet.bases.clone();
        let mut load = Load::at(&self.world, bases, SENDERS / brokers);
        load.more(5 + below(40.0) as usize).await;
        self.rig.kill(seat).await;
        if step == Step::TakeoverFreed {
            // The others fall silent after it lives again, so that it is the one who notices; and with attempts under
            // way: more than it makes itself.
            self.rig.fleet.arm(seat, step, 0, "").await;
            self.slow.hold(true);
            until(RESTS_WITHIN, "others than the armed one wait for an answer", async || {
                (AT_ONCE as usize + 1).saturating_sub(self.slow.waiting())
            })
            .await;
            for other in (0..brokers).filter(|other| *other != seat) {
                self.rig.fleet.kill(other).await;
            }
            self.slow.hold(false);
        } else {
            let trouble = self.queues.as_mut().map(Queues::trouble);
            let trouble = futures_util::future::OptionFuture::from(trouble);
            let passes = below(most_passes(step)) as u32;
            futures_util::join!(self.rig.arm(seat, step, passes), trouble);
        }
        self.rig.comes_to(seat, step).await;
        load.more(10).await;
        load.finish().await;
    }

    /// Lets this round's handoffs come to rest, and checks the laws; returns the log's size.
    async fn judge(&mut self, step: Step) -> u64 {
        let all = self.world.acknowledged.lock().unwrap().clone();
        let fresh: BTreeMap<String, Acknowledged> =
            all.into_iter().filter(|(id, _)| !self.judged.contains(id)).collect();
        let tasks: BTreeSet<String> = fresh.values().map(|said| said.task.clone()).collect();
        let pages = self.at_rest(tasks).await;
        let mut faults = self.done.faults();
        for (task, page) in &pages {
            let of_it = laws::of_a_task(page, &self.ends, &self.done);
            faults.extend(of_it.into_iter().map(|fault| format!("task {task}: {fault}\n{page:#}")));
            let there = page["handoffs"].as_array().unwrap().iter();
            self.judged.extend(there.map(|one| one["handoffId"].as_str().unwrap().to_owned()));
        }
        for id in fresh.keys().filter(|id| !self.judged.contains(*id)) {
            faults.push(format!("{id} was acknowledged and is not in the log"));
        }
        let unseen: BTreeSet<&str> = pages
            .values()
            .flat_map(|page| page["handoffs"].as_array().unwrap())
            .filter(|one| one["status"] == "EXPIRED")
            .filter(|one| self.ends[one["toAgent"]["agentId"].as_str().unwrap()].unseen)
            .map(|one| one["handoffId"].as_str().unwrap())
            .collect();
        let due = fresh.iter().filter(|(id, _)| !unseen.contains(id.as_str()));
        let due = due.map(|(id, said)| (id.clone(), said.clone())).collect();
        faults.extend(laws::of_deliveries(&self.world.seen.all(), &due, &self.ends));
        assert!(faults.is_empty(), "after {}:\n{}", step.name(), faults.join("\n"));
        let records = self.rig.site.verify().await;
        println!(
            "{:?}, {} broker(s): {}, {} handoffs, {records} records",
            self.rig.site.side,
            self.rig.fleet.bases.len(),
            step.name(),
            fresh.len()
        );
        records
    }

    /// The traces of these tasks once nothing happens to them any more.
    async fn at_rest(&mut self, tasks: BTreeSet<String>) -> BTreeMap<String, Value> {
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        let mut left = tasks.clone();
        while !left.is_empty() && tokio::time::Instant::now() < deadline {
            self.rig.fleet.tend().await;
            for (task, page) in laws::traces(&self.rig.fleet.base(), &left).await {
                if laws::unsettled(&page, &self.ends) == 0 {
                    left.remove(&task);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Anew: a trace is read in pieces, and its last move may have come between two of them. A task
        // that is not at rest now shows as a breach.
        let mut pages = BTreeMap::new();
        while pages.len() < tasks.len() {
            let missing = tasks.iter().filter(|task| !pages.contains_key(*task)).cloned().collect();
            pages.extend(laws::traces(&self.rig.fleet.base(), &missing).await);
        }
        pages
    }
}

/// The sender, six receivers and a subscriber.
async fn populate(fleet: &Fleet, seen: &Arc<Seen>, done: &Arc<Done>, slow: &Slow) -> Arc<World> {
    let quick = accepting(Arc::clone(seen), Duration::ZERO).await;
    // Slow and narrow: there is always a backlog, and attempts under way, to be killed.
    let slow = slow.serve(seen, Duration::from_millis(30)).await;
    let refusing = json!({ "status": "REJECTED", "reason": "NOT_TODAY" });
    let refuser = answering(seen, StatusCode::OK, refusing).await;
    let silent = answering(seen, StatusCode::ACCEPTED, json!({})).await;
    let hands = |id| {
        let bases = fleet.bases.iter().map(tokio::sync::watch::Sender::subscribe).collect();
        Hands::new(id, bases, seen, done)
    };
    let (caller, puller) = (hands("caller"), hands("puller"));
    let receivers = vec![
        ("quick", Takes::Webhook(quick, 16)),
        ("slow", Takes::Webhook(slow, AT_ONCE)),
        ("refuser", Takes::Webhook(refuser, 8)),
        ("silent", Takes::Webhook(silent, 8)),
        ("caller", Takes::Webhook(caller.calling_back().await, 8)),
        ("puller", Takes::Inbox),
    ];
    let mut world = World::new(fleet.first(), receivers).await;
    world.seen = Arc::clone(seen);
    caller.give_key(&world.receivers["caller"]);
    puller.give_key(&world.receivers["puller"]);
    // Two at one inbox: only one of them may have a handoff.
    for _ in 0..2 {
        tokio::spawn(puller.clone().pulling());
    }
    let hook = json!({ "url": indifferent().await });
    let made = client().post(format!("{}/subscriptions", fleet.base())).bearer_auth(ADMIN_KEY);
    assert_eq!(made.json(&hook).send().await.unwrap().status(), 201);
    Arc::new(world)
}
