//! Directory of keys and agents, read for each request through a short cache. This broker's own changes take effect at
//! once, another broker's within `auth.cache_ttl_ms`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use moka::future::Cache;

use crate::vault::hash_api_key;
use handoffd_domain::agent::Agent;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::roster::Roster;
use handoffd_evidence::record::Actor;
use handoffd_gate::contract;
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::shelf::{SchemaName, SchemaRegistry};
use handoffd_gate::relevance::Relevance;
use handoffd_store::clock::Clock;
use handoffd_store::store::contracts::ContractRow;
use handoffd_store::store::schemas::PayloadSchemaRow;
use handoffd_store::store::{AgentRow, KeyRow, Role, Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub role: Role,
    /// The caller's agent, for [`Role::Agent`].
    pub agent: Option<AgentId>,
    /// Id of the API key; empty where the broker acts in the caller's name.
    pub key_id: String,
}

impl Principal {
    /// An agent that is known by its signature instead of by a key.
    #[must_use]
    pub fn by_signature(tenant: &TenantId, agent: &AgentId) -> Self {
        Self {
            tenant: tenant.clone(),
            role: Role::Agent,
            agent: Some(agent.clone()),
            key_id: Actor::BY_SIGNATURE.to_owned(),
        }
    }
}

/// The agents of one tenant with their stored rows.
#[derive(Debug, Default)]
pub struct Agents {
    /// The routing view of the agents.
    pub roster: Roster,
    rows: HashMap<AgentId, Arc<AgentRow>>,
    relevance: OnceLock<Relevance>,
}

impl Agents {
    fn new(rows: Vec<AgentRow>, open: &HashMap<AgentId, i64>) -> Self {
        let roster = Roster::new(rows.iter().map(|row| row.agent.clone()).collect(), open);
        let rows = rows.into_iter().map(|row| (row.agent.agent_id.clone(), Arc::new(row)));
        Self { roster, rows: rows.collect(), relevance: OnceLock::new() }
    }

    /// A copy with changed rows; unchanged ones are shared.
    fn with(&self, changed: Vec<(AgentId, Option<AgentRow>)>) -> Self {
        let (mut roster, mut rows) = (self.roster.clone(), self.rows.clone());
        for (id, row) in changed {
            if let Some(row) = row {
                roster.put(row.agent.clone());
                rows.insert(id, Arc::new(row));
            } else {
                roster.remove(&id);
                rows.remove(&id);
            }
        }
        Self { roster, rows, relevance: OnceLock::new() }
    }
}

impl Agents {
    #[must_use]
    pub fn row(&self, id: &AgentId) -> Option<&AgentRow> {
        self.rows.get(id).map(Arc::as_ref)
    }

    /// Text index of the agents, built at the first call.
    pub fn relevance(&self) -> &Relevance {
        self.relevance.get_or_init(|| Relevance::of(self.roster.iter()))
    }
}

/// Agents with their scores, best first.
pub type Ranking = Vec<(f64, AgentId)>;

/// An external service that ranks agents for a task.
#[async_trait]
pub trait Matcher: Send + Sync {
    /// Largest number of agents in one request.
    fn most(&self) -> usize;
    /// The matcher's code name.
    fn name(&self) -> &str;
    /// Ranks the agents with scores from 0 to 1, within a bounded time.
    ///
    /// # Errors
    /// The reason why no answer came.
    async fn rank(&self, task: &str, agents: &[&Agent]) -> Result<Ranking, String>;
}

/// A tenant's agents, and the change count at which they were read.
type VersionedAgents = (i64, Arc<Agents>);

/// Cached look-ups of keys, agents and contracts.
pub struct Directory {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    keys: Cache<Vec<u8>, Option<KeyRow>>,
    /// With what `changes` was when they were looked at.
    agents: Cache<TenantId, (u64, Arc<Agents>)>,
    /// As read last, and kept longer: most often nothing has changed since.
    known: Cache<TenantId, VersionedAgents>,
    /// Changes of agents by this broker. A look that began before the last one does not count: it may
    /// have begun before a change and ended after it.
    changes: AtomicU64,
    contracts: Cache<TenantId, Arc<Catalog>>,
    /// As read last, with the number of versions, and kept longer as well.
    read: Cache<TenantId, (i64, Arc<Catalog>)>,
    /// Agents whose open handoffs were counted lately.
    counted: Cache<TenantId, ()>,
    /// Without one every row is served as it is.
    guard: Option<Arc<dyn RowGuard>>,
}

/// Contracts whose rows are not what their records say.
#[derive(Debug, Default)]
pub struct WithheldContracts {
    /// Their ids, with the reason.
    pub ids: BTreeMap<String, String>,
    /// All their versions as the records have them.
    pub rows: Vec<ContractRow>,
}

/// Compares rows with what the log commits to when they are loaded.
#[async_trait]
pub trait RowGuard: Send + Sync {
    /// Whether a key gets no service.
    ///
    /// # Errors
    /// The store is not available.
    async fn refuses_key(&self, row: &KeyRow) -> Result<bool, StoreError>;

    /// The contracts among these that are not what their records say; where these are all, also those that are gone.
    ///
    /// # Errors
    /// The store is not available.
    async fn withheld_contracts(
        &self,
        tenant: &TenantId,
        rows: &[ContractRow],
        whole: bool,
    ) -> Result<WithheldContracts, StoreError>;

    /// A legal hold whose row is not what its records say, and why: nothing of the tenant is erased until it is mended.
    ///
    /// # Errors
    /// The store is not available.
    async fn withheld_hold(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<(String, String)>, StoreError>;
}

/// A contract from its row, or as it was made ready before.
fn ready(
    row: &ContractRow,
    before: &Catalog,
    shelf: &SchemaRegistry,
) -> Result<Arc<CompiledContract>, StoreError> {
    let sha256 = hex::encode(row.sha256);
    let version = row.version.parse().ok();
    let known = version.and_then(|version| before.find(&row.id, Some(&version)));
    if let Some(known) = known.filter(|known| known.sha256() == sha256) {
        return Ok(Arc::clone(known));
    }
    let value = serde_json::from_str(&row.doc).map_err(|err| {
        StoreError::Refused(format!("contract {} {} cannot be read: {err}", row.id, row.version))
    })?;
    // The linter named its faults when it was put.
    let (mut contract, _) = contract::read(&Document::from_value(value));
    shelf.complete(&mut contract);
    Ok(Arc::new(CompiledContract::new(contract, row.doc.clone(), sha256, row.created_at)))
}

/// Payload schemas from their rows.
///
/// # Errors
/// A stored document is not a version of a schema.
pub fn shelf(rows: &[PayloadSchemaRow]) -> Result<SchemaRegistry, StoreError> {
    let mut shelf = SchemaRegistry::default();
    for row in rows {
        let wrong = |why: String| {
            StoreError::Refused(format!("payload schema {} {}: {why}", row.id, row.version))
        };
        let name = SchemaName::new(&row.id, &row.version).map_err(wrong)?;
        shelf.put(name, serde_json::from_str(&row.doc).map_err(|err| wrong(err.to_string()))?);
    }
    Ok(shelf)
}

/// Time after which unused agents and contracts of a tenant leave memory.
const KEPT_UNUSED: Duration = Duration::from_hours(1);
/// How far back contracts are looked at once more, in microseconds: clocks of brokers differ, and the
/// first to begin may be the last to commit. An older contract that the look missed is missing in the
/// count, and then all are read.
const CLOCKS_APART: i64 = 600_000_000;
/// Largest number of cached keys, unknown ones included.
const MAX_KEYS: u64 = 100_000;
/// Interval of the count of open handoffs: the count reads all of them, and routing uses it only as a preference.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Largest number of cached tenants.
const MAX_TENANTS: u64 = 10_000;

impl Directory {
    /// A directory over a store; `ttl` bounds the age of an answer.
    #[must_use]
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        let keys = Cache::builder().max_capacity(MAX_KEYS).time_to_live(ttl).build();
        let agents = Cache::builder().max_capacity(MAX_TENANTS).time_to_live(ttl).build();
        let contracts = Cache::builder().max_capacity(MAX_TENANTS).time_to_live(ttl).build();
        let known = Cache::builder().max_capacity(MAX_TENANTS).time_to_idle(KEPT_UNUSED).build();
        let read = Cache::builder().max_capacity(MAX_TENANTS).time_to_idle(KEPT_UNUSED).build();
        let counted = Cache::builder().max_capacity(MAX_TENANTS).time_to_live(COUNT_EVERY).build();
        let changes = AtomicU64::new(0);
        let guard = None;
        Self { store, clock, keys, agents, known, changes, contracts, read, counted, guard }
    }

    /// The same, with rows compared with what the log commits to.
    #[must_use]
    pub fn guarded(self, guard: Arc<dyn RowGuard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// A legal hold whose row is not what its records say, and why.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn withheld_hold(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<(String, String)>, StoreError> {
        match &self.guard {
            Some(guard) => guard.withheld_hold(tenant).await,
            None => Ok(None),
        }
    }

    /// Resolves an API key; `None` if the key is unknown, expired or revoked.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn authenticate(&self, key: &str) -> Result<Option<Principal>, Arc<StoreError>> {
        let hash = hash_api_key(key);
        let store = Arc::clone(&self.store);
        let row = self
            .keys
            .try_get_with_by_ref(&hash, async { self.look_up(&store, &hash).await })
            .await?;
        match row {
            Some(row) => self.caller(row).await,
            None => Ok(None),
        }
    }

    /// The caller of a key's row that was just read; `None` if the key is expired, revoked, or not what its record says.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn principal_of(&self, row: KeyRow) -> Result<Option<Principal>, Arc<StoreError>> {
        if let Some(guard) = &self.guard
            && guard.refuses_key(&row).await.map_err(Arc::new)?
        {
            return Ok(None);
        }
        self.caller(row).await
    }

    async fn caller(&self, row: KeyRow) -> Result<Option<Principal>, Arc<StoreError>> {
        let now = self.clock.now();
        if row.expires_at.is_some_and(|until| now >= until) {
            return Ok(None);
        }
        if let Some(agent) = &row.agent {
            // The keys of an agent that was removed are dead, also when another takes its id.
            let is_dead = |agents: &Agents| {
                agents.row(agent).is_none_or(|found| row.created_at < found.created_at)
            };
            let agents = self.agents(&row.tenant).await?;
            if is_dead(&agents)
                && self.newer_agents(&row.tenant, &agents).await?.is_none_or(|now| is_dead(&now))
            {
                return Ok(None);
            }
        }
        Ok(Some(Principal {
            tenant: row.tenant,
            role: row.role,
            agent: row.agent,
            key_id: row.key_id,
        }))
    }

    /// Finds a key in the store, and notes its use without delaying the caller: at most once in the time of the cache.
    async fn look_up(&self, store: &Arc<Store>, hash: &[u8]) -> Result<Option<KeyRow>, StoreError> {
        let found = store.find_key(hash).await?;
        if let (Some(guard), Some(row)) = (&self.guard, &found)
            && guard.refuses_key(row).await?
        {
            return Ok(None);
        }
        if found.is_some() {
            let (store, hash, now) = (Arc::clone(store), hash.to_vec(), self.clock.now());
            tokio::spawn(async move {
                if let Err(err) = store.note_key_use(&hash, now).await {
                    tracing::debug!(error = %err, "the use of a key could not be noted");
                }
            });
        }
        Ok(found)
    }

    /// The agents of a tenant.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn agents(&self, tenant: &TenantId) -> Result<Arc<Agents>, Arc<StoreError>> {
        let changes = self.changes.load(Ordering::Acquire);
        loop {
            let (seen, agents) = self
                .agents
                .try_get_with_by_ref(tenant, async {
                    let seen = self.changes.load(Ordering::Acquire);
                    Ok((seen, self.refresh_agents(tenant).await?))
                })
                .await?;
            if seen >= changes {
                return Ok(agents);
            }
            self.agents.invalidate(tenant).await;
        }
    }

    /// The agents of a tenant as the store has them now; `None` if `cached` has the same. A refusal asks before it is
    /// final: another broker may have registered the agent a moment ago.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn newer_agents(
        &self,
        tenant: &TenantId,
        cached: &Arc<Agents>,
    ) -> Result<Option<Arc<Agents>>, Arc<StoreError>> {
        let seen = self.changes.load(Ordering::Acquire);
        let agents = self.refresh_agents(tenant).await.map_err(Arc::new)?;
        if Arc::ptr_eq(&agents, cached) {
            return Ok(None);
        }
        self.agents.insert(tenant.clone(), (seen, Arc::clone(&agents))).await;
        Ok(Some(agents))
    }

    /// Refreshes a tenant's agents: reads the changed rows only.
    async fn refresh_agents(&self, tenant: &TenantId) -> Result<Arc<Agents>, StoreError> {
        // Before the agents: what changes meanwhile is read again with the next look, and does no harm.
        let changes = self.store.count_agent_changes(tenant).await?;
        let known = self.known.get(tenant).await;
        let agents = match known {
            Some((then, agents)) if then == changes => {
                self.count_open(tenant, &agents).await;
                return Ok(agents);
            }
            Some((then, agents)) if then < changes => {
                let changed = self.store.list_changed_agents(tenant, then).await?;
                let agents = Arc::new(agents.with(changed));
                self.count_open(tenant, &agents).await;
                agents
            }
            // Fewer than there were: this is an older state of the database.
            _ => {
                let rows = self.store.list_agents(tenant).await?;
                let open = self.store.count_open(tenant).await?;
                self.counted.insert(tenant.clone(), ()).await;
                Arc::new(Agents::new(rows, &open))
            }
        };
        self.known.insert(tenant.clone(), (changes, Arc::clone(&agents))).await;
        Ok(agents)
    }

    /// Counts the open handoffs from time to time, without delaying a caller.
    async fn count_open(&self, tenant: &TenantId, agents: &Arc<Agents>) {
        if self.counted.contains_key(tenant) {
            return;
        }
        self.counted.insert(tenant.clone(), ()).await;
        let (store, tenant) = (Arc::clone(&self.store), tenant.clone());
        let agents = Arc::clone(agents);
        tokio::spawn(async move {
            match store.count_open(&tenant).await {
                Ok(open) => agents.roster.recount(&open),
                Err(err) => tracing::debug!(error = %err, "open handoffs were not counted"),
            }
        });
    }

    /// The contracts of a tenant. New versions since the last read are loaded.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn contracts(&self, tenant: &TenantId) -> Result<Arc<Catalog>, Arc<StoreError>> {
        self.contracts
            .try_get_with_by_ref(tenant, async {
                let versions = self.store.count_contracts(tenant).await?;
                let known = self.read.get(tenant).await;
                if let Some((_, catalog)) = known.as_ref().filter(|(then, _)| *then == versions) {
                    return Ok(Arc::clone(catalog));
                }
                let (versions, catalog) = self.read_contracts(tenant, known, versions).await?;
                let catalog = Arc::new(catalog);
                // Read anew until it is mended.
                if !catalog.withholds() {
                    self.read.insert(tenant.clone(), (versions, Arc::clone(&catalog))).await;
                }
                Ok(catalog)
            })
            .await
    }

    /// A tenant's contracts, of which there are so many versions at least: those known and what was put
    /// since, where that is all.
    async fn read_contracts(
        &self,
        tenant: &TenantId,
        known: Option<(i64, Arc<Catalog>)>,
        versions: i64,
    ) -> Result<(i64, Catalog), StoreError> {
        let (then, before) = known.unwrap_or_default();
        // Fewer than there were: this is an older state of the database.
        if then <= versions
            && let Some(newest) = before.newest()
        {
            let since = Micros(newest.0.saturating_sub(CLOCKS_APART));
            let rows = self.store.list_contracts(tenant, Some(since)).await?;
            let contracts = self.made_ready(tenant, &rows, &before).await?;
            let known = |ready: &&Arc<CompiledContract>| {
                let contract = ready.contract();
                before.find(&contract.id, Some(&contract.version())).is_some()
            };
            let new = contracts.iter().filter(|ready| !known(ready)).count();
            let now = then.saturating_add(i64::try_from(new).unwrap_or(i64::MAX));
            if now >= versions {
                let more = before.with(contracts);
                return Ok((now, self.withhold(tenant, &rows, false, more).await?));
            }
        }
        let rows = self.store.list_contracts(tenant, None).await?;
        let versions = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        let catalog = Catalog::new(self.made_ready(tenant, &rows, &before).await?);
        Ok((versions, self.withhold(tenant, &rows, true, catalog).await?))
    }

    /// A catalog in which contracts that are not what their records say stand as the records have them, and rule nothing.
    async fn withhold(
        &self,
        tenant: &TenantId,
        rows: &[ContractRow],
        whole: bool,
        catalog: Catalog,
    ) -> Result<Catalog, StoreError> {
        let Some(guard) = &self.guard else { return Ok(catalog) };
        let WithheldContracts { ids, rows } = guard.withheld_contracts(tenant, rows, whole).await?;
        if ids.is_empty() {
            return Ok(catalog);
        }
        let committed = self.made_ready(tenant, &rows, &Catalog::default()).await?;
        Ok(catalog.with(committed).withholding(ids))
    }

    async fn made_ready(
        &self,
        tenant: &TenantId,
        rows: &[ContractRow],
        before: &Catalog,
    ) -> Result<Vec<Arc<CompiledContract>>, StoreError> {
        // Read after the contracts: whatever they name was registered before them.
        let asked = rows.iter().any(|row| SchemaRegistry::is_asked(&row.doc));
        let shelf = if asked { self.shelf(tenant).await? } else { SchemaRegistry::default() };
        rows.iter().map(|row| ready(row, before, &shelf)).collect()
    }

    /// The current payload schemas of a tenant.
    ///
    /// # Errors
    /// The store is not available.
    pub async fn shelf(&self, tenant: &TenantId) -> Result<SchemaRegistry, StoreError> {
        shelf(&self.store.list_payload_schemas(tenant, None).await?)
    }

    /// Invalidates a tenant's cached contracts.
    pub async fn contracts_changed(&self, tenant: &TenantId) {
        self.contracts.invalidate(tenant).await;
    }

    /// Invalidates a tenant's cached agents.
    pub async fn agents_changed(&self, tenant: &TenantId) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.agents.invalidate(tenant).await;
    }

    /// Invalidates a cached key.
    pub async fn key_changed(&self, row: &KeyRow) {
        self.keys.invalidate(&row.hash).await;
    }
}
