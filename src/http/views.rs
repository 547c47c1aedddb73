//! The callers' views of rows.

use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::groups::GroupView;
use super::open;
use super::problem::WarningView;
use super::questions::AskedView;
use handoffd_domain::handoff::{CheckpointRef, Cost, Handoff};
use handoffd_domain::stream::Stream;
use handoffd_domain::task::Task;
use handoffd_domain::window::{ContextFacts, ContextParts};
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::receipt;
use handoffd_evidence::record::SafetyFacts;
use handoffd_store::store::reach::Reach;

/// Proof that a handoff's record is in the log: the record's place, the path from it to the root of the
/// log's Merkle tree (RFC 6962 §2.1.1), and a signed tree head over that root.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Receipt)]
pub struct ReceiptView {
    /// Id of the log that holds the record.
    pub log_id: String,
    /// The record's place in it.
    pub leaf_index: i64,
    /// `sha256:…` over the record: the leaf's hash.
    pub record_hash: String,
    /// A C2SP tlog-checkpoint: a signed note with the log's origin, size and root.
    pub tree_head: String,
    /// From the leaf up, each hash in base64.
    pub inclusion_proof: Vec<String>,
}

impl From<&receipt::Receipt> for ReceiptView {
    fn from(receipt: &receipt::Receipt) -> Self {
        Self {
            log_id: receipt.log_id.clone(),
            leaf_index: receipt.leaf_index,
            record_hash: hash_text(&receipt.record_hash),
            tree_head: receipt.tree_head.to_string(),
            inclusion_proof: receipt.inclusion_proof.iter().map(base64_hash).collect(),
        }
    }
}

/// The text form of a tree hash in proofs.
#[must_use]
pub fn base64_hash(hash: &Hash) -> String {
    base64::engine::general_purpose::STANDARD.encode(hash)
}

/// The links to the next steps.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Links {
    /// Path of the handoff's page.
    #[serde(rename = "self")]
    pub itself: String,
    /// Everything that happened on its task.
    pub trace: String,
}

impl Links {
    #[must_use]
    pub fn of(handoff: &Handoff) -> Self {
        Self {
            itself: format!("/handoffs/{}", handoff.id),
            trace: format!("/tasks/{}/trace", handoff.task_id),
        }
    }
}

/// The answer to a submission.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmittedView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// UUID of the handoff's task.
    pub task_id: String,
    /// `PENDING`, `NO_OP`, or what was waited for.
    #[schema(value_type = open::HandoffStatus)]
    pub status: String,
    /// The last handoff that replaced it, if the broker gave the message to another agent during the wait:
    /// `status` and `reason` are those of that handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor_id: Option<String>,
    /// Of a message to several receivers: its handoffs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// Why it ended badly, if it did while waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The receiver's result, where the request waited for the end (`until=ended`) and there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The receipt of its record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptView>,
    /// The message against its receiver's context window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextView>,
    /// The stream, where the message comes in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamView>,
    /// The parts of the message that were accepted and do not hold in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
    /// Paths of related resources.
    pub links: Links,
}

/// The tokens of a message as its receiver gets it, and what the broker does about them (docs/context.md).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ContextView {
    /// Tokens of the message.
    pub tokens: u64,
    /// The receiver's context window, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The most tokens of a message to it: a share of its window, or the contract's figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The action on it.
    #[schema(value_type = open::ContextAction)]
    pub action: String,
    /// How the tokens were counted.
    #[schema(value_type = open::Tokenizer)]
    pub tokenizer: String,
    /// The tokens by part.
    pub parts: ContextParts,
}

impl From<ContextFacts> for ContextView {
    fn from(facts: ContextFacts) -> Self {
        let ContextFacts { tokens, window, limit, action, tokenizer, parts } = facts;
        let (action, tokenizer) = (action.as_str().to_owned(), tokenizer.as_str().to_owned());
        Self { tokens, window, limit, action, tokenizer, parts }
    }
}

/// The stream of a handoff whose message comes in pieces.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamView {
    /// Whether it takes chunks.
    pub open: bool,
    /// Whether the stream takes chunks, was closed or aborted.
    #[schema(value_type = open::StreamStatus)]
    pub status: String,
    /// The last committed number; 0 before the first chunk.
    pub seq: i64,
    /// Bytes of its chunks.
    pub bytes: u64,
    /// When it ends unless a chunk comes, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// Why it was aborted: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&Stream> for StreamView {
    fn from(stream: &Stream) -> Self {
        Self {
            open: stream.is_open(),
            status: stream.status.as_str().to_owned(),
            seq: stream.seq,
            bytes: stream.bytes,
            due_at: stream.due_at.map(handoffd_domain::ids::Micros::rfc3339),
            reason: stream.reason.clone(),
        }
    }
}

/// Cumulative cost as the message states it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostView {
    /// US dollars so far.
    #[serde(rename = "costSpentSoFarUSD")]
    pub spent: f64,
    /// US dollars that may still be spent.
    #[serde(rename = "costBudgetRemainingUSD")]
    pub remaining: f64,
    /// Tokens so far.
    pub token_spent: TokensView,
}

/// Tokens by direction: read and written.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct TokensView {
    /// Tokens that the agents' models read.
    pub prompt: u64,
    /// Tokens that the agents' models wrote.
    pub completion: u64,
}

impl From<Cost> for CostView {
    fn from(cost: Cost) -> Self {
        Self {
            spent: cost.spent.as_f64(),
            remaining: cost.remaining.as_f64(),
            token_spent: TokensView {
                prompt: cost.prompt_tokens,
                completion: cost.completion_tokens,
            },
        }
    }
}

/// Who sends or receives.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartyView {
    /// Id of the agent.
    pub agent_id: String,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// Its version.
    pub agent_version: String,
    /// The agent's run, a UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
}

/// A handoff message, in any version of its schema that the broker takes. Its component is made from the files
/// under `schemas/handoff/`.
pub struct HandoffMessage;

impl utoipa::PartialSchema for HandoffMessage {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::Object::new().into()
    }
}

impl ToSchema for HandoffMessage {}

/// A handoff message as the broker keeps and delivers it: values that were named as personal may be cut out, and
/// where its content lies in an archive that does not answer, there is `{"unavailable": "cold"}` in its place. A
/// refused message is kept as it came.
pub struct StoredMessage;

impl utoipa::PartialSchema for StoredMessage {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let any = "Free: what no version of the message's schema describes";
        let either = utoipa::openapi::schema::AnyOfBuilder::new()
            .description(Some("A handoff message as the broker keeps and delivers it: values that were named as personal may be cut out, a refused message is as it came, and where the archive does not answer there is `{\"unavailable\": \"cold\"}` in its place."))
            .item(utoipa::openapi::Ref::from_schema_name("HandoffMessage"))
            .item(utoipa::openapi::ObjectBuilder::new().description(Some(any)).build())
            .build();
        utoipa::openapi::RefOr::T(utoipa::openapi::Schema::AnyOf(either))
    }
}

impl ToSchema for StoredMessage {}

/// A checkpoint's state: free, the agent's own.
#[derive(ToSchema)]
pub struct CheckpointState {}

/// A checkpoint, by its run and its number.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointRefView {
    /// The run whose state it is.
    pub execution_id: String,
    /// Its number within that run, from 1.
    pub seq: i64,
}

impl From<CheckpointRef> for CheckpointRefView {
    fn from(at: CheckpointRef) -> Self {
        Self { execution_id: at.execution_id.to_string(), seq: at.seq }
    }
}

/// A handoff and its state.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandoffView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// UUID of its task.
    pub task_id: String,
    /// The handoff before it.
    pub parent_handoff_id: Option<String>,
    /// Its status.
    #[schema(value_type = open::HandoffStatus)]
    pub status: String,
    /// Why it ended badly, or why the last attempt failed; `HANDED_ON` where its receiver handed the task on.
    pub reason: Option<String>,
    /// The last handoff that replaced it (a preferred agent, a supervisor, a person's decision), or, after a wait for
    /// the end, the one that brought its task back; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor_id: Option<String>,
    /// Its place in a handoff to several receivers; or, on the page of such a handoff, all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// The agent that gets the task back when the receiver completes the handoff (`returnTo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns_to: Option<String>,
    /// The receiver's result, as it gave it at `/complete`; only on the handoff's own page. Of a handoff to several
    /// receivers that is completed: their results in the list's order, null where one gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Rounds that the receiver took, as it said at `/complete`; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// The receiver's summary of its conversation, as it gave it at `/complete`; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_summary: Option<String>,
    /// `details` and `metadata` of the receiver's verdict, and the `error` of a failure; only where asked for with
    /// `include=verdict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub verdict: Option<serde_json::Value>,
    /// The receiver's last question to the sender, and its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedView>,
    /// All questions of the receiver to the sender, the first one first; only where asked for with `include=questions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<Vec<AskedView>>,
    /// The conversation that the sender named (`conversationId`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The reference to the user that the sender named (`userId`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ref: Option<String>,
    /// Milliseconds from acceptance to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Who sent it.
    pub from_agent: PartyView,
    /// Who receives it, as the route resolved it.
    pub to_agent: PartyView,
    /// `webhook` or `pull`.
    #[schema(value_type = open::DeliveryMode)]
    pub delivery_mode: String,
    /// Delivery attempts begun so far.
    pub attempts: i32,
    /// The current fencing token.
    pub fencing_token: i64,
    /// When the verdict or the lease is due, RFC 3339.
    pub deadline_at: Option<String>,
    /// How often the broker hears of its holder, as the holder said: another worker of the receiver may take over after four
    /// such intervals of silence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_ms: Option<u64>,
    /// When the broker last heard of that holder, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<String>,
    /// Its cost, cumulative.
    pub cost_tracking: CostView,
    /// The checkpoint that a rollback restores.
    pub checkpoint: Option<CheckpointRefView>,
    /// The message against its receiver's context window; absent where a version before 0.3 committed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextView>,
    /// The stream, where the message comes in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamView>,
    /// The trace context that counts, W3C `traceparent`.
    pub traceparent: String,
    /// The `tracestate` that belongs to it; empty for none, and after an erasure.
    pub tracestate: String,
    /// When it was committed, RFC 3339.
    pub created_at: String,
    /// When the receiver accepted.
    pub accepted_at: Option<String>,
    /// When it ended, RFC 3339; null before.
    pub ended_at: Option<String>,
    /// Its record; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptView>,
    /// The facts of the safety stage and of the external classifier about the message; only on the handoff's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SafetyFacts>)]
    pub safety: Option<SafetyFacts>,
    /// The message; only where asked for with `include=message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StoredMessage>)]
    pub message: Option<serde_json::Value>,
    /// Paths of related resources.
    pub links: Links,
    /// The parts of the request that do not hold in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

impl HandoffView {
    /// Sets the receiver's result of `/complete`.
    pub fn say_result(&mut self, said: Option<serde_json::Value>) {
        let Some(serde_json::Value::Object(mut said)) = said else { return };
        self.iterations = said.get("iterations").and_then(serde_json::Value::as_u64);
        let summary = said.get("conversationSummary").and_then(serde_json::Value::as_str);
        self.conversation_summary = summary.map(str::to_owned);
        self.result = said.remove("result");
    }
}

impl From<&Handoff> for HandoffView {
    fn from(handoff: &Handoff) -> Self {
        Self {
            handoff_id: handoff.id.to_string(),
            task_id: handoff.task_id.to_string(),
            parent_handoff_id: handoff.parent_id.map(|id| id.to_string()),
            status: handoff.status.as_str().to_owned(),
            reason: handoff.reason.clone(),
            successor_id: None,
            group: handoff.branch().map(GroupView::from),
            returns_to: handoff
                .ruling
                .as_ref()
                .and_then(|ruling| ruling.returns_to.as_ref())
                .map(ToString::to_string),
            result: None,
            iterations: None,
            conversation_summary: None,
            verdict: None,
            asked: AskedView::last(handoff),
            questions: None,
            conversation_id: handoff.conversation_id.clone(),
            user_ref: handoff.user_ref.clone(),
            duration_ms: handoff
                .accepted_at
                .zip(handoff.ended_at)
                .map(|(from, to)| u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)),
            from_agent: PartyView {
                agent_id: handoff.source.to_string(),
                agent_type: None,
                agent_version: handoff.source_version.clone(),
                execution_id: Some(handoff.source_execution.to_string()),
            },
            to_agent: PartyView {
                agent_id: handoff.target.to_string(),
                agent_type: Some(handoff.target_type.clone()),
                agent_version: handoff.target_version.clone(),
                execution_id: None,
            },
            delivery_mode: handoff.mode.as_str().to_owned(),
            attempts: handoff.attempts,
            fencing_token: handoff.fencing_token,
            deadline_at: handoff.deadline_at.map(handoffd_domain::ids::Micros::rfc3339),
            heartbeat_interval_ms: handoff.pulse.map(|pulse| pulse.interval_ms),
            heard_at: handoff.pulse.map(|pulse| pulse.heard_at.rfc3339()),
            cost_tracking: handoff.cost.into(),
            checkpoint: handoff.checkpoint.map(Into::into),
            context: handoff.context.map(ContextView::from),
            stream: handoff.stream.as_ref().map(StreamView::from),
            traceparent: handoff.traceparent.clone(),
            tracestate: handoff.tracestate.clone(),
            created_at: handoff.created_at.rfc3339(),
            accepted_at: handoff.accepted_at.map(handoffd_domain::ids::Micros::rfc3339),
            ended_at: handoff.ended_at.map(handoffd_domain::ids::Micros::rfc3339),
            receipt: None,
            safety: None,
            message: None,
            links: Links::of(handoff),
            warnings: Vec::new(),
        }
    }
}

/// A task and its state.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// UUID of the task.
    pub task_id: String,
    /// Its status.
    #[schema(value_type = open::TaskStatus)]
    pub status: String,
    /// Which agent has it.
    pub holder: String,
    /// The checkpoint that a rollback made current.
    pub checkpoint: Option<CheckpointRefView>,
    /// That checkpoint's state; only on the task's own page, and for an agent only its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CheckpointState>)]
    pub checkpoint_state: Option<serde_json::Value>,
    /// Handoffs committed on it.
    pub handoffs: i64,
    /// Handoffs that wait for delivery.
    pub undelivered: i64,
    /// Failures since it last went well: a handoff completed or handed on, or a person decided. Refused submissions
    /// count, and the third asks a person.
    pub failures: i64,
    /// US dollars that the task has cost so far: the sum of its hops, as in `/cost` and in the trace.
    #[serde(rename = "costSpentSoFarUSD")]
    pub spent: f64,
    /// US dollars that may still be spent on it.
    #[serde(rename = "costBudgetRemainingUSD")]
    pub remaining: f64,
    /// US dollars that operators added.
    #[serde(rename = "toppedUpUSD")]
    pub topped_up: f64,
    /// The agent that began it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<String>,
    /// When it was first seen, RFC 3339.
    pub created_at: String,
    /// When it last changed, RFC 3339.
    pub updated_at: String,
    /// The parts of the request that do not hold in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

impl From<&Task> for TaskView {
    fn from(task: &Task) -> Self {
        Self {
            task_id: task.id.to_string(),
            status: task.status.as_str().to_owned(),
            holder: task.holder.to_string(),
            checkpoint: task.checkpoint.map(Into::into),
            checkpoint_state: None,
            handoffs: task.handoffs,
            undelivered: task.undelivered,
            failures: task.failures,
            spent: task.cost().as_f64(),
            remaining: task.left().as_f64(),
            topped_up: task.topped_up.as_f64(),
            opened_by: task.opened_by.as_ref().map(ToString::to_string),
            created_at: task.created_at.rfc3339(),
            updated_at: task.updated_at.rfc3339(),
            warnings: Vec::new(),
        }
    }
}

/// Reads a member that is there, be it null.
pub(super) fn stated<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

/// One page of a list, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The rows of this page.
    pub items: Vec<T>,
    /// Give this as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
    /// Rows that fit and are newer than this time are on it or before it; older ones follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_back_to: Option<String>,
}

impl<T> Default for Page<T> {
    /// A page without rows, and none after it.
    fn default() -> Self {
        Self { items: Vec::new(), next_cursor: None, looked_back_to: None }
    }
}

impl<T> Page<T> {
    /// A page of at most `limit` rows of a list, from up to one more.
    pub fn new<R>(
        list: &str,
        mut rows: Vec<R>,
        limit: i64,
        cursor: impl Fn(&R) -> handoffd_store::store::Cursor,
        view: impl Fn(&R) -> T,
    ) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = more
            .then(|| rows.last().map(|row| super::extract::write_cursor(list, &cursor(row))))
            .flatten();
        Self { items: rows.iter().map(view).collect(), next_cursor, looked_back_to: None }
    }

    /// The same of a list that looks as far as `reach` for a page: where it is not full, the next one goes on from there.
    pub fn within<R>(
        list: &str,
        rows: Vec<R>,
        (limit, reach): (i64, &Reach),
        cursor: impl Fn(&R) -> handoffd_store::store::Cursor,
        view: impl Fn(&R) -> T,
    ) -> Self {
        let page = Self::new(list, rows, limit, cursor, view);
        let Some(end) = reach.end().filter(|_| page.next_cursor.is_none()) else { return page };
        Self {
            next_cursor: Some(super::extract::write_cursor(list, end)),
            looked_back_to: Some(end.0.rfc3339()),
            ..page
        }
    }
}
