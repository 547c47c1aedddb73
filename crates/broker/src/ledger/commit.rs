//! One batch: from the waiting jobs to one transaction and its answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::commands::AnyReply;
use super::context::{Context, DispatcherClaim};
use super::decide::decide;
use super::effects::CommitEffects;
use super::plan::Plan;
use super::reply::{LedgerError, SubmissionReply};
use super::{CROWD, Committed, Job, ReservedSlot, Shared};
use crate::telemetry;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::trace_context::TraceParent;
use handoffd_evidence::append::AppendedRecords;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{BatchState, Needs, StoreError, Writes};

/// How long fewer wait for a transaction under way: one that takes this long (an erasure's page, a lock that another
/// broker holds) delays no other.
const SLOW: Duration = Duration::from_millis(20);

/// Commits batches, one after the other, until the queue is closed and empty. A worker keeps the queue while its batch is
/// under way, so that what comes meanwhile shares the next one; where a crowd waits, or the batch is slow, it leaves the
/// queue to another worker.
pub(super) async fn work(
    shared: Arc<Shared>,
    jobs: Arc<AsyncMutex<mpsc::Receiver<Job>>>,
    crowd: Arc<Notify>,
    closing: CancellationToken,
) {
    loop {
        let mut batch = Vec::with_capacity(shared.settings.batch);
        let mut jobs = jobs.lock().await;
        if closing.is_cancelled() {
            jobs.close();
        }
        let taken = tokio::select! {
            // In order, so that a run can be repeated.
            biased;
            taken = jobs.recv_many(&mut batch, shared.settings.batch) => taken,
            () = closing.cancelled(), if !closing.is_cancelled() => continue,
        };
        if taken == 0 {
            return;
        }
        until_due(&mut batch, &mut jobs, shared.settings.batch, &closing).await;
        let mut commit = std::pin::pin!(shared.commit(batch));
        if jobs.len() < CROWD {
            let crowded = async {
                while jobs.len() < CROWD {
                    crowd.notified().await;
                }
            };
            tokio::select! {
                biased;
                () = &mut commit => continue,
                () = crowded => {}
                () = tokio::time::sleep(SLOW) => {}
            }
        }
        drop(jobs);
        commit.await;
    }
}

/// Waits until one of the batch's commands is due, and takes those that come meanwhile. All but settlements are due when
/// they come.
async fn until_due(
    batch: &mut Vec<Job>,
    jobs: &mut mpsc::Receiver<Job>,
    most: usize,
    closing: &CancellationToken,
) {
    while batch.len() < CROWD.min(most) {
        let Some(due) = batch.iter().map(|job| job.due).min() else { return };
        if due <= Instant::now() {
            return;
        }
        let room = most - batch.len();
        tokio::select! {
            biased;
            taken = jobs.recv_many(batch, room) => if taken == 0 { return },
            () = closing.cancelled() => return,
            () = tokio::time::sleep_until(due) => return,
        }
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

type Answers = Vec<Result<Committed<AnyReply>, LedgerError>>;

/// A reply with the index of the command's first record among those of the batch.
type Decided = (AnyReply, Option<usize>);

/// A batch as decided, before its commit.
#[derive(Default)]
struct DecidedBatch {
    replies: Vec<Result<Decided, LedgerError>>,
    effects: CommitEffects,
}

impl DecidedBatch {
    /// The answers, once the records have their places.
    fn answers(self, appended: &AppendedRecords) -> Answers {
        let committed = |(reply, first): Decided| {
            let record = match (reply.submission(), first) {
                (Some(SubmissionReply::Handoff { handoff, .. }), Some(at)) => {
                    appended.placed(&handoff.tenant, at)
                }
                (Some(SubmissionReply::Group { handoffs, .. }), Some(at)) => {
                    handoffs.first().and_then(|first| appended.placed(&first.tenant, at))
                }
                _ => None,
            };
            Committed { reply, record }
        };
        self.replies.into_iter().map(|reply| reply.map(committed)).collect()
    }
}

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
                self.not_taken(&err);
                jobs.iter().map(|_| Err(explain(&err))).collect()
            }
            Err(_) => {
                let mut answers = Vec::with_capacity(jobs.len());
                for job in jobs {
                    answers.push(match self.transact(&[job]).await {
                        Ok(mut answer) => answer.pop().unwrap_or(Err(LedgerError::Unavailable)),
                        Err(err) => {
                            self.not_taken(&err);
                            Err(explain(&err))
                        }
                    });
                }
                answers
            }
        }
    }

    /// Counts a batch that the store did not take, and lets readiness follow, unless a value of its sender was at fault.
    fn not_taken(&self, err: &StoreError) {
        let reason = match err {
            StoreError::Unavailable(_) => "unavailable",
            StoreError::Conflict(_) => "conflict",
            StoreError::Denied(_) => "denied",
            StoreError::Refused(_) => "refused",
        };
        self.metrics.store_write_failures.with_label_values(&[reason]).inc();
        if !matches!(err, StoreError::Refused(_)) {
            self.health.failed(err);
        }
    }

    /// Commits several commands in one transaction. A batch that meets a concurrent writer is decided again, over
    /// the rows as they are then.
    async fn transact(&self, jobs: &[&Job]) -> Result<Answers, StoreError> {
        let needs = self.needs(jobs).await?;
        let timer = self.metrics.ledger_commit_seconds.start_timer();
        let mut tries = 0;
        loop {
            fault::at(Step::CommitBegin);
            let mut batch = DecidedBatch::default();
            let result = self
                .store
                .transact(&needs, &mut |state| {
                    let (decided, writes) = self.decide(jobs, state);
                    batch = decided;
                    fault::at(Step::CommitDecided);
                    batch.effects.steps_within().for_each(fault::at);
                    writes
                })
                .await;
            match result {
                Ok(appended) => {
                    fault::at(Step::CommitDone);
                    batch.effects.steps_after().for_each(fault::at);
                    // A batch without records may have written nothing.
                    if !appended.records.is_empty() {
                        self.health.succeeded();
                    }
                    timer.observe_duration();
                    self.metrics.ledger_batch_size.observe(jobs.len() as f64);
                    self.metrics.records_total.inc_by(appended.records.len() as u64);
                    self.committed(&batch.effects);
                    return Ok(batch.answers(&appended));
                }
                Err(StoreError::Conflict(why)) if tries < self.settings.conflict_tries => {
                    tries += 1;
                    tracing::debug!(tries, why, "a batch met a concurrent writer");
                }
                Err(err) => {
                    timer.stop_and_discard();
                    tracing::warn!(error = %err, commands = jobs.len(), "a batch was not committed");
                    if matches!(err, StoreError::Conflict(_)) {
                        tracing::warn!(
                            tries,
                            "rows that the batch adds exist already: another broker was faster each time, or the log or a \
                             table was cut or restored under this broker (`handoffd verify` tells which)"
                        );
                    }
                    return Err(err);
                }
            }
        }
    }

    /// The rows that the commands read.
    async fn needs(&self, jobs: &[&Job]) -> Result<Needs, StoreError> {
        let mut all = Needs::default();
        for job in jobs {
            job.command.needs(&job.call, &mut all);
        }
        if !self.settings.rules.caps.any()
            && let Some(latest) = jobs.iter().map(|job| job.call.at).max()
        {
            self.capped.narrow(&self.store, latest, &mut all).await?;
        }
        Ok(all)
    }

    /// Decides the commands in order, each over the changes of those before it.
    fn decide(&self, jobs: &[&Job], state: BatchState) -> (DecidedBatch, Writes) {
        let mut plan = Plan::new(state);
        let mut replies = Vec::with_capacity(jobs.len());
        for job in jobs {
            let first = plan.writes.records.len();
            let context = Context {
                rules: self.settings.rules,
                spare: job.spare,
                waited: job.queued.elapsed(),
                claim: job.slot.as_ref().map(|slot| slot.claim.clone()),
            };
            let decision = decide(&plan.state, (&job.call, &job.command), &context);
            replies.push(decision.map(|(changes, reply)| {
                plan.apply(changes);
                (reply, (plan.writes.records.len() > first).then_some(first))
            }));
        }
        let latest = jobs.iter().map(|job| job.call.at).max().unwrap_or_default();
        let effects = CommitEffects::of(&plan.writes, &self.settings.rules.caps, latest);
        (DecidedBatch { replies, effects }, plan.writes)
    }

    /// Reserves a slot of the dispatcher for a handoff that is about to be committed, with the claim under which the
    /// commit hands the handoff to it.
    fn reserve(&self, job: &mut Job) {
        let at = job.call.at;
        if let Some(handoff) = job.command.delivers()
            && job.outgoing.is_some()
            && handoff.mode.is_pushed()
            && handoff.status == HandoffStatus::Pending
            && let Some(slot) =
                self.outbound.reserve(&(handoff.tenant.clone(), handoff.target.clone()))
        {
            let (broker, until) = (self.broker.clone(), at.plus(self.settings.claim_ttl));
            job.slot = Some(ReservedSlot { slot, claim: DispatcherClaim { broker, until } });
        }
    }
}

fn explain(err: &StoreError) -> LedgerError {
    match err {
        // A batch that loses every race is overload by another name: nothing is wrong with it. Nor is with one that the
        // database does not let through: nothing was written, and the same again will pass once it is mended.
        StoreError::Unavailable(_) | StoreError::Conflict(_) | StoreError::Denied(_) => {
            LedgerError::Unavailable
        }
        StoreError::Refused(why) => LedgerError::Internal(why.clone()),
    }
}
