//! What a handoff costs the SQLite store: a submission and its verdict, alone and in batches of thirty.
//!
//! `cargo bench -p handoffd-store --bench sqlite`. Bytes and rows are those of a 4 KB message. Processor time and
//! context switches are the process's own, as Linux counts them; pages are those of the write-ahead log while a reader
//! keeps the log from beginning anew.

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use handoffd_core::domain::event::{Event, EventType};
use handoffd_core::domain::funds::{Funds, FundsRequest};
use handoffd_core::domain::handoff::{
    CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus, Priority,
};
use handoffd_core::domain::ids::{
    AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId,
};
use handoffd_core::domain::latency::LatencyClock;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::progress::Edge;
use handoffd_core::domain::task::{Task, TaskStatus};
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_core::evidence::record::{Actor, RecordContent, RecordDraft, RecordKind};
use handoffd_store::clock;
use handoffd_store::store::sqlite::{SqliteOptions, SqliteStore};
use handoffd_store::store::{
    AdminStore, BatchState, BatchStore, CheckpointRow, DirectoryStore, IdempotencyRow, Needs,
    OutboxRow, Writes,
};
use tokio::time::Instant;
use uuid::Uuid;

/// Time of each load.
const SPAN: Duration = Duration::from_secs(6);

/// Handoffs before anything is measured, so that tables have some depth.
const BEFORE: usize = 6_000;

/// Handoffs whose pages are counted.
const COUNTED: usize = 300;

/// Bytes of a page in the write-ahead log, with its header.
const PAGE: u64 = 4_096 + 24;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

struct Load {
    store: SqliteStore,
    tenant: TenantId,
    now: i64,
}

/// A handoff between its submission and its verdict.
struct Open {
    task: TaskId,
    handoff: HandoffId,
}

impl Load {
    fn tick(&mut self) -> Micros {
        self.now += 1;
        Micros(self.now)
    }

    fn submission(&mut self, writes: &mut Writes, needs: &mut Needs) -> Open {
        let at = self.tick();
        let tenant = self.tenant.clone();
        let id = || Uuid::from_u128(rand::random());
        let (task_id, handoff_id, run, content) = (
            TaskId(id()),
            HandoffId(id()),
            ExecutionId(id()),
            ContentId(clock::time_ordered_id(at)),
        );
        needs.tasks.insert((tenant.clone(), task_id));
        needs.handoffs.insert((tenant.clone(), handoff_id));
        needs.edges.insert((tenant.clone(), task_id));
        needs.runs.insert((tenant.clone(), task_id, run));
        let (from, to) = (agent("sender-1"), agent("receiver-1"));
        let key = id().to_string();
        needs.idempotency.insert((tenant.clone(), from.clone(), key.clone()));
        let cost = Cost { spent: Usd(10_000_000), remaining: Usd(400_000_000), ..Cost::default() };
        let mut funds = Funds::open(&from, &cost, None, Usd(0), false);
        funds.draw(handoff_id, &to, FundsRequest { parent: None, source: &from, cost: &cost });
        let checkpoint = CheckpointRef { execution_id: run, seq: 1 };
        let task = Task {
            tenant: tenant.clone(),
            id: task_id,
            status: TaskStatus::HandingOff,
            holder: from.clone(),
            checkpoint: Some(checkpoint),
            fence: 1,
            handoffs: 1,
            undelivered: 1,
            failures: 0,
            course: handoffd_core::domain::course::Course::default(),
            spent: cost.spent,
            remaining: cost.remaining,
            topped_up: Usd(0),
            opened_by: Some(from.clone()),
            funds: Some(Box::new(funds)),
            created_at: at,
            updated_at: at,
        };
        let handoff = Handoff {
            tenant: tenant.clone(),
            id: handoff_id,
            task_id,
            parent_id: None,
            source: from.clone(),
            source_version: "1.0.0".to_owned(),
            source_execution: run,
            target: to.clone(),
            target_type: "receiver-1".to_owned(),
            target_version: "1.0.0".to_owned(),
            mode: DeliveryMode::Webhook,
            status: HandoffStatus::Pending,
            fencing_token: 1,
            attempts: 0,
            deadline_at: Some(Micros(at.0 + 600_000_000)),
            cost,
            idempotent: true,
            checkpoint: Some(checkpoint),
            content_id: Some(content),
            digest_salt: vec![1; 16],
            digest: vec![2; 32],
            checkpoint_commitment: Some([8; 32]),
            commitment: Some([7; 32]),
            origin: None,
            ruling: None,
            topped_up: Usd(0),
            reason: None,
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            tracestate: String::new(),
            span: String::new(),
            created_at: at,
            clock: LatencyClock { started_at: at, offered_at: Some(at) },
            accepted_at: None,
            ended_at: None,
        };
        let row = OutboxRow {
            tenant: tenant.clone(),
            handoff_id,
            task_id,
            seq: 1,
            target: to.clone(),
            mode: DeliveryMode::Webhook,
            priority: Priority::Normal,
            visible_at: Micros(at.0 + 30_000_000),
            attempt: 1,
            busy: 0,
            claimed_by: Some("broker-1".to_owned()),
            created_at: at,
        };
        let mut record = RecordDraft::new(tenant.clone(), RecordKind::Handoff, at, Actor::broker());
        record.task_id = Some(task_id);
        record.handoff_id = Some(handoff_id);
        record.content = Some(RecordContent { id: content, part: packed(3_000) });
        let mut edge = Edge::new(tenant.clone(), task_id, from.clone(), to.clone(), at);
        edge.passages = 1;
        writes.events.push((
            writes.records.len(),
            Event::of_handoff(EventType::HandoffOccurred, &handoff, at),
        ));
        writes.records.push(record);
        writes.tasks.insert((tenant.clone(), task_id), (task, true));
        writes.handoffs.insert((tenant.clone(), handoff_id), (handoff, true));
        writes.outbox.insert((tenant.clone(), handoff_id), Some(row));
        writes.edges.insert((tenant.clone(), task_id, from.clone(), to), edge);
        writes.checkpoints.push(CheckpointRow {
            tenant: tenant.clone(),
            task_id,
            at: checkpoint,
            agent: from.clone(),
            part: packed(2_600),
            created_at: at,
        });
        writes.idempotency.push(IdempotencyRow {
            tenant,
            agent: from,
            key,
            handoff_id,
            created_at: at,
        });
        Open { task: task_id, handoff: handoff_id }
    }

    async fn submit(&mut self, count: usize) -> Vec<Open> {
        let (mut writes, mut needs) = (Writes::default(), Needs::default());
        let open = (0..count).map(|_| self.submission(&mut writes, &mut needs)).collect();
        let mut writes = Some(writes);
        self.store.transact(&needs, &mut |_| writes.take().unwrap()).await.unwrap();
        open
    }

    /// The acceptances of open handoffs.
    async fn accept(&mut self, open: &[Open]) {
        let (tenant, at) = (self.tenant.clone(), self.tick());
        let mut needs = Needs::default();
        for Open { task, handoff } in open {
            needs.tasks.insert((tenant.clone(), *task));
            needs.handoffs.insert((tenant.clone(), *handoff));
            needs.accepted.insert(((tenant.clone(), *task), *handoff));
        }
        let mut plan = |mut state: BatchState| {
            let mut writes = Writes::default();
            for Open { task, handoff } in open {
                let (task, handoff) = ((tenant.clone(), *task), (tenant.clone(), *handoff));
                let mut row = state.tasks.remove(&task).unwrap();
                row.status = TaskStatus::Running;
                row.holder = agent("receiver-1");
                row.undelivered = 0;
                row.updated_at = at;
                let mut accepted = state.handoffs.remove(&handoff).unwrap();
                accepted.status = HandoffStatus::Accepted;
                accepted.attempts = 1;
                accepted.accepted_at = Some(at);
                accepted.deadline_at = Some(Micros(at.0 + 3_600_000_000));
                assert!(state.outbox.contains_key(&handoff));
                let mut record =
                    RecordDraft::new(tenant.clone(), RecordKind::Accepted, at, Actor::broker());
                record.task_id = Some(task.1);
                record.handoff_id = Some(handoff.1);
                writes.events.push((
                    writes.records.len(),
                    Event::of_handoff(EventType::HandoffAccepted, &accepted, at),
                ));
                writes.records.push(record);
                writes.outbox.insert(handoff.clone(), None);
                writes.handoffs.insert(handoff, (accepted, false));
                writes.same_books.insert(task.clone());
                writes.tasks.insert(task, (row, false));
            }
            writes
        };
        self.store.transact(&needs, &mut plan).await.unwrap();
    }

    /// Commits handoffs in batches of this size until the time is over.
    async fn run(&mut self, batch: usize) {
        let (cpu, switches, from) = (cpu(), switches(), Instant::now());
        let mut times = Vec::new();
        while from.elapsed() < SPAN {
            let begun = Instant::now();
            let open = self.submit(batch).await;
            times.push(begun.elapsed());
            let begun = Instant::now();
            self.accept(&open).await;
            times.push(begun.elapsed());
        }
        let handoffs = (times.len() / 2 * batch) as f64;
        let (cpu, switches) = (self::cpu() - cpu, self::switches() - switches);
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
        println!(
            "batch {batch:>2}: {:>6.0} handoffs/s; commit p50 {:.2} ms, p99 {:.2} ms; processor {:.3} ms, switches {:.1} a handoff",
            handoffs / from.elapsed().as_secs_f64(),
            at(50),
            at(99),
            cpu / handoffs * 1e3,
            switches / handoffs,
        );
    }

    /// Counts the pages of handoffs committed in batches of this size.
    async fn pages(&mut self, file: &Path, batch: usize) {
        let reader = rusqlite::Connection::open(file).unwrap();
        // Begin with an empty log, and keep it from beginning anew.
        let mut wal = file.as_os_str().to_owned();
        wal.push("-wal");
        let bytes = || std::fs::metadata(&wal).unwrap().len();
        while bytes() > 0 {
            reader.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        }
        let open = self.submit(1).await;
        self.accept(&open).await;
        reader.execute_batch("BEGIN; SELECT count(*) FROM tenants").unwrap();
        let before = bytes();
        for _ in 0..COUNTED / batch {
            let open = self.submit(batch).await;
            self.accept(&open).await;
        }
        let pages = (bytes() - before) as f64 / PAGE as f64 / COUNTED as f64;
        println!("batch {batch:>2}: {pages:.1} pages a handoff");
    }
}

/// Random text that packs to some half of its length.
fn packed(length: usize) -> PackedContent {
    let text: String = (0..length).map(|_| char::from(b'a' + rand::random::<u8>() % 16)).collect();
    PackedContent::new(CommitmentSubject::Message, [3; 16], text.as_bytes())
}

/// Processor seconds of this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = &stat[stat.rfind(')').unwrap()..];
    let ticks: f64 =
        after.split(' ').skip(12).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

/// Context switches of this process's threads.
fn switches() -> f64 {
    let of = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts: BTreeMap<&str, &str> =
            status.lines().filter_map(|line| line.split_once(':')).collect();
        let count = |name: &str| counts.get(name).map_or(0.0, |n| n.trim().parse().unwrap());
        count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches")
    };
    std::fs::read_dir("/proc/self/task").unwrap().map(|task| of(task.unwrap())).sum()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let folder =
            tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or(".".into())).unwrap();
        let file = folder.path().join("h.db");
        let store =
            SqliteStore::open(&format!("sqlite:{}", file.display()), SqliteOptions::serving())
                .await
                .unwrap();
        store.migrate().await.unwrap();
        let tenant: TenantId = "acme".parse().unwrap();
        store.ensure_tenant(&tenant, "log-1", Micros(1)).await.unwrap();
        let mut load = Load { store, tenant, now: 1_700_000_000_000_000 };
        // As the broker's ledger: a task of the runtime, and not the thread that waits for it.
        tokio::spawn(async move {
            for _ in 0..BEFORE / 50 {
                let open = load.submit(50).await;
                load.accept(&open).await;
            }
            load.pages(&file, 1).await;
            load.pages(&file, 30).await;
            for _ in 0..2 {
                load.run(1).await;
                load.run(30).await;
            }
            load.store.close().await;
        })
        .await
        .unwrap();
    });
}
