//! One batch, one transaction: load, plan, write, seal.

use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::batch::json;
use super::connection::failure;
use super::{append, caps, contracts, erasure, events, rows, schemas, writes};
use crate::fault::{self, Step};
use crate::store::rows::{
    AGENT, DEAD_LETTER, EDGE, ESCALATION, HANDOFF, KEY, OUTBOX, REFUSED_TASK, SUBSCRIPTION, TASK,
};
use crate::store::{BatchState, IdempotencyRow, Needs, Result, Writes};
use handoffd_core::domain::ids::Micros;
use handoffd_core::evidence::append::AppendedRecords;

/// Columns of a use of an `Idempotency-Key`.
pub(super) const IDEMPOTENCY: &str = "tenant, agent_id, idempotency_key, handoff_id, created_at";

/// Runs a batch inside an open write transaction; `None` when there is nothing to commit.
pub(super) async fn run(
    conn: &mut SqliteConnection,
    needs: &Needs,
    plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
) -> Result<Option<AppendedRecords>> {
    let state = load(conn, needs).await?;
    let writes = plan(state);
    if is_empty(&writes) {
        return Ok(None);
    }
    writes::write(conn, &writes).await?;
    fault::at(Step::CommitWritten);
    erasure::write(conn, &writes).await?;
    let sealed = append::append(conn, &writes.records).await?;
    events::write(conn, &writes, &sealed.records).await?;
    fault::at(Step::CommitSealed);
    Ok(Some(sealed))
}

fn is_empty(writes: &Writes) -> bool {
    let Writes {
        tasks,
        same_books: _,
        handoffs,
        outbox,
        returns,
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
    } = writes;
    tasks.is_empty()
        && handoffs.is_empty()
        && outbox.is_empty()
        && returns.is_empty()
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
}

pub(super) async fn fetch(
    conn: &mut SqliteConnection,
    sql: String,
    keys: String,
) -> Result<Vec<SqliteRow>> {
    sqlx::query(AssertSqlSafe(sql)).bind(keys).fetch_all(conn).await.map_err(failure)
}

/// The rows of `table` whose two key columns are wanted. `CROSS JOIN` makes SQLite go from the list
/// into the index and not the other way.
pub(super) async fn fetch_pairs(
    conn: &mut SqliteConnection,
    table: &str,
    columns: &str,
    key: &str,
    wanted: String,
) -> Result<Vec<SqliteRow>> {
    let sql = format!(
        "WITH wanted (t, i) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?)) \
         SELECT {columns} FROM wanted CROSS JOIN {table} ON tenant = t AND {key} = i"
    );
    fetch(conn, sql, wanted).await
}

async fn load(conn: &mut SqliteConnection, needs: &Needs) -> Result<BatchState> {
    let mut state = BatchState::default();
    if !needs.tasks.is_empty() {
        for row in fetch_pairs(conn, "tasks", TASK, "task_id", json(&needs.tasks)?).await? {
            let task = rows::task(&row)?;
            state.tasks.insert((task.tenant.clone(), task.id), task);
        }
    }
    let handoffs = needs.handoffs_beside(&state);
    if !handoffs.is_empty() {
        let wanted = json(&handoffs)?;
        for row in fetch_pairs(conn, "handoffs", HANDOFF, "handoff_id", wanted).await? {
            let handoff = rows::handoff(&row)?;
            state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        }
    }
    load_lineage(conn, needs, &mut state).await?;
    // None waits that does not exist: a new one is not looked for.
    if !state.handoffs.is_empty() {
        let found = json(&state.handoffs.keys().collect::<Vec<_>>())?;
        for row in fetch_pairs(conn, "outbox", OUTBOX, "handoff_id", found).await? {
            let row = rows::outbox(&row)?;
            state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        }
    }
    load_recovery(conn, needs, &mut state).await?;
    if !needs.runs.is_empty() {
        load_runs(conn, needs, &mut state).await?;
    }
    if !needs.idempotency.is_empty() {
        load_idempotency(conn, needs, &mut state).await?;
    }
    if !needs.agents.is_empty() {
        for row in fetch_pairs(conn, "agents", AGENT, "agent_id", json(&needs.agents)?).await? {
            let row = rows::agent(&row)?;
            state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
        }
    }
    load_fallbacks(conn, &mut state).await?;
    if !needs.keys.is_empty() {
        for row in fetch_pairs(conn, "api_keys", KEY, "key_id", json(&needs.keys)?).await? {
            let row = rows::key(&row)?;
            state.keys.insert((row.tenant.clone(), row.key_id.clone()), row);
        }
    }
    contracts::load(conn, needs, &mut state).await?;
    schemas::load(conn, needs, &mut state).await?;
    if !needs.subscriptions.is_empty() {
        let wanted = json(&needs.subscriptions)?;
        let columns = SUBSCRIPTION;
        for row in fetch_pairs(conn, "subscriptions", columns, "subscription_id", wanted).await? {
            let row = rows::subscription(&row)?;
            state.subscriptions.insert((row.tenant.clone(), row.id), row);
        }
    }
    state.erasure = erasure::load(conn, &needs.erasure).await?;
    caps::load(conn, needs, &mut state).await?;
    Ok(state)
}

/// The handoffs received by a sender, where its message names none of them.
async fn load_lineage(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    let wanted: Vec<_> = needs
        .lineage_beside(state)
        .into_iter()
        .map(|((tenant, task), agent)| (tenant, task, agent))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "WITH wanted (t, i, a) AS \
           (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)) \
         SELECT {HANDOFF} FROM wanted CROSS JOIN handoffs \
           ON tenant = t AND task_id = i AND target = a AND accepted_at IS NOT NULL"
    );
    let wanted = json(&wanted)?;
    for row in fetch(conn, sql, wanted).await? {
        let handoff = rows::handoff(&row)?;
        state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
    }
    Ok(())
}

/// Rows for recovery: a task's edges, its open handoffs and escalation, dead letters.
async fn load_recovery(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    let edges = needs.edges_beside(state);
    if !edges.is_empty() {
        let wanted = json(&edges)?;
        for row in fetch_pairs(conn, "task_edges", EDGE, "task_id", wanted).await? {
            let edge = rows::edge(&row)?;
            let key = (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
            state.edges.insert(key, edge);
        }
    }
    if !needs.open.is_empty() {
        let wanted = json(&needs.open)?;
        let open = "status IN ('PENDING', 'ACCEPTED') AND task_id";
        for row in fetch_pairs(conn, "handoffs", HANDOFF, open, wanted.clone()).await? {
            let handoff = rows::handoff(&row)?;
            state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        }
        for row in fetch_pairs(conn, "outbox", OUTBOX, "task_id", wanted.clone()).await? {
            let row = rows::outbox(&row)?;
            state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        }
        let open = "status = 'OPEN' AND task_id";
        for row in fetch_pairs(conn, "escalations", ESCALATION, open, wanted).await? {
            let row = rows::escalation(&row)?;
            state.escalations.insert((row.tenant.clone(), row.id), row);
        }
    }
    let escalated = state.escalated_beside(needs);
    if !escalated.is_empty() {
        let (wanted, open) = (json(&escalated)?, "status = 'OPEN' AND task_id");
        for row in fetch_pairs(conn, "escalations", ESCALATION, open, wanted).await? {
            let row = rows::escalation(&row)?;
            state.escalations.insert((row.tenant.clone(), row.id), row);
        }
    }
    if !needs.refused_tasks.is_empty() {
        let sql = format!(
            "WITH wanted (t, i, a) AS \
               (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)) \
             SELECT {REFUSED_TASK} FROM wanted CROSS JOIN refused_tasks \
               ON tenant = t AND task_id = i AND agent_id = a"
        );
        for row in fetch(conn, sql, json(&needs.refused_tasks)?).await? {
            let row = rows::refused_task(&row)?;
            state.refused_tasks.insert(row.key(), row);
        }
    }
    if !needs.dead_letters.is_empty() {
        let wanted = json(&needs.dead_letters)?;
        for row in fetch_pairs(conn, "dead_letters", DEAD_LETTER, "handoff_id", wanted).await? {
            let row = rows::dead_letter(&row)?;
            state.dead_letters.insert((row.tenant.clone(), row.handoff_id), row);
        }
    }
    Ok(())
}

/// The fallback agents of the loaded handoffs.
async fn load_fallbacks(conn: &mut SqliteConnection, state: &mut BatchState) -> Result<()> {
    let wanted = state.fallbacks();
    if !wanted.is_empty() {
        for row in fetch_pairs(conn, "agents", AGENT, "agent_id", json(&wanted)?).await? {
            let row = rows::agent(&row)?;
            state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
        }
    }
    Ok(())
}

async fn load_runs(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    let sql = "WITH wanted (t, i, e) AS \
                 (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)) \
               SELECT tenant, task_id, execution_id, seq, commitment, agent_id \
               FROM wanted CROSS JOIN checkpoints ON tenant = t AND task_id = i \
                 AND execution_id = e AND seq = (SELECT max(c.seq) FROM checkpoints c \
                   WHERE c.tenant = t AND c.task_id = i AND c.execution_id = e)";
    for row in fetch(conn, sql.to_owned(), json(&needs.runs)?).await? {
        let run = (
            rows::parse(&row, "tenant")?,
            rows::parse(&row, "task_id")?,
            rows::parse(&row, "execution_id")?,
        );
        state.runs.insert(run, rows::last_checkpoint(&row)?);
    }
    Ok(())
}

async fn load_idempotency(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    let sql = format!(
        "WITH wanted (t, a, k) AS \
           (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)) \
         SELECT {IDEMPOTENCY} FROM wanted CROSS JOIN idempotency_keys \
           ON tenant = t AND agent_id = a AND idempotency_key = k"
    );
    for row in fetch(conn, sql, json(&needs.idempotency)?).await? {
        let row = IdempotencyRow {
            tenant: rows::parse(&row, "tenant")?,
            agent: rows::parse(&row, "agent_id")?,
            key: rows::get(&row, "idempotency_key")?,
            handoff_id: rows::parse(&row, "handoff_id")?,
            created_at: Micros(rows::get(&row, "created_at")?),
        };
        let key = (row.tenant.clone(), row.agent.clone(), row.key.clone());
        state.idempotency.insert(key, row);
    }
    Ok(())
}
