//! What a batch changes, as a few statements over many rows.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;

use super::batch::{
    AGENTS, CHECKPOINTS, CONTENTS, DEAD_LETTERS, EDGES, ESCALATIONS, HANDOFFS, IDEMPOTENCY, KEYS,
    OUTBOX, Sql, TASKS, bind,
};
use super::failure::failed;
use super::transact::{Absent, Statement};
use crate::domain::escalation::Escalation;
use crate::domain::handoff::Handoff;
use crate::domain::ids::AgentId;
use crate::domain::progress::Edge;
use crate::domain::task::Task;
use crate::evidence::record::{Content, Draft};
use crate::store::{AgentRow, KeyRow, OutboxRow, Result, StoreError, Writes};

static TASKS_INSERT: Sql = Sql::new(|| TASKS.insert());
static TASKS_UPDATE: Sql = Sql::new(|| TASKS.update());
static HANDOFFS_INSERT: Sql = Sql::new(|| HANDOFFS.insert());
static HANDOFFS_UPDATE: Sql = Sql::new(|| HANDOFFS.update_but(&HANDOFF_ERASED));
static OUTBOX_UPSERT: Sql = Sql::new(|| OUTBOX.upsert());
static OUTBOX_DELETE: Sql = Sql::new(|| OUTBOX.delete());
static CHECKPOINTS_INSERT: Sql = Sql::new(|| CHECKPOINTS.insert());
static IDEMPOTENCY_INSERT: Sql = Sql::new(|| IDEMPOTENCY.insert());
static DEAD_LETTERS_UPSERT: Sql = Sql::new(|| DEAD_LETTERS.upsert());
static EDGES_UPSERT: Sql = Sql::new(|| EDGES.upsert());
static ESCALATIONS_UPSERT: Sql = Sql::new(|| ESCALATIONS.upsert());
static AGENTS_INSERT: Sql = Sql::new(|| AGENTS.insert());
static AGENTS_UPSERT: Sql = Sql::new(|| AGENTS.upsert());
static AGENTS_DELETE: Sql = Sql::new(|| AGENTS.delete());
static KEYS_INSERT: Sql = Sql::new(|| KEYS.insert());
static KEYS_UPSERT: Sql = Sql::new(|| KEYS.upsert());
static CONTENTS_INSERT: Sql = Sql::new(|| CONTENTS.insert());

/// Set with the handoff, and by an erasure alone: an update of what was read before must not bring
/// back what was erased.
const HANDOFF_ERASED: [&str; 3] = ["digest_salt", "digest", "tracestate"];

pub(super) async fn execute(tx: &mut PgConnection, statement: Statement) -> Result<u64> {
    statement.execute(tx).await.map_err(failed).map(|done| done.rows_affected())
}

/// Updates rows that were seen. They are locked and never deleted, so one that is not there is a
/// defect of the plan, and trying again would not help.
pub(super) async fn update(
    tx: &mut PgConnection,
    statement: Statement,
    rows: usize,
    table: &str,
) -> Result<()> {
    let changed = execute(tx, statement).await?;
    if changed == rows as u64 {
        Ok(())
    } else {
        Err(StoreError::Refused(format!("a row of {table} to be updated does not exist")))
    }
}

fn split<'a, K, T>(rows: &'a BTreeMap<K, (T, bool)>) -> (Vec<&'a T>, Vec<&'a T>) {
    let (new, known): (Vec<_>, Vec<_>) = rows.values().partition(|(_, new)| *new);
    let plain = |rows: Vec<&'a (T, bool)>| rows.into_iter().map(|(row, _)| row).collect();
    (plain(new), plain(known))
}

pub(super) async fn write(tx: &mut PgConnection, writes: &Writes, absent: &Absent) -> Result<()> {
    let (new, known) = split(&writes.tasks);
    if !new.is_empty() {
        execute(tx, tasks(&TASKS_INSERT, &new)).await?;
    }
    if !known.is_empty() {
        update(tx, tasks(&TASKS_UPDATE, &known), known.len(), "tasks").await?;
    }
    let (new, known) = split(&writes.handoffs);
    if !new.is_empty() {
        execute(tx, handoffs(&HANDOFFS_INSERT, &new)).await?;
    }
    if !known.is_empty() {
        update(tx, handoffs(&HANDOFFS_UPDATE, &known), known.len(), "handoffs").await?;
    }
    write_outbox(tx, writes).await?;
    write_beside(tx, writes).await?;
    write_agents(tx, writes, absent).await?;
    for (agent, (mode, at)) in &writes.retargets {
        super::claims::retarget(tx, agent, *mode, *at).await?;
    }
    super::contracts::write(tx, writes, absent).await?;
    super::schemas::write(tx, writes).await?;
    super::caps::write(tx, writes, absent).await?;
    let kept: Vec<(&Draft, &Content)> = writes
        .records
        .iter()
        .filter_map(|draft| draft.content.as_ref().map(|content| (draft, content)))
        .collect();
    if !kept.is_empty() {
        let query = bind!(
            sqlx::query(CONTENTS_INSERT.as_str()),
            kept,
            |row| row.0.tenant.as_str(),
            row.1.id.to_string(),
            row.1.part.salt.as_slice(),
            row.1.part.codec.as_str(),
            row.1.part.bytes.as_slice(),
            row.0.at.0,
        );
        execute(tx, query).await?;
    }
    Ok(())
}

fn tasks(sql: &'static Sql, tasks: &[&Task]) -> Statement {
    bind!(
        sqlx::query(sql.as_str()),
        tasks,
        |task| task.tenant.as_str(),
        task.id.to_string(),
        task.status.as_str(),
        task.holder.as_str(),
        task.checkpoint.map(|at| at.execution_id.to_string()),
        task.checkpoint.map(|at| at.seq),
        task.fence,
        task.handoffs,
        task.undelivered,
        task.failures,
        task.spent.0,
        task.remaining.0,
        task.created_at.0,
        task.updated_at.0,
        task.topped_up.0,
        task.opened_by.as_ref().map(AgentId::as_str),
        task.funds.as_ref().map(|funds| funds.to_text()),
    )
}

fn handoffs(sql: &'static Sql, handoffs: &[&Handoff]) -> Statement {
    bind!(
        sqlx::query(sql.as_str()),
        handoffs,
        |handoff| handoff.tenant.as_str(),
        handoff.id.to_string(),
        handoff.task_id.to_string(),
        handoff.parent_id.map(|id| id.to_string()),
        handoff.source.as_str(),
        handoff.source_version.as_str(),
        handoff.source_execution.to_string(),
        handoff.target.as_str(),
        handoff.target_type.as_str(),
        handoff.target_version.as_str(),
        handoff.mode.as_str(),
        handoff.status.as_str(),
        handoff.fencing_token,
        handoff.attempts,
        handoff.deadline_at.map(|at| at.0),
        handoff.cost.spent.0,
        handoff.cost.remaining.0,
        i64::try_from(handoff.cost.prompt_tokens).unwrap_or(i64::MAX),
        i64::try_from(handoff.cost.completion_tokens).unwrap_or(i64::MAX),
        handoff.idempotent,
        handoff.checkpoint.map(|at| at.execution_id.to_string()),
        handoff.checkpoint.map(|at| at.seq),
        handoff.content_id.map(|id| id.to_string()),
        handoff.digest_salt.as_slice(),
        handoff.digest.as_slice(),
        handoff.reason.as_deref(),
        handoff.traceparent.as_str(),
        handoff.created_at.0,
        handoff.accepted_at.map(|at| at.0),
        handoff.ended_at.map(|at| at.0),
        handoff.ruling.as_ref().map(|ruling| ruling.to_text()),
        handoff.commitment.as_ref().map(<[u8; 32]>::as_slice),
        handoff.checkpoint_commitment.as_ref().map(<[u8; 32]>::as_slice),
        handoff.topped_up.0,
        handoff.origin.map(|id| id.to_string()),
        handoff.tracestate.as_str(),
        handoff.span.as_str(),
    )
}

async fn write_outbox(tx: &mut PgConnection, writes: &Writes) -> Result<()> {
    let kept: Vec<&OutboxRow> = writes.outbox.values().flatten().collect();
    if !kept.is_empty() {
        let query = bind!(
            sqlx::query(OUTBOX_UPSERT.as_str()),
            kept,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.seq,
            row.target.as_str(),
            row.mode.as_str(),
            row.priority.rank(),
            row.visible_at.0,
            row.attempt,
            row.claimed_by.as_deref(),
            row.created_at.0,
        );
        execute(tx, query).await?;
    }
    let gone: Vec<_> =
        writes.outbox.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    if !gone.is_empty() {
        let query = sqlx::query(OUTBOX_DELETE.as_str());
        execute(tx, bind!(query, gone, |key| key.0.as_str(), key.1.to_string())).await?;
    }
    Ok(())
}

/// Checkpoints, uses of idempotency keys, dead letters: always new.
async fn write_beside(tx: &mut PgConnection, writes: &Writes) -> Result<()> {
    if !writes.checkpoints.is_empty() {
        let query = bind!(
            sqlx::query(CHECKPOINTS_INSERT.as_str()),
            writes.checkpoints,
            |row| row.tenant.as_str(),
            row.task_id.to_string(),
            row.at.execution_id.to_string(),
            row.at.seq,
            row.agent.as_str(),
            row.part.commitment.as_slice(),
            row.part.salt.as_slice(),
            row.part.codec.as_str(),
            row.part.bytes.as_slice(),
            row.created_at.0,
        );
        execute(tx, query).await?;
    }
    if !writes.idempotency.is_empty() {
        let query = bind!(
            sqlx::query(IDEMPOTENCY_INSERT.as_str()),
            writes.idempotency,
            |row| row.tenant.as_str(),
            row.agent.as_str(),
            row.key.as_str(),
            row.handoff_id.to_string(),
            row.created_at.0,
        );
        execute(tx, query).await?;
    }
    if !writes.dead_letters.is_empty() {
        let query = bind!(
            sqlx::query(DEAD_LETTERS_UPSERT.as_str()),
            writes.dead_letters,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.source.as_str(),
            row.target.as_ref().map(AgentId::as_str),
            row.reason.as_str(),
            json(&row.failures),
            row.status.as_str(),
            row.created_at.0,
            row.resolved_at.map(|at| at.0),
            row.resolved_by.as_deref(),
        );
        execute(tx, query).await?;
    }
    write_recovery(tx, writes).await
}

/// Edges and escalations.
async fn write_recovery(tx: &mut PgConnection, writes: &Writes) -> Result<()> {
    let edges: Vec<&Edge> = writes.edges.values().collect();
    if !edges.is_empty() {
        let query = bind!(
            sqlx::query(EDGES_UPSERT.as_str()),
            edges,
            |edge| edge.tenant.as_str(),
            edge.task_id.to_string(),
            edge.source.as_str(),
            edge.target.as_str(),
            edge.passages,
            edge.repeats,
            edge.completed,
            edge.failures,
            edge.spent.0,
            edge.remaining.0,
            edge.topped_up.0,
            edge.updated_at.0,
        );
        execute(tx, query).await?;
    }
    let escalations: Vec<&Escalation> = writes.escalations.values().collect();
    if !escalations.is_empty() {
        let query = bind!(
            sqlx::query(ESCALATIONS_UPSERT.as_str()),
            escalations,
            |row| row.tenant.as_str(),
            row.id.to_string(),
            row.task_id.to_string(),
            row.handoff_id.map(|id| id.to_string()),
            row.source.as_str(),
            row.target.as_str(),
            row.reason.as_str(),
            row.channel.as_deref(),
            row.resume_as.as_ref().map(AgentId::as_str),
            row.status.as_str(),
            row.created_at.0,
            row.timeout_at.0,
            row.resolved_at.map(|at| at.0),
            row.resolved_by.as_deref(),
            row.resolution.as_deref(),
        );
        execute(tx, query).await?;
    }
    Ok(())
}

/// Plain data always serialises; a NUL is escaped in JSON and so no trouble to Postgres.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

async fn write_agents(tx: &mut PgConnection, writes: &Writes, absent: &Absent) -> Result<()> {
    let (new, known): (Vec<_>, Vec<_>) = writes
        .agents
        .iter()
        .filter_map(|(key, row)| row.as_ref().map(|row| (key, row)))
        .partition(|(key, _)| absent.agents.contains(key));
    for (sql, rows) in [(&AGENTS_INSERT, new), (&AGENTS_UPSERT, known)] {
        if !rows.is_empty() {
            let rows: Vec<&AgentRow> = rows.into_iter().map(|(_, row)| row).collect();
            let query = bind!(
                sqlx::query(sql.as_str()),
                rows,
                |row| row.tenant.as_str(),
                row.agent.agent_id.as_str(),
                json(&row.agent),
                row.secrets.as_str(),
                row.created_at.0,
                row.updated_at.0,
            );
            execute(tx, query).await?;
        }
    }
    let gone: Vec<_> =
        writes.agents.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    if !gone.is_empty() {
        let query = sqlx::query(AGENTS_DELETE.as_str());
        execute(tx, bind!(query, gone, |key| key.0.as_str(), key.1.as_str())).await?;
    }
    let (new, known): (Vec<_>, Vec<_>) =
        writes.keys.iter().partition(|(key, _)| absent.keys.contains(key));
    for (sql, rows) in [(&KEYS_INSERT, new), (&KEYS_UPSERT, known)] {
        if !rows.is_empty() {
            let rows: Vec<&KeyRow> = rows.into_iter().map(|(_, row)| row).collect();
            let query = bind!(
                sqlx::query(sql.as_str()),
                rows,
                |row| row.tenant.as_str(),
                row.key_id.as_str(),
                row.hash.as_slice(),
                row.role.as_str(),
                row.agent.as_ref().map(AgentId::as_str),
                row.label.as_str(),
                row.created_at.0,
                row.expires_at.map(|at| at.0),
            );
            execute(tx, query).await?;
        }
    }
    Ok(())
}
