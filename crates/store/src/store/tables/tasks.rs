//! `tasks`: status, holder, current checkpoint, last fencing token, counts and figures.
//!
//! A row, and how it changes:
//!
//! - `tasks`: a task: status, holder, current checkpoint, last fencing token, counts and figures. `course` has, as
//!   JSON, the failures by addressed edge, the subtasks and the groups. `funds` has the budget as JSON, packed where it
//!   is long; `cost_nanos` and `left_nanos` are its sums, for lists. Updated.
//! - `waiting_tasks`: a task that waits for its next handoff, with the time at which the wait began; by trigger. Deleted
//!   when that ends.
//! - `open_tasks`: a task that has not ended, and its beginning, for lists of such tasks and the look for tasks that do
//!   not move; by trigger. Deleted at its end.
//! - `closed_tasks`: an ended task, its status and its beginning, for lists of ended tasks; by trigger. Inserted only.

use crate::store::TaskKey;
use crate::store::driver::{by_each_driver, in_memory};
use crate::store::lists::{Cursor, TaskFilter};
use crate::store::query::{Row, Statement, Texts, unreadable};
use crate::store::rows::{checkpoint_ref, get, micros, parse, parse_opt, state};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::ids::TenantId;
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskStatus};

/// Rights of the serving role. Triggers keep the other three, as the owner.
pub(super) const RIGHTS: Rights = &[
    ("tasks", "SELECT, INSERT, UPDATE"),
    ("waiting_tasks", "SELECT"),
    ("open_tasks", "SELECT"),
    ("closed_tasks", "SELECT"),
];

/// The columns, as a statement lists them.
pub(in crate::store) const TASK: &str = TASKS.list;

/// The cost of a task, as [`Task::cost`]. A row of an older version has only the figure of its last message.
pub(in crate::store) const COST: &str = "COALESCE(cost_nanos, spent_nanos)";
/// The rest of a task's budget, as [`Task::left`]. A row of an older version has only the figure of its last message.
pub(in crate::store) const LEFT: &str = "COALESCE(left_nanos, remaining_nanos)";

table! {
    TASKS: Task = "tasks" by 2 {
        "tenant" Text: |task| &task.tenant,
        "task_id" Text: |task| task.id,
        "status" Text: |task| task.status.as_str(),
        "holder" Text: |task| &task.holder,
        "checkpoint_execution" Text: |task| task.checkpoint.map(|at| at.execution_id),
        "checkpoint_seq" Long: |task| task.checkpoint.map(|at| at.seq),
        "fence" Long: |task| task.fence,
        "handoffs" Long: |task| task.handoffs,
        "undelivered" Long: |task| task.undelivered,
        "failures" Long: |task| task.failures,
        "spent_nanos" Long: |task| task.spent.0,
        "remaining_nanos" Long: |task| task.remaining.0,
        "created_at" Long fixed: |task| task.created_at,
        "updated_at" Long: |task| task.updated_at,
        "topped_up_nanos" Long: |task| task.topped_up.0,
        "opened_by" Text fixed: |task| task.opened_by.as_ref(),
        "course" Text: |task| task.course.to_text(),
        // For lists; see `COST` and `LEFT`.
        "cost_nanos" Long: |task| task.cost().0,
        "left_nanos" Long: |task| task.left().0,
        // Bound by the batch, which has made the text already; see `budget_column`.
        "funds" Text: |_task| None::<&str>,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<Task> {
    Ok(Task {
        tenant: parse(row, "tenant")?,
        id: parse(row, "task_id")?,
        status: state(row, "status", TaskStatus::parse)?,
        holder: parse(row, "holder")?,
        checkpoint: checkpoint_ref(row)?,
        fence: get(row, "fence")?,
        handoffs: get(row, "handoffs")?,
        undelivered: get(row, "undelivered")?,
        failures: get(row, "failures")?,
        spent: Usd(get(row, "spent_nanos")?),
        remaining: Usd(get(row, "remaining_nanos")?),
        created_at: micros(row, "created_at")?,
        topped_up: Usd(get(row, "topped_up_nanos")?),
        opened_by: parse_opt(row, "opened_by")?,
        course: course(row)?,
        funds: funds(row)?,
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let task = decode(row)?;
    state.tasks.insert((task.tenant.clone(), task.id), task);
    Ok(())
}

fn course(row: &dyn Row) -> Result<handoffd_domain::course::Course> {
    get::<Option<&str>>(row, "course")?
        .map(serde_json::from_str)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|err| unreadable("course", err))
}

fn funds(row: &dyn Row) -> Result<Option<Box<handoffd_domain::funds::Funds>>> {
    get::<Option<String>>(row, "funds")?
        .map(|text| crate::store::budget_column::read(&text).map(Box::new))
        .transpose()
        .map_err(|err| unreadable("funds", err))
}

/// Which of these tasks keep their data: open, before a person, or under a legal hold.
pub(in crate::store) const HELD: Texts = Texts {
    sqlite: "SELECT t.value AS task_id FROM json_each(?2) AS t WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = ?1 AND h.task_id = t.value \
             AND h.status IN ('PENDING', 'ACCEPTED')) \
           OR EXISTS (SELECT 1 FROM tasks AS k WHERE k.tenant = ?1 AND k.task_id = t.value \
             AND k.status = 'ESCALATED') \
           OR t.value IN (SELECT d.task_id FROM dead_letters AS d \
             WHERE d.tenant = ?1 AND d.status = 'OPEN') \
           OR t.value IN (SELECT l.task_id FROM legal_holds AS l \
             WHERE l.tenant = ?1 AND l.released_at IS NULL AND l.task_id IS NOT NULL) \
           OR t.value IN (SELECT r.task_id FROM legal_holds AS l \
             CROSS JOIN personal_data AS p ON p.tenant = l.tenant AND p.subject_id = l.subject_id \
             CROSS JOIN audit_records AS r ON r.tenant = p.tenant AND r.leaf_index = p.leaf_index \
             WHERE l.tenant = ?1 AND l.released_at IS NULL AND l.subject_id IS NOT NULL \
               AND r.task_id IS NOT NULL)",
    postgres: "SELECT t.task_id FROM UNNEST($2::text[]) AS t(task_id) WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = $1 AND h.task_id = t.task_id \
             AND h.status IN ('PENDING', 'ACCEPTED')) \
           OR EXISTS (SELECT 1 FROM tasks AS k WHERE k.tenant = $1 AND k.task_id = t.task_id \
             AND k.status = 'ESCALATED') \
           OR t.task_id IN (SELECT d.task_id FROM dead_letters AS d \
             WHERE d.tenant = $1 AND d.status = 'OPEN') \
           OR t.task_id IN (SELECT l.task_id FROM legal_holds AS l \
             WHERE l.tenant = $1 AND l.released_at IS NULL AND l.task_id IS NOT NULL) \
           OR t.task_id IN (SELECT said.task_id FROM legal_holds AS l \
             JOIN personal_data AS p ON p.tenant = l.tenant AND p.subject_id = l.subject_id \
             JOIN (SELECT handoff_id, task_id FROM handoffs WHERE tenant = $1 \
               UNION ALL SELECT handoff_id, task_id FROM dead_letters WHERE tenant = $1) AS said \
               ON said.handoff_id = p.handoff_id \
             WHERE l.tenant = $1 AND l.released_at IS NULL AND l.subject_id IS NOT NULL)",
};

/// Postgres: locks tasks.
pub(in crate::store) const LOCK: &str = "SELECT task_id FROM tasks WHERE tenant = $1 AND task_id = ANY($2) \
         ORDER BY task_id FOR UPDATE";

impl Store {
    pub async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        in_memory!(self, db => db.find_task(key));
        let text = format!("SELECT {TASK} FROM tasks WHERE tenant = $1 AND task_id = $2");
        let find = Statement::new(text).of(TASKS.shape.columns);
        self.find(find.bind(&key.0).bind(key.1), decode).await
    }

    /// Tasks, newest first.
    pub async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        by_each_driver!(self, db => db.list_tasks(tenant, filter, after, limit))
    }
}
