//! Time and randomness: the only place that asks the machine for either. Everything else is handed
//! them, so that decisions can be repeated and tests can step time.

use std::sync::atomic::{AtomicI64, Ordering};

use handoffd_core::domain::ids::Micros;

/// Source of the present time.
pub trait Clock: Send + Sync {
    /// Now, in microseconds since the Unix epoch.
    fn now(&self) -> Micros;
}

/// The machine's clock, which never steps back within one process.
#[derive(Debug, Default)]
pub struct SystemClock {
    last: AtomicI64,
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn now(&self) -> Micros {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        Micros(self.last.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

/// A clock that a test moves by hand.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `at`.
    #[must_use]
    pub const fn new(at: Micros) -> Self {
        Self(AtomicI64::new(at.0))
    }

    pub fn advance(&self, by: std::time::Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros(self.0.load(Ordering::Relaxed))
    }
}

/// Random bytes from the operating system's generator, seeded per thread.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is where randomness comes from")]
pub fn random<const N: usize>() -> [u8; N] {
    use rand::Rng;
    let mut bytes = [0; N];
    #[cfg(feature = "simulation")]
    if seeded::fill(&mut bytes) {
        return bytes;
    }
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

/// A random fraction in `[0, 1)`.
#[must_use]
pub fn random_fraction() -> f64 {
    (u64::from_be_bytes(random()) >> 11) as f64 / (1u64 << 53) as f64
}

/// A UUID of version 7: sorts by time.
#[must_use]
pub fn time_ordered_id(at: Micros) -> uuid::Uuid {
    let millis = u64::try_from(at.0 / 1_000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random()).into_uuid()
}

/// A UUID of version 4.
#[must_use]
pub fn random_id() -> uuid::Uuid {
    uuid::Builder::from_random_bytes(random()).into_uuid()
}

/// Under test a thread may draw its randomness from a seed, so that all it does can be repeated. Not
/// compiled into the product.
#[cfg(feature = "simulation")]
pub mod seeded {
    use std::cell::RefCell;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    thread_local! {
        static GENERATOR: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// While this value lives, the thread's randomness follows from the seed.
    #[derive(Debug)]
    pub struct Seeded(());

    impl Seeded {
        /// Starts with a seed.
        #[must_use]
        pub fn from(seed: u64) -> Self {
            GENERATOR.with_borrow_mut(|known| *known = Some(StdRng::seed_from_u64(seed)));
            Self(())
        }
    }

    impl Drop for Seeded {
        fn drop(&mut self) {
            GENERATOR.with_borrow_mut(|known| *known = None);
        }
    }

    /// Fills the bytes from the seed; `false` without a seed.
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        GENERATOR.with_borrow_mut(|known| {
            let Some(generator) = known else { return false };
            generator.fill_bytes(bytes);
            true
        })
    }
}
