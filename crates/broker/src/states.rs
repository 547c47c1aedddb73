//! The states that records commit to, while a broker serves: rows without one are adopted at a start, and a key, a contract or
//! a legal hold whose row differs gets no service.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::archive::Contents;
use crate::audit::states::read_on;
use crate::directory::{RowGuard, WithheldContracts};
use crate::ledger::Ledger;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::AdoptStates;
use crate::ledger::reply::LedgerError;
use crate::metrics::Metrics;
use crate::vault::{AgentSecrets, Vault};
use handoffd_domain::canonical;
use handoffd_domain::event::Subscriber;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::commitment::hash_of_text;
use handoffd_evidence::record::{Actor, StateObject};
use handoffd_evidence::verify::states::{Judgement, StateBook, version_key};
use handoffd_store::clock::Clock;
use handoffd_store::store::cold::ExclusiveLease;
use handoffd_store::store::contracts::ContractRow;
use handoffd_store::store::states::{
    ObjectState, list_all_holds, list_states, of_contract, of_hold, of_key,
};
use handoffd_store::store::{KeyRow, Store, StoreError};

/// Most objects of one record, and the bytes after which another one begins: a content stays far below what it may be.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// How long one adoption may take before another broker takes it over.
const LEASE: Duration = Duration::from_mins(1);

/// How long a start waits for another broker's adoption.
const PATIENCE: Duration = Duration::from_secs(20);

/// The inputs of an adoption.
pub struct Adoption<'a> {
    pub store: &'a Arc<Store>,
    pub contents: &'a Contents,
    pub ledger: &'a Ledger,
    pub vault: &'a Vault,
    pub clock: &'a dyn Clock,
    pub broker: &'a str,
}

impl Adoption<'_> {
    /// Commits to the rows of all tenants that no record commits to. Of brokers that start together one does.
    ///
    /// # Errors
    /// The store or the ledger does not answer.
    pub async fn run(&self) -> Result<u64, LedgerError> {
        let mut adopted = 0;
        for tenant in self.store.list_tenants().await.map_err(refused)? {
            if self.missing(&tenant).await?.1.is_empty() {
                continue;
            }
            let lease =
                ExclusiveLease { name: format!("states/{tenant}"), owner: self.broker.to_owned() };
            if !self.hold(&lease).await? {
                tracing::warn!(%tenant, "another broker adopts the rows of this tenant");
                continue;
            }
            let done = self.adopt(&tenant).await;
            if let Err(err) = self.store.release_lease(&lease).await {
                tracing::debug!(error = %err, "a lease could not be released; it expires by itself");
            }
            adopted += done?;
        }
        Ok(adopted)
    }

    async fn hold(&self, lease: &ExclusiveLease) -> Result<bool, LedgerError> {
        let begun = Instant::now();
        loop {
            let now = self.clock.now();
            if self.store.take_lease(lease, now, now.plus(LEASE)).await.map_err(refused)? {
                return Ok(true);
            }
            if begun.elapsed() > PATIENCE {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The log's size, and the objects that no record commits to as their rows have them, read after it.
    async fn missing(&self, tenant: &TenantId) -> Result<(i64, Vec<ObjectState>), LedgerError> {
        let store = &**self.store;
        let head = store.find_head(tenant).await.map_err(refused)?;
        let rows = list_states(store, tenant).await.map_err(refused)?;
        let mut book = StateBook::default();
        let into = (&mut book, 0);
        read_on(store, Some(self.contents), tenant, into).await.map_err(refused)?;
        let is_missing = |row: &ObjectState| {
            let judged = book.judge(row.object, (&row.id, row.agent.as_deref()), &row.state);
            judged == Judgement::Uncommitted
        };
        Ok((head.map_or(0, |head| head.size), rows.into_iter().filter(is_missing).collect()))
    }

    async fn adopt(&self, tenant: &TenantId) -> Result<u64, LedgerError> {
        let (as_of, rows) = self.missing(tenant).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let now = self.clock.now();
        let mut pages = Vec::new();
        let (mut states, mut bytes) = (Vec::new(), 0);
        for (place, row) in rows.iter().enumerate() {
            let entry = self.entry(tenant, row);
            bytes += entry.to_string().len();
            states.push(entry);
            if states.len() == PAGE || bytes >= PAGE_BYTES || place + 1 == rows.len() {
                let objects = states.len() as u64;
                let said = json!({ "states": std::mem::take(&mut states) });
                pages.push((objects, content(&canonical::to_vec(&said), now)));
                bytes = 0;
            }
        }
        let call = Call { tenant: tenant.clone(), at: now, actor: Actor::broker() };
        let command = AdoptStates { as_of, pages };
        self.ledger.handle(call, command).await?;
        let objects = rows.len();
        tracing::info!(%tenant, objects, "committed to the rows that earlier versions wrote");
        Ok(objects as u64)
    }

    fn entry(&self, tenant: &TenantId, row: &ObjectState) -> serde_json::Value {
        let mut state = row.state.clone();
        if let Some(text) = &row.sealed {
            let secrets = AgentSecrets::parse(text);
            let commitment = match (row.object, row.id.parse()) {
                (StateObject::Subscription, Ok(id)) => {
                    secrets.commitment(self.vault, tenant, &Subscriber::Subscription(id))
                }
                _ => secrets.commitment(self.vault, tenant, &row.id),
            };
            if let Ok(commitment) = commitment {
                state["secrets"] = json!(commitment);
            }
        }
        json!({ "object": row.object, "id": row.id, "state": state })
    }
}

fn refused(err: StoreError) -> LedgerError {
    match err {
        StoreError::Refused(why) => LedgerError::Internal(why),
        _ => LedgerError::Unavailable,
    }
}

/// A tenant's committed states as this broker read them.
struct TenantBook {
    book: StateBook,
    /// The leaf index up to which the log was read.
    from: i64,
    read: Option<Instant>,
}

/// Compares rows with the states that the log commits to when they are loaded.
pub struct StateGuard {
    store: Arc<Store>,
    contents: Contents,
    metrics: Arc<Metrics>,
    /// How long a reading of the log counts.
    ttl: Duration,
    books: Mutex<HashMap<TenantId, Arc<Mutex<Option<TenantBook>>>>>,
}

impl StateGuard {
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        contents: Contents,
        metrics: Arc<Metrics>,
        ttl: Duration,
    ) -> Self {
        Self { store, contents, metrics, ttl, books: Mutex::default() }
    }

    /// Asks a tenant's book, read again where `fresh` says so or where its time is over.
    async fn ask<T>(
        &self,
        tenant: &TenantId,
        fresh: bool,
        question: impl FnOnce(&StateBook) -> T,
    ) -> Result<T, StoreError> {
        let place = Arc::clone(self.books.lock().await.entry(tenant.clone()).or_default());
        let mut place = place.lock().await;
        let known = place.take().unwrap_or_else(|| TenantBook {
            book: StateBook::default(),
            from: 0,
            read: None,
        });
        let TenantBook { mut book, mut from, mut read } = known;
        if fresh || read.is_none_or(|at: Instant| at.elapsed() >= self.ttl) {
            if fresh {
                self.store.settle_log(tenant).await?;
            }
            let into = (&mut book, from);
            from = read_on(&self.store, Some(&self.contents), tenant, into).await?;
            read = Some(Instant::now());
        }
        let answer = question(&book);
        *place = Some(TenantBook { book, from, read });
        Ok(answer)
    }

    /// Why a row gets no service; `None` where it may.
    async fn judge(
        &self,
        tenant: &TenantId,
        row: &ObjectState,
        fresh: bool,
    ) -> Result<Option<String>, StoreError> {
        self.ask(tenant, fresh, |book| judged(book, row)).await
    }

    fn tell(&self, tenant: &TenantId, object: StateObject, id: &str, why: &str) {
        self.metrics.state_mismatches.with_label_values(&[object.as_str()]).inc();
        tracing::error!(
            %tenant,
            object = object.as_str(),
            id,
            why,
            "a row is not what the log commits to, and gets no service: run handoffd verify"
        );
    }
}

fn judged(book: &StateBook, row: &ObjectState) -> Option<String> {
    match book.judge(row.object, (&row.id, row.agent.as_deref()), &row.state) {
        Judgement::Same | Judgement::Unread | Judgement::Uncommitted => None,
        Judgement::Differs { leaf_index, difference } => {
            Some(format!("record {leaf_index} has another {}", difference.pointer))
        }
        Judgement::Added(Some(leaf_index)) => Some(format!("record {leaf_index} removed it")),
        Judgement::Added(None) => Some("no record knows it".to_owned()),
    }
}

#[async_trait]
impl RowGuard for StateGuard {
    async fn refuses_key(&self, row: &KeyRow) -> Result<bool, StoreError> {
        let state = of_key(row);
        if self.judge(&row.tenant, &state, false).await?.is_none() {
            return Ok(false);
        }
        // Both may have changed between the reads.
        let Some(now) = self.store.find_key(&row.hash).await? else { return Ok(true) };
        let state = of_key(&now);
        match self.judge(&row.tenant, &state, true).await? {
            None => Ok(now != *row),
            Some(why) => {
                self.tell(&row.tenant, StateObject::Key, &row.key_id, &why);
                Ok(true)
            }
        }
    }

    async fn withheld_contracts(
        &self,
        tenant: &TenantId,
        rows: &[ContractRow],
        whole: bool,
    ) -> Result<WithheldContracts, StoreError> {
        let find = |book: &StateBook| {
            let mut withheld = WithheldContracts::default();
            for row in rows {
                if let Some(why) = judged(book, &of_contract(row)) {
                    withheld.ids.insert(row.id.clone(), why);
                }
            }
            let there: std::collections::HashSet<String> =
                rows.iter().map(|row| version_key(&row.id, &row.version)).collect();
            for (key, leaf_index, state) in book.states(StateObject::Contract) {
                let Some((id, version)) = key.split_once(' ') else { continue };
                let gone = whole && !there.contains(key);
                if gone {
                    let why =
                        format!("record {leaf_index} put version {version}, and its row is gone");
                    withheld.ids.entry(id.to_owned()).or_insert(why);
                }
                if withheld.ids.contains_key(id) {
                    withheld.rows.extend(committed_contract(tenant, (id, version), state));
                }
            }
            withheld
        };
        if self.ask(tenant, false, &find).await?.ids.is_empty() {
            return Ok(WithheldContracts::default());
        }
        let withheld = self.ask(tenant, true, &find).await?;
        for (id, why) in &withheld.ids {
            self.tell(tenant, StateObject::Contract, id, why);
        }
        Ok(withheld)
    }

    async fn withheld_hold(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<(String, String)>, StoreError> {
        for last in [false, true] {
            let holds = list_all_holds(&self.store, tenant).await?;
            let found = self
                .ask(tenant, true, |book| {
                    let differs = holds.iter().find_map(|hold| {
                        let state = of_hold(hold);
                        judged(book, &state).map(|why| (hold.id.clone(), why))
                    });
                    differs.or_else(|| {
                        let gone = book.present(StateObject::LegalHold);
                        let mut gone =
                            gone.filter(|(id, _)| holds.iter().all(|hold| hold.id != *id));
                        gone.next().map(|(id, leaf_index)| {
                            (
                                id.to_owned(),
                                format!("record {leaf_index} placed it, and its row is gone"),
                            )
                        })
                    })
                })
                .await?;
            let Some((id, why)) = found else { return Ok(None) };
            if last {
                self.tell(tenant, StateObject::LegalHold, &id, &why);
                return Ok(Some((id, why)));
            }
        }
        Ok(None)
    }
}

/// A version of a contract as its record has it.
fn committed_contract(
    tenant: &TenantId,
    (id, version): (&str, &str),
    state: &serde_json::Value,
) -> Option<ContractRow> {
    let doc = canonical::to_vec(state.get("doc")?);
    let text = |name: &str| Some(state.get(name)?.as_str()?.to_owned());
    Some(ContractRow {
        tenant: tenant.clone(),
        id: id.to_owned(),
        version: version.to_owned(),
        sha256: hash_of_text(&text("sha256")?)?,
        doc: String::from_utf8(doc).ok()?,
        source: text("source")?,
        target: text("target")?,
        created_at: Micros(state.get("createdAt")?.as_i64()?),
    })
}
