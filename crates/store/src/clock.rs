//! Time and randomness: the only place that asks the machine for either. Everything else is handed
//! them, so that decisions can be repeated and tests can step time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use handoffd_domain::ids::Micros;

/// Source of the present time.
pub trait Clock: Send + Sync {
    /// Now, in microseconds since the Unix epoch. Does not jump while the process runs.
    fn now(&self) -> Micros;

    /// The machine clock's present time, which may jump: for times that others compare with theirs (a signature's
    /// timestamp).
    fn wall(&self) -> Micros {
        self.now()
    }

    /// The time at which a deadline at `by` ends work: later if it passed while no one could meet it, and never
    /// ([`Micros`] of `i64::MAX`) while this clock cannot be trusted.
    fn judged(&self, by: Micros) -> Micros {
        by
    }

    /// From now on this process can meet deadlines again: those that passed until now get the grace.
    fn resumed(&self) {}

    /// Whether the clocks of the other brokers agree with this one; ends no work until they do.
    fn trust(&self, _agrees: bool) {}
}

/// The two times of a machine, in microseconds.
pub trait TimeSource: Send + Sync {
    /// Since the Unix epoch, as the machine's clock says. It can be set.
    fn wall(&self) -> i64;
    /// Since some moment in the past. It cannot be set.
    fn monotonic(&self) -> i64;
}

/// This machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct Machine;

impl TimeSource for Machine {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn wall(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// With the time that the machine slept: a sleep is time that passed, and no jump.
    #[cfg(target_os = "linux")]
    fn monotonic(&self) -> i64 {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        at.tv_sec.saturating_mul(1_000_000).saturating_add(at.tv_nsec / 1_000)
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn monotonic(&self) -> i64 {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        i64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// A machine's clock as it was when the process started, and from there on by monotonic time: setting the clock
/// moves no deadline, lease or pause, and freezes no record's time. A later start takes the clock as it is then.
pub struct SystemClock {
    source: Box<dyn TimeSource>,
    /// The amount that is added to monotonic time.
    ahead: i64,
    grace: i64,
    /// Deadlines up to here passed while no one could meet them.
    resumed: AtomicI64,
    trusted: AtomicBool,
}

impl std::fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemClock").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::over(Machine, Duration::ZERO)
    }
}

impl SystemClock {
    /// A clock over these times. Deadlines that passed before get `grace` from now on.
    #[must_use]
    pub fn over(source: impl TimeSource + 'static, grace: Duration) -> Self {
        let (wall, monotonic) = (source.wall(), source.monotonic());
        Self {
            source: Box::new(source),
            ahead: wall.saturating_sub(monotonic),
            grace: i64::try_from(grace.as_micros()).unwrap_or(i64::MAX),
            resumed: AtomicI64::new(wall),
            trusted: AtomicBool::new(true),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        Micros(self.source.monotonic().saturating_add(self.ahead))
    }

    fn wall(&self) -> Micros {
        Micros(self.source.wall())
    }

    fn judged(&self, by: Micros) -> Micros {
        if !self.trusted.load(Ordering::Relaxed) {
            return Micros(i64::MAX);
        }
        let resumed = self.resumed.load(Ordering::Relaxed);
        if by.0 <= resumed { Micros(by.0.max(resumed.saturating_add(self.grace))) } else { by }
    }

    fn resumed(&self) {
        self.resumed.fetch_max(self.now().0, Ordering::Relaxed);
    }

    fn trust(&self, agrees: bool) {
        self.trusted.store(agrees, Ordering::Relaxed);
    }
}

/// A clock that a test moves by hand.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock whose time is `at`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Times that a test sets.
    #[derive(Default, Clone)]
    struct Set(Arc<(AtomicI64, AtomicI64)>);

    impl TimeSource for Set {
        fn wall(&self) -> i64 {
            self.0.0.load(Ordering::Relaxed)
        }

        fn monotonic(&self) -> i64 {
            self.0.1.load(Ordering::Relaxed)
        }
    }

    impl Set {
        fn at(wall: i64) -> Self {
            let set = Self::default();
            set.step(wall);
            set
        }

        fn pass(&self, by: i64) {
            self.0.0.fetch_add(by, Ordering::Relaxed);
            self.0.1.fetch_add(by, Ordering::Relaxed);
        }

        fn step(&self, by: i64) {
            self.0.0.fetch_add(by, Ordering::Relaxed);
        }
    }

    const HOUR: i64 = 3_600_000_000;

    proptest! {
        /// Finding O3 of 0.3.0: however often the machine's clock is set, time within the process is what passed.
        #[test]
        fn a_set_clock_moves_no_time_within_a_process(
            moves in proptest::collection::vec((0..HOUR, -48 * HOUR..48 * HOUR), 1..20),
        ) {
            let set = Set::at(1_000 * HOUR);
            let clock = SystemClock::over(set.clone(), Duration::ZERO);
            let (mut expected, mut stepped) = (1_000 * HOUR, 0);
            for (pass, step) in moves {
                set.pass(pass);
                set.step(step);
                (expected, stepped) = (expected + pass, stepped + step);
                prop_assert_eq!(clock.now().0, expected);
                prop_assert_eq!(clock.wall().0, expected + stepped);
                prop_assert_eq!(clock.judged(Micros(expected + 1)).0, expected + 1);
            }
        }
    }

    #[test]
    fn what_passed_before_a_start_gets_the_grace_and_what_comes_later_does_not() {
        let set = Set::at(10 * HOUR);
        let clock = SystemClock::over(set.clone(), Duration::from_secs(30));
        let grace = Micros(10 * HOUR + 30_000_000);
        assert_eq!(clock.judged(Micros(9 * HOUR)), grace);
        assert_eq!(clock.judged(Micros(10 * HOUR)), grace);
        assert_eq!(clock.judged(Micros(10 * HOUR + 1)), Micros(10 * HOUR + 1));
        set.pass(HOUR);
        clock.resumed();
        assert_eq!(clock.judged(Micros(10 * HOUR + 1)), Micros(11 * HOUR + 30_000_000));
    }

    #[test]
    fn a_clock_that_the_others_do_not_agree_with_ends_nothing() {
        let clock = SystemClock::over(Set::at(HOUR), Duration::ZERO);
        clock.trust(false);
        assert_eq!(clock.judged(Micros(1)), Micros(i64::MAX));
        clock.trust(true);
        assert_eq!(clock.judged(Micros(1)), Micros(HOUR));
    }

    #[test]
    fn the_machines_clock_advances() {
        let clock = SystemClock::default();
        let (before, wall) = (clock.now(), clock.wall());
        assert!(wall.since(before) < Duration::from_secs(5) && before.0 > 1_700_000_000_000_000);
        assert!(clock.now() >= before);
    }
}
