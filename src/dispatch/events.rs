//! Telling subscribers of events: operators at their subscriptions, agents at their `callbackUrl`.
//!
//! Each subscriber has a cursor in the store, and is told of one event after the other, in the feed's
//! order, at least once. The broker that tells it holds the cursor's lease; when it dies, another goes
//! on from the cursor within seconds. Each subscriber is served by a task of its own, so a slow one
//! delays nobody else. An endpoint that does not answer well holds its own line, with growing pauses,
//! until it does or is given up; an event that the endpoint refuses as such is set aside after a few
//! attempts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff::RetryPolicy;
use super::standard_webhooks::WebhookSecret;
use super::webhook::{HandoffHeaders, Notice, VerdictClock, WebhookClient, WebhookRequest};
use crate::clock::{self, Clock};
use crate::directory::Directory;
use crate::domain::canonical;
use crate::domain::event::{EventFilter, EventFormat, Position, Subscriber};
use crate::domain::ids::AgentId;
use crate::evidence::record::Actor;
use crate::fault::{self, Step};
use crate::feed::Feed;
use crate::ledger::Ledger;
use crate::ledger::command::{Command, DisableSubscriber, Kind, content};
use crate::metrics::Metrics;
use crate::store::events::{
    CursorKey, CursorRow, CursorSettle, EventDeliveryRow, EventRow, EventScope,
};
use crate::store::{Store, StoreError};
use crate::vault::{AgentSecrets, SecretKind, Vault};

/// Events read at once for one subscriber.
const PAGE: i64 = 64;
/// Subscribers looked for at once.
const LOOK: i64 = 256;
/// The longest that what was delivered stays unwritten while more is being delivered: as much may be
/// delivered again after a crash.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// How soon a subscriber is looked at again whose endpoint cannot be found.
const NO_ENDPOINT_PAUSE: Duration = Duration::from_secs(5);
/// Statuses by which an endpoint refuses this one event.
const REFUSALS: [u16; 5] = [400, 409, 413, 415, 422];

/// How subscribers are told.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Pauses between attempts at one event.
    pub retry: RetryPolicy,
    /// For one attempt.
    pub timeout: Duration,
    /// Attempts at an event that the endpoint refuses, before it is set aside.
    pub set_aside_after: i32,
    /// An endpoint that fails for so long is given up.
    pub disable_after: Duration,
    /// How long a subscriber belongs to a broker that is silent.
    pub lease: Duration,
    /// How often to look for what other brokers left behind.
    pub poll: Duration,
    /// Subscribers told at once.
    pub at_once: usize,
}

/// What the teller works with.
pub struct Parts {
    /// Where events and cursors are.
    pub store: Arc<dyn Store>,
    /// Puts events into words.
    pub feed: Feed,
    /// Agents and their callbacks.
    pub directory: Arc<Directory>,
    /// Opens secrets.
    pub vault: Vault,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Posts.
    pub client: WebhookClient,
    /// Says when there is something to tell; takes what was given up.
    pub ledger: Ledger,
    /// How.
    pub settings: Settings,
    /// This broker's name.
    pub broker: String,
    /// What ends its work.
    pub stopping: CancellationToken,
}

/// The teller. Clones share everything.
#[derive(Clone)]
pub struct Teller(Arc<Inner>);

struct Inner {
    parts: Parts,
    busy: Mutex<HashSet<CursorKey>>,
    places: Arc<Semaphore>,
    tracker: TaskTracker,
}

/// Where a subscriber is told, and of what.
struct Endpoint {
    url: String,
    secrets: Vec<WebhookSecret>,
    filter: EventFilter,
    format: EventFormat,
    /// Told of what is addressed to it, not of everything.
    audience: Option<AgentId>,
}

/// What one attempt means for the subscriber's line.
enum Told {
    /// Go on with the next.
    Next,
    /// Not now.
    Later { pause: Duration },
    /// Never again.
    Gone,
}

/// One subscriber being told: its cursor as it is, and as it was when last written.
struct Line {
    cursor: CursorRow,
    written: Position,
    written_at: tokio::time::Instant,
    log: Vec<EventDeliveryRow>,
}

impl Teller {
    /// Not running yet; subscribers are served on `tracker`.
    #[must_use]
    pub fn new(parts: Parts, tracker: TaskTracker) -> Self {
        let places = Arc::new(Semaphore::new(parts.settings.at_once));
        Self(Arc::new(Inner { parts, busy: Mutex::default(), places, tracker }))
    }

    /// Tells until the broker stops.
    pub async fn run(self) {
        let Parts { ledger, settings, stopping, .. } = &self.0.parts;
        let mut renew_at = tokio::time::Instant::now() + settings.lease / 3;
        let mut poll_at = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = ledger.event_told() => self.look().await,
                () = tokio::time::sleep_until(poll_at) => {
                    self.look().await;
                    poll_at = tokio::time::Instant::now()
                        + settings.poll.mul_f64(1.0 + clock::random_fraction() / 2.0);
                }
                () = tokio::time::sleep_until(renew_at) => {
                    self.renew().await;
                    renew_at = tokio::time::Instant::now() + settings.lease / 3;
                }
            }
        }
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, HashSet<CursorKey>> {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the leases of those who are being told.
    async fn renew(&self) {
        let Parts { store, clock, settings, broker, .. } = &self.0.parts;
        if self.busy().is_empty() {
            return;
        }
        let now = clock.now();
        if let Err(err) = store.renew_cursors(broker, now, now.plus(settings.lease)).await {
            tracing::warn!(error = %err, "event leases could not be renewed");
        }
    }

    /// Looks for subscribers behind whose cursor there is something, and serves them.
    async fn look(&self) {
        let Parts { store, clock, .. } = &self.0.parts;
        let due = match store.list_due_cursors(clock.now(), LOOK).await {
            Ok(due) => due,
            Err(err) => {
                tracing::warn!(error = %err, "subscribers cannot be looked for");
                return;
            }
        };
        for key in due {
            if self.busy().contains(&key) {
                continue;
            }
            // No place: the ones at work look again when they are done.
            let Ok(place) = Arc::clone(&self.0.places).try_acquire_owned() else { return };
            self.busy().insert(key.clone());
            let this = self.clone();
            self.0.tracker.spawn(async move {
                let pause = this.serve(&key).await;
                this.busy().remove(&key);
                drop(place);
                let Parts { ledger, stopping, .. } = &this.0.parts;
                // What was committed while the lease was held found it taken.
                match pause {
                    Ok(None) => ledger.look_for_events(),
                    Ok(Some(pause)) => tokio::select! {
                        () = tokio::time::sleep(pause) => ledger.look_for_events(),
                        () = stopping.cancelled() => {}
                    },
                    Err(err) => tracing::warn!(error = %err, "a subscriber could not be told"),
                }
            });
        }
    }

    /// Takes the lease and tells until there is nothing left or the endpoint fails. Returns how long to
    /// wait before looking again.
    async fn serve(&self, key: &CursorKey) -> Result<Option<Duration>, StoreError> {
        let Parts { store, clock, settings, broker, stopping, .. } = &self.0.parts;
        let now = clock.now();
        let until = now.plus(settings.lease);
        let Some(cursor) = store.claim_cursor(key, broker, now, until).await? else {
            // Somebody else tells it; the poll comes back to it.
            return Ok(Some(settings.poll));
        };
        let mut line = Line {
            written: cursor.position,
            written_at: tokio::time::Instant::now(),
            log: Vec::new(),
            cursor,
        };
        loop {
            let Some(endpoint) = self.endpoint(key).await? else {
                line.cursor.next_at = clock.now().plus(NO_ENDPOINT_PAUSE);
                self.write(&mut line, true).await?;
                return Ok(Some(NO_ENDPOINT_PAUSE));
            };
            let scope = endpoint.audience.as_ref().map_or(EventScope::All, EventScope::Audience);
            let rows = store.list_events(&key.0, scope, line.cursor.position, PAGE).await?;
            let last = i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE;
            for row in rows {
                if stopping.is_cancelled() {
                    self.write(&mut line, true).await?;
                    return Ok(Some(Duration::ZERO));
                }
                if !endpoint.filter.takes(&row.event) {
                    line.cursor.position = row.position;
                    continue;
                }
                match self.tell(&mut line, &endpoint, &row).await? {
                    Told::Next => {}
                    Told::Later { pause } => {
                        return self.hold(key, line, &endpoint, pause).await;
                    }
                    Told::Gone => {
                        self.write(&mut line, true).await?;
                        self.give_up(key, &endpoint, "ENDPOINT_GONE").await;
                        return Ok(None);
                    }
                }
                if line.written_at.elapsed() >= WRITE_EVERY && !self.write(&mut line, false).await?
                {
                    return Ok(None);
                }
            }
            if !self.write(&mut line, last).await? || last {
                return Ok(None);
            }
        }
    }

    /// The endpoint failed: its line stands still for a while, or for good.
    async fn hold(
        &self,
        key: &CursorKey,
        mut line: Line,
        endpoint: &Endpoint,
        pause: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let Parts { clock, settings, .. } = &self.0.parts;
        let now = clock.now();
        line.cursor.next_at = now.plus(pause);
        self.write(&mut line, true).await?;
        let since = line.cursor.failing_since.unwrap_or(now);
        if now.since(since) >= settings.disable_after {
            self.give_up(key, endpoint, "FAILING").await;
            return Ok(None);
        }
        Ok(Some(pause))
    }

    /// One attempt at one event.
    async fn tell(
        &self,
        line: &mut Line,
        endpoint: &Endpoint,
        row: &EventRow,
    ) -> Result<Told, StoreError> {
        let Parts { feed, clock, metrics, .. } = &self.0.parts;
        let body = feed.tell(row, endpoint.format, endpoint.audience.as_ref()).await?;
        let attempt = line.cursor.failures.saturating_add(1);
        let (notice, elapsed) = self.post(endpoint, row, &body, attempt).await;
        fault::at(Step::EventTold);
        let (told, outcome, status, detail) = self.judge(notice, attempt);
        metrics.event_deliveries.with_label_values(&[outcome]).inc();
        let now = clock.now();
        if outcome == "delivered" {
            metrics.event_lag_seconds.observe(now.since(row.event.at).as_secs_f64());
        }
        match told {
            Told::Next => {
                line.cursor.position = row.position;
                line.cursor.failures = 0;
                line.cursor.failing_since = None;
            }
            Told::Later { .. } | Told::Gone => {
                line.cursor.failures = attempt;
                line.cursor.failing_since.get_or_insert(now);
            }
        }
        line.cursor.attempts += 1;
        line.log.push(EventDeliveryRow {
            number: line.cursor.attempts,
            position: row.position,
            event_id: row.id.to_string(),
            kind: row.event.kind.as_str().to_owned(),
            at: now,
            attempt,
            outcome: outcome.to_owned(),
            status: status.map(i32::from),
            detail,
            duration_us: i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX),
        });
        Ok(told)
    }

    async fn post(
        &self,
        endpoint: &Endpoint,
        row: &EventRow,
        body: &serde_json::Value,
        attempt: i32,
    ) -> (Notice, Duration) {
        let Parts { clock, client, settings, .. } = &self.0.parts;
        let request = WebhookRequest {
            encoded: None,
            url: endpoint.url.clone(),
            body: canonical::to_vec(body).into(),
            id: row.id.to_string(),
            timestamp_s: clock.now().seconds(),
            secrets: endpoint.secrets.clone(),
            headers: HandoffHeaders {
                attempt: u32::try_from(attempt).ok(),
                ..HandoffHeaders::default()
            },
            timeout: settings.timeout,
            verdict: VerdictClock::Stopped,
        };
        let content_type = match endpoint.format {
            EventFormat::Standard => "application/json",
            EventFormat::CloudEvents => "application/cloudevents+json; charset=utf-8",
        };
        client.notify(request, content_type).await
    }

    /// What an answer means: the line's next step, the word for it, the status, what went wrong.
    fn judge(
        &self,
        notice: Notice,
        attempt: i32,
    ) -> (Told, &'static str, Option<u16>, Option<String>) {
        let settings = &self.0.parts.settings;
        let later = |retry_after| {
            let attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
            let pause = settings.retry.next_delay(attempts, clock::random_fraction(), retry_after);
            Told::Later { pause: pause.unwrap_or(settings.retry.cap) }
        };
        match notice {
            Notice::Answered { status, .. } if (200..300).contains(&status) => {
                (Told::Next, "delivered", Some(status), None)
            }
            Notice::Answered { status: 410, .. } => {
                (Told::Gone, "gone", Some(410), Some("the endpoint says it is gone".to_owned()))
            }
            Notice::Answered { status, .. }
                if REFUSALS.contains(&status) && attempt >= settings.set_aside_after =>
            {
                let detail = format!("refused with {status} {attempt} times");
                (Told::Next, "set_aside", Some(status), Some(detail))
            }
            Notice::Answered { status, retry_after } => {
                (later(retry_after), "retry", Some(status), Some(format!("answered {status}")))
            }
            Notice::Failed(failure) => (later(None), "retry", failure.status, Some(failure.detail)),
        }
    }

    /// Writes where the line stands; `false` where it is no longer this broker's to tell.
    async fn write(&self, line: &mut Line, give_back: bool) -> Result<bool, StoreError> {
        let Parts { store, clock, settings, broker, .. } = &self.0.parts;
        let now = clock.now();
        let cursor = &line.cursor;
        let key = (cursor.tenant.clone(), cursor.subscriber.clone());
        let settle = CursorSettle {
            from: line.written,
            to: cursor.position,
            next_at: cursor.next_at,
            failures: cursor.failures,
            failing_since: cursor.failing_since,
            lease_until: if give_back { now } else { now.plus(settings.lease) },
        };
        let kept = store.settle_cursor(&key, broker, &settle, &line.log).await?;
        line.written = cursor.position;
        line.written_at = tokio::time::Instant::now();
        line.log.clear();
        Ok(kept)
    }

    /// Where a subscriber is told; `None` if it is not there, or not to be told.
    async fn endpoint(&self, key: &CursorKey) -> Result<Option<Endpoint>, StoreError> {
        let Parts { store, directory, .. } = &self.0.parts;
        match &key.1 {
            Subscriber::Subscription(id) => {
                let Some(row) = store.find_subscription(&(key.0.clone(), *id)).await? else {
                    return Ok(None);
                };
                let secrets = self.secrets(key, &row.secrets, &key.1);
                Ok(secrets.filter(|_| row.subscription.enabled).map(|secrets| Endpoint {
                    url: row.subscription.url,
                    secrets,
                    filter: row.subscription.filter,
                    format: row.subscription.format,
                    audience: None,
                }))
            }
            Subscriber::Agent(agent) => {
                let agents =
                    directory.agents(&key.0).await.map_err(|err| StoreError::clone(&err))?;
                let Some(row) = agents.row(agent) else { return Ok(None) };
                let secrets = self.secrets(key, &row.secrets, agent);
                Ok(row.agent.callback_url.clone().zip(secrets).map(|(url, secrets)| Endpoint {
                    url,
                    secrets,
                    filter: EventFilter::default(),
                    format: EventFormat::Standard,
                    audience: Some(agent.clone()),
                }))
            }
        }
    }

    fn secrets(
        &self,
        key: &CursorKey,
        sealed: &str,
        owner: &impl std::fmt::Display,
    ) -> Option<Vec<WebhookSecret>> {
        let Parts { vault, clock, .. } = &self.0.parts;
        AgentSecrets::parse(sealed)
            .open(vault, &key.0, owner, SecretKind::Webhook, clock.now())
            .inspect_err(|err| {
                tracing::error!(error = %err, subscriber = %key.1, "a secret does not open");
            })
            .ok()?
            .iter()
            .map(|text| WebhookSecret::parse(std::str::from_utf8(text).ok()?).ok())
            .collect()
    }

    async fn give_up(&self, key: &CursorKey, endpoint: &Endpoint, reason: &'static str) {
        let Parts { ledger, clock, metrics, directory, .. } = &self.0.parts;
        tracing::error!(subscriber = %key.1, reason, "a subscriber is no longer told of events");
        let now = clock.now();
        let said = serde_json::json!({ "subscriber": key.1.to_string(), "reason": reason });
        let command = Command {
            tenant: key.0.clone(),
            at: now,
            actor: Actor::broker(),
            kind: Kind::DisableSubscriber(Box::new(DisableSubscriber {
                subscriber: key.1.clone(),
                url: endpoint.url.clone(),
                reason,
                content: content(&canonical::to_vec(&said), now),
            })),
        };
        match ledger.handle(command).await {
            Ok(_) => metrics.subscribers_disabled.inc(),
            // It is told again, answers the same again, and is given up then.
            Err(err) => tracing::warn!(error = %err, "the subscriber could not be disabled"),
        }
        directory.agents_changed(&key.0).await;
    }
}
