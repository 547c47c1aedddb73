//! The sweeper: turns passed deadlines into commands.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::ledger::command::Call;
use crate::ledger::commands::{Expire, Resolve};
use crate::ledger::reply::LedgerError;
use crate::metrics::Metrics;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::Micros;
use handoffd_domain::receiver;
use handoffd_evidence::record::Actor;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{Store, StoreError};

/// Overdue handoffs read at once.
const BATCH: i64 = 256;

pub struct Sweeper {
    /// Store of deadlines and claims.
    pub store: Arc<Store>,
    pub ledger: Ledger,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Interval between sweeps.
    pub period: Duration,
    /// Longest time between two looks at the deadlines: after more the process, or its store, stood still, and what
    /// passed meanwhile gets the grace of a start.
    pub standstill: Duration,
    /// How long an open stream waits for its next chunk. No stream ends before the broker has run for that long: while none
    /// ran, no chunk could come.
    pub stream_idle: Duration,
    /// Ends the sweeper.
    pub stopping: CancellationToken,
}

impl Sweeper {
    /// Sweeps until the broker stops.
    pub async fn run(self) {
        let begun = tokio::time::Instant::now();
        let mut looked = self.clock.now();
        loop {
            if self.clock.now().since(looked) > self.standstill {
                tracing::warn!(
                    "deadlines could not be looked at for a while: those that passed meanwhile get the grace of a start"
                );
                self.clock.resumed();
            }
            if self.sweep(begun.elapsed() >= self.stream_idle).await {
                looked = self.clock.now();
            }
            let pause = self.period.mul_f64(0.75 + clock::random_fraction() / 2.0);
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Expires handoffs, or ends their streams, as far as they are still due.
    async fn expire(&self, now: Micros, overdue: Vec<Handoff>) {
        let found = !overdue.is_empty();
        if found {
            fault::at(Step::SweepFound);
        }
        let expiries = overdue.into_iter().map(async |handoff| {
            let Handoff { tenant, task_id, id: handoff_id, target, .. } = handoff;
            let call = Call { tenant, at: now, actor: Actor::broker() };
            let command = Expire { task_id, handoff_id };
            (self.ledger.handle(call, command).await, task_id, handoff_id, target)
        });
        for (outcome, task_id, handoff_id, agent_id) in
            futures_util::future::join_all(expiries).await
        {
            if let Err(err) = outcome {
                tracing::warn!(error = %err, %agent_id, %handoff_id, %task_id, "an overdue handoff could not be expired");
            }
        }
        if found {
            fault::at(Step::SweepDone);
        }
    }

    /// Whether a deadline has passed as the clock judges it.
    fn is_over(&self, now: Micros, by: Option<Micros>) -> bool {
        by.is_some_and(|by| self.clock.judged(by) <= now)
    }

    /// Ends what is due; returns whether the deadlines could be read.
    async fn sweep(&self, streams: bool) -> bool {
        let now = self.clock.now();
        let mut read = true;
        match self.store.list_overdue(now, BATCH).await {
            Ok(mut overdue) => {
                overdue.retain(|handoff| self.is_over(now, handoff.deadline_at));
                self.expire(now, overdue).await;
            }
            Err(err) => {
                read = false;
                tracing::warn!(error = %err, "deadlines could not be read");
            }
        }
        if streams {
            match self.store.list_idle_streams(now, BATCH).await {
                Ok(mut idle) => {
                    idle.retain(|handoff| {
                        self.is_over(now, handoff.stream.as_ref().and_then(|stream| stream.due_at))
                    });
                    self.expire(now, idle).await;
                }
                Err(err) => tracing::warn!(error = %err, "idle streams could not be read"),
            }
        }
        match self.store.list_overdue_escalations(now, BATCH).await {
            Ok(mut overdue) => {
                overdue.retain(|row| self.is_over(now, Some(row.timeout_at)));
                let decisions = overdue.into_iter().map(|row| {
                    self.ledger.handle(
                        Call { tenant: row.tenant, at: now, actor: Actor::broker() },
                        Resolve {
                            escalation_id: row.id,
                            task_id: row.task_id,
                            handoff_id: row.handoff_id,
                            agents: row.resume_as.into_iter().collect(),
                            edge: None,
                            resolution: None,
                            content: None,
                        },
                    )
                });
                for outcome in futures_util::future::join_all(decisions).await {
                    match outcome {
                        // Another broker, or a person, was first.
                        Ok(_) | Err(LedgerError::Conflict(_)) => {}
                        Err(err) => {
                            tracing::warn!(error = %err, "an overdue escalation could not be ended");
                        }
                    }
                }
            }
            Err(err) => tracing::warn!(error = %err, "escalations could not be read"),
        }
        read
    }
}

/// Interval between two looks at the machine's clock.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// The most that the machine's clock may move between two looks, in microseconds, before it counts as set: more than
/// a loaded machine takes between the reads of two clocks.
const CLOCK_STEP_US: i64 = 500_000;

/// Notices a change of the machine's clock, until the broker stops. Nothing moves by that: see
/// [`SystemClock`](handoffd_store::clock::SystemClock).
pub async fn watch_clock(
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
) {
    let ahead = || clock.wall().0.saturating_sub(clock.now().0);
    let mut known = ahead();
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(CLOCK_LOOK) => {}
        }
        let found = ahead();
        metrics.clock_ahead.with_label_values(&["machine"]).set(found as f64 / 1e6);
        let step = found.saturating_sub(known);
        if step.abs() >= CLOCK_STEP_US {
            let direction = if step > 0 { "forward" } else { "back" };
            metrics.clock_steps.with_label_values(&[direction]).inc();
            tracing::warn!(
                step_ms = step / 1_000,
                ahead_ms = found / 1_000,
                "the machine's clock was set while the broker runs: deadlines and records go on by the time that passed; \
                 a restart takes the clock as it is then"
            );
        }
        known = found;
    }
}

/// Interval of the search for batches left between two databases. Each blocks its tenants' logs for all brokers, so
/// the interval is short; a batch found twice is resolved.
const IN_DOUBT_EVERY: Duration = Duration::from_millis(500);

/// Resolves batches left half done by other brokers between the operations and a separate log database, until the
/// broker stops.
pub async fn settle_in_doubt(
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
) {
    let mut seen = BTreeSet::new();
    loop {
        match store.settle_in_doubt(&mut seen).await {
            Ok(ended) => metrics.ledger_in_doubt_ended.inc_by(ended),
            Err(err) => {
                tracing::warn!(error = %err, "batches in doubt could not be read");
            }
        }
        metrics.ledger_in_doubt.set(i64::try_from(seen.len()).unwrap_or(i64::MAX));
        tokio::select! {
            () = tokio::time::sleep(IN_DOUBT_EVERY.mul_f64(0.75 + clock::random_fraction() / 2.0)) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// Interval between checks of table sizes.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Calls [`tend`](Store::tend) where the database needs it, until the broker stops.
pub async fn tend(store: Arc<Store>, stopping: CancellationToken) {
    loop {
        match store.tend().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(err) => tracing::debug!(error = %err, "the tables could not be analysed"),
        }
        tokio::select! {
            () = tokio::time::sleep(TEND_EVERY) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// Resolves all half-done batches now. A start need not wait until a batch was found twice.
///
/// # Errors
/// [`StoreError`] where a batch cannot be found or resolved.
pub async fn settle_all_in_doubt(store: &Store) -> Result<(), StoreError> {
    let mut seen = BTreeSet::new();
    store.settle_in_doubt(&mut seen).await?;
    if !seen.is_empty() {
        store.settle_in_doubt(&mut seen).await?;
    }
    Ok(())
}

/// Time for which refused submissions on an unknown task count, in microseconds (one day).
const REFUSALS_KEPT_US: i64 = 24 * 60 * 60 * 1_000_000;

/// Interval between deletions of old events.
const FORGET_EVERY: Duration = Duration::from_mins(10);

/// Deletes events and listed refusals older than `keep`, a bounded number at a time, refused task ids, answers under an
/// `Idempotency-Key` and windows of receivers older than a day, and sessions of the console that have expired or had no request for `idle_us`
/// microseconds. Every broker does so;
/// rows deleted by one are not found by the others.
pub async fn forget_events(
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    keep: Duration,
    idle_us: i64,
    stopping: CancellationToken,
) {
    let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
    loop {
        let now = clock.now().0;
        let day = Micros(now.saturating_sub(REFUSALS_KEPT_US));
        if let Err(err) = store.forget_refused_tasks(day).await {
            tracing::warn!(error = %err, "old refusals could not be deleted");
        }
        if let Err(err) = store.forget_requests(day).await {
            tracing::warn!(error = %err, "old answers to requests could not be deleted");
        }
        let windows = Micros(now.saturating_sub(receiver::KEPT_US));
        if let Err(err) = store.forget_receivers(windows).await {
            tracing::warn!(error = %err, "old notes on receivers could not be deleted");
        }
        let idle_since = Micros(now.saturating_sub(idle_us));
        if let Err(err) = store.forget_sessions(Micros(now), idle_since).await {
            tracing::warn!(error = %err, "ended sessions of the console could not be deleted");
        }
        let cutoff = Micros(now.saturating_sub(keep));
        if let Err(err) = forget(&store, cutoff, &stopping).await {
            tracing::warn!(error = %err, "old events could not be deleted");
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(FORGET_EVERY.mul_f64(0.75 + clock::random_fraction() / 2.0)) => {}
        }
    }
}

async fn forget(
    store: &Store,
    cutoff: Micros,
    stopping: &CancellationToken,
) -> Result<(), StoreError> {
    for tenant in store.list_tenants().await? {
        while !stopping.is_cancelled() && store.delete_events(&tenant, cutoff).await? > 0 {
            // Waiters for the store's writer go first.
            tokio::task::yield_now().await;
        }
        while !stopping.is_cancelled() && store.delete_refusals(&tenant, cutoff).await? > 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
