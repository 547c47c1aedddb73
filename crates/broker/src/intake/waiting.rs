//! Requests that wait for what comes of a handoff (specification §2.3, §10.3).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::intake::Intake;
use crate::ledger::HandoffWatch;
use handoffd_domain::handoff::{HANDED_ON, Handoff, HandoffStatus};
use handoffd_domain::ids::AgentId;
use handoffd_store::store::{HandoffFilter, Result};

/// The interval at which a wait reads the store: another broker may have recorded the change.
pub const POLL: Duration = Duration::from_millis(250);

/// Handoffs read at once.
const PAGE: i64 = 500;

/// The end of a request's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The receiver's verdict: accepted, or ended.
    Verdict,
    /// The end of the handoff.
    Ended,
    /// The end, or a question of the receiver: what its sender acts on.
    Asked,
    /// No question waits for an answer: what a receiver that asked acts on.
    Answered,
}

impl Until {
    /// Whether a handoff in this state needs no further waiting.
    #[must_use]
    pub const fn is_reached(self, status: HandoffStatus) -> bool {
        match self {
            Self::Verdict => !matches!(status, HandoffStatus::Pending),
            Self::Ended => status.is_final(),
            Self::Asked => status.is_final() || matches!(status, HandoffStatus::InputRequired),
            Self::Answered => !matches!(status, HandoffStatus::InputRequired),
        }
    }
}

/// How long a request waits, and for what.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// At most so long.
    pub time: Duration,
    pub until: Until,
}

/// The state of a handoff as the answer to its submission states it.
#[derive(Debug)]
pub struct AnsweredState {
    /// The handoff, or the last one of those that took its place.
    pub last: Handoff,
    pub status: HandoffStatus,
    /// Whether the answer states the end or the verdict of `last`.
    pub is_settled: bool,
    /// Whether the handoff came to the state for which the caller waited.
    pub is_reached: bool,
    /// Whether the answer states the result of `last`.
    pub has_result: bool,
}

/// The status that an answer states: a replay answers as the first answer did, unless its caller waited for a later status.
const fn answered_status(
    first: HandoffStatus,
    last: HandoffStatus,
    is_settled: bool,
) -> HandoffStatus {
    match (first, is_settled) {
        (HandoffStatus::NoOp, _) => HandoffStatus::NoOp,
        (_, true) => last,
        (_, false) => HandoffStatus::Pending,
    }
}

impl Intake {
    /// Waits as a submission asks, and finds the state that its answer states. `repeated`: the handoff is another message's, and
    /// its present status is news to the sender of this one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn answered_state(
        &self,
        handoff: &Handoff,
        repeated: bool,
        wait: Option<(Wait, Option<HandoffWatch>)>,
        stopping: &CancellationToken,
    ) -> Result<AnsweredState> {
        let mut last = handoff.clone();
        let (mut is_settled, mut is_reached, mut has_result) = (false, false, false);
        let is_no_op = handoff.status == HandoffStatus::NoOp;
        if let Some((wait, watch)) = wait.filter(|_| !is_no_op) {
            last = self.wait_for(handoff.clone(), watch, wait, stopping).await?;
            is_settled = last.status != HandoffStatus::Pending;
            is_reached = wait.until.is_reached(last.status);
            has_result = matches!(wait.until, Until::Ended | Until::Asked)
                && last.status == HandoffStatus::Completed;
        }
        if repeated && !is_settled {
            last = self.last_successor(handoff).await?.unwrap_or(last);
            is_settled = last.status != HandoffStatus::Pending;
        }
        let status = answered_status(handoff.status, last.status, is_settled);
        Ok(AnsweredState { last, status, is_settled, is_reached, has_result })
    }

    /// Waits for a handoff, or for the one in its place, and returns the latest of them: a handoff that ended badly
    /// and whose message the broker gave to another agent is followed, and for an end also one whose receiver
    /// handed the task on and whose result comes back to this handoff's source.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn wait_for(
        &self,
        handoff: Handoff,
        watch: Option<HandoffWatch>,
        wait: Wait,
        stopping: &CancellationToken,
    ) -> Result<Handoff> {
        if wait.time.is_zero() && !wait.until.is_reached(handoff.status) {
            // A timer that is due at once takes a millisecond all the same.
            return Ok(handoff);
        }
        let key = (handoff.tenant.clone(), handoff.id);
        let source = handoff.source.clone();
        let deadline = tokio::time::Instant::now() + wait.time;
        let (mut latest, mut watch) = if let Some(watch) = watch {
            (handoff, watch)
        } else {
            let watch = self.ledger.watch(key.clone());
            (self.store.find_handoff(&key).await?.unwrap_or(handoff), watch)
        };
        loop {
            while !wait.until.is_reached(latest.status) {
                tokio::select! {
                    changed = watch.changed() => {
                        latest = changed.map_or(latest, Arc::unwrap_or_clone);
                    }
                    () = tokio::time::sleep(POLL) => {
                        let key = (latest.tenant.clone(), latest.id);
                        latest = self.store.find_handoff(&key).await?.unwrap_or(latest);
                    }
                    () = tokio::time::sleep_until(deadline) => return Ok(latest),
                    () = stopping.cancelled() => return Ok(latest),
                }
            }
            if wait.until == Until::Answered {
                // A receiver waits for its own handoff.
                return Ok(latest);
            }
            let next = match self.successor(&latest).await? {
                None if matches!(wait.until, Until::Ended | Until::Asked) => {
                    self.handed_on_to(&latest, &source).await?
                }
                next => next,
            };
            let Some(next) = next else { return Ok(latest) };
            let key = (next.tenant.clone(), next.id);
            watch = self.ledger.watch(key.clone());
            latest = self.store.find_handoff(&key).await?.unwrap_or(next);
        }
    }

    /// The last in the row of those that replaced one another.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn last_successor(&self, handoff: &Handoff) -> Result<Option<Handoff>> {
        let mut last = None;
        while let Some(next) = self.successor(last.as_ref().unwrap_or(handoff)).await? {
            last = Some(next);
        }
        Ok(last)
    }

    /// The handoff in the place of one that ended badly: the broker gave its message to another agent.
    async fn successor(&self, handoff: &Handoff) -> Result<Option<Handoff>> {
        let ended = matches!(
            handoff.status,
            HandoffStatus::Rejected
                | HandoffStatus::Expired
                | HandoffStatus::Failed
                | HandoffStatus::DeadLettered
                | HandoffStatus::Canceled
        );
        if !ended {
            return Ok(None);
        }
        self.child(handoff, |one| one.origin.is_some()).await
    }

    /// The handoff by which a receiver handed the task on, where its result comes back to `source`.
    async fn handed_on_to(&self, handoff: &Handoff, source: &AgentId) -> Result<Option<Handoff>> {
        let handed_on = handoff.status == HandoffStatus::Completed
            && handoff.reason.as_deref() == Some(HANDED_ON);
        if !handed_on {
            return Ok(None);
        }
        let returns = |one: &Handoff| {
            one.ruling.as_ref().and_then(|ruling| ruling.returns_to.as_ref()) == Some(source)
                && !matches!(one.status, HandoffStatus::Rejected | HandoffStatus::Canceled)
        };
        self.child(handoff, returns).await
    }

    /// The first handoff of the task, newest first, that follows `handoff` and fits.
    async fn child(
        &self,
        handoff: &Handoff,
        fits: impl Fn(&Handoff) -> bool,
    ) -> Result<Option<Handoff>> {
        let filter = HandoffFilter { task_id: Some(handoff.task_id), ..HandoffFilter::default() };
        let mut after = None;
        loop {
            let page = self.store.list_handoffs(&handoff.tenant, &filter, after.as_ref(), PAGE);
            let page = page.await?;
            let Some(last) = page.last() else { return Ok(None) };
            after = Some((last.created_at, last.id.to_string()));
            let follows = |one: &Handoff| one.parent_id == Some(handoff.id) && fits(one);
            if let Some(next) = page.into_iter().find(follows) {
                return Ok(Some(next));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_states_a_later_status_only_where_it_is_settled() {
        use HandoffStatus::{Accepted, Completed, NoOp, Pending};
        let rows = [
            (Pending, Pending, false, Pending),
            (Pending, Accepted, true, Accepted),
            (Completed, Completed, false, Pending),
            (Completed, Completed, true, Completed),
            (NoOp, NoOp, false, NoOp),
            (NoOp, NoOp, true, NoOp),
        ];
        for (first, last, is_settled, status) in rows {
            assert_eq!(answered_status(first, last, is_settled), status, "{first:?} {is_settled}");
        }
    }

    #[test]
    fn a_verdict_is_not_yet_an_end() {
        assert!(!Until::Verdict.is_reached(HandoffStatus::Pending));
        assert!(Until::Verdict.is_reached(HandoffStatus::Accepted));
        assert!(!Until::Ended.is_reached(HandoffStatus::Accepted));
        assert!(Until::Ended.is_reached(HandoffStatus::Rejected));
    }

    #[test]
    fn a_question_ends_the_wait_of_a_sender_and_its_answer_that_of_the_receiver() {
        let asks = HandoffStatus::InputRequired;
        assert!(Until::Asked.is_reached(asks) && Until::Verdict.is_reached(asks));
        assert!(!Until::Ended.is_reached(asks) && !Until::Answered.is_reached(asks));
        assert!(!Until::Asked.is_reached(HandoffStatus::Accepted));
        assert!(Until::Asked.is_reached(HandoffStatus::Completed));
        assert!(Until::Answered.is_reached(HandoffStatus::Accepted));
        assert!(Until::Answered.is_reached(HandoffStatus::Expired));
    }
}
