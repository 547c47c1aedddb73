//! Checks the product's promises in a ledger of its own, called the books: it records every commit, claim, attempt and
//! answer as it happens, and each broken promise with the reason. The books see the store's changes and the messages on
//! the network, but no internal state of a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::broker::{ATTEMPTS, SILENCE};
use super::wire::Arrival;
use crate::transport::AttemptOutcome;
use handoffd_domain::group::Group;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, EscalationId, HandoffId, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::TaskStatus;
use handoffd_store::store::memory::StoreEffect;
use handoffd_store::store::{ClaimRelease, OutboxRow};

mod bodies;
mod commits;
mod streams;

use streams::StreamEntry;

/// A task after its last commit.
#[derive(Debug)]
struct TaskEntry {
    status: TaskStatus,
    fence: i64,
    holder: AgentId,
    /// The handoff under which its holder runs it: the last accepted one, or one with a later token of the same receiver.
    accepted: Option<HandoffId>,
    /// The money granted to the task, top-ups included, and the top-ups alone.
    granted: Usd,
    topped_up: Usd,
}

/// A handoff after its last commit.
#[derive(Debug)]
struct HandoffEntry {
    task: TaskId,
    target: AgentId,
    status: HandoffStatus,
    /// Whether a verdict or a lease has a deadline.
    due: bool,
    token: i64,
    idempotent: bool,
    /// Whether its message exceeds its receiver's window.
    to_compress: bool,
    /// Number of `HANDOFF` records.
    commits: u32,
    /// Number of `RELEASED` records; each allows one more commit and acceptance.
    releases: u32,
    /// Number of `ACCEPTED` records.
    acceptances: u32,
    /// Number of `INPUT_REQUESTED` records, and of `INPUT_PROVIDED` records.
    questions: (u32, u32),
}

/// The end of an attempt, as its broker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The attempt provably reached no receiver, or the receiver answered that it is busy: a repetition is allowed.
    Harmless,
    /// The attempt reached its receiver, or may have.
    Reached,
}

/// The record of all commits, claims, attempts and answers of a schedule; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// The first violated invariant.
    violation: Option<String>,
    tasks: BTreeMap<TaskId, TaskEntry>,
    handoffs: BTreeMap<HandoffId, HandoffEntry>,
    outbox: BTreeMap<HandoffId, OutboxRow>,
    /// The handoff of each fencing token.
    tokens: BTreeMap<(TaskId, i64), HandoffId>,
    /// Attempts that left a broker, by handoff, token and number, each with its end.
    attempts: BTreeMap<(HandoffId, i64, i32), Option<Ended>>,
    open_escalations: BTreeMap<EscalationId, TaskId>,
    /// Handoffs released by a person regardless of their figures.
    granted: BTreeSet<HandoffId>,
    /// Amount spent by each task at its last commit.
    spent: BTreeMap<TaskId, Usd>,
    keys: BTreeMap<String, HandoffId>,
    /// Time of each broker's last successful heartbeat.
    beats: BTreeMap<String, Duration>,
    /// First answers to senders.
    acknowledged: BTreeMap<HandoffId, Handoff>,
    /// Handoffs whose first answer was not a replay.
    fresh: BTreeSet<HandoffId>,
    /// Questions that receivers put, each under a key of its own.
    asked: BTreeMap<HandoffId, u32>,
    /// Claims of pull receivers, by handoff and token.
    leased: BTreeSet<(HandoffId, i64)>,
    ended_groups: BTreeMap<HandoffId, Group>,
    streams: BTreeMap<HandoffId, StreamEntry>,
    /// Compressed messages, by handoff and its releases.
    compressed: BTreeMap<(HandoffId, u32), Vec<u8>>,
    /// The bytes of the first attempt, by handoff and its releases.
    sent: BTreeMap<(HandoffId, u32), Vec<u8>>,
}

/// A handoff's name in a trace: the number that the schedule gave it, or the end of a drawn id.
pub(super) fn short(id: HandoffId) -> String {
    let bits = id.0.as_u128();
    if bits << 32 == 0 { format!("h{}", bits >> 96) } else { format!("h..{:05x}", bits & 0xf_ffff) }
}

/// One trace line.
pub(super) fn words(done: StoreEffect<'_>) -> String {
    match done {
        StoreEffect::Wrote(writes) => {
            let mut words: Vec<String> = Vec::new();
            for draft in &writes.records {
                let of = draft.handoff_id.map(short).unwrap_or_default();
                let why = draft.reason.as_deref().unwrap_or_default();
                words.push(format!("{} {of} {why}", draft.kind.as_str()).trim().to_owned());
            }
            for (handoff, _) in writes.handoffs.values() {
                let (id, status) = (short(handoff.id), handoff.status.as_str());
                words.push(format!("{id} is {status}, token {}", handoff.fencing_token));
            }
            for (task, _) in writes.tasks.values() {
                let (status, fence) = (task.status.as_str(), task.fence);
                words.push(format!("task {status}, fence {fence}, with {}", task.holder));
            }
            for ((_, id), row) in &writes.outbox {
                let id = short(*id);
                words.push(match row {
                    Some(row) => {
                        format!("{id} waits, attempt {}, {:?}", row.attempt, row.claimed_by)
                    }
                    None => format!("{id} left the outbox"),
                });
            }
            format!("wrote {}", words.join("; "))
        }
        StoreEffect::Claimed(broker, claims, _) => {
            let claims =
                claims.iter().map(|c| format!("{} attempt {}", short(c.handoff_id), c.attempt));
            format!("{broker} claimed [{}]", claims.collect::<Vec<_>>().join(", "))
        }
        StoreEffect::Released(whose, freed) => {
            let freed = freed.iter().map(|(_, id)| short(*id)).collect::<Vec<_>>();
            format!("{whose:?} freed {freed:?}")
        }
        StoreEffect::Beat(_) => "beats".to_owned(),
    }
}

impl Books {
    pub(super) fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    /// Checks an operation of the store.
    pub(super) fn done(&mut self, done: StoreEffect<'_>, now: Duration) {
        match done {
            StoreEffect::Wrote(writes) => self.wrote(writes),
            StoreEffect::Claimed(broker, claims, until) => {
                for claim in claims {
                    let Some(row) = self.outbox.get_mut(&claim.handoff_id) else {
                        let id = short(claim.handoff_id);
                        self.violate(|| format!("{id} was claimed, and does not wait"));
                        continue;
                    };
                    let next = row.attempt + 1;
                    (row.attempt, row.visible_at) = (claim.attempt, until);
                    row.claimed_by = Some(broker.to_owned());
                    if claim.attempt != next {
                        let id = short(claim.handoff_id);
                        self.violate(|| {
                            format!("attempt {} of {id} is not the next", claim.attempt)
                        });
                    }
                }
            }
            StoreEffect::Released(whose, freed) => {
                for (_, id) in freed {
                    if let Some(row) = self.outbox.get_mut(id) {
                        row.claimed_by = None;
                    }
                }
                if !freed.is_empty() {
                    self.released(whose, now);
                }
            }
            StoreEffect::Beat(broker) => {
                self.beats.insert(broker.to_owned(), now);
            }
        }
    }

    /// Checks that a broker's claims are released only after its silence, or if the broker does not know them.
    fn released(&mut self, whose: ClaimRelease<'_>, now: Duration) {
        match whose {
            ClaimRelease::Silent(broker, Some(_)) => {
                let spoke = self.beats.get(broker).copied().unwrap_or_default();
                if now.saturating_sub(spoke) < SILENCE {
                    self.violate(|| format!("{broker} spoke at {spoke:?} and was taken for dead"));
                }
            }
            ClaimRelease::These(_, held) => {
                for ((_, id), attempt) in held {
                    let token = self.handoffs.get(id).map_or(0, |entry| entry.token);
                    if self.attempts.get(&(*id, token, *attempt)) == Some(&None) {
                        let id = short(*id);
                        self.violate(|| {
                            format!("attempt {attempt} of {id} is under way, and was freed")
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// Records an attempt that leaves its broker.
    pub(super) fn posted(&mut self, arrival: &Arrival, broker: &str) {
        let Arrival { handoff: id, attempt, token, .. } = *arrival;
        let name = short(id);
        if self.attempts.insert((id, token, attempt), None).is_some() {
            self.violate(|| format!("attempt {attempt} of {name} was made twice, now by {broker}"));
        }
        let Some(entry) = self.handoffs.get(&id) else {
            return self.violate(|| format!("{name} was sent and never committed"));
        };
        let (current, once) = (entry.token, !entry.idempotent);
        // Only a release gives a webhook's handoff another token. A broker that was stalled sends its
        // earlier claims late, under the old token; the receiver's answer is then stale.
        if token > current {
            self.violate(|| format!("{name} was sent with token {token}; its token is {current}"));
        }
        let earlier = self.attempts.range((id, token, 0)..(id, token, attempt));
        let known = earlier.filter(|(_, ended)| **ended != Some(Ended::Harmless)).count();
        if once && known > 0 {
            self.violate(|| format!("{name} may be sent once only, and {known} attempts may have reached its receiver"));
        }
        let own = self.outbox.get(&id).map(|row| (row.task_id, row.seq));
        let before =
            |row: &&OutboxRow| own.is_some_and(|(task, seq)| row.task_id == task && row.seq < seq);
        if let Some(first) = self.outbox.values().find(before).map(|row| row.handoff_id) {
            self.violate(|| format!("{name} was sent before {} of its task", short(first)));
        }
    }

    /// Records the outcome of an attempt at its broker.
    pub(super) fn answered(&mut self, arrival: &Arrival, outcome: &AttemptOutcome) {
        let ended = match outcome {
            AttemptOutcome::Busy { .. } => Ended::Harmless,
            AttemptOutcome::Failed(failure) if !failure.reached => Ended::Harmless,
            _ => Ended::Reached,
        };
        self.attempts.insert((arrival.handoff, arrival.token, arrival.attempt), Some(ended));
    }

    /// Records the answer to a sender that its handoff is committed.
    pub(super) fn acknowledged(&mut self, handoff: &Handoff, replayed: bool) {
        let id = handoff.id;
        if self.handoffs.get(&id).is_none_or(|entry| entry.commits + entry.releases == 0) {
            self.violate(|| format!("{} was acknowledged, and is not in the log", short(id)));
        }
        if !replayed && !self.fresh.insert(id) {
            self.violate(|| format!("{} was committed anew to two callers", short(id)));
        }
        // Answers may overtake each other.
        let Some(first) = self.acknowledged.get(&id) else {
            self.acknowledged.insert(id, handoff.clone());
            return;
        };
        // After the close of a stream the commitment covers the assembled message instead of the opening one.
        let told = |one: &Handoff| {
            let commitment = one.stream.is_none().then_some(one.commitment);
            (one.task_id, one.created_at, commitment, one.checkpoint, one.cost, one.parent_id)
        };
        let same = told(first) == told(handoff);
        if !same {
            self.violate(|| format!("the answers to {} differ: {handoff:?}", short(id)));
        }
    }

    /// Records an accepted verdict with its token.
    pub(super) fn word_taken(&mut self, handoff: &Handoff, token: i64) {
        if handoff.fencing_token != token {
            let (id, current) = (short(handoff.id), handoff.fencing_token);
            self.violate(|| {
                format!("a word on {id} with token {token} was taken; {current} is its token")
            });
        }
    }

    /// Counts a receiver's question; returns the question's key.
    pub(super) fn asks(&mut self, handoff: HandoffId) -> String {
        let asked = self.asked.entry(handoff).or_default();
        *asked += 1;
        format!("question-{asked}")
    }

    /// Records a claim of a pull receiver.
    pub(super) fn leased(&mut self, handoff: &Handoff) {
        if !self.leased.insert((handoff.id, handoff.fencing_token)) {
            let (id, token) = (short(handoff.id), handoff.fencing_token);
            self.violate(|| format!("{id} was pulled twice under token {token}"));
        }
    }

    /// Why the schedule still has work to do; `None` if it has none.
    pub(super) fn unrest(&self) -> Option<String> {
        if let Some(id) = self.outbox.keys().next() {
            return Some(format!("{} still waits for its delivery", short(*id)));
        }
        if let Some((id, entry)) = self.handoffs.iter().find(|(_, one)| !one.status.is_final()) {
            return Some(format!("{} is still {}", short(*id), entry.status.as_str()));
        }
        if let Some(task) = self.open_escalations.values().next() {
            return Some(format!("{task} still waits for a person"));
        }
        self.unread().map(|id| format!("the end of {} was not read", short(id)))
    }

    /// Checks the final state; returns the acknowledged handoffs for the comparison with the log.
    pub(super) fn at_rest(&mut self) -> BTreeMap<HandoffId, Handoff> {
        let stuck = self.tasks.iter().find(|(_, task)| {
            matches!(task.status, TaskStatus::HandingOff | TaskStatus::Escalated)
        });
        if let Some((id, status)) = stuck.map(|(id, task)| (*id, task.status)) {
            self.violate(|| {
                format!("nothing of task {id} is under way, and it is {}", status.as_str())
            });
        }
        self.lines_at_rest(ATTEMPTS);
        std::mem::take(&mut self.acknowledged)
    }

    /// How often a handoff was committed; `None` if the books do not know it.
    pub(super) fn commits_of(&self, id: HandoffId) -> Option<(u32, u32)> {
        self.handoffs.get(&id).map(|entry| (entry.commits, entry.releases))
    }

    /// Number of handoffs and of attempts.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.handoffs.len(), self.attempts.len())
    }
}
