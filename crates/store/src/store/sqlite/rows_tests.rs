//! Rows there and back, claims and lists: the cases that the chunked statements need beside the
//! conformance suite.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use uuid::Uuid;

use super::tests::{AT, SqliteBench, agent, committed, outbox, record};
use super::*;
use crate::store::tables::outbox;
use crate::store::{AgentRow, ClaimRelease, IdempotencyRow, KeyRow, Role, StoreError};
use handoffd_domain::agent::Agent;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::handoff::{CheckpointRef, HandoffStatus};
use handoffd_domain::ids::{ExecutionId, HandoffId};
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{Actor, RecordDraft, RecordKind};

#[tokio::test]
async fn what_is_written_is_loaded_and_changed_in_chunks_of_every_size() {
    let bench = SqliteBench::new().await;
    let writes = committed(&bench, 1..152);
    let mut needs = Needs {
        tasks: writes.tasks.keys().cloned().collect(),
        handoffs: writes.handoffs.keys().cloned().collect(),
        ..Needs::default()
    };
    needs.tasks.insert((bench.tenant.clone(), TaskId(Uuid::max())));
    let sealed = bench.write(writes.clone()).await.unwrap();
    assert_eq!(
        sealed.iter().map(|s| s.leaf_index).collect::<Vec<_>>(),
        (0..151).collect::<Vec<_>>()
    );

    let state = bench.load(&needs).await;
    assert!(state.tasks.iter().all(|(key, task)| writes.tasks[key].0 == *task));
    assert!(state.handoffs.iter().all(|(key, row)| writes.handoffs[key].0 == *row));
    assert!(state.outbox.iter().all(|(key, row)| writes.outbox[key].as_ref() == Some(row)));
    assert_eq!((state.tasks.len(), state.handoffs.len(), state.outbox.len()), (151, 151, 151));

    let mut changes = Writes::default();
    for (key, mut task) in state.tasks {
        task.fence += 10;
        task.checkpoint =
            Some(CheckpointRef { execution_id: ExecutionId(Uuid::from_u128(9)), seq: 4 });
        changes.tasks.insert(key, (task, false));
    }
    for (n, (key, mut handoff)) in state.handoffs.into_iter().enumerate() {
        handoff.status = HandoffStatus::Accepted;
        handoff.reason = Some("ok".to_owned());
        handoff.deadline_at = None;
        let row = outbox(&handoff, 8);
        changes.outbox.insert(key.clone(), (n % 2 == 0).then_some(row));
        changes.handoffs.insert(key, (handoff, false));
    }
    assert!(bench.write(changes.clone()).await.unwrap().is_empty());
    let state = bench.load(&needs).await;
    assert!(state.tasks.iter().all(|(key, task)| changes.tasks[key].0 == *task));
    assert!(state.handoffs.iter().all(|(key, row)| changes.handoffs[key].0 == *row));
    assert_eq!(state.outbox.len(), 76);
    assert!(state.outbox.values().all(|row| row.seq == 8));

    let again = bench.write(committed(&bench, 151..160)).await.unwrap_err();
    assert!(matches!(again, StoreError::Conflict(_)), "{again}");
    let mut unknown = Writes::default();
    let task = bench.task(777);
    unknown.tasks.insert((bench.tenant.clone(), task.id), (task, false));
    assert!(matches!(bench.write(unknown).await, Err(StoreError::Denied(_))));
    let mut elsewhere = Writes::default();
    let nobody: TenantId = "nobody".parse().unwrap();
    elsewhere.records.push(RecordDraft::new(nobody, RecordKind::NoOp, AT, Actor::broker()));
    assert!(matches!(bench.write(elsewhere).await, Err(StoreError::Denied(_))));
    assert_eq!(bench.store.find_head(&bench.tenant).await.unwrap().unwrap().size, 151);
}

#[tokio::test]
async fn the_smaller_rows_come_back_as_they_went() {
    let bench = SqliteBench::new().await;
    let tenant = bench.tenant.clone();
    let (task, execution) = (bench.task(1), ExecutionId(Uuid::from_u128(9)));
    let checkpoint = |seq| CheckpointRow {
        tenant: tenant.clone(),
        task_id: task.id,
        at: CheckpointRef { execution_id: execution, seq },
        agent: agent("a"),
        part: PackedContent::new(CommitmentSubject::Checkpoint, [seq.to_le_bytes()[0]; 16], b"{}"),
        created_at: AT,
    };
    let idempotency = IdempotencyRow {
        tenant: tenant.clone(),
        agent: agent("a"),
        key: "k \"'ü".to_owned(),
        handoff_id: HandoffId(Uuid::from_u128(1)),
        created_at: AT,
    };
    let letter = DeadLetterRow {
        tenant: tenant.clone(),
        handoff_id: HandoffId(Uuid::from_u128(2)),
        task_id: task.id,
        source: agent("a"),
        target: None,
        reason: "SAFETY_VIOLATION".to_owned(),
        failures: vec![Failure::new(Stage::Safety, Code::SafetyViolation, "/x", "no").of_rule("r")],
        status: DeadLetterStatus::Open,
        created_at: AT,
        resolved_at: None,
        resolved_by: None,
    };
    let row = AgentRow {
        tenant: tenant.clone(),
        agent: Agent::new(agent("a")),
        secrets: "{}".to_owned(),
        created_at: AT,
        updated_at: AT,
    };
    let key = KeyRow {
        tenant: tenant.clone(),
        key_id: "k1".to_owned(),
        hash: vec![7; 32],
        role: Role::Agent,
        agent: Some(agent("a")),
        label: "label".to_owned(),
        created_at: AT,
        expires_at: None,
    };
    let (agent_key, key_key) = ((tenant.clone(), agent("a")), (tenant.clone(), "k1".to_owned()));
    let idempotency_key = (tenant.clone(), agent("a"), idempotency.key.clone());
    let run = (tenant.clone(), task.id, execution);
    let mut writes = Writes {
        checkpoints: vec![checkpoint(2), checkpoint(1)],
        idempotency: vec![idempotency.clone()],
        dead_letters: vec![letter.clone()],
        ..Writes::default()
    };
    writes.agents.insert(agent_key.clone(), Some(row.clone()));
    writes.keys.insert(key_key.clone(), key.clone());
    bench.write(writes).await.unwrap();

    let needs = Needs {
        runs: [(run.clone(), agent("a"))].into(),
        idempotency: [idempotency_key.clone()].into(),
        agents: [agent_key.clone()].into(),
        keys: [key_key.clone()].into(),
        ..Needs::default()
    };
    let state = bench.load(&needs).await;
    assert_eq!(
        state.runs[&run].last(&agent("a")).map(|last| (last.seq, last.commitment)),
        Some((2, checkpoint(2).part.commitment))
    );
    assert_eq!(state.idempotency[&idempotency_key], idempotency);
    assert_eq!(state.agents[&agent_key], row);
    assert_eq!(state.keys[&key_key], key);

    let store = &bench.store;
    assert_eq!(store.find_checkpoint(&run, None, None).await.unwrap(), Some(checkpoint(2)));
    assert_eq!(store.find_checkpoint(&run, None, Some(1)).await.unwrap(), Some(checkpoint(1)));
    assert_eq!(store.find_checkpoint(&run, None, Some(3)).await.unwrap(), None);
    assert_eq!(store.find_key(&[7; 32]).await.unwrap(), Some(key.clone()));
    assert_eq!(store.list_keys(&tenant).await.unwrap(), std::slice::from_ref(&key));
    let id = (tenant.clone(), letter.handoff_id);
    assert_eq!(store.find_dead_letter(&id).await.unwrap(), Some(letter.clone()));
    let open = DeadLetterFilter { status: Some(DeadLetterStatus::Open), ..Default::default() };
    let listed = store.list_dead_letters(&tenant, &open, None, 9).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&letter));
    let unknown = "UPDATE dead_letters SET status = 'LATER'";
    bench.raw().execute(unknown, []).unwrap();
    assert!(matches!(store.find_dead_letter(&id).await, Err(StoreError::Refused(_))));
    assert_eq!(store.settle_fact("f", b"1").await.unwrap(), b"1");
    assert_eq!(store.settle_fact("f", b"2").await.unwrap(), b"1");

    let mut changes = Writes::default();
    changes.agents.insert(agent_key, None);
    changes.keys.insert(key_key, KeyRow { expires_at: Some(AT), ..key });
    bench.write(changes).await.unwrap();
    assert!(store.list_agents(&tenant).await.unwrap().is_empty());
    assert_eq!(store.find_key(&[7; 32]).await.unwrap().unwrap().expires_at, Some(AT));
}

#[tokio::test]
async fn who_is_due_is_found_without_reading_all_that_waits() {
    let bench = SqliteBench::new().await;
    let sql = format!("EXPLAIN QUERY PLAN {}", outbox::DUE_RECEIVERS.sqlite);
    let raw = bench.raw();
    let mut explained = raw.prepare(&sql).unwrap();
    let steps = explained.query_map(("webhook", 1, 5), |row| row.get("detail")).unwrap();
    let plan: Vec<String> = steps.map(|step| step.unwrap()).collect();
    assert!(plan.iter().all(|step| !step.starts_with("SCAN o ")), "{plan:#?}");
    let by_receiver = "SEARCH o USING INDEX outbox_order (tenant=? AND target=?)";
    assert!(plan.iter().any(|step| step == by_receiver), "{plan:#?}");
}

#[tokio::test]
async fn claims_go_in_order_wait_their_turn_and_carry_what_is_kept() {
    let bench = SqliteBench::new().await;
    let (store, tenant) = (&bench.store, &bench.tenant);
    let mut writes = committed(&bench, 1..4);
    // A second handoff on the first task.
    let mut second = bench.handoff(50, &bench.task(1));
    writes.records.push(record(&mut second, &"long ".repeat(300)));
    writes.outbox.insert((tenant.clone(), second.id), Some(outbox(&second, 2)));
    writes.handoffs.insert((tenant.clone(), second.id), (second.clone(), true));
    bench.write(writes).await.unwrap();

    let receiver = (tenant.clone(), agent("b"));
    let (now, until) = (Micros(3_000_000), Micros(9_000_000));
    let due = store.list_due_receivers(DeliveryMode::Webhook, now, 5).await.unwrap();
    assert_eq!(due, std::slice::from_ref(&receiver));
    assert!(store.list_due_receivers(DeliveryMode::Pull, now, 5).await.unwrap().is_empty());

    store.beat("me", now).await.unwrap();
    let raw = bench.raw();
    raw.execute_batch(
        "UPDATE personal_data SET salt = NULL, bytes = NULL WHERE subject_id = 'zoe'",
    )
    .unwrap();
    let claims = store.claim(&receiver, DeliveryMode::Webhook, "me", now, until, 2).await.unwrap();
    let ids = |claims: &[DeliveryClaim]| -> Vec<u128> {
        claims.iter().map(|claim| claim.handoff_id.0.as_u128()).collect()
    };
    assert_eq!(ids(&claims), [1, 2]);
    assert_eq!(claims[0].body, &b"message 1"[..]);
    assert_eq!(claims[0].personal, [b"\"adam\"".to_vec()]);
    assert_eq!((claims[0].attempt, claims[0].idempotent), (1, true));
    assert_eq!(
        ids(&store.claim(&receiver, DeliveryMode::Webhook, "me", now, until, 9).await.unwrap()),
        [3]
    );
    assert!(
        store
            .claim(&receiver, DeliveryMode::Webhook, "me", now, until, 9)
            .await
            .unwrap()
            .is_empty()
    );

    // The first of the task settled: the second may go; its message was erased meanwhile.
    let mut settled = Writes::default();
    settled.outbox.insert((tenant.clone(), claims[0].handoff_id), None);
    bench.write(settled).await.unwrap();
    raw.execute_batch("UPDATE contents SET salt = NULL, bytes = NULL WHERE codec = 'zstd'")
        .unwrap();
    let claims =
        store.claim(&receiver, DeliveryMode::Webhook, "other", now, until, 9).await.unwrap();
    assert_eq!((ids(&claims), claims[0].body.len()), (vec![50], 0));
    let content = store.find_content(tenant, second.content_id.unwrap()).await.unwrap();
    assert_eq!(content.unwrap().kept, crate::store::ContentStorage::Erased);

    // "other" never said that it lives; "me" did.
    assert_eq!(store.release(ClaimRelease::Silent("other", None)).await.unwrap(), 1);
    let claims = store
        .claim(&receiver, DeliveryMode::Webhook, "me", Micros(4_000_000), until, 9)
        .await
        .unwrap();
    assert_eq!((ids(&claims), claims[0].attempt), (vec![50], 2));
    assert_eq!(store.release(ClaimRelease::Own("me")).await.unwrap(), 3);
}

#[tokio::test]
async fn lists_page_newest_first_and_records_carry_their_content() {
    let bench = SqliteBench::new().await;
    let (store, tenant) = (&bench.store, &bench.tenant);
    let sealed = bench.write(committed(&bench, 1..6)).await.unwrap();
    let filter = HandoffFilter { party: Some(agent("b")), ..HandoffFilter::default() };
    let first = store.list_handoffs(tenant, &filter, None, 2).await.unwrap();
    let last = first.last().unwrap();
    let after = (last.created_at, last.id.to_string());
    let second = store.list_handoffs(tenant, &filter, Some(&after), 2).await.unwrap();
    let ids: Vec<_> = first.iter().chain(&second).map(|h| h.id.0.as_u128()).collect();
    assert_eq!(ids, [5, 4, 3, 2]);
    let of_task = HandoffFilter { task_id: Some(TaskId(Uuid::from_u128(3))), ..filter.clone() };
    assert_eq!(store.list_handoffs(tenant, &of_task, None, 9).await.unwrap().len(), 1);
    let none = HandoffFilter { status: Some(HandoffStatus::Failed), ..filter };
    assert!(store.list_handoffs(tenant, &none, None, 9).await.unwrap().is_empty());
    let filter = TaskFilter {
        party: Some(agent("b")),
        status: Some(TaskStatus::HandingOff),
        ..TaskFilter::default()
    };
    assert_eq!(store.list_tasks(tenant, &filter, None, 9).await.unwrap().len(), 5);
    assert_eq!(store.count_open(tenant).await.unwrap()[&agent("b")], 5);
    assert_eq!(store.list_overdue(Micros(2_000_000), 3).await.unwrap().len(), 3);
    assert!(store.list_overdue(Micros(1_999_999), 3).await.unwrap().is_empty());

    let key = (tenant.clone(), HandoffId(Uuid::from_u128(3)));
    assert_eq!(store.find_receipt(&key).await.unwrap().as_ref(), Some(&sealed[2]));
    let records = store.list_records(tenant, None, 1, 3, true).await.unwrap();
    assert_eq!(records.iter().map(|r| r.leaf_index).collect::<Vec<_>>(), [1, 2, 3]);
    let kept = records[0].content.as_ref().unwrap().kept.hot().unwrap();
    assert_eq!((kept.0, kept.2), ([3u8; 16].as_slice(), b"message 2".as_slice()));
    let subjects: Vec<_> = records[0].personal.iter().map(|p| p.subject_id.as_str()).collect();
    assert_eq!(subjects, ["zoe", "adam"]);
    let task = TaskId(Uuid::from_u128(4));
    let bare = store.list_records(tenant, Some(task), 0, 9, false).await.unwrap();
    assert_eq!((bare.len(), bare[0].leaf_index, bare[0].content.is_none()), (1, 3, true));
}
