//! The world of one schedule: store, faults, time, and trace.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::books::Books;
use super::broker::Broker;
use super::dice::{below, chance};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_store::clock::TimeSource;
use handoffd_store::store::Store;
use handoffd_store::store::memory::MemoryStore;

/// Start time of every schedule.
const EPOCH: Micros = Micros(1_700_000_000_000_000);

/// Fault rates in thousandths, drawn for each schedule; some are zero, so that not every schedule has every fault.
#[derive(Debug)]
pub(super) struct Weather {
    /// A request or its answer is lost between caller and broker.
    pub(super) call_lost: u64,
    /// The store is unreachable; no operation took place.
    pub(super) store_away: u64,
    /// The store operated, and its answer is lost.
    pub(super) store_lost: u64,
    /// A batch conflicts with a concurrent writer.
    pub(super) collides: u64,
    /// The store answers slowly.
    pub(super) store_slow: u64,
    /// The broker dies between an operation and its answer.
    pub(super) crash: u64,
    /// No connection to a receiver.
    pub(super) refused: u64,
    /// A request reaches its receiver, or does not, and no answer comes in time.
    pub(super) unanswered: u64,
    /// A request arrives twice.
    pub(super) twice: u64,
    /// Receivers reject, are busy, fail, or send no verdict.
    pub(super) unwilling: u64,
    /// A verdict carries a superseded token.
    pub(super) stale: u64,
    /// Largest difference between brokers' clocks, in milliseconds.
    pub(super) skew_ms: u64,
    /// A broker's clock is set by up to a day, forward or back, while it runs.
    pub(super) clock_set: u64,
}

impl Weather {
    fn drawn() -> Self {
        let up_to = |most: u64| if chance(400) { 0 } else { below(most) };
        Self {
            call_lost: up_to(150),
            store_away: up_to(100),
            store_lost: up_to(100),
            collides: up_to(200),
            store_slow: up_to(100),
            crash: up_to(12),
            refused: up_to(300),
            unanswered: up_to(300),
            twice: up_to(150),
            unwilling: up_to(700),
            stale: up_to(200),
            skew_ms: up_to(1_500),
            clock_set: up_to(800),
        }
    }
}

/// State shared by all participants of a schedule.
pub(super) struct World {
    /// The data, to be reached over a line.
    pub(super) tables: MemoryStore,
    /// The same without a line that fails.
    pub(super) store: Store,
    pub(super) weather: Weather,
    /// Number of ids drawn so far.
    pub(super) ids: AtomicU64,
    started: Instant,
    quiet: AtomicBool,
    books: Mutex<Books>,
    brokers: Mutex<Vec<Arc<Broker>>>,
    trace: Option<Mutex<String>>,
}

pub(super) fn tenant() -> TenantId {
    "t".parse().expect("a tenant's id")
}

pub(super) fn agent(name: &str) -> AgentId {
    name.parse().expect("an agent's id")
}

impl World {
    pub(super) fn new(traced: bool) -> Self {
        let tables = MemoryStore::default();
        Self {
            store: tables.sound().into(),
            tables,
            weather: Weather::drawn(),
            ids: AtomicU64::new(0),
            started: Instant::now(),
            quiet: AtomicBool::new(false),
            books: Mutex::default(),
            brokers: Mutex::default(),
            trace: traced.then(Mutex::default),
        }
    }

    /// Time since the schedule's start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The true time, without clock skew.
    pub(super) fn now(&self) -> Micros {
        EPOCH.plus(self.elapsed())
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all faults.
    pub(super) fn calm(&self) {
        self.quiet.store(true, Ordering::Relaxed);
        self.note(|| "calm: nothing goes wrong from here on".to_owned());
    }

    pub(super) fn is_calm(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Draws whether a fault occurs.
    pub(super) fn fails(&self, per_mille: u64) -> bool {
        !self.is_calm() && chance(per_mille)
    }

    /// The brokers in service.
    pub(super) fn brokers(&self) -> MutexGuard<'_, Vec<Arc<Broker>>> {
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A broker, dead or alive: callers cannot know.
    pub(super) fn any_broker(&self) -> Arc<Broker> {
        let brokers = self.brokers();
        Arc::clone(&brokers[below(brokers.len() as u64) as usize])
    }

    /// Adds a step to the trace, if one is written.
    pub(super) fn note(&self, step: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
            // Writing to a string does not fail.
            let _ = writeln!(trace, "{:>8.3} s  {}", self.elapsed().as_secs_f64(), step());
        }
    }

    /// The trace so far.
    pub(super) fn trace(&self) -> String {
        let trace = self.trace.as_ref();
        trace.map_or_else(String::new, |trace| {
            trace.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }
}

/// The times of a broker's machine: the schedule's, with the clock's own error, and set while the broker runs.
pub(super) struct SetTimes {
    pub(super) world: Arc<World>,
    pub(super) ahead: Duration,
    /// The time at which a person sets the clock, in the schedule's time, and by how many microseconds.
    pub(super) set: Option<(Micros, i64)>,
}

impl TimeSource for SetTimes {
    fn wall(&self) -> i64 {
        let now = self.world.now();
        let by = self.set.filter(|(at, _)| *at <= now).map_or(0, |(_, by)| by);
        now.plus(self.ahead).0 + by
    }

    fn monotonic(&self) -> i64 {
        i64::try_from(self.world.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}
