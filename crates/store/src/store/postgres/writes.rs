//! Writes of a batch: one statement for what most batches write, one for each table of the rest.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;

use super::batch::{
    AGENTS, CHECKPOINTS, CONTENTS, DEAD_LETTERS, EDGES, ESCALATIONS, HANDOFFS, IDEMPOTENCY, KEYS,
    OUTBOX, REFUSED_TASKS, RETURNS, Sql, TASKS, bind,
};
use super::failure::failed;
use super::joined::{JoinedStatement, StatementArguments, WriteMode};
use super::transact::{AbsentRows, Statement};
use crate::store::books;
use crate::store::{
    AgentRow, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow, KeyRow, OutboxRow,
    RefusedTaskRow, Result, ReturnRow, Writes,
};
use handoffd_core::domain::escalation::Escalation;
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::AgentId;
use handoffd_core::domain::progress::Edge;
use handoffd_core::evidence::record::{RecordContent, RecordDraft};

static AGENTS_INSERT: Sql = Sql::new(|| AGENTS.insert(1));
static AGENTS_UPSERT: Sql = Sql::new(|| AGENTS.upsert(1));
static AGENTS_DELETE: Sql = Sql::new(|| AGENTS.delete(1));
static REFUSED_TASKS_INSERT: Sql = Sql::new(|| REFUSED_TASKS.insert(1));
static REFUSED_TASKS_UPDATE: Sql = Sql::new(|| REFUSED_TASKS.update());
static KEYS_INSERT: Sql = Sql::new(|| KEYS.insert(1));
static KEYS_UPSERT: Sql = Sql::new(|| KEYS.upsert(1));

/// Set with the handoff, and by an erasure alone: an update of what was read before must not bring
/// back what was erased.
const HANDOFF_ERASED: [&str; 3] = ["digest_salt", "digest", "tracestate"];

pub(super) async fn execute(tx: &mut PgConnection, statement: Statement) -> Result<u64> {
    statement.execute(tx).await.map_err(failed).map(|done| done.rows_affected())
}

fn split<'a, K, T>(rows: &'a BTreeMap<K, (T, bool)>) -> (Vec<&'a T>, Vec<&'a T>) {
    let (new, known): (Vec<_>, Vec<_>) = rows.values().partition(|(_, new)| *new);
    let plain = |rows: Vec<&'a (T, bool)>| rows.into_iter().map(|(row, _)| row).collect();
    (plain(new), plain(known))
}

pub(super) async fn write(
    tx: &mut PgConnection,
    writes: &Writes,
    absent: &AbsentRows,
    statement_bytes: usize,
) -> Result<()> {
    let mut joined = JoinedStatement::new(&mut *tx, statement_bytes);
    let rows = books::TaskRows::of(writes);
    let text = |row: &books::TaskRow<'_>| row.1.as_ref().map_or(0, String::len);
    joined.put(&TASKS, WriteMode::Insert, &rows.new, text, tasks).await?;
    joined.put(&TASKS, WriteMode::Update(&[]), &rows.changed, text, tasks).await?;
    joined.put(&TASKS, WriteMode::Update(&["funds"]), &rows.same_books, text, tasks).await?;
    let (new, known) = split(&writes.handoffs);
    joined.put(&HANDOFFS, WriteMode::Insert, &new, |_| 0, handoffs).await?;
    joined.put(&HANDOFFS, WriteMode::Update(&HANDOFF_ERASED), &known, |_| 0, handoffs).await?;
    write_outbox(&mut joined, writes).await?;
    write_beside(&mut joined, writes).await?;
    write_recovery(&mut joined, writes).await?;
    write_contents(&mut joined, writes).await?;
    joined.send().await?;
    write_refused_tasks(tx, writes, absent).await?;
    write_agents(tx, writes, absent).await?;
    for (agent, (mode, at)) in &writes.retargets {
        super::claims::retarget(tx, agent, *mode, *at).await?;
    }
    super::contracts::write(tx, writes, absent).await?;
    super::schemas::write(tx, writes).await?;
    super::caps::write(tx, writes, absent).await
}

async fn write_contents(joined: &mut JoinedStatement<'_>, writes: &Writes) -> Result<()> {
    let kept: Vec<(&RecordDraft, &RecordContent)> = writes
        .records
        .iter()
        .filter_map(|draft| draft.content.as_ref().map(|content| (draft, content)))
        .collect();
    let bytes = |row: &(&RecordDraft, &RecordContent)| row.1.part.bytes.len();
    let columns = |bound: StatementArguments, rows: &[(&RecordDraft, &RecordContent)]| {
        bind!(
            bound,
            rows,
            |row| row.0.tenant.as_str(),
            row.1.id.to_string(),
            row.1.part.salt.as_slice(),
            row.1.part.codec.as_str(),
            &row.1.part.bytes[..],
            row.0.at.0,
        )
    };
    joined.put(&CONTENTS, WriteMode::Insert, &kept, bytes, columns).await
}

fn tasks(bound: StatementArguments, rows: &[books::TaskRow<'_>]) -> StatementArguments {
    bind!(
        bound,
        rows,
        |row| row.0.tenant.as_str(),
        row.0.id.to_string(),
        row.0.status.as_str(),
        row.0.holder.as_str(),
        row.0.checkpoint.map(|at| at.execution_id.to_string()),
        row.0.checkpoint.map(|at| at.seq),
        row.0.fence,
        row.0.handoffs,
        row.0.undelivered,
        row.0.failures,
        row.0.spent.0,
        row.0.remaining.0,
        row.0.created_at.0,
        row.0.updated_at.0,
        row.0.topped_up.0,
        row.0.opened_by.as_ref().map(AgentId::as_str),
        row.0.course.to_text(),
        row.1.as_deref(),
    )
}

fn handoffs(bound: StatementArguments, handoffs: &[&Handoff]) -> StatementArguments {
    bind!(
        bound,
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
        handoff.clock.started_at.0,
        handoff.clock.offered_at.map(|at| at.0),
    )
}

async fn write_outbox(joined: &mut JoinedStatement<'_>, writes: &Writes) -> Result<()> {
    let kept: Vec<&OutboxRow> = writes.outbox.values().flatten().collect();
    let columns = |bound: StatementArguments, rows: &[&OutboxRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.seq,
            row.target.as_str(),
            row.mode.as_str(),
            row.priority.rank(),
            row.visible_at.0,
            row.attempt,
            row.busy,
            row.claimed_by.as_deref(),
            row.created_at.0,
        )
    };
    joined.put(&OUTBOX, WriteMode::Upsert, &kept, |_| 0, columns).await?;
    let gone: Vec<&HandoffKey> =
        writes.outbox.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    let columns = |bound: StatementArguments, keys: &[&HandoffKey]| {
        bind!(bound, keys, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&OUTBOX, WriteMode::Delete, &gone, |_| 0, columns).await?;
    write_returns(joined, writes).await
}

async fn write_returns(joined: &mut JoinedStatement<'_>, writes: &Writes) -> Result<()> {
    let kept: Vec<&ReturnRow> = writes.returns.values().flatten().collect();
    let columns = |bound: StatementArguments, rows: &[&ReturnRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.agent.as_str(),
            row.returned_at.0,
            row.visible_at.0,
        )
    };
    joined.put(&RETURNS, WriteMode::Insert, &kept, |_| 0, columns).await?;
    let gone: Vec<&HandoffKey> =
        writes.returns.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    let columns = |bound: StatementArguments, keys: &[&HandoffKey]| {
        bind!(bound, keys, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&RETURNS, WriteMode::Delete, &gone, |_| 0, columns).await
}

/// Writes checkpoints, uses of idempotency keys and dead letters, which are always new.
async fn write_beside(joined: &mut JoinedStatement<'_>, writes: &Writes) -> Result<()> {
    let bytes = |row: &CheckpointRow| row.part.bytes.len();
    let columns = |bound: StatementArguments, rows: &[CheckpointRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.task_id.to_string(),
            row.at.execution_id.to_string(),
            row.at.seq,
            row.agent.as_str(),
            row.part.commitment.as_slice(),
            row.part.salt.as_slice(),
            row.part.codec.as_str(),
            &row.part.bytes[..],
            row.created_at.0,
        )
    };
    joined.put(&CHECKPOINTS, WriteMode::Insert, &writes.checkpoints, bytes, columns).await?;
    let columns = |bound: StatementArguments, rows: &[IdempotencyRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.agent.as_str(),
            row.key.as_str(),
            row.handoff_id.to_string(),
            row.created_at.0,
        )
    };
    joined.put(&IDEMPOTENCY, WriteMode::Insert, &writes.idempotency, |_| 0, columns).await?;
    let columns = |bound: StatementArguments, rows: &[DeadLetterRow]| {
        bind!(
            bound,
            rows,
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
        )
    };
    joined.put(&DEAD_LETTERS, WriteMode::Upsert, &writes.dead_letters, |_| 0, columns).await
}

/// Failures are counted with the task since migration 0015.
const fn no_failures(_: &Edge) -> i64 {
    0
}

/// Edges and escalations.
async fn write_recovery(joined: &mut JoinedStatement<'_>, writes: &Writes) -> Result<()> {
    let edges: Vec<&Edge> = writes.edges.values().collect();
    let columns = |bound: StatementArguments, rows: &[&Edge]| {
        bind!(
            bound,
            rows,
            |edge| edge.tenant.as_str(),
            edge.task_id.to_string(),
            edge.source.as_str(),
            edge.target.as_str(),
            edge.passages,
            edge.repeats,
            edge.completed,
            no_failures(edge),
            edge.spent.0,
            edge.remaining.0,
            edge.topped_up.0,
            edge.updated_at.0,
        )
    };
    joined.put(&EDGES, WriteMode::Upsert, &edges, |_| 0, columns).await?;
    let escalations: Vec<&Escalation> = writes.escalations.values().collect();
    let columns = |bound: StatementArguments, rows: &[&Escalation]| {
        bind!(
            bound,
            rows,
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
        )
    };
    joined.put(&ESCALATIONS, WriteMode::Upsert, &escalations, |_| 0, columns).await
}

/// Serializes plain data, which cannot fail; JSON escapes a NUL, which Postgres would reject.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Writes refused task ids. An unseen row could not be locked: it is inserted plainly, so that of two brokers that
/// count at once the second conflicts, and then adds to the first one's count.
async fn write_refused_tasks(
    tx: &mut PgConnection,
    writes: &Writes,
    absent: &AbsentRows,
) -> Result<()> {
    let (new, known): (Vec<_>, Vec<_>) =
        writes.refused_tasks.iter().partition(|(key, _)| absent.refused_tasks.contains(key));
    for (sql, rows) in [(&REFUSED_TASKS_INSERT, new), (&REFUSED_TASKS_UPDATE, known)] {
        let rows: Vec<&RefusedTaskRow> = rows.into_iter().map(|(_, row)| row).collect();
        if !rows.is_empty() {
            let query = bind!(
                sqlx::query(sql.as_str()),
                rows,
                |row| row.tenant.as_str(),
                row.task_id.to_string(),
                row.agent.as_str(),
                row.refusals,
                row.updated_at.0,
            );
            execute(tx, query).await?;
        }
    }
    Ok(())
}

async fn write_agents(tx: &mut PgConnection, writes: &Writes, absent: &AbsentRows) -> Result<()> {
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
