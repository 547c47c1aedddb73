//! Wake-ups of the long polls of pull receivers, and the end of handoffs that are never pulled.
//!
//! A handoff committed here wakes its receiver here, in memory. The receiver may wait at another broker instead: the
//! other brokers are notified that something was committed, without a payload (many notifications may merge into one),
//! and each looks for the receivers that wait there. The poll covers the rest: expired claims, lost notifications, and
//! databases without notifications.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::ledger::command::Call;
use crate::ledger::commands::{Outcome, Settle};
use crate::ledger::{Ledger, Outbound};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::Micros;
use handoffd_evidence::record::Actor;
use handoffd_store::clock::{self, Clock};
use handoffd_store::store::{OutboxRow, ReceiverKey, Result, Store};

/// Interval between two notifications to other brokers, and between two looks: commits in between share the next one.
const TOGETHER: Duration = Duration::from_millis(20);
/// Receivers in one query.
const ASK: usize = 500;
/// Periods between two looks for handoffs that will not be pulled; each look reads the whole outbox.
const LEFTOVERS_EVERY: u32 = 15;
/// Receivers and handoffs read in one such look.
const LEFTOVERS: i64 = 256;
/// Lifetime of a listening connection: one that was cut silently still looks alive.
const LISTEN_ANEW: Duration = Duration::from_mins(5);
/// Pause before listening again after an error.
const LISTEN_PAUSE: Duration = Duration::from_secs(2);

/// The task that serves pull receivers.
pub struct Inboxes {
    /// Store that holds the outbox.
    pub store: Arc<Store>,
    /// Directory of the agents and their delivery modes.
    pub directory: Arc<Directory>,
    /// Ledger, which holds the waiting polls and takes failures.
    pub ledger: Ledger,
    /// Delivers handoffs of agents that no longer pull.
    pub outbound: Arc<dyn Outbound>,
    pub clock: Arc<dyn Clock>,
    /// Longest interval between two looks.
    pub period: Duration,
    /// Time after which a handoff that was never claimed fails.
    pub unclaimed: Duration,
    /// Token that ends the task.
    pub stopping: CancellationToken,
}

impl Inboxes {
    /// Serves until the broker stops.
    pub async fn run(self) {
        let heard = Notify::new();
        let work =
            async { tokio::join!(self.look(&heard), self.listen(&heard), self.notify_brokers()) };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            _ = work => {}
        }
    }

    /// Notifies other brokers of commits here.
    async fn notify_brokers(&self) {
        loop {
            self.ledger.something_for_others().await;
            if let Err(err) = self.store.notify().await {
                tracing::debug!(error = %err, "other brokers could not be notified; their poll finds the handoff");
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Listens for notifications of other brokers.
    async fn listen(&self, heard: &Notify) {
        loop {
            if let Err(err) = self.listen_once(heard).await {
                tracing::debug!(error = %err, "listening for notifications failed; the poll continues");
                tokio::time::sleep(LISTEN_PAUSE).await;
            }
            // Covers notifications while there was no listener.
            heard.notify_one();
        }
    }

    async fn listen_once(&self, heard: &Notify) -> Result<()> {
        let mut wakeups = self.store.listen().await?;
        heard.notify_one();
        let until = Instant::now() + LISTEN_ANEW;
        while let Ok(heard_of) = tokio::time::timeout_at(until, wakeups.next()).await {
            heard_of?;
            heard.notify_one();
        }
        Ok(())
    }

    async fn look(&self, heard: &Notify) {
        let mut leftovers_at = Instant::now() + self.period * LEFTOVERS_EVERY;
        loop {
            let pause = self.period.mul_f64(0.75 + clock::random_fraction() / 2.0);
            tokio::select! {
                biased;
                () = heard.notified() => {}
                () = self.ledger.something_freed() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(err) = self.wake().await {
                tracing::warn!(error = %err, "the inboxes cannot be read");
            }
            if Instant::now() >= leftovers_at {
                if let Err(err) = self.leftovers().await {
                    tracing::warn!(error = %err, "handoffs that are not pulled cannot be read");
                }
                leftovers_at = Instant::now() + self.period * LEFTOVERS_EVERY;
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Wakes the receivers that wait here and have claimable handoffs.
    async fn wake(&self) -> Result<()> {
        let awaited = self.ledger.awaited_inboxes();
        let now = self.clock.now();
        for some in awaited.chunks(ASK) {
            for receiver in self.store.list_due_among(some, now).await? {
                self.ledger.wake_inbox(&receiver);
            }
        }
        Ok(())
    }

    /// Ends or forwards handoffs that will not be pulled: the agent takes webhooks now, was deleted, or did not poll
    /// for too long.
    async fn leftovers(&self) -> Result<()> {
        let now = self.clock.now();
        let mut fresh = HashSet::new();
        for receiver in self.store.list_due_receivers(DeliveryMode::Pull, now, LEFTOVERS).await? {
            match self.mode_of(&receiver, &mut fresh).await? {
                Some(DeliveryMode::Pull) => {}
                Some(_) => self.outbound.nudge(&receiver),
                None => {
                    let rows = self.store.list_waiting(&receiver, now, LEFTOVERS).await?;
                    let why = "AGENT_DELETED".to_owned();
                    self.end(rows, Outcome::GivenUp { why }, now).await;
                }
            }
        }
        let timeout = i64::try_from(self.unclaimed.as_micros()).unwrap_or(i64::MAX);
        let before = Micros(now.0.saturating_sub(timeout));
        let mut rows = self.store.list_unpulled(before, now, LEFTOVERS).await?;
        rows.retain(|row| self.clock.judged(row.created_at.plus(self.unclaimed)) <= now);
        self.end(rows, Outcome::Unclaimed, now).await;
        Ok(())
    }

    /// The delivery mode of an agent; `None` where the agent does not exist, which is refreshed from the store before
    /// it counts.
    async fn mode_of(
        &self,
        receiver: &ReceiverKey,
        fresh: &mut HashSet<handoffd_domain::ids::TenantId>,
    ) -> Result<Option<DeliveryMode>> {
        let (tenant, agent) = receiver;
        loop {
            let agents = self.directory.agents(tenant).await.map_err(|err| (*err).clone())?;
            if let Some(row) = agents.row(agent) {
                return Ok(Some(row.agent.delivery.mode));
            }
            if !fresh.insert(tenant.clone()) {
                return Ok(None);
            }
            self.directory.agents_changed(tenant).await;
        }
    }

    /// Fails handoffs with this outcome; a handoff claimed meanwhile keeps its claim.
    async fn end(&self, rows: Vec<OutboxRow>, outcome: Outcome, now: Micros) {
        let commands = rows.into_iter().map(|row| {
            tracing::warn!(handoff_id = %row.handoff_id, task_id = %row.task_id, agent_id = %row.target, ?outcome, "a handoff without a receiver ends");
            self.ledger.handle(Call { tenant: row.tenant, at: now, actor: Actor::broker() }, Settle {
                    task_id: row.task_id,
                    handoff_id: row.handoff_id,
                    attempt: row.attempt,
                    begun_at: None,
                    outcome: outcome.clone(),
                    content: None,
                    lease_until: now,
                    row: None,
                })
        });
        for outcome in futures_util::future::join_all(commands).await {
            if let Err(err) = outcome {
                tracing::warn!(error = %err, "a handoff without a receiver could not be ended");
            }
        }
    }
}
