//! This broker's observations of receivers, on their way to the store: polls, attempts by time, circuit breakers. They steer
//! nothing.
//!
//! An attempt or a poll changes a row in memory. A task writes what is new: at most every ten seconds, and soon after a breaker
//! opens or closes. A broker that dies loses the rest.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::Micros;
use handoffd_domain::receiver::{AttemptEnd, BreakerState, WINDOW_US, Windows, window_at};
use handoffd_store::store::receivers::{BreakerRow, ReceiverNotes, SeenReceiver};
use handoffd_store::store::{ReceiverKey, Result, Store};

/// Longest time until something new is written.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Time from the turn of a breaker to its write: turns within it share one.
const TOGETHER: Duration = Duration::from_millis(500);
/// Most receivers in one statement.
const BATCH: usize = 500;
/// Most windows that a receiver's row in memory holds while the store is away: an hour.
const MAX_WINDOWS: usize = 12;

/// A breaker that ever opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticedBreaker {
    pub receiver: ReceiverKey,
    /// `None` where nothing was tried for long after its cool-down.
    pub state: Option<BreakerState>,
    /// When it left the state closed, or came back to it.
    pub since: Micros,
}

/// All that was noticed of a receiver since the last write.
#[derive(Debug, Default, PartialEq, Eq)]
struct Note {
    seen: SeenReceiver,
    windows: Windows,
}

impl Note {
    fn attempted(&mut self, at: Micros, end: AttemptEnd, code: Option<String>) {
        match end {
            AttemptEnd::Answered(_) => self.seen.last_success_at = Some(at),
            AttemptEnd::TimedOut(_) | AttemptEnd::Failed => {
                self.seen.last_failure_at = Some(at);
                self.seen.last_failure = code;
            }
        }
        self.windows.entry(window_at(at, WINDOW_US)).or_default().record(end);
        self.bound();
    }

    fn bound(&mut self) {
        while self.windows.len() > MAX_WINDOWS {
            self.windows.pop_first();
        }
    }

    /// Takes back what could not be written; what came since is newer.
    fn take_back(&mut self, older: Self) {
        let Self { seen, windows } = older;
        self.seen.last_poll_at = self.seen.last_poll_at.max(seen.last_poll_at);
        self.seen.last_success_at = self.seen.last_success_at.max(seen.last_success_at);
        if self.seen.last_failure_at.is_none() {
            self.seen.last_failure_at = seen.last_failure_at;
            self.seen.last_failure = seen.last_failure;
        }
        for (at, counts) in windows {
            self.windows.entry(at).or_default().add(&counts);
        }
        self.bound();
    }
}

/// Takes what this broker notices of receivers.
#[derive(Debug, Default)]
pub struct ReceiverJournal {
    notes: Mutex<HashMap<ReceiverKey, Note>>,
    turned: Notify,
}

impl ReceiverJournal {
    fn lock(&self) -> MutexGuard<'_, HashMap<ReceiverKey, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, receiver: &ReceiverKey, what: impl FnOnce(&mut Note)) {
        let mut notes = self.lock();
        match notes.get_mut(receiver) {
            Some(note) => what(note),
            None => what(notes.entry(receiver.clone()).or_default()),
        }
    }

    /// Notes the end of an attempt, and the code of its failure.
    pub fn attempted(
        &self,
        receiver: &ReceiverKey,
        at: Micros,
        end: AttemptEnd,
        code: Option<String>,
    ) {
        self.note(receiver, |note| note.attempted(at, end, code));
    }

    /// Notes that a receiver asked for its inbox.
    pub fn polled(&self, receiver: &ReceiverKey, at: Micros) {
        self.note(receiver, |note| note.seen.last_poll_at = Some(at));
    }

    /// Notes a change of a handoff: of a receiver that pulls, its first verdict or its silence is the end of an attempt, which
    /// began when the handoff came into the inbox. `first` says that the change accepted the handoff.
    pub fn moved(&self, handoff: &Handoff, first: bool) {
        if handoff.mode != DeliveryMode::Pull {
            return;
        }
        let Some((at, end, code)) = pulled(handoff, first) else { return };
        self.attempted(&(handoff.tenant.clone(), handoff.target.clone()), at, end, code);
    }

    /// Has the breakers written soon: one opened or closed.
    pub fn breaker_turned(&self) {
        self.turned.notify_one();
    }
}

/// How the attempt of a receiver that pulls ended, if this change of the handoff ended it.
fn pulled(handoff: &Handoff, first: bool) -> Option<(Micros, AttemptEnd, Option<String>)> {
    let offered = handoff.clock.offered_at.unwrap_or(handoff.created_at);
    let took = |at: Micros| at.since(offered);
    match (handoff.status, handoff.accepted_at, handoff.ended_at) {
        (_, Some(at), _) => first.then(|| (at, AttemptEnd::Answered(took(at)), None)),
        (HandoffStatus::Rejected, None, Some(at)) => {
            Some((at, AttemptEnd::Answered(took(at)), None))
        }
        (HandoffStatus::Expired, None, Some(at)) => {
            let code = handoff.reason.clone();
            Some((at, AttemptEnd::TimedOut(took(at)), code))
        }
        _ => None,
    }
}

/// The task that writes the journal into the store.
pub struct ReceiverWriter {
    pub journal: Arc<ReceiverJournal>,
    /// Reads this broker's breakers.
    pub breakers: Box<dyn Fn() -> Vec<NoticedBreaker> + Send + Sync>,
    pub store: Arc<Store>,
    /// This broker's name.
    pub broker: String,
    /// Token that ends the task, after a last write.
    pub stopping: CancellationToken,
}

impl ReceiverWriter {
    /// Writes until the broker stops.
    pub async fn run(self) {
        // The states of breakers as the store has them.
        let mut written = HashMap::new();
        loop {
            let last = tokio::select! {
                biased;
                () = self.stopping.cancelled() => true,
                () = self.journal.turned.notified() => {
                    tokio::time::sleep(TOGETHER).await;
                    false
                }
                () = tokio::time::sleep(WRITE_EVERY) => false,
            };
            if let Err(err) = self.write(&mut written).await {
                tracing::warn!(error = %err, "what was noticed of receivers could not be written");
            }
            if last {
                return;
            }
        }
    }

    async fn write(&self, written: &mut HashMap<ReceiverKey, Option<BreakerState>>) -> Result<()> {
        let mut notes = std::mem::take(&mut *self.journal.lock());
        let mut breakers = (self.breakers)();
        let present: HashSet<&ReceiverKey> = breakers.iter().map(|one| &one.receiver).collect();
        written.retain(|receiver, _| present.contains(receiver));
        // One that is open is written each time: another broker may have taken this one for dead, and deleted its rows.
        breakers.retain(|one| {
            let open = one.state.is_some_and(|state| state != BreakerState::Closed);
            open || written.get(&one.receiver) != Some(&one.state)
        });
        for some in breakers.chunks(BATCH) {
            let rows = some.iter().map(|one| self.row(one, &notes)).collect();
            let part = ReceiverNotes { breakers: rows, ..ReceiverNotes::default() };
            if let Err(err) = self.store.note_receivers(&part).await {
                self.take_back(notes);
                return Err(err);
            }
            written.extend(some.iter().map(|one| (one.receiver.clone(), one.state)));
        }
        while !notes.is_empty() {
            let keys: Vec<ReceiverKey> = notes.keys().take(BATCH).cloned().collect();
            let taken: Vec<(ReceiverKey, Note)> =
                keys.iter().filter_map(|key| notes.remove_entry(key)).collect();
            if let Err(err) = self.store.note_receivers(&part_of(&taken)).await {
                notes.extend(taken);
                self.take_back(notes);
                return Err(err);
            }
        }
        Ok(())
    }

    fn row(&self, one: &NoticedBreaker, notes: &HashMap<ReceiverKey, Note>) -> BreakerRow {
        let NoticedBreaker { receiver, state, since } = one.clone();
        let reason = notes.get(&receiver).and_then(|note| note.seen.last_failure.clone());
        BreakerRow { receiver, broker: self.broker.clone(), state, since, reason }
    }

    fn take_back(&self, notes: HashMap<ReceiverKey, Note>) {
        let mut held = self.journal.lock();
        for (receiver, note) in notes {
            held.entry(receiver).or_default().take_back(note);
        }
    }
}

fn part_of(notes: &[(ReceiverKey, Note)]) -> ReceiverNotes {
    let windows = notes.iter().filter(|(_, note)| !note.windows.is_empty());
    ReceiverNotes {
        seen: notes.iter().map(|(key, note)| (key.clone(), note.seen.clone())).collect(),
        windows: windows.map(|(key, note)| (key.clone(), note.windows.clone())).collect(),
        breakers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::receiver::total;

    fn receiver(name: &str) -> ReceiverKey {
        ("t".parse().unwrap(), name.parse().unwrap())
    }

    const TOOK: AttemptEnd = AttemptEnd::Answered(Duration::from_millis(5));

    #[test]
    fn a_note_has_the_last_of_each_kind_and_counts_by_window() {
        let journal = ReceiverJournal::default();
        let one = receiver("one");
        journal.attempted(&one, Micros(1), TOOK, None);
        journal.attempted(&one, Micros(2), AttemptEnd::Failed, Some("DELIVERY_STATUS".to_owned()));
        journal.attempted(&one, Micros(WINDOW_US + 3), TOOK, None);
        journal.polled(&one, Micros(4));
        let notes = journal.lock();
        let seen = SeenReceiver {
            last_poll_at: Some(Micros(4)),
            last_success_at: Some(Micros(WINDOW_US + 3)),
            last_failure_at: Some(Micros(2)),
            last_failure: Some("DELIVERY_STATUS".to_owned()),
        };
        assert_eq!(notes[&one].seen, seen);
        let counted: Vec<_> =
            notes[&one].windows.iter().map(|(at, counts)| (at.0, counts.attempts)).collect();
        assert_eq!(counted, [(0, 2), (WINDOW_US, 1)]);
    }

    #[test]
    fn what_could_not_be_written_is_added_to_what_came_since() {
        let attempt = |note: &mut Note, at: i64, code: Option<&str>| {
            let end = if code.is_some() { AttemptEnd::Failed } else { TOOK };
            note.attempted(Micros(at), end, code.map(str::to_owned));
        };
        let (mut older, mut newer) = (Note::default(), Note::default());
        attempt(&mut older, 1, Some("DELIVERY_DNS"));
        attempt(&mut older, 2, None);
        attempt(&mut newer, 5, Some("DELIVERY_TLS"));
        newer.take_back(older);
        assert_eq!(newer.seen.last_failure.as_deref(), Some("DELIVERY_TLS"));
        assert_eq!(newer.seen.last_success_at, Some(Micros(2)));
        let sum = total(newer.windows.values());
        assert_eq!((sum.attempts, sum.failures), (3, 2));
    }

    #[test]
    fn memory_holds_the_newest_hour_while_the_store_is_away() {
        let mut note = Note::default();
        for window in 0..100 {
            note.attempted(Micros(window * WINDOW_US), TOOK, None);
        }
        assert_eq!(note.windows.len(), MAX_WINDOWS);
        assert_eq!(note.windows.first_key_value().unwrap().0.0, 88 * WINDOW_US);
    }
}
