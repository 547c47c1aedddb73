//! Erasure, access and legal hold: their part of a batch, reads, and vacuum.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio_postgres::Row;

use super::batch::{
    Bound, ERASURES as ERASURES_TABLE, HOLDS as HOLDS_TABLE, Sql, bind, column as pool_column,
};
use super::call::Call;
use super::failure::failed;
use super::session::{Sessions, Tx};
use super::{PostgresStore, roles, rows};
use crate::store::erasure::{
    ERASED_CHECKPOINT, ErasureKey, ErasureNeeds, ErasurePage, ErasureState, ErasureWrite, PageNeed,
    PurgeNeed, PurgePage, ScrubOutcome, SubjectDatum, SubjectRef, SubjectState,
};
use crate::store::purge::{CHECKPOINTS, ExpiredPage, PurgeContext, page as put_together};
use crate::store::query::{Dialect, FromColumn};
use crate::store::tables::{
    attempts, audit, checkpoints, contents, contracts, dead_letters, erasures, handoffs, holds,
    personal_data, tasks, tenants,
};
use crate::store::{Result, Writes};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::erasure::{DataSlot, ErasureScope};
use handoffd_evidence::record::{RecordDraft, RecordKind, SealedRecord};

/// Most holds listed: one is enough to forbid an erasure.
const HOLDS: i64 = 10;

static HOLDS_UPSERT: Sql = Sql::new(|| HOLDS_TABLE.upsert(1, Bound::Arrays));
static ERASURES_UPSERT: Sql = Sql::new(|| ERASURES_TABLE.upsert(1, Bound::Arrays));

/// Loads subjects, erasures and holds. The tenants' rows are locked first, before anything else of the batch: commits
/// during the wait are seen by the later statements, so a hold and a page of an erasure always see each other.
///
/// `log` has the connections to a separate log database.
pub(super) async fn load(
    tx: &mut Tx,
    log: Option<&Arc<Sessions>>,
    needs: &ErasureNeeds,
) -> Result<ErasureState> {
    let mut state = ErasureState::default();
    let tenants = needs.tenants();
    if tenants.is_empty() {
        return Ok(state);
    }
    let names: Vec<&str> = tenants.into_iter().map(TenantId::as_str).collect();
    let sql = tenants::LOCK;
    tx.fetch(Call::new(sql).bind(names)).await?;
    for subject in &needs.subjects {
        state.subjects.insert(subject.clone(), known(tx, subject).await?);
    }
    for (key, need) in &needs.pages {
        if let Some(page) = page(tx, log, key, *need).await? {
            state.pages.insert(key.clone(), page);
        }
    }
    for (tenant, need) in &needs.purges {
        state.purges.insert(tenant.clone(), purge_page(tx, log, tenant, *need).await?);
    }
    for key in &needs.holds {
        if let Some(row) = tx.fetch(Call::of(holds::by_id(key))).await?.first() {
            state.holds.insert(key.clone(), holds::decode(row)?);
        }
    }
    Ok(state)
}

/// The expired data of the records from a leaf index on. Records of that age are in the log already, also with a
/// separate log database.
async fn purge_page(
    tx: &mut Tx,
    log: Option<&Arc<Sessions>>,
    tenant: &TenantId,
    need: PurgeNeed,
) -> Result<PurgePage> {
    let call = Call::new(audit::AGED.postgres);
    let call = call.bind(tenant.as_str()).bind(need.from).bind(need.limit);
    let found = of_log(tx, log, call).await?;
    let mut old =
        ExpiredPage::new(need, found.iter().map(|row| rows::aged(row)).collect::<Result<_>>()?);
    let named: Vec<String> =
        old.records.iter().filter_map(|record| Some(record.content?.to_string())).collect();
    let kept = kept_contents(tx, tenant, &named).await?;
    for record in &mut old.records {
        record.content = record.content.filter(|id| kept.contains(&id.to_string()));
    }
    let tasks: Vec<String> = old.tasks().iter().map(TaskId::to_string).collect();
    lock(tx, tenant, &tasks).await?;
    let mut beside =
        PurgeContext { held: held_tasks(tx, tenant, &tasks).await?, ..PurgeContext::default() };
    let leaves: Vec<i64> = old.records.iter().map(|record| record.leaf_index).collect();
    let call = Call::new(personal_data::TO_PURGE.postgres).bind(tenant.as_str()).bind(leaves);
    let data = tx.fetch(call).await?;
    for row in &data {
        beside.data.push((rows::slot(row)?, rows::get(row, "held")?));
    }
    let call = Call::new(audit::SHARING.postgres);
    let call = call.bind(tenant.as_str()).bind(tasks.clone()).bind(named);
    let sharing = of_log(tx, log, call).await?;
    for row in &sharing {
        beside.sharing.push(rows::sharing(row)?);
    }
    let emptied: Vec<String> = old.emptied().iter().map(HandoffId::to_string).collect();
    beside.unclean = unclean(tx, tenant, emptied).await?;
    let free: Vec<String> = old.tasks().difference(&beside.held).map(TaskId::to_string).collect();
    let call = Call::new(checkpoints::TO_PURGE.postgres)
        .bind(tenant.as_str())
        .bind(free)
        .bind(need.before.0)
        .bind(CHECKPOINTS);
    let saved = tx.fetch(call).await?;
    for row in &saved {
        beside.checkpoints.push(rows::saved(row)?);
    }
    Ok(put_together(need, old, beside))
}

/// Which of these contents are not erased.
async fn kept_contents(
    tx: &mut Tx,
    tenant: &TenantId,
    named: &[String],
) -> Result<HashSet<String>> {
    let sql = contents::NOT_ERASED;
    let kept = tx.fetch(Call::new(sql).bind(tenant.as_str()).bind(named.to_vec())).await?;
    kept.iter().map(|row| rows::get(row, "content_id")).collect()
}

/// Which of these handoffs' rows still hold what goes with a content.
async fn unclean(
    tx: &mut Tx,
    tenant: &TenantId,
    emptied: Vec<String>,
) -> Result<BTreeSet<HandoffId>> {
    if emptied.is_empty() {
        return Ok(BTreeSet::new());
    }
    let call = Call::new(handoffs::UNCLEAN.postgres);
    let found = tx.fetch(call.bind(tenant.as_str()).bind(emptied)).await?;
    found.iter().map(|row| rows::parse(row, "handoff_id")).collect()
}

/// Which of these tasks keep their data: open, before a person, or under a legal hold.
async fn held_tasks(tx: &mut Tx, tenant: &TenantId, tasks: &[String]) -> Result<BTreeSet<TaskId>> {
    let call = Call::new(tasks::HELD.postgres);
    let held = tx.fetch(call.bind(tenant.as_str()).bind(tasks.to_vec())).await?;
    held.iter().map(|row| rows::parse(row, "task_id")).collect()
}

/// Reads the log, where it is.
async fn of_log(tx: &mut Tx, log: Option<&Arc<Sessions>>, call: Call) -> Result<Vec<Row>> {
    match log {
        Some(log) => log.fetch(call).await,
        None => tx.fetch(call).await,
    }
}

fn column<'r, T: FromColumn<'r>>(found: &'r [Row], name: &str) -> Result<Vec<T>> {
    found.iter().map(|row| rows::get(row, name)).collect()
}

async fn known(tx: &mut Tx, subject: &SubjectRef) -> Result<SubjectState> {
    let count = Call::new(personal_data::COUNT.postgres);
    let calls = vec![
        count.bind(subject.tenant.as_str()).bind(subject.id.as_str()),
        Call::of(erasures::latest(&subject.tenant, &subject.key)),
        holds(&subject.tenant, &subject.key, Some(&subject.id)),
        traced(&subject.tenant, &subject.key, i64::MAX, 1),
    ];
    let found = tx.fly(calls).await?;
    let held = found[0].first().map_or(Ok(0), |row| rows::get(row, "held"))?;
    let latest = found[1].first().map(|row| erasures::decode(row)).transpose()?;
    let holds = found[2].iter().map(|row| holds::decode(row)).collect::<Result<_>>()?;
    Ok(SubjectState { held, traced: !found[3].is_empty(), holds, latest })
}

/// Handoffs whose data of a subject went with its earlier erasures, below a leaf index.
fn traced(tenant: &TenantId, key: &[u8; 32], upto: i64, limit: i64) -> Call {
    Call::new(erasures::TRACED.postgres)
        .bind(tenant.as_str())
        .bind(key.as_slice())
        .bind(upto)
        .bind(limit)
}

/// Holds that forbid erasing a subject: on the subject, or on a task with data of the subject.
fn holds(tenant: &TenantId, key: &[u8; 32], id: Option<&str>) -> Call {
    let sql = holds::forbidding(Dialect::Postgres);
    Call::new(sql).bind(tenant.as_str()).bind(key.as_slice()).bind(id).bind(HOLDS)
}

async fn page(
    tx: &mut Tx,
    log: Option<&Arc<Sessions>>,
    key: &ErasureKey,
    need: PageNeed,
) -> Result<Option<ErasurePage>> {
    let row = tx
        .fetch(Call::of(erasures::by_id(key)))
        .await?
        .first()
        .map(|row| erasures::decode(row))
        .transpose()?;
    let Some(row) = row else { return Ok(None) };
    let holds = tx.fetch(holds(&key.0, &row.subject_key, row.subject_id.as_deref())).await?;
    let holds = holds.iter().map(|row| holds::decode(row)).collect::<Result<_>>()?;
    let mut page = ErasurePage {
        row,
        holds,
        data: vec![],
        stand_ins: vec![],
        contents: vec![],
        checkpoints: vec![],
    };
    let Some(subject) = &page.row.subject_id else { return Ok(Some(page)) };
    let call = Call::new(personal_data::OF_SUBJECT.postgres)
        .bind(key.0.as_str())
        .bind(subject.as_str())
        .bind(need.upto)
        .bind(need.limit);
    let found = tx.fetch(call).await?;
    for row in &found {
        page.data.push((rows::slot(row)?, rows::parse_opt(row, "handoff_id")?));
    }
    let mut handoffs: Vec<String> =
        page.data.iter().filter_map(|(_, id)| id.map(|id| id.to_string())).collect();
    let wide = page.row.scope == ErasureScope::Messages;
    if wide {
        let call = traced(&key.0, &page.row.subject_key, need.upto, i64::MAX);
        let found = tx.fetch(call).await?;
        handoffs.extend(column::<String>(&found, "handoff_id")?);
    }
    let tasks = tasks_of(tx, &key.0, &handoffs).await?;
    lock(tx, &key.0, &tasks).await?;
    if wide {
        page.stand_ins = handoffs_of(tx, &key.0, &tasks).await?;
        page.contents = contents(tx, log, &key.0, &tasks, need.upto).await?;
        page.checkpoints = checkpoints(tx, &key.0, &tasks, page.row.requested_at).await?;
    } else {
        page.stand_ins = stand_ins(tx, &key.0, &tasks, &handoffs).await?;
    }
    Ok(Some(page))
}

/// Locks these tasks: what another batch has read of their handoffs it writes before the erasure, which takes it, and a
/// stand-in that is born meanwhile is seen.
async fn lock(tx: &mut Tx, tenant: &TenantId, tasks: &[String]) -> Result<()> {
    let sql = tasks::LOCK;
    tx.fetch(Call::new(sql).bind(tenant.as_str()).bind(tasks.to_vec())).await.map(drop)
}

/// The tasks of these handoffs, refused ones included.
async fn tasks_of(tx: &mut Tx, tenant: &TenantId, handoffs: &[String]) -> Result<Vec<String>> {
    let sql = handoffs::TASKS.postgres;
    let tasks = tx.fetch(Call::new(sql).bind(tenant.as_str()).bind(handoffs.to_vec())).await?;
    column(&tasks, "task_id")
}

/// Handoffs of these tasks that stand in for these handoffs.
async fn stand_ins(
    tx: &mut Tx,
    tenant: &TenantId,
    tasks: &[String],
    handoffs: &[String],
) -> Result<Vec<HandoffId>> {
    let call = Call::new(handoffs::STAND_INS.postgres)
        .bind(tenant.as_str())
        .bind(tasks.to_vec())
        .bind(handoffs.to_vec());
    let found = tx.fetch(call).await?;
    found.iter().map(|row| rows::parse(row, "handoff_id")).collect()
}

/// All handoffs of these tasks.
async fn handoffs_of(tx: &mut Tx, tenant: &TenantId, tasks: &[String]) -> Result<Vec<HandoffId>> {
    let call = Call::new(handoffs::OF_TASKS.postgres).bind(tenant.as_str()).bind(tasks.to_vec());
    let found = tx.fetch(call).await?;
    found.iter().map(|row| rows::parse(row, "handoff_id")).collect()
}

/// Contents of all records of these tasks, which have an index; the words of legal holds outlive erasures.
async fn contents(
    tx: &mut Tx,
    log: Option<&Arc<Sessions>>,
    tenant: &TenantId,
    tasks: &[String],
    upto: i64,
) -> Result<Vec<(i64, ContentId)>> {
    let call = Call::new(audit::CONTENTS.postgres);
    let call = call.bind(tasks.to_vec()).bind(tenant.as_str()).bind(upto);
    // Below `upto` all can be read: the log's head was there when the erasure began.
    let found = of_log(tx, log, call).await?;
    let places: Vec<i64> = column(&found, "leaf_index")?;
    let ids: Vec<String> = column(&found, "content_id")?;
    let call = Call::new(contents::NOT_ERASED_AT).bind(tenant.as_str()).bind(places).bind(ids);
    let place = |row: &Row| Ok((rows::get(row, "leaf_index")?, rows::parse(row, "content_id")?));
    tx.fetch(call).await?.iter().map(place).collect()
}

async fn checkpoints(
    tx: &mut Tx,
    tenant: &TenantId,
    tasks: &[String],
    before: Micros,
) -> Result<Vec<(TaskId, CheckpointRef)>> {
    let call = Call::new(checkpoints::OF_TASKS.postgres)
        .bind(tasks.to_vec())
        .bind(tenant.as_str())
        .bind(before.0);
    tx.fetch(call).await?.iter().map(|row| rows::saved(row)).collect()
}

/// The statements that write holds and erasures, and remove data.
pub(super) fn calls(writes: &Writes) -> Vec<Call> {
    let mut calls = Vec::new();
    if !writes.holds.is_empty() {
        calls.push(bind!(
            Call::new(HOLDS_UPSERT.as_str()),
            writes.holds,
            |row| row.1.tenant.as_str(),
            row.1.id.as_str(),
            row.1.subject_key.as_ref().map(<[u8; 32]>::as_slice),
            row.1.subject_id.as_deref(),
            row.1.task_id.map(|id| id.to_string()),
            row.1.reason.as_str(),
            row.1.placed_at.0,
            row.1.released_at.map(|at| at.0),
        ));
    }
    if !writes.erasures.is_empty() {
        calls.push(erasures(writes));
    }
    calls.extend(writes.erased.iter().flat_map(erase));
    calls
}

fn erasures(writes: &Writes) -> Call {
    bind!(
        Call::new(ERASURES_UPSERT.as_str()),
        writes.erasures,
        |row| row.1.tenant.as_str(),
        row.1.id.to_string(),
        row.1.subject_key.as_slice(),
        row.1.subject_id.as_deref(),
        row.1.commitment.as_slice(),
        row.1.scope.as_str(),
        row.1.reason.as_str(),
        row.1.status.as_str(),
        row.1.held,
        row.1.data,
        row.1.contents,
        row.1.checkpoints,
        row.1.leaf_index,
        row.1.requested_at.0,
        row.1.updated_at.0,
        row.1.completed_at.map(|at| at.0),
    )
}

fn erase(gone: &ErasureWrite) -> Vec<Call> {
    // A row a statement, by its whole key: of a table that grew since it was analysed the planner believes that a tenant
    // has a handful of rows, and for a list of keys would read them all.
    let mut calls: Vec<Call> = Vec::new();
    calls.extend(gone.data.iter().map(|slot| {
        Call::new(personal_data::ERASE)
            .bind(gone.tenant.as_str())
            .bind(slot.leaf_index)
            .bind(slot.ordinal)
            .bind(gone.erasure.map(|id| id.to_string()))
    }));
    let handoffs: Vec<String> = gone.handoffs.iter().map(HandoffId::to_string).collect();
    if gone.words {
        // Before the handoffs and in key order, as batches that decide on dead letters lock them.
        let sql = dead_letters::ERASE.postgres;
        calls.extend(change(sql, &gone.tenant, handoffs.clone()));
    }
    let sql = handoffs::ERASE.postgres;
    calls.extend(change(sql, &gone.tenant, handoffs.clone()));
    // In key order, as batches lock them.
    calls.extend(gone.user_ref.as_ref().map(|person| {
        Call::new(handoffs::ERASE_PERSON.postgres).bind(gone.tenant.as_str()).bind(person.as_str())
    }));
    // A contract's dedupe key may name a personal value; its hash has no salt.
    let sql = contracts::FORGET_REPEATS.postgres;
    calls.extend(change(sql, &gone.tenant, handoffs.clone()));
    let forget = attempts::forget(Dialect::Postgres, &gone.tenant, &gone.handoffs);
    calls.extend(forget.map(Call::of));
    if gone.words {
        // Only what is a code stays.
        let sql = handoffs::ERASE_REASON.postgres;
        calls.extend(change(sql, &gone.tenant, handoffs));
    }
    let contents: Vec<String> = gone.contents.iter().map(ContentId::to_string).collect();
    if !contents.is_empty() {
        let call = Call::new(contents::ERASE)
            .bind(gone.tenant.as_str())
            .bind(contents)
            .bind(gone.purged_at.map(|at| at.0));
        calls.push(call);
    }
    calls.extend(gone.checkpoints.iter().map(|(task, at)| {
        Call::new(checkpoints::ERASE)
            .bind(ERASED_CHECKPOINT)
            .bind(gone.tenant.as_str())
            .bind(task.to_string())
            .bind(at.execution_id.to_string())
            .bind(at.seq)
    }));
    calls
}

fn change(sql: &'static str, tenant: &TenantId, keys: Vec<String>) -> Option<Call> {
    (!keys.is_empty()).then(|| Call::new(sql).bind(tenant.as_str()).bind(keys))
}

/// Store the leaf indexes of erasures' final records.
pub(super) fn place_calls(drafts: &[RecordDraft], sealed: &[SealedRecord]) -> Vec<Call> {
    let ended = drafts.iter().zip(sealed).filter_map(|(draft, sealed)| {
        let facts = draft.erasure.as_ref()?;
        let place = || Call::of(erasures::place(&draft.tenant, facts.id, sealed.leaf_index));
        (draft.kind == RecordKind::ErasureCompleted).then(place)
    });
    ended.collect()
}

/// See [`crate::store::Store::list_held`]. The data's places, then the records there, then both with the
/// handoffs: the records may be in another database.
pub(super) async fn list_held(
    store: &PostgresStore,
    tenant: &TenantId,
    subject_id: &str,
    after: Option<DataSlot>,
    limit: i64,
) -> Result<Vec<SubjectDatum>> {
    let after = after.unwrap_or(DataSlot { leaf_index: -1, ordinal: -1 });
    let places: Vec<i64> = sqlx::query_scalar(personal_data::HELD_PLACES)
        .bind(tenant.as_str())
        .bind(subject_id)
        .bind(after.leaf_index)
        .bind(after.ordinal)
        .bind(limit)
        .fetch_all(&store.pool)
        .await
        .map_err(failed)?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    store.settle_log(tenant).await?;
    let records = sqlx::query(audit::HELD_RECORDS)
        .bind(tenant.as_str())
        .bind(places)
        .fetch_all(&store.log)
        .await
        .map_err(failed)?;
    sqlx::query(AssertSqlSafe(personal_data::held(Dialect::Postgres)))
        .bind(tenant.as_str())
        .bind(subject_id)
        .bind(after.leaf_index)
        .bind(after.ordinal)
        .bind(pool_column::<i64>(&records, "leaf_index")?)
        .bind(pool_column::<String>(&records, "kind")?)
        .bind(pool_column::<Vec<u8>>(&records, "record_hash")?)
        .bind(pool_column::<i64>(&records, "recorded_at")?)
        .bind(pool_column::<Option<String>>(&records, "task_id")?)
        .bind(pool_column::<Option<String>>(&records, "handoff_id")?)
        .bind(limit)
        .fetch_all(&store.pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| rows::held(row))
        .collect()
}

/// See [`crate::store::Store::scrub`]. Dead row versions are freed for reuse; their bytes may stay in a
/// page until it is written again, and in the server's own log, backups and replicas as long as those
/// are kept (`docs/erasure.md`). On a connection of its own, for it may take longer than a statement
/// may.
pub(super) async fn scrub(connect: &PgConnectOptions) -> Result<ScrubOutcome> {
    let mut connection = connect.connect().await.map_err(failed)?;
    let outcome = vacuum(&mut connection).await;
    let closed = connection.close().await;
    let scrubbed = outcome?;
    closed.map_err(failed)?;
    Ok(scrubbed)
}

async fn vacuum(connection: &mut PgConnection) -> Result<ScrubOutcome> {
    let sql = "SET client_min_messages = error; SET statement_timeout = 0";
    sqlx::raw_sql(sql).execute(&mut *connection).await.map_err(failed)?;
    if !roles::may_vacuum(connection, &roles::SCRUBBED).await? {
        return Ok(ScrubOutcome::Left);
    }
    for table in roles::SCRUBBED {
        let sql = AssertSqlSafe(format!("VACUUM (INDEX_CLEANUP ON) {table}"));
        sqlx::raw_sql(sql).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(ScrubOutcome::Freed)
}
