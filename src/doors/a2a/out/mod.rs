//! The way out (specification §11.2): tasks at remote A2A agents, followed to their end in the agents' names.
//!
//! Nothing is kept here. The record of the handoff's acceptance has the task's id, and the handoff's lease says whether a
//! broker follows it: a scan of the open handoffs finds those whose lease no broker extends. Two brokers that follow the same
//! task for a moment say the same verdicts.

mod callback;
mod follow;
mod step;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::http::routing::post;
use axum::Router;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio_util::task::TaskTracker;

use self::follow::Follower;
use super::super::front::FrontDoor;
use crate::http::Api;
use handoffd_broker::transport::Transports;
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_store::clock;
use handoffd_store::store::{Cursor, HandoffFilter, HandoffKey, StoreError};
use handoffd_transports::a2a::client::AgentClient;
use handoffd_transports::a2a::transport::{CALLBACK_PATH, NewTask, RemoteRef};

/// The door's name in metrics, traces and records.
const DOOR: &str = "a2a-out";
/// Calls to remote agents at once.
const CALLS: usize = 64;
/// Calls to one of them: an agent that is slow or away delays no other.
const CALLS_OF_AGENT: usize = 8;
/// Interval of the search for handoffs without a follower; a heartbeat's if leases are short.
const LOOK: Duration = Duration::from_secs(5);
/// Handoffs read at once.
const PAGE: i64 = 200;
/// How long after a handoff's end its remote task is looked for at a start.
const ENDED: Duration = Duration::from_hours(24);
/// How far a later look goes back behind the one before: clocks of brokers differ, and a commit takes its time.
const SLACK: Duration = Duration::from_mins(1);
/// A handoff that ended is looked for among those made this long before.
const MADE: Duration = Duration::from_hours(7 * 24);
/// Pages of ended handoffs of an agent and a status that a later look reads at most.
const PAGES: usize = 10;
/// Heartbeats per lease.
const BEATS: u32 = 6;
/// Longest time between two heartbeats.
const BEAT_MAX: Duration = Duration::from_secs(30);
/// Missed heartbeats after which a handoff counts as without a follower.
const MISSED: u32 = 3;

/// Follows remote tasks. Clones share all state.
#[derive(Clone)]
pub struct Follow(Arc<FollowState>);

pub(super) struct FollowState {
    pub(super) api: Api,
    pub(super) front: FrontDoor,
    pub(super) client: AgentClient,
    pub(super) transports: Transports,
    calls: Semaphore,
    calls_of_agent: Mutex<HashMap<(TenantId, AgentId), Arc<Semaphore>>>,
    followed: Mutex<HashMap<HandoffKey, Arc<Followed>>>,
    tracker: TaskTracker,
}

/// A handoff that is followed here.
#[derive(Default)]
pub(super) struct Followed {
    /// Wakes its follower.
    pub(super) nudge: Notify,
    /// The finding of an attempt, until the follower takes it.
    pub(super) found: Mutex<Option<RemoteRef>>,
}

/// The rest of the last scan of ended handoffs.
#[derive(Default)]
struct EndedLook {
    /// When it began; `None` before the first.
    at: Option<Micros>,
    /// Handoffs that it saw, so that none is taken up twice while it is within the slack.
    seen: HashSet<HandoffKey>,
}

impl FollowState {
    /// A place among the calls to an agent, and then among all; `None` never comes while the broker runs.
    pub(super) async fn place(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
    ) -> Option<(OwnedSemaphorePermit, SemaphorePermit<'_>)> {
        let key = (tenant.clone(), agent.clone());
        let own = {
            let mut all = self.calls_of_agent.lock().unwrap_or_else(PoisonError::into_inner);
            // Those of agents without calls are dropped.
            all.retain(|other, calls| *other == key || Arc::strong_count(calls) > 1);
            Arc::clone(all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(CALLS_OF_AGENT))))
        };
        let own = own.acquire_owned().await.ok()?;
        Some((own, self.calls.acquire().await.ok()?))
    }
}

/// The interval between two heartbeats of a lease.
pub(super) fn beat(lease: Duration) -> Duration {
    (lease / BEATS).min(BEAT_MAX)
}

impl Follow {
    #[must_use]
    pub fn new(
        api: Api,
        client: AgentClient,
        transports: Transports,
        tracker: TaskTracker,
    ) -> Self {
        let front = FrontDoor::new(api.clone(), DOOR);
        let calls = Semaphore::new(CALLS);
        let (calls_of_agent, followed) = (Mutex::default(), Mutex::default());
        Self(Arc::new(FollowState {
            api,
            front,
            client,
            transports,
            calls,
            calls_of_agent,
            followed,
            tracker,
        }))
    }

    /// Follows the tasks that the transport reports, and those that no broker follows, until the broker stops. `alone`: no
    /// other broker serves this database.
    pub async fn run(self, mut tasks: mpsc::UnboundedReceiver<NewTask>, alone: bool) {
        let stopping = self.0.api.stopping.clone();
        let lease = Duration::from_millis(self.0.api.config.delivery.lease_ms);
        let period = LOOK.min(beat(lease));
        let mut ended = EndedLook::default();
        let mut look_at = tokio::time::Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                task = tasks.recv() => {
                    let Some(NewTask { handoff, remote }) = task else { return };
                    self.follow(handoff, remote);
                }
                () = tokio::time::sleep_until(look_at) => {
                    match self.look(alone, &ended).await {
                        Ok(look) => ended = look,
                        Err(err) => tracing::warn!(error = %err, "remote tasks cannot be looked for"),
                    }
                    look_at = tokio::time::Instant::now() + period.mul_f64(0.75 + clock::random_fraction() / 2.0);
                }
            }
        }
    }

    /// Follows a handoff; one that is followed already is woken.
    fn follow(&self, key: HandoffKey, found: Option<RemoteRef>) {
        let (followed, new) = {
            let mut all = self.all();
            let new = !all.contains_key(&key);
            (Arc::clone(all.entry(key.clone()).or_default()), new)
        };
        if found.is_some() {
            *followed.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        followed.nudge.notify_one();
        if new {
            let this = self.clone();
            self.0.tracker.spawn(async move {
                Follower::new(Arc::clone(&this.0), key.clone(), followed).run().await;
                this.all().remove(&key);
            });
        }
    }

    /// Wakes the follower of a handoff that its agent notifies; starts one if there is none here.
    pub(super) fn nudge(&self, key: HandoffKey) {
        self.follow(key, None);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<HandoffKey, Arc<Followed>>> {
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for handoffs without a follower, and for those that ended while their task may live.
    async fn look(&self, alone: bool, before: &EndedLook) -> Result<EndedLook, StoreError> {
        let api = &self.0.api;
        let first = before.at.is_none();
        let mut ended = EndedLook { at: Some(api.now()), seen: HashSet::new() };
        for tenant in api.store.list_tenants().await? {
            let Ok(agents) = api.intake.directory.agents(&tenant).await else { continue };
            let remote: Vec<AgentId> = agents
                .roster
                .iter()
                .filter(|agent| agent.delivery.mode == DeliveryMode::A2a)
                .map(|agent| agent.agent_id.clone())
                .collect();
            for agent in remote {
                self.look_at(&tenant, &agent, alone && first).await?;
                self.look_behind(&tenant, &agent, before, &mut ended).await?;
            }
        }
        Ok(ended)
    }

    /// Follows an agent's accepted handoffs whose lease no broker extends; all of them for `all`.
    async fn look_at(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        all: bool,
    ) -> Result<(), StoreError> {
        let lease = Duration::from_millis(self.0.api.config.delivery.lease_ms);
        let statuses: &[HandoffStatus] = if all {
            &[HandoffStatus::Accepted, HandoffStatus::InputRequired]
        } else {
            &[HandoffStatus::Accepted]
        };
        for status in statuses {
            let mut after = None;
            loop {
                let page = self.page(tenant, agent, *status, after.as_ref()).await?;
                let now = self.0.api.now();
                let kept_until = now.plus(lease.saturating_sub(beat(lease) * MISSED));
                for handoff in &page {
                    let is_left = handoff.deadline_at.is_some_and(|at| at <= kept_until);
                    if all || is_left {
                        self.adopt(handoff);
                    }
                }
                match page.last().filter(|_| is_full(&page)) {
                    Some(last) => after = Some((last.created_at, last.id.to_string())),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Follows an agent's handoffs that ended since the last look, in case a broker died before it withdrew the task. Lists
    /// have the newest handoffs first.
    async fn look_behind(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        before: &EndedLook,
        ended: &mut EndedLook,
    ) -> Result<(), StoreError> {
        let now = self.0.api.now();
        let back = before.at.map_or(ENDED, |at| now.since(at) + SLACK);
        let pages = if before.at.is_none() { usize::MAX } else { PAGES };
        for status in [HandoffStatus::Canceled, HandoffStatus::Expired, HandoffStatus::Failed] {
            let mut after = None;
            for _ in 0..pages {
                let page = self.page(tenant, agent, status, after.as_ref()).await?;
                for handoff in &page {
                    if handoff.ended_at.is_none_or(|at| now.since(at) > back) {
                        continue;
                    }
                    let key = (handoff.tenant.clone(), handoff.id);
                    if !before.seen.contains(&key) {
                        self.adopt(handoff);
                    }
                    ended.seen.insert(key);
                }
                match page.last().filter(|_| is_full(&page)) {
                    Some(last) if now.since(last.created_at) <= back + MADE => {
                        after = Some((last.created_at, last.id.to_string()));
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }

    async fn page(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        status: HandoffStatus,
        after: Option<&Cursor>,
    ) -> Result<Vec<Handoff>, StoreError> {
        let filter = HandoffFilter {
            status: Some(status),
            target: Some(agent.clone()),
            ..HandoffFilter::default()
        };
        self.0.api.store.list_handoffs(tenant, &filter, after, PAGE).await
    }

    fn adopt(&self, handoff: &Handoff) {
        let key = (handoff.tenant.clone(), handoff.id);
        if handoff.mode == DeliveryMode::A2a && !self.all().contains_key(&key) {
            tracing::info!(handoff_id = %handoff.id, status = handoff.status.as_str(), "following a remote task");
            self.follow(key, None);
        }
    }
}

/// Whether another page may follow.
fn is_full(page: &[Handoff]) -> bool {
    page.len() >= usize::try_from(PAGE).unwrap_or(0)
}

/// The route by which agents tell of their tasks.
pub(in crate::doors) fn routes(follow: &Follow) -> Router<Api> {
    let path = format!("{CALLBACK_PATH}/{{handoffId}}");
    Router::new().route(&path, post(callback::told)).layer(axum::Extension(follow.clone()))
}
