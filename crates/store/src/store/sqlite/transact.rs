//! One batch, one transaction: load, plan, write, seal.

use std::fmt::Display;

use super::connection::Ended;
use super::db::Db;
use super::{append, erasure, events, rows, writes};
use crate::fault::{self, Step};
use crate::store::query::Columns;
use crate::store::rows::Load;
use crate::store::table::Table;
use crate::store::tables::{
    agents::{self, AGENTS},
    any,
    api_keys::{self, KEYS},
    checkpoints,
    dead_letters::{self, DEAD_LETTERS},
    edges::{self, EDGES},
    escalations::{self, ESCALATIONS},
    handoffs::{self, HANDOFFS},
    idempotency,
    outbox::{self, OUTBOXES},
    refused_tasks::{self, REFUSED_TASKS},
    subscriptions,
    tasks::{self, TASKS},
};
use crate::store::{
    AgentKey, BatchState, Needs, Result, Writes, caps, contracts, opinions, schemas,
};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::append::AppendedRecords;

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
        rows: new_rows,
        attempts,
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
        && new_rows.is_empty()
        && attempts.is_empty()
}

/// A table whose rows are loaded, all columns of each.
#[derive(Clone, Copy)]
struct Source {
    table: &'static str,
    list: &'static str,
    /// Empty where the columns are a list alone.
    columns: Columns,
}

impl<T> From<&Table<T>> for Source {
    fn from(table: &Table<T>) -> Self {
        Self { table: table.shape.name, list: table.list, columns: table.shape.columns }
    }
}

/// Reads the rows of a table for each tenant and `key`.
fn fetch_pairs<'k, K: Display + 'k>(
    db: &Db,
    from: impl Into<Source>,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
    state: &mut BatchState,
    load: Load,
) -> Result<()> {
    let Source { table, list, columns } = from.into();
    let mut sql = String::new();
    for (tenant, id) in wanted {
        if sql.is_empty() {
            sql = any::select_one(list, table, key);
        }
        let query = db.query(&sql).of(columns).bind(tenant.as_str());
        query.bind(id.to_string()).each(|row| load(row, state))?;
    }
    Ok(())
}

/// Reads the rows of a table that a condition `rest` on two values finds for each tenant.
fn fetch_triples<'k, A: Display + 'k, B: Display + 'k>(
    db: &Db,
    from: impl Into<Source>,
    rest: &str,
    wanted: impl IntoIterator<Item = (&'k TenantId, &'k A, &'k B)>,
    state: &mut BatchState,
    load: Load,
) -> Result<()> {
    let Source { table, list, columns } = from.into();
    let mut sql = String::new();
    for (tenant, a, b) in wanted {
        if sql.is_empty() {
            sql = any::select_where(list, table, rest);
        }
        let query = db.query(&sql).of(columns).bind(tenant.as_str()).bind(a.to_string());
        query.bind(b.to_string()).each(|row| load(row, state))?;
    }
    Ok(())
}

/// Loads the last checkpoint of each run. It is nearly always the asking agent's own; where it is not, that one is
/// looked for too.
fn load_runs(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let of_any = checkpoints::last("");
    let of_one = checkpoints::last(" AND agent_id = ?");
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
    fetch_pairs(db, &TASKS, "task_id", &needs.tasks, &mut state, tasks::load)?;
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
    fetch_pairs(db, &KEYS, "key_id", &needs.keys, &mut state, api_keys::load)?;
    load_contracts(db, needs, &mut state)?;
    let (from, wanted) = (&schemas::PAYLOAD_SCHEMAS, &needs.payload_schemas);
    fetch_pairs(db, from, "schema_id", wanted, &mut state, schemas::load)?;
    let list = subscriptions::SUBSCRIPTION;
    let (from, wanted) =
        (Source { table: "subscriptions", list, columns: &[] }, &needs.subscriptions);
    fetch_pairs(db, from, "subscription_id", wanted, &mut state, subscriptions::load)?;
    let (from, wanted) = (&opinions::OPINIONS, &needs.opinions);
    fetch_pairs(db, from, "handoff_id", wanted, &mut state, opinions::load)?;
    state.erasure = erasure::load(db, &needs.erasure)?;
    load_caps(db, needs, &mut state)?;
    Ok(state)
}

fn load_contracts(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted = needs.contracts.iter().map(|(tenant, id, version)| (tenant, id, version));
    let rest = "contract_id = ? AND version = ?";
    fetch_triples(db, &contracts::CONTRACTS, rest, wanted, state, contracts::load)?;
    let (from, wanted) = (&contracts::REPEATS, &needs.repeats);
    fetch_pairs(db, from, "repeat_key", wanted, state, contracts::load_repeat)
}

/// Loads the caps that may be charged, after all rows that determine them.
fn load_caps(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    let scopes: Vec<_> = state.cap_scopes.iter().cloned().collect();
    let scopes: Vec<_> = scopes
        .iter()
        .map(|(tenant, agent)| (tenant.clone(), caps::of(agent.as_ref()).to_owned()))
        .collect();
    fetch_pairs(db, &caps::CAPS, "agent_id", &scopes, state, caps::load)
}

fn load_handoffs<'k, K: Display + 'k>(
    db: &Db,
    state: &mut BatchState,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
) -> Result<()> {
    fetch_pairs(db, &HANDOFFS, key, wanted, state, handoffs::load)
}

fn load_outbox<'k, K: Display + 'k>(
    db: &Db,
    state: &mut BatchState,
    key: &str,
    wanted: impl IntoIterator<Item = &'k (TenantId, K)>,
) -> Result<()> {
    fetch_pairs(db, &OUTBOXES, key, wanted, state, outbox::load)
}

fn load_agents<'k>(
    db: &Db,
    state: &mut BatchState,
    wanted: impl IntoIterator<Item = &'k AgentKey>,
) -> Result<()> {
    fetch_pairs(db, &AGENTS, "agent_id", wanted, state, agents::load)
}

/// The handoffs received by a sender, where its message names none of them.
fn load_lineage(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted: Vec<_> = needs
        .lineage_beside(state)
        .into_iter()
        .map(|((tenant, task), agent)| (tenant, task, agent))
        .collect();
    let rest = "task_id = ? AND target = ? AND accepted_at IS NOT NULL";
    fetch_triples(db, &HANDOFFS, rest, wanted, state, handoffs::load)
}

/// Rows for recovery: a task's edges, its open handoffs and escalation, dead letters.
fn load_recovery(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let edges = needs.edges_beside(state);
    fetch_pairs(db, &EDGES, "task_id", edges, state, edges::load)?;
    load_handoffs(db, state, "status IN ('PENDING', 'ACCEPTED') AND task_id", &needs.open)?;
    load_outbox(db, state, "task_id", &needs.open)?;
    let escalated: Vec<_> =
        needs.open.iter().chain(state.escalated_beside(needs)).cloned().collect();
    let open = "status = 'OPEN' AND task_id";
    fetch_pairs(db, &ESCALATIONS, open, &escalated, state, escalations::load)?;
    let refused = needs.refused_tasks.iter().map(|(tenant, task, agent)| (tenant, task, agent));
    let rest = "task_id = ? AND agent_id = ?";
    fetch_triples(db, &REFUSED_TASKS, rest, refused, state, refused_tasks::load)?;
    let (wanted, load) = (&needs.dead_letters, dead_letters::load);
    fetch_pairs(db, &DEAD_LETTERS, "handoff_id", wanted, state, load)
}

fn load_idempotency(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted = needs.idempotency.iter().map(|(tenant, agent, key)| (tenant, agent, key));
    let rest = "agent_id = ? AND idempotency_key = ?";
    fetch_triples(db, &idempotency::USES, rest, wanted, state, idempotency::load)
}
