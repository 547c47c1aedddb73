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

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use tracing::field::Empty;

use super::answer::{AttemptOutcome, FailureClass};
use super::backoff::RetryPolicy;
use super::breaker::BreakerSettings;
use super::budget::BudgetSettings;
use super::conventions;
use super::held::Claims;
use super::lanes::{EndpointHealthChange, Health, Lanes};
use super::standard_webhooks::WebhookSecret;
use super::turns::Turns;
use super::webhook::{Encoded, HandoffHeaders, Post, VerdictClock, WebhookRequest};
use crate::directory::Directory;
use crate::ledger::command::{Command, Kind, LedgerError, Outcome, Reply, Settle, content};
use crate::ledger::{Ledger, Outbound, Place};
use crate::metrics::Metrics;
use crate::telemetry;
use crate::vault::{AgentSecrets, SecretKind, Vault};
use handoffd_core::domain::canonical;
use handoffd_core::domain::content_coding::Coding;
use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::Micros;
use handoffd_core::evidence::record::Actor;
use handoffd_core::gate::schema::Schemas;
use handoffd_core::gate::schema::older::SCHEMA_UNREADABLE;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{AgentRow, Claim, ClaimKey, ClaimRelease, ReceiverKey, Store};

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

/// Settings of the dispatcher.
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
    /// Time that a receiver has for its verdict, from the first byte of the request.
    pub verdict: Duration,
    /// Lease of an accepted handoff.
    pub lease: Duration,
    /// Bodies larger than this many bytes are compressed for receivers that accept a coding.
    pub compress_above: usize,
}

/// Dependencies of the dispatcher.
pub struct DispatcherDependencies {
    /// Store that holds the outbox.
    pub store: Arc<dyn Store>,
    /// Directory of the receiving agents.
    pub directory: Arc<Directory>,
    /// Vault that opens webhook secrets.
    pub vault: Vault,
    /// The broker's clock.
    pub clock: Arc<dyn Clock>,
    /// The broker's metrics.
    pub metrics: Arc<Metrics>,
    /// Client that sends the requests.
    pub post: Arc<dyn Post>,
    /// Message schemas, which convert a message to a form that the receiver accepts.
    pub schemas: Arc<Schemas>,
    /// Redaction policy applied to stored answers.
    pub redaction: Arc<handoffd_core::domain::redaction::RedactionPolicy>,
    /// Timeouts and limits.
    pub settings: DispatcherSettings,
    /// This broker's name, under which claims are held.
    pub broker: String,
    /// Token that ends the dispatcher.
    pub stopping: CancellationToken,
}

/// A handoff's destination and the body in the receiver's form.
struct HandoffEndpoint {
    url: String,
    timeout: Duration,
    secrets: Vec<WebhookSecret>,
    /// The message in a form that the receiver accepts.
    body: Bytes,
    /// Content coding that the receiver accepts for large bodies.
    coding: Option<Coding>,
}

struct AttemptResult {
    tried: AttemptOutcome,
    url: String,
    begun_at: Micros,
    /// Deadline of the receiver's verdict, once a byte has left for it.
    verdict_by: Option<Micros>,
    /// Whether that deadline has passed.
    overdue: bool,
}

/// Why a handoff cannot be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsentReason {
    /// The agent no longer exists.
    Deleted,
    /// The endpoint answered 410, or was disabled.
    Disabled,
    /// The agent now pulls.
    Pulls,
    /// The agent accepts no schema version to which the message converts: the agent changed after the gate, or is not
    /// the agent that the gate checked.
    Unreadable,
    /// The webhook secret cannot be opened.
    Secret,
    /// The attempt before may have reached the receiver, and the handoff must not be sent twice.
    Unsettled,
    /// The broker stops; nothing was looked up.
    Stopping,
}

enum Nudge {
    Receiver(ReceiverKey),
    All,
}

/// Delivers handoffs to webhook receivers. Clones share all state.
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
                // only a period later: it keeps nobody from being heard.
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
        for (state, count) in lanes.census() {
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
                // Whoever had nothing to claim passes its turn on.
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
        let (places, asked) = lanes.reserve_many(receiver, now, most);
        if places == 0 {
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
                i64::from(places),
            ),
        )
        .await
        {
            Ok(Ok(claims)) => claims,
            Ok(Err(err)) => {
                tracing::warn!(error = %err, "the claim failed");
                held.lost(operation);
                lanes.give_back(receiver, places, now);
                return;
            }
            Err(_) => {
                tracing::warn!("the claim timed out");
                held.lost(operation);
                lanes.give_back(receiver, places, now);
                return;
            }
        };
        held.end(operation, claims.iter().map(held_as));
        if !claims.is_empty() {
            fault::at(Step::ClaimDone);
        }
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

    /// One attempt, from the reserved slot to the settled outcome.
    async fn attempt(&self, claim: Claim) {
        let parts = &self.0.parts;
        fault::at(Step::SendBegin);
        if claim.attempt == 1 {
            self.0.lanes.first(&(claim.tenant.clone(), claim.target.clone()));
        }
        let AttemptResult { tried, url, begun_at, verdict_by, overdue } =
            match self.post(&claim).await {
                Ok(posted) => posted,
                Err(unsent) => {
                    self.not_sent(&claim, unsent).await;
                    self.over(&claim, Health::Unknown, None);
                    return;
                }
            };
        conventions::conclude(&tried);
        let (mut outcome, said, health) = self.judge(&claim, &tried, verdict_by);
        if overdue {
            outcome = Outcome::Expired;
        }
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
        if matches!(tried, AttemptOutcome::Gone) {
            self.gone(&claim, &url).await;
        }
        let wake = match &outcome {
            Outcome::Retry { at, .. } => Some(*at),
            _ => None,
        };
        fault::at(Step::SettleBegin);
        self.settle(&claim, Some(begun_at), outcome, said).await;
        fault::at(Step::SettleDone);
        let told = self.over(&claim, health, wake);
        if let Some(told) = told {
            self.report_health(&claim, url, told).await;
        }
    }

    /// Settles a handoff that could not be posted.
    async fn not_sent(&self, claim: &Claim, unsent: UnsentReason) {
        let given_up = |why: &str| Outcome::GivenUp { why: why.to_owned() };
        let outcome = match unsent {
            UnsentReason::Deleted => given_up("AGENT_DELETED"),
            UnsentReason::Disabled => given_up("ENDPOINT_DISABLED"),
            UnsentReason::Unreadable => given_up(SCHEMA_UNREADABLE),
            UnsentReason::Secret => given_up("DELIVERY_REQUEST"),
            UnsentReason::Unsettled => given_up("DELIVERY_UNKNOWN"),
            UnsentReason::Pulls => Outcome::Moved { mode: DeliveryMode::Pull },
            // Its claim is handed back with the others.
            UnsentReason::Stopping => return,
        };
        tracing::info!(why = ?unsent, "not sent");
        self.0.parts.metrics.attempts.with_label_values(&["not_sent"]).inc();
        let moved = matches!(outcome, Outcome::Moved { .. });
        self.settle(claim, None, outcome, None).await;
        if moved {
            self.0.lanes.takes_none(&(claim.tenant.clone(), claim.target.clone()));
        }
    }

    /// Frees the slot; `wake` is the time at which the receiver's outbox is read next. Returns a change of the
    /// endpoint's health that must be reported.
    fn over(
        &self,
        claim: &Claim,
        health: Health,
        wake: Option<Micros>,
    ) -> Option<EndpointHealthChange> {
        let DispatcherState { parts, lanes, .. } = &*self.0;
        let receiver = (claim.tenant.clone(), claim.target.clone());
        let (key, attempt) = held_as(claim);
        self.0.claims.let_go(&key, attempt);
        let now = parts.clock.now();
        if let Some(at) = wake {
            lanes.wake_at(&receiver, at);
        }
        let over = lanes.done(&receiver, health, now);
        if over.more {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver));
        }
        self.next_turns();
        over.told
    }

    async fn post(&self, claim: &Claim) -> Result<AttemptResult, UnsentReason> {
        let parts = &self.0.parts;
        if claim.unsettled && !claim.idempotent {
            return Err(UnsentReason::Unsettled);
        }
        let HandoffEndpoint { url, timeout, secrets, body, coding } = self.endpoint(claim).await?;
        let encoded = match coding.filter(|_| body.len() > parts.settings.compress_above) {
            Some(coding) => encoded(coding, body.clone()).await,
            None => None,
        };
        let span = conventions::post(&url, claim.attempt);
        let trace = conventions::outbound(claim, &span);
        let begun = parts.clock.now();
        let granted = claim.verdict_ms.map_or(parts.settings.verdict, Duration::from_millis);
        let verdict = match claim.deadline_at {
            _ if claim.to_person => VerdictClock::Stopped,
            Some(by) => VerdictClock::Running(by.since(begun)),
            None => VerdictClock::FromFirstByte(granted),
        };
        let request = WebhookRequest {
            url: url.clone(),
            body,
            encoded,
            id: claim.handoff_id.to_string(),
            timestamp_s: begun.seconds(),
            secrets,
            headers: HandoffHeaders {
                traceparent: Some(trace.0),
                tracestate: trace.1,
                handoff_id: Some(claim.handoff_id.to_string()),
                task_id: Some(claim.task_id.to_string()),
                attempt: u32::try_from(claim.attempt).ok(),
                fencing_token: Some(claim.fencing_token),
            },
            timeout,
            verdict,
        };
        let begun_at = parts.clock.now();
        let (tried, timing) = parts.post.send(request).instrument(span).await;
        let transport = DeliveryMode::Webhook.as_str();
        let attempt_seconds = parts.metrics.attempt_seconds.with_label_values(&[transport]);
        attempt_seconds.observe(timing.elapsed.as_secs_f64());
        let verdict_by = match verdict {
            VerdictClock::Stopped => None,
            VerdictClock::Running(left) => Some(begun.plus(left)),
            VerdictClock::FromFirstByte(all) => timing.sent.map(|sent| begun.plus(sent + all)),
        };
        Ok(AttemptResult { tried, url, begun_at, verdict_by, overdue: timing.overdue })
    }

    /// Resolves a handoff's destination. A reason against delivery is refreshed from the store before it counts,
    /// because this broker's view may be older than another broker's change.
    async fn endpoint(&self, claim: &Claim) -> Result<HandoffEndpoint, UnsentReason> {
        let DispatcherState { parts, .. } = &*self.0;
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
                        biased;
                        () = parts.stopping.cancelled() => return Err(UnsentReason::Stopping),
                        () = tokio::time::sleep(SETTLE_PAUSE_MAX) => continue,
                    }
                }
            };
            tracing::debug!(?why, "refreshing the endpoint");
            parts.directory.agents_changed(&claim.tenant).await;
            fresh = true;
        }
    }

    fn endpoint_of(
        &self,
        claim: &Claim,
        row: Option<&AgentRow>,
    ) -> Result<HandoffEndpoint, UnsentReason> {
        let row = row.ok_or(UnsentReason::Deleted)?;
        let delivery = &row.agent.delivery;
        if delivery.disabled {
            return Err(UnsentReason::Disabled);
        }
        let url = delivery
            .url
            .clone()
            .filter(|_| delivery.mode == DeliveryMode::Webhook)
            .ok_or(UnsentReason::Pulls)?;
        let secrets = self.secrets(row, self.0.parts.clock.now()).ok_or(UnsentReason::Secret)?;
        let body = claim.delivered(row.agent.is_entitled());
        let body = self
            .0
            .parts
            .schemas
            .delivered(body, &row.agent)
            .map_err(|_| UnsentReason::Unreadable)?;
        tracing::trace!(handoff_id = %claim.handoff_id, "endpoint resolved");
        let receiver = (claim.tenant.clone(), claim.target.clone());
        self.0.lanes.known(&receiver, delivery.max_in_flight, delivery.failing);
        let timeout = Duration::from_millis(delivery.timeout_ms);
        let coding = delivery.accept_encoding.first().copied();
        Ok(HandoffEndpoint { url, timeout, secrets, body, coding })
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

    /// Translates an attempt's outcome for the handoff, the stored answer, and the lane.
    fn judge(
        &self,
        claim: &Claim,
        tried: &AttemptOutcome,
        verdict_by: Option<Micros>,
    ) -> (Outcome, Option<serde_json::Value>, Health) {
        let settings = &self.0.parts.settings;
        let now = self.0.parts.clock.now();
        let again = |retry_after: Option<Duration>, why: &str| {
            // Who names a time is busy until then: that is no attempt, and only the verdict's time ends it.
            let busy = retry_after.is_some();
            let made = claim.attempt - claim.busy - i32::from(busy);
            let attempts = u32::try_from(made).unwrap_or(0);
            let policy = settings.retry.within(claim.max_retries);
            let random = clock::random_fraction();
            let pause = if busy {
                Some(policy.pause(attempts, random, retry_after))
            } else {
                policy.next_delay(attempts, random, None)
            };
            match pause {
                Some(pause) => {
                    let receiver = (claim.tenant.clone(), claim.target.clone());
                    let wanted = now.plus(pause);
                    let at = self.0.lanes.retry_at(&receiver, now, wanted);
                    if at > wanted {
                        self.0.parts.metrics.retries_put_off.inc();
                    }
                    Outcome::Retry { at, why: why.to_owned(), busy, verdict_by }
                }
                None => Outcome::GivenUp { why: why.to_owned() },
            }
        };
        match tried {
            AttemptOutcome::Accepted(said) => (
                Outcome::Accepted,
                said.clone().into_content().map(Value::Object),
                Health::Answered,
            ),
            AttemptOutcome::Rejected { reason, said } => {
                let reason = reason.clone().unwrap_or_else(|| "REJECTED".to_owned());
                let mut said = said.clone().into_content().unwrap_or_default();
                said.insert("reason".to_owned(), reason.clone().into());
                (Outcome::Rejected(reason), Some(Value::Object(said)), Health::Answered)
            }
            AttemptOutcome::Received => {
                // An answer without a byte sent before it is none; a person's time is not this one.
                let verdict_by = verdict_by.unwrap_or_else(|| now.plus(settings.verdict));
                (Outcome::Received { verdict_by }, None, Health::Answered)
            }
            AttemptOutcome::Busy { retry_after } => {
                (again(*retry_after, "RECEIVER_BUSY"), None, Health::Answered)
            }
            AttemptOutcome::Gone => {
                (Outcome::GivenUp { why: "ENDPOINT_GONE".to_owned() }, None, Health::Answered)
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
                (outcome, None, if hopeless { Health::Unknown } else { Health::Failed })
            }
        }
    }

    pub(super) fn parts(&self) -> &DispatcherDependencies {
        &self.0.parts
    }

    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.0.ledger.get()
    }

    /// Repeats the settlement until the ledger has it; a broker that stops leaves the claim to expire.
    async fn settle(
        &self,
        claim: &Claim,
        begun_at: Option<Micros>,
        outcome: Outcome,
        said: Option<serde_json::Value>,
    ) {
        let DispatcherState { parts, ledger, .. } = &*self.0;
        let Some(ledger) = ledger.get() else { return };
        let now = parts.clock.now();
        let command = Command {
            tenant: claim.tenant.clone(),
            at: now,
            actor: match outcome {
                // The receiver said nothing.
                Outcome::Expired => Actor::broker(),
                _ => Actor {
                    role: "agent".to_owned(),
                    agent_id: Some(claim.target.clone()),
                    key_id: None,
                },
            },
            kind: Kind::Settle(Box::new(Settle {
                task_id: claim.task_id,
                handoff_id: claim.handoff_id,
                attempt: claim.attempt,
                begun_at,
                outcome,
                content: said.map(|mut said| {
                    if let Some(words) = said.as_object_mut() {
                        self.0.parts.redaction.redact_words(words);
                    }
                    content(&canonical::to_vec(&said), now)
                }),
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
                        biased;
                        () = parts.stopping.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
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

/// Encodes a body on a blocking thread; `None` on failure, because the body can be sent plain.
async fn encoded(coding: Coding, body: Bytes) -> Option<Encoded> {
    let encoding = tokio::task::spawn_blocking(move || coding.encode(&body));
    let bytes = encoding.await.ok()?.ok()?;
    Some(Encoded { coding, bytes: bytes.into() })
}

fn held_as(claim: &Claim) -> ClaimKey {
    ((claim.tenant.clone(), claim.handoff_id), claim.attempt)
}

pub(super) fn label(tried: &AttemptOutcome) -> &'static str {
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
    fn reserve(&self, receiver: &ReceiverKey) -> Option<Place> {
        let DispatcherState { parts, lanes, claims, .. } = &*self.0;
        let kept = !parts.stopping.is_cancelled() && lanes.reserve(receiver, parts.clock.now());
        kept.then(|| claims.begin())
    }

    fn deliver(&self, place: Place, claim: Claim) {
        self.0.claims.end(place, [held_as(&claim)]);
        self.spawn(claim);
    }

    fn release(&self, place: Place, receiver: &ReceiverKey, lost: bool) {
        if lost {
            self.0.claims.lost(place);
        } else {
            self.0.claims.end(place, []);
        }
        if self.0.lanes.give_back(receiver, 1, self.0.parts.clock.now()) {
            let _ = self.0.nudges.send(Nudge::Receiver(receiver.clone()));
        }
        self.next_turns();
    }

    fn nudge(&self, receiver: &ReceiverKey) {
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
