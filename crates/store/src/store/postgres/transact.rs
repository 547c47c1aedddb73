//! The transaction of one batch, in flights: loads, which lock the tasks; what those turned up, if anything; the writes
//! and the lock of the log's head; the records, and `COMMIT`.

use std::collections::BTreeSet;

use super::absent::AbsentRows;
use super::append;
use super::batch::{Bound, RowsSql, SUBSCRIPTIONS, Sql, bind, by_rows};
use super::call::Call;
use super::joined::JoinedStatement;
use super::session::Tx;
use super::{PostgresStore, erasure, events, rows, writes};
use crate::fault::{self, Step};
use crate::store::query::Row;
use crate::store::rows::Load;
use crate::store::table::BatchTable;
use crate::store::tables::{
    agents::{self, AGENTS},
    api_keys::{self, KEYS},
    checkpoints::{self, CHECKPOINTS},
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
use crate::store::{BatchState, HandoffKey, Needs, Result, TaskKey, Writes, opinions, schemas};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_evidence::append::AppendedRecords;

/// Loads, plans, writes, seals, commits.
pub(super) async fn transact(
    store: &PostgresStore,
    needs: &Needs,
    plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
) -> Result<AppendedRecords> {
    let mut tx = store.sessions.begin(store.statistics.plans(needs)).await?;
    let written = match load_and_write(&mut tx, store, needs, plan).await {
        Ok(written) => written,
        Err(err) => {
            tx.give_up(&err).await;
            return Err(err);
        }
    };
    let Some(Written { appended, log, last }) = written else {
        tx.rollback().await?;
        return Ok(AppendedRecords::default());
    };
    match (&store.apart, log) {
        (Some(apart), Some(log)) => apart.commit(tx, log, last).await?,
        _ => seal(tx, last).await?,
    }
    Ok(appended)
}

/// Sends the last statements with `COMMIT`.
async fn seal(mut tx: Tx, mut last: Vec<Call>) -> Result<()> {
    if fault::is_armed(Step::CommitSealed) {
        tx.fly(std::mem::take(&mut last)).await?;
        fault::at(Step::CommitSealed);
    }
    tx.commit(last).await
}

/// A batch whose last statements are left.
struct Written {
    appended: AppendedRecords,
    /// The log's part, where the log has its own database; written.
    log: Option<Tx>,
    /// The calls that go with the commit.
    last: Vec<Call>,
}

/// All of a batch but its last flight; `None` where it writes nothing.
async fn load_and_write(
    tx: &mut Tx,
    store: &PostgresStore,
    needs: &Needs,
    plan: &mut (dyn FnMut(BatchState) -> Writes + Send),
) -> Result<Option<Written>> {
    let state = load(tx, store, needs).await?;
    let absent = AbsentRows::of(needs, &state);
    let writes = plan(state);
    if is_empty(&writes) {
        return Ok(None);
    }
    let drafts = &writes.records;
    let mut calls = writes::calls(&writes, &absent);
    calls.extend(erasure::calls(&writes));
    let mut log = match &store.apart {
        Some(apart) if !drafts.is_empty() => Some(apart.begin().await?),
        _ => None,
    };
    let here = log.is_none() && !drafts.is_empty();
    if here {
        calls.push(append::lock(drafts));
    }
    let mut answers = tx.fly(calls).await?;
    fault::at(Step::CommitWritten);
    for _ in &writes.erased {
        fault::at(Step::EraseWritten);
    }
    let locked = match &mut log {
        Some(log) => log.fetch(append::lock(drafts)).await?,
        None if here => answers.pop().unwrap_or_default(),
        None => Vec::new(),
    };
    let heads = append::heads(log.as_mut().unwrap_or(tx), &locked).await?;
    let mut joined = JoinedStatement::new();
    let appended = append::append(&mut joined, drafts, heads)?;
    if let Some(log) = &mut log {
        log.fly(std::mem::replace(&mut joined, JoinedStatement::new()).calls()).await?;
    }
    append::beside(&mut joined, drafts, &appended.records);
    events::write(&mut joined, &writes, &appended.records)?;
    let mut last = joined.calls();
    last.extend(erasure::place_calls(drafts, &appended.records));
    last.extend(events::reader_calls(&writes, &appended.records)?);
    Ok(Some(Written { appended, log, last }))
}

fn is_empty(writes: &Writes) -> bool {
    // Named one by one, so that a new field cannot be forgotten.
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

static TASKS_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| TASKS.shape.select_locked(rows)));
static HANDOFFS_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| HANDOFFS.shape.select(rows)));
static LINEAGE_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| HANDOFFS.shape.select_received(rows)));
static OUTBOX_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| OUTBOXES.shape.select_locked(rows)));
static EDGES_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| EDGES.shape.select_of(rows, "", "task_id")));
static OPEN_HANDOFFS_LOAD: RowsSql = RowsSql::new(|| {
    let open = " AND t.status IN ('PENDING', 'ACCEPTED')";
    by_rows(|rows| HANDOFFS.shape.select_of(rows, open, "task_id"))
});
static OPEN_OUTBOX_LOAD: RowsSql = RowsSql::new(|| {
    by_rows(|rows| {
        let select = OUTBOXES.shape.select_of(rows, "", "task_id");
        // In key order, as every other statement that locks these rows.
        format!("{select} ORDER BY t.tenant, t.handoff_id FOR UPDATE OF t")
    })
});
static OPEN_ESCALATIONS_LOAD: RowsSql = RowsSql::new(|| {
    by_rows(|rows| ESCALATIONS.shape.select_of(rows, " AND t.status = 'OPEN'", "task_id"))
});
static REFUSED_TASKS_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| REFUSED_TASKS.shape.select_locked(rows)));
/// Locked, because a decision writes all columns back, and an erasure may change them meanwhile: it locks tasks, and a
/// refused message may have none.
static DEAD_LETTERS_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| DEAD_LETTERS.shape.select_locked(rows)));
static FALLBACKS_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| AGENTS.shape.select(rows)));
static IDEMPOTENCY_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| idempotency::USES.shape.select(rows)));
static AGENTS_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| AGENTS.shape.select_locked(rows)));
static KEYS_LOAD: RowsSql = RowsSql::new(|| by_rows(|rows| KEYS.shape.select_locked(rows)));
static OPINIONS_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| opinions::OPINIONS.shape.select_locked(rows)));
static SUBSCRIPTIONS_LOAD: RowsSql =
    RowsSql::new(|| by_rows(|rows| SUBSCRIPTIONS.select_locked(rows)));
/// Without locks: rows never change, and of two brokers adding a version to the same ones the second conflicts by its ordinal.
static SCHEMAS_LOAD: Sql =
    Sql::new(|| schemas::PAYLOAD_SCHEMAS.shape.select_of(Bound::Arrays, "", "schema_id"));
static RUNS_LOAD: RowsSql = RowsSql::new(|| by_rows(last_checkpoints));

/// Selects the last checkpoint of each run, and the last one of the agent that asks.
fn last_checkpoints(rows: Bound) -> String {
    let all = CHECKPOINTS.shape.columns;
    let runs = BatchTable::rows(&[all[0], all[1], all[2], all[4]], 1, rows);
    checkpoints::last_of(&runs)
}

/// Adds a run's last checkpoint to what a batch has loaded.
fn load_run(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let run = (
        rows::parse(row, "tenant")?,
        rows::parse(row, "task_id")?,
        rows::parse(row, "execution_id")?,
    );
    let (agent, checkpoint) = rows::last_checkpoint(row)?;
    state.runs.entry(run).or_default().add(agent, checkpoint);
    Ok(())
}

/// Carries out loads in one flight.
async fn fly(tx: &mut Tx, state: &mut BatchState, loads: Vec<(Load, Call)>) -> Result<()> {
    if loads.is_empty() {
        return Ok(());
    }
    let (kinds, calls): (Vec<Load>, Vec<Call>) = loads.into_iter().unzip();
    for (load, found) in kinds.into_iter().zip(tx.fly(calls).await?) {
        for row in &found {
            load(row, state)?;
        }
    }
    Ok(())
}

/// Loads by tenant and id.
fn by_id<'a, I: ToString + 'a>(
    sql: &'static RowsSql,
    keys: impl IntoIterator<Item = &'a (TenantId, I)>,
) -> Option<Call> {
    let keys: Vec<&(TenantId, I)> = keys.into_iter().collect();
    let call = sql.call(keys.len());
    (!keys.is_empty()).then(|| bind!(call, keys, |key| key.0.as_str(), key.1.to_string()))
}

/// The tasks come first, each statement after them with a newer snapshot: it shows the changes of other
/// transactions, for which this one waited, to the handoffs of its tasks. Rows that most batches need are read at
/// once, even if they may be missing; rows that the answers name, and those that few batches need, in further
/// flights.
async fn load(tx: &mut Tx, store: &PostgresStore, needs: &Needs) -> Result<BatchState> {
    let apart = store.apart.as_ref().map(|apart| &apart.sessions);
    let erasure = erasure::load(tx, apart, &needs.erasure).await?;
    let mut state = BatchState { erasure, ..BatchState::default() };
    let expected = expected(needs);
    let mut loads: Vec<(Load, Option<Call>)> = vec![
        (tasks::load, by_id(&TASKS_LOAD, &needs.tasks)),
        (handoffs::load, by_id(&HANDOFFS_LOAD, &needs.handoffs)),
        (outbox::load, by_id(&OUTBOX_LOAD, &expected.handoffs)),
        (edges::load, by_id(&EDGES_LOAD, &expected.edges)),
    ];
    if !needs.runs.is_empty() {
        let call = RUNS_LOAD.call(needs.runs.len());
        let call = bind!(
            call,
            needs.runs,
            |one| one.0.0.as_str(),
            one.0.1.to_string(),
            one.0.2.to_string(),
            one.1.as_str()
        );
        loads.push((load_run, Some(call)));
    }
    if !needs.idempotency.is_empty() {
        let call = IDEMPOTENCY_LOAD.call(needs.idempotency.len());
        let call =
            bind!(call, needs.idempotency, |key| key.0.as_str(), key.1.as_str(), key.2.as_str());
        loads.push((idempotency::load, Some(call)));
    }
    let asked = |(kind, call): (Load, Option<Call>)| Some((kind, call?));
    fly(tx, &mut state, loads.into_iter().filter_map(asked).collect()).await?;
    let turned_up = needs.handoffs_beside(&state);
    let further = turned_up.difference(&needs.handoffs);
    let edges = needs.edges_beside(&state);
    let edges = edges.into_iter().filter(|key| !expected.edges.contains(*key));
    let mut loads: Vec<(Load, Option<Call>)> = vec![
        (handoffs::load, by_id(&HANDOFFS_LOAD, further)),
        (handoffs::load, lineage(needs, &state)),
        (edges::load, by_id(&EDGES_LOAD, edges)),
        (escalations::load, by_id(&OPEN_ESCALATIONS_LOAD, state.escalated_beside(needs))),
        (handoffs::load, by_id(&OPEN_HANDOFFS_LOAD, &needs.open)),
        (outbox::load, by_id(&OPEN_OUTBOX_LOAD, &needs.open)),
        (escalations::load, by_id(&OPEN_ESCALATIONS_LOAD, &needs.open)),
        (dead_letters::load, by_id(&DEAD_LETTERS_LOAD, &needs.dead_letters)),
    ];
    // None waits that does not exist: a new one is not looked for.
    let waiting = turned_up.iter().filter(|key| {
        let known = state.handoffs.contains_key(*key) || !needs.handoffs.contains(*key);
        known && !expected.handoffs.contains(*key)
    });
    loads.insert(2, (outbox::load, by_id(&OUTBOX_LOAD, waiting)));
    let asked_for: BTreeSet<HandoffKey> = turned_up.union(&expected.handoffs).cloned().collect();
    let mut loads: Vec<(Load, Call)> = loads.into_iter().filter_map(asked).collect();
    loads.extend(rare(needs));
    fly(tx, &mut state, loads).await?;
    // Those of a sender's lineage, whose ids were not known before. A task's open ones have theirs.
    let late = state.handoffs.iter().filter(|(key, handoff)| {
        let open = needs.open.contains(&(key.0.clone(), handoff.task_id));
        !open && !asked_for.contains(*key)
    });
    let late = late.map(|(key, _)| key);
    let loads: [(Load, Option<Call>); 2] = [
        (outbox::load, by_id(&OUTBOX_LOAD, late)),
        (agents::load, by_id(&FALLBACKS_LOAD, &state.fallbacks())),
    ];
    fly(tx, &mut state, loads.into_iter().filter_map(asked).collect()).await?;
    super::caps::load(tx, needs, &mut state).await?;
    Ok(state)
}

/// Rows that are there as a rule, and so are asked for together with their tasks.
struct ExpectedRows {
    /// Handoffs that wait for their verdict, and those that are handed on.
    ///
    /// Their outbox rows are locked, because a claim and a release take no task's lock: without, a claim between the
    /// read and the write would be overwritten with what it was before.
    handoffs: BTreeSet<HandoffKey>,
    /// Tasks that are handed on: a first handoff has no parent, and its task no edges.
    edges: BTreeSet<TaskKey>,
}

fn expected(needs: &Needs) -> ExpectedRows {
    let begun = needs.lineage.iter().filter_map(|(task, _, parent)| Some((task, (*parent)?)));
    let begun: Vec<(&TaskKey, _)> = begun.collect();
    let accepted = needs.accepted.iter().map(|(task, handoff)| (task, *handoff));
    let handoffs = accepted.chain(begun.iter().copied());
    let handoffs = handoffs.map(|(task, handoff)| (task.0.clone(), handoff));
    let edges = begun.iter().map(|(task, _)| (*task).clone());
    let edges = edges.filter(|key| needs.edges.contains(key));
    ExpectedRows { handoffs: handoffs.collect(), edges: edges.collect() }
}

/// The rows that few batches need.
fn rare(needs: &Needs) -> Vec<(Load, Call)> {
    let mut loads: Vec<(Load, Call)> = Vec::new();
    if !needs.refused_tasks.is_empty() {
        let call = REFUSED_TASKS_LOAD.call(needs.refused_tasks.len());
        let keys = &needs.refused_tasks;
        let call = bind!(call, keys, |key| key.0.as_str(), key.1.to_string(), key.2.as_str());
        loads.push((refused_tasks::load, call));
    }
    let agents = by_id(&AGENTS_LOAD, &needs.agents);
    loads.extend(agents.map(|call| (agents::load as Load, call)));
    let keys = by_id(&KEYS_LOAD, &needs.keys);
    loads.extend(keys.map(|call| (api_keys::load as Load, call)));
    let opinions = by_id(&OPINIONS_LOAD, &needs.opinions);
    loads.extend(opinions.map(|call| (opinions::load as Load, call)));
    loads.extend(super::contracts::loads(needs));
    if !needs.payload_schemas.is_empty() {
        let call = Call::new(SCHEMAS_LOAD.as_str());
        let call = bind!(call, needs.payload_schemas, |key| key.0.as_str(), key.1.as_str());
        loads.push((schemas::load, call));
    }
    let subscriptions = by_id(&SUBSCRIPTIONS_LOAD, &needs.subscriptions);
    loads.extend(subscriptions.map(|call| (subscriptions::load as Load, call)));
    loads
}

/// The handoffs received by a sender, where its message names none of them.
fn lineage(needs: &Needs, state: &BatchState) -> Option<Call> {
    let wanted: Vec<(&TaskKey, &AgentId)> = needs.lineage_beside(state);
    let call = LINEAGE_LOAD.call(wanted.len());
    (!wanted.is_empty())
        .then(|| bind!(call, wanted, |one| one.0.0.as_str(), one.0.1.to_string(), one.1.as_str()))
}
