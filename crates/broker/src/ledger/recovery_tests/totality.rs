//! Each state of a task and a handoff meets each command.

use super::*;

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
