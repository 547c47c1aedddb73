//! What wakes the long polls of pull receivers, and what becomes of handoffs that nobody pulls.
//!
//! A handoff committed here wakes its receiver here, in memory. One that finds nobody waiting here may be
//! waited for at another broker: the others are told that there is something, not what (a
//! notification has no payload, and many at once are one), and each looks for the receivers that
//! wait there. The poll is the net below: for claims that ran out, lost notifications, and databases
//! without any.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Clock};
use crate::directory::Directory;
use crate::domain::handoff::DeliveryMode;
use crate::domain::ids::Micros;
use crate::evidence::record::Actor;
use crate::ledger::command::{Command, Kind, Outcome, Settle};
use crate::ledger::{Ledger, Outbound};
use crate::store::{OutboxRow, ReceiverKey, Result, Store};

/// Between two notifications to other brokers, and between two looks: what comes meanwhile shares the
/// next one.
const TOGETHER: Duration = Duration::from_millis(20);
/// Receivers asked about at once.
const ASK: usize = 500;
/// Periods between two looks for handoffs that nobody will pull; each reads the whole outbox.
const LEFTOVERS_EVERY: u32 = 15;
/// Receivers and handoffs looked at in one such look.
const LEFTOVERS: i64 = 256;
/// A listening connection is made anew after this long: one that was cut without a word looks alive.
const LISTEN_ANEW: Duration = Duration::from_mins(5);
/// Pause before listening again where it failed.
const LISTEN_PAUSE: Duration = Duration::from_secs(2);

/// What the inboxes need.
pub struct Inboxes {
    /// Where the outbox is.
    pub store: Arc<dyn Store>,
    /// How agents receive.
    pub directory: Arc<Directory>,
    /// Who waits, and where failures go.
    pub ledger: Ledger,
    /// Who delivers to those that no longer pull.
    pub outbound: Arc<dyn Outbound>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// How often to look in any case.
    pub period: Duration,
    /// How long a handoff may wait to be claimed.
    pub unclaimed: Duration,
    /// What ends it.
    pub stopping: CancellationToken,
}

impl Inboxes {
    /// Serves until the broker stops.
    pub async fn run(self) {
        let heard = Notify::new();
        let work = async { tokio::join!(self.look(&heard), self.listen(&heard), self.tell()) };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            _ = work => {}
        }
    }

    /// Tells other brokers of what was committed here.
    async fn tell(&self) {
        loop {
            self.ledger.something_for_others().await;
            if let Err(err) = self.store.notify().await {
                tracing::debug!(error = %err, "other brokers were not told; their poll will find it");
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Hears of what was committed elsewhere.
    async fn listen(&self, heard: &Notify) {
        loop {
            if let Err(err) = self.listen_once(heard).await {
                tracing::debug!(error = %err, "cannot listen; the poll goes on");
                tokio::time::sleep(LISTEN_PAUSE).await;
            }
            // Whatever was said while nobody listened.
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
                    tracing::warn!(error = %err, "what nobody pulls cannot be read");
                }
                leftovers_at = Instant::now() + self.period * LEFTOVERS_EVERY;
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Wakes who waits here and has something to claim.
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

    /// Handoffs that wait to be pulled, and will not be: their agent takes webhooks now, or is gone, or
    /// has been silent for too long.
    async fn leftovers(&self) -> Result<()> {
        let now = self.clock.now();
        let mut fresh = HashSet::new();
        for receiver in self.store.list_due_receivers(DeliveryMode::Pull, now, LEFTOVERS).await? {
            match self.mode_of(&receiver, &mut fresh).await? {
                Some(DeliveryMode::Pull) => {}
                Some(DeliveryMode::Webhook) => self.outbound.nudge(&receiver),
                None => {
                    let rows = self.store.list_waiting(&receiver, now, LEFTOVERS).await?;
                    let why = "AGENT_DELETED".to_owned();
                    self.end(rows, Outcome::GivenUp { why }, now).await;
                }
            }
        }
        let timeout = i64::try_from(self.unclaimed.as_micros()).unwrap_or(i64::MAX);
        let before = Micros(now.0.saturating_sub(timeout));
        let rows = self.store.list_unpulled(before, now, LEFTOVERS).await?;
        self.end(rows, Outcome::Unclaimed, now).await;
        Ok(())
    }

    /// How an agent receives; `None` where there is none, which is looked up anew before it counts.
    async fn mode_of(
        &self,
        receiver: &ReceiverKey,
        fresh: &mut HashSet<crate::domain::ids::TenantId>,
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

    /// Whoever claimed it meanwhile keeps it.
    async fn end(&self, rows: Vec<OutboxRow>, outcome: Outcome, now: Micros) {
        let commands = rows.into_iter().map(|row| {
            tracing::warn!(handoff_id = %row.handoff_id, agent_id = %row.target, ?outcome, "a handoff that nobody takes ends");
            self.ledger.handle(Command {
                tenant: row.tenant,
                at: now,
                actor: Actor::broker(),
                kind: Kind::Settle(Box::new(Settle {
                    task_id: row.task_id,
                    handoff_id: row.handoff_id,
                    attempt: row.attempt,
                    begun_at: None,
                    outcome: outcome.clone(),
                    content: None,
                    lease_until: now,
                })),
            })
        });
        for outcome in futures_util::future::join_all(commands).await {
            if let Err(err) = outcome {
                tracing::warn!(error = %err, "a handoff that nobody takes could not be ended");
            }
        }
    }
}
