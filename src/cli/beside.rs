//! A ledger for a few commands beside a broker.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::app::{Access, ledger_settings, open_store};
use handoffd_broker::config::Config;
use handoffd_broker::ledger::command::Call;
use handoffd_broker::ledger::commands::Queued;
use handoffd_broker::ledger::{DeliverySlot, Ledger, Outbound};
use handoffd_broker::metrics::Metrics;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::record::{Actor, ActorRole};
use handoffd_store::store::{DeliveryClaim, ReceiverKey, Store, StoreError};

/// A dispatcher that delivers nothing.
struct NoDelivery;

impl Outbound for NoDelivery {
    fn reserve(&self, _: &ReceiverKey) -> Option<DeliverySlot> {
        None
    }
    fn deliver(&self, _: DeliverySlot, _: DeliveryClaim) {}
    fn release(&self, _: DeliverySlot, _: &ReceiverKey, _: bool) {}
    fn nudge(&self, _: &ReceiverKey) {}
    fn nudge_all(&self) {}
}

/// The tenant that a command names, which must have a log; or all.
pub(super) async fn tenants(
    store: &Store,
    named: Option<&TenantId>,
) -> Result<Vec<TenantId>, StoreError> {
    let Some(tenant) = named else { return store.list_tenants().await };
    match store.find_head(tenant).await? {
        Some(_) => Ok(vec![tenant.clone()]),
        None => Err(StoreError::Refused(format!("tenant {tenant} has no log"))),
    }
}

/// A store and a ledger for one command.
pub(super) struct LocalLedger {
    pub(super) store: Arc<Store>,
    pub(super) ledger: Ledger,
    tracker: TaskTracker,
}

impl LocalLedger {
    /// Opens the store; one that may be made is brought up to this version's schema.
    pub(super) async fn open(config: &Config, access: Access) -> Result<Self, String> {
        let text = |err: &dyn std::fmt::Display| err.to_string();
        let store = open_store(config, access).await.map_err(|err| text(&err))?;
        if access != Access::Beside {
            store.migrate().await.map_err(|err| text(&err))?;
        }
        let metrics = Arc::new(Metrics::new().map_err(|err| text(&err))?);
        let tracker = TaskTracker::new();
        let ledger = Ledger::start(
            Arc::clone(&store),
            Arc::new(NoDelivery),
            metrics,
            Arc::default(),
            ledger_settings(config),
            "command-line".to_owned(),
            &tracker,
        );
        Ok(Self { store, ledger, tracker })
    }

    /// Applies a command in an operator's name.
    pub(super) async fn handle(
        &self,
        tenant: TenantId,
        at: Micros,
        command: impl Queued,
    ) -> Result<(), String> {
        let actor = Actor { role: ActorRole::Operator, agent_id: None, key_id: None };
        let done = self.ledger.handle(Call { tenant, at, actor }, command).await;
        done.map(|_| ()).map_err(|err| err.to_string())
    }

    pub(super) async fn close(self) {
        self.ledger.close();
        self.tracker.close();
        self.tracker.wait().await;
        self.store.close().await;
    }
}
