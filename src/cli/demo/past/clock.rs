//! A clock that lies behind the machine's, and is set forward by hand until both agree.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use handoffd_domain::ids::Micros;
use handoffd_store::clock::{Clock, SystemClock};

/// Time passes on it as on the machine. It is never ahead of the machine, so that no record lies in the future.
pub(super) struct SteppedClock {
    machine: SystemClock,
    /// Microseconds behind the machine.
    behind: AtomicI64,
}

impl SteppedClock {
    /// A clock that is so much behind the machine's.
    pub(super) fn behind(by: Duration) -> Self {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        Self { machine: SystemClock::default(), behind: AtomicI64::new(by) }
    }

    /// Sets the clock forward to `at`. It never goes back.
    pub(super) fn step_to(&self, at: Micros) {
        let behind = self.machine.now().0.saturating_sub(at.0).max(0);
        self.behind.fetch_min(behind, Ordering::SeqCst);
    }

    /// Sets the clock forward by so many seconds.
    pub(super) fn pass(&self, seconds: u64) {
        self.step_to(self.now().plus(Duration::from_secs(seconds)));
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Micros {
        let behind = self.behind.load(Ordering::SeqCst);
        Micros(self.machine.now().0.saturating_sub(behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stepped_clock_goes_forward_and_never_beyond_the_machine() {
        let clock = SteppedClock::behind(Duration::from_hours(48));
        let begin = clock.now();
        assert!(clock.machine.now().since(begin) >= Duration::from_hours(47));
        clock.pass(3_600);
        let later = clock.now();
        assert!(later.since(begin) >= Duration::from_hours(1));
        clock.step_to(begin);
        assert!(clock.now() >= later);
        clock.pass(1_000_000);
        let at = clock.now();
        assert!(at <= clock.machine.now());
    }
}
