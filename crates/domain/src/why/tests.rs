use uuid::Uuid;

use super::*;
use crate::course::Course;
use crate::handoff::{Cost, HandoffCommit, HandoffDraft};
use crate::ids::{ContentId, ExecutionId, TaskId};
use crate::latency::LatencyClock;
use crate::lease::HolderPulse;
use crate::question::{Question, RequestMark};
use crate::stream::Stream;
use crate::task::TaskStatus;

const MINUTE: i64 = 60_000_000;
/// The time of the look: an hour after the handoff was committed.
const NOW: Micros = Micros(60 * MINUTE);

fn task(status: TaskStatus) -> Task {
    Task {
        tenant: "t".parse().unwrap(),
        id: TaskId(Uuid::from_u128(1)),
        status,
        holder: "sender".parse().unwrap(),
        checkpoint: None,
        fence: 1,
        handoffs: 1,
        undelivered: 1,
        failures: 0,
        course: Course::default(),
        spent: Usd(0),
        remaining: Usd(1),
        topped_up: Usd(0),
        funds: None,
        opened_by: None,
        created_at: Micros(0),
        updated_at: Micros(0),
    }
}

fn handoff(mode: DeliveryMode, status: HandoffStatus) -> Handoff {
    let draft = HandoffDraft {
        tenant: "t".parse().unwrap(),
        id: HandoffId(Uuid::from_u128(2)),
        task_id: TaskId(Uuid::from_u128(1)),
        parent_id: None,
        source: "sender".parse().unwrap(),
        source_version: "1.0.0".to_owned(),
        source_execution: ExecutionId(Uuid::from_u128(3)),
        target: "receiver".parse().unwrap(),
        target_type: "receiver".to_owned(),
        target_version: "1.0.0".to_owned(),
        mode,
        status,
        cost: Cost { spent: Usd(0), remaining: Usd(1), prompt_tokens: 0, completion_tokens: 0 },
        idempotent: true,
        ruling: None,
        context: None,
        conversation_id: None,
        user_ref: None,
        stream: None,
        digest_salt: Vec::new(),
        digest: Vec::new(),
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: Micros(0),
        clock: LatencyClock::starting(Micros(0)),
    };
    draft.committed(HandoffCommit {
        content: (ContentId(Uuid::from_u128(5)), [0; 32]),
        checkpoint: None,
        fencing_token: 1,
        topped_up: Usd(0),
    })
}

fn running() -> Receiver {
    Receiver { state: AgentState::Runnable, disabled: false, failures: 0, key_used_at: None }
}

fn queued() -> QueuedDelivery {
    QueuedDelivery { behind: None, visible_at: Micros(0), attempts: 0, busy: 0, claimed: false }
}

/// The only wait of a task with this open handoff.
fn wait_of(handoff: &Handoff, queued: Option<QueuedDelivery>, receiver: Option<Receiver>) -> Wait {
    let task = task(TaskStatus::HandingOff);
    let open = vec![OpenHandoff { handoff, queued, receiver }];
    let situation = TaskSituation {
        now: NOW,
        task: &task,
        open,
        newest: Some(handoff),
        escalations: &[],
        dead_letters: Vec::new(),
    };
    let [wait] = waits(&situation).try_into().unwrap();
    wait
}

/// The only wait of a task without an open handoff.
fn wait_without(task: &Task, newest: Option<&Handoff>) -> Wait {
    let situation = TaskSituation {
        now: NOW,
        task,
        open: Vec::new(),
        newest,
        escalations: &[],
        dead_letters: Vec::new(),
    };
    let [wait] = waits(&situation).try_into().unwrap();
    wait
}

#[test]
fn a_pending_handoff_waits_for_what_its_delivery_and_its_receiver_say() {
    use DeliveryMode::{Pull, Webhook};
    let later = Micros(62 * MINUTE);
    let paused = || Receiver { state: AgentState::Paused, ..running() };
    let disabled = || Receiver { disabled: true, failures: 20, ..running() };
    let before = HandoffId(Uuid::from_u128(9));
    let table = [
        (Pull, queued(), None, WaitCause::ReceiverDeleted, "No agent has the id receiver any more"),
        (
            Pull,
            QueuedDelivery { behind: Some(before), ..queued() },
            Some(paused()),
            WaitCause::Behind,
            "delivered first",
        ),
        (Pull, queued(), Some(paused()), WaitCause::ReceiverPaused, "receiver is paused"),
        (Webhook, queued(), Some(disabled()), WaitCause::EndpointDisabled, "is disabled"),
        // A receiver that pulls does not use its endpoint.
        (
            Pull,
            queued(),
            Some(disabled()),
            WaitCause::NotFetched,
            "has not fetched the handoff for 1 h",
        ),
        (
            Pull,
            queued(),
            Some(Receiver { key_used_at: Some(Micros(46 * MINUTE)), ..running() }),
            WaitCause::NotFetched,
            "Its key was last used 14 min ago.",
        ),
        (
            Pull,
            QueuedDelivery { claimed: true, visible_at: later, attempts: 1, ..queued() },
            Some(running()),
            WaitCause::VerdictDue,
            "receiver fetched the handoff",
        ),
        // A claim that is over is as if there were none.
        (
            Pull,
            QueuedDelivery { claimed: true, visible_at: Micros(1), attempts: 1, ..queued() },
            Some(running()),
            WaitCause::NotFetched,
            "None of its keys was ever used.",
        ),
        (
            Webhook,
            QueuedDelivery { claimed: true, visible_at: later, attempts: 3, ..queued() },
            Some(running()),
            WaitCause::DeliveryDue,
            "Attempt 3 at receiver is under way.",
        ),
        (
            Webhook,
            QueuedDelivery { visible_at: later, busy: 1, ..queued() },
            Some(running()),
            WaitCause::Retrying,
            "busy; the next attempt is due in 2 min",
        ),
        (Webhook, queued(), Some(running()), WaitCause::DeliveryDue, "is due"),
    ];
    for (mode, queued, receiver, cause, words) in table {
        let handoff = handoff(mode, HandoffStatus::Pending);
        let wait = wait_of(&handoff, Some(queued), receiver);
        assert_eq!(wait.cause, cause, "{}", wait.sentence);
        assert!(wait.sentence.contains(words), "{}", wait.sentence);
        assert_eq!(wait.handoff, Some(handoff.id));
        let person = wait.awaited == Awaited::Person;
        assert!(!person || !wait.remedies.is_empty(), "a person needs a remedy: {}", wait.sentence);
    }
}

#[test]
fn a_failed_attempt_is_named_with_its_reason_and_the_next_one() {
    let mut handoff = handoff(DeliveryMode::Webhook, HandoffStatus::Pending);
    handoff.reason = Some("RECEIVER_TIMEOUT".to_owned());
    let due = Micros(61 * MINUTE);
    let delivery = QueuedDelivery { visible_at: due, attempts: 2, ..queued() };
    let wait = wait_of(&handoff, Some(delivery), Some(running()));
    assert_eq!(wait.cause, WaitCause::Retrying);
    assert_eq!(
        wait.sentence,
        "2 attempts of receiver failed (RECEIVER_TIMEOUT); the next attempt is due in 1 min."
    );
    assert_eq!((wait.attempts, wait.last_error.as_deref()), (2, Some("RECEIVER_TIMEOUT")));
    assert_eq!(wait.next.map(|next| next.at), Some(due));
}

#[test]
fn a_handoff_that_its_receiver_has_waits_for_the_one_whose_turn_it_is() {
    let mut verdict = handoff(DeliveryMode::Webhook, HandoffStatus::Pending);
    verdict.deadline_at = Some(Micros(61 * MINUTE));
    let mut works = handoff(DeliveryMode::Pull, HandoffStatus::Accepted);
    works.accepted_at = Some(Micros(30 * MINUTE));
    works.pulse =
        Some(HolderPulse { interval_ms: 1_000, heard_at: Micros(59 * MINUTE), until: Micros(0) });
    let mut asks = handoff(DeliveryMode::Pull, HandoffStatus::InputRequired);
    asks.questions.push(Question {
        content: ContentId(Uuid::from_u128(4)),
        asked_at: Micros(50 * MINUTE),
        answer_by: Micros(70 * MINUTE),
        request: RequestMark { digest: String::new(), key: None },
        answer: None,
    });
    let mut streams = handoff(DeliveryMode::Pull, HandoffStatus::Accepted);
    streams.stream = Some(Stream::opened(Micros(65 * MINUTE)));
    let table = [
        (verdict, WaitCause::VerdictDue, "receiver", 0, Some(61)),
        (works, WaitCause::ReceiverWorks, "receiver", 30, None),
        (asks, WaitCause::QuestionOpen, "sender", 50, Some(70)),
        (streams, WaitCause::StreamOpen, "sender", 0, Some(65)),
    ];
    for (handoff, cause, awaited, since, next) in table {
        let wait = wait_of(&handoff, None, Some(running()));
        assert_eq!(wait.cause, cause, "{}", wait.sentence);
        assert_eq!(wait.awaited, Awaited::Agent(awaited.parse().unwrap()));
        assert_eq!(wait.since, Micros(since * MINUTE));
        assert_eq!(wait.next.map(|next| next.at.0 / MINUTE), next);
    }
}

#[test]
fn a_task_without_an_open_handoff_waits_for_its_holder_or_for_money() {
    let idle = task(TaskStatus::PendingHandoff);
    let wait = wait_without(&idle, None);
    assert_eq!(wait.cause, WaitCause::Idle);
    assert_eq!(wait.sentence, "sender has the task and has not handed it on for 1 h.");
    let mut ended = handoff(DeliveryMode::Pull, HandoffStatus::Rejected);
    ended.reason = Some("NO_ACCESS".to_owned());
    let wait = wait_without(&idle, Some(&ended));
    assert!(wait.sentence.ends_with("The last handoff, to receiver, is REJECTED (NO_ACCESS)."));
    let ended = task(TaskStatus::Completed);
    let wait = wait_without(&ended, None);
    assert_eq!((wait.cause, wait.awaited), (WaitCause::Ended, Awaited::Nobody));
    assert!(wait.remedies.is_empty(), "an ended task needs nothing");
}

#[test]
fn what_asks_most_of_a_person_comes_first() {
    let task = task(TaskStatus::Escalated);
    let works = handoff(DeliveryMode::Pull, HandoffStatus::Accepted);
    let held = handoff(DeliveryMode::Pull, HandoffStatus::Pending);
    let paused = Receiver { state: AgentState::Paused, ..running() };
    let situation = TaskSituation {
        now: NOW,
        task: &task,
        open: vec![
            OpenHandoff { handoff: &works, queued: None, receiver: Some(running()) },
            OpenHandoff { handoff: &held, queued: Some(queued()), receiver: Some(paused) },
        ],
        newest: Some(&held),
        escalations: &[],
        dead_letters: vec![OpenDeadLetter {
            handoff_id: held.id,
            source: "sender".parse().unwrap(),
            reason: "SAFETY_VIOLATION".to_owned(),
            created_at: Micros(0),
        }],
    };
    let causes: Vec<_> = waits(&situation).iter().map(|wait| wait.cause).collect();
    let expected = [WaitCause::DeadLettered, WaitCause::ReceiverPaused, WaitCause::ReceiverWorks];
    assert_eq!(causes, expected);
}

#[test]
fn durations_are_told_in_their_largest_unit() {
    let told = [0, 59, 60, 3_599, 3_600, 172_799, 172_800, 864_000]
        .map(|seconds| in_words(Duration::from_secs(seconds)));
    assert_eq!(told, ["0 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 days", "10 days"]);
}
