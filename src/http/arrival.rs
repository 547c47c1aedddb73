//! When a request arrived: the time at which its first byte was read. Latency is measured from there, so that a
//! body that comes slowly, the gate and the classifier count.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use handoffd_domain::ids::Micros;

/// The time at which a request's first byte was read.
#[derive(Debug, Clone, Copy)]
pub struct Arrival(Instant);

impl Arrival {
    /// The arrival of a request whose first byte is read now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The arrival of a request whose first byte was read then.
    pub(super) const fn at(first: Instant) -> Self {
        Self(first)
    }

    /// Converts the arrival to the broker's clock, which shows `now`.
    #[must_use]
    pub fn before(&self, now: Micros) -> Micros {
        let elapsed = i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX);
        Micros(now.0.saturating_sub(elapsed))
    }
}

/// The time at which a connection's first byte since its last answer was read.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstByte(Arc<Mutex<Option<Instant>>>);

impl FirstByte {
    pub(super) fn note(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    pub(super) fn take(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f4_1_a_request_arrived_before_its_head_was_whole() {
        let first = FirstByte::default();
        first.note();
        tokio::time::advance(Duration::from_millis(700)).await;
        first.note();
        let arrival = Arrival(first.take().unwrap());
        assert_eq!(arrival.before(Micros(1_000_000)), Micros(300_000));
        assert!(first.take().is_none());
    }
}
