//! One batch, one transaction: load, plan, write, seal.

use std::fmt::Display;

use super::connection::Ended;
use super::db::{Db, Row};
use super::{append, caps, contracts, erasure, events, opinions, rows, schemas, writes};
use crate::fault::{self, Step};
use crate::store::rows::{
    AGENT, DEAD_LETTER, EDGE, ESCALATION, HANDOFF, KEY, OUTBOX, REFUSED_TASK, SUBSCRIPTION, TASK,
};
use crate::store::{AgentKey, BatchState, IdempotencyRow, Needs, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};
use handoffd_core::evidence::append::AppendedRecords;

/// Columns of a use of an `Idempotency-Key`.
pub(super) const IDEMPOTENCY: &str = "tenant, agent_id, idempotency_key, handoff_id, created_at";

/// Runs a batch inside an open write transaction; not to be committed where nothing was written.
pub(super) fn run(
    db: &Db,
    needs: &Needs,
    plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
) -> Result<Ended<AppendedRecords>> {
    let writes = plan(load(db, needs)?);
    if is_empty(&writes) {
        return Ok(Ended { value: AppendedRecords::default(), keep: false, records: 0 });
    }
    writes::write(db, &writes)?;
    fault::at(Step::CommitWritten);
    erasure::write(db, &writes)?;
    let sealed = append::append(db, &writes.records)?;
    events::write(db, &writes, &sealed.records)?;
    fault::at(Step::CommitSealed);
    Ok(Ended { keep: true, records: sealed.records.len(), value: sealed })
}

fn is_empty(writes: &Writes) -> bool {
    let Writes {
        tasks,
        same_budget: _,
        handoffs,
        outbox,
        returns,
        chunks,
        stream_lines,
        checkpoints,
        idempotency,
        dead_letters,
        edges,
        escalations,
        agents,
        keys,
        retargets,
        holds,
        erasures,
        erased,
        records,
        events,
        subscriptions,
        contracts,
        payload_schemas,
        refused_tasks,
        repeats,
        caps,
        cursors,
        opinions,
        refusals,
    } = writes;
    tasks.is_empty()
        && handoffs.is_empty()
        && outbox.is_empty()
        && returns.is_empty()
        && chunks.is_empty()
        && stream_lines.is_empty()
        && checkpoints.is_empty()
        && idempotency.is_empty()
        && dead_letters.is_empty()
        && edges.is_empty()
        && escalations.is_empty()
        && agents.is_empty()
        && keys.is_empty()
        && retargets.is_empty()
        && holds.is_empty()
        && erasures.is_empty()
        && erased.is_empty()
        && records.is_empty()
        && events.is_empty()
        && subscriptions.is_empty()
        && contracts.is_empty()
        && payload_schemas.is_empty()
        && refused_tasks.is_empty()
        && repeats.is_empty()
        && caps.is_empty()
        && cursors.is_empty()
        && opinions.is_empty()
        && refusals.is_empty()
}

/// Reads the rows of `table` for each tenant and `key`.
pub(super) fn fetch_pairs<'k, K: Display + 'k>(
    db: &Db,
    table: &str,
    columns: &str,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
    mut read: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let sql = format!("SELECT {columns} FROM {table} WHERE tenant = ? AND {key} = ?");
    for (tenant, id) in wanted {
        db.query(&sql).bind(tenant.as_str()).bind(id.to_string()).each(&mut read)?;
    }
    Ok(())
}

/// Reads the rows that a condition `rest` on two values finds for each tenant.
pub(super) fn fetch_triples<'k, A: Display + 'k, B: Display + 'k>(
    db: &Db,
    select: &str,
    rest: &str,
    wanted: impl IntoIterator<Item = (&'k TenantId, &'k A, &'k B)>,
    mut read: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let sql = format!("SELECT {select} WHERE tenant = ? AND {rest}");
    for (tenant, a, b) in wanted {
        let query = db.query(&sql).bind(tenant.as_str()).bind(a.to_string());
        query.bind(b.to_string()).each(&mut read)?;
    }
    Ok(())
}

/// Loads the last checkpoint of each run. It is nearly always the asking agent's own; where it is not, that one is
/// looked for too.
fn load_runs(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let last = |whose: &str| {
        format!(
            "SELECT seq, commitment, agent_id FROM checkpoints \
             WHERE tenant = ? AND task_id = ? AND execution_id = ?{whose} ORDER BY seq DESC LIMIT 1"
        )
    };
    let (of_any, of_one) = (last(""), last(" AND agent_id = ?"));
    for (run, agent) in &needs.runs {
        let asked = |sql| {
            let query = db.query(sql).bind(run.0.as_str()).bind(run.1.to_string());
            query.bind(run.2.to_string())
        };
        let Some((holder, checkpoint)) = asked(&of_any).find(rows::last_checkpoint)? else {
            continue;
        };
        let is_own = holder == *agent;
        let known = state.runs.entry(run.clone()).or_default();
        known.add(holder, checkpoint);
        if !is_own
            && let Some((agent, checkpoint)) =
                asked(&of_one).bind(agent.as_str()).find(rows::last_checkpoint)?
        {
            known.add(agent, checkpoint);
        }
    }
    Ok(())
}

fn load(db: &Db, needs: &Needs) -> Result<BatchState> {
    let mut state = BatchState::default();
    fetch_pairs(db, "tasks", TASK, "task_id", &needs.tasks, |row| {
        let task = rows::task(row)?;
        state.tasks.insert((task.tenant.clone(), task.id), task);
        Ok(())
    })?;
    let handoffs = needs.handoffs_beside(&state);
    load_handoffs(db, &mut state, "handoff_id", &handoffs)?;
    load_lineage(db, needs, &mut state)?;
    // None waits that does not exist: a new one is not looked for.
    let found: Vec<_> = state.handoffs.keys().cloned().collect();
    load_outbox(db, &mut state, "handoff_id", &found)?;
    load_recovery(db, needs, &mut state)?;
    load_runs(db, needs, &mut state)?;
    load_idempotency(db, needs, &mut state)?;
    load_agents(db, &mut state, &needs.agents)?;
    let fallbacks = state.fallbacks();
    load_agents(db, &mut state, &fallbacks)?;
    fetch_pairs(db, "api_keys", KEY, "key_id", &needs.keys, |row| {
        let row = rows::key(row)?;
        state.keys.insert((row.tenant.clone(), row.key_id.clone()), row);
        Ok(())
    })?;
    contracts::load(db, needs, &mut state)?;
    schemas::load(db, needs, &mut state)?;
    let (table, wanted) = ("subscriptions", &needs.subscriptions);
    fetch_pairs(db, table, SUBSCRIPTION, "subscription_id", wanted, |row| {
        let row = rows::subscription(row)?;
        state.subscriptions.insert((row.tenant.clone(), row.id), row);
        Ok(())
    })?;
    opinions::load(db, needs, &mut state)?;
    state.erasure = erasure::load(db, &needs.erasure)?;
    caps::load(db, needs, &mut state)?;
    Ok(state)
}

fn load_handoffs<'k, K: Display + 'k>(
    db: &Db,
    state: &mut BatchState,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
) -> Result<()> {
    fetch_pairs(db, "handoffs", HANDOFF, key, wanted, |row| {
        let handoff = rows::handoff(row)?;
        state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        Ok(())
    })
}

fn load_outbox<'k, K: Display + 'k>(
    db: &Db,
    state: &mut BatchState,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
) -> Result<()> {
    fetch_pairs(db, "outbox", OUTBOX, key, wanted, |row| {
        let row = rows::outbox(row)?;
        state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        Ok(())
    })
}

fn load_agents<'k>(
    db: &Db,
    state: &mut BatchState,
    wanted: impl IntoIterator<Item = &'k AgentKey>,
) -> Result<()> {
    fetch_pairs(db, "agents", AGENT, "agent_id", wanted, |row| {
        let row = rows::agent(row)?;
        state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
        Ok(())
    })
}

/// The handoffs received by a sender, where its message names none of them.
fn load_lineage(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted: Vec<_> = needs
        .lineage_beside(state)
        .into_iter()
        .map(|((tenant, task), agent)| (tenant, task, agent))
        .collect();
    let rest = "task_id = ? AND target = ? AND accepted_at IS NOT NULL";
    fetch_triples(db, &format!("{HANDOFF} FROM handoffs"), rest, wanted, |row| {
        let handoff = rows::handoff(row)?;
        state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        Ok(())
    })
}

/// Rows for recovery: a task's edges, its open handoffs and escalation, dead letters.
fn load_recovery(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let edges = needs.edges_beside(state);
    fetch_pairs(db, "task_edges", EDGE, "task_id", edges, |row| {
        let edge = rows::edge(row)?;
        let key = (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
        state.edges.insert(key, edge);
        Ok(())
    })?;
    load_handoffs(db, state, "status IN ('PENDING', 'ACCEPTED') AND task_id", &needs.open)?;
    load_outbox(db, state, "task_id", &needs.open)?;
    let escalated: Vec<_> =
        needs.open.iter().chain(state.escalated_beside(needs)).cloned().collect();
    let open = "status = 'OPEN' AND task_id";
    fetch_pairs(db, "escalations", ESCALATION, open, &escalated, |row| {
        let row = rows::escalation(row)?;
        state.escalations.insert((row.tenant.clone(), row.id), row);
        Ok(())
    })?;
    let refused = needs.refused_tasks.iter().map(|(tenant, task, agent)| (tenant, task, agent));
    let select = format!("{REFUSED_TASK} FROM refused_tasks");
    fetch_triples(db, &select, "task_id = ? AND agent_id = ?", refused, |row| {
        let row = rows::refused_task(row)?;
        state.refused_tasks.insert(row.key(), row);
        Ok(())
    })?;
    fetch_pairs(db, "dead_letters", DEAD_LETTER, "handoff_id", &needs.dead_letters, |row| {
        let row = rows::dead_letter(row)?;
        state.dead_letters.insert((row.tenant.clone(), row.handoff_id), row);
        Ok(())
    })
}

fn load_idempotency(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted = needs.idempotency.iter().map(|(tenant, agent, key)| (tenant, agent, key));
    let select = format!("{IDEMPOTENCY} FROM idempotency_keys");
    fetch_triples(db, &select, "agent_id = ? AND idempotency_key = ?", wanted, |row| {
        let row = IdempotencyRow {
            tenant: rows::parse(row, "tenant")?,
            agent: rows::parse(row, "agent_id")?,
            key: rows::get(row, "idempotency_key")?,
            handoff_id: rows::parse(row, "handoff_id")?,
            created_at: Micros(rows::get(row, "created_at")?),
        };
        let key = (row.tenant.clone(), row.agent.clone(), row.key.clone());
        state.idempotency.insert(key, row);
        Ok(())
    })
}
