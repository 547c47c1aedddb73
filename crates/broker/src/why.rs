//! Reads what a task may wait for out of the store, for [`handoffd_domain::why`].

use std::collections::HashMap;

use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::EscalationStatus;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TenantId};
use handoffd_domain::task::Task;
use handoffd_domain::why::{
    OpenDeadLetter, OpenHandoff, QueuedDelivery, Receiver, TaskSituation, Wait,
};
use handoffd_store::store::{
    AgentRow, DeadLetterFilter, EscalationFilter, HandoffFilter, KeyRow, OutboxRow, Store,
    StoreError,
};

use crate::directory::Agents;

/// Rows of each kind that are looked at: a task rarely has more than a few open.
const MAX_ROWS: i64 = 500;

/// Why a task does not go on, the most urgent reason first.
///
/// # Errors
/// [`StoreError`] where the store cannot be read.
pub async fn waits(
    store: &Store,
    agents: &Agents,
    task: &Task,
    now: Micros,
) -> Result<Vec<Wait>, StoreError> {
    let key = (task.tenant.clone(), task.id);
    let queued = store.list_queued(&key, MAX_ROWS).await?;
    let mut open = Vec::new();
    for status in [HandoffStatus::Pending, HandoffStatus::Accepted, HandoffStatus::InputRequired] {
        open.extend(newest(store, task, Some(status), MAX_ROWS).await?);
    }
    let place = |handoff: &Handoff| queued.iter().position(|row| row.handoff_id == handoff.id);
    open.sort_by_key(|handoff| (place(handoff), handoff.created_at));
    let newest = newest(store, task, None, 1).await?;
    let escalations =
        EscalationFilter { status: Some(EscalationStatus::Open), task_id: Some(task.id) };
    let escalations = store.list_escalations(&task.tenant, &escalations, None, MAX_ROWS).await?;
    let dead = DeadLetterFilter {
        status: Some(DeadLetterStatus::Open),
        task_id: Some(task.id),
        ..DeadLetterFilter::default()
    };
    let dead = store.list_dead_letters(&task.tenant, &dead, None, MAX_ROWS).await?;
    // Only an open handoff depends on them.
    let uses = if open.is_empty() { HashMap::new() } else { key_uses(store, &task.tenant).await? };
    let situation = TaskSituation {
        now,
        task,
        open: open.iter().map(|handoff| opened(handoff, &queued, agents, &uses)).collect(),
        newest: newest.first(),
        escalations: &escalations,
        dead_letters: dead
            .into_iter()
            .map(|row| OpenDeadLetter {
                handoff_id: row.handoff_id,
                source: row.source,
                reason: row.reason,
                created_at: row.created_at,
            })
            .collect(),
    };
    Ok(handoffd_domain::why::waits(&situation))
}

async fn newest(
    store: &Store,
    task: &Task,
    status: Option<HandoffStatus>,
    limit: i64,
) -> Result<Vec<Handoff>, StoreError> {
    let filter = HandoffFilter { task_id: Some(task.id), status, ..HandoffFilter::default() };
    store.list_handoffs(&task.tenant, &filter, None, limit).await
}

/// When a key of each agent was last used.
pub(crate) async fn key_uses(
    store: &Store,
    tenant: &TenantId,
) -> Result<HashMap<AgentId, Micros>, StoreError> {
    let mut uses = HashMap::new();
    let by_key = store.list_key_uses(tenant).await?;
    for KeyRow { key_id, agent, .. } in store.list_keys(tenant).await? {
        if let (Some(agent), Some(at)) = (agent, by_key.get(&key_id)) {
            let last = uses.entry(agent).or_insert(*at);
            *last = (*last).max(*at);
        }
    }
    Ok(uses)
}

fn opened<'a>(
    handoff: &'a Handoff,
    queued: &[OutboxRow],
    agents: &Agents,
    uses: &HashMap<AgentId, Micros>,
) -> OpenHandoff<'a> {
    let receiver = |AgentRow { agent, .. }: &AgentRow| Receiver {
        state: agent.state,
        disabled: agent.delivery.disabled,
        failures: agent.delivery.failing.map_or(0, |failing| failing.failures),
        key_used_at: uses.get(&agent.agent_id).copied(),
    };
    OpenHandoff {
        handoff,
        queued: delivery(handoff.id, queued),
        receiver: agents.row(&handoff.target).map(receiver),
    }
}

/// Rows are in the order of delivery. The branches of a group have one place, so they wait for no branch of it.
fn delivery(handoff: HandoffId, queued: &[OutboxRow]) -> Option<QueuedDelivery> {
    let row = queued.iter().find(|row| row.handoff_id == handoff)?;
    let first = queued.first().filter(|first| first.seq < row.seq);
    Some(QueuedDelivery {
        behind: first.map(|first| first.handoff_id),
        visible_at: row.visible_at,
        attempts: row.attempt,
        busy: row.busy,
        claimed: row.claimed_by.is_some(),
    })
}
