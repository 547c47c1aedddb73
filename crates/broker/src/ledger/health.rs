//! Whether the store takes writes, as readiness and the metric tell it: by the outcome of the last batch, and by a
//! probe where no batch succeeded of late.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use handoffd_domain::ids::Micros;
use handoffd_store::store::{Store, StoreError};

/// Age up to which a successful write speaks for the store.
const FRESH: Duration = Duration::from_secs(15);

/// How long a failed batch counts, whatever a probe says: a probe is small and touches few tables, and what the next
/// batch meets is more.
const HOLD: Duration = Duration::from_secs(5);

/// Least time between two probes: anyone may ask whether the broker is ready.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for a probe: behind a stuck writer it would wait as long as that one.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The outcome of the last writes.
#[derive(Default)]
pub struct WriteHealth {
    seen: Mutex<Seen>,
    /// Held by who probes; the time of the last probe.
    probed: AsyncMutex<Option<Instant>>,
}

#[derive(Default)]
struct Seen {
    written: Option<Instant>,
    failed: Option<Failed>,
}

struct Failed {
    at: Instant,
    why: StoreError,
}

impl WriteHealth {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was committed.
    pub(super) fn succeeded(&self) {
        let mut seen = self.seen();
        seen.written = Some(Instant::now());
        if seen.failed.take().is_some() {
            drop(seen);
            tracing::info!("the store takes writes again");
        }
    }

    /// The store did not take a batch, for no fault of its senders.
    pub(super) fn failed(&self, why: &StoreError) {
        let first = {
            let mut seen = self.seen();
            let first = seen.failed.is_none();
            seen.failed = Some(Failed { at: Instant::now(), why: why.clone() });
            first
        };
        if first {
            tracing::error!(error = %why, "the store takes no writes: this broker is not ready");
        }
    }

    /// The known state, without a question to the store; `None` if the store has to be asked.
    fn known(&self) -> Option<Result<(), StoreError>> {
        let seen = self.seen();
        match &seen.failed {
            Some(failed) if failed.at.elapsed() < HOLD => Some(Err(failed.why.clone())),
            Some(_) => None,
            None => seen.written.is_some_and(|at| at.elapsed() < FRESH).then_some(Ok(())),
        }
    }

    /// Whether the store takes writes. Probes it where the last successful write is older than 15 seconds, or the last
    /// batch failed more than five ago.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn check(&self, store: &Store, broker: &str, now: Micros) -> Result<(), StoreError> {
        if let Some(known) = self.known() {
            return known;
        }
        let mut probed = self.probed.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        let last = self.seen().failed.as_ref().map(|failed| failed.why.clone());
        if let Some(why) = last
            && probed.is_some_and(|at| at.elapsed() < PROBE_EVERY)
        {
            return Err(why);
        }
        let answer = tokio::time::timeout(PROBE_TIMEOUT, store.probe_write(broker, now)).await;
        *probed = Some(Instant::now());
        let answer = answer.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("a write did not end within five seconds".to_owned()))
        });
        match &answer {
            Ok(()) => self.succeeded(),
            Err(why) => self.probe_failed(why),
        }
        answer
    }

    /// As [`WriteHealth::failed`], without the time that only a batch's failure holds.
    fn probe_failed(&self, why: &StoreError) {
        self.failed(why);
        if let Some(failed) = &mut self.seen().failed {
            failed.at = failed.at.checked_sub(HOLD).unwrap_or(failed.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_store::store::Result;
    use handoffd_store::store::memory::{MemoryStore, StoreLine};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// A line that counts probes, and cuts them on demand.
    #[derive(Default)]
    struct Line {
        cut: AtomicBool,
        probes: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl StoreLine for Line {
        async fn asked(&self, what: &'static str) -> Result<()> {
            if what == "probe_write" {
                self.probes.fetch_add(1, Ordering::Relaxed);
            }
            if self.cut.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable("cut".to_owned()));
            }
            Ok(())
        }
    }

    struct Bench {
        health: WriteHealth,
        line: Arc<Line>,
        store: Store,
    }

    impl Bench {
        fn new() -> Self {
            let line = Arc::new(Line::default());
            let store = MemoryStore::default().over(Arc::clone(&line) as Arc<dyn StoreLine>).into();
            Self { health: WriteHealth::default(), line, store }
        }

        async fn ready(&self) -> bool {
            self.health.check(&self.store, "b", Micros(1)).await.is_ok()
        }

        fn probes(&self) -> usize {
            self.line.probes.load(Ordering::Relaxed)
        }
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_write_needs_no_probe_and_an_old_one_does() {
        let bench = Bench::new();
        assert!(bench.ready().await);
        assert_eq!(bench.probes(), 1, "nothing was written yet");
        assert!(bench.ready().await);
        assert_eq!(bench.probes(), 1);
        pass(FRESH).await;
        bench.health.succeeded();
        assert!(bench.ready().await);
        assert_eq!(bench.probes(), 1, "a batch speaks for the store");
        pass(FRESH).await;
        assert!(bench.ready().await);
        assert_eq!(bench.probes(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_batch_counts_until_one_succeeds_or_a_later_probe_does() {
        let bench = Bench::new();
        bench.health.succeeded();
        let why = StoreError::Denied("SQLSTATE 42501".to_owned());
        bench.health.failed(&why);
        assert!(!bench.ready().await);
        assert_eq!(bench.probes(), 0, "a probe could pass where a batch does not");
        pass(HOLD).await;
        assert!(bench.ready().await);
        bench.health.failed(&why);
        assert!(!bench.ready().await);
        bench.health.succeeded();
        assert!(bench.ready().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_takes_no_probe_is_asked_once_a_second() {
        let bench = Bench::new();
        bench.line.cut.store(true, Ordering::Relaxed);
        for _ in 0..5 {
            assert!(!bench.ready().await);
        }
        assert_eq!(bench.probes(), 1);
        pass(PROBE_EVERY).await;
        bench.line.cut.store(false, Ordering::Relaxed);
        assert!(bench.ready().await);
        assert_eq!(bench.probes(), 2);
    }
}
