//! The audit record: one entry of a tenant's append-only log (specification §6).
//!
//! A record is drafted by the ledger and sealed under the log's head: it gets its leaf index and the
//! hash of the record before it, is written in RFC 8785 form, and those very bytes are hashed and
//! kept. `recordHash` is `SHA-256(0x00 || bytes)`: the leaf hash of RFC 6962 §2.1, so that the chain
//! and the Merkle tree speak of the same thing. Free text is never in a record, only a commitment to
//! it: a record cannot be erased, its content can.

use serde::{Deserialize, Serialize};

use super::commitment::PackedContent;
use super::erasure::{ErasureFacts, HoldFacts, RetentionFacts};
use super::merkle::Frontier;
use handoffd_domain::funds::Spending;
use handoffd_domain::group::GroupFacts;
use handoffd_domain::handoff::{Cost, TokenSpent};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::money::Usd;
use handoffd_domain::residency::{Crossing, ResidencyFacts};
use handoffd_domain::stream::{Stream, StreamStatus};
use handoffd_domain::window::{CompressionFacts, ContextFacts};

mod change;
mod kind;
mod seal;

pub use change::{AdoptionFacts, ChangeFacts, StateObject};
pub use kind::{RecordKind, is_shown_elsewhere};
pub use seal::{SealedRecord, record_hash, seal};

/// The role of an actor: that of an API key, or the broker's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorRole {
    Agent,
    /// A person who runs agents.
    Operator,
    /// A person who runs agents and reads no contents.
    OperatorMetadata,
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
            Self::OperatorMetadata => "operator-metadata",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
            Self::Broker => "broker",
        }
    }
}

/// The actor of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordActor))]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    #[cfg_attr(feature = "openapi", schema(schema_with = described::role))]
    pub role: ActorRole,
    /// The agent, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub agent_id: Option<AgentId>,
    /// The key used.
    // Or [`Actor::BY_SIGNATURE`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub key_id: Option<String>,
}

impl Actor {
    /// The id in place of an agent's key when its own signature proved the agent: a message or reply that
    /// came by a queue.
    pub const BY_SIGNATURE: &str = "signature";

    /// The broker as the actor of a deadline or a delivery.
    #[must_use]
    pub fn broker() -> Self {
        Self { role: ActorRole::Broker, agent_id: None, key_id: None }
    }
}

/// An agent as it was when the record was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordParty {
    /// Id of the agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub agent_id: Option<AgentId>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub agent_type: Option<String>,
    /// Its version; of a sender the one that its message claims.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub agent_version: Option<String>,
    /// Of a sender: the version that is registered of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub registered_version: Option<String>,
    /// The agent's run, a UUID.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub execution_id: Option<ExecutionId>,
}

/// A version of a contract or of a payload schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordContract))]
pub struct RulingContract {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// The registered payload schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadSchemaRef {
    pub id: String,
    pub version: String,
}

/// The safety stage's facts about a message that passed: codes only.
// A record cannot be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordSafety))]
#[serde(rename_all = "camelCase")]
pub struct SafetyFacts {
    /// The version of the rules.
    pub rules: String,
    /// Rules that fired and were only observed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub observed: Vec<String>,
    /// Rules that marked an order inside data.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub marked: Vec<String>,
    /// The external classifier, where one was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub classifier: Option<ClassifierFacts>,
}

impl SafetyFacts {
    /// Whether the classifier is asked after the commit.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.classifier.as_ref().is_some_and(|facts| facts.verdict == ClassifierFacts::PENDING)
    }
}

/// The opinion of an external classifier.
// Codes only, since a record cannot be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordClassifier))]
pub struct ClassifierFacts {
    /// The model, or the style it speaks.
    pub by: String,
    /// `SAFE`, `UNSAFE`, `NONE` where it gave no answer, or `PENDING` where it is asked after the commit.
    pub verdict: String,
    /// The label that it gave.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub label: Option<String>,
    /// The texts went to another region for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub crossing: Option<Crossing>,
}

impl ClassifierFacts {
    pub const SAFE: &str = "SAFE";
    pub const UNSAFE: &str = "UNSAFE";
    /// The classifier gave no answer.
    pub const NONE: &str = "NONE";
    /// The classifier is asked after the commit; a `SECOND_OPINION` record follows.
    pub const PENDING: &str = "PENDING";

    /// A verdict without a label.
    #[must_use]
    pub fn new(by: &str, verdict: &str) -> Self {
        Self { by: by.to_owned(), verdict: verdict.to_owned(), label: None, crossing: None }
    }
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

/// Money and tokens that the task's budget counted with a record.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordSpent))]
#[serde(rename_all = "camelCase")]
pub struct SpendingFacts {
    /// US dollars that the task's budget counted.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    usd: Usd,
    #[cfg_attr(feature = "openapi", schema(schema_with = described::token_spent))]
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
    /// The result of the message's compression.
    pub compression: Option<CompressionFacts>,
    /// The number of the receiver's question, from 1.
    pub question: Option<u32>,
    /// The stream's state with this record.
    pub stream: Option<StreamFacts>,
    /// The handoff's place in a group, or what its group came to.
    pub group: Option<GroupFacts>,
    /// The external classifier's verdict on a committed message.
    pub opinion: Option<ClassifierFacts>,
    /// The objects that an administrative command changed.
    pub changes: Vec<ChangeFacts>,
    /// The facts of an adoption.
    pub adoption: Option<AdoptionFacts>,
}

/// A record's facts about a stream.
// A `HANDOFF` states that it is open, a `CHUNK` its number, a `STREAM_CLOSED` and the handoff's bad end the last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordStream))]
pub struct StreamFacts {
    /// The state of the stream.
    #[cfg_attr(feature = "openapi", schema(schema_with = described::stream_status))]
    pub status: StreamStatus,
    /// The last number; 0 before the first chunk.
    pub seq: i64,
}

/// Components of the API's document to which the schemas of this crate refer.
#[cfg(feature = "openapi")]
mod described {
    use utoipa::openapi::Ref;
    use utoipa::openapi::schema::RefBuilder;

    pub(super) fn role() -> RefBuilder {
        component("ActorRole", "Role of the actor: that of its key, or `broker`.")
    }

    pub(super) fn stream_status() -> RefBuilder {
        component("StreamStatus", "The state of the stream.")
    }

    pub(super) fn token_spent() -> RefBuilder {
        component("TokensView", "Tokens that the task's budget counted.")
    }

    fn component(name: &str, about: &str) -> RefBuilder {
        Ref::builder().ref_location_from_schema_name(name).description(Some(about))
    }
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
            opinion: None,
            changes: Vec::new(),
            adoption: None,
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
