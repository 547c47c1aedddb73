//! Second opinions after the commit (`docs/safety.md`).
//!
//! A handoff whose record says that its opinion is pending has a row beside it, from the same transaction. A worker
//! claims the row, reads the message as it is kept, asks the classifier, and records the answer by a command that
//! deletes the row. Each claim counts an attempt, whose number is its token: a worker whose lease ran out meanwhile
//! records nothing. A broker that dies with a claim leaves it to the next attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::archive::{ContentState, Contents};
use crate::dispatch::backoff::RetryPolicy;
use crate::dispatch::in_service::InService;
use crate::intake::{Opinion, SecondOpinion};
use crate::ledger::Ledger;
use crate::ledger::command::Call;
use crate::ledger::commands::RecordOpinion;
use crate::ledger::reply::LedgerError;
use handoffd_domain::handoff::Handoff;
use handoffd_evidence::record::{Actor, ClassifierFacts};
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{HandoffKey, Store, StoreError};

/// Rows returned by one look.
const LOOK: i64 = 256;

/// Messages that one broker asks about at once: enough that a slow classifier is kept busy, few enough that a burst of
/// marked messages does not overrun it.
const AT_ONCE: usize = 16;

/// Why a record has no answer.
const NO_ANSWER: &str = "NO_ANSWER";
/// The message was erased before the classifier was asked.
const ERASED: &str = "ERASED";
/// The message was past its retention before the classifier was asked.
const PURGED: &str = "PURGED";

#[derive(Debug, Clone, Copy)]
pub struct OpinionSettings {
    /// Attempts without an answer, and the pauses between them.
    pub retry: RetryPolicy,
    /// Time that the classifier may take, in all.
    pub timeout: Duration,
    /// Lifetime of a claim beyond that time: to read the message, also from an archive, and to commit.
    pub lease: Duration,
    /// Interval between two looks for rows that no broker serves.
    pub poll: Duration,
}

pub struct OpinionDependencies {
    pub store: Arc<Store>,
    /// Reads messages, hot or cold.
    pub contents: Contents,
    pub clock: Arc<dyn Clock>,
    /// Ledger that signals what is due, and records the answers.
    pub ledger: Ledger,
    pub classifier: Arc<dyn SecondOpinion>,
    pub settings: OpinionSettings,
    /// Cancelled, it ends the worker.
    pub stopping: CancellationToken,
}

/// Asks for second opinions that are due. Clones share all state.
#[derive(Clone)]
pub struct OpinionWorker(Arc<WorkerState>);

struct WorkerState {
    parts: OpinionDependencies,
    in_service: InService<HandoffKey>,
    tracker: TaskTracker,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Attempted {
    /// The record tells it: the classifier's answer, or a code for why there will be none.
    Recorded(ClassifierFacts, Option<&'static str>),
    /// The classifier gave no answer, for this reason.
    Failed(String),
    /// The broker stopped before the classifier answered.
    Stopped,
}

/// The step that follows an attempt: the record is written, or the next attempt begins after a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OpinionOutcome {
    Record(ClassifierFacts, Option<&'static str>),
    Postpone(Duration),
}

/// Decides on an attempt, counted from 1. `by` is the classifier's code, `random` lies in `[0, 1)`.
fn outcome(
    attempted: Attempted,
    attempt: u32,
    retry: &RetryPolicy,
    by: &str,
    random: f64,
) -> OpinionOutcome {
    match attempted {
        Attempted::Recorded(facts, reason) => OpinionOutcome::Record(facts, reason),
        Attempted::Stopped => OpinionOutcome::Postpone(Duration::ZERO),
        Attempted::Failed(_) => match retry.next_delay(attempt, random, None) {
            Some(pause) => OpinionOutcome::Postpone(pause),
            None => OpinionOutcome::Record(no_answer(by), Some(NO_ANSWER)),
        },
    }
}

fn no_answer(by: &str) -> ClassifierFacts {
    ClassifierFacts::new(by, ClassifierFacts::NONE)
}

impl OpinionWorker {
    /// A worker that is not running yet; rows are served on `tracker`.
    #[must_use]
    pub fn new(parts: OpinionDependencies, tracker: TaskTracker) -> Self {
        Self(Arc::new(WorkerState { parts, in_service: InService::new(AT_ONCE), tracker }))
    }

    /// Asks until the broker stops.
    pub async fn run(self) {
        let OpinionDependencies { ledger, settings, stopping, .. } = &self.0.parts;
        loop {
            self.look().await;
            let pause = settings.poll.mul_f64(1.0 + clock::random_fraction() / 2.0);
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = ledger.opinion_due() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Serves the rows that are due.
    async fn look(&self) {
        let OpinionDependencies { store, clock, .. } = &self.0.parts;
        let due = match store.list_due_opinions(clock.now(), LOOK).await {
            Ok(due) => due,
            Err(err) => {
                tracing::warn!(error = %err, "the second opinions that are due cannot be listed");
                return;
            }
        };
        for service in self.0.in_service.admit(due) {
            let this = self.clone();
            self.0.tracker.spawn(async move {
                let served = this.serve(service.key()).await;
                let handoff_id = service.key().1;
                drop(service);
                match served {
                    Ok(pause) => this.look_after(pause),
                    Err(err) => {
                        tracing::warn!(error = %err, %handoff_id, "a second opinion could not be asked for");
                    }
                }
            });
        }
    }

    /// Looks again after a pause, unless the broker stops.
    fn look_after(&self, pause: Duration) {
        let (ledger, stopping) = (self.0.parts.ledger.clone(), self.0.parts.stopping.clone());
        if pause.is_zero() {
            ledger.look_for_opinions();
            return;
        }
        self.0.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                () = tokio::time::sleep(pause) => ledger.look_for_opinions(),
            }
        });
    }

    /// One attempt at one row. Returns how long it rests.
    async fn serve(&self, key: &HandoffKey) -> Result<Duration, StoreError> {
        let OpinionDependencies { store, clock, classifier, settings, .. } = &self.0.parts;
        let now = clock.now();
        let until = now.plus(settings.timeout + settings.lease);
        let Some(attempt) = store.claim_opinion(key, now, until).await? else {
            return Ok(Duration::ZERO);
        };
        fault::at(Step::OpinionClaimed);
        let Some(handoff) = store.find_handoff(key).await? else {
            return Err(StoreError::Refused("its handoff does not exist".to_owned()));
        };
        let attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
        let attempted = if attempts > settings.retry.max_attempts {
            // Each attempt ended with its broker.
            Attempted::Failed("too many attempts".to_owned())
        } else {
            self.attempt(&handoff).await?
        };
        fault::at(Step::OpinionAnswered);
        if let Attempted::Failed(why) = &attempted {
            tracing::warn!(
                classifier = classifier.name(),
                handoff_id = %key.1,
                attempt,
                why,
                "the safety classifier did not answer"
            );
        }
        let random = clock::random_fraction();
        let pause = match outcome(attempted, attempts, &settings.retry, classifier.name(), random) {
            OpinionOutcome::Record(mut facts, reason) => {
                if reason == Some(NO_ANSWER) {
                    // The text went there all the same.
                    facts.crossing = classifier.crossing();
                }
                self.record(&handoff, attempt, facts, reason).await;
                Duration::ZERO
            }
            OpinionOutcome::Postpone(pause) => {
                store.postpone_opinion(key, attempt, clock.now().plus(pause)).await?;
                pause
            }
        };
        fault::at(Step::OpinionDone);
        Ok(pause)
    }

    /// Reads the message and asks. A text that is gone is not asked about.
    async fn attempt(&self, handoff: &Handoff) -> Result<Attempted, StoreError> {
        let OpinionDependencies { contents, classifier, stopping, .. } = &self.0.parts;
        let content = match handoff.content_id {
            Some(id) => contents.find(&handoff.tenant, id).await?,
            None => ContentState::Gone,
        };
        let gone = |why| Ok(Attempted::Recorded(no_answer(classifier.name()), Some(why)));
        let bytes = match content {
            ContentState::Whole(bytes) => bytes,
            ContentState::Gone => return gone(ERASED),
            ContentState::Purged => return gone(PURGED),
            ContentState::Unavailable(why) => {
                return Ok(Attempted::Failed(format!("the archive: {}", why.as_str())));
            }
        };
        let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice(&bytes)).await;
        let Ok(Ok(message)) = parsed else {
            return Ok(Attempted::Failed("the kept message is not JSON".to_owned()));
        };
        let opinion = tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(Attempted::Stopped),
            opinion = classifier.ask(&message) => opinion,
        };
        Ok(match opinion {
            Opinion::None(why) => Attempted::Failed(why),
            opinion => {
                Attempted::Recorded(opinion.facts(classifier.name(), classifier.crossing()), None)
            }
        })
    }

    /// Records an answer. If the ledger is away, the claim runs out, and a later attempt asks again.
    async fn record(
        &self,
        handoff: &Handoff,
        attempt: i32,
        facts: ClassifierFacts,
        reason: Option<&'static str>,
    ) {
        let OpinionDependencies { clock, ledger, .. } = &self.0.parts;
        let opinion = RecordOpinion {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            attempt,
            facts,
            reason,
        };
        let call = Call { tenant: handoff.tenant.clone(), at: clock.now(), actor: Actor::broker() };
        let command = opinion;
        match ledger.handle(call, command).await {
            Ok(_) => {}
            Err(err @ (LedgerError::Unavailable | LedgerError::Overloaded)) => {
                tracing::warn!(error = %err, handoff_id = %handoff.id, "a second opinion is not recorded yet");
            }
            Err(err) => {
                tracing::error!(error = %err, handoff_id = %handoff.id, "a second opinion cannot be recorded");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: RetryPolicy =
        RetryPolicy { base: Duration::from_secs(1), cap: Duration::from_mins(1), max_attempts: 3 };

    fn decided(attempted: Attempted, attempt: u32) -> OpinionOutcome {
        outcome(attempted, attempt, &RETRY, "guard", 0.5)
    }

    #[test]
    fn an_answer_is_recorded_at_any_attempt() {
        let said = Opinion::Unsafe { label: "persuasion".to_owned(), pointer: String::new() };
        for attempt in [1, 3, 4, u32::MAX] {
            let facts = said.facts("guard", None);
            let answered = Attempted::Recorded(facts.clone(), None);
            assert_eq!(decided(answered, attempt), OpinionOutcome::Record(facts, None));
        }
    }

    #[test]
    fn without_an_answer_it_is_asked_again_and_at_last_recorded_as_none() {
        let failed = || Attempted::Failed("slow".to_owned());
        for attempt in [1, 2] {
            let OpinionOutcome::Postpone(pause) = decided(failed(), attempt) else {
                panic!("attempt {attempt} is not the last one");
            };
            assert!(pause > Duration::ZERO && pause <= RETRY.cap, "{pause:?}");
        }
        for attempt in [3, 4] {
            let none = ClassifierFacts::new("guard", "NONE");
            let last = OpinionOutcome::Record(none, Some(NO_ANSWER));
            assert_eq!(decided(failed(), attempt), last);
        }
    }

    #[test]
    fn a_broker_that_stops_leaves_the_attempt_to_another() {
        let stopped = decided(Attempted::Stopped, 3);
        assert_eq!(stopped, OpinionOutcome::Postpone(Duration::ZERO));
    }

    #[test]
    fn an_opinion_stands_in_a_record_by_codes() {
        let label = |label: &str| Opinion::Unsafe {
            label: label.to_owned(),
            pointer: "/currentState/jane@example.com".to_owned(),
        };
        let facts = label("persuasion").facts("guard", None);
        assert_eq!(
            (facts.verdict.as_str(), facts.label.as_deref()),
            ("UNSAFE", Some("persuasion"))
        );
        assert_eq!(label("").facts("guard", None).label, None);
        assert_eq!(Opinion::Safe.facts("guard", None), ClassifierFacts::new("guard", "SAFE"));
        let none = Opinion::None("why".to_owned()).facts("guard", None);
        assert_eq!(none, ClassifierFacts::new("guard", "NONE"));
    }
}
