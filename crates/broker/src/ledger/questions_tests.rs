//! Questions and answers, decided.

use std::time::Duration;

use super::commands::{Answer, AnyCommand, Ask, CancelTask, Outcome, VerdictKind};
use super::decide_tests::{
    Order, apply, command, content_of, expire, settle, submit, tenant, uuid, verdict,
};
use super::reply::{HandoffReply, LedgerError};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::question::MAX_QUESTIONS;
use handoffd_domain::task::TaskStatus;
use handoffd_store::store::BatchState;

const HANDOFF: u8 = 1;
const TASK: u8 = 100;

/// One handoff, accepted, and what is asked about it.
struct Asking(BatchState);

impl Asking {
    fn new() -> Self {
        let (state, reply, _) = apply(BatchState::default(), &submit(HANDOFF, TASK, 1));
        reply.unwrap();
        let accept = settle(HANDOFF, TASK, 2, 1, Outcome::Accepted);
        let (state, reply, _) = apply(state, &accept);
        reply.unwrap();
        Self(state)
    }

    fn say(&mut self, said: &Order) -> Result<(Handoff, bool, usize), LedgerError> {
        let (state, reply, records) = apply(std::mem::take(&mut self.0), said);
        self.0 = state;
        let reply = reply?;
        let Some(HandoffReply { handoff, repeated, .. }) = reply.handoff() else {
            panic!("{reply:?}")
        };
        Ok((handoff.clone(), *repeated, records))
    }

    fn handoff(&self) -> &Handoff {
        &self.0.handoffs[&(tenant(), HandoffId(uuid(HANDOFF)))]
    }
}

fn ask(at: i64, words: &str, key: Option<&str>) -> Order {
    command(
        at,
        Ask {
            task_id: TaskId(uuid(TASK)),
            handoff_id: HandoffId(uuid(HANDOFF)),
            fencing_token: 1,
            content: content_of(50),
            whole: words.as_bytes().to_vec(),
            key: key.map(str::to_owned),
            answer_by: Micros(at + 1_000),
        },
    )
}

fn answer(at: i64, number: u32, words: &str, key: Option<&str>) -> Order {
    command(
        at,
        Answer {
            task_id: TaskId(uuid(TASK)),
            handoff_id: HandoffId(uuid(HANDOFF)),
            number,
            by: None,
            content: content_of(51),
            whole: words.as_bytes().to_vec(),
            key: key.map(str::to_owned),
        },
    )
}

#[test]
fn a_question_suspends_the_lease_and_its_answer_begins_it_anew() {
    let mut asking = Asking::new();
    let (asked, repeated, records) = asking.say(&ask(10, "which?", None)).unwrap();
    assert_eq!((asked.status, repeated, records), (HandoffStatus::InputRequired, false, 1));
    assert_eq!((asked.deadline_at, asked.open_question()), (Some(Micros(1_010)), Some(1)));
    // Long after the lease would have run out.
    assert!(asking.say(&expire(HANDOFF, TASK, 1_000)).unwrap().1);
    assert!(asking.say(&verdict(HANDOFF, TASK, 900, 1, VerdictKind::Heartbeat)).unwrap().1);
    assert!(asking.say(&verdict(HANDOFF, TASK, 900, 1, VerdictKind::Accept)).unwrap().1);
    assert_eq!(asking.handoff().deadline_at, Some(Micros(1_010)), "no word extends the time");
    let (answered, _, records) = asking.say(&answer(1_005, 1, "this one", None)).unwrap();
    assert_eq!((answered.status, records), (HandoffStatus::Accepted, 1));
    let lease = Micros(1_005).plus(Duration::from_mins(15));
    assert_eq!((answered.deadline_at, answered.open_question()), (Some(lease), None));
    assert_eq!(answered.accepted_at, Some(Micros(2)), "it was accepted once");
}

#[test]
fn a_repeated_question_or_answer_changes_nothing_and_another_one_conflicts() {
    let mut asking = Asking::new();
    asking.say(&ask(10, "which?", Some("k"))).unwrap();
    for same in [ask(11, "which?", Some("k")), ask(11, "which?", None)] {
        let (_, repeated, records) = asking.say(&same).unwrap();
        assert!(repeated && records == 0);
    }
    let other = asking.say(&ask(11, "when?", None)).unwrap_err();
    assert!(matches!(other, LedgerError::Conflict(_)), "{other:?}");
    let other = asking.say(&ask(11, "when?", Some("k"))).unwrap_err();
    assert!(matches!(other, LedgerError::IdempotencyMismatch), "{other:?}");
    asking.say(&answer(12, 1, "this", Some("a"))).unwrap();
    for same in [answer(13, 1, "this", Some("a")), answer(13, 1, "this", None)] {
        let (_, repeated, records) = asking.say(&same).unwrap();
        assert!(repeated && records == 0);
    }
    let other = asking.say(&answer(13, 1, "that", None)).unwrap_err();
    assert!(matches!(other, LedgerError::Conflict(_)), "{other:?}");
    let other = asking.say(&answer(13, 1, "that", Some("a"))).unwrap_err();
    assert!(matches!(other, LedgerError::IdempotencyMismatch), "{other:?}");
    // By its key the question is the same after its answer, too; without one it is asked once more.
    assert!(asking.say(&ask(14, "which?", Some("k"))).unwrap().1);
    assert_eq!(asking.say(&ask(15, "which?", None)).unwrap().0.open_question(), Some(2));
    assert!(asking.say(&answer(16, 1, "this", Some("a"))).unwrap().1, "the first answer remains");
    assert!(matches!(
        asking.say(&answer(16, 3, "x", None)),
        Err(LedgerError::NotFound("question"))
    ));
}

#[test]
fn without_an_answer_in_time_the_handoff_expires_and_the_task_goes_back() {
    let mut asking = Asking::new();
    asking.say(&ask(10, "which?", None)).unwrap();
    let (late, ..) = asking.say(&expire(HANDOFF, TASK, 1_010)).unwrap();
    assert_eq!(
        (late.status, late.reason.as_deref()),
        (HandoffStatus::Expired, Some("ANSWER_TIMEOUT"))
    );
    let task = &asking.0.tasks[&(tenant(), TaskId(uuid(TASK)))];
    assert_eq!((task.status, task.holder.as_str()), (TaskStatus::PendingHandoff, "a"));
    let err = asking.say(&answer(1_011, 1, "this", None)).unwrap_err();
    assert!(matches!(err, LedgerError::Handoff(_)), "{err:?}");
    assert!(matches!(asking.say(&ask(1_011, "when?", None)), Err(LedgerError::StaleLease)));
}

#[test]
fn only_the_holder_of_an_accepted_handoff_asks() {
    let (state, reply, _) = apply(BatchState::default(), &submit(HANDOFF, TASK, 1));
    reply.unwrap();
    let mut pending = Asking(state);
    assert!(matches!(pending.say(&ask(2, "which?", None)), Err(LedgerError::Handoff(_))));
    let mut asking = Asking::new();
    let mut stale = ask(3, "which?", None);
    if let AnyCommand::Ask(ask) = &mut stale.command {
        ask.fencing_token = 0;
    }
    assert!(matches!(asking.say(&stale), Err(LedgerError::StaleLease)));
    assert!(matches!(asking.say(&answer(3, 1, "x", None)), Err(LedgerError::NotFound("question"))));
}

#[test]
fn a_receiver_that_asked_may_complete_or_fail_and_a_canceled_task_is_not_asked_about() {
    for (word, status) in [
        (VerdictKind::Complete, HandoffStatus::Completed),
        (VerdictKind::Fail("BROKE".to_owned()), HandoffStatus::Failed),
    ] {
        let mut asking = Asking::new();
        asking.say(&ask(10, "which?", None)).unwrap();
        let (ended, ..) = asking.say(&verdict(HANDOFF, TASK, 11, 1, word)).unwrap();
        assert_eq!((ended.status, ended.deadline_at), (status, None));
        assert!(asking.say(&answer(12, 1, "this", None)).is_err());
    }
    for asked_before in [true, false] {
        let mut asking = Asking::new();
        if asked_before {
            asking.say(&ask(10, "which?", None)).unwrap();
        }
        let cancel = CancelTask {
            task_id: TaskId(uuid(TASK)),
            by: None,
            grace_until: Micros(500),
            content: content_of(60),
        };
        let (state, reply, _) = apply(std::mem::take(&mut asking.0), &command(11, cancel));
        reply.unwrap();
        asking.0 = state;
        let said = if asked_before { answer(12, 1, "x", None) } else { ask(12, "which?", None) };
        assert!(matches!(asking.say(&said), Err(LedgerError::Conflict(_))));
        assert_eq!(asking.handoff().deadline_at, Some(Micros(500)));
        let (ended, ..) = asking.say(&expire(HANDOFF, TASK, 500)).unwrap();
        assert_eq!(ended.status, HandoffStatus::Canceled);
    }
}

#[test]
fn questions_are_numbered_and_bounded() {
    let mut asking = Asking::new();
    for n in 1..=u32::try_from(MAX_QUESTIONS).unwrap() {
        let at = 10 * i64::from(n);
        let (asked, ..) = asking.say(&ask(at, &format!("{n}?"), None)).unwrap();
        assert_eq!(asked.open_question(), Some(n));
        asking.say(&answer(at + 1, n, "yes", None)).unwrap();
    }
    let err = asking.say(&ask(9_000, "one more?", None)).unwrap_err();
    assert!(matches!(err, LedgerError::Conflict(_)), "{err:?}");
    assert_eq!(asking.handoff().status, HandoffStatus::Accepted);
}
