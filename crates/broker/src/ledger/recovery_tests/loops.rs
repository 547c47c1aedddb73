//! Refusals that count, and the guards against loops.

use super::*;

fn refusal(code: Code, from: &str) -> Order {
    let failure = Failure::new(Stage::Schema, code, "/x", "no");
    let mut made = command(
        3,
        Refuse {
            task_id: Some(TaskId(uuid(TASK))),
            handoff_id: None,
            parent_handoff_id: None,
            from: Some(party()),
            to: None,
            counted: Some(Counted {
                by: agent(from),
                to: "b".to_owned(),
                target: Some(agent("b")),
                run: None,
                checkpoint: None,
            }),
            recovery: None,
            failures: vec![failure],
            content: content_of(9),
            whole: None,
            dead_letter: None,
            safety: None,
        },
    );
    made.call.actor.agent_id = Some(agent(from));
    made
}

#[test]
fn x9_refusals_that_the_holder_has_to_mend_count_and_a_strangers_do_not() {
    let state = hop(BatchState::default(), 0, 0, "x", "a", 1);
    let mut theirs = state.clone();
    for _ in 0..5 {
        theirs = well(theirs, &refusal(Code::SchemaInvalid, "stranger"));
    }
    assert!(theirs.escalations.is_empty() && theirs.edges.len() == state.edges.len());
    let mut own = state;
    for turn in 1..=4 {
        own = well(own, &refusal(Code::SchemaInvalid, "a"));
        assert_eq!(own.escalations.len(), usize::from(turn >= 3), "{turn}");
    }
    assert_eq!(task(&own).status, TaskStatus::Escalated);
    let said = resolve(&own, 50, Some(Resolution::Retry));
    let after = well(own, &said);
    assert_eq!(task(&after).status, TaskStatus::Running, "its sender goes on and tries again");
}

#[test]
fn the_fourth_time_on_an_edge_without_progress_is_a_loop() {
    let mut state = BatchState::default();
    for turn in 0..3u8 {
        state = hop(state, turn * 2, 0, "a", "b", 1);
        state = hop(state, turn * 2 + 1, 0, "b", "a", 1);
    }
    let (after, reply, records) =
        apply(state.clone(), &completing(between(9, 9, "a", "b", |_| {}), 1));
    assert_eq!(codes(&reply), [Code::LoopDetected]);
    assert_eq!((records, after.handoffs.len()), (1, 6), "a record, and nothing else");
    let Some(SubmissionReply::Refused { failures, .. }) = submission_reply(&reply) else {
        panic!()
    };
    assert!(failures[0].message.starts_with("ping-pong"), "{}", failures[0].message);
    // One more completed subtask is progress.
    let (_, reply, _) = apply(state, &completing(between(9, 9, "a", "b", |_| {}), 2));
    assert!(matches!(submission_reply(&reply), Some(SubmissionReply::Handoff { .. })));
}

#[test]
fn a_longer_circle_is_found_as_well() {
    let mut state = BatchState::default();
    let mut id = 0;
    for _ in 0..3 {
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
            state = hop(state, id, 0, from, to, 1);
            id += 1;
        }
    }
    let (_, reply, _) = apply(state, &completing(between(id, 9, "a", "b", |_| {}), 1));
    assert_eq!(codes(&reply), [Code::LoopDetected]);
}

#[test]
fn the_thirty_third_hop_is_one_too_many_whatever_the_progress() {
    let mut state = BatchState::default();
    for turn in 0..32u8 {
        let (from, to) = if turn % 2 == 0 { ("a", "b") } else { ("b", "a") };
        state = hop(state, turn, 0, from, to, i64::from(turn));
    }
    let (_, reply, _) = apply(state, &completing(between(40, 9, "a", "b", |_| {}), 99));
    assert_eq!(codes(&reply), [Code::LoopDetected]);
}

#[test]
fn a_contracts_own_guard_counts_besides() {
    let guard = |guard: LoopGuard| Ruling {
        edge: EdgePolicy { loop_guard: Some(guard), ..EdgePolicy::default() },
        ..Ruling::default()
    };
    let state = hop(BatchState::default(), 0, 0, "a", "b", 1);
    let back = |id, rule: LoopGuard| {
        completing(
            between(id, 1, "b", "a", |handoff| handoff.ruling = Some(Box::new(guard(rule)))),
            id.into(),
        )
    };
    let (_, reply, _) = apply(state.clone(), &back(1, LoopGuard::Visited));
    assert_eq!(codes(&reply), [Code::LoopDetected], "a had it");
    let state = well(state, &back(1, LoopGuard::Counter { max: 1 }));
    let state = well(state, &settle(1, TASK, 2, 1, Outcome::Accepted));
    let state = hop(state, 2, 3, "a", "b", 5);
    let (_, reply, _) = apply(state, &back(9, LoopGuard::Counter { max: 1 }));
    assert_eq!(codes(&reply), [Code::LoopDetected], "the second passage");
}

#[test]
fn a_handoff_to_oneself_is_no_hop() {
    let mut state = hop(BatchState::default(), 0, 0, "a", "b", 1);
    for id in 1..9 {
        let own = between(id, 1, "b", "b", |handoff| handoff.status = HandoffStatus::NoOp);
        state = well(state, &own);
    }
    assert_eq!(state.edges.len(), 1);
    assert_eq!(task(&state).handoffs, 1);
}
