//! Detects dead brokers: brokers that share a store write heartbeats, and a broker whose heartbeat stops loses its
//! webhook claims to the others.
//!
//! A heartbeat is a value that changes, and no code compares it with a clock. A broker is silent when its
//! value has stayed the same for the whole timeout by the reader's own monotonic
//! clock, so it does not matter how far the machines' clocks are apart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ledger::Outbound;
use crate::metrics::Metrics;
use handoffd_domain::ids::Micros;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{ClaimRelease, Result, Store};

/// How often a broker writes its heartbeat, and reads the others', in one timeout.
const BEATS: u32 = 5;
/// Reads of heartbeats between two searches for claims of brokers without a heartbeat. A search reads the
/// whole outbox. Such claims exist only if a broker was taken for dead, woke, claimed, and died
/// before its next heartbeat.
const STRANGERS_EVERY: u32 = 30;

/// How far this broker's clock may be from the others', in microseconds. Beyond that, this broker ends no work at a deadline.
const MOST_APART_US: u64 = 2_000_000;

/// Microseconds by which a broker's clock is ahead of the others' median; 0 without other brokers, or if its own offset is
/// unknown.
fn ahead_of_others(broker: &str, offsets: &[(String, i64)]) -> i64 {
    let Some((_, own)) = offsets.iter().find(|(name, _)| name == broker) else { return 0 };
    let mut others: Vec<i64> =
        offsets.iter().filter(|(name, _)| name != broker).map(|(_, offset)| *offset).collect();
    others.sort_unstable();
    let (low, high) = match others.len() {
        0 => return 0,
        many => (others[(many - 1) / 2], others[many / 2]),
    };
    own.saturating_sub(low.midpoint(high))
}

fn warn_of_clocks(agrees: bool) {
    if agrees {
        tracing::info!("this broker's clock agrees with the others' again");
    } else {
        tracing::error!(
            "this broker's clock differs from the other brokers' by more than 2 s: it ends no work until they agree; set the \
             clocks (NTP) and restart the broker whose clock was wrong"
        );
    }
}

/// A broker's heartbeat as read; `None` if the broker has claims but no heartbeat.
type Heartbeat = (String, Option<Micros>);

/// Writes this broker's heartbeat, independently of slow work: other brokers release its claims when the heartbeat
/// stops.
pub async fn beat(
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    broker: String,
    timeout: Duration,
    stopping: CancellationToken,
) {
    loop {
        match tokio::time::timeout(timeout, store.beat(&broker, clock.now())).await {
            Ok(Ok(())) => {}
            Ok(Err(err)) => {
                tracing::warn!(error = %err, "this broker could not say that it lives");
            }
            Err(_) => tracing::warn!("this broker could not say that it lives: no answer"),
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(timeout / BEATS) => {}
        }
    }
}

/// The observed heartbeats of other brokers.
struct HeartbeatHistory {
    timeout: Duration,
    /// The value, and the time since which it has not changed.
    beats: HashMap<String, (Option<Micros>, Instant)>,
    last: Option<Instant>,
}

impl HeartbeatHistory {
    fn new(timeout: Duration) -> Self {
        Self { timeout, beats: HashMap::new(), last: None }
    }

    /// Takes the heartbeats that were read between `asked` and `answered`; returns the brokers that have been silent
    /// for too long.
    ///
    /// If this broker itself did not read for a while (the store was away, the process did not
    /// run), the others may not have been able to write a heartbeat either, so their silence begins
    /// anew.
    fn judge(
        &mut self,
        beats: Vec<Heartbeat>,
        asked: Instant,
        answered: Instant,
    ) -> Vec<Heartbeat> {
        if self.last.is_some_and(|last| asked.duration_since(last) > self.timeout / 2) {
            self.beats.clear();
        }
        self.last = Some(answered);
        let known = std::mem::take(&mut self.beats);
        let mut silent = Vec::new();
        for (broker, value) in beats {
            let since = match known.get(&broker) {
                Some((before, since)) if *before == value => *since,
                _ => answered,
            };
            if asked.saturating_duration_since(since) >= self.timeout {
                silent.push((broker.clone(), value));
            }
            self.beats.insert(broker, (value, since));
        }
        silent
    }
}

/// The task that observes other brokers and releases the claims of silent ones.
pub struct BrokerMonitor {
    /// Store of heartbeats and claims.
    pub store: Arc<Store>,
    /// Learns whether the others' clocks agree with it.
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// This broker's name.
    pub broker: String,
    /// Delivers the released handoffs.
    pub outbound: Arc<dyn Outbound>,
    /// Longest allowed silence of a broker.
    pub timeout: Duration,
    /// Token that ends the task.
    pub stopping: CancellationToken,
}

impl BrokerMonitor {
    /// Observes until the broker stops.
    pub async fn run(self) {
        let mut heard = HeartbeatHistory::new(self.timeout);
        // The broker looks for brokers without a heartbeat rarely, so it counts their silence separately.
        let mut strangers = HeartbeatHistory::new(self.timeout * STRANGERS_EVERY);
        let mut look = 0;
        let mut agrees = true;
        loop {
            match self.compare_clocks().await {
                Ok(found) => {
                    if found != agrees {
                        warn_of_clocks(found);
                    }
                    agrees = found;
                }
                Err(err) => tracing::warn!(error = %err, "other brokers' clocks cannot be read"),
            }
            if let Err(err) = self.look(&mut heard, false).await {
                tracing::warn!(error = %err, "other brokers' heartbeats cannot be read");
            }
            if look % STRANGERS_EVERY == 0
                && let Err(err) = self.look(&mut strangers, true).await
            {
                tracing::warn!(error = %err, "claims without a broker cannot be read");
            }
            look = look.wrapping_add(1);
            let pause = (self.timeout / BEATS).mul_f64(0.75 + clock::random_fraction() / 2.0);
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Compares this broker's clock with the others', each by its offset from the database's clock; returns whether they agree.
    async fn compare_clocks(&self) -> Result<bool> {
        let offsets = self.store.list_clock_offsets().await?;
        let ahead = ahead_of_others(&self.broker, &offsets);
        self.metrics.clock_ahead.with_label_values(&["brokers"]).set(ahead as f64 / 1e6);
        let agrees = ahead.unsigned_abs() <= MOST_APART_US;
        self.clock.trust(agrees);
        Ok(agrees)
    }

    async fn look(&self, heard: &mut HeartbeatHistory, strangers: bool) -> Result<()> {
        let asked = Instant::now();
        let beats = if strangers {
            let found = self.store.list_strangers().await?;
            found.into_iter().map(|broker| (broker, None)).collect()
        } else {
            let found = self.store.list_heartbeats().await?;
            found.into_iter().map(|(broker, value)| (broker, Some(value))).collect()
        };
        for (broker, value) in heard.judge(beats, asked, Instant::now()) {
            let claims = self.store.release(ClaimRelease::Silent(&broker, value)).await?;
            if claims > 0 {
                fault::at(Step::TakeoverFreed);
                tracing::warn!(claims, silent = broker, "took over a silent broker's claims");
                self.outbound.nudge_all();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn beats(beats: &[(&str, i64)]) -> Vec<Heartbeat> {
        beats.iter().map(|(broker, at)| ((*broker).to_owned(), Some(Micros(*at)))).collect()
    }

    fn names(silent: &[Heartbeat]) -> Vec<&str> {
        silent.iter().map(|(broker, _)| broker.as_str()).collect()
    }

    #[test]
    fn silence_is_counted_by_the_listeners_own_clock_and_nobody_elses() {
        let mut heard = HeartbeatHistory::new(TIMEOUT);
        let start = Instant::now();
        // One value is far in the past, one far in the future; only a change counts.
        let (mut past, future) = (7, i64::MAX);
        for second in 0..20 {
            let at = start + Duration::from_secs(second);
            past += 1;
            let silent = heard.judge(beats(&[("past", past), ("future", future)]), at, at);
            let expected: &[&str] = if second < 5 { &[] } else { &["future"] };
            assert_eq!(names(&silent), expected, "after {second} s");
        }
    }

    #[test]
    fn who_speaks_again_is_alive() {
        let mut heard = HeartbeatHistory::new(TIMEOUT);
        let start = Instant::now();
        for (second, value, silent) in
            [(0, 1, 0), (2, 1, 0), (4, 1, 0), (5, 2, 0), (7, 2, 0), (9, 2, 0), (10, 2, 1)]
        {
            let at = start + Duration::from_secs(second);
            assert_eq!(heard.judge(beats(&[("b", value)]), at, at).len(), silent, "{second}");
        }
    }

    #[test]
    fn who_could_not_listen_judges_nobody() {
        let mut heard = HeartbeatHistory::new(TIMEOUT);
        let start = Instant::now();
        assert!(heard.judge(beats(&[("b", 1)]), start, start).is_empty());
        let later = start + Duration::from_mins(1);
        assert!(heard.judge(beats(&[("b", 1)]), later, later).is_empty(), "the store was away");
        for second in 1..5 {
            let at = later + Duration::from_secs(second);
            assert!(heard.judge(beats(&[("b", 1)]), at, at).is_empty());
        }
        let at = later + TIMEOUT;
        assert_eq!(names(&heard.judge(beats(&[("b", 1)]), at, at)), ["b"]);
    }

    #[test]
    fn a_slow_answer_counts_for_the_one_who_is_asked_about() {
        let mut heard = HeartbeatHistory::new(TIMEOUT);
        let start = Instant::now();
        let answered = start + Duration::from_secs(2);
        heard.judge(beats(&[("b", 1)]), start, answered);
        for asked in [4, 6] {
            let at = start + Duration::from_secs(asked);
            assert!(heard.judge(beats(&[("b", 1)]), at, at).is_empty(), "at {asked} s");
        }
    }

    #[test]
    fn a_clock_is_compared_with_the_median_of_the_others() {
        let of = |offsets: &[(&str, i64)]| -> Vec<(String, i64)> {
            offsets.iter().map(|(name, offset)| ((*name).to_owned(), *offset)).collect()
        };
        assert_eq!(ahead_of_others("a", &of(&[("a", 5)])), 0, "alone");
        assert_eq!(ahead_of_others("a", &of(&[("b", 5), ("c", 9)])), 0, "not known yet");
        assert_eq!(ahead_of_others("a", &of(&[("a", 5), ("b", 3_000_000)])), -2_999_995);
        // The median identifies the one wrong clock.
        let three = of(&[("a", 0), ("b", 3_600_000_000), ("c", 10)]);
        assert_eq!(ahead_of_others("b", &three), 3_599_999_995);
        let four = of(&[("a", 0), ("b", 3_600_000_000), ("c", 10), ("d", -10)]);
        assert_eq!(ahead_of_others("a", &four), -10);
        assert_eq!(ahead_of_others("b", &four), 3_600_000_000);
    }

    proptest! {
        /// The values do not matter: a broker whose value changes is never silent, and one whose value
        /// stays the same is silent after the whole timeout.
        #[test]
        fn only_silence_counts(skews in proptest::collection::vec(any::<i64>(), 1..5), dead in 0_usize..5) {
            let mut heard = HeartbeatHistory::new(TIMEOUT);
            let start = Instant::now();
            for second in 0..12_i64 {
                let at = start + Duration::from_secs(second.unsigned_abs());
                let read = skews.iter().enumerate().map(|(n, skew)| {
                    let moved = if n == dead { 0 } else { second };
                    (format!("b{n}"), Some(Micros(skew.wrapping_add(moved))))
                });
                let silent = heard.judge(read.collect(), at, at);
                let expected = usize::from(dead < skews.len() && second >= 5);
                prop_assert_eq!(silent.len(), expected);
                let name = format!("b{dead}");
                prop_assert!(silent.iter().all(|(silent, _)| *silent == name));
            }
        }
    }
}
