//! The narrow waist: everything that is kept, behind one trait with two sides, SQLite and Postgres.
//!
//! Writes are batches. [`Store::transact`] opens one transaction, loads and locks what a batch of
//! commands needs, lets the ledger plan, writes the plan with a few statements, seals the records
//! under the log's head (locked last), and commits. Reads are named queries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;

use crate::domain::agent::Agent;
use crate::domain::cap::{Cap, CapKey, Scope};
use crate::domain::escalation::{Escalation, EscalationStatus};
use crate::domain::event::Event;
use crate::domain::failure::Failure;
use crate::domain::funds::Reserve;
use crate::domain::handoff::{CheckpointRef, DeliveryMode, Handoff, HandoffStatus, Priority};
use crate::domain::ids::{
    AgentId, ContentId, EscalationId, ExecutionId, HandoffId, Micros, TaskId, TenantId,
};
use crate::domain::progress::Edge;
use crate::domain::task::{Task, TaskStatus};
use crate::domain::trace_context::{TraceContext, TraceParent};
use crate::evidence::append::Appended;
use crate::evidence::commitment::{Codec, Part};
use crate::evidence::merkle::Hash;
use crate::evidence::record::{Draft, LogHead, Sealed};

pub use cold::{ColdStore, Kept};

pub mod caps;
pub mod cold;
pub mod contracts;
pub mod events;
use erasure::{
    Erase, ErasureKey, ErasureNeeds, ErasureRow, ErasureState, HeldDatum, HoldKey, HoldRow,
    Scrubbed,
};

pub mod erasure;
#[cfg(test)]
pub mod memory;
pub mod postgres;
mod rows;
pub mod schemas;
pub mod sqlite;

/// What can go wrong with a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or is too busy: nothing was written, try again.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another writer was first: load and plan anew.
    #[error("the store saw a concurrent write: {0}")]
    Conflict(String),
    /// It holds or was given something that it cannot take.
    #[error("the store refused: {0}")]
    Refused(String),
}

/// A store's answer.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Names a task.
pub type TaskKey = (TenantId, TaskId);
/// Names a handoff.
pub type HandoffKey = (TenantId, HandoffId);
/// Names an agent.
pub type AgentKey = (TenantId, AgentId);
/// Names the checkpoints of one run on one task.
pub type RunKey = (TenantId, TaskId, ExecutionId);
/// Names an `Idempotency-Key` of one agent.
pub type IdempotencyKey = (TenantId, AgentId, String);

/// Names an edge of a task: from whom, to whom.
pub type EdgeKey = (TenantId, TaskId, AgentId, AgentId);
/// Names an escalation.
pub type EscalationKey = (TenantId, EscalationId);

/// What a batch of commands must see before it can be planned.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Tasks, locked.
    pub tasks: BTreeSet<TaskKey>,
    /// Handoffs with their outbox rows; guarded by their task's lock. The agents that one falls back
    /// to come with it, unlocked.
    pub handoffs: BTreeSet<HandoffKey>,
    /// Tasks whose edges are needed; guarded by the task's lock.
    pub edges: BTreeSet<TaskKey>,
    /// Tasks whose open handoffs (with their outbox rows) and open escalation are needed; guarded by
    /// the task's lock.
    pub open: BTreeSet<TaskKey>,
    /// Dead letters; guarded by their task's lock.
    pub dead_letters: BTreeSet<HandoffKey>,
    /// The last checkpoint of a run.
    pub runs: BTreeSet<RunKey>,
    /// What an `Idempotency-Key` was used for.
    pub idempotency: BTreeSet<IdempotencyKey>,
    /// Agents, locked.
    pub agents: BTreeSet<AgentKey>,
    /// Keys by id, locked.
    pub keys: BTreeSet<(TenantId, String)>,
    /// Subscriptions, locked.
    pub subscriptions: BTreeSet<events::SubscriptionKey>,
    /// Versions of contracts.
    pub contracts: BTreeSet<contracts::ContractKey>,
    /// Payload schemas, in all their versions.
    pub payload_schemas: BTreeSet<schemas::PayloadSchemaKey>,
    /// What dedupe keys were seen with, locked.
    pub repeats: BTreeSet<contracts::RepeatKey>,
    /// Tenants whose caps are needed, with agents that get or spend something: theirs, the tenant's, and
    /// those of whoever has money on a task that is found; locked, last of all.
    pub caps: BTreeMap<TenantId, BTreeSet<AgentId>>,
    /// Caps that are needed besides, locked.
    pub cap_scopes: BTreeSet<Scope>,
    /// Data subjects, erasures, legal holds.
    pub erasure: ErasureNeeds,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Tasks that exist.
    pub tasks: BTreeMap<TaskKey, Task>,
    /// Handoffs that exist.
    pub handoffs: BTreeMap<HandoffKey, Handoff>,
    /// Outbox rows that exist, by handoff.
    pub outbox: BTreeMap<HandoffKey, OutboxRow>,
    /// The last checkpoint of a run.
    pub runs: BTreeMap<RunKey, LastCheckpoint>,
    /// Uses of an `Idempotency-Key`.
    pub idempotency: BTreeMap<IdempotencyKey, IdempotencyRow>,
    /// Edges of tasks.
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Open escalations.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    /// Dead letters.
    pub dead_letters: BTreeMap<HandoffKey, DeadLetterRow>,
    /// Agents that exist.
    pub agents: BTreeMap<AgentKey, AgentRow>,
    /// Keys that exist.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// Subscriptions that exist.
    pub subscriptions: BTreeMap<events::SubscriptionKey, events::SubscriptionRow>,
    /// Versions of contracts that exist.
    pub contracts: BTreeMap<contracts::ContractKey, contracts::ContractRow>,
    /// Versions of payload schemas that exist.
    pub payload_schemas: BTreeMap<schemas::PayloadSchemaVersion, schemas::PayloadSchemaRow>,
    /// What dedupe keys were seen with.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    /// Caps that exist.
    pub caps: BTreeMap<CapKey, Cap>,
    /// Whose caps were looked for.
    pub cap_scopes: BTreeSet<Scope>,
    /// Data subjects, erasures, legal holds.
    pub erasure: ErasureState,
}

impl State {
    /// The agents to which handoffs here may fall back, and that are not here yet.
    #[must_use]
    pub fn fallbacks(&self) -> BTreeSet<AgentKey> {
        self.handoffs
            .values()
            .filter_map(|handoff| handoff.ruling.as_ref().map(|ruling| (&handoff.tenant, ruling)))
            .flat_map(|(tenant, ruling)| {
                ruling.fallbacks().into_iter().map(|id| (tenant.clone(), id))
            })
            .filter(|key| !self.agents.contains_key(key))
            .collect()
    }

    /// Whose caps a batch must see, once everything else is here: a reserve that counts against a cap says
    /// so itself, also where nobody asks for its tenant's caps.
    #[must_use]
    pub fn charged(&self, needs: &Needs) -> BTreeSet<Scope> {
        let reserves: Vec<(&TenantId, &Reserve)> = self
            .tasks
            .values()
            .filter_map(|task| Some((&task.tenant, task.funds.as_deref()?)))
            .flat_map(|(tenant, funds)| funds.reserves.iter().map(move |one| (tenant, one)))
            .collect();
        let mut tenants: BTreeSet<&TenantId> = needs.caps.keys().collect();
        let marked = reserves.iter().filter(|(_, one)| !one.marks.is_empty());
        tenants.extend(marked.map(|(tenant, _)| *tenant));
        let mut scopes = needs.cap_scopes.clone();
        for tenant in tenants {
            let asked = needs.caps.get(tenant).into_iter().flatten();
            let parties = self.handoffs.values().filter(|one| one.tenant == *tenant);
            let held = reserves.iter().filter(|(own, _)| *own == tenant);
            let agents = asked
                .chain(held.map(|(_, one)| &one.holder))
                .chain(parties.flat_map(|one| [&one.source, &one.target]))
                .chain(self.agents.keys().filter(|key| key.0 == *tenant).map(|key| &key.1));
            scopes.insert((tenant.clone(), None));
            scopes.extend(agents.map(|agent| (tenant.clone(), Some(agent.clone()))));
        }
        scopes
    }
}

/// What is known of a run's last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Its number.
    pub seq: i64,
    /// What records name it by.
    pub commitment: [u8; 32],
    /// Whose run it is.
    pub agent: AgentId,
}

/// What a batch changes. New rows are inserted (a collision is a [`StoreError::Conflict`]), known
/// ones updated.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Tasks by key; `true` where the row is new.
    pub tasks: BTreeMap<TaskKey, (Task, bool)>,
    /// Handoffs by key; `true` where the row is new.
    pub handoffs: BTreeMap<HandoffKey, (Handoff, bool)>,
    /// Outbox rows by handoff: `Some` to have it so, `None` to have it gone.
    pub outbox: BTreeMap<HandoffKey, Option<OutboxRow>>,
    /// New checkpoints.
    pub checkpoints: Vec<CheckpointRow>,
    /// New uses of an `Idempotency-Key`.
    pub idempotency: Vec<IdempotencyRow>,
    /// Dead letters: new, or decided on.
    pub dead_letters: Vec<DeadLetterRow>,
    /// Edges of tasks as they are now.
    pub edges: BTreeMap<EdgeKey, Edge>,
    /// Escalations: new, or decided on.
    pub escalations: BTreeMap<EscalationKey, Escalation>,
    /// Agents by key; `None` removes.
    pub agents: BTreeMap<AgentKey, Option<AgentRow>>,
    /// Keys by id: new, or changed.
    pub keys: BTreeMap<(TenantId, String), KeyRow>,
    /// How what waits for an agent is delivered from now on, at once: a pause between attempts was the
    /// old endpoint's. What is claimed at that time is left alone.
    pub retargets: BTreeMap<AgentKey, (DeliveryMode, Micros)>,
    /// Legal holds by id: new, or changed.
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// Erasures by id: new, or changed.
    pub erasures: BTreeMap<ErasureKey, ErasureRow>,
    /// What goes, each with the record of it in `records`.
    pub erased: Vec<Erase>,
    /// Records to append, in order.
    pub records: Vec<Draft>,
    /// Events, each with the index of its record among `records`.
    pub events: Vec<(usize, Event)>,
    /// Subscriptions by key; `None` removes.
    pub subscriptions: BTreeMap<events::SubscriptionKey, Option<events::SubscriptionRow>>,
    /// New versions of contracts.
    pub contracts: Vec<contracts::ContractRow>,
    /// New versions of payload schemas.
    pub payload_schemas: Vec<schemas::PayloadSchemaRow>,
    /// What dedupe keys were seen with: new, or changed.
    pub repeats: BTreeMap<contracts::RepeatKey, contracts::RepeatRow>,
    /// Caps by key: new, or changed; `None` removes.
    pub caps: BTreeMap<CapKey, Option<Cap>>,
    /// What becomes of subscribers' cursors, in order.
    pub cursors: Vec<events::CursorWrite>,
}

/// A handoff that still has to reach its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// Its place among the task's handoffs; lower ones go first.
    pub seq: i64,
    /// Who receives.
    pub target: AgentId,
    /// How.
    pub mode: DeliveryMode,
    /// Of what waits for a receiver, the more urgent goes first.
    pub priority: Priority,
    /// Nobody may claim it before.
    pub visible_at: Micros,
    /// Attempts begun, counting the current one.
    pub attempt: i32,
    /// The broker that holds the claim.
    pub claimed_by: Option<String>,
    /// When the handoff was committed.
    pub created_at: Micros,
}

/// A claimed handoff: what the dispatcher needs for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its organisation.
    pub tenant: TenantId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// Who receives.
    pub target: AgentId,
    /// This attempt's number, from 1.
    pub attempt: i32,
    /// The fencing token to deliver.
    pub fencing_token: i64,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    /// The attempt before has no known end (its broker died, or was taken for dead): it may have reached
    /// the receiver.
    pub unsettled: bool,
    /// Attempts after the first, at most, where its contract says so.
    pub max_retries: Option<u32>,
    /// How long the receiver has for its verdict, in milliseconds, where its contract says so.
    pub verdict_ms: Option<u64>,
    /// Trace context of the submission.
    pub traceparent: String,
    /// The `tracestate` that came with it; empty for none.
    pub tracestate: String,
    /// The broker's own span under which it was committed, as a `traceparent`; empty where nothing was
    /// exported.
    pub span: String,
    /// When the handoff was committed.
    pub created_at: Micros,
    /// The canonical message without checkpoint and personal data.
    pub body: Vec<u8>,
    /// Personal data by subject, canonical; given to entitled receivers only.
    pub personal: Vec<Vec<u8>>,
}

impl Claim {
    /// Where its delivery goes on in a trace: under the broker's own span where there is one, else under
    /// the sender's.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let came = TraceContext::of_message(&self.traceparent, Some(&self.tracestate))?;
        let parent = match TraceParent::parse(&self.span) {
            Some(own) => own.of_trace(&came.parent),
            None => came.parent,
        };
        Some(TraceContext { parent, ..came })
    }

    /// Whether the attempt before `attempt` has no known end, from what is kept. The outbox counts an
    /// attempt when it is claimed, the handoff when it is settled; and what is settled to be tried
    /// again says why, which tells it from a first attempt that was claimed with its commit.
    #[must_use]
    pub const fn follows_unsettled(attempt: i32, settled: i32, why: bool) -> bool {
        let before = attempt - 1;
        before > 0 && (before > settled || !why)
    }

    /// The message as delivered: whole for a receiver that is entitled to personal data.
    #[must_use]
    pub fn delivered(&self, entitled: bool) -> Vec<u8> {
        let personal = if entitled { &self.personal[..] } else { &[] };
        crate::domain::personal::whole(&self.body, personal)
    }
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// On which task.
    pub task_id: TaskId,
    /// Which of the task's.
    pub at: CheckpointRef,
    /// Whose state.
    pub agent: AgentId,
    /// The state.
    pub part: Part,
    /// When.
    pub created_at: Micros,
}

/// A use of an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Whose key.
    pub agent: AgentId,
    /// The key.
    pub key: String,
    /// The handoff it made.
    pub handoff_id: HandoffId,
    /// When.
    pub created_at: Micros,
}

/// A handoff kept from delivery until a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// The handoff; a dead letter has its id.
    pub handoff_id: HandoffId,
    /// On which task.
    pub task_id: TaskId,
    /// From whom.
    pub source: AgentId,
    /// To whom, as addressed.
    pub target: Option<AgentId>,
    /// The primary reason.
    pub reason: String,
    /// Everything that the gate found.
    pub failures: Vec<Failure>,
    /// `OPEN`, later `RELEASED` or `DISCARDED`.
    pub status: String,
    /// When.
    pub created_at: Micros,
    /// When it was decided on.
    pub resolved_at: Option<Micros>,
    /// By whom: a key's id.
    pub resolved_by: Option<String>,
}

/// An agent as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// What it is.
    pub agent: Agent,
    /// Its secrets, encrypted under the master key: JSON, opaque to the store.
    pub secrets: String,
    /// When it was registered.
    pub created_at: Micros,
    /// When it was changed last.
    pub updated_at: Micros,
}

/// What a key may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Bound to one agent: sends and answers for it.
    Agent,
    /// Runs the tenant: agents, allowlists, dead letters.
    Operator,
    /// Reads evidence, changes nothing.
    Auditor,
    /// All that, and keys.
    Admin,
}

impl Role {
    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    /// Reads a role back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Agent, Self::Operator, Self::Auditor, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// An API key as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Public name of the key.
    pub key_id: String,
    /// SHA-256 of the key; the key itself is 256 random bits and needs no slow hash.
    pub hash: Vec<u8>,
    /// What it may do.
    pub role: Role,
    /// The agent it is bound to.
    pub agent: Option<AgentId>,
    /// For people.
    pub label: String,
    /// When it was made.
    pub created_at: Micros,
    /// From when on it no longer works.
    pub expires_at: Option<Micros>,
}

/// A claim: the handoff, and the attempt that it counted.
pub type Held = (HandoffKey, i32);

/// Whose claims to release.
#[derive(Debug, Clone, Copy)]
pub enum Release<'a> {
    /// Everyone's: nobody else serves this store.
    Everyone,
    /// A broker's own, as it stops. Its heartbeat goes too.
    Own(&'a str),
    /// A silent broker's, if its heartbeat still has this value (`None`: it has no heartbeat). The
    /// heartbeat goes too.
    Silent(&'a str, Option<Micros>),
    /// These of a broker's own, as far as they still stand so.
    These(&'a str, &'a [Held]),
}

/// A public key that signs tree heads, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeKeyRow {
    /// Ed25519, 32 bytes.
    pub public: [u8; 32],
    /// Since when.
    pub created_at: Micros,
    /// Until when; what it signed stays signed.
    pub retired_at: Option<Micros>,
}

/// Who may claim: one agent of one tenant.
pub type Receiver = (TenantId, AgentId);

/// A record as kept, with its columns, for readers and the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place.
    pub leaf_index: i64,
    /// The hash as kept.
    pub hash: Vec<u8>,
    /// The kind as kept in its column.
    pub kind: String,
    /// The task as kept in its column.
    pub task_id: Option<String>,
    /// The handoff as kept in its column.
    pub handoff_id: Option<String>,
    /// The time as kept in its column.
    pub recorded_at: Micros,
    /// The bytes hashed.
    pub body: Vec<u8>,
    /// Its content, where it has one.
    pub content: Option<StoredContent>,
    /// Personal data, in the order of the record's commitments.
    pub personal: Vec<StoredPersonal>,
}

/// A content as kept: hot, cold or erased. Read through `archive::Contents`, which fetches cold
/// ones; a store alone only says where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// Its name.
    pub id: String,
    /// Its salt and packed bytes, or what is left of them.
    pub kept: Kept,
}

/// Salt, coding and packed bytes.
pub type KeptContent = (Vec<u8>, Codec, Vec<u8>);

/// A subject's data as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPersonal {
    /// Its place in the record's commitments.
    pub ordinal: i64,
    /// Whose.
    pub subject_id: String,
    /// Its salt and packed bytes.
    pub kept: Option<KeptContent>,
}

/// A place in a list ordered by creation, newest first: `(created_at, id)` of the last row seen.
pub type Cursor = (Micros, String);

/// Which handoffs to list.
#[derive(Debug, Clone, Default)]
pub struct HandoffFilter {
    /// On this task.
    pub task_id: Option<TaskId>,
    /// In this state.
    pub status: Option<HandoffStatus>,
    /// From this agent.
    pub source: Option<AgentId>,
    /// To this agent.
    pub target: Option<AgentId>,
    /// That this agent sends or receives.
    pub party: Option<AgentId>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// In this state.
    pub status: Option<TaskStatus>,
    /// That this agent has a part in.
    pub party: Option<AgentId>,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    pub status: Option<String>,
    /// With this primary reason.
    pub reason: Option<String>,
    /// From this agent.
    pub source: Option<AgentId>,
    /// To this agent.
    pub target: Option<AgentId>,
    /// Kept at this time or later.
    pub from: Option<Micros>,
    /// Kept before this time.
    pub until: Option<Micros>,
}

impl DeadLetterFilter {
    /// Whether a row fits.
    #[must_use]
    pub fn takes(&self, row: &DeadLetterRow) -> bool {
        let text = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|w| w == is);
        text(&self.status, &row.status)
            && text(&self.reason, &row.reason)
            && self.source.as_ref().is_none_or(|source| row.source == *source)
            && self.target.as_ref().is_none_or(|target| row.target.as_ref() == Some(target))
            && self.from.is_none_or(|from| row.created_at >= from)
            && self.until.is_none_or(|until| row.created_at < until)
    }
}

/// Which escalations to list.
#[derive(Debug, Clone, Default)]
pub struct EscalationFilter {
    /// In this state.
    pub status: Option<EscalationStatus>,
    /// Of this task.
    pub task_id: Option<TaskId>,
}

/// A place in the history of a task's checkpoints, newest first: creation, run, number.
pub type CheckpointCursor = (Micros, ExecutionId, i64);

/// Counts for the metrics page and for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the outbox.
    pub outbox: i64,
    /// When the oldest of them was committed.
    pub oldest: Option<Micros>,
    /// Open dead letters.
    pub dead_letters: i64,
    /// Open escalations.
    pub escalations: i64,
    /// Records over all tenants.
    pub records: i64,
}

/// Hears of other brokers' commits.
#[async_trait]
pub trait Wakeups: Send {
    /// Returns when something was said, or may have been while nobody could hear it.
    ///
    /// # Errors
    /// When nothing can be heard: listen anew.
    async fn next(&mut self) -> Result<()>;
}

/// Everything that is kept. All times come from the caller's clock.
#[async_trait]
pub trait Store:
    events::EventStore
    + ColdStore
    + contracts::ContractStore
    + schemas::PayloadSchemaStore
    + caps::CapStore
{
    /// One batch, one transaction: see the module's docs. `plan` may be called again after a
    /// conflict, with a fresh state. Returns what was sealed, in the order of [`Writes::records`],
    /// and how the trees grew, once it is durable.
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(State) -> Writes + Send),
    ) -> Result<Appended>;

    /// Applies the migrations, under a lock; returns how many were new.
    async fn migrate(&self) -> Result<usize>;
    /// Makes a role of the database that may serve, and in the log insert and read and no more; gives it
    /// its rights anew where it is there. Refused where there are no roles, and where the role could do
    /// more by other ways.
    async fn grant_serving(&self, role: &str) -> Result<()>;
    /// Connections in use and idle, of those that this store has open.
    fn connections(&self) -> (u32, u32);
    /// Answers at all.
    async fn ping(&self) -> Result<()>;
    /// Closes connections in order.
    async fn close(&self);
    /// Makes a tenant's log if there is none. `log_id` is used for a new one.
    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()>;
    /// All tenants.
    async fn list_tenants(&self) -> Result<Vec<TenantId>>;
    /// Gives every log's tree the records that it lacks: those that a version without a tree wrote.
    async fn catch_up_trees(&self) -> Result<()>;
    /// Public keys that sign or signed tree heads, oldest first.
    async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>>;
    /// Makes `public` the key that signs tree heads if there is none yet, or if `rotate` says so: the
    /// others are retired then. Returns whether it is in use.
    async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool>;
    /// A fact about this database, set once: keeps the first value, returns what is kept.
    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>>;

    /// A key by its hash.
    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>>;
    /// The keys of a tenant.
    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>>;
    /// All agents of a tenant, by id.
    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>>;
    /// How often a tenant's agents changed so far, in any way, by whomever.
    async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64>;
    /// The agents that changed after so many changes, by id, each as it is now; `None` where it is gone.
    /// Some may have changed since they were counted.
    async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>>;
    /// How many handoffs each receiver has open; reads every open handoff's index entry.
    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>>;

    /// One handoff.
    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>>;
    /// Handoffs, newest first.
    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>>;
    /// One task.
    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>>;
    /// Tasks, newest first.
    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>>;
    /// A content as kept; `archive::Contents` also fetches and unpacks it.
    async fn find_content(&self, tenant: &TenantId, id: ContentId)
    -> Result<Option<StoredContent>>;
    /// One checkpoint; the run's last where `seq` is `None`.
    async fn find_checkpoint(
        &self,
        run: &RunKey,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>>;
    /// The record that committed a handoff (or kept it as a dead letter), and its log's id.
    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<Sealed>>;
    /// Records from a leaf index on, in log order, with content where `contents` says so; of one
    /// task where given.
    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>>;
    /// The log's head: id, size, hash, the tree's right edge.
    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>>;
    /// Whose log has this id; reads the head of every log.
    async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>>;
    /// Hashes of a log's tree at a tile level (0: the leaves; each further level stands eight above the
    /// one before), from an index on.
    async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>>;
    /// Waits until the log has whatever the operations show as committed. Where both are one database that
    /// is always so; where the log has its own, it comes a moment later, or once a batch that a broker
    /// left half done is ended.
    async fn settle_log(&self, tenant: &TenantId) -> Result<()>;
    /// Where the log is in a database of its own: ends the batches that a broker left between the two, as
    /// far as they are in `seen`, and leaves there which stand now; returns how many it ended. Safe at any
    /// time: a batch that is only slow is waited for.
    async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64>;
    /// Handoffs that no record speaks of; there should be none. At most ten.
    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>>;
    /// Dead letters, newest first.
    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>>;
    /// The edges of a task.
    async fn list_edges(&self, key: &TaskKey) -> Result<Vec<Edge>>;
    /// One escalation.
    async fn find_escalation(&self, key: &EscalationKey) -> Result<Option<Escalation>>;
    /// Escalations, newest first.
    async fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Escalation>>;
    /// Open escalations that nobody decided on in time, of all tenants.
    async fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Result<Vec<Escalation>>;
    /// Checkpoints of a task, newest first, of one agent where given.
    async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>>;
    /// The personal data that a handoff was committed with, unpacked, in order; what is erased is
    /// left out.
    async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>>;
    /// One dead letter.
    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>>;

    /// What is held on a data subject, in log order, after a place.
    async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<crate::evidence::erasure::Slot>,
        limit: i64,
    ) -> Result<Vec<HeldDatum>>;
    /// One erasure.
    async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>>;
    /// The erasures of a subject, by its keyed hash, oldest first; at most a thousand.
    async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>>;
    /// Erasures of any tenant that are not done and did not go on since `cutoff`.
    async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>>;
    /// One legal hold.
    async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>>;
    /// Legal holds by id, after one; of one subject where given.
    async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>>;
    /// Cleans the database's files of what was erased, as far as this side can; takes its time, and
    /// may be repeated.
    async fn scrub(&self) -> Result<Scrubbed>;

    /// Receivers of a delivery mode with something claimable.
    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Receiver>>;
    /// Which of these receivers have something claimable, whatever its mode.
    async fn list_due_among(&self, receivers: &[Receiver], now: Micros) -> Result<Vec<Receiver>>;
    /// What one receiver could claim, unclaimed.
    async fn list_waiting(
        &self,
        receiver: &Receiver,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// What could be pulled, and was committed before `before`, the oldest first; reads the whole outbox.
    async fn list_unpulled(
        &self,
        before: Micros,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<OutboxRow>>;
    /// Tells the other brokers that something may wait for who waits there.
    async fn notify(&self) -> Result<()>;
    /// To hear what the other brokers tell.
    async fn listen(&self) -> Result<Box<dyn Wakeups>>;
    /// Claims up to `limit` handoffs of one receiver, the most urgent first, then the oldest, each the
    /// first of its task:
    /// marks them as this broker's until `until` and counts the attempt. Whatever mode the receiver had
    /// when they were committed, from here on they are delivered by `mode`.
    async fn claim(
        &self,
        receiver: &Receiver,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>>;
    /// Says that this broker lives: its heartbeat has another value than before.
    async fn beat(&self, broker: &str, now: Micros) -> Result<()>;
    /// Brokers and the values of their heartbeats. A value says only whether it is another than at the
    /// last look: it comes from the other broker's clock.
    async fn list_heartbeats(&self) -> Result<Vec<(String, Micros)>>;
    /// Brokers that hold webhook claims and have no heartbeat; reads the whole outbox.
    async fn list_strangers(&self) -> Result<Vec<String>>;
    /// The webhook claims that a broker holds, with the attempt of each; reads the whole outbox.
    async fn list_claims(&self, broker: &str) -> Result<Vec<Held>>;
    /// Makes webhook claims claimable at once, whatever anybody's clock says; returns how many. Claims on
    /// pulled handoffs are the receiver's, which may live on: they come back by time alone.
    async fn release(&self, whose: Release<'_>) -> Result<u64>;
    /// Open handoffs whose deadline has passed.
    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>>;
    /// Counts.
    async fn depths(&self) -> Result<Depths>;
    /// Has the database look at tables that it knows nothing of and that have grown, so that it does not go on
    /// with plans made for empty ones; whether there is none left to look at.
    async fn analyze_new(&self) -> Result<bool> {
        Ok(true)
    }
}
