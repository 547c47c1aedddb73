//! Counts of all that waits in a tenant, for `handoffd_domain::attention`.

use crate::store::query::{Decode, Row, Statement};
use crate::store::rows::{get, micros, micros_opt, parse};
use crate::store::{Result, Store};
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_domain::waits::{
    IdleTasks, OpenDeadLetters, OpenEscalations, OpenQuestions, WaitingDeliveries,
};

/// Most escalations, dead letters, questions and idle tasks that are counted: the oldest ones.
pub const MAX_COUNTED: i64 = 10_000;

/// Most tasks that have not ended of which each is looked at with its handoffs: those that began first. Some thirty milliseconds.
pub const MAX_LOOKED_AT: i64 = 3_000;

/// Most groups of each kind: those with the oldest waits.
pub const MAX_GROUPS: i64 = 1_000;

/// Counts of one tenant at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitCounts {
    pub escalations: Vec<OpenEscalations>,
    pub dead_letters: Vec<OpenDeadLetters>,
    /// Deliveries that neither an attempt nor a claim holds.
    pub queues: Vec<WaitingDeliveries>,
    /// Deliveries that an attempt or a claim holds, and that an earlier one held before.
    pub again: Vec<WaitingDeliveries>,
    pub idle: Vec<IdleTasks>,
    /// Tasks that run and have no open handoff.
    pub still: Vec<IdleTasks>,
    pub questions: Vec<OpenQuestions>,
}

/// Open escalations by edge and reason. Parameters: tenant, rows, groups.
pub(in crate::store) const ESCALATIONS: &str = "SELECT * FROM ( \
     SELECT source, target, reason, escalation_id, task_id, created_at, \
       count(*) OVER same AS waiting, min(timeout_at) OVER same AS first_timeout, \
       row_number() OVER (PARTITION BY source, target, reason ORDER BY created_at, escalation_id) AS place \
     FROM (SELECT source, target, reason, escalation_id, task_id, created_at, timeout_at FROM escalations \
       WHERE tenant = $1 AND status = 'OPEN' ORDER BY created_at, escalation_id LIMIT $2) AS oldest \
     WINDOW same AS (PARTITION BY source, target, reason)) AS grouped \
   WHERE place = 1 ORDER BY created_at, escalation_id LIMIT $3";

/// Open dead letters by sender and reason. Parameters: tenant, rows, groups.
pub(in crate::store) const DEAD_LETTERS: &str = "SELECT * FROM ( \
     SELECT source, reason, handoff_id, task_id, created_at, count(*) OVER same AS waiting, \
       row_number() OVER (PARTITION BY source, reason ORDER BY created_at, handoff_id) AS place \
     FROM (SELECT source, reason, handoff_id, task_id, created_at FROM dead_letters \
       WHERE tenant = $1 AND status = 'OPEN' ORDER BY created_at, handoff_id LIMIT $2) AS oldest \
     WINDOW same AS (PARTITION BY source, reason)) AS grouped \
   WHERE place = 1 ORDER BY created_at, handoff_id LIMIT $3";

/// Deliveries by receiver that meet a condition. Parameters: tenant, now, groups.
macro_rules! deliveries {
    ($condition:literal) => {
        concat!(
            "SELECT q.*, \
     (SELECT h.reason FROM handoffs AS h WHERE h.tenant = $1 AND h.handoff_id = q.handoff_id) AS last_error \
   FROM (SELECT target, handoff_id, task_id, created_at, count(*) OVER same AS waiting, \
       max(attempt) OVER same AS attempts, min(visible_at) OVER same AS first_visible, \
       row_number() OVER (PARTITION BY target ORDER BY created_at, handoff_id) AS place \
     FROM outbox WHERE tenant = $1 AND ",
            $condition,
            " \
     WINDOW same AS (PARTITION BY target)) AS q \
   WHERE q.place = 1 ORDER BY q.created_at, q.handoff_id LIMIT $3"
        )
    };
}

/// Waiting deliveries by receiver. Parameters: tenant, now, groups.
pub(in crate::store) const QUEUES: &str = deliveries!("(claimed_by IS NULL OR visible_at <= $2)");

/// Deliveries that are held after an earlier attempt or claim, by receiver. Parameters: tenant, now, groups.
pub(in crate::store) const AGAIN: &str =
    deliveries!("claimed_by IS NOT NULL AND visible_at > $2 AND attempt > 1");

/// Idle tasks by holder, those without budget apart. Parameters: tenant, rows, groups.
pub(in crate::store) const IDLE: &str = "SELECT * FROM ( \
     SELECT i.*, count(*) OVER same AS waiting, \
       row_number() OVER (PARTITION BY i.holder, i.used_up ORDER BY i.since, i.task_id) AS place \
     FROM (SELECT t.holder, w.task_id, w.since, \
         CAST(CASE WHEN t.funds IS NOT NULL AND t.left_nanos <= 0 THEN 1 ELSE 0 END AS bigint) AS used_up \
       FROM (SELECT task_id, since FROM waiting_tasks WHERE tenant = $1 ORDER BY since, task_id LIMIT $2) AS w \
       JOIN tasks AS t ON t.tenant = $1 AND t.task_id = w.task_id) AS i \
     WINDOW same AS (PARTITION BY i.holder, i.used_up)) AS grouped \
   WHERE place = 1 ORDER BY since, task_id LIMIT $3";

/// Tasks that run and have no open handoff, by holder, among those of the tasks that have not ended that began first.
/// Parameters: tenant, rows, groups.
pub(in crate::store) const STILL: &str = "SELECT * FROM ( \
     SELECT t.holder, t.task_id, t.updated_at AS since, CAST(0 AS bigint) AS used_up, count(*) OVER same AS waiting, \
       row_number() OVER (PARTITION BY t.holder ORDER BY t.updated_at, t.task_id) AS place \
     FROM (SELECT task_id FROM open_tasks WHERE tenant = $1 ORDER BY begun_at, task_id LIMIT $2) AS o \
     JOIN tasks AS t ON t.tenant = $1 AND t.task_id = o.task_id \
     WHERE t.status = 'RUNNING' AND NOT EXISTS (SELECT 1 FROM handoffs AS h \
       WHERE h.tenant = $1 AND h.task_id = t.task_id AND h.status IN ('PENDING', 'ACCEPTED')) \
     WINDOW same AS (PARTITION BY t.holder)) AS grouped \
   WHERE place = 1 ORDER BY since, task_id LIMIT $3";

/// Open questions by the agent that is asked. Parameters: tenant, rows, groups.
pub(in crate::store) const QUESTIONS: &str = "SELECT * FROM ( \
     SELECT r.agent_id, r.handoff_id, r.task_id, r.returned_at, h.target, h.deadline_at, count(*) OVER same AS waiting, \
       row_number() OVER (PARTITION BY r.agent_id ORDER BY r.returned_at, r.handoff_id) AS place \
     FROM (SELECT agent_id, handoff_id, task_id, returned_at FROM returns \
       WHERE tenant = $1 AND question IS NOT NULL ORDER BY handoff_id LIMIT $2) AS r \
     JOIN handoffs AS h ON h.tenant = $1 AND h.handoff_id = r.handoff_id \
     WINDOW same AS (PARTITION BY r.agent_id)) AS grouped \
   WHERE place = 1 ORDER BY returned_at, handoff_id LIMIT $3";

fn open_escalations(row: &dyn Row) -> Result<OpenEscalations> {
    Ok(OpenEscalations {
        source: parse(row, "source")?,
        target: parse(row, "target")?,
        reason: get(row, "reason")?,
        count: get(row, "waiting")?,
        first: parse(row, "escalation_id")?,
        task_id: parse(row, "task_id")?,
        since: micros(row, "created_at")?,
        timeout_at: micros(row, "first_timeout")?,
    })
}

fn open_letters(row: &dyn Row) -> Result<OpenDeadLetters> {
    Ok(OpenDeadLetters {
        source: parse(row, "source")?,
        reason: get(row, "reason")?,
        count: get(row, "waiting")?,
        first: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        since: micros(row, "created_at")?,
    })
}

fn waiting_deliveries(row: &dyn Row) -> Result<WaitingDeliveries> {
    Ok(WaitingDeliveries {
        target: parse(row, "target")?,
        count: get(row, "waiting")?,
        first: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        since: micros(row, "created_at")?,
        attempts: get(row, "attempts")?,
        visible_at: micros(row, "first_visible")?,
        last_error: get(row, "last_error")?,
    })
}

fn idle_tasks(row: &dyn Row) -> Result<IdleTasks> {
    Ok(IdleTasks {
        holder: parse(row, "holder")?,
        used_up: get::<i64>(row, "used_up")? != 0,
        count: get(row, "waiting")?,
        first: parse(row, "task_id")?,
        since: micros(row, "since")?,
    })
}

fn open_questions(row: &dyn Row) -> Result<OpenQuestions> {
    Ok(OpenQuestions {
        sender: parse(row, "agent_id")?,
        count: get(row, "waiting")?,
        first: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        asked_by: parse(row, "target")?,
        since: micros(row, "returned_at")?,
        due_at: micros_opt(row, "deadline_at")?,
    })
}

/// The groups of a statement whose second parameter is `bound`.
async fn groups<T: Send>(
    db: &Store,
    sql: &'static str,
    (tenant, bound): (&TenantId, i64),
    decode: Decode<T>,
) -> Result<Vec<T>> {
    db.list(Statement::new(sql).bind(tenant).bind(bound).bind(MAX_GROUPS), decode).await
}

impl Store {
    /// Counts what waits. Reads the tenant's waiting deliveries whole, and otherwise a bounded number of rows by an index.
    pub async fn count_waits(&self, tenant: &TenantId, now: Micros) -> Result<WaitCounts> {
        let most = (tenant, MAX_COUNTED);
        Ok(WaitCounts {
            escalations: groups(self, ESCALATIONS, most, open_escalations).await?,
            dead_letters: groups(self, DEAD_LETTERS, most, open_letters).await?,
            queues: self.count_queues(tenant, now).await?,
            again: groups(self, AGAIN, (tenant, now.0), waiting_deliveries).await?,
            idle: groups(self, IDLE, most, idle_tasks).await?,
            still: groups(self, STILL, (tenant, MAX_LOOKED_AT), idle_tasks).await?,
            questions: groups(self, QUESTIONS, most, open_questions).await?,
        })
    }

    /// Counts the deliveries that wait, as `count_waits` does.
    pub async fn count_queues(
        &self,
        tenant: &TenantId,
        now: Micros,
    ) -> Result<Vec<WaitingDeliveries>> {
        groups(self, QUEUES, (tenant, now.0), waiting_deliveries).await
    }
}
