//! Escalations: a person is asked, decides, or does not; failures that escalate.

use super::*;

#[test]
fn human_recovery_asks_a_person_and_the_task_waits() {
    let state = asked();
    assert_eq!(task(&state).status, TaskStatus::Escalated);
    assert_eq!(task(&state).holder, agent("a"));
    let row = escalations(&state)[0];
    assert_eq!((row.status, row.channel.as_deref()), (EscalationStatus::Open, Some("desk")));
    assert_eq!((row.timeout_at, row.resume_as.as_ref()), (Micros(1_001), Some(&agent("night"))));
    let (_, reply, records) = apply(state, &submit(1, TASK, 2));
    assert!(matches!(reply, Err(LedgerError::Task(_))), "no agent goes on meanwhile");
    assert_eq!(records, 0);
}

#[test]
fn a_person_who_takes_over_starts_the_lease_of_who_waited_meanwhile() {
    let under = |id: u8, ruling: Ruling| {
        move |handoff: &mut HandoffDraft| {
            handoff.parent_id = Some(HandoffId(uuid(id)));
            handoff.ruling = Some(Box::new(ruling));
        }
    };
    let returns = Ruling { returns_to: Some(agent("b")), ..Ruling::default() };
    let mut person = Ruling::default();
    person.edge.human = Some(HumanTarget {
        target: true,
        channel: Some("desk".to_owned()),
        timeout_ms: Some(1_000),
        resume_as: None,
    });
    let taken = |state: &BatchState, id: u8, at: i64| {
        settle(id, TASK, at, of(state, id).attempts, Outcome::Accepted)
    };
    let mut state = with_agents(BatchState::default(), &["a", "b", "c", "p"]);
    for id in [1, 2] {
        state = well(state, &submit(id, TASK, 0));
    }
    for id in [1, 2] {
        state = {
            let accepted = taken(&state, id, 1);
            well(state, &accepted)
        };
    }
    state = well(state, &between(3, 2, "b", "c", under(1, returns)));
    state = well(state, &between(4, 3, "b", "p", under(2, person)));
    assert_eq!(task(&state).status, TaskStatus::Escalated);
    let accepted = taken(&state, 3, 4);
    state = well(state, &accepted);
    let token = of(&state, 3).fencing_token;
    state = well(state, &verdict(3, TASK, 5, token, VerdictKind::Complete));
    assert_eq!(of(&state, 1).deadline_at, None, "the task waits for the person");
    let accepted = taken(&state, 4, 6);
    let mut read = Needs::default();
    accepted.command.needs(&accepted.call, &mut read);
    let beside = read.handoffs_beside(&state);
    assert!(beside.contains(&(tenant(), HandoffId(uuid(1)))), "it is read: {beside:?}");
    state = well(state, &accepted);
    assert_eq!(of(&state, 2).status, HandoffStatus::Completed, "handed on to the person");
    let waited = of(&state, 1);
    assert_eq!(waited.status, HandoffStatus::Accepted);
    assert!(waited.deadline_at > Some(Micros(6)), "{waited:?}");
}

#[test]
fn what_went_to_a_person_ends_with_the_decision_whatever_else_is_under_way() {
    let mut person = Ruling::default();
    person.edge.human =
        Some(HumanTarget { target: true, channel: None, timeout_ms: Some(1_000), resume_as: None });
    let mut state = with_agents(BatchState::default(), &["a", "b", "c"]);
    state = well(state, &between(1, 0, "a", "b", |_| {}));
    state = well(state, &between(2, 0, "a", "b", |one| one.ruling = Some(Box::new(person))));
    // Its token is raised by its next claim: the other one is the task's current one.
    state.handoffs.get_mut(&(tenant(), HandoffId(uuid(1)))).unwrap().fencing_token = 3;
    state.tasks.get_mut(&(tenant(), TaskId(uuid(TASK)))).unwrap().fence = 3;
    let asked = &escalations(&state)[0];
    assert_eq!(asked.handoff_id, Some(HandoffId(uuid(2))));
    let retry = resolve(&state, 1, Some(Resolution::Retry));
    let (state, reply, records) = apply(state, &retry);
    assert!(matches!(reply, Err(LedgerError::Conflict(_))), "{reply:?}");
    assert_eq!(records, 0);
    for resolution in [Resolution::RollBack, Resolution::Reassign(agent("c"))] {
        let after = well(state.clone(), &resolve(&state, 1, Some(resolution.clone())));
        let decided = of(&after, 2);
        assert!(decided.status.is_final(), "{resolution:?}: {decided:?}");
        assert_eq!(of(&after, 1).status, HandoffStatus::Canceled, "{resolution:?}");
    }
}

#[test]
fn each_resolution_does_what_it_says_once() {
    let cases = [
        (Resolution::Retry, TaskStatus::HandingOff, Some("b")),
        (Resolution::Reassign(agent("c")), TaskStatus::HandingOff, Some("c")),
        (Resolution::RollBack, TaskStatus::PendingHandoff, None),
        (Resolution::Cancel, TaskStatus::Canceled, None),
        (Resolution::Complete, TaskStatus::Completed, None),
    ];
    for (resolution, status, target) in cases {
        let mut state = asked();
        let back = Returned { handoff: HandoffId(uuid(9)), to: agent("a") };
        let known = state.tasks.get_mut(&(tenant(), TaskId(uuid(TASK)))).unwrap();
        known.course.returned = vec![back];
        let said = resolve(&state, 5, Some(resolution.clone()));
        let (after, reply, records) = apply(state, &said);
        assert!(matches!(reply, Ok(AnyReply::Resolve(_))), "{resolution:?}: {reply:?}");
        // A task that ended is in no inbox.
        let ended = matches!(resolution, Resolution::Cancel | Resolution::Complete);
        assert_eq!(task(&after).course.returned.is_empty(), ended, "{resolution:?}");
        assert_eq!(task(&after).status, status, "{resolution:?}");
        assert!(records >= 1);
        let row = escalations(&after)[0];
        assert_eq!(row.status, EscalationStatus::Resolved);
        assert_eq!(row.resolution, Some(resolution.outcome()));
        let child = after.handoffs.values().find(|one| one.parent_id.is_some());
        assert_eq!(child.map(|child| child.target.as_str()), target, "{resolution:?}");
        let (_, again, records) = apply(after, &said);
        assert!(matches!(again, Err(LedgerError::Conflict(_))), "{again:?}");
        assert_eq!(records, 0);
    }
}

#[test]
fn reassigning_needs_somebody_who_takes_handoffs_and_did_not_send_it() {
    for target in ["nobody", "a"] {
        let state = asked();
        let said = resolve(&state, 5, Some(Resolution::Reassign(agent(target))));
        let (_, reply, records) = apply(state, &said);
        assert!(matches!(reply, Err(LedgerError::Invalid(..))), "{target}: {reply:?}");
        assert_eq!(records, 0);
    }
}

#[test]
fn c30_when_nobody_decides_in_time_the_synthetic_identity_resumes() {
    let state = asked();
    let early = resolve(&state, 1_000, None);
    assert!(matches!(apply(state.clone(), &early).1, Err(LedgerError::Conflict(_))));
    let late = resolve(&state, 1_001, None);
    let after = well(state, &late);
    assert_eq!(escalations(&after)[0].status, EscalationStatus::TimedOut);
    assert_eq!(child_of(&after, HandoffId(uuid(0))).target, agent("night"));
    assert_eq!(task(&after).status, TaskStatus::HandingOff);
}

#[test]
fn without_one_the_handoff_becomes_a_dead_letter_and_the_task_goes_back() {
    // Nor where its message is too large for it, or was never whole.
    let small = |state: &mut BatchState| {
        let row = state.agents.get_mut(&(tenant(), agent("night"))).unwrap();
        row.agent.context_window_tokens = Some(10);
        row.agent.context_policy = Some(ContextPolicy::Refuse);
        let handoff = state.handoffs.get_mut(&(tenant(), HandoffId(uuid(0)))).unwrap();
        handoff.context = Some(ContextFacts {
            tokens: 1_000,
            window: None,
            limit: None,
            action: ContextAction::None,
            tokenizer: Tokenizer::default(),
            parts: ContextParts::default(),
        });
    };
    let in_part = |state: &mut BatchState| {
        let handoff = state.handoffs.get_mut(&(tenant(), HandoffId(uuid(0)))).unwrap();
        handoff.stream = Some(Stream::opened(Micros(9)));
    };
    for made in [&small as &dyn Fn(&mut BatchState), &in_part] {
        let mut state = asked();
        made(&mut state);
        let late = resolve(&state, 1_001, None);
        assert_eq!(of(&well(state, &late), 0).status, HandoffStatus::DeadLettered);
    }
    let mut state = asked();
    state.agents.remove(&(tenant(), agent("night")));
    let late = resolve(&state, 1_001, None);
    let after = well(state, &late);
    assert_eq!(of(&after, 0).status, HandoffStatus::DeadLettered);
    let letter = &after.dead_letters[&(tenant(), HandoffId(uuid(0)))];
    assert_eq!(
        (letter.reason.as_str(), letter.status),
        ("ESCALATION_TIMEOUT", DeadLetterStatus::Open)
    );
    assert_eq!(task(&after).status, TaskStatus::PendingHandoff);
    // It can still be released.
    let released = well(after, &release(0, 2_000, Vec::new(), Vec::new()));
    assert_eq!(of(&released, 0).status, HandoffStatus::Pending);
    assert_eq!(of(&released, 0).fencing_token, task(&released).fence);
    assert!(released.outbox.contains_key(&(tenant(), HandoffId(uuid(0)))));
}

#[test]
fn a53_three_failures_on_one_edge_escalate_once_whatever_the_recovery() {
    let mut state = BatchState::default();
    for id in 0..3u8 {
        let at = i64::from(id) * 10;
        state = well(state, &completing(submit(id, TASK, at), i64::from(id)));
        state = well(state, &no(id, at + 1));
        let expected = if id < 2 { TaskStatus::PendingHandoff } else { TaskStatus::Escalated };
        assert_eq!(task(&state).status, expected, "{id}");
    }
    assert_eq!(escalations(&state).len(), 1);
    assert_eq!(task(&state).holder, agent("a"), "it was rolled back all the same");
    let said = resolve(&state, 90, Some(Resolution::RollBack));
    let state = well(state, &said);
    let state = well(state, &submit(7, TASK, 91));
    assert_eq!(well(state, &no(7, 92)).escalations.len(), 1, "the edge begins anew");
}

#[test]
fn what_went_well_in_between_resets_the_count() {
    let mut state = BatchState::default();
    for id in 0..2u8 {
        state = well(state, &completing(submit(id, TASK, 1), i64::from(id)));
        state = well(state, &no(id, 2));
    }
    state = hop(state, 2, 3, "a", "b", 3);
    let token = of(&state, 2).fencing_token;
    state = well(state, &verdict(2, TASK, 4, token, VerdictKind::Complete));
    state = hop(state, 3, 5, "b", "a", 4);
    state = well(state, &completing(between(4, 6, "a", "b", |_| {}), 5));
    let after = well(state, &no(4, 7));
    assert!(after.escalations.is_empty());
    assert_eq!(task(&after).status, TaskStatus::PendingHandoff);
}
