//! Which tenants have caps: looked up now and then, so that a batch of any other tenant does not ask.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::domain::ids::{Micros, TenantId};
use crate::store::{Needs, Result, Store};

/// How old the list may be: a tenant's first cap counts at another broker this late. Changes of a cap that
/// is known, and all that counts against it, are read under its lock.
const TTL: Duration = Duration::from_secs(1);

/// The tenants that have caps, as this broker knows.
#[derive(Default)]
pub(super) struct Capped {
    known: Mutex<Option<(Micros, Arc<BTreeSet<TenantId>>)>>,
}

impl Capped {
    /// Leaves out of what a batch must see the caps of tenants that have none.
    pub(super) async fn narrow(
        &self,
        store: &dyn Store,
        at: Micros,
        needs: &mut Needs,
    ) -> Result<()> {
        if needs.caps.is_empty() {
            return Ok(());
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fresh = known.filter(|(then, _)| *then <= at && at.since(*then) < TTL);
        let capped = match fresh {
            Some((_, capped)) => capped,
            None => {
                let capped = Arc::new(store.list_capped().await?.into_iter().collect());
                let now = Some((at, Arc::clone(&capped)));
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = now;
                capped
            }
        };
        needs.caps.retain(|tenant, _| capped.contains(tenant));
        Ok(())
    }

    /// A cap was set here.
    pub(super) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
