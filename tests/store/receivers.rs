//! Receivers as brokers notice them: counts add up over brokers, and rows end with brokers, agents and time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handoffd::store::receivers::{BreakerRow, ReceiverNotes, SeenReceiver};
use handoffd::store::{ClaimRelease, ReceiverKey, ReturnRow, Writes};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::receiver::{
    AttemptCounts, AttemptEnd, BreakerState, WINDOW_US, Windows, total,
};
use handoffd_domain::task::TaskStatus;

use crate::fixture::{agent, agent_row, given, see, submit, task_id, write};
use crate::harness::{Bed, acme};

fn key(name: &str) -> ReceiverKey {
    (acme(), agent(name))
}

/// Answers of so many milliseconds, as one window.
fn window(millis: &[u64]) -> AttemptCounts {
    let mut counts = AttemptCounts::default();
    for millis in millis {
        counts.record(AttemptEnd::Answered(Duration::from_millis(*millis)));
    }
    counts
}

fn windows(name: &str, begins: i64, counts: &AttemptCounts) -> ReceiverNotes {
    let windows = Windows::from([(Micros(begins), *counts)]);
    ReceiverNotes { windows: BTreeMap::from([(key(name), windows)]), ..ReceiverNotes::default() }
}

fn seen(name: &str, row: SeenReceiver) -> ReceiverNotes {
    ReceiverNotes { seen: BTreeMap::from([(key(name), row)]), ..ReceiverNotes::default() }
}

fn breaker(name: &str, broker: &str, state: Option<BreakerState>) -> BreakerRow {
    let (broker, reason) = (broker.to_owned(), Some("DELIVERY_STATUS".to_owned()));
    BreakerRow { receiver: key(name), broker, state, since: Micros(7), reason }
}

fn breakers(rows: Vec<BreakerRow>) -> ReceiverNotes {
    ReceiverNotes { breakers: rows, ..ReceiverNotes::default() }
}

async fn windows_of(bed: &Bed, name: &str, since: i64) -> Windows {
    let mut all = bed.store.list_windows(&acme(), &[agent(name)], Micros(since)).await.unwrap();
    all.remove(&agent(name)).unwrap_or_default()
}

async fn seen_of(bed: &Bed, name: &str) -> Option<SeenReceiver> {
    let listed = bed.store.list_seen(&acme(), &[agent(name)]).await.unwrap();
    listed.into_iter().map(|(_, row)| row).next()
}

pub async fn windows_of_several_brokers_add_up(bed: Arc<Bed>) {
    let second = bed.second().await;
    let (mut one, mut other) = (window(&[1, 5, 5_000]), window(&[5, 700_000]));
    one.record(AttemptEnd::Failed);
    other.record(AttemptEnd::TimedOut(Duration::from_secs(30)));
    bed.store.note_receivers(&windows("bob", WINDOW_US, &one)).await.unwrap();
    // Two brokers at once, and the same one again.
    let (first, next) = (windows("bob", WINDOW_US, &other), windows("bob", WINDOW_US, &one));
    let (a, b) = tokio::join!(second.note_receivers(&first), bed.store.note_receivers(&next));
    a.and(b).unwrap();
    bed.store.note_receivers(&windows("bob", 2 * WINDOW_US, &one)).await.unwrap();
    bed.store.note_receivers(&windows("carol", WINDOW_US, &other)).await.unwrap();
    let mut expected = one;
    expected.add(&one);
    expected.add(&other);
    let listed = windows_of(&bed, "bob", 0).await;
    assert_eq!(
        listed,
        Windows::from([(Micros(WINDOW_US), expected), (Micros(2 * WINDOW_US), one)])
    );
    assert_eq!(expected.attempts, 11);
    assert_eq!(windows_of(&bed, "bob", WINDOW_US + 1).await.len(), 1, "since then");
    let both = [agent("bob"), agent("carol"), agent("dave")];
    let listed = bed.store.list_windows(&acme(), &both, Micros(0)).await.unwrap();
    assert_eq!(listed.keys().cloned().collect::<Vec<AgentId>>(), both[..2]);
    let elsewhere = "beta".parse().unwrap();
    assert!(bed.store.list_windows(&elsewhere, &both, Micros(0)).await.unwrap().is_empty());
}

pub async fn the_last_of_each_kind_is_kept_whoever_writes_last(bed: Arc<Bed>) {
    let at = |at: i64| Some(Micros(at));
    let failed = |when: i64, code: &str| SeenReceiver {
        last_failure_at: at(when),
        last_failure: Some(code.to_owned()),
        ..SeenReceiver::default()
    };
    let polled = SeenReceiver { last_poll_at: at(5), last_success_at: at(6), ..failed(9, "B") };
    for row in [
        failed(3, "A"),
        polled,
        failed(4, "C"),
        SeenReceiver { last_poll_at: at(2), ..SeenReceiver::default() },
    ] {
        bed.store.note_receivers(&seen("bob", row)).await.unwrap();
    }
    let expected = SeenReceiver { last_poll_at: at(5), last_success_at: at(6), ..failed(9, "B") };
    assert_eq!(seen_of(&bed, "bob").await, Some(expected));
    assert_eq!(seen_of(&bed, "carol").await, None);
    // An empty note sends no statement, and is well.
    bed.store.note_receivers(&ReceiverNotes::default()).await.unwrap();
}

pub async fn a_breaker_is_listed_while_its_broker_lives(bed: Arc<Bed>) {
    use BreakerState::{Closed, HalfOpen, Open};
    let states = async |broker: &str| {
        let listed = bed.store.list_breakers(&acme(), broker).await.unwrap();
        listed.into_iter().map(|row| (row.broker, row.state)).collect::<Vec<_>>()
    };
    let first = |state| ("b1".to_owned(), Some(state));
    bed.store.note_receivers(&breakers(vec![breaker("bob", "b1", Some(Open))])).await.unwrap();
    assert_eq!(states("b1").await, [first(Open)], "the one that asks lives");
    assert_eq!(states("b2").await, [], "b1 has no heartbeat");
    bed.store.beat("b1", Micros(1)).await.unwrap();
    bed.store.beat("b2", Micros(1)).await.unwrap();
    let two = vec![breaker("bob", "b1", Some(HalfOpen)), breaker("bob", "b2", Some(Open))];
    bed.store.note_receivers(&breakers(two)).await.unwrap();
    let second = ("b2".to_owned(), Some(Open));
    assert_eq!(states("b3").await, [first(HalfOpen), second.clone()]);
    // A reason stays until there is another one; an unknown state is not listed.
    let quiet = BreakerRow { reason: None, ..breaker("bob", "b1", Some(Closed)) };
    bed.store.note_receivers(&breakers(vec![quiet])).await.unwrap();
    let listed = bed.store.list_breakers(&acme(), "b1").await.unwrap();
    assert_eq!(listed[0], breaker("bob", "b1", Some(Closed)));
    bed.store.note_receivers(&breakers(vec![breaker("bob", "b1", None)])).await.unwrap();
    assert_eq!(states("b1").await, [second]);
    // A broker that fell silent takes its breakers along, and so does one that stops.
    bed.store.note_receivers(&breakers(vec![breaker("bob", "b1", Some(Open))])).await.unwrap();
    let beats = bed.store.list_heartbeats().await.unwrap();
    let value = beats.iter().find(|(broker, _)| broker == "b2").unwrap().1;
    bed.store.release(ClaimRelease::Silent("b2", Some(value))).await.unwrap();
    assert_eq!(states("b2").await, [first(Open)], "also to itself: its row is gone");
    bed.store.release(ClaimRelease::Own("b1")).await.unwrap();
    assert_eq!(states("b1").await, []);
    bed.store.note_receivers(&breakers(vec![breaker("bob", "b4", Some(Open))])).await.unwrap();
    bed.store.release(ClaimRelease::Everyone).await.unwrap();
    assert_eq!(states("b4").await, []);
}

pub async fn notes_go_with_their_agent_and_with_their_time(bed: Arc<Bed>) {
    let mut writes = Writes::default();
    for name in ["bob", "carol"] {
        writes.agents.insert(key(name), Some(agent_row(name, 1)));
    }
    write(&bed.store, writes).await.unwrap();
    let polled = SeenReceiver { last_poll_at: Some(Micros(1)), ..SeenReceiver::default() };
    let note = async |name: &str| {
        let open = breaker(name, "b1", Some(BreakerState::Open));
        for notes in [
            seen(name, polled.clone()),
            windows(name, WINDOW_US, &window(&[5])),
            windows(name, 5 * WINDOW_US, &window(&[5])),
            breakers(vec![open]),
        ] {
            bed.store.note_receivers(&notes).await.unwrap();
        }
    };
    note("bob").await;
    note("carol").await;
    assert_eq!(bed.store.forget_receivers(Micros(5 * WINDOW_US)).await.unwrap(), 2);
    assert_eq!(total(windows_of(&bed, "bob", 0).await.values()).attempts, 1);
    let mut writes = Writes::default();
    writes.agents.insert(key("bob"), None);
    write(&bed.store, writes).await.unwrap();
    assert_eq!(seen_of(&bed, "bob").await, None);
    assert!(windows_of(&bed, "bob", 0).await.is_empty());
    let breakers_of = async || {
        let listed = bed.store.list_breakers(&acme(), "b1").await.unwrap();
        listed.into_iter().map(|row| row.receiver).collect::<Vec<_>>()
    };
    assert_eq!(breakers_of().await, [key("carol")]);
    // A broker that had not heard of it writes late: the next look ends that.
    note("bob").await;
    assert_eq!(bed.store.forget_receivers(Micros(0)).await.unwrap(), 2);
    assert_eq!((seen_of(&bed, "bob").await, breakers_of().await), (None, vec![key("carol")]));
    assert_eq!(seen_of(&bed, "carol").await, Some(polled));
}

pub async fn tasks_without_movement_and_open_questions_are_counted(bed: Arc<Bed>) {
    let batch: Vec<_> = (1..=4).map(|n| given(n, n)).collect();
    submit(&bed.store, &batch).await;
    let state = see(&bed.store, &batch).await;
    let mut writes = Writes::default();
    for (which, status) in
        [(0, HandoffStatus::Completed), (1, HandoffStatus::Completed), (2, HandoffStatus::Accepted)]
    {
        let mut handoff = state.handoffs[&batch[which].key()].clone();
        handoff.status = status;
        writes.handoffs.insert(batch[which].key(), (handoff, false));
        let mut task = state.tasks[&batch[which].task_key()].clone();
        (task.status, task.holder) = (TaskStatus::Running, agent("bob"));
        task.updated_at = Micros(20 - i64::try_from(which).unwrap());
        writes.tasks.insert(batch[which].task_key(), (task, false));
    }
    let question = ReturnRow {
        tenant: acme(),
        handoff_id: batch[2].id(),
        task_id: batch[2].task,
        agent: agent("alice"),
        returned_at: Micros(30),
        visible_at: Micros(0),
        question: Some(1),
    };
    let returned = ReturnRow { handoff_id: batch[3].id(), question: None, ..question.clone() };
    for row in [question, returned] {
        writes.returns.insert((acme(), row.handoff_id), Some(row));
    }
    write(&bed.store, writes).await.unwrap();
    let counts = bed.store.count_waits(&acme(), Micros(100)).await.unwrap();
    let [still] = counts.still.as_slice() else { panic!("{counts:?}") };
    assert_eq!((&still.holder, still.count, still.used_up), (&agent("bob"), 2, false));
    assert_eq!((still.first, still.since), (task_id(2), Micros(19)));
    let [question] = counts.questions.as_slice() else { panic!("{counts:?}") };
    assert_eq!((&question.sender, &question.asked_by), (&agent("alice"), &agent("bob")));
    assert_eq!((question.count, question.first, question.since), (1, batch[2].id(), Micros(30)));
    let queues = bed.store.count_queues(&acme(), Micros(100)).await.unwrap();
    assert_eq!(queues, counts.queues);
}
