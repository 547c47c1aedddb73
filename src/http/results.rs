//! What a receiver said when it completed a handoff, for the parties of that handoff (specification §10.3).

use std::collections::HashMap;

use serde_json::Value;

use super::Api;
use super::problem::Problem;
use handoffd_broker::trace::opened;
use handoffd_core::domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_core::domain::ids::{HandoffId, TaskId, TenantId};
use handoffd_core::domain::lenient;

/// Records read at once.
const PAGE: i64 = 256;

/// The result in the body of a `/complete`.
pub(super) fn result(said: Value) -> Option<Value> {
    match said {
        Value::Object(mut said) => said.remove("result"),
        _ => None,
    }
}

/// The body of the receiver's `/complete`, from the last record that has one. `None`: the receiver said nothing,
/// or what it said was erased or is past its time.
pub(super) async fn find(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    handoff: HandoffId,
) -> Result<Option<Value>, Problem> {
    find_said(api, tenant, task, handoff, HandoffStatus::Completed.as_str()).await
}

/// `details`, `metadata` and `error` of the receiver's verdict, and what of it could not be kept, where the handoff has one and the
/// receiver said any.
pub(super) async fn verdict(api: &Api, handoff: &Handoff) -> Result<Option<Value>, Problem> {
    if handoff.status == HandoffStatus::Failed {
        let kind = HandoffStatus::Failed.as_str();
        let said = find_said(api, &handoff.tenant, handoff.task_id, handoff.id, kind).await?;
        if let Some(Value::Object(mut said)) = said {
            said.retain(|name, _| ["details", "metadata", "error"].contains(&name.as_str()));
            if !said.is_empty() {
                return Ok(Some(Value::Object(said)));
            }
        }
    }
    let kind = match handoff.status {
        HandoffStatus::Rejected => HandoffStatus::Rejected,
        _ if handoff.accepted_at.is_some() => HandoffStatus::Accepted,
        _ => return Ok(None),
    };
    let said = find_said(api, &handoff.tenant, handoff.task_id, handoff.id, kind.as_str()).await?;
    let Some(Value::Object(mut said)) = said else { return Ok(None) };
    said.retain(|name, _| matches!(name.as_str(), "details" | "metadata" | lenient::OWN));
    // An A2A agent's answer by a message stands in its acceptance. The result shows it once the API judged it.
    if handoff.mode == DeliveryMode::A2a
        && said.get("metadata").is_some_and(|own| own.pointer("/a2a/message").is_some())
    {
        said.remove("metadata");
    }
    Ok((!said.is_empty()).then_some(Value::Object(said)))
}

/// Content of a handoff's last record of a kind; `None` as for [`find`].
pub(crate) async fn find_said(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    handoff: HandoffId,
    kind: &str,
) -> Result<Option<Value>, Problem> {
    let id = handoff.to_string();
    let committed = api.store.find_receipt(&(tenant.clone(), handoff)).await?;
    let mut from = committed.map_or(0, |sealed| sealed.leaf_index);
    let mut last = None;
    loop {
        let page = api.store.list_records(tenant, Some(task), from, PAGE, false).await?;
        let Some(end) = page.last() else { break };
        from = end.leaf_index + 1;
        let own = |record: &&handoffd_store::store::StoredRecord| {
            record.kind == kind && record.handoff_id.as_deref() == Some(id.as_str())
        };
        last = page.iter().filter(own).map(|record| record.leaf_index).next_back().or(last);
        if page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            break;
        }
    }
    let Some(leaf_index) = last else { return Ok(None) };
    let found = api.contents.list_records(tenant, Some(task), leaf_index, 1).await?;
    Ok(found.first().and_then(opened))
}

/// The results of several handoffs of a task, by handoff: what each receiver's `/complete` named as its `result`, from
/// the last record that has one. `first` is the handoff that was committed first.
pub(super) async fn find_all(
    api: &Api,
    tenant: &TenantId,
    task: TaskId,
    first: HandoffId,
    handoffs: &[HandoffId],
) -> Result<HashMap<HandoffId, Value>, Problem> {
    let kind = HandoffStatus::Completed.as_str();
    let committed = api.store.find_receipt(&(tenant.clone(), first)).await?;
    let mut from = committed.map_or(0, |sealed| sealed.leaf_index);
    let mut places: HashMap<HandoffId, i64> = HashMap::new();
    loop {
        let page = api.store.list_records(tenant, Some(task), from, PAGE, false).await?;
        let Some(end) = page.last() else { break };
        from = end.leaf_index + 1;
        for record in page.iter().filter(|record| record.kind == kind) {
            let id = record.handoff_id.as_deref().and_then(|id| id.parse().ok());
            if let Some(id) = id.filter(|id| handoffs.contains(id)) {
                places.insert(id, record.leaf_index);
            }
        }
        if page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            break;
        }
    }
    let mut said = HashMap::new();
    for (id, leaf_index) in places {
        let found = api.contents.list_records(tenant, Some(task), leaf_index, 1).await?;
        if let Some(value) = found.first().and_then(opened).and_then(result) {
            said.insert(id, value);
        }
    }
    Ok(said)
}
