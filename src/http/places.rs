//! The places of a listener's connections, and what these hold in memory.
//!
//! A client without a key can open connections, send heads that never end and leave answers unread. Each of these is
//! bounded here, for one connection and for all together. At a bound the connection that is worth least ends: the one that
//! has been without a request for longest, or the one that has not read its answers for longest.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Connections beyond the bound, for health routes alone.
pub const KEPT: usize = 16;

/// Unsent bytes from which a connection is asked to end where all together hold too much.
const LARGE: usize = 64 * 1024;

/// Classes of connections: those for all requests, and those beyond the bound, for health routes.
const COMMON: usize = 0;
const HEALTH: usize = 1;

/// How often a new connection waits for the end of another.
const ROUNDS: usize = 4;

/// How long a connection that was told to end may take until its place counts as free: its task is only dropped.
const ENDING: Duration = Duration::from_millis(200);

/// Bounds of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Open connections.
    pub connections: usize,
    /// Bytes that one connection may hold: its buffers, an unfinished head, unsent answers.
    pub each: usize,
    /// Bytes that all together may hold.
    pub all: usize,
}

/// Why a connection was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// No request came within the time for headers.
    NoRequest,
    /// A new connection needed its place, or its memory.
    Room,
    /// It held too much that its client did not read.
    Unread,
    /// Its client read nothing within the time for writes.
    Slow,
}

impl Ended {
    pub const ALL: [Self; 4] = [Self::NoRequest, Self::Room, Self::Unread, Self::Slow];

    /// The value of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoRequest => "no_request",
            Self::Room => "room",
            Self::Unread => "unread",
            Self::Slow => "slow",
        }
    }
}

/// The connections of one listener.
pub struct Places {
    bounds: Bounds,
    /// Zero of the times that connections note.
    epoch: Instant,
    state: Mutex<State>,
    /// A connection's task ended.
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// The next id of a connection, and the next number in the order of waiting.
    next: u64,
    /// Tasks of connections of each class, those included that were told to end.
    tasks: [usize; 2],
    /// Connections of each class that were not told to end.
    open_of: [usize; 2],
    open: HashMap<u64, Entry>,
    /// Connections of each class without a request, the longest first.
    idle: [BTreeSet<(u64, u64)>; 2],
    /// Connections whose client takes no bytes, the longest first.
    blocked: BTreeSet<(u64, u64)>,
    /// Connections with much that is unsent.
    large: BTreeSet<u64>,
    /// Bytes that all hold.
    held: usize,
}

struct Entry {
    class: usize,
    place: Arc<Shared>,
    /// Its number among those that wait (`idle` or `blocked`).
    idle: u64,
    blocked: Option<u64>,
    requests: usize,
    /// Buffers and an unfinished head.
    buffers: usize,
    /// Answers that were not sent.
    unsent: usize,
    end: Option<oneshot::Sender<Ended>>,
}

/// The figures that a connection notes without a lock. Times are milliseconds since the listener's start, and
/// 0 for none.
#[derive(Debug, Default)]
struct Shared {
    requests: AtomicUsize,
    served: AtomicU64,
    blocked_at: AtomicU64,
    progress_at: AtomicU64,
    unsent: AtomicUsize,
}

/// The place of one connection, held by whatever keeps memory for it.
pub struct Place {
    places: Arc<Places>,
    shared: Arc<Shared>,
    id: u64,
    opened: Instant,
    class: usize,
}

impl Places {
    #[must_use]
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let (state, freed) = (Mutex::default(), Notify::new());
        Arc::new(Self { bounds, epoch: Instant::now(), state, freed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the start, 1 at least.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.state().open.len()
    }

    /// Takes a place for a new connection. At the bound the connection that has had no request for longest ends for it; if each
    /// has one, the new connection gets one of the places that are kept for health routes. The receiver gets a message when the
    /// connection has to end. `None`: there is no place at all.
    pub async fn take(self: &Arc<Self>) -> Option<(Arc<Place>, oneshot::Receiver<Ended>)> {
        for class in [COMMON, HEALTH] {
            for _ in 0..ROUNDS {
                let freed = self.freed.notified();
                {
                    let mut state = self.state();
                    if state.tasks[class] < self.most(class) {
                        return Some(self.add(state, class));
                    }
                    // Connections that were told already are on their way.
                    let ending = state.tasks[class] > state.open_of[class];
                    if !ending && !state.end_oldest_idle(class) {
                        break;
                    }
                }
                let _ = tokio::time::timeout(ENDING, freed).await;
            }
        }
        None
    }

    const fn most(&self, class: usize) -> usize {
        if class == COMMON { self.bounds.connections } else { KEPT }
    }

    fn add(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        class: usize,
    ) -> (Arc<Place>, oneshot::Receiver<Ended>) {
        let id = state.next;
        state.next += 1;
        state.tasks[class] += 1;
        state.open_of[class] += 1;
        let shared = Arc::<Shared>::default();
        let (end, ended) = oneshot::channel();
        let entry = Entry {
            class,
            place: Arc::clone(&shared),
            idle: id,
            blocked: None,
            requests: 0,
            buffers: 0,
            unsent: 0,
            end: Some(end),
        };
        state.open.insert(id, entry);
        state.idle[class].insert((id, id));
        drop(state);
        let opened = Instant::now();
        (Arc::new(Place { places: Arc::clone(self), shared, id, opened, class }), ended)
    }

    /// Ends the connection that has had no request for longest: the operating system gave no descriptor. False
    /// where each has a request.
    pub async fn give_way(&self) -> bool {
        let freed = self.freed.notified();
        if !self.state().end_oldest_idle(COMMON) {
            return false;
        }
        let _ = tokio::time::timeout(ENDING, freed).await;
        true
    }
}

impl State {
    fn end(&mut self, id: u64, why: Ended) {
        let Some(mut entry) = self.open.remove(&id) else { return };
        self.open_of[entry.class] -= 1;
        self.idle[entry.class].remove(&(entry.idle, id));
        if let Some(order) = entry.blocked {
            self.blocked.remove(&(order, id));
        }
        self.large.remove(&id);
        // Its memory goes with its task, which is told now.
        self.held = self.held.saturating_sub(entry.buffers + entry.unsent);
        if let Some(end) = entry.end.take() {
            let _ = end.send(why);
        }
    }

    /// False where each has a request.
    fn end_oldest_idle(&mut self, class: usize) -> bool {
        let Some((_, id)) = self.idle[class].first().copied() else { return false };
        self.end(id, Ended::Room);
        true
    }

    /// Ends connections until all together hold no more than `most`. The one that asks is spared where it
    /// alone is left.
    fn make_room(&mut self, most: usize, asking: u64) {
        while self.held > most {
            let progress = |id: &u64| {
                self.open.get(id).map_or(0, |one| one.place.progress_at.load(Ordering::Relaxed))
            };
            let unread = self.large.iter().copied().filter(|id| *id != asking).min_by_key(progress);
            let oldest =
                |set: &BTreeSet<(u64, u64)>| set.iter().map(|(_, id)| *id).find(|id| *id != asking);
            if let Some(id) = unread {
                self.end(id, Ended::Unread);
            } else if let Some(id) = oldest(&self.idle[COMMON]) {
                self.end(id, Ended::Room);
            } else if let Some(id) = oldest(&self.blocked) {
                self.end(id, Ended::Unread);
            } else {
                return;
            }
        }
    }
}

impl Place {
    /// Whether it serves health routes alone.
    #[must_use]
    pub const fn kept(&self) -> bool {
        self.class == HEALTH
    }

    /// Whether its client left so much unread that no more answers are made for it.
    #[must_use]
    pub fn crowded(&self) -> bool {
        self.shared.unsent.load(Ordering::Relaxed) > self.places.bounds.each / 2
    }

    /// Whether a request is under way.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.shared.requests.load(Ordering::Relaxed) > 0
    }

    /// How many requests there were.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Notes a request.
    pub fn begin(&self) {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.served.fetch_add(1, Ordering::Relaxed);
        let mut state = self.places.state();
        let state = &mut *state;
        if let Some(entry) = state.open.get_mut(&self.id) {
            entry.requests += 1;
            state.idle[entry.class].remove(&(entry.idle, self.id));
        }
    }

    /// Notes that a request's answer was sent, or will never be, and gives back what [`Place::hold`] added for it.
    pub fn finish(&self, bytes: usize) {
        self.shared.requests.fetch_sub(1, Ordering::Relaxed);
        self.shared.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.progress();
        let mut state = self.places.state();
        let state = &mut *state;
        if let Some(entry) = state.open.get_mut(&self.id) {
            entry.unsent = entry.unsent.saturating_sub(bytes);
            state.held = state.held.saturating_sub(bytes);
            if entry.unsent < LARGE {
                state.large.remove(&self.id);
            }
            entry.requests = entry.requests.saturating_sub(1);
            if entry.requests == 0 {
                entry.idle = state.next;
                state.next += 1;
                state.idle[entry.class].insert((entry.idle, self.id));
            }
        }
    }

    /// Sets the bytes of its buffers and of an unfinished head.
    pub fn buffers(&self, bytes: usize) {
        let mut state = self.places.state();
        let state = &mut *state;
        if let Some(entry) = state.open.get_mut(&self.id) {
            state.held = (state.held + bytes).saturating_sub(entry.buffers);
            entry.buffers = bytes;
            state.make_room(self.places.bounds.all, self.id);
        }
    }

    /// Adds an answer of so many bytes; ends connections where that is too much.
    pub fn hold(&self, bytes: usize) {
        if self.shared.unsent.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.progress();
        }
        let mut state = self.places.state();
        let state = &mut *state;
        if let Some(entry) = state.open.get_mut(&self.id) {
            let others = entry.unsent > 0;
            entry.unsent += bytes;
            state.held += bytes;
            if entry.unsent >= LARGE {
                state.large.insert(self.id);
            }
            // An answer that is alone is given, however large it is.
            if others && entry.unsent > self.places.bounds.each {
                state.end(self.id, Ended::Unread);
            }
            state.make_room(self.places.bounds.all, self.id);
        }
    }

    /// Notes that a part of an answer was taken.
    pub fn progress(&self) {
        self.shared.progress_at.store(self.places.now(), Ordering::Relaxed);
    }

    /// Notes whether the client takes bytes.
    pub fn blocked(&self, blocked: bool) {
        let at = if blocked { self.places.now() } else { 0 };
        let before = self.shared.blocked_at.load(Ordering::Relaxed);
        if (before == 0) != blocked {
            return;
        }
        self.shared.blocked_at.store(at, Ordering::Relaxed);
        let mut state = self.places.state();
        let state = &mut *state;
        let Some(entry) = state.open.get_mut(&self.id) else { return };
        if blocked {
            entry.blocked = Some(state.next);
            state.blocked.insert((state.next, self.id));
            state.next += 1;
        } else if let Some(order) = entry.blocked.take() {
            state.blocked.remove(&(order, self.id));
        }
    }

    /// Returns when the connection's time is over: no request came within `headers` of its beginning, or its
    /// client took nothing for `writes`.
    pub async fn overdue(&self, headers: Duration, writes: Duration) -> Ended {
        loop {
            let now = Instant::now();
            // A write that becomes due after this moment is due `writes` later at the earliest.
            let mut wake = now + writes;
            if self.shared.served.load(Ordering::Relaxed) == 0 {
                let due = self.opened + headers;
                if due <= now {
                    return Ended::NoRequest;
                }
                wake = wake.min(due);
            }
            let blocked = self.shared.blocked_at.load(Ordering::Relaxed);
            if blocked > 0 {
                let due = self.places.epoch + Duration::from_millis(blocked) + writes;
                if due <= now {
                    return Ended::Slow;
                }
                wake = wake.min(due);
            }
            tokio::time::sleep_until(wake).await;
        }
    }
}

/// The task of a connection; its end frees the place.
pub struct Task(pub Arc<Place>);

impl Drop for Task {
    fn drop(&mut self) {
        let Place { places, id, class, .. } = &*self.0;
        let mut state = places.state();
        // Told or not: nothing of it is counted any more.
        state.end(*id, Ended::Room);
        state.tasks[*class] -= 1;
        drop(state);
        places.freed.notify_waiters();
    }
}
