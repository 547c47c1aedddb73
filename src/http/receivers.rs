//! `GET /receivers`: what brokers notice of each receiver: breakers, polls, latency and failures of the last 24 hours.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Open};
use super::extract::{Id, Params, page_size, read_id, write_id};
use super::open;
use super::problem::{Busy, Problem};
use handoffd_domain::agent::{Agent, AgentState};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::receiver::{
    AttemptCounts, BreakerState, KEPT_US, WINDOW_US, Windows, total, widened,
};
use handoffd_domain::waits::WaitingDeliveries;
use handoffd_store::store::receivers::{BreakerRow, SeenReceiver};

/// The list in its cursors.
const LIST: &str = "receivers";

/// Length of a window in the list, in microseconds: an hour.
const LISTED_WINDOW_US: i64 = 12 * WINDOW_US;

/// The circuit breaker that a broker has for a receiver.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BreakerView {
    /// The broker's name.
    broker: String,
    #[schema(value_type = open::BreakerState)]
    state: &'static str,
    /// When it opened, or closed again, RFC 3339. Probes do not change that.
    since: String,
    /// The last failure that this broker saw, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Attempts within some time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptCountsView {
    /// Attempts. Of a receiver that pulls: handoffs that got a first verdict, or none in time.
    attempts: u64,
    /// Those that failed, time-outs among them.
    failures: u64,
    /// Those without a complete answer within the time limit.
    timeouts: u64,
    /// The share of attempts that failed, from 0 to 1; absent without an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_share: Option<f64>,
    /// Half of the answers and time-outs took at most so many milliseconds, to within 19 %; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    /// 95 of 100 answers and time-outs took at most so many milliseconds, to within 19 %; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_ms: Option<f64>,
}

impl From<&AttemptCounts> for AttemptCountsView {
    fn from(counts: &AttemptCounts) -> Self {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        Self {
            attempts: counts.attempts,
            failures: counts.failures,
            timeouts: counts.timeouts,
            failure_share: counts.failure_share(),
            p50_ms: counts.p50().map(millis),
            p95_ms: counts.p95().map(millis),
        }
    }
}

/// Attempts within one window of time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverWindowView {
    /// When the window begins, RFC 3339.
    from: String,
    #[serde(flatten)]
    counts: AttemptCountsView,
}

/// A receiver as brokers notice it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverView {
    /// The agent's id.
    agent_id: String,
    /// Whether it takes handoffs.
    state: AgentState,
    /// How it gets its handoffs.
    #[schema(value_type = open::DeliveryMode)]
    delivery: &'static str,
    /// Whether its endpoint is disabled after failures.
    disabled: bool,
    /// The worst state of a breaker of a broker that lives; absent where the receiver pulls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<open::BreakerState>, nullable = false)]
    breaker: Option<&'static str>,
    /// The breakers that opened since their brokers started, and whose states are known.
    breakers: Vec<BreakerView>,
    /// The last 24 hours together.
    #[serde(flatten)]
    counts: AttemptCountsView,
    /// Open handoffs to it, counted up to 1,000.
    open: i64,
    /// Handoffs that wait for it: no attempt or claim holds them.
    waiting: i64,
    /// When the oldest of these was committed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_since: Option<String>,
    /// Its last request for its inbox, RFC 3339; absent where none was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_poll_at: Option<String>,
    /// The last attempt that it answered, RFC 3339; where it pulls, its last verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success_at: Option<String>,
    /// The last attempt that failed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure_at: Option<String>,
    /// Why that attempt failed, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<String>,
    /// Windows with an attempt, the oldest first.
    windows: Vec<ReceiverWindowView>,
}

/// One page of the receivers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiversView {
    /// Time of the look, RFC 3339.
    at: String,
    /// Length of a window, in milliseconds: an hour.
    window_ms: i64,
    /// By agent id.
    items: Vec<ReceiverView>,
    /// Continues the list; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// One receiver.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverDetailView {
    /// Time of the look, RFC 3339.
    at: String,
    /// Length of a window, in milliseconds: five minutes.
    window_ms: i64,
    #[serde(flatten)]
    receiver: ReceiverView,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReceiversParams {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Receivers a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// All that is stored of some receivers.
struct Noticed {
    breakers: HashMap<AgentId, Vec<BreakerRow>>,
    seen: HashMap<AgentId, SeenReceiver>,
    windows: BTreeMap<AgentId, Windows>,
    open: HashMap<AgentId, i64>,
    waiting: HashMap<AgentId, WaitingDeliveries>,
}

impl Noticed {
    async fn read(
        api: &Api,
        tenant: &TenantId,
        ids: &[AgentId],
        now: Micros,
    ) -> Result<Self, Problem> {
        let since = Micros(now.0.saturating_sub(KEPT_US));
        let mut breakers = HashMap::<AgentId, Vec<BreakerRow>>::new();
        for row in api.store.list_breakers(tenant, &api.broker).await? {
            breakers.entry(row.receiver.1.clone()).or_default().push(row);
        }
        let waiting = api.store.count_queues(tenant, now).await?;
        Ok(Self {
            breakers,
            seen: api.store.list_seen(tenant, ids).await?.into_iter().collect(),
            windows: api.store.list_windows(tenant, ids, since).await?,
            open: api.store.count_open(tenant).await?,
            waiting: waiting.into_iter().map(|one| (one.target.clone(), one)).collect(),
        })
    }

    /// The view of one agent, with windows of this length.
    fn view(&mut self, agent: &Agent, window_us: i64) -> ReceiverView {
        let id = &agent.agent_id;
        let pulls = agent.delivery.mode == DeliveryMode::Pull;
        let breakers = self.breakers.remove(id).filter(|_| !pulls).unwrap_or_default();
        let states = breakers.iter().filter_map(|row| row.state);
        let worst = states.max().unwrap_or(BreakerState::Closed);
        let seen = self.seen.remove(id).unwrap_or_default();
        let windows = widened(&self.windows.remove(id).unwrap_or_default(), window_us);
        let waiting = self.waiting.get(id);
        let time = |at: Option<Micros>| at.map(Micros::rfc3339);
        ReceiverView {
            agent_id: id.to_string(),
            state: agent.state,
            delivery: agent.delivery.mode.as_str(),
            disabled: agent.delivery.disabled,
            breaker: (!pulls).then_some(worst.as_str()),
            breakers: breakers.into_iter().filter_map(breaker).collect(),
            counts: AttemptCountsView::from(&total(windows.values())),
            open: self.open.get(id).copied().unwrap_or_default(),
            waiting: waiting.map_or(0, |one| one.count),
            waiting_since: waiting.map(|one| one.since.rfc3339()),
            last_poll_at: time(seen.last_poll_at),
            last_success_at: time(seen.last_success_at),
            last_failure_at: time(seen.last_failure_at),
            last_failure: seen.last_failure,
            windows: windows.iter().map(window).collect(),
        }
    }
}

fn breaker(row: BreakerRow) -> Option<BreakerView> {
    let BreakerRow { broker, state, since, reason, .. } = row;
    Some(BreakerView { broker, state: state?.as_str(), since: since.rfc3339(), reason })
}

fn window((at, counts): (&Micros, &AttemptCounts)) -> ReceiverWindowView {
    ReceiverWindowView { from: at.rfc3339(), counts: counts.into() }
}

/// List the tenant's receivers: breakers, failures and latency of the last 24 hours, and what waits. It may be ten seconds behind.
#[utoipa::path(
    get, path = "/receivers", tag = "agents", operation_id = "listReceivers",
    params(ReceiversParams),
    responses(
        (status = 200, description = "One page", body = ReceiversView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
        Busy,
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(params): Params<ReceiversParams>,
) -> Result<axum::Json<ReceiversView>, Problem> {
    let limit = usize::try_from(page_size(params.limit)?).unwrap_or(usize::MAX);
    let after = params.cursor.as_deref().map(|cursor| read_id(LIST, cursor)).transpose()?;
    let (tenant, now) = (&principal.tenant, api.now());
    let agents = api.intake.directory.agents(tenant).await?;
    let later = |agent: &&Agent| after.as_ref().is_none_or(|after| agent.agent_id > *after);
    let mut some: Vec<&Agent> = agents.roster.iter().filter(later).collect();
    some.sort_unstable_by(|one, other| one.agent_id.cmp(&other.agent_id));
    let more = some.len() > limit;
    some.truncate(limit);
    let ids: Vec<AgentId> = some.iter().map(|agent| agent.agent_id.clone()).collect();
    let mut noticed = Noticed::read(&api, tenant, &ids, now).await?;
    Ok(axum::Json(ReceiversView {
        at: now.rfc3339(),
        window_ms: LISTED_WINDOW_US / 1_000,
        next_cursor: ids.last().filter(|_| more).map(|id| write_id(LIST, id)),
        items: some.into_iter().map(|agent| noticed.view(agent, LISTED_WINDOW_US)).collect(),
    }))
}

/// Read one receiver: breakers, failures and latency in five-minute windows of the last 24 hours, and what waits.
#[utoipa::path(
    get, path = "/receivers/{agentId}", tag = "agents", operation_id = "getReceiver",
    params(("agentId" = String, Path, description = "The agent's id")),
    responses(
        (status = 200, description = "The receiver", body = ReceiverDetailView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such agent"),
        Busy,
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Id(id): Id<AgentId>,
) -> Result<axum::Json<ReceiverDetailView>, Problem> {
    let (tenant, now) = (&principal.tenant, api.now());
    let agents = api.intake.directory.agents(tenant).await?;
    let agent = agents.roster.find(&id).ok_or_else(|| Problem::not_found("agent"))?;
    let mut noticed = Noticed::read(&api, tenant, std::slice::from_ref(&id), now).await?;
    Ok(axum::Json(ReceiverDetailView {
        at: now.rfc3339(),
        window_ms: WINDOW_US / 1_000,
        receiver: noticed.view(agent, WINDOW_US),
    }))
}
