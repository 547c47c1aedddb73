//! Replies that several commands share, and why a command was not carried out.

use handoffd_domain::cap::CapExceeded;
use handoffd_domain::failure::{Code, Failure};
use handoffd_domain::group::Group;
use handoffd_domain::handoff::{Handoff, IllegalTransition};
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_domain::latency::LatencySample;
use handoffd_domain::task::{IllegalTaskTransition, TaskStatus};
use handoffd_store::store::DeadLetterRow;
use handoffd_store::store::erasure::{ErasureRow, HoldRow};

/// The reply to a submission.
#[derive(Debug)]
pub enum SubmissionReply {
    /// A handoff was committed, now or (replayed) before.
    Handoff {
        handoff: Box<Handoff>,
        /// It was there already.
        replayed: bool,
    },
    /// A message to many was committed, now or (replayed) before.
    Group {
        group: Box<Group>,
        /// Its handoffs in the list's order; of a replay the first alone.
        handoffs: Vec<Handoff>,
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
        /// The cap that has no room for it.
        over: Option<Box<CapExceeded>>,
        /// The effect on its task, if the refusal moved it.
        undone: Option<Undone>,
    },
    /// A copy was committed between the reads: the commit conflicts, all is read anew, and no caller gets this reply.
    Collided,
}

/// A handoff after a word or a settlement.
#[derive(Debug)]
pub struct HandoffReply {
    pub handoff: Handoff,
    /// Its status is what it was before.
    pub repeated: bool,
    /// The task went back to its sender's checkpoint.
    pub rolled_back: bool,
    /// It left the outbox, and more of its task waits there.
    pub more: bool,
    /// The parts of its latency that became known.
    pub latency: LatencySample,
}

/// The reply to an attempt that writes a record alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    Recorded,
    /// The attempt was no longer the current one; nothing was changed.
    Superseded,
}

/// A dead letter that was decided on.
#[derive(Debug)]
pub struct DeadLetterReply {
    /// As it is now.
    pub row: DeadLetterRow,
    pub handoff: Handoff,
    /// The findings that keep it; empty if it was released or discarded.
    pub refused: Vec<Failure>,
}

/// A legal hold.
#[derive(Debug)]
pub struct HoldReply {
    /// As it is now.
    pub row: HoldRow,
    /// It was so before.
    pub repeated: bool,
}

/// An erasure.
#[derive(Debug)]
pub struct ErasureReply {
    /// As it is now.
    pub row: ErasureRow,
    /// It was asked for before.
    pub repeated: bool,
}

/// The results of one page of the purge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// The start of the next page.
    pub next: i64,
    /// Nothing after it is old enough.
    pub ends: bool,
    /// Records with something that is held back.
    pub held: i64,
    /// The first of these.
    pub first_held: Option<i64>,
    /// Personal data that went.
    pub data: i64,
    /// Contents of records that went.
    pub contents: i64,
    pub checkpoints: i64,
    /// Whether rows beside the contents lost what had stood in them.
    pub cleaned: bool,
}

/// The effect of a refusal on its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undone {
    /// The state of the task now.
    pub task_status: TaskStatus,
    /// The handoff that goes to another agent in its place.
    pub successor: Option<HandoffId>,
}

/// Why a command was not carried out. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The id is taken by something else.
    #[error("{0}")]
    Conflict(String),
    /// The sender's id is taken by another message.
    #[error("handoff {0} exists with another content")]
    Exists(HandoffId),
    /// The `Idempotency-Key` was used for another payload.
    #[error("this Idempotency-Key was used for another payload")]
    IdempotencyMismatch,
    /// The fencing token is not the current one.
    #[error("the fencing token is stale; the current lease is another's")]
    StaleLease,
    /// It contradicts what is kept, in several places.
    #[error("it contradicts what is kept")]
    Contradicts(Vec<Failure>),
    #[error("no such {0}")]
    NotFound(&'static str),
    /// Its contract's dedupe key was seen with the same value just now.
    #[error("another handoff has the same dedupe key")]
    Repeat {
        /// The handoff that used it.
        first: HandoffId,
        /// When it did.
        seen_at: Micros,
    },
    /// Not by this caller.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The loop guard, the budget relay or the checkpoint speak against a task's first handoff: to be refused.
    #[error("the submission is refused")]
    Refused(Vec<Failure>),
    /// The sender does not hold the task; whether it has a part in it must be looked up.
    #[error("only an agent that has a part in this task may hand it on")]
    NotHolder,
    /// A legal hold forbids the erasure.
    #[error("legal hold {id} forbids this erasure: {reason}")]
    Held {
        id: String,
        /// Why it was placed.
        reason: String,
    },
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
    /// The name in a span.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Conflict(_) | Self::Exists(_) | Self::Contradicts(_) => "conflict",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::StaleLease => "stale_lease",
            Self::NotFound(_) => "not_found",
            Self::Repeat { .. } => "repeat",
            Self::Forbidden(_) => "forbidden",
            Self::Refused(_) => "refused",
            Self::NotHolder => "not_holder",
            Self::Held { .. } => "held",
            Self::Handoff(_) | Self::Task(_) => "illegal_transition",
            Self::Invalid(..) => "invalid",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Internal(_) => "internal",
        }
    }

    /// The answer code of the refusal.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Conflict(_)
            | Self::Exists(_)
            | Self::Contradicts(_)
            | Self::Held { .. }
            | Self::Handoff(_)
            | Self::Task(_)
            | Self::IdempotencyMismatch
            | Self::Repeat { .. } => Code::Conflict,
            Self::StaleLease => Code::StaleLease,
            Self::NotFound(_) => Code::NotFound,
            Self::Forbidden(_) | Self::NotHolder => Code::Forbidden,
            Self::Invalid(..) | Self::Refused(_) => Code::SchemaInvalid,
            Self::Overloaded => Code::Overloaded,
            Self::Unavailable => Code::Unavailable,
            Self::Internal(_) => Code::Internal,
        }
    }
}
