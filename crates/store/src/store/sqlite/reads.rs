//! Named reads of rows.

use crate::store::query::{Dialect, Row};
use crate::store::tables::{
    any, audit, checkpoints,
    dead_letters::{self, DEAD_LETTER},
    facts,
    handoffs::{self, HANDOFF},
    outbox,
    tasks::{self, COST, LEFT, TASK},
    tenants,
};
use std::collections::HashMap;

use super::db::{Db, Pieces};
use super::rows;
use crate::store::reach::{self, Reach};
use crate::store::{
    CheckpointRow, Cursor, DeadLetterFilter, DeadLetterRow, Depths, HandoffFilter, MOST_OPEN,
    Result, RunKey, TaskFilter,
};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::task::Task;

/// See [`crate::store::Store::probe_write`]. The row that stays is as large as a small batch: a nearly full disk
/// that takes one page and no batch does not pass. The bytes differ each time, because SQLite does not write unchanged
/// pages.
pub(super) fn probe_write(db: &Db) -> Result<()> {
    db.query("SAVEPOINT probe").execute()?;
    db.query(audit::PROBE.sqlite).execute()?;
    db.query("ROLLBACK TO probe").execute()?;
    db.query("RELEASE probe").execute()?;
    db.query(facts::WRITE_PROBE).execute()?;
    Ok(())
}

/// See [`crate::store::Store::settle_fact`].
pub(super) fn settle_fact(db: &Db, name: &str, value: &[u8]) -> Result<Vec<u8>> {
    db.query(facts::ADD.sqlite).bind(name).bind(value).execute()?;
    db.statement(&facts::named(name)).one(|row| row.get("value"))
}

/// See [`crate::store::Store::list_named_tenants`].
pub(super) fn list_named_tenants(db: &Db) -> Result<Vec<TenantId>> {
    db.query(tenants::NAMED.sqlite).list(|row| rows::parse(row, "tenant"))
}

/// See [`crate::store::Store::count_open`].
pub(super) fn count_open(db: &Db, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
    let sql = handoffs::OPEN.sqlite;
    db.query(sql)
        .bind(MOST_OPEN)
        .bind(tenant.as_str())
        .list(|row| Ok((rows::parse(row, "target")?, rows::get(row, "open")?)))
}

/// See [`crate::store::Store::list_checkpoints_at`].
pub(super) fn list_checkpoints_at(db: &Db, at: &[(RunKey, i64)]) -> Result<Vec<CheckpointRow>> {
    let keys: Vec<_> = at.iter().map(|(run, seq)| (&run.0, run.1, run.2, seq)).collect();
    let sql = checkpoints::at(Dialect::Sqlite);
    db.query(&sql).bind(super::batch::json(&keys)?).list(checkpoints::decode)
}

/// A list of a tenant's rows, newest first, to which filters are added; the table is called `x`.
pub(super) struct NewestQuery {
    query: Pieces,
    /// The columns of time and id by which it goes on.
    order: [String; 2],
}

impl NewestQuery {
    pub(super) fn new(columns: &str, table: &str, id: &str, tenant: &TenantId) -> Self {
        let order = ["x.created_at".to_owned(), format!("x.{id}")];
        Self::over(columns, (table, "x"), order, tenant)
    }

    /// A list that goes by the columns of another table than `x`, its leader.
    fn over(
        columns: &str,
        (tables, leader): (&str, &str),
        order: [String; 2],
        tenant: &TenantId,
    ) -> Self {
        let mut query = Pieces::new(any::select_of_tenant(columns, tables, leader));
        query.push_bind(tenant.as_str().to_owned());
        Self { query, order }
    }

    /// Adds a condition `sql`, in which each `{}` is the value.
    pub(super) fn filter(&mut self, sql: &str, value: Option<String>) {
        let Some(value) = value else { return };
        self.query.push(" AND ");
        for (n, piece) in sql.split("{}").enumerate() {
            if n > 0 {
                self.query.push_bind(value.clone());
            }
            self.query.push(piece);
        }
    }

    /// Leaves out the rows below the place down to which the list looks.
    fn reach(&mut self, reach: &Reach) {
        if let Some((at, id)) = reach.end() {
            let [time, key] = &self.order;
            self.query.push(format!(" AND ({time}, {key}) >= ("));
            self.query.push_bind(at.0).push(", ").push_bind(id.clone()).push(")");
        }
    }

    /// Adds a condition without a value.
    pub(super) fn term(&mut self, sql: &str) {
        self.query.push(" AND ").push(sql);
    }

    /// Adds a comparison of a column with a time.
    pub(super) fn time(&mut self, sql: &str, at: Option<Micros>) {
        self.number(sql, at.map(|at| at.0));
    }

    /// Adds a comparison of a column with a number.
    fn number(&mut self, sql: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.query.push(" AND ").push(sql).push_bind(value);
        }
    }

    pub(super) fn fetch<T>(
        self,
        db: &Db,
        after: Option<&Cursor>,
        limit: i64,
        read: fn(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.page(after, limit).build(db).list(read)
    }

    /// The whole statement.
    pub(super) fn page(self, after: Option<&Cursor>, limit: i64) -> Pieces {
        let Self { mut query, order: [time, id] } = self;
        if let Some((at, last)) = after {
            query.push(format!(" AND ({time}, {id}) < ("));
            query.push_bind(at.0).push(", ").push_bind(last.clone()).push(")");
        }
        query.push(format!(" ORDER BY {time} DESC, {id} DESC LIMIT "));
        query.push_bind(limit.max(0));
        query
    }
}

/// See [`crate::store::Store::list_handoffs`].
pub(super) fn list_handoffs(
    db: &Db,
    tenant: &TenantId,
    filter: &HandoffFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Handoff>> {
    handoffs(tenant, filter).fetch(db, after, limit, handoffs::decode)
}

pub(super) fn handoffs(tenant: &TenantId, filter: &HandoffFilter) -> NewestQuery {
    let HandoffFilter {
        task_id,
        status,
        source,
        target,
        conversation,
        party,
        from,
        until,
        user,
        reach,
    } = filter;
    // Left alone, SQLite walks all of the tenant's handoffs to save itself sorting a task's few.
    // So it would for a conversation's.
    let table = match (task_id, conversation) {
        (Some(_), _) => "handoffs AS x INDEXED BY handoffs_task",
        (None, Some(_)) => "handoffs AS x INDEXED BY handoffs_conversation",
        (None, None) if *reach == Reach::Few => "handoffs AS x INDEXED BY handoffs_open",
        (None, None) if user.is_some() => "handoffs AS x INDEXED BY handoffs_user",
        (None, None) => "handoffs AS x",
    };
    let mut list = NewestQuery::new(HANDOFF, table, "handoff_id", tenant);
    list.reach(reach);
    if *reach == Reach::Few {
        // In the text: the index of the open ones serves a statement that says so.
        list.term("x.status IN ('PENDING', 'ACCEPTED')");
    }
    list.filter("x.task_id = {}", task_id.map(|id| id.to_string()));
    list.filter("x.status = {}", status.map(|status| status.stored().to_owned()));
    if status.is_some_and(HandoffStatus::is_final) {
        // In the text: the index of the closed ones serves a statement that says so.
        list.term("x.status NOT IN ('PENDING', 'ACCEPTED')");
    }
    list.time("x.created_at >= ", *from);
    list.time("x.created_at < ", *until);
    let asks = status.filter(|status| status.is_held());
    let asks = asks.map(|status| i64::from(status == HandoffStatus::InputRequired).to_string());
    list.filter("(x.question IS NOT NULL) = CAST({} AS INTEGER)", asks);
    list.filter("x.conversation_id = {}", conversation.clone());
    list.filter("x.user_ref = {}", user.clone());
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.filter("(x.source = {} OR x.target = {})", party.as_ref().map(ToString::to_string));
    list
}

/// See [`crate::store::Store::list_tasks`]. An agent has a part in a task that it holds, and in one
/// with a handoff from or to it.
pub(super) fn list_tasks(
    db: &Db,
    tenant: &TenantId,
    filter: &TaskFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<Task>> {
    tasks(tenant, filter).fetch(db, after, limit, tasks::decode)
}

pub(super) fn tasks(tenant: &TenantId, filter: &TaskFilter) -> NewestQuery {
    let TaskFilter { status, party, from, until, left_at_most, spent_at_least, user, reach } =
        filter;
    let few = *reach == Reach::Few;
    let leader = reach::leader(*status).filter(|_| !few);
    let mut list = match leader {
        // In this order: the tasks are found by the rows of the other table.
        Some(table) => {
            let tables = format!("{table} AS c CROSS JOIN tasks AS x USING (tenant, task_id)");
            let order = ["c.begun_at".to_owned(), "c.task_id".to_owned()];
            NewestQuery::over(TASK, (&tables, "c"), order, tenant)
        }
        // By a sum, so that no index gives the order: the few are found by their keys, and sorted.
        None if few => {
            let order = ["+x.created_at".to_owned(), "+x.task_id".to_owned()];
            NewestQuery::over(TASK, ("tasks AS x", "x"), order, tenant)
        }
        None => NewestQuery::new(TASK, "tasks AS x", "task_id", tenant),
    };
    let ended = status.filter(|status| status.is_final() && !few);
    list.filter("c.closed_as = {}", ended.map(|status| status.as_str().to_owned()));
    list.filter("x.status = {}", status.map(|status| status.as_str().to_owned()));
    list.reach(reach);
    match user {
        // Many: asked of each task that the page looks at.
        Some(user) if reach.walks() => list.filter(
            "EXISTS (SELECT 1 FROM handoffs AS u INDEXED BY handoffs_task WHERE u.tenant = x.tenant \
             AND u.task_id = x.task_id AND u.user_ref = {})",
            Some(user.clone()),
        ),
        // With the tenant as a value the user's tasks are looked up once, and not for each task.
        Some(user) => {
            list.query
                .push(" AND x.task_id IN (SELECT u.task_id FROM handoffs AS u WHERE u.tenant = ");
            list.query.push_bind(tenant.as_str().to_owned()).push(" AND u.user_ref = ");
            list.query.push_bind(user.clone()).push(")");
        }
        None if few => {
            list.query.push(" AND x.task_id IN (SELECT task_id FROM waiting_tasks WHERE tenant = ");
            list.query.push_bind(tenant.as_str().to_owned()).push(")");
        }
        None => {}
    }
    let begun = if leader.is_some() { "c.begun_at" } else { "x.created_at" };
    list.time(&format!("{begun} >= "), *from);
    list.time(&format!("{begun} < "), *until);
    list.number(&format!("{LEFT} <= "), left_at_most.map(|usd| usd.0));
    list.number(&format!("{COST} >= "), spent_at_least.map(|usd| usd.0));
    list.filter(
        "(x.holder = {} OR EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = x.tenant \
         AND h.task_id = x.task_id AND (h.source = {} OR h.target = {})))",
        party.as_ref().map(ToString::to_string),
    );
    list
}

/// See [`crate::store::Store::list_dead_letters`].
pub(super) fn list_dead_letters(
    db: &Db,
    tenant: &TenantId,
    filter: &DeadLetterFilter,
    after: Option<&Cursor>,
    limit: i64,
) -> Result<Vec<DeadLetterRow>> {
    dead_letters(tenant, filter).fetch(db, after, limit, dead_letters::decode)
}

pub(super) fn dead_letters(tenant: &TenantId, filter: &DeadLetterFilter) -> NewestQuery {
    let DeadLetterFilter { status, task_id, reason, source, target, from, until } = filter;
    let mut list = NewestQuery::new(DEAD_LETTER, "dead_letters AS x", "handoff_id", tenant);
    if let Some(status) = status {
        // In the text: the index of the open ones serves a statement that says which it reads.
        list.term(&format!("x.status = '{}'", status.as_str()));
        if *status != DeadLetterStatus::Open {
            list.term("x.status <> 'OPEN'");
        }
    }
    list.filter("x.task_id = {}", task_id.map(|task| task.to_string()));
    list.filter("x.reason = {}", reason.clone());
    list.filter("x.source = {}", source.as_ref().map(ToString::to_string));
    list.filter("x.target = {}", target.as_ref().map(ToString::to_string));
    list.time("x.created_at >= ", *from);
    list.time("x.created_at < ", *until);
    list
}

/// See [`crate::store::Store::list_overdue`].
pub(super) fn list_overdue(db: &Db, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
    let sql = handoffs::overdue(Dialect::Sqlite);
    db.query(&sql).bind(now.0).bind(limit.max(0)).list(handoffs::decode)
}

/// See [`crate::store::Store::depths`].
pub(super) fn depths(db: &Db, idle_since: Micros) -> Result<Depths> {
    db.query(outbox::DEPTHS.sqlite).bind(idle_since.0).one(|row| {
        Ok(Depths {
            outbox: rows::get(row, "outbox")?,
            oldest: rows::get::<Option<i64>>(row, "oldest")?.map(Micros),
            dead_letters: rows::get(row, "dead_letters")?,
            escalations: rows::get(row, "escalations")?,
            idle_tasks: rows::get(row, "idle_tasks")?,
            opinions: rows::get(row, "opinions")?,
            records: rows::get(row, "records")?,
        })
    })
}
