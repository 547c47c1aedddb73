//! What a batch changes, as a few statements over many rows.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::PgConnection;

use super::batch::{
    AGENTS, CHECKPOINTS, CONTENTS, DEAD_LETTERS, HANDOFFS, HEADS, IDEMPOTENCY, KEYS, OUTBOX,
    PERSONAL_DATA, RECORDS, Sql, TASKS, bind,
};
use super::failure::failed;
use super::transact::{Absent, Statement, fetch};
use crate::domain::handoff::Handoff;
use crate::domain::ids::{AgentId, TenantId};
use crate::domain::task::Task;
use crate::evidence::record::{Content, Draft, LogHead, PersonalPart, Sealed, seal};
use crate::store::{AgentRow, KeyRow, OutboxRow, Result, StoreError, Writes};

static TASKS_INSERT: Sql = Sql::new(|| TASKS.insert());
static TASKS_UPDATE: Sql = Sql::new(|| TASKS.update());
static HANDOFFS_INSERT: Sql = Sql::new(|| HANDOFFS.insert());
static HANDOFFS_UPDATE: Sql = Sql::new(|| HANDOFFS.update());
static OUTBOX_UPSERT: Sql = Sql::new(|| OUTBOX.upsert());
static OUTBOX_DELETE: Sql = Sql::new(|| OUTBOX.delete());
static CHECKPOINTS_INSERT: Sql = Sql::new(|| CHECKPOINTS.insert());
static IDEMPOTENCY_INSERT: Sql = Sql::new(|| IDEMPOTENCY.insert());
static DEAD_LETTERS_INSERT: Sql = Sql::new(|| DEAD_LETTERS.insert());
static AGENTS_INSERT: Sql = Sql::new(|| AGENTS.insert());
static AGENTS_UPSERT: Sql = Sql::new(|| AGENTS.upsert());
static AGENTS_DELETE: Sql = Sql::new(|| AGENTS.delete());
static KEYS_INSERT: Sql = Sql::new(|| KEYS.insert());
static KEYS_UPSERT: Sql = Sql::new(|| KEYS.upsert());
static CONTENTS_INSERT: Sql = Sql::new(|| CONTENTS.insert());
static RECORDS_INSERT: Sql = Sql::new(|| RECORDS.insert());
static PERSONAL_INSERT: Sql = Sql::new(|| PERSONAL_DATA.insert());
static HEADS_UPDATE: Sql = Sql::new(|| HEADS.update());

const HEADS_LOAD: &str = "SELECT tenant, log_id, size, hash FROM audit.log_heads \
     WHERE tenant = ANY($1) ORDER BY tenant FOR UPDATE";

async fn execute(tx: &mut PgConnection, statement: Statement) -> Result<u64> {
    statement.execute(tx).await.map_err(failed).map(|done| done.rows_affected())
}

/// Updates rows that were seen. They are locked and never deleted, so one that is not there is a
/// defect of the plan, and trying again would not help.
async fn update(
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
            sqlx::query(DEAD_LETTERS_INSERT.as_str()),
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

/// Locks the heads, gives each draft its place, writes records and personal data, moves the heads.
pub(super) async fn append(tx: &mut PgConnection, drafts: &[Draft]) -> Result<Vec<Sealed>> {
    if drafts.is_empty() {
        return Ok(Vec::new());
    }
    let tenants: BTreeSet<&str> = drafts.iter().map(|draft| draft.tenant.as_str()).collect();
    let query = sqlx::query(HEADS_LOAD).bind(tenants.into_iter().collect::<Vec<_>>());
    let mut heads: BTreeMap<TenantId, LogHead> = BTreeMap::new();
    for row in fetch(tx, query).await? {
        let head = super::log::head(&row)?;
        heads.insert(head.tenant.clone(), head);
    }
    let mut sealed = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let head = heads
            .get_mut(&draft.tenant)
            .ok_or_else(|| StoreError::Refused(format!("tenant {} has no log", draft.tenant)))?;
        sealed.push(seal(head, draft));
    }
    let places: Vec<(&Draft, &Sealed)> = drafts.iter().zip(&sealed).collect();
    let query = bind!(
        sqlx::query(RECORDS_INSERT.as_str()),
        places,
        |row| row.0.tenant.as_str(),
        row.1.leaf_index,
        row.1.hash.as_slice(),
        row.0.kind.as_str(),
        row.0.task_id.map(|id| id.to_string()),
        row.0.handoff_id.map(|id| id.to_string()),
        row.0.content.as_ref().map(|content| content.id.to_string()),
        row.0.at.0,
        row.1.body.as_slice(),
    );
    execute(tx, query).await?;
    let personal: Vec<(&Draft, &Sealed, i32, &PersonalPart)> = places
        .iter()
        .flat_map(|(draft, sealed)| {
            (0i32..).zip(&draft.personal).map(|(ordinal, datum)| (*draft, *sealed, ordinal, datum))
        })
        .collect();
    if !personal.is_empty() {
        let query = bind!(
            sqlx::query(PERSONAL_INSERT.as_str()),
            personal,
            |row| row.0.tenant.as_str(),
            row.1.leaf_index,
            row.2,
            row.0.handoff_id.map(|id| id.to_string()),
            row.3.subject_id.as_str(),
            row.3.part.salt.as_slice(),
            row.3.part.codec.as_str(),
            row.3.part.bytes.as_slice(),
            row.0.at.0,
        );
        execute(tx, query).await?;
    }
    let heads: Vec<&LogHead> = heads.values().collect();
    let query = bind!(
        sqlx::query(HEADS_UPDATE.as_str()),
        heads,
        |head| head.tenant.as_str(),
        head.size,
        head.hash.as_slice(),
    );
    update(tx, query, heads.len(), "log_heads").await?;
    Ok(sealed)
}
