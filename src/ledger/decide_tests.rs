//! The decision, run over many random histories: whatever is said in whatever order, what is recorded
//! stays consistent.

use std::time::Duration;

use proptest::prelude::*;

use super::command::{
    Command, Expire, Kind, LedgerError, Outcome, Reply, Settle, Submit, Verdict, Word,
};
use super::decide::decide;
use super::plan::Plan;
use crate::domain::handoff::{Cost, DeliveryMode, Handoff, HandoffStatus};
use crate::domain::ids::{ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::money::Usd;
use crate::domain::task::TaskStatus;
use crate::evidence::commitment::{Part, Subject, commit};
use crate::evidence::record::{Actor, Content, Party};
use crate::store::State;

fn tenant() -> TenantId {
    "t".parse().unwrap()
}

fn uuid(n: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([n; 16])
}

fn part(text: &str) -> Part {
    Part::new(Subject::Message, [1; 16], text.as_bytes())
}

fn party() -> Party {
    Party { agent_id: None, agent_type: None, agent_version: None, execution_id: None }
}

fn handoff(id: u8, task: u8) -> Handoff {
    Handoff {
        tenant: tenant(),
        id: HandoffId(uuid(id)),
        task_id: TaskId(uuid(task)),
        parent_id: None,
        source: "a".parse().unwrap(),
        source_version: "1.0.0".to_owned(),
        source_execution: ExecutionId(uuid(9)),
        target: "b".parse().unwrap(),
        target_type: "b".to_owned(),
        target_version: "1.0.0".to_owned(),
        mode: DeliveryMode::Webhook,
        status: HandoffStatus::Pending,
        fencing_token: 0,
        attempts: 0,
        deadline_at: None,
        cost: Cost { spent: Usd(1), remaining: Usd(1), prompt_tokens: 0, completion_tokens: 0 },
        idempotent: true,
        checkpoint: None,
        content_id: None,
        digest_salt: vec![2; 16],
        digest: commit(Subject::Submission, &[2; 16], &[id]).to_vec(),
        reason: None,
        traceparent: String::new(),
        created_at: Micros(0),
        accepted_at: None,
        ended_at: None,
    }
}

fn submit(id: u8, task: u8, at: i64, claimed: bool) -> Command {
    command(
        at,
        Kind::Submit(Box::new(Submit {
            handoff: handoff(id, task),
            from: party(),
            to: party(),
            content: Content { id: ContentId(uuid(id)), part: part("m") },
            checkpoint: Some(part("c")),
            implied_checkpoint: part("i"),
            require_checkpoint: false,
            personal: Vec::new(),
            whole: vec![id],
            idempotency_key: None,
            has_part: true,
            refusal_salt: [0; 16],
            claim: claimed.then(|| ("broker".to_owned(), Micros(at + 1_000))),
        })),
    )
}

fn command(at: i64, kind: Kind) -> Command {
    Command { tenant: tenant(), at: Micros(at), actor: Actor::broker(), kind }
}

fn verdict(id: u8, task: u8, at: i64, token: i64, word: Word) -> Command {
    command(
        at,
        Kind::Verdict(Box::new(Verdict {
            task_id: TaskId(uuid(task)),
            handoff_id: HandoffId(uuid(id)),
            word,
            fencing_token: token,
            content: None,
            lease_until: Micros(at).plus(Duration::from_secs(1)),
        })),
    )
}

fn settle(id: u8, task: u8, at: i64, attempt: i32, outcome: Outcome) -> Command {
    command(
        at,
        Kind::Settle(Box::new(Settle {
            task_id: TaskId(uuid(task)),
            handoff_id: HandoffId(uuid(id)),
            attempt,
            outcome,
            content: None,
            lease_until: Micros(at).plus(Duration::from_secs(1)),
        })),
    )
}

fn apply(state: State, command: &Command) -> (State, Result<Reply, LedgerError>, usize) {
    let mut plan = Plan::new(state);
    match decide(&plan.state, command) {
        Ok((changes, reply)) => {
            plan.apply(changes);
            let records = plan.writes.records.len();
            (plan.state, Ok(reply), records)
        }
        Err(err) => (plan.state, Err(err), 0),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit { id: u8, claimed: bool },
    Say { id: u8, word: Word, stale: bool },
    Settle { id: u8, attempt: i32, outcome: Outcome },
    Expire { id: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..6u8;
    let word = prop_oneof![
        Just(Word::Accept),
        Just(Word::Reject("NO".to_owned())),
        Just(Word::Complete),
        Just(Word::Fail("free text".to_owned())),
        Just(Word::Heartbeat),
    ];
    let outcome = prop_oneof![
        Just(Outcome::Accepted),
        Just(Outcome::Rejected("NO".to_owned())),
        Just(Outcome::Received { verdict_by: Micros(50) }),
        Just(Outcome::Retry { at: Micros(5), why: "W".to_owned() }),
        Just(Outcome::GivenUp { why: "W".to_owned() }),
    ];
    prop_oneof![
        (id.clone(), any::<bool>()).prop_map(|(id, claimed)| Step::Submit { id, claimed }),
        (id.clone(), word, any::<bool>()).prop_map(|(id, word, stale)| Step::Say {
            id,
            word,
            stale
        }),
        (id.clone(), 0..3i32, outcome).prop_map(|(id, attempt, outcome)| Step::Settle {
            id,
            attempt,
            outcome
        }),
        id.prop_map(|id| Step::Expire { id }),
    ]
}

/// Handoffs 0 to 2 are on one task, 3 to 5 on another.
const fn task_of(id: u8) -> u8 {
    100 + id / 3
}

fn check(before: &State, after: &State) {
    for (key, task) in &after.tasks {
        let waiting = after.outbox.values().filter(|row| row.task_id == key.1).count();
        assert_eq!(task.undelivered, i64::try_from(waiting).unwrap(), "undelivered is the outbox");
        if let Some(was) = before.tasks.get(key) {
            assert!(task.fence >= was.fence, "a fencing token never falls");
            if was.status.is_final() {
                assert_eq!(task.status, was.status, "an ended task stays ended");
            }
        }
    }
    for (key, handoff) in &after.handoffs {
        if let Some(was) = before.handoffs.get(key) {
            if was.status.is_final() {
                assert_eq!(handoff.status, was.status, "a final state is never left");
            }
            assert_eq!(handoff.checkpoint, was.checkpoint, "its checkpoint is its own for good");
        }
        let waits = after.outbox.contains_key(key);
        assert!(!waits || handoff.status == HandoffStatus::Pending, "only the pending wait");
        if handoff.status.is_final() {
            assert!(handoff.ended_at.is_some() && handoff.deadline_at.is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_history_keeps_the_books_straight(steps in proptest::collection::vec(step(), 1..60)) {
        let mut state = State::default();
        for (at, step) in steps.into_iter().enumerate() {
            let at = i64::try_from(at).unwrap();
            let command = match step {
                Step::Submit { id, claimed } => submit(id, task_of(id), at, claimed),
                Step::Say { id, word, stale } => {
                    let token = state
                        .handoffs
                        .get(&(tenant(), HandoffId(uuid(id))))
                        .map_or(0, |handoff| handoff.fencing_token);
                    verdict(id, task_of(id), at, token - i64::from(stale), word)
                }
                Step::Settle { id, attempt, outcome } => settle(id, task_of(id), at, attempt, outcome),
                Step::Expire { id } => command(at, Kind::Expire(Expire {
                    task_id: TaskId(uuid(task_of(id))),
                    handoff_id: HandoffId(uuid(id)),
                })),
            };
            let before = state.clone();
            let (after, reply, records) = apply(state, &command);
            if reply.is_err() {
                prop_assert_eq!(records, 0, "who is refused leaves no trace");
            }
            let changed = after.handoffs.iter().any(|(key, handoff)| {
                before.handoffs.get(key).is_none_or(|was| was.status != handoff.status)
            });
            prop_assert!(!changed || records > 0, "no status changes without a record");
            check(&before, &after);
            state = after;
        }
    }
}

#[test]
fn a_stale_token_changes_nothing() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (after, reply, records) = apply(state.clone(), &verdict(0, 100, 1, 7, Word::Accept));
    assert!(matches!(reply, Err(LedgerError::StaleLease)));
    assert_eq!((records, &after.handoffs), (0, &state.handoffs));
}

#[test]
fn a_rejection_gives_the_task_back_to_its_checkpoint_in_one_step() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (after, reply, records) =
        apply(state, &settle(0, 100, 1, 1, Outcome::Rejected("free text of a person".to_owned())));
    assert!(reply.is_ok());
    let task = &after.tasks[&(tenant(), TaskId(uuid(100)))];
    assert_eq!((task.status, task.holder.as_str()), (TaskStatus::PendingHandoff, "a"));
    assert_eq!(task.checkpoint.unwrap().seq, 1);
    assert!(after.outbox.is_empty());
    assert_eq!(records, 2, "the rejection and the rollback");
}

#[test]
fn what_a_receiver_says_never_stands_in_a_record() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let mut plan = Plan::new(state);
    let said = settle(0, 100, 1, 1, Outcome::Rejected("Jane Roe, 12 Elm Street".to_owned()));
    let (changes, _) = decide(&plan.state, &said).unwrap();
    plan.apply(changes);
    for record in &plan.writes.records {
        assert_eq!(record.reason.as_deref(), Some("REJECTED_BY_RECEIVER"));
    }
}

#[test]
fn the_second_handoff_of_a_task_waits_for_the_first() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (state, ..) = apply(state, &submit(1, 100, 1, true));
    let second = &state.outbox[&(tenant(), HandoffId(uuid(1)))];
    assert_eq!(
        (second.claimed_by.as_ref(), second.attempt),
        (None, 0),
        "not claimed, though offered"
    );
    let (_, reply, _) = apply(state, &settle(0, 100, 2, 1, Outcome::Accepted));
    assert!(matches!(reply, Ok(Reply::Handoff { more: true, .. })), "the settling says so");
}

#[test]
fn an_old_lease_does_not_undo_what_others_have_gone_on_with() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (state, ..) = apply(state, &settle(0, 100, 1, 1, Outcome::Accepted));
    let mut onward = submit(1, 100, 2, true);
    if let Kind::Submit(submit) = &mut onward.kind {
        submit.handoff.source = "b".parse().unwrap();
        submit.handoff.source_execution = ExecutionId(uuid(8));
        submit.handoff.target = "c".parse().unwrap();
    }
    let (state, ..) = apply(state, &onward);
    let (state, ..) = apply(state, &settle(1, 100, 3, 1, Outcome::Accepted));
    let late = command(
        10_000_000,
        Kind::Expire(Expire { task_id: TaskId(uuid(100)), handoff_id: HandoffId(uuid(0)) }),
    );
    let (after, reply, records) = apply(state, &late);
    assert!(matches!(reply, Ok(Reply::Handoff { rolled_back: false, .. })));
    assert_eq!(records, 1, "EXPIRED, and nothing rolled back");
    let task = &after.tasks[&(tenant(), TaskId(uuid(100)))];
    assert_eq!((task.status, task.holder.as_str()), (TaskStatus::Running, "c"));
}

#[test]
fn nobody_plants_a_checkpoint_in_anothers_run() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let mut planted = submit(1, 100, 1, true);
    if let Kind::Submit(submit) = &mut planted.kind {
        submit.handoff.source = "x".parse().unwrap();
    }
    let (_, reply, records) = apply(state, &planted);
    assert!(matches!(reply, Err(LedgerError::Forbidden(_))));
    assert_eq!(records, 0);
}

#[test]
fn a_stranger_must_be_looked_up_before_it_hands_on_a_task() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let mut foreign = submit(1, 100, 1, true);
    if let Kind::Submit(submit) = &mut foreign.kind {
        submit.handoff.source = "x".parse().unwrap();
        submit.handoff.source_execution = ExecutionId(uuid(8));
        submit.has_part = false;
    }
    let (_, reply, records) = apply(state.clone(), &foreign);
    assert!(matches!(reply, Err(LedgerError::NotHolder)));
    assert_eq!(records, 0);
    if let Kind::Submit(submit) = &mut foreign.kind {
        submit.has_part = true;
    }
    assert!(apply(state, &foreign).1.is_ok());
}

#[test]
fn an_attempt_that_was_superseded_settles_nothing() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (after, reply, records) = apply(state.clone(), &settle(0, 100, 1, 2, Outcome::Accepted));
    assert!(matches!(reply, Ok(Reply::Superseded)));
    assert_eq!((records, &after.outbox), (0, &state.outbox));
}

#[test]
fn a_completion_that_overtakes_the_answer_counts_as_both() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (state, reply, records) = apply(state, &verdict(0, 100, 1, 1, Word::Complete));
    assert!(reply.is_ok());
    assert_eq!(records, 2, "ACCEPTED and COMPLETED");
    let (after, reply, records) = apply(state, &settle(0, 100, 2, 1, Outcome::Accepted));
    assert!(matches!(reply, Ok(Reply::Superseded)));
    assert_eq!(records, 0);
    assert_eq!(after.handoffs[&(tenant(), HandoffId(uuid(0)))].status, HandoffStatus::Completed);
}

#[test]
fn the_same_again_is_a_replay_and_another_body_a_conflict() {
    let (state, ..) = apply(State::default(), &submit(0, 100, 0, true));
    let (state, reply, records) = apply(state, &submit(0, 100, 1, true));
    assert!(matches!(reply, Ok(Reply::Submitted { replayed: true, .. })));
    assert_eq!(records, 0);
    let mut other = submit(0, 100, 1, true);
    if let Kind::Submit(submit) = &mut other.kind {
        submit.whole = vec![77];
    }
    let (_, reply, _) = apply(state, &other);
    assert!(matches!(reply, Err(LedgerError::Conflict(_))));
}
