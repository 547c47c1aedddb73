//! Decisions on many: tasks to cancel, escalations to resolve. Each is a decision of its own, with its own record, at a bounded
//! rate.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Open, Operator};
use super::escalations::{Action, reason_of, resolution_of, resolve_one};
use super::extract::Json;
use super::problem::{BadBody, Busy, Problem, wrong};
use super::tasks::grace_of;
use super::users::user_parameter;
use handoffd_broker::directory::Principal;
use handoffd_domain::escalation::{Escalation, EscalationStatus, Resolution};
use handoffd_domain::ids::{AgentId, EscalationId, Micros, TaskId, TenantId};
use handoffd_domain::task::{Task, TaskStatus};
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

/// The result for one object.
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

/// The results for all objects.
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

/// Escalations to resolve, 1 000 at most.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveManyBody {
    /// Which; at least one condition.
    filter: EscalationSelection,
    /// A person's decision on each.
    action: Action,
    /// To whom; for `reassign`, and for no other action.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    agent_id: Option<AgentId>,
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
        (status = 200, description = "The result of each", body = BulkResults),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn cancel_tasks(
    State(api): State<Api>,
    Open(Operator(principal)): Open<Operator>,
    Json(said): Json<CancelTasksBody>,
) -> Result<axum::Json<BulkResults>, Problem> {
    let CancelTasksBody { filter, reason, grace_ms, rate_per_second, dry_run } = said;
    let reason = reason_of(&reason)?;
    let grace = grace_of(&api, grace_ms)?;
    let rate = rate_of(rate_per_second)?;
    let (ids, more) = select_tasks(&api, &principal.tenant, filter).await?;
    let decision = CancelEach { reason, grace };
    Ok(axum::Json(decide(&api, &principal, &decision, (ids, more), (rate, dry_run)).await))
}

/// Resolve many escalations: those open that fit a filter, at the given rate.
#[utoipa::path(
    post, path = "/escalations/resolve", tag = "escalations", operation_id = "resolveEscalations",
    request_body = ResolveManyBody,
    responses(
        (status = 200, description = "The result of each", body = BulkResults),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn resolve_escalations(
    State(api): State<Api>,
    Open(Operator(principal)): Open<Operator>,
    Json(said): Json<ResolveManyBody>,
) -> Result<axum::Json<BulkResults>, Problem> {
    let ResolveManyBody { filter, action, agent_id, reason, rate_per_second, dry_run } = said;
    let reason = reason_of(&reason)?;
    let resolution = resolution_of(&principal, action, agent_id)?;
    let rate = rate_of(rate_per_second)?;
    let selected = select_escalations(&api, &principal.tenant, filter).await?;
    let decision = ResolveEach { resolution, reason };
    Ok(axum::Json(decide(&api, &principal, &decision, selected, (rate, dry_run)).await))
}

fn rate_of(asked: Option<u32>) -> Result<u32, Problem> {
    let rate = asked.unwrap_or(DEFAULT_RATE);
    if !(1..=1_000).contains(&rate) {
        return Err(wrong("/ratePerSecond", "between 1 and 1 000"));
    }
    Ok(rate)
}

/// A decision on each of many.
trait BulkDecision: Sync {
    type Target: Send + Sync;
    /// The result of one in a trial, and otherwise.
    const RESULTS: [&'static str; 2];
    fn id(target: &Self::Target) -> String;
    fn decide(
        &self,
        api: &Api,
        principal: &Principal,
        target: &Self::Target,
    ) -> impl Future<Output = Result<(), Problem>> + Send;
}

/// Tasks are withdrawn.
struct CancelEach<'a> {
    reason: &'a str,
    /// In milliseconds.
    grace: u64,
}

impl BulkDecision for CancelEach<'_> {
    type Target = TaskId;
    const RESULTS: [&'static str; 2] = ["would cancel", "canceled"];

    fn id(target: &TaskId) -> String {
        target.to_string()
    }

    async fn decide(&self, api: &Api, by: &Principal, target: &TaskId) -> Result<(), Problem> {
        api.intake.cancel_task(by, *target, self.reason, self.grace).await?;
        Ok(())
    }
}

/// Escalations are resolved in one way.
struct ResolveEach<'a> {
    resolution: Resolution,
    reason: &'a str,
}

impl BulkDecision for ResolveEach<'_> {
    type Target = Escalation;
    const RESULTS: [&'static str; 2] = ["would resolve", "resolved"];

    fn id(target: &Escalation) -> String {
        target.id.to_string()
    }

    async fn decide(&self, api: &Api, by: &Principal, target: &Escalation) -> Result<(), Problem> {
        resolve_one(api, by, target, self.resolution.clone(), self.reason).await.map(drop)
    }
}

/// Decides on each target, `rate` a second; ends early where the broker stops. One that fails does not end the others, and a
/// dry run decides nothing and does not wait.
async fn decide<D: BulkDecision>(
    api: &Api,
    principal: &Principal,
    decision: &D,
    (targets, more): (Vec<D::Target>, bool),
    (rate, dry_run): (u32, bool),
) -> BulkResults {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let matched = targets.len();
    let mut results = BulkResults { dry_run, matched, more, ..BulkResults::default() };
    let [would, done] = D::RESULTS;
    for target in targets {
        let outcome = if dry_run {
            Ok(would)
        } else {
            tokio::select! {
                _ = pace.tick() => {}
                () = api.stopping.cancelled() => {
                    results.more = true;
                    break;
                }
            }
            decision.decide(api, principal, &target).await.map(|()| done)
        };
        let (count, result, error) = match outcome {
            Ok(result) => (&mut results.done, result, None),
            Err(problem) => (&mut results.failed, "failed", Some(problem.detail)),
        };
        *count += 1;
        let (id, result) = (D::id(&target), result.to_owned());
        results.items.push(BulkResult { id, result, error });
    }
    results
}

fn moment(pointer: &str, text: Option<&str>) -> Result<Option<Micros>, Problem> {
    text.map(|text| {
        Micros::parse_rfc3339(text)
            .ok_or_else(|| wrong(pointer, "must be a time such as 2026-11-21T06:18:41Z"))
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
