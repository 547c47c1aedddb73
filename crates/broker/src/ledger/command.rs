//! Commands: everything that changes a task, an agent or a key. Built at the edge with all the
//! randomness they will need, so that deciding on them is pure.

use std::time::Duration;

use handoffd_core::domain::agent::{Agent, AgentSpec, Failing, Target};
use handoffd_core::domain::cap::{Unit, Window};
use handoffd_core::domain::escalation::Resolution;
use handoffd_core::domain::event::{Position, Subscriber, SubscriptionSpec};
use handoffd_core::domain::failure::Failure;
use handoffd_core::domain::funds::Spending;
use handoffd_core::domain::group::{Join, OnReject};
use handoffd_core::domain::handoff::{CheckpointRef, DeliveryMode, HandoffDraft, Priority};
use handoffd_core::domain::ids::{
    AgentId, ContentId, ErasureId, EscalationId, ExecutionId, HandoffId, Micros, SubscriptionId,
    TaskId, TenantId,
};
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::policy::EdgePolicy;
use handoffd_core::domain::residency::ResidencyFacts;
use handoffd_core::domain::ruling::{OtherEdge, Ruling};
use handoffd_core::domain::window::{CompressionFacts, ContextFacts};
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_core::evidence::erasure::ErasureScope;
use handoffd_core::evidence::record::{
    Actor, ClassifierFacts, PersonalPart, RecordContent, RecordParty, SafetyFacts,
};
use handoffd_store::clock;
use handoffd_store::store::attempts::AttemptRow;
use handoffd_store::store::contracts::ContractRow;
use handoffd_store::store::erasure::{HoldRow, PageNeed, PurgeNeed, SubjectRef};
use handoffd_store::store::events::SubscriptionRow;
use handoffd_store::store::schemas::PayloadSchemaRow;
use handoffd_store::store::{AgentRow, KeyRow};

pub use super::reply::{LedgerError, Purged, Reply, Undone};

/// Content for a record: canonical bytes, committed to and packed.
#[must_use]
pub fn content(canonical: &[u8], now: Micros) -> RecordContent {
    RecordContent {
        id: ContentId(clock::time_ordered_id(now)),
        part: PackedContent::new(CommitmentSubject::Message, clock::random(), canonical),
    }
}

/// A state change to apply.
#[derive(Debug, Clone)]
pub struct Command {
    /// The tenant of the change.
    pub tenant: TenantId,
    /// The caller's clock, which all rows of the change carry.
    pub at: Micros,
    /// The caller, for the record.
    pub actor: Actor,
    pub kind: Kind,
}

/// The kinds of state changes.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Commit a handoff that passed the gate.
    Submit(Box<Submit>),
    /// Commit a message to many that passed the gate.
    SubmitGroup(Box<SubmitGroup>),
    /// Record that the gate refused one; keep it as a dead letter where that is due.
    Refuse(Box<Refuse>),
    /// Apply a receiver's verdict on a handoff.
    Verdict(Box<Verdict>),
    /// Put a receiver's question to the sender of its handoff.
    Ask(Box<Ask>),
    /// Answer a receiver's question.
    Answer(Box<Answer>),
    /// Apply the outcome of a delivery attempt.
    Settle(Box<Settle>),
    /// Keep the compressed message that the receiver gets.
    Compress(Box<Compress>),
    /// Record the external classifier's opinion of a committed message.
    RecordOpinion(Box<RecordOpinion>),
    /// Add a chunk to a handoff's stream, or end the stream with it.
    Chunk(Box<AppendChunk>),
    /// Record that the gate refused a chunk.
    RefuseChunk(Box<RefuseChunk>),
    /// A pull receiver claimed a handoff: give it a fencing token.
    Lease(Lease),
    /// Give an accepted handoff to another worker of its receiver, whose holder is silent.
    TakeOver(TakeOver),
    /// Apply a passed deadline.
    Expire(Expire),
    PutCheckpoint(Box<PutCheckpoint>),
    /// Declare a task done.
    CompleteTask(Box<CompleteTask>),
    CancelTask(Box<CancelTask>),
    /// Add to a task's budget.
    TopUp(Box<TopUp>),
    /// Set or remove a rolling cap.
    SetCap(Box<SetCap>),
    /// Make an earlier checkpoint the current one.
    RestoreCheckpoint(RestoreCheckpoint),
    /// Decide on an escalation.
    Resolve(Box<Resolve>),
    /// Deliver a dead letter after all.
    Release(Box<Release>),
    /// Delivers a dead letter to several receivers after all.
    ReleaseGroup(Box<ReleaseGroup>),
    /// Record that the gate refuses a dead letter again.
    KeepDeadLetter(Box<KeepDeadLetter>),
    /// Never deliver a dead letter.
    Discard(Box<Discard>),
    /// Register an agent, with the key it will use.
    CreateAgent(Box<CreateAgent>),
    ChangeAgent(Box<ChangeAgent>),
    /// Add a version of a contract.
    PutContract(Box<PutContract>),
    /// Register a version of a payload schema.
    PutPayloadSchema(Box<PutPayloadSchema>),
    /// Create a subscription to events.
    CreateSubscription(Box<CreateSubscription>),
    ChangeSubscription(Box<ChangeSubscription>),
    DisableSubscriber(Box<DisableSubscriber>),
    CreateKey(Box<KeyRow>),
    /// Commit to rows that no record commits to.
    AdoptStates(Box<AdoptStates>),
    /// Record that tree heads are signed with another key from here on.
    ChangeTreeKey(RecordContent),
    /// Record that secrets are sealed under another master key from here on.
    ChangeMasterKey(RecordContent),
    RevokeKey {
        key_id: String,
    },
    /// Place a legal hold.
    PlaceHold(Box<PlaceHold>),
    /// Release a legal hold.
    ReleaseHold(Box<ReleaseHold>),
    /// Ask for a data subject's erasure.
    RequestErasure(Box<RequestErasure>),
    /// Erase the next page of one.
    Erase(Box<EraseNext>),
    /// Finish an erasure whose files are scrubbed.
    FinishErasure(ErasureId),
    /// Take away the next page of what is past its time.
    Purge(Box<PurgeNext>),
}

impl Kind {
    /// The handoff of a settlement after which neither task nor receiver waits for the broker.
    pub(super) fn settled(&self) -> Option<HandoffId> {
        match self {
            Self::Settle(settle) => {
                let settled =
                    matches!(settle.outcome, Outcome::Accepted | Outcome::Received { .. });
                settled.then_some(settle.handoff_id)
            }
            _ => None,
        }
    }

    /// The change as a span attribute.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::SubmitGroup(_) => "submit_group",
            Self::Refuse(_) => "refuse",
            Self::Verdict(_) => "verdict",
            Self::Ask(_) => "ask",
            Self::Answer(_) => "answer",
            Self::Settle(_) => "settle",
            Self::Compress(_) => "compress",
            Self::RecordOpinion(_) => "record_opinion",
            Self::Chunk(_) => "chunk",
            Self::RefuseChunk(_) => "refuse_chunk",
            Self::Lease(_) => "lease",
            Self::TakeOver(_) => "take_over",
            Self::Expire(_) => "expire",
            Self::PutCheckpoint(_) => "put_checkpoint",
            Self::CompleteTask(_) => "complete_task",
            Self::CancelTask(_) => "cancel_task",
            Self::TopUp(_) => "top_up",
            Self::SetCap(_) => "set_cap",
            Self::RestoreCheckpoint(_) => "restore_checkpoint",
            Self::Resolve(_) => "resolve",
            Self::Release(_) => "release",
            Self::ReleaseGroup(_) => "release_group",
            Self::KeepDeadLetter(_) => "keep_dead_letter",
            Self::Discard(_) => "discard",
            Self::CreateAgent(_) => "create_agent",
            Self::ChangeAgent(_) => "change_agent",
            Self::PutContract(_) => "put_contract",
            Self::PutPayloadSchema(_) => "put_payload_schema",
            Self::CreateSubscription(_) => "create_subscription",
            Self::ChangeSubscription(_) => "change_subscription",
            Self::DisableSubscriber(_) => "disable_subscriber",
            Self::CreateKey(_) => "create_key",
            Self::AdoptStates(_) => "adopt_states",
            Self::ChangeTreeKey(_) => "change_tree_key",
            Self::ChangeMasterKey(_) => "change_master_key",
            Self::RevokeKey { .. } => "revoke_key",
            Self::PlaceHold(_) => "place_hold",
            Self::ReleaseHold(_) => "release_hold",
            Self::RequestErasure(_) => "request_erasure",
            Self::Erase(_) => "erase",
            Self::FinishErasure(_) => "finish_erasure",
            Self::Purge(_) => "purge",
        }
    }
}

impl Kind {
    /// Whether it changes objects whose states steer the broker.
    #[must_use]
    pub const fn changes_states(&self) -> bool {
        matches!(
            self,
            Self::CreateAgent(_)
                | Self::ChangeAgent(_)
                | Self::CreateKey(_)
                | Self::RevokeKey { .. }
                | Self::CreateSubscription(_)
                | Self::ChangeSubscription(_)
                | Self::DisableSubscriber(_)
                | Self::PlaceHold(_)
                | Self::ReleaseHold(_)
                | Self::SetCap(_)
        )
    }
}

/// States of objects to commit to as they were found.
#[derive(Debug, Clone)]
pub struct AdoptStates {
    /// The log's size when the rows were read.
    pub as_of: i64,
    /// How many objects, and their states: one record each.
    pub pages: Vec<(u64, RecordContent)>,
}

/// A legal hold to place.
#[derive(Debug, Clone)]
pub struct PlaceHold {
    pub row: HoldRow,
    /// Commitment to the subject's id, where it holds a subject.
    pub commitment: Option<[u8; 32]>,
    /// The reason in the person's words.
    pub content: RecordContent,
}

/// A legal hold to release.
#[derive(Debug, Clone)]
pub struct ReleaseHold {
    pub id: String,
    /// The reason in the person's words.
    pub content: RecordContent,
}

#[derive(Debug, Clone)]
pub struct RequestErasure {
    pub subject: SubjectRef,
    /// The id of a new erasure; a running one keeps its own.
    pub id: ErasureId,
    /// Commitment to the subject's id, under that erasure.
    pub commitment: [u8; 32],
    pub scope: ErasureScope,
    /// The reason, a code.
    pub reason: String,
    /// The request in the person's words.
    pub content: RecordContent,
}

/// The next page of an erasure.
#[derive(Debug, Clone)]
pub struct EraseNext {
    pub id: ErasureId,
    /// Size and end of the page.
    pub page: PageNeed,
    /// The id of the content that lists the erased data.
    pub content_id: ContentId,
    /// The salt of that content's commitment.
    pub salt: [u8; 16],
}

/// The next page of data past its retention.
#[derive(Debug, Clone)]
pub struct PurgeNext {
    /// Start of the page, and age of its data.
    pub need: PurgeNeed,
    /// The id of the content that lists the erased data.
    pub content_id: ContentId,
    /// The salt of that content's commitment.
    pub salt: [u8; 16],
}

/// A handoff that passed the gate.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The handoff as the message and the route state it.
    pub handoff: HandoffDraft,
    /// The sender, for the record.
    pub from: RecordParty,
    /// The receiver, for the record.
    pub to: RecordParty,
    /// The message.
    pub content: RecordContent,
    /// The sender's own checkpoint.
    pub checkpoint: Option<PackedContent>,
    /// What stands in for one: the message's own state fields.
    pub implied_checkpoint: PackedContent,
    /// Whether the state fields may not stand in for a checkpoint.
    pub require_checkpoint: bool,
    /// The priority among the receiver's handoffs.
    pub priority: Priority,
    /// The rules of the edge.
    pub policy: EdgePolicy,
    /// The dedupe key and its window.
    pub repeat: Option<Repeat>,
    pub personal: Vec<PersonalPart>,
    /// The whole canonical message, to tell a replay from a conflict.
    pub whole: Vec<u8>,
    pub idempotency_key: Option<String>,
    /// The fencing token of the handoff by which the sender came to the task, where the sender proves that it holds it.
    pub fencing_token: Option<i64>,
    /// The sender is known to have a part in the task, though another may hold it.
    pub has_part: bool,
    /// Subtasks that the message has a result of, as [`handoffd_core::domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// What the message names as the budget of the whole task; counts with the task's first handoff.
    pub declared_budget: Option<Usd>,
    /// The salt of a refusal by the ledger.
    pub refusal_salt: [u8; 16],
    /// What the safety stage said, where that is to be recorded.
    pub safety: Option<SafetyFacts>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
}

/// A message to many that passed the gate.
#[derive(Debug, Clone)]
pub struct SubmitGroup {
    /// The message under the group's id, addressed to its first receiver.
    pub base: Submit,
    /// How many branches are needed.
    pub join: Join,
    /// What the bad end of one means.
    pub on_reject: OnReject,
    /// The branches in the list's order.
    pub branches: Vec<SubmitBranch>,
}

/// One branch of a message to many.
#[derive(Debug, Clone)]
pub struct SubmitBranch {
    /// The handoff to its receiver.
    pub handoff: HandoffDraft,
    /// The receiver, for the record.
    pub to: RecordParty,
    /// The rules of the edge.
    pub policy: EdgePolicy,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
}

#[derive(Debug, Clone)]
pub struct Refuse {
    /// On which task, as far as the message could be read.
    pub task_id: Option<TaskId>,
    pub handoff_id: Option<HandoffId>,
    pub parent_handoff_id: Option<HandoffId>,
    pub from: Option<RecordParty>,
    /// The receiver as addressed.
    pub to: Option<RecordParty>,
    /// The failure that counts against the sender.
    pub counted: Option<Counted>,
    /// The handoff as it would have been, where only the contract's acceptance criteria speak against it and the
    /// contract says where it goes then.
    pub recovery: Option<Box<Submit>>,
    pub failures: Vec<Failure>,
    /// The failures, as the record's content.
    pub content: RecordContent,
    /// The whole canonical message, where it could be read.
    pub whole: Option<Vec<u8>>,
    /// What the safety stage said, where that is to be recorded.
    pub safety: Option<SafetyFacts>,
    /// Where it is a dead letter: the row to keep, and what came with the message.
    pub dead_letter: Option<Box<DeadLetter>>,
}

/// A refused submission as a failure.
#[derive(Debug, Clone)]
pub struct Counted {
    pub by: AgentId,
    /// As addressed: an agent's id, `type:<agentType>` or `capability:<name>`; empty where that is unreadable.
    pub to: String,
    pub target: Option<AgentId>,
    /// The sender's run, where it could be read.
    pub run: Option<ExecutionId>,
    /// The checkpoint in the message.
    pub checkpoint: Option<PackedContent>,
}

/// A handoff to be kept for a person.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The handoff, with status `DEAD_LETTERED`.
    pub handoff: HandoffDraft,
    /// The message.
    pub content: RecordContent,
    /// The sender's checkpoint, or what stands in for it.
    pub checkpoint: PackedContent,
    pub personal: Vec<PersonalPart>,
    /// `Idempotency-Key`: it stays this message's, as that of a handoff does.
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictKind {
    /// The receiver takes the task.
    Accept,
    /// The receiver rejects the handoff; with a short reason.
    Reject(String),
    /// The receiver is done.
    Complete,
    /// The receiver gave up; with a short reason.
    Fail(String),
    /// The receiver still works: its lease is extended.
    Heartbeat,
}

/// A receiver's verdict on a handoff.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    pub kind: VerdictKind,
    /// The fencing token that the receiver states.
    pub fencing_token: i64,
    /// The receiver's request body.
    pub content: Option<RecordContent>,
    /// What was spent by now, cumulative, where it says so at the end.
    pub spent: Option<Spending>,
    /// When it was said: a heartbeat may have waited in a queue.
    pub said_at: Micros,
    /// How often its holder will be heard of from now on, in milliseconds; `None`: as it said before.
    pub interval_ms: Option<u64>,
    /// The end of the lease that the verdict grants.
    pub lease_until: Micros,
}

/// A takeover by another worker of the receiver.
#[derive(Debug, Clone, Copy)]
pub struct TakeOver {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// How often the new holder will be heard of, in milliseconds; `None`: its lease cannot be taken over.
    pub interval_ms: Option<u64>,
    /// The end of the new holder's lease.
    pub lease_until: Micros,
}

/// A question of a receiver to the sender of its handoff.
#[derive(Debug, Clone)]
pub struct Ask {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The fencing token that the receiver states.
    pub fencing_token: i64,
    /// Question and schema, as the record commits to them.
    pub content: RecordContent,
    /// The same in canonical form, to tell a repeat from another question.
    pub whole: Vec<u8>,
    pub key: Option<String>,
    /// When the handoff expires without an answer.
    pub answer_by: Micros,
}

/// The answer to a receiver's question.
#[derive(Debug, Clone)]
pub struct Answer {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// Which question, from 1: the one whose schema the answer fits.
    pub number: u32,
    /// The agent that answers; none: a person.
    pub by: Option<AgentId>,
    /// The answer, as the record commits to it.
    pub content: RecordContent,
    /// The same in canonical form, to tell a repeat from another answer.
    pub whole: Vec<u8>,
    pub key: Option<String>,
}

/// The outcome of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver accepted in its answer.
    Accepted,
    /// The receiver rejected in its answer.
    Rejected(String),
    /// The receiver has the handoff and owes a verdict.
    Received { verdict_by: Micros },
    /// The broker tries again.
    Retry {
        /// Earliest time of the next attempt.
        at: Micros,
        /// The reason, a short text.
        why: String,
        /// The receiver put it off until then: this was no attempt.
        busy: bool,
        /// By when the receiver owes its verdict, where this or an earlier attempt reached it.
        verdict_by: Option<Micros>,
    },
    /// The verdict clock ran out.
    Expired,
    /// The receiver did not claim the handoff from its inbox in time.
    Unclaimed,
    /// The receiver no longer takes its handoffs this way: back to the outbox, for that way.
    Moved { mode: DeliveryMode },
    /// The receiver is paused: back to the outbox until it runs again; this was no attempt.
    Held,
    /// The broker does not try again.
    GivenUp {
        /// The reason, a short text.
        why: String,
    },
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Settle {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt's number; if the outbox has another, this attempt is no longer the current one.
    pub attempt: i32,
    /// When its request was begun; none where there was none.
    pub begun_at: Option<Micros>,
    pub outcome: Outcome,
    /// The receiver's answer.
    pub content: Option<RecordContent>,
    /// The end of the lease that an acceptance grants.
    pub lease_until: Micros,
    /// The row of the attempt, where one is kept.
    pub row: Option<Box<AttemptRow>>,
}

/// A message that was compressed before an attempt.
#[derive(Debug, Clone)]
pub struct Compress {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted.
    pub attempt: i32,
    /// The compressed message.
    pub content: RecordContent,
    /// What the compression came to.
    pub facts: CompressionFacts,
}

/// The external classifier's opinion of a committed message.
#[derive(Debug, Clone)]
pub struct RecordOpinion {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted; if the row has another, this one is no longer the current one.
    pub attempt: i32,
    pub facts: ClassifierFacts,
    /// Why there is no answer: a code.
    pub reason: Option<&'static str>,
}

/// A chunk that passed the gate, or ends its stream.
#[derive(Debug, Clone)]
pub struct AppendChunk {
    pub task_id: TaskId,
    /// The handoff in pieces.
    pub handoff_id: HandoffId,
    pub seq: i64,
    /// Its length in canonical form, in bytes.
    pub bytes: u64,
    /// The chunk.
    pub content: RecordContent,
    /// What the safety stage said, where that is to be recorded.
    pub safety: Option<SafetyFacts>,
    /// When the stream ends unless another chunk comes.
    pub due_at: Micros,
    /// How the stream ends with it.
    pub end: Option<StreamEnd>,
}

/// How a stream ends with a chunk.
#[derive(Debug, Clone)]
pub enum StreamEnd {
    /// The assembled message passed the gate.
    Closed(Box<ClosedStream>),
    /// The gate refused the assembled message.
    Refused {
        /// The primary reason, a code.
        reason: String,
        /// All failures.
        content: RecordContent,
    },
    /// The sender aborts it.
    Aborted,
}

/// The assembled message of a stream.
#[derive(Debug, Clone)]
pub struct ClosedStream {
    /// The message.
    pub content: RecordContent,
    /// The message against the receiver's context window.
    pub context: Option<ContextFacts>,
    /// Subtasks that it has a result of, as [`handoffd_core::domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// What the safety stage said, where that is to be recorded.
    pub safety: Option<SafetyFacts>,
}

/// A chunk that the gate refused.
#[derive(Debug, Clone)]
pub struct RefuseChunk {
    pub task_id: TaskId,
    /// The handoff in pieces.
    pub handoff_id: HandoffId,
    /// The primary reason, a code.
    pub reason: String,
    /// The failures.
    pub content: RecordContent,
}

/// A claim from an inbox.
#[derive(Debug, Clone)]
pub struct Lease {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted.
    pub attempt: i32,
    /// By when the receiver owes its verdict, where this is its first claim and its contract says nothing else.
    pub verdict_by: Micros,
}

/// A deadline that passed.
#[derive(Debug, Clone)]
pub struct Expire {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
}

/// A checkpoint to store.
#[derive(Debug, Clone)]
pub struct PutCheckpoint {
    pub task_id: TaskId,
    pub execution_id: ExecutionId,
    pub agent: AgentId,
    /// Whether the agent, where it does not hold the task, sent or received a handoff on it.
    pub has_part: bool,
    /// The handoff under which its worker saves, with the token that must be current.
    pub fence: Option<(HandoffId, i64)>,
    /// The state.
    pub part: PackedContent,
}

/// A task declared done.
#[derive(Debug, Clone)]
pub struct CompleteTask {
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// The output.
    pub content: RecordContent,
}

/// A version of a contract to add.
#[derive(Debug, Clone)]
pub struct PutContract {
    /// The row as it will be.
    pub row: ContractRow,
    /// Its document.
    pub content: RecordContent,
}

/// A version of a payload schema to register.
#[derive(Debug, Clone)]
pub struct PutPayloadSchema {
    /// The row as it will be, but for its ordinal.
    pub row: PayloadSchemaRow,
    /// Its document, and what is said of it.
    pub content: RecordContent,
}

/// What tells a repeat of a handoff, by its contract's dedupe key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The contract, and a hash of the value.
    pub key: String,
    /// For how long the same value is a repeat.
    pub window: Duration,
    /// A use that no longer counts, by its handoff and its time: what it was for has ended badly.
    pub over: Option<(HandoffId, Micros)>,
    /// A use that counts, by its handoff and its time: the sender gets its handoff as the answer, and the submission's
    /// `Idempotency-Key` is kept.
    pub answered: Option<(HandoffId, Micros)>,
}

/// A task to withdraw.
#[derive(Debug, Clone)]
pub struct CancelTask {
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// Until when who works on it may still finish.
    pub grace_until: Micros,
    /// The reason in the person's words.
    pub content: RecordContent,
}

/// An addition to a task's budget.
#[derive(Debug, Clone)]
pub struct TopUp {
    pub task_id: TaskId,
    pub add: Usd,
    /// How much and why, in words.
    pub content: RecordContent,
}

/// What a tenant or an agent may spend within a window.
#[derive(Debug, Clone)]
pub struct SetCap {
    /// Whose; none: the whole tenant's.
    pub agent: Option<AgentId>,
    /// How long what was spent counts.
    pub window: Window,
    /// What becomes of it.
    pub change: CapChange,
    /// What was asked for, in words.
    pub content: RecordContent,
}

/// What becomes of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapChange {
    /// So much may count; what is not said stays as it is.
    Set { usd: Option<Usd>, tokens: Option<u64> },
    /// It is taken away, or what it holds of one unit.
    Remove(Option<Unit>),
}

/// A checkpoint to make current; it exists, as checkpoints are never changed.
#[derive(Debug, Clone)]
pub struct RestoreCheckpoint {
    pub task_id: TaskId,
    pub at: CheckpointRef,
    /// What records name it by.
    pub commitment: [u8; 32],
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
}

/// A decision on an escalation.
#[derive(Debug, Clone)]
pub struct Resolve {
    pub escalation_id: EscalationId,
    pub task_id: TaskId,
    /// The handoff that failed.
    pub handoff_id: Option<HandoffId>,
    /// Agents that must be known: the failed receiver, the one to reassign to.
    pub agents: Vec<AgentId>,
    /// What a person decided; none where nobody did in time.
    pub resolution: Option<Resolution>,
    /// The rules of the edge to the agent that gets the handoff by a person's word, where a contract rules it.
    pub edge: Option<Box<OtherEdge>>,
    /// The reason in the person's words.
    pub content: Option<RecordContent>,
}

/// A dead letter that a fresh gate run finds fit, but for waived findings.
#[derive(Debug, Clone)]
pub struct Release {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    pub source: AgentId,
    /// The handoff before it, whose figures count.
    pub parent_id: Option<HandoffId>,
    pub target: Agent,
    /// What rules its end.
    pub ruling: Option<Box<Ruling>>,
    /// Whether it may be tried again after its bytes were sent.
    pub idempotent: bool,
    /// How urgent it is.
    pub priority: Priority,
    /// The constraint `budgetUSD` of a message that begins its task.
    pub declared_budget: Option<Usd>,
    /// Subtasks that the message has a result of, as [`handoffd_core::domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
    /// The message against the receiver's context window.
    pub context: Option<ContextFacts>,
    /// Rules that observe or mark the message, and the classifier's verdict on it.
    pub safety: Option<SafetyFacts>,
    /// The key of the contract's dedupe rule, with its window.
    pub repeat: Option<Repeat>,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// The appeal: reason and waived findings.
    pub content: RecordContent,
}

/// An upheld appeal about a message to several receivers: its group is committed as at its submission.
#[derive(Debug, Clone)]
pub struct ReleaseGroup {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// The group, under the dead letter's id.
    pub group: SubmitGroup,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// The appeal: reason and waived findings.
    pub content: RecordContent,
}

/// A dead letter that a fresh gate run refuses again.
#[derive(Debug, Clone)]
pub struct KeepDeadLetter {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// Findings that nobody waived.
    pub refused: Vec<Failure>,
    /// The appeal: reason, waived and open findings.
    pub content: RecordContent,
}

/// The end of a dead letter.
#[derive(Debug, Clone)]
pub struct Discard {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// The reason in the person's words.
    pub content: RecordContent,
}

/// An agent to register.
#[derive(Debug, Clone)]
pub struct CreateAgent {
    pub row: AgentRow,
    pub key: KeyRow,
}

#[derive(Debug, Clone)]
pub struct ChangeAgent {
    pub agent: AgentId,
    pub change: AgentChange,
}

/// What to change of an agent.
#[derive(Debug, Clone)]
pub enum AgentChange {
    /// Set what the patch names, and its sealed credentials with it.
    Patch {
        spec: Box<AgentSpec>,
        /// Set where the patch names a delivery.
        secrets: Option<SecretsChange>,
    },
    SetTargets(Vec<Target>),
    AddTarget(Target),
    /// Take one entry out.
    RemoveTarget(Target),
    /// Replace its sealed secrets, if they still are what the caller saw.
    Secrets(SecretsChange),
    /// Its endpoint answered 410: disable it, if it still is that one.
    DisableDelivery {
        /// Where it was sent to.
        address: String,
    },
    /// Its endpoint fails again and again, if it still is that one: say so, at 100 % disable it.
    Failing {
        /// Where it was sent to.
        address: String,
        /// How far it is.
        step: Failing,
    },
    /// Its endpoint answers again, if it still is that one.
    Answers {
        /// Where it was sent to.
        address: String,
    },
    Delete,
}

/// Sealed secrets to replace, if they still are what the caller saw.
#[derive(Debug, Clone)]
pub struct SecretsChange {
    pub from: String,
    /// As they will be.
    pub to: String,
}

/// A subscription to make.
#[derive(Debug, Clone)]
pub struct CreateSubscription {
    pub row: SubscriptionRow,
    /// The place behind which it is told; behind the record of it where there is none.
    pub from: Option<Position>,
    /// What the record commits to.
    pub content: RecordContent,
}

#[derive(Debug, Clone)]
pub struct ChangeSubscription {
    pub id: SubscriptionId,
    pub change: SubscriptionChange,
    /// What the record commits to.
    pub content: RecordContent,
}

/// What to change of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionChange {
    /// Set what the patch names.
    Patch(Box<SubscriptionSpec>),
    /// Replace its sealed secrets, if they still are what the caller saw.
    Secrets {
        from: String,
        /// As they will be.
        to: String,
    },
    /// Tell it again of what stands behind that place.
    Replay(Position),
    Delete,
}

/// A subscriber that is no longer told.
#[derive(Debug, Clone)]
pub struct DisableSubscriber {
    pub subscriber: Subscriber,
    /// Where it was told; if that has changed meanwhile, nothing is done.
    pub url: String,
    /// The reason, a code.
    pub reason: &'static str,
    /// What the record commits to.
    pub content: RecordContent,
}
