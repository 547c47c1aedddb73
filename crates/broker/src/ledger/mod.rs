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
use crate::telemetry;
use handoffd_core::domain::event::EventType;
use handoffd_core::domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_core::domain::ids::{HandoffId, TaskId, TenantId};
use handoffd_core::domain::trace_context::TraceParent;
use handoffd_core::evidence::record::{RecordDraft, RecordKind};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{Claim, HandoffKey, Needs, ReceiverKey, Store, StoreError, Writes};

mod agents;
mod capped;
mod caps;
mod case;
pub mod command;
pub mod context;
mod contracts;
mod crossing;
mod dead_letters;
pub mod decide;
#[cfg(test)]
mod decide_tests;
mod erasure;
#[cfg(test)]
mod erasure_tests;
mod escalations;
mod failing;
#[cfg(test)]
mod lineage_tests;
pub mod plan;
#[cfg(test)]
mod recovery_tests;
mod refusal;
mod reply;
mod returns;
pub mod schemas;
mod submit;
mod subscriptions;
mod tasks;
mod verdict;
mod waiters;

pub use waiters::Watch;

use capped::Capped;
use command::{Command, Kind, LedgerError, Reply};
use context::{Context, Rules, Spare};
use plan::Plan;
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
    /// How long a freshly committed handoff belongs to this broker's dispatcher.
    pub claim_ttl: Duration,
    /// What decisions go by.
    pub rules: Rules,
}

/// A place that the dispatcher keeps for a handoff that is about to be committed.
pub type Place = u64;

/// Where committed handoffs go: the dispatcher, seen from below. All calls return at once.
pub trait Outbound: Send + Sync {
    /// Keeps a place for one handoff to that receiver, if there is one to keep.
    fn reserve(&self, receiver: &ReceiverKey) -> Option<Place>;
    /// Uses a kept place.
    fn deliver(&self, place: Place, claim: Claim);
    /// Gives a kept place back; `lost` where nobody knows whether the handoff was committed.
    fn release(&self, place: Place, receiver: &ReceiverKey, lost: bool);
    /// Something of that receiver waits in the outbox.
    fn nudge(&self, receiver: &ReceiverKey);
    /// Something of a receiver that is not known here waits in the outbox.
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

struct Job {
    /// The span of the caller's wait.
    span: Span,
    command: Command,
    spare: Spare,
    queued: Instant,
    outgoing: Option<Outgoing>,
    place: Option<Place>,
    answer: oneshot::Sender<LedgerAnswer>,
}

/// The answer to one command.
struct LedgerAnswer {
    reply: Result<Reply, LedgerError>,
    /// The command, where its sender may send it again.
    returned: Option<ReturnedSubmission>,
}

/// A submission that the ledger did not decide.
pub type ReturnedSubmission = Box<(Command, Outgoing)>;

/// A refusal of a submission.
#[derive(Debug)]
pub enum SubmissionError {
    /// The sender does not hold the task; the submission comes back, for a sender with a part in the task.
    NotHolder(ReturnedSubmission),
    /// Any other error.
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
    waiters: Arc<Waiters<HandoffKey, Option<Arc<Handoff>>>>,
    inboxes: Arc<Waiters<ReceiverKey, ()>>,
    signals: Arc<CommitSignals>,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
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
    /// The publisher to subscribers.
    teller: Notify,
}

impl Ledger {
    /// Starts the workers on `tracker`; they end after [`Ledger::close`], when the queue is empty.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        outbound: Arc<dyn Outbound>,
        metrics: Arc<Metrics>,
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
        let shared = Arc::new(Shared {
            store,
            signals: Arc::clone(&signals),
            outbound,
            waiters: Arc::clone(&waiters),
            inboxes: Arc::clone(&inboxes),
            feeds: Arc::clone(&feeds),
            metrics: Arc::clone(&metrics),
            capped: Capped::default(),
            settings,
            broker,
        });
        let closing = CancellationToken::new();
        for _ in 0..settings.workers.max(1) {
            tracker.spawn(work(Arc::clone(&shared), Arc::clone(&jobs), closing.clone()));
        }
        Self { queue, waiters, inboxes, signals, feeds, metrics, closing }
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
    pub async fn handle(&self, command: Command) -> Result<Reply, LedgerError> {
        self.send(command, None).await.reply
    }

    /// Carries out a submission; what goes out is handed to the dispatcher without reading it back.
    ///
    /// # Errors
    /// As [`Ledger::handle`].
    pub async fn submit(
        &self,
        command: Command,
        outgoing: Outgoing,
    ) -> Result<Reply, SubmissionError> {
        let LedgerAnswer { reply, returned } = self.send(command, Some(outgoing)).await;
        reply.map_err(|err| match (err, returned) {
            (LedgerError::NotHolder, Some(returned)) => SubmissionError::NotHolder(returned),
            (err, _) => SubmissionError::Ledger(err),
        })
    }

    async fn send(&self, command: Command, outgoing: Option<Outgoing>) -> LedgerAnswer {
        let (answer, reply) = oneshot::channel();
        let spare = Spare::new(command.at);
        let span = tracing::debug_span!(
            "ledger.commit",
            handoff.command = command.kind.name(),
            handoff.batch.size = Empty,
            error.type = Empty,
        );
        let queued = Instant::now();
        let job = Job { span: span.clone(), command, spare, queued, outgoing, place: None, answer };
        if let Err(err) = self.queue.try_send(job) {
            let err = match err {
                mpsc::error::TrySendError::Full(_) => {
                    self.metrics.ledger_overloads.inc();
                    LedgerError::Overloaded
                }
                mpsc::error::TrySendError::Closed(_) => LedgerError::Unavailable,
            };
            return LedgerAnswer { reply: Err(err), returned: None };
        }
        let lost = LedgerAnswer { reply: Err(LedgerError::Unavailable), returned: None };
        let answer = async { reply.await.unwrap_or(lost) }.instrument(span.clone()).await;
        if let Err(err) = &answer.reply {
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

    /// Resolves once some tenant has a new event on this broker, also one from before this call. One
    /// waits here: who tells the subscribers.
    pub async fn event_told(&self) {
        self.feeds.teller.notified().await;
    }

    /// Lets [`Ledger::event_told`] resolve.
    pub fn look_for_events(&self) {
        self.feeds.teller.notify_one();
    }

    /// Something to await for the next handoff into a pull receiver's inbox, on this broker; `None`
    /// where `most` wait for it already.
    #[must_use]
    pub fn watch_inbox(&self, receiver: ReceiverKey, most: usize) -> Option<Watch<ReceiverKey>> {
        let watch = self.inboxes.watch(receiver);
        (watch.waiting <= most).then_some(watch)
    }

    /// The inboxes that somebody waits for on this broker.
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

struct Shared {
    store: Arc<dyn Store>,
    signals: Arc<CommitSignals>,
    outbound: Arc<dyn Outbound>,
    waiters: Arc<Waiters<HandoffKey, Option<Arc<Handoff>>>>,
    inboxes: Arc<Waiters<ReceiverKey, ()>>,
    feeds: Arc<Feeds>,
    metrics: Arc<Metrics>,
    capped: Capped,
    settings: Settings,
    broker: String,
}

async fn work(
    shared: Arc<Shared>,
    jobs: Arc<AsyncMutex<mpsc::Receiver<Job>>>,
    closing: CancellationToken,
) {
    loop {
        let mut batch = Vec::with_capacity(shared.settings.batch);
        let taken = {
            let mut jobs = jobs.lock().await;
            if closing.is_cancelled() {
                jobs.close();
            }
            tokio::select! {
                // In order, so that a run can be repeated.
                biased;
                taken = jobs.recv_many(&mut batch, shared.settings.batch) => taken,
                () = closing.cancelled(), if !closing.is_cancelled() => continue,
            }
        };
        if taken == 0 {
            return;
        }
        shared.commit(batch).await;
    }
}

/// The span of a batch: under the first of its commands that is traced, and linked to the others.
fn batch_span(jobs: &[Job]) -> Span {
    let mut traced = jobs.iter().filter_map(|job| {
        job.span.record("handoff.batch.size", jobs.len());
        let own = telemetry::own(&job.span).filter(TraceParent::sampled)?;
        Some((job, own))
    });
    let Some((first, _)) = traced.next() else { return Span::none() };
    let span = tracing::debug_span!(
        parent: &first.span,
        "ledger.batch",
        handoff.batch.size = jobs.len(),
    );
    for (_, other) in traced {
        telemetry::link(&span, &other);
    }
    span
}

type Answers = Vec<Result<Reply, LedgerError>>;

impl Shared {
    async fn commit(&self, mut jobs: Vec<Job>) {
        for job in &mut jobs {
            self.reserve(job);
        }
        let answers = self.try_batch(&jobs).instrument(batch_span(&jobs)).await;
        for (job, answer) in jobs.into_iter().zip(answers) {
            self.after(job, answer);
        }
    }

    /// All together; one by one where the batch cannot stand as a whole, so that a command the store
    /// will not take leaves its neighbours alone.
    async fn try_batch(&self, jobs: &[Job]) -> Answers {
        let all: Vec<&Job> = jobs.iter().collect();
        match self.transact(&all).await {
            Ok(answers) => answers,
            Err(err) if jobs.len() == 1 || matches!(err, StoreError::Unavailable(_)) => {
                jobs.iter().map(|_| Err(explain(&err))).collect()
            }
            Err(_) => {
                let mut answers = Vec::with_capacity(jobs.len());
                for job in jobs {
                    answers.push(match self.transact(&[job]).await {
                        Ok(mut answer) => answer.pop().unwrap_or(Err(LedgerError::Unavailable)),
                        Err(err) => Err(explain(&err)),
                    });
                }
                answers
            }
        }
    }

    async fn transact(&self, jobs: &[&Job]) -> Result<Answers, StoreError> {
        let mut needs = Needs::default();
        for job in jobs {
            decide::needs(&job.command, &mut needs);
        }
        if !self.settings.rules.caps.any()
            && let Some(latest) = jobs.iter().map(|job| job.command.at).max()
        {
            self.capped.narrow(&*self.store, latest, &mut needs).await?;
        }
        let timer = self.metrics.ledger_commit_seconds.start_timer();
        let mut tries = 0;
        loop {
            fault::at(Step::CommitBegin);
            let mut decided = Vec::with_capacity(jobs.len());
            let mut told: Vec<(TenantId, EventType)> = Vec::new();
            let mut notes = Vec::new();
            let mut returned: Vec<ReceiverKey> = Vec::new();
            let mut used = Vec::new();
            let result = self
                .store
                .transact(&needs, &mut |state| {
                    decided.clear();
                    let mut plan = Plan::new(state);
                    for job in jobs {
                        let first = plan.writes.records.len();
                        let context = Context {
                            rules: self.settings.rules,
                            spare: job.spare,
                            waited: job.queued.elapsed(),
                        };
                        decided.push(decide::decide(&plan.state, &job.command, &context).map(
                            |(changes, reply)| {
                                plan.apply(changes);
                                (reply, (plan.writes.records.len() > first).then_some(first))
                            },
                        ));
                    }
                    told = plan
                        .writes
                        .events
                        .iter()
                        .map(|(_, event)| (event.tenant.clone(), event.kind))
                        .collect();
                    notes = plan.writes.records.iter().map(Note::of).collect();
                    let rows = plan.writes.returns.values().flatten();
                    returned = rows.map(|row| (row.tenant.clone(), row.agent.clone())).collect();
                    used = self.cap_use(&plan.writes, jobs);
                    fault::at(Step::CommitDecided);
                    if notes.iter().any(|note| note.kind == RecordKind::RolledBack) {
                        fault::at(Step::RollbackDecided);
                    }
                    plan.writes
                })
                .await;
            match result {
                Ok(appended) => {
                    fault::at(Step::CommitDone);
                    if notes.iter().any(|note| note.kind == RecordKind::RolledBack) {
                        fault::at(Step::RollbackDone);
                    }
                    timer.observe_duration();
                    self.metrics.ledger_batch_size.observe(jobs.len() as f64);
                    self.metrics.records_total.inc_by(appended.records.len() as u64);
                    self.tell(&told);
                    for receiver in &returned {
                        self.in_inbox(receiver);
                    }
                    for (labels, share) in &used {
                        self.metrics.cap_use.with_label_values(labels).observe(*share);
                    }
                    for note in &notes {
                        count_record(&self.metrics, note.kind);
                        note.warn();
                    }
                    return Ok(decided
                        .into_iter()
                        .map(|decision| {
                            decision.map(|(reply, record)| match reply {
                                Reply::Submitted { handoff, replayed, .. } => Reply::Submitted {
                                    placed: record
                                        .and_then(|at| appended.placed(&handoff.tenant, at)),
                                    handoff,
                                    replayed,
                                },
                                other => other,
                            })
                        })
                        .collect());
                }
                Err(StoreError::Conflict(why)) if tries < self.settings.conflict_tries => {
                    tries += 1;
                    tracing::debug!(tries, why, "a batch met a concurrent writer");
                }
                Err(err) => {
                    timer.stop_and_discard();
                    if !matches!(err, StoreError::Conflict(_)) {
                        tracing::warn!(error = %err, commands = jobs.len(), "a batch was not committed");
                    }
                    return Err(err);
                }
            }
        }
    }

    /// How full the caps are that a batch writes, by whose and of what, as shares of one.
    fn cap_use(&self, writes: &Writes, jobs: &[&Job]) -> Vec<([&'static str; 2], f64)> {
        let at = jobs.iter().map(|job| job.command.at).max().unwrap_or_default();
        let defaults = &self.settings.rules.caps;
        let caps = writes.caps.values().flatten();
        caps.flat_map(|cap| {
            let scope = if cap.agent.is_some() { "agent" } else { "tenant" };
            let usd = cap.limit(defaults).filter(|limit| limit.0 > 0);
            let usd = usd.map(|limit| ([scope, "usd"], cap.used(at).as_f64() / limit.as_f64()));
            let tokens = cap.token_limit(defaults).filter(|limit| *limit > 0);
            let tokens =
                tokens.map(|limit| ([scope, "tokens"], cap.spent_tokens(at) as f64 / limit as f64));
            usd.into_iter().chain(tokens)
        })
        .collect()
    }

    /// Counts what was told, and wakes who waits for it.
    fn tell(&self, told: &[(TenantId, EventType)]) {
        for (tenant, kind) in told {
            self.metrics.events.with_label_values(&[kind.as_str()]).inc();
            self.feeds.readers.wake(tenant, || ());
        }
        if !told.is_empty() {
            self.feeds.teller.notify_one();
        }
    }

    /// Keeps a place in the dispatcher for a handoff that is about to be committed.
    fn reserve(&self, job: &mut Job) {
        let at = job.command.at;
        if let Kind::Submit(submit) = &mut job.command.kind
            && job.outgoing.is_some()
            && submit.handoff.mode == DeliveryMode::Webhook
            && submit.handoff.status == HandoffStatus::Pending
            && let Some(place) = self
                .outbound
                .reserve(&(submit.handoff.tenant.clone(), submit.handoff.target.clone()))
        {
            job.place = Some(place);
            submit.claim = Some((self.broker.clone(), at.plus(self.settings.claim_ttl)));
        }
    }

    fn after(&self, job: Job, answer: Result<Reply, LedgerError>) {
        if let Ok(Reply::Submitted { handoff, replayed: false, .. }) = &answer
            && handoff.status == HandoffStatus::Pending
        {
            self.metrics.count_emitted(handoff);
            audit_line(handoff);
        }
        let bounced = matches!(answer, Err(LedgerError::NotHolder));
        let returned = bounced.then(|| job.outgoing.clone()).flatten();
        if let Kind::Submit(submit) = &job.command.kind {
            self.dispatch(submit, job.place, job.outgoing, &answer);
        }
        if let Ok(Reply::Handoff { handoff, more, repeated, latency, .. }) = &answer {
            if handoff.status != HandoffStatus::Pending {
                let key = (handoff.tenant.clone(), handoff.id);
                self.waiters.wake(&key, || Some(Arc::new(handoff.clone())));
            }
            if !repeated {
                self.metrics.count_transition(handoff);
                audit_line(handoff);
            }
            self.metrics.observe_latency(handoff, latency);
            if *more {
                // The next handoff of the task may be for anyone.
                self.outbound.nudge_all();
                self.tell_all();
            }
        }
        match &job.command.kind {
            // Also after an error: an unanswered commit may have got through.
            Kind::SetCap(_) => self.capped.forget(),
            Kind::ChangeAgent(_) if answer.is_ok() => {
                // How it receives may have changed, and what waits for it went with it.
                self.outbound.nudge_all();
                self.tell_all();
            }
            Kind::Settle(settle) if matches!(settle.outcome, command::Outcome::Moved { .. }) => {
                self.tell_all();
            }
            _ => {}
        }
        if let Ok(
            Reply::Escalation { .. }
            | Reply::Refused { undone: Some(_), .. }
            | Reply::DeadLetter { handoff: Handoff { status: HandoffStatus::Pending, .. }, .. },
        ) = &answer
        {
            // Whom it is for now is for every dispatcher to see.
            self.outbound.nudge_all();
            self.tell_all();
        }
        // Its span ends before the caller's does.
        drop(job.span);
        // The caller may have gone; what it asked for is done all the same.
        let returned = returned.map(|outgoing| Box::new((job.command, outgoing)));
        let _ = job.answer.send(LedgerAnswer { reply: answer, returned });
    }

    /// Wakes the polls of an inbox here, or signals the other brokers.
    fn in_inbox(&self, receiver: &ReceiverKey) {
        if !self.inboxes.wake(receiver, || ()) {
            self.signals.beyond.notify_one();
        }
    }

    fn tell_all(&self) {
        self.signals.freed.notify_one();
        self.signals.beyond.notify_one();
    }

    fn dispatch(
        &self,
        submit: &command::Submit,
        place: Option<Place>,
        outgoing: Option<Outgoing>,
        answer: &Result<Reply, LedgerError>,
    ) {
        let receiver = (submit.handoff.tenant.clone(), submit.handoff.target.clone());
        let fresh = match answer {
            Ok(Reply::Submitted { handoff, replayed: false, .. }) => Some(handoff),
            _ => None,
        };
        match (fresh, place, outgoing) {
            // The first handoff of its task to wait is the one that may use the place.
            (Some(handoff), Some(place), Some(outgoing)) if handoff.attempts == 1 => {
                let edge = handoff.ruling.as_ref().map(|ruling| &ruling.edge);
                let claim = Claim {
                    tenant: handoff.tenant.clone(),
                    handoff_id: handoff.id,
                    task_id: handoff.task_id,
                    target: handoff.target.clone(),
                    attempt: 1,
                    fencing_token: handoff.fencing_token,
                    idempotent: handoff.idempotent,
                    unsettled: false,
                    busy: 0,
                    deadline_at: handoff.deadline_at,
                    to_person: handoff.ruling.as_ref().is_some_and(|one| one.is_to_person()),
                    max_retries: edge.and_then(|edge| edge.max_retries),
                    verdict_ms: edge.and_then(|edge| edge.timeout_ms),
                    traceparent: handoff.traceparent.clone(),
                    tracestate: handoff.tracestate.clone(),
                    span: handoff.span.clone(),
                    body: outgoing.body,
                    personal: outgoing.personal,
                };
                self.outbound.deliver(place, claim);
            }
            (Some(handoff), place, _) => {
                if let Some(place) = place {
                    self.outbound.release(place, &receiver, false);
                }
                match (handoff.status, handoff.mode) {
                    (HandoffStatus::Pending, DeliveryMode::Webhook) => {
                        self.outbound.nudge(&receiver);
                    }
                    (HandoffStatus::Pending, DeliveryMode::Pull) => self.in_inbox(&receiver),
                    _ => {}
                }
            }
            (None, Some(place), _) => {
                let lost = matches!(answer, Err(LedgerError::Unavailable));
                self.outbound.release(place, &receiver, lost);
            }
            (None, None, _) => {}
        }
    }
}

/// What is counted and logged of a record: ids and codes.
struct Note {
    kind: RecordKind,
    wrong: Option<Wrong>,
}

/// What went wrong, and with what.
struct Wrong {
    tenant: TenantId,
    task: Option<TaskId>,
    handoff: Option<HandoffId>,
    reason: Option<String>,
}

impl Note {
    fn of(draft: &RecordDraft) -> Self {
        let wrong = matches!(
            draft.kind,
            RecordKind::RolledBack | RecordKind::Escalated | RecordKind::DeadLettered
        );
        let wrong = wrong.then(|| Wrong {
            tenant: draft.tenant.clone(),
            task: draft.task_id,
            handoff: draft.handoff_id,
            reason: draft.reason.clone(),
        });
        Self { kind: draft.kind, wrong }
    }

    /// A line for each rollback, escalation and dead letter.
    fn warn(&self) {
        let Some(Wrong { tenant, task, handoff, reason }) = &self.wrong else { return };
        tracing::warn!(
            event = self.kind.as_str(),
            tenant = %tenant,
            task_id = task.map(|id| id.to_string()),
            handoff_id = handoff.map(|id| id.to_string()),
            reason = reason.as_deref(),
            "a handoff went wrong"
        );
    }
}

/// The line under a contract's `audit_event` (seed 002 §4.1): emit, accept, reject, complete, and how it ended.
fn audit_line(handoff: &Handoff) {
    if let Some(name) = handoff.audit_event() {
        tracing::info!(
            audit_event = name,
            handoff_id = %handoff.id,
            task_id = %handoff.task_id,
            source_agent_id = %handoff.source,
            target_agent_id = %handoff.target,
            status = handoff.status.as_str(),
            "contract event"
        );
    }
}

/// Counts what a committed record tells of, where nothing else counts it.
fn count_record(metrics: &Metrics, kind: RecordKind) {
    let decided = |result: &str| metrics.dead_letter_decisions.with_label_values(&[result]).inc();
    match kind {
        RecordKind::DeadLettered => metrics.dead_letters_total.inc(),
        RecordKind::RolledBack => metrics.rollbacks.inc(),
        RecordKind::Escalated => metrics.escalations_total.inc(),
        RecordKind::EscalationResolved => metrics.escalations_resolved.inc(),
        RecordKind::Released => decided("released"),
        RecordKind::ReleaseRefused => decided("refused"),
        RecordKind::Discarded => decided("discarded"),
        _ => {}
    }
}

fn explain(err: &StoreError) -> LedgerError {
    match err {
        // A batch that loses every race is overload by another name: nothing is wrong with it.
        StoreError::Unavailable(_) | StoreError::Conflict(_) => LedgerError::Unavailable,
        StoreError::Refused(why) => LedgerError::Internal(why.clone()),
    }
}
