//! The budget relay: the amounts of a task add up.

use super::*;

fn cost(spent: i64, remaining: i64) -> impl FnOnce(&mut HandoffDraft) {
    move |handoff| {
        handoff.cost.spent = Usd(spent);
        handoff.cost.remaining = Usd(remaining);
    }
}

#[test]
fn the_relay_adds_up_against_what_was_handed_over() {
    let state = well(BatchState::default(), &between(0, 0, "a", "b", cost(10, 90)));
    let state = well(state, &settle(0, TASK, 1, 1, Outcome::Accepted));
    for (spent, remaining, pointers) in [
        (9, 90, vec!["/costTracking/costSpentSoFarUSD"]),
        (10, 91, vec!["/costTracking/costBudgetRemainingUSD"]),
        (20, 81, vec!["/costTracking/costBudgetRemainingUSD"]),
        (5, 95, vec!["/costTracking/costSpentSoFarUSD", "/costTracking/costBudgetRemainingUSD"]),
    ] {
        let next = completing(between(1, 2, "b", "c", cost(spent, remaining)), 1);
        let (_, reply, records) = apply(state.clone(), &next);
        let Some(SubmissionReply::Refused { failures, .. }) = submission_reply(&reply) else {
            panic!("{reply:?}")
        };
        let found: Vec<_> = failures.iter().map(|found| found.pointer.as_str()).collect();
        assert_eq!((found, records), (pointers, 1), "{spent}/{remaining}");
    }
    for (spent, remaining) in [(10, 90), (10, 1), (20, 80), (20, 70)] {
        let next = completing(between(1, 2, "b", "c", cost(spent, remaining)), 1);
        assert!(matches!(
            submission_reply(&apply(state.clone(), &next).1),
            Some(SubmissionReply::Handoff { .. })
        ));
    }
}

#[test]
fn several_branches_are_each_measured_against_their_own() {
    let mut state = well(BatchState::default(), &between(0, 0, "x", "a", cost(10, 90)));
    state = well(state, &settle(0, TASK, 0, 1, Outcome::Accepted));
    state = well(state, &completing(between(1, 1, "a", "b", cost(10, 90)), 1));
    state = well(state, &settle(1, TASK, 1, 1, Outcome::Accepted));
    let mut second = completing(between(2, 2, "a", "c", cost(10, 90)), 1);
    if let AnyCommand::Submit(submit) = &mut second.command {
        submit.has_part = true;
        submit.handoff.parent_id = Some(HandoffId(uuid(0)));
    }
    state = well(state, &second);
    let attempt = of(&state, 2).attempts;
    state = well(state, &settle(2, TASK, 2, attempt, Outcome::Accepted));
    // b spent 50 of its own; c is still at 10 and may say so.
    state = well(state, &completing(between(3, 3, "b", "d", cost(60, 40)), 2));
    let after = apply(state, &completing(between(4, 4, "c", "d", cost(12, 88)), 3)).1;
    assert!(matches!(submission_reply(&after), Some(SubmissionReply::Handoff { .. })), "{after:?}");
}

#[test]
fn a_top_up_raises_what_may_remain() {
    let state = well(BatchState::default(), &between(0, 0, "a", "b", cost(10, 90)));
    let state = well(state, &settle(0, TASK, 1, 1, Outcome::Accepted));
    let more =
        command(2, TopUp { task_id: TaskId(uuid(TASK)), add: Usd(100), content: content_of(7) });
    let state = well(state, &more);
    assert_eq!((task(&state).topped_up, task(&state).remaining), (Usd(100), Usd(190)));
    let next = |remaining| completing(between(1, 3, "b", "c", cost(10, remaining)), 1);
    assert_eq!(codes(&apply(state.clone(), &next(191)).1), [Code::BudgetMismatch]);
    let state = well(state, &next(190));
    let state = well(state, &settle(1, TASK, 4, 1, Outcome::Accepted));
    let later = completing(between(2, 5, "c", "d", cost(10, 191)), 2);
    assert_eq!(codes(&apply(state, &later).1), [Code::BudgetMismatch], "counted once");
}
