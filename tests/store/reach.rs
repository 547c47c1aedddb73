//! Lists that no index serves look at a bounded number of rows for a page, and lose none between pages.

use std::sync::Arc;

use handoffd::store::reach::{BOUNDS, Bounds, Reach};
use handoffd::store::{Cursor, HandoffFilter, TaskFilter, Writes};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::Micros;
use handoffd_domain::money::Usd;
use handoffd_domain::task::TaskStatus;

use crate::fixture::{agent, given, handoff_id, see, submit, task_id, write};
use crate::harness::{Bed, Side, acme};

/// Bounds that sixty rows pass.
const SMALL: Bounds = Bounds { few: 4, looked_at: 10, opened: 10 };

/// Tasks 1 to 60, each with one handoff of the same number. Every twentieth went back to its holder, and has nothing left; the
/// first ten are completed; handoff 3 goes to carol, and the handoffs of odd numbers are for the user `u_1`.
async fn sixty(bed: &Bed) {
    let batch: Vec<_> =
        (1..=60).map(|n| if n == 3 { given(n, n).to("carol") } else { given(n, n) }).collect();
    submit(&bed.store, &batch).await;
    let state = see(&bed.store, &batch).await;
    let mut writes = Writes::default();
    for one in &batch {
        let mut task = state.tasks[&one.task_key()].clone();
        if one.n.is_multiple_of(20) {
            task.status = TaskStatus::PendingHandoff;
            let mut funds = task.funds.take().unwrap();
            funds.spent = funds.granted;
            task.funds = Some(funds);
        } else if one.n <= 10 {
            task.status = TaskStatus::Completed;
        }
        writes.tasks.insert(one.task_key(), (task, false));
    }
    write(&bed.store, writes).await.unwrap();
}

/// The numbers of all tasks that fit, page by page, and how many pages there were.
async fn tasks(bed: &Bed, filter: &TaskFilter, bounds: Bounds, limit: i64) -> (Vec<u128>, usize) {
    let (mut all, mut after, mut pages) = (Vec::new(), None::<Cursor>, 0);
    loop {
        let mut filter = filter.clone();
        filter.reach =
            bed.store.reach_of_tasks(&acme(), &filter, after.as_ref(), bounds).await.unwrap();
        let page = bed.store.list_tasks(&acme(), &filter, after.as_ref(), limit).await.unwrap();
        pages += 1;
        all.extend(page.iter().map(|task| u128::try_from(task.created_at.0).unwrap()));
        assert!(pages < 100, "the list has an end");
        let last = page.last().map(|task| (task.created_at, task.id.to_string()));
        let full = i64::try_from(page.len()).unwrap() == limit;
        match (full, filter.reach.end().cloned()) {
            (true, _) => after = last,
            (false, Some(end)) => {
                assert!(last.is_none_or(|last| last >= end), "a row below {end:?}");
                after = Some(end);
            }
            (false, None) => return (all, pages),
        }
    }
}

/// The same of handoffs.
async fn handoffs(bed: &Bed, filter: &HandoffFilter, bounds: Bounds) -> (Vec<u128>, usize) {
    let (mut all, mut after, mut pages) = (Vec::new(), None::<Cursor>, 0);
    loop {
        let mut filter = filter.clone();
        filter.reach =
            bed.store.reach_of_handoffs(&acme(), &filter, after.as_ref(), bounds).await.unwrap();
        let page = bed.store.list_handoffs(&acme(), &filter, after.as_ref(), 100).await.unwrap();
        pages += 1;
        all.extend(page.iter().map(|one| u128::try_from(one.created_at.0).unwrap()));
        match filter.reach.end().cloned() {
            Some(end) => after = Some(end),
            None => return (all, pages),
        }
    }
}

pub async fn a_page_of_tasks_looks_at_a_bounded_number_and_the_next_goes_on(bed: Arc<Bed>) {
    sixty(&bed).await;
    let none = TaskFilter::default;
    let newest_first = |numbers: &[u128]| numbers.iter().rev().copied().collect::<Vec<_>>();
    let left = TaskFilter { left_at_most: Some(Usd(0)), ..none() };
    let odd: Vec<u128> = (1..=60).filter(|n| n % 2 == 1).collect();
    let open: Vec<u128> = (11..=60).filter(|n| n % 20 != 0).collect();
    let cases = [
        // Sparse: a page of ten looked at may have one row, or none.
        (left.clone(), newest_first(&[20, 40, 60]), 7),
        // Dense, in pages that fill up before the look ends.
        (
            TaskFilter { spent_at_least: Some(Usd(0)), ..none() },
            newest_first(&(1..=60).collect::<Vec<_>>()),
            21,
        ),
        // Of a status that tasks pass through: those that have not ended are looked at, 53 of them.
        (TaskFilter { status: Some(TaskStatus::HandingOff), ..none() }, newest_first(&open), 0),
        (TaskFilter { status: Some(TaskStatus::Running), ..none() }, vec![], 6),
        // Far back, behind the look of the first pages, and among those that ended.
        (TaskFilter { party: Some(agent("carol")), ..none() }, vec![3], 7),
        (
            TaskFilter {
                party: Some(agent("carol")),
                status: Some(TaskStatus::Completed),
                ..none()
            },
            vec![3],
            2,
        ),
        // Few wait, and all are found at once.
        (
            TaskFilter { status: Some(TaskStatus::PendingHandoff), ..none() },
            newest_first(&[20, 40, 60]),
            2,
        ),
        // Many are for this user; none for the other.
        (TaskFilter { user: Some("u_1".to_owned()), ..none() }, newest_first(&odd), 0),
        (TaskFilter { user: Some("u_9".to_owned()), ..none() }, vec![], 1),
        (
            TaskFilter {
                user: Some("u_1".to_owned()),
                status: Some(TaskStatus::Completed),
                ..none()
            },
            newest_first(&[1, 3, 5, 7, 9]),
            0,
        ),
        (TaskFilter { from: Some(Micros(41)), until: Some(Micros(60)), ..left }, vec![], 2),
    ];
    for (filter, expected, pages) in cases {
        let (numbers, looks) = tasks(&bed, &filter, SMALL, 3).await;
        assert_eq!(numbers, expected, "{filter:?}");
        if pages > 0 && bed.side != Side::Memory {
            assert_eq!(looks, pages, "{filter:?}");
        }
        // As one look at all finds them.
        let (whole, looks) = tasks(&bed, &filter, BOUNDS, 100).await;
        assert_eq!((whole, looks), (expected, 1), "{filter:?}");
    }
}

pub async fn a_page_of_handoffs_looks_at_a_bounded_number_and_the_next_goes_on(bed: Arc<Bed>) {
    sixty(&bed).await;
    let state = see(&bed.store, &[given(7, 7), given(9, 9)]).await;
    let mut writes = Writes::default();
    for n in [7, 9] {
        let mut handoff = state.handoffs[&given(n, n).key()].clone();
        handoff.status = HandoffStatus::Completed;
        writes.handoffs.insert(given(n, n).key(), (handoff, false));
    }
    write(&bed.store, writes).await.unwrap();
    let none = HandoffFilter::default;
    let to = |name: &str| HandoffFilter { target: Some(agent(name)), ..none() };
    let bob: Vec<u128> = (1..=60).rev().filter(|n| *n != 3).collect();
    let cases = [
        (to("carol"), vec![3], 7),
        (to("bob"), bob, 7),
        (to("dave"), vec![], 7),
        (HandoffFilter { source: Some(agent("bob")), ..none() }, vec![], 7),
        // An index has the open ones of a receiver.
        (HandoffFilter { status: Some(HandoffStatus::Pending), ..to("carol") }, vec![3], 1),
        (HandoffFilter { status: Some(HandoffStatus::Completed), ..to("bob") }, vec![9, 7], 1),
        (
            HandoffFilter {
                status: Some(HandoffStatus::Completed),
                user: Some("u_1".to_owned()),
                ..none()
            },
            vec![9, 7],
            4,
        ),
        // All of a task, a conversation, a user or an end are found by an index.
        (HandoffFilter { task_id: Some(task_id(3)), ..to("carol") }, vec![3], 1),
        (HandoffFilter { conversation: Some("talk-1".to_owned()), ..to("carol") }, vec![3], 1),
        (HandoffFilter { status: Some(HandoffStatus::Completed), ..none() }, vec![9, 7], 1),
    ];
    for (filter, expected, pages) in cases {
        let (numbers, looks) = handoffs(&bed, &filter, SMALL).await;
        assert_eq!(numbers, expected, "{filter:?}");
        if bed.side != Side::Memory {
            assert_eq!(looks, pages, "{filter:?}");
        }
        assert_eq!(handoffs(&bed, &filter, BOUNDS).await, (expected, 1), "{filter:?}");
    }
}

/// Rows of one time are in the order of their ids, and a look may end between them.
pub async fn a_look_ends_between_rows_of_one_time(bed: Arc<Bed>) {
    let batch: Vec<_> = (1..=25).map(|n| given(n, n).at(5)).collect();
    submit(&bed.store, &batch).await;
    let filter = HandoffFilter { target: Some(agent("bob")), ..HandoffFilter::default() };
    let (mut ids, mut after) = (Vec::new(), None::<Cursor>);
    loop {
        let mut filter = filter.clone();
        filter.reach =
            bed.store.reach_of_handoffs(&acme(), &filter, after.as_ref(), SMALL).await.unwrap();
        let page = bed.store.list_handoffs(&acme(), &filter, after.as_ref(), 100).await.unwrap();
        ids.extend(page.iter().map(|one| one.id));
        let Some(end) = filter.reach.end().cloned() else { break };
        after = Some(end);
    }
    assert_eq!(ids, (1..=25).rev().map(handoff_id).collect::<Vec<_>>());
    // At the last row exactly the look ends, and the page after it has nothing to look at.
    let all = Bounds { few: 0, looked_at: 25, opened: 25 };
    let first = bed.store.reach_of_handoffs(&acme(), &filter, None, all).await.unwrap();
    if bed.side != Side::Memory {
        assert_eq!(first, Reach::DownTo((Micros(5), handoff_id(1).to_string())));
        let next = bed.store.reach_of_handoffs(&acme(), &filter, first.end(), all).await.unwrap();
        assert_eq!(next, Reach::Rest);
        // An agent is shown no id of a row that may be another's.
        let theirs = HandoffFilter { party: Some(agent("bob")), ..filter.clone() };
        let end = bed.store.reach_of_handoffs(&acme(), &theirs, None, SMALL).await.unwrap();
        assert_eq!(end, Reach::DownTo((Micros(5), uuid::Uuid::nil().to_string())));
    }
}

/// The old tasks that do not move are counted, however many began and ended after them.
pub async fn a_task_that_does_not_move_is_counted_however_many_began_after_it(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let state = see(&bed.store, &[given(1, 1)]).await;
    let mut writes = Writes::default();
    let mut task = state.tasks[&given(1, 1).task_key()].clone();
    (task.status, task.holder) = (TaskStatus::Running, agent("bob"));
    writes.tasks.insert(given(1, 1).task_key(), (task, false));
    let mut handoff = state.handoffs[&given(1, 1).key()].clone();
    handoff.status = HandoffStatus::Completed;
    writes.handoffs.insert(given(1, 1).key(), (handoff, false));
    write(&bed.store, writes).await.unwrap();
    let mut raw = bed.raw().await;
    let columns = "tenant, task_id, status, holder, fence, handoffs, undelivered, failures, spent_nanos, remaining_nanos, \
                   created_at, updated_at";
    let numbers = match bed.side {
        Side::Sqlite => {
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10001)"
        }
        _ => "WITH c(n) AS (SELECT generate_series(1, 10001))",
    };
    let begun = format!(
        "INSERT INTO tasks ({columns}) {numbers} SELECT 'acme', 'later-' || n, 'HANDING_OFF', 'alice', 0, 0, 0, 0, 0, 0, \
         100 + n, 100 + n FROM c"
    );
    raw.run(&begun).await.unwrap();
    raw.run("UPDATE tasks SET status = 'COMPLETED' WHERE task_id LIKE 'later-%'").await.unwrap();
    let counts = bed.store.count_waits(&acme(), Micros(100_000)).await.unwrap();
    let [still] = counts.still.as_slice() else { panic!("{:?}", counts.still) };
    assert_eq!((&still.holder, still.count, still.first), (&agent("bob"), 1, task_id(1)));
    let mut state = see(&bed.store, &[given(1, 1)]).await;
    let mut task = state.tasks.remove(&given(1, 1).task_key()).unwrap();
    task.status = TaskStatus::Completed;
    let mut writes = Writes::default();
    writes.tasks.insert(given(1, 1).task_key(), (task, false));
    write(&bed.store, writes).await.unwrap();
    let counts = bed.store.count_waits(&acme(), Micros(100_000)).await.unwrap();
    assert_eq!(counts.still, []);
    assert_eq!(raw.count("open_tasks").await, 0, "each row goes with its task");
}

/// While an attempt is under way, the delivery is held; after an earlier attempt it is counted apart.
pub async fn a_delivery_that_is_tried_again_is_counted_apart(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 2)];
    submit(&bed.store, &batch).await;
    let mut raw = bed.raw().await;
    let held = |attempt: i32| {
        format!(
            "UPDATE outbox SET claimed_by = 'one', visible_at = 900, attempt = {attempt} WHERE handoff_id = '{}'",
            batch[0].id()
        )
    };
    for (attempt, again) in [(1, 0), (2, 1)] {
        raw.run(&held(attempt)).await.unwrap();
        let counts = bed.store.count_waits(&acme(), Micros(100)).await.unwrap();
        assert_eq!(counts.again.iter().map(|one| one.count).sum::<i64>(), again, "{counts:?}");
        let [queue] = counts.queues.as_slice() else { panic!("{counts:?}") };
        assert_eq!((queue.count, queue.first), (1, batch[1].id()), "the one that no attempt holds");
    }
    // The claim has expired: the delivery waits like any other.
    let late = bed.store.count_waits(&acme(), Micros(900)).await.unwrap();
    assert_eq!((late.again, late.queues[0].count), (vec![], 2));
}
