//! Reads all that waits in a tenant out of the store, for [`handoffd_core::attention`].

use std::collections::{BTreeMap, HashMap};

use handoffd_core::attention::{
    AgentSituation, Attention, DisabledSubscription, TenantSituation, UsedUpCap, attention,
};
use handoffd_core::domain::cap::{Cap, Defaults};
use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::{AgentId, Micros, TenantId};
use handoffd_store::store::events::SubscriptionRow;
use handoffd_store::store::{AgentRow, Store, StoreError};

use crate::directory::Agents;
use crate::why::key_uses;

/// All that waits in a tenant, the most urgent first.
///
/// # Errors
/// [`StoreError`] where the store cannot be read.
pub async fn items(
    store: &dyn Store,
    agents: &Agents,
    tenant: &TenantId,
    defaults: &Defaults,
    now: Micros,
) -> Result<Vec<Attention>, StoreError> {
    let counts = store.count_waits(tenant, now).await?;
    let uses = key_uses(store, tenant).await?;
    let caps = store.list_caps(tenant).await?;
    let subscriptions = store.list_subscriptions(tenant).await?;
    let rows = agents.roster.iter().filter_map(|agent| agents.row(&agent.agent_id));
    let situation = TenantSituation {
        now,
        escalations: counts.escalations,
        dead_letters: counts.dead_letters,
        queues: counts.queues,
        idle: counts.idle,
        agents: rows.map(|row| situation_of(row, &uses)).collect::<BTreeMap<_, _>>(),
        caps: caps.iter().filter_map(|cap| used_up(cap, defaults, now)).collect(),
        subscriptions: subscriptions.iter().filter_map(disabled).collect(),
    };
    Ok(attention(&situation))
}

fn situation_of(row: &AgentRow, uses: &HashMap<AgentId, Micros>) -> (AgentId, AgentSituation) {
    let AgentRow { agent, updated_at, .. } = row;
    let situation = AgentSituation {
        state: agent.state,
        pulls: agent.delivery.mode == DeliveryMode::Pull,
        disabled: agent.delivery.disabled,
        key_used_at: uses.get(&agent.agent_id).copied(),
        changed_at: *updated_at,
    };
    (agent.agent_id.clone(), situation)
}

/// A cap that has no room; `None` for one that has.
fn used_up(cap: &Cap, defaults: &Defaults, now: Micros) -> Option<UsedUpCap> {
    let used = cap.used(now);
    let money = cap.limit(defaults).filter(|limit| used >= *limit).map(|limit| (used, limit));
    let tokens = cap.token_limit(defaults).is_some_and(|most| cap.spent_tokens(now) >= most);
    (money.is_some() || tokens).then(|| UsedUpCap {
        agent: cap.agent.clone(),
        window: cap.window,
        money,
        since: cap.updated_at,
    })
}

/// A subscription that the broker disabled; `None` for any other.
fn disabled(row: &SubscriptionRow) -> Option<DisabledSubscription> {
    let reason = row.subscription.disabled_reason.clone()?;
    let disabled = DisabledSubscription { id: row.id, reason, since: row.updated_at };
    (!row.subscription.enabled).then_some(disabled)
}
