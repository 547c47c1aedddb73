//! Each filter of a list is carried out by an index: what a table holds beside the page costs nothing.

use std::sync::Arc;

use handoffd::store::plans::ListFilter;
use handoffd::store::reach::Reach;
use handoffd::store::refusals::RefusalFilter;
use handoffd::store::{DeadLetterFilter, EscalationFilter, HandoffFilter, TaskFilter, Writes};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::EscalationStatus;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::Micros;
use handoffd_domain::money::Usd;
use handoffd_domain::task::TaskStatus;

use crate::fixture::{agent, given, see, submit, task_id, write};
use crate::harness::{Bed, Side, acme};

/// No index of its own: the tenant's rows are walked by an index, on SQLite newest first till the page is full.
const WALK: &[&str] = &["_created", "_time", "Index Scan using"];

/// A list, and the indexes of which one serves it.
type Case = (ListFilter, &'static [&'static str]);

/// Each documented filter of the lists by itself. A new member of a filter does not compile until it has a case here.
fn cases() -> Vec<Case> {
    [handoffs(), tasks(), dead_letters(), escalations(), refusals()].into_iter().flatten().collect()
}

fn handoffs() -> Vec<Case> {
    let (a, at) = (agent("s1"), Micros(5));
    let none = HandoffFilter::default();
    let HandoffFilter {
        task_id: _,
        status: _,
        source: _,
        target: _,
        conversation: _,
        party: _,
        from: _,
        until: _,
        user: _,
        reach: _,
    } = &none;
    let of = |filter| ListFilter::Handoffs(filter);
    let mut cases: Vec<Case> = vec![
        (of(HandoffFilter { task_id: Some(task_id(1)), ..none.clone() }), &["handoffs_task"]),
        (
            of(HandoffFilter { conversation: Some("c1".to_owned()), ..none.clone() }),
            &["handoffs_conversation"],
        ),
        (of(HandoffFilter { user: Some("u1".to_owned()), ..none.clone() }), &["handoffs_user"]),
        (of(HandoffFilter { source: Some(a.clone()), ..none.clone() }), WALK),
        (of(HandoffFilter { target: Some(a.clone()), ..none.clone() }), WALK),
        (of(HandoffFilter { party: Some(a), ..none.clone() }), WALK),
        (of(HandoffFilter { from: Some(at), ..none.clone() }), WALK),
        (of(HandoffFilter { until: Some(at), ..none.clone() }), WALK),
    ];
    for status in HandoffStatus::ALL {
        let by: &[&str] =
            if status.is_final() { &["handoffs_closed"] } else { &["handoffs_open", "_created"] };
        cases.push((of(HandoffFilter { status: Some(status), ..none.clone() }), by));
    }
    let far = Reach::DownTo((at, "1".to_owned()));
    let target = Some(agent("s1"));
    cases.push((of(HandoffFilter { target, reach: far, ..none.clone() }), WALK));
    let open = Some(HandoffStatus::Pending);
    let few = HandoffFilter { status: open, reach: Reach::Few, ..none };
    // Postgres may walk after all if not few are open.
    cases.push((of(few), &["handoffs_open", "_created"]));
    cases
}

fn tasks() -> Vec<Case> {
    let (a, at) = (agent("s1"), Micros(5));
    let none = TaskFilter::default();
    let TaskFilter {
        status: _,
        party: _,
        from: _,
        until: _,
        left_at_most: _,
        spent_at_least: _,
        user: _,
        reach: _,
    } = &none;
    let of = |filter| ListFilter::Tasks(filter);
    let mut cases: Vec<Case> = vec![
        (of(TaskFilter { party: Some(a), ..none.clone() }), WALK),
        (of(TaskFilter { from: Some(at), ..none.clone() }), WALK),
        (of(TaskFilter { until: Some(at), ..none.clone() }), WALK),
        (of(TaskFilter { left_at_most: Some(Usd(1)), ..none.clone() }), WALK),
        (of(TaskFilter { spent_at_least: Some(Usd(1)), ..none.clone() }), WALK),
        (of(TaskFilter { user: Some("u1".to_owned()), ..none.clone() }), &["handoffs_user"]),
    ];
    for status in TaskStatus::ALL {
        // `closed_tasks` and `open_tasks` have their keys alone.
        let by: &[&str] = if status.is_final() {
            &["closed_tasks", "SEARCH c USING PRIMARY KEY"]
        } else {
            &["open_tasks", "SEARCH c USING PRIMARY KEY"]
        };
        cases.push((of(TaskFilter { status: Some(status), ..none.clone() }), by));
        let within =
            TaskFilter { status: Some(status), from: Some(at), until: Some(at), ..none.clone() };
        cases.push((of(within), by));
    }
    // As far as a page looks.
    let far = Reach::DownTo((at, "1".to_owned()));
    let walks = TaskFilter { reach: far, ..none.clone() };
    cases.push((of(TaskFilter { left_at_most: Some(Usd(1)), ..walks.clone() }), WALK));
    cases.push((of(TaskFilter { user: Some("u1".to_owned()), ..walks }), WALK));
    let few = TaskFilter { reach: Reach::Few, ..none };
    let waiting = Some(TaskStatus::PendingHandoff);
    cases.push((of(TaskFilter { status: waiting, ..few.clone() }), &["waiting_tasks"]));
    cases.push((of(TaskFilter { user: Some("u1".to_owned()), ..few }), &["handoffs_user"]));
    cases
}

fn dead_letters() -> Vec<Case> {
    let (a, at) = (agent("s1"), Micros(5));
    let none = DeadLetterFilter::default();
    let DeadLetterFilter {
        status: _,
        task_id: _,
        reason: _,
        source: _,
        target: _,
        from: _,
        until: _,
    } = &none;
    let of = |filter| ListFilter::DeadLetters(filter);
    let mut cases: Vec<Case> = vec![
        (of(DeadLetterFilter { task_id: Some(task_id(1)), ..none.clone() }), WALK),
        (of(DeadLetterFilter { reason: Some("R1".to_owned()), ..none.clone() }), WALK),
        (of(DeadLetterFilter { source: Some(a.clone()), ..none.clone() }), WALK),
        (of(DeadLetterFilter { target: Some(a), ..none.clone() }), WALK),
        (of(DeadLetterFilter { from: Some(at), ..none.clone() }), WALK),
        (of(DeadLetterFilter { until: Some(at), ..none.clone() }), WALK),
    ];
    for status in DeadLetterStatus::ALL {
        let by: &[&str] = if status == DeadLetterStatus::Open {
            &["dead_letters_open"]
        } else {
            &["dead_letters_decided"]
        };
        cases.push((of(DeadLetterFilter { status: Some(status), ..none.clone() }), by));
    }
    cases
}

fn escalations() -> Vec<Case> {
    let none = EscalationFilter::default();
    let EscalationFilter { status: _, task_id: _ } = &none;
    let of = |filter| ListFilter::Escalations(filter);
    let mut cases: Vec<Case> = vec![(
        of(EscalationFilter { task_id: Some(task_id(1)), ..none.clone() }),
        &["escalations_task"],
    )];
    for status in EscalationStatus::ALL {
        let by: &[&str] = if status == EscalationStatus::Open {
            &["escalations_waiting", "escalations_open", "escalations_created"]
        } else {
            &["escalations_decided"]
        };
        cases.push((of(EscalationFilter { status: Some(status), ..none.clone() }), by));
    }
    cases
}

fn refusals() -> Vec<Case> {
    let (a, at) = (agent("s1"), Micros(5));
    let none = RefusalFilter::default();
    let RefusalFilter { source: _, target: _, task_id: _, code: _, pointer: _, from: _, until: _ } =
        &none;
    let of = |filter| ListFilter::Refusals(filter);
    vec![
        (of(RefusalFilter { source: Some(a.clone()), ..none.clone() }), &["refusals_source"][..]),
        (of(RefusalFilter { target: Some(a), ..none.clone() }), WALK),
        (of(RefusalFilter { task_id: Some(task_id(1)), ..none.clone() }), WALK),
        (of(RefusalFilter { code: Some("C1".to_owned()), ..none.clone() }), &["refusals_code"]),
        (
            of(RefusalFilter { pointer: Some("/p1".to_owned()), ..none.clone() }),
            &["refusals_pointer"],
        ),
        (of(RefusalFilter { from: Some(at), ..none.clone() }), WALK),
        (of(RefusalFilter { until: Some(at), ..none }), WALK),
    ]
}

/// Rows by which Postgres can tell what an index saves: of each task, state, user and code a share.
async fn crowd(bed: &Bed) {
    submit(&bed.store, &[given(1, 1)]).await;
    let mut raw = bed.raw().await;
    let clones = |table: &str, members: &str| {
        format!(
            "INSERT INTO {table} SELECT (r).* FROM (SELECT jsonb_populate_record((SELECT x FROM {table} AS x LIMIT 1), \
             jsonb_build_object({members})) AS r FROM generate_series(1, 4000) AS n OFFSET 0) AS made"
        )
    };
    let state = |all: &[&str]| {
        let list = all.iter().map(|one| format!("'{one}'")).collect::<Vec<_>>().join(", ");
        format!("(ARRAY[{list}])[1 + n % {}]", all.len())
    };
    let handoffs = state(&HandoffStatus::ALL.map(HandoffStatus::stored));
    let handoffs = format!(
        "'handoff_id', n::text, 'task_id', (n / 4)::text, 'created_at', n, 'status', {handoffs}, 'source', 's' || n % 5, \
         'target', 't' || n % 5, 'conversation_id', 'c' || n / 4, 'user_ref', 'u' || n / 4"
    );
    let tasks = state(&TaskStatus::ALL.map(TaskStatus::as_str));
    let tasks =
        format!("'task_id', n::text, 'created_at', n, 'status', {tasks}, 'holder', 's' || n % 5");
    let letters = state(&DeadLetterStatus::ALL.map(DeadLetterStatus::as_str));
    let escalations = state(&EscalationStatus::ALL.map(EscalationStatus::as_str));
    for sql in [
        clones("handoffs", &handoffs),
        clones("tasks", &tasks),
        format!(
            "INSERT INTO dead_letters (tenant, handoff_id, task_id, source, reason, failures, status, created_at) \
             SELECT 'acme', n::text, (n / 4)::text, 's' || n % 5, 'R' || n % 5, '[]', {letters}, n FROM generate_series(1, 4000) AS n"
        ),
        format!(
            "INSERT INTO escalations (tenant, escalation_id, task_id, source, target, reason, status, created_at, timeout_at) \
             SELECT 'acme', n::text, (n / 4)::text, 's', 't', 'R', {escalations}, n, n FROM generate_series(1, 4000) AS n"
        ),
        "INSERT INTO refusals (tenant, refusal_id, created_at, source, target, task_id, code, pointer, findings) \
         SELECT 'acme', n::text, n, 's' || n % 50, 't' || n % 5, (n / 4)::text, 'C' || n % 50, '/p' || n % 50, '[]' \
         FROM generate_series(1, 4000) AS n"
            .to_owned(),
        "ANALYZE handoffs, tasks, open_tasks, closed_tasks, dead_letters, escalations, refusals".to_owned(),
    ] {
        raw.run(&sql).await.unwrap();
    }
}

/// FINDINGS O10
pub async fn each_filter_of_a_list_is_served_by_an_index(bed: Arc<Bed>) {
    if bed.side == Side::Postgres {
        crowd(&bed).await;
    }
    for (list, indexes) in cases() {
        let plan = bed.explain(&list).await;
        let told = || format!("{list:?}: {plan:#?}");
        let whole = |step: &String| match bed.side {
            Side::Sqlite => step.starts_with("SCAN "),
            _ => step.contains("Seq Scan"),
        };
        assert!(!plan.iter().any(whole), "{}", told());
        let by = |step: &String| indexes.iter().any(|index| step.contains(index));
        assert!(plan.iter().any(by), "none of {indexes:?} serves {}", told());
        // A task may have ten thousand handoffs (FINDINGS S10 of 0.3.0): a page reads its own.
        let sorts = |step: &String| step.contains("TEMP B-TREE") || step.contains("Sort");
        if indexes == ["handoffs_task"] {
            assert!(!plan.iter().any(sorts), "sorted: {}", told());
        }
    }
}

/// Statistics of such a table say that a look at one task's handoffs is a look at them all.
pub async fn a_task_with_most_of_the_handoffs_leaves_the_lists_of_tasks_their_index(bed: Arc<Bed>) {
    if bed.side == Side::Postgres {
        crowd(&bed).await;
        let mut raw = bed.raw().await;
        raw.run("UPDATE handoffs SET task_id = '0' WHERE task_id <> '1'").await.unwrap();
        raw.run("ANALYZE handoffs").await.unwrap();
    }
    let reach = Reach::DownTo((Micros(5), "1".to_owned()));
    let none = TaskFilter { reach, ..TaskFilter::default() };
    for filter in [
        TaskFilter { party: Some(agent("s1")), ..none.clone() },
        TaskFilter { user: Some("u1".to_owned()), ..none },
    ] {
        let plan = bed.explain(&ListFilter::Tasks(filter)).await;
        // A user with few handoffs has an index, too.
        let by = |step: &String| {
            ["handoffs_task", "handoffs_user"].iter().any(|index| step.contains(index))
        };
        assert!(plan.iter().any(by), "{plan:#?}");
        assert!(!plan.iter().any(|step| step.contains("Seq Scan")), "{plan:#?}");
    }
}

/// Escalations, dead letters, deliveries and idle tasks: each statement reads those that wait, by an index.
pub async fn what_waits_is_counted_by_indexes(bed: Arc<Bed>) {
    if bed.side == Side::Postgres {
        crowd(&bed).await;
    }
    let indexes = [
        &["escalations_waiting", "escalations_open", "escalations_timeout"][..],
        &["dead_letters_open"],
        &["outbox_receiver", "outbox_order", "SEARCH outbox USING PRIMARY KEY"],
        &["outbox_receiver", "outbox_order", "SEARCH outbox USING PRIMARY KEY"],
        &["waiting_tasks_oldest"],
        &["open_tasks"],
        &["SEARCH returns USING PRIMARY KEY", "returns_pkey", "returns_inbox"],
    ];
    for (plan, indexes) in bed.explain_waits().await.into_iter().zip(indexes) {
        let whole = |step: &String| match bed.side {
            // The rows of a subquery are scanned, and no table.
            Side::Sqlite => {
                step.starts_with("SCAN ") && !step.contains("SCAN (") && {
                    let name = step["SCAN ".len()..].split(' ').next().unwrap_or_default();
                    !["grouped", "oldest", "o", "q", "w", "t", "r", "same"].contains(&name)
                }
            }
            _ => step.contains("Seq Scan"),
        };
        assert!(!plan.iter().any(whole), "{plan:#?}");
        let by = |step: &String| indexes.iter().any(|index| step.contains(index));
        assert!(plan.iter().any(by), "none of {indexes:?} serves {plan:#?}");
    }
}

/// FINDINGS O10
pub async fn tasks_that_ended_are_listed_by_how_they_ended_newest_first(bed: Arc<Bed>) {
    let batch: Vec<_> = (1..=6).map(|n| given(n, n)).collect();
    submit(&bed.store, &batch).await;
    for (which, status) in
        [(0, TaskStatus::Completed), (2, TaskStatus::Completed), (3, TaskStatus::Canceled)]
    {
        let (key, mut task) = {
            let state = see(&bed.store, &batch).await;
            let key = (acme(), batch[which].task);
            (key.clone(), state.tasks[&key].clone())
        };
        task.status = status;
        let mut writes = Writes::default();
        writes.tasks.insert(key, (task, false));
        write(&bed.store, writes).await.unwrap();
    }
    let none = TaskFilter::default;
    let of = async |filter: TaskFilter, limit: i64| {
        let found = bed.store.list_tasks(&acme(), &filter, None, limit).await.unwrap();
        found.iter().map(|task| task.id).collect::<Vec<_>>()
    };
    let ended = |status| TaskFilter { status: Some(status), ..none() };
    assert_eq!(of(ended(TaskStatus::Completed), 9).await, [task_id(3), task_id(1)]);
    assert_eq!(of(ended(TaskStatus::Canceled), 9).await, [task_id(4)]);
    assert_eq!(of(ended(TaskStatus::HandingOff), 9).await, [task_id(6), task_id(5), task_id(2)]);
    // In pages, within a time, and for who took part.
    let first =
        bed.store.list_tasks(&acme(), &ended(TaskStatus::Completed), None, 1).await.unwrap();
    let after = first.last().map(|task| (task.created_at, task.id.to_string()));
    let next = bed
        .store
        .list_tasks(&acme(), &ended(TaskStatus::Completed), after.as_ref(), 9)
        .await
        .unwrap();
    assert_eq!(next.iter().map(|task| task.id).collect::<Vec<_>>(), [task_id(1)]);
    let late = TaskFilter {
        from: first.last().map(|task| task.created_at),
        ..ended(TaskStatus::Completed)
    };
    assert_eq!(of(late, 9).await, [task_id(3)]);
    let taken = TaskFilter { party: Some(agent("bob")), ..ended(TaskStatus::Canceled) };
    assert_eq!(of(taken, 9).await, [task_id(4)]);
    let strange = TaskFilter { party: Some(agent("zoe")), ..ended(TaskStatus::Canceled) };
    assert_eq!(of(strange, 9).await, []);
}
