//! Dead letters, released or discarded, and checkpoints that are restored.

use super::*;

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
