//! `handoffs`: route, status, token, deadline, cost, and the salted digest of the submission.
//!
//! A row, and how it changes:
//!
//! - `handoffs`: a handoff: route, status, token, deadline, cost, salted digest of the submission, conversation, the
//!   reference to its user. `questions` has the receiver's questions as JSON with content ids and salted digests.
//!   Updated until it ends.

use crate::store::HandoffKey;
use crate::store::query::{Database, Row, Statement, unreadable};
use crate::store::rows::{
    checkpoint_ref, context, get, handoff_status, hash32_opt, micros, micros_opt, mode, parse,
    parse_opt, ruling,
};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result};
use handoffd_domain::handoff::{Cost, Handoff};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::lease::HolderPulse;
use handoffd_domain::money::Usd;
use handoffd_domain::question;
use handoffd_domain::stream::Stream;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("handoffs", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const HANDOFF: &str = HANDOFFS.list;

table! {
    /// Only an erasure changes the fixed columns (the digest, `tracestate`, the conversation and the user). An update writes
    /// a row that was read earlier, and would restore the erased values.
    HANDOFFS: Handoff = "handoffs" by 2 {
        "tenant" Text: |handoff| &handoff.tenant,
        "handoff_id" Text: |handoff| handoff.id,
        "task_id" Text fixed: |handoff| handoff.task_id,
        "parent_id" Text fixed: |handoff| handoff.parent_id,
        "source" Text fixed: |handoff| &handoff.source,
        "source_version" Text fixed: |handoff| &handoff.source_version,
        "source_execution" Text fixed: |handoff| handoff.source_execution,
        "target" Text: |handoff| &handoff.target,
        "target_type" Text: |handoff| &handoff.target_type,
        "target_version" Text: |handoff| &handoff.target_version,
        "mode" Text: |handoff| handoff.mode.as_str(),
        "status" Text: |handoff| handoff.status.stored(),
        "fencing_token" Long: |handoff| handoff.fencing_token,
        "attempts" Int: |handoff| handoff.attempts,
        "deadline_at" Long: |handoff| handoff.deadline_at,
        "spent_nanos" Long: |handoff| handoff.cost.spent.0,
        "remaining_nanos" Long: |handoff| handoff.cost.remaining.0,
        "prompt_tokens" Long: |handoff| i64::try_from(handoff.cost.prompt_tokens).unwrap_or(i64::MAX),
        "completion_tokens" Long: |handoff| i64::try_from(handoff.cost.completion_tokens).unwrap_or(i64::MAX),
        "idempotent" Flag: |handoff| handoff.idempotent,
        "checkpoint_execution" Text: |handoff| handoff.checkpoint.map(|at| at.execution_id),
        "checkpoint_seq" Long: |handoff| handoff.checkpoint.map(|at| at.seq),
        "content_id" Text: |handoff| handoff.content_id.map(|id| id.to_string()),
        "digest_salt" Bytes fixed: |handoff| &handoff.digest_salt,
        "digest" Bytes fixed: |handoff| &handoff.digest,
        "reason" Text: |handoff| handoff.reason.as_deref(),
        "traceparent" Text fixed: |handoff| &handoff.traceparent,
        "created_at" Long fixed: |handoff| handoff.created_at,
        "accepted_at" Long: |handoff| handoff.accepted_at,
        "ended_at" Long: |handoff| handoff.ended_at,
        "policy" Text: |handoff| handoff.ruling.as_ref().map(|ruling| ruling.to_text()),
        "commitment" Bytes: |handoff| handoff.commitment.as_ref(),
        "checkpoint_commitment" Bytes: |handoff| handoff.checkpoint_commitment.as_ref(),
        "topped_up_nanos" Long: |handoff| handoff.topped_up.0,
        "origin" Text fixed: |handoff| handoff.origin,
        "tracestate" Text fixed: |handoff| &handoff.tracestate,
        "span" Text fixed: |handoff| &handoff.span,
        "started_at" Long: |handoff| handoff.clock.started_at,
        "offered_at" Long: |handoff| handoff.clock.offered_at,
        "context" Text: |handoff| handoff.context.map(|facts| facts.to_text()),
        "sent_id" Text: |handoff| handoff.sent_id.map(|id| id.to_string()),
        "question" Long: |handoff| handoff.open_question().map(i64::from),
        "questions" Text: |handoff| question::to_text(&handoff.questions),
        "conversation_id" Text fixed: |handoff| handoff.conversation_id.as_deref(),
        "stream" Text: |handoff| handoff.stream.as_ref().map(Stream::to_text),
        "stream_due" Long: |handoff| handoff.stream.as_ref().and_then(|stream| stream.due_at),
        "pulse" Text: |handoff| handoff.pulse.as_ref().map(HolderPulse::to_text),
        "user_ref" Text fixed: |handoff| handoff.user_ref.as_deref(),
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<Handoff> {
    Ok(Handoff {
        tenant: parse(row, "tenant")?,
        id: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        parent_id: parse_opt(row, "parent_id")?,
        source: parse(row, "source")?,
        source_version: get(row, "source_version")?,
        source_execution: parse(row, "source_execution")?,
        target: parse(row, "target")?,
        target_type: get(row, "target_type")?,
        target_version: get(row, "target_version")?,
        mode: mode(row)?,
        status: handoff_status(row)?,
        fencing_token: get(row, "fencing_token")?,
        attempts: get(row, "attempts")?,
        deadline_at: micros_opt(row, "deadline_at")?,
        pulse: pulse(row)?,
        cost: Cost {
            spent: Usd(get(row, "spent_nanos")?),
            remaining: Usd(get(row, "remaining_nanos")?),
            prompt_tokens: get::<i64>(row, "prompt_tokens")?.max(0) as u64,
            completion_tokens: get::<i64>(row, "completion_tokens")?.max(0) as u64,
        },
        idempotent: get(row, "idempotent")?,
        checkpoint: checkpoint_ref(row)?,
        content_id: parse_opt(row, "content_id")?,
        digest_salt: get(row, "digest_salt")?,
        digest: get(row, "digest")?,
        reason: get(row, "reason")?,
        traceparent: get(row, "traceparent")?,
        created_at: micros(row, "created_at")?,
        accepted_at: micros_opt(row, "accepted_at")?,
        ended_at: micros_opt(row, "ended_at")?,
        ruling: ruling(row)?,
        context: context(row)?,
        sent_id: parse_opt(row, "sent_id")?,
        questions: questions(row)?,
        conversation_id: get(row, "conversation_id")?,
        user_ref: get(row, "user_ref")?,
        stream: stream(row)?,
        commitment: hash32_opt(row, "commitment")?,
        checkpoint_commitment: hash32_opt(row, "checkpoint_commitment")?,
        topped_up: Usd(get(row, "topped_up_nanos")?),
        origin: parse_opt(row, "origin")?,
        tracestate: get(row, "tracestate")?,
        span: get(row, "span")?,
        clock: LatencyClock {
            // For rows of 0.1.0 the commit is the earliest known time.
            started_at: micros_opt(row, "started_at")?
                .map_or_else(|| micros(row, "created_at"), Ok)?,
            offered_at: micros_opt(row, "offered_at")?,
        },
    })
}

/// Adds a row to those that a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let handoff = decode(row)?;
    state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
    Ok(())
}

fn questions(row: &dyn Row) -> Result<Vec<handoffd_domain::question::Question>> {
    get::<Option<&str>>(row, "questions")?
        .map(serde_json::from_str)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|err| unreadable("questions", err))
}

fn stream(row: &dyn Row) -> Result<Option<handoffd_domain::stream::Stream>> {
    get::<Option<&str>>(row, "stream")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|err| unreadable("stream", err))
}

fn pulse(row: &dyn Row) -> Result<Option<handoffd_domain::lease::HolderPulse>> {
    get::<Option<&str>>(row, "pulse")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|err| unreadable("pulse", err))
}

/// Finds one by its key.
pub(in crate::store) async fn find<D: Database>(
    db: &D,
    key: &HandoffKey,
) -> Result<Option<Handoff>> {
    let text = format!("SELECT {HANDOFF} FROM handoffs WHERE tenant = $1 AND handoff_id = $2");
    db.find(Statement::new(text).bind(&key.0).bind(key.1), decode).await
}
