//! The dispatcher delivers what the ledger just committed, and what waits in the outbox, and reports each outcome to
//! the ledger.
//!
//! A handoff that was just committed arrives claimed and in memory ([`Outbound::deliver`]), without polling. The
//! outbox is read only for handoffs that had no free slot at commit: a backlog, a due retry, or the handoffs of
//! another broker or of a crash. A claim carries an attempt number, and the settlement carries the number back: a
//! superseded claim changes nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use tracing::field::Empty;

use super::backoff::RetryPolicy;
use super::breaker::BreakerSettings;
use super::budget::BudgetSettings;
use super::conventions;
use super::held::Claims;
use super::lanes::{EndpointHealthChange, Health, Lanes};
use super::turns::Turns;
use crate::claim_check::ClaimLinks;
use crate::compress::CompressionStep;
use crate::directory::Directory;
use crate::early_replies::EarlyReplies;
use crate::ledger::{DeliverySlot, Ledger, Outbound};
use crate::metrics::Metrics;
use crate::receivers::{NoticedBreaker, ReceiverJournal};
use crate::telemetry;
use crate::transport::Transports;
use crate::vault::Vault;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::Micros;
use handoffd_gate::schema::Schemas;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{ClaimKey, ClaimRelease, DeliveryClaim, ReceiverKey, Store};

mod attempt;
mod settle;

/// Handoffs claimed for one receiver at once.
const CLAIM_BATCH: u32 = 32;
/// Receivers whose outbox is read concurrently.
const CLAIMS_AT_ONCE: usize = 4;
/// Nudges received at once.
const NUDGES: usize = 256;
/// Receivers returned by one poll.
const POLL_RECEIVERS: i64 = 512;
/// Timeout of store calls other than commits.
const STORE_PATIENCE: Duration = Duration::from_secs(35);
/// Interval at which this broker looks for its own unknown claims. Each look reads the whole outbox, and such claims
/// exist only where an answer of the store was lost.
const LOOK_FOR_FORGOTTEN: Duration = Duration::from_mins(1);
/// After a lost answer, every poll looks for unknown claims during this time: a commit may take effect long after its
/// client gave up (the store's own statement timeout, and a margin).
const DOUBT: Duration = Duration::from_mins(1);
/// First pause before a settlement that the ledger could not take is repeated.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct DispatcherSettings {
    /// Pauses and number of attempts.
    pub retry: RetryPolicy,
    /// Largest number of concurrent attempts.
    pub max_in_flight: usize,
    /// Circuit breaker of each receiver.
    pub breaker: BreakerSettings,
    /// Consecutive failures, as the breaker counts them, after which an endpoint is disabled; 0 means never.
    pub disable_after: u32,
    /// Retry budget of each receiver.
    pub budget: BudgetSettings,
    /// Interval between two polls of the outbox.
    pub poll: Duration,
    /// Lifetime of a claim.
    pub claim: Duration,
    /// How long an attempt that a queue has taken waits for the receiver's reply before it is settled; zero: not at all.
    pub reply_wait: Duration,
    /// Time that a receiver has for its verdict, from the first byte of the request.
    pub verdict: Duration,
    /// Lease of an accepted handoff.
    pub lease: Duration,
    /// Bodies larger than this many bytes are compressed for receivers that accept a coding.
    pub compress_above: usize,
}

pub struct DispatcherDependencies {
    /// Store that holds the outbox.
    pub store: Arc<Store>,
    /// Directory of the receiving agents.
    pub directory: Arc<Directory>,
    /// Vault that opens webhook secrets.
    pub vault: Vault,
    /// Makes the links that stand for bodies which a transport does not carry.
    pub claims: ClaimLinks,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// The transports that send the attempts.
    pub transports: Transports,
    /// The attempts that take a reply.
    pub replies: Arc<EarlyReplies>,
    /// Takes what attempts tell of their receivers.
    pub receivers: Arc<ReceiverJournal>,
    /// Message schemas, which convert a message to a form that the receiver accepts.
    pub schemas: Arc<Schemas>,
    /// Compresses a message that is too large for its receiver.
    pub compression: Arc<CompressionStep>,
    /// Redaction policy applied to stored answers.
    pub redaction: Arc<handoffd_domain::redaction::RedactionPolicy>,
    pub settings: DispatcherSettings,
    /// This broker's name, under which claims are held.
    pub broker: String,
    /// Token that ends the dispatcher.
    pub stopping: CancellationToken,
}

enum Nudge {
    Receiver(ReceiverKey),
    All,
}

/// Delivers handoffs by every transport but the inbox. Clones share all state.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatcherState>);

struct DispatcherState {
    parts: DispatcherDependencies,
    lanes: Lanes,
    claims: Claims,
    nudges: mpsc::UnboundedSender<Nudge>,
    ledger: OnceLock<Ledger>,
    tracker: TaskTracker,
    look_pending: AtomicBool,
}

/// The channel of wake-ups that [`Dispatcher::run`] reads.
pub struct Nudges(mpsc::UnboundedReceiver<Nudge>);

impl Dispatcher {
    /// A dispatcher that is not running yet: attempts are spawned on `tracker`, [`Dispatcher::run`] needs its own
    /// task.
    #[must_use]
    pub fn new(parts: DispatcherDependencies, tracker: TaskTracker) -> (Self, Nudges) {
        let (nudges, listen) = mpsc::unbounded_channel();
        let settings = &parts.settings;
        let lanes = Lanes::new(
            settings.max_in_flight,
            settings.breaker,
            settings.budget,
            settings.disable_after,
        );
        let inner = DispatcherState {
            parts,
            lanes,
            claims: Claims::default(),
            nudges,
            ledger: OnceLock::new(),
            tracker,
            look_pending: AtomicBool::new(false),
        };
        (Self(Arc::new(inner)), Nudges(listen))
    }

    /// Sets the ledger that takes settlements; called once, before the first delivery.
    pub fn settle_with(&self, ledger: Ledger) {
        let _ = self.0.ledger.set(ledger);
    }

    /// Serves the outbox until the broker stops.
    pub async fn run(self, mut nudges: Nudges) {
        let DispatcherState { parts, lanes, .. } = &*self.0;
        let mut poll_at = tokio::time::Instant::now();
        let (mut look_at, mut doubt_until) = (poll_at + LOOK_FOR_FORGOTTEN, poll_at);
        let mut taken = Vec::with_capacity(NUDGES);
        loop {
            let now = parts.clock.now();
            let (due, next) = lanes.due(now);
            self.fill_all(due).await;
            let wake = next.map(|at| at.since(parts.clock.now()));
            tokio::select! {
                // In order, so that a run can be repeated. A poll looks for everybody and is due again
                // only a period later: it delays no other receiver.
                biased;
                () = parts.stopping.cancelled() => return,
                () = tokio::time::sleep_until(poll_at) => {
                    let now = tokio::time::Instant::now();
                    if self.0.claims.take_doubt() {
                        doubt_until = now + DOUBT;
                    }
                    if now >= look_at || now < doubt_until {
                        self.release_forgotten().await;
                        look_at = now + LOOK_FOR_FORGOTTEN;
                    }
                    self.poll().await;
                    // Half as much again at most, so that several brokers do not poll in step.
                    poll_at = tokio::time::Instant::now()
                        + parts.settings.poll.mul_f64(1.0 + clock::random_fraction() / 2.0);
                }
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
            }
        }
    }

    /// Finds receivers with claimable handoffs.
    async fn poll(&self) {
        let DispatcherState { parts, lanes, .. } = &*self.0;
        for (state, count) in lanes.census(parts.clock.now()) {
            parts.metrics.breakers.with_label_values(&[state.as_str()]).set(count);
        }
        parts.metrics.receivers_waiting.set(i64::try_from(lanes.waiting()).unwrap_or(i64::MAX));
        let now = parts.clock.now();
        match parts.store.list_due_receivers(DeliveryMode::Webhook, now, POLL_RECEIVERS).await {
            Ok(receivers) => self.fill_all(receivers).await,
            Err(err) => tracing::warn!(error = %err, "the outbox cannot be read"),
        }
    }

    /// Releases claims that the store holds under this broker's name and that this process does not know.
    async fn release_forgotten(&self) {
        let DispatcherState { parts, claims, .. } = &*self.0;
        let freed = async {
            let forgotten = claims.forgotten(parts.store.list_claims(&parts.broker).await?);
            if forgotten.is_empty() {
                return Ok(0);
            }
            parts.store.release(ClaimRelease::These(&parts.broker, &forgotten)).await
        };
        match freed.await {
            Ok(0) => {}
            Ok(claims) => {
                tracing::warn!(claims, "released claims whose commit was not acknowledged");
            }
            Err(err) => tracing::warn!(error = %err, "this broker's claims cannot be read"),
        }
    }

    /// Reads the outbox of several receivers concurrently, so that a slow backlog does not delay the others. Tenants
    /// take turns, and each receiver is read once, however often it was requested.
    async fn fill_all(&self, receivers: Vec<ReceiverKey>) {
        let mut turns = Turns::default();
        for receiver in receivers {
            turns.push(receiver);
        }
        let most = self.0.lanes.share(turns.len()).min(CLAIM_BATCH);
        let receivers: Vec<ReceiverKey> = std::iter::from_fn(|| turns.pop()).collect();
        futures_util::stream::iter(receivers)
            .for_each_concurrent(CLAIMS_AT_ONCE, |receiver| async move {
                self.fill(&receiver, most).await;
                // A receiver without work passes its turn on.
                self.next_turns();
            })
            .await;
    }

    /// Wakes the next receivers in turn while slots are free.
    fn next_turns(&self) {
        for receiver in self.0.lanes.next_turns() {
            // The loop lives as long as the broker.
            let _ = self.0.nudges.send(Nudge::Receiver(receiver));
        }
    }

    /// Claims as many handoffs of the receiver as there are free slots, at most `most`.
    async fn fill(&self, receiver: &ReceiverKey, most: u32) {
        let DispatcherState { parts, lanes, claims: held, .. } = &*self.0;
        if parts.stopping.is_cancelled() {
            return;
        }
        let now = parts.clock.now();
        let (slots, asked) = lanes.reserve_many(receiver, now, most);
        if slots == 0 {
            return;
        }
        let until = now.plus(parts.settings.claim);
        let operation = held.begin();
        let claims = match tokio::time::timeout(
            STORE_PATIENCE,
            parts.store.claim(
                receiver,
                DeliveryMode::Webhook,
                &parts.broker,
                now,
                until,
                i64::from(slots),
            ),
        )
        .await
        {
            Ok(Ok(claims)) => claims,
            Ok(Err(err)) => {
                tracing::warn!(error = %err, "the claim failed");
                held.lost(operation);
                lanes.give_back(receiver, slots, now);
                return;
            }
            Err(_) => {
                tracing::warn!("the claim timed out");
                held.lost(operation);
                lanes.give_back(receiver, slots, now);
                return;
            }
        };
        held.end(operation, claims.iter().map(held_as));
        if !claims.is_empty() {
            fault::at(Step::ClaimDone);
        }
        let found = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        lanes.give_back(receiver, slots.saturating_sub(found), now);
        if found < slots && lanes.drained(receiver, asked) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
        for claim in claims {
            self.spawn(claim);
        }
        if found == slots {
            // There may be more than there was room for.
            lanes.backlog(receiver);
        }
    }

    fn spawn(&self, claim: DeliveryClaim) {
        let this = self.clone();
        let span = tracing::info_span!(
            "handoff.deliver",
            otel.name = Empty,
            otel.kind = Empty,
            otel.status_code = Empty,
            handoff_id = %claim.handoff_id,
            task_id = %claim.task_id,
            agent_id = %claim.target,
            attempt = claim.attempt,
            trace_id = Empty,
            handoff.outcome = Empty,
            error.type = Empty,
            gen_ai.operation.name = Empty,
            gen_ai.provider.name = Empty,
            gen_ai.agent.id = Empty,
            gen_ai.conversation.id = Empty,
        );
        conventions::describe(&span, &claim);
        if let Some(context) = claim.trace() {
            telemetry::under(&span, &context);
        }
        self.0.tracker.spawn(async move { this.attempt(claim).await }.instrument(span));
    }

    /// Counts how an attempt ended. Returns a change of the endpoint's health that must be reported.
    fn ended(&self, claim: &DeliveryClaim, health: Health) -> Option<EndpointHealthChange> {
        let receiver = (claim.tenant.clone(), claim.target.clone());
        let ended = self.0.lanes.ended(&receiver, health, self.0.parts.clock.now());
        if ended.turned {
            self.0.parts.receivers.breaker_turned();
        }
        ended.health
    }

    /// The breakers that ever opened.
    #[must_use]
    pub fn breakers(&self) -> Vec<NoticedBreaker> {
        self.0.lanes.breakers(self.0.parts.clock.now())
    }

    /// Frees the slot; `wake` is the time at which the receiver's outbox is read next.
    fn over(&self, claim: &DeliveryClaim, wake: Option<Micros>) {
        let lanes = &self.0.lanes;
        let receiver = (claim.tenant.clone(), claim.target.clone());
        let (key, attempt) = held_as(claim);
        self.0.claims.let_go(&key, attempt);
        if let Some(at) = wake {
            lanes.wake_at(&receiver, at);
        }
        if lanes.done(&receiver) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver));
        }
        self.next_turns();
    }

    pub(super) fn parts(&self) -> &DispatcherDependencies {
        &self.0.parts
    }

    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.0.ledger.get()
    }
}

fn held_as(claim: &DeliveryClaim) -> ClaimKey {
    ((claim.tenant.clone(), claim.handoff_id), claim.attempt)
}

impl Outbound for Dispatcher {
    fn reserve(&self, receiver: &ReceiverKey) -> Option<DeliverySlot> {
        let DispatcherState { parts, lanes, claims, .. } = &*self.0;
        let kept = !parts.stopping.is_cancelled() && lanes.reserve(receiver, parts.clock.now());
        kept.then(|| claims.begin())
    }

    fn deliver(&self, slot: DeliverySlot, claim: DeliveryClaim) {
        self.0.claims.end(slot, [held_as(&claim)]);
        self.spawn(claim);
    }

    fn release(&self, slot: DeliverySlot, receiver: &ReceiverKey, lost: bool) {
        if lost {
            self.0.claims.lost(slot);
        } else {
            self.0.claims.end(slot, []);
        }
        if self.0.lanes.give_back(receiver, 1, self.0.parts.clock.now()) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
        self.next_turns();
    }

    fn nudge(&self, receiver: &ReceiverKey) {
        if self.0.lanes.must_look(receiver) {
            // The loop lives as long as the broker; a nudge after it has no effect.
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
