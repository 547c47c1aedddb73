//! Events in their records' order, and how far subscribers have been told.

use std::sync::Arc;
use std::time::Duration;

use handoffd::store::events::{
    CursorChange, CursorKey, CursorSettle, CursorWrite, DELIVERY_LOG, EventDeliveryOutcome,
    EventDeliveryRow, EventScope, SubscriptionRow,
};
use handoffd::store::{Needs, Writes};
use handoffd_domain::event::{
    Event, EventFilter, EventFormat, EventType, Position, Subscriber, Subscription,
};
use handoffd_domain::ids::{HandoffId, Micros, SubscriptionId};
use handoffd_evidence::record::RecordKind;
use uuid::Uuid;

use crate::fixture::{Given, agent, given, submit, transact, write};
use crate::harness::{Bed, acme};

fn occurred(given: &Given) -> Event {
    Event::of_handoff(EventType::HandoffOccurred, &given.handoff(), given.at)
}

fn accepted(given: &Given) -> Event {
    Event::of_handoff(EventType::HandoffAccepted, &given.handoff(), given.at)
}

/// One record of each, with two events.
async fn tell(bed: &Bed, batch: &[Given]) {
    let mut writes = Writes::default();
    for (record, one) in batch.iter().enumerate() {
        writes.records.push(one.record(RecordKind::Accepted));
        writes.events.push((record, occurred(one)));
        writes.events.push((record, accepted(one)));
    }
    write(&bed.store, writes).await.unwrap();
}

fn key(n: u128) -> CursorKey {
    (acme(), Subscriber::Subscription(SubscriptionId(Uuid::from_u128(n))))
}

async fn change(bed: &Bed, key: &CursorKey, change: CursorChange) {
    let mut writes = Writes::default();
    writes.records.push(given(99, 99).record(RecordKind::AgentUpdated));
    writes.cursors.push(CursorWrite { key: key.clone(), change, record: 0 });
    write(&bed.store, writes).await.unwrap();
}

fn at(leaf_index: i64, ordinal: i32) -> Position {
    Position { leaf_index, ordinal }
}

async fn places(bed: &Bed, scope: EventScope<'_>, after: Position, limit: i64) -> Vec<Position> {
    let found = bed.store.list_events(&acme(), scope, after, limit).await.unwrap();
    found.iter().map(|row| row.position).collect()
}

pub async fn events_stand_in_the_order_of_their_records(bed: Arc<Bed>) {
    tell(&bed, &[given(1, 1), given(2, 1)]).await;
    tell(&bed, &[given(3, 2)]).await;
    let all = [at(0, 0), at(0, 1), at(1, 0), at(1, 1), at(2, 0), at(2, 1)];
    assert_eq!(places(&bed, EventScope::All, Position::START, 100).await, all);
    assert_eq!(places(&bed, EventScope::All, at(0, 1), 2).await, all[2..4]);
    assert_eq!(places(&bed, EventScope::All, Position::behind(1), 9).await, all[4..]);
    let found = bed.store.list_events(&acme(), EventScope::All, at(0, 0), 1).await.unwrap();
    assert_eq!(found[0].event, accepted(&given(1, 1)));
    assert_eq!((found[0].words.as_deref(), found[0].content_id), (None, None));
    let ids: Vec<_> = bed
        .store
        .list_events(&acme(), EventScope::All, Position::START, 100)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    crate::fixture::all_different(&ids);
}

pub async fn events_are_listed_by_task_and_by_audience(bed: Arc<Bed>) {
    tell(&bed, &[given(1, 1), given(2, 2), given(3, 1)]).await;
    let task = EventScope::Task(given(1, 1).task);
    let own = [at(0, 0), at(0, 1), at(2, 0), at(2, 1)];
    assert_eq!(places(&bed, task, Position::START, 100).await, own);
    assert_eq!(places(&bed, task, at(0, 0), 2).await, own[1..3]);
    let (alice, bob) = (agent("alice"), agent("bob"));
    let senders = [at(0, 1), at(1, 1), at(2, 1)];
    assert_eq!(places(&bed, EventScope::Audience(&alice), Position::START, 9).await, senders);
    assert_eq!(places(&bed, EventScope::Audience(&bob), Position::START, 9).await, []);
    let other = "beta".parse().unwrap();
    let found = bed.store.list_events(&other, EventScope::All, Position::START, 9).await.unwrap();
    assert!(found.is_empty(), "another tenant's");
}

pub async fn an_event_comes_with_what_its_handoff_keeps(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    tell(&bed, std::slice::from_ref(&one)).await;
    let found = bed.store.list_events(&acme(), EventScope::All, Position::START, 9).await.unwrap();
    assert_eq!(found[0].content_id, one.handoff().content_id);
}

pub async fn an_event_without_a_record_is_refused_and_writes_nothing(bed: Arc<Bed>) {
    let mut writes = Writes::default();
    writes.records.push(given(1, 1).record(RecordKind::Accepted));
    writes.events.push((1, occurred(&given(1, 1))));
    assert!(write(&bed.store, writes).await.is_err());
    assert_eq!(places(&bed, EventScope::All, Position::START, 9).await, []);
    assert_eq!(bed.store.find_head(&acme()).await.unwrap().unwrap().size, 0);
}

/// A reader that goes on from the last place it saw never misses an event, in whatever order writers commit.
pub async fn a_cursor_never_skips_a_late_commit(bed: Arc<Bed>) {
    const WRITERS: u128 = 4;
    const EACH: u128 = 15;
    let other = bed.second().await;
    let writers = (0..WRITERS).map(|writer| {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        tokio::spawn(async move {
            for n in 0..EACH {
                let one = given(1_000 * (writer + 1) + n, writer);
                let mut writes = Writes::default();
                writes.records.push(one.record(RecordKind::Accepted));
                writes.events.push((0, occurred(&one)));
                transact(&store, &Needs::default(), |_| writes.clone()).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut last, mut seen) = (Position::START, Vec::new());
    let wanted = usize::try_from(WRITERS * EACH).unwrap();
    let reading = async {
        while seen.len() < wanted {
            let rows = bed.store.list_events(&acme(), EventScope::All, last, 7).await.unwrap();
            for row in rows {
                assert_eq!(row.position.leaf_index, last.leaf_index + 1, "one was skipped");
                last = row.position;
                seen.push(row.event.handoff_id.unwrap());
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), reading).await.expect("all events are seen");
    for writer in writers {
        writer.await.unwrap();
    }
    crate::fixture::all_different(&seen);
}

pub async fn old_events_are_deleted_oldest_first(bed: Arc<Bed>) {
    for n in [10, 20, 30] {
        tell(&bed, &[given(n, 1)]).await;
    }
    assert_eq!(bed.store.delete_events(&acme(), Micros(20)).await.unwrap(), 2);
    assert_eq!(bed.store.delete_events(&acme(), Micros(20)).await.unwrap(), 0);
    let left = places(&bed, EventScope::All, Position::START, 9).await;
    assert_eq!(left, [at(1, 0), at(1, 1), at(2, 0), at(2, 1)]);
}

/// A subscription of `alice`.
pub fn subscription_row() -> SubscriptionRow {
    SubscriptionRow {
        tenant: acme(),
        id: SubscriptionId(Uuid::from_u128(1)),
        subscription: Subscription {
            url: "https://example.com/hook".to_owned(),
            description: "ünïcode".to_owned(),
            filter: EventFilter {
                types: vec![EventType::HandoffRolledBack],
                agent_id: Some(agent("alice")),
                task_id: None,
                handoff_id: Some(HandoffId(Uuid::from_u128(9))),
            },
            format: EventFormat::CloudEvents,
            enabled: true,
            disabled_reason: None,
            owner: Some(agent("alice")),
            region: None,
            transfer_basis: None,
        },
        secrets: "{}".to_owned(),
        created_at: Micros(5),
        updated_at: Micros(5),
    }
}

pub async fn subscriptions_are_made_changed_found_and_removed(bed: Arc<Bed>) {
    let mut row = subscription_row();
    let key = (acme(), row.id);
    for description in ["first", "second"] {
        row.subscription.description = description.to_owned();
        let mut writes = Writes::default();
        writes.subscriptions.insert(key.clone(), Some(row.clone()));
        write(&bed.store, writes).await.unwrap();
        assert_eq!(bed.store.find_subscription(&key).await.unwrap(), Some(row.clone()));
    }
    let mut needs = Needs::default();
    needs.subscriptions.insert(key.clone());
    let done = transact(&bed.store, &needs, |state| {
        assert_eq!(state.subscriptions.get(&key), Some(&row));
        let mut writes = Writes::default();
        writes.subscriptions.insert(key.clone(), None);
        writes
    });
    done.await.unwrap();
    assert_eq!(bed.store.list_subscriptions(&acme()).await.unwrap(), []);
}

fn settle(from: Position, to: Position, lease_until: i64) -> CursorSettle {
    CursorSettle {
        from,
        to,
        next_at: Micros(0),
        failures: 0,
        failing_since: None,
        lease_until: Micros(lease_until),
    }
}

pub async fn a_cursor_starts_behind_its_record_and_is_due_when_there_is_more(bed: Arc<Bed>) {
    tell(&bed, &[given(1, 1)]).await;
    assert!(!bed.store.has_cursors().await.unwrap());
    change(&bed, &key(1), CursorChange::Start(None)).await;
    assert!(bed.store.has_cursors().await.unwrap());
    let due = async |now| bed.store.list_due_cursors(Micros(now), 9).await.unwrap();
    assert_eq!(due(10).await, [], "what was before is not told");
    tell(&bed, &[given(2, 1)]).await;
    assert_eq!(due(10).await, [key(1)]);
    change(&bed, &key(1), CursorChange::Active(false)).await;
    assert!(!bed.store.has_cursors().await.unwrap());
    assert_eq!(due(10).await, []);
    change(&bed, &key(1), CursorChange::Active(true)).await;
    assert_eq!(due(10).await, [key(1)]);
    change(&bed, &key(1), CursorChange::Remove).await;
    assert_eq!(due(10).await, []);
    assert_eq!(bed.store.find_cursor(&key(1)).await.unwrap(), None);
    change(&bed, &key(1), CursorChange::Start(Some(Position::START))).await;
    assert_eq!(due(10).await, [key(1)], "what was before is told from a place on");
    change(&bed, &key(1), CursorChange::Start(Some(Position::behind(999)))).await;
    assert_eq!(due(10).await, [], "no place is ahead of the log");
    tell(&bed, &[given(3, 1)]).await;
    assert_eq!(due(10).await, [key(1)]);
}

pub async fn an_agents_cursor_is_due_for_what_is_addressed_to_it(bed: Arc<Bed>) {
    let (alice, bob) =
        ((acme(), Subscriber::Agent(agent("alice"))), (acme(), Subscriber::Agent(agent("bob"))));
    change(&bed, &alice, CursorChange::Start(None)).await;
    change(&bed, &bob, CursorChange::Start(None)).await;
    tell(&bed, &[given(1, 1)]).await;
    assert_eq!(bed.store.list_due_cursors(Micros(9), 9).await.unwrap(), [alice]);
}

pub async fn a_cursor_has_one_broker_until_its_lease_ends(bed: Arc<Bed>) {
    change(&bed, &key(1), CursorChange::Start(None)).await;
    tell(&bed, &[given(1, 1)]).await;
    let claim = async |broker, now, until| {
        bed.store.claim_cursor(&key(1), broker, Micros(now), Micros(until)).await.unwrap()
    };
    let held = claim("one", 10, 20).await.unwrap();
    assert_eq!((held.position, held.broker.as_deref()), (Position::behind(0), Some("one")));
    assert_eq!(claim("two", 15, 25).await, None);
    assert_eq!(bed.store.list_due_cursors(Micros(15), 9).await.unwrap(), []);
    assert_eq!(bed.store.renew_cursors("one", Micros(15), Micros(30)).await.unwrap(), 1);
    assert_eq!(claim("two", 25, 35).await, None);
    assert!(claim("two", 30, 40).await.is_some(), "the lease ran out");
    assert_eq!(bed.store.renew_cursors("one", Micros(31), Micros(50)).await.unwrap(), 0);
    let to = at(1, 1);
    let late = settle(held.position, to, 0);
    assert!(!bed.store.settle_cursor(&key(1), "one", &late, &[]).await.unwrap());
    assert!(bed.store.settle_cursor(&key(1), "two", &late, &[]).await.unwrap());
    assert_eq!(bed.store.find_cursor(&key(1)).await.unwrap().unwrap().position, to);
    assert_eq!(bed.store.list_due_cursors(Micros(50), 9).await.unwrap(), []);
}

pub async fn a_rewound_cursor_is_not_moved_by_who_served_it(bed: Arc<Bed>) {
    tell(&bed, &[given(1, 1)]).await;
    change(&bed, &key(1), CursorChange::Start(None)).await;
    tell(&bed, &[given(2, 1)]).await;
    let claim = async || {
        let held = bed.store.claim_cursor(&key(1), "one", Micros(1), Micros(9)).await.unwrap();
        held.expect("no broker holds it").position
    };
    let mut held = claim().await;
    for to in [held, Position::START] {
        change(&bed, &key(1), CursorChange::Rewind(to)).await;
        let done = settle(held, at(2, 1), 0);
        assert!(!bed.store.settle_cursor(&key(1), "one", &done, &[]).await.unwrap());
        held = claim().await;
        assert_eq!(held, to, "at once, also where it is rewound to where it stood");
    }
}

pub async fn the_last_attempts_are_remembered(bed: Arc<Bed>) {
    change(&bed, &key(1), CursorChange::Start(None)).await;
    tell(&bed, &[given(1, 1)]).await;
    bed.store.claim_cursor(&key(1), "one", Micros(1), Micros(9)).await.unwrap().unwrap();
    let attempt = |number| EventDeliveryRow {
        number,
        position: at(1, 0),
        event_id: "e".to_owned(),
        kind: "handoff.accepted".to_owned(),
        at: Micros(number),
        attempt: 1,
        outcome: EventDeliveryOutcome::Delivered,
        status: (number % 2 == 0).then_some(200),
        detail: None,
        duration_us: 12,
    };
    let mut from = Position::behind(0);
    for (first, count) in [(1, 600), (601, 600)] {
        let log: Vec<_> = (first..first + count).map(attempt).collect();
        let to = at(1, i32::try_from(first).unwrap());
        let done = settle(from, to, 9);
        assert!(bed.store.settle_cursor(&key(1), "one", &done, &log).await.unwrap());
        from = to;
    }
    let list = async |before, limit| {
        bed.store.list_event_deliveries(&key(1), before, limit).await.unwrap()
    };
    assert_eq!(list(None, 2).await, [attempt(1_200), attempt(1_199)]);
    assert_eq!(list(Some(1_199), 1).await, [attempt(1_198)]);
    let all = list(None, 5_000).await;
    assert_eq!(i64::try_from(all.len()).unwrap(), DELIVERY_LOG);
    assert_eq!(bed.store.find_cursor(&key(1)).await.unwrap().unwrap().attempts, 1_200);
}
