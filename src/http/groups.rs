//! Handoffs to several receivers (specification §10.4): the answer to a submission, the page of the group, and waits for
//! it. A group has the id of its message, and the words of a handoff's status.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::handoffs::{GetParams, answered, receipt_of, submission_receipt};
use super::open;
use super::problem::{Problem, WarningView};
use super::views::{HandoffView, Links, SubmittedView};
use super::waiting::{self, POLL, Until, Wait};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::SubmittedGroup;
use handoffd_domain::failure::Code;
use handoffd_domain::group::{BranchPlace, Group, GroupStatus, branch_id};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_gate::prompt::{BranchResult, Origin};
use handoffd_store::store::HandoffFilter;

/// Handoffs read at once.
const PAGE: i64 = 500;

/// A handoff to several receivers, or the place of one handoff in it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HandoffGroup)]
pub struct GroupView {
    /// Its id: the `handoffId` of the message.
    pub group_id: String,
    /// The place of this handoff in the message's `receiverList`, from 0; absent of the group itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// How many handoffs it has.
    pub of: u32,
    /// How many of them are needed: `all`, `any` or `quorum:N`.
    pub join: String,
    /// The effect of one bad end: `rollback` or `drop`.
    pub on_reject: String,
    /// Its handoffs in the list's order; only of the group itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchView>,
}

/// One handoff of a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HandoffBranch)]
pub struct BranchView {
    /// Its place in the list, from 0.
    pub index: u32,
    /// The handoff: the receiver's own, or the one that replaces it.
    pub handoff_id: String,
    /// Id of the agent that receives it.
    pub agent_id: String,
    /// Its status.
    #[schema(value_type = open::HandoffStatus)]
    pub status: String,
    /// Whether its receiver accepted it.
    pub acknowledged: bool,
    /// Why it ended badly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The receiver's result, as it gave it at `/complete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Path of its own page.
    #[serde(rename = "self")]
    pub itself: String,
}

impl From<BranchPlace> for GroupView {
    fn from(place: BranchPlace) -> Self {
        Self {
            group_id: place.id.to_string(),
            index: Some(place.index),
            of: place.of,
            join: place.join.to_string(),
            on_reject: place.on_reject.as_str().to_owned(),
            branches: Vec::new(),
        }
    }
}

impl GroupView {
    fn of(group: &Group, handoffs: &[Handoff], results: &HashMap<HandoffId, Value>) -> Self {
        let by_id: HashMap<HandoffId, &Handoff> =
            handoffs.iter().map(|handoff| (handoff.id, handoff)).collect();
        let places = (0..group.of).zip(group.handoffs());
        let branches = places.filter_map(|(index, id)| {
            let handoff = by_id.get(&id)?;
            Some(BranchView {
                index,
                handoff_id: id.to_string(),
                agent_id: handoff.target.to_string(),
                status: handoff.status.as_str().to_owned(),
                acknowledged: handoff.accepted_at.is_some(),
                reason: handoff.reason.clone(),
                ended_at: handoff.ended_at.map(Micros::rfc3339),
                result: results.get(&id).cloned(),
                itself: format!("/handoffs/{id}"),
            })
        });
        Self {
            group_id: group.id.to_string(),
            index: None,
            of: group.of,
            join: group.join.to_string(),
            on_reject: group.on_reject.as_str().to_owned(),
            branches: branches.collect(),
        }
    }

    /// The results in the list's order; null where a receiver gave none.
    fn results(&self) -> Value {
        self.branches.iter().map(|branch| branch.result.clone().unwrap_or_default()).collect()
    }
}

async fn of_task(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    id: HandoffId,
) -> Result<Option<Group>, Problem> {
    let task = api.store.find_task(&(tenant.clone(), task)).await?;
    Ok(task.and_then(|task| task.course.group(id).cloned()))
}

/// The handoffs of a group: each receiver's own, or the one that replaces it.
async fn handoffs_of(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    group: &Group,
) -> Result<Vec<Handoff>, Problem> {
    let wanted: Vec<HandoffId> = group.handoffs().collect();
    let filter = HandoffFilter { task_id: Some(task), ..HandoffFilter::default() };
    let (mut found, mut after) = (Vec::new(), None);
    while found.len() < wanted.len() {
        let page = api.store.list_handoffs(tenant, &filter, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.to_string()));
        found.extend(page.into_iter().filter(|one| wanted.contains(&one.id)));
    }
    Ok(found)
}

/// Waits until a group is where the request wants it; returns it as it is then, and whether it came there.
async fn wait_for(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    group: Group,
    wait: Wait,
) -> Result<(Group, bool), Problem> {
    let deadline = tokio::time::Instant::now() + wait.time;
    let mut watch = api.intake.ledger.watch((tenant.clone(), group.id));
    let mut latest = of_task(api, tenant, task, group.id).await?.unwrap_or(group);
    while !is_reached(api, tenant, task, &latest, wait.until).await? {
        if wait.time.is_zero() {
            return Ok((latest, false));
        }
        let pause: Duration = POLL;
        tokio::select! {
            _ = watch.changed() => {}
            () = tokio::time::sleep(pause) => {}
            () = tokio::time::sleep_until(deadline) => return Ok((latest, false)),
            () = api.stopping.cancelled() => return Ok((latest, false)),
        }
        latest = of_task(api, tenant, task, latest.id).await?.unwrap_or(latest);
    }
    Ok((latest, true))
}

/// Whether a wait for a group is over. A question of any receiver is one of the group.
async fn is_reached(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    group: &Group,
    until: Until,
) -> Result<bool, Problem> {
    if group.status.is_final() || !matches!(until, Until::Asked | Until::Answered) {
        return Ok(until.is_reached(group.status.as_handoff()));
    }
    let branches = handoffs_of(api, tenant, task, group).await?;
    let asks = branches.iter().any(|branch| branch.status == HandoffStatus::InputRequired);
    Ok(asks == (until == Until::Asked))
}

/// The receivers' results, by handoff.
async fn results_of(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    (group, handoffs): (&Group, &[Handoff]),
) -> Result<HashMap<HandoffId, Value>, Problem> {
    let done = handoffs.iter().filter(|one| one.status == HandoffStatus::Completed);
    let done: Vec<HandoffId> = done.map(|one| one.id).collect();
    if done.is_empty() || !group.status.is_final() {
        return Ok(HashMap::new());
    }
    let first = branch_id(group.id, 0);
    Ok(api.statements().results(tenant, task, first, &done).await?)
}

/// The page of a group, for its sender and for people.
pub(super) async fn page(
    api: &Api,
    principal: &Principal,
    id: HandoffId,
    params: &GetParams,
) -> Result<Option<HandoffView>, Problem> {
    let tenant = &principal.tenant;
    let Some((task, mut group)) = principal.reader().find_group(&api.store, id).await? else {
        return Ok(None);
    };
    if let Some(wait) = waiting::asked(params.wait, params.until.as_deref())? {
        (group, _) = wait_for(api, tenant, task, group, wait).await?;
    }
    let handoffs = handoffs_of(api, tenant, task, &group).await?;
    let own = branch_id(id, 0);
    let first = handoffs.iter().find(|one| one.id == own);
    let first = if let Some(first) = first {
        first.clone()
    } else {
        // Another handoff replaces it.
        let found = api.store.find_handoff(&(tenant.clone(), own)).await?;
        found.ok_or_else(|| Problem::not_found("handoff"))?
    };
    let results = results_of(api, tenant, task, (&group, &handoffs)).await?;
    let told = GroupView::of(&group, &handoffs, &results);
    let ended = group.status == GroupStatus::Completed;
    let mut view = HandoffView {
        handoff_id: id.to_string(),
        status: group.status.as_str().to_owned(),
        reason: group.reason.clone(),
        successor_id: None,
        result: ended.then(|| told.results()),
        group: Some(told),
        duration_ms: None,
        attempts: handoffs.iter().map(|one| one.attempts).sum(),
        fencing_token: 0,
        deadline_at: None,
        heartbeat_interval_ms: None,
        heard_at: None,
        context: None,
        accepted_at: group.accepted_at.map(Micros::rfc3339),
        ended_at: group.ended_at.map(Micros::rfc3339),
        receipt: receipt_of(api, &first).await?,
        links: links(task, id),
        ..HandoffView::from(&first)
    };
    // Verdicts are of its handoffs, each on its own page.
    if params.included()?.message
        && let Some(content) = first.content_id
    {
        view.message = api.contents.find_json(tenant, content).await?;
    }
    Ok(Some(view))
}

/// The results of a group in the list's order, each with its branch, for the group's sender and people.
pub(super) async fn branch_results(
    api: &Api,
    principal: &Principal,
    id: HandoffId,
) -> Result<Option<Vec<BranchResult>>, Problem> {
    let tenant = &principal.tenant;
    let Some((task, group)) = principal.reader().find_group(&api.store, id).await? else {
        return Ok(None);
    };
    if group.status != GroupStatus::Completed {
        let why = format!("the group is {}: it has no result", group.status.as_str());
        return Err(Problem::new(Code::Conflict, why));
    }
    let handoffs = handoffs_of(api, tenant, task, &group).await?;
    let mut results = results_of(api, tenant, task, (&group, &handoffs)).await?;
    let by_id: HashMap<HandoffId, &Handoff> =
        handoffs.iter().map(|handoff| (handoff.id, handoff)).collect();
    let places = (0..group.of).zip(group.handoffs());
    let found = places.filter_map(|(index, id)| {
        let (handoff, said) = (by_id.get(&id)?, results.remove(&id)?);
        let origin = Origin {
            handoff_id: id.to_string(),
            task_id: task.to_string(),
            agent_id: handoff.target.to_string(),
            agent_version: handoff.target_version.clone(),
        };
        let said = json!({ "result": said });
        Some(BranchResult { index, origin, said, marks: Vec::new() })
    });
    Ok(Some(found.collect()))
}

fn links(task: TaskId, id: HandoffId) -> Links {
    Links { itself: format!("/handoffs/{id}"), trace: format!("/tasks/{task}/trace") }
}

/// The answer to a message to several receivers.
pub(super) async fn submitted(
    api: &Api,
    done: SubmittedGroup,
    wait: Option<Wait>,
) -> Result<Response, Problem> {
    let SubmittedGroup { mut group, mut handoffs, record, replayed, warnings } = done;
    let Some(first) = handoffs.first() else { return Err(Problem::not_found("handoff")) };
    let receipt = submission_receipt(api, record.as_ref(), first).await?;
    let (tenant, task) = (first.tenant.clone(), first.task_id);
    let mut applied = None;
    if let Some(wait) = wait {
        let reached;
        (*group, reached) = wait_for(api, &tenant, task, *group, wait).await?;
        applied = reached.then(|| waiting::applied(wait));
    }
    if replayed || wait.is_some() {
        handoffs = handoffs_of(api, &tenant, task, &group).await?;
    }
    let results = if wait.is_some_and(|wait| wait.until == Until::Ended) {
        results_of(api, &tenant, task, (&group, &handoffs)).await?
    } else {
        HashMap::new()
    };
    let view = GroupView::of(&group, &handoffs, &results);
    // A replay answers as the first time did; only who waits asks for what became of it.
    let status = if wait.is_some() { group.status } else { GroupStatus::Pending };
    let ended = status == GroupStatus::Completed && !results.is_empty();
    let view = SubmittedView {
        handoff_id: group.id.to_string(),
        task_id: task.to_string(),
        status: status.as_str().to_owned(),
        successor_id: None,
        result: ended.then(|| view.results()),
        group: Some(view),
        reason: group.reason.clone().filter(|_| wait.is_some()),
        receipt,
        context: None,
        stream: None,
        warnings: warnings.iter().map(WarningView::from).collect(),
        links: links(task, group.id),
    };
    let code = if applied.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(answered(code, view, applied.as_deref(), replayed))
}
