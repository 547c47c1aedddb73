//! Rows of attempts, decided.

use super::commands::{AnyCommand, AnyReply, Outcome, VerdictKind};
use super::decide_tests::{
    Order, apply, context, decide, is_superseded, settle, submit, tenant, uuid, verdict,
};
use super::plan::{Change, Plan};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_store::store::BatchState;
use handoffd_store::store::attempts::AttemptRow;

const HANDOFF: u8 = 1;
const TASK: u8 = 100;

fn row(attempt: i32) -> AttemptRow {
    AttemptRow {
        tenant: tenant(),
        handoff_id: HandoffId(uuid(HANDOFF)),
        attempt,
        begun_at: Micros(1),
        duration_us: Some(2),
        transport: Some(DeliveryMode::Webhook),
        outcome: "status".to_owned(),
        status: Some(500),
        error: Some("answered 500".to_owned()),
        headers: vec![("webhook-id".to_owned(), "x".to_owned())],
        answer: Some("down".to_owned()),
    }
}

fn again(attempt: i32) -> Order {
    let outcome = Outcome::Retry {
        at: Micros(5),
        why: "DELIVERY_STATUS".to_owned(),
        busy: false,
        verdict_by: None,
    };
    with_row(attempt, outcome)
}

fn with_row(attempt: i32, outcome: Outcome) -> Order {
    let mut command = settle(HANDOFF, TASK, 3, attempt, outcome);
    if let AnyCommand::Settle(settle) = &mut command.command {
        settle.row = Some(Box::new(row(attempt)));
    }
    command
}

fn sent() -> BatchState {
    let (state, reply, _) = apply(BatchState::default(), &submit(HANDOFF, TASK, 0));
    reply.unwrap();
    state
}

/// The rows that a command has written.
fn rows(state: &BatchState, command: &Order) -> (Vec<AttemptRow>, AnyReply) {
    let mut plan = Plan::new(state.clone());
    let (changes, reply) = decide(&plan.state, command, &context(command)).unwrap();
    plan.apply(changes);
    (plan.writes.attempts.into_values().collect(), reply)
}

#[test]
fn an_attempt_is_kept_by_the_write_of_its_outcome() {
    let state = sent();
    assert_eq!(rows(&state, &again(1)).0, [row(1)]);
    let plain = settle(HANDOFF, TASK, 3, 1, Outcome::Accepted);
    assert_eq!(rows(&state, &plain).0, []);
    let (older, reply) = rows(&state, &again(7));
    assert!(older.is_empty() && is_superseded(&reply), "{reply:?}");
}

#[test]
fn an_attempt_that_a_callback_overtook_is_kept() {
    let state = sent();
    let yes = verdict(HANDOFF, TASK, 2, 1, VerdictKind::Accept);
    let (state, reply, _) = apply(state, &yes);
    reply.unwrap();
    let (last, _) = rows(&state, &with_row(1, Outcome::Accepted));
    assert_eq!(last, [row(1)]);
}

#[test]
fn words_that_come_after_an_erasure_are_not_kept() {
    let mut state = sent();
    let handoff = state.handoffs.values_mut().next().unwrap();
    handoff.erase(false);
    let bare = AttemptRow { headers: Vec::new(), answer: None, ..row(1) };
    assert_eq!(rows(&state, &again(1)).0, [bare]);
    let shown = format!("{:?}", again(1));
    assert!(!shown.contains("down"), "{shown}");
}

#[test]
fn a_row_keeps_its_place_in_a_ring() {
    let change = |attempt| Change::Attempt(Box::new(row(attempt)));
    let mut plan = Plan::new(BatchState::default());
    plan.apply(vec![change(1), change(2), change(21)]);
    let numbers: Vec<_> = plan.writes.attempts.values().map(|row| row.attempt).collect();
    assert_eq!(numbers, [21, 2]);
}
