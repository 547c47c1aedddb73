//! Commands: everything that changes a task, an agent or a key. Built at the edge with all the
//! randomness they will need, so that deciding on them is pure.

use crate::clock;
use crate::domain::agent::{AgentSpec, Target};
use crate::domain::failure::{Code, Failure};
use crate::domain::handoff::{Handoff, IllegalTransition};
use crate::domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::task::{IllegalTaskTransition, Task};
use crate::evidence::commitment::{Part, Subject};
use crate::evidence::record::{Actor, Content, Party, PersonalPart, Sealed};
use crate::store::{AgentRow, CheckpointRow, KeyRow, OutboxRow};

/// Content for a record: canonical bytes, committed to and packed.
#[must_use]
pub fn content(canonical: &[u8], now: Micros) -> Content {
    Content {
        id: ContentId(clock::time_ordered_id(now)),
        part: Part::new(Subject::Message, clock::random(), canonical),
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
    /// Register an agent, with the key it will use.
    CreateAgent(Box<CreateAgent>),
    /// Change an agent.
    ChangeAgent(Box<ChangeAgent>),
    /// Make a key.
    CreateKey(Box<KeyRow>),
    /// Revoke a key.
    RevokeKey {
        /// Which.
        key_id: String,
    },
}

/// A handoff that passed the gate.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The row as it will be; ledger-given fields (fencing token, checkpoint) are filled in.
    pub handoff: Handoff,
    /// The sender, for the record.
    pub from: Party,
    /// The receiver, for the record.
    pub to: Party,
    /// The message.
    pub content: Content,
    /// The sender's own checkpoint.
    pub checkpoint: Option<Part>,
    /// What stands in for one: the message's own state fields.
    pub implied_checkpoint: Part,
    /// Refuse to let anything stand in.
    pub require_checkpoint: bool,
    /// Personal data.
    pub personal: Vec<PersonalPart>,
    /// The whole canonical message, to tell a replay from a conflict.
    pub whole: Vec<u8>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// The sender is known to have a part in the task, though another may hold it.
    pub has_part: bool,
    /// What a refusal of the ledger would commit to.
    pub refusal_salt: [u8; 16],
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
    pub from: Option<Party>,
    /// The receiver as addressed.
    pub to: Option<Party>,
    /// Everything that was found.
    pub failures: Vec<Failure>,
    /// The failures, as the record's content.
    pub content: Content,
    /// The whole canonical message, where it could be read.
    pub whole: Option<Vec<u8>>,
    /// Where it is a dead letter: the row to keep, and what came with the message.
    pub dead_letter: Option<Box<DeadLetter>>,
}

/// A handoff to be kept for a person.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The row, with status `DEAD_LETTERED`.
    pub handoff: Handoff,
    /// The message.
    pub content: Content,
    /// The sender's checkpoint, or what stands in for it.
    pub checkpoint: Part,
    /// Personal data.
    pub personal: Vec<PersonalPart>,
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
    pub content: Option<Content>,
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
    /// What it came to.
    pub outcome: Outcome,
    /// What the receiver said in full.
    pub content: Option<Content>,
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
    pub part: Part,
}

/// A task declared done.
#[derive(Debug, Clone)]
pub struct CompleteTask {
    /// Which.
    pub task_id: TaskId,
    /// By the agent, or by an operator (`None`).
    pub by: Option<AgentId>,
    /// The output.
    pub content: Content,
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
    /// Remove it.
    Delete,
}

/// What came of a command that was carried out.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A handoff was committed, now or (replayed) before.
    Submitted {
        /// The handoff as it is.
        handoff: Handoff,
        /// Its record, where this call made it.
        receipt: Option<Sealed>,
        /// It was there already.
        replayed: bool,
    },
    /// A submission was refused and the refusal recorded, now or (replayed) before.
    Refused {
        /// Everything that was found.
        failures: Vec<Failure>,
        /// Kept for a person, under the handoff's id.
        dead_lettered: bool,
        /// It was refused before, with the same content.
        replayed: bool,
    },
    /// A handoff after a word or a settlement.
    Handoff {
        /// The handoff as it is.
        handoff: Handoff,
        /// Its status is what it was before.
        repeated: bool,
        /// The task went back to its sender's checkpoint.
        rolled_back: bool,
        /// It left the outbox, and more of its task waits there.
        more: bool,
    },
    /// The attempt was no longer the current one; nothing was changed.
    Superseded,
    /// A claim got its token.
    Leased {
        /// The handoff with its token.
        handoff: Handoff,
        /// Its outbox row.
        outbox: OutboxRow,
    },
    /// A task as it is now.
    Task(Task),
    /// A stored checkpoint.
    Checkpoint(CheckpointRow),
    /// An agent as it is now.
    Agent(AgentRow),
    /// A key as it is now.
    Key(KeyRow),
    /// Gone.
    Deleted,
}

/// Why a command was not carried out. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The id is taken by something else.
    #[error("{0}")]
    Conflict(String),
    /// The `Idempotency-Key` was used for another payload.
    #[error("this Idempotency-Key was used for another payload")]
    IdempotencyMismatch,
    /// The fencing token is not the current one.
    #[error("the fencing token is stale; the current lease is another's")]
    StaleLease,
    /// No such thing.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// Not by this caller.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The sender does not hold the task; whether it has a part in it must be looked up.
    #[error("only an agent that has a part in this task may hand it on")]
    NotHolder,
    /// Not in this state.
    #[error("{0}")]
    Handoff(#[from] IllegalTransition),
    /// Not in this state.
    #[error("{0}")]
    Task(#[from] IllegalTaskTransition),
    /// The command itself is wrong.
    #[error("{1}")]
    Invalid(String, String),
    /// The queue is full.
    #[error("the ledger's queue is full")]
    Overloaded,
    /// The store is away.
    #[error("the store is unavailable")]
    Unavailable,
    /// A defect.
    #[error("the ledger failed: {0}")]
    Internal(String),
}

impl LedgerError {
    /// The answer code it stands for.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Conflict(_) | Self::Handoff(_) | Self::Task(_) | Self::IdempotencyMismatch => {
                Code::Conflict
            }
            Self::StaleLease => Code::StaleLease,
            Self::NotFound(_) => Code::NotFound,
            Self::Forbidden(_) | Self::NotHolder => Code::Forbidden,
            Self::Invalid(..) => Code::SchemaInvalid,
            Self::Overloaded => Code::Overloaded,
            Self::Unavailable => Code::Unavailable,
            Self::Internal(_) => Code::Internal,
        }
    }
}
