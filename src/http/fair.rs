//! Fair shares of the broker's limited resources: running requests, waits, live streams, large bodies.
//!
//! The broker takes nothing back from a caller that it serves, so it leaves room for callers that come later: an agent may
//! hold as much as it leaves free, and the callers of one tenant together three times as much as they leave free. One agent
//! alone gets half of a pool, its tenant three quarters, and the next caller finds a place.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Notify;

use super::problem::Problem;
use handoffd_broker::config::Config;
use handoffd_broker::directory::Principal;
use handoffd_broker::metrics::Metrics;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;

/// Parts of a pool that a tenant may hold for each part that is free.
const TENANT_PARTS: usize = 3;

/// A caller as pools count it: its tenant, and in it its agent or key. Hashed, so that counting allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    tenant: u64,
    caller: u64,
}

/// The reason why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The pool is full.
    Full,
    /// The caller holds its share.
    Caller,
    /// The callers of its tenant hold their share.
    Tenant,
}

impl Refused {
    /// The values of the label `limit`.
    pub const ALL: [&'static str; 3] = ["full", "caller", "tenant"];

    const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Caller => "caller",
            Self::Tenant => "tenant",
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    tenants: HashMap<u64, usize>,
    callers: HashMap<(u64, u64), usize>,
}

impl Held {
    fn claim(&mut self, size: usize, who: Holder, amount: usize) -> Result<(), Refused> {
        // The amount of this place is counted already.
        let free = size - (self.all - amount);
        let caller = self.callers.get(&(who.tenant, who.caller)).copied().unwrap_or(0);
        let tenant = self.tenants.get(&who.tenant).copied().unwrap_or(0);
        if caller > free {
            return Err(Refused::Caller);
        }
        if tenant > free.saturating_mul(TENANT_PARTS) {
            return Err(Refused::Tenant);
        }
        *self.callers.entry((who.tenant, who.caller)).or_default() += amount;
        *self.tenants.entry(who.tenant).or_default() += amount;
        Ok(())
    }

    fn give_back(&mut self, who: Option<Holder>, amount: usize) {
        self.all -= amount;
        let Some(who) = who else { return };
        let callers = self.callers.get_mut(&(who.tenant, who.caller));
        if let Some(held) = callers {
            *held -= amount;
            if *held == 0 {
                self.callers.remove(&(who.tenant, who.caller));
            }
        }
        if let Some(held) = self.tenants.get_mut(&who.tenant) {
            *held -= amount;
            if *held == 0 {
                self.tenants.remove(&who.tenant);
            }
        }
    }
}

/// A limited resource of the broker.
pub struct Pool {
    /// The value of the label `pool`.
    name: &'static str,
    /// The setting that bounds it.
    setting: &'static str,
    size: usize,
    held: Mutex<Held>,
    freed: Notify,
    metrics: Arc<Metrics>,
}

impl Pool {
    fn new(
        (name, setting): (&'static str, &'static str),
        size: usize,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        for limit in Refused::ALL {
            metrics.pool_refusals.with_label_values(&[name, limit]);
        }
        metrics.pool_size.with_label_values(&[name]).set(i64::try_from(size).unwrap_or(i64::MAX));
        Arc::new(Self {
            name,
            setting,
            size,
            held: Mutex::default(),
            freed: Notify::new(),
            metrics: Arc::clone(metrics),
        })
    }

    /// Its size, the largest amount that a place can have.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, all: usize) {
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        self.metrics.pool_held.with_label_values(&[self.name]).set(all);
    }

    /// A place of a caller that is not known yet: [`Place::claim`] says whose it is.
    ///
    /// # Errors
    /// 503: the pool is full.
    pub fn enter(self: &Arc<Self>, amount: usize) -> Result<Place, Problem> {
        self.take(None, amount).map_err(|refused| self.refusal(refused))
    }

    /// A caller's place.
    ///
    /// # Errors
    /// 503: the pool is full; 429: the caller or its tenant has its share.
    pub fn enter_as(self: &Arc<Self>, who: Holder, amount: usize) -> Result<Place, Problem> {
        self.take(Some(who), amount).map_err(|refused| self.refusal(refused))
    }

    /// A caller's place, once there is room for it and within its share.
    ///
    /// # Errors
    /// As [`Pool::enter_as`], when there was none in time.
    pub async fn wait_for(
        self: &Arc<Self>,
        who: Holder,
        amount: usize,
        patience: Duration,
    ) -> Result<Place, Problem> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Listens before it looks, so that nothing that is freed in between is missed.
            freed.as_mut().enable();
            let refused = match self.take(Some(who), amount) {
                Ok(place) => return Ok(place),
                Err(refused) => refused,
            };
            if tokio::time::timeout_at(until, freed).await.is_err() {
                return Err(self.refusal(refused));
            }
        }
    }

    fn take(self: &Arc<Self>, who: Option<Holder>, amount: usize) -> Result<Place, Refused> {
        let mut held = self.held();
        if amount > self.size - held.all {
            return Err(Refused::Full);
        }
        held.all += amount;
        if let Some(who) = who
            && let Err(refused) = held.claim(self.size, who, amount)
        {
            held.all -= amount;
            return Err(refused);
        }
        self.count(held.all);
        drop(held);
        Ok(Place { pool: Arc::clone(self), who, amount })
    }

    fn refusal(&self, refused: Refused) -> Problem {
        self.metrics.pool_refusals.with_label_values(&[self.name, refused.label()]).inc();
        let (name, setting) = (self.name.replace('_', " "), self.setting);
        let (status, why) = match refused {
            Refused::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("too many {name} are under way ({setting}); try again"),
            ),
            Refused::Caller => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "this caller has its share of the {name} ({setting}): as much as it leaves free; try again"
                ),
            ),
            Refused::Tenant => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "the callers of this tenant have their share of the {name} ({setting}): three times what they leave \
                     free; try again"
                ),
            ),
        };
        Problem { status, ..Problem::new(Code::Overloaded, why) }
    }
}

/// A place in a pool, until this is dropped.
pub struct Place {
    pool: Arc<Pool>,
    who: Option<Holder>,
    amount: usize,
}

impl Place {
    /// Counts the place as this caller's.
    ///
    /// # Errors
    /// 429: the caller or its tenant has its share.
    pub fn claim(&mut self, who: Holder) -> Result<(), Problem> {
        let claimed = self.pool.held().claim(self.pool.size, who, self.amount);
        claimed.map_err(|refused| self.pool.refusal(refused))?;
        self.who = Some(who);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.pool.held();
        held.give_back(self.who, self.amount);
        self.pool.count(held.all);
        drop(held);
        self.pool.freed.notify_waiters();
    }
}

/// The pools of a broker.
pub struct Pools {
    hasher: RandomState,
    /// Requests at work.
    pub requests: Arc<Pool>,
    /// Requests that wait (long polls, `Prefer: wait`), apart from those that work.
    pub waits: Arc<Pool>,
    /// Live streams.
    pub streams: Arc<Pool>,
    /// Large bodies under way, in KiB.
    pub large_bodies: Arc<Pool>,
}

impl Pools {
    /// The pools by the settings.
    #[must_use]
    pub fn new(config: &Config, metrics: &Arc<Metrics>) -> Self {
        let server = &config.server;
        let large = server.max_large_bytes.max(server.max_body_bytes) / 1024;
        let pool = |names, size| Pool::new(names, size, metrics);
        Self {
            hasher: RandomState::new(),
            requests: pool(("requests", "server.max_requests"), server.max_requests),
            waits: pool(("waits", "server.max_waits"), server.max_waits),
            streams: pool(("streams", "events.max_streams"), config.events.max_streams),
            large_bodies: pool(("large_bodies", "server.max_large_bytes"), large.max(1)),
        }
    }

    /// A caller as the pools count it; those without a key are one.
    #[must_use]
    pub fn holder(&self, principal: Option<&Principal>) -> Holder {
        let Some(principal) = principal else { return Holder { tenant: 0, caller: 0 } };
        let caller = principal.agent.as_ref().map_or(principal.key_id.as_str(), AgentId::as_str);
        Holder {
            tenant: self.hasher.hash_one(principal.tenant.as_str()),
            caller: self.hasher.hash_one((principal.agent.is_some(), caller)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(size: usize) -> Arc<Pool> {
        Pool::new(("waits", "server.max_waits"), size, &Arc::new(Metrics::new().unwrap()))
    }

    const fn who(tenant: u64, caller: u64) -> Holder {
        Holder { tenant, caller }
    }

    fn taken(pool: &Arc<Pool>, who: Holder) -> Vec<Place> {
        std::iter::from_fn(|| pool.take(Some(who), 1).ok()).collect()
    }

    #[test]
    fn one_caller_leaves_half_and_one_tenant_a_quarter() {
        let pool = pool(100);
        let first = taken(&pool, who(1, 1));
        assert_eq!(first.len(), 51);
        assert_eq!(pool.take(Some(who(1, 1)), 1).err(), Some(Refused::Caller));
        let second = taken(&pool, who(1, 2));
        assert_eq!(pool.take(Some(who(1, 3)), 1).err(), Some(Refused::Tenant));
        assert!(first.len() + second.len() <= 76);
        let other = taken(&pool, who(2, 1));
        assert!(other.len() >= 10, "{} places of another tenant", other.len());
        let third = taken(&pool, who(3, 1));
        assert!(!third.is_empty());
        drop(first);
        assert!(pool.take(Some(who(1, 2)), 1).is_ok());
        drop((second, other, third));
        let held = pool.held();
        assert_eq!((held.all, held.tenants.len(), held.callers.len()), (0, 0, 0));
    }

    #[test]
    fn a_small_pool_serves_one_caller_whole_and_a_full_one_nobody() {
        let pool = pool(2);
        let both = taken(&pool, who(1, 1));
        assert_eq!(both.len(), 2);
        assert_eq!(pool.take(None, 1).err(), Some(Refused::Full));
        assert_eq!(pool.take(Some(who(2, 1)), 1).err(), Some(Refused::Full));
    }

    #[test]
    fn a_place_that_no_share_allows_is_given_back() {
        let pool = pool(4);
        let _held = taken(&pool, who(1, 1));
        let before = pool.held().all;
        let mut place = pool.take(None, 1).unwrap();
        assert_eq!(place.claim(who(1, 1)).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        drop(place);
        assert_eq!(pool.held().all, before);
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_is_freed() {
        let pool = pool(2);
        let mut held = taken(&pool, who(1, 1));
        let waiting = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.wait_for(who(2, 1), 1, Duration::from_mins(10)).await.is_ok() }
        });
        tokio::task::yield_now().await;
        held.pop();
        assert!(waiting.await.unwrap());
        let refused = pool.wait_for(who(1, 1), 2, Duration::ZERO).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
