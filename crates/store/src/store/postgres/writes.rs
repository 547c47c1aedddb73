//! Writes of a batch: one statement for what most batches write, one for each table of the rest.

use std::collections::BTreeMap;

use super::absent::AbsentRows;
use super::batch::{Bound, CONTENTS, Sql, bind, some};
use super::call::Call;
use super::joined::{JoinedStatement, WriteMode};
use crate::store::budget_column;
use crate::store::table::{BatchTable, NewRow};
use crate::store::tables::{
    agents::AGENTS, api_keys::KEYS, attempts, checkpoints::CHECKPOINTS, dead_letters::DEAD_LETTERS,
    edges::EDGES, escalations::ESCALATIONS, handoffs::HANDOFFS, idempotency, opinions,
    outbox::OUTBOXES, refused_tasks::REFUSED_TASKS, returns::RETURNS, schemas, streams,
    tasks::TASKS,
};
use crate::store::{AgentRow, CheckpointRow, HandoffKey, KeyRow, RefusedTaskRow, Writes};
use handoffd_domain::task::Task;
use handoffd_evidence::record::{RecordContent, RecordDraft};

static AGENTS_INSERT: Sql = Sql::new(|| AGENTS.shape.insert(1, Bound::Arrays));
static AGENTS_UPSERT: Sql = Sql::new(|| AGENTS.shape.upsert(1, Bound::Arrays));
static AGENTS_DELETE: Sql = Sql::new(|| AGENTS.shape.delete(1, Bound::Arrays));
static REFUSED_TASKS_INSERT: Sql = Sql::new(|| REFUSED_TASKS.shape.insert(1, Bound::Arrays));
static REFUSED_TASKS_UPDATE: Sql = Sql::new(|| REFUSED_TASKS.shape.update());
static SCHEMAS_INSERT: Sql = Sql::new(|| schemas::PAYLOAD_SCHEMAS.shape.insert(1, Bound::Arrays));
static KEYS_INSERT: Sql = Sql::new(|| KEYS.shape.insert(1, Bound::Arrays));
static KEYS_UPSERT: Sql = Sql::new(|| KEYS.shape.upsert(1, Bound::Arrays));

fn split<'a, K, T>(rows: &'a BTreeMap<K, (T, bool)>) -> (Vec<&'a T>, Vec<&'a T>) {
    let (new, known): (Vec<_>, Vec<_>) = rows.values().partition(|(_, new)| *new);
    let plain = |rows: Vec<&'a (T, bool)>| rows.into_iter().map(|(row, _)| row).collect();
    (plain(new), plain(known))
}

/// The statements of a batch's writes, in order; none for what is not written.
pub(super) fn calls(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let mut joined = JoinedStatement::new();
    let rows = budget_column::TaskRows::of(writes);
    let text = |row: &budget_column::TaskRow<'_>| row.1.as_ref().map_or(0, String::len);
    let fixed = TASKS.fixed();
    let with_budget: Vec<_> = fixed.iter().copied().chain(["funds"]).collect();
    for (how, rows) in [
        (WriteMode::Insert, &rows.new),
        (WriteMode::Update(&fixed), &rows.changed),
        (WriteMode::Update(&with_budget), &rows.same_budget),
    ] {
        joined.put(&TASKS.shape, how, rows, text, tasks);
    }
    let (new, known) = split(&writes.handoffs);
    joined.rows(&HANDOFFS, WriteMode::Insert, new);
    joined.rows(&HANDOFFS, WriteMode::Update(&HANDOFFS.fixed()), known);
    write_outbox(&mut joined, writes);
    write_beside(&mut joined, writes);
    joined.rows(&streams::CHUNKS, WriteMode::Insert, &writes.chunks);
    joined.rows(&streams::STREAM_LINES, WriteMode::Insert, &writes.stream_lines);
    write_opinions(&mut joined, writes);
    write_new(&mut joined, &writes.rows);
    let attempts = writes.attempts.values();
    joined.sized_rows(&attempts::ATTEMPTS, WriteMode::Upsert, attempts, attempts::text_bytes);
    write_recovery(&mut joined, writes);
    write_contents(&mut joined, writes);
    let mut calls = joined.calls();
    calls.extend(refused_tasks(writes, absent));
    calls.extend(agents(writes, absent));
    calls.extend(keys(writes, absent));
    let retargets = writes.retargets.iter();
    calls.extend(retargets.map(|(agent, (mode, at))| super::claims::retarget(agent, *mode, *at)));
    calls.extend(super::contracts::calls(writes, absent));
    if !writes.payload_schemas.is_empty() {
        let rows: Vec<_> = writes.payload_schemas.iter().collect();
        let call = Call::new(SCHEMAS_INSERT.as_str());
        calls.push(call.rows(schemas::PAYLOAD_SCHEMAS.columns, &rows));
    }
    calls.extend(super::caps::calls(writes, absent));
    calls
}

/// Inserts rows of any tables, of each one at once.
fn write_new(joined: &mut JoinedStatement, rows: &[NewRow]) {
    let mut by_table: BTreeMap<&str, Vec<&NewRow>> = BTreeMap::new();
    for row in rows {
        by_table.entry(row.table.name).or_default().push(row);
    }
    for rows in by_table.values() {
        joined.put(rows[0].table, WriteMode::Insert, rows, |_| 0, Call::new_rows);
    }
}

fn write_opinions(joined: &mut JoinedStatement, writes: &Writes) {
    joined.rows(&opinions::OPINIONS, WriteMode::Insert, &opinions::due(writes));
    let keys = |bound: Call, rows: &[&HandoffKey]| {
        bind!(bound, rows, |key| key.0.as_str(), key.1.to_string())
    };
    let recorded = opinions::recorded(writes);
    joined.put(&opinions::OPINIONS.shape, WriteMode::Delete, &recorded, |_| 0, keys);
}

fn write_contents(joined: &mut JoinedStatement, writes: &Writes) {
    let kept: Vec<(&RecordDraft, &RecordContent)> = writes
        .records
        .iter()
        .filter_map(|draft| draft.content.as_ref().map(|content| (draft, content)))
        .collect();
    let bytes = |row: &(&RecordDraft, &RecordContent)| row.1.part.bytes.len();
    let columns = |bound: Call, rows: &[(&RecordDraft, &RecordContent)]| {
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
    joined.put(&CONTENTS, WriteMode::Insert, &kept, bytes, columns);
}

/// Binds tasks, and the texts of their budgets, whose column is the last.
fn tasks(bound: Call, rows: &[budget_column::TaskRow<'_>]) -> Call {
    let columns = &TASKS.columns[..TASKS.columns.len() - 1];
    let tasks: Vec<&Task> = rows.iter().map(|row| row.0).collect();
    let budgets: Vec<_> = rows.iter().map(|row| row.1.as_deref()).collect();
    bound.rows(columns, &tasks).bind(budgets)
}

fn write_outbox(joined: &mut JoinedStatement, writes: &Writes) {
    joined.rows(&OUTBOXES, WriteMode::Upsert, writes.outbox.values().flatten());
    delete(joined, &OUTBOXES.shape, &writes.outbox);
    joined.rows(&RETURNS, WriteMode::Upsert, writes.returns.values().flatten());
    delete(joined, &RETURNS.shape, &writes.returns);
}

/// Deletes the rows of handoffs that have none any more.
fn delete<T>(
    joined: &mut JoinedStatement,
    table: &BatchTable,
    rows: &BTreeMap<HandoffKey, Option<T>>,
) {
    let gone: Vec<&HandoffKey> =
        rows.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    let keys = |bound: Call, keys: &[&HandoffKey]| {
        bind!(bound, keys, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(table, WriteMode::Delete, &gone, |_| 0, keys);
}

/// Writes checkpoints, uses of idempotency keys and dead letters, which are always new.
fn write_beside(joined: &mut JoinedStatement, writes: &Writes) {
    let bytes = |row: &CheckpointRow| row.part.bytes.len();
    joined.sized_rows(&CHECKPOINTS, WriteMode::Insert, &writes.checkpoints, bytes);
    joined.rows(&idempotency::USES, WriteMode::Insert, &writes.idempotency);
    joined.rows(&DEAD_LETTERS, WriteMode::Upsert, &writes.dead_letters);
}

fn write_recovery(joined: &mut JoinedStatement, writes: &Writes) {
    joined.rows(&EDGES, WriteMode::Upsert, writes.edges.values());
    joined.rows(&ESCALATIONS, WriteMode::Upsert, writes.escalations.values());
}

/// Writes refused task ids. An unseen row could not be locked: it is inserted plainly, so that of two brokers that
/// count at once the second conflicts, and then adds to the first one's count.
fn refused_tasks(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let (new, known): (Vec<_>, Vec<_>) =
        writes.refused_tasks.iter().partition(|(key, _)| absent.refused_tasks.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &RefusedTaskRow)>)| {
        let rows: Vec<&RefusedTaskRow> = rows.into_iter().map(|(_, row)| row).collect();
        Call::new(sql.as_str()).rows(REFUSED_TASKS.columns, &rows)
    };
    some([(&REFUSED_TASKS_INSERT, new), (&REFUSED_TASKS_UPDATE, known)]).map(bound).collect()
}

fn agents(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let kept = writes.agents.iter().filter_map(|(key, row)| row.as_ref().map(|row| (key, row)));
    let (new, known): (Vec<_>, Vec<_>) = kept.partition(|(key, _)| absent.agents.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &AgentRow)>)| {
        let rows: Vec<&AgentRow> = rows.into_iter().map(|(_, row)| row).collect();
        Call::new(sql.as_str()).rows(AGENTS.columns, &rows)
    };
    let mut calls: Vec<Call> =
        some([(&AGENTS_INSERT, new), (&AGENTS_UPSERT, known)]).map(bound).collect();
    let gone: Vec<_> =
        writes.agents.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    if !gone.is_empty() {
        let call = Call::new(AGENTS_DELETE.as_str());
        calls.push(bind!(call, gone, |key| key.0.as_str(), key.1.as_str()));
    }
    calls
}

fn keys(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let (new, known): (Vec<_>, Vec<_>) =
        writes.keys.iter().partition(|(key, _)| absent.keys.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &KeyRow)>)| {
        let rows: Vec<&KeyRow> = rows.into_iter().map(|(_, row)| row).collect();
        Call::new(sql.as_str()).rows(KEYS.columns, &rows)
    };
    some([(&KEYS_INSERT, new), (&KEYS_UPSERT, known)]).map(bound).collect()
}
