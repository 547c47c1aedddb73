//! Commands: everything that changes a task, an agent or a key. Built at the edge with all the
//! randomness they will need, so that deciding on them is pure.

use std::time::Duration;

use handoffd_core::domain::agent::{Agent, AgentSpec, Failing, Target};
use handoffd_core::domain::cap::{Unit, Window};
use handoffd_core::domain::escalation::Resolution;
use handoffd_core::domain::event::{Position, Subscriber, SubscriptionSpec};
use handoffd_core::domain::failure::Failure;
use handoffd_core::domain::funds::Spending;
use handoffd_core::domain::handoff::{CheckpointRef, DeliveryMode, Handoff, Priority};
use handoffd_core::domain::ids::{
    AgentId, ContentId, ErasureId, EscalationId, ExecutionId, HandoffId, Micros, SubscriptionId,
    TaskId, TenantId,
};
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::policy::EdgePolicy;
use handoffd_core::domain::residency::ResidencyFacts;
use handoffd_core::domain::ruling::Ruling;
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_core::evidence::erasure::ErasureScope;
use handoffd_core::evidence::record::{
    Actor, PersonalPart, RecordContent, RecordParty, SafetyFacts,
};
use handoffd_store::clock;
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

/// One wish to change something.
#[derive(Debug, Clone)]
pub struct Command {
    /// Whose.
    pub tenant: TenantId,
    /// When it was made.
    pub at: Micros,
    /// By whom.
    pub actor: Actor,
    /// What.
    pub kind: Kind,
}

/// What is wished.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Commit a handoff that passed the gate.
    Submit(Box<Submit>),
    /// Record that the gate refused one; keep it as a dead letter where that is due.
    Refuse(Box<Refuse>),
    /// The receiver says something of a handoff.
    Verdict(Box<Verdict>),
    /// An attempt at delivery came to something.
    Settle(Box<Settle>),
    /// A pull receiver claimed a handoff: give it a fencing token.
    Lease(Lease),
    /// A deadline has passed.
    Expire(Expire),
    /// Store a checkpoint.
    PutCheckpoint(Box<PutCheckpoint>),
    /// Declare a task done.
    CompleteTask(Box<CompleteTask>),
    /// Withdraw a task.
    CancelTask(Box<CancelTask>),
    /// Add to a task's budget.
    TopUp(Box<TopUp>),
    /// Set a rolling cap, or take one away.
    SetCap(Box<SetCap>),
    /// Make an earlier checkpoint the current one.
    RestoreCheckpoint(RestoreCheckpoint),
    /// Decide on an escalation.
    Resolve(Box<Resolve>),
    /// Deliver a dead letter after all.
    Release(Box<Release>),
    /// The gate refuses a dead letter again.
    KeepDeadLetter(Box<Release>),
    /// Never deliver a dead letter.
    Discard(Box<Discard>),
    /// Register an agent, with the key it will use.
    CreateAgent(Box<CreateAgent>),
    /// Change an agent.
    ChangeAgent(Box<ChangeAgent>),
    /// Add a version of a contract.
    PutContract(Box<PutContract>),
    /// Register a version of a payload schema.
    PutPayloadSchema(Box<PutPayloadSchema>),
    /// Make a subscription to events.
    CreateSubscription(Box<CreateSubscription>),
    /// Change a subscription.
    ChangeSubscription(Box<ChangeSubscription>),
    /// Stop telling a subscriber.
    DisableSubscriber(Box<DisableSubscriber>),
    /// Make a key.
    CreateKey(Box<KeyRow>),
    /// Record that tree heads are signed with another key from here on.
    ChangeTreeKey(RecordContent),
    /// Revoke a key.
    RevokeKey {
        /// Which.
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
    /// The files are clean too: an erasure is done.
    FinishErasure(ErasureId),
    /// Take away the next page of what is past its time.
    Purge(Box<PurgeNext>),
}

impl Kind {
    /// What a span calls it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::Refuse(_) => "refuse",
            Self::Verdict(_) => "verdict",
            Self::Settle(_) => "settle",
            Self::Lease(_) => "lease",
            Self::Expire(_) => "expire",
            Self::PutCheckpoint(_) => "put_checkpoint",
            Self::CompleteTask(_) => "complete_task",
            Self::CancelTask(_) => "cancel_task",
            Self::TopUp(_) => "top_up",
            Self::SetCap(_) => "set_cap",
            Self::RestoreCheckpoint(_) => "restore_checkpoint",
            Self::Resolve(_) => "resolve",
            Self::Release(_) => "release",
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
            Self::ChangeTreeKey(_) => "change_tree_key",
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

/// A legal hold to place.
#[derive(Debug, Clone)]
pub struct PlaceHold {
    /// The hold.
    pub row: HoldRow,
    /// Commitment to the subject's id, where it holds a subject.
    pub commitment: Option<[u8; 32]>,
    /// Why, in words.
    pub content: RecordContent,
}

/// A legal hold to release.
#[derive(Debug, Clone)]
pub struct ReleaseHold {
    /// Which.
    pub id: String,
    /// Why, in words.
    pub content: RecordContent,
}

/// An erasure to begin.
#[derive(Debug, Clone)]
pub struct RequestErasure {
    /// Whose data.
    pub subject: SubjectRef,
    /// The erasure's id, should it be a new one.
    pub id: ErasureId,
    /// Commitment to the subject's id, under that erasure.
    pub commitment: [u8; 32],
    /// How much goes.
    pub scope: ErasureScope,
    /// Why: a code.
    pub reason: String,
    /// Who asked and why, in words.
    pub content: RecordContent,
}

/// The next page of an erasure.
#[derive(Debug, Clone)]
pub struct EraseNext {
    /// Which erasure.
    pub id: ErasureId,
    /// How much, and how far.
    pub page: PageNeed,
    /// Under which the list of what went is kept.
    pub content_id: ContentId,
    /// Salt of that list's commitment.
    pub salt: [u8; 16],
}

/// The next page of what is past its time.
#[derive(Debug, Clone)]
pub struct PurgeNext {
    /// From where, and how old.
    pub need: PurgeNeed,
    /// Under which the list of what went is kept.
    pub content_id: ContentId,
    /// Salt of that list's commitment.
    pub salt: [u8; 16],
}

/// A handoff that passed the gate.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The row as it will be; ledger-given fields (fencing token, checkpoint) are filled in.
    pub handoff: Handoff,
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
    /// Refuse to let anything stand in.
    pub require_checkpoint: bool,
    /// How soon it is wanted.
    pub priority: Priority,
    /// What rules its edge.
    pub policy: EdgePolicy,
    /// What tells a repeat of it.
    pub repeat: Option<Repeat>,
    /// Personal data.
    pub personal: Vec<PersonalPart>,
    /// The whole canonical message, to tell a replay from a conflict.
    pub whole: Vec<u8>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// The sender is known to have a part in the task, though another may hold it.
    pub has_part: bool,
    /// Subtasks that the message has a result of, as [`handoffd_core::domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// What the message names as the budget of the whole task; counts with the task's first handoff.
    pub declared_budget: Option<Usd>,
    /// What a refusal of the ledger would commit to.
    pub refusal_salt: [u8; 16],
    /// What the safety stage said, where that is to be recorded.
    pub safety: Option<SafetyFacts>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
    /// The local dispatcher has a place for it: claim it at once for that broker, until then.
    pub claim: Option<(String, Micros)>,
}

/// A refused submission.
#[derive(Debug, Clone)]
pub struct Refuse {
    /// On which task, as far as the message could be read.
    pub task_id: Option<TaskId>,
    /// Which handoff.
    pub handoff_id: Option<HandoffId>,
    /// The handoff before.
    pub parent_handoff_id: Option<HandoffId>,
    /// The sender.
    pub from: Option<RecordParty>,
    /// The receiver as addressed.
    pub to: Option<RecordParty>,
    /// How it counts as a failure of its sender's.
    pub counted: Option<Counted>,
    /// The handoff as it would have been, where only the contract's acceptance criteria speak against it and the
    /// contract says where it goes then.
    pub recovery: Option<Box<Submit>>,
    /// Everything that was found.
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
    /// Whose it is.
    pub by: AgentId,
    /// As addressed: an agent's id, `type:<agentType>` or `capability:<name>`; empty where that is unreadable.
    pub to: String,
    /// Who would have got it, where that was found.
    pub target: Option<AgentId>,
    /// The sender's run, where it could be read.
    pub run: Option<ExecutionId>,
    /// The checkpoint that came along.
    pub checkpoint: Option<PackedContent>,
}

/// A handoff to be kept for a person.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The row, with status `DEAD_LETTERED`.
    pub handoff: Handoff,
    /// The message.
    pub content: RecordContent,
    /// The sender's checkpoint, or what stands in for it.
    pub checkpoint: PackedContent,
    /// Personal data.
    pub personal: Vec<PersonalPart>,
    /// `Idempotency-Key`: it stays this message's, as that of a handoff does.
    pub idempotency_key: Option<String>,
}

/// What a receiver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// It takes the task.
    Accept,
    /// It does not; with a short reason.
    Reject(String),
    /// It is done.
    Complete,
    /// It gave up; with a short reason.
    Fail(String),
    /// It still works.
    Heartbeat,
}

/// A receiver's word on a handoff.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// On which task.
    pub task_id: TaskId,
    /// On which handoff.
    pub handoff_id: HandoffId,
    /// What.
    pub word: Word,
    /// The fencing token it was given.
    pub fencing_token: i64,
    /// What it said in full.
    pub content: Option<RecordContent>,
    /// What was spent by now, cumulative, where it says so at the end.
    pub spent: Option<Spending>,
    /// Until when its lease would run.
    pub lease_until: Micros,
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver accepted in its answer.
    Accepted,
    /// The receiver rejected in its answer.
    Rejected(String),
    /// The receiver has it and will say later.
    Received {
        /// By when.
        verdict_by: Micros,
    },
    /// To be tried again.
    Retry {
        /// Not before.
        at: Micros,
        /// Why, in a word.
        why: String,
        /// The receiver put it off until then: this was no attempt.
        busy: bool,
        /// By when the receiver owes its verdict, where this or an earlier attempt reached it.
        verdict_by: Option<Micros>,
    },
    /// The receiver had its time for the verdict.
    Expired,
    /// Nobody claimed it from its inbox in time.
    Unclaimed,
    /// The receiver no longer takes its handoffs this way: back to the outbox, for that way.
    Moved {
        /// Which way.
        mode: DeliveryMode,
    },
    /// Not to be tried again.
    GivenUp {
        /// Why, in a word.
        why: String,
    },
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Settle {
    /// On which task.
    pub task_id: TaskId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// The attempt's number; if the outbox has another, this attempt is no longer the current one.
    pub attempt: i32,
    /// When its request was begun; none where there was none.
    pub begun_at: Option<Micros>,
    /// What it came to.
    pub outcome: Outcome,
    /// What the receiver said in full.
    pub content: Option<RecordContent>,
    /// Until when an acceptance's lease would run.
    pub lease_until: Micros,
}

/// A claim from an inbox.
#[derive(Debug, Clone)]
pub struct Lease {
    /// On which task.
    pub task_id: TaskId,
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// The attempt that the claim counted.
    pub attempt: i32,
    /// By when the receiver owes its verdict, where this is its first claim and its contract says nothing else.
    pub verdict_by: Micros,
}

/// A deadline that passed.
#[derive(Debug, Clone)]
pub struct Expire {
    /// On which task.
    pub task_id: TaskId,
    /// Which handoff.
    pub handoff_id: HandoffId,
}

/// A checkpoint to store.
#[derive(Debug, Clone)]
pub struct PutCheckpoint {
    /// On which task.
    pub task_id: TaskId,
    /// Of which run.
    pub execution_id: ExecutionId,
    /// Whose.
    pub agent: AgentId,
    /// The state.
    pub part: PackedContent,
}

/// A task declared done.
#[derive(Debug, Clone)]
pub struct CompleteTask {
    /// Which.
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
}

/// A task to withdraw.
#[derive(Debug, Clone)]
pub struct CancelTask {
    /// Which.
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// Until when who works on it may still finish.
    pub grace_until: Micros,
    /// Why, in words.
    pub content: RecordContent,
}

/// An addition to a task's budget.
#[derive(Debug, Clone)]
pub struct TopUp {
    /// Which task.
    pub task_id: TaskId,
    /// How much.
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
    Set {
        /// Money.
        usd: Option<Usd>,
        /// Tokens.
        tokens: Option<u64>,
    },
    /// It is taken away, or what it holds of one unit.
    Remove(Option<Unit>),
}

/// A checkpoint to make current; it exists, as checkpoints are never changed.
#[derive(Debug, Clone)]
pub struct RestoreCheckpoint {
    /// On which task.
    pub task_id: TaskId,
    /// Which.
    pub at: CheckpointRef,
    /// What records name it by.
    pub commitment: [u8; 32],
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
}

/// A decision on an escalation.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// Which.
    pub escalation_id: EscalationId,
    /// Its task.
    pub task_id: TaskId,
    /// The handoff that failed.
    pub handoff_id: Option<HandoffId>,
    /// Agents that must be known: the failed receiver, the one to reassign to.
    pub agents: Vec<AgentId>,
    /// What a person decided; none where nobody did in time.
    pub resolution: Option<Resolution>,
    /// Why, in words.
    pub content: Option<RecordContent>,
}

/// An appeal on a dead letter, with what a fresh gate run came to.
#[derive(Debug, Clone)]
pub struct Release {
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// Its task.
    pub task_id: TaskId,
    /// Who sent it.
    pub source: AgentId,
    /// The handoff before it, whose figures count.
    pub parent_id: Option<HandoffId>,
    /// Who gets it.
    pub target: Agent,
    /// What rules its end.
    pub ruling: Option<Box<Ruling>>,
    /// How urgent it is.
    pub priority: Priority,
    /// Subtasks that the message has a result of, as [`handoffd_core::domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// Findings that nobody waived; with any, it is kept.
    pub refused: Vec<Failure>,
    /// Who, why, and what was waived, in words.
    pub content: RecordContent,
}

/// The end of a dead letter.
#[derive(Debug, Clone)]
pub struct Discard {
    /// Which handoff.
    pub handoff_id: HandoffId,
    /// Its task.
    pub task_id: TaskId,
    /// Why, in words.
    pub content: RecordContent,
}

/// An agent to register.
#[derive(Debug, Clone)]
pub struct CreateAgent {
    /// The agent.
    pub row: AgentRow,
    /// Its first key.
    pub key: KeyRow,
}

/// A change of an agent.
#[derive(Debug, Clone)]
pub struct ChangeAgent {
    /// Which.
    pub agent: AgentId,
    /// What.
    pub change: AgentChange,
}

/// What to change of an agent.
#[derive(Debug, Clone)]
pub enum AgentChange {
    /// Set what the patch names.
    Patch(Box<AgentSpec>),
    /// Replace its allowlist.
    SetTargets(Vec<Target>),
    /// Add one entry.
    AddTarget(Target),
    /// Take one entry out.
    RemoveTarget(Target),
    /// Replace its sealed secrets, if they still are what the caller saw.
    Secrets {
        /// As seen.
        from: String,
        /// As they will be.
        to: String,
    },
    /// Its endpoint answered 410: disable it, if it still is that one.
    DisableDelivery {
        /// Where it was posted to.
        url: String,
    },
    /// Its endpoint fails again and again, if it still is that one: say so, at 100 % disable it.
    Failing {
        /// Where it was posted to.
        url: String,
        /// How far it is.
        step: Failing,
    },
    /// Its endpoint answers again, if it still is that one.
    Answers {
        /// Where it was posted to.
        url: String,
    },
    /// Remove it.
    Delete,
}

/// A subscription to make.
#[derive(Debug, Clone)]
pub struct CreateSubscription {
    /// The subscription.
    pub row: SubscriptionRow,
    /// What the record commits to.
    pub content: RecordContent,
}

/// A change of a subscription.
#[derive(Debug, Clone)]
pub struct ChangeSubscription {
    /// Which.
    pub id: SubscriptionId,
    /// What.
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
        /// As seen.
        from: String,
        /// As they will be.
        to: String,
    },
    /// Tell it again of what stands behind that place.
    Replay(Position),
    /// Remove it.
    Delete,
}

/// A subscriber that is no longer told.
#[derive(Debug, Clone)]
pub struct DisableSubscriber {
    /// Who.
    pub subscriber: Subscriber,
    /// Where it was told; if that has changed meanwhile, nothing is done.
    pub url: String,
    /// Why: a code.
    pub reason: &'static str,
    /// What the record commits to.
    pub content: RecordContent,
}
