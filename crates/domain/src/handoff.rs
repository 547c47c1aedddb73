//! A handoff, as stored and as committed (specification §5).

use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::group::BranchPlace;
use super::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use super::latency::LatencyClock;
use super::lease::HolderPulse;
use super::message::whole_number;
use super::money::Usd;
use super::question::Question;
use super::ruling::Ruling;
use super::stream::Stream;
use super::window::ContextFacts;

mod status;

pub use status::{HandoffEvent, HandoffStatus, IllegalTransition};

/// Why a handoff is completed that its receiver handed on: a code.
pub const HANDED_ON: &str = "HANDED_ON";

/// Reason code of a completed handoff whose task went back to the agent that asked for its return.
pub const RETURNED: &str = "RETURNED";

/// Whether a reason is a code: 2 to 64 of `A-Z`, `0-9` and `_`, a letter first. Any other reason is free text.
#[must_use]
pub fn is_reason_code(reason: &str) -> bool {
    (2..=64).contains(&reason.len())
        && reason.starts_with(|c: char| c.is_ascii_uppercase())
        && reason.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// The reason that the sender reads when every receiver of its list refused (seed 001): the broker's words.
pub const ALL_UNAVAILABLE: &str = "All preferred agents unavailable";

/// Whether a receiver put a reason into words of its own: codes, and [`ALL_UNAVAILABLE`], are no such words.
#[must_use]
pub fn is_in_own_words(reason: &str) -> bool {
    !is_reason_code(reason) && reason != ALL_UNAVAILABLE
}

/// The urgency of a handoff: of those that wait for one receiver, the more urgent goes first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Urgent,
    High,
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// Its place in [`Priority::ALL`], as stored.
    #[must_use]
    pub const fn rank(self) -> i32 {
        self as i32
    }

    /// Reads a rank back.
    #[must_use]
    pub fn of_rank(rank: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.rank() == rank)
    }
}

/// How a receiver gets its handoffs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// The broker posts to the receiver's URL.
    Webhook,
    /// The receiver asks for its inbox.
    Pull,
    /// The broker is the receiver's A2A client.
    A2a,
    /// The broker signals the task's Temporal workflow.
    Temporal,
    /// The broker sends to an SQS queue.
    Sqs,
    /// The broker publishes to a NATS JetStream subject.
    Nats,
    /// The broker appends to a Redis stream.
    Redis,
    /// The broker publishes to an AMQP exchange.
    Amqp,
}

impl DeliveryMode {
    pub const ALL: [Self; 8] = [
        Self::Webhook,
        Self::Pull,
        Self::A2a,
        Self::Temporal,
        Self::Sqs,
        Self::Nats,
        Self::Redis,
        Self::Amqp,
    ];

    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Pull => "pull",
            Self::A2a => "a2a",
            Self::Temporal => "temporal",
            Self::Sqs => "sqs",
            Self::Nats => "nats",
            Self::Redis => "redis",
            Self::Amqp => "amqp",
        }
    }

    /// Reads the stored form back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }

    /// Whether a body may go in a content coding.
    #[must_use]
    pub const fn carries_bytes(self) -> bool {
        matches!(self, Self::Webhook | Self::Nats | Self::Redis | Self::Amqp)
    }

    /// Whether the dispatcher delivers, instead of the receiver asking.
    #[must_use]
    pub const fn is_pushed(self) -> bool {
        !matches!(self, Self::Pull)
    }
}

/// A message's stated cost (seed 000 §5.2 `costTracking`); `spent` is cumulative
/// over the task (ruling X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// `costSpentSoFarUSD`.
    pub spent: Usd,
    /// `costBudgetRemainingUSD`.
    pub remaining: Usd,
    /// `tokenSpent.prompt`, in tokens.
    pub prompt_tokens: u64,
    /// `tokenSpent.completion`, in tokens.
    pub completion_tokens: u64,
}

/// `tokenSpent`: tokens by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenSpent {
    #[serde(deserialize_with = "tokens")]
    pub prompt: u64,
    #[serde(deserialize_with = "tokens")]
    pub completion: u64,
}

/// A count as the message's schema takes it: `3.0` is an integer there.
fn tokens<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(from)?;
    whole_number(&value).ok_or_else(|| D::Error::custom("must be a whole number from 0"))
}

/// Written as the message writes it.
impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let tokens = TokenSpent { prompt: self.prompt_tokens, completion: self.completion_tokens };
        let mut cost = to.serialize_struct("Cost", 3)?;
        cost.serialize_field("costSpentSoFarUSD", &self.spent)?;
        cost.serialize_field("costBudgetRemainingUSD", &self.remaining)?;
        cost.serialize_field("tokenSpent", &tokens)?;
        cost.end()
    }
}

/// Read as the message writes it.
impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Written {
            #[serde(rename = "costSpentSoFarUSD")]
            spent: Usd,
            #[serde(rename = "costBudgetRemainingUSD")]
            remaining: Usd,
            token_spent: TokenSpent,
        }
        let Written { spent, remaining, token_spent } = Written::deserialize(from)?;
        let TokenSpent { prompt: prompt_tokens, completion: completion_tokens } = token_spent;
        Ok(Self { spent, remaining, prompt_tokens, completion_tokens })
    }
}

/// The row of one handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    pub tenant: TenantId,
    pub id: HandoffId,
    /// The task it moves.
    pub task_id: TaskId,
    /// The handoff before it on the task, as the sender says.
    pub parent_id: Option<HandoffId>,
    pub source: AgentId,
    /// The sender's version (semver).
    pub source_version: String,
    pub source_execution: ExecutionId,
    /// The receiver, as the route resolved it.
    pub target: AgentId,
    pub target_type: String,
    /// The receiver's version when it was chosen.
    pub target_version: String,
    /// How it is delivered.
    pub mode: DeliveryMode,
    pub status: HandoffStatus,
    /// The current fencing token; monotonic per task.
    pub fencing_token: i64,
    /// Attempts at delivery that were settled or claimed.
    pub attempts: i32,
    /// When the current wait (verdict or lease) ends.
    pub deadline_at: Option<Micros>,
    /// When its holder was last heard of, where the holder said how often that will be.
    pub pulse: Option<HolderPulse>,
    /// Its cost, cumulative.
    pub cost: Cost,
    /// May be tried again after its bytes were sent.
    pub idempotent: bool,
    /// The checkpoint that a rollback restores: its number within task and execution.
    pub checkpoint: Option<CheckpointRef>,
    /// The checkpoint's commitment, for the record of a rollback.
    pub checkpoint_commitment: Option<[u8; 32]>,
    pub content_id: Option<ContentRef>,
    /// The message's commitment, for records of handoffs that carry the same message.
    pub commitment: Option<[u8; 32]>,
    /// The handoff that this one replaces, and under whose id personal data are kept.
    pub origin: Option<HandoffId>,
    /// The ruling on its end; `None` for the defaults.
    pub ruling: Option<Box<Ruling>>,
    /// Its message against the receiver's context window; none where a version before 0.3 committed it.
    pub context: Option<ContextFacts>,
    /// The content that its receiver gets in the message's place: the compressed message, or the opening message of a
    /// stream.
    pub sent_id: Option<ContentRef>,
    /// The receiver's questions, in order; the last one is open while the status is `INPUT_REQUIRED`.
    pub questions: Vec<Question>,
    /// The conversation that its sender names (`conversationId`), to find it by; none once erased.
    pub conversation_id: Option<String>,
    /// The reference to the user that its sender names (`userId`), to find it by; none once erased.
    pub user_ref: Option<String>,
    /// Its stream, where its message comes in pieces.
    pub stream: Option<Stream>,
    /// The sum that operators had added to the task's budget by its commit.
    pub topped_up: Usd,
    /// Salt of `digest`; 16 bytes, empty once erased.
    pub digest_salt: Vec<u8>,
    /// Salted SHA-256 of the whole canonical message, to tell a replay from a conflict.
    pub digest: Vec<u8>,
    /// Why it ended badly: a code.
    pub reason: Option<String>,
    /// Trace context under which it was submitted.
    pub traceparent: String,
    /// The `tracestate` that came with it; empty for none.
    pub tracestate: String,
    /// The broker's own span under which it was committed, as a `traceparent`; empty where nothing is
    /// exported.
    pub span: String,
    /// When it was committed.
    pub created_at: Micros,
    /// When its latency clock started, and when its receiver could first take it.
    pub clock: LatencyClock,
    /// When the receiver accepted.
    pub accepted_at: Option<Micros>,
    pub ended_at: Option<Micros>,
}

/// A handoff as its message and its route state it, before the ledger commits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffDraft {
    pub tenant: TenantId,
    pub id: HandoffId,
    /// The task it moves.
    pub task_id: TaskId,
    /// The handoff before it on the task, as the sender states it.
    pub parent_id: Option<HandoffId>,
    pub source: AgentId,
    /// The sender's version (semver).
    pub source_version: String,
    pub source_execution: ExecutionId,
    /// The receiver, as the route resolved it.
    pub target: AgentId,
    pub target_type: String,
    /// The receiver's version when it was chosen.
    pub target_version: String,
    pub mode: DeliveryMode,
    /// The status with which it is committed.
    pub status: HandoffStatus,
    /// Cumulative cost as the message states it.
    pub cost: Cost,
    /// Whether a retry is allowed after bytes were sent.
    pub idempotent: bool,
    /// The ruling on its end; `None` for the defaults.
    pub ruling: Option<Box<Ruling>>,
    /// Its message against the receiver's context window; none for a handoff to oneself.
    pub context: Option<ContextFacts>,
    /// The conversation that its sender names (`conversationId`).
    pub conversation_id: Option<String>,
    /// The reference to the user that its sender names (`userId`).
    pub user_ref: Option<String>,
    /// Its stream, where the message opens one.
    pub stream: Option<Stream>,
    /// Salt of `digest`, 16 bytes.
    pub digest_salt: Vec<u8>,
    /// Salted SHA-256 of the whole canonical message, to tell a replay from a conflict.
    pub digest: Vec<u8>,
    /// Trace context under which it was submitted.
    pub traceparent: String,
    /// The `tracestate` that came with it; empty for none.
    pub tracestate: String,
    /// The broker's own span of the submission, as a `traceparent`; empty where no span is exported.
    pub span: String,
    /// Time of the submission.
    pub created_at: Micros,
    /// Start of its latency.
    pub clock: LatencyClock,
}

/// Members that a commit adds to a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoffCommit {
    /// The stored message, with its commitment.
    pub content: (ContentRef, [u8; 32]),
    /// The checkpoint that a rollback restores, with its commitment; none under another agent's run.
    pub checkpoint: Option<(CheckpointRef, [u8; 32])>,
    /// The task's fencing token after the commit; 0 for a dead letter, which has none.
    pub fencing_token: i64,
    /// The sum that operators had added to the task's budget.
    pub topped_up: Usd,
}

impl HandoffDraft {
    /// The row of the handoff.
    #[must_use]
    pub fn committed(self, commit: HandoffCommit) -> Handoff {
        let HandoffCommit { content, checkpoint, fencing_token, topped_up } = commit;
        Handoff {
            tenant: self.tenant,
            id: self.id,
            task_id: self.task_id,
            parent_id: self.parent_id,
            source: self.source,
            source_version: self.source_version,
            source_execution: self.source_execution,
            target: self.target,
            target_type: self.target_type,
            target_version: self.target_version,
            mode: self.mode,
            status: self.status,
            fencing_token,
            attempts: 0,
            deadline_at: None,
            pulse: None,
            cost: self.cost,
            idempotent: self.idempotent,
            checkpoint: checkpoint.map(|(at, _)| at),
            checkpoint_commitment: checkpoint.map(|(_, commitment)| commitment),
            content_id: Some(content.0),
            commitment: Some(content.1),
            origin: None,
            ruling: self.ruling,
            context: self.context,
            // The sent message does not change: the chunks follow it.
            sent_id: self.stream.is_some().then_some(content.0),
            stream: self.stream,
            questions: Vec::new(),
            conversation_id: self.conversation_id,
            user_ref: self.user_ref,
            topped_up,
            digest_salt: self.digest_salt,
            digest: self.digest,
            reason: None,
            traceparent: self.traceparent,
            tracestate: self.tracestate,
            span: self.span,
            created_at: self.created_at,
            clock: self.clock,
            accepted_at: None,
            ended_at: None,
        }
    }
}

/// The terms of a handoff that checks and records read, before and after its commit.
#[derive(Debug, Clone, Copy)]
pub struct HandoffTerms<'a> {
    pub id: HandoffId,
    pub task_id: TaskId,
    /// The handoff before it on the task.
    pub parent_id: Option<HandoffId>,
    /// The handoff that this one replaces.
    pub origin: Option<HandoffId>,
    pub source: &'a AgentId,
    pub target: &'a AgentId,
    pub status: HandoffStatus,
    /// The ruling on its end.
    pub ruling: Option<&'a Ruling>,
    /// Cumulative cost as the message states it.
    pub cost: &'a Cost,
}

impl<'a> From<&'a Handoff> for HandoffTerms<'a> {
    fn from(handoff: &'a Handoff) -> Self {
        Self {
            id: handoff.id,
            task_id: handoff.task_id,
            parent_id: handoff.parent_id,
            origin: handoff.origin,
            source: &handoff.source,
            target: &handoff.target,
            status: handoff.status,
            ruling: handoff.ruling.as_deref(),
            cost: &handoff.cost,
        }
    }
}

impl<'a> From<&'a HandoffDraft> for HandoffTerms<'a> {
    fn from(draft: &'a HandoffDraft) -> Self {
        Self {
            id: draft.id,
            task_id: draft.task_id,
            parent_id: draft.parent_id,
            origin: None,
            source: &draft.source,
            target: &draft.target,
            status: draft.status,
            ruling: draft.ruling.as_deref(),
            cost: &draft.cost,
        }
    }
}

impl Handoff {
    /// The compressed message that its receiver gets in the message's place.
    #[must_use]
    pub fn compressed_id(&self) -> Option<ContentRef> {
        self.sent_id.filter(|_| self.stream.is_none())
    }

    /// Removes the parts of a handoff's row that an erasure covers: the salted digest of the submission and the
    /// parties' own words; with `words`, also a reason that is not a code.
    pub fn erase(&mut self, words: bool) {
        self.digest_salt.clear();
        self.digest.clear();
        self.tracestate.clear();
        self.conversation_id = None;
        self.user_ref = None;
        let is_code = |reason: &String| {
            reason.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        self.reason.take_if(|reason| words && !is_code(reason));
    }

    /// Whether an erasure took the digest of its submission, and what goes with it.
    #[must_use]
    pub fn is_erased(&self) -> bool {
        self.digest.is_empty()
    }

    /// Whether its message still comes in pieces.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_open)
    }

    /// The name under which its contract has its events told to auditors.
    #[must_use]
    pub fn audit_event(&self) -> Option<&str> {
        self.ruling.as_ref()?.edge.audit_event.as_deref()
    }

    /// The number of the question that waits for an answer, from 1.
    #[must_use]
    pub fn open_question(&self) -> Option<u32> {
        let number = u32::try_from(self.questions.len()).unwrap_or(u32::MAX);
        (self.status == HandoffStatus::InputRequired).then_some(number)
    }

    /// Its place in a group.
    #[must_use]
    pub fn branch(&self) -> Option<BranchPlace> {
        self.ruling.as_ref()?.branch
    }
}

/// Names a stored content.
pub type ContentRef = super::ids::ContentId;

/// Names a checkpoint within its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointRef {
    /// The run whose state it is.
    pub execution_id: ExecutionId,
    /// 1 for the first checkpoint of that run, then counting up.
    pub seq: i64,
}
