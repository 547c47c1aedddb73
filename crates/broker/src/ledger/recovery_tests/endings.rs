//! Ends of a task: it is canceled or completed.

use super::*;

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
