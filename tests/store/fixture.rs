//! Rows to write: small, legal, and different from each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use handoffd::store::{
    AgentRow, BatchState, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow, KeyRow, Needs,
    OutboxRow, ReceiverKey, Result, Role, Store, StoreError, TaskKey, Writes,
};
use handoffd_domain::agent::Agent;
use handoffd_domain::course::Course;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::funds::{Funds, FundsRequest, Spending};
use handoffd_domain::handoff::{
    CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus, Priority,
};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::money::Usd;
use handoffd_domain::stream::{StreamStatus, opens};
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{
    Actor, ActorRole, PersonalPart, RecordContent, RecordDraft, RecordKind, RecordParty,
    SealedRecord, StreamFacts,
};
use uuid::Uuid;

use crate::harness::acme;

pub fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

pub fn task_id(n: u128) -> TaskId {
    TaskId(Uuid::from_u128(0x7a << 96 | n))
}

pub fn handoff_id(n: u128) -> HandoffId {
    HandoffId(Uuid::from_u128(0x4a << 96 | n))
}

pub fn content_id(n: u128) -> ContentId {
    ContentId(Uuid::from_u128(0xc0 << 96 | n))
}

pub fn execution_id(n: u128) -> ExecutionId {
    ExecutionId(Uuid::from_u128(0xe0 << 96 | n))
}

/// One submission as a case describes it. All of its ids follow from `n`.
#[derive(Debug, Clone)]
pub struct Given {
    pub tenant: TenantId,
    pub n: u128,
    pub task: TaskId,
    pub target: AgentId,
    pub mode: DeliveryMode,
    pub priority: Priority,
    pub at: Micros,
    pub body: Vec<u8>,
    pub personal: Vec<(&'static str, Vec<u8>)>,
}

/// Submission `n` on task `task`, at the microsecond `n`, to `bob`, by webhook.
pub fn given(n: u128, task: u128) -> Given {
    Given {
        tenant: acme(),
        n,
        task: task_id(task),
        target: agent("bob"),
        mode: DeliveryMode::Webhook,
        priority: Priority::default(),
        at: Micros(i64::try_from(n).unwrap()),
        body: format!(r#"{{"n":{n},"text":"{}"}}"#, "lorem ipsum ".repeat(30)).into_bytes(),
        personal: Vec::new(),
    }
}

impl Given {
    pub fn to(mut self, target: &str) -> Self {
        self.target = agent(target);
        self
    }

    pub fn by_pull(mut self) -> Self {
        self.mode = DeliveryMode::Pull;
        self
    }

    pub fn wanted(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    pub fn at(mut self, at: i64) -> Self {
        self.at = Micros(at);
        self
    }

    pub fn of(mut self, tenant: &str) -> Self {
        self.tenant = tenant.parse().unwrap();
        self
    }

    pub fn about(mut self, subject: &'static str, data: &str) -> Self {
        self.personal.push((subject, data.as_bytes().to_vec()));
        self
    }

    pub fn id(&self) -> HandoffId {
        handoff_id(self.n)
    }

    pub fn key(&self) -> HandoffKey {
        (self.tenant.clone(), self.id())
    }

    pub fn task_key(&self) -> TaskKey {
        (self.tenant.clone(), self.task)
    }

    pub fn receiver(&self) -> ReceiverKey {
        (self.tenant.clone(), self.target.clone())
    }

    fn part(&self, subject: CommitmentSubject, content: &[u8]) -> PackedContent {
        PackedContent::new(subject, self.n.to_be_bytes(), content)
    }

    pub fn execution(&self) -> ExecutionId {
        execution_id(self.n)
    }

    pub fn checkpoint(&self) -> CheckpointRow {
        CheckpointRow {
            tenant: self.tenant.clone(),
            task_id: self.task,
            at: CheckpointRef { execution_id: self.execution(), seq: 1 },
            agent: agent("alice"),
            part: self.part(
                CommitmentSubject::Checkpoint,
                format!("{{\"state\":{}}}", self.n).as_bytes(),
            ),
            created_at: self.at,
        }
    }

    pub fn handoff(&self) -> Handoff {
        Handoff {
            tenant: self.tenant.clone(),
            id: self.id(),
            task_id: self.task,
            parent_id: self.n.is_multiple_of(2).then(|| handoff_id(self.n + 1)),
            source: agent("alice"),
            source_version: "1.2.3".to_owned(),
            source_execution: self.execution(),
            target: self.target.clone(),
            target_type: "reviewer".to_owned(),
            target_version: "2.0.0".to_owned(),
            mode: self.mode,
            status: HandoffStatus::Pending,
            fencing_token: 0,
            attempts: 0,
            deadline_at: None,
            pulse: None,
            cost: Cost {
                spent: Usd(1_500_000_000),
                remaining: Usd(-3),
                prompt_tokens: 120,
                completion_tokens: 7,
            },
            idempotent: self.n % 2 == 1,
            checkpoint: Some(CheckpointRef { execution_id: self.execution(), seq: 1 }),
            content_id: Some(content_id(self.n)),
            digest_salt: vec![3; 16],
            digest: vec![0, 255, 7],
            checkpoint_commitment: Some([8; 32]),
            commitment: Some([7; 32]),
            origin: None,
            ruling: None,
            context: None,
            sent_id: None,
            questions: Vec::new(),
            conversation_id: Some(format!("talk-{}", self.n % 2)),
            user_ref: Some(format!("u_{}", self.n % 2)),
            stream: None,
            topped_up: Usd(11),
            reason: None,
            traceparent: format!("00-{:032x}-00f067aa0ba902b7-01", self.n),
            tracestate: format!("vendor={}", self.n),
            span: format!("00-{:032x}-b7ad6b7169203331-01", self.n),
            created_at: self.at,
            clock: LatencyClock { started_at: Micros(self.at.0 - 5), offered_at: None },
            accepted_at: None,
            ended_at: None,
        }
    }

    pub fn record(&self, kind: RecordKind) -> RecordDraft {
        let actor = Actor {
            role: ActorRole::Agent,
            agent_id: Some(agent("alice")),
            key_id: Some("k1".to_owned()),
        };
        let mut draft = RecordDraft::new(self.tenant.clone(), kind, self.at, actor);
        draft.task_id = Some(self.task);
        draft.handoff_id = Some(self.id());
        draft.to = Some(RecordParty {
            agent_id: Some(self.target.clone()),
            agent_type: None,
            agent_version: None,
            execution_id: None,
            registered_version: None,
        });
        draft.status = Some("PENDING");
        draft
    }

    /// A content of its own, by a number of the case's.
    pub fn content(&self, number: u128, bytes: &[u8]) -> RecordContent {
        let part = self.part(CommitmentSubject::Message, bytes);
        RecordContent { id: content_id(number), part }
    }

    /// The record of the submission, with its content and personal data.
    pub fn submission(&self) -> RecordDraft {
        let mut draft = self.record(RecordKind::Handoff);
        draft.content = Some(RecordContent {
            id: content_id(self.n),
            part: self.part(CommitmentSubject::Message, &self.body),
        });
        draft.checkpoint_commitment = Some(self.checkpoint().part.commitment);
        let opens = serde_json::from_slice(&self.body).is_ok_and(|message| opens(&message));
        draft.stream = opens.then_some(StreamFacts { status: StreamStatus::Open, seq: 0 });
        draft.personal = self
            .personal
            .iter()
            .map(|(subject, data)| PersonalPart {
                subject_id: (*subject).to_owned(),
                part: self.part(CommitmentSubject::PersonalData, data),
            })
            .collect();
        draft
    }

    pub fn new_task(&self) -> Task {
        Task {
            tenant: self.tenant.clone(),
            id: self.task,
            status: TaskStatus::HandingOff,
            holder: agent("alice"),
            checkpoint: None,
            fence: 0,
            handoffs: 0,
            undelivered: 0,
            failures: 0,
            course: Course::default(),
            spent: Usd(0),
            remaining: Usd(5_000_000_000),
            topped_up: Usd(9),
            opened_by: Some(agent("alice")),
            funds: Some(Box::new(funds())),
            created_at: self.at,
            updated_at: self.at,
        }
    }

    pub fn dead_letter(&self) -> DeadLetterRow {
        use handoffd_domain::failure::{Code, Failure, Stage};
        DeadLetterRow {
            tenant: self.tenant.clone(),
            handoff_id: self.id(),
            task_id: self.task,
            source: agent("alice"),
            target: self.n.is_multiple_of(2).then(|| self.target.clone()),
            reason: "SAFETY_VIOLATION".to_owned(),
            failures: vec![Failure::new(
                Stage::Safety,
                Code::SafetyViolation,
                "/taskDescription",
                "it says \"ignore\" — no",
            )],
            status: DeadLetterStatus::Open,
            created_at: self.at,
            resolved_at: None,
            resolved_by: None,
        }
    }
}

/// The state that a batch of submissions must read.
pub fn needs(batch: &[Given]) -> Needs {
    let mut needs = Needs::default();
    for given in batch {
        needs.tasks.insert(given.task_key());
        needs.handoffs.insert(given.key());
        let run = (given.tenant.clone(), given.task, given.execution());
        needs.runs.insert((run, agent("alice")));
    }
    needs
}

/// Commits each submission on its task, after the ones before it.
pub fn plan(batch: &[Given], mut state: BatchState) -> Writes {
    let mut writes = Writes::default();
    for given in batch {
        let known = state.tasks.get(&given.task_key()).cloned();
        let new =
            known.is_none() || writes.tasks.get(&given.task_key()).is_some_and(|(_, new)| *new);
        let mut task = known.unwrap_or_else(|| given.new_task());
        task.handoffs += 1;
        task.undelivered += 1;
        task.fence += 1;
        task.updated_at = given.at;
        let mut handoff = given.handoff();
        handoff.fencing_token = task.fence;
        writes.outbox.insert(
            given.key(),
            Some(OutboxRow {
                tenant: given.tenant.clone(),
                handoff_id: given.id(),
                task_id: given.task,
                seq: task.handoffs,
                target: given.target.clone(),
                mode: given.mode,
                priority: given.priority,
                visible_at: given.at,
                attempt: 0,
                busy: 0,
                claimed_by: None,
                created_at: given.at,
            }),
        );
        state.tasks.insert(given.task_key(), task.clone());
        writes.tasks.insert(given.task_key(), (task, new));
        writes.handoffs.insert(given.key(), (handoff, true));
        writes.checkpoints.push(given.checkpoint());
        writes.records.push(given.submission());
    }
    writes
}

/// Submits a batch; where another writer was first, again, as the ledger does.
pub async fn submit(store: &Arc<Store>, batch: &[Given]) -> Vec<SealedRecord> {
    let needs = needs(batch);
    for _ in 0..100 {
        match transact(store, &needs, |state| plan(batch, state)).await {
            Err(StoreError::Conflict(_)) => {}
            done => return done.unwrap(),
        }
    }
    panic!("a hundred conflicts in a row");
}

/// [`Store::transact`] for a plan that is made on the spot.
pub async fn transact(
    store: &Arc<Store>,
    needs: &Needs,
    mut plan: impl FnMut(BatchState) -> Writes + Send,
) -> Result<Vec<SealedRecord>> {
    store.transact(needs, &mut plan).await.map(|done| done.records)
}

/// Writes without looking.
pub async fn write(store: &Arc<Store>, writes: Writes) -> Result<Vec<SealedRecord>> {
    transact(store, &Needs::default(), |_| writes.clone()).await
}

/// The state that a batch would read of these handoffs and their tasks.
pub async fn see(store: &Arc<Store>, batch: &[Given]) -> BatchState {
    let mut seen = None;
    let sealed = transact(store, &needs(batch), |state| {
        seen = Some(state);
        Writes::default()
    })
    .await;
    assert_eq!(sealed.unwrap(), []);
    seen.unwrap()
}

/// Ends a delivery: the outbox row goes.
pub async fn settle(store: &Arc<Store>, given: &Given) {
    let needs = needs(std::slice::from_ref(given));
    let done = transact(store, &needs, |state| {
        assert!(state.outbox.contains_key(&given.key()), "settled before");
        let mut writes = Writes::default();
        writes.outbox.insert(given.key(), None);
        writes
    })
    .await;
    done.unwrap();
}

pub fn agent_row(name: &str, at: i64) -> AgentRow {
    let mut agent = Agent::new(agent(name));
    "speaks \"JSON\", ünïcode and NUL: \0".clone_into(&mut agent.description);
    AgentRow {
        tenant: acme(),
        agent,
        secrets: r#"{"v":1}"#.to_owned(),
        created_at: Micros(at),
        updated_at: Micros(at),
    }
}

pub fn key_row(name: &str, at: i64) -> KeyRow {
    KeyRow {
        tenant: acme(),
        key_id: name.to_owned(),
        hash: name.bytes().cycle().take(32).collect(),
        role: Role::Agent,
        agent: Some(agent("alice")),
        label: "läbel".to_owned(),
        created_at: Micros(at),
        expires_at: None,
    }
}

pub fn idempotency_row(given: &Given, key: &str) -> IdempotencyRow {
    IdempotencyRow {
        tenant: given.tenant.clone(),
        agent: agent("alice"),
        key: key.to_owned(),
        handoff_id: given.id(),
        created_at: given.at,
    }
}

/// Asserts that there are no two of the same.
pub fn all_different<T: Ord + std::fmt::Debug>(items: &[T]) {
    let mut seen = BTreeSet::new();
    for item in items {
        assert!(seen.insert(item), "{item:?} is there twice");
    }
}

/// Books with something in each of their places.
fn funds() -> Funds {
    let cost = Cost { spent: Usd(3), remaining: Usd(7), prompt_tokens: 5, completion_tokens: 6 };
    let mut funds = Funds::open(&agent("alice"), &cost, Some(Usd(11)), Usd(9), true);
    let ask = FundsRequest { parent: None, source: &agent("alice"), cost: &cost };
    funds.draw(HandoffId(Uuid::from_u128(77)), &agent("bob"), ask);
    funds.settle(
        HandoffId(Uuid::from_u128(77)),
        Some(Spending { usd: Usd(4), ..Spending::default() }),
    );
    funds
}
