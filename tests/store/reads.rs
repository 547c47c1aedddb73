//! Lists, filters, pages, receipts.

use std::sync::Arc;

use handoffd::store::{
    ContentStorage, Cursor, DeadLetterFilter, HandoffFilter, MOST_OPEN, RecordWindow, TaskFilter,
    Writes,
};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::Micros;
use handoffd_domain::question::{Question, RequestMark};
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::record::RecordKind;

use crate::fixture::{
    Given, agent, all_different, content_id, given, handoff_id, plan, see, submit, task_id, write,
};
use crate::harness::{Bed, acme};

/// Many at the same microsecond, so that a page ends between equals.
fn crowd() -> Vec<Given> {
    (1..=23).map(|n| given(n, n % 7).at(i64::try_from(n / 5).unwrap())).collect()
}

pub async fn pages_have_no_gaps_and_no_repeats(bed: Arc<Bed>) {
    submit(&bed.store, &crowd()).await;
    let filter = HandoffFilter::default();
    let whole = bed.store.list_handoffs(&acme(), &filter, None, 100).await.unwrap();
    let order: Vec<_> = whole.iter().map(|h| (h.created_at, h.id.to_string())).collect();
    assert_eq!(order.len(), 23);
    assert!(order.is_sorted_by(|a, b| a > b), "newest first: {order:?}");
    for size in [1, 4, 5, 23, 24] {
        let (mut paged, mut after): (Vec<Cursor>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page =
                bed.store.list_handoffs(&acme(), &filter, after.as_ref(), size).await.unwrap();
            assert!(page.len() <= usize::try_from(size).unwrap());
            paged.extend(page.iter().map(|h| (h.created_at, h.id.to_string())));
            if page.is_empty() {
                break;
            }
            after = paged.last().cloned();
        }
        assert_eq!(paged, order, "in pages of {size}");
    }
}

pub async fn pages_of_tasks_and_dead_letters_end(bed: Arc<Bed>) {
    submit(&bed.store, &crowd()).await;
    let letters: Vec<_> = crowd().iter().map(Given::dead_letter).collect();
    let writes = Writes { dead_letters: letters, ..Writes::default() };
    write(&bed.store, writes).await.unwrap();

    let (mut paged, mut after): (Vec<Cursor>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let filter = TaskFilter::default();
        let page = bed.store.list_tasks(&acme(), &filter, after.as_ref(), 3).await.unwrap();
        paged.extend(page.iter().map(|task| (task.created_at, task.id.to_string())));
        if page.is_empty() {
            break;
        }
        after = paged.last().cloned();
    }
    assert_eq!(paged.len(), 7);
    assert!(paged.is_sorted_by(|a, b| a > b));

    for (status, expected) in
        [(None, 23), (Some(DeadLetterStatus::Open), 23), (Some(DeadLetterStatus::Released), 0)]
    {
        let filter = DeadLetterFilter { status, ..Default::default() };
        let (mut paged, mut after): (Vec<Cursor>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page =
                bed.store.list_dead_letters(&acme(), &filter, after.as_ref(), 5).await.unwrap();
            paged.extend(page.iter().map(|row| (row.created_at, row.handoff_id.to_string())));
            if page.is_empty() {
                break;
            }
            after = paged.last().cloned();
        }
        all_different(&paged);
        assert_eq!(paged.len(), expected, "{status:?}");
        assert!(paged.is_sorted_by(|a, b| a > b));
    }
}

pub async fn handoffs_are_filtered(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 1).to("carol"), given(3, 2).to("carol")];
    submit(&bed.store, &batch).await;
    let mut accepted = see(&bed.store, &batch).await.handoffs[&batch[2].key()].clone();
    accepted.status = HandoffStatus::Accepted;
    accepted.accepted_at = Some(Micros(9));
    accepted.reason = Some("späte".to_owned());
    let mut writes = Writes::default();
    writes.handoffs.insert(batch[2].key(), (accepted.clone(), false));
    write(&bed.store, writes).await.unwrap();
    assert_eq!(bed.store.find_handoff(&batch[2].key()).await.unwrap(), Some(accepted));

    // A question is open on the second.
    let mut asking = see(&bed.store, &batch).await.handoffs[&batch[1].key()].clone();
    asking.status = HandoffStatus::InputRequired;
    asking.sent_id = Some(content_id(9));
    let request = RequestMark { digest: "00".to_owned(), key: Some("k".to_owned()) };
    let (content, asked_at, answer_by) = (content_id(7), Micros(3), Micros(4));
    asking.questions.push(Question { content, asked_at, answer_by, request, answer: None });
    let mut writes = Writes::default();
    writes.handoffs.insert(batch[1].key(), (asking.clone(), false));
    write(&bed.store, writes).await.unwrap();
    assert_eq!(bed.store.find_handoff(&batch[1].key()).await.unwrap(), Some(asking));

    let none = HandoffFilter::default;
    for (filter, expected) in [
        (none(), vec![3, 2, 1]),
        (HandoffFilter { task_id: Some(task_id(1)), ..none() }, vec![2, 1]),
        (HandoffFilter { status: Some(HandoffStatus::Accepted), ..none() }, vec![3]),
        (HandoffFilter { status: Some(HandoffStatus::InputRequired), ..none() }, vec![2]),
        (HandoffFilter { conversation: Some("talk-0".to_owned()), ..none() }, vec![2]),
        (HandoffFilter { conversation: Some("talk-1".to_owned()), ..none() }, vec![3, 1]),
        (HandoffFilter { conversation: Some("TALK-1".to_owned()), ..none() }, vec![]),
        (HandoffFilter { user: Some("u_1".to_owned()), ..none() }, vec![3, 1]),
        (HandoffFilter { user: Some("u_2".to_owned()), ..none() }, vec![]),
        (
            HandoffFilter {
                conversation: Some("talk-1".to_owned()),
                party: Some(agent("bob")),
                ..none()
            },
            vec![1],
        ),
        (HandoffFilter { source: Some(agent("alice")), ..none() }, vec![3, 2, 1]),
        (HandoffFilter { source: Some(agent("bob")), ..none() }, vec![]),
        (HandoffFilter { target: Some(agent("carol")), ..none() }, vec![3, 2]),
        (HandoffFilter { party: Some(agent("bob")), ..none() }, vec![1]),
        (HandoffFilter { party: Some(agent("alice")), ..none() }, vec![3, 2, 1]),
        (
            HandoffFilter {
                task_id: Some(task_id(1)),
                status: Some(HandoffStatus::InputRequired),
                conversation: Some("talk-0".to_owned()),
                source: Some(agent("alice")),
                target: Some(agent("carol")),
                party: Some(agent("carol")),
                ..none()
            },
            vec![2],
        ),
    ] {
        let found = bed.store.list_handoffs(&acme(), &filter, None, 10).await.unwrap();
        let found: Vec<_> = found.iter().map(|handoff| handoff.id).collect();
        let expected: Vec<_> = expected.into_iter().map(handoff_id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let filter = HandoffFilter { party: Some(agent("alice")), ..none() };
    let after = (Micros(2), handoff_id(2).to_string());
    let rest = bed.store.list_handoffs(&acme(), &filter, Some(&after), 10).await.unwrap();
    assert_eq!(rest.len(), 1, "the cursor binds with a party too");
}

pub async fn tasks_are_filtered_by_who_took_part(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 1).to("carol"), given(3, 2).to("dave")];
    submit(&bed.store, &batch).await;
    let mut task = see(&bed.store, &batch).await.tasks[&batch[2].task_key()].clone();
    task.status = TaskStatus::Running;
    task.holder = agent("erin");
    let mut writes = Writes::default();
    writes.tasks.insert(batch[2].task_key(), (task, false));
    write(&bed.store, writes).await.unwrap();
    for (party, status, expected) in [
        (None, None, vec![2, 1]),
        (Some("alice"), None, vec![2, 1]),
        (Some("carol"), None, vec![1]),
        (Some("dave"), None, vec![2]),
        (Some("erin"), None, vec![2]),
        (Some("nobody"), None, vec![]),
        (None, Some(TaskStatus::Running), vec![2]),
        (Some("alice"), Some(TaskStatus::HandingOff), vec![1]),
    ] {
        let filter = TaskFilter { status, party: party.map(agent), ..TaskFilter::default() };
        let found = bed.store.list_tasks(&acme(), &filter, None, 10).await.unwrap();
        let found: Vec<_> = found.iter().map(|task| task.id).collect();
        let expected: Vec<_> = expected.into_iter().map(task_id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub async fn open_handoffs_are_counted_by_receiver(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 2), given(3, 3).to("carol"), given(4, 4)];
    submit(&bed.store, &batch).await;
    let seen = see(&bed.store, &batch).await;
    let mut writes = Writes::default();
    for (n, status) in [(1, HandoffStatus::Accepted), (3, HandoffStatus::Completed)] {
        let mut handoff = seen.handoffs[&batch[n].key()].clone();
        handoff.status = status;
        writes.handoffs.insert(batch[n].key(), (handoff, false));
    }
    write(&bed.store, writes).await.unwrap();
    let open = bed.store.count_open(&acme()).await.unwrap();
    assert_eq!((open.len(), open[&agent("bob")], open[&agent("carol")]), (2, 2, 1));
    let most = u128::try_from(MOST_OPEN).unwrap();
    let crowd: Vec<_> = (10..10 + most).map(|n| given(n, n)).collect();
    submit(&bed.store, &crowd).await;
    let open = bed.store.count_open(&acme()).await.unwrap();
    assert_eq!((open.len(), open[&agent("bob")], open[&agent("carol")]), (2, MOST_OPEN, 1));
}

pub async fn a_receipt_is_the_record_that_committed(bed: Arc<Bed>) {
    let one = given(1, 1);
    let refused = Writes { records: vec![one.record(RecordKind::Refused)], ..Writes::default() };
    write(&bed.store, refused).await.unwrap();
    assert_eq!(bed.store.find_receipt(&one.key()).await.unwrap(), None);
    let sealed = submit(&bed.store, std::slice::from_ref(&one)).await;
    let accepted = Writes { records: vec![one.record(RecordKind::Accepted)], ..Writes::default() };
    write(&bed.store, accepted).await.unwrap();
    assert_eq!(bed.store.find_receipt(&one.key()).await.unwrap().as_ref(), sealed.first());

    for (n, kind) in [(2, RecordKind::NoOp), (3, RecordKind::DeadLettered)] {
        let one = given(n, 1);
        let writes = Writes { records: vec![one.record(kind)], ..Writes::default() };
        let sealed = write(&bed.store, writes).await.unwrap();
        assert_eq!(bed.store.find_receipt(&one.key()).await.unwrap().as_ref(), sealed.first());
    }
    // A dead letter that was released: from then on the commit is what counts.
    let sealed = submit(&bed.store, &[given(3, 1)]).await;
    let receipt = bed.store.find_receipt(&given(3, 1).key()).await.unwrap();
    assert_eq!(receipt.as_ref(), sealed.first());
    let mut closed = Vec::new();
    // The last record with the message is that of the release, and that of a stream's close.
    let (key, task) = (given(3, 1).key(), given(3, 1).task);
    assert_eq!(bed.store.find_last_commit(&key, task).await.unwrap().as_ref(), sealed.first());
    assert_eq!(bed.store.find_last_commit(&key, given(2, 2).task).await.unwrap(), None);
    for kind in [RecordKind::StreamClosed, RecordKind::Accepted, RecordKind::DeadLettered] {
        let writes = Writes { records: vec![one.record(kind)], ..Writes::default() };
        let written = write(&bed.store, writes).await.unwrap();
        if kind == RecordKind::StreamClosed {
            closed = written;
        }
    }
    let last = bed.store.find_last_commit(&one.key(), one.task).await.unwrap();
    assert_eq!(last.as_ref(), closed.first());
}

pub async fn records_are_listed_by_task(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2), given(3, 1), given(4, 1)]).await;
    let places = async |task: Option<u128>, from, limit| {
        let task = task.map(task_id);
        let found = bed.store.list_records(&acme(), task, from, limit, false).await.unwrap();
        found.iter().map(|record| record.leaf_index).collect::<Vec<_>>()
    };
    assert_eq!(places(None, 0, 10).await, [0, 1, 2, 3]);
    assert_eq!(places(None, 1, 2).await, [1, 2]);
    assert_eq!(places(Some(1), 0, 10).await, [0, 2, 3]);
    assert_eq!(places(Some(1), 1, 1).await, [2]);
    assert_eq!(places(Some(9), 0, 10).await, [0; 0]);
    assert_eq!(places(None, 4, 10).await, [0; 0]);
}

pub async fn records_of_a_task_are_listed_from_its_end_in_a_window(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2), given(3, 1), given(4, 1)]).await;
    let all = bed.store.list_records(&acme(), Some(task_id(1)), 0, 10, true).await.unwrap();
    let whole = RecordWindow {
        at_least: 0,
        before: i64::MAX,
        from: Micros(i64::MIN),
        until: Micros(i64::MAX),
    };
    let places = async |window: RecordWindow, limit| {
        let page = bed.store.list_newest_records(&acme(), task_id(1), window, limit).await.unwrap();
        assert!(page.iter().all(|record| all.contains(record) && window.has(record)));
        page.iter().map(|record| record.leaf_index).collect::<Vec<_>>()
    };
    assert_eq!(places(whole, 10).await, [3, 2, 0]);
    assert_eq!(places(whole, 2).await, [3, 2]);
    assert_eq!(places(RecordWindow { before: 3, ..whole }, 10).await, [2, 0]);
    assert_eq!(places(RecordWindow { at_least: 1, ..whole }, 10).await, [3, 2]);
    let until = all[0].recorded_at;
    assert_eq!(places(RecordWindow { until, ..whole }, 10).await, [0; 0]);
    let last = all[2].recorded_at;
    let inside = all.iter().filter(|record| record.recorded_at >= last).count();
    assert_eq!(places(RecordWindow { from: last, ..whole }, 10).await.len(), inside);
    assert_eq!(places(RecordWindow { from: Micros(last.0 + 1), ..whole }, 10).await, [0; 0]);
}

pub async fn records_are_listed_by_several_tasks(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2), given(3, 1), given(4, 3)]).await;
    let places = async |tasks: &[u128], from, limit| {
        let tasks: Vec<_> = tasks.iter().copied().map(task_id).collect();
        let found = bed.store.list_task_records(&acme(), &tasks, from, limit).await.unwrap();
        assert!(found.iter().all(|record| record.content.is_none()));
        found.iter().map(|record| record.leaf_index).collect::<Vec<_>>()
    };
    assert_eq!(places(&[1, 3], 0, 10).await, [0, 2, 3]);
    assert_eq!(places(&[3, 1, 2, 9], 1, 2).await, [1, 2]);
    assert_eq!(places(&[], 0, 10).await, [0; 0]);
    let one = bed.store.list_task_records(&acme(), &[task_id(1)], 0, 10).await.unwrap();
    let same = bed.store.list_records(&acme(), Some(task_id(1)), 0, 10, false).await.unwrap();
    assert_eq!(one, same);
}

pub async fn contents_come_only_when_asked_for(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1).about("s1", "{}").about("s2", "{}")]).await;
    let bare = bed.store.list_records(&acme(), None, 0, 10, false).await.unwrap();
    assert_eq!((&bare[0].content, bare[0].personal.len()), (&None, 0));
    let full = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    let order: Vec<_> = full[0].personal.iter().map(|p| (p.ordinal, &p.subject_id[..])).collect();
    assert_eq!(order, [(0, "s1"), (1, "s2")]);
    assert!(full[0].content.as_ref().is_some_and(|content| content.kept.hot().is_some()));
    let mut raw = bed.raw().await;
    raw.run("UPDATE contents SET salt = NULL, bytes = NULL").await.unwrap();
    let erased = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    assert!(
        erased[0].content.as_ref().is_some_and(|content| content.kept == ContentStorage::Erased)
    );
}

pub async fn a_handoff_without_a_record_is_named(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    assert_eq!(bed.store.list_unrecorded(&acme()).await.unwrap(), [""; 0]);
    let batch: Vec<_> = (2..=14).map(|n| given(n, n)).collect();
    let mut writes = plan(&batch, handoffd::store::BatchState::default());
    writes.records.clear();
    write(&bed.store, writes).await.unwrap();
    let named = bed.store.list_unrecorded(&acme()).await.unwrap();
    assert_eq!(named.len(), 10);
    assert!(!named.contains(&handoff_id(1).to_string()));
}

pub async fn another_tenant_sees_nothing(bed: Arc<Bed>) {
    let beta = "beta".parse().unwrap();
    bed.store.ensure_tenant(&beta, "log-beta", Micros(1)).await.unwrap();
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let key = (beta.clone(), one.id());
    assert_eq!(bed.store.find_handoff(&key).await.unwrap(), None);
    assert_eq!(bed.store.find_receipt(&key).await.unwrap(), None);
    assert_eq!(bed.store.find_task(&(beta.clone(), one.task)).await.unwrap(), None);
    let content = crate::fixture::content_id(1);
    assert_eq!(bed.store.find_content(&beta, content).await.unwrap(), None);
    assert!(bed.store.find_content(&acme(), content).await.unwrap().is_some());
    let bob = (beta.clone(), one.target.clone());
    assert_eq!(
        bed.store
            .claim(&bob, DeliveryMode::Webhook, "b1", Micros(99), Micros(100), 9)
            .await
            .unwrap(),
        []
    );
    let filter = HandoffFilter::default();
    assert_eq!(bed.store.list_handoffs(&beta, &filter, None, 9).await.unwrap(), []);
    assert_eq!(bed.store.list_records(&beta, None, 0, 9, true).await.unwrap(), []);
}
