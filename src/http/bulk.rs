//! Decisions on many: tasks to cancel, escalations to resolve. Each is a decision of its own, with its own record, at a bounded
//! rate.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use super::Api;
use super::auth::Operator;
use super::escalations::{reason_of, resolve_one};
use super::extract::{Json, rfc3339};
use super::problem::{BadBody, Busy, Problem, wrong};
use super::tasks::{cancel_one, grace_of};
use super::users::user_parameter;
use handoffd_core::domain::escalation::{Escalation, EscalationStatus, Resolution};
use handoffd_core::domain::ids::{AgentId, EscalationId, Micros, TaskId, TenantId};
use handoffd_core::domain::task::{Task, TaskStatus};
use handoffd_store::store::{Cursor, EscalationFilter, TaskFilter};

/// The most that one call decides on.
const MAX_BULK: usize = 1_000;

/// Decisions a second unless said.
const DEFAULT_RATE: u32 = 50;

/// Rows read at once.
const PAGE: i64 = 500;

/// States of a task that can be canceled.
const OPEN: [TaskStatus; 4] = [
    TaskStatus::HandingOff,
    TaskStatus::Running,
    TaskStatus::PendingHandoff,
    TaskStatus::Escalated,
];

/// What came of one.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResult {
    /// UUID of the task or escalation.
    pub id: String,
    /// `canceled`, `resolved` or `failed`; in a dry run `would cancel` or `would resolve`.
    pub result: String,
    /// Why it could not be decided on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What came of all.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResults {
    /// True where the request asked for a trial: nothing was changed.
    pub dry_run: bool,
    /// How many the filter found.
    pub matched: usize,
    /// How many went as wished; in a dry run, would be decided on.
    pub done: usize,
    /// How many could not be decided on.
    pub failed: usize,
    /// More fit the filter than one call takes, or the broker is stopping: call again.
    pub more: bool,
    /// One entry for each.
    pub items: Vec<BulkResult>,
}

/// Which tasks to cancel: those not ended that fit all that is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskSelection {
    /// In this state, one of a task that has not ended.
    status: Option<String>,
    /// Held by this agent.
    #[schema(value_type = Option<String>)]
    holder: Option<AgentId>,
    /// Begun at this time or later, RFC 3339.
    from: Option<String>,
    /// Begun before this time, RFC 3339.
    to: Option<String>,
    /// For the user with this reference.
    user_ref: Option<String>,
    /// Only these, by their UUIDs.
    #[schema(value_type = Option<Vec<String>>)]
    ids: Option<Vec<TaskId>>,
}

/// Tasks to cancel, 1 000 at most.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelTasksBody {
    /// Which; at least one condition.
    filter: TaskSelection,
    /// Why, 1 to 2 000 characters; kept with each record.
    reason: String,
    /// How long who works on a task may still finish, in milliseconds, up to an hour; the broker's
    /// `recovery.cancel_grace_ms` unless said.
    #[serde(default)]
    #[schema(maximum = 3_600_000)]
    grace_ms: Option<u64>,
    /// Decisions a second, 1 to 1 000; 50 unless said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000)]
    rate_per_second: Option<u32>,
    /// Say what would happen, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Which escalations to resolve: those open that fit all that is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EscalationSelection {
    /// Of this task.
    #[schema(value_type = Option<String>)]
    task_id: Option<TaskId>,
    /// For this reason.
    reason: Option<String>,
    /// From this agent.
    #[schema(value_type = Option<String>)]
    from_agent: Option<AgentId>,
    /// To this agent.
    #[schema(value_type = Option<String>)]
    to_agent: Option<AgentId>,
    /// Opened at this time or later, RFC 3339.
    from: Option<String>,
    /// Opened before this time, RFC 3339.
    to: Option<String>,
    /// Only these, by their UUIDs.
    #[schema(value_type = Option<Vec<String>>)]
    ids: Option<Vec<EscalationId>>,
}

/// What a person decides on many escalations. Reassignment is a decision on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BulkAction {
    /// The same receiver once more; where the recovery is under way, it goes on.
    Retry,
    /// Back to the sender's checkpoint.
    Rollback,
    /// Withdraw the task.
    Cancel,
    /// The task is done.
    Complete,
}

impl BulkAction {
    const fn resolution(self) -> Resolution {
        match self {
            Self::Retry => Resolution::Retry,
            Self::Rollback => Resolution::RollBack,
            Self::Cancel => Resolution::Cancel,
            Self::Complete => Resolution::Complete,
        }
    }
}

/// Escalations to resolve, 1 000 at most.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveManyBody {
    /// Which; at least one condition.
    filter: EscalationSelection,
    /// What a person decides on each.
    action: BulkAction,
    /// Why, 1 to 2 000 characters; kept with each record.
    reason: String,
    /// Decisions a second, 1 to 1 000; 50 unless said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000)]
    rate_per_second: Option<u32>,
    /// Say what would happen, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Cancel many tasks: those not ended that fit a filter, at the given rate.
#[utoipa::path(
    post, path = "/tasks/cancel", tag = "tasks", operation_id = "cancelTasks",
    request_body = CancelTasksBody,
    responses(
        (status = 200, description = "What came of each", body = BulkResults),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn cancel_tasks(
    State(api): State<Api>,
    Operator(principal): Operator,
    Json(said): Json<CancelTasksBody>,
) -> Result<axum::Json<BulkResults>, Problem> {
    let CancelTasksBody { filter, reason, grace_ms, rate_per_second, dry_run } = said;
    let reason = reason_of(&reason)?;
    let grace = grace_of(&api, grace_ms)?;
    let rate = rate_of(rate_per_second)?;
    let (ids, more) = select_tasks(&api, &principal.tenant, filter).await?;
    let mut run = BulkRun::new(&api, "cancel", rate, (dry_run, ids.len(), more));
    for id in ids {
        if !run.goes_on().await {
            break;
        }
        let outcome = if dry_run {
            Ok(())
        } else {
            cancel_one(&api, &principal, id, reason, grace).await.map(drop)
        };
        run.note(id.to_string(), outcome);
    }
    Ok(axum::Json(run.results))
}

/// Resolve many escalations: those open that fit a filter, at the given rate.
#[utoipa::path(
    post, path = "/escalations/resolve", tag = "escalations", operation_id = "resolveEscalations",
    request_body = ResolveManyBody,
    responses(
        (status = 200, description = "What came of each", body = BulkResults),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn resolve_escalations(
    State(api): State<Api>,
    Operator(principal): Operator,
    Json(said): Json<ResolveManyBody>,
) -> Result<axum::Json<BulkResults>, Problem> {
    let ResolveManyBody { filter, action, reason, rate_per_second, dry_run } = said;
    let reason = reason_of(&reason)?;
    let rate = rate_of(rate_per_second)?;
    let (rows, more) = select_escalations(&api, &principal.tenant, filter).await?;
    let mut run = BulkRun::new(&api, "resolve", rate, (dry_run, rows.len(), more));
    for row in rows {
        if !run.goes_on().await {
            break;
        }
        let outcome = if dry_run {
            Ok(())
        } else {
            let resolution = action.resolution();
            resolve_one(&api, &principal, &row, resolution, reason).await.map(drop)
        };
        run.note(row.id.to_string(), outcome);
    }
    Ok(axum::Json(run.results))
}

fn rate_of(asked: Option<u32>) -> Result<u32, Problem> {
    let rate = asked.unwrap_or(DEFAULT_RATE);
    if !(1..=1_000).contains(&rate) {
        return Err(wrong("/ratePerSecond", "between 1 and 1 000"));
    }
    Ok(rate)
}

/// A bulk decision under way.
struct BulkRun<'a> {
    api: &'a Api,
    verb: &'static str,
    pace: tokio::time::Interval,
    results: BulkResults,
}

impl<'a> BulkRun<'a> {
    fn new(
        api: &'a Api,
        verb: &'static str,
        rate: u32,
        (dry_run, matched, more): (bool, usize, bool),
    ) -> Self {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let results = BulkResults { dry_run, matched, more, ..BulkResults::default() };
        Self { api, verb, pace, results }
    }

    /// Waits for the turn of the next; false where the broker stops.
    async fn goes_on(&mut self) -> bool {
        if self.results.dry_run {
            return true;
        }
        tokio::select! {
            _ = self.pace.tick() => true,
            () = self.api.stopping.cancelled() => {
                self.results.more = true;
                false
            }
        }
    }

    fn note(&mut self, id: String, outcome: Result<(), Problem>) {
        let (count, result, error) = match outcome {
            Ok(()) => {
                let result = match (self.results.dry_run, self.verb) {
                    (true, verb) => format!("would {verb}"),
                    (false, "cancel") => "canceled".to_owned(),
                    (false, verb) => format!("{verb}d"),
                };
                (&mut self.results.done, result, None)
            }
            Err(problem) => (&mut self.results.failed, "failed".to_owned(), Some(problem.detail)),
        };
        *count += 1;
        self.results.items.push(BulkResult { id, result, error });
    }
}

fn moment(pointer: &str, text: Option<&str>) -> Result<Option<Micros>, Problem> {
    text.map(|text| {
        rfc3339(text).ok_or_else(|| wrong(pointer, "must be a time such as 2026-11-21T06:18:41Z"))
    })
    .transpose()
}

fn at_least_one(any: bool) -> Result<(), Problem> {
    if any { Ok(()) } else { Err(wrong("/filter", "say which: at least one condition")) }
}

/// Ids without repeats, each at its first place.
fn once<T: Copy + Eq + std::hash::Hash>(ids: Vec<T>) -> Result<Vec<T>, Problem> {
    if ids.len() > MAX_BULK {
        return Err(wrong("/filter/ids", "1 000 at most"));
    }
    let mut seen = HashSet::new();
    Ok(ids.into_iter().filter(|id| seen.insert(*id)).collect())
}

async fn select_tasks(
    api: &Api,
    tenant: &TenantId,
    filter: TaskSelection,
) -> Result<(Vec<TaskId>, bool), Problem> {
    let TaskSelection { status, holder, from, to, user_ref, ids } = filter;
    let status = status.map(|text| {
        let open = TaskStatus::parse(&text).filter(|status| OPEN.contains(status));
        open.ok_or_else(|| wrong("/filter/status", "must be a state of a task that has not ended"))
    });
    let status = status.transpose()?;
    let from = moment("/filter/from", from.as_deref())?;
    let until = moment("/filter/to", to.as_deref())?;
    let user =
        user_parameter(user_ref).map_err(|problem| wrong("/filter/userRef", problem.detail))?;
    let any = status.is_some() || holder.is_some() || ids.is_some();
    at_least_one(any || from.is_some() || until.is_some() || user.is_some())?;
    let takes = |task: &Task| {
        status.is_none_or(|status| task.status == status)
            && OPEN.contains(&task.status)
            && holder.as_ref().is_none_or(|holder| task.holder == *holder)
            && from.is_none_or(|from| task.created_at >= from)
            && until.is_none_or(|until| task.created_at < until)
    };
    let of_user = match (&user, &ids) {
        (Some(_), Some(_)) => {
            return Err(wrong("/filter/userRef", "either a user, or ids"));
        }
        _ => user,
    };
    if let Some(ids) = ids {
        let mut found = Vec::new();
        for id in once(ids)? {
            let task = api.store.find_task(&(tenant.clone(), id)).await?;
            found.extend(task.filter(takes).map(|task| task.id));
        }
        return Ok((found, false));
    }
    let states = status.map_or_else(|| OPEN.to_vec(), |status| vec![status]);
    let mut found = Vec::new();
    for status in states {
        let filter = TaskFilter {
            status: Some(status),
            from,
            until,
            user: of_user.clone(),
            ..TaskFilter::default()
        };
        let mut after: Option<Cursor> = None;
        while found.len() <= MAX_BULK {
            let page = api.store.list_tasks(tenant, &filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.id.to_string()));
            found.extend(page.iter().filter(|task| takes(task)).map(|task| task.id));
        }
    }
    let more = found.len() > MAX_BULK;
    found.truncate(MAX_BULK);
    Ok((found, more))
}

async fn select_escalations(
    api: &Api,
    tenant: &TenantId,
    filter: EscalationSelection,
) -> Result<(Vec<Escalation>, bool), Problem> {
    let EscalationSelection { task_id, reason, from_agent, to_agent, from, to, ids } = filter;
    let from = moment("/filter/from", from.as_deref())?;
    let until = moment("/filter/to", to.as_deref())?;
    let any = task_id.is_some() || reason.is_some() || from_agent.is_some() || to_agent.is_some();
    at_least_one(any || from.is_some() || until.is_some() || ids.is_some())?;
    let takes = |row: &Escalation| {
        row.is_open()
            && task_id.is_none_or(|id| row.task_id == id)
            && reason.as_ref().is_none_or(|reason| row.reason == *reason)
            && from_agent.as_ref().is_none_or(|agent| row.source == *agent)
            && to_agent.as_ref().is_none_or(|agent| row.target == *agent)
            && from.is_none_or(|from| row.created_at >= from)
            && until.is_none_or(|until| row.created_at < until)
    };
    let mut found = Vec::new();
    if let Some(ids) = ids {
        for id in once(ids)? {
            let row = api.store.find_escalation(&(tenant.clone(), id)).await?;
            found.extend(row.filter(takes));
        }
        return Ok((found, false));
    }
    let filter = EscalationFilter { status: Some(EscalationStatus::Open), task_id };
    let mut after: Option<Cursor> = None;
    while found.len() <= MAX_BULK {
        let page = api.store.list_escalations(tenant, &filter, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.to_string()));
        found.extend(page.into_iter().filter(takes));
    }
    let more = found.len() > MAX_BULK;
    found.truncate(MAX_BULK);
    Ok((found, more))
}
