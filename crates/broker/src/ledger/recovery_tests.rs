//! Recovery, escalations, the loop guard, the budget relay, cancel and dead letters, decided.

use super::commands::{
    AnyCommand, AnyReply, CancelTask, CompleteTask, Counted, Discard, KeepDeadLetter, Outcome,
    Refuse, Release, Resolve, RestoreCheckpoint, TopUp, VerdictKind,
};
use super::decide_tests::{
    Order, apply as decided, command, content_of, expire, handoff, handoff_reply, party, settle,
    submission_reply, submit, tenant, uuid, verdict,
};
use super::reply::{DeadLetterReply, HandoffReply, LedgerError, SubmissionReply};
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::course::Returned;
use handoffd_core::domain::dead_letter::DeadLetterStatus;
use handoffd_core::domain::escalation::{Escalation, EscalationStatus, Resolution};
use handoffd_core::domain::failure::{Code, Failure, Stage};
use handoffd_core::domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus, Priority,
};
use handoffd_core::domain::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId};
use handoffd_core::domain::lineage::reached;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::policy::{EdgePolicy, HumanTarget, LoopGuard, Recovery};
use handoffd_core::domain::ruling::Ruling;
use handoffd_core::domain::stream::Stream;
use handoffd_core::domain::task::{Task, TaskStatus};
use handoffd_core::domain::window::{
    ContextAction, ContextFacts, ContextParts, ContextPolicy, Tokenizer,
};
use handoffd_store::store::{AgentRow, BatchState, DeadLetterRow, Needs};

const TASK: u8 = 100;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

/// Decides a command; a handoff without a parent follows what reached its sender last.
fn apply(state: BatchState, said: &Order) -> (BatchState, Result<AnyReply, LedgerError>, usize) {
    let mut said = said.clone();
    let last = |source: &AgentId| {
        let own = state.handoffs.values().filter(|one| reached(one, source));
        own.max_by_key(|one| (one.accepted_at, one.fencing_token)).map(|one| one.id)
    };
    match &mut said.command {
        AnyCommand::Submit(submit) if submit.handoff.parent_id.is_none() => {
            submit.handoff.parent_id = last(&submit.handoff.source);
        }
        AnyCommand::Release(release) => {
            let key = (tenant(), release.handoff_id);
            let parent = last(&release.source);
            let mut state = state;
            if let Some(kept) = state.handoffs.get_mut(&key) {
                kept.parent_id = parent;
            }
            return decided(state, &said);
        }
        _ => {}
    }
    decided(state, &said)
}

/// Agents that are there.
fn with_agents(mut state: BatchState, names: &[&str]) -> BatchState {
    for name in names {
        let row = AgentRow {
            tenant: tenant(),
            agent: Agent::new(agent(name)),
            secrets: String::new(),
            created_at: Micros(0),
            updated_at: Micros(0),
        };
        state.agents.insert((tenant(), agent(name)), row);
    }
    state
}

/// A submission under rules of its own.
fn ruled(id: u8, at: i64, ruling: Ruling) -> Order {
    between(id, at, "a", "b", |handoff| handoff.ruling = Some(Box::new(ruling)))
}

fn between(id: u8, at: i64, from: &str, to: &str, more: impl FnOnce(&mut HandoffDraft)) -> Order {
    let mut made = submit(id, TASK, at);
    if let AnyCommand::Submit(submit) = &mut made.command {
        submit.handoff.source = agent(from);
        submit.handoff.target = agent(to);
        submit.handoff.source_execution = ExecutionId(uuid(from.as_bytes()[0]));
        more(&mut submit.handoff);
    }
    made
}

fn completing(mut made: Order, completed: i64) -> Order {
    if let AnyCommand::Submit(submit) = &mut made.command {
        submit.subtasks = (0..completed.unsigned_abs()).collect();
    }
    made
}

fn task(state: &BatchState) -> &Task {
    &state.tasks[&(tenant(), TaskId(uuid(TASK)))]
}

fn of(state: &BatchState, id: u8) -> &Handoff {
    &state.handoffs[&(tenant(), HandoffId(uuid(id)))]
}

/// The handoff that stands in for another.
fn child_of(state: &BatchState, id: HandoffId) -> &Handoff {
    state.handoffs.values().find(|one| one.parent_id == Some(id)).expect("no child")
}

fn escalations(state: &BatchState) -> Vec<&Escalation> {
    state.escalations.values().collect()
}

fn well(state: BatchState, command: &Order) -> BatchState {
    let (state, reply, _) = apply(state, command);
    assert!(reply.is_ok(), "{reply:?}");
    state
}

/// Accepts and hands on: from `from` to `to` and taken there.
fn hop(state: BatchState, id: u8, at: i64, from: &str, to: &str, completed: i64) -> BatchState {
    let state = well(state, &completing(between(id, at, from, to, |_| {}), completed));
    let attempt = of(&state, id).attempts;
    well(state, &settle(id, TASK, at, attempt, Outcome::Accepted))
}

fn no(id: u8, at: i64) -> Order {
    settle(id, TASK, at, 1, Outcome::Rejected("NO".to_owned()))
}

fn on(recovery: &Recovery) -> Ruling {
    let edge = EdgePolicy {
        on_reject: recovery.clone(),
        on_timeout: recovery.clone(),
        on_error: recovery.clone(),
        ..EdgePolicy::default()
    };
    Ruling { edge, ..Ruling::default() }
}

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
        command: AnyCommand::Verdict(Box::new(super::commands::Verdict {
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
    // Whoever has it goes on with it, and can bring it to its end.
    let state = well(late(taken.clone()), &refuse(4));
    assert_eq!(stands(&state), (TaskStatus::Running, "b".to_owned()));
    let state = well(state, &fail(5));
    assert_eq!(stands(&state), (TaskStatus::PendingHandoff, "a".to_owned()));
    // Nobody has it any more.
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

fn reject(state: &BatchState, id: HandoffId, at: i64) -> Order {
    let handoff = &state.handoffs[&(tenant(), id)];
    command(
        at,
        super::commands::Verdict {
            task_id: handoff.task_id,
            handoff_id: id,
            kind: VerdictKind::Reject("NO".to_owned()),
            fencing_token: handoff.fencing_token,
            content: None,
            spent: None,
            said_at: Micros(at),
            interval_ms: None,
            lease_until: Micros(9),
        },
    )
}

fn asked() -> BatchState {
    let mut ruling = on(&Recovery::Human);
    ruling.edge.human = Some(HumanTarget {
        target: false,
        channel: Some("desk".to_owned()),
        timeout_ms: Some(1),
        resume_as: Some(agent("night")),
    });
    let state = with_agents(BatchState::default(), &["a", "b", "c", "night"]);
    let state = well(state, &ruled(0, 0, ruling));
    well(state, &no(0, 1))
}

fn resolve(state: &BatchState, at: i64, resolution: Option<Resolution>) -> Order {
    let row = escalations(state)[0];
    command(
        at,
        Resolve {
            escalation_id: row.id,
            task_id: row.task_id,
            handoff_id: row.handoff_id,
            agents: Vec::new(),
            edge: None,
            resolution,
            content: None,
        },
    )
}

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
        // A task that ended is in nobody's inbox.
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

fn codes(reply: &Result<AnyReply, LedgerError>) -> Vec<Code> {
    match reply {
        Ok(
            AnyReply::Submit(SubmissionReply::Refused { failures, .. })
            | AnyReply::Refuse(SubmissionReply::Refused { failures, .. }),
        ) => failures.iter().map(|found| found.code).collect(),
        other => panic!("{other:?}"),
    }
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

fn cancel(at: i64, by: Option<&str>, grace: i64) -> Order {
    command(
        at,
        CancelTask {
            task_id: TaskId(uuid(TASK)),
            by: by.map(agent),
            grace_until: Micros(at + grace),
            content: content_of(8),
        },
    )
}

#[test]
fn canceling_withdraws_what_waits_and_gives_who_works_a_grace() {
    let state = hop(BatchState::default(), 0, 0, "a", "b", 1);
    let state = well(state, &completing(between(1, 1, "b", "c", |_| {}), 2));
    let (after, reply, records) = apply(state, &cancel(2, Some("b"), 500));
    assert!(
        matches!(&reply, Ok(AnyReply::CancelTask(task)) if task.status == TaskStatus::Canceled)
    );
    assert_eq!(records, 2, "CANCELED and TASK_CANCELED");
    assert_eq!(of(&after, 1).status, HandoffStatus::Canceled);
    assert!(after.outbox.is_empty() && task(&after).undelivered == 0);
    let held = of(&after, 0);
    assert_eq!((held.status, held.deadline_at), (HandoffStatus::Accepted, Some(Micros(502))));
    let token = held.fencing_token;
    // A heartbeat buys no time; finishing counts; running out withdraws.
    let (_, beat, _) = apply(after.clone(), &verdict(0, TASK, 3, token, VerdictKind::Heartbeat));
    assert!(matches!(beat, Err(LedgerError::Conflict(_))));
    let done = well(after.clone(), &verdict(0, TASK, 4, token, VerdictKind::Complete));
    assert_eq!(of(&done, 0).status, HandoffStatus::Completed);
    let over = well(after.clone(), &expire(0, TASK, 502));
    assert_eq!(of(&over, 0).status, HandoffStatus::Canceled);
    assert_eq!(task(&over).status, TaskStatus::Canceled);
    // Again, and at once.
    let now = well(after, &cancel(5, None, 0));
    assert_eq!(of(&now, 0).status, HandoffStatus::Canceled);
}

#[test]
fn only_holder_beginner_and_operators_cancel() {
    let state = hop(BatchState::default(), 0, 0, "a", "b", 1);
    for (by, may) in [(Some("a"), true), (Some("b"), true), (None, true), (Some("x"), false)] {
        let (_, reply, records) = apply(state.clone(), &cancel(1, by, 0));
        assert_eq!((reply.is_ok(), records > 0), (may, may), "{by:?}: {reply:?}");
    }
}

#[test]
fn canceling_or_completing_a_task_asks_nobody_any_more() {
    for ended in [cancel(5, None, 0), complete(5)] {
        let after = well(asked(), &ended);
        assert_eq!(escalations(&after)[0].status, EscalationStatus::Resolved);
        assert!(task(&after).status.is_final());
    }
}

fn complete(at: i64) -> Order {
    command(at, CompleteTask { task_id: TaskId(uuid(TASK)), by: None, content: content_of(8) })
}

#[test]
fn f1_3_completing_a_task_ends_what_is_open_on_it() {
    let state = well(BatchState::default(), &between(1, 0, "a", "c", |_| {}));
    let state = hop(state, 0, 0, "a", "b", 1);
    let after = well(state, &complete(2));
    assert_eq!(of(&after, 0).status, HandoffStatus::Completed, "its holder's own");
    assert_eq!(of(&after, 1).status, HandoffStatus::Canceled, "another one on its way");
    assert!(after.outbox.is_empty() && task(&after).undelivered == 0);
    assert_eq!(task(&after).funds.as_ref().unwrap().reserved(), Usd(0));
    assert_eq!(task(&after).status, TaskStatus::Completed);
}

fn letter(state: BatchState) -> BatchState {
    let mut state = hop(state, 0, 0, "x", "a", 1);
    let draft = HandoffDraft { status: HandoffStatus::DeadLettered, ..handoff(5, TASK) };
    let content = content_of(5);
    let kept = draft.committed(HandoffCommit {
        content: (content.id, content.part.commitment),
        checkpoint: None,
        fencing_token: 0,
        topped_up: Usd(0),
    });
    // It was compressed for the receiver of before.
    let kept = Handoff { sent_id: Some(content_of(7).id), ..kept };
    state.handoffs.insert((tenant(), kept.id), kept.clone());
    state.dead_letters.insert(
        (tenant(), kept.id),
        DeadLetterRow {
            tenant: tenant(),
            handoff_id: kept.id,
            task_id: kept.task_id,
            source: kept.source,
            target: Some(kept.target),
            reason: "SAFETY_VIOLATION".to_owned(),
            failures: vec![found()],
            status: DeadLetterStatus::Open,
            created_at: Micros(0),
            resolved_at: None,
            resolved_by: None,
        },
    );
    state
}

fn found() -> Failure {
    Failure::new(Stage::Safety, Code::SafetyViolation, "/taskDescription", "Rule `x` fired")
}

fn release(id: u8, at: i64, waived: Vec<Failure>, refused: Vec<Failure>) -> Order {
    let (handoff_id, task_id, content) = (HandoffId(uuid(id)), TaskId(uuid(TASK)), content_of(6));
    if !refused.is_empty() {
        let keep = KeepDeadLetter { handoff_id, task_id, waived, refused, content };
        return command(at, keep);
    }
    let release = Release {
        handoff_id,
        task_id,
        source: agent("a"),
        parent_id: None,
        idempotent: true,
        declared_budget: None,
        target: Agent::new(agent("b")),
        ruling: None,
        priority: Priority::Normal,
        subtasks: vec![1, 2, 3, 4, 5],
        residency: None,
        context: None,
        safety: None,
        repeat: None,
        waived,
        content,
    };
    command(at, release)
}

#[test]
fn a_released_dead_letter_is_delivered_once_under_a_token_of_its_own() {
    let state = letter(BatchState::default());
    let (after, reply, records) = apply(state, &release(5, 9, vec![found()], Vec::new()));
    assert!(
        matches!(&reply, Ok(AnyReply::Release(DeadLetterReply { refused, .. }) | AnyReply::KeepDeadLetter(DeadLetterReply { refused, .. })) if refused.is_empty())
    );
    assert_eq!(records, 2, "RELEASED and HANDOFF");
    assert_eq!(of(&after, 5).status, HandoffStatus::Pending);
    assert_eq!(of(&after, 5).fencing_token, task(&after).fence);
    assert_eq!(of(&after, 5).sent_id, None, "the receiver of now has a window of its own");
    assert_eq!(task(&after).status, TaskStatus::HandingOff);
    let (_, again, records) = apply(after, &release(5, 10, vec![found()], Vec::new()));
    assert!(matches!(again, Err(LedgerError::Conflict(_))));
    assert_eq!(records, 0);
}

#[test]
fn one_that_is_refused_again_stays_with_what_was_found() {
    let other = Failure::new(Stage::Budget, Code::BudgetExhausted, "/costTracking", "none");
    let state = letter(BatchState::default());
    let (after, reply, records) = apply(state, &release(5, 9, vec![found()], vec![other.clone()]));
    assert!(
        matches!(&reply, Ok(AnyReply::Release(DeadLetterReply { refused, .. }) | AnyReply::KeepDeadLetter(DeadLetterReply { refused, .. })) if *refused == [other.clone()])
    );
    assert_eq!(records, 1);
    assert_eq!(of(&after, 5).status, HandoffStatus::DeadLettered);
    let row = &after.dead_letters[&(tenant(), HandoffId(uuid(5)))];
    assert_eq!((row.status, &row.failures), (DeadLetterStatus::Open, &vec![found(), other]));
}

#[test]
fn the_ledgers_own_stages_hold_for_a_release_too() {
    let mut state = letter(BatchState::default());
    let task = state.tasks.get_mut(&(tenant(), TaskId(uuid(TASK)))).unwrap();
    task.handoffs = 32;
    let (after, reply, _) = apply(state, &release(5, 9, vec![found()], Vec::new()));
    let Ok(
        AnyReply::Release(DeadLetterReply { refused, .. })
        | AnyReply::KeepDeadLetter(DeadLetterReply { refused, .. }),
    ) = reply
    else {
        panic!("{reply:?}")
    };
    assert_eq!(refused[0].code, Code::LoopDetected);
    assert_eq!(of(&after, 5).status, HandoffStatus::DeadLettered);
}

#[test]
fn a_discarded_dead_letter_is_over() {
    let discard = command(
        9,
        Discard {
            handoff_id: HandoffId(uuid(5)),
            task_id: TaskId(uuid(TASK)),
            content: content_of(6),
        },
    );
    let after = well(letter(BatchState::default()), &discard);
    assert_eq!(
        after.dead_letters[&(tenant(), HandoffId(uuid(5)))].status,
        DeadLetterStatus::Discarded
    );
    assert!(matches!(apply(after.clone(), &discard).1, Err(LedgerError::Conflict(_))));
    let late = release(5, 10, vec![found()], Vec::new());
    assert!(matches!(apply(after, &late).1, Err(LedgerError::Conflict(_))));
}

#[test]
fn a_checkpoint_is_restored_by_its_tasks_holder_and_not_on_the_way() {
    let restore = |by: Option<&str>| {
        command(
            9,
            RestoreCheckpoint {
                task_id: TaskId(uuid(TASK)),
                at: CheckpointRef { execution_id: ExecutionId(uuid(3)), seq: 4 },
                commitment: [4; 32],
                by: by.map(agent),
            },
        )
    };
    let state = hop(BatchState::default(), 0, 0, "a", "b", 1);
    assert!(matches!(apply(state.clone(), &restore(Some("a"))).1, Err(LedgerError::Forbidden(_))));
    let (after, reply, records) = apply(state.clone(), &restore(Some("b")));
    assert!(reply.is_ok());
    assert_eq!((task(&after).checkpoint.unwrap().seq, records), (4, 1));
    assert_eq!(apply(after, &restore(None)).2, 0, "it is so already");
    let leaving = well(state, &completing(between(1, 5, "b", "c", |_| {}), 2));
    assert!(matches!(apply(leaving, &restore(None)).1, Err(LedgerError::Conflict(_))));
}

/// A handoff and a task in every state, every command: nothing panics, an end is left by decision
/// only, who is refused leaves no trace, and whatever changes leaves a record.
#[test]
fn every_state_meets_every_command() {
    let words = || {
        [
            VerdictKind::Accept,
            VerdictKind::Reject("NO".to_owned()),
            VerdictKind::Complete,
            VerdictKind::Fail("NO".to_owned()),
            VerdictKind::Heartbeat,
        ]
    };
    let outcomes = || {
        [
            Outcome::Accepted,
            Outcome::Rejected("NO".to_owned()),
            Outcome::Received { verdict_by: Micros(50) },
            Outcome::Retry { at: Micros(50), why: "W".to_owned(), busy: false, verdict_by: None },
            Outcome::GivenUp { why: "W".to_owned() },
        ]
    };
    let recoveries = [Recovery::Source, Recovery::Human, Recovery::Agent(agent("c"))];
    let mut met = 0;
    for task_status in TaskStatus::ALL {
        for status in HandoffStatus::ALL {
            for recovery in &recoveries {
                let before = standing(task_status, status, recovery);
                let token = of(&before, 0).fencing_token;
                let mut commands: Vec<Order> =
                    words().into_iter().map(|word| verdict(0, TASK, 60, token, word)).collect();
                commands
                    .extend(outcomes().into_iter().map(|outcome| settle(0, TASK, 60, 1, outcome)));
                commands.extend([
                    expire(0, TASK, 60),
                    cancel(60, None, 0),
                    cancel(60, None, 9),
                    complete(60),
                    submit(1, TASK, 60),
                    release(0, 60, vec![found()], Vec::new()),
                    release(0, 60, Vec::new(), vec![found()]),
                    resolve(&before, 60, None),
                    resolve(&before, 60, Some(Resolution::Retry)),
                    resolve(&before, 60, Some(Resolution::RollBack)),
                    resolve(&before, 60, Some(Resolution::Reassign(agent("c")))),
                    resolve(&before, 60, Some(Resolution::Cancel)),
                    resolve(&before, 60, Some(Resolution::Complete)),
                ]);
                for command in commands {
                    met += 1;
                    let (after, reply, records) = apply(before.clone(), &command);
                    let what = format!("{task_status:?} {status:?} {recovery:?} {command:?}");
                    if reply.is_err() {
                        assert_eq!(records, 0, "{what}");
                        assert_eq!(after.tasks, before.tasks, "{what}");
                        assert_eq!(after.handoffs, before.handoffs, "{what}");
                    }
                    let now = of(&after, 0).status;
                    let decided =
                        matches!(command.command, AnyCommand::Release(_) | AnyCommand::Resolve(_));
                    if status.is_final() && !decided {
                        assert_eq!(now, status, "{what}");
                    }
                    if task_status.is_final() {
                        assert_eq!(task(&after).status, task_status, "{what}");
                    }
                    if now != status || task(&after).status != task_status {
                        assert!(records > 0, "{what}");
                    }
                    assert!(task(&after).fence >= task(&before).fence, "{what}");
                    let waiting = i64::try_from(after.outbox.len()).unwrap();
                    assert_eq!(task(&after).undelivered, waiting, "{what}");
                    let open = after.escalations.values().filter(|row| row.is_open()).count();
                    let escalated = task(&after).status == TaskStatus::Escalated;
                    assert_eq!(open > 0, escalated, "{what}");
                }
            }
        }
    }
    assert!(met > 3_000, "{met}");
}

fn standing(task_status: TaskStatus, status: HandoffStatus, recovery: &Recovery) -> BatchState {
    let state = with_agents(BatchState::default(), &["a", "b", "c"]);
    let mut state = well(state, &ruled(0, 0, on(recovery)));
    let key = (tenant(), HandoffId(uuid(0)));
    let pending = status == HandoffStatus::Pending;
    if !pending {
        state.outbox.clear();
    }
    let handoff = state.handoffs.get_mut(&key).unwrap();
    handoff.status = status;
    handoff.deadline_at = (!status.is_final()).then_some(Micros(50));
    handoff.ended_at = status.is_final().then_some(Micros(1));
    let kept = handoff.clone();
    let task = state.tasks.get_mut(&(tenant(), TaskId(uuid(TASK)))).unwrap();
    task.status = task_status;
    task.undelivered = i64::from(pending);
    if status == HandoffStatus::Accepted {
        task.holder = agent("b");
    }
    if status == HandoffStatus::DeadLettered {
        let row = letter(BatchState::default()).dead_letters.into_values().next().unwrap();
        state.dead_letters.insert(key, DeadLetterRow { handoff_id: kept.id, ..row });
    }
    let mut row = escalations(&asked())[0].clone();
    row.timeout_at = Micros(60);
    if task_status != TaskStatus::Escalated {
        row.status = EscalationStatus::Resolved;
    }
    state.escalations.insert((tenant(), row.id), row);
    state
}
