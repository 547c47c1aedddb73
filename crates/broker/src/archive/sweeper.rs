//! Runs the archiver for every tenant at the interval of the settings.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::archivist::{ArchiveRun, Archivist};
use super::error::ArchiveError;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_store::clock;

/// The longest pause after a failed run, and after a start, so that a broker that restarts often still archives.
const SOON: Duration = Duration::from_mins(5);

/// Microseconds in a day.
const DAY: i64 = 86_400_000_000;

/// The time before which records are old enough, if contents stay hot for `hot_days`.
#[must_use]
pub fn cutoff(now: Micros, hot_days: u32) -> Micros {
    Micros(now.0.saturating_sub(i64::from(hot_days).saturating_mul(DAY)))
}

/// Runs until the broker stops.
pub async fn sweep(
    archivist: Archivist,
    hot_days: u32,
    interval: Duration,
    stopping: CancellationToken,
) {
    repeat(interval, &stopping, || run_all(&archivist, hot_days)).await;
}

/// Calls `run` at the interval until the broker stops; sooner after a start and after a run that returns `false`.
pub(crate) async fn repeat<F: Future<Output = bool>>(
    interval: Duration,
    stopping: &CancellationToken,
    run: impl Fn() -> F,
) {
    let mut pause = interval.min(SOON);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(0.5 + clock::random_fraction() / 2.0)) => {}
            () = stopping.cancelled() => return,
        }
        // A stop cuts off the running work between any two steps, as a crash does.
        let well = tokio::select! {
            well = run() => well,
            () = stopping.cancelled() => return,
        };
        pause = if well { interval } else { interval.min(SOON) };
    }
}

/// Runs once for every tenant; `false` if one run failed.
async fn run_all(archivist: &Archivist, hot_days: u32) -> bool {
    let now = archivist.clock.now();
    let run = ArchiveRun { before: cutoff(now, hot_days), whole: false };
    let tenants = match archivist.store.list_tenants().await {
        Ok(tenants) => tenants,
        Err(err) => {
            archivist.metrics.failures.inc();
            tracing::warn!(error = %err, "archiving failed");
            return false;
        }
    };
    let mut well = true;
    for tenant in tenants {
        well &= run_one(archivist, &tenant, run).await;
    }
    if well {
        archivist.metrics.last_run.set(now.0 / 1_000_000);
    }
    well
}

async fn run_one(archivist: &Archivist, tenant: &TenantId, run: ArchiveRun) -> bool {
    match archivist.run(tenant, run).await {
        Ok(moved) => {
            if moved.contents + moved.forgotten > 0 {
                let (contents, segments) = (moved.contents, moved.segments);
                tracing::info!(%tenant, contents, segments, forgotten = moved.forgotten, "archived");
            }
            true
        }
        // Another broker archives this tenant, or a broker died with the lease.
        Err(ArchiveError::Busy(_)) => false,
        Err(err) => {
            archivist.metrics.failures.inc();
            tracing::warn!(%tenant, error = %err, "archiving failed; nothing is lost, the next run retries");
            false
        }
    }
}
