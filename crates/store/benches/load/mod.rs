//! The load of the store's benchmarks: a submission and its verdict, alone and in batches. Bytes and rows are those of
//! a 4 KB message.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoffd_domain::event::{Event, EventType};
use handoffd_domain::funds::{Funds, FundsRequest};
use handoffd_domain::handoff::{
    CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus, Priority,
};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::money::Usd;
use handoffd_domain::progress::Edge;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{Actor, RecordContent, RecordDraft, RecordKind};
use handoffd_store::clock;
use handoffd_store::store::{
    BatchState, CheckpointRow, IdempotencyRow, Needs, OutboxRow, Store, Writes,
};
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};
use tokio::time::Instant;
use uuid::Uuid;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

/// Commits submissions and verdicts to a store, as the ledger does.
pub(crate) struct Load {
    pub(crate) store: Store,
    tenant: TenantId,
    now: AtomicI64,
}

/// A handoff between its submission and its verdict.
pub(crate) struct Open {
    task: TaskId,
    handoff: HandoffId,
}

impl Load {
    /// A load on an empty store, brought up to date here, with `before` handoffs in it.
    pub(crate) async fn fill(store: Store, before: usize) -> Self {
        store.migrate().await.unwrap();
        let tenant: TenantId = "acme".parse().unwrap();
        store.ensure_tenant(&tenant, "log-1", Micros(1)).await.unwrap();
        let load = Self { store, tenant, now: AtomicI64::new(1_700_000_000_000_000) };
        for _ in 0..before / 50 {
            let open = load.submit(50).await;
            load.accept(&open).await;
        }
        load
    }

    fn tick(&self) -> Micros {
        Micros(self.now.fetch_add(1, Ordering::Relaxed))
    }

    #[expect(clippy::too_many_lines, reason = "one row of each table")]
    fn submission(&self, writes: &mut Writes, needs: &mut Needs) -> Open {
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
        needs.runs.insert(((tenant.clone(), task_id, run), agent("sender-1")));
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
            course: handoffd_domain::course::Course::default(),
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
            pulse: None,
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
            context: None,
            sent_id: None,
            questions: Vec::new(),
            conversation_id: None,
            user_ref: None,
            stream: None,
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

    pub(crate) async fn submit(&self, count: usize) -> Vec<Open> {
        let (mut writes, mut needs) = (Writes::default(), Needs::default());
        let open = (0..count).map(|_| self.submission(&mut writes, &mut needs)).collect();
        let mut writes = Some(writes);
        self.store.transact(&needs, &mut |_| writes.take().unwrap()).await.unwrap();
        open
    }

    /// The acceptances of open handoffs.
    pub(crate) async fn accept(&self, open: &[Open]) {
        let (mut needs, at) = (Needs::default(), self.tick());
        for one in open {
            self.expect(one, &mut needs);
        }
        let mut plan = |mut state: BatchState| {
            let mut writes = Writes::default();
            for one in open {
                self.acceptance(one, at, &mut state, &mut writes);
            }
            writes
        };
        self.store.transact(&needs, &mut plan).await.unwrap();
    }

    fn expect(&self, Open { task, handoff }: &Open, needs: &mut Needs) {
        let tenant = &self.tenant;
        needs.tasks.insert((tenant.clone(), *task));
        needs.handoffs.insert((tenant.clone(), *handoff));
        needs.accepted.insert(((tenant.clone(), *task), *handoff));
    }

    fn acceptance(&self, open: &Open, at: Micros, state: &mut BatchState, writes: &mut Writes) {
        let tenant = &self.tenant;
        let (task, handoff) = ((tenant.clone(), open.task), (tenant.clone(), open.handoff));
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
        writes.same_budget.insert(task.clone());
        writes.tasks.insert(task, (row, false));
    }

    /// Commits handoffs in batches of this size for `span`; `server` reads the processor seconds of a database
    /// outside of this process.
    pub(crate) async fn run(&self, batch: usize, span: Duration, server: impl Fn() -> Option<f64>) {
        let (before, switched, from) = ((cpu(), server()), switches(), Instant::now());
        let (mut submits, mut verdicts) = (Vec::new(), Vec::new());
        while from.elapsed() < span {
            let begun = Instant::now();
            let open = self.submit(batch).await;
            submits.push(begun.elapsed());
            let begun = Instant::now();
            self.accept(&open).await;
            verdicts.push(begun.elapsed());
        }
        let handoffs = (submits.len() * batch) as f64;
        let took = from.elapsed().as_secs_f64();
        let own = (cpu() - before.0) / handoffs * 1e3;
        let server = server().zip(before.1).map(|(now, then)| (now - then) / handoffs * 1e3);
        let server = server.map(|ms| format!(" + {ms:.3} in the server")).unwrap_or_default();
        let mut at = |share: usize| {
            let of = |times: &mut Vec<Duration>| {
                times.sort_unstable();
                times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3
            };
            (of(&mut submits), of(&mut verdicts))
        };
        let (p50, p99) = (at(50), at(99));
        println!(
            "batch {batch:>2}: {:>6.0} handoffs/s; submission p50 {:.2} ms, p99 {:.2} ms; verdict p50 {:.2} ms, \
             p99 {:.2} ms; processor {own:.3} ms{server}, switches {:.1} a handoff",
            handoffs / took,
            p50.0,
            p99.0,
            p50.1,
            p99.1,
            (switches() - switched) / handoffs,
        );
    }
}

/// A command in the queue.
struct Job {
    /// The handoff to accept; none where it is to be submitted.
    open: Option<Open>,
    /// When the submission was due.
    due: Instant,
}

/// Times from when handoffs were due to their commit and to their verdict's.
#[derive(Default)]
struct Times {
    committed: Vec<Duration>,
    settled: Vec<Duration>,
    batches: usize,
}

impl Load {
    /// Submits handoffs at a fixed rate for `span`, each accepted once it is committed, by workers that share one queue
    /// as the ledger's do: a second transaction begins beside one under way once `crowd` commands wait.
    pub(crate) async fn arrive(
        self: Arc<Self>,
        rate: u32,
        workers: usize,
        crowd: usize,
        span: Duration,
        server: impl Fn() -> Option<f64>,
    ) {
        let before = (cpu(), server());
        let (queue, jobs) = mpsc::channel(100_000);
        let crowded = Arc::new(Notify::new());
        let jobs = Arc::new(AsyncMutex::new(jobs));
        let times = Arc::new(Mutex::new(Times::default()));
        for _ in 0..workers {
            let (load, jobs) = (Arc::clone(&self), Arc::clone(&jobs));
            let (queue, times) = (queue.downgrade(), Arc::clone(&times));
            let crowded = Arc::clone(&crowded);
            tokio::spawn(async move {
                loop {
                    let mut batch = Vec::new();
                    let mut jobs = jobs.lock().await;
                    if jobs.recv_many(&mut batch, 64).await == 0 {
                        return;
                    }
                    let commit = load.commit(batch, &times, queue.upgrade());
                    if crowd == 0 || jobs.len() >= crowd {
                        drop(jobs);
                        commit.await;
                        continue;
                    }
                    let mut commit = std::pin::pin!(commit);
                    tokio::select! {
                        biased;
                        () = &mut commit => continue,
                        () = crowded.notified() => drop(jobs),
                    }
                    commit.await;
                }
            });
        }
        let begun = Instant::now();
        let total = (f64::from(rate) * span.as_secs_f64()) as u32;
        for number in 0..total {
            let due = begun + Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            tokio::time::sleep_until(due).await;
            queue.try_send(Job { open: None, due }).unwrap();
            if crowd > 0 && queue.max_capacity() - queue.capacity() >= crowd {
                crowded.notify_one();
            }
        }
        while times.lock().unwrap().settled.len() < total as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(queue);
        let handoffs = f64::from(total);
        let own = (cpu() - before.0) / handoffs * 1e3;
        let server = server().zip(before.1).map(|(now, then)| (now - then) / handoffs * 1e3);
        let mut times = times.lock().unwrap();
        let batches = times.batches as f64;
        times.committed.sort_unstable();
        times.settled.sort_unstable();
        let at = |times: &[Duration], share: usize| {
            times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3
        };
        println!(
            "{rate}/s, {workers} workers, crowd {crowd}: committed p50 {:.1} ms, p99 {:.1} ms; settled p50 {:.1} ms, p99 {:.1} ms; \
             processor {own:.3} ms + {:.3} in the server; {:.1} commands a batch",
            at(&times.committed, 50),
            at(&times.committed, 99),
            at(&times.settled, 50),
            at(&times.settled, 99),
            server.unwrap_or_default(),
            2.0 * handoffs / batches,
        );
    }

    async fn commit(
        &self,
        batch: Vec<Job>,
        times: &Mutex<Times>,
        queue: Option<mpsc::Sender<Job>>,
    ) {
        let (mut writes, mut needs, at) = (Writes::default(), Needs::default(), self.tick());
        let mut opened = Vec::new();
        for job in &batch {
            match &job.open {
                None => opened.push((self.submission(&mut writes, &mut needs), job.due)),
                Some(open) => self.expect(open, &mut needs),
            }
        }
        let mut plan = |mut state: BatchState| {
            let mut writes = writes.clone();
            for open in batch.iter().filter_map(|job| job.open.as_ref()) {
                self.acceptance(open, at, &mut state, &mut writes);
            }
            writes
        };
        self.store.transact(&needs, &mut plan).await.unwrap();
        let mut times = times.lock().unwrap();
        times.batches += 1;
        for job in batch.iter().filter(|job| job.open.is_some()) {
            times.settled.push(job.due.elapsed());
        }
        for (open, due) in opened {
            times.committed.push(due.elapsed());
            if let Some(queue) = &queue {
                queue.try_send(Job { open: Some(open), due }).unwrap();
            }
        }
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
