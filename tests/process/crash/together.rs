//! Brokers that die while groups gather, streams run and long messages are compressed. As in the rounds of single
//! handoffs: a kill at random, an end at a named step, a database that goes away; then everything comes to rest, and the
//! laws of groups, streams and compressed messages are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use handoffd::fault::Step;
use handoffd_domain::handoff::HandoffStatus;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::compressed::{Bodies, LongEvidence, SentLongs};
use super::groups::SentGroups;
use super::hands::{Done, Hands, answering};
use super::laws::{Ends, status};
use super::readers::HeardStreams;
use super::rig::{Rig, below};
use super::stream_laws::StreamEvidence;
use super::streams::SentStreams;
use super::{RESTS_WITHIN, compressed, groups, laws, readers, stream_laws, streams};
use crate::kills::rounds;
use crate::receiver::Seen;
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Acknowledged, COMES_WITHIN, Takes, World, until};

/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing: the three cases come to all steps of groups, streams and
/// compressions then.
const ROUNDS: usize = 5;

/// Senders of groups, of streams and of long messages.
const SENDERS: [usize; 3] = [2, 3, 1];

/// How long an open stream waits for its next chunk.
const IDLE_MS: &str = "4000";

pub async fn killed_while_groups_gather_and_streams_run_one_broker_breaks_no_law(site: Arc<Site>) {
    let offset = usize::from(site.side != Side::Sqlite);
    Together::start(site, 1, offset).await.run().await;
}

pub async fn killed_while_groups_gather_and_streams_run_three_brokers_break_no_law(
    site: Arc<Site>,
) {
    Together::start(site, 3, 2).await.run().await;
}

/// How much was acknowledged.
#[derive(Default)]
pub struct Tally(AtomicUsize);

impl Tally {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The notes of a case's senders and receivers.
#[derive(Clone, Default)]
struct Notes {
    seen: Arc<Seen>,
    done: Arc<Done>,
    tally: Arc<Tally>,
    groups: SentGroups,
    streams: SentStreams,
    heard: Arc<HeardStreams>,
    longs: SentLongs,
    bodies: Bodies,
}

struct Together {
    rig: Rig,
    notes: Notes,
    sender: Caller,
    admin: Caller,
    /// The receiver of long messages.
    narrow: Caller,
    steps: Vec<Step>,
    /// Groups, chunks and long messages of all rounds.
    judged: [usize; 3],
}

/// How often a step is passed before it is the end, at most.
fn most_passes(step: Step) -> f64 {
    match step {
        Step::GroupDecided
        | Step::GroupDone
        | Step::JoinDecided
        | Step::JoinDone
        | Step::StreamEndDecided
        | Step::StreamEndDone
        | Step::LineClaimed => 4.0,
        Step::CompressBegin | Step::CompressDone => 3.0,
        Step::LineWritten => 1.0,
        _ => 15.0,
    }
}

/// The steps of the rounds: a stride of three from another place in each case, so that few rounds of each make all steps
/// of groups, streams and compressions; then those of every commit and delivery.
fn steps(offset: usize) -> Vec<Step> {
    const OTHERS: [Step; 9] = [
        Step::CommitBegin,
        Step::CommitDecided,
        Step::CommitWritten,
        Step::CommitSealed,
        Step::CommitDone,
        Step::SendAnswered,
        Step::SettleDone,
        Step::InboxLeased,
        Step::SweepFound,
    ];
    let own: Vec<Step> = [&Step::STREAM[..], &Step::GROUP[..], &Step::COMPRESS[..]].concat();
    let stride = |all: &[Step]| -> Vec<Step> {
        let skips = (0..3).map(|skip| (skip + offset) % 3);
        skips.flat_map(|skip| all.iter().skip(skip).step_by(3).copied()).collect()
    };
    [stride(&own), stride(&OTHERS)].concat()
}

impl Together {
    async fn start(site: Arc<Site>, brokers: usize, offset: usize) -> Self {
        let settings = [
            // Longer than a claim lives (1.5 s).
            ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "3000"),
            ("HANDOFFD_STREAM__IDLE_MS", IDLE_MS),
        ];
        let rig = Rig::start(site, &settings, brokers).await;
        let notes = Notes::default();
        let world = populate(&rig, &notes).await;
        let caller = |key: &str| Caller::new(&rig.fleet, key);
        let (sender, admin) = (caller(&world.sender_key), caller(ADMIN_KEY));
        let narrow = caller(&world.receivers["narrow"]);
        Self { rig, notes, sender, admin, narrow, steps: steps(offset), judged: [0; 3] }
    }

    async fn run(mut self) {
        let rounds = rounds(ROUNDS);
        let mut records = 0;
        for round in 0..rounds {
            let step = self.steps[round % self.steps.len()];
            self.round(round, step).await;
            records = self.judge(step).await;
        }
        let ends: usize = self.rig.fleet.ends.values().sum();
        let [groups, chunks, longs] = self.judged;
        println!(
            "{:?}, {} broker(s): {rounds} rounds, {} kills at random and {ends} at {} steps, {} cuts of the \
             database, {groups} groups, {chunks} chunks, {longs} compressed, {records} records verified, no violation",
            self.rig.site.side,
            self.rig.brokers(),
            self.rig.fleet.kills,
            self.rig.fleet.ends.len(),
            self.rig.cuts,
        );
        self.rig.fleet.stop().await;
        self.rig.site.verify().await;
    }

    /// Load, a kill, a cut, an end at a step.
    async fn round(&mut self, round: usize, step: Step) {
        let seat = round % self.rig.brokers();
        let (stop, mut load) = (CancellationToken::new(), JoinSet::new());
        for (kind, count) in SENDERS.into_iter().enumerate() {
            for place in 0..count {
                let (notes, sender) = (self.notes.clone(), self.sender.clone());
                load.spawn(sending(notes, sender, kind, round + place, stop.clone()));
            }
        }
        self.more(5 + below(40.0) as usize).await;
        self.rig.kill(seat).await;
        self.rig.arm(seat, step, below(most_passes(step)) as u32).await;
        self.rig.comes_to(seat, step).await;
        self.more(10).await;
        stop.cancel();
        while let Some(ended) = load.join_next().await {
            ended.unwrap();
        }
    }

    async fn more(&self, count: usize) {
        let goal = self.notes.tally.count() + count;
        until(COMES_WITHIN, "the load goes on", async || {
            goal.saturating_sub(self.notes.tally.count())
        })
        .await;
    }

    /// Lets this round's handoffs come to rest, and checks the laws; returns the log's size.
    async fn judge(&mut self, step: Step) -> u64 {
        let pages = self.at_rest().await;
        let mut faults = self.notes.done.faults();
        let mut due = BTreeMap::new();
        let groups = std::mem::take(&mut *self.notes.groups.lock().unwrap());
        for sent in &groups {
            let page = pages[&sent.task].as_ref();
            let found = groups::of_a_group(page, sent, &self.notes.done);
            faults.extend(
                found.into_iter().map(|fault| format!("group {sent:?}: {fault}\n{page:#?}")),
            );
        }
        let streams = std::mem::take(&mut *self.notes.streams.lock().unwrap());
        let mut chunks = 0;
        for (id, sent) in &streams {
            let has = self.stream(id, sent, &pages).await;
            chunks += has.items.len();
            let mut found = stream_laws::of_a_stream(sent, &has);
            found.extend(laws::of_a_task(&has.page, &stream_ends(), &self.notes.done));
            faults.extend(
                found.into_iter().map(|fault| format!("{id}: {fault}\n{sent:#?}\n{has:#?}")),
            );
        }
        let longs = std::mem::take(&mut *self.notes.longs.lock().unwrap());
        for (id, sent) in &longs {
            let kept = self.narrow.get(&format!("/handoffs/{id}?include=message")).await.1;
            let turns = self.narrow.get(&format!("/handoffs/{id}/history")).await.1;
            let has = LongEvidence {
                page: pages[&sent.task].as_ref().unwrap(),
                kept: &kept["message"],
                turns: &turns["turns"],
                bodies: &self.notes.bodies.lock().unwrap().remove(id).unwrap_or_default(),
            };
            let found = compressed::of_a_long(sent, &has);
            faults.extend(found.into_iter().map(|fault| format!("{id}: {fault}\n{:#}", has.page)));
        }
        for page in pages.values().flatten() {
            due.extend(delivered(page));
        }
        faults.extend(laws::of_deliveries(&self.notes.seen.all(), &due, &pulls(&due)));
        assert!(faults.is_empty(), "after {}:\n{}", step.name(), faults.join("\n"));
        let counts = [groups.len(), chunks, longs.len()];
        for (all, count) in self.judged.iter_mut().zip(counts) {
            *all += count;
        }
        let records = self.rig.site.verify().await;
        let brokers = self.rig.brokers();
        println!(
            "{:?}, {brokers} broker(s): {}, {} groups, {} streams of {chunks} chunks, {} compressed, {records} records",
            self.rig.site.side,
            step.name(),
            groups.len(),
            streams.len(),
            longs.len()
        );
        records
    }

    /// Everything there is of a stream.
    async fn stream(
        &self,
        id: &str,
        sent: &streams::SentStream,
        pages: &BTreeMap<String, Option<Value>>,
    ) -> StreamEvidence {
        let items = self.admin.get(&format!("/handoffs/{id}/chunks?limit=500")).await.1;
        let whole = self.admin.get(&format!("/handoffs/{id}?include=message")).await.1;
        StreamEvidence {
            page: pages[&sent.task].clone().expect("it was acknowledged"),
            items: items["items"].as_array().cloned().unwrap_or_default(),
            whole: whole["message"].clone(),
            messages: self.notes.heard.messages(id),
            heard: self.notes.heard.chunks(id),
            pulls: sent.target == "reader",
        }
    }

    /// Whether nothing happens any more to a task that has this trace.
    fn is_at_rest(&self, task: &str, page: Option<&Value>) -> bool {
        if self.notes.groups.lock().unwrap().iter().any(|sent| sent.task == task) {
            return groups::is_settled(page);
        }
        let Some(handoff) = page.and_then(|page| page["handoffs"].get(0)) else { return false };
        let (id, is) = (handoff["handoffId"].as_str().unwrap(), status(handoff));
        let heard = &self.notes.heard;
        match handoff["toAgent"]["agentId"].as_str().unwrap() {
            "narrow" => is == HandoffStatus::Accepted,
            "listener" if !stream_laws::is_told(&heard.messages(id), &heard.chunks(id)) => false,
            // The receiver knows of its completion, too.
            _ if is == HandoffStatus::Completed => self.notes.done.times(id) > 0,
            _ => is.is_final(),
        }
    }

    /// The traces of this round's tasks once nothing happens to them any more; none of a task that is not there.
    async fn at_rest(&mut self) -> BTreeMap<String, Option<Value>> {
        let mut left: BTreeSet<String> = BTreeSet::new();
        left.extend(self.notes.groups.lock().unwrap().iter().map(|sent| sent.task.clone()));
        left.extend(self.notes.streams.lock().unwrap().values().map(|sent| sent.task.clone()));
        left.extend(self.notes.longs.lock().unwrap().values().map(|sent| sent.task.clone()));
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        let mut pages = BTreeMap::new();
        while !left.is_empty() {
            self.rig.fleet.tend().await;
            // A task that is not at rest now shows as a breach.
            let late = tokio::time::Instant::now() >= deadline;
            for task in left.clone() {
                let page = self.admin.trace(&task).await;
                if !late && !self.is_at_rest(&task, page.as_ref()) {
                    continue;
                }
                // Anew: a trace is read in pieces, and its last move may have come between two of them.
                pages.insert(task.clone(), self.admin.trace(&task).await);
                left.remove(&task);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        pages
    }
}

/// Sends one thing of its kind after the other until it is stopped; what was begun goes to its end.
async fn sending(notes: Notes, sender: Caller, kind: usize, first: usize, stop: CancellationToken) {
    let mut turn = first;
    while !stop.is_cancelled() {
        turn += 1;
        match kind {
            0 => groups::send(&sender, &notes.groups, &notes.tally, turn).await,
            1 => {
                let target = if turn.is_multiple_of(3) { "reader" } else { "listener" };
                streams::send(&sender, &notes.streams, &notes.tally, target).await;
            }
            _ => compressed::send(&sender, &notes.longs, &notes.tally, "narrow").await,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How the handoff of a stream may end.
fn stream_ends() -> BTreeMap<&'static str, Ends> {
    use HandoffStatus as S;
    const STATUSES: &[HandoffStatus] = &[S::Completed, S::Failed, S::Expired];
    let ends =
        |pulls| Ends { statuses: STATUSES, carried_out: true, pulls, unseen: pulls, queued: false };
    BTreeMap::from([("listener", ends(false)), ("reader", ends(true))])
}

/// The handoffs of a trace that reached their receivers.
fn delivered(page: &Value) -> BTreeMap<String, Acknowledged> {
    use HandoffStatus as S;
    let all = page["handoffs"].as_array().unwrap().iter();
    all.filter(|one| matches!(status(one), S::Accepted | S::Completed | S::Rejected))
        .map(|one| {
            let said = Acknowledged {
                task: page["taskId"].as_str().unwrap_or_default().to_owned(),
                parent: None,
                target: one["toAgent"]["agentId"].as_str().unwrap().to_owned(),
            };
            (one["handoffId"].as_str().unwrap().to_owned(), said)
        })
        .collect()
}

/// Which receivers pull, for the laws of deliveries.
fn pulls(due: &BTreeMap<String, Acknowledged>) -> BTreeMap<&str, Ends> {
    let ends = |id: &str| Ends {
        statuses: &HandoffStatus::ALL,
        carried_out: false,
        pulls: matches!(id, "taker" | "reader"),
        unseen: false,
        queued: false,
    };
    due.values().map(|said| (said.target.as_str(), ends(&said.target))).collect()
}

/// Below the tokens of a message's older turns. It comes with the agent: a broker may know an agent for a second before it learns
/// of a change.
const WINDOW: u64 = 1_800;

/// The sender, five receivers of groups, two of streams, and one with a small window.
async fn populate(rig: &Rig, notes: &Notes) -> World {
    let fleet = &rig.fleet;
    let hands = |id| {
        let bases = fleet.bases.iter().map(tokio::sync::watch::Sender::subscribe).collect();
        Hands::new(id, bases, &notes.seen, &notes.done)
    };
    let [doer, swift, taker] = ["doer", "swift", "taker"].map(|id| hands(id).withdrawn());
    let [listener, reader, narrow] = ["listener", "reader", "narrow"].map(hands);
    let refusing = json!({ "status": "REJECTED", "reason": "NOT_TODAY" });
    let naysayer = answering(&notes.seen, StatusCode::OK, refusing).await;
    let mute = answering(&notes.seen, StatusCode::ACCEPTED, json!({})).await;
    let receivers = vec![
        ("doer", Takes::Webhook(doer.calling_back().await, 8)),
        ("swift", Takes::Webhook(swift.calling_back().await, 16)),
        ("taker", Takes::Inbox),
        ("naysayer", Takes::Webhook(naysayer, 8)),
        ("mute", Takes::Webhook(mute, 8)),
        ("listener", Takes::Webhook(readers::listening(&listener, &notes.heard).await, 8)),
        ("reader", Takes::Inbox),
        ("narrow", Takes::Window(compressed::keeping(&narrow, &notes.bodies).await, 4, WINDOW)),
    ];
    let world = World::new(fleet.first(), receivers).await;
    for (id, hands) in [("doer", &doer), ("swift", &swift), ("taker", &taker)] {
        hands.give_key(&world.receivers[id]);
    }
    for (id, hands) in [("listener", &listener), ("reader", &reader), ("narrow", &narrow)] {
        hands.give_key(&world.receivers[id]);
    }
    // Two at one inbox: only one of them may have a handoff.
    for _ in 0..2 {
        tokio::spawn(taker.clone().pulling());
    }
    let own = Caller::new(fleet, &world.receivers["reader"]);
    tokio::spawn(readers::reading(reader, own, Arc::clone(&notes.heard)));
    world
}
