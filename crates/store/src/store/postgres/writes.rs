//! Writes of a batch: one statement for what most batches write, one for each table of the rest.

use std::collections::BTreeMap;

use super::batch::{
    AGENTS, Bound, CHECKPOINTS, CONTENTS, DEAD_LETTERS, EDGES, ESCALATIONS, HANDOFFS, IDEMPOTENCY,
    KEYS, OUTBOX, REFUSED_TASKS, RETURNS, Sql, TASKS, bind,
};
use super::call::Call;
use super::joined::{JoinedStatement, WriteMode};
use super::transact::AbsentRows;
use crate::store::budget_column;
use crate::store::{
    AgentRow, CheckpointRow, DeadLetterRow, HandoffKey, IdempotencyRow, KeyRow, OutboxRow,
    RefusedTaskRow, ReturnRow, Writes, opinions, refusals, schemas, streams,
};
use handoffd_core::domain::escalation::{Escalation, EscalationOutcome};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::AgentId;
use handoffd_core::domain::lease::HolderPulse;
use handoffd_core::domain::progress::Edge;
use handoffd_core::domain::question;
use handoffd_core::domain::stream::Stream;
use handoffd_core::evidence::record::{RecordContent, RecordDraft};

static AGENTS_INSERT: Sql = Sql::new(|| AGENTS.insert(1, Bound::Arrays));
static AGENTS_UPSERT: Sql = Sql::new(|| AGENTS.upsert(1, Bound::Arrays));
static AGENTS_DELETE: Sql = Sql::new(|| AGENTS.delete(1, Bound::Arrays));
static REFUSED_TASKS_INSERT: Sql = Sql::new(|| REFUSED_TASKS.insert(1, Bound::Arrays));
static REFUSED_TASKS_UPDATE: Sql = Sql::new(|| REFUSED_TASKS.update());
static SCHEMAS_INSERT: Sql = Sql::new(|| schemas::PAYLOAD_SCHEMAS.shape.insert(1, Bound::Arrays));
static KEYS_INSERT: Sql = Sql::new(|| KEYS.insert(1, Bound::Arrays));
static KEYS_UPSERT: Sql = Sql::new(|| KEYS.upsert(1, Bound::Arrays));

/// Set with the handoff, and by an erasure alone: an update of what was read before must not bring
/// back what was erased.
const HANDOFF_ERASED: [&str; 5] =
    ["digest_salt", "digest", "tracestate", "conversation_id", "user_ref"];

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
    joined.put(&TASKS, WriteMode::Insert, &rows.new, text, tasks);
    joined.put(&TASKS, WriteMode::Update(&[]), &rows.changed, text, tasks);
    joined.put(&TASKS, WriteMode::Update(&["funds"]), &rows.same_budget, text, tasks);
    let (new, known) = split(&writes.handoffs);
    joined.put(&HANDOFFS, WriteMode::Insert, &new, |_| 0, handoffs);
    joined.put(&HANDOFFS, WriteMode::Update(&HANDOFF_ERASED), &known, |_| 0, handoffs);
    write_outbox(&mut joined, writes);
    write_beside(&mut joined, writes);
    joined.rows(&streams::CHUNKS, WriteMode::Insert, &writes.chunks);
    joined.rows(&streams::STREAM_LINES, WriteMode::Insert, &writes.stream_lines);
    write_opinions(&mut joined, writes);
    joined.rows(&refusals::REFUSALS, WriteMode::Insert, &writes.refusals);
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

fn tasks(bound: Call, rows: &[budget_column::TaskRow<'_>]) -> Call {
    bind!(
        bound,
        rows,
        |row| row.0.tenant.as_str(),
        row.0.id.to_string(),
        row.0.status.as_str(),
        row.0.holder.as_str(),
        row.0.checkpoint.map(|at| at.execution_id.to_string()),
        row.0.checkpoint.map(|at| at.seq),
        row.0.fence,
        row.0.handoffs,
        row.0.undelivered,
        row.0.failures,
        row.0.spent.0,
        row.0.remaining.0,
        row.0.created_at.0,
        row.0.updated_at.0,
        row.0.topped_up.0,
        row.0.opened_by.as_ref().map(AgentId::as_str),
        row.0.course.to_text(),
        row.1.as_deref(),
    )
}

fn handoffs(bound: Call, handoffs: &[&Handoff]) -> Call {
    bind!(
        bound,
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
        handoff.status.stored(),
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
        handoff.ruling.as_ref().map(|ruling| ruling.to_text()),
        handoff.commitment.as_ref().map(<[u8; 32]>::as_slice),
        handoff.checkpoint_commitment.as_ref().map(<[u8; 32]>::as_slice),
        handoff.topped_up.0,
        handoff.origin.map(|id| id.to_string()),
        handoff.tracestate.as_str(),
        handoff.span.as_str(),
        handoff.clock.started_at.0,
        handoff.clock.offered_at.map(|at| at.0),
        handoff.context.map(|facts| facts.to_text()),
        handoff.sent_id.map(|id| id.to_string()),
        handoff.open_question().map(i64::from),
        question::to_text(&handoff.questions),
        handoff.conversation_id.as_deref(),
        handoff.stream.as_ref().map(Stream::to_text),
        handoff.stream.as_ref().and_then(|stream| stream.due_at).map(|at| at.0),
        handoff.pulse.as_ref().map(HolderPulse::to_text),
        handoff.user_ref.as_deref(),
    )
}

fn write_outbox(joined: &mut JoinedStatement, writes: &Writes) {
    let kept: Vec<&OutboxRow> = writes.outbox.values().flatten().collect();
    let columns = |bound: Call, rows: &[&OutboxRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.seq,
            row.target.as_str(),
            row.mode.as_str(),
            row.priority.rank(),
            row.visible_at.0,
            row.attempt,
            row.busy,
            row.claimed_by.as_deref(),
            row.created_at.0,
        )
    };
    joined.put(&OUTBOX, WriteMode::Upsert, &kept, |_| 0, columns);
    let gone: Vec<&HandoffKey> =
        writes.outbox.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    let columns = |bound: Call, keys: &[&HandoffKey]| {
        bind!(bound, keys, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&OUTBOX, WriteMode::Delete, &gone, |_| 0, columns);
    write_returns(joined, writes);
}

fn write_returns(joined: &mut JoinedStatement, writes: &Writes) {
    let kept: Vec<&ReturnRow> = writes.returns.values().flatten().collect();
    let columns = |bound: Call, rows: &[&ReturnRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.agent.as_str(),
            row.returned_at.0,
            row.visible_at.0,
            row.question.map(i64::from),
        )
    };
    joined.put(&RETURNS, WriteMode::Upsert, &kept, |_| 0, columns);
    let gone: Vec<&HandoffKey> =
        writes.returns.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect();
    let columns = |bound: Call, keys: &[&HandoffKey]| {
        bind!(bound, keys, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&RETURNS, WriteMode::Delete, &gone, |_| 0, columns);
}

/// Writes checkpoints, uses of idempotency keys and dead letters, which are always new.
fn write_beside(joined: &mut JoinedStatement, writes: &Writes) {
    let bytes = |row: &CheckpointRow| row.part.bytes.len();
    let columns = |bound: Call, rows: &[CheckpointRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.task_id.to_string(),
            row.at.execution_id.to_string(),
            row.at.seq,
            row.agent.as_str(),
            row.part.commitment.as_slice(),
            row.part.salt.as_slice(),
            row.part.codec.as_str(),
            &row.part.bytes[..],
            row.created_at.0,
        )
    };
    joined.put(&CHECKPOINTS, WriteMode::Insert, &writes.checkpoints, bytes, columns);
    let columns = |bound: Call, rows: &[IdempotencyRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.agent.as_str(),
            row.key.as_str(),
            row.handoff_id.to_string(),
            row.created_at.0,
        )
    };
    joined.put(&IDEMPOTENCY, WriteMode::Insert, &writes.idempotency, |_| 0, columns);
    let columns = |bound: Call, rows: &[DeadLetterRow]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.handoff_id.to_string(),
            row.task_id.to_string(),
            row.source.as_str(),
            row.target.as_ref().map(AgentId::as_str),
            row.reason.as_str(),
            json(&row.failures),
            row.status.as_str(),
            row.created_at.0,
            row.resolved_at.map(|at| at.0),
            row.resolved_by.as_deref(),
        )
    };
    joined.put(&DEAD_LETTERS, WriteMode::Upsert, &writes.dead_letters, |_| 0, columns);
}

/// Failures are counted with the task since migration 0015.
const fn no_failures(_: &Edge) -> i64 {
    0
}

fn write_recovery(joined: &mut JoinedStatement, writes: &Writes) {
    let edges: Vec<&Edge> = writes.edges.values().collect();
    let columns = |bound: Call, rows: &[&Edge]| {
        bind!(
            bound,
            rows,
            |edge| edge.tenant.as_str(),
            edge.task_id.to_string(),
            edge.source.as_str(),
            edge.target.as_str(),
            edge.passages,
            edge.repeats,
            edge.completed,
            no_failures(edge),
            edge.spent.0,
            edge.remaining.0,
            edge.topped_up.0,
            edge.updated_at.0,
        )
    };
    joined.put(&EDGES, WriteMode::Upsert, &edges, |_| 0, columns);
    let escalations: Vec<&Escalation> = writes.escalations.values().collect();
    let columns = |bound: Call, rows: &[&Escalation]| {
        bind!(
            bound,
            rows,
            |row| row.tenant.as_str(),
            row.id.to_string(),
            row.task_id.to_string(),
            row.handoff_id.map(|id| id.to_string()),
            row.source.as_str(),
            row.target.as_str(),
            row.reason.as_str(),
            row.channel.as_deref(),
            row.resume_as.as_ref().map(AgentId::as_str),
            row.status.as_str(),
            row.created_at.0,
            row.timeout_at.0,
            row.resolved_at.map(|at| at.0),
            row.resolved_by.as_deref(),
            row.resolution.map(EscalationOutcome::as_str),
        )
    };
    joined.put(&ESCALATIONS, WriteMode::Upsert, &escalations, |_| 0, columns);
}

/// Serializes plain data, which cannot fail; JSON escapes a NUL, which Postgres would reject.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Writes refused task ids. An unseen row could not be locked: it is inserted plainly, so that of two brokers that
/// count at once the second conflicts, and then adds to the first one's count.
fn refused_tasks(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let (new, known): (Vec<_>, Vec<_>) =
        writes.refused_tasks.iter().partition(|(key, _)| absent.refused_tasks.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &RefusedTaskRow)>)| {
        bind!(
            Call::new(sql.as_str()),
            rows,
            |row| row.1.tenant.as_str(),
            row.1.task_id.to_string(),
            row.1.agent.as_str(),
            row.1.refusals,
            row.1.updated_at.0,
        )
    };
    some([(&REFUSED_TASKS_INSERT, new), (&REFUSED_TASKS_UPDATE, known)]).map(bound).collect()
}

fn agents(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let kept = writes.agents.iter().filter_map(|(key, row)| row.as_ref().map(|row| (key, row)));
    let (new, known): (Vec<_>, Vec<_>) = kept.partition(|(key, _)| absent.agents.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &AgentRow)>)| {
        bind!(
            Call::new(sql.as_str()),
            rows,
            |row| row.1.tenant.as_str(),
            row.1.agent.agent_id.as_str(),
            json(&row.1.agent),
            row.1.secrets.as_str(),
            row.1.created_at.0,
            row.1.updated_at.0,
        )
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
        bind!(
            Call::new(sql.as_str()),
            rows,
            |row| row.1.tenant.as_str(),
            row.1.key_id.as_str(),
            row.1.hash.as_slice(),
            row.1.role.as_str(),
            row.1.agent.as_ref().map(AgentId::as_str),
            row.1.label.as_str(),
            row.1.created_at.0,
            row.1.expires_at.map(|at| at.0),
        )
    };
    some([(&KEYS_INSERT, new), (&KEYS_UPSERT, known)]).map(bound).collect()
}

/// The statements that have rows.
pub(super) fn some<T>(
    statements: [(&'static Sql, Vec<T>); 2],
) -> impl Iterator<Item = (&'static Sql, Vec<T>)> {
    statements.into_iter().filter(|(_, rows)| !rows.is_empty())
}
