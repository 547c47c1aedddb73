//! The transaction of one batch.

use std::collections::BTreeSet;

use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;

use super::append::append;
use super::batch::{
    AGENTS, DEAD_LETTERS, EDGES, ESCALATIONS, HANDOFFS, IDEMPOTENCY, KEYS, OUTBOX, REFUSED_TASKS,
    SUBSCRIPTIONS, Sql, TASKS, bind,
};
use super::failure::failed;
use super::joined::JoinedStatement;
use super::writes::write;
use super::{PostgresStore, connect, events, rows};
use crate::fault::{self, Step};
use crate::store::contracts::RepeatKey;
use crate::store::{
    AgentKey, BatchState, HandoffKey, IdempotencyRow, Needs, RefusedTaskKey, Result, TaskKey,
    Writes,
};
use handoffd_core::domain::cap::CapKey;
use handoffd_core::domain::ids::{AgentId, Micros, TenantId};
use handoffd_core::evidence::append::AppendedRecords;

/// A statement with its arrays bound.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// Loads, plans, writes, seals, commits.
pub(super) async fn transact(
    store: &PostgresStore,
    needs: &Needs,
    plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
) -> Result<AppendedRecords> {
    let plans = store.statistics.plans(needs);
    let mut tx = connect::begin(&store.pool, &store.doubt, plans).await?;
    let state = load(&mut tx, store, needs).await?;
    let absent = AbsentRows::of(needs, &state);
    let writes = plan(state);
    if is_empty(&writes) {
        tx.rollback().await.map_err(failed)?;
        return Ok(AppendedRecords::default());
    }
    let statement_bytes = store.statement_bytes;
    write(&mut tx, &writes, &absent, statement_bytes).await?;
    fault::at(Step::CommitWritten);
    super::erasure::write(&mut tx, &writes).await?;
    let mut log = match &store.apart {
        Some(apart) if !writes.records.is_empty() => Some((apart, apart.begin().await?)),
        _ => None,
    };
    let place = log.as_mut().map_or(&mut tx, |(_, log)| log);
    let sealed = append(place, &writes.records, statement_bytes).await?;
    let mut joined = JoinedStatement::new(&mut tx, statement_bytes);
    super::append::beside(&mut joined, &writes.records, &sealed.records).await?;
    events::write(&mut joined, &writes, &sealed.records).await?;
    joined.send().await?;
    let places: Vec<_> = writes.records.iter().zip(&sealed.records).collect();
    super::erasure::place(&mut tx, &places).await?;
    events::write_readers(&mut tx, &writes, &sealed.records).await?;
    fault::at(Step::CommitSealed);
    match log {
        Some((apart, log)) => apart.commit(tx, log).await?,
        None => tx.commit().await.map_err(failed)?,
    }
    Ok(sealed)
}

fn is_empty(writes: &Writes) -> bool {
    // Named one by one, so that a new field cannot be forgotten.
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

/// Agents, keys, refused tasks and repeats that were asked for and not found. A row that is not there cannot be locked, so
/// two brokers may both plan to make it: it is then inserted plainly, and the second one conflicts
/// instead of overwriting the first one's secrets.
pub(super) struct AbsentRows {
    pub(super) agents: BTreeSet<AgentKey>,
    pub(super) keys: BTreeSet<(TenantId, String)>,
    pub(super) refused_tasks: BTreeSet<RefusedTaskKey>,
    pub(super) repeats: BTreeSet<RepeatKey>,
    /// Caps that have a row; the others are inserted.
    pub(super) known_caps: BTreeSet<CapKey>,
}

impl AbsentRows {
    fn of(needs: &Needs, state: &BatchState) -> Self {
        Self {
            agents: needs
                .agents
                .iter()
                .filter(|key| !state.agents.contains_key(key))
                .cloned()
                .collect(),
            keys: needs.keys.iter().filter(|key| !state.keys.contains_key(key)).cloned().collect(),
            refused_tasks: needs
                .refused_tasks
                .iter()
                .filter(|key| !state.refused_tasks.contains_key(key))
                .cloned()
                .collect(),
            repeats: needs
                .repeats
                .iter()
                .filter(|key| !state.repeats.contains_key(key))
                .cloned()
                .collect(),
            known_caps: state.caps.keys().cloned().collect(),
        }
    }
}

static TASKS_LOAD: Sql = Sql::new(|| TASKS.select_locked());
static HANDOFFS_LOAD: Sql = Sql::new(|| HANDOFFS.select());
static LINEAGE_LOAD: Sql = Sql::new(|| HANDOFFS.select_received());
static OUTBOX_LOAD: Sql = Sql::new(|| OUTBOX.select_locked());
static EDGES_LOAD: Sql = Sql::new(|| EDGES.select_of("", "task_id"));
static OPEN_HANDOFFS_LOAD: Sql =
    Sql::new(|| HANDOFFS.select_of(" AND t.status IN ('PENDING', 'ACCEPTED')", "task_id"));
static OPEN_OUTBOX_LOAD: Sql = Sql::new(|| {
    let select = OUTBOX.select_of("", "task_id");
    // In key order, as every other statement that locks these rows.
    format!("{select} ORDER BY t.tenant, t.handoff_id FOR UPDATE OF t")
});
static OPEN_ESCALATIONS_LOAD: Sql =
    Sql::new(|| ESCALATIONS.select_of(" AND t.status = 'OPEN'", "task_id"));
static REFUSED_TASKS_LOAD: Sql = Sql::new(|| REFUSED_TASKS.select_locked());
static DEAD_LETTERS_LOAD: Sql = Sql::new(|| DEAD_LETTERS.select());
static FALLBACKS_LOAD: Sql = Sql::new(|| AGENTS.select());
static IDEMPOTENCY_LOAD: Sql = Sql::new(|| IDEMPOTENCY.select());
static AGENTS_LOAD: Sql = Sql::new(|| AGENTS.select_locked());
static KEYS_LOAD: Sql = Sql::new(|| KEYS.select_locked());
static SUBSCRIPTIONS_LOAD: Sql = Sql::new(|| SUBSCRIPTIONS.select_locked());
const RUNS_LOAD: &str = "SELECT n.tenant, n.task_id, n.execution_id, c.seq, c.commitment, c.agent_id \
     FROM UNNEST($1::text[], $2::text[], $3::text[]) AS n(tenant, task_id, execution_id) \
     CROSS JOIN LATERAL (SELECT seq, commitment, agent_id FROM checkpoints AS c \
       WHERE c.tenant = n.tenant AND c.task_id = n.task_id AND c.execution_id = n.execution_id \
       ORDER BY seq DESC LIMIT 1) AS c";

/// Runs a statement for its rows.
pub(super) async fn fetch(tx: &mut PgConnection, statement: Statement) -> Result<Vec<PgRow>> {
    statement.fetch_all(tx).await.map_err(failed)
}

/// Tasks first, each in a statement of its own: the statements after it get a newer snapshot, which
/// shows what the transaction waited for has done to the handoffs of its tasks.
async fn load(tx: &mut PgConnection, store: &PostgresStore, needs: &Needs) -> Result<BatchState> {
    let apart = store.apart.is_some().then_some(&store.log);
    let erasure = super::erasure::load(tx, apart, &needs.erasure).await?;
    let mut state = BatchState { erasure, ..BatchState::default() };
    if !needs.tasks.is_empty() {
        let query = sqlx::query(TASKS_LOAD.as_str());
        let query = bind!(query, needs.tasks, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let task = rows::task(&row)?;
            state.tasks.insert((task.tenant.clone(), task.id), task);
        }
    }
    let handoffs = needs.handoffs_beside(&state);
    if !handoffs.is_empty() {
        let query = sqlx::query(HANDOFFS_LOAD.as_str());
        let query = bind!(query, handoffs, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let handoff = rows::handoff(&row)?;
            state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        }
    }
    load_lineage(tx, needs, &mut state).await?;
    // None waits that does not exist: a new one is not looked for. Locked, because a claim and a release take
    // no task's lock: without, a claim between this read and the write below would be overwritten with what
    // it was before.
    let found: Vec<&HandoffKey> = state.handoffs.keys().collect();
    if !found.is_empty() {
        let query = sqlx::query(OUTBOX_LOAD.as_str());
        let query = bind!(query, found, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::outbox(&row)?;
            state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        }
    }
    load_recovery(tx, needs, &mut state).await?;
    if !needs.runs.is_empty() {
        let query = sqlx::query(RUNS_LOAD);
        let query =
            bind!(query, needs.runs, |run| run.0.as_str(), run.1.to_string(), run.2.to_string());
        for row in fetch(tx, query).await? {
            let run = (
                rows::parse(&row, "tenant")?,
                rows::parse(&row, "task_id")?,
                rows::parse(&row, "execution_id")?,
            );
            state.runs.insert(run, rows::last_checkpoint(&row)?);
        }
    }
    if !needs.idempotency.is_empty() {
        let query = sqlx::query(IDEMPOTENCY_LOAD.as_str());
        let query =
            bind!(query, needs.idempotency, |key| key.0.as_str(), key.1.as_str(), key.2.as_str());
        for row in fetch(tx, query).await? {
            let row = idempotency(&row)?;
            state.idempotency.insert((row.tenant.clone(), row.agent.clone(), row.key.clone()), row);
        }
    }
    if !needs.agents.is_empty() {
        let query = sqlx::query(AGENTS_LOAD.as_str());
        let query = bind!(query, needs.agents, |key| key.0.as_str(), key.1.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::agent(&row)?;
            state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
        }
    }
    load_fallbacks(tx, &mut state).await?;
    if !needs.keys.is_empty() {
        let query = sqlx::query(KEYS_LOAD.as_str());
        let query = bind!(query, needs.keys, |key| key.0.as_str(), key.1.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::key(&row)?;
            state.keys.insert((row.tenant.clone(), row.key_id.clone()), row);
        }
    }
    super::contracts::load(tx, needs, &mut state).await?;
    super::schemas::load(tx, needs, &mut state).await?;
    if !needs.subscriptions.is_empty() {
        let query = sqlx::query(SUBSCRIPTIONS_LOAD.as_str());
        let query = bind!(query, needs.subscriptions, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::subscription(&row)?;
            state.subscriptions.insert((row.tenant.clone(), row.id), row);
        }
    }
    super::caps::load(tx, needs, &mut state).await?;
    Ok(state)
}

/// The handoffs received by a sender, where its message names none of them.
async fn load_lineage(tx: &mut PgConnection, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted: Vec<(TaskKey, AgentId)> = needs
        .lineage_beside(state)
        .into_iter()
        .map(|(task, agent)| (task.clone(), agent.clone()))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(LINEAGE_LOAD.as_str());
    let query = bind!(query, wanted, |one| one.0.0.as_str(), one.0.1.to_string(), one.1.as_str());
    for row in fetch(tx, query).await? {
        let handoff = rows::handoff(&row)?;
        state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
    }
    Ok(())
}

/// Rows for recovery: a task's edges, its open handoffs and escalation, dead letters.
async fn load_recovery(tx: &mut PgConnection, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let edges = needs.edges_beside(state);
    if !edges.is_empty() {
        let query = sqlx::query(EDGES_LOAD.as_str());
        let query = bind!(query, edges, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let edge = rows::edge(&row)?;
            let key = (edge.tenant.clone(), edge.task_id, edge.source.clone(), edge.target.clone());
            state.edges.insert(key, edge);
        }
    }
    let escalated = state.escalated_beside(needs);
    if !escalated.is_empty() {
        let query = sqlx::query(OPEN_ESCALATIONS_LOAD.as_str());
        let query = bind!(query, escalated, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::escalation(&row)?;
            state.escalations.insert((row.tenant.clone(), row.id), row);
        }
    }
    if !needs.refused_tasks.is_empty() {
        let query = sqlx::query(REFUSED_TASKS_LOAD.as_str());
        let keys = &needs.refused_tasks;
        let query = bind!(query, keys, |key| key.0.as_str(), key.1.to_string(), key.2.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::refused_task(&row)?;
            state.refused_tasks.insert(row.key(), row);
        }
    }
    if !needs.open.is_empty() {
        let query = sqlx::query(OPEN_HANDOFFS_LOAD.as_str());
        let query = bind!(query, needs.open, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let handoff = rows::handoff(&row)?;
            state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        }
        let query = sqlx::query(OPEN_OUTBOX_LOAD.as_str());
        let query = bind!(query, needs.open, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::outbox(&row)?;
            state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        }
        let query = sqlx::query(OPEN_ESCALATIONS_LOAD.as_str());
        let query = bind!(query, needs.open, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::escalation(&row)?;
            state.escalations.insert((row.tenant.clone(), row.id), row);
        }
    }
    if !needs.dead_letters.is_empty() {
        let query = sqlx::query(DEAD_LETTERS_LOAD.as_str());
        let query = bind!(query, needs.dead_letters, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::dead_letter(&row)?;
            state.dead_letters.insert((row.tenant.clone(), row.handoff_id), row);
        }
    }
    Ok(())
}

/// The agents to which the handoffs just loaded may fall back. Not locked: one that changes in the
/// same moment may get a handoff by its former mode, as with any handoff that was routed just before.
async fn load_fallbacks(tx: &mut PgConnection, state: &mut BatchState) -> Result<()> {
    let wanted = state.fallbacks();
    if !wanted.is_empty() {
        let query = sqlx::query(FALLBACKS_LOAD.as_str());
        let query = bind!(query, wanted, |key| key.0.as_str(), key.1.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::agent(&row)?;
            state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
        }
    }
    Ok(())
}

fn idempotency(row: &PgRow) -> Result<IdempotencyRow> {
    Ok(IdempotencyRow {
        tenant: rows::parse(row, "tenant")?,
        agent: rows::parse(row, "agent_id")?,
        key: rows::get(row, "idempotency_key")?,
        handoff_id: rows::parse(row, "handoff_id")?,
        created_at: Micros(rows::get(row, "created_at")?),
    })
}
