//! The rows that a batch writes, and those that it does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use handoffd::store::{
    AgentRow, ContentStorage, HandoffFilter, Needs, StoreError, TaskFilter, Writes,
};
use handoffd_domain::agent::AgentState;
use handoffd_domain::funds::FundsRequest;
use handoffd_domain::handoff::{Cost, HandoffStatus};
use handoffd_domain::ids::Micros;
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::record::RecordKind;

use crate::fixture::{
    agent, agent_row, all_different, content_id, execution_id, given, handoff_id, idempotency_row,
    key_row, needs, plan, see, submit, task_id, transact, write,
};
use crate::harness::{Bed, Side, acme};
use crate::tamper::verify;

/// Rows in every table that a batch writes.
async fn sizes(bed: &Bed) -> Vec<i64> {
    if bed.side == Side::Memory {
        return sizes_in_memory(bed).await;
    }
    let mut raw = bed.raw().await;
    let mut sizes = Vec::new();
    for table in [
        "tasks",
        "handoffs",
        "outbox",
        "checkpoints",
        "idempotency_keys",
        "dead_letters",
        "agents",
        "api_keys",
        "contents",
        "personal_data",
        "audit.records",
        "events",
        "subscriptions",
        "event_cursors",
    ] {
        let log = table.starts_with("audit.");
        let place = if log { &mut bed.raw_log().await } else { &mut raw };
        sizes.push(place.count(table).await);
    }
    sizes
}

/// The same as far as the store itself tells.
async fn sizes_in_memory(bed: &Bed) -> Vec<i64> {
    let (store, all) = (&bed.store, HandoffFilter::default());
    let handoffs = store.list_handoffs(&acme(), &all, None, 1_000).await.unwrap().len();
    let tasks = store.list_tasks(&acme(), &TaskFilter::default(), None, 1_000).await.unwrap().len();
    let agents = store.list_agents(&acme()).await.unwrap().len();
    let keys = store.list_keys(&acme()).await.unwrap().len();
    let depths = store.depths(Micros(0)).await.unwrap();
    let counted = [handoffs, tasks, agents, keys].map(|count| i64::try_from(count).unwrap());
    [&counted[..], &[depths.outbox, depths.dead_letters, depths.records]].concat()
}

pub async fn a_submission_is_written_whole_and_reads_back_equal(bed: Arc<Bed>) {
    let one = given(1, 1).about("s1", r#"{"data":1}"#);
    let mut planned = None;
    let batch = [one.clone()];
    let done = transact(&bed.store, &needs(&batch), |state| {
        assert!(state.tasks.is_empty() && state.handoffs.is_empty() && state.outbox.is_empty());
        planned.insert(plan(&batch, state)).clone()
    })
    .await;
    let sealed = done.unwrap();
    let planned = planned.unwrap();

    assert_eq!((sealed.len(), sealed[0].leaf_index, sealed[0].log_id.as_str()), (1, 0, "log-acme"));
    let task = bed.store.find_task(&one.task_key()).await.unwrap().unwrap();
    assert_eq!(task, planned.tasks[&one.task_key()].0);
    let handoff = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    assert_eq!(handoff, planned.handoffs[&one.key()].0);
    let run = (acme(), one.task, execution_id(1));
    let checkpoint = bed.store.find_checkpoint(&run, None, Some(1)).await.unwrap();
    assert_eq!(checkpoint, Some(one.checkpoint()));
    let content = bed.store.find_content(&acme(), content_id(1)).await.unwrap();
    let part = one.submission().content.unwrap().part;
    let kept = ContentStorage::Hot(part.salt, part.codec, part.bytes.to_vec());
    assert_eq!(content.unwrap().kept, kept);

    let seen = see(&bed.store, &batch).await;
    assert_eq!(seen.tasks[&one.task_key()], task);
    assert_eq!(seen.handoffs[&one.key()], handoff);
    assert_eq!(Some(&seen.outbox[&one.key()]), planned.outbox[&one.key()].as_ref());
    let last = seen.runs[&run].last(&agent("alice")).unwrap();
    assert_eq!((last.seq, last.commitment), (1, one.checkpoint().part.commitment));

    let records = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    let (record, draft) = (&records[0], &planned.records[0]);
    assert_eq!(records.len(), 1);
    assert_eq!((record.leaf_index, record.recorded_at), (0, one.at));
    assert_eq!((&record.body, &record.hash[..]), (&sealed[0].body, &sealed[0].hash[..]));
    assert_eq!(record.kind, "HANDOFF");
    assert_eq!(record.task_id, Some(one.task.to_string()));
    assert_eq!(record.handoff_id, Some(one.id().to_string()));
    let part = &draft.content.as_ref().unwrap().part;
    let content = record.content.as_ref().unwrap();
    assert_eq!(content.id, content_id(1).to_string());
    assert_eq!(
        content.kept,
        ContentStorage::Hot(part.salt.clone(), part.codec, part.bytes.to_vec())
    );
    let part = &draft.personal[0].part;
    let personal = &record.personal[0];
    assert_eq!((personal.ordinal, personal.subject_id.as_str()), (0, "s1"));
    assert_eq!(personal.kept, Some((part.salt.clone(), part.codec, part.bytes.to_vec())));
}

pub async fn concurrent_batches_make_one_dense_chain(bed: Arc<Bed>) {
    const WRITERS: u128 = 16;
    const ROUNDS: u128 = 6;
    let other = bed.second().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            let mut sealed = Vec::new();
            for round in 0..ROUNDS {
                let n = 10 * (round * WRITERS + writer);
                // Each on a task of its own, and each on one that all of them use.
                let batch = [given(n + 1, 100 + writer), given(n + 2, round % 2)];
                sealed.extend(submit(&store, &batch).await);
            }
            sealed
        });
    }
    let sealed = writers.join_all().await.concat();

    let total = usize::try_from(2 * WRITERS * ROUNDS).unwrap();
    let places: BTreeSet<i64> = sealed.iter().map(|sealed| sealed.leaf_index).collect();
    assert_eq!(sealed.len(), total);
    assert_eq!(places, (0..i64::try_from(total).unwrap()).collect());
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, total as u64));
    let records = bed.store.list_records(&acme(), None, 0, 1_000, false).await.unwrap();
    for sealed in &sealed {
        let kept = &records[usize::try_from(sealed.leaf_index).unwrap()];
        assert_eq!((&kept.body, &kept.hash[..]), (&sealed.body, &sealed.hash[..]));
    }
    for task in [0, 1] {
        let key = (acme(), task_id(task));
        let shared = bed.store.find_task(&key).await.unwrap().unwrap();
        assert_eq!(shared.handoffs, i64::try_from(WRITERS * ROUNDS / 2).unwrap());
    }
    assert_eq!(bed.store.list_unrecorded(&acme()).await.unwrap(), [""; 0]);
}

/// The log's head is locked, not raced for: no batch has to plan again because of a stranger.
pub async fn batches_on_different_tasks_never_conflict(bed: Arc<Bed>) {
    let other = bed.second().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8u128 {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            for round in 0..10 {
                let batch = [given(1 + 10 * writer + round, writer)];
                transact(&store, &needs(&batch), |state| plan(&batch, state)).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    assert_eq!(bed.store.find_head(&acme()).await.unwrap().unwrap().size, 80);
}

pub async fn two_tenants_have_independent_logs(bed: Arc<Bed>) {
    let beta = "beta".parse().unwrap();
    bed.store.ensure_tenant(&beta, "log-beta", Micros(1)).await.unwrap();
    // The same ids in both, in one batch.
    let batch = [given(1, 1), given(1, 1).of("beta"), given(2, 1)];
    let sealed = submit(&bed.store, &batch).await;
    let places: Vec<_> = sealed.iter().map(|s| (s.log_id.as_str(), s.leaf_index)).collect();
    assert_eq!(places, [("log-acme", 0), ("log-beta", 0), ("log-acme", 1)]);
    for (tenant, size) in [(acme(), 2), (beta, 1)] {
        let report = verify(&bed.store, &tenant).await;
        assert_eq!((report.first_fault, report.records), (None, size));
    }
}

pub async fn records_are_sealed_in_the_order_of_the_plan(bed: Arc<Bed>) {
    let one = given(1, 1);
    let kinds =
        [RecordKind::Refused, RecordKind::Checkpoint, RecordKind::Accepted, RecordKind::RolledBack];
    let writes = Writes {
        records: kinds.iter().map(|kind| one.record(*kind)).collect(),
        ..Writes::default()
    };
    let sealed = write(&bed.store, writes).await.unwrap();
    for (place, (sealed, kind)) in sealed.iter().zip(kinds).enumerate() {
        let body: serde_json::Value = serde_json::from_slice(&sealed.body).unwrap();
        assert_eq!(sealed.leaf_index, i64::try_from(place).unwrap());
        assert_eq!(body["kind"], kind.as_str());
    }
}

pub async fn a_new_handoff_that_exists_is_a_conflict_and_writes_nothing(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let before = sizes(&bed).await;
    let head = bed.store.find_head(&acme()).await.unwrap();
    // The neighbour in the batch is fine, on another task, and must go down with it.
    let batch = [given(2, 2).about("s", "{}"), given(1, 3)];
    let err = write(&bed.store, plan(&batch, handoffd::store::BatchState::default())).await;
    assert!(matches!(err, Err(StoreError::Conflict(_))), "{err:?}");
    assert_eq!(sizes(&bed).await, before);
    assert_eq!(bed.store.find_head(&acme()).await.unwrap(), head);
    submit(&bed.store, &[given(2, 2)]).await;
}

pub async fn a_new_task_that_exists_is_a_conflict(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let before = sizes(&bed).await;
    let err = write(&bed.store, plan(&[given(2, 1)], handoffd::store::BatchState::default())).await;
    assert!(matches!(err, Err(StoreError::Conflict(_))), "{err:?}");
    assert_eq!(sizes(&bed).await, before);
}

pub async fn a_plan_that_writes_nothing_leaves_no_trace(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let (before, head) = (sizes(&bed).await, bed.store.find_head(&acme()).await.unwrap());
    let seen = see(&bed.store, &[given(1, 1), given(2, 2)]).await;
    assert_eq!((seen.tasks.len(), seen.handoffs.len()), (1, 1));
    assert_eq!(sizes(&bed).await, before);
    assert_eq!(bed.store.find_head(&acme()).await.unwrap(), head);
}

pub async fn a_plan_that_panics_leaves_no_trace(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let before = sizes(&bed).await;
    let store = bed.store.clone();
    let planned = tokio::spawn(async move {
        transact(&store, &needs(&[given(1, 1)]), |_| panic!("a defect of the plan")).await
    });
    assert!(planned.await.unwrap_err().is_panic());
    assert_eq!(sizes(&bed).await, before);
    submit(&bed.store, &[given(2, 1)]).await;
}

pub async fn a_record_without_a_log_is_refused_and_writes_nothing(bed: Arc<Bed>) {
    let before = sizes(&bed).await;
    let batch = [given(1, 1), given(2, 2).of("stranger")];
    let err = write(&bed.store, plan(&batch, handoffd::store::BatchState::default())).await;
    assert!(matches!(err, Err(StoreError::Denied(_))), "{err:?}");
    assert_eq!(sizes(&bed).await, before);
}

pub async fn a_change_of_what_is_not_there_is_refused_and_writes_nothing(bed: Arc<Bed>) {
    let before = sizes(&bed).await;
    let one = given(1, 1);
    let mut writes = plan(&[given(2, 2)], handoffd::store::BatchState::default());
    writes.handoffs.insert(one.key(), (one.handoff(), false));
    let err = write(&bed.store, writes).await;
    assert!(matches!(err, Err(StoreError::Denied(_))), "{err:?}");
    assert_eq!(sizes(&bed).await, before);
}

pub async fn batches_on_one_task_see_each_other(bed: Arc<Bed>) {
    const WRITERS: u128 = 8;
    const ROUNDS: u128 = 10;
    submit(&bed.store, &[given(1, 1)]).await;
    let other = bed.second().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..ROUNDS {
                let one = given(1, 1);
                let done = transact(&store, &needs(std::slice::from_ref(&one)), |state| {
                    let mut task = state.tasks[&one.task_key()].clone();
                    let mut handoff = state.handoffs[&one.key()].clone();
                    assert_eq!(task.fence, handoff.fencing_token, "seen at different moments");
                    task.fence += 1;
                    handoff.fencing_token += 1;
                    fences.push(task.fence);
                    let mut writes = Writes::default();
                    writes.tasks.insert(one.task_key(), (task, false));
                    writes.handoffs.insert(one.key(), (handoff, false));
                    writes
                })
                .await;
                done.unwrap();
            }
            fences
        });
    }
    let fences = writers.join_all().await.concat();
    all_different(&fences);
    let task = bed.store.find_task(&(acme(), task_id(1))).await.unwrap().unwrap();
    assert_eq!(task.fence, i64::try_from(1 + WRITERS * ROUNDS).unwrap());
}

pub async fn long_books_are_kept_and_books_that_did_not_change_are_left_alone(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let kept = async || bed.store.find_task(&one.task_key()).await.unwrap().unwrap();
    let first = kept().await;
    let mut longer = first.clone();
    let funds = longer.funds.as_mut().unwrap();
    let cost = Cost { remaining: Usd(1), ..Cost::default() };
    for n in 100..1_100 {
        let ask = FundsRequest { parent: None, source: &agent("alice"), cost: &cost };
        funds.draw(handoff_id(n), &agent("bob"), ask);
    }
    let change = |task: &Task, same: bool| {
        let mut writes = Writes::default();
        writes.tasks.insert(one.task_key(), (task.clone(), false));
        writes.same_budget.extend(same.then(|| one.task_key()));
        writes
    };
    write(&bed.store, change(&longer, false)).await.unwrap();
    assert_eq!(kept().await, longer);
    let told_otherwise = Task { fence: 9, funds: first.funds, ..longer.clone() };
    write(&bed.store, change(&told_otherwise, true)).await.unwrap();
    assert_eq!(kept().await, Task { fence: 9, ..longer });
}

pub async fn a_batch_may_be_large(bed: Arc<Bed>) {
    let batch: Vec<_> = (1..=1_200).map(|n| given(n, n % 40).about("s", "{}")).collect();
    let sealed = submit(&bed.store, &batch).await;
    assert_eq!(sealed.len(), 1_200);
    let seen = see(&bed.store, &batch).await;
    assert_eq!((seen.tasks.len(), seen.handoffs.len(), seen.outbox.len()), (40, 1_200, 1_200));
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 1_200));
}

pub async fn an_idempotency_key_is_kept_and_taken_once(bed: Arc<Bed>) {
    let one = given(1, 1);
    let row = idempotency_row(&one, "Schlüssel 1");
    let writes = Writes { idempotency: vec![row.clone()], ..Writes::default() };
    write(&bed.store, writes.clone()).await.unwrap();
    let key = (acme(), agent("alice"), "Schlüssel 1".to_owned());
    let mut other = key.clone();
    other.1 = agent("bob");
    let needs =
        Needs { idempotency: [key.clone(), other].into_iter().collect(), ..Needs::default() };
    let mut seen = None;
    let done = transact(&bed.store, &needs, |state| {
        seen = Some(state);
        Writes::default()
    })
    .await;
    done.unwrap();
    let seen = seen.unwrap();
    assert_eq!(seen.idempotency.len(), 1);
    assert_eq!(seen.idempotency[&key], row);
    let again = write(&bed.store, writes).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
}

pub async fn agents_are_made_changed_found_and_removed(bed: Arc<Bed>) {
    let keys = ["alice", "bob"].map(|name| (acme(), agent(name)));
    let needs = Needs { agents: keys.iter().cloned().collect(), ..Needs::default() };
    let made = transact(&bed.store, &needs, |state| {
        assert!(state.agents.is_empty());
        let mut writes = Writes::default();
        for (key, name) in keys.iter().zip(["alice", "bob"]) {
            writes.agents.insert(key.clone(), Some(agent_row(name, 1)));
        }
        writes
    })
    .await;
    made.unwrap();
    let agents = bed.store.list_agents(&acme()).await.unwrap();
    let open = bed.store.count_open(&acme()).await.unwrap();
    assert_eq!(agents, [agent_row("alice", 1), agent_row("bob", 1)]);
    assert!(open.is_empty());

    let changed = transact(&bed.store, &needs, |state| {
        assert_eq!(state.agents.len(), 2);
        let mut row = state.agents[&keys[0]].clone();
        "planner".clone_into(&mut row.agent.agent_type);
        "{}".clone_into(&mut row.secrets);
        row.updated_at = Micros(7);
        let mut writes = Writes::default();
        writes.agents.insert(keys[0].clone(), Some(row));
        writes.agents.insert(keys[1].clone(), None);
        writes
    })
    .await;
    changed.unwrap();
    let agents = bed.store.list_agents(&acme()).await.unwrap();
    assert_eq!(agents.len(), 1);
    assert_eq!(
        (agents[0].agent.agent_type.as_str(), agents[0].secrets.as_str()),
        ("planner", "{}")
    );
    assert_eq!((agents[0].created_at, agents[0].updated_at), (Micros(1), Micros(7)));
}

pub async fn what_changes_among_the_agents_is_counted_and_told(bed: Arc<Bed>) {
    let count = async || bed.store.count_agent_changes(&acme()).await.unwrap();
    let told = async |after| bed.store.list_changed_agents(&acme(), after).await.unwrap();
    let have = async |rows: &[(&str, Option<AgentRow>)]| {
        let keys = rows.iter().map(|(name, _)| (acme(), agent(name)));
        let needs = Needs { agents: keys.clone().collect(), ..Needs::default() };
        let rows = keys.zip(rows.iter().map(|(_, row)| row.clone())).collect();
        let writes = Writes { agents: rows, ..Writes::default() };
        transact(&bed.store, &needs, |_| writes.clone()).await.unwrap();
    };
    assert_eq!((count().await, told(0).await), (0, Vec::new()));
    let (alice, bob) = (agent_row("alice", 9), agent_row("bob", 9));
    have(&[("alice", Some(alice.clone())), ("bob", Some(bob.clone()))]).await;
    let made = count().await;
    assert!(made > 0);
    assert_eq!(told(0).await, [(agent("alice"), Some(alice)), (agent("bob"), Some(bob.clone()))]);
    assert_eq!(told(made).await, []);

    // Each kind of change counts, also of a broker whose clock is behind.
    let mut paused = agent_row("alice", 3);
    paused.agent.state = AgentState::Paused;
    have(&[("alice", Some(paused.clone()))]).await;
    let changed = count().await;
    assert!(changed > made);
    assert_eq!(told(made).await, [(agent("alice"), Some(paused.clone()))]);
    r#"{"v":2}"#.clone_into(&mut paused.secrets);
    have(&[("alice", Some(paused.clone()))]).await;
    assert!(count().await > changed);
    assert_eq!(told(changed).await, [(agent("alice"), Some(paused.clone()))]);
    let rotated = count().await;
    have(&[("alice", None)]).await;
    assert!(count().await > rotated);
    assert_eq!(told(rotated).await, [(agent("alice"), None)]);
    assert_eq!(told(0).await, [(agent("alice"), None), (agent("bob"), Some(bob))]);
    let gone = count().await;
    have(&[("alice", Some(paused.clone()))]).await;
    assert_eq!(told(gone).await, [(agent("alice"), Some(paused))]);

    let beta = "beta".parse().unwrap();
    assert_eq!(bed.store.count_agent_changes(&beta).await.unwrap(), 0, "a tenant's own");
    assert_eq!(bed.store.list_changed_agents(&beta, 0).await.unwrap(), []);
}

/// A reader that reads the number sees every change up to it: else it never sees one that is committed late.
pub async fn no_change_of_an_agent_is_counted_before_it_is_there(bed: Arc<Bed>) {
    const WRITERS: i64 = 4;
    const CHANGES: i64 = 12;
    let other = bed.second().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            let name = format!("agent-{writer}");
            let key = (acme(), agent(&name));
            let needs = Needs { agents: [key.clone()].into_iter().collect(), ..Needs::default() };
            for change in 1..=CHANGES {
                let row = agent_row(&name, change);
                let writes =
                    Writes { agents: [(key.clone(), Some(row))].into(), ..Writes::default() };
                while let Err(err) = transact(&store, &needs, |_| writes.clone()).await {
                    assert!(matches!(err, StoreError::Conflict(_)), "{err}");
                }
            }
        });
    }
    let mut known = std::collections::BTreeMap::new();
    let mut seen = 0;
    while seen < WRITERS * CHANGES {
        let count = bed.store.count_agent_changes(&acme()).await.unwrap();
        for (id, row) in bed.store.list_changed_agents(&acme(), seen).await.unwrap() {
            known.insert(id, row);
        }
        seen = count;
        tokio::task::yield_now().await;
    }
    while writers.join_next().await.transpose().unwrap().is_some() {}
    let whole = bed.store.list_agents(&acme()).await.unwrap();
    assert_eq!(known.into_values().map(Option::unwrap).collect::<Vec<_>>(), whole);
}

pub async fn an_agent_is_made_once_by_whoever_is_first(bed: Arc<Bed>) {
    let other = bed.second().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8u8 {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            let key = (acme(), agent("alice"));
            let needs = Needs { agents: [key.clone()].into_iter().collect(), ..Needs::default() };
            let mut made = false;
            let done = transact(&store, &needs, |state| {
                let mut writes = Writes::default();
                made = state.agents.is_empty();
                if made {
                    let mut row = agent_row("alice", 1);
                    row.secrets = writer.to_string();
                    writes.agents.insert(key.clone(), Some(row));
                }
                writes
            })
            .await;
            match done {
                Ok(_) => made.then(|| writer.to_string()),
                Err(StoreError::Conflict(_)) => None,
                Err(err) => panic!("{err}"),
            }
        });
    }
    let made: Vec<String> = writers.join_all().await.into_iter().flatten().collect();
    let agents = bed.store.list_agents(&acme()).await.unwrap();
    assert_eq!(made, [agents[0].secrets.clone()], "who was told that it made it did");
}

pub async fn keys_are_made_changed_and_found_by_hash(bed: Arc<Bed>) {
    let row = key_row("k1", 1);
    let key = (acme(), row.key_id.clone());
    let mut writes = Writes::default();
    writes.keys.insert(key.clone(), row.clone());
    writes.keys.insert((acme(), "k2".to_owned()), key_row("k2", 2));
    write(&bed.store, writes).await.unwrap();
    assert_eq!(bed.store.find_key(&row.hash).await.unwrap(), Some(row.clone()));
    assert_eq!(bed.store.find_key(&[0; 32]).await.unwrap(), None);
    assert_eq!(bed.store.list_keys(&acme()).await.unwrap(), [row.clone(), key_row("k2", 2)]);

    let needs = Needs { keys: [key.clone()].into_iter().collect(), ..Needs::default() };
    let revoked = transact(&bed.store, &needs, |state| {
        let mut row = state.keys[&key].clone();
        row.expires_at = Some(Micros(5));
        let mut writes = Writes::default();
        writes.keys.insert(key.clone(), row);
        writes
    })
    .await;
    revoked.unwrap();
    let found = bed.store.find_key(&row.hash).await.unwrap().unwrap();
    assert_eq!(found.expires_at, Some(Micros(5)));

    let mut writes = Writes::default();
    let twin = handoffd::store::KeyRow { key_id: "k3".to_owned(), ..row };
    writes.keys.insert((acme(), "k3".to_owned()), twin);
    let err = write(&bed.store, writes).await;
    assert!(matches!(err, Err(StoreError::Conflict(_))), "a hash is one key's: {err:?}");
}

pub async fn dead_letters_are_kept(bed: Arc<Bed>) {
    let letters = [given(1, 1).dead_letter(), given(2, 1).dead_letter()];
    let writes = Writes { dead_letters: letters.to_vec(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    for letter in &letters {
        let key = (acme(), letter.handoff_id);
        assert_eq!(bed.store.find_dead_letter(&key).await.unwrap().as_ref(), Some(letter));
    }
    assert_eq!(bed.store.find_dead_letter(&(acme(), handoff_id(3))).await.unwrap(), None);
}

pub async fn the_last_checkpoint_of_a_run_is_known(bed: Arc<Bed>) {
    let one = given(1, 1);
    let rows: Vec<_> = (1..=12)
        .map(|seq| {
            let mut row = one.checkpoint();
            row.at.seq = seq;
            row.part.commitment = [u8::try_from(seq).unwrap(); 32];
            row
        })
        .collect();
    let writes = Writes { checkpoints: rows.clone(), ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    let run = (acme(), one.task, execution_id(1));
    let last = bed.store.find_checkpoint(&run, None, None).await.unwrap();
    assert_eq!(last.as_ref(), rows.last());
    assert_eq!(bed.store.find_checkpoint(&run, None, Some(3)).await.unwrap().as_ref(), rows.get(2));
    assert_eq!(bed.store.find_checkpoint(&run, None, Some(13)).await.unwrap(), None);
    let other = (acme(), one.task, execution_id(2));
    assert_eq!(bed.store.find_checkpoint(&other, None, None).await.unwrap(), None);
    let wanted = [(run.clone(), 3), (run.clone(), 13), (other, 3), (run.clone(), 12)];
    let mut found = bed.store.list_checkpoints_at(&wanted).await.unwrap();
    found.sort_by_key(|row| row.at.seq);
    assert_eq!(found, [rows[2].clone(), rows[11].clone()]);
    assert_eq!(bed.store.list_checkpoints_at(&[]).await.unwrap(), []);
    let seen = see(&bed.store, &[one, given(2, 1)]).await;
    assert_eq!(seen.runs.len(), 1);
    let alice = agent("alice");
    let last = |seen: &handoffd::store::BatchState| {
        seen.runs[&run].last(&alice).map(|last| (last.seq, last.commitment))
    };
    assert_eq!((last(&seen), seen.runs[&run].next()), (Some((12, [12; 32])), 13));
    // Rows that another agent stores under the same id share the numbers, and nothing else.
    let mut others = rows[11].clone();
    (others.at.seq, others.agent) = (13, agent("mallory"));
    write(&bed.store, Writes { checkpoints: vec![others.clone()], ..Writes::default() })
        .await
        .unwrap();
    let seen = see(&bed.store, &[given(1, 1)]).await;
    assert_eq!((last(&seen), seen.runs[&run].next()), (Some((12, [12; 32])), 14));
    let own = bed.store.find_checkpoint(&run, Some(&alice), None).await.unwrap();
    assert_eq!(own.as_ref(), rows.last());
    let last = bed.store.find_checkpoint(&run, None, None).await.unwrap();
    assert_eq!(last, Some(others));
    let none = bed.store.find_checkpoint(&run, Some(&alice), Some(13)).await.unwrap();
    assert_eq!(none, None);
    let again = Writes { checkpoints: vec![rows[4].clone()], ..Writes::default() };
    let again = write(&bed.store, again).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
}

pub async fn a_nul_in_a_text_is_kept_or_refused_and_breaks_no_neighbour(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let mut handoff =
        see(&bed.store, std::slice::from_ref(&one)).await.handoffs[&one.key()].clone();
    handoff.reason = Some("be\0fore".to_owned());
    handoff.status = HandoffStatus::Rejected;
    let mut writes = plan(&[given(2, 2)], handoffd::store::BatchState::default());
    writes.handoffs.insert(one.key(), (handoff.clone(), false));
    match write(&bed.store, writes).await {
        Ok(_) => {
            let kept = bed.store.find_handoff(&one.key()).await.unwrap();
            assert_eq!(kept, Some(handoff));
        }
        Err(StoreError::Refused(_)) => {
            let kept = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
            assert_eq!(kept.status, HandoffStatus::Pending);
            assert_eq!(bed.store.find_handoff(&given(2, 2).key()).await.unwrap(), None);
        }
        Err(err) => panic!("{err}"),
    }
    let next = given(3, 3);
    submit(&bed.store, std::slice::from_ref(&next)).await;
    let task = bed.store.find_task(&next.task_key()).await.unwrap().unwrap();
    assert_eq!(task.status, TaskStatus::HandingOff);
}

/// Puts another value into each column past the store, and updates the row: the columns that keep it are those that an
/// update leaves alone, the same ones on both databases.
pub async fn an_update_leaves_the_same_columns_alone(bed: Arc<Bed>) {
    const OF_TASKS: &[&str] = &["created_at", "opened_by"];
    const OF_HANDOFFS: &[&str] = &[
        "conversation_id",
        "created_at",
        "digest",
        "digest_salt",
        "origin",
        "parent_id",
        "source",
        "source_execution",
        "source_version",
        "span",
        "task_id",
        "traceparent",
        "tracestate",
        "user_ref",
    ];
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let handoff = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    let task = bed.store.find_task(&one.task_key()).await.unwrap().unwrap();
    let mut writes = Writes::default();
    writes.tasks.insert(one.task_key(), (task, false));
    let flag = !handoff.idempotent;
    writes.handoffs.insert(one.key(), (handoff, false));
    let mut raw = bed.raw().await;
    for (table, fixed) in [("tasks", OF_TASKS), ("handoffs", OF_HANDOFFS)] {
        let mut unchanged = Vec::new();
        for (column, other) in other_values(&bed, table, flag).await {
            raw.run(&format!("UPDATE {table} SET {column} = {other}")).await.unwrap();
            write(&bed.store, writes.clone()).await.unwrap();
            if raw.count(&format!("{table} WHERE {column} = {other}")).await == 1 {
                unchanged.push(column);
            }
        }
        unchanged.sort();
        assert_eq!(unchanged, fixed, "of {table}");
    }
}

/// The columns of a table besides its key, each with a value that no row has.
async fn other_values(bed: &Bed, table: &str, flag: bool) -> Vec<(String, String)> {
    let sql = match bed.side {
        Side::Sqlite => format!(
            "SELECT CAST(group_concat(name || ' ' || lower(type), ',') AS BLOB) \
             FROM pragma_table_info('{table}')"
        ),
        _ => format!(
            "SELECT convert_to(string_agg(column_name || ' ' || data_type, ','), 'UTF8') \
             FROM information_schema.columns WHERE table_name = '{table}'"
        ),
    };
    let columns = String::from_utf8(bed.raw().await.blob(&sql).await).unwrap();
    let columns = columns.split(',').map(|column| column.split_once(' ').unwrap());
    let keys = ["tenant", if table == "tasks" { "task_id" } else { "handoff_id" }];
    columns
        .filter(|(name, _)| !keys.contains(name))
        .map(|(name, kind)| {
            let other = match kind {
                "text" => "'another'".to_owned(),
                "bytea" => "'\\x77'::bytea".to_owned(),
                "blob" => "X'77'".to_owned(),
                "boolean" => flag.to_string(),
                _ => "77".to_owned(),
            };
            (name.to_owned(), other)
        })
        .collect()
}
