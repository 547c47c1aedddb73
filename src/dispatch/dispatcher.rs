//! The dispatcher: takes what the ledger just committed, and what waits in the outbox, to its
//! receivers, and says to the ledger what came of it.
//!
//! What was just committed comes claimed and in memory ([`Outbound::deliver`]); nothing is polled for
//! it. The outbox is asked only for what had no place then: a backlog, a retry whose time has come,
//! what another broker or a crash left behind. A claim carries an attempt number, and settling carries
//! it back: whoever was superseded meanwhile changes nothing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::answer::{AttemptFailure, AttemptOutcome, FailureClass};
use super::backoff::RetryPolicy;
use super::breaker::BreakerSettings;
use super::lanes::{Health, Lanes};
use super::standard_webhooks::WebhookSecret;
use super::webhook::{HandoffHeaders, WebhookClient, WebhookRequest};
use crate::clock::{self, Clock};
use crate::directory::Directory;
use crate::domain::agent::PERSONAL_DATA_PERMISSION;
use crate::domain::canonical;
use crate::domain::handoff::DeliveryMode;
use crate::domain::ids::Micros;
use crate::evidence::record::Actor;
use crate::ledger::command::{
    AgentChange, ChangeAgent, Command, Kind, LedgerError, Outcome, Reply, Settle, content,
};
use crate::ledger::{Ledger, Outbound};
use crate::metrics::Metrics;
use crate::store::{AgentRow, Claim, Receiver, Store};
use crate::telemetry;
use crate::vault::{AgentSecrets, SecretKind, Vault};

/// Handoffs claimed for one receiver at once.
const CLAIM_BATCH: u32 = 32;
/// Receivers whose outbox is read at once.
const CLAIMS_AT_ONCE: usize = 4;
/// Nudges taken at once.
const NUDGES: usize = 256;
/// Receivers looked at in one poll.
const POLL_RECEIVERS: i64 = 512;
/// How long the store may take to answer what is not a commit.
const STORE_PATIENCE: Duration = Duration::from_secs(35);
/// First pause before a settlement that the ledger could not take is said again.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the dispatcher works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Pauses and the number of attempts.
    pub retry: RetryPolicy,
    /// Attempts under way at once.
    pub max_in_flight: usize,
    /// When a receiver is left alone.
    pub breaker: BreakerSettings,
    /// How often to look for what was left behind.
    pub poll: Duration,
    /// How long a claim lasts.
    pub claim: Duration,
    /// How long a receiver that has a handoff may take for its verdict.
    pub verdict: Duration,
    /// How long an acceptance is leased.
    pub lease: Duration,
}

/// What the dispatcher works with.
pub struct Parts {
    /// Where the outbox is.
    pub store: Arc<dyn Store>,
    /// Who receives.
    pub directory: Arc<Directory>,
    /// Opens webhook secrets.
    pub vault: Vault,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Posts.
    pub client: WebhookClient,
    /// How.
    pub settings: Settings,
    /// This broker's name.
    pub broker: String,
    /// What ends its work.
    pub stopping: CancellationToken,
}

/// URL, (time-out, how many at once), secrets, entitled to personal data.
type Endpoint = (String, (Duration, u32), Vec<WebhookSecret>, bool);

enum Nudge {
    Receiver(Receiver),
    All,
}

/// The dispatcher. Clones share everything.
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

struct Inner {
    parts: Parts,
    lanes: Lanes,
    nudges: mpsc::UnboundedSender<Nudge>,
    ledger: OnceLock<Ledger>,
    tracker: TaskTracker,
    look_pending: AtomicBool,
}

/// The end that [`Dispatcher::run`] listens on.
pub struct Nudges(mpsc::UnboundedReceiver<Nudge>);

impl Dispatcher {
    /// Not running yet: attempts are spawned on `tracker`, [`Dispatcher::run`] needs a task of its own.
    #[must_use]
    pub fn new(parts: Parts, tracker: TaskTracker) -> (Self, Nudges) {
        let (nudges, listen) = mpsc::unbounded_channel();
        let lanes = Lanes::new(parts.settings.max_in_flight, parts.settings.breaker);
        let inner = Inner {
            parts,
            lanes,
            nudges,
            ledger: OnceLock::new(),
            tracker,
            look_pending: AtomicBool::new(false),
        };
        (Self(Arc::new(inner)), Nudges(listen))
    }

    /// Where settlements go; set once, before anything is delivered.
    pub fn settle_with(&self, ledger: Ledger) {
        let _ = self.0.ledger.set(ledger);
    }

    /// Serves the outbox until the broker stops.
    pub async fn run(self, mut nudges: Nudges) {
        let Inner { parts, lanes, .. } = &*self.0;
        let mut poll_at = tokio::time::Instant::now();
        let mut taken = Vec::with_capacity(NUDGES);
        loop {
            let now = parts.clock.now();
            let (due, next) = lanes.due(now);
            self.fill_all(due).await;
            let wake = next.map(|at| at.since(parts.clock.now()));
            tokio::select! {
                () = parts.stopping.cancelled() => return,
                count = nudges.0.recv_many(&mut taken, NUDGES) => {
                    if count == 0 {
                        return;
                    }
                    let mut all = false;
                    let mut receivers = Vec::with_capacity(count);
                    for nudge in taken.drain(..) {
                        match nudge {
                            Nudge::Receiver(receiver) => receivers.push(receiver),
                            Nudge::All => all = true,
                        }
                    }
                    self.fill_all(receivers).await;
                    if all {
                        self.0.look_pending.store(false, Ordering::Release);
                        self.poll().await;
                    }
                }
                () = tokio::time::sleep(wake.unwrap_or(Duration::MAX)), if wake.is_some() => {}
                () = tokio::time::sleep_until(poll_at) => {
                    self.poll().await;
                    // Half as much again at most, so that several brokers do not poll in step.
                    poll_at = tokio::time::Instant::now()
                        + parts.settings.poll.mul_f64(1.0 + clock::random_fraction() / 2.0);
                }
            }
        }
    }

    /// Looks for receivers with something claimable.
    async fn poll(&self) {
        let Inner { parts, lanes, .. } = &*self.0;
        for (state, count) in lanes.census() {
            parts.metrics.breakers.with_label_values(&[state.as_str()]).set(count);
        }
        let now = parts.clock.now();
        match parts.store.list_due_receivers(DeliveryMode::Webhook, now, POLL_RECEIVERS).await {
            Ok(receivers) => self.fill_all(receivers).await,
            Err(err) => tracing::warn!(error = %err, "the outbox cannot be read"),
        }
    }

    /// Reads the outbox of several receivers, a few at once, so that one whose backlog is slow to
    /// read does not hold up the others; each is read once, however often it was asked for.
    async fn fill_all(&self, mut receivers: Vec<Receiver>) {
        let mut known = HashSet::with_capacity(receivers.len());
        receivers.retain(|receiver| known.insert(receiver.clone()));
        futures_util::stream::iter(receivers)
            .for_each_concurrent(CLAIMS_AT_ONCE, |receiver| async move {
                self.fill(&receiver).await;
            })
            .await;
    }

    /// Claims what there is room for.
    async fn fill(&self, receiver: &Receiver) {
        let Inner { parts, lanes, .. } = &*self.0;
        if parts.stopping.is_cancelled() {
            return;
        }
        let now = parts.clock.now();
        let (places, asked) = lanes.reserve_many(receiver, now, CLAIM_BATCH);
        if places == 0 {
            return;
        }
        let until = now.plus(parts.settings.claim);
        let claims = match tokio::time::timeout(
            STORE_PATIENCE,
            parts.store.claim(receiver, &parts.broker, now, until, i64::from(places)),
        )
        .await
        {
            Ok(Ok(claims)) => claims,
            Ok(Err(err)) => {
                tracing::warn!(error = %err, "nothing could be claimed");
                lanes.give_back(receiver, places, now);
                return;
            }
            Err(_) => {
                tracing::warn!("the store did not answer a claim");
                lanes.give_back(receiver, places, now);
                return;
            }
        };
        let found = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        lanes.give_back(receiver, places.saturating_sub(found), now);
        if found < places && lanes.drained(receiver, asked) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
        for claim in claims {
            self.spawn(claim);
        }
        if found == places {
            // There may be more than there was room for.
            lanes.backlog(receiver);
        }
    }

    fn spawn(&self, claim: Claim) {
        let this = self.clone();
        let span = tracing::info_span!(
            "handoff.deliver",
            otel.kind = "client",
            handoff_id = %claim.handoff_id,
            task_id = %claim.task_id,
            agent_id = %claim.target,
            attempt = claim.attempt,
            trace_id = tracing::field::Empty,
        );
        telemetry::continue_trace(&span, Some(&claim.traceparent));
        self.0.tracker.spawn(async move { this.attempt(claim).await }.instrument(span));
    }

    /// One attempt, from the lane's place to the settled outcome.
    async fn attempt(&self, claim: Claim) {
        let Inner { parts, lanes, .. } = &*self.0;
        let receiver = (claim.tenant.clone(), claim.target.clone());
        if claim.attempt == 1 {
            let share = parts.clock.now().since(claim.created_at);
            parts.metrics.broker_seconds.observe(share.as_secs_f64());
        }
        let (tried, url) = self.post(&claim).await;
        let (outcome, said, health) = self.judge(&claim, &tried);
        parts.metrics.attempts.with_label_values(&[label(&tried)]).inc();
        if let AttemptOutcome::Failed(failure) = &tried {
            tracing::info!(
                class = failure.class.as_str(),
                status = failure.status,
                reached = failure.reached,
                detail = failure.detail,
                "an attempt failed"
            );
        }
        if let (AttemptOutcome::Gone, Some(url)) = (&tried, url) {
            self.disable(&claim, url).await;
        }
        let wake = match &outcome {
            Outcome::Retry { at, .. } => Some(*at),
            _ => None,
        };
        self.settle(&claim, outcome, said).await;
        let now = parts.clock.now();
        if let Some(at) = wake {
            lanes.wake_at(&receiver, at);
        }
        if lanes.done(&receiver, health, now) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver));
        }
        if lanes.take_starved() {
            self.nudge_all();
        }
    }

    /// Posts a handoff; also says where to.
    async fn post(&self, claim: &Claim) -> (AttemptOutcome, Option<String>) {
        let Inner { parts, lanes, .. } = &*self.0;
        let (url, timeout, secrets, entitled) = match self.endpoint(claim).await {
            Ok(found) => found,
            Err(why) => {
                let failure = AttemptFailure::unreached(FailureClass::Request, why);
                return (AttemptOutcome::Failed(failure), None);
            }
        };
        lanes.limit(&(claim.tenant.clone(), claim.target.clone()), timeout.1);
        let request = WebhookRequest {
            url: url.clone(),
            body: claim.delivered(entitled).into(),
            id: claim.handoff_id.to_string(),
            timestamp_s: parts.clock.now().seconds(),
            secrets,
            headers: HandoffHeaders {
                traceparent: Some(claim.traceparent.clone()),
                tracestate: None,
                handoff_id: Some(claim.handoff_id.to_string()),
                task_id: Some(claim.task_id.to_string()),
                attempt: u32::try_from(claim.attempt).ok(),
                fencing_token: Some(claim.fencing_token),
            },
            timeout: timeout.0,
        };
        let (outcome, timing) = parts.client.send(request).await;
        parts.metrics.receiver_seconds.observe(timing.elapsed.as_secs_f64());
        (outcome, Some(url))
    }

    /// Where a handoff goes and how. What speaks against it is looked up anew before it counts: this
    /// broker's view may be older than another's change.
    async fn endpoint(&self, claim: &Claim) -> Result<Endpoint, &'static str> {
        let Inner { parts, .. } = &*self.0;
        let mut fresh = false;
        loop {
            let why = match parts.directory.agents(&claim.tenant).await {
                Ok(agents) => match self.endpoint_of(claim, agents.row(&claim.target)) {
                    Ok(found) => return Ok(found),
                    Err(why) if fresh => return Err(why),
                    Err(why) => why,
                },
                // Nothing was tried, so nothing is counted: wait for the store.
                Err(_) => {
                    tokio::select! {
                        () = tokio::time::sleep(SETTLE_PAUSE_MAX) => continue,
                        () = parts.stopping.cancelled() => return Err("the broker stops"),
                    }
                }
            };
            tracing::debug!(why, "looking again");
            parts.directory.agents_changed(&claim.tenant).await;
            fresh = true;
        }
    }

    fn endpoint_of(&self, claim: &Claim, row: Option<&AgentRow>) -> Result<Endpoint, &'static str> {
        let row = row.ok_or("the agent is no longer registered")?;
        let delivery = &row.agent.delivery;
        if delivery.disabled {
            return Err("the agent's delivery is disabled");
        }
        let url = delivery
            .url
            .clone()
            .filter(|_| delivery.mode == DeliveryMode::Webhook)
            .ok_or("the agent no longer takes webhooks")?;
        let secrets = self
            .secrets(row, self.0.parts.clock.now())
            .ok_or("the agent's webhook secret does not open")?;
        let entitled = row.agent.permissions.iter().any(|name| name == PERSONAL_DATA_PERMISSION);
        tracing::trace!(handoff_id = %claim.handoff_id, "endpoint found");
        let timeout = Duration::from_millis(delivery.timeout_ms);
        Ok((url, (timeout, delivery.max_in_flight), secrets, entitled))
    }

    fn secrets(&self, row: &AgentRow, now: Micros) -> Option<Vec<WebhookSecret>> {
        let opened = AgentSecrets::parse(&row.secrets)
            .open(&self.0.parts.vault, &row.tenant, &row.agent.agent_id, SecretKind::Webhook, now)
            .ok()?;
        opened
            .iter()
            .map(|text| WebhookSecret::parse(std::str::from_utf8(text).ok()?).ok())
            .collect()
    }

    /// What an attempt means for the handoff, what to keep of what was said, and for the lane.
    fn judge(
        &self,
        claim: &Claim,
        tried: &AttemptOutcome,
    ) -> (Outcome, Option<serde_json::Value>, Health) {
        let settings = &self.0.parts.settings;
        let now = self.0.parts.clock.now();
        let again = |retry_after, why: &str| {
            let attempts = u32::try_from(claim.attempt).unwrap_or(u32::MAX);
            match settings.retry.next_delay(attempts, clock::random_fraction(), retry_after) {
                Some(pause) => Outcome::Retry { at: now.plus(pause), why: why.to_owned() },
                None => Outcome::GivenUp { why: why.to_owned() },
            }
        };
        match tried {
            AttemptOutcome::Accepted { details } => {
                (Outcome::Accepted, details.clone(), Health::Well)
            }
            AttemptOutcome::Rejected { reason, details } => {
                let reason = reason.clone().unwrap_or_else(|| "REJECTED".to_owned());
                let said = serde_json::json!({ "reason": reason, "details": details });
                (Outcome::Rejected(reason), Some(said), Health::Well)
            }
            AttemptOutcome::Received => {
                let verdict_by = now.plus(settings.verdict);
                (Outcome::Received { verdict_by }, None, Health::Well)
            }
            AttemptOutcome::Busy { retry_after } => {
                (again(*retry_after, "RECEIVER_BUSY"), None, Health::Well)
            }
            AttemptOutcome::Gone => {
                (Outcome::GivenUp { why: "ENDPOINT_GONE".to_owned() }, None, Health::Well)
            }
            AttemptOutcome::Failed(failure) => {
                let why = format!("DELIVERY_{}", failure.class.as_str().to_ascii_uppercase());
                let hopeless =
                    matches!(failure.class, FailureClass::Request | FailureClass::Egress);
                let unsafe_again = failure.reached && !claim.idempotent;
                let outcome = if hopeless || unsafe_again {
                    Outcome::GivenUp { why }
                } else {
                    again(None, &why)
                };
                (outcome, None, if hopeless { Health::Unknown } else { Health::Ill })
            }
        }
    }

    async fn disable(&self, claim: &Claim, url: String) {
        let parts = &self.0.parts;
        tracing::error!(
            event = "agent.endpoint_disabled",
            agent_id = %claim.target,
            "the endpoint says it is gone: delivery to this agent is disabled"
        );
        let command = Command {
            tenant: claim.tenant.clone(),
            at: parts.clock.now(),
            actor: Actor::broker(),
            kind: Kind::ChangeAgent(Box::new(ChangeAgent {
                agent: claim.target.clone(),
                change: AgentChange::DisableDelivery { url },
            })),
        };
        if let Some(ledger) = self.0.ledger.get()
            && let Err(err) = ledger.handle(command).await
        {
            tracing::warn!(error = %err, "the agent could not be disabled");
        }
        parts.directory.agents_changed(&claim.tenant).await;
    }

    /// Says what came of it until the ledger has it; a broker that stops leaves the claim to run out.
    async fn settle(&self, claim: &Claim, outcome: Outcome, said: Option<serde_json::Value>) {
        let Inner { parts, ledger, .. } = &*self.0;
        let Some(ledger) = ledger.get() else { return };
        let now = parts.clock.now();
        let command = Command {
            tenant: claim.tenant.clone(),
            at: now,
            actor: Actor {
                role: "agent".to_owned(),
                agent_id: Some(claim.target.clone()),
                key_id: None,
            },
            kind: Kind::Settle(Box::new(Settle {
                task_id: claim.task_id,
                handoff_id: claim.handoff_id,
                attempt: claim.attempt,
                outcome,
                content: said.map(|said| content(&canonical::to_vec(&said), now)),
                lease_until: now.plus(parts.settings.lease),
            })),
        };
        let mut pause = SETTLE_PAUSE;
        loop {
            match ledger.handle(command.clone()).await {
                Ok(Reply::Superseded) => {
                    tracing::info!("the attempt was superseded");
                    return;
                }
                Ok(_) => return,
                Err(LedgerError::Unavailable | LedgerError::Overloaded) => {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = parts.stopping.cancelled() => return,
                    }
                    pause = (pause * 2).min(SETTLE_PAUSE_MAX);
                }
                Err(err) => {
                    tracing::error!(error = %err, "an attempt could not be settled");
                    return;
                }
            }
        }
    }
}

fn label(tried: &AttemptOutcome) -> &'static str {
    match tried {
        AttemptOutcome::Accepted { .. } => "accepted",
        AttemptOutcome::Rejected { .. } => "rejected",
        AttemptOutcome::Received => "received",
        AttemptOutcome::Busy { .. } => "busy",
        AttemptOutcome::Gone => "gone",
        AttemptOutcome::Failed(failure) => failure.class.as_str(),
    }
}

impl Outbound for Dispatcher {
    fn reserve(&self, receiver: &Receiver) -> bool {
        !self.0.parts.stopping.is_cancelled()
            && self.0.lanes.reserve(receiver, self.0.parts.clock.now())
    }

    fn deliver(&self, claim: Claim) {
        self.spawn(claim);
    }

    fn release(&self, receiver: &Receiver) {
        if self.0.lanes.give_back(receiver, 1, self.0.parts.clock.now()) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
        if self.0.lanes.take_starved() {
            self.nudge_all();
        }
    }

    fn nudge(&self, receiver: &Receiver) {
        if self.0.lanes.must_look(receiver) {
            // The loop lives as long as the broker; a nudge after it is for nobody.
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
    }

    fn nudge_all(&self) {
        // One look serves all who ask for it before it begins.
        if !self.0.look_pending.swap(true, Ordering::AcqRel) {
            let _ = self.0.nudges.send(Nudge::All);
        }
    }
}
