//! Writes of a batch: a few statements for each table.

use std::fmt::Display;

use super::batch::{RowBatch, insert, insert_new, update, upsert};
use super::db::{Db, Query};
use crate::store::budget_column;
use crate::store::tables::{
    agents::AGENTS,
    any,
    api_keys::KEYS,
    attempts, caps,
    checkpoints::CHECKPOINTS,
    contracts,
    dead_letters::DEAD_LETTERS,
    edges::EDGES,
    escalations::ESCALATIONS,
    handoffs::HANDOFFS,
    idempotency, opinions,
    outbox::{self, OUTBOXES},
    refused_tasks::REFUSED_TASKS,
    returns::RETURNS,
    schemas, streams,
    tasks::TASKS,
};
use crate::store::{AgentKey, Result, StoreError, Writes};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{Micros, TenantId};

/// Writes all rows except the records.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    write_tasks(db, writes)?;
    let (new, known) = split(writes.handoffs.values());
    insert(db, &HANDOFFS, new)?;
    all_updated(update(db, &HANDOFFS, &known)?, known.len())?;
    write_inboxes(db, writes)?;
    insert(db, &CHECKPOINTS, &writes.checkpoints)?;
    insert(db, &idempotency::USES, &writes.idempotency)?;
    // A new one collides, if at all, by its handoff.
    upsert(db, &DEAD_LETTERS, &writes.dead_letters)?;
    upsert(db, &EDGES, writes.edges.values())?;
    upsert(db, &REFUSED_TASKS, writes.refused_tasks.values())?;
    upsert(db, &ESCALATIONS, writes.escalations.values())?;
    write_access(db, writes)?;
    write_others(db, writes)?;
    for (agent, (mode, at)) in &writes.retargets {
        retarget(db, agent, *mode, *at)?;
    }
    Ok(())
}

fn write_tasks(db: &Db, writes: &Writes) -> Result<()> {
    let rows = budget_column::TaskRows::of(writes);
    let [new, changed, same_budget] =
        [&rows.new, &rows.changed, &rows.same_budget].map(|rows| rows.iter().collect::<Vec<_>>());
    let name = TASKS.shape.name;
    RowBatch::insert(name, TASKS.list).run(db, &new, bind_task)?;
    let fixed = TASKS.fixed();
    let with_budget: Vec<_> = fixed.iter().copied().chain(["funds"]).collect();
    for (known, fixed) in [(changed, fixed), (same_budget, with_budget)] {
        let touched = RowBatch::update(name, TASKS.list, &fixed).run(db, &known, bind_task)?;
        all_updated(touched, known.len())?;
    }
    Ok(())
}

/// Writes the outbox, and the inbox of those whose tasks came back.
fn write_inboxes(db: &Db, writes: &Writes) -> Result<()> {
    let gone = writes.outbox.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key);
    delete(db, "outbox", "handoff_id", gone)?;
    upsert(db, &OUTBOXES, writes.outbox.values().flatten())?;
    let gone = writes.returns.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key);
    delete(db, "returns", "handoff_id", gone)?;
    upsert(db, &RETURNS, writes.returns.values().flatten())
}

fn write_others(db: &Db, writes: &Writes) -> Result<()> {
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
    delete(db, "opinions_due", "handoff_id", opinions::recorded(writes))?;
    insert_new(db, &writes.rows)?;
    upsert(db, &attempts::ATTEMPTS, writes.attempts.values())
}

/// Sets the delivery mode of an agent's waiting handoffs. They are found by the outbox, of which the agent's rows alone are
/// read: left alone, SQLite reads those of the whole tenant.
fn retarget(db: &Db, (tenant, agent): &AgentKey, mode: DeliveryMode, at: Micros) -> Result<()> {
    for sql in [outbox::RETARGET_HANDOFFS, outbox::RETARGET_ROWS] {
        let query = db.query(sql).bind(mode.as_str()).bind(tenant.as_str());
        query.bind(agent.as_str()).bind(at.0).execute()?;
    }
    Ok(())
}

/// Writes agents and keys.
fn write_access(db: &Db, writes: &Writes) -> Result<()> {
    let gone = writes.agents.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key);
    delete(db, "agents", "agent_id", gone)?;
    upsert(db, &AGENTS, writes.agents.values().flatten())?;
    upsert(db, &KEYS, writes.keys.values())
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

/// Deletes rows by the tenant and an id.
fn delete<'k, K: Display + 'k>(
    db: &Db,
    table: &str,
    id: &str,
    keys: impl IntoIterator<Item = &'k (TenantId, K)>,
) -> Result<()> {
    let mut sql = String::new();
    for (tenant, key) in keys {
        if sql.is_empty() {
            sql = any::delete_one(table, id);
        }
        db.query(&sql).bind(tenant.as_str()).bind(key.to_string()).execute()?;
    }
    Ok(())
}

/// Binds a task, and the text of its budget, whose column is the last.
fn bind_task<'c>(query: Query<'c>, (task, budget): &budget_column::TaskRow<'_>) -> Query<'c> {
    let columns = &TASKS.columns[..TASKS.columns.len() - 1];
    let query = columns.iter().fold(query, |query, column| query.bind((column.get)(task)));
    query.bind(budget.as_deref())
}
