//! Recovery keeps rulings, edges, escalations, decided dead letters, histories of checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use handoffd::store::{
    AgentRow, BatchState, CheckpointCursor, DeadLetterFilter, EscalationFilter, Needs,
    RefusedTaskRow, Store, Writes,
};
use handoffd_domain::agent::Agent;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::{Escalation, EscalationOutcome, EscalationStatus};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{EscalationId, Micros};
use handoffd_domain::money::Usd;
use handoffd_domain::policy::{EdgePolicy, Recovery};
use handoffd_domain::progress::Edge;
use handoffd_domain::ruling::Ruling;
use uuid::Uuid;

use crate::fixture::{agent, given, handoff_id, needs, submit, task_id, transact, write};
use crate::harness::{Bed, acme};

async fn seen(store: &Arc<Store>, needs: &Needs) -> BatchState {
    let mut seen = None;
    transact(store, needs, |state| {
        seen = Some(state);
        Writes::default()
    })
    .await
    .unwrap();
    seen.unwrap()
}

fn edge(task: u128, source: &str, target: &str) -> Edge {
    let mut edge = Edge::new(acme(), task_id(task), agent(source), agent(target), Micros(1));
    (edge.passages, edge.repeats, edge.completed) = (5, 2, 7);
    (edge.spent, edge.remaining, edge.topped_up) = (Usd(3), Usd(-4), Usd(5));
    edge
}

fn escalation(n: u128, at: i64) -> Escalation {
    Escalation {
        tenant: acme(),
        id: EscalationId(Uuid::from_u128(n)),
        task_id: task_id(n % 3),
        handoff_id: n.is_multiple_of(2).then(|| handoff_id(n)),
        source: agent("alice"),
        target: agent("bob"),
        reason: "OUT_OF_SCOPE".to_owned(),
        channel: Some("desk".to_owned()),
        resume_as: Some(agent("night-shift")),
        status: EscalationStatus::Open,
        created_at: Micros(at),
        timeout_at: Micros(at + 100),
        resolved_at: None,
        resolved_by: None,
        resolution: None,
    }
}

fn keyed(row: Escalation) -> ((handoffd_domain::ids::TenantId, EscalationId), Escalation) {
    ((row.tenant.clone(), row.id), row)
}

pub async fn f2_2_refusals_are_counted_and_forgotten(bed: Arc<Bed>) {
    let row = |task, who: &str, refusals, at| RefusedTaskRow {
        tenant: acme(),
        task_id: task_id(task),
        agent: agent(who),
        refusals,
        updated_at: Micros(at),
    };
    let count = async |rows: &[RefusedTaskRow]| {
        let wanted: BTreeSet<_> = rows.iter().map(RefusedTaskRow::key).collect();
        let needs = Needs { refused_tasks: wanted, ..Needs::default() };
        transact(&bed.store, &needs, |_| {
            let refused_tasks = rows.iter().map(|row| (row.key(), row.clone())).collect();
            Writes { refused_tasks, ..Writes::default() }
        })
        .await
        .unwrap();
        seen(&bed.store, &needs).await.refused_tasks.into_values().collect::<Vec<_>>()
    };
    let first = [row(1, "alice", 1, 10), row(1, "bob", 1, 20), row(2, "alice", 1, 30)];
    assert_eq!(count(&first).await, first);
    let again = [row(1, "alice", 2, 40)];
    assert_eq!(count(&again).await, again);
    assert_eq!(bed.store.forget_refused_tasks(Micros(30)).await.unwrap(), 1, "bob's");
    assert_eq!(bed.store.forget_refused_tasks(Micros(30)).await.unwrap(), 0);
}

pub async fn edges_are_kept_changed_and_seen_with_their_task(bed: Arc<Bed>) {
    let all = [edge(1, "alice", "bob"), edge(1, "bob", "alice"), edge(2, "alice", "bob")];
    let key =
        |edge: &Edge| (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
    let rows = all.iter().map(|edge| (key(edge), edge.clone())).collect();
    write(&bed.store, Writes { edges: rows, ..Writes::default() }).await.unwrap();
    let mut changed = all[0].clone();
    changed.passages = 6;
    let rows = [(key(&changed), changed.clone())].into();
    write(&bed.store, Writes { edges: rows, ..Writes::default() }).await.unwrap();
    let expected = [changed, all[1].clone()];
    assert_eq!(bed.store.list_edges(&(acme(), task_id(1))).await.unwrap(), expected);
    let wanted = Needs { edges: [(acme(), task_id(1))].into(), ..Needs::default() };
    let state = seen(&bed.store, &wanted).await;
    assert_eq!(state.edges.into_values().collect::<Vec<_>>(), expected);
    // Together with their tasks, of which one does not exist.
    submit(&bed.store, &[given(1, 1)]).await;
    let tasks: std::collections::BTreeSet<_> = [(acme(), task_id(1)), (acme(), task_id(9))].into();
    let wanted = Needs { tasks: tasks.clone(), edges: tasks, ..Needs::default() };
    let state = seen(&bed.store, &wanted).await;
    assert_eq!(state.edges.into_values().collect::<Vec<_>>(), expected);
}

pub async fn what_is_open_of_a_task_is_seen_whole(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 1), given(3, 1), given(4, 2)]).await;
    let ended = given(1, 1);
    transact(&bed.store, &needs(std::slice::from_ref(&ended)), |state| {
        let mut handoff = state.handoffs[&ended.key()].clone();
        handoff.status = HandoffStatus::Rejected;
        Writes {
            handoffs: [(ended.key(), (handoff, false))].into(),
            outbox: [(ended.key(), None)].into(),
            ..Writes::default()
        }
    })
    .await
    .unwrap();
    let mut closed = escalation(4, 1);
    closed.status = EscalationStatus::Resolved;
    let rows = [keyed(escalation(1, 2)), keyed(closed), keyed(escalation(2, 3))].into();
    write(&bed.store, Writes { escalations: rows, ..Writes::default() }).await.unwrap();
    let wanted = Needs { open: [(acme(), task_id(1))].into(), ..Needs::default() };
    let state = seen(&bed.store, &wanted).await;
    let open: Vec<_> = state.handoffs.into_keys().map(|key| key.1).collect();
    assert_eq!(open, [handoff_id(2), handoff_id(3)]);
    let waiting: Vec<_> = state.outbox.into_keys().map(|key| key.1).collect();
    assert_eq!(waiting, [handoff_id(2), handoff_id(3)]);
    let asked: Vec<_> = state.escalations.into_values().collect();
    assert_eq!(asked, [escalation(1, 2)], "open, and of this task");
}

pub async fn escalations_are_kept_listed_and_found_when_overdue(bed: Arc<Bed>) {
    let rows = (1..=9).map(|n| keyed(escalation(n, i64::try_from(n).unwrap()))).collect();
    write(&bed.store, Writes { escalations: rows, ..Writes::default() }).await.unwrap();
    let mut decided = escalation(5, 5);
    decided.status = EscalationStatus::Resolved;
    decided.resolved_at = Some(Micros(77));
    decided.resolved_by = Some("key_1".to_owned());
    decided.resolution = Some(EscalationOutcome::Retry);
    let rows = [keyed(decided.clone())].into();
    write(&bed.store, Writes { escalations: rows, ..Writes::default() }).await.unwrap();
    let found = bed.store.find_escalation(&(acme(), decided.id)).await.unwrap();
    assert_eq!(found, Some(decided));
    let (mut ids, mut after) = (Vec::new(), None);
    let open =
        EscalationFilter { status: Some(EscalationStatus::Open), ..EscalationFilter::default() };
    loop {
        let page = bed.store.list_escalations(&acme(), &open, after.as_ref(), 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.to_string()));
        ids.extend(page.iter().map(|row| row.created_at.0));
    }
    assert_eq!(ids, [9, 8, 7, 6, 4, 3, 2, 1]);
    let of_task = EscalationFilter { task_id: Some(task_id(0)), ..EscalationFilter::default() };
    assert_eq!(bed.store.list_escalations(&acme(), &of_task, None, 10).await.unwrap().len(), 3);
    let due = bed.store.list_overdue_escalations(Micros(106), 10).await.unwrap();
    let due: Vec<_> = due.iter().map(|row| row.created_at.0).collect();
    assert_eq!(due, [1, 2, 3, 4, 6], "the first to run out first, and none that was decided");
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap().escalations, 8);
}

pub async fn a_ruling_is_kept_and_its_agents_come_with_the_handoff(bed: Arc<Bed>) {
    let one = given(1, 1);
    let ruling = Ruling {
        edge: EdgePolicy { on_reject: Recovery::Agent(agent("carol")), ..EdgePolicy::default() },
        preferred: vec![agent("dave"), agent("nobody")],
        ..Ruling::default()
    };
    let mut writes = crate::fixture::plan(std::slice::from_ref(&one), BatchState::default());
    for name in ["carol", "dave", "erin"] {
        let row = AgentRow {
            tenant: acme(),
            agent: Agent::new(agent(name)),
            secrets: "{}".to_owned(),
            created_at: Micros(1),
            updated_at: Micros(1),
        };
        writes.agents.insert((acme(), agent(name)), Some(row));
    }
    let handoff = &mut writes.handoffs.get_mut(&one.key()).unwrap().0;
    handoff.ruling = Some(Box::new(ruling));
    let expected = handoff.clone();
    write(&bed.store, writes).await.unwrap();
    let found = bed.store.find_handoff(&one.key()).await.unwrap();
    assert_eq!(found, Some(expected));
    let state = seen(&bed.store, &needs(&[one])).await;
    let agents: Vec<_> = state.agents.keys().map(|key| key.1.to_string()).collect();
    assert_eq!(agents, ["carol", "dave"]);
}

pub async fn a_dead_letter_is_decided_and_filtered(bed: Arc<Bed>) {
    let letters: Vec<_> = (1..=4).map(|n| given(n, 1).dead_letter()).collect();
    let writes = Writes { dead_letters: letters.clone(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    let mut decided = letters[2].clone();
    decided.status = DeadLetterStatus::Discarded;
    decided.resolved_at = Some(Micros(50));
    decided.resolved_by = Some("key_1".to_owned());
    let writes = Writes { dead_letters: vec![decided.clone()], ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    let key = (acme(), decided.handoff_id);
    assert_eq!(bed.store.find_dead_letter(&key).await.unwrap().as_ref(), Some(&decided));
    let wanted = Needs { dead_letters: [key.clone()].into(), ..Needs::default() };
    assert_eq!(seen(&bed.store, &wanted).await.dead_letters.get(&key), Some(&decided));
    let count = async |filter: DeadLetterFilter| {
        bed.store.list_dead_letters(&acme(), &filter, None, 10).await.unwrap().len()
    };
    let all = DeadLetterFilter::default;
    assert_eq!(count(DeadLetterFilter { status: Some(DeadLetterStatus::Open), ..all() }).await, 3);
    assert_eq!(count(DeadLetterFilter { target: Some(agent("bob")), ..all() }).await, 2);
    assert_eq!(count(DeadLetterFilter { source: Some(agent("bob")), ..all() }).await, 0);
    assert_eq!(count(DeadLetterFilter { reason: Some("OTHER".to_owned()), ..all() }).await, 0);
    let between = DeadLetterFilter { from: Some(Micros(2)), until: Some(Micros(4)), ..all() };
    assert_eq!(count(between).await, 2);
}

pub async fn the_history_of_a_tasks_checkpoints_is_paged(bed: Arc<Bed>) {
    let mut rows = Vec::new();
    for n in 1..=2 {
        for seq in 1..=5 {
            let mut row = given(n, 1).checkpoint();
            row.at.seq = seq;
            // Some at the same moment.
            row.created_at = Micros(seq / 2);
            row.agent = agent(if n == 1 { "alice" } else { "bob" });
            rows.push(row);
        }
    }
    let writes = Writes { checkpoints: rows.clone(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    let key = (acme(), task_id(1));
    let (mut found, mut after): (Vec<_>, Option<CheckpointCursor>) = (Vec::new(), None);
    loop {
        let page = bed.store.list_checkpoints(&key, None, after.as_ref(), 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.at.execution_id, last.at.seq));
        found.extend(page);
    }
    rows.sort_by_key(|row| {
        std::cmp::Reverse((row.created_at, row.at.execution_id.to_string(), row.at.seq))
    });
    assert_eq!(found, rows);
    let (mut places, mut after) = (Vec::new(), None);
    loop {
        let page = bed.store.list_checkpoint_places(&key, after, 3).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        places.extend(page);
    }
    rows.sort_by_key(|row| row.at);
    let all: Vec<_> = rows.iter().map(|row| (row.at, row.part.commitment)).collect();
    assert_eq!(places, all);
    let own = bed.store.list_checkpoints(&key, Some(&agent("bob")), None, 100).await.unwrap();
    assert_eq!(own.len(), 5);
    assert!(own.iter().all(|row| row.agent == agent("bob")));
}

pub async fn who_stands_in_is_given_the_same_personal_data(bed: Arc<Bed>) {
    let first = given(1, 1).about("s1", r#"{"data":1,"subjectId":"s1"}"#);
    submit(&bed.store, std::slice::from_ref(&first)).await;
    crate::fixture::settle(&bed.store, &first).await;
    let second = given(2, 1).to("carol");
    let wanted = needs(std::slice::from_ref(&second));
    transact(&bed.store, &wanted, |state| {
        let mut writes = crate::fixture::plan(std::slice::from_ref(&second), state);
        let handoff = &mut writes.handoffs.get_mut(&second.key()).unwrap().0;
        handoff.origin = Some(first.id());
        handoff.content_id = Some(crate::fixture::content_id(1));
        let record = &mut writes.records[0];
        let content = first.submission().content.unwrap();
        record.content = None;
        record.shared = Some((content.id, content.part.commitment));
        writes
    })
    .await
    .unwrap();
    let receiver = second.receiver();
    let claims = bed
        .store
        .claim(&receiver, DeliveryMode::Webhook, "b", Micros(10), Micros(20), 5)
        .await
        .unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].body, first.body);
    assert_eq!(claims[0].personal, [br#"{"data":1,"subjectId":"s1"}"#.to_vec()]);
    let kept = bed.store.list_personal_data(&first.key()).await.unwrap();
    assert_eq!(kept, claims[0].personal);
    let records = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    assert_eq!(
        records[0].content.as_ref().unwrap().id,
        records[1].content.as_ref().unwrap().id,
        "one content, two records"
    );
}
