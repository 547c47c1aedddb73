//! Requests that wait for what becomes of a handoff (specification §2.3, §10.3).

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;

use super::Api;
use super::extract::{preference, preferred_wait};
use super::problem::Problem;
use handoffd_broker::ledger::HandoffWatch;
use handoffd_core::domain::handoff::{HANDED_ON, Handoff, HandoffStatus};
use handoffd_core::domain::ids::AgentId;
use handoffd_store::store::HandoffFilter;

/// The interval at which a wait reads the store: another broker may have recorded the change.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(1);

/// The end of a request's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
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
    fn parse(text: Option<&str>) -> Result<Self, Problem> {
        match text {
            None | Some("verdict") => Ok(Self::Verdict),
            Some("ended") => Ok(Self::Ended),
            Some("asked") => Ok(Self::Asked),
            Some("answered") => Ok(Self::Answered),
            Some(_) => Err(Problem::invalid("until can be: verdict, ended, asked, answered")),
        }
    }

    /// Whether a handoff in this state needs no further waiting.
    pub(super) const fn is_reached(self, status: HandoffStatus) -> bool {
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
pub(super) struct Wait {
    /// At most so long.
    pub(super) time: Duration,
    pub(super) until: Until,
}

impl Wait {
    /// The wait of `Prefer: wait=N, until=…` (RFC 7240).
    pub(super) fn preferred(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        Self::of(preferred_wait(headers)?, preference(headers, "until")?)
    }

    /// The wait of the query's `wait` and `until`, in seconds.
    pub(super) fn asked(wait: Option<u64>, until: Option<&str>) -> Result<Option<Self>, Problem> {
        let time = wait.map(Duration::from_secs);
        if time.is_some_and(|time| time > LONGEST) {
            return Err(Problem::invalid("wait must be between 0 and 60 seconds"));
        }
        Self::of(time, until)
    }

    fn of(time: Option<Duration>, until: Option<&str>) -> Result<Option<Self>, Problem> {
        let target = Until::parse(until)?;
        if time.is_none() && until.is_some() {
            return Err(Problem::invalid("until takes effect with wait=SECONDS"));
        }
        Ok(time.map(|time| Self { time, until: target }))
    }

    /// The value of `Preference-Applied`.
    pub(super) fn applied(self) -> String {
        let until = match self.until {
            Until::Verdict => "",
            Until::Ended => ", until=ended",
            Until::Asked => ", until=asked",
            Until::Answered => ", until=answered",
        };
        format!("wait={}{until}", self.time.as_secs())
    }
}

/// Waits for a handoff, or for what stands in its place, and returns the latest of them: a handoff that ended badly
/// and whose message the broker gave to another agent is followed, and for an end also one whose receiver
/// handed the task on and whose result comes back to this handoff's source.
pub(super) async fn for_it(
    api: &Api,
    handoff: Handoff,
    watch: Option<HandoffWatch>,
    wait: Wait,
) -> Result<Handoff, Problem> {
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
        let watch = api.intake.ledger.watch(key.clone());
        (api.store.find_handoff(&key).await?.unwrap_or(handoff), watch)
    };
    loop {
        while !wait.until.is_reached(latest.status) {
            tokio::select! {
                changed = watch.changed() => {
                    latest = changed.map_or(latest, Arc::unwrap_or_clone);
                }
                () = tokio::time::sleep(POLL) => {
                    let key = (latest.tenant.clone(), latest.id);
                    latest = api.store.find_handoff(&key).await?.unwrap_or(latest);
                }
                () = tokio::time::sleep_until(deadline) => return Ok(latest),
                () = api.stopping.cancelled() => return Ok(latest),
            }
        }
        if wait.until == Until::Answered {
            // A receiver waits for its own handoff.
            return Ok(latest);
        }
        let next = match successor(api, &latest).await? {
            None if matches!(wait.until, Until::Ended | Until::Asked) => {
                handed_on_to(api, &latest, &source).await?
            }
            next => next,
        };
        let Some(next) = next else { return Ok(latest) };
        let key = (next.tenant.clone(), next.id);
        watch = api.intake.ledger.watch(key.clone());
        latest = api.store.find_handoff(&key).await?.unwrap_or(next);
    }
}

/// The handoff that stands in the place of one that ended badly: the broker gave its message to another agent.
async fn successor(api: &Api, handoff: &Handoff) -> Result<Option<Handoff>, Problem> {
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
    child(api, handoff, |one| one.origin.is_some()).await
}

/// The handoff by which a receiver handed the task on, where its result comes back to `source`.
async fn handed_on_to(
    api: &Api,
    handoff: &Handoff,
    source: &AgentId,
) -> Result<Option<Handoff>, Problem> {
    let handed_on =
        handoff.status == HandoffStatus::Completed && handoff.reason.as_deref() == Some(HANDED_ON);
    if !handed_on {
        return Ok(None);
    }
    let returns = |one: &Handoff| {
        one.ruling.as_ref().and_then(|ruling| ruling.returns_to.as_ref()) == Some(source)
            && !matches!(one.status, HandoffStatus::Rejected | HandoffStatus::Canceled)
    };
    child(api, handoff, returns).await
}

/// The first handoff of the task, newest first, that follows `handoff` and fits.
async fn child(
    api: &Api,
    handoff: &Handoff,
    fits: impl Fn(&Handoff) -> bool,
) -> Result<Option<Handoff>, Problem> {
    let filter = HandoffFilter { task_id: Some(handoff.task_id), ..HandoffFilter::default() };
    let mut after = None;
    loop {
        let page = api.store.list_handoffs(&handoff.tenant, &filter, after.as_ref(), 500).await?;
        let Some(last) = page.last() else { return Ok(None) };
        after = Some((last.created_at, last.id.to_string()));
        let follows = |one: &Handoff| one.parent_id == Some(handoff.id) && fits(one);
        if let Some(next) = page.into_iter().find(follows) {
            return Ok(Some(next));
        }
    }
}

/// The last in the row of those that stand in for one another.
pub(super) async fn last_successor(
    api: &Api,
    handoff: &Handoff,
) -> Result<Option<Handoff>, Problem> {
    let mut last = None;
    while let Some(next) = successor(api, last.as_ref().unwrap_or(handoff)).await? {
        last = Some(next);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_for_how_long_and_for_what_or_is_refused() {
        assert!(Wait::asked(None, None).unwrap().is_none());
        let wait = Wait::asked(Some(5), Some("ended")).unwrap().unwrap();
        assert_eq!((wait.time, wait.until), (Duration::from_secs(5), Until::Ended));
        assert_eq!(wait.applied(), "wait=5, until=ended");
        assert_eq!(Wait::asked(Some(0), None).unwrap().unwrap().applied(), "wait=0");
        for (wait, until) in [(Some(61), None), (None, Some("ended")), (Some(1), Some("done"))] {
            assert!(Wait::asked(wait, until).is_err(), "{wait:?} {until:?}");
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
