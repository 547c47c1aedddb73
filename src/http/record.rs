//! Records of the log as the OpenAPI document describes them. `evidence::record` writes them; records are kept for
//! good, so a log also has those of older and newer versions: every field is open.

use serde_json::Value;
use utoipa::ToSchema;

use super::open;
use super::views::TokensView;
use handoffd_domain::residency::{Crossing, ResidencyFacts};
use handoffd_domain::window::SentenceCount;
use handoffd_evidence::erasure::{ErasureFacts, HoldFacts, RetentionFacts};
use handoffd_evidence::record::{
    Actor, AdoptionFacts, ChangeFacts, ClassifierFacts, RecordParty, RulingContract, SafetyFacts,
    SpendingFacts, StreamFacts,
};

/// Kinds of records of this version.
const KINDS: &[&str] = &[
    "HANDOFF",
    "REFUSED",
    "NO_OP",
    "DEAD_LETTERED",
    "ACCEPTED",
    "TAKEN_OVER",
    "REJECTED",
    "INPUT_REQUESTED",
    "INPUT_PROVIDED",
    "COMPLETED",
    "FAILED",
    "EXPIRED",
    "COMPRESSED",
    "CHUNK",
    "STREAM_CLOSED",
    "SECOND_OPINION",
    "RETURNED",
    "GROUP_ENDED",
    "ROLLED_BACK",
    "CHECKPOINT",
    "TASK_COMPLETED",
    "TASK_CANCELED",
    "CANCELED",
    "ESCALATED",
    "ESCALATION_RESOLVED",
    "RELEASED",
    "DISCARDED",
    "RELEASE_REFUSED",
    "BUDGET_CHANGED",
    "CHECKPOINT_RESTORED",
    "AGENT_CREATED",
    "AGENT_UPDATED",
    "AGENT_DELETED",
    "ENDPOINT_DISABLED",
    "ENDPOINT_FAILING",
    "ENDPOINT_RECOVERED",
    "SECRET_ROTATED",
    "CONTRACT_PUT",
    "PAYLOAD_SCHEMA_PUT",
    "KEY_CREATED",
    "KEY_REVOKED",
    "TREE_KEY_CHANGED",
    "MASTER_KEY_CHANGED",
    "SUBSCRIPTION_CREATED",
    "SUBSCRIPTION_UPDATED",
    "SUBSCRIPTION_DELETED",
    "SUBSCRIPTION_DISABLED",
    "SUBSCRIPTION_REPLAYED",
    "ERASURE_REQUESTED",
    "ERASED",
    "ERASURE_COMPLETED",
    "LEGAL_HOLD_PLACED",
    "LEGAL_HOLD_RELEASED",
    "STATE_ADOPTED",
];

pub struct RecordKind;

impl utoipa::PartialSchema for RecordKind {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        open::open("The kind of a record.", KINDS)
    }
}

impl ToSchema for RecordKind {}

/// Declares a record with the fields that every record has, and more.
macro_rules! record {
    ($(#[$about:meta])* $name:ident { $($(#[$more:meta])* $field:ident: [$($kind:tt)*],)* }) => {
        $(#[$about])*
        #[derive(ToSchema)]
        #[schema(rename_all = "camelCase")]
        pub struct $name {
            /// The version of the record's form: 1.
            pub v: i64,
            /// Id of the log that holds it.
            pub log_id: String,
            /// The tenant that owns the log.
            pub tenant: String,
            /// Its place in the log, dense from 0.
            pub leaf_index: i64,
            /// `sha256:…` over the record before; null in the first.
            #[schema(required)]
            pub previous_record_hash: Option<String>,
            /// Kind of the event that it records.
            #[schema(value_type = RecordKind)]
            pub kind: String,
            /// When, RFC 3339 with microseconds.
            pub time: String,
            /// The actor that caused it.
            pub actor: Actor,
            /// UUID of the task, where the event concerns one.
            #[schema(nullable = false)]
            pub task_id: Option<String>,
            /// UUID of the handoff, where the event concerns one.
            #[schema(nullable = false)]
            pub handoff_id: Option<String>,
            /// The handoff before it.
            #[schema(nullable = false)]
            pub parent_handoff_id: Option<String>,
            /// Who sent, as it was then.
            #[schema(nullable = false)]
            pub from_agent: Option<RecordParty>,
            /// Who received, as it was then.
            #[schema(nullable = false)]
            pub to_agent: Option<RecordParty>,
            /// The contract that ruled the edge, or that was put.
            #[schema(nullable = false)]
            pub contract: Option<RulingContract>,
            /// The payload schema that was registered.
            #[schema(nullable = false)]
            pub payload_schema: Option<RulingContract>,
            /// The status that resulted.
            #[schema(nullable = false)]
            pub status: Option<String>,
            /// Why it happened: a code.
            #[schema(nullable = false)]
            pub reason: Option<String>,
            /// The costs that the message stated.
            #[schema(nullable = false)]
            pub cost_at_handoff: Option<RecordCost>,
            /// The amounts that the task's budget counted with it.
            #[schema(nullable = false)]
            pub spent: Option<SpendingFacts>,
            /// `sha256:…`, a commitment to the message, or to what the actor said.
            #[schema(nullable = false)]
            pub message_commitment: Option<String>,
            /// `sha256:…`, a commitment to the checkpoint.
            #[schema(nullable = false)]
            pub checkpoint_commitment: Option<String>,
            /// `sha256:…`, one commitment a person.
            #[schema(nullable = false)]
            pub personal_data_commitments: Option<Vec<String>>,
            /// The erasure that the record is about.
            #[schema(nullable = false)]
            pub erasure: Option<ErasureFacts>,
            /// The data that were removed because they were past their time.
            #[schema(nullable = false)]
            pub retention: Option<RetentionFacts>,
            /// The legal hold that the record is about.
            #[schema(nullable = false)]
            pub legal_hold: Option<HoldFacts>,
            /// The safety stage's facts about a message that passed.
            #[schema(nullable = false)]
            pub safety: Option<SafetyFacts>,
            /// The contract's name for the edge's events.
            #[schema(nullable = false)]
            pub audit_event: Option<String>,
            /// Attempts at delivery under a contract, by the time of the verdict.
            #[schema(nullable = false)]
            pub attempts: Option<i64>,
            /// Between which regions the data went, and on what basis.
            #[schema(nullable = false)]
            pub residency: Option<ResidencyFacts>,
            /// The message against its receiver's context window.
            #[schema(nullable = false)]
            pub context: Option<super::views::ContextView>,
            /// The result of the message's compression.
            #[schema(nullable = false)]
            pub compression: Option<RecordCompression>,
            /// The number of the receiver's question, from 1; of a question and of its answer.
            #[schema(nullable = false)]
            pub question: Option<u32>,
            /// The stream with this record, where the message comes in pieces.
            #[schema(nullable = false)]
            pub stream: Option<StreamFacts>,
            /// The handoff's place in a handoff to several receivers; or what that came to.
            #[schema(nullable = false)]
            pub group: Option<RecordGroup>,
            /// The external classifier's opinion of a message after its commit.
            #[schema(nullable = false)]
            pub opinion: Option<ClassifierFacts>,
            /// The changes of an administrative record.
            #[schema(nullable = false)]
            pub changes: Option<Vec<ChangeFacts>>,
            /// The data to which a `STATE_ADOPTED` record commits.
            #[schema(nullable = false)]
            pub adoption: Option<AdoptionFacts>,
            $($(#[$more])* pub $field: $($kind)*,)*
        }
    };
}

record! {
    /// A record of the log.
    Record {}
}

record! {
    /// A record of the log as a trace shows it: with its hash, and with its content where the caller may read it.
    TraceRecord {
        /// `sha256:…` over the record: the leaf's hash.
        record_hash: [String],
        /// The content: free text and values of the actor. Absent if there is none, if the caller may not read it,
        /// or if it was erased; a message is shown with its handoff.
        content: [Option<Value>],
    }
}

/// The place of a handoff among those of a message to several receivers; or the end of all of them.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RecordGroup {
    /// The group: the `handoffId` of the message.
    pub id: String,
    /// The place in the message's list, from 0; absent of the group's end.
    #[schema(nullable = false)]
    pub index: Option<u32>,
    /// How many handoffs the group has.
    pub of: u32,
    /// How many of them are needed: `all`, `any` or `quorum:N`.
    pub join: String,
    /// The effect of one bad end: `rollback` or `drop`.
    pub on_reject: String,
    /// The result of the group; only of its end.
    #[schema(nullable = false, value_type = Option<open::HandoffStatus>)]
    pub outcome: Option<String>,
}

/// The result of a compression: figures and codes.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RecordCompression {
    /// Who wrote the summary.
    #[schema(value_type = super::open::CompressedBy)]
    pub by: String,
    /// Turns of the message as submitted.
    pub original_turns: u64,
    /// Turns that stay as they were said.
    pub kept_turns: u64,
    /// Tokens of the message as submitted.
    pub original_tokens: u64,
    /// Tokens of the message as delivered.
    pub tokens: u64,
    /// How the tokens were counted.
    #[schema(value_type = super::open::Tokenizer)]
    pub tokenizer: String,
    /// Facts of the part that was replaced.
    pub facts: u64,
    /// Those that what replaced it holds.
    pub facts_kept: u64,
    /// Those of them that the fidelity check appended.
    pub facts_appended: u64,
    /// All sentences of the part that was replaced, by class (`constraint`, `warning`, `change`, `commitment`, `decision`,
    /// `question`, `reason`, `figures`, `other`).
    #[schema(nullable = false, value_type = Option<std::collections::BTreeMap<String, SentenceCount>>)]
    pub sentences: Option<std::collections::BTreeMap<String, SentenceCount>>,
    /// Whether the message is within its receiver's limit now.
    pub fits: bool,
    /// The cost of the model's call.
    #[schema(rename = "costUSD", nullable = false)]
    pub cost_usd: Option<f64>,
    /// Why the embedded compressor took the model's place: a code.
    #[schema(nullable = false)]
    pub fallback: Option<String>,
    /// The turns went to another region for the model's summary.
    #[schema(nullable = false)]
    pub crossing: Option<Crossing>,
}

/// The costs that a message stated, cumulative.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RecordCost {
    /// US dollars so far.
    #[schema(rename = "costSpentSoFarUSD")]
    pub cost_spent_so_far_usd: f64,
    /// US dollars that may still be spent.
    #[schema(rename = "costBudgetRemainingUSD")]
    pub cost_budget_remaining_usd: f64,
    /// Tokens so far; records of older versions have `promptTokens` and `completionTokens` beside.
    #[schema(nullable = false)]
    pub token_spent: Option<TokensView>,
}
