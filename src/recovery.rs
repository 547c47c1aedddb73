//! The sweeper: what timed out becomes a command, and what a dead broker held is given back.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::{self, Clock};
use crate::evidence::record::Actor;
use crate::ledger::command::{Command, Expire, Kind};
use crate::ledger::{Ledger, Outbound};
use crate::store::Store;

/// Overdue handoffs taken at once.
const BATCH: i64 = 256;

/// Says that this broker lives, whatever else is slow: others take its claims when it falls silent.
pub async fn beat(
    store: Arc<dyn Store>,
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
            () = tokio::time::sleep(timeout / 5) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// What the sweeper works with.
pub struct Sweeper {
    /// Where deadlines and claims are.
    pub store: Arc<dyn Store>,
    /// Where what timed out goes.
    pub ledger: Ledger,
    /// Who takes over what was given back.
    pub outbound: Arc<dyn Outbound>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// This broker's name.
    pub broker: String,
    /// How often to look.
    pub period: Duration,
    /// How long a broker may be silent.
    pub broker_timeout: Duration,
    /// What ends it.
    pub stopping: CancellationToken,
}

impl Sweeper {
    /// Sweeps until the broker stops.
    pub async fn run(self) {
        loop {
            self.sweep().await;
            let pause = self.period.mul_f64(0.75 + clock::random_fraction() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stopping.cancelled() => return,
            }
        }
    }

    async fn sweep(&self) {
        let now = self.clock.now();
        let timeout = i64::try_from(self.broker_timeout.as_micros()).unwrap_or(i64::MAX);
        let cutoff = crate::domain::ids::Micros(now.0.saturating_sub(timeout));
        match self.store.release_dead(cutoff, now).await {
            Ok(0) => {}
            Ok(claims) => {
                tracing::warn!(claims, "took over the claims of a broker that went silent");
                self.outbound.nudge_all();
            }
            Err(err) => tracing::warn!(error = %err, "dead brokers' claims could not be released"),
        }
        match self.store.list_overdue(now, BATCH).await {
            Ok(overdue) => {
                let expiries = overdue.into_iter().map(|handoff| {
                    self.ledger.handle(Command {
                        tenant: handoff.tenant,
                        at: now,
                        actor: Actor::broker(),
                        kind: Kind::Expire(Expire {
                            task_id: handoff.task_id,
                            handoff_id: handoff.id,
                        }),
                    })
                });
                for outcome in futures_util::future::join_all(expiries).await {
                    if let Err(err) = outcome {
                        tracing::warn!(error = %err, "an overdue handoff could not be expired");
                    }
                }
            }
            Err(err) => tracing::warn!(error = %err, "deadlines could not be read"),
        }
    }
}
