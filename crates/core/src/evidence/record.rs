//! The audit record: one entry of a tenant's append-only log (specification §6).
//!
//! A record is drafted by the ledger and sealed under the log's head: it gets its leaf index and the
//! hash of the record before it, is written in RFC 8785 form, and those very bytes are hashed and
//! kept. `recordHash` is `SHA-256(0x00 || bytes)`: the leaf hash of RFC 6962 §2.1, so that the chain
//! and the Merkle tree speak of the same thing. Free text never stands in a record, only a
//! commitment to it: a record cannot be erased, its content can.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::commitment::{PackedContent, hash_text};
use super::erasure::{ErasureFacts, HoldFacts, RetentionFacts};
use super::merkle::Frontier;
use crate::domain::canonical;
use crate::domain::funds::Spending;
use crate::domain::group::GroupFacts;
use crate::domain::handoff::{Cost, TokenSpent};
use crate::domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::money::Usd;
use crate::domain::residency::ResidencyFacts;
use crate::domain::stream::{Stream, StreamStatus};
use crate::domain::window::{CompressionFacts, ContextFacts};

/// The event a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RecordKind {
    /// A handoff was committed: one a boundary (ruling X12).
    Handoff,
    /// The gate refused a submission of an authenticated sender.
    Refused,
    /// A handoff to oneself.
    NoOp,
    /// A refused handoff was kept for a person.
    DeadLettered,
    /// The message was compressed for its receiver; the content is the message that it gets.
    Compressed,
    /// A chunk was added to a handoff's stream; the content is the chunk.
    Chunk,
    /// A stream was closed; the content is the assembled message, which is the handoff's from then on.
    StreamClosed,
    /// The receiver accepted the handoff.
    Accepted,
    /// The receiver rejected the handoff.
    Rejected,
    /// The receiver asked the handoff's sender; the content is the question.
    InputRequested,
    /// The question was answered; the content is the answer.
    InputProvided,
    /// The receiver completed the handoff.
    Completed,
    /// The receiver failed, or the broker gave delivery up.
    Failed,
    /// A deadline passed without a verdict.
    Expired,
    /// The task went back to the agent that asked for its return.
    Returned,
    /// A group of handoffs was decided, or withdrawn with its task.
    GroupEnded,
    /// The sender's checkpoint became current again.
    RolledBack,
    /// A checkpoint was stored.
    Checkpoint,
    /// The task was completed.
    TaskCompleted,
    /// The task was cancelled.
    TaskCanceled,
    /// The handoff was cancelled before its end.
    Canceled,
    /// The handoff waits for a person's decision.
    Escalated,
    /// A person decided, or the time for a decision passed.
    EscalationResolved,
    /// A person released a dead letter for delivery.
    Released,
    /// A person discarded a dead letter.
    Discarded,
    /// The gate refused a dead letter again at its release.
    ReleaseRefused,
    /// An operator added to the task's budget.
    BudgetChanged,
    /// An earlier checkpoint was made the task's current one.
    CheckpointRestored,
    /// An agent was registered.
    AgentCreated,
    /// An agent was changed.
    AgentUpdated,
    /// An agent was removed.
    AgentDeleted,
    /// An agent's endpoint was disabled: it answered 410, or failed too often in a row.
    EndpointDisabled,
    /// An agent's endpoint fails and will be disabled if that continues.
    EndpointFailing,
    /// An agent's endpoint answers again.
    EndpointRecovered,
    /// A secret or key of an agent was rotated.
    SecretRotated,
    /// A version of a contract was added.
    ContractPut,
    /// A version of a payload schema was registered.
    PayloadSchemaPut,
    /// An API key was created.
    KeyCreated,
    /// A key was revoked.
    KeyRevoked,
    /// Later tree heads are signed with another key.
    TreeKeyChanged,
    /// An event subscription was created.
    SubscriptionCreated,
    /// An event subscription was changed.
    SubscriptionUpdated,
    /// An event subscription was removed.
    SubscriptionDeleted,
    /// The broker stopped publishing to a subscription.
    SubscriptionDisabled,
    /// A subscription was set back to an earlier event.
    SubscriptionReplayed,
    /// A data subject's erasure was requested.
    ErasureRequested,
    /// Contents were removed in this commit: a page of an erasure or of a purge. The record's own content lists
    /// them.
    Erased,
    ErasureCompleted,
    /// A legal hold was placed: the data it names may not be erased.
    LegalHoldPlaced,
    /// A legal hold was released.
    LegalHoldReleased,
}

impl RecordKind {
    /// The name in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handoff => "HANDOFF",
            Self::Refused => "REFUSED",
            Self::NoOp => "NO_OP",
            Self::DeadLettered => "DEAD_LETTERED",
            Self::Compressed => "COMPRESSED",
            Self::Chunk => "CHUNK",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::Accepted => "ACCEPTED",
            Self::Rejected => "REJECTED",
            Self::InputRequested => "INPUT_REQUESTED",
            Self::InputProvided => "INPUT_PROVIDED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Expired => "EXPIRED",
            Self::Returned => "RETURNED",
            Self::GroupEnded => "GROUP_ENDED",
            Self::RolledBack => "ROLLED_BACK",
            Self::Checkpoint => "CHECKPOINT",
            Self::TaskCompleted => "TASK_COMPLETED",
            Self::TaskCanceled => "TASK_CANCELED",
            Self::Canceled => "CANCELED",
            Self::Escalated => "ESCALATED",
            Self::EscalationResolved => "ESCALATION_RESOLVED",
            Self::Released => "RELEASED",
            Self::Discarded => "DISCARDED",
            Self::ReleaseRefused => "RELEASE_REFUSED",
            Self::BudgetChanged => "BUDGET_CHANGED",
            Self::CheckpointRestored => "CHECKPOINT_RESTORED",
            Self::AgentCreated => "AGENT_CREATED",
            Self::AgentUpdated => "AGENT_UPDATED",
            Self::AgentDeleted => "AGENT_DELETED",
            Self::EndpointDisabled => "ENDPOINT_DISABLED",
            Self::EndpointFailing => "ENDPOINT_FAILING",
            Self::EndpointRecovered => "ENDPOINT_RECOVERED",
            Self::SecretRotated => "SECRET_ROTATED",
            Self::ContractPut => "CONTRACT_PUT",
            Self::PayloadSchemaPut => "PAYLOAD_SCHEMA_PUT",
            Self::KeyCreated => "KEY_CREATED",
            Self::KeyRevoked => "KEY_REVOKED",
            Self::TreeKeyChanged => "TREE_KEY_CHANGED",
            Self::SubscriptionCreated => "SUBSCRIPTION_CREATED",
            Self::SubscriptionUpdated => "SUBSCRIPTION_UPDATED",
            Self::SubscriptionDeleted => "SUBSCRIPTION_DELETED",
            Self::SubscriptionDisabled => "SUBSCRIPTION_DISABLED",
            Self::SubscriptionReplayed => "SUBSCRIPTION_REPLAYED",
            Self::ErasureRequested => "ERASURE_REQUESTED",
            Self::Erased => "ERASED",
            Self::ErasureCompleted => "ERASURE_COMPLETED",
            Self::LegalHoldPlaced => "LEGAL_HOLD_PLACED",
            Self::LegalHoldReleased => "LEGAL_HOLD_RELEASED",
        }
    }
}

impl RecordKind {
    /// Whether retention removes the content of such a record. Contents on the broker's set-up, on rules that a
    /// later reader needs (contracts, payload schemas), and on erasures and holds stay.
    #[must_use]
    pub const fn is_purged(self) -> bool {
        match self {
            Self::Handoff
            | Self::Refused
            | Self::NoOp
            | Self::DeadLettered
            | Self::Compressed
            | Self::Chunk
            | Self::StreamClosed
            | Self::Accepted
            | Self::Rejected
            | Self::InputRequested
            | Self::InputProvided
            | Self::Completed
            | Self::Failed
            | Self::Expired
            | Self::Returned
            | Self::GroupEnded
            | Self::RolledBack
            | Self::Checkpoint
            | Self::TaskCompleted
            | Self::TaskCanceled
            | Self::Canceled
            | Self::Escalated
            | Self::EscalationResolved
            | Self::Released
            | Self::Discarded
            | Self::ReleaseRefused
            | Self::BudgetChanged
            | Self::CheckpointRestored => true,
            Self::AgentCreated
            | Self::AgentUpdated
            | Self::AgentDeleted
            | Self::EndpointDisabled
            | Self::EndpointFailing
            | Self::EndpointRecovered
            | Self::SecretRotated
            | Self::ContractPut
            | Self::PayloadSchemaPut
            | Self::KeyCreated
            | Self::KeyRevoked
            | Self::TreeKeyChanged
            | Self::SubscriptionCreated
            | Self::SubscriptionUpdated
            | Self::SubscriptionDeleted
            | Self::SubscriptionDisabled
            | Self::SubscriptionReplayed
            | Self::ErasureRequested
            | Self::Erased
            | Self::ErasureCompleted
            | Self::LegalHoldPlaced
            | Self::LegalHoldReleased => false,
        }
    }
}

/// Whether a trace names such a record without its content: messages and chunks are on the handoff's own pages.
#[must_use]
pub fn is_shown_elsewhere(kind: &str) -> bool {
    matches!(kind, "HANDOFF" | "CHUNK" | "STREAM_CLOSED")
}

/// The role of an actor: that of an API key, or the broker's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorRole {
    Agent,
    /// A person who runs agents.
    Operator,
    /// A person who reads the log.
    Auditor,
    /// A person who administers keys.
    Admin,
    /// The broker: a deadline, a delivery, or a consequence of another actor's command.
    Broker,
}

impl ActorRole {
    /// The name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
            Self::Broker => "broker",
        }
    }
}

/// The principal that caused a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    pub role: ActorRole,
    /// The agent, for role `agent`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    /// The API key used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<String>,
}

impl Actor {
    /// The broker as the actor of a deadline or a delivery.
    #[must_use]
    pub fn broker() -> Self {
        Self { role: ActorRole::Broker, agent_id: None, key_id: None }
    }
}

/// An agent's identity at the time of the record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordParty {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_version: Option<String>,
    /// The registered version of a sender; `agent_version` is the one its message claims.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registered_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
}

/// The contract that ruled the edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulingContract {
    pub id: String,
    pub version: String,
}

/// The registered payload schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadSchemaRef {
    pub id: String,
    pub version: String,
}

/// The safety stage's verdict on a message that passed. Codes only, since a record cannot be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SafetyFacts {
    /// The version of the rules.
    pub rules: String,
    /// Rules that matched in observe mode.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub observed: Vec<String>,
    /// Rules that marked orders inside data.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub marked: Vec<String>,
    /// The external classifier's verdict, where one was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub classifier: Option<ClassifierFacts>,
}

/// An external classifier's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifierFacts {
    /// The model, or the wire style.
    pub by: String,
    /// `SAFE`, `UNSAFE`, or `NONE` without an answer.
    pub verdict: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
}

/// A record's content to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordContent {
    /// The id under which the content is stored.
    pub id: ContentId,
    /// The packed content.
    pub part: PackedContent,
}

/// One data subject's data to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalPart {
    pub subject_id: String,
    /// The packed data.
    pub part: PackedContent,
}

/// Money and tokens in a record's form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpendingFacts {
    usd: Usd,
    token_spent: TokenSpent,
}

impl From<Spending> for SpendingFacts {
    fn from(tally: Spending) -> Self {
        let Spending { usd, prompt, completion } = tally;
        Self { usd, token_spent: TokenSpent { prompt, completion } }
    }
}

/// A record before it is sealed into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDraft {
    /// The tenant that owns the log.
    pub tenant: TenantId,
    pub kind: RecordKind,
    /// The time of the event.
    pub at: Micros,
    /// The principal that caused it.
    pub actor: Actor,
    pub task_id: Option<TaskId>,
    pub handoff_id: Option<HandoffId>,
    pub parent_handoff_id: Option<HandoffId>,
    pub from: Option<RecordParty>,
    pub to: Option<RecordParty>,
    /// The contract that ruled the edge.
    pub contract: Option<RulingContract>,
    /// The payload schema concerned.
    pub payload_schema: Option<PayloadSchemaRef>,
    pub status: Option<&'static str>,
    /// A code, never free text.
    pub reason: Option<String>,
    /// The cost stated in the message.
    pub cost: Option<Cost>,
    /// Spending counted against the task budget with this record: for a handoff the sender's since its last
    /// statement, for an end the receiver's without what it handed on.
    pub spent: Option<Spending>,
    /// The message, or the actor's answer.
    pub content: Option<RecordContent>,
    /// A content stored by another record, with its commitment; only where `content` is none.
    pub shared: Option<(ContentId, [u8; 32])>,
    pub checkpoint_commitment: Option<[u8; 32]>,
    /// Personal data, one part for each subject.
    pub personal: Vec<PersonalPart>,
    pub erasure: Option<ErasureFacts>,
    /// The facts of a purge.
    pub retention: Option<RetentionFacts>,
    /// The facts of a legal hold.
    pub hold: Option<HoldFacts>,
    /// The safety stage's verdict.
    pub safety: Option<SafetyFacts>,
    /// The audit event's name, as set by the contract.
    pub audit_event: Option<String>,
    /// Delivery attempts so far, where the broker delivers.
    pub attempts: Option<i32>,
    /// The region crossings of the data.
    pub residency: Option<ResidencyFacts>,
    /// The message against its receiver's context window.
    pub context: Option<ContextFacts>,
    /// What the message's compression came to.
    pub compression: Option<CompressionFacts>,
    /// The number of the receiver's question, from 1.
    pub question: Option<u32>,
    /// The stream's state with this record.
    pub stream: Option<StreamFacts>,
    /// The handoff's place in a group, or what its group came to.
    pub group: Option<GroupFacts>,
}

/// What a record says of a stream: of a `HANDOFF` that it is open, of a `CHUNK` its number, of a `STREAM_CLOSED` and of the
/// handoff's bad end the last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StreamFacts {
    /// Where the stream stands.
    pub status: StreamStatus,
    /// The last number; 0 before the first chunk.
    pub seq: i64,
}

impl From<&Stream> for StreamFacts {
    fn from(stream: &Stream) -> Self {
        Self { status: stream.status, seq: stream.seq }
    }
}

impl RecordDraft {
    /// The id of the content, own or shared.
    #[must_use]
    pub fn content_id(&self) -> Option<ContentId> {
        self.content.as_ref().map(|content| content.id).or(self.shared.map(|(id, _)| id))
    }

    /// A draft with its mandatory members only.
    #[must_use]
    pub const fn new(tenant: TenantId, kind: RecordKind, at: Micros, actor: Actor) -> Self {
        Self {
            tenant,
            kind,
            at,
            actor,
            task_id: None,
            handoff_id: None,
            parent_handoff_id: None,
            from: None,
            to: None,
            contract: None,
            payload_schema: None,
            status: None,
            reason: None,
            cost: None,
            spent: None,
            content: None,
            shared: None,
            checkpoint_commitment: None,
            personal: Vec::new(),
            erasure: None,
            retention: None,
            hold: None,
            safety: None,
            audit_event: None,
            attempts: None,
            residency: None,
            context: None,
            compression: None,
            question: None,
            stream: None,
            group: None,
        }
    }
}

/// The head of a tenant's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHead {
    /// The tenant that owns the log.
    pub tenant: TenantId,
    /// The log's id: a UUID made with the tenant.
    pub log_id: String,
    /// Number of records; the next leaf index.
    pub size: i64,
    /// Hash of the last record; empty in an empty log.
    pub hash: Vec<u8>,
    /// The right edge of the log's tree. Smaller than `size` only where a version without a tree wrote last.
    pub tree: Frontier,
}

impl LogHead {
    /// The first leaf missing from the tree; `None` where the tree is complete.
    #[must_use]
    pub fn behind(&self) -> Option<i64> {
        let has = i64::try_from(self.tree.size()).unwrap_or(i64::MAX);
        (has < self.size).then_some(has)
    }
}

/// The record as serialized; RFC 8785 sorts the fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordBody<'a> {
    v: u8,
    log_id: &'a str,
    tenant: &'a str,
    leaf_index: i64,
    previous_record_hash: Option<String>,
    kind: &'static str,
    time: String,
    actor: &'a Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff_id: Option<HandoffId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_handoff_id: Option<HandoffId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_agent: Option<&'a RecordParty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_agent: Option<&'a RecordParty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<&'a RulingContract>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_schema: Option<&'a PayloadSchemaRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_at_handoff: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent: Option<SpendingFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_commitment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_commitment: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    personal_data_commitments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    erasure: Option<&'a ErasureFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<&'a RetentionFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    legal_hold: Option<&'a HoldFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety: Option<&'a SafetyFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    residency: Option<&'a ResidencyFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a ContextFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'a CompressionFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<StreamFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupFacts>,
}

/// A record with its leaf index and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRecord {
    pub log_id: String,
    /// Leaf index of the record, from 0.
    pub leaf_index: i64,
    /// `SHA-256(0x00 || body)`.
    pub hash: [u8; 32],
    /// The bytes hashed and stored: RFC 8785 JSON.
    pub body: Vec<u8>,
    /// Number of records after the transaction that appended the record: its receipt is always over that tree. 0
    /// where a version without a tree wrote the record.
    pub tree_size: i64,
}

/// The hash of a record's bytes: RFC 6962 §2.1's leaf hash.
#[must_use]
pub fn record_hash(body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update([0u8]).chain_update(body).finalize().into()
}

/// Seals a draft at the head of its log and advances the head.
#[must_use]
pub fn seal(head: &mut LogHead, draft: &RecordDraft) -> SealedRecord {
    let body = RecordBody {
        v: 1,
        log_id: &head.log_id,
        tenant: draft.tenant.as_str(),
        leaf_index: head.size,
        previous_record_hash: (!head.hash.is_empty()).then(|| hash_text(&head.hash)),
        kind: draft.kind.as_str(),
        time: draft.at.rfc3339(),
        actor: &draft.actor,
        task_id: draft.task_id,
        handoff_id: draft.handoff_id,
        parent_handoff_id: draft.parent_handoff_id,
        from_agent: draft.from.as_ref(),
        to_agent: draft.to.as_ref(),
        contract: draft.contract.as_ref(),
        payload_schema: draft.payload_schema.as_ref(),
        status: draft.status,
        reason: draft.reason.as_deref(),
        cost_at_handoff: draft.cost,
        spent: draft.spent.map(SpendingFacts::from),
        message_commitment: draft
            .content
            .as_ref()
            .map(|content| content.part.commitment)
            .or(draft.shared.map(|(_, commitment)| commitment))
            .map(|commitment| hash_text(&commitment)),
        checkpoint_commitment: draft.checkpoint_commitment.map(|c| hash_text(&c)),
        personal_data_commitments: draft
            .personal
            .iter()
            .map(|datum| hash_text(&datum.part.commitment))
            .collect(),
        erasure: draft.erasure.as_ref(),
        retention: draft.retention.as_ref(),
        legal_hold: draft.hold.as_ref(),
        safety: draft.safety.as_ref(),
        audit_event: draft.audit_event.as_deref(),
        attempts: draft.attempts,
        residency: draft.residency.as_ref(),
        context: draft.context.as_ref(),
        compression: draft.compression.as_ref(),
        question: draft.question,
        stream: draft.stream,
        group: draft.group,
    };
    // A struct of texts and finite numbers always serialises.
    let body = canonical::to_vec(&serde_json::to_value(&body).unwrap_or_default());
    let hash = record_hash(&body);
    let sealed = SealedRecord {
        log_id: head.log_id.clone(),
        leaf_index: head.size,
        hash,
        body,
        tree_size: 0,
    };
    head.size += 1;
    head.hash = hash.to_vec();
    sealed
}
