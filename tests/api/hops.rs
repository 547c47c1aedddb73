//! Tasks as long as `gate.max_hops` may allow: every page that shows a task shows these, and nothing recurses over hops.

use std::time::Duration;

use handoffd::clock::random_id;
use handoffd::store::{CheckpointRow, Needs, Store, Writes};
use handoffd_domain::course::Course;
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::handoff::{CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::bundle::{VerifyOptions, verify};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{
    Actor, ActorRole, RecordContent, RecordDraft, RecordKind, RecordParty,
};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;
use tokio::time::Instant;

use crate::harness::{Broker, Caller, Kind, Settings, run, until};

/// Handoffs in one commit of the store.
const AT_ONCE: usize = 500;

/// The time of the first handoff, microseconds.
const FIRST: i64 = 1_781_000_000_000_000;

fn party(name: &str, execution: Option<ExecutionId>) -> RecordParty {
    RecordParty {
        agent_id: Some(name.parse().unwrap()),
        agent_type: Some("worker".to_owned()),
        agent_version: Some("1.0.0".to_owned()),
        registered_version: None,
        execution_id: execution,
    }
}

/// A chain of handoffs, as a ledger commits them, each with its record, its message and its event.
struct Chain {
    tenant: TenantId,
    task: TaskId,
    run: ExecutionId,
    parent: Option<HandoffId>,
    length: i64,
}

impl Chain {
    fn cost(&self) -> Cost {
        let spent = Usd(1_000_000 * self.length);
        Cost { spent, remaining: Usd(9_000_000_000), prompt_tokens: 10, completion_tokens: 1 }
    }

    /// The checkpoint of the last hop.
    fn checkpoint(&self) -> CheckpointRef {
        CheckpointRef { execution_id: self.run, seq: self.length }
    }

    fn next(&mut self, writes: &mut Writes) {
        self.length += 1;
        let (source, target) = if self.length % 2 == 1 { ("a", "b") } else { ("b", "a") };
        let (id, at, cost) = (HandoffId(random_id()), Micros(FIRST + self.length), self.cost());
        let message = json!({
            "taskDescription": format!("hop {}", self.length),
            "currentState": { "note": self.length },
            "results": [{ "finding": "f".repeat(200) }],
        });
        let part = PackedContent::new(
            CommitmentSubject::Message,
            random_id().into_bytes(),
            message.to_string().as_bytes(),
        );
        let content = RecordContent { id: ContentId(random_id()), part };
        let state = PackedContent::new(
            CommitmentSubject::Checkpoint,
            random_id().into_bytes(),
            json!({ "step": self.length }).to_string().as_bytes(),
        );
        let mut handoff = self.handoff((id, at), (source, target), &content);
        handoff.checkpoint_commitment = Some(state.commitment);
        let actor = Actor { role: ActorRole::Agent, agent_id: source.parse().ok(), key_id: None };
        let mut draft = RecordDraft::new(self.tenant.clone(), RecordKind::Handoff, at, actor);
        (draft.task_id, draft.handoff_id) = (Some(self.task), Some(id));
        draft.parent_handoff_id = self.parent;
        (draft.from, draft.to) = (Some(party(source, Some(self.run))), Some(party(target, None)));
        (draft.status, draft.cost) = (Some("PENDING"), Some(cost));
        draft.content = Some(content);
        draft.checkpoint_commitment = Some(state.commitment);
        writes.checkpoints.push(CheckpointRow {
            tenant: self.tenant.clone(),
            task_id: self.task,
            at: self.checkpoint(),
            agent: source.parse().unwrap(),
            part: state,
            created_at: at,
        });
        let event = Event::of_handoff(EventType::HandoffOccurred, &handoff, at);
        writes.events.push((writes.records.len(), event));
        writes.records.push(draft);
        writes.handoffs.insert((self.tenant.clone(), id), (handoff, true));
        self.parent = Some(id);
    }

    fn handoff(
        &self,
        (id, at): (HandoffId, Micros),
        (source, target): (&str, &str),
        content: &RecordContent,
    ) -> Handoff {
        Handoff {
            tenant: self.tenant.clone(),
            id,
            task_id: self.task,
            parent_id: self.parent,
            source: source.parse().unwrap(),
            source_version: "1.0.0".to_owned(),
            source_execution: self.run,
            target: target.parse().unwrap(),
            target_type: "worker".to_owned(),
            target_version: "1.0.0".to_owned(),
            mode: DeliveryMode::Pull,
            status: HandoffStatus::Pending,
            fencing_token: self.length,
            attempts: 0,
            deadline_at: None,
            pulse: None,
            cost: self.cost(),
            idempotent: false,
            checkpoint: Some(self.checkpoint()),
            content_id: Some(content.id),
            digest_salt: vec![3; 16],
            digest: vec![7; 32],
            checkpoint_commitment: None,
            commitment: Some(content.part.commitment),
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
            traceparent: String::new(),
            tracestate: String::new(),
            span: String::new(),
            created_at: at,
            clock: LatencyClock { started_at: at, offered_at: None },
            accepted_at: None,
            ended_at: None,
        }
    }

    fn row(&self) -> Task {
        let last = Micros(FIRST + self.length);
        Task {
            tenant: self.tenant.clone(),
            id: self.task,
            status: TaskStatus::HandingOff,
            holder: "a".parse().unwrap(),
            checkpoint: None,
            fence: self.length,
            handoffs: self.length,
            undelivered: 0,
            failures: 0,
            course: Course::default(),
            spent: self.cost().spent,
            remaining: self.cost().remaining,
            topped_up: Usd(0),
            opened_by: "a".parse().ok(),
            funds: None,
            created_at: Micros(FIRST + 1),
            updated_at: last,
        }
    }
}

/// Puts a task of so many hops into a broker's store, in the store's own commits; returns its id.
async fn long_task(store: &Store, hops: usize) -> String {
    let tenant = store.list_tenants().await.unwrap().remove(0);
    let (task, run) = (TaskId(random_id()), ExecutionId(random_id()));
    let mut chain = Chain { tenant, task, run, parent: None, length: 0 };
    let mut left = hops;
    while left > 0 {
        let mut writes = Writes::default();
        let is_new = chain.length == 0;
        for _ in 0..left.min(AT_ONCE) {
            chain.next(&mut writes);
        }
        left -= left.min(AT_ONCE);
        let key = (chain.tenant.clone(), task);
        let mut needs = Needs::default();
        needs.tasks.insert(key.clone());
        writes.tasks.insert(key, (chain.row(), is_new));
        store.transact(&needs, &mut |_| writes.clone()).await.unwrap();
    }
    task.to_string()
}

/// Hops of the cases that CI runs: a build without optimisation shows each page of them within seconds.
const FEW: usize = 1_000;

/// The longest answer to wait for: a bundle of ten thousand hops in a build without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_mins(20);

const LONG: Settings<'static> = &[("HANDOFFD_GATE__MAX_HOPS", "10000")];

/// FINDINGS S10 of 0.3.0: the cost of a task recursed over its hops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_a_task_shows_a_thousand_hops_on_sqlite() {
    run(Kind::Sqlite, LONG, async |broker| pages(broker, FEW).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_a_task_shows_a_thousand_hops_on_postgres() {
    run(Kind::Postgres, LONG, async |broker| pages(broker, FEW).await).await;
}

/// As many hops as `gate.max_hops` can allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes in a build without optimisation: scripts/hops"]
async fn every_page_of_a_task_shows_ten_thousand_hops() {
    run(Kind::Sqlite, LONG, async |broker| pages(broker, 10_000).await).await;
}

/// Shows a task of so many hops on each page and by each command, and prints the time of each.
async fn pages(broker: &Broker, hops: usize) {
    let store = broker.store().await;
    let began = Instant::now();
    let task = long_task(&store, hops).await;
    println!("{hops} hops made: {:.1?}", began.elapsed());
    let get = async |path: &str| page(broker, &format!("/tasks/{task}{path}")).await;
    let length = |value: &Value| value.as_array().unwrap().len();
    assert_eq!(get("").await["status"], "HANDING_OFF");
    let trace = get("/trace").await;
    assert_eq!((length(&trace["handoffs"]), length(&trace["records"])), (hops, hops));
    assert_eq!(trace["verification"]["ok"], true, "{}", trace["verification"]);
    assert_eq!(length(&get("/cost").await["hops"]), hops);
    let blamed = get("/blame?pointer=/currentState/note").await;
    assert_eq!(blamed["value"], hops);
    events(broker, &task, hops).await;
    let listed = page(broker, &format!("/handoffs?taskId={task}&limit=100")).await;
    assert_eq!(length(&listed["items"]), 100);
    commands(broker, &task, hops).await;
    let bytes = bundle(broker, &task).await;
    assert!(bytes.len() > hops * 100);
    store.close().await;
}

/// An answer of the API, and its size and time on standard output.
async fn page(broker: &Broker, path: &str) -> Value {
    let began = Instant::now();
    let answer = broker.admin.request(Method::GET, path).timeout(PATIENCE).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    let bytes = answer.bytes().await.unwrap();
    println!("GET {path}: {} bytes, {:.1?}", bytes.len(), began.elapsed());
    serde_json::from_slice(&bytes).unwrap()
}

/// `handoffd trace` in both forms.
async fn commands(broker: &Broker, task: &str, hops: usize) {
    let url = ["--url", &broker.admin.base, "--key", broker.admin.key.as_deref().unwrap()];
    for form in ["text", "json"] {
        let began = Instant::now();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command.args(["--output", form, "trace", task]).args(url);
        command.envs(broker.settings.iter().map(|(name, value)| (name, value)));
        let said = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert!(said.stdout.len() > hops * 40, "{} bytes", said.stdout.len());
        println!("handoffd trace, {form}: {} bytes, {:.1?}", said.stdout.len(), began.elapsed());
    }
}

/// Reads the events of a task until all commits were told.
async fn events(broker: &Broker, task: &str, hops: usize) {
    let began = Instant::now();
    let admin = &broker.admin;
    let ask = admin.request(Method::GET, &format!("/tasks/{task}/events")).timeout(PATIENCE);
    let mut answer = ask.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut told, mut rest) = (0, String::new());
    while told < hops {
        rest.push_str(&String::from_utf8_lossy(&answer.chunk().await.unwrap().unwrap()));
        let whole = rest.rfind('\n').map_or(0, |end| end + 1);
        told += rest[..whole].matches("event: agent.handoff.occurred").count();
        rest.drain(..whole);
    }
    println!("GET /tasks/ID/events: {:.1?}", began.elapsed());
}

/// Makes the bundle of a task, with its report, and verifies it; prints the time of both.
async fn bundle(broker: &Broker, task: &str) -> Vec<u8> {
    let began = Instant::now();
    let bytes = made(&broker.admin, task).await;
    let took = began.elapsed();
    let began = Instant::now();
    verified(&bytes);
    println!(
        "bundle of {} bytes: made in {took:.1?}, verified in {:.1?}",
        bytes.len(),
        began.elapsed()
    );
    bytes
}

/// The bundle of a task.
async fn made(api: &Caller, task: &str) -> Vec<u8> {
    let path = format!("/tasks/{task}/trace?format=bundle");
    let ask = api.request(Method::GET, &path).timeout(PATIENCE);
    let answer = ask.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap().to_vec()
}

/// Verifies a bundle, which has no fault.
fn verified(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let report = verify(file.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.first_fault, None);
}

/// FINDINGS E8 of 0.3.0: making and verifying a bundle took more than linear time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: scripts/hops"]
async fn a_bundle_of_four_thousand_hops() {
    run(Kind::Sqlite, LONG, async |broker: &Broker| {
        let store = broker.store().await;
        for hops in [1_000, 2_000, 4_000] {
            let task = long_task(&store, hops).await;
            println!("{hops} hops");
            bundle(broker, &task).await;
        }
        store.close().await;
    })
    .await;
}

/// The rows that statements have read from the tables of a broker's database so far, also those that a sort dropped again.
/// The broker restarts for it, since a connection tells its counts when it ends; returns a client of the new one.
async fn rows_read(broker: &Broker) -> (i64, Caller) {
    const OTHERS: &str = "SELECT pid FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    const READ: &str = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint \
         FROM pg_stat_user_tables";
    let mut database = sqlx::PgConnection::connect(&broker.url).await.unwrap();
    let old: Vec<i32> = sqlx::query_scalar(OTHERS).fetch_all(&mut database).await.unwrap();
    let api = broker.restart().await;
    until("the connections have ended", async || {
        let now: Vec<i32> = sqlx::query_scalar(OTHERS).fetch_all(&mut database).await.unwrap();
        let left = old.iter().filter(|pid| now.contains(pid)).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are there")) }
    })
    .await;
    // Plans follow from the tables' statistics, which are collected here and not at some time in between.
    sqlx::query("ANALYZE").execute(&mut database).await.unwrap();
    let read: i64 = sqlx::query_scalar(READ).fetch_one(&mut database).await.unwrap();
    database.close().await.unwrap();
    (read, api)
}

/// The number of this thread's reads by system calls so far, and their bytes; `None` on a system without such counts.
fn read_so_far() -> Option<[i64; 2]> {
    let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let of = |name: &str| {
        let line = counts.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some([of("syscr:")?, of("rchar:")?])
}

/// Twice the hops are at most this many times the work, in percent. Proportional work is near 200, work by pairs 400.
const TWICE: i64 = 260;

/// FINDINGS E8 of 0.3.0, counted: a bundle's checkpoints were read anew for each page of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twice_the_hops_of_a_bundle_are_twice_the_rows_and_reads() {
    run(Kind::Postgres, LONG, async |broker: &Broker| {
        let mut work = Vec::new();
        for hops in [FEW / 2, FEW] {
            let store = broker.store().await;
            let task = long_task(&store, hops).await;
            store.close().await;
            let (before, api) = rows_read(broker).await;
            let bytes = made(&api, &task).await;
            let rows = rows_read(broker).await.0 - before;
            let before = read_so_far();
            verified(&bytes);
            let read = before.zip(read_so_far());
            let read = read.map_or([0, 0], |(from, to)| [to[0] - from[0], to[1] - from[1]]);
            work.push([rows, read[0], read[1], bytes.len() as i64]);
        }
        println!("rows, reads, bytes read, bytes of the bundle: {work:?}");
        assert!(work[1][0] > 2 * FEW as i64, "{work:?}");
        for (few, many) in work[0].into_iter().zip(work[1]) {
            assert!(many * 100 <= few * TWICE, "{work:?}");
        }
    })
    .await;
}
