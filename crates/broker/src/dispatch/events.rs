//! Publication of events: to operators' subscriptions and to agents' `callbackUrl`.
//!
//! Each subscriber has a cursor in the store and receives one event after the other, in the feed's order, at least
//! once. The publishing broker holds the cursor's lease; when that broker dies, another continues from the cursor
//! within seconds. Each subscriber is served by its own task, so a slow one delays no other. A failing endpoint blocks
//! only its own stream, with growing pauses, until it answers or is disabled; an event that the endpoint refuses as
//! such is set aside after a few attempts.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff::RetryPolicy;
use super::in_service::InService;
use crate::directory::Directory;
use crate::dispatch::webhook::{HandoffHeaders, Notice, WebhookClient, WebhookRequest};
use crate::feed::Feed;
use crate::ledger::Ledger;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::DisableSubscriber;
use crate::metrics::Metrics;
use crate::transport::VerdictClock;
use crate::transport::standard_webhooks::WebhookSecret;
use crate::vault::{AgentSecrets, EndpointCredentials, SecretKind, Vault};
use handoffd_domain::canonical;
use handoffd_domain::event::{EventFilter, EventFormat, Position, Subscriber};
use handoffd_domain::ids::AgentId;
use handoffd_evidence::record::Actor;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::events::{
    CursorKey, CursorRow, CursorSettle, EventDeliveryOutcome, EventDeliveryRow, EventRow,
    EventScope,
};
use handoffd_store::store::{Store, StoreError};

/// Events read at once for one subscriber.
const PAGE: i64 = 64;
/// Subscribers returned by one look-up.
const LOOK: i64 = 256;
/// How long a broker may miss the first subscriber that another broker took.
const QUIET: Duration = Duration::from_secs(1);

/// Longest time between two writes of a cursor while events are delivered: the events of this time may be delivered
/// again after a crash.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Pause before a subscriber without an endpoint is looked up again.
const NO_ENDPOINT_PAUSE: Duration = Duration::from_secs(5);
/// Statuses by which an endpoint refuses a single event.
const REFUSALS: [u16; 5] = [400, 409, 413, 415, 422];

/// Settings of event publication.
#[derive(Debug, Clone, Copy)]
pub struct PublisherSettings {
    /// Pauses between attempts at one event.
    pub retry: RetryPolicy,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Attempts at an event that the endpoint refuses, before the event is set aside.
    pub set_aside_after: i32,
    /// An endpoint that fails for this long is disabled.
    pub disable_after: Duration,
    /// Lifetime of a cursor's lease without renewal.
    pub lease: Duration,
    /// Interval between two looks for subscribers that no broker serves.
    pub poll: Duration,
    /// Largest number of subscribers served concurrently.
    pub at_once: usize,
}

pub struct PublisherDependencies {
    /// Store of events and cursors.
    pub store: Arc<Store>,
    /// Feed that renders events.
    pub feed: Feed,
    /// Directory of agents and their callbacks.
    pub directory: Arc<Directory>,
    /// Vault that opens signing secrets.
    pub vault: Vault,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Client that sends the requests.
    pub client: WebhookClient,
    /// Ledger that signals new events and takes disabled endpoints.
    pub ledger: Ledger,
    pub settings: PublisherSettings,
    /// This broker's name, under which leases are held.
    pub broker: String,
    /// Token that ends the publisher.
    pub stopping: CancellationToken,
}

/// Publishes events to subscribers. Clones share all state.
#[derive(Clone)]
pub struct EventPublisher(Arc<PublisherState>);

struct PublisherState {
    parts: PublisherDependencies,
    in_service: InService<CursorKey>,
    tracker: TaskTracker,
}

/// A subscriber's URL, secrets and filter.
struct SubscriberEndpoint {
    url: String,
    secrets: Vec<WebhookSecret>,
    credentials: EndpointCredentials,
    filter: EventFilter,
    format: EventFormat,
    /// Limits publication to events that are addressed to this agent.
    audience: Option<AgentId>,
}

/// The consequence of one attempt for the subscriber's stream.
enum PublicationStep {
    /// Continue with the next event.
    Next,
    /// Retry after a pause.
    Later { pause: Duration },
    /// Disable the endpoint.
    Gone,
}

/// The stream of one subscriber: its cursor now, and its cursor as last written.
struct SubscriberStream {
    cursor: CursorRow,
    written: Position,
    written_at: tokio::time::Instant,
    log: Vec<EventDeliveryRow>,
}

impl EventPublisher {
    /// A publisher that is not running yet; subscribers are served on `tracker`.
    #[must_use]
    pub fn new(parts: PublisherDependencies, tracker: TaskTracker) -> Self {
        let in_service = InService::new(parts.settings.at_once);
        Self(Arc::new(PublisherState { parts, in_service, tracker }))
    }

    /// Publishes until the broker stops.
    pub async fn run(self) {
        let PublisherDependencies { ledger, settings, stopping, .. } = &self.0.parts;
        let mut renew_at = tokio::time::Instant::now() + settings.lease / 3;
        let mut poll_at = tokio::time::Instant::now();
        // Without subscribers no event is read until then; a notification in between causes a read afterwards.
        let mut quiet: Option<tokio::time::Instant> = None;
        // As of the last poll.
        let mut subscribed = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = ledger.event_committed(), if quiet.is_none() => {
                    quiet = self.look(&mut subscribed).await;
                }
                () = ledger.subscribers_changed() => {
                    subscribed = false;
                    quiet = self.look(&mut subscribed).await;
                }
                () = tokio::time::sleep_until(quiet.unwrap_or(poll_at)), if quiet.is_some() => {
                    quiet = None;
                }
                () = tokio::time::sleep_until(poll_at) => {
                    subscribed = false;
                    quiet = self.look(&mut subscribed).await;
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

    /// Renews the leases of the subscribers in service.
    async fn renew(&self) {
        let PublisherDependencies { store, clock, settings, broker, .. } = &self.0.parts;
        if self.0.in_service.is_empty() {
            return;
        }
        let now = clock.now();
        if let Err(err) = store.renew_cursors(broker, now, now.plus(settings.lease)).await {
            tracing::warn!(error = %err, "event leases could not be renewed");
        }
    }

    /// Serves subscribers with unpublished events. Without subscribers, returns until when events need not be looked
    /// for: a look after each commit would cost a round trip, and find nothing.
    async fn look(&self, subscribed: &mut bool) -> Option<tokio::time::Instant> {
        if self.find_subscribers().await || *subscribed {
            return None;
        }
        *subscribed = self.0.parts.store.has_cursors().await.unwrap_or(true);
        (!*subscribed).then(|| tokio::time::Instant::now() + QUIET)
    }

    /// Finds subscribers with unpublished events, and serves them. Returns whether there were any, or could be.
    async fn find_subscribers(&self) -> bool {
        let PublisherDependencies { store, clock, .. } = &self.0.parts;
        let due = match store.list_due_cursors(clock.now(), LOOK).await {
            Ok(due) => due,
            Err(err) => {
                tracing::warn!(error = %err, "subscribers cannot be listed");
                return true;
            }
        };
        let found = !due.is_empty();
        for service in self.0.in_service.admit(due) {
            let this = self.clone();
            self.0.tracker.spawn(async move {
                let pause = this.serve(service.key()).await;
                drop(service);
                let PublisherDependencies { ledger, stopping, .. } = &this.0.parts;
                // An event that was committed during the lease found it taken.
                match pause {
                    Ok(None) => ledger.look_for_events(),
                    Ok(Some(pause)) => tokio::select! {
                        () = tokio::time::sleep(pause) => ledger.look_for_events(),
                        () = stopping.cancelled() => {}
                    },
                    Err(err) => tracing::warn!(error = %err, "events could not be published to a subscriber"),
                }
            });
        }
        found
    }

    /// Takes the lease and publishes until no event is left or the endpoint fails. Returns the pause before the next
    /// look.
    async fn serve(&self, key: &CursorKey) -> Result<Option<Duration>, StoreError> {
        let PublisherDependencies { store, ledger, clock, settings, broker, stopping, .. } =
            &self.0.parts;
        let now = clock.now();
        let until = now.plus(settings.lease);
        let Some(cursor) = store.claim_cursor(key, broker, now, until).await? else {
            // Another broker serves it; the poll comes back to it.
            return Ok(Some(settings.poll));
        };
        let mut line = SubscriberStream {
            written: cursor.position,
            written_at: tokio::time::Instant::now(),
            log: Vec::new(),
            cursor,
        };
        let mut changes = ledger.watch_subscriber(key.clone());
        loop {
            changes.take_change();
            let Some(endpoint) = self.endpoint(key).await? else {
                line.cursor.next_at = clock.now().plus(NO_ENDPOINT_PAUSE);
                self.write(&mut line, true).await?;
                return Ok(Some(NO_ENDPOINT_PAUSE));
            };
            let scope = endpoint.audience.as_ref().map_or(EventScope::All, EventScope::Audience);
            let rows = store.list_events(&key.0, scope, line.cursor.position, PAGE).await?;
            let mut last = i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE;
            for row in rows {
                if stopping.is_cancelled() {
                    self.write(&mut line, true).await?;
                    return Ok(Some(Duration::ZERO));
                }
                if !endpoint.filter.takes(&row.event) {
                    line.cursor.position = row.position;
                    continue;
                }
                match self.publish(&mut line, &endpoint, &row).await? {
                    PublicationStep::Next => {}
                    PublicationStep::Later { pause } => {
                        return self.pause_stream(key, line, &endpoint, pause).await;
                    }
                    PublicationStep::Gone => {
                        self.write(&mut line, true).await?;
                        self.give_up(key, &endpoint, "ENDPOINT_GONE").await;
                        return Ok(None);
                    }
                }
                if line.written_at.elapsed() >= WRITE_EVERY && !self.write(&mut line, false).await?
                {
                    return Ok(None);
                }
                // This subscriber may have been replaced: the other one continues at its place, so it stops after this event.
                if changes.take_change() {
                    last = false;
                    break;
                }
            }
            if !self.write(&mut line, last).await? || last {
                return Ok(None);
            }
        }
    }

    /// Records that the endpoint failed: the stream pauses, or ends.
    async fn pause_stream(
        &self,
        key: &CursorKey,
        mut line: SubscriberStream,
        endpoint: &SubscriberEndpoint,
        pause: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let PublisherDependencies { clock, settings, .. } = &self.0.parts;
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
    async fn publish(
        &self,
        line: &mut SubscriberStream,
        endpoint: &SubscriberEndpoint,
        row: &EventRow,
    ) -> Result<PublicationStep, StoreError> {
        let PublisherDependencies { feed, clock, metrics, .. } = &self.0.parts;
        let body = feed.render(row, endpoint.format, endpoint.audience.as_ref()).await?;
        let attempt = line.cursor.failures.saturating_add(1);
        let (notice, elapsed) = self.post(endpoint, row, &body, attempt).await;
        fault::at(Step::EventTold);
        let (step, outcome, status, detail) = self.judge(notice, attempt);
        metrics.event_deliveries.with_label_values(&[outcome.as_str()]).inc();
        let now = clock.now();
        if outcome == EventDeliveryOutcome::Delivered {
            metrics.event_lag_seconds.observe(now.since(row.event.at).as_secs_f64());
        }
        match step {
            PublicationStep::Next => {
                line.cursor.position = row.position;
                line.cursor.failures = 0;
                line.cursor.failing_since = None;
            }
            PublicationStep::Later { .. } | PublicationStep::Gone => {
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
            outcome,
            status: status.map(i32::from),
            detail,
            duration_us: i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX),
        });
        Ok(step)
    }

    async fn post(
        &self,
        endpoint: &SubscriberEndpoint,
        row: &EventRow,
        body: &serde_json::Value,
        attempt: i32,
    ) -> (Notice, Duration) {
        let PublisherDependencies { clock, client, settings, .. } = &self.0.parts;
        let request = WebhookRequest {
            encoded: None,
            url: endpoint.url.clone(),
            body: canonical::to_vec(body).into(),
            id: row.id.to_string(),
            timestamp_s: clock.wall().seconds(),
            secrets: endpoint.secrets.clone(),
            headers: HandoffHeaders {
                attempt: u32::try_from(attempt).ok(),
                authorization: endpoint.credentials.authorization.clone(),
                notification_token: endpoint.credentials.token.clone(),
                ..HandoffHeaders::default()
            },
            timeout: settings.timeout,
            verdict: VerdictClock::Stopped,
        };
        let content_type = match endpoint.format {
            EventFormat::Standard => "application/json",
            EventFormat::CloudEvents => "application/cloudevents+json; charset=utf-8",
            EventFormat::A2a => "application/a2a+json",
        };
        client.notify(request, content_type).await
    }

    /// Translates an answer: the stream's next step, the outcome, the status, and the error text.
    fn judge(
        &self,
        notice: Notice,
        attempt: i32,
    ) -> (PublicationStep, EventDeliveryOutcome, Option<u16>, Option<String>) {
        let settings = &self.0.parts.settings;
        let later = |retry_after| {
            let attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
            let pause = settings.retry.next_delay(attempts, clock::random_fraction(), retry_after);
            PublicationStep::Later { pause: pause.unwrap_or(settings.retry.cap) }
        };
        match notice {
            Notice::Answered { status, .. } if (200..300).contains(&status) => {
                (PublicationStep::Next, EventDeliveryOutcome::Delivered, Some(status), None)
            }
            Notice::Answered { status: 410, .. } => (
                PublicationStep::Gone,
                EventDeliveryOutcome::Gone,
                Some(410),
                Some("the endpoint says it is gone".to_owned()),
            ),
            Notice::Answered { status, .. }
                if REFUSALS.contains(&status) && attempt >= settings.set_aside_after =>
            {
                let detail = format!("refused with {status} {attempt} times");
                (PublicationStep::Next, EventDeliveryOutcome::SetAside, Some(status), Some(detail))
            }
            Notice::Answered { status, retry_after } => (
                later(retry_after),
                EventDeliveryOutcome::Retry,
                Some(status),
                Some(format!("answered {status}")),
            ),
            Notice::Failed(failure) => {
                (later(None), EventDeliveryOutcome::Retry, failure.status, Some(failure.detail))
            }
        }
    }

    /// Writes the cursor; `false` where another broker holds the lease.
    async fn write(
        &self,
        line: &mut SubscriberStream,
        give_back: bool,
    ) -> Result<bool, StoreError> {
        let PublisherDependencies { store, clock, settings, broker, .. } = &self.0.parts;
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

    /// Resolves a subscriber's endpoint; `None` if it does not exist or is disabled.
    async fn endpoint(&self, key: &CursorKey) -> Result<Option<SubscriberEndpoint>, StoreError> {
        let PublisherDependencies { store, directory, .. } = &self.0.parts;
        match &key.1 {
            Subscriber::Subscription(id) => {
                let Some(row) = store.find_subscription(&(key.0.clone(), *id)).await? else {
                    return Ok(None);
                };
                let secrets = self
                    .secrets(key, &row.secrets, &key.1)
                    .zip(self.credentials(key, &row.secrets));
                let secrets = secrets.filter(|_| row.subscription.enabled);
                Ok(secrets.map(|(secrets, credentials)| SubscriberEndpoint {
                    url: row.subscription.url,
                    secrets,
                    credentials,
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
                Ok(row.agent.callback_url.clone().zip(secrets).map(|(url, secrets)| {
                    SubscriberEndpoint {
                        url,
                        secrets,
                        credentials: EndpointCredentials::default(),
                        filter: EventFilter::default(),
                        format: EventFormat::Standard,
                        audience: Some(agent.clone()),
                    }
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
        let PublisherDependencies { vault, clock, .. } = &self.0.parts;
        AgentSecrets::parse(sealed)
            .open(vault, &key.0, owner, SecretKind::Webhook, clock.now())
            .inspect_err(|err| {
                tracing::error!(error = %err, subscriber = %key.1, "a secret cannot be opened");
            })
            .ok()?
            .iter()
            .map(|text| WebhookSecret::parse(std::str::from_utf8(text).ok()?).ok())
            .collect()
    }

    /// Opens the headers that a subscription sends to its endpoint; `None` where a sealed one does not open.
    fn credentials(&self, key: &CursorKey, sealed: &str) -> Option<EndpointCredentials> {
        AgentSecrets::parse(sealed)
            .credentials(&self.0.parts.vault, &key.0, &key.1)
            .inspect_err(|err| {
                tracing::error!(error = %err, subscriber = %key.1, "credentials cannot be opened");
            })
            .ok()
    }

    async fn give_up(&self, key: &CursorKey, endpoint: &SubscriberEndpoint, reason: &'static str) {
        let PublisherDependencies { ledger, clock, metrics, directory, .. } = &self.0.parts;
        tracing::error!(subscriber = %key.1, reason, "event publication to a subscriber is disabled");
        let now = clock.now();
        let words = serde_json::json!({ "subscriber": key.1.to_string(), "reason": reason });
        let call = Call { tenant: key.0.clone(), at: now, actor: Actor::broker() };
        let command = DisableSubscriber {
            subscriber: key.1.clone(),
            url: endpoint.url.clone(),
            reason,
            content: content(&canonical::to_vec(&words), now),
        };
        match ledger.handle(call, command).await {
            Ok(()) => metrics.subscribers_disabled.inc(),
            // It is told again, answers the same again, and is given up then.
            Err(err) => tracing::warn!(error = %err, "the subscriber could not be disabled"),
        }
        directory.agents_changed(&key.0).await;
    }
}
