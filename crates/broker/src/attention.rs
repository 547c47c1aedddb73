//! Reads all that waits in a tenant out of the store, for [`handoffd_domain::attention`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use handoffd_domain::attention::{
    AgentSituation, Attention, DisabledSubscription, OpenBreaker, TRANSPORT_AWAY, TenantSituation,
    UsedUpCap, attention,
};
use handoffd_domain::cap::{Cap, Defaults};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::receiver::BreakerState;
use handoffd_store::store::events::SubscriptionRow;
use handoffd_store::store::receivers::BreakerRow;
use handoffd_store::store::{AgentRow, Store, StoreError};

use crate::directory::Agents;
use crate::tree::{LATE_AFTER_INTERVALS, PublishedHeads};
use crate::why::key_uses;

/// The part that the answering broker knows and the store does not.
pub struct BrokerSituation<'a> {
    /// Its name.
    pub broker: &'a str,
    /// The caps of tenants and agents without a cap of their own.
    pub defaults: &'a Defaults,
    pub published: &'a PublishedHeads,
    /// Interval at which it publishes tree heads.
    pub publish_every: Duration,
}

/// All that waits in a tenant, the most urgent first.
///
/// # Errors
/// [`StoreError`] where the store cannot be read.
pub async fn items(
    store: &Store,
    agents: &Agents,
    tenant: &TenantId,
    situation: &BrokerSituation<'_>,
    now: Micros,
) -> Result<Vec<Attention>, StoreError> {
    let BrokerSituation { broker, defaults, published, publish_every } = situation;
    let counts = store.count_waits(tenant, now).await?;
    let uses = key_uses(store, tenant).await?;
    let caps = store.list_caps(tenant).await?;
    let subscriptions = store.list_subscriptions(tenant).await?;
    let breakers = open_breakers(store.list_breakers(tenant, broker).await?);
    let head = store.find_head(tenant).await?;
    let late_head = head.and_then(|head| {
        published.late(&head.log_id, head.tree.size(), now, *publish_every * LATE_AFTER_INTERVALS)
    });
    let rows = agents.roster.iter().filter_map(|agent| agents.row(&agent.agent_id));
    let situation = TenantSituation {
        now,
        escalations: counts.escalations,
        dead_letters: counts.dead_letters,
        queues: counts.queues,
        again: counts.again,
        idle: counts.idle,
        still: counts.still,
        questions: counts.questions,
        agents: rows.map(|row| situation_of(row, &uses, &breakers)).collect::<BTreeMap<_, _>>(),
        caps: caps.iter().filter_map(|cap| used_up(cap, defaults, now)).collect(),
        subscriptions: subscriptions.iter().filter_map(disabled).collect(),
        late_head,
    };
    Ok(attention(&situation))
}

/// The breakers of each receiver that let no delivery through.
fn open_breakers(rows: Vec<BreakerRow>) -> HashMap<AgentId, OpenBreaker> {
    let mut open = HashMap::<AgentId, OpenBreaker>::new();
    for row in rows {
        if row.state.is_none_or(|state| state == BreakerState::Closed) {
            continue;
        }
        let (_, agent) = row.receiver;
        let one =
            open.entry(agent).or_insert(OpenBreaker { brokers: 0, since: row.since, reason: None });
        one.brokers += 1;
        one.since = one.since.min(row.since);
        // A transport that is away for one broker is away for the receiver.
        let away = row.reason.as_deref() == Some(TRANSPORT_AWAY);
        one.reason = if away { row.reason } else { one.reason.take().or(row.reason) };
    }
    open
}

fn situation_of(
    row: &AgentRow,
    uses: &HashMap<AgentId, Micros>,
    breakers: &HashMap<AgentId, OpenBreaker>,
) -> (AgentId, AgentSituation) {
    let AgentRow { agent, updated_at, .. } = row;
    let situation = AgentSituation {
        state: agent.state,
        pulls: agent.delivery.mode == DeliveryMode::Pull,
        disabled: agent.delivery.disabled,
        transport: agent.delivery.mode.as_str(),
        key_used_at: uses.get(&agent.agent_id).copied(),
        breaker: breakers.get(&agent.agent_id).cloned(),
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
