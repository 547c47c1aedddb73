//! The audit record: one entry of a tenant's append-only log (specification §6).
//!
//! A record is drafted by the ledger and sealed under the log's head: it gets its leaf index and the
//! hash of the record before it, is written in RFC 8785 form, and those very bytes are hashed and
//! kept. `recordHash` is `SHA-256(0x00 || bytes)`: the leaf hash of RFC 6962 §2.1, so that the chain
//! and the Merkle tree speak of the same thing. Free text never stands in a record, only a
//! commitment to it: a record cannot be erased, its content can.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::commitment::{Part, hash_text};
use super::erasure::{ErasureFacts, HoldFacts, RetentionFacts};
use super::merkle::Frontier;
use crate::domain::canonical;
use crate::domain::funds::Tally;
use crate::domain::handoff::{Cost, TokenSpent};
use crate::domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use crate::domain::money::Usd;
use crate::domain::residency::ResidencyFacts;

/// What a record tells of.
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
    /// The receiver accepted.
    Accepted,
    /// The receiver rejected.
    Rejected,
    /// The receiver completed.
    Completed,
    /// The receiver failed, or delivery was given up.
    Failed,
    /// A deadline passed.
    Expired,
    /// The task went back to the agent that asked for its return.
    Returned,
    /// The sender's checkpoint became current again.
    RolledBack,
    /// A checkpoint was stored.
    Checkpoint,
    /// The task was completed.
    TaskCompleted,
    /// The task was withdrawn.
    TaskCanceled,
    /// The handoff was withdrawn before its end.
    Canceled,
    /// A person is asked to decide.
    Escalated,
    /// A person decided, or nobody did in time.
    EscalationResolved,
    /// A person released a dead letter for delivery.
    Released,
    /// A person discarded a dead letter.
    Discarded,
    /// A dead letter was to be released, and the gate refused it again.
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
    /// An agent's endpoint said it is gone, or failed too often in a row.
    EndpointDisabled,
    /// An agent's endpoint is on its way to being disabled.
    EndpointFailing,
    /// An agent's endpoint answers again.
    EndpointRecovered,
    /// A secret or key of an agent was replaced.
    SecretRotated,
    /// A version of a contract was added.
    ContractPut,
    /// A version of a payload schema was registered.
    PayloadSchemaPut,
    /// A key was made.
    KeyCreated,
    /// A key was revoked.
    KeyRevoked,
    /// Tree heads are signed with another key from here on.
    TreeKeyChanged,
    /// A subscription to events was made.
    SubscriptionCreated,
    /// A subscription was changed.
    SubscriptionUpdated,
    /// A subscription was removed.
    SubscriptionDeleted,
    /// The broker stopped telling a subscriber.
    SubscriptionDisabled,
    /// A subscriber is told again from an earlier place.
    SubscriptionReplayed,
    /// Somebody asked for a data subject's erasure.
    ErasureRequested,
    /// Contents went in this very commit, a page of a data subject's or of what is past its time; the
    /// record's own content lists them.
    Erased,
    /// An erasure is done.
    ErasureCompleted,
    /// A legal hold was placed: what it names may not be erased.
    LegalHoldPlaced,
    /// A legal hold was released.
    LegalHoldReleased,
}

impl RecordKind {
    /// As it stands in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handoff => "HANDOFF",
            Self::Refused => "REFUSED",
            Self::NoOp => "NO_OP",
            Self::DeadLettered => "DEAD_LETTERED",
            Self::Accepted => "ACCEPTED",
            Self::Rejected => "REJECTED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Expired => "EXPIRED",
            Self::Returned => "RETURNED",
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
    /// Whether what was said with such a record goes when it is past its time. What stays is how the
    /// broker was set up, what rules a later reader needs (contracts, payload schemas), and what accounts
    /// for gaps and forbids them.
    #[must_use]
    pub const fn is_purged(self) -> bool {
        match self {
            Self::Handoff
            | Self::Refused
            | Self::NoOp
            | Self::DeadLettered
            | Self::Accepted
            | Self::Rejected
            | Self::Completed
            | Self::Failed
            | Self::Expired
            | Self::Returned
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

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// `agent`, `operator`, `auditor`, `admin` or `broker`.
    pub role: String,
    /// The agent, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    /// The key used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<String>,
}

impl Actor {
    /// The broker itself (a deadline, a delivery).
    #[must_use]
    pub fn broker() -> Self {
        Self { role: "broker".to_owned(), agent_id: None, key_id: None }
    }
}

/// An agent as it was when the record was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Party {
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_type: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_version: Option<String>,
    /// Of a sender: the version that is registered of it, beside the one that its message claims.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registered_version: Option<String>,
    /// Its run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
}

/// The contract that ruled the edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractRef {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// The payload schema that was registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadSchemaRef {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// What the safety stage said of a message that passed. Codes only: a record cannot be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SafetyFacts {
    /// The version of the rules.
    pub rules: String,
    /// Rules that fired and were only observed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub observed: Vec<String>,
    /// The external classifier, where one was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub classifier: Option<ClassifierFacts>,
}

/// What an external classifier said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifierFacts {
    /// The model, or the style it speaks.
    pub by: String,
    /// `SAFE`, `UNSAFE`, or `NONE` where it gave no answer.
    pub verdict: String,
    /// What it called it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
}

/// A record's content on its way into the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Under which it is kept.
    pub id: ContentId,
    /// The content.
    pub part: Part,
}

/// One subject's data on its way into the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalPart {
    /// Whose.
    pub subject_id: String,
    /// The data.
    pub part: Part,
}

/// Money and tokens as a record has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spent {
    usd: Usd,
    token_spent: TokenSpent,
}

impl From<Tally> for Spent {
    fn from(tally: Tally) -> Self {
        let Tally { usd, prompt, completion } = tally;
        Self { usd, token_spent: TokenSpent { prompt, completion } }
    }
}

/// A record before it has its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Whose log.
    pub tenant: TenantId,
    /// What it tells of.
    pub kind: RecordKind,
    /// When.
    pub at: Micros,
    /// Who.
    pub actor: Actor,
    /// On which task.
    pub task_id: Option<TaskId>,
    /// On which handoff.
    pub handoff_id: Option<HandoffId>,
    /// The handoff before.
    pub parent_handoff_id: Option<HandoffId>,
    /// From whom.
    pub from: Option<Party>,
    /// To whom.
    pub to: Option<Party>,
    /// Under which contract.
    pub contract: Option<ContractRef>,
    /// Of which payload schema.
    pub payload_schema: Option<PayloadSchemaRef>,
    /// The status that resulted.
    pub status: Option<&'static str>,
    /// A code, never free text.
    pub reason: Option<String>,
    /// What the message said it has cost.
    pub cost: Option<Cost>,
    /// What the task's books counted with it: of a handoff what its sender had spent since it was last heard
    /// of, of an end what the receiver spent besides what it handed on.
    pub spent: Option<Tally>,
    /// The message, or what the actor said.
    pub content: Option<Content>,
    /// A content that another record brought, and its commitment; where `content` is none.
    pub shared: Option<(ContentId, [u8; 32])>,
    /// The checkpoint that goes with it.
    pub checkpoint_commitment: Option<[u8; 32]>,
    /// Personal data, by subject.
    pub personal: Vec<PersonalPart>,
    /// The erasure it tells of.
    pub erasure: Option<ErasureFacts>,
    /// The end of retention it tells of.
    pub retention: Option<RetentionFacts>,
    /// The legal hold it tells of.
    pub hold: Option<HoldFacts>,
    /// What the safety stage said.
    pub safety: Option<SafetyFacts>,
    /// The name under which the contract has the event told to auditors.
    pub audit_event: Option<String>,
    /// Attempts at delivery by then, where the broker makes them.
    pub attempts: Option<i32>,
    /// The regions between which the data went.
    pub residency: Option<ResidencyFacts>,
}

impl Draft {
    /// Under which its content is kept, whoever brought it.
    #[must_use]
    pub fn content_id(&self) -> Option<ContentId> {
        self.content.as_ref().map(|content| content.id).or(self.shared.map(|(id, _)| id))
    }

    /// A draft with nothing but its kind.
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
        }
    }
}

/// The end of a tenant's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHead {
    /// Whose log.
    pub tenant: TenantId,
    /// The log's own id: a UUID made with the tenant.
    pub log_id: String,
    /// How many records it has; the next leaf index.
    pub size: i64,
    /// Hash of the last record; empty when there is none.
    pub hash: Vec<u8>,
    /// The right edge of the log's tree. Behind `size` only where a version without a tree wrote last.
    pub tree: Frontier,
}

impl LogHead {
    /// The first leaf that the tree lacks, where it lacks one.
    #[must_use]
    pub fn behind(&self) -> Option<i64> {
        let has = i64::try_from(self.tree.size()).unwrap_or(i64::MAX);
        (has < self.size).then_some(has)
    }
}

/// The record as written; field order does not matter, RFC 8785 sorts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
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
    from_agent: Option<&'a Party>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_agent: Option<&'a Party>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<&'a ContractRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_schema: Option<&'a PayloadSchemaRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_at_handoff: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent: Option<Spent>,
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
}

/// A record with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The log.
    pub log_id: String,
    /// Its place.
    pub leaf_index: i64,
    /// `SHA-256(0x00 || body)`.
    pub hash: [u8; 32],
    /// The bytes hashed and kept: RFC 8785 JSON.
    pub body: Vec<u8>,
    /// How many records the log had after the transaction that appended it: its receipt is over that
    /// tree, whenever it is asked for. 0 where a version without a tree wrote it.
    pub tree_size: i64,
}

/// The hash of a record's bytes: RFC 6962 §2.1's leaf hash.
#[must_use]
pub fn record_hash(body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update([0u8]).chain_update(body).finalize().into()
}

/// Gives a draft its place at the head of its log, and moves the head on.
#[must_use]
pub fn seal(head: &mut LogHead, draft: &Draft) -> Sealed {
    let body = Body {
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
        spent: draft.spent.map(Spent::from),
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
    };
    // A struct of texts and finite numbers always serialises.
    let body = canonical::to_vec(&serde_json::to_value(&body).unwrap_or_default());
    let hash = record_hash(&body);
    let sealed =
        Sealed { log_id: head.log_id.clone(), leaf_index: head.size, hash, body, tree_size: 0 };
    head.size += 1;
    head.hash = hash.to_vec();
    sealed
}
