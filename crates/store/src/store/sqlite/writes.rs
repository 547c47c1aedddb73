//! Writes of a batch: a few statements for each table.

use serde::Serialize;

use super::batch::{RowBatch, insert, json, upsert};
use super::db::{Db, Query};
use super::transact::IDEMPOTENCY;
use crate::store::budget_column;
use crate::store::rows::{
    AGENT, CHECKPOINT, DEAD_LETTER, EDGE, ESCALATION, HANDOFF, KEY, OUTBOX, REFUSED_TASK, RETURN,
    TASK,
};
use crate::store::{
    AgentKey, AgentRow, CheckpointRow, DeadLetterRow, IdempotencyRow, KeyRow, OutboxRow,
    RefusedTaskRow, Result, ReturnRow, StoreError, Writes, caps, contracts, opinions, refusals,
    schemas, streams,
};
use handoffd_core::domain::escalation::{Escalation, EscalationOutcome};
use handoffd_core::domain::handoff::{DeliveryMode, Handoff};
use handoffd_core::domain::ids::{AgentId, Micros};
use handoffd_core::domain::lease::HolderPulse;
use handoffd_core::domain::progress::Edge;
use handoffd_core::domain::question;
use handoffd_core::domain::stream::Stream;

/// Columns of a task that never change.
const TASK_FIXED: [&str; 2] = ["created_at", "opened_by"];

/// [`TASK_FIXED`] and the budget, for a task with an unchanged budget.
const TASK_SAME_BOOKS: [&str; 3] = ["created_at", "opened_by", "funds"];

/// Columns of a handoff that never change. Only an erasure removes digest and `tracestate`.
const HANDOFF_FIXED: [&str; 14] = [
    "digest_salt",
    "digest",
    "task_id",
    "parent_id",
    "source",
    "source_version",
    "source_execution",
    "traceparent",
    "created_at",
    "origin",
    "tracestate",
    "span",
    "conversation_id",
    "user_ref",
];

/// Writes all rows except the records.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let rows = budget_column::TaskRows::of(writes);
    let [new, changed, same_budget] =
        [&rows.new, &rows.changed, &rows.same_budget].map(|rows| rows.iter().collect::<Vec<_>>());
    RowBatch::insert("tasks", TASK).run(db, &new, bind_task)?;
    for (known, fixed) in [(changed, &TASK_FIXED[..]), (same_budget, &TASK_SAME_BOOKS)] {
        let touched = RowBatch::update("tasks", TASK, fixed).run(db, &known, bind_task)?;
        all_updated(touched, known.len())?;
    }

    let (new, known) = split(writes.handoffs.values());
    RowBatch::insert("handoffs", HANDOFF).run(db, &new, bind_handoff)?;
    let touched =
        RowBatch::update("handoffs", HANDOFF, &HANDOFF_FIXED).run(db, &known, bind_handoff)?;
    all_updated(touched, known.len())?;

    let gone: Vec<_> =
        writes.outbox.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    delete(db, "outbox", "handoff_id", &gone)?;
    let kept: Vec<_> = writes.outbox.values().flatten().collect();
    RowBatch::upsert("outbox", OUTBOX, &["tenant", "handoff_id"]).run(db, &kept, bind_outbox)?;

    let gone: Vec<_> =
        writes.returns.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    delete(db, "returns", "handoff_id", &gone)?;
    let returns: Vec<_> = writes.returns.values().flatten().collect();
    RowBatch::upsert("returns", RETURN, &["tenant", "handoff_id"]).run(
        db,
        &returns,
        bind_return,
    )?;

    let checkpoints: Vec<_> = writes.checkpoints.iter().collect();
    RowBatch::insert("checkpoints", CHECKPOINT).run(db, &checkpoints, bind_checkpoint)?;
    let uses: Vec<_> = writes.idempotency.iter().collect();
    RowBatch::insert("idempotency_keys", IDEMPOTENCY).run(db, &uses, bind_idempotency)?;
    let texts = texts(writes.dead_letters.iter().map(|row| &row.failures))?;
    let letters: Vec<_> =
        writes.dead_letters.iter().zip(texts.iter().map(String::as_str)).collect();
    // A new one collides, if at all, by its handoff.
    RowBatch::upsert("dead_letters", DEAD_LETTER, &["tenant", "handoff_id"]).run(
        db,
        &letters,
        bind_dead_letter,
    )?;
    let edges: Vec<_> = writes.edges.values().collect();
    RowBatch::upsert("task_edges", EDGE, &["tenant", "task_id", "source", "target"])
        .run(db, &edges, bind_edge)?;
    let refused: Vec<_> = writes.refused_tasks.values().collect();
    RowBatch::upsert("refused_tasks", REFUSED_TASK, &["tenant", "task_id", "agent_id"]).run(
        db,
        &refused,
        bind_refused_task,
    )?;
    let escalations: Vec<_> = writes.escalations.values().collect();
    RowBatch::upsert("escalations", ESCALATION, &["tenant", "escalation_id"]).run(
        db,
        &escalations,
        bind_escalation,
    )?;
    write_access(db, writes)?;
    insert(db, &contracts::CONTRACTS, &writes.contracts)?;
    upsert(db, &contracts::REPEATS, writes.repeats.values())?;
    insert(db, &schemas::PAYLOAD_SCHEMAS, &writes.payload_schemas)?;
    upsert(db, &caps::CAPS, writes.caps.values().flatten())?;
    for (key, _) in writes.caps.iter().filter(|(_, cap)| cap.is_none()) {
        db.statement(&caps::lift(key)).execute()?;
    }
    insert(db, &streams::CHUNKS, &writes.chunks)?;
    insert(db, &streams::STREAM_LINES, &writes.stream_lines)?;
    insert(db, &opinions::OPINIONS, &opinions::due(writes))?;
    delete(db, "opinions_due", "handoff_id", &opinions::recorded(writes))?;
    insert(db, &refusals::REFUSALS, &writes.refusals)?;
    for (agent, (mode, at)) in &writes.retargets {
        retarget(db, agent, *mode, *at)?;
    }
    Ok(())
}

/// Sets the delivery mode of an agent's waiting handoffs. They are found by the outbox, of which the agent's rows alone are
/// read: left alone, SQLite reads those of the whole tenant.
fn retarget(db: &Db, (tenant, agent): &AgentKey, mode: DeliveryMode, at: Micros) -> Result<()> {
    for sql in [
        "UPDATE handoffs SET mode = ?1 WHERE tenant = ?2 AND target = ?3 AND status = 'PENDING' \
         AND handoff_id IN (SELECT o.handoff_id FROM outbox AS o INDEXED BY outbox_order \
           WHERE o.tenant = ?2 AND o.target = ?3 AND (o.claimed_by IS NULL OR o.visible_at <= ?4))",
        "UPDATE outbox INDEXED BY outbox_order SET mode = ?1, claimed_by = NULL, visible_at = 0 \
         WHERE tenant = ?2 AND target = ?3 AND (claimed_by IS NULL OR visible_at <= ?4)",
    ] {
        let query = db.query(sql).bind(mode.as_str()).bind(tenant.as_str());
        query.bind(agent.as_str()).bind(at.0).execute()?;
    }
    Ok(())
}

/// Writes agents and keys.
fn write_access(db: &Db, writes: &Writes) -> Result<()> {
    let gone: Vec<_> =
        writes.agents.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    delete(db, "agents", "agent_id", &gone)?;
    let texts = texts(writes.agents.values().flatten().map(|row| &row.agent))?;
    let agents: Vec<_> =
        writes.agents.values().flatten().zip(texts.iter().map(String::as_str)).collect();
    RowBatch::upsert("agents", AGENT, &["tenant", "agent_id"]).run(db, &agents, bind_agent)?;
    let keys: Vec<_> = writes.keys.values().collect();
    RowBatch::upsert("api_keys", KEY, &["tenant", "key_id"]).run(db, &keys, bind_key)?;
    Ok(())
}

/// Serializes each value as JSON.
pub(super) fn texts<'a, T: Serialize + 'a>(
    values: impl Iterator<Item = &'a T>,
) -> Result<Vec<String>> {
    values.map(json).collect()
}

/// Splits rows into new and known ones.
fn split<'a, T>(rows: impl Iterator<Item = &'a (T, bool)>) -> (Vec<&'a T>, Vec<&'a T>) {
    let (mut fresh, mut known) = (Vec::new(), Vec::new());
    for (row, is_new) in rows {
        if *is_new { fresh.push(row) } else { known.push(row) }
    }
    (fresh, known)
}

fn all_updated(touched: u64, expected: usize) -> Result<()> {
    if usize::try_from(touched).is_ok_and(|touched| touched == expected) {
        Ok(())
    } else {
        Err(StoreError::Denied("a row to be updated does not exist".to_owned()))
    }
}

pub(super) fn delete<K: Serialize + Sync>(
    db: &Db,
    table: &str,
    id: &str,
    keys: &[K],
) -> Result<()> {
    if !keys.is_empty() {
        let sql = format!(
            "DELETE FROM {table} WHERE (tenant, {id}) IN \
             (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
        );
        let query = db.query(&sql).bind(json(&keys)?);
        query.execute()?;
    }
    Ok(())
}

fn bind_task<'c>(query: Query<'c>, (task, budget): &budget_column::TaskRow<'_>) -> Query<'c> {
    query
        .bind(task.tenant.as_str())
        .bind(task.id.to_string())
        .bind(task.status.as_str())
        .bind(task.holder.as_str())
        .bind(task.checkpoint.map(|at| at.execution_id.to_string()))
        .bind(task.checkpoint.map(|at| at.seq))
        .bind(task.fence)
        .bind(task.handoffs)
        .bind(task.undelivered)
        .bind(task.failures)
        .bind(task.spent.0)
        .bind(task.remaining.0)
        .bind(task.created_at.0)
        .bind(task.updated_at.0)
        .bind(task.topped_up.0)
        .bind(task.opened_by.as_ref().map(AgentId::as_str))
        .bind(task.course.to_text())
        .bind(budget.as_deref())
}

fn bind_handoff<'c>(query: Query<'c>, handoff: &Handoff) -> Query<'c> {
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    query
        .bind(handoff.tenant.as_str())
        .bind(handoff.id.to_string())
        .bind(handoff.task_id.to_string())
        .bind(handoff.parent_id.map(|id| id.to_string()))
        .bind(handoff.source.as_str())
        .bind(handoff.source_version.as_str())
        .bind(handoff.source_execution.to_string())
        .bind(handoff.target.as_str())
        .bind(handoff.target_type.as_str())
        .bind(handoff.target_version.as_str())
        .bind(handoff.mode.as_str())
        .bind(handoff.status.stored())
        .bind(handoff.fencing_token)
        .bind(handoff.attempts)
        .bind(handoff.deadline_at.map(|at| at.0))
        .bind(handoff.cost.spent.0)
        .bind(handoff.cost.remaining.0)
        .bind(tokens(handoff.cost.prompt_tokens))
        .bind(tokens(handoff.cost.completion_tokens))
        .bind(handoff.idempotent)
        .bind(handoff.checkpoint.map(|at| at.execution_id.to_string()))
        .bind(handoff.checkpoint.map(|at| at.seq))
        .bind(handoff.content_id.map(|id| id.to_string()))
        .bind(handoff.digest_salt.as_slice())
        .bind(handoff.digest.as_slice())
        .bind(handoff.reason.as_deref())
        .bind(handoff.traceparent.as_str())
        .bind(handoff.created_at.0)
        .bind(handoff.accepted_at.map(|at| at.0))
        .bind(handoff.ended_at.map(|at| at.0))
        .bind(handoff.ruling.as_ref().map(|ruling| ruling.to_text()))
        .bind(handoff.commitment.as_ref().map(<[u8; 32]>::as_slice))
        .bind(handoff.checkpoint_commitment.as_ref().map(<[u8; 32]>::as_slice))
        .bind(handoff.topped_up.0)
        .bind(handoff.origin.map(|id| id.to_string()))
        .bind(handoff.tracestate.as_str())
        .bind(handoff.span.as_str())
        .bind(handoff.clock.started_at.0)
        .bind(handoff.clock.offered_at.map(|at| at.0))
        .bind(handoff.context.map(|facts| facts.to_text()))
        .bind(handoff.sent_id.map(|id| id.to_string()))
        .bind(handoff.open_question().map(i64::from))
        .bind(question::to_text(&handoff.questions))
        .bind(handoff.conversation_id.as_deref())
        .bind(handoff.stream.as_ref().map(Stream::to_text))
        .bind(handoff.stream.as_ref().and_then(|stream| stream.due_at).map(|at| at.0))
        .bind(handoff.pulse.as_ref().map(HolderPulse::to_text))
        .bind(handoff.user_ref.as_deref())
}

fn bind_outbox<'c>(query: Query<'c>, row: &OutboxRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.task_id.to_string())
        .bind(row.seq)
        .bind(row.target.as_str())
        .bind(row.mode.as_str())
        .bind(row.priority.rank())
        .bind(row.visible_at.0)
        .bind(row.attempt)
        .bind(row.busy)
        .bind(row.claimed_by.as_deref())
        .bind(row.created_at.0)
}

fn bind_refused_task<'c>(query: Query<'c>, row: &RefusedTaskRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.task_id.to_string())
        .bind(row.agent.as_str())
        .bind(row.refusals)
        .bind(row.updated_at.0)
}

fn bind_return<'c>(query: Query<'c>, row: &ReturnRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.task_id.to_string())
        .bind(row.agent.as_str())
        .bind(row.returned_at.0)
        .bind(row.visible_at.0)
        .bind(row.question.map(i64::from))
}

fn bind_checkpoint<'c>(query: Query<'c>, row: &CheckpointRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.task_id.to_string())
        .bind(row.at.execution_id.to_string())
        .bind(row.at.seq)
        .bind(row.agent.as_str())
        .bind(row.part.commitment.as_slice())
        .bind(row.part.salt.as_slice())
        .bind(row.part.codec.as_str())
        .bind(&row.part.bytes[..])
        .bind(row.created_at.0)
}

fn bind_idempotency<'c>(query: Query<'c>, row: &IdempotencyRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.agent.as_str())
        .bind(row.key.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.created_at.0)
}

fn bind_dead_letter<'c>(query: Query<'c>, (row, failures): (&DeadLetterRow, &str)) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.task_id.to_string())
        .bind(row.source.as_str())
        .bind(row.target.as_ref().map(AgentId::as_str))
        .bind(row.reason.as_str())
        .bind(failures)
        .bind(row.status.as_str())
        .bind(row.created_at.0)
        .bind(row.resolved_at.map(|at| at.0))
        .bind(row.resolved_by.as_deref())
}

fn bind_edge<'c>(query: Query<'c>, edge: &Edge) -> Query<'c> {
    query
        .bind(edge.tenant.as_str())
        .bind(edge.task_id.to_string())
        .bind(edge.source.as_str())
        .bind(edge.target.as_str())
        .bind(edge.passages)
        .bind(edge.repeats)
        .bind(edge.completed)
        // Counted with the task since migration 0015.
        .bind(0_i64)
        .bind(edge.spent.0)
        .bind(edge.remaining.0)
        .bind(edge.topped_up.0)
        .bind(edge.updated_at.0)
}

fn bind_escalation<'c>(query: Query<'c>, row: &Escalation) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.id.to_string())
        .bind(row.task_id.to_string())
        .bind(row.handoff_id.map(|id| id.to_string()))
        .bind(row.source.as_str())
        .bind(row.target.as_str())
        .bind(row.reason.as_str())
        .bind(row.channel.as_deref())
        .bind(row.resume_as.as_ref().map(AgentId::as_str))
        .bind(row.status.as_str())
        .bind(row.created_at.0)
        .bind(row.timeout_at.0)
        .bind(row.resolved_at.map(|at| at.0))
        .bind(row.resolved_by.as_deref())
        .bind(row.resolution.map(EscalationOutcome::as_str))
}

fn bind_agent<'c>(query: Query<'c>, (row, doc): (&AgentRow, &str)) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.agent.agent_id.as_str())
        .bind(doc)
        .bind(row.secrets.as_str())
        .bind(row.created_at.0)
        .bind(row.updated_at.0)
}

fn bind_key<'c>(query: Query<'c>, row: &KeyRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.key_id.as_str())
        .bind(row.hash.as_slice())
        .bind(row.role.as_str())
        .bind(row.agent.as_ref().map(AgentId::as_str))
        .bind(row.label.as_str())
        .bind(row.created_at.0)
        .bind(row.expires_at.map(|at| at.0))
}
