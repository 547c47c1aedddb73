//! Chunks of handoffs in pieces to receivers by webhook (specification §10.5).
//!
//! Each stream has a line in the store. It begins once the handoff's own delivery is settled, and its receiver gets one
//! chunk after the other, at least once: the next leaves when the one before was answered with 2xx. The broker that sends
//! holds the line's lease; when that broker dies, another goes on behind the last chunk that was written as sent. A
//! handoff that has ended badly is told its end alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff::RetryPolicy;
use super::in_service::InService;
use crate::directory::{Agents, Directory};
use crate::dispatch::webhook::{HandoffHeaders, Notice, WebhookClient, WebhookRequest};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::transport::VerdictClock;
use crate::transport::standard_webhooks::WebhookSecret;
use crate::vault::{AgentSecrets, SecretKind, Vault};
use handoffd_domain::canonical;
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::stream::StreamStatus;
use handoffd_evidence::commitment::unpack;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::streams::{LineSettle, StoredChunk, StreamLine};
use handoffd_store::store::{ContentStorage, HandoffKey, Store, StoreError};

/// Chunks read at once for one receiver.
const PAGE: i64 = 64;
/// Lines returned by one look-up.
const LOOK: i64 = 256;
/// Longest time between two writes of a line while chunks are sent: the chunks of this time may be sent again after a
/// crash.
const WRITE_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy)]
pub struct ChunkSenderSettings {
    /// Pauses between attempts at one chunk; attempts at the end of a handoff that has ended.
    pub retry: RetryPolicy,
    /// Lifetime of a line's lease without renewal.
    pub lease: Duration,
    /// Interval between two looks for lines that no broker serves.
    pub poll: Duration,
    /// Largest number of lines served concurrently.
    pub at_once: usize,
}

/// Posts a chunk, which asks for no verdict; the simulation has one of its own.
#[async_trait]
pub trait ChunkPost: Send + Sync {
    /// Makes one attempt. Dropping the future abandons the attempt, which the receiver may have seen.
    async fn post_chunk(&self, request: WebhookRequest) -> Notice;
}

#[async_trait]
impl ChunkPost for WebhookClient {
    async fn post_chunk(&self, request: WebhookRequest) -> Notice {
        self.notify(request, "application/json").await.0
    }
}

pub struct ChunkSenderDependencies {
    /// Store of chunks and lines.
    pub store: Arc<Store>,
    pub directory: Arc<Directory>,
    /// Vault that opens signing secrets.
    pub vault: Vault,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Client that sends the requests.
    pub post: Arc<dyn ChunkPost>,
    /// Ledger that signals new chunks.
    pub ledger: Ledger,
    pub settings: ChunkSenderSettings,
    /// This broker's name, under which leases are held.
    pub broker: String,
    /// Token that ends the sender.
    pub stopping: CancellationToken,
}

/// Sends chunks to webhook receivers. Clones share all state.
#[derive(Clone)]
pub struct ChunkSender(Arc<SenderState>);

struct SenderState {
    parts: ChunkSenderDependencies,
    in_service: InService<HandoffKey>,
    tracker: TaskTracker,
}

/// A receiver's URL and secrets.
struct ChunkEndpoint {
    url: String,
    timeout: Duration,
    secrets: Vec<WebhookSecret>,
}

/// A line being served: as it is now, and when it was last written.
struct ServedLine {
    line: StreamLine,
    written_at: tokio::time::Instant,
}

impl ChunkSender {
    /// A sender that is not running yet; lines are served on `tracker`.
    #[must_use]
    pub fn new(parts: ChunkSenderDependencies, tracker: TaskTracker) -> Self {
        let in_service = InService::new(parts.settings.at_once);
        Self(Arc::new(SenderState { parts, in_service, tracker }))
    }

    /// Sends until the broker stops.
    pub async fn run(self) {
        let ChunkSenderDependencies { ledger, settings, stopping, .. } = &self.0.parts;
        loop {
            let pause = settings.poll.mul_f64(1.0 + clock::random_fraction() / 2.0);
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = ledger.chunk_committed() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.look().await;
        }
    }

    /// Serves lines with unsent chunks.
    async fn look(&self) {
        let ChunkSenderDependencies { store, clock, .. } = &self.0.parts;
        let due = match store.list_due_lines(clock.now(), LOOK).await {
            Ok(due) => due,
            Err(err) => {
                tracing::warn!(error = %err, "streams cannot be listed");
                return;
            }
        };
        for service in self.0.in_service.admit(due) {
            let this = self.clone();
            self.0.tracker.spawn(async move {
                let served = this.serve(service.key()).await;
                drop(service);
                match served {
                    // A chunk that was committed during the lease found it taken.
                    Ok(()) => this.0.parts.ledger.look_for_chunks(),
                    Err(err) => tracing::warn!(error = %err, "chunks could not be sent"),
                }
            });
        }
    }

    /// Takes the lease and sends until no chunk is left or the receiver fails.
    async fn serve(&self, key: &HandoffKey) -> Result<(), StoreError> {
        let ChunkSenderDependencies { store, clock, settings, broker, stopping, .. } =
            &self.0.parts;
        let now = clock.now();
        let claimed = store.claim_line(key, broker, now, now.plus(settings.lease)).await?;
        let Some(line) = claimed else { return Ok(()) };
        fault::at(Step::LineClaimed);
        let mut served = ServedLine { line, written_at: tokio::time::Instant::now() };
        loop {
            let handoff = store.find_handoff(key).await?;
            let Some(handoff) = handoff.filter(sends) else {
                store.settle_line(key, broker, LineSettle::Done).await?;
                return Ok(());
            };
            let mut chunks = store.list_chunks(key, served.line.sent, PAGE).await?;
            if chunks.is_empty() || stopping.is_cancelled() {
                self.write(key, &served.line, Duration::ZERO, true).await?;
                return Ok(());
            }
            if stopped(&handoff) {
                // There is nothing to go on with: the end alone counts.
                while chunks.last().is_some_and(|last| last.row.ends.is_none()) {
                    let after = chunks.last().map_or(0, |last| last.row.seq);
                    chunks = store.list_chunks(key, after, PAGE).await?;
                }
                chunks.retain(|chunk| chunk.row.ends.is_some());
                let Some(end) = chunks.first().map(|chunk| chunk.row.seq) else {
                    store.settle_line(key, broker, LineSettle::Done).await?;
                    return Ok(());
                };
                if served.line.sent < end - 1 {
                    // Failed attempts at chunks that are left out do not count for the end.
                    served.line = StreamLine { sent: end - 1, failures: 0 };
                }
            }
            for chunk in &chunks {
                if stopping.is_cancelled() {
                    break;
                }
                if !self.pass(key, &handoff, chunk, &mut served).await? {
                    return Ok(());
                }
            }
        }
    }

    /// Sends one chunk. `false` where the line rests: it has ended, it pauses, or another broker has it.
    async fn pass(
        &self,
        key: &HandoffKey,
        handoff: &Handoff,
        chunk: &StoredChunk,
        served: &mut ServedLine,
    ) -> Result<bool, StoreError> {
        let ChunkSenderDependencies { store, clock, metrics, settings, broker, .. } = &self.0.parts;
        let attempt = served.line.failures.saturating_add(1);
        let answered = match self.endpoint(handoff).await {
            Ok(Some(endpoint)) => {
                self.send(key, handoff, chunk, endpoint, (attempt, &served.line)).await?
            }
            Ok(None) => Err(None),
            Err(err) => {
                // No request was sent: no attempt failed.
                tracing::warn!(error = %err, "the receiver of a stream cannot be read");
                self.write(key, &served.line, settings.poll, true).await?;
                return Ok(false);
            }
        };
        match answered {
            Ok(()) => {
                fault::at(Step::ChunkSent);
                metrics.chunks.with_label_values(&["sent"]).inc();
                let lag = clock.now().since(chunk.row.created_at).as_secs_f64();
                metrics.chunk_seconds.with_label_values(&["webhook"]).observe(lag);
                served.line = StreamLine { sent: chunk.row.seq, failures: 0 };
                if chunk.row.ends.is_some() {
                    store.settle_line(key, broker, LineSettle::Done).await?;
                    return Ok(false);
                }
                if served.written_at.elapsed() < WRITE_EVERY {
                    return Ok(true);
                }
                served.written_at = tokio::time::Instant::now();
                let kept = self.write(key, &served.line, Duration::ZERO, false).await;
                fault::at(Step::LineWritten);
                kept
            }
            Err(retry_after) => {
                metrics.chunks.with_label_values(&["retried"]).inc();
                served.line.failures = attempt;
                let attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
                if handoff.status.is_final() && attempts >= settings.retry.max_attempts {
                    tracing::warn!(handoff_id = %key.1, "a receiver could not be told the end of a stream");
                    store.settle_line(key, broker, LineSettle::Done).await?;
                    return Ok(false);
                }
                let forever = RetryPolicy { max_attempts: u32::MAX, ..settings.retry };
                let pause = forever.next_delay(attempts, clock::random_fraction(), retry_after);
                let pause = pause.unwrap_or(settings.retry.cap);
                self.write(key, &served.line, pause, true).await?;
                // The pause of a line is in the store: who looks then finds it.
                let (ledger, stopping) =
                    (self.0.parts.ledger.clone(), self.0.parts.stopping.clone());
                self.0.tracker.spawn(async move {
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep(pause) => ledger.look_for_chunks(),
                        () = stopping.cancelled() => {}
                    }
                });
                Ok(false)
            }
        }
    }

    /// Writes a line, with a pause before its next attempt; `false` where another broker holds the lease.
    async fn write(
        &self,
        key: &HandoffKey,
        line: &StreamLine,
        pause: Duration,
        give_back: bool,
    ) -> Result<bool, StoreError> {
        let ChunkSenderDependencies { store, clock, settings, broker, .. } = &self.0.parts;
        let now = clock.now();
        let settle = LineSettle::Sent {
            line: *line,
            next_at: now.plus(pause),
            lease_until: if give_back { now } else { now.plus(settings.lease) },
        };
        store.settle_line(key, broker, settle).await
    }

    /// One attempt at one chunk; the lease is renewed while the receiver thinks. The error is the receiver's `Retry-After`.
    async fn send(
        &self,
        key: &HandoffKey,
        handoff: &Handoff,
        chunk: &StoredChunk,
        endpoint: ChunkEndpoint,
        (attempt, line): (i32, &StreamLine),
    ) -> Result<Result<(), Option<Duration>>, StoreError> {
        let ChunkSenderDependencies { clock, post, settings, .. } = &self.0.parts;
        let trace = (!handoff.traceparent.is_empty()).then(|| handoff.traceparent.clone());
        let request = WebhookRequest {
            encoded: None,
            url: endpoint.url,
            body: canonical::to_vec(&body_of(handoff, chunk)).into(),
            id: format!("{}.{}", handoff.id, chunk.row.seq),
            timestamp_s: clock.wall().seconds(),
            secrets: endpoint.secrets,
            headers: HandoffHeaders {
                traceparent: trace,
                handoff_id: Some(handoff.id.to_string()),
                task_id: Some(handoff.task_id.to_string()),
                attempt: u32::try_from(attempt).ok(),
                fencing_token: Some(handoff.fencing_token),
                chunk: Some(chunk.row.seq),
                ..HandoffHeaders::default()
            },
            timeout: endpoint.timeout,
            verdict: VerdictClock::Stopped,
        };
        fault::at(Step::ChunkSending);
        let sending = post.post_chunk(request);
        tokio::pin!(sending);
        let notice = loop {
            tokio::select! {
                biased;
                answered = &mut sending => break answered,
                () = tokio::time::sleep(settings.lease / 3) => {
                    self.write(key, line, Duration::ZERO, false).await?;
                }
            }
        };
        Ok(match notice {
            Notice::Answered { status, .. } if (200..300).contains(&status) => Ok(()),
            Notice::Answered { retry_after, .. } => Err(retry_after),
            Notice::Failed(failure) => {
                tracing::info!(handoff_id = %key.1, detail = failure.detail, "a chunk was not taken");
                Err(None)
            }
        })
    }

    /// Resolves the receiver's endpoint; `None` where it has none now, or its secret does not open.
    async fn endpoint(&self, handoff: &Handoff) -> Result<Option<ChunkEndpoint>, Arc<StoreError>> {
        let agents = self.0.parts.directory.agents(&handoff.tenant).await?;
        Ok(self.endpoint_of(handoff, &agents))
    }

    fn endpoint_of(&self, handoff: &Handoff, agents: &Agents) -> Option<ChunkEndpoint> {
        let ChunkSenderDependencies { vault, clock, .. } = &self.0.parts;
        let row = agents.row(&handoff.target).filter(|row| !row.agent.delivery.disabled)?;
        let url = row.agent.delivery.url.clone()?;
        let timeout = Duration::from_millis(row.agent.delivery.timeout_ms);
        let opened = AgentSecrets::parse(&row.secrets).open(
            vault,
            &handoff.tenant,
            &handoff.target,
            SecretKind::Webhook,
            clock.now(),
        );
        let secrets: Option<Vec<WebhookSecret>> = opened
            .inspect_err(|err| {
                tracing::error!(error = %err, agent = %handoff.target, "a secret cannot be opened");
            })
            .ok()?
            .iter()
            .map(|text| WebhookSecret::parse(std::str::from_utf8(text).ok()?).ok())
            .collect();
        Some(ChunkEndpoint { url, timeout, secrets: secrets? })
    }
}

/// Whether a handoff's chunks go out by webhook: not where its receiver pulls, got the message whole, or was never
/// reached.
fn sends(handoff: &Handoff) -> bool {
    let reached = handoff.attempts > 0 || !handoff.status.is_final();
    handoff.mode == DeliveryMode::Webhook
        && handoff.stream.is_some()
        && handoff.sent_id.is_some()
        && reached
}

/// Whether a handoff ended without a whole message.
fn stopped(handoff: &Handoff) -> bool {
    handoff.status.is_final()
        && handoff.status != HandoffStatus::Completed
        && handoff.stream.as_ref().is_some_and(|stream| stream.status == StreamStatus::Aborted)
}

/// Builds the body of a request to a webhook receiver: ids, number, and either the changes, the end, or `gone`.
fn body_of(handoff: &Handoff, chunk: &StoredChunk) -> Value {
    let mut body = Map::new();
    body.insert("handoffId".to_owned(), json!(handoff.id));
    body.insert("taskId".to_owned(), json!(handoff.task_id));
    body.insert("seq".to_owned(), json!(chunk.row.seq));
    match chunk.row.ends {
        Some(StreamStatus::Aborted) => {
            body.insert("abort".to_owned(), json!(true));
            body.insert("reason".to_owned(), json!(chunk.row.reason));
            return Value::Object(body);
        }
        Some(_) => {
            body.insert("close".to_owned(), json!(true));
        }
        None => {}
    }
    let document: Option<Value> = match &chunk.content {
        Some(ContentStorage::Hot(_, codec, bytes)) => {
            unpack(*codec, bytes).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
        }
        _ => None,
    };
    let Some(Value::Object(mut document)) = document else {
        // Erased, or moved to the archive while the receiver was away: it reads the handoff's own pages.
        body.insert("gone".to_owned(), json!(true));
        return Value::Object(body);
    };
    for name in ["append", "set"] {
        if let Some(value) = document.remove(name) {
            body.insert(name.to_owned(), value);
        }
    }
    Value::Object(body)
}
