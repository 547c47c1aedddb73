//! One batch, one transaction.

use std::collections::BTreeSet;

use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow, Postgres};
use sqlx::query::Query;

use super::batch::{AGENTS, HANDOFFS, IDEMPOTENCY, KEYS, OUTBOX, Sql, TASKS, bind};
use super::failure::failed;
use super::rows;
use super::writes::{append, write};
use crate::domain::ids::{Micros, TenantId};
use crate::evidence::record::Sealed;
use crate::store::{AgentKey, IdempotencyRow, Needs, Result, State, Writes};

/// A statement with its arrays bound.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// Loads, plans, writes, seals, commits.
pub(super) async fn transact(
    pool: &PgPool,
    needs: &Needs,
    plan: &mut (dyn FnMut(State) -> Writes + Send),
) -> Result<Vec<Sealed>> {
    let mut tx = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(failed)?;
    let state = load(&mut tx, needs).await?;
    let absent = Absent::of(needs, &state);
    let writes = plan(state);
    if is_empty(&writes) {
        tx.rollback().await.map_err(failed)?;
        return Ok(Vec::new());
    }
    write(&mut tx, &writes, &absent).await?;
    let sealed = append(&mut tx, &writes.records).await?;
    tx.commit().await.map_err(failed)?;
    Ok(sealed)
}

fn is_empty(writes: &Writes) -> bool {
    // Named one by one, so that a new field cannot be forgotten.
    let Writes {
        tasks,
        handoffs,
        outbox,
        checkpoints,
        idempotency,
        dead_letters,
        agents,
        keys,
        records,
    } = writes;
    tasks.is_empty()
        && handoffs.is_empty()
        && outbox.is_empty()
        && checkpoints.is_empty()
        && idempotency.is_empty()
        && dead_letters.is_empty()
        && agents.is_empty()
        && keys.is_empty()
        && records.is_empty()
}

/// Agents and keys that were asked for and not found. A row that is not there cannot be locked, so
/// two brokers may both plan to make it: it is then inserted plainly, and the second one conflicts
/// instead of overwriting the first one's secrets.
pub(super) struct Absent {
    pub(super) agents: BTreeSet<AgentKey>,
    pub(super) keys: BTreeSet<(TenantId, String)>,
}

impl Absent {
    fn of(needs: &Needs, state: &State) -> Self {
        Self {
            agents: needs
                .agents
                .iter()
                .filter(|key| !state.agents.contains_key(key))
                .cloned()
                .collect(),
            keys: needs.keys.iter().filter(|key| !state.keys.contains_key(key)).cloned().collect(),
        }
    }
}

static TASKS_LOAD: Sql = Sql::new(|| TASKS.select_locked());
static HANDOFFS_LOAD: Sql = Sql::new(|| HANDOFFS.select());
static OUTBOX_LOAD: Sql = Sql::new(|| OUTBOX.select_locked());
static IDEMPOTENCY_LOAD: Sql = Sql::new(|| IDEMPOTENCY.select());
static AGENTS_LOAD: Sql = Sql::new(|| AGENTS.select_locked());
static KEYS_LOAD: Sql = Sql::new(|| KEYS.select_locked());
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
async fn load(tx: &mut PgConnection, needs: &Needs) -> Result<State> {
    let mut state = State::default();
    if !needs.tasks.is_empty() {
        let query = sqlx::query(TASKS_LOAD.as_str());
        let query = bind!(query, needs.tasks, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let task = rows::task(&row)?;
            state.tasks.insert((task.tenant.clone(), task.id), task);
        }
    }
    if !needs.handoffs.is_empty() {
        let query = sqlx::query(HANDOFFS_LOAD.as_str());
        let query = bind!(query, needs.handoffs, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let handoff = rows::handoff(&row)?;
            state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
        }
        // Locked, because a claim and a release take no task's lock: without, a claim between this
        // read and the write below would be overwritten with what it was before.
        let query = sqlx::query(OUTBOX_LOAD.as_str());
        let query = bind!(query, needs.handoffs, |key| key.0.as_str(), key.1.to_string());
        for row in fetch(tx, query).await? {
            let row = rows::outbox(&row)?;
            state.outbox.insert((row.tenant.clone(), row.handoff_id), row);
        }
    }
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
    if !needs.keys.is_empty() {
        let query = sqlx::query(KEYS_LOAD.as_str());
        let query = bind!(query, needs.keys, |key| key.0.as_str(), key.1.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::key(&row)?;
            state.keys.insert((row.tenant.clone(), row.key_id.clone()), row);
        }
    }
    Ok(state)
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
