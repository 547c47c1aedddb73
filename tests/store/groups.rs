//! Handoffs to several receivers: what a task keeps of a group, what is read beside it, and which branches are delivered.

use std::num::NonZeroU32;
use std::sync::Arc;

use handoffd::store::{Needs, StoreError, TaskKey, Writes};
use handoffd_domain::group::{Branch, BranchPlace, Group, GroupStatus, Join, OnReject, branch_id};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TenantId};
use handoffd_domain::ruling::Ruling;

use crate::fixture::{Given, agent, given, handoff_id, needs, plan, see, submit, transact, write};
use crate::harness::{Bed, acme};

const GROUP: u128 = 50;
const RECEIVERS: [&str; 3] = ["bob", "carol", "dave"];

fn two() -> Join {
    Join::Quorum(NonZeroU32::new(2).unwrap())
}

fn place(index: u32) -> BranchPlace {
    let id = handoff_id(GROUP);
    BranchPlace { id, index, of: 3, join: two(), on_reject: OnReject::Drop }
}

/// The branches of a group, each to its receiver.
fn branches() -> Vec<(HandoffId, Given)> {
    let made = |(index, name): (u32, &&str)| {
        let id = branch_id(handoff_id(GROUP), index);
        (id, given(GROUP + u128::from(index), 1).to(name))
    };
    (0..).zip(&RECEIVERS).map(made).collect()
}

/// The group as it is committed.
fn begun(seq: i64) -> Group {
    let branch = |(id, given): (HandoffId, Given)| Branch {
        handoff: id,
        agent: given.target,
        status: HandoffStatus::Pending,
    };
    Group {
        id: handoff_id(GROUP),
        source: agent("alice"),
        of: 3,
        join: two(),
        on_reject: OnReject::Drop,
        status: GroupStatus::Pending,
        reason: None,
        branches: branches().into_iter().map(branch).collect(),
        stand_ins: [(1, handoff_id(9))].into(),
        seq,
        created_at: Micros(7),
        accepted_at: None,
        ended_at: None,
    }
}

fn task_key() -> TaskKey {
    given(1, 1).task_key()
}

/// Commits the group behind what its task has: its branches have one place in the order of delivery.
fn committed(state: handoffd::store::BatchState) -> Writes {
    let of = branches();
    let mut writes = plan(&of.iter().map(|(_, given)| given.clone()).collect::<Vec<_>>(), state);
    let seq = writes.outbox.values().flatten().map(|row| row.seq).min().unwrap();
    let (task, _) = writes.tasks.get_mut(&task_key()).unwrap();
    task.course.groups.push(begun(seq));
    for (index, (id, given)) in (0..).zip(&of) {
        let key = (given.tenant.clone(), *id);
        let (mut handoff, new) = writes.handoffs.remove(&given.key()).unwrap();
        handoff.id = *id;
        handoff.ruling = Some(Box::new(Ruling { branch: Some(place(index)), ..Ruling::default() }));
        writes.handoffs.insert(key.clone(), (handoff, new));
        let mut row = writes.outbox.remove(&given.key()).flatten().unwrap();
        (row.handoff_id, row.seq) = (*id, seq);
        writes.outbox.insert(key, Some(row));
        for record in writes.records.iter_mut().filter(|one| one.handoff_id == Some(given.id())) {
            record.handoff_id = Some(*id);
            record.group = Some(place(index).into());
        }
    }
    writes
}

async fn commit(bed: &Bed) {
    let all: Vec<Given> = branches().into_iter().map(|(_, given)| given).collect();
    transact(&bed.store, &needs(&all), committed).await.unwrap();
}

pub async fn a_group_is_written_whole_or_not_at_all_and_reads_back_equal(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    // One branch is there already: none of the others is written.
    let (first, of) = branches().remove(1);
    let mut taken = of.handoff();
    taken.id = first;
    let before =
        Writes { handoffs: [((acme(), first), (taken, true))].into(), ..Writes::default() };
    write(&bed.store, before).await.unwrap();
    let all: Vec<Given> = branches().into_iter().map(|(_, given)| given).collect();
    let refused = transact(&bed.store, &needs(&all), committed).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    let seen = see(&bed.store, &[given(1, 1)]).await;
    assert_eq!(seen.tasks[&task_key()].course.groups, []);
    for (id, _) in branches() {
        let found = bed.store.find_handoff(&(acme(), id)).await.unwrap();
        assert_eq!(found.is_some(), id == first, "{id}");
    }
}

pub async fn the_branches_of_a_group_go_out_at_once_and_what_is_behind_them_waits(bed: Arc<Bed>) {
    let (first, behind) = (given(1, 1).to("erin"), given(99, 1).to("frank"));
    submit(&bed.store, std::slice::from_ref(&first)).await;
    commit(&bed).await;
    submit(&bed.store, std::slice::from_ref(&behind)).await;
    let claimed = async |name: &str| {
        let key: (TenantId, _) = (acme(), agent(name));
        let (now, until) = (Micros(1_000_000), Micros(2_000_000));
        let mode = DeliveryMode::Webhook;
        let claims = bed.store.claim(&key, mode, "b1", now, until, 5).await.unwrap();
        claims.iter().map(|claim| claim.handoff_id).collect::<Vec<_>>()
    };
    for name in RECEIVERS.iter().chain(&["frank"]) {
        assert_eq!(claimed(name).await, [], "{name} waits for what is in front");
    }
    assert_eq!(claimed("erin").await, [first.id()]);
    settle_row(&bed, first.id()).await;
    // In any order, and none waits for another.
    for place in [2, 0, 1] {
        let (id, given) = branches().remove(place);
        assert_eq!(claimed(given.target.as_str()).await, [id]);
    }
    assert_eq!(claimed("frank").await, []);
    for (done, (id, _)) in branches().into_iter().enumerate() {
        assert_eq!(claimed("frank").await, [], "{done} of 3 are settled");
        settle_row(&bed, id).await;
    }
    assert_eq!(claimed("frank").await, [behind.id()]);
}

/// Ends a delivery.
async fn settle_row(bed: &Bed, id: HandoffId) {
    let rows = [((acme(), id), None)].into();
    write(&bed.store, Writes { outbox: rows, ..Writes::default() }).await.unwrap();
}

pub async fn what_the_end_of_a_group_withdraws_is_read_with_the_verdict(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    commit(&bed).await;
    let seen = see(&bed.store, &[given(1, 1)]).await;
    let mut task = seen.tasks[&task_key()].clone();
    let seq = task.course.groups[0].seq;
    assert_eq!(task.course.groups, [begun(seq)], "the group reads back equal");
    let ids: Vec<HandoffId> = branches().into_iter().map(|(id, _)| id).collect();
    let kept = bed.store.find_handoff(&(acme(), ids[2])).await.unwrap().unwrap();
    assert_eq!(kept.branch(), Some(place(2)));
    let beside = async |completed: &[usize]| {
        let mut asked = Needs::default();
        asked.tasks.insert(task_key());
        for at in completed {
            asked.handoffs.insert((acme(), ids[*at]));
            asked.accepted.insert((task_key(), ids[*at]));
        }
        let mut found = Vec::new();
        let done = transact(&bed.store, &asked, |state| {
            found =
                state.handoffs.keys().map(|(_, id)| *id).filter(|id| ids.contains(id)).collect();
            Writes::default()
        });
        done.await.unwrap();
        let place = |id: &HandoffId| ids.iter().position(|one| one == id).unwrap();
        let mut places: Vec<usize> = found.iter().map(place).collect();
        places.sort_unstable();
        places
    };
    assert_eq!(beside(&[0]).await, [0], "one of two that are needed decides nothing");
    assert_eq!(beside(&[0, 2]).await, [0, 1, 2], "two do, and the third is withdrawn");
    // One is completed already: the next decides.
    task.course.groups[0].branches[1].status = HandoffStatus::Completed;
    let writes =
        Writes { tasks: [(task_key(), (task.clone(), false))].into(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    assert_eq!(beside(&[0]).await, [0, 2]);
    // Once it has ended, nothing of it is looked for.
    task.course.groups[0].end(GroupStatus::Completed, None, Micros(9));
    let writes = Writes { tasks: [(task_key(), (task, false))].into(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    assert_eq!(beside(&[0, 2]).await, [0, 2]);
}
