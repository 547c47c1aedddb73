//! The strategies of a recovery that ask no person: a fallback, the supervisor, preferred agents.

use super::*;

#[test]
fn a_named_agent_gets_what_failed_as_a_child_in_the_same_step() {
    let state = with_agents(BatchState::default(), &["a", "b", "c"]);
    let state = well(state, &ruled(0, 0, on(&Recovery::Agent(agent("c")))));
    let (after, reply, records) = apply(state, &no(0, 1));
    assert!(matches!(
        handoff_reply(&reply),
        Some(HandoffReply { rolled_back: false, more: true, .. })
    ));
    assert_eq!(records, 2, "REJECTED and HANDOFF");
    let child = child_of(&after, HandoffId(uuid(0)));
    assert_eq!((child.source.as_str(), child.target.as_str()), ("a", "c"));
    assert_eq!(child.status, HandoffStatus::Pending);
    assert_eq!(child.content_id, of(&after, 0).content_id);
    assert_eq!(child.commitment, of(&after, 0).commitment);
    assert_eq!(child.checkpoint, of(&after, 0).checkpoint);
    assert_eq!((child.cost, child.origin), (of(&after, 0).cost, Some(HandoffId(uuid(0)))));
    assert_eq!(child.fencing_token, task(&after).fence);
    assert!(after.outbox.contains_key(&(tenant(), child.id)));
    assert_eq!(task(&after).status, TaskStatus::HandingOff);
    assert_eq!(task(&after).holder, agent("a"));
}

#[test]
fn a_recovery_that_fails_too_goes_back_to_the_sender() {
    let state = with_agents(BatchState::default(), &["a", "b", "c"]);
    let state = well(state, &ruled(0, 0, on(&Recovery::Agent(agent("c")))));
    let state = well(state, &no(0, 1));
    let child = child_of(&state, HandoffId(uuid(0))).clone();
    let fail = Order {
        command: AnyCommand::Verdict(Box::new(crate::ledger::commands::Verdict {
            task_id: child.task_id,
            handoff_id: child.id,
            kind: VerdictKind::Reject("NO".to_owned()),
            fencing_token: child.fencing_token,
            content: None,
            spent: None,
            said_at: Micros(5),
            interval_ms: None,
            lease_until: Micros(9),
        })),
        ..no(0, 2)
    };
    let (after, reply, _) = apply(state, &fail);
    assert!(
        matches!(handoff_reply(&reply), Some(HandoffReply { rolled_back: true, .. })),
        "{reply:?}"
    );
    assert_eq!(task(&after).status, TaskStatus::PendingHandoff);
    assert_eq!(task(&after).checkpoint, child.checkpoint);
}

#[test]
fn a_failure_after_acceptance_goes_to_the_supervisor_from_the_senders_checkpoint() {
    let state = with_agents(BatchState::default(), &["a", "b", "s"]);
    let mut ruling = on(&Recovery::Supervisor);
    ruling.supervisor = Some(agent("s"));
    let state = well(state, &ruled(0, 0, ruling));
    let state = well(state, &settle(0, TASK, 1, 1, Outcome::Accepted));
    assert_eq!(task(&state).holder, agent("b"));
    let token = of(&state, 0).fencing_token;
    let after = well(state, &verdict(0, TASK, 2, token, VerdictKind::Fail("BROKE".to_owned())));
    assert_eq!(child_of(&after, HandoffId(uuid(0))).target, agent("s"));
    assert_eq!((task(&after).holder.as_str(), task(&after).status), ("a", TaskStatus::HandingOff));
    assert_eq!(task(&after).checkpoint, of(&after, 0).checkpoint);
}

#[test]
fn who_took_one_of_several_and_lets_its_lease_run_out_loses_the_task() {
    let state = well(BatchState::default(), &between(0, 0, "a", "b", |_| {}));
    let state = well(state, &between(1, 1, "a", "c", |_| {}));
    // The first is accepted when the second has the later token already.
    let state = well(state, &settle(0, TASK, 2, 1, Outcome::Accepted));
    assert_eq!((task(&state).holder.as_str(), task(&state).status), ("b", TaskStatus::Running));
    let state = well(state, &expire(0, TASK, 2_000_000));
    assert_eq!(of(&state, 0).status, HandoffStatus::Expired);
    assert_eq!(task(&state).status, TaskStatus::PendingHandoff);
    assert_eq!(task(&state).holder.as_str(), "a");
    // The second is on its way all the same.
    let state = well(state, &verdict(1, TASK, 2_000_001, 2, VerdictKind::Accept));
    assert_eq!((task(&state).holder.as_str(), task(&state).status), ("c", TaskStatus::Running));
}

#[test]
fn an_old_lease_of_whoever_runs_the_task_by_a_later_handoff_takes_nothing_away() {
    let state = well(BatchState::default(), &between(0, 0, "a", "b", |_| {}));
    let state = well(state, &between(1, 1, "a", "b", |_| {}));
    let state = well(state, &settle(0, TASK, 2, 1, Outcome::Accepted));
    let state = well(state, &verdict(1, TASK, 3, 2, VerdictKind::Accept));
    assert_eq!(of(&state, 1).status, HandoffStatus::Accepted);
    let state = well(state, &expire(0, TASK, 2_000_000));
    assert_eq!(of(&state, 0).status, HandoffStatus::Expired);
    assert_eq!((task(&state).holder.as_str(), task(&state).status), ("b", TaskStatus::Running));
    let state = well(state, &expire(1, TASK, 2_000_001));
    assert_eq!(task(&state).status, TaskStatus::PendingHandoff);
    assert_eq!(task(&state).holder.as_str(), "a");
}

#[test]
fn when_the_last_of_several_on_its_way_fails_the_task_is_not_left_on_its_way() {
    let late = |state| well(state, &between(1, 3, "a", "c", |_| {}));
    let taken = well(BatchState::default(), &between(0, 0, "a", "b", |_| {}));
    let taken = well(taken, &settle(0, TASK, 2, 1, Outcome::Accepted));
    let refuse = |at| verdict(1, TASK, at, 2, VerdictKind::Reject("NO".to_owned()));
    let fail = |at| verdict(0, TASK, at, 1, VerdictKind::Fail("NO".to_owned()));
    let stands = |state: &BatchState| (task(state).status, task(state).holder.to_string());
    // The agent that has it goes on with it, and can bring it to its end.
    let state = well(late(taken.clone()), &refuse(4));
    assert_eq!(stands(&state), (TaskStatus::Running, "b".to_owned()));
    let state = well(state, &fail(5));
    assert_eq!(stands(&state), (TaskStatus::PendingHandoff, "a".to_owned()));
    // No agent has it any more.
    let state = well(late(taken), &fail(4));
    assert_eq!(stands(&state), (TaskStatus::HandingOff, "b".to_owned()), "one is on its way");
    let state = well(state, &refuse(5));
    assert_eq!(stands(&state), (TaskStatus::PendingHandoff, "a".to_owned()));
}

#[test]
fn a_fallback_that_is_gone_or_is_the_sender_means_rollback() {
    for fallback in ["nobody", "a", "b"] {
        let state = with_agents(BatchState::default(), &["a", "b"]);
        let state = well(state, &ruled(0, 0, on(&Recovery::Agent(agent(fallback)))));
        let after = well(state, &no(0, 1));
        assert_eq!(task(&after).status, TaskStatus::PendingHandoff, "{fallback}");
        assert_eq!(after.handoffs.len(), 1);
    }
}

#[test]
fn b18_preferred_agents_are_asked_in_order_and_then_the_sender_is_told() {
    let state = with_agents(BatchState::default(), &["a", "b", "c", "d"]);
    let preferred = ["c", "gone", "d"].map(agent).to_vec();
    let mut state = well(state, &ruled(0, 0, Ruling { preferred, ..Ruling::default() }));
    let mut last = HandoffId(uuid(0));
    for (turn, expected) in ["c", "d"].into_iter().enumerate() {
        let said = reject(&state, last, i64::try_from(turn).unwrap());
        state = well(state, &said);
        let child = child_of(&state, last);
        assert_eq!(child.target, agent(expected));
        last = child.id;
    }
    let said = reject(&state, last, 9);
    let (after, reply, _) = apply(state, &said);
    let Some(HandoffReply { handoff, rolled_back: true, .. }) = handoff_reply(&reply) else {
        panic!("{reply:?}")
    };
    assert_eq!(handoff.reason.as_deref(), Some("All preferred agents unavailable"));
    assert_eq!(task(&after).status, TaskStatus::PendingHandoff);
}
