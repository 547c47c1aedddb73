//! Named reads without locks.

use crate::store::query::Dialect;
use crate::store::tables::{
    checkpoints,
    dead_letters::{self, DEAD_LETTER},
    facts,
    handoffs::{self, HANDOFF},
    tasks::{self, COST, LEFT, TASK},
};
use std::collections::HashMap;

use sqlx::postgres::{PgPool, PgRow, Postgres};
use sqlx::{AssertSqlSafe, QueryBuilder};

use super::failure::failed;
use super::pool::bound;
use super::rows;
use crate::store::reach::{self, Reach};
use crate::store::{
    CheckpointRow, Cursor, DeadLetterFilter, DeadLetterRow, HandoffFilter, MOST_OPEN, Result,
    RunKey, TaskFilter,
};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::task::{Task, TaskStatus};

/// Keeps the first value of a fact. The read is a statement of its own, so that it sees what a
/// concurrent first writer committed.
pub(super) async fn settle_fact(pool: &PgPool, name: &str, value: &[u8]) -> Result<Vec<u8>> {
    sqlx::query(facts::ADD.postgres).bind(name).bind(value).execute(pool).await.map_err(failed)?;
    let row = bound(facts::named(name)).fetch_one(pool).await.map_err(failed)?;
    rows::get(&row, "value")
}

/// See [`crate::store::Store::count_open`].
pub(super) async fn count_open(pool: &PgPool, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
    sqlx::query(handoffs::OPEN.postgres)
        .bind(tenant.as_str())
        .bind(MOST_OPEN)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| Ok((rows::parse(row, "target")?, rows::get(row, "open")?)))
        .collect()
}

/// Begins a list; only the filters that are set stand in the statement, so that each shape gets the
/// plan that its indexes allow.
pub(super) fn list(columns: &str, table: &str, tenant: &TenantId) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("SELECT ");
    query.push(columns).push(" FROM ").push(table).push(" WHERE tenant = ");
    query.push_bind(tenant.as_str());
    query
}

pub(super) fn only(query: &mut QueryBuilder<Postgres>, column: &str, value: Option<&str>) {
    if let Some(value) = value {
        query.push(" AND ").push(column).push(" = ").push_bind(value);
    }
}

/// Limits a list to rows created within a time.
pub(super) fn within_time(
    query: &mut QueryBuilder<Postgres>,
    from: Option<Micros>,
    until: Option<Micros>,
) {
    within_time_of(query, "created_at", from, until);
}

/// The same with another column of time.
fn within_time_of(
    query: &mut QueryBuilder<Postgres>,
    column: &str,
    from: Option<Micros>,
    until: Option<Micros>,
) {
    if let Some(from) = from {
        query.push(format_args!(" AND {column} >= ")).push_bind(from.0);
    }
    if let Some(until) = until {
        query.push(format_args!(" AND {column} < ")).push_bind(until.0);
    }
}

/// Leaves out the rows below the place down to which the list looks.
fn within_reach(query: &mut QueryBuilder<Postgres>, reach: &Reach, [time, id]: [&str; 2]) {
    if let Some((at, last)) = reach.end() {
        query.push(format_args!(" AND ({time}, {id}) >= (")).push_bind(at.0);
        query.push(", ").push_bind(last.as_str()).push(")");
    }
}

/// A list, newest first: its columns of time and id, by which a page goes on strictly after the cursor.
pub(super) struct NewestQuery<'a> {
    query: QueryBuilder<Postgres>,
    order: [&'a str; 2],
}

impl<'a> NewestQuery<'a> {
    pub(super) const fn new(query: QueryBuilder<Postgres>, id: &'a str) -> Self {
        Self { query, order: ["created_at", id] }
    }

    pub(super) async fn fetch(
        self,
        pool: &PgPool,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<PgRow>> {
        self.page(after, limit).build().fetch_all(pool).await.map_err(failed)
    }

    /// The whole statement.
    pub(super) fn page(self, after: Option<&Cursor>, limit: i64) -> QueryBuilder<Postgres> {
        let Self { mut query, order: [time, id] } = self;
        if let Some((at, last)) = after {
            query.push(format_args!(" AND ({time}, {id}) < (")).push_bind(at.0);
            query.push(", ").push_bind(last.as_str()).push(")");
        }
        query.push(format_args!(" ORDER BY {time} DESC, {id} DESC LIMIT ")).push_bind(limit);
        query
    }
}

/// Handoffs, newest first.
pub(super) async fn list_handoffs(
    pool: &PgPool,
    tenant: &TenantId,
    filter: &HandoffFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Handoff>> {
    let found = handoffs(tenant, filter).fetch(pool, after, limit).await?;
    found.iter().map(|row| handoffs::decode(row)).collect()
}

pub(super) fn handoffs(tenant: &TenantId, filter: &HandoffFilter) -> NewestQuery<'static> {
    let mut query = list(HANDOFF, "handoffs", tenant);
    let task = filter.task_id.map(|id| id.to_string());
    only(&mut query, "task_id", task.as_deref());
    only(&mut query, "status", filter.status.map(HandoffStatus::stored));
    if filter.status.is_some_and(HandoffStatus::is_final) {
        // In the text: the index of the closed ones serves a statement that says so.
        query.push(" AND status NOT IN ('PENDING', 'ACCEPTED')");
    }
    within_time(&mut query, filter.from, filter.until);
    within_reach(&mut query, &filter.reach, ["created_at", "handoff_id"]);
    if filter.reach == Reach::Few {
        query.push(" AND status IN ('PENDING', 'ACCEPTED')");
    }
    if let Some(status) = filter.status.filter(|status| status.is_held()) {
        let asks = status == HandoffStatus::InputRequired;
        query.push(if asks { " AND question IS NOT NULL" } else { " AND question IS NULL" });
    }
    only(&mut query, "conversation_id", filter.conversation.as_deref());
    only(&mut query, "user_ref", filter.user.as_deref());
    only(&mut query, "source", filter.source.as_ref().map(AgentId::as_str));
    only(&mut query, "target", filter.target.as_ref().map(AgentId::as_str));
    if let Some(party) = &filter.party {
        query.push(" AND (source = ").push_bind(party.as_str());
        query.push(" OR target = ").push_bind(party.as_str()).push(")");
    }
    NewestQuery::new(query, "handoff_id")
}

/// Begins to ask whether one of a task's handoffs meets a condition. As a value and not as `EXISTS`, for which the planner may read
/// every handoff of the database first, to look each task up in what it found.
const OF_ITS_HANDOFFS: &str = "(SELECT true FROM handoffs AS h \
     WHERE h.tenant = tasks.tenant AND h.task_id = tasks.task_id AND ";

/// Tasks, newest first.
pub(super) async fn list_tasks(
    pool: &PgPool,
    tenant: &TenantId,
    filter: &TaskFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Task>> {
    let found = tasks(tenant, filter).fetch(pool, after, limit).await?;
    found.iter().map(|row| tasks::decode(row)).collect()
}

pub(super) fn tasks(tenant: &TenantId, filter: &TaskFilter) -> NewestQuery<'static> {
    let few = filter.reach == Reach::Few;
    // Unless few fit, the tasks of a status are found by the rows of another table.
    let leader = reach::leader(filter.status).filter(|_| !few);
    let tables = leader.map(|table| format!("{table} AS c JOIN tasks USING (tenant, task_id)"));
    let begun = if leader.is_some() { "begun_at" } else { "created_at" };
    let mut query = list(TASK, tables.as_deref().unwrap_or("tasks"), tenant);
    let ended = filter.status.filter(|status| status.is_final() && !few);
    only(&mut query, "closed_as", ended.map(TaskStatus::as_str));
    only(&mut query, "status", filter.status.map(TaskStatus::as_str));
    within_reach(&mut query, &filter.reach, [begun, "task_id"]);
    match &filter.user {
        // Many: asked of each task that the page looks at.
        Some(user) if filter.reach.walks() => {
            query.push(" AND ").push(OF_ITS_HANDOFFS).push("h.user_ref = ");
            query.push_bind(user.as_str()).push(" LIMIT 1)");
        }
        Some(user) => {
            query.push(" AND task_id IN (SELECT u.task_id FROM handoffs AS u WHERE u.tenant = ");
            query.push_bind(tenant.as_str()).push(" AND u.user_ref = ");
            query.push_bind(user.as_str()).push(")");
        }
        None if few => {
            query.push(
                " AND task_id IN (SELECT w.task_id FROM waiting_tasks AS w WHERE w.tenant = ",
            );
            query.push_bind(tenant.as_str()).push(")");
        }
        None => {}
    }
    within_time_of(&mut query, begun, filter.from, filter.until);
    if let Some(left) = filter.left_at_most {
        query.push(format!(" AND {LEFT} <= ")).push_bind(left.0);
    }
    if let Some(spent) = filter.spent_at_least {
        query.push(format!(" AND {COST} >= ")).push_bind(spent.0);
    }
    if let Some(party) = &filter.party {
        query.push(" AND (holder = ").push_bind(party.as_str());
        query.push(" OR ").push(OF_ITS_HANDOFFS).push("(h.source = ").push_bind(party.as_str());
        query.push(" OR h.target = ").push_bind(party.as_str()).push(") LIMIT 1))");
    }
    NewestQuery { query, order: [begun, "task_id"] }
}

/// See [`crate::store::Store::list_checkpoints_at`].
pub(super) async fn list_checkpoints_at(
    pool: &PgPool,
    at: &[(RunKey, i64)],
) -> Result<Vec<CheckpointRow>> {
    let column = |of: fn(&(RunKey, i64)) -> String| at.iter().map(of).collect::<Vec<_>>();
    let sql = checkpoints::at(Dialect::Postgres);
    sqlx::query(AssertSqlSafe(sql))
        .bind(column(|(run, _)| run.0.to_string()))
        .bind(column(|(run, _)| run.1.to_string()))
        .bind(column(|(run, _)| run.2.to_string()))
        .bind(at.iter().map(|(_, seq)| *seq).collect::<Vec<_>>())
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| checkpoints::decode(row))
        .collect()
}

/// Dead letters, newest first.
pub(super) async fn list_dead_letters(
    pool: &PgPool,
    tenant: &TenantId,
    filter: &DeadLetterFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<DeadLetterRow>> {
    let found = dead_letters(tenant, filter).fetch(pool, after, limit).await?;
    found.iter().map(|row| dead_letters::decode(row)).collect()
}

pub(super) fn dead_letters(tenant: &TenantId, filter: &DeadLetterFilter) -> NewestQuery<'static> {
    let mut query = list(DEAD_LETTER, "dead_letters", tenant);
    if let Some(status) = filter.status.map(DeadLetterStatus::as_str) {
        // In the text: the index of the open ones serves a statement that says which it reads.
        query.push(" AND status = '").push(status).push("'");
    }
    only(&mut query, "task_id", filter.task_id.map(|task| task.to_string()).as_deref());
    only(&mut query, "reason", filter.reason.as_deref());
    only(&mut query, "source", filter.source.as_ref().map(AgentId::as_str));
    only(&mut query, "target", filter.target.as_ref().map(AgentId::as_str));
    within_time(&mut query, filter.from, filter.until);
    NewestQuery::new(query, "handoff_id")
}
