//! The write path. Commands wait in one bounded queue; a worker takes whatever waits, opens one
//! transaction for all of it, decides each command in order over what it sees, commits, and only then
//! answers each caller and hands deliverable handoffs to the dispatcher. One waiting command commits
//! at once; a crowd shares the fsync and the lock of the log's head.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::metrics::Metrics;
use crate::receivers::ReceiverJournal;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::TenantId;
use handoffd_evidence::append::LoggedRecord;
use handoffd_store::store::events::CursorKey;
use handoffd_store::store::{DeliveryClaim, HandoffKey, ReceiverKey, Store};

mod agents;
#[cfg(test)]
mod attempts_tests;
mod call;
mod capped;
mod caps;
mod case;
#[cfg(test)]
mod claims_tests;
pub mod command;
pub mod commands;
mod commit;
pub mod context;
mod contracts;
mod crossing;
mod dead_letters;
pub mod decide;
#[cfg(test)]
mod decide_tests;
mod draft;
mod effects;
mod erasure;
#[cfg(test)]
mod erasure_tests;
mod failing;
mod failure;
mod groups;
#[cfg(test)]
mod groups_tests;
pub mod health;
mod last_claim;
#[cfg(test)]
mod lineage_tests;
mod loaded;
pub mod needs;
mod opinions;
#[cfg(test)]
mod opinions_tests;
pub mod plan;
mod questions;
#[cfg(test)]
mod questions_tests;
#[cfg(test)]
mod recovery_tests;
mod refusal;
pub mod reply;
mod returns;
pub mod schemas;
mod states;
mod streams;
#[cfg(test)]
mod streams_tests;
mod submission;
mod subscriptions;
#[cfg(test)]
mod takeover_tests;
mod tasks;
mod waiters;

pub use waiters::Watch;

use capped::Capped;
use command::Call;
use commands::{AnyCommand, AnyReply, Outcome, Queued, Settle};
use commit::work;
use context::{DispatcherClaim, Rules, Spare};
use health::WriteHealth;
use reply::{LedgerError, SubmissionReply};
use submission::Submit;
use waiters::Waiters;

/// A wait for a handoff to leave `PENDING`: what it has become, once it did.
pub type HandoffWatch = Watch<HandoffKey, Option<Arc<Handoff>>>;

/// How the ledger works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Commands that may wait; more are refused as overload.
    pub queue: usize,
    /// Commands that share a transaction at most.
    pub batch: usize,
    /// Transactions under way at once.
    pub workers: usize,
    /// Tries of a batch that meets concurrent writers.
    pub conflict_tries: u32,
    /// How long a settlement without a waiting caller may wait for another command, whose transaction it then shares.
    pub settle_delay: Duration,
    /// How long a freshly committed handoff belongs to this broker's dispatcher.
    pub claim_ttl: Duration,
    /// The rules of decisions.
    pub rules: Rules,
}

/// The dispatcher's reservation for one handoff that is about to be committed.
pub type DeliverySlot = u64;

/// The dispatcher as the ledger sees it. All calls return at once.
pub trait Outbound: Send + Sync {
    /// Reserves a slot for one handoff to that receiver; `None` where all are taken.
    fn reserve(&self, receiver: &ReceiverKey) -> Option<DeliverySlot>;
    /// Delivers a claimed handoff in a reserved slot.
    fn deliver(&self, slot: DeliverySlot, claim: DeliveryClaim);
    /// Releases a reserved slot; `lost` where the handoff may or may not be committed.
    fn release(&self, slot: DeliverySlot, receiver: &ReceiverKey, lost: bool);
    /// Reads that receiver's outbox soon.
    fn nudge(&self, receiver: &ReceiverKey);
    /// Reads the outbox of every receiver soon.
    fn nudge_all(&self);
}

/// The part of a submission that the dispatcher delivers from memory.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Canonical message without checkpoint and personal data.
    pub body: Bytes,
    /// Personal data by subject, canonical.
    pub personal: Vec<Vec<u8>>,
}

/// Waiting commands for which another transaction begins beside one under way. Fewer join the next batch: a second
/// transaction beside it costs as much again, waits for the first one's lock of the log's head, and halves both batches.
/// More would wait for whole batches.
const CROWD: usize = 16;

struct Job {
    /// The span of the caller's wait.
    span: Span,
    call: Call,
    command: AnyCommand,
    spare: Spare,
    queued: Instant,
    /// When its batch begins at the latest.
    due: Instant,
    outgoing: Option<Outgoing>,
    slot: Option<ReservedSlot>,
    answer: oneshot::Sender<LedgerAnswer>,
}

/// A slot of the dispatcher with the claim that the commit writes for it.
struct ReservedSlot {
    slot: DeliverySlot,
    claim: DispatcherClaim,
}

/// The reply to a durable command.
#[derive(Debug)]
pub struct Committed<R> {
    pub reply: R,
    /// The record of the handoff that this command committed; no other reply has one.
    pub record: Option<LoggedRecord>,
}

/// The answer to one command.
struct LedgerAnswer {
    result: Result<Committed<AnyReply>, LedgerError>,
    /// The call of a submission, where its sender may send it again.
    returned: Option<(Call, AnyCommand, Outgoing)>,
}

/// A submission that the ledger did not decide.
pub type ReturnedSubmission = Box<(Call, Submit, Outgoing)>;

/// A refusal of a submission.
#[derive(Debug)]
pub enum SubmissionError {
    /// The sender does not hold the task; the submission comes back, for a sender with a part in the task.
    NotHolder(ReturnedSubmission),
    Ledger(LedgerError),
}

impl From<SubmissionError> for LedgerError {
    fn from(err: SubmissionError) -> Self {
        match err {
            SubmissionError::NotHolder(_) => Self::NotHolder,
            SubmissionError::Ledger(err) => err,
        }
    }
}

/// The handle to the write path. Clones share one queue.
#[derive(Clone)]
pub struct Ledger {
    queue: mpsc::Sender<Job>,
    /// Notified while [`CROWD`] commands or more wait.
    crowd: Arc<Notify>,
    waiters: Arc<Waiters<HandoffKey, Option<Arc<Handoff>>>>,
    inboxes: Arc<Waiters<ReceiverKey, ()>>,
    signals: Arc<CommitSignals>,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
    health: Arc<WriteHealth>,
    settle_delay: Duration,
    closing: CancellationToken,
}

/// Signals of committed work; several signals before a wait count as one.
#[derive(Default)]
struct CommitSignals {
    /// A handoff may have become claimable.
    freed: Notify,
    /// Another broker may wait for a handoff.
    beyond: Notify,
}

/// The waits for events on this broker.
#[derive(Default)]
struct Feeds {
    /// Readers of a tenant's feed.
    readers: Arc<Waiters<TenantId, ()>>,
    /// Readers of a handoff's stream.
    streams: Arc<Waiters<HandoffKey, ()>>,
    /// The sender of chunks to webhook receivers.
    lines: Notify,
    /// The worker that asks for second opinions.
    opinions: Notify,
    /// The publisher to subscribers.
    publisher: Notify,
    /// A subscriber came, went or was moved on this broker.
    subscribers: Notify,
    /// The streams of subscribers that this broker serves.
    served: Arc<Waiters<CursorKey, ()>>,
}

impl Ledger {
    /// Starts the workers on `tracker`; they end after [`Ledger::close`], when the queue is empty.
    #[must_use]
    pub fn start(
        store: Arc<Store>,
        outbound: Arc<dyn Outbound>,
        metrics: Arc<Metrics>,
        receivers: Arc<ReceiverJournal>,
        settings: Settings,
        broker: String,
        tracker: &TaskTracker,
    ) -> Self {
        let (queue, jobs) = mpsc::channel(settings.queue);
        let jobs = Arc::new(AsyncMutex::new(jobs));
        let waiters = Arc::new(Waiters::default());
        let inboxes = Arc::new(Waiters::default());
        let signals = Arc::new(CommitSignals::default());
        let feeds = Arc::new(Feeds::default());
        let health = Arc::new(WriteHealth::default());
        let shared = Arc::new(Shared {
            store,
            health: Arc::clone(&health),
            signals: Arc::clone(&signals),
            outbound,
            waiters: Arc::clone(&waiters),
            inboxes: Arc::clone(&inboxes),
            feeds: Arc::clone(&feeds),
            metrics: Arc::clone(&metrics),
            receivers,
            capped: Capped::default(),
            settings,
            broker,
        });
        let closing = CancellationToken::new();
        let crowd = Arc::new(Notify::new());
        for _ in 0..settings.workers.max(1) {
            let (jobs, crowd) = (Arc::clone(&jobs), Arc::clone(&crowd));
            tracker.spawn(work(Arc::clone(&shared), jobs, crowd, closing.clone()));
        }
        let settle_delay = settings.settle_delay;
        Self {
            queue,
            crowd,
            waiters,
            inboxes,
            signals,
            feeds,
            metrics,
            health,
            settle_delay,
            closing,
        }
    }

    /// Whether the store takes this broker's writes.
    #[must_use]
    pub fn health(&self) -> &WriteHealth {
        &self.health
    }

    /// Refuses new commands; queued ones are still carried out.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Carries out one command; returns once its changes are durable.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing of the command was written then. After `Unavailable` the caller
    /// cannot know whether a commit got through: saying the same again finds out.
    pub async fn handle<C: Queued>(&self, call: Call, command: C) -> Result<C::Reply, LedgerError> {
        Ok(self.commit(call, command).await?.reply)
    }

    /// As [`Ledger::handle`], with the place of the record of a submission.
    ///
    /// # Errors
    /// As [`Ledger::handle`].
    pub async fn commit<C: Queued>(
        &self,
        call: Call,
        command: C,
    ) -> Result<Committed<C::Reply>, LedgerError> {
        typed::<C>(self.send(call, command.into_any(), None, Duration::ZERO).await.result)
    }

    /// As [`Ledger::handle`], of a command that the simulation draws.
    #[cfg(test)]
    pub(crate) async fn handle_any(
        &self,
        call: Call,
        command: AnyCommand,
    ) -> Result<AnyReply, LedgerError> {
        Ok(self.send(call, command, None, Duration::ZERO).await.result?.reply)
    }

    /// Carries out the settlement of an attempt. If nothing depends on it soon, it waits up to the settings' delay for
    /// another command and shares that one's transaction: a broker that is not busy then commits once for a handoff and
    /// not twice. A caller that waits for the handoff is not kept waiting.
    ///
    /// # Errors
    /// As [`Ledger::handle`].
    pub async fn settle(
        &self,
        call: Call,
        settle: Settle,
        in_no_hurry: bool,
    ) -> Result<<Settle as command::Command>::Reply, LedgerError> {
        // After these neither task nor receiver waits for the broker.
        let settled = matches!(settle.outcome, Outcome::Accepted | Outcome::Received { .. });
        let waited = || self.waiters.any(&(call.tenant.clone(), settle.handoff_id));
        let delay =
            if settled && in_no_hurry && !waited() { self.settle_delay } else { Duration::ZERO };
        let answer = self.send(call, settle.into_any(), None, delay).await;
        Ok(typed::<Settle>(answer.result)?.reply)
    }

    /// Carries out a submission; the dispatcher gets the message from memory, not from the store.
    ///
    /// # Errors
    /// As [`Ledger::handle`].
    pub async fn submit(
        &self,
        call: Call,
        submit: Submit,
        outgoing: Outgoing,
    ) -> Result<Committed<SubmissionReply>, SubmissionError> {
        let LedgerAnswer { result, returned } =
            self.send(call, submit.into_any(), Some(outgoing), Duration::ZERO).await;
        let returned = returned.and_then(|(call, command, outgoing)| {
            Some(Box::new((call, Submit::command(command)?, outgoing)))
        });
        typed::<Submit>(result).map_err(|err| match (err, returned) {
            (LedgerError::NotHolder, Some(returned)) => SubmissionError::NotHolder(returned),
            (err, _) => SubmissionError::Ledger(err),
        })
    }

    async fn send(
        &self,
        call: Call,
        command: AnyCommand,
        outgoing: Option<Outgoing>,
        delay: Duration,
    ) -> LedgerAnswer {
        let (answer, reply) = oneshot::channel();
        let mut spare = Spare::new(call.at);
        if command.changes_states() {
            spare = spare.for_states(call.at);
        }
        let span = tracing::debug_span!(
            "ledger.commit",
            handoff.command = command.name(),
            handoff.batch.size = Empty,
            error.type = Empty,
        );
        let queued = Instant::now();
        let due = queued + delay;
        let span_of_job = span.clone();
        let job = Job {
            span: span_of_job,
            call,
            command,
            spare,
            queued,
            due,
            outgoing,
            slot: None,
            answer,
        };
        if let Err(err) = self.queue.try_send(job) {
            let err = match err {
                mpsc::error::TrySendError::Full(_) => {
                    self.metrics.ledger_overloads.inc();
                    LedgerError::Overloaded
                }
                mpsc::error::TrySendError::Closed(_) => LedgerError::Unavailable,
            };
            return LedgerAnswer { result: Err(err), returned: None };
        }
        if self.queue.max_capacity() - self.queue.capacity() >= CROWD {
            self.crowd.notify_one();
        }
        let lost = LedgerAnswer { result: Err(LedgerError::Unavailable), returned: None };
        let answer = async { reply.await.unwrap_or(lost) }.instrument(span.clone()).await;
        if let Err(err) = &answer.result {
            span.record("error.type", err.name());
        }
        answer
    }

    /// Something to await until a handoff leaves `PENDING` on this broker. Taken before it is committed, or
    /// its state read, so that no change falls between.
    #[must_use]
    pub fn watch(&self, key: HandoffKey) -> HandoffWatch {
        self.waiters.watch(key)
    }

    /// Something to await for a tenant's next event on this broker.
    #[must_use]
    pub fn watch_events(&self, tenant: TenantId) -> Watch<TenantId> {
        self.feeds.readers.watch(tenant)
    }

    /// Something to await for the next number of a handoff's stream, on this broker.
    #[must_use]
    pub fn watch_stream(&self, key: HandoffKey) -> Watch<HandoffKey> {
        self.feeds.streams.watch(key)
    }

    /// Resolves once some stream has a new number on this broker, also one from before this call; for one caller, the
    /// sender of chunks.
    pub async fn chunk_committed(&self) {
        self.feeds.lines.notified().await;
    }

    /// Lets [`Ledger::chunk_committed`] resolve.
    pub fn look_for_chunks(&self) {
        self.feeds.lines.notify_one();
    }

    /// Resolves once a second opinion is due on this broker, also one from before this call; for one caller, the worker
    /// that asks for them.
    pub async fn opinion_due(&self) {
        self.feeds.opinions.notified().await;
    }

    /// Lets [`Ledger::opinion_due`] resolve.
    pub fn look_for_opinions(&self) {
        self.feeds.opinions.notify_one();
    }

    /// Resolves once some tenant has a new event on this broker, also one from before this call; for one caller,
    /// the publisher to subscribers.
    pub async fn event_committed(&self) {
        self.feeds.publisher.notified().await;
    }

    /// Resolves once a subscriber came, went or was moved on this broker, also before this call; for one caller.
    pub fn subscribers_changed(&self) -> impl Future<Output = ()> + '_ {
        self.feeds.subscribers.notified()
    }

    /// A wait for the change of one subscriber: that it came, went or was moved on this broker.
    pub fn watch_subscriber(&self, key: CursorKey) -> Watch<CursorKey> {
        self.feeds.served.watch(key)
    }

    /// Lets [`Ledger::event_committed`] resolve.
    pub fn look_for_events(&self) {
        self.feeds.publisher.notify_one();
    }

    /// Something to await for the next handoff into a pull receiver's inbox, on this broker; `None`
    /// where `most` wait for it already.
    #[must_use]
    pub fn watch_inbox(&self, receiver: ReceiverKey, most: usize) -> Option<Watch<ReceiverKey>> {
        let watch = self.inboxes.watch(receiver);
        (watch.waiting <= most).then_some(watch)
    }

    /// The inboxes that have a waiting poll on this broker.
    #[must_use]
    pub fn awaited_inboxes(&self) -> Vec<ReceiverKey> {
        self.inboxes.keys()
    }

    /// Wakes the polls of this inbox on this broker.
    pub fn wake_inbox(&self, receiver: &ReceiverKey) {
        self.inboxes.wake(receiver, || ());
    }

    /// Resolves once something was committed that an inbox awaited here may hold; for one caller.
    pub fn something_freed(&self) -> impl Future<Output = ()> + '_ {
        self.signals.freed.notified()
    }

    /// Resolves once something was committed that may be awaited at another broker; for one caller.
    pub fn something_for_others(&self) -> impl Future<Output = ()> + '_ {
        self.signals.beyond.notified()
    }
}

/// The reply as its command's.
fn typed<C: Queued>(
    result: Result<Committed<AnyReply>, LedgerError>,
) -> Result<Committed<C::Reply>, LedgerError> {
    let Committed { reply, record } = result?;
    let reply = C::reply(reply)
        .ok_or_else(|| LedgerError::Internal(format!("{} got another's reply", C::NAME)))?;
    Ok(Committed { reply, record })
}

struct Shared {
    store: Arc<Store>,
    health: Arc<WriteHealth>,
    signals: Arc<CommitSignals>,
    outbound: Arc<dyn Outbound>,
    waiters: Arc<Waiters<HandoffKey, Option<Arc<Handoff>>>>,
    inboxes: Arc<Waiters<ReceiverKey, ()>>,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
    receivers: Arc<ReceiverJournal>,
    capped: Capped,
    settings: Settings,
    broker: String,
}
