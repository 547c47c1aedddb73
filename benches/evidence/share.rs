//! The tree's and the receipts' share of a commit: what a transaction takes under load, and beside it
//! what sealing, hashing, the tree, proofs and the signature take by themselves for as many records.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use handoffd::clock::random_id;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::append::{AppendedRecords, LogAppender};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::merkle::{Frontier, Hash, TreeGrowth};
use handoffd_evidence::note::Signer;
use handoffd_evidence::receipt::{Notary, Receipt};
use handoffd_evidence::record::{
    Actor, LogHead, RecordContent, RecordDraft, RecordKind, RecordParty,
};

use crate::broker::Broker;
use crate::database::Database;
use crate::world::{agents, client, message, submit};

/// Repetitions of a step that takes microseconds.
const REPEATS: u32 = 2_000;

/// Records of the log that grows: proofs of a long one.
const SIZE: u64 = 10_000_000;

pub async fn run(store: &str, seconds: u64, senders: &[usize]) {
    for count in senders {
        let (transaction, batch) = loaded(store, seconds, *count).await;
        let records = (batch.round() as usize).max(1);
        let alone = alone(records);
        let share = |part: Duration| 100.0 * part.as_secs_f64() / transaction;
        println!(
            "{store}, {count} senders: a transaction {:.2} ms for {batch:.1} handoffs; {records} records sealed \
             and hashed {:.1} us ({:.2} %), tree {:.1} us ({:.2} %), signature and receipts {:.1} us ({:.2} %); \
             tree and receipts together {:.2} %",
            transaction * 1e3,
            alone.seal.as_secs_f64() * 1e6,
            share(alone.seal),
            alone.tree.as_secs_f64() * 1e6,
            share(alone.tree),
            alone.receipts.as_secs_f64() * 1e6,
            share(alone.receipts),
            share(alone.tree + alone.receipts),
        );
    }
}

/// Seconds of a mean transaction, and handoffs in it.
async fn loaded(store: &str, seconds: u64, senders: usize) -> (f64, f64) {
    let database = Database::new(store, env!("CARGO_BIN_EXE_handoffd").into()).await;
    let broker = Arc::new(Broker::start(&database, &[]).await);
    let http = client();
    let key = agents(&http, &broker).await[0].key.clone();
    let over = Arc::new(AtomicBool::new(false));
    let running: Vec<_> = (0..senders)
        .map(|_| {
            let (http, broker) = (http.clone(), Arc::clone(&broker));
            let (key, over) = (key.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let next = message(&random_id().to_string(), None, "a", "b");
                    submit(&http, &broker, &key, &next).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let means = (
        broker.mean("handoff_ledger_commit_duration_seconds").await,
        broker.mean("handoff_ledger_batch_commands").await,
    );
    over.store(true, Ordering::Relaxed);
    for sender in running {
        sender.await.unwrap();
    }
    Arc::into_inner(broker).unwrap().stop().await;
    database.drop().await;
    means
}

/// The time of evidence by itself, for one transaction.
struct Alone {
    seal: Duration,
    tree: Duration,
    receipts: Duration,
}

fn alone(records: usize) -> Alone {
    let tenant: TenantId = "default".parse().unwrap();
    let mut tree = Frontier::default();
    for leaf in 0..SIZE {
        let mut hash = Hash::default();
        hash[..8].copy_from_slice(&leaf.to_be_bytes());
        tree.push(hash, |_, _, _| {});
    }
    let head = LogHead {
        tenant: tenant.clone(),
        log_id: random_id().to_string(),
        size: SIZE as i64,
        hash: vec![7; 32],
        tree: tree.clone(),
    };
    let drafts: Vec<RecordDraft> = (0..records).map(|_| draft(&tenant)).collect();
    let notary = Notary::new(Signer::new(&[7; 32]), "handoffd".to_owned());

    let began = Instant::now();
    let mut leaves: Vec<Hash> = Vec::new();
    for _ in 0..REPEATS {
        let mut log = LogAppender::new(head.clone());
        leaves = drafts.iter().map(|draft| log.append(draft).hash).collect();
    }
    let appended = began.elapsed() / REPEATS;

    let began = Instant::now();
    for _ in 0..REPEATS {
        let mut growth = TreeGrowth::of(tree.clone());
        for leaf in &leaves {
            growth.push(*leaf);
        }
        black_box((growth.kept_nodes().count(), growth.after().to_bytes()));
    }
    let tree = began.elapsed() / REPEATS;

    let began = Instant::now();
    for _ in 0..REPEATS / 10 {
        let mut log = LogAppender::new(head.clone());
        let sealed: Vec<_> = drafts.iter().map(|draft| log.append(draft)).collect();
        let done = AppendedRecords::new(sealed, BTreeMap::from([(tenant.clone(), log)]));
        for record in 0..records {
            let placed = done.placed(&tenant, record).unwrap();
            black_box(Receipt::fresh(&placed, &notary).unwrap());
        }
    }
    let all = began.elapsed() / (REPEATS / 10);
    Alone { seal: appended.saturating_sub(tree), tree, receipts: all.saturating_sub(appended) }
}

/// A handoff's record as a broker drafts it.
pub fn draft(tenant: &TenantId) -> RecordDraft {
    let party = |id: &str| RecordParty {
        agent_id: Some(id.parse().unwrap()),
        agent_type: Some("reviewer".to_owned()),
        agent_version: Some("1.0.0".to_owned()),
        execution_id: None,
        registered_version: None,
    };
    let mut draft = RecordDraft::new(
        tenant.clone(),
        RecordKind::Handoff,
        Micros(1_781_000_000_000_000),
        Actor::broker(),
    );
    draft.task_id = Some(TaskId(random_id()));
    draft.handoff_id = Some(HandoffId(random_id()));
    draft.from = Some(party("legal-review"));
    draft.to = Some(party("risk-score"));
    draft.status = Some("PENDING");
    draft.checkpoint_commitment = Some([3; 32]);
    draft.content = Some(RecordContent {
        id: ContentId(random_id()),
        part: PackedContent::new(
            CommitmentSubject::Message,
            [1; 16],
            b"{\"taskDescription\":\"Review\"}",
        ),
    });
    draft
}
