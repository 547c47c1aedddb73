//! Tasks as long as `gate.max_hops` may allow: every page that shows a task shows these, and nothing recurses over hops.

use handoffd::bundle::{VerifyOptions, verify};
use handoffd::clock::random_id;
use handoffd::domain::course::Course;
use handoffd::domain::event::{Event, EventType};
use handoffd::domain::handoff::{Cost, DeliveryMode, Handoff, HandoffStatus};
use handoffd::domain::ids::{ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd::domain::latency::LatencyClock;
use handoffd::domain::money::Usd;
use handoffd::domain::task::{Task, TaskStatus};
use handoffd::evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd::evidence::record::{
    Actor, ActorRole, RecordContent, RecordDraft, RecordKind, RecordParty,
};
use handoffd::store::{Needs, Store, Writes};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Broker, Kind, run};

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
        let handoff = self.handoff((id, at), (source, target), &content);
        let actor = Actor { role: ActorRole::Agent, agent_id: source.parse().ok(), key_id: None };
        let mut draft = RecordDraft::new(self.tenant.clone(), RecordKind::Handoff, at, actor);
        (draft.task_id, draft.handoff_id) = (Some(self.task), Some(id));
        draft.parent_handoff_id = self.parent;
        (draft.from, draft.to) = (Some(party(source, Some(self.run))), Some(party(target, None)));
        (draft.status, draft.cost) = (Some("PENDING"), Some(cost));
        draft.content = Some(content);
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
            checkpoint: None,
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
async fn long_task(store: &dyn Store, hops: usize) -> String {
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

/// FINDINGS S10 of 0.3.0: the cost of a task recursed over its hops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten thousand hops take half a minute in a build without optimisation: by hand"]
async fn every_page_of_a_task_shows_ten_thousand_hops() {
    run(Kind::Sqlite, &[("HANDOFFD_GATE__MAX_HOPS", "10000")], pages).await;
}

async fn pages(broker: &Broker) {
    const HOPS: usize = 10_000;
    let store = broker.store().await;
    let began = Instant::now();
    let task = long_task(&*store, HOPS).await;
    println!("made: {:.1?}", began.elapsed());
    let admin = &broker.admin;
    let get = async |path: &str| {
        let began = Instant::now();
        let body = admin.get(&format!("/tasks/{task}{path}")).await.expect(200).body;
        println!("GET /tasks/ID{path}: {:.1?}", began.elapsed());
        body
    };
    let length = |value: &Value| value.as_array().unwrap().len();
    assert_eq!(get("").await["status"], "HANDING_OFF");
    let trace = get("/trace").await;
    assert_eq!((length(&trace["handoffs"]), length(&trace["records"])), (HOPS, HOPS));
    assert_eq!(trace["verification"]["ok"], true);
    assert_eq!(length(&get("/cost").await["hops"]), HOPS);
    let blamed = get("/blame?pointer=/currentState/note").await;
    assert_eq!(blamed["value"], HOPS);
    events(broker, &task, HOPS).await;
    let listed = admin.get(&format!("/handoffs?taskId={task}&limit=100")).await.expect(200).body;
    assert_eq!(length(&listed["items"]), 100);
    for command in
        [vec!["--output", "text", "trace", &task], vec!["--output", "json", "trace", &task]]
    {
        let began = Instant::now();
        let url = ["--url", &admin.base, "--key", admin.key.as_deref().unwrap()];
        let said = broker.command(&[&command[..], &url[..]].concat()).await;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert!(said.stdout.len() > HOPS * 40, "{} bytes", said.stdout.len());
        println!("handoffd {} trace: {:.1?}", command[1], began.elapsed());
    }
    let bytes = bundle(broker, &task).await;
    assert!(bytes.len() > HOPS * 100);
    store.close().await;
}

/// Reads the events of a task until all commits were told.
async fn events(broker: &Broker, task: &str, hops: usize) {
    let began = Instant::now();
    let admin = &broker.admin;
    let ask = admin.http.get(format!("{}/tasks/{task}/events", admin.base));
    let mut answer = ask.bearer_auth(admin.key.as_deref().unwrap()).send().await.unwrap();
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
    let admin = &broker.admin;
    let ask = admin.http.get(format!("{}/tasks/{task}/trace?format=bundle", admin.base));
    let answer = ask.bearer_auth(admin.key.as_deref().unwrap()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let bytes = answer.bytes().await.unwrap().to_vec();
    let made = began.elapsed();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let began = Instant::now();
    let report = verify(file.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.first_fault, None);
    println!(
        "bundle of {} bytes: made in {made:.1?}, verified in {:.1?}",
        bytes.len(),
        began.elapsed()
    );
    bytes
}

/// FINDINGS E8 of 0.3.0: making and verifying a bundle took more than linear time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: by hand, with --nocapture"]
async fn a_bundle_of_four_thousand_hops() {
    run(Kind::Sqlite, &[], async |broker: &Broker| {
        let store = broker.store().await;
        for hops in [1_000, 2_000, 4_000] {
            let task = long_task(&*store, hops).await;
            println!("{hops} hops");
            bundle(broker, &task).await;
        }
        store.close().await;
    })
    .await;
}
